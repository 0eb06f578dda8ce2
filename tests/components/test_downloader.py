"""Our downloader beside Scrapy's: the same middlewares, signals and slots for a leased request, without the queues."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydispatch import dispatcher  # type: ignore[import-untyped]
from scrapy import Request, Spider, signals
from scrapy.core.downloader import Downloader as ScrapyDownloader
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.exceptions import _InvalidOutput
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.test import get_crawler
from twisted.internet.defer import Deferred, succeed

from crawlweb.downloader import Downloader
from crawlweb.scheduler import DOWNLOAD_SLOT

URL = "http://a.org/"
events: list[str] = []


class Handler:
    """Answers with the request's URL, unless it is to fail."""

    lazy = True

    @classmethod
    def from_crawler(cls, _: Any) -> Handler:
        return cls()

    async def download_request(self, request: Request) -> Response:
        events.append("handler")
        await asyncio.sleep(0)
        if request.meta.get("fails"):
            raise OSError("no answer")
        return Response(request.url)

    async def close(self) -> None:
        return


class Plain:
    def process_request(self, request: Request) -> Any:
        events.append("request")
        return request.meta.get("answer")

    def process_response(self, request: Request, response: Response) -> Any:
        events.append("response")
        return request.meta.get("instead", response)

    def process_exception(self, request: Request, exception: Exception) -> Any:
        events.append(type(exception).__name__)
        return request.meta.get("rescue")


class Waits(Plain):
    async def process_request(self, request: Request) -> Any:
        await asyncio.sleep(0)
        return super().process_request(request)

    async def process_response(self, request: Request, response: Response) -> Any:
        await asyncio.sleep(0)
        return super().process_response(request, response)


class Outdated(Plain):
    def process_request(self, request: Request, spider: Spider) -> Any:  # type: ignore[override]
        assert isinstance(spider, Spider)
        return super().process_request(request)


class Defers(Plain):
    def process_request(self, request: Request) -> Deferred[Any]:
        return succeed(super().process_request(request))


def outcome(
    kind: type[ScrapyDownloader], middlewares: list[type], meta: dict[str, Any], listens: tuple[str, ...] = ()
) -> tuple[Any, list[str]]:
    """What comes of a request, and what happened on the way."""
    events.clear()

    async def main() -> Any:
        settings: dict[str, Any] = {
            "DOWNLOADER_MIDDLEWARES_BASE": {},
            "DOWNLOADER_MIDDLEWARES": {middleware: at for at, middleware in enumerate(middlewares)},
            "DOWNLOAD_HANDLERS": {"http": Handler, "https": Handler},
        }
        crawler = get_crawler(Spider, settings)
        crawler.spider = crawler._create_spider("shop")
        listeners = [heard(name) for name in listens]
        for name, listener in zip(listens, listeners, strict=True):
            crawler.signals.connect(listener, getattr(signals, name))
        downloader = kind(crawler)
        request = Request(URL, meta=dict(meta))
        try:
            got: Any = await maybe_deferred_to_future(downloader.fetch(request))
        except Exception as error:
            got = type(error)
        finally:
            downloader.close()
        assert not downloader.active
        assert all(not slot.active and not slot.transferring and not slot.queue for slot in downloader.slots.values())
        return got if isinstance(got, type) else (type(got), got.url, list(downloader.slots))

    return asyncio.run(main()), list(events)


def heard(name: str) -> Callable[..., None]:
    def listener(**_: Any) -> None:
        events.append(name)

    return listener


LEASED = {"download_slot": DOWNLOAD_SLOT}
OTHER = Request("http://b.org/")
CASES: dict[str, tuple[list[type], dict[str, Any]]] = {
    "without middlewares": ([], LEASED),
    "plain ones": ([Plain], LEASED),
    "coroutines among them": ([Plain, Waits, Plain], LEASED),
    "a request instead of a fetch": ([Plain, Waits], {**LEASED, "answer": OTHER}),
    "a response instead of a fetch": ([Waits, Plain], {**LEASED, "answer": Response("http://c.org/")}),
    "a request instead of a response": ([Plain, Waits], {**LEASED, "instead": OTHER}),
    "no answer": ([Plain, Waits], {**LEASED, "fails": True}),
    "no answer, and a middleware knows one": ([Plain, Waits], {**LEASED, "fails": True, "rescue": Response("http://c.org/")}),
    "no answer, and a middleware asks elsewhere": ([Plain], {**LEASED, "fails": True, "rescue": OTHER}),
    "nonsense instead of a fetch": ([Plain, Plain], {**LEASED, "answer": 5}),
    "nonsense instead of a response": ([Plain, Waits], {**LEASED, "instead": 5}),
    "nothing instead of a response": ([Waits, Plain], {**LEASED, "instead": None}),
    "a slot of its own": ([Plain], {"download_slot": "api"}),
    "the slot of its host": ([Plain], {}),
}
ALL = ("request_reached_downloader", "response_downloaded", "request_left_downloader")


@pytest.mark.parametrize("listens", [(), ALL], ids=["nobody listens", "signals"])
@pytest.mark.parametrize(("middlewares", "meta"), CASES.values(), ids=CASES.keys())
def test_what_comes_of_a_request_is_what_scrapy_makes_of_it(
    middlewares: list[type], meta: dict[str, Any], listens: tuple[str, ...]
) -> None:
    assert outcome(Downloader, middlewares, meta, listens) == outcome(ScrapyDownloader, middlewares, meta, listens)


@pytest.mark.parametrize("middleware", [Outdated, Defers])
@pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")
def test_outdated_middlewares_go_on_working(middleware: type) -> None:
    ours = outcome(Downloader, [Plain, middleware], LEASED)
    assert ours == outcome(ScrapyDownloader, [Plain, middleware], LEASED)
    assert ours[1] == ["request", "request", "handler", "response", "response"]


def test_a_wrong_answer_is_named() -> None:
    assert outcome(Downloader, [Plain], {**LEASED, "instead": 5})[0] is _InvalidOutput


@pytest.mark.parametrize("signal", ALL)
def test_who_listens_to_all_signals_hears_ours(signal: str) -> None:
    names: list[object] = []

    def listener(signal: object) -> None:
        names.append(signal)

    dispatcher.connect(listener, dispatcher.Any, dispatcher.Any)
    try:
        outcome(Downloader, [], LEASED)
    finally:
        dispatcher.disconnect(listener, dispatcher.Any, dispatcher.Any)
    assert getattr(signals, signal) in names


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (DownloaderMiddlewareManager._process_request, 'self.methods["process_request"]'),
        (DownloaderMiddlewareManager._process_response, 'self.methods["process_response"]'),
        (DownloaderMiddlewareManager.download_async, "await self._process_exception(ex, request)"),
        (ScrapyDownloader.fetch, "self.middleware.download_async(self._enqueue_request, request)"),
        (ScrapyDownloader._enqueue_request, "self._get_slot(request)"),
        (ScrapyDownloader._download, "self.handlers.download_request_async(request)"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_scrapy_s_downloader_is_the_one_that_ours_was_made_from(function: Callable[..., Awaitable[Any]], call: str) -> None:
    assert call in inspect.getsource(inspect.unwrap(function))
