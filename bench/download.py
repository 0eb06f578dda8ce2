"""Our download handler beside aiohttp's client (a connection per request, no redirects, no cookies): CPU ms of the client
process per fetch of a 31 KB page, median of alternating rounds, and how many malformed responses each reads.

    python bench/download.py [--fetches 2000] [--rounds 5] [--loop uvloop]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import multiprocessing
import ssl
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import uvloop
from scrapy import Request, Spider
from scrapy.http import Headers
from scrapy.responsetypes import responsetypes
from scrapy.utils.test import get_crawler

from crawlweb.download import DownloadHandler
from crawlweb.errors import FetchError

PAGE = (b"<html><title>A page</title>" + b"<p>Some words of text, <a href='/elsewhere'>a link</a>. " * 700)[:31_000]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
PACKED = gzip.compress(PAGE)
GOOD = {
    "/plain": OK + b"Content-Length: %d\r\n\r\n" % len(PAGE) + PAGE,
    "/gzip": OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED) + PACKED,
}
MALFORMED = {
    "bare LF": b"HTTP/1.1 200 OK\nContent-Type: text/html\n\n" + PAGE,
    "no reason phrase": b"HTTP/1.1 200\r\nContent-Type: text/html\r\n\r\n" + PAGE,
    "lower case protocol": b"http/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + PAGE,
    "two blanks in the status line": b"HTTP/1.1  200 OK\r\nContent-Type: text/html\r\n\r\n" + PAGE,
    "blank lines first": b"\r\n\r\n" + OK + b"\r\n" + PAGE,
    "folded line": OK + b"X-A: b\r\n c\r\n\r\n" + PAGE,
    "control bytes in a value": OK + b"X-A: \x01\xff\r\n\r\n" + PAGE,
    "bytes beyond ASCII in a name": OK + b"X-\xe4: b\r\n\r\n" + PAGE,
    "line without colon": OK + b"nonsense\r\n\r\n" + PAGE,
    "blank in a name": OK + b"X A: b\r\n\r\n" + PAGE,
    "blank before the colon": OK + b"X-A : b\r\n\r\n" + PAGE,
    "same length twice": OK + (b"Content-Length: %d\r\n" % len(PAGE)) * 2 + b"\r\n" + PAGE,
    "lengths that differ": OK + b"Content-Length: 5\r\nContent-Length: 7\r\n\r\n" + PAGE,
    "negative length": OK + b"Content-Length: -1\r\n\r\n" + PAGE,
    "length and chunks": OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(PAGE), PAGE),
    "length too long": OK + b"Content-Length: 99999\r\n\r\n" + PAGE,
    "last chunk missing": OK + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(PAGE), PAGE),
    "a thousand headers": OK + b"".join(b"X-%d: 1\r\n" % number for number in range(1000)) + b"\r\n" + PAGE,
    "a header of 20 KB": OK + b"X-A: " + b"b" * 20_000 + b"\r\n\r\n" + PAGE,
    "not gzip after all": OK + b"Content-Encoding: gzip\r\n\r\n" + PAGE,
    "unknown encoding": OK + b"Content-Encoding: utf-8\r\n\r\n" + PAGE,
}
PATHS = {**GOOD, **{f"/{number}": raw for number, raw in enumerate(MALFORMED.values())}}


def serve(ports: multiprocessing.SimpleQueue[int], certificate: str) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            writer.write(PATHS[path])
            await writer.drain()
        writer.close()

    async def main() -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        for context in (None, tls):
            server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context, backlog=1000)
            ports.put(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(main())


def write_certificate(folder: Path) -> str:
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.timezone.utc)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    until = now + datetime.timedelta(days=1)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, until).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    file = folder / "server.pem"
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + made.public_bytes(pem))
    return str(file)


Get = Callable[[str], Awaitable[bytes]]


def ours(handler: DownloadHandler) -> Get:
    async def get(url: str) -> bytes:
        return (await handler.download_request(Request(url))).body

    return get


def aiohttps(session: aiohttp.ClientSession) -> Get:
    async def get(url: str) -> bytes:
        request = Request(url)
        async with session.get(request.url, allow_redirects=False, ssl=False) as answer:
            body = await answer.read()
            headers = Headers()
            for name, value in answer.raw_headers:
                headers.appendlist(name, value)
            headers.pop("Content-Encoding", None)
            response_class = responsetypes.from_args(headers=headers, url=url, body=body)
            return response_class(url, status=answer.status, headers=headers, body=body).body

    return get


async def cpu_ms(get: Get, url: str, fetches: int, at_once: int = 20) -> float:
    async def some() -> None:
        for _ in range(fetches // at_once):
            assert await get(url) == PAGE

    began = time.process_time()
    await asyncio.gather(*(some() for _ in range(at_once)))
    return (time.process_time() - began) * 1000 / (fetches // at_once * at_once)


async def reads(get: Get, url: str) -> bool:
    try:
        return await get(url) in (PAGE, PAGE[:5])
    except (FetchError, aiohttp.ClientError, ValueError):
        return False


async def main(ports: list[int], fetches: int, rounds: int) -> None:
    handler = DownloadHandler(get_crawler(Spider, {"CRAWLWEB_ALLOW_PRIVATE_IPS": True, "CRAWLWEB_KEEP_ALIVE_S": 0}))
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), max_field_size=65_536)
    clients = {"crawlweb": ours(handler), "aiohttp": aiohttps(session)}
    for label, url in (
        ("http", f"http://127.0.0.1:{ports[0]}/plain"),
        ("http, gzip", f"http://127.0.0.1:{ports[0]}/gzip"),
        ("https", f"https://127.0.0.1:{ports[1]}/plain"),
    ):
        measured: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(rounds):
            for name, get in clients.items():
                measured[name].append(await cpu_ms(get, url, fetches))
        print(label.ljust(12), *(f"{name} {statistics.median(values):.2f} ms" for name, values in measured.items()))
    for name, get in clients.items():
        failed = [label for number, label in enumerate(MALFORMED) if not await reads(get, f"http://127.0.0.1:{ports[0]}/{number}")]
        print(f"{name} reads {len(MALFORMED) - len(failed)} of {len(MALFORMED)} malformed responses; not: {', '.join(failed) or '-'}")
    await session.close()
    await handler.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetches", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        queue: multiprocessing.SimpleQueue[int] = multiprocessing.SimpleQueue()
        server = multiprocessing.Process(target=serve, args=(queue, write_certificate(Path(folder))), daemon=True)
        server.start()
        ports = [queue.get(), queue.get()]
        run = uvloop.run if options.loop == "uvloop" else asyncio.run
        run(main(ports, options.fetches, options.rounds))
        server.terminate()
