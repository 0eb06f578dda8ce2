"""The private parts of Scrapy that the scheduler depends on. A new Scrapy that changes one fails here, by name."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
import scrapy
from scrapy import Request, Spider
from scrapy.core.engine import ExecutionEngine, _Slot
from scrapy.core.scheduler import BaseScheduler
from scrapy.http import HtmlResponse, JsonRequest, Response, TextResponse
from scrapy.spidermiddlewares.start import StartSpiderMiddleware
from scrapy.spiders import CrawlSpider
from scrapy.utils.reactor import CallLaterOnce
from scrapy.utils.test import get_crawler

from crawlweb.requests import SPIDER_METHODS


class Nothing(BaseScheduler):
    """A scheduler that looks at its engine's slot while it is opened."""

    seen: Any = None

    @classmethod
    def from_crawler(cls, crawler: Any) -> Nothing:
        scheduler = cls()
        scheduler.crawler = crawler  # type: ignore[attr-defined]
        return scheduler

    def open(self, spider: Spider) -> None:  # noqa: ARG002
        Nothing.seen = self.crawler.engine._slot  # type: ignore[attr-defined]

    def has_pending_requests(self) -> bool:
        return False

    def enqueue_request(self, request: Request) -> bool:  # noqa: ARG002
        return False

    def next_request(self) -> Request | None:
        return None


def slot() -> Any:
    return _Slot(False, CallLaterOnce(lambda: None), Nothing())


def in_loop(work: Any) -> None:
    async def main() -> None:
        await work()

    asyncio.run(main())


def test_the_scrapy_that_this_was_written_for() -> None:
    assert scrapy.version_info[:2] == (2, 19)


def test_the_slot_has_what_the_scheduler_wraps_and_wakes() -> None:
    async def work() -> None:
        s = slot()
        assert s.closing is None
        assert list(inspect.signature(s.remove_request).parameters) == ["request"]
        assert inspect.iscoroutinefunction(s.close)
        assert list(inspect.signature(s.close).parameters) == []
        assert callable(s.nextcall.schedule)
        s.nextcall.schedule()
        s.nextcall.schedule()  # more than once before it runs is allowed
        s.nextcall.cancel()

    in_loop(work)


def test_methods_put_on_the_slot_itself_are_the_ones_that_run() -> None:
    """No __slots__, and the engine looks them up on the instance at each call."""

    async def work() -> None:
        s, happened = slot(), []
        engine = ExecutionEngine.__new__(ExecutionEngine)
        engine._slot = s
        remove = s.remove_request

        def remove_request(request: Request) -> None:
            happened.append(request)
            remove(request)

        s.remove_request = remove_request
        request = Request("https://example.com/")
        s.add_request(request)
        engine._remove_request(None, request)
        assert happened == [request]
        assert s.inprogress == set()

    in_loop(work)


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (ExecutionEngine._remove_request, "self._slot.remove_request(request)"),
        (ExecutionEngine.download_async, "self._slot.remove_request(request)"),
        (ExecutionEngine.close_spider_async, "await self._slot.close()"),
        (ExecutionEngine._start_scheduled_requests, "self._slot.closing is not None"),
        (ExecutionEngine._start_scheduled_request, "self._slot.scheduler.next_request()"),
        (ExecutionEngine._schedule_request, "self._slot.scheduler.enqueue_request(request)"),
        (ExecutionEngine.spider_is_idle, "self._slot.scheduler.has_pending_requests()"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_engine_calls_by_the_names_that_are_wrapped(function: Any, call: str) -> None:
    assert call in inspect.getsource(inspect.unwrap(function))


def test_every_way_of_a_request_ends_in_remove_request() -> None:
    """After downloader, callback and pipelines; also when one of them failed (addBoth)."""
    source = inspect.getsource(ExecutionEngine._start_scheduled_request)
    order = [
        source.index(part)
        for part in ("d.addBoth(self._handle_downloader_output", "d.addErrback", "d.addBoth(partial(self._remove_request")
    ]
    assert order == sorted(order)
    assert "inprogress.remove(request)" in inspect.getsource(_Slot.remove_request)
    assert "enqueue_scrape" in inspect.getsource(inspect.unwrap(ExecutionEngine._handle_downloader_output))


def test_closing_is_known_to_the_slot_before_anything_else_is_closed() -> None:
    source = inspect.getsource(ExecutionEngine.close_spider_async)
    steps = (
        "await self._slot.close()",
        "self.downloader.close()",
        "self.scraper.close_spider_async()",
        "scheduler.close(reason)",
        "signals.spider_closed",
    )
    order = [source.index(step) for step in steps]
    assert order == sorted(order)

    async def work() -> None:
        s = slot()
        request = Request("https://example.com/")
        s.add_request(request)
        closing = asyncio.ensure_future(s.close())
        await asyncio.sleep(0)
        assert s.closing is not None
        assert not closing.done()  # waits for what is in progress
        s.remove_request(request)
        await asyncio.wait_for(closing, 5)

    in_loop(work)


def test_the_slot_is_there_while_the_scheduler_is_opened() -> None:
    async def work() -> None:
        crawler = get_crawler(Spider, {"SCHEDULER": Nothing, "TELNETCONSOLE_ENABLED": False})
        crawler.spider = crawler._create_spider("shop")
        engine = crawler.engine = crawler._create_engine()
        assert engine._slot is None
        Nothing.seen = None
        await engine.open_spider_async()
        assert Nothing.seen is engine._slot
        assert engine.scheduler is engine._slot.scheduler
        await engine.close_spider_async(reason="done")

    in_loop(work)


def test_the_engine_asks_again_by_itself_only_every_few_seconds() -> None:
    assert ExecutionEngine._SLOT_HEARTBEAT_INTERVAL == 5.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Request("https://example.com/"),
        lambda: JsonRequest("https://example.com/"),
        lambda: Response("https://example.com/"),
        lambda: TextResponse("https://example.com/", encoding="utf-8"),
        lambda: HtmlResponse("https://example.com/", encoding="utf-8"),
    ],
)
def test_requests_and_responses_are_keys_by_identity(make: Any) -> None:
    one, other = make(), make()
    assert one != other
    assert len({one, other}) == 2
    assert {one: 1}.get(other) is None
    assert {one: 1}[one] == 1
    assert one.replace(url="https://example.com/b") not in {one}


def test_a_start_request_says_so() -> None:
    middleware = StartSpiderMiddleware(get_crawler(Spider))
    request = middleware.get_processed_request(Request("https://example.com/"), None)
    assert request
    assert request.meta["is_start_request"] is True


def test_a_crawl_spider_s_own_callbacks_have_these_names() -> None:
    source = inspect.getsource(CrawlSpider._build_request)
    assert {name for name in SPIDER_METHODS if f"self.{name}" in source} == SPIDER_METHODS
