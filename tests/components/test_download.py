"""One request over one connection, whatever the server does. Servers here write their bytes by hand."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import fcntl
import gc
import gzip
import ipaddress
import os
import resource
import socket
import ssl
import struct
import sys
import termios
import time
import weakref
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import brotli  # type: ignore[import-untyped]
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scrapy import Request, Spider
from scrapy.core.downloader.handlers import DownloadHandlers
from scrapy.exceptions import NotSupported
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.utils.test import get_crawler

from crawlweb import download, exchange
from crawlweb.download import DownloadHandler, LoopLag, raise_file_limit
from crawlweb.errors import FetchError, LeaseExpired
from crawlweb.records import Fetch, boottime

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CAP_BYTES = 100_000
PAGE = b"<html><title>A page</title><p>" + b"Some words of text. " * 200 + b"</html>"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answer(*lines: bytes, body: bytes = b"") -> bytes:
    """A response from its head's lines."""
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def html(body: bytes = PAGE, *lines: bytes) -> bytes:
    return answer(b"HTTP/1.1 200 OK", b"Content-Type: text/html; charset=utf-8", b"Content-Length: %d" % len(body), *lines, body=body)


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


def says(data: bytes, then: str = "close") -> Serve:
    """`then`: close, reset, or hold (the connection stays open)."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if then == "hold":
            await reader.read()
        elif then == "reset":
            await asyncio.sleep(0.05)  # else the reset overtakes the data
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

    return serve


class Server:
    def __init__(self) -> None:
        self.port = 0
        self.requests: list[bytes] = []
        self.connections = 0
        self.sni: list[str | None] = []

    def url(self, path: str = "/", scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


def crawl(
    serve: Serve | bytes,
    work: Callable[[DownloadHandler, Server], Awaitable[None]],
    *,
    run: Any = asyncio.run,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    **settings: Any,
) -> Server:
    """Starts a server and a handler, and ends them after `work`."""
    server = Server()
    respond = says(serve) if isinstance(serve, bytes) else serve

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            server.requests.append(head)
            await respond(reader, writer)
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async def main() -> None:
        listener = await asyncio.start_server(accept, host, 0, ssl=tls)
        server.port = listener.sockets[0].getsockname()[1]
        handler = new_handler(**settings)
        try:
            await work(handler, server)
        finally:
            await handler.close()
            listener.close()
            await listener.wait_closed()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                await asyncio.wait(others, timeout=2)

    run(main())
    return server


def new_handler(**settings: Any) -> DownloadHandler:
    defaults = {"CRAWLWEB_ALLOW_PRIVATE_IPS": True, "CRAWLWEB_MAX_BODY_BYTES": CAP_BYTES, "DOWNLOAD_TIMEOUT": 5}
    return DownloadHandler.from_crawler(get_crawler(Spider, {**defaults, **settings}))


def fetch(
    serve: Serve | bytes, path: str = "/", *, method: str = "GET", meta: dict[str, Any] | None = None, body: bytes = b"", **options: Any
) -> tuple[Response, Fetch]:
    """The response, and what went over the wire; the server has seen exactly one request."""
    got: list[Response] = []
    requests: list[Request] = []

    async def work(handler: DownloadHandler, server: Server) -> None:
        request = Request(server.url(path), method=method, meta=meta or {}, body=body)
        requests.append(request)
        got.append(await handler.download_request(request))

    server = crawl(serve, work, **options)
    assert len(server.requests) == 1
    assert "crawlweb_sent" not in requests[0].meta
    record = requests[0].meta["crawlweb_fetch"]
    assert requests[0].meta.get("crawlweb_truncated") == (record.truncated if "truncated" in got[0].flags else None)
    assert record.started <= record.finished
    assert record.body == got[0].body
    assert record.request_head == server.requests[0]
    return got[0], record


def failure(serve: Serve | bytes, *, meta: dict[str, Any] | None = None, requests: int = 1, **options: Any) -> FetchError:
    """The error of a fetch that brought nothing; its end is told, since the server saw a request."""
    caught: list[FetchError] = []

    async def work(handler: DownloadHandler, server: Server) -> None:
        request = Request(server.url(), meta=meta or {})
        with pytest.raises(FetchError) as info:
            await handler.download_request(request)
        caught.append(info.value)
        assert "crawlweb_fetch" not in request.meta
        assert 0 <= boottime() - request.meta["crawlweb_sent"] < 5

    server = crawl(serve, work, **options)
    assert len(server.requests) == requests
    return caught[0]


both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@both_loops
def test_a_page_comes_as_it_was_sent(run: Any) -> None:
    raw = html(PAGE, b"X-Odd:  two  words ", b"set-cookie: a=1", b"Set-Cookie: b=2")
    response, record = fetch(raw, "/a%7Eb;x/?q=%C3%A9&c=[1]#part", run=run, CRAWLWEB_KEEP_ALIVE_S=0)
    assert isinstance(response, HtmlResponse)
    assert (response.status, response.body, response.flags, response.protocol) == (200, PAGE, [], "HTTP/1.1")
    assert response.ip_address == ipaddress.ip_address("127.0.0.1")
    assert response.url == record.url
    assert response.headers.getlist("Set-Cookie") == [b"a=1", b"b=2"]
    assert record.response_head + record.payload == raw
    assert (record.ip, record.truncated) == ("127.0.0.1", None)
    assert record.request_head.startswith(b"GET /a%7Eb;x/?q=%C3%A9&c=%5B1%5D HTTP/1.1\r\nHost: 127.0.0.1:")
    assert record.request_head.count(b"\r\nConnection: close\r\n") == 1
    assert b"\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n" in record.request_head


def test_times_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopLag, "kept_time_for", lambda *_: True)

    async def late(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        writer.write(html())

    before = boottime()
    _, record = fetch(late)
    assert before < record.started < record.finished < boottime()
    assert record.latency_s is not None
    assert 0.09 < record.latency_s < 3


def test_no_latency_is_learnt_while_the_loop_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopLag, "kept_time_for", lambda *_: False)
    _, record = fetch(html())
    assert record.latency_s is None


class FakeLoop:
    """A clock and one timer, both moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: float | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeLoop:
        self.due, self.callback = when, callback
        return self

    def cancel(self) -> None:
        self.due = None

    def run(self, seconds: float, blocked: bool = False) -> None:
        until = self.now + seconds
        while not blocked and self.due is not None and self.due <= until:
            self.now = max(self.now, self.due)
            self.callback()
        self.now = until


