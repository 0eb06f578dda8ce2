"""What a crawl writes to its log about single URLs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import HtmlResponse
from scrapy.utils.log import logformatter_adapter
from scrapy.utils.test import get_crawler
from twisted.python.failure import Failure

from crawlweb.errors import ConnectionWasClosed, FetchError, LeaseExpired, StoreError, without_credentials
from crawlweb.logformatter import LogFormatter, hide_credentials

FORMATTER = LogFormatter.from_crawler(get_crawler(Spider))
SPIDER = Spider("shop")
REQUEST = Request("https://example.com/a?b=%20100%25")
RESPONSE = HtmlResponse(REQUEST.url, body=b"<p>secret words</p>", request=REQUEST)


def failure(error: Exception) -> Failure:
    return Failure(error)  # type: ignore[no-untyped-call]


def text(level: int, message: str, args: Any) -> str:
    """As logging makes it of `logger.log(level, message, args)`."""
    return logging.LogRecord("x", level, "", 0, message, (args,), None).getMessage()


@pytest.fixture
def all_loggers_open(caplog: pytest.LogCaptureFixture) -> None:
    """As Scrapy opens them; pytest's handler takes every line."""
    caplog.set_level(logging.NOTSET)


def lines(level: int) -> int:
    """Of a page and its item, made for a handler of this level beside handlers for warnings; other handlers are away meanwhile."""
    root = logging.getLogger()
    before, root.handlers = root.handlers, [logging.Handler(logging.WARNING), logging.Handler(level)]
    try:
        return sum(bool(line) for line in (FORMATTER.crawled(REQUEST, RESPONSE, SPIDER), FORMATTER.scraped({}, RESPONSE, SPIDER)))
    finally:
        root.handlers = before


@pytest.mark.usefixtures("all_loggers_open")
@pytest.mark.parametrize(("level", "made"), [(logging.INFO, 0), (logging.DEBUG, 2), (logging.NOTSET, 2)])
def test_lines_of_single_pages_are_made_only_where_a_handler_shows_them(level: int, made: int) -> None:
    assert lines(level) == made


@pytest.mark.usefixtures("all_loggers_open")
def test_a_logger_that_is_closed_makes_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("scrapy.core.engine", "scrapy.core.scraper"):
        caplog.set_level(logging.INFO, name)
    assert lines(logging.DEBUG) == 0


@pytest.mark.usefixtures("all_loggers_open")
def test_an_item_is_named_by_its_page_and_not_printed() -> None:
    result = FORMATTER.scraped({"text": "secret words" * 1000}, RESPONSE, SPIDER)
    assert result
    level, message, args = logformatter_adapter(result)
    line = text(level, message, args)
    assert level == logging.DEBUG
    assert line == f"Scraped <200 {REQUEST.url}>"


@pytest.mark.usefixtures("all_loggers_open")
def test_an_item_without_a_page_can_be_logged() -> None:
    result = FORMATTER.scraped({}, None, SPIDER)
    assert result
    level, message, args = logformatter_adapter(result)
    assert text(level, message, args) == "Scraped None"


@pytest.mark.parametrize(
    "error",
    [
        FetchError("tls", "bad certificate 100%"),
        FetchError("reset"),
        LeaseExpired("too short"),
        ConnectionWasClosed("lost"),
        StoreError("full"),
    ],
)
def test_a_failure_of_a_fetch_is_one_line_at_debug(error: Exception) -> None:
    result = FORMATTER.download_error(failure(error), REQUEST, SPIDER, "message")
    assert result
    level, message, args = logformatter_adapter(result)
    assert level == logging.DEBUG
    assert text(level, message, args) == f"No page from {REQUEST}: {error}"
    assert "\n" not in text(level, message, args)


SHOWN = {
    "<GET http://me:secret@a.org/x?y=z@b>": "<GET http://a.org/x?y=z@b>",
    "https://secret@a.org": "https://a.org",
    "ftp://me:se:cr@et@a.org/": "ftp://a.org/",
    "redis://:secret@127.0.0.1:6379/0 and s3://key:secret@bucket/": "redis://127.0.0.1:6379/0 and s3://bucket/",
    "http://a.org/@user http://b.org/?mail=x@y http://c.org#x@y": "http://a.org/@user http://b.org/?mail=x@y http://c.org#x@y",
    "mail ops@example.com, see http://a.org/": "mail ops@example.com, see http://a.org/",
    "100% of http://a.org": "100% of http://a.org",
}


@pytest.mark.parametrize(("text", "shown"), SHOWN.items())
def test_credentials_are_left_out_of_urls(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


@pytest.fixture
def hiding() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    hide_credentials()
    yield
    logging.setLogRecordFactory(before)


@pytest.mark.usefixtures("hiding")
def test_no_log_line_shows_credentials(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    request = Request("http://me:secret@example.com/100%25")
    response = HtmlResponse(request.url, request=request)
    logger = logging.getLogger("scrapy.some")
    for result in (
        FORMATTER.crawled(request, response, SPIDER),
        FORMATTER.scraped({}, response, SPIDER),
        FORMATTER.download_error(failure(FetchError("reset")), request, SPIDER, "http://me:secret@example.com/"),
        FORMATTER.download_error(failure(RuntimeError("a bug")), request, SPIDER, "http://me:secret@example.com/"),
        FORMATTER.spider_error(failure(RuntimeError("a bug")), request, response, SPIDER),
        FORMATTER.item_error({"url": request.url}, RuntimeError(), response, SPIDER),
    ):
        assert result
        level, message, args = logformatter_adapter(result)
        logger.log(level, message, args)
    assert len(caplog.messages) == 6
    assert "secret" not in caplog.text
    assert caplog.messages[0] == "Crawled (200) <GET http://example.com/100%25> (referer: None)"


@pytest.mark.usefixtures("hiding")
def test_no_traceback_shows_credentials(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise RuntimeError("no http://me:secret@example.com/")
    except RuntimeError:
        logging.getLogger("shop").exception("It broke")
    assert "secret" not in caplog.text
    assert caplog.text.rstrip().endswith("RuntimeError: no http://example.com/")
    assert "Traceback" in caplog.text


@pytest.mark.usefixtures("hiding")
def test_other_records_stay_as_they_were_made(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("shop").warning("%d pages of %s", 3, "a@b.org", extra={"pages": 3})
    (record,) = caplog.records
    assert (record.msg, record.args, record.__dict__["pages"]) == ("%d pages of %s", (3, "a@b.org"), 3)


def test_another_error_is_scrapy_s_to_log() -> None:
    result = FORMATTER.download_error(failure(RuntimeError("a bug")), REQUEST, SPIDER, "a bug")
    assert result
    assert result["level"] == logging.ERROR
