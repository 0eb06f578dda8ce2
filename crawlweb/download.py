"""The download handler for http and https: one request, one address, one connection, within the lease and the caps.

Scrapy's request in, Scrapy's response out; the wire is `exchange.py`. Read from `request.meta`: `download_timeout`,
`crawlweb_deadline`, `crawlweb_any_type`, `crawlweb_ip` (the address to connect to; without it the name is resolved),
`crawlweb_spacing` (host, and seconds from the start of its last request to this one's).
Written there: `crawlweb_fetch` (a `records.Fetch`) when response headers came, else `crawlweb_sent` (boottime of the end)
when the server may have seen the request; `crawlweb_truncated` (`Fetch.truncated`) where `response.flags` has "truncated";
`download_latency`; `crawlweb_held` (an `in_flight.Body`) of a leased request: whoever ends it releases the bytes.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import resource
import socket
import ssl
import sys
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from scrapy.exceptions import NotSupported
from scrapy.http import Headers, Request, Response
from scrapy.responsetypes import responsetypes
from scrapy.utils.httpobj import urlparse_cached

from crawlweb import default_settings
from crawlweb.connections import Connections, Peer, keeps_s
from crawlweb.decode import ACCEPT_ENCODING
from crawlweb.dns import Address, Resolver, is_public
from crawlweb.errors import ConnectionWasClosed, FetchError, LeaseExpired, NoRoom
from crawlweb.exchange import Caps, Exchange, Head
from crawlweb.in_flight import Body, InFlight
from crawlweb.records import Fetch, boottime
from crawlweb.spacing import Spacing

if TYPE_CHECKING:
    from urllib.parse import ParseResult

    from scrapy.crawler import Crawler

_PORTS: Final = {"http": 80, "https": 443}
_OURS: Final = {b"Host", b"Connection", b"Content-Length", b"Transfer-Encoding", b"Proxy-Connection", b"Te", b"Upgrade"}
_TOKEN: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110 §5.6.2
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]+")
_TARGET: Final = re.compile(r"[^:/?#]+://[^/?#]*([^#]*)")
_USERINFO: Final = re.compile(rb"\A([^/?#]*//)[^/?#]*@")
_NO_CONNECTION: Final = ("connect_refused", "connect_failed", "connect_timeout")  # its name may have other addresses
_NOT_IN_TARGET: Final = re.compile(r"[^\x21-\x7e]")
_HANDSHAKE_SHARE: Final = 0.9  # of the time left: a handshake that hangs is TLS trouble of the origin, no dead host
_SLEPT_S: Final = 1.0  # a time-out that comes later than this was not the server's
_TICK_S: Final = 0.010
_LAG_MAX_S: Final = 0.020
_FILES_WITHOUT_LIMIT: Final = 65_536
_OURS_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RESOLVER: Final = "_crawlweb_resolver"
_IN_FLIGHT: Final = "_crawlweb_in_flight"


def resolver_of(crawler: Crawler) -> Resolver:
    """The crawler's one resolver, made when it is first asked for. Who uses it closes it; twice does no harm."""
    resolver: Resolver | None = getattr(crawler, _RESOLVER, None)
    if resolver is None:
        config, stats = default_settings.load(crawler.settings), crawler.stats
        assert stats is not None
        resolver = Resolver(
            config.dns_servers,
            allow_private=config.allow_private_ips,
            ttl_min_s=config.dns_ttl_min_s,
            timeout_s=config.dns_timeout_s,
            cache_names=config.dns_cache_names,
            count=lambda name: stats.inc_value(f"crawlweb/{name}"),
        )
        setattr(crawler, _RESOLVER, resolver)
    return resolver


def in_flight_of(crawler: Crawler) -> InFlight:
    """The crawler's one count of bytes in flight."""
    in_flight: InFlight | None = getattr(crawler, _IN_FLIGHT, None)
    if in_flight is None:
        config = default_settings.load(crawler.settings)
        in_flight = InFlight(config.bytes_in_flight)
        setattr(crawler, _IN_FLIGHT, in_flight)
    return in_flight


