"""What a crawl writes to its log about single URLs."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import HtmlResponse
from scrapy.utils.log import logformatter_adapter
from scrapy.utils.test import get_crawler
from twisted.python.failure import Failure

from crawlweb.errors import FetchError, LeaseExpired, StoreError
from crawlweb.logformatter import LogFormatter

FORMATTER = LogFormatter.from_crawler(get_crawler(Spider))
SPIDER = Spider("shop")
REQUEST = Request("https://example.com/a?b=%20100%25")
RESPONSE = HtmlResponse(REQUEST.url, body=b"<p>secret words</p>", request=REQUEST)


def failure(error: Exception) -> Failure:
    return Failure(error)  # type: ignore[no-untyped-call]


def text(level: int, message: str, args: Any) -> str:
    """As logging makes it of `logger.log(level, message, args)`."""
    return logging.LogRecord("x", level, "", 0, message, (args,), None).getMessage()


def test_an_item_is_named_by_its_page_and_not_printed() -> None:
    level, message, args = logformatter_adapter(FORMATTER.scraped({"text": "secret words" * 1000}, RESPONSE, SPIDER))
    line = text(level, message, args)
    assert level == logging.DEBUG
    assert line == f"Scraped <200 {REQUEST.url}>"


def test_an_item_without_a_page_can_be_logged() -> None:
    level, message, args = logformatter_adapter(FORMATTER.scraped({}, None, SPIDER))
    assert text(level, message, args) == "Scraped None"


@pytest.mark.parametrize(
    "error", [FetchError("tls", "bad certificate 100%"), FetchError("reset"), LeaseExpired("too short"), StoreError("full")]
)
def test_a_failure_of_a_fetch_is_one_line_at_debug(error: Exception) -> None:
    result = FORMATTER.download_error(failure(error), REQUEST, SPIDER, "message")
    assert result
    level, message, args = logformatter_adapter(result)
    assert level == logging.DEBUG
    assert text(level, message, args) == f"No page from {REQUEST}: {error}"
    assert "\n" not in text(level, message, args)


def test_another_error_is_scrapy_s_to_log() -> None:
    result = FORMATTER.download_error(failure(RuntimeError("a bug")), REQUEST, SPIDER, "a bug")
    assert result
    assert result["level"] == logging.ERROR
