"""Log lines of single URLs at DEBUG, without whole items, without tracebacks of other people's servers; no line shows credentials."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy import logformatter

from .errors import CrawlwebError, without_credentials

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.http import Response
    from scrapy.logformatter import LogFormatterResult
    from twisted.python.failure import Failure


_ENGINE, _SCRAPER = (logging.getLogger(f"scrapy.core.{name}") for name in ("engine", "scraper"))


def _is_shown(logger: logging.Logger) -> bool:
    """Does anybody read lines at DEBUG? Scrapy opens all loggers and leaves it to handlers what they show."""
    if not logger.isEnabledFor(logging.DEBUG):
        return False
    above: logging.Logger | None = logger
    while above is not None:
        for handler in above.handlers:
            if handler.level <= logging.DEBUG:
                return True
        above = above.parent if above.propagate else None
    return False


class LogFormatter(logformatter.LogFormatter):
    """A line that nobody would read is not made: there are two a page."""

    def crawled(self, request: Request, response: Response, spider: Spider) -> LogFormatterResult | None:  # type: ignore[override]
        return super().crawled(request, response, spider) if _is_shown(_ENGINE) else None

    def scraped(  # type: ignore[override]
        self,
        item: Any,  # noqa: ARG002
        response: Response | Failure | None,
        spider: Spider,  # noqa: ARG002
    ) -> LogFormatterResult | None:
        if not _is_shown(_SCRAPER):
            return None
        return {"level": logging.DEBUG, "msg": "Scraped %(src)s", "args": {"src": response}}

    def download_error(self, failure: Failure, request: Request, spider: Spider, errmsg: str | None = None) -> LogFormatterResult:
        if isinstance(failure.value, CrawlwebError):
            args = {"request": request, "error": failure.value}
            return {"level": logging.DEBUG, "msg": "No page from %(request)s: %(error)s", "args": args}
        return super().download_error(failure, request, spider, errmsg)


def hide_credentials() -> None:
    """From now on no log record of the process, whoever writes it and whoever reads it, shows the credentials of a URL."""
    make_record = logging.getLogRecordFactory()
    if not isinstance(make_record, _HidingFactory):
        logging.setLogRecordFactory(_HidingFactory(make_record))


class _HidingFactory:
    def __init__(self, make_record: Callable[..., logging.LogRecord]) -> None:
        self._make_record = make_record

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make_record(*args, **kwargs)
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit: logging reports that itself
            return record
        if (shown := without_credentials(message)) != message:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[0]:
            trace = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            if (shown := without_credentials(trace)) != trace:
                record.exc_text = shown
        return record
