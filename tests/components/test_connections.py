"""Which connections are kept between two requests, for how long, and what happens when a server closes one."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from scrapy import Request

from crawlweb.connections import keeps_s
from crawlweb.download import DownloadHandler
from crawlweb.errors import ConnectionWasClosed, FetchError
from crawlweb.exchange import Head
from crawlweb.records import boottime
from tests.components.test_download import PAGE, answer, certificate, chunked, html, new_handler

both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class Server:
    """Answers each request of a connection with the next of `answers`; None: closes the connection instead."""

    def __init__(self, answers: list[bytes | None]) -> None:
        self.answers, self.connections, self.requests, self.port = answers, 0, list[bytes](), 0
        self.writers = list[asyncio.StreamWriter]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                data = self.answers.pop(0)
                if data is None:
                    break
                writer.write(data)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        writer.close()


Work = Callable[[DownloadHandler, Server, Callable[..., Awaitable[bytes]]], Awaitable[None]]


def crawl(answers: list[bytes | None], work: Work, *, run: Any = asyncio.run, tls: ssl.SSLContext | None = None, **settings: Any) -> Server:
    server = Server(answers)

    async def main() -> None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
        server.port = listener.sockets[0].getsockname()[1]
        handler = new_handler(**{"CRAWLWEB_LATENCY_FACTOR": 0, **settings})

        async def get(host: str = "127.0.0.1", **options: Any) -> bytes:
            request = Request(f"http{'s' if tls else ''}://{host}:{server.port}/", **options)
            response = await handler.download_request(request)
            assert request.meta["crawlweb_fetch"].body == response.body
            return response.body

        try:
            await work(handler, server, get)
        finally:
            await handler.close()
            assert len(handler.connections) == 0
            listener.close()
            for writer in server.writers:
                writer.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                await asyncio.wait(others, timeout=2)

    run(main())
    return server


async def twice(_: DownloadHandler, __: Server, get: Callable[..., Awaitable[bytes]]) -> None:
    for _i in range(2):
        assert await get() == PAGE


CHUNKED = answer(b"HTTP/1.1 200 OK", b"Content-Type: text/html", b"Transfer-Encoding: chunked", body=chunked(PAGE[:100], PAGE[100:]))


@both_loops
@pytest.mark.parametrize("raw", [html(), CHUNKED, html(PAGE, b"Keep-Alive: timeout=15, max=100")], ids=["length", "chunked", "said so"])
def test_a_second_request_goes_over_the_same_connection(raw: bytes, run: Any) -> None:
    server = crawl([raw, raw], twice, run=run)
    assert (server.connections, len(server.requests)) == (1, 2)
    assert all(b"\r\nConnection: keep-alive\r\n" in request for request in server.requests)


@both_loops
def test_a_tls_connection_is_kept_for_its_name_only(tmp_path: Path, run: Any) -> None:
    async def work(_: DownloadHandler, __: Server, get: Callable[..., Awaitable[bytes]]) -> None:
        for host in ("a.localhost", "a.localhost", "b.localhost"):
            await get(host)

    server = crawl([html()] * 3, work, run=run, tls=certificate(tmp_path))
    assert (server.connections, len(server.requests)) == (2, 3)


CLOSED = {
    "said so": html(PAGE, b"Connection: close"),
    "HTTP/1.0": html().replace(b"HTTP/1.1", b"HTTP/1.0"),
    "no more requests": html(PAGE, b"Keep-Alive: max=0"),
    "closed too soon for the host's delay": html(PAGE, b"Keep-Alive: timeout=2"),
    "more than the answer": html() + b"x",
    "more than the last chunk": CHUNKED + b"HTTP/1.1",
}


@pytest.mark.parametrize("raw", CLOSED.values(), ids=CLOSED)
def test_what_is_not_kept(raw: bytes) -> None:
    server = crawl([raw, raw], twice, CRAWLWEB_MIN_DELAY_S=1.5)
    assert (server.connections, len(server.requests)) == (2, 2)


SETTINGS: dict[str, dict[str, Any]] = {
    "switched off": {"CRAWLWEB_KEEP_ALIVE_S": 0},
    "none may wait": {"CRAWLWEB_KEEP_ALIVE_MOST": 0},
    "the host's next turn comes too late": {"CRAWLWEB_MIN_DELAY_S": 5},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_then_the_server_is_told_that_the_connection_ends(settings: dict[str, Any]) -> None:
    server = crawl([html()] * 2, twice, **settings)
    assert (server.connections, len(server.requests)) == (2, 2)
    assert all(b"\r\nConnection: close\r\n" in request for request in server.requests)


@both_loops
def test_a_connection_that_the_server_closes_meanwhile_is_replaced(run: Any) -> None:
    async def work(handler: DownloadHandler, server: Server, get: Callable[..., Awaitable[bytes]]) -> None:
        await get()
        server.writers[0].close()
        while len(handler.connections):
            await asyncio.sleep(0.01)
        await get()

    assert crawl([html()] * 2, work, run=run).connections == 2


@both_loops
def test_a_server_that_speaks_unasked_is_not_listened_to(run: Any) -> None:
    async def work(handler: DownloadHandler, server: Server, get: Callable[..., Awaitable[bytes]]) -> None:
        await get()
        server.writers[0].write(html(b"<p>An answer to nothing."))
        while len(handler.connections):
            await asyncio.sleep(0.01)
        assert await get() == PAGE

    assert crawl([html()] * 2, work, run=run).connections == 2


@both_loops
def test_a_close_that_the_loop_has_not_come_to_is_noticed(run: Any) -> None:
    async def work(_: DownloadHandler, server: Server, get: Callable[..., Awaitable[bytes]]) -> None:
        await get()
        with socket.socket(fileno=os.dup(server.writers[0].get_extra_info("socket").fileno())) as theirs:
            theirs.shutdown(socket.SHUT_RDWR)  # at once: our loop has no turn between this and the next request
        assert await get() == PAGE

    assert crawl([html()] * 2, work, run=run).connections == 2


@both_loops
def test_a_request_that_meets_the_close_is_given_back_and_the_origin_gets_no_other(run: Any) -> None:
    """It is not sent again on the spot: the server may have seen it."""

    async def work(handler: DownloadHandler, server: Server, get: Callable[..., Awaitable[bytes]]) -> None:
        await get()
        request = Request(f"http://127.0.0.1:{server.port}/")
        with pytest.raises(ConnectionWasClosed):
            await handler.download_request(request)
        assert 0 <= boottime() - request.meta["crawlweb_sent"] < 5
        for _ in range(2):
            await get()

    server = crawl([html(), None, html(), html()], work, run=run)
    assert (server.connections, len(server.requests)) == (3, 4)


def test_a_new_connection_that_is_closed_is_the_servers_failure() -> None:
    async def work(_: DownloadHandler, __: Server, get: Callable[..., Awaitable[bytes]]) -> None:
        with pytest.raises(FetchError, match="reset"):
            await get()

    assert crawl([None], work).connections == 1


def test_when_many_wait_the_others_are_closed() -> None:
    async def work(handler: DownloadHandler, _: Server, get: Callable[..., Awaitable[bytes]]) -> None:
        for host in ("a.localhost", "b.localhost", "c.localhost", "c.localhost", "a.localhost", "b.localhost"):
            await get(host)
        assert len(handler.connections) == 2

    assert crawl([html()] * 6, work, CRAWLWEB_KEEP_ALIVE_MOST=2).connections == 4


def test_a_connection_does_not_wait_longer_than_it_may() -> None:
    async def work(handler: DownloadHandler, _: Server, get: Callable[..., Awaitable[bytes]]) -> None:
        await get()
        assert len(handler.connections) == 1
        while len(handler.connections):
            await asyncio.sleep(0.05)
        await get()

    assert crawl([html()] * 2, work, CRAWLWEB_KEEP_ALIVE_S=0.1, CRAWLWEB_MIN_DELAY_S=0.1).connections == 2


KEPT = [
    (b"HTTP/1.1 200 OK", 4.0),
    (b"HTTP/1.1 200 OK\nConnection: Keep-Alive", 4.0),
    (b"HTTP/1.1 200 OK\nConnection: Upgrade, Close", 0.0),
    (b"HTTP/1.0 200 OK", 0.0),
    (b"HTTP/1.0 200 OK\nConnection: keep-alive", 4.0),
    (b"HTTP/1.1 200 OK\nKeep-Alive: timeout=5", 4.0),
    (b"HTTP/1.1 200 OK\nKeep-Alive: timeout=3", 2.0),
    (b"HTTP/1.1 200 OK\nKeep-Alive: timeout=1", 0.0),
    (b"HTTP/1.1 200 OK\nKeep-Alive: max=0, timeout=60", 0.0),
    (b'HTTP/1.1 200 OK\nKeep-Alive: Timeout="60"; max=7', 4.0),
    (b"HTTP/1.1 200 OK\nKeep-Alive: timeout=soon", 4.0),
    (b"HTTP/1.1 200 OK\nKeep-Alive: timeout=" + b"9" * 400, 4.0),
]


@pytest.mark.parametrize(("head", "seconds"), KEPT)
def test_how_long_a_server_keeps_a_connection(head: bytes, seconds: float) -> None:
    assert keeps_s(Head.parse(head.replace(b"\n", b"\r\n") + b"\r\n\r\n"), 4.0) == seconds
