"""HTTP for every host of the web on one port, and the log of what was asked."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from .names import NameServer
from .report import Report, Visit, report
from .sites import Answer, Rest, Site
from .text import host_name
from .tls import server_context

HEAD_BYTES_MAX = 65_536


class Web:
    """Sites by name, their name server and their HTTP server.

    A context manager answers from a thread; `open` and `close` do so on the running loop. Ports of 0 are free ones,
    known once it is open. An exception inside a site is raised when the web closes.

    `tls`: the sites' URLs are https, on a port of its own; the HTTP port takes CONNECT to any of them, and so is a proxy for
    clients that cannot be told the web's name server. Without `keep_alive` each answer ends its connection."""

    def __init__(
        self,
        *,
        seed: int = 1,
        sites: Sequence[Site],
        http_port: int = 0,
        dns_port: int = 0,
        tls: bool = False,
        keep_alive: bool = True,
    ) -> None:
        self.seed, self.http_port, self.dns_port, self.keep_alive = seed, http_port, dns_port, keep_alive
        self.tls = server_context() if tls else None
        self.https_port = 0
        self.sites: dict[str, Site] = {}
        self.log: list[Visit] = []
        self.served = 0
        """How many of the requests showed a page."""
        self.served_bytes = 0
        """Bodies of these, encoded as they were sent."""
        self.failures: list[BaseException] = []
        self.names = NameServer(self.site_of)
        self.connections: set[_Connection] = set()
        self._by_host: dict[str, Site | None] = {}
        self._servers: list[asyncio.AbstractServer] = []
        self._dns: asyncio.DatagramTransport | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._changed = threading.Condition()
        self._watched = False
        rng = random.Random(f"{seed}/names")
        for number, site in enumerate(sites):
            site.name = site.name or host_name(rng, number)
            site.address = site.address or f"127.{16 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"
            if self.sites.setdefault(site.name, site) is not site:
                raise ValueError(f"two sites are called {site.name}")

    @property
    def dns_server(self) -> str:
        return f"127.0.0.1:{self.dns_port}"

    def seeds(self) -> list[str]:
        """The front page of every site, dead ones included."""
        return [site.url("/") for site in self.sites.values()]

    def site_of(self, host: str) -> Site | None:
        """The site of a host name: the name itself or the nearest name above it."""
        try:
            return self._by_host[host]
        except KeyError:
            labels = host.split(".")
            above = (".".join(labels[i:]) for i in range(len(labels)))
            return self._by_host.setdefault(host, next((self.sites[n] for n in above if n in self.sites), None))

    def visits(self) -> list[Visit]:
        """The log, requests that are still open included (as if they ended now)."""
        return [*self.log, *(v for c in list(self.connections) if (v := c.open_visit()) is not None)]

    def report(self, *, min_delay_s: float = 0.0, ip_delay_s: float = 0.0, tolerance_s: float = 0.01) -> Report:
        return report(
            self.visits(),
            self.sites,
            self.site_of,
            min_delay_s=min_delay_s,
            ip_delay_s=ip_delay_s,
            tolerance_s=tolerance_s,
        )

    def wait_until_served(self, pages: int, timeout_s: float) -> bool:
        """Wait, outside the web's own thread, until so many pages were served in all."""
        with self._changed:
            self._watched = True
            try:
                return self._changed.wait_for(lambda: self.served >= pages, timeout_s)
            finally:
                self._watched = False

    def record(self, visit: Visit) -> None:
        self.log.append(visit)
        self.served += visit.page is not None
        if self._watched:
            with self._changed:
                self._changed.notify_all()

    def __enter__(self) -> Web:
        opened = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(opened,), name="synthetic web", daemon=True)
        self._thread.start()
        opened.wait()
        if self._stop is None:
            self._thread.join()
            raise self.failures.pop()
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._stop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        if self.failures:
            raise self.failures[0]

    def _run(self, opened: threading.Event) -> None:
        async def run() -> None:
            await self.open()
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            opened.set()
            await self._stop.wait()
            await self.close()

        try:
            asyncio.run(run())
        except BaseException as failure:
            self.failures.append(failure)
        finally:
            opened.set()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self.http_port, sockets = self._listen(self.http_port)
        listeners: list[tuple[socket.socket, ssl.SSLContext | None]] = [(listener, None) for listener in sockets]
        if self.tls is not None:
            self.https_port, sockets = self._listen(0)
            listeners += [(listener, self.tls) for listener in sockets]
        for listener, tls in listeners:
            self._servers.append(await loop.create_server(lambda: _Connection(self, loop), sock=listener, backlog=4096, ssl=tls))
        self._dns, _ = await loop.create_datagram_endpoint(lambda: self.names, local_addr=("127.0.0.1", self.dns_port))
        self.dns_port = self._dns.get_extra_info("sockname")[1]
        names = tuple(self.sites)
        for site in self.sites.values():
            site.scheme = "https" if self.tls else "http"
            site.join(self.seed, self.https_port or self.http_port, tuple(n for n in names if n != site.name))

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        if self._dns is not None:
            self._dns.close()
        while self.connections:
            for connection in list(self.connections):
                connection.abort()
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _listen(self, wanted: int) -> tuple[int, list[socket.socket]]:
        """A port (`wanted`; 0: any) and one socket on all addresses; one an address where some address must refuse."""
        sites = self.sites.values()
        addresses = ["0.0.0.0"]
        refusing = {address for site in sites for address in site.refusing()}
        if refusing:
            addresses = sorted({address for site in sites for address in site.listening()} - refusing) or ["127.0.0.1"]
        for attempt in range(20):
            port, sockets = wanted, []
            try:
                for address in addresses:
                    sockets.append(socket.socket())
                    sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    sockets[-1].bind((address, port))
                    sockets[-1].listen(4096)
                    port = sockets[-1].getsockname()[1]
            except OSError:
                for opened in sockets:
                    opened.close()
                if wanted or attempt == 19:
                    raise
            else:
                break
        return port, sockets


