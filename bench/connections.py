"""What a connection costs the client: a new one for each fetch, one that was kept, a new one that resumes a TLS session.

    python bench/connections.py [--fetches 400] [--rounds 5]

CPU ms of the client's process per fetch of a 31 KB page, with uvloop, one fetch after the other; medians of alternating rounds;
and the memory of a connection that waits. The first rows are our download handler; those with versions of TLS are bare connections,
`resumed` ones through a subclass of SSLContext that gives `wrap_bio` the session of the connection before.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import multiprocessing
import resource
import ssl
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from download import OK, PAGE, write_certificate
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from crawlweb.download import DownloadHandler

ANSWER = OK + b"Content-Length: %d\r\n\r\n" % len(PAGE) + PAGE
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def serve(ports: multiprocessing.SimpleQueue[int], certificate: str) -> None:
    """http, https with any version, https with TLS 1.2."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(ANSWER)
                await writer.drain()

    async def main() -> None:
        contexts: list[ssl.SSLContext | None] = [None]
        for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            tls.maximum_version = version
            contexts.append(tls)
        for context in contexts:
            server = await asyncio.start_server(accept, "0.0.0.0", 0, ssl=context, backlog=1000)
            ports.put(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    uvloop.run(main())


class Resuming(ssl.SSLContext):
    last: ssl.SSLSession | None = None

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        return super().wrap_bio(*given, **{**named, "session": self.last})


class Fetch(asyncio.Protocol):
    def __init__(self) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes == len(ANSWER):
            self.done.set_result(None)


def bare(port: int, resumes: bool) -> Callable[[], Awaitable[None]]:
    context = Resuming(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    async def fetch() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(Fetch, "127.0.0.1", port, ssl=context, server_hostname="localhost")
        transport.write(REQUEST)
        await protocol.done
        if resumes:
            session = transport.get_extra_info("ssl_object")
            assert context.last is None or session.session_reused
            context.last = session.session
        transport.abort()

    return fetch


def handled(handler: DownloadHandler, url: str) -> Callable[[], Awaitable[None]]:
    async def fetch() -> None:
        response = await handler.download_request(Request(url))
        assert len(response.body) == len(PAGE)

    return fetch


def new_handler(keep_s: float) -> DownloadHandler:
    settings = {
        "CRAWLWEB_ALLOW_PRIVATE_IPS": 1,
        "CRAWLWEB_LATENCY_FACTOR": 0,
        "CRAWLWEB_KEEP_ALIVE_S": keep_s,
        "CRAWLWEB_KEEP_ALIVE_MOST": 10_000,
    }
    return DownloadHandler(get_crawler(Spider, settings))


async def cpu_ms(fetch: Callable[[], Awaitable[None]], fetches: int) -> float:
    began = time.process_time()
    for _ in range(fetches):
        await fetch()
    return (time.process_time() - began) * 1000 / fetches


async def waiting_kb(url: str, connections: int) -> float:
    """Memory of a connection that waits; each has an address of its own."""

    def rss_kb() -> float:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1000

    handler = new_handler(60)
    await handler.download_request(Request(url.format("127.0.0.1")))
    before_kb = rss_kb()
    for i in range(connections):
        await handler.download_request(Request(url.format(f"127.1.{i // 250}.{i % 250 + 1}")))
    assert len(handler.connections) == connections + 1
    grown_kb = rss_kb() - before_kb
    await handler.close()
    return grown_kb / connections


async def main(ports: list[int], options: argparse.Namespace) -> None:
    new, kept = new_handler(0), new_handler(4)
    http, https = f"http://localhost:{ports[0]}/", f"https://localhost:{ports[1]}/"
    rows = {
        "http, new": handled(new, http),
        "http, kept": handled(kept, http),
        "https, new": handled(new, https),
        "https, kept": handled(kept, https),
        "TLS 1.3, full": bare(ports[1], False),
        "TLS 1.3, resumed": bare(ports[1], True),
        "TLS 1.2, full": bare(ports[2], False),
        "TLS 1.2, resumed": bare(ports[2], True),
    }
    measured: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(options.rounds):
        for name, fetch in rows.items():
            measured[name].append(await cpu_ms(fetch, options.fetches))
    for name, values in measured.items():
        print(f"{name:<18}{statistics.median(values):.2f} ms  ({min(values):.2f} to {max(values):.2f})")
    for handler in (new, kept):
        await handler.close()
    for scheme, port in (("http", ports[0]), ("https", ports[1])):
        print(f"{scheme}, waiting: {await waiting_kb(f'{scheme}://{{}}:{port}/', options.fetches):.1f} kB each")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetches", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        queue: multiprocessing.SimpleQueue[int] = multiprocessing.SimpleQueue()
        server = multiprocessing.Process(target=serve, args=(queue, write_certificate(Path(folder))), daemon=True)
        server.start()
        ports = [queue.get() for _ in range(3)]
        uvloop.run(main(ports, options))
        server.terminate()