class DownloadHandler:
    """Errors: FetchError of every kind that is a server's, LeaseExpired before anything was requested, NoRoom where it is this worker
    that could not take the response."""

    lazy = True

    def __init__(self, crawler: Crawler) -> None:
        config = default_settings.load(crawler.settings)
        self._timeout_s = crawler.settings.getfloat("DOWNLOAD_TIMEOUT")
        self._verify_certificates = crawler.settings.getbool("DOWNLOAD_VERIFY_CERTIFICATES")
        self._caps = Caps(config.max_body_bytes, config.max_header_bytes, config.first_byte_s)
        self.allow_private_ips = config.allow_private_ips
        self.from_email = config.from_email
        self._content_types = frozenset(name.lower().encode() for name in config.content_types)
        self.resolver = resolver_of(crawler)
        self._in_flight = in_flight_of(crawler)
        self.connections = Connections(config.keep_alive_s, config.keep_alive_most)
        self.spacing = Spacing()
        self._min_delay_s, self._latency_factor = config.min_delay_s, config.latency_factor
        self._stats = crawler.stats
        self._tls: ssl.SSLContext | None = None
        self._lag: LoopLag | None = None
        raise_file_limit()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> DownloadHandler:
        return cls(crawler)

    async def close(self) -> None:
        self.connections.close()
        await self.resolver.close()

    async def download_request(self, request: Request) -> Response:
        meta = request.meta
        for key in ("crawlweb_fetch", "crawlweb_sent", "crawlweb_truncated"):
            meta.pop(key, None)
        if meta.get("proxy"):
            raise NotSupported("no proxies: the address guard and the clocks would be blind")
        if held := meta.pop("crawlweb_held", None):
            held.release()
        lag = self._lag = self._lag or LoopLag(asyncio.get_running_loop())
        attempt = _Attempt(self, request, lag)
        lag.enter()
        try:
            response = await attempt.response()
            if "crawlweb_deadline" in meta:
                meta["crawlweb_held"] = attempt.exchange.held
            return response
        except FetchError as error:
            if error.kind in _NO_CONNECTION and attempt.address is not None:
                self.resolver.avoid(urlparse_cached(request).hostname or "", attempt.address.ip)
            raise
        finally:
            lag.leave()
            attempt.exchange.end()
            if "crawlweb_held" not in meta:
                attempt.exchange.held.release()
            if attempt.sent and "crawlweb_fetch" not in meta:
                meta["crawlweb_sent"] = attempt.exchange.finished

    def timeout_s(self, request: Request) -> float:
        return float(request.meta.get("download_timeout") or self._timeout_s)

    def new_exchange(self, request: Request) -> Exchange:
        any_type = bool(request.meta.get("crawlweb_any_type"))

        def wanted(head: Head) -> bool:
            return any_type or not 200 <= head.status < 300 or self._allows(head.value(b"content-type"))

        return Exchange(asyncio.get_running_loop(), request.method, wanted, self._caps, Body(self._in_flight))

    def will_keep(self, peer: Peer) -> bool:
        """The host may be asked again before a connection that is kept is closed."""
        return self._min_delay_s <= self.connections.most_s and self.connections.wants(peer)

    def keep(self, peer: Peer, head: Head, transport: asyncio.Transport, latency_s: float | None) -> bool:
        """Takes over a connection if the host's next turn comes while its server keeps it."""
        for_s = keeps_s(head, self.connections.most_s)
        if for_s == 0 or for_s < max(self._min_delay_s, (latency_s or 0.0) * self._latency_factor):
            return False
        return self.connections.keep(peer, transport, for_s)

    def count_reused(self) -> None:
        if self._stats is not None:
            self._stats.inc_value("crawlweb/keep_alive/reused")

    def tls(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = _tls_context(self._verify_certificates)
        return self._tls

    def _allows(self, content_type: bytes) -> bool:
        name = re.split(rb"[;,]", content_type, maxsplit=1)[0].strip().lower()
        return not name or name in self._content_types


class _Attempt:
    """One call of `download_request`."""

    def __init__(self, handler: DownloadHandler, request: Request, lag: LoopLag) -> None:
        self.exchange = handler.new_exchange(request)
        self.sent = False  # the server may have seen what counts as a request
        self._handler = handler
        self._request = request
        self._lag = lag
        self.address: Address | None = None
        self._request_head = b""
        self._fetched_at = 0.0
        self._latency_s: float | None = None
        self._peer: Peer | None = None
        self._is_reused = False
        self._timed_out = False
        self._awaits_turn = False

    async def response(self) -> Response:
        timeout_s = self._handler.timeout_s(self._request)
        deadline: float | None = self._request.meta.get("crawlweb_deadline")
        begun = boottime()
        if deadline is not None and deadline - begun < timeout_s:
            raise LeaseExpired(f"{deadline - begun:.1f} s left, {timeout_s:g} needed")
        until = begun + timeout_s
        task = asyncio.current_task()
        assert task is not None
        timer = asyncio.get_running_loop().call_later(until - boottime(), self._expire, task)
        try:
            await self._converse(until, deadline)
        except asyncio.CancelledError:
            if not self._timed_out:
                raise
            if sys.version_info >= (3, 11):
                task.uncancel()
            if deadline is not None and boottime() > until + _SLEPT_S:
                raise LeaseExpired("the process slept before the request was sent") from None
            if self._awaits_turn:
                raise LeaseExpired("its turn came too late") from None
            raise FetchError("connect_timeout" if self.address else "dns_timeout", f"after {timeout_s:g} s") from None
        finally:
            timer.cancel()
        error = self.exchange.error
        if error is not None:
            is_reset = isinstance(error, FetchError) and error.kind == "reset"
            if is_reset and self._is_reused and self._peer is not None and self.exchange.first_byte is None:
                self._handler.connections.distrust(self._peer)
                raise ConnectionWasClosed(str(error))
            raise error
        assert self.exchange.first_byte is not None
        self._request.meta["download_latency"] = self.exchange.first_byte - begun
        return self._finished_response()

    def _expire(self, task: asyncio.Task[object]) -> None:
        """Once the request is out, what came is kept."""
        if self.exchange.sent is None:
            self._timed_out = True
            task.cancel()
        else:
            self.exchange.expire()

    async def _converse(self, until: float, deadline: float | None) -> None:
        """Returns when the response is there, or `exchange.error`."""
        url = urlparse_cached(self._request)
        if not url.hostname:
            raise FetchError("dns_nxdomain", "no host in the URL")
        self.address = self._address_given() or await self._handler.resolver.resolve(url.hostname)
        self._check_time(until, deadline)
        await self._connect(url, self.address, until)
        self._request_head = request_head(self._request, url, self._handler.from_email, closes=self.exchange.keep is None)
        data = self._request_head + self._request.body
        if spacing := self._request.meta.get("crawlweb_spacing"):
            self._awaits_turn = True
            await self._handler.spacing.turn(*spacing)
            self._awaits_turn = False
        self.exchange.on_first_byte = self._take_latency
        self._fetched_at = time.time()
        self._check_time(until, deadline)  # the write that follows is the kernel's at once
        self.sent = True
        self.exchange.send(data)
        await self.exchange.done

    def _address_given(self) -> Address | None:
        ip: str | None = self._request.meta.get("crawlweb_ip")
        if not ip:
            return None
        try:
            family = socket.AF_INET6 if ipaddress.ip_address(ip).version == 6 else socket.AF_INET
        except ValueError:
            raise FetchError("error", f"{ip!r} is no address") from None
        if not (self._handler.allow_private_ips or is_public(ip)):
            raise FetchError("private_address", ip)
        return Address(ip, family)

    async def _connect(self, url: ParseResult, address: Address, until: float) -> None:
        tls = url.scheme == "https"
        name = (url.hostname or "").rstrip(".") if tls else None
        handshake_s = max(0.001, _HANDSHAKE_SHARE * (until - boottime())) if tls else None
        try:
            port = _PORTS[url.scheme] if url.port is None else url.port
            if self._has_kept(Peer(address.ip, port, url.hostname or "", name or "")):
                return
            await asyncio.get_running_loop().create_connection(
                lambda: self.exchange,
                address.ip,
                port,
                ssl=self._handler.tls() if tls else None,
                server_hostname=name,
                ssl_handshake_timeout=handshake_s,
            )
        except ConnectionRefusedError as error:
            raise FetchError("connect_refused", f"{address.ip}:{port}") from error
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError) as error:
            self.sent = tls
            raise FetchError("tls" if tls else "connect_failed", str(error)) from error
        except ValueError as error:  # a name that TLS cannot carry
            raise FetchError("tls", str(error)) from error
        except OSError as error:
            if error.errno in _OURS_EXHAUSTED:
                raise NoRoom(str(error)) from error
            raise FetchError("connect_timeout" if error.errno == errno.ETIMEDOUT else "connect_failed", str(error)) from error

    def _has_kept(self, peer: Peer) -> bool:
        """Takes a connection that was kept; tells the exchange whether its own is to be kept, whichever it is."""
        if self._request.method != "GET" or not self._handler.will_keep(peer):
            return False
        self._peer = peer
        self.exchange.keep = self._keep
        transport = self._handler.connections.take(peer)
        if transport is None:
            return False
        self._is_reused = True
        transport.set_protocol(self.exchange)
        self.exchange.connection_made(transport)
        self._handler.count_reused()
        return True

    def _keep(self, head: Head, transport: asyncio.Transport) -> bool:
        assert self._peer is not None
        return self._handler.keep(self._peer, head, transport, self._latency_s)

    def _check_time(self, until: float, deadline: float | None) -> None:
        """A process that was stopped or suspended meanwhile sends nothing."""
        if boottime() < until:
            return
        if deadline is not None:
            raise LeaseExpired("the process slept before the request was sent")
        raise FetchError("connect_timeout", "before the request was sent")

    def _take_latency(self) -> None:
        sent, first_byte = self.exchange.sent, self.exchange.first_byte
        if sent is not None and first_byte is not None and not self.exchange.held.has_waited and self._lag.kept_time_for(boottime() - sent):
            self._latency_s = first_byte - sent

    def _finished_response(self) -> Response:
        exchange, address, head = self.exchange, self.address, self.exchange.head
        assert address is not None
        assert head is not None
        assert exchange.sent is not None
        assert exchange.finished is not None
        payload = exchange.payload
        body = exchange.body(payload)
        if "truncated" in exchange.flags:
            self._request.meta["crawlweb_truncated"] = exchange.truncated
        self._request.meta["crawlweb_fetch"] = Fetch(
            url=_USERINFO.sub(rb"\1", self._request.url.encode()).decode() if "@" in self._request.url else self._request.url,
            ip=address.ip,
            started=exchange.sent,
            finished=exchange.finished,
            latency_s=self._latency_s,
            fetched_at=self._fetched_at,
            request_head=self._request_head,
            status=head.status,
            response_head=head.raw,
            payload=payload,
            body=body,
            truncated=exchange.truncated,
        )
        headers = _decoded_headers(head, self._request.method, len(body))
        response_class = responsetypes.from_args(headers=headers, url=self._request.url, body=body)
        response = response_class(
            url=self._request.url,
            status=head.status,
            body=body,
            flags=exchange.flags,
            ip_address=_ip_address(address.ip),
            protocol=f"HTTP/{head.version}",
        )
        response.headers = headers  # given to the class, they would be made once more
        return response


