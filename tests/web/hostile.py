"""Servers that do harm: one kind each, over real sockets, and how a crawl is to count each.

    with HostileWeb() as hostile, Web(sites=[*hostile.sites, Tree("good.org")]) as web:
        ...crawl(web.seeds(), dns=web.dns_server)...

A site's address says which kind answers, since some do so before they are asked. Two ports serve all: one in plain text,
whose bytes are written by hand, one with TLS. They are a process of their own, since they keep a core busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gzip
import multiprocessing
import socket
import ssl
import struct
import tempfile
import zlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import brotli  # type: ignore[import-untyped]
import uvloop
from backports import zstd
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from .sites import NOT_FOUND, Answer, Request, Site

BOMB_BYTES = 50_000_000
LINKS = 200_000
_PIECE_BYTES = 200_000
_PAGE = b"<!doctype html><title>Harmless</title><p>A page like any other." + b" More of it." * 100
_OK = b"HTTP/1.1 200 OK"
_HTML = b"Content-Type: text/html; charset=utf-8"
_TO_PREPARE: list[Callable[[], bytes]] = []
_LOREM = b"<p>" + b"Words without end, amen. " * 40


class Peer:
    """A client, after its request was read; `path` is empty where it was not."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str = "") -> None:
        self.reader, self.writer, self.path = reader, writer, path

    async def send(self, data: bytes) -> None:
        """Piece by piece: the transport copies what it could not send yet each time."""
        for start in range(0, len(data), _PIECE_BYTES):
            self.writer.write(data[start : start + _PIECE_BYTES])
            await self.writer.drain()

    async def send_for_ever(self, data: bytes, pause_s: float = 0.0) -> None:
        """Until the client goes."""
        while not self.reader.at_eof():
            await self.send(data)
            await asyncio.sleep(pause_s)

    async def hold(self) -> None:
        """Says nothing until the client goes."""
        await self.reader.read()

    async def reset(self) -> None:
        await asyncio.sleep(0.05)  # else the reset overtakes the data
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Serve = Callable[[Peer], Awaitable[None]]
Certificate = Literal["", "self-signed", "expired", "other name"]


@dataclass(frozen=True)
class Kind:
    """`counts`: the stat, without `crawlweb/`, that each site of the kind adds to. `page`: the seed ends as an item."""

    serve: Serve
    counts: str
    page: bool = False
    target: Literal["page", "robots.txt", "all"] = "page"
    """What is answered with harm; the rest is as it should be. "all": robots.txt cannot be had either."""
    asked: bool = True
    """The request is read first."""
    https: bool = False
    certificate: Certificate = ""
    """On the port with TLS; otherwise `serve` writes to the socket itself."""

    @property
    def dead_letter(self) -> str | None:
        """Its reason."""
        if not self.counts.startswith("errors/"):
            return None
        kind = self.counts.removeprefix("errors/")
        return "robots_unreachable" if self.target == "all" and kind != "tls" else kind


def head(*lines: bytes) -> bytes:
    return b"\r\n".join(lines) + b"\r\n\r\n"


def html(body: bytes, *lines: bytes) -> bytes:
    return head(_OK, _HTML, *lines, b"Content-Length: %d" % len(body)) + body


def says(data: bytes | Callable[[], bytes], then: Literal["close", "hold", "reset"] = "close") -> Serve:
    """`data`: a function where it takes a while to be made: `prepare` calls it."""
    make = cache(data) if callable(data) else None
    if make:
        _TO_PREPARE.append(make)

    async def serve(peer: Peer) -> None:
        await peer.send(make() if make else data)  # type: ignore[arg-type]
        if then != "close":
            await getattr(peer, then)()

    return serve


def repeats(data: bytes, *, first: bytes = b"", pause_s: float = 0.0) -> Serve:
    async def serve(peer: Peer) -> None:
        await peer.send(first)
        await peer.send_for_ever(data, pause_s)

    return serve


def encoded(name: bytes, *squeeze: Callable[[bytes], bytes], bomb_bytes: int = BOMB_BYTES) -> Serve:
    """A bomb of white space, squeezed by each in turn."""

    def body() -> bytes:
        data = b" " * bomb_bytes
        for by in squeeze:
            data = by(data)
        return html(data, b"Content-Encoding: " + name)

    return says(body)


