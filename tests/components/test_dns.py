"""Names become one public address each, by few queries, against a real DNS server on loopback."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from crawlweb import dns, errors
from crawlweb.dns import Resolver, is_public

A, AAAA, CNAME = 1, 28, 5
NXDOMAIN, SERVFAIL, REFUSED = 3, 2, 5


class NameServer(asyncio.DatagramProtocol):
    """`zone`: (name, type) → list of (type, ttl, data), or a response code, or None for silence; not there: no data."""

    def __init__(self, zone: dict[tuple[str, int], Any]) -> None:
        self.zone = zone
        self.asked: Counter[tuple[str, int]] = Counter()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode().lower())
            at += data[at] + 1
        question = data[12 : at + 5]
        key = (".".join(labels), int.from_bytes(data[at + 1 : at + 3], "big"))
        self.asked[key] += 1
        answer = self.zone.get(key, [])
        if answer is None:
            return
        code, records = (answer, []) if isinstance(answer, int) else (0, answer)
        wire = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, ttl, len(rdata)) + rdata for kind, ttl, rdata in records)
        header = data[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0)
        self.transport.sendto(header + question + wire, addr)


def v4(ip: str, ttl: int = 300) -> tuple[int, int, bytes]:
    return A, ttl, socket.inet_aton(ip)


def v6(ip: str, ttl: int = 300) -> tuple[int, int, bytes]:
    return AAAA, ttl, socket.inet_pton(socket.AF_INET6, ip)


def ask(
    zone: dict[tuple[str, int], Any], work: Callable[[Resolver, NameServer], Awaitable[None]], run: Any = asyncio.run, **options: Any
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, server = await loop.create_datagram_endpoint(lambda: NameServer(zone), local_addr=("127.0.0.1", 0))
        resolver = Resolver([f"127.0.0.1:{transport.get_extra_info('sockname')[1]}"], **options)
        try:
            await work(resolver, server)
        finally:
            await resolver.close()
            transport.close()

    run(main())


async def kind_of(resolver: Resolver, name: str) -> str:
    with pytest.raises(errors.FetchError) as caught:
        await resolver.resolve(name)
    return caught.value.kind


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(dns, "boottime", lambda: now[0])
    return now


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_name_is_looked_up_once_while_it_lives(run: Any) -> None:
    async def work(resolver: Resolver, server: NameServer) -> None:
        addresses = await asyncio.gather(*(resolver.resolve("Shop.Example.") for _ in range(20)))
        assert {address.ip for address in addresses} == {"8.8.4.4"}
        assert addresses[0].family == socket.AF_INET
        assert await resolver.resolve("shop.example") == addresses[0]
        assert server.asked == {("shop.example", A): 1}
        assert (resolver.hits, resolver.misses) == (1, 20)

    ask({("shop.example", A): [v4("8.8.4.4")]}, work, run)


@pytest.mark.parametrize(("ttl", "kept_s"), [(5, 60), (300, 300), (4_000_000, 86_400)])
def test_the_time_to_live_has_bounds(clock: list[float], ttl: int, kept_s: int) -> None:
    async def work(resolver: Resolver, _: NameServer) -> None:
        await resolver.resolve("a.example")
        clock[0] += kept_s - 1
        await resolver.resolve("a.example")
        assert resolver.hits == 1
        clock[0] += 2
        await resolver.resolve("a.example")
        assert (resolver.hits, resolver.misses) == (1, 2)

    ask({("a.example", A): [v4("8.8.4.4", ttl)]}, work)


def test_the_shortest_lived_record_of_a_chain_counts(clock: list[float]) -> None:
    async def work(resolver: Resolver, _: NameServer) -> None:
        await resolver.resolve("www.example")
        clock[0] += 100
        await resolver.resolve("www.example")
        assert resolver.misses == 2

    ask({("www.example", A): [(CNAME, 90, b"\x01x\x00"), v4("8.8.4.4", 3000)]}, work)


def test_ipv6_is_asked_for_when_there_is_no_ipv4() -> None:
    async def work(resolver: Resolver, server: NameServer) -> None:
        address = await resolver.resolve("six.example")
        assert (address.ip, address.family) == ("2606:4700::1111", socket.AF_INET6)
        assert (await resolver.resolve("both.example")).ip == "8.8.4.4"
        assert server.asked[("both.example", AAAA)] == 0

    six = [v6("2606:4700::1111")]
    ask({("six.example", AAAA): six, ("both.example", A): [v4("8.8.4.4")], ("both.example", AAAA): six}, work)


@pytest.mark.parametrize(
    ("answer", "kind", "kept_s"),
    [(NXDOMAIN, "dns_nxdomain", 60), (SERVFAIL, "dns_servfail", 5), (REFUSED, "dns_servfail", 5), ([], "dns_nxdomain", 60)],
)
def test_failures_have_a_kind_and_are_remembered_for_a_while(clock: list[float], answer: Any, kind: str, kept_s: int) -> None:
    async def work(resolver: Resolver, _: NameServer) -> None:
        assert await kind_of(resolver, "bad.example") == kind
        clock[0] += kept_s - 1
        assert await kind_of(resolver, "bad.example") == kind
        assert resolver.hits == 1
        clock[0] += 2
        assert await kind_of(resolver, "bad.example") == kind
        assert resolver.misses == 2
        assert resolver.failures == {kind: 3}

    ask({("bad.example", A): answer}, work, tries=1, timeout_s=0.3)


def test_a_silent_server_times_out_and_who_gives_up_leaves_the_query_to_the_others() -> None:
    async def work(resolver: Resolver, server: NameServer) -> None:
        other = asyncio.ensure_future(kind_of(resolver, "silent.example"))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(resolver.resolve("silent.example"), 0.05)
        assert await other == "dns_timeout"
        assert server.asked == {("silent.example", A): 1}

    ask({("silent.example", A): None}, work, tries=1, timeout_s=0.3)


def test_closing_in_the_middle_of_a_query_leaves_nothing_behind() -> None:
    async def work(resolver: Resolver, _: NameServer) -> None:
        waiting = asyncio.ensure_future(resolver.resolve("silent.example"))
        await asyncio.sleep(0)
        await resolver.close()
        with pytest.raises((asyncio.CancelledError, errors.FetchError)):
            await waiting

    ask({("silent.example", A): None}, work)


def test_the_cache_is_bounded_and_drops_the_oldest() -> None:
    async def work(resolver: Resolver, _: NameServer) -> None:
        for name in ("a.example", "b.example", "c.example", "c.example", "b.example"):
            await resolver.resolve(name)
        assert (resolver.hits, resolver.misses) == (2, 3)
        await resolver.resolve("a.example")
        assert (resolver.hits, resolver.misses) == (2, 4)

    ask({(f"{name}.example", A): [v4("8.8.4.4")] for name in "abc"}, work, cache_names=2)


def test_a_renewed_channel_goes_on_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns, "_RENEW_QUERIES", 2)

    async def work(resolver: Resolver, _: NameServer) -> None:
        for number in range(7):
            assert (await resolver.resolve(f"n{number}.example")).ip == "8.8.4.4"

    ask({(f"n{number}.example", A): [v4("8.8.4.4")] for number in range(7)}, work)


@pytest.mark.parametrize(
    ("name", "ip"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("0x7F000001.", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("localhost", "127.0.0.1"),
        ("api.LOCALHOST.", "127.0.0.1"),
    ],
)
def test_what_is_an_address_in_any_spelling_costs_no_query(name: str, ip: str) -> None:
    async def work(resolver: Resolver, server: NameServer) -> None:
        assert (await resolver.resolve(name)).ip == ip
        assert not server.asked
        assert await kind_of(Resolver(), name) == "private_address"

    ask({}, work, allow_private=True)


@pytest.mark.parametrize(
    "name", ["1.2.3.4.5", "256.256.256.256", "0x.0x100000000", "[::1", "::g", "a" * 64 + ".example", "ü.example", "a..b", ""]
)
def test_what_is_no_name_does_not_exist(name: str) -> None:
    async def work(resolver: Resolver, server: NameServer) -> None:
        assert await kind_of(resolver, name) == "dns_nxdomain"
        assert not server.asked

    ask({}, work)


def test_a_name_that_leads_inside_is_refused_unless_allowed() -> None:
    zone = {("inside.example", A): [v4("10.0.0.7")], ("mixed.example", A): [v4("10.0.0.7"), v4("8.8.4.4")]}

    async def guarded(resolver: Resolver, _: NameServer) -> None:
        assert await kind_of(resolver, "inside.example") == "private_address"
        assert (await resolver.resolve("mixed.example")).ip == "8.8.4.4"

    async def open_to_all(resolver: Resolver, _: NameServer) -> None:
        assert (await resolver.resolve("inside.example")).ip == "10.0.0.7"

    ask(zone, guarded)
    ask(zone, open_to_all, allow_private=True)


@pytest.mark.parametrize("ip", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"])
def test_public(ip: str) -> None:
    assert is_public(ip)


@pytest.mark.parametrize(
    "ip",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "255.255.255.255",
        "224.0.0.1", "239.1.1.1", "198.18.0.1", "240.0.0.1", "192.0.2.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1",
        "fd00:ec2::254", "ff02::1", "fec0::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808", "2002:7f00:1::", "2002:a00:1::1", "::127.0.0.1", "2001:db8::1", "", "example.org", "1.2.3",
    ],
)  # fmt: skip
def test_not_public(ip: str) -> None:
    assert not is_public(ip)


@pytest.mark.parametrize(
    ("given", "servers"),
    [
        ("", []),
        ("9.9.9.9", ["9.9.9.9:53"]),
        ("127.0.0.1:5300, [::1]:54,::1", ["127.0.0.1:5300", "[::1]:54", "[::1]:53"]),
        (["127.0.0.1:5300"], ["127.0.0.1:5300"]),
    ],
)
def test_servers_are_a_list_or_a_string(given: Any, servers: list[str]) -> None:
    assert dns.parse_servers(given) == servers


@pytest.mark.parametrize("given", ["dns.example", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:x", "[::1"])
def test_a_wrong_server_is_named(given: str) -> None:
    with pytest.raises(errors.ConfigError, match="CRAWLWEB_DNS_SERVERS"):
        Resolver(given)


def test_the_hosts_file_is_honoured_when_the_systems_servers_are_asked() -> None:
    with open("/etc/hosts", encoding="utf-8") as file:
        lines = [line.split("#")[0].split() for line in file]
    names = [(fields[0], fields[1]) for fields in lines if len(fields) > 1 and ":" not in fields[0] and fields[1] != "localhost"]
    if not names:
        pytest.skip("only localhost in /etc/hosts")
    ip, name = names[0]

    async def main() -> None:
        resolver = Resolver(allow_private=True)
        assert (await resolver.resolve(name)).ip == ip
        await resolver.close()

    asyncio.run(main())
