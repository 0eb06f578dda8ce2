"""Names to addresses: an asynchronous, caching resolver on c-ares, and the guard of what is not ours to reach."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import math
import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import aiodns
import aiodns.error
import pycares

from crawlweb.errors import ConfigError, FetchError
from crawlweb.records import boottime

TTL_MAX_S: Final = 86_400.0
NXDOMAIN_TTL_S: Final = 60.0  # at least: c-ares, below, keeps it as long as the zone's SOA says (RFC 2308 §5)
TROUBLE_TTL_S: Final = 5.0  # SERVFAIL, time-outs (RFC 2308 §7 allows five minutes), no route
STALE_MAX_S: Final = 3600.0  # while the servers are in trouble, addresses serve so long beyond their time (RFC 8767)
_ADDRESSES: Final = 8  # of a name, of one family: a long answer is not read to its end
_LEAST_TRY_S: Final = 0.25  # c-ares waits so long for a server that it knows to be quick, then twice as long, …
_RENEW_QUERIES: Final = 10_000  # c-ares keeps every answer up to an hour, 1.2 KB each: a new channel starts empty

_NAME: Final = re.compile(r"[!-\[\]-~]{1,253}")  # no blank, no NUL, and no backslash: c-ares reads escapes
_LOOPBACK_NAME: Final = re.compile(r"(?:.*\.)?localhost")  # RFC 6761 §6.3
_ENDS_IN_NUMBER: Final = re.compile(r"(?:.*\.)?(?:\d+|0x[0-9a-f]*)")  # WHATWG URL, "ends in a number"
_IPV4_PARTS: Final = re.compile(r"(?:\d+|0x[0-9a-f]*)(?:\.(?:\d+|0x[0-9a-f]*)){0,3}")
_SERVER: Final = re.compile(r"\[(?P<v6>[^]]+)\](?::(?P<p6>\d+))?|(?P<v4>[^:]+)(?::(?P<p4>\d+))?|(?P<bare>.+)")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")  # what IANA gives out of
_NEVER_PUBLIC: Final = tuple(  # beside what `ipaddress` knows, which depends on the Python's age
    ipaddress.ip_network(net)
    for net in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20")  # RFC 6890, 7526; a cloud's metadata; RFC 9637
)

_KINDS: Final = {
    aiodns.error.ARES_ENODATA: "dns_nxdomain",
    aiodns.error.ARES_ENOTFOUND: "dns_nxdomain",
    aiodns.error.ARES_EBADNAME: "dns_nxdomain",
    aiodns.error.ARES_ETIMEOUT: "dns_timeout",
}  # the rest: dns_servfail
_TROUBLE: Final = ("dns_servfail", "dns_timeout")
_NO_ROUTE: Final = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True)
class Address:
    ip: str
    family: socket.AddressFamily


@dataclass(frozen=True, slots=True)
class _Failure:
    kind: str
    message: str


_Outcome: TypeAlias = "tuple[str, ...] | _Failure"  # addresses in the order of their use
# What is known of a name: when it expires and until when it may serve nevertheless (boottime); its addresses (none left: to be
# looked up anew) and those that took no connection, the last one last; or kind and message of a failure.
# Tuples of plain values: the garbage collector, which stops the loop, passes over them (docs/decisions/dns.md).
_Known: TypeAlias = "tuple[float, float, tuple[str, ...], tuple[str, ...], str, str]"


def is_public(ip: str) -> bool:
    """Whether the address belongs to the public internet; what it wraps (mapped, NAT64, 6to4) counts. False for no address."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
        if address.scope_id or address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast and not any(address in net for net in _NEVER_PUBLIC)


def parse_servers(servers: str | Iterable[str]) -> list[str]:
    """`address:port` each; the port may be missing. ConfigError on what is no address."""
    listed = servers.split(",") if isinstance(servers, str) else servers
    return [_server(text.strip()) for text in listed if text.strip()]


def has_route(ip: str) -> bool:
    """Whether this machine knows a way there. Nothing is sent."""
    try:
        with socket.socket(_family(ip), socket.SOCK_DGRAM) as probe:
            probe.connect((ip, 9))
    except OSError as error:
        return error.errno not in _NO_ROUTE
    return True