class LoopLag:
    """Tells whether the event loop kept time. Ticks only while someone is between `enter` and `leave`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._users = 0
        self._due = self._late_at = 0.0  # of loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self) -> None:
        self._users += 1
        if self._timer is None:
            self._schedule()

    def leave(self) -> None:
        self._users -= 1
        if self._users == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def kept_time_for(self, past_s: float) -> bool:
        """No callback held up the loop by 30 ms or more during the last `past_s` seconds."""
        now = self._loop.time()
        return now - self._due <= _LAG_MAX_S and self._late_at < now - past_s

    def _schedule(self) -> None:
        self._due = self._loop.time() + _TICK_S
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        if self._loop.time() - self._due > _LAG_MAX_S:
            self._late_at = self._loop.time()
        self._schedule()


def request_head(request: Request, url: ParseResult, from_email: str = "", closes: bool = True) -> bytes:
    """Request line and headers. The URL goes out as it stands, without fragment and credentials, as does `Referer` (RFC 9110 §10.1.3)."""
    match = _TARGET.match(request.url)
    target = _NOT_IN_TARGET.sub(lambda found: quote(found[0]), match[1] if match else "")
    target = target if target.startswith("/") else f"/{target}"
    host = url.netloc.rpartition("@")[2].removesuffix(f":{_PORTS[url.scheme]}")
    method = request.method.encode()
    headers: dict[bytes, list[bytes]] = dict(request.headers)  # without looking each name up again
    for token in (method, *headers):
        if not _TOKEN.fullmatch(token):
            raise FetchError("error", f"{token!r} is no method or header name")
    lines = [b"%b %b HTTP/1.1" % (method, target.encode()), b"Host: " + _CONTROL.sub(b" ", _last(headers, b"Host") or host.encode())]
    for name, values in headers.items():
        if name == b"Referer":
            lines += [b"Referer: " + _CONTROL.sub(b" ", _USERINFO.sub(rb"\1", value)) for value in values]
        elif name not in _OURS:
            for value in values:
                lines.append(name + b": " + _CONTROL.sub(b" ", value))
    if from_email and b"From" not in headers:
        lines.append(b"From: " + from_email.encode())
    if b"Accept-Encoding" not in headers:
        lines.append(b"Accept-Encoding: " + ACCEPT_ENCODING)
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(b"Content-Length: %d" % len(request.body))
    lines.append(b"Connection: close" if closes else b"Connection: keep-alive")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _last(headers: dict[bytes, list[bytes]], name: bytes) -> bytes | None:
    values = headers.get(name)
    return values[-1] if values else None


def raise_file_limit() -> int:
    """Lets the process open as many files as the system grants, and returns how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WITHOUT_LIMIT if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _FILES_WITHOUT_LIMIT if soft == resource.RLIM_INFINITY else soft


@lru_cache(maxsize=4096)
def _ip_address(ip: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(ip)


def _decoded_headers(head: Head, method: str, body_bytes: int) -> Headers:
    """As received, without what described the encoded body."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in head.headers:
        values.setdefault(name.title(), []).append(value)
    if head.has_body(method):
        values.pop(b"Content-Encoding", None)
        values.pop(b"Transfer-Encoding", None)
        values[b"Content-Length"] = [b"%d" % body_bytes]
    headers = Headers()
    dict.update(headers, values)  # which are as Headers makes them
    return headers


def _tls_context(verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context() if verify else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_ciphers("DEFAULT:@SECLEVEL=1")  # old servers: short keys, SHA-1
        context.options |= _LEGACY_RENEGOTIATION
    return context


_LEGACY_RENEGOTIATION: Final = 0x4  # ssl.OP_LEGACY_SERVER_CONNECT, named since Python 3.12