def test_the_loops_lag_is_noticed_until_it_is_over() -> None:
    loop: Any = FakeLoop()
    lag = LoopLag(loop)
    lag.enter()
    loop.run(1.0)
    assert lag.kept_time_for(1.0)
    loop.run(0.031, blocked=True)
    assert not lag.kept_time_for(0.001)
    loop.run(0.5)
    assert not lag.kept_time_for(0.6)
    assert lag.kept_time_for(0.4)
    lag.leave()
    assert loop.due is None


BODIES = {
    "chunked": answer(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", body=chunked(PAGE[:7], PAGE[7:])),
    "chunk extension and trailer": answer(
        b"HTTP/1.1 200 OK",
        b"transfer-encoding: Chunked",
        body=b"%X;name=value\r\n%s\r\n0\r\nX-Checksum: 1\r\n\r\n" % (len(PAGE), PAGE),
    ),
    "chunked, bare LF": b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n%x\n%s\n0\r\n\r\n" % (len(PAGE), PAGE),
    "chunked, blanks after the size": answer(
        b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", body=b"%x  \r\n%s\r\n0\r\n\r\n" % (len(PAGE), PAGE)
    ),
    "chunked wins over a length": answer(b"HTTP/1.1 200 OK", b"Content-Length: 3", b"Transfer-Encoding: chunked", body=chunked(PAGE)),
    "HTTP/1.0 without length": answer(b"HTTP/1.0 200 OK", b"Content-Type: text/html", body=PAGE),
    "bare LF": b"HTTP/1.1 200 OK\nContent-Type: text/html\n\n" + PAGE,
    "no reason phrase": answer(b"HTTP/1.1 200", b"Content-Type: text/html", body=PAGE),
    "lower case, two blanks": answer(b"http/1.1  200  fine", b"content-type:text/html", body=PAGE),
    "folded line": answer(b"HTTP/1.1 200 OK", b"Content-Type: text/html;", b"  charset=utf-8", body=PAGE),
    "bytes beyond ASCII": answer(b"HTTP/1.1 200 \xc4\xff", b"X-\xe4: \xff\xfe\x01", b"Content-Type: text/html", body=PAGE),
    "line without colon": answer(b"HTTP/1.1 200 OK", b"what is this", b": nameless", b"Content-Type: text/html", body=PAGE),
    "blank in a name": answer(b"HTTP/1.1 200 OK", b"X Y : z", b"Content-Type : text/html", body=PAGE),
    "same length twice": html(PAGE, b"Content-Length: %d" % len(PAGE)),
    "lengths that differ": html(PAGE, b"Content-Length: 7"),
    "a length that is none": answer(b"HTTP/1.1 200 OK", b"Content-Length: -1", body=PAGE),
    "a length beyond all numbers": answer(b"HTTP/1.1 200 OK", b"Content-Length: " + b"9" * 5000, body=PAGE),
    "early hints": answer(b"HTTP/1.1 100 Continue") + answer(b"HTTP/1.1 103 Early Hints", b"Link: </a>") + html(),
    "blank lines first": b"\r\n\n\r\n" + html(),
    "more than the length": html() + b"HTTP/1.1 200 OK\r\n\r\nsmuggled",
    "more than the chunks": answer(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", body=chunked(PAGE) + b"\x00smuggled"),
    "many headers": html(PAGE, *(b"X-%d: %d" % (number, number) for number in range(1000))),
    "encoding that is none": html(PAGE, b"Content-Encoding: identity"),
}


@pytest.mark.parametrize("raw", BODIES.values(), ids=BODIES)
def test_the_body_is_found_as_browsers_find_it(raw: bytes) -> None:
    response, record = fetch(raw)
    assert (response.status, response.body, response.flags, record.truncated) == (200, PAGE, [], None)
    assert isinstance(response, TextResponse)
    assert record.payload == PAGE


@pytest.mark.parametrize("raw", [BODIES["chunked"], BODIES["early hints"], BODIES["folded line"], BODIES["blank lines first"]])
def test_bytes_that_come_one_by_one_make_the_same_page(raw: bytes) -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(200):
            writer.write(raw[at : at + 1])
            await asyncio.sleep(0)
        writer.write(raw[200:])

    response, _ = fetch(drip)
    assert response.body == PAGE


def raw_deflate(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-15)
    return squeeze.compress(data) + squeeze.flush()


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:]) + b"\x00\x00",
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "br": brotli.compress,
    "zstd": lambda data: zstd.compress(data[:100]) + zstd.compress(data[100:]),
    "gzip, br": lambda data: brotli.compress(gzip.compress(data)),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_content_encodings_are_undone(name: str) -> None:
    payload = ENCODINGS[name](PAGE)
    response, record = fetch(html(payload, b"Content-Encoding: " + name.encode()))
    assert (response.body, response.flags) == (PAGE, [])
    assert record.payload == payload
    assert "Content-Encoding" not in response.headers
    assert response.headers["Content-Length"] == b"%d" % len(PAGE)