def squeezed(data: bytes) -> bytes:
    return gzip.compress(data, 1)


def raw_deflate(data: bytes) -> bytes:
    squeezer = zlib.compressobj(1, wbits=-15)
    return squeezer.compress(data) + squeezer.flush()


async def endless_gzip(peer: Peer) -> None:
    squeezer = zlib.compressobj(wbits=31)
    await peer.send(head(_OK, _HTML, b"Content-Encoding: gzip"))
    while not peer.reader.at_eof():
        await peer.send(squeezer.compress(bytes(1_000_000)) + squeezer.flush(zlib.Z_SYNC_FLUSH))


def redirects(*to: bytes, status: bytes = b"302 Found", more: bytes = b"X-Cookie: none") -> Serve:
    """From the nth path (/, /1, /2 …) to the nth of `to`, the last again and again."""

    async def serve(peer: Peer) -> None:
        number = int(peer.path.strip("/") or 0) if peer.path.strip("/").isdigit() else 0
        location = to[min(number, len(to) - 1)]
        await peer.send(head(b"HTTP/1.1 " + status, b"Location: " + location, more, b"Content-Length: 0"))

    return serve


async def to_a_page(peer: Peer) -> None:
    if peer.path == "/":
        await peer.send(head(b"HTTP/1.1 301 Moved", b"Location: /caf\xe9?na\xefve", b"Content-Length: 0"))
    else:
        await peer.send(html(_PAGE))


def page(body: bytes | Callable[[], bytes], content_type: bytes = b"text/html") -> Serve:
    def whole() -> bytes:
        data = body if isinstance(body, bytes) else body()
        return head(_OK, b"Content-Type: " + content_type, b"Content-Length: %d" % len(data)) + data

    return says(whole)


def many_links() -> bytes:
    """Few different words: a parser may count those."""
    return _PAGE + b"".join(b"<a href=//%d.no/%d></a>" % divmod(number, 450) for number in range(LINKS))


def robots_of_50_mb() -> bytes:
    return head(_OK, b"Content-Type: text/plain", b"Content-Length: 50000000") + b"User-agent: *\nDisallow: /x\n" + b"# ..\n" * 9_999_995


_CHUNKED = head(_OK, _HTML, b"Transfer-Encoding: chunked")
_TO_ITSELF = redirects(b"/", more=b"Set-Cookie: seen=1")
_WALK = tuple(b"/%d" % number for number in range(1, 51))