class Resolver:
    """One address for a name, kept for its time to live. Look-ups of one name share one query.

    IPv4 before IPv6: one query does, and the hosts of one server are seen to share its address. AAAA records are asked for where
    no IPv4 address can be used, or none took a connection (`avoid`).

    Without `servers` the system's are asked, after the hosts file. Made at first use inside the running loop.
    """

    def __init__(
        self,
        servers: str | Iterable[str] = (),
        *,
        allow_private: bool = False,
        ttl_min_s: float = 60.0,
        timeout_s: float = 5.0,
        cache_names: int = 50_000,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`timeout_s`: of a look-up, all tries included. `count` takes names of stats, without prefix."""
        self._servers = parse_servers(servers)
        self._allow_private = allow_private
        self._ttl_min_s = ttl_min_s
        self._timeout_s = timeout_s
        self._tries = 2 + math.ceil(math.log2(timeout_s / _LEAST_TRY_S + 1))  # they fill `timeout_s`, whatever c-ares' jitter
        self._cache_names = cache_names
        self._count = count
        self._cache: dict[str, _Known] = {}
        self._in_flight: dict[str, asyncio.Task[_Outcome]] = {}
        self._dns: aiodns.DNSResolver | None = None
        self._retired: list[tuple[float, aiodns.DNSResolver]] = []  # since when; their last queries may be under way
        self._hosts_file: aiodns.DNSResolver | None = None
        self._queries = 0  # of `_dns`

    async def resolve(self, name: str) -> Address:
        """FetchError: `dns_nxdomain` (also: no address at all), `dns_servfail`, `dns_timeout`, `private_address`,
        `connect_failed` (there is no route to the name's addresses)."""
        key = _key(name)
        outcome = None if key in self._cache else self._literal(name)
        if outcome is None:
            outcome = await self._known_or_looked_up(key)
        if isinstance(outcome, _Failure):
            self._count(f"dns/failures/{outcome.kind}")
            raise FetchError(outcome.kind, outcome.message)
        return Address(outcome[0], _family(outcome[0]))

    def avoid(self, name: str, ip: str) -> None:
        """The address took no connection: the name's next one is used from now on, and after the last one those of a new look-up,
        the one that failed longest ago first."""
        expires, stale_until, ips, failed, _, _ = self._cache.get(_key(name), _UNKNOWN)
        if ips[:1] == (ip,):
            failed = (*(other for other in failed if other != ip), ip)
            self._cache[_key(name)] = expires, stale_until, ips[1:], failed, "", ""

    async def close(self) -> None:
        """Twice does no harm; a look-up after it opens the resolver again."""
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        channels = (self._dns, self._hosts_file, *(channel for _, channel in self._retired))
        self._dns = self._hosts_file = None
        self._retired = []
        for channel in channels:
            if channel is not None:
                await channel.close()

    def _literal(self, name: str) -> _Outcome | None:
        """The address that `name` is, in any spelling; None: a name to look up."""
        bare = name[1:-1] if name.startswith("[") and name.endswith("]") else _key(name)
        if _LOOPBACK_NAME.fullmatch(bare):
            return self._usable(name, ["127.0.0.1"])
        if ":" not in bare and not _ENDS_IN_NUMBER.fullmatch(bare):
            return None
        try:
            if ":" in bare:
                ip = str(ipaddress.IPv6Address(bare))
            elif _IPV4_PARTS.fullmatch(bare):
                ip = socket.inet_ntoa(socket.inet_aton(bare))
            else:
                raise ValueError
        except (OSError, ValueError):
            return _Failure("dns_nxdomain", f"{name!r} is no address")
        return self._usable(name, [ip])

    def _usable(self, name: str, found: list[str]) -> _Outcome:
        """Those that are ours to reach and that a route leads to, of at least one address."""
        allowed = [ip for ip in found if self._allow_private or is_public(ip)]
        if not allowed:
            return _Failure("private_address", f"{name} is {found[0]}")
        return tuple(filter(has_route, allowed)) or _Failure("connect_failed", f"{name} is {allowed[0]}, no route leads there")

    async def _known_or_looked_up(self, name: str) -> _Outcome:
        expires, _, ips, _, kind, message = self._cache.get(name, _UNKNOWN)
        if (ips or kind) and boottime() < expires:
            self._count("dns/hits")
            return _Failure(kind, message) if kind else ips
        self._count("dns/misses")
        task = self._in_flight.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._look_up(name))
            self._in_flight[name] = task
        return await asyncio.shield(task)  # whoever gives up leaves it to the others

    async def _look_up(self, name: str) -> _Outcome:
        _, stale_until, ips, failed, _, _ = self._cache.get(name, _UNKNOWN)
        try:
            outcome, ttl_s = await self._query(name, every_family=bool(failed))
        except asyncio.TimeoutError:
            outcome, ttl_s = _Failure("dns_timeout", f"{name}: no answer in {self._timeout_s:g} s"), TROUBLE_TTL_S
        except aiodns.error.DNSError as error:
            kind = _KINDS.get(error.args[0], "dns_servfail")
            outcome, ttl_s = _Failure(kind, f"{name}: {error.args[-1]}"), TROUBLE_TTL_S if kind in _TROUBLE else NXDOMAIN_TTL_S
        finally:
            del self._in_flight[name]
        now = boottime()
        self._cache.pop(name, None)
        if isinstance(outcome, _Failure) and outcome.kind in _TROUBLE and ips and now < stale_until:
            self._count("dns/stale")
            outcome = ips
            self._cache[name] = now + ttl_s, stale_until, ips, failed, "", ""
        elif isinstance(outcome, _Failure):
            self._cache[name] = now + ttl_s, 0.0, (), (), outcome.kind, outcome.message
        else:
            failed = tuple(ip for ip in failed if ip in outcome)
            outcome = tuple(sorted(outcome, key=lambda ip: failed.index(ip) if ip in failed else -1))
            self._cache[name] = now + ttl_s, now + ttl_s + STALE_MAX_S, outcome, failed, "", ""
        if len(self._cache) > self._cache_names:
            del self._cache[next(iter(self._cache))]
        return outcome

    async def _query(self, name: str, every_family: bool) -> tuple[_Outcome, float]:
        """Outcome and its time to live in seconds. DNSError of the query that decides; TimeoutError."""
        if not _NAME.fullmatch(name):
            return _Failure("dns_nxdomain", f"{name!r} is no name"), NXDOMAIN_TTL_S
        if not self._servers and (known := await self._hosts_file_addresses(name)):
            return self._usable(name, known), self._ttl_min_s
        now = asyncio.get_running_loop().time
        until = now() + self._timeout_s
        found: list[str] = []
        ttl_s = TTL_MAX_S
        outcome: _Outcome = _Failure("dns_nxdomain", f"{name} has no address")
        for record, data_class in _RECORDS:
            try:
                query = (await self._channel()).query_dns(f"{name}.", record)  # absolute: no search domains
                result = await asyncio.wait_for(query, until - now())
            except (aiodns.error.DNSError, asyncio.TimeoutError) as error:
                if found or (record == "A" and error.args[:1] == (aiodns.error.ARES_ENODATA,)):
                    continue
                raise
            ips = (answer.data.addr for answer in result.answer if isinstance(answer.data, data_class))
            if new := dict.fromkeys(islice(ips, _ADDRESSES)):
                found += new
                ttl_s = min(ttl_s, *(answer.ttl if answer.ttl < 2**31 else 0 for answer in result.answer))  # RFC 2181 §8
                outcome = self._usable(name, found)
            if isinstance(outcome, tuple) and not every_family:
                break
        if isinstance(outcome, _Failure) and outcome.kind == "connect_failed":
            return outcome, TROUBLE_TTL_S
        return outcome, max(ttl_s, self._ttl_min_s) if found else NXDOMAIN_TTL_S

    async def _channel(self) -> aiodns.DNSResolver:
        if self._dns is None:
            self._dns = self._make(self._servers or None)
        elif self._queries >= _RENEW_QUERIES:
            now = boottime()
            done = [channel for since, channel in self._retired if now - since > self._timeout_s]
            self._retired = [(since, channel) for since, channel in self._retired if now - since <= self._timeout_s]
            self._retired.append((now, self._dns))
            self._dns, self._queries = self._make(self._servers or None), 0
            for channel in done:
                await channel.close()
        self._queries += 1
        return self._dns

    def _make(self, servers: list[str] | None = None, lookups: str = "b") -> aiodns.DNSResolver:
        loop = asyncio.get_running_loop()
        return aiodns.DNSResolver(servers, loop, timeout=self._timeout_s / 4, tries=self._tries, lookups=lookups)

    async def _hosts_file_addresses(self, name: str) -> list[str]:
        if self._hosts_file is None:
            self._hosts_file = self._make(lookups="f")
        try:
            result = await self._hosts_file.getaddrinfo(name, socket.AF_UNSPEC)
        except aiodns.error.DNSError:
            return []
        return sorted(dict.fromkeys(node.addr[0].decode() for node in result.nodes[: 2 * _ADDRESSES]), key=_family)


_UNKNOWN: Final[_Known] = (0.0, 0.0, (), (), "", "")
_RECORDS: Final = (("A", pycares.ARecordData), ("AAAA", pycares.AAAARecordData))


def _family(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


def _key(name: str) -> str:
    return name.lower().rstrip(".")


def _server(text: str) -> str:
    match = _SERVER.fullmatch(text)
    address = match and (match["v6"] or match["v4"] or match["bare"])
    port = int((match and (match["p6"] or match["p4"])) or 53)
    try:
        ip = ipaddress.ip_address(address or "")
    except ValueError:
        raise ConfigError(f"CRAWLWEB_DNS_SERVERS: {text!r} is not address:port") from None
    if not 0 < port < 65_536:
        raise ConfigError(f"CRAWLWEB_DNS_SERVERS: {text!r} has no possible port")
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"
