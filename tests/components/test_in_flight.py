"""The cap on bytes in flight, with servers that would send more than a worker may hold."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from crawlweb.download import DownloadHandler, in_flight_of
from crawlweb.errors import FetchError, NoRoom
from crawlweb.in_flight import LOOK_S, READ_BYTES
from crawlweb.records import boottime

MB = 1_000_000
Serve = Callable[[str, asyncio.StreamWriter], Awaitable[None]]
both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class Fetches:
    """Requests with leases, as the scheduler gives them: their bytes are held until they are finished."""

    def __init__(self, port: int, cap_bytes: int, timeout_s: float) -> None:
        settings = {
            "CRAWLWEB_ALLOW_PRIVATE_IPS": True,
            "CRAWLWEB_BYTES_IN_FLIGHT": cap_bytes,
            "CRAWLWEB_MIN_DELAY_S": 0.1,
            "CRAWLWEB_LATENCY_FACTOR": 0,
            "DOWNLOAD_TIMEOUT": timeout_s,
        }
        crawler = get_crawler(Spider, settings)
        self.port, self.in_flight, self.handler = port, in_flight_of(crawler), DownloadHandler.from_crawler(crawler)

    async def fetch(self, path: str, *, leased: bool = True) -> tuple[Request, bytes]:
        meta = {"crawlweb_deadline": boottime() + 60} if leased else {}
        request = Request(f"http://127.0.0.1:{self.port}{path}", meta=meta)
        return request, (await self.handler.download_request(request)).body

    async def page(self, path: str) -> None:
        request, body = await self.fetch(path)
        assert body == b"x" * sized(path)
        await asyncio.sleep(0.01)  # it is analysed and stored
        self.finish(request)

    def finish(self, request: Request) -> None:
        request.meta.pop("crawlweb_held").release()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.005)


def crawl(
    serve: Serve, work: Callable[[Fetches], Awaitable[None]], *, cap_bytes: int, run: Any = uvloop.run, timeout_s: float = 20
) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            await serve(head.split()[1].decode(), writer)
            await writer.drain()
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async def main() -> None:
        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        fetches = Fetches(listener.sockets[0].getsockname()[1], cap_bytes, timeout_s)
        try:
            await asyncio.wait_for(work(fetches), 30)
        finally:
            await fetches.handler.close()
            listener.close()
            await listener.wait_closed()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                await asyncio.wait(others, timeout=2)
        assert fetches.in_flight.bytes == 0, "all was given back"

    run(main())


def head(size_bytes: int | None, *lines: str) -> bytes:
    length = () if size_bytes is None else (f"Content-Length: {size_bytes}",)
    return "\r\n".join(("HTTP/1.1 200 OK", "Content-Type: text/html", "Connection: close", *length, *lines, "", "")).encode()


def sized(path: str) -> int:
    """The path says how large a body is."""
    return int(path.split("/")[1])


async def whole(path: str, writer: asyncio.StreamWriter, closes: bool = True) -> None:
    start = head(sized(path)) if closes else head(sized(path)).replace(b"Connection: close\r\n", b"")
    writer.write(start + b"x" * sized(path))


@both_loops
def test_many_large_bodies_at_once_stay_under_the_cap_and_all_come_whole(run: Any) -> None:
    async def work(fetches: Fetches) -> None:
        await asyncio.gather(*(fetches.page(f"/{MB}/{number}") for number in range(40)))
        assert fetches.in_flight.waits > 0
        assert fetches.in_flight.most_bytes <= 4 * MB + MB + READ_BYTES

    crawl(whole, work, cap_bytes=4 * MB, run=run)


@both_loops
def test_bodies_larger_than_the_cap_come_one_by_one(run: Any) -> None:
    async def work(fetches: Fetches) -> None:
        await asyncio.gather(*(fetches.page(f"/{MB}/{number}") for number in range(6)))
        assert MB <= fetches.in_flight.most_bytes <= MB + READ_BYTES

    crawl(whole, work, cap_bytes=1000, run=run)


def test_what_is_received_counts_until_its_page_is_finished() -> None:
    async def work(fetches: Fetches) -> None:
        request, _ = await fetches.fetch("/300000")
        assert fetches.in_flight.bytes == 300_000
        fetches.finish(request)
        assert fetches.in_flight.bytes == 0
        await fetches.fetch("/300000", leased=False)
        assert fetches.in_flight.bytes == 0, "nobody ends a request without a lease"

    crawl(whole, work, cap_bytes=200_000)


def test_a_connection_whose_answer_filled_the_cap_serves_the_next_request() -> None:
    async def serve(path: str, writer: asyncio.StreamWriter) -> None:
        reader: asyncio.StreamReader = writer._protocol._stream_reader  # type: ignore[attr-defined]
        for _ in range(2):
            await whole(path, writer, closes=False)
            await reader.readuntil(b"\r\n\r\n")

    async def work(fetches: Fetches) -> None:
        for _ in range(2):
            await fetches.page("/1000")

    crawl(serve, work, cap_bytes=10)


def test_a_lost_request_does_not_hold_its_bytes_for_ever() -> None:
    async def work(fetches: Fetches) -> None:
        await fetches.fetch("/300000")
        gc.collect()
        assert fetches.in_flight.bytes == 0

    crawl(whole, work, cap_bytes=200_000)


def test_a_body_counts_as_it_came_and_decoded() -> None:
    packed = gzip.compress(b"x" * MB)

    async def serve(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(head(len(packed), "Content-Encoding: gzip") + packed)

    async def work(fetches: Fetches) -> None:
        request, body = await fetches.fetch("/")
        assert len(body) == MB
        assert fetches.in_flight.bytes == MB + len(packed)
        fetches.finish(request)

    crawl(serve, work, cap_bytes=MB)


def test_who_trickles_does_not_keep_the_others_waiting() -> None:
    """The slow one is the first in line, and there is no room but for one."""
    end = asyncio.Event()

    async def serve(path: str, writer: asyncio.StreamWriter) -> None:
        if not path.endswith("slow"):
            await whole(path, writer)
            return
        writer.write(head(100_000) + b"x" * 50_000)
        await end.wait()
        writer.write(b"x" * 50_000)

    async def work(fetches: Fetches) -> None:
        slow = asyncio.ensure_future(fetches.fetch("/slow"))
        await fetches.until(lambda: fetches.in_flight.bytes > 0)
        await asyncio.gather(*(fetches.page(f"/{MB}/{number}") for number in range(3)))
        end.set()
        request, body = await slow
        assert len(body) == 100_000
        fetches.finish(request)

    crawl(serve, work, cap_bytes=10_000)


@pytest.mark.parametrize("then", ["hold", "close"])
def test_a_body_that_waits_too_long_is_nobody_s_fault_but_ours(then: str) -> None:
    """Its time is over, or its server loses patience."""

    async def serve(path: str, writer: asyncio.StreamWriter) -> None:
        if path == "/first" or then == "hold":
            writer.write(head(MB) + b"x" * 50_000)
            await asyncio.sleep(5 * LOOK_S)
        else:
            writer.write(head(MB) + b"x" * 50_000)
            await writer.drain()
            await asyncio.sleep(LOOK_S)
            writer.transport.abort()

    async def work(fetches: Fetches) -> None:
        first = asyncio.ensure_future(fetches.fetch("/first"))
        await fetches.until(lambda: fetches.in_flight.bytes > 0)
        request = Request(f"http://127.0.0.1:{fetches.port}/second", meta={"crawlweb_deadline": boottime() + 60})
        with pytest.raises(NoRoom):
            await fetches.handler.download_request(request)
        assert boottime() - request.meta["crawlweb_sent"] < 5, "its host rests as after any request"
        assert "crawlweb_held" not in request.meta
        with contextlib.suppress(NoRoom):
            await first

    crawl(serve, work, cap_bytes=10_000, timeout_s=4 * LOOK_S)


def test_a_server_s_own_slowness_stays_its_own() -> None:
    async def serve(_: str, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1)
        writer.write(b"")

    async def work(fetches: Fetches) -> None:
        with pytest.raises(FetchError, match="timeout"):
            await fetches.fetch("/")

    crawl(serve, work, cap_bytes=1, timeout_s=0.3)


def test_a_worker_without_files_blames_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(fetches: Fetches) -> None:
        async def no_file(*_: object, **__: object) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", no_file)
        with pytest.raises(NoRoom):
            await fetches.fetch("/")

    crawl(whole, work, cap_bytes=MB, run=asyncio.run)


def test_room_is_told_once_and_only_to_who_asked() -> None:
    async def work(fetches: Fetches) -> None:
        told: list[int] = []
        in_flight = fetches.in_flight
        in_flight.on_room = lambda: told.append(in_flight.bytes)
        for asks in (False, True, False):
            request, _ = await fetches.fetch("/300000")
            if asks:
                assert not in_flight.has_room
            fetches.finish(request)
        assert told == [0]
        assert in_flight.most_bytes == 300_000

    crawl(whole, work, cap_bytes=200_000)