class _Connection(asyncio.Protocol):
    """One request at a time; further ones wait in the inbox."""

    __slots__ = (
        "_address",
        "_answer",
        "_inbox",
        "_last",
        "_loop",
        "_paused",
        "_site",
        "_timer",
        "_transport",
        "_upgrade",
        "_visit",
        "_web",
    )

    def __init__(self, web: Web, loop: asyncio.AbstractEventLoop) -> None:
        self._web, self._loop = web, loop
        self._inbox = b""
        self._site: Site | None = None
        self._visit: Visit | None = None
        self._answer: Answer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._upgrade: asyncio.Task[None] | None = None
        self._paused = False
        self._last = False

    def open_visit(self) -> Visit | None:
        visit = self._visit
        return visit and visit._replace(end_s=time.monotonic())

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._address: str = transport.get_extra_info("sockname")[0]
        self._web.connections.add(self)
        self._transport.set_write_buffer_limits(high=0)
        if not transport.get_extra_info("peername")[0].startswith("127."):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._inbox = self._inbox + data if self._inbox else data
        if self._visit is None and self._upgrade is None:
            self._next_request()

    def _next_request(self) -> None:
        head, found, rest = self._inbox.partition(b"\r\n\r\n")
        if not found:
            if len(head) > HEAD_BYTES_MAX:
                self._transport.abort()
            return
        self._inbox = rest
        start_s = time.monotonic()
        lower = head.lower()
        host = _header(head, lower, b"\r\nhost:").partition(":")[0].lower().rstrip(".")
        web = self._web
        self._last = not web.keep_alive or b"\r\nconnection: close" in lower or b" http/1.0\r\n" in lower
        method, _, line = head[: head.find(b"\r\n")].decode("latin-1").partition(" ")
        if method == "CONNECT" and web.tls is not None:
            self._upgrade = self._loop.create_task(self._tunnel(web.tls))
            return
        target = line.rpartition(" ")[0]
        if target.startswith("http://"):
            target = "/" + target[7:].partition("/")[2]
        site = web.site_of(host)
        agent = _header(head, lower, b"\r\nuser-agent:")
        self._site = site
        early_s = max(0.0, site.not_before_s - start_s) if site else 0.0
        self._visit = Visit(start_s, start_s, host, self._address, target, 0, agent, time.time(), early_s=early_s)
        if method != "GET" or not target or site is None:
            self._send(Answer(b"<p>Not here.", 405 if method != "GET" else 404 if target else 400))
            return
        try:
            answer = site.answer(target, host, head)
            if site.forbids(target, host):
                self._visit = self._visit._replace(forbidden=True)
        except Exception as failure:
            web.failures.append(failure)
            answer = Answer(b"<p>The synthetic web broke.", 500)
        if answer.wait_s:
            self._timer = self._loop.call_later(answer.wait_s, self._send, answer)
        else:
            self._send(answer)

    async def _tunnel(self, tls: ssl.SSLContext) -> None:
        """What comes next on this connection is TLS."""
        self._transport.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            upgraded = await self._loop.start_tls(self._transport, self, tls, server_side=True)
        except OSError:
            upgraded = None
        if upgraded is None:
            self._transport.abort()
            return
        self._transport, self._upgrade = cast(asyncio.Transport, upgraded), None
        if self._inbox:
            self._next_request()

    def _send(self, answer: Answer) -> None:
        self._timer = None
        manner, transport = answer.manner, self._transport
        if manner == "never" or transport.is_closing():
            return
        if answer.rest is not None:
            answer = self._resting(answer, answer.rest)
        self._answer = answer
        if manner == "reset":
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        elif manner == "endless":
            transport.write(_head(answer, "Connection: close\r\n"))
            self._pump()
        else:
            handed_over_s = time.monotonic()  # before: the client may have it before we run again
            if manner == "raw":
                transport.write(answer.body)
            else:
                close = "" if self._web.keep_alive else "Connection: close\r\n"
                transport.write(_head(answer, f"{close}Content-Length: {len(answer.body)}\r\n") + answer.body)
            if not self._paused:
                self._finish(handed_over_s)

    def _resting(self, answer: Answer, rest: Rest) -> Answer:
        """The answer with its Retry-After, counted from now."""
        now = time.time()
        if self._site is not None:
            self._site.not_before_s = max(self._site.not_before_s, time.monotonic() + rest.ends(now) - now)
        return replace(answer, headers=(*answer.headers, *rest.headers(now)))

    def _pump(self) -> None:
        """The next piece of an endless body, when the one before has left and its pause is over."""
        self._timer = None
        answer = self._answer
        if answer is None or self._transport.is_closing():
            return
        self._transport.write(answer.body)
        if not self._paused:
            self._timer = self._loop.call_later(answer.pause_s, self._pump)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._answer is None:
            return
        if self._answer.manner == "endless":
            self._timer = self._loop.call_later(self._answer.pause_s, self._pump)
        else:
            self._finish(time.monotonic())

    def _finish(self, end_s: float) -> None:
        visit, answer = self._visit, self._answer
        if visit is None or answer is None:
            return
        self._visit = self._answer = None
        page = answer.page if answer.status == 200 else None
        self._web.served_bytes += len(answer.body) if page is not None else 0
        self._web.record(visit._replace(end_s=end_s, status=answer.status, page=page, blocked=answer.blocked))
        if self._last or answer.manner == "raw":
            self._transport.close()
        elif self._inbox:
            self._next_request()

    def connection_lost(self, _: Exception | None) -> None:
        self._web.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._visit is not None:
            status = self._answer.status if self._answer else 0
            self._web.record(self._visit._replace(end_s=time.monotonic(), status=status))
            self._visit = self._answer = None


def _header(head: bytes, lower: bytes, name: bytes) -> str:
    at = lower.find(name)
    if at < 0:
        return ""
    at += len(name)
    end = head.find(b"\r\n", at)
    return head[at : end if end >= 0 else len(head)].decode("latin-1").strip()


_REASONS = {
    200: "OK",
    301: "Moved Permanently",
    302: "Found",
    404: "Not Found",
    429: "Too Many Requests",
    503: "Service Unavailable",
}


def _head(answer: Answer, framing: str) -> bytes:
    kind = f"Content-Type: {answer.content_type}\r\n" if answer.content_type else ""
    more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
    status = f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Other')}\r\n"
    return f"{status}{kind}{more}{framing}\r\n".encode("latin-1")
