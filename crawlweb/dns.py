"""Names to addresses: an asynchronous, caching resolver on c-ares, and the guard of what is not ours to reach."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import aiodns
import aiodns.error
import pycares

from crawlweb.errors import ConfigError, FetchError
from crawlweb.records import boottime

TTL_MIN_S: Final = 60.0
TTL_MAX_S: Final = 86_400.0
NXDOMAIN_TTL_S: Final = 60.0
TROUBLE_TTL_S: Final = 5.0  # SERVFAIL and time-outs (RFC 2308 §7 allows five minutes)
_RENEW_QUERIES: Final = 10_000  # c-ares keeps every answer up to an hour, 1.2 KB each: a new channel starts empty

_LOOPBACK_NAME: Final = re.compile(r"(?:.*\.)?localhost")  # RFC 6761 §6.3
_ENDS_IN_NUMBER: Final = re.compile(r"(?:.*\.)?(?:\d+|0x[0-9a-f]*)")  # WHATWG URL, "ends in a number"
_IPV4_PARTS: Final = re.compile(r"(?:\d+|0x[0-9a-f]*)(?:\.(?:\d+|0x[0-9a-f]*)){0,3}")
_SERVER: Final = re.compile(r"\[(?P<v6>[^]]+)\](?::(?P<p6>\d+))?|(?P<v4>[^:]+)(?::(?P<p4>\d+))?|(?P<bare>.+)")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NEVER_PUBLIC: Final = tuple(ipaddress.IPv6Network(net) for net in ("::/96", "64:ff9b:1::/48", "fec0::/10"))

_KINDS: Final = {
    aiodns.error.ARES_ENODATA: "dns_nxdomain",
    aiodns.error.ARES_ENOTFOUND: "dns_nxdomain",
    aiodns.error.ARES_EBADNAME: "dns_nxdomain",
    aiodns.error.ARES_ETIMEOUT: "dns_timeout",
}  # the rest: dns_servfail
_CACHE_TTL_S: Final = {"dns_nxdomain": NXDOMAIN_TTL_S, "dns_servfail": TROUBLE_TTL_S, "dns_timeout": TROUBLE_TTL_S}


@dataclass(frozen=True, slots=True)
class Address:
    ip: str
    family: socket.AddressFamily


@dataclass(frozen=True, slots=True)
class _Failure:
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class _Cached:
    outcome: Address | _Failure
    expires: float


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
        if address.scope_id or any(address in net for net in _NEVER_PUBLIC):
            return False
    return address.is_global and not address.is_multicast


def parse_servers(servers: str | Iterable[str]) -> list[str]:
    """`address:port` each; the port may be missing. ConfigError on what is no address."""
    listed = servers.split(",") if isinstance(servers, str) else servers
    return [_server(text.strip()) for text in listed if text.strip()]


class Resolver:
    """One address for a name, kept for its time to live. Look-ups of one name share one query.

    Without `servers` the system's are asked, after the hosts file. Made at first use inside the running loop.
    """

    def __init__(
        self,
        servers: str | Iterable[str] = (),
        *,
        allow_private: bool = False,
        timeout_s: float = 2.0,
        tries: int = 2,
        cache_names: int = 50_000,
    ) -> None:
        self._servers = parse_servers(servers)
        self._allow_private = allow_private
        self._timeout_s = timeout_s  # of the first try; c-ares doubles it for each further one
        self._tries = tries
        self._cache_names = cache_names
        self._cache: dict[str, _Cached] = {}
        self._in_flight: dict[str, asyncio.Task[Address | _Failure]] = {}
        self._dns: aiodns.DNSResolver | None = None
        self._retired: aiodns.DNSResolver | None = None  # until the next change: its last queries may be under way
        self._hosts_file: aiodns.DNSResolver | None = None
        self._queries = 0
        self.hits = 0  # answered from the cache
        self.misses = 0  # queries sent, and those who joined one
        self.failures: Counter[str] = Counter()  # by kind, one per failed resolve

    async def resolve(self, name: str) -> Address:
        """FetchError: `dns_nxdomain` (also: no address at all), `dns_servfail`, `dns_timeout`, `private_address`."""
        outcome = self._literal(name)
        if outcome is None:
            outcome = await self._known_or_looked_up(name.lower().rstrip("."))
        if isinstance(outcome, Address) and not self._allow_private and not is_public(outcome.ip):
            outcome = _Failure("private_address", f"{name} is {outcome.ip}")
        if isinstance(outcome, _Failure):
            self.failures[outcome.kind] += 1
            raise FetchError(outcome.kind, outcome.message)
        return outcome

    async def close(self) -> None:
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for resolver in (self._dns, self._hosts_file, self._retired):
            if resolver is not None:
                await resolver.close()
        self._dns = self._hosts_file = self._retired = None

    @staticmethod
    def _literal(name: str) -> Address | _Failure | None:
        """The address that `name` is, in any spelling; None: a name to look up."""
        bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name.lower().rstrip(".")
        if _LOOPBACK_NAME.fullmatch(bare):
            return Address("127.0.0.1", socket.AF_INET)
        if ":" in bare:
            try:
                ip = ipaddress.IPv6Address(bare)
            except ValueError:
                return _Failure("dns_nxdomain", f"{name} is no address")
            return Address(str(ip), socket.AF_INET6)
        if not _ENDS_IN_NUMBER.fullmatch(bare):
            return None
        try:
            if not _IPV4_PARTS.fullmatch(bare):
                raise OSError
            return Address(socket.inet_ntoa(socket.inet_aton(bare)), socket.AF_INET)
        except OSError:
            return _Failure("dns_nxdomain", f"{name} is no address")

    async def _known_or_looked_up(self, name: str) -> Address | _Failure:
        cached = self._cache.get(name)
        if cached is not None and boottime() < cached.expires:
            self.hits += 1
            return cached.outcome
        self.misses += 1
        task = self._in_flight.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._look_up(name))
            self._in_flight[name] = task
        return await asyncio.shield(task)  # whoever gives up leaves it to the others

    async def _look_up(self, name: str) -> Address | _Failure:
        try:
            outcome, ttl_s = await self._query(name)
        except aiodns.error.DNSError as error:
            code, message = error.args[0], str(error.args[-1])
            kind = _KINDS.get(code, "dns_servfail")
            outcome, ttl_s = _Failure(kind, f"{name}: {message}"), _CACHE_TTL_S[kind]
        except ValueError:
            outcome, ttl_s = _Failure("dns_nxdomain", f"{name!r} is no name"), NXDOMAIN_TTL_S
        finally:
            del self._in_flight[name]
        self._cache.pop(name, None)
        self._cache[name] = _Cached(outcome, boottime() + ttl_s)
        if len(self._cache) > self._cache_names:
            del self._cache[next(iter(self._cache))]
        return outcome

    async def _query(self, name: str) -> tuple[Address | _Failure, float]:
        """Outcome and its time to live in seconds. DNSError of the last query; ValueError: no name at all."""
        if not name or not name.isascii():
            raise ValueError
        if not self._servers and (known := await self._hosts_file_address(name)) is not None:
            return known, TTL_MIN_S
        for family, record, data_class in _RECORDS:
            try:
                result = await (await self._channel()).query_dns(name, record)
            except aiodns.error.DNSError as error:
                if record == "A" and error.args[0] == aiodns.error.ARES_ENODATA:
                    continue
                raise
            found = [answer.data.addr for answer in result.answer if isinstance(answer.data, data_class)]
            if found:
                ip = found[0] if self._allow_private else next(filter(is_public, found), found[0])
                ttl_s = min(answer.ttl for answer in result.answer)
                return Address(ip, family), min(max(ttl_s, TTL_MIN_S), TTL_MAX_S)
        return _Failure("dns_nxdomain", f"{name} has no address"), NXDOMAIN_TTL_S

    async def _channel(self) -> aiodns.DNSResolver:
        if self._dns is None or self._queries >= _RENEW_QUERIES:
            if self._retired is not None:
                await self._retired.close()
            self._retired, self._dns, self._queries = self._dns, self._make(self._servers or None), 0
        self._queries += 1
        return self._dns

    def _make(self, servers: list[str] | None = None, lookups: str = "b") -> aiodns.DNSResolver:
        loop = asyncio.get_running_loop()
        return aiodns.DNSResolver(servers, loop, timeout=self._timeout_s, tries=self._tries, lookups=lookups)

    async def _hosts_file_address(self, name: str) -> Address | None:
        if self._hosts_file is None:
            self._hosts_file = self._make(lookups="f")
        try:
            result = await self._hosts_file.getaddrinfo(name, socket.AF_UNSPEC)
        except aiodns.error.DNSError:
            return None
        addresses = [Address(node.addr[0].decode(), socket.AddressFamily(node.family)) for node in result.nodes]
        return min(addresses, key=lambda address: address.family != socket.AF_INET, default=None)


_RECORDS: Final = (
    (socket.AF_INET, "A", pycares.ARecordData),
    (socket.AF_INET6, "AAAA", pycares.AAAARecordData),
)


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