@pytest.mark.parametrize("name", ["gzip", "Deflate", "br", "zstd"])
def test_encoded_bodies_may_come_in_single_bytes(name: str) -> None:
    payload = ENCODINGS[name](PAGE)
    chunks = chunked(*(payload[at : at + 1] for at in range(len(payload))))
    head = answer(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", b"Content-Encoding: " + name.encode())
    response, record = fetch(head + chunks)
    assert (response.body, response.flags, record.payload) == (PAGE, [], payload)
    assert "Transfer-Encoding" not in response.headers


@pytest.mark.parametrize("name", ["gzip", "deflate", "Deflate", "br", "zstd", "gzip, br"])
def test_a_bomb_stops_at_the_cap(name: str) -> None:
    payload = ENCODINGS[name](bytes(50_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    response, record = fetch(html(payload, b"Content-Encoding: " + name.encode()))
    assert (response.body, response.flags, record.truncated) == (bytes(CAP_BYTES), ["truncated"], "length")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_a_zstd_window_over_8_mb_is_refused() -> None:
    payload = zstd.compress(bytes(50_000_000), options={zstd.CompressionParameter.window_log: 27})
    response, _ = fetch(html(payload, b"Content-Encoding: zstd"))
    assert (response.body, response.flags) == (b"", ["bad_encoding"])


def test_thousands_of_empty_gzip_members_end_the_decoding() -> None:
    response, _ = fetch(html(gzip.compress(PAGE) + gzip.compress(b"") * 4000, b"Content-Encoding: gzip"))
    assert response.body == PAGE


BROKEN = {
    "cut off": (b"gzip", gzip.compress(PAGE)[:-12]),
    "wrong checksum": (b"gzip", gzip.compress(PAGE)[:-8] + b"\x00" * 8),
    "not gzip at all": (b"gzip", PAGE),
    "unknown": (b"utf-8", PAGE),
    "more after the end": (b"br", brotli.compress(PAGE) + b"more"),
    "too many layers": (b"gzip, gzip, gzip, gzip", PAGE),
}


@pytest.mark.parametrize(("name", "payload"), BROKEN.values(), ids=BROKEN)
def test_what_can_be_decoded_of_a_broken_encoding_is_kept(name: bytes, payload: bytes) -> None:
    response, record = fetch(html(payload, b"Content-Encoding: " + name))
    assert response.body
    assert PAGE.startswith(response.body)
    assert (response.flags, record.payload, record.truncated) == (["bad_encoding"], payload, None)


def test_a_defect_in_the_middle_costs_only_what_follows() -> None:
    text = b"".join(b"%d " % (number * number) for number in range(20_000))[:CAP_BYTES]
    payload = bytearray(gzip.compress(text))
    payload[len(payload) // 2 :] = b"\xff" * 2000
    response, _ = fetch(html(bytes(payload), b"Content-Encoding: gzip"))
    assert response.flags == ["bad_encoding"]
    assert len(text) * 0.4 < len(response.body)
    assert response.body[:40_000] == text[:40_000]


async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(b"HTTP/1.1 200 OK", b"Content-Type: text/html"))
    while True:
        writer.write(b"x" * 10_000)
        await writer.drain()


@both_loops
@pytest.mark.parametrize("name", ["", "gzip", "Deflate", "br", "zstd"])
def test_bodies_in_chunks_of_one_byte_do_not_stop_the_loop(name: str, run: Any) -> None:
    """A read of 256 KB holds 43,000 such chunks."""
    text = b"".join(b"%d " % (number * number) for number in range(10_000))
    payload = ENCODINGS[name](text) if name else text
    raw = answer(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", b"Content-Encoding: " + name.encode())
    raw += chunked(*(payload[at : at + 1] for at in range(len(payload))))
    cpu_s = time.process_time()
    response, record = fetch(raw, run=run)
    assert time.process_time() - cpu_s < 1
    assert (response.body, response.flags, record.truncated) == (text, [], None)


def test_what_came_before_a_broken_chunk_is_decoded_and_kept() -> None:
    raw = answer(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", b"Content-Encoding: gzip")
    payload = gzip.compress(PAGE)
    response, record = fetch(raw + chunked(payload)[: -len(b"0\r\n\r\n")] + b"nonsense")
    assert (response.body, record.payload, record.truncated) == (PAGE, payload, "disconnect")


async def endless_chunks(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked"))
    while True:
        writer.write(b"1;%s\r\nx\r\n" % (b"e" * 10_000))
        await writer.drain()


@both_loops
def test_an_endless_body_is_cut_at_the_cap(run: Any) -> None:
    response, record = fetch(endless, run=run)
    assert (response.body, response.flags) == (b"x" * CAP_BYTES, ["truncated"])
    assert (record.truncated, response.headers["Content-Length"]) == ("length", b"%d" % CAP_BYTES)


def test_endless_framing_is_cut_too() -> None:
    response, record = fetch(endless_chunks)
    assert (response.flags, record.truncated) == (["truncated"], "length")


def test_a_body_of_exactly_the_cap_is_whole() -> None:
    response, record = fetch(html(b"x" * CAP_BYTES))
    assert (len(response.body), response.flags, record.truncated) == (CAP_BYTES, [], None)


@both_loops
def test_a_server_that_drips_gives_a_truncated_page(run: Any) -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"HTTP/1.1 200 OK", b"Content-Type: text/html", b"Content-Length: 1000"))
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    response, record = fetch(drip, meta={"download_timeout": 0.3}, run=run, CRAWLWEB_FIRST_BYTE_S=0.1)
    assert 1 < len(response.body) < 30
    assert (response.flags, record.truncated) == (["truncated"], "time")
    assert 0.2 < record.finished - record.started < 3


@both_loops
@pytest.mark.parametrize("then", ["close", "reset"])
@pytest.mark.parametrize("raw", [html(PAGE)[:-10], BODIES["chunked"][:-10], BODIES["chunked"][:-5]])
def test_a_connection_lost_in_the_body_gives_a_truncated_page(raw: bytes, then: str, run: Any) -> None:
    response, record = fetch(says(raw, then), run=run)
    assert response.body
    assert PAGE.startswith(response.body)
    assert (response.flags, record.truncated) == (["truncated"], "disconnect")


@both_loops
def test_a_reset_where_the_close_would_end_the_body_is_a_loss(run: Any) -> None:
    _, record = fetch(says(BODIES["HTTP/1.0 without length"], "reset"), run=run)
    assert record.truncated == "disconnect"


def test_chunks_that_turn_into_garbage_give_a_truncated_page() -> None:
    raw = answer(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", body=b"5\r\nhello\r\nnonsense")
    response, record = fetch(raw)
    assert (response.body, record.truncated) == (b"hello", "disconnect")


FAILURES = {
    "silence, then close": (says(b""), "reset"),
    "reset before headers": (says(b"", "reset"), "reset"),
    "closed in the headers": (says(b"HTTP/1.1 200 OK\r\nContent-"), "reset"),
    "closed before the body": (says(html()[: -len(PAGE)]), "reset"),
    "chunked without a chunk": (says(answer(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", body=PAGE)), "bad_response"),
    "not HTTP": (says(b"220 mail.example ESMTP\r\n", "hold"), "bad_response"),
    "HTTP/0.9": (says(PAGE, "hold"), "bad_response"),
    "no status": (says(answer(b"HTTP/1.1 OK")), "bad_response"),
    "status 000": (says(answer(b"HTTP/1.1 000 Nothing"), "hold"), "bad_response"),
    "four digits": (says(answer(b"HTTP/1.1 2000 OK")), "bad_response"),
    "another protocol": (says(answer(b"HTTP/1.1 101 Switching Protocols")), "bad_response"),
    "headers over 64 KiB": (says(html(PAGE, b"X: " + b"x" * 70_000)), "bad_response"),
    "endless header": (says(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "hold"), "bad_response"),
    "endless early hints": (says(answer(b"HTTP/1.1 103 Early Hints") * 5000, "hold"), "bad_response"),
    "endless blank lines": (says(b"\r\n" * 40_000, "hold"), "bad_response"),
    "100,000 headers": (says(answer(b"HTTP/1.1 200 OK", *[b"a: b"] * 100_000), "hold"), "bad_response"),
}


@pytest.mark.parametrize(("serve", "kind"), FAILURES.values(), ids=FAILURES)
def test_what_brings_no_response_has_a_kind(serve: Serve, kind: str) -> None:
    assert failure(serve).kind == kind


@pytest.mark.parametrize(("cap_bytes", "kept"), [(5000, False), (6000, True)])
def test_the_cap_of_headers_counts_those_of_early_hints(cap_bytes: int, kept: bool) -> None:
    raw = answer(b"HTTP/1.1 103 Early Hints", b"Link: " + b"x" * 2500) * 2 + html()
    if kept:
        assert fetch(raw, CRAWLWEB_MAX_HEADER_BYTES=cap_bytes)[0].body == PAGE
    else:
        assert failure(says(raw), CRAWLWEB_MAX_HEADER_BYTES=cap_bytes).kind == "bad_response"


def test_20_000_headers_of_one_name_do_not_stop_the_loop() -> None:
    cpu_s = time.process_time()
    response, _ = fetch(answer(b"HTTP/1.1 200 OK", *[b"a:"] * 16_000, body=PAGE))
    assert time.process_time() - cpu_s < 1
    assert (response.body, len(response.headers.getlist("A"))) == (PAGE, 16_000)


@both_loops
@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"])
def test_an_answer_that_does_not_begin_in_time(begins: bytes, run: Any) -> None:
    """Once it has begun, the cap of the whole time holds."""
    began = boottime()
    error = failure(says(begins, "hold"), meta={"download_timeout": 1.0}, run=run, CRAWLWEB_FIRST_BYTE_S=0.2)
    assert error.kind == "timeout"
    assert (boottime() - began < 0.9) == (not begins)


@both_loops
def test_no_headers_in_time(run: Any) -> None:
    assert failure(says(b"HTTP/1.1 200 OK\r\n", "hold"), meta={"download_timeout": 0.2}, run=run).kind == "timeout"


def test_a_server_that_closes_after_each_answer_gets_no_second_get() -> None:
    async def work(handler: DownloadHandler, server: Server) -> None:
        assert (await handler.download_request(Request(server.url("/1")))).status == 200
        for path in ("/2", "/3"):
            with pytest.raises(FetchError, match="reset"):
                await handler.download_request(Request(server.url(path)))

    answers = iter([html(PAGE, b"Connection: keep-alive"), b"", b""])

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(next(answers))

    server = crawl(serve, work, CRAWLWEB_KEEP_ALIVE_S=0)
    assert [request.split()[1] for request in server.requests] == [b"/1", b"/2", b"/3"]
    assert server.connections == 3


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    response, _ = fetch(answer(b"HTTP/1.1 %d Moved" % status, b"Location: /elsewhere", b"Content-Type: image/png", body=b"gone"))
    assert (response.status, response.headers["Location"], response.body) == (status, b"/elsewhere", b"gone")


@pytest.mark.parametrize("status", [204, 304])
def test_answers_that_have_no_body_do_not_wait_for_one(status: int) -> None:
    raw = answer(b"HTTP/1.1 %d X" % status, b"Content-Length: 99", b"Content-Type: image/png", b"ETag: 1")
    response, record = fetch(says(raw, "hold"))
    assert (response.status, response.body, response.flags, record.truncated) == (status, b"", [], None)


def test_head_has_no_body() -> None:
    head = answer(b"HTTP/1.1 200 OK", b"Content-Type: text/html", b"Content-Length: 99", b"Content-Encoding: gzip")
    response, record = fetch(says(head, "hold"), method="HEAD")
    assert (response.body, response.flags, response.headers["Content-Length"]) == (b"", [], b"99")
    assert record.request_head.startswith(b"HEAD / ")


def test_a_body_is_sent() -> None:
    got = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readexactly(5))
        writer.write(html())

    _, record = fetch(serve, method="POST", body=b"a=1&b")
    assert got == [b"a=1&b"]
    assert b"\r\nContent-Length: 5\r\n" in record.request_head


TYPES = {
    b"image/png": False,
    b"application/pdf": False,
    b"text/html": True,
    b"TEXT/HTML ; charset=x": True,
    b"application/xhtml+xml": True,
    b"text/plain": True,
    b"text/html, text/html": True,
    b"": True,
}


@pytest.mark.parametrize(("content_type", "wanted"), TYPES.items())
def test_the_type_is_decided_on_the_headers(content_type: bytes, wanted: bool) -> None:
    head = answer(b"HTTP/1.1 200 OK", b"Content-Type: " + content_type, b"Content-Length: 1000000")
    response, record = fetch(says(head + b"x", "hold"), meta={"download_timeout": 0.2 if wanted else 5})
    assert response.headers["Content-Type"] == content_type
    if wanted:
        assert record.truncated == "time"
    else:
        assert (response.status, response.body, response.flags) == (200, b"", ["wrong_type"])
        assert (record.payload, record.truncated) == (b"", "unspecified")
        assert record.finished - record.started < 1


@pytest.mark.parametrize(
    ("status", "options"),
    [
        (200, {"meta": {"crawlweb_any_type": True}}),
        (404, {}),
        (200, {"CRAWLWEB_CONTENT_TYPES": ["image/png"]}),
        (200, {"CRAWLWEB_CONTENT_TYPES": "x/y,Image/PNG"}),
    ],
)
def test_other_types_are_read_when_asked_for(status: int, options: dict[str, Any]) -> None:
    response, _ = fetch(answer(b"HTTP/1.1 %d X" % status, b"Content-Type: image/png", body=b"\x89PNG"), **options)
    assert (response.body, response.flags) == (b"\x89PNG", [])


def test_headers_go_out_as_set_but_cannot_be_broken_out_of() -> None:
    async def work(handler: DownloadHandler, server: Server) -> None:
        url = server.url("/x//y@z").replace("http://", "http://user:secret@")
        referers = ["a\r\nX-Evil: 1", "http://me:secret@c.org/http://b@d/"]
        headers = {"User-Agent": "crawlweb", "Accept-Encoding": "br", "Connection": "keep-alive", "Referer": referers}
        request = Request(url, headers=headers)
        response = await handler.download_request(request)
        assert response.url == url
        assert request.meta["crawlweb_fetch"].url == server.url("/x//y@z")

    server = crawl(html(), work, CRAWLWEB_KEEP_ALIVE_S=0)
    head = server.requests[0]
    assert b"\r\nUser-Agent: crawlweb\r\n" in head
    assert b"\r\nAccept-Encoding: br\r\n" in head
    assert b"\r\nReferer: a X-Evil: 1\r\nReferer: http://c.org/http://b@d/\r\n" in head
    assert b"\r\nFrom:" not in head
    assert b"keep-alive" not in head
    assert b"secret" not in head
    assert b"Authorization" not in head


def test_from_is_sent_where_it_is_set() -> None:
    async def work(handler: DownloadHandler, server: Server) -> None:
        await handler.download_request(Request(server.url("/1")))
        await handler.download_request(Request(server.url("/2"), headers={"From": "spider@example.org"}))

    server = crawl(html(), work, CRAWLWEB_FROM="ops@example.com", CRAWLWEB_KEEP_ALIVE_S=0)
    assert [head.count(b"\r\nFrom: ") for head in server.requests] == [1, 1]
    assert b"\r\nFrom: ops@example.com\r\n" in server.requests[0]
    assert b"\r\nFrom: spider@example.org\r\n" in server.requests[1]


def test_the_address_given_is_the_one_connected_to() -> None:
    async def work(handler: DownloadHandler, server: Server) -> None:
        request = Request(server.url(host="no-such-name.invalid"), meta={"crawlweb_ip": "127.0.0.1"})
        response = await handler.download_request(request)
        assert response.ip_address == ipaddress.ip_address("127.0.0.1")

    assert b"\r\nHost: no-such-name.invalid:" in crawl(html(), work).requests[0]


@pytest.mark.parametrize("tail", ["", "?a=b", "/a?b;c", "/a;p/b;?x", "/%2f%2F%zz%41/../x//y", "/a?u=http://b/?c", "/%E4#f?g"])
def test_the_target_stands_as_in_the_url(tail: str) -> None:
    async def work(handler: DownloadHandler, server: Server) -> None:
        request = Request(server.url(tail))
        await handler.download_request(request)
        targets.append(request.url.partition(f":{server.port}")[2].partition("#")[0].encode())

    targets: list[bytes] = []
    server = crawl(html(), work)
    sent = server.requests[0].split()[1]
    assert sent == targets[0] or sent == b"/" + targets[0]


def test_ipv6() -> None:
    async def work(handler: DownloadHandler, server: Server) -> None:
        response = await handler.download_request(Request(server.url(host="[::1]")))
        assert response.ip_address == ipaddress.ip_address("::1")
        assert f"Host: [::1]:{server.port}\r\n".encode() in server.requests[0]

    crawl(html(), work, host="::1")


def certificate(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "other.example")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "server.pem"
    file.write_bytes(key.private_bytes(*form) + made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@both_loops
@pytest.mark.parametrize("raw", [html(), BODIES["HTTP/1.0 without length"]], ids=["length", "until close"])
def test_tls_with_the_name_and_without_trust(tmp_path: Path, raw: bytes, run: Any) -> None:
    context = certificate(tmp_path)
    names: list[str | None] = []
    context.sni_callback = lambda *given: names.append(given[1])

    async def work(handler: DownloadHandler, server: Server) -> None:
        response = await handler.download_request(Request(server.url(scheme="https", host="www.localhost")))
        assert (response.body, response.flags) == (PAGE, [])
        assert f"Host: www.localhost:{server.port}\r\n".encode() in server.requests[0]

    crawl(raw, work, tls=context, run=run)
    assert names == ["www.localhost"]


@both_loops
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_tls_failures_are_told_apart(tmp_path: Path, run: Any) -> None:
    async def untrusted(handler: DownloadHandler, server: Server) -> None:
        request = Request(server.url(scheme="https", host="localhost"))
        with pytest.raises(FetchError, match=r"^tls: .*certificate"):
            await handler.download_request(request)
        assert "crawlweb_sent" in request.meta

    async def plain(handler: DownloadHandler, server: Server) -> None:
        request = Request(server.url(scheme="https"), meta={"download_timeout": 0.3})
        with pytest.raises(FetchError, match=r"^(tls|connect_timeout)"):
            await handler.download_request(request)

    assert crawl(html(), untrusted, tls=certificate(tmp_path), run=run, DOWNLOAD_VERIFY_CERTIFICATES=True).requests == []
    assert crawl(html(), plain, run=run).requests == []


@both_loops
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_handshake_that_hangs_is_trouble_of_tls_and_not_of_the_host(run: Any) -> None:
    async def main() -> None:
        with socket.socket() as mute:
            mute.bind(("127.0.0.1", 0))
            mute.listen()
            handler = new_handler()
            request = Request(f"https://127.0.0.1:{mute.getsockname()[1]}/", meta={"download_timeout": 0.3})
            with pytest.raises(FetchError, match=r"^tls: "):
                await handler.download_request(request)
            assert "crawlweb_sent" in request.meta
            await handler.close()

    run(main())


@both_loops
def test_refused(run: Any) -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            handler = new_handler()
            request = Request(f"http://127.0.0.1:{taken.getsockname()[1]}/")
            with pytest.raises(FetchError, match=r"^connect_refused"):
                await handler.download_request(request)
            assert "crawlweb_sent" not in request.meta
            await handler.close()

    run(main())


def test_nobody_accepts() -> None:
    async def main() -> None:
        with socket.socket() as full, contextlib.ExitStack() as clients:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for _ in range(3):
                client = clients.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(full.getsockname())
            handler = new_handler()
            with pytest.raises(FetchError, match=r"^(connect_timeout|timeout)"):
                await handler.download_request(Request(f"http://127.0.0.1:{full.getsockname()[1]}/", meta={"download_timeout": 0.2}))
            await handler.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("ip", "kind"),
    [
        ("127.0.0.1", "private_address"),
        ("::ffff:169.254.169.254", "private_address"),
        ("fd00:ec2::254", "private_address"),
        ("fe80::1%lo", "private_address"),
        ("localhost", "error"),
        ("8.8.8.8 ", "error"),
    ],
)
def test_an_address_given_passes_the_guard_too(ip: str, kind: str) -> None:
    async def main() -> None:
        handler = new_handler(CRAWLWEB_ALLOW_PRIVATE_IPS=False)
        with pytest.raises(FetchError) as caught:
            await handler.download_request(Request("http://example.com/", meta={"crawlweb_ip": ip}))
        assert caught.value.kind == kind
        await handler.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://127.0.0.1/", "private_address"),
        ("http://user:secret@10.0.0.1/", "private_address"),
        ("http://localhost:6379/", "private_address"),
        ("http://[::ffff:7f00:1]/", "private_address"),
        ("http://2130706433/", "private_address"),
        ("http://1.2.3.4.5/", "dns_nxdomain"),
        ("http:///path", "dns_nxdomain"),
    ],
)
def test_what_must_not_be_reached_is_not(url: str, kind: str) -> None:
    async def main() -> None:
        handler = new_handler(CRAWLWEB_ALLOW_PRIVATE_IPS=False)
        request = Request(url)
        with pytest.raises(FetchError) as caught:
            await handler.download_request(request)
        assert caught.value.kind == kind
        assert "secret" not in str(caught.value)
        assert "crawlweb_sent" not in request.meta
        await handler.close()

    asyncio.run(main())


def test_a_proxy_is_refused_rather_than_ignored() -> None:
    async def main() -> None:
        with pytest.raises(NotSupported):
            await new_handler().download_request(Request("http://127.0.0.1/", meta={"proxy": "http://127.0.0.1:3128"}))

    asyncio.run(main())


@pytest.mark.parametrize(("left_s", "starts"), [(-1, False), (4.9, False), (5.5, True)])
def test_a_fetch_starts_only_if_the_lease_covers_it(left_s: float, starts: bool) -> None:
    async def work(handler: DownloadHandler, server: Server) -> None:
        request = Request(server.url(), meta={"crawlweb_deadline": boottime() + left_s})
        if starts:
            assert (await handler.download_request(request)).status == 200
        else:
            with pytest.raises(LeaseExpired):
                await handler.download_request(request)
            assert not {"crawlweb_sent", "crawlweb_fetch"} & request.meta.keys()

    assert crawl(html(), work).connections == starts


@both_loops
@pytest.mark.parametrize("sleeps_after", ["resolve", "connect"])
def test_a_process_that_slept_sends_nothing(sleeps_after: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s = [0.0]
    monkeypatch.setattr(download, "boottime", lambda: boottime() + slept_s[0])
    monkeypatch.setattr(exchange, "boottime", lambda: boottime() + slept_s[0])

    async def work(handler: DownloadHandler, server: Server) -> None:
        resolve = handler.resolver.resolve
        made = exchange.Exchange.connection_made

        async def slow_resolve(name: str) -> Any:
            if sleeps_after == "resolve":
                slept_s[0] = 60
            return await resolve(name)

        def slow_connect(self: exchange.Exchange, transport: asyncio.BaseTransport) -> None:
            slept_s[0] = 60
            made(self, transport)

        monkeypatch.setattr(handler.resolver, "resolve", slow_resolve)
        monkeypatch.setattr(exchange.Exchange, "connection_made", slow_connect)
        request = Request(server.url(), meta={"crawlweb_deadline": boottime() + 30})
        with pytest.raises(LeaseExpired):
            await handler.download_request(request)
        assert not {"crawlweb_sent", "crawlweb_fetch"} & request.meta.keys()

    server = crawl(html(), work, run=run)
    assert server.requests == []
    assert server.connections == (sleeps_after == "connect")


@both_loops
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_request_is_with_the_kernel_before_the_loop_does_anything_else(
    scheme: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a process that is stopped just then sends it when it wakes."""
    waiting: list[int] = []

    async def work(handler: DownloadHandler, server: Server) -> None:
        send = exchange.Exchange.send

        def look(self: exchange.Exchange, data: bytes) -> None:
            assert self._transport
            fd = self._transport.get_extra_info("socket").fileno()
            before = sent_bytes(fd)
            send(self, data)
            waiting.append(sent_bytes(fd) - before)

        monkeypatch.setattr(exchange.Exchange, "send", look)
        await handler.download_request(Request(server.url(scheme=scheme)))

    crawl(html(), work, tls=certificate(tmp_path) if scheme == "https" else None, run=run)
    assert waiting[0] > 100


def sent_bytes(fd: int) -> int:
    """Bytes that were written to a TCP socket (tcp_info.tcpi_bytes_acked and what is not acknowledged)."""
    with socket.socket(fileno=os.dup(fd)) as sock:
        unacked = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"    "))[0]
        acked = struct.unpack_from("Q", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 120)[0]
        return int(acked + unacked)


@both_loops
def test_a_cancelled_fetch_closes_its_connection_and_tells_when(run: Any) -> None:
    gone = []

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        tasks[0].cancel()
        gone.append(await reader.read())

    async def work(handler: DownloadHandler, server: Server) -> None:
        request = Request(server.url())
        tasks.append(asyncio.ensure_future(handler.download_request(request)))
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert "crawlweb_sent" in request.meta

    tasks: list[asyncio.Future[Response]] = []
    crawl(serve, work, run=run)
    assert gone == [b""]


def test_a_fetch_leaves_nothing_to_the_garbage_collector() -> None:
    """It looks at pages rarely (scheduler.py), and a request holds its page's links."""

    async def work(handler: DownloadHandler, server: Server) -> None:
        request = Request(server.url())
        await handler.download_request(request)
        await asyncio.sleep(0)  # the transport lets go of its protocol
        kept = weakref.ref(request)
        del request
        assert kept() is None

    gc.disable()
    try:
        crawl(html(), work, run=uvloop.run)
    finally:
        gc.enable()


@both_loops
def test_a_fetch_that_is_cancelled_when_its_time_is_over_ends_in_a_failure_once(run: Any) -> None:
    """Its time-out cancels the task that waits: nothing of that is left to the task."""

    async def work(handler: DownloadHandler, server: Server) -> None:
        async def never(_: str) -> Any:
            await asyncio.Event().wait()

        handler.resolver.resolve = never  # type: ignore[assignment, method-assign]
        for _ in range(2):
            with pytest.raises(FetchError, match="dns_timeout"):
                await handler.download_request(Request(server.url(host="a.org"), meta={"download_timeout": 0.05}))
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert sys.version_info < (3, 11) or not task.cancelling()

    crawl(html(), work, run=run)


def test_the_marks_of_an_earlier_fetch_do_not_stay() -> None:
    request = Request("http://127.0.0.1:1/", meta={"crawlweb_fetch": 1, "crawlweb_sent": 2.0, "crawlweb_truncated": "time"})

    async def main() -> None:
        handler = new_handler()
        with pytest.raises(FetchError):
            await handler.download_request(request)
        await handler.close()

    asyncio.run(main())
    assert not {"crawlweb_sent", "crawlweb_fetch"} & request.meta.keys()


def test_scrapy_takes_the_handler_for_both_schemes() -> None:
    name = "crawlweb.download.DownloadHandler"
    crawler = get_crawler(Spider, {"DOWNLOAD_HANDLERS": {"http": name, "https": name}})
    handlers = DownloadHandlers(crawler)
    assert {type(handlers._get_handler(scheme)) for scheme in ("http", "https")} == {DownloadHandler}


def test_the_file_limit_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == (65_536 if hard == resource.RLIM_INFINITY else hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