KINDS: dict[str, Kind] = {
    # bombs
    "gzip-bomb": Kind(encoded(b"gzip", squeezed), "truncated/length", page=True),
    "deflate-bomb": Kind(encoded(b"deflate", lambda data: zlib.compress(data, 1)), "truncated/length", page=True),
    "raw-deflate-bomb": Kind(encoded(b"deflate", raw_deflate), "truncated/length", page=True),
    "brotli-bomb": Kind(encoded(b"br", lambda data: brotli.compress(data, quality=5)), "truncated/length", page=True),
    "zstd-bomb": Kind(encoded(b"zstd", zstd.compress), "truncated/length", page=True),
    "gzip-in-gzip": Kind(encoded(b"gzip, gzip", squeezed, squeezed), "truncated/length", page=True),
    "three-layers": Kind(encoded(b"gzip, br, zstd", squeezed, brotli.compress, zstd.compress), "truncated/length", page=True),
    "ten-layers": Kind(encoded(b",".join([b"gzip"] * 10), *[squeezed] * 10), "status/200", page=True),
    "endless-gzip": Kind(endless_gzip, "truncated/length", page=True),
    "gzip-members": Kind(
        says(html(gzip.compress(_PAGE) + gzip.compress(b"") * 100_000, b"Content-Encoding: gzip")), "status/200", page=True
    ),
    "zstd-window": Kind(
        encoded(b"zstd", lambda data: zstd.compress(data, options={zstd.CompressionParameter.window_log: 27})), "status/200", page=True
    ),
    # headers
    "endless-headers": Kind(repeats(b"X-More: and more\r\n" * 50, first=_OK + b"\r\n"), "errors/bad_response"),
    "endless-header": Kind(repeats(b"x" * 1000, first=_OK + b"\r\nX-Long: "), "errors/bad_response"),
    "100000-headers": Kind(says(head(_OK, *[b"X-A: b"] * 100_000) + _PAGE), "errors/bad_response"),
    "one-name-16000-times": Kind(says(head(_OK, _HTML, *[b"a:"] * 16_000) + _PAGE), "status/200", page=True),
    "endless-early-hints": Kind(repeats(head(b"HTTP/1.1 103 Early Hints", b"Link: </a>")), "errors/bad_response"),
    "endless-blank-lines": Kind(repeats(b"\r\n" * 100), "errors/bad_response"),
    "dripping-early-hints": Kind(repeats(head(b"HTTP/1.1 103 Early Hints"), pause_s=0.2), "errors/timeout"),
    "dripping-headers": Kind(repeats(b"x", first=_OK + b"\r\nX-Slow: ", pause_s=0.2), "errors/timeout"),
    "huge-cookie": Kind(says(html(_PAGE, b"Set-Cookie: a=" + b"c" * 1_000_000)), "errors/bad_response"),
    "nul-in-headers": Kind(says(html(_PAGE, b"X-\0: a\0b", b"\0: c", b"Set-Cookie: \0=\0")), "status/200", page=True),
    # bodies
    "endless-body": Kind(repeats(_LOREM * 100, first=head(_OK, _HTML)), "truncated/length", page=True),
    "endless-byte-chunks": Kind(repeats(b"1\r\nx\r\n" * 20_000, first=_CHUNKED), "truncated/length", page=True),
    "endless-chunk-extension": Kind(repeats(b"x" * 100_000, first=_CHUNKED + b"4\r\nabcd\r\n5;"), "truncated/length", page=True),
    "negative-chunk": Kind(says(_CHUNKED + b"-5\r\nhello\r\n", "hold"), "errors/bad_response"),
    "huge-chunk": Kind(says(_CHUNKED + b"F" * 40 + b"\r\nhello\r\n", "hold"), "errors/bad_response"),
    "chunk-longer-than-sent": Kind(says(_CHUNKED + b"7FFFFFFF\r\n" + _PAGE), "truncated/disconnect", page=True),
    "garbage-chunk": Kind(says(_CHUNKED + b"5\r\nhello\r\nwhat?\r\n", "hold"), "truncated/disconnect", page=True),
    "length-too-long": Kind(says(head(_OK, _HTML, b"Content-Length: 99999") + _PAGE), "truncated/disconnect", page=True),
    "length-too-long-held": Kind(says(head(_OK, _HTML, b"Content-Length: 99999") + _PAGE, "hold"), "truncated/time", page=True),
    "length-too-short": Kind(says(head(_OK, _HTML, b"Content-Length: 50") + _PAGE, "hold"), "status/200", page=True),
    "length-negative": Kind(says(head(_OK, _HTML, b"Content-Length: -1") + _PAGE), "status/200", page=True),
    "length-beyond-numbers": Kind(says(head(_OK, _HTML, b"Content-Length: " + b"9" * 30_000) + _PAGE), "status/200", page=True),
    "two-lengths": Kind(says(html(_PAGE, b"Content-Length: 7")), "status/200", page=True),
    "dripping-body": Kind(repeats(b"x", first=head(_OK, _HTML, b"Content-Length: 1000000"), pause_s=0.2), "truncated/time", page=True),
    "wrong-type-without-end": Kind(repeats(_LOREM * 100, first=head(_OK, b"Content-Type: video/mp4")), "wrong_type"),
    # connections
    "silence-after-accept": Kind(Peer.hold, "errors/timeout", target="all", asked=False),
    "silence-when-asked": Kind(Peer.hold, "errors/timeout"),
    "silence-in-headers": Kind(says(_OK + b"\r\nContent-", "hold"), "errors/timeout"),
    "silence-after-headers": Kind(says(head(_OK, _HTML, b"Content-Length: 9"), "hold"), "truncated/time", page=True),
    "close-without-answer": Kind(says(b""), "errors/reset"),
    "reset-before-headers": Kind(Peer.reset, "errors/reset"),
    "reset-in-headers": Kind(says(_OK + b"\r\nContent-", "reset"), "errors/reset"),
    "reset-after-headers": Kind(says(html(_PAGE)[:-500], "reset"), "truncated/disconnect", page=True),
    # other protocols
    "ssh": Kind(says(b"SSH-2.0-OpenSSH_9.6\r\n", "hold"), "errors/bad_response", target="all", asked=False),
    "noise": Kind(says(bytes(range(256)) * 4, "hold"), "errors/bad_response"),
    "http-0-9": Kind(says(_PAGE), "errors/bad_response"),
    "http-2": Kind(says(b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x80\0\4\0\1\0\0\0\5\0\xff\xff\xff", "hold"), "errors/bad_response"),
    "status-999": Kind(says(head(b"HTTP/1.1 999 Request denied", _HTML) + _PAGE), "errors/http_5xx"),
    "status-000": Kind(says(head(b"HTTP/1.1 000 Nothing", _HTML) + _PAGE, "hold"), "errors/bad_response"),
    "status-abc": Kind(says(head(b"HTTP/1.1 abc Nothing", _HTML) + _PAGE, "hold"), "errors/bad_response"),
    "status-101": Kind(says(head(b"HTTP/1.1 101 Switching Protocols", b"Upgrade: h2c"), "hold"), "errors/bad_response"),
    # redirects
    "redirect-loop": Kind(redirects(b"/1", b"/2", b"/1"), "redirects/too_many"),
    "redirect-chain": Kind(redirects(*_WALK), "redirects/too_many"),
    "redirect-to-itself": Kind(_TO_ITSELF, "redirects/loop"),
    "redirect-to-file": Kind(redirects(b"file:///etc/passwd"), "redirects/invalid"),
    "redirect-to-script": Kind(redirects(b"javascript:alert(1)"), "redirects/invalid"),
    "redirect-to-nowhere": Kind(redirects(b""), "redirects/invalid"),
    "redirect-to-noise": Kind(redirects(b"http://[::\xff\0]:99999999/\x01"), "redirects/invalid"),
    "redirect-to-30-kb": Kind(redirects(b"/" + b"x" * 30_000), "redirects/invalid"),
    "redirect-to-1-mb": Kind(redirects(b"/" + b"x" * 1_000_000), "errors/bad_response"),
    "redirect-in-latin-1": Kind(to_a_page, "redirects", page=True),
    # TLS
    "tls-self-signed": Kind(says(html(_PAGE)), "status/200", page=True, https=True, certificate="self-signed"),
    "tls-expired": Kind(says(html(_PAGE)), "status/200", page=True, https=True, certificate="expired"),
    "tls-other-name": Kind(says(html(_PAGE)), "status/200", page=True, https=True, certificate="other name"),
    "tls-cut-off": Kind(says(html(_PAGE)[:-500], "reset"), "truncated/disconnect", page=True, https=True, certificate="self-signed"),
    "tls-answers-http": Kind(says(html(_PAGE)), "errors/tls", target="all", asked=False, https=True),
    "tls-hangs": Kind(Peer.hold, "errors/tls", target="all", asked=False, https=True),
    "tls-resets": Kind(Peer.reset, "errors/tls", target="all", asked=False, https=True),
    "tls-where-http-is": Kind(says(html(_PAGE)), "errors/reset", target="all", certificate="self-signed"),
    # robots.txt
    "robots-of-50-mb": Kind(says(robots_of_50_mb), "truncated/length", page=True, target="robots.txt"),
    "robots-without-end": Kind(repeats(b"Allow: /\n" * 10_000, first=head(_OK)), "truncated/length", page=True, target="robots.txt"),
    "robots-bomb": Kind(encoded(b"gzip", squeezed), "truncated/length", page=True, target="robots.txt"),
    "robots-dripping": Kind(repeats(b"# ", first=head(_OK), pause_s=0.2), "truncated/time", page=True, target="robots.txt"),
    "robots-noise": Kind(says(html(bytes(range(256)) * 4000, b"X-Type: none")), "status/200", page=True, target="robots.txt"),
    # pages
    "deep": Kind(page(b"<div>" * 200_000), "status/200", page=True),
    "many-tags": Kind(page(b"<b>a" * 250_000), "status/200", page=True),
    "many-attributes": Kind(page(b"<p " + b"".join(b"a%d=b " % n for n in range(100_000)) + b">x"), "status/200", page=True),
    "many-links": Kind(page(many_links), "status/200", page=True),
    "one-line": Kind(page(b"x" * 6_000_000), "truncated/length", page=True),
    "utf-16-that-is-none": Kind(page(_PAGE, b"text/html; charset=utf-16"), "status/200", page=True),
    "utf-7": Kind(page(b"+ADw-script+AD4-" + _PAGE, b"text/html; charset=utf-7"), "status/200", page=True),
    "charset-that-is-code": Kind(page(_PAGE, b"text/html; charset=zlib_codec"), "status/200", page=True),
    "unclosed": Kind(page(_PAGE + b"<!--" * 100_000 + b"<script>" * 1000), "status/200", page=True),
}


@dataclass
class Hostile(Site):
    kind: Kind = field(kw_only=True)
    at: int = field(default=0, init=False)
    """Its port."""

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"{'https' if self.kind.https else 'http'}://{host or self.name}:{self.at}{path}"

    def reachable(self) -> frozenset[str]:
        return frozenset()

    def respond(self, request: Request) -> Answer:  # noqa: ARG002
        """At the port of the web, where other sites' links lead."""
        return NOT_FOUND


class HostileWeb:
    """A site of each kind, `<kind>.org`, at 127.77.0.1 and on; a context manager that starts and ends the process behind them."""

    def __init__(self) -> None:
        self.sites = [Hostile(f"{name}.org", kind=kind, address=f"127.77.0.{n}") for n, (name, kind) in enumerate(KINDS.items(), 1)]

    def __enter__(self) -> HostileWeb:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()
        plain, secure = self._pipe.recv()
        for site in self.sites:
            site.at = secure if site.kind.certificate else plain
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join()


def _serve(pipe: Connection) -> None:
    """Tells its ports and serves until the other end is closed."""
    for make in _TO_PREPARE:
        make()
    uvloop.run(_Server(HostileWeb().sites).serve(pipe))


class _Server:
    def __init__(self, sites: Iterable[Hostile]) -> None:
        self._by_address = {site.address: site.kind for site in sites}
        self._by_name = {site.name: site.kind for site in sites}
        self._connections: set[asyncio.Task[None]] = set()

    async def serve(self, pipe: Connection) -> None:
        contexts = _contexts()

        def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            kind = self._by_name.get(name or "")
            connection.context = contexts[kind.certificate if kind and kind.certificate else "self-signed"]

        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.sni_callback = choose
        servers = [await asyncio.start_server(self._accept, "0.0.0.0", 0, ssl=context) for context in (None, tls)]
        pipe.send([server.sockets[0].getsockname()[1] for server in servers])
        with contextlib.suppress(EOFError):
            await asyncio.to_thread(pipe.recv)
        for server in servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind = self._by_address[writer.get_extra_info("sockname")[0]]
        if not kind.asked:
            await kind.serve(Peer(reader, writer))
            return
        request = await reader.readuntil(b"\r\n\r\n")
        path = request.split(b" ", 2)[1].decode("latin-1")
        is_robots = path == "/robots.txt"
        peer = Peer(reader, writer, path)
        if kind.target == "all" or is_robots == (kind.target == "robots.txt"):
            await kind.serve(peer)
        elif is_robots:
            await peer.send(head(_OK, b"Content-Type: text/plain", b"Content-Length: 0"))
        else:
            await peer.send(html(_PAGE))


def _contexts() -> dict[str, ssl.SSLContext]:
    """By `Certificate`: names of *.org are self-signed, none is trusted."""
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    made = {
        "self-signed": ("tls-self-signed.org", now + day),
        "expired": ("tls-expired.org", now - day),
        "other name": ("no.org", now + day),
    }
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (common_name, ends) in made.items():
            key = ec.generate_private_key(ec.SECP256R1())
            subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
            certificate = (
                x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
                .not_valid_before(now - 2 * day)
                .not_valid_after(ends)
                .sign(key, hashes.SHA256())
            )
            form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            file = Path(folder) / "server.pem"
            file.write_bytes(key.private_bytes(*form) + certificate.public_bytes(serialization.Encoding.PEM))
            found[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            found[name].load_cert_chain(file)
    return found
