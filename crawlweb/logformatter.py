"""Log lines of single URLs at DEBUG, without whole items and without tracebacks of other people's servers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy import logformatter

from .errors import CrawlwebError

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.http import Response
    from scrapy.logformatter import LogFormatterResult
    from twisted.python.failure import Failure


class LogFormatter(logformatter.LogFormatter):
    def scraped(self, item: Any, response: Response | Failure | None, spider: Spider) -> LogFormatterResult:  # noqa: ARG002
        return {"level": logging.DEBUG, "msg": "Scraped %(src)s", "args": {"src": response}}

    def download_error(self, failure: Failure, request: Request, spider: Spider, errmsg: str | None = None) -> LogFormatterResult:
        if isinstance(failure.value, CrawlwebError):
            args = {"request": request, "error": failure.value}
            return {"level": logging.DEBUG, "msg": "No page from %(request)s: %(error)s", "args": args}
        return super().download_error(failure, request, spider, errmsg)
