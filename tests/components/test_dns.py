"""Names become one address each, ours to reach and in reach, by few queries, against real DNS servers on loopback."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from crawlweb import dns, errors
from crawlweb.dns import Address, Resolver, is_public

ROOT = Path(__file__).resolve().parents[2]
A, CNAME, MX, TXT, AAAA = 1, 5, 15, 16, 28
NXDOMAIN, SERVFAIL, NOTIMP, REFUSED = 3, 2, 4, 5
TRUNCATED = 0x0200
FOUR, SIX = "8.8.4.4", "2606:4700::1111"
Record = tuple[int, int, bytes]  # type, time to live, data
Zone = dict[tuple[str, int], Any]


@dataclass(frozen=True)
class Raw:
    """Datagrams made from the query, instead of an answer; over TCP `over_tcp` is the answer."""

    make: Callable[[bytes], list[bytes]]
    over_tcp: list[Record] | None = None


class NameServer(asyncio.DatagramProtocol):
    """`zone`: (name, type) → records, a response code, None for silence, Raw, or seconds until FOUR is the answer to all who asked.

    Not there: no data."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.asked: Counter[tuple[str, int]] = Counter()
        self.answer_at: dict[str, float] = {}
        self.port = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: Any) -> None:
        name, fate = self.fate(data)
        if isinstance(fate, Raw):
            for datagram in fate.make(data):
                self.transport.sendto(datagram, addr)
        elif isinstance(fate, float):
            loop = asyncio.get_running_loop()
            at = self.answer_at.setdefault(name, loop.time() + fate)
            loop.call_at(at, self.transport.sendto, reply(data, [v4(FOUR)]), addr)
        elif fate is not None:
            self.transport.sendto(reply(data, fate), addr)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        query = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        _, fate = self.fate(query)
        answer = reply(query, fate.over_tcp)
        writer.write(len(answer).to_bytes(2, "big") + answer)
        await writer.drain()
        writer.close()

    def fate(self, query: bytes) -> tuple[str, Any]:
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode().lower())
            at += query[at] + 1
        key = (".".join(labels), int.from_bytes(query[at + 1 : at + 3], "big"))
        self.asked[key] += 1
        return key[0], self.zone.get(key, [])


def reply(query: bytes, answer: Any, flags: int = 0) -> bytes:
    code, records = (answer, []) if isinstance(answer, int) else (0, answer)
    wire = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, ttl, len(rdata)) + rdata for kind, ttl, rdata in records)
    end = query.index(b"\0", 12) + 5
    return query[:2] + struct.pack(">HHHHH", 0x8180 | flags | code, 1, len(records), 0, 0) + query[12:end] + wire


def v4(ip: str, ttl: int = 300) -> Record:
    return A, ttl, socket.inet_aton(ip)


def v6(ip: str, ttl: int = 300) -> Record:
    return AAAA, ttl, socket.inet_pton(socket.AF_INET6, ip)


def cname(to: str, ttl: int = 300) -> Record:
    return CNAME, ttl, b"".join(bytes([len(label)]) + label.encode() for label in to.split(".")) + b"\0"


@dataclass
class Rig:
    resolver: Resolver
    servers: list[NameServer]
    counted: Counter[str]

    @property
    def asked(self) -> Counter[tuple[str, int]]:
        return self.servers[0].asked

    async def ip(self, name: str) -> str:
        return (await self.resolver.resolve(name)).ip

    async def fails(self, name: str) -> str:
        with pytest.raises(errors.FetchError) as caught:
            await self.resolver.resolve(name)
        return caught.value.kind


def ask(zones: Zone | list[Zone], work: Callable[[Rig], Awaitable[None]], run: Any = asyncio.run, **options: Any) -> None:
    """`work` with a resolver that asks one server a zone, in their order."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        servers, listening = [], []
        for zone in zones if isinstance(zones, list) else [zones]:
            transport, server = await loop.create_datagram_endpoint(lambda zone=zone: NameServer(zone), local_addr=("127.0.0.1", 0))
            servers.append(server)
            listening.append(transport)
        counted: Counter[str] = Counter()
        addresses = [f"127.0.0.1:{server.port}" for server in servers]
        resolver = Resolver(addresses, count=lambda name: counted.update([name]), **options)
        try:
            await work(Rig(resolver, servers, counted))
        finally:
            await resolver.close()
            for transport in listening:
                transport.close()

    run(main())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(dns, "boottime", lambda: now[0])
    return now


@pytest.fixture(autouse=True)
def unreachable(monkeypatch: pytest.MonkeyPatch) -> set[socket.AddressFamily]:
    """Families without a route; at first none, whatever the machine has."""
    families: set[socket.AddressFamily] = set()
    monkeypatch.setattr(dns, "has_route", lambda ip: (socket.AF_INET6 if ":" in ip else socket.AF_INET) not in families)
    return families


# -- the cache -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_name_is_looked_up_once_while_it_lives(run: Any) -> None:
    async def work(rig: Rig) -> None:
        addresses = await asyncio.gather(*(rig.resolver.resolve("Shop.Example.") for _ in range(20)))
        assert set(addresses) == {Address(FOUR, socket.AF_INET)}
        assert await rig.ip("shop.example") == FOUR
        assert rig.asked == {("shop.example", A): 1}
        assert rig.counted == {"dns/misses": 20, "dns/hits": 1}

    ask({("shop.example", A): [v4(FOUR)]}, work, run)


def test_all_who_come_when_it_has_expired_share_one_query(clock: list[float]) -> None:
    async def work(rig: Rig) -> None:
        await rig.ip("shop.example")
        clock[0] += 301
        assert await asyncio.gather(*(rig.ip("shop.example") for _ in range(50))) == [FOUR] * 50
        assert rig.asked["shop.example", A] == 2

    ask({("shop.example", A): [v4(FOUR, 0)]}, work, ttl_min_s=300)


@pytest.mark.parametrize(
    ("ttl", "kept_s"), [(0, 60), (5, 60), (300, 300), (4_000_000, 86_400), (2**31 - 1, 86_400), (2**31, 60), (2**32 - 1, 60)]
)
def test_the_time_to_live_has_bounds(clock: list[float], ttl: int, kept_s: int) -> None:
    """RFC 2181 §8: the highest bit set means 0."""

    async def work(rig: Rig) -> None:
        await rig.ip("a.example")
        clock[0] += kept_s - 1
        await rig.ip("a.example")
        assert rig.counted["dns/hits"] == 1
        clock[0] += 2
        await rig.ip("a.example")
        assert rig.counted == {"dns/hits": 1, "dns/misses": 2}

    ask({("a.example", A): [v4(FOUR, ttl)]}, work)


def test_the_shortest_lived_record_of_a_chain_counts(clock: list[float]) -> None:
    async def work(rig: Rig) -> None:
        await rig.ip("www.example")
        clock[0] += 100
        await rig.ip("www.example")
        assert rig.counted["dns/misses"] == 2

    ask({("www.example", A): [cname("x", 90), v4(FOUR, 3000)]}, work)


def test_the_cache_is_bounded_and_drops_the_oldest() -> None:
    async def work(rig: Rig) -> None:
        for name in ("a.example", "b.example", "c.example", "c.example", "b.example"):
            await rig.ip(name)
        assert rig.counted == {"dns/hits": 2, "dns/misses": 3}
        await rig.ip("a.example")
        assert rig.counted == {"dns/hits": 2, "dns/misses": 4}

    ask({(f"{name}.example", A): [v4(FOUR)] for name in "abc"}, work, cache_names=2)


def test_a_renewed_channel_goes_on_answering(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    monkeypatch.setattr(dns, "_RENEW_QUERIES", 2)

    async def work(rig: Rig) -> None:
        slow = asyncio.ensure_future(rig.ip("slow.example"))
        for number in range(7):
            assert await rig.ip(f"n{number}.example") == FOUR
        assert await slow == FOUR
        clock[0] += 6
        for number in range(7, 12):
            assert await rig.ip(f"n{number}.example") == FOUR
        assert len(rig.resolver._retired) < 4

    ask({("slow.example", A): 0.1, **{(f"n{number}.example", A): [v4(FOUR)] for number in range(12)}}, work)


# -- failures ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind", "kept_s"),
    [
        (NXDOMAIN, "dns_nxdomain", 60),
        ([], "dns_nxdomain", 60),
        (SERVFAIL, "dns_servfail", 5),
        (REFUSED, "dns_servfail", 5),
        (NOTIMP, "dns_servfail", 5),
        (None, "dns_timeout", 5),
    ],
)
def test_failures_have_a_kind_and_are_remembered_for_a_while(clock: list[float], answer: Any, kind: str, kept_s: int) -> None:
    async def work(rig: Rig) -> None:
        assert await rig.fails("bad.example") == kind
        clock[0] += kept_s - 1
        assert await rig.fails("bad.example") == kind
        assert rig.counted["dns/hits"] == 1
        clock[0] += 2
        assert await rig.fails("bad.example") == kind
        assert rig.counted == {"dns/hits": 1, "dns/misses": 2, f"dns/failures/{kind}": 3}

    ask({("bad.example", A): answer}, work, timeout_s=0.3)


def test_who_gives_up_leaves_the_query_to_the_others() -> None:
    async def work(rig: Rig) -> None:
        other = asyncio.ensure_future(rig.ip("slow.example"))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(rig.ip("slow.example"), 0.05)
        assert await other == FOUR
        assert rig.asked == {("slow.example", A): 1}

    ask({("slow.example", A): 0.2}, work)


def test_a_slow_answer_is_awaited_where_the_others_were_quick() -> None:
    """c-ares learns a server's pace and gives up a quick one after 250 ms, then 500, …"""

    async def work(rig: Rig) -> None:
        for number in range(20):
            await rig.ip(f"n{number}.example")
        assert await rig.ip("slow.example") == FOUR

    ask({("slow.example", A): 1.3, **{(f"n{number}.example", A): [v4(FOUR)] for number in range(20)}}, work)


def test_a_look_up_ends_in_time_however_many_servers_are_silent() -> None:
    async def work(rig: Rig) -> None:
        began = asyncio.get_running_loop().time()
        assert await rig.fails("dark.example") == "dns_timeout"
        assert asyncio.get_running_loop().time() - began < 1
        assert all(server.asked for server in rig.servers)

    ask([{("dark.example", A): None}] * 3, work, timeout_s=0.9)


@pytest.mark.parametrize("first", [SERVFAIL, REFUSED, NOTIMP, None], ids=["servfail", "refused", "notimp", "silence"])
def test_the_next_server_is_asked_where_the_first_has_no_answer(first: Any) -> None:
    async def work(rig: Rig) -> None:
        assert await rig.ip("a.example") == FOUR
        assert [server.asked["a.example", A] for server in rig.servers] == [1, 1]

    ask([{("a.example", A): first}, {("a.example", A): [v4(FOUR)]}], work, timeout_s=2)


def test_an_old_address_serves_for_an_hour_while_the_servers_are_in_trouble(clock: list[float]) -> None:
    async def work(rig: Rig) -> None:
        await rig.ip("a.example")
        rig.servers[0].zone["a.example", A] = SERVFAIL
        clock[0] += 301
        assert await rig.ip("a.example") == FOUR
        clock[0] += 4
        assert await rig.ip("a.example") == FOUR
        assert rig.counted == {"dns/misses": 2, "dns/hits": 1, "dns/stale": 1}
        clock[0] += 3590
        assert await rig.ip("a.example") == FOUR
        clock[0] += 6
        assert await rig.fails("a.example") == "dns_servfail"

    ask({("a.example", A): [v4(FOUR, 0)]}, work, ttl_min_s=300)


def test_a_name_that_is_gone_has_no_old_address(clock: list[float]) -> None:
    async def work(rig: Rig) -> None:
        await rig.ip("a.example")
        rig.servers[0].zone["a.example", A] = NXDOMAIN
        clock[0] += 301
        assert await rig.fails("a.example") == "dns_nxdomain"
        rig.servers[0].zone["a.example", A] = SERVFAIL
        clock[0] += 61
        assert await rig.fails("a.example") == "dns_servfail"

    ask({("a.example", A): [v4(FOUR, 0)]}, work, ttl_min_s=300)


def test_closing_in_the_middle_of_a_query_leaves_nothing_behind_and_can_be_undone() -> None:
    async def work(rig: Rig) -> None:
        waiting = asyncio.ensure_future(rig.ip("silent.example"))
        await asyncio.sleep(0)
        await rig.resolver.close()
        with pytest.raises((asyncio.CancelledError, errors.FetchError)):
            await waiting
        await rig.resolver.close()
        assert await rig.ip("a.example") == FOUR

    ask({("silent.example", A): None, ("a.example", A): [v4(FOUR)]}, work)


def test_many_look_ups_and_silent_servers_do_not_hold_up_the_event_loop() -> None:
    """`python bench/dns.py` is the real thing."""
    options = "--cases silent rescued --names 200 --rate 250 --bad 0.03 --timeout-s 1.5 --stall-ms 50 --stalls 2"
    bench = subprocess.run([sys.executable, "bench/dns.py", *options.split()], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (bench.returncode, bench.stderr) == (0, ""), bench.stdout


# -- which address -------------------------------------------------------------------------------------------------------

BOTH: Zone = {("a.example", A): [v4(FOUR), v4("8.8.8.8")], ("a.example", AAAA): [v6(SIX)], ("six.example", AAAA): [v6(SIX)]}


def test_ipv6_is_asked_for_when_there_is_no_ipv4() -> None:
    async def work(rig: Rig) -> None:
        assert await rig.resolver.resolve("six.example") == Address(SIX, socket.AF_INET6)
        assert await rig.ip("a.example") == FOUR
        assert rig.asked["a.example", AAAA] == 0

    ask(BOTH, work)


def test_a_family_without_a_route_is_not_chosen(unreachable: set[socket.AddressFamily], clock: list[float]) -> None:
    async def work(rig: Rig) -> None:
        unreachable.add(socket.AF_INET)
        assert await rig.ip("a.example") == SIX
        unreachable.add(socket.AF_INET6)
        assert await rig.fails("six.example") == "connect_failed"
        unreachable.clear()
        clock[0] += 6
        assert await rig.ip("six.example") == SIX

    ask(BOTH, work)


def test_an_address_that_takes_no_connection_makes_way_for_the_next_of_either_family(clock: list[float]) -> None:
    async def work(rig: Rig) -> None:
        for ip in (FOUR, "8.8.8.8", SIX):
            assert await rig.ip("a.example") == ip
            rig.resolver.avoid("A.example.", ip)
        assert await rig.ip("a.example") == FOUR  # all were in vain: the one that failed longest ago
        rig.resolver.avoid("a.example", FOUR)
        rig.resolver.avoid("a.example", FOUR)  # of a fetch that had begun before
        assert await rig.ip("a.example") == "8.8.8.8"
        clock[0] += 301
        assert await rig.ip("a.example") == "8.8.8.8"  # not the one that failed
        rig.resolver.avoid("unknown.example", FOUR)
        assert rig.counted == {"dns/misses": 3, "dns/hits": 3}

    ask(BOTH, work)


@pytest.mark.parametrize("answer", [SERVFAIL, [], None], ids=["servfail", "no data", "silence"])
def test_a_failing_search_for_the_other_family_costs_no_address(answer: Any) -> None:
    async def work(rig: Rig) -> None:
        rig.resolver.avoid("a.example", await rig.ip("a.example"))
        assert await rig.ip("a.example") == FOUR
        assert rig.asked["a.example", AAAA] > 0

    ask({("a.example", A): [v4(FOUR)], ("a.example", AAAA): answer}, work, timeout_s=0.5)


def test_what_leads_inside_is_refused_unless_allowed() -> None:
    zone = {
        ("inside.example", A): [v4("10.0.0.7")],
        ("mixed.example", A): [v4("10.0.0.7"), v4(FOUR)],
        ("split.example", A): [v4("10.0.0.7")],
        ("split.example", AAAA): [v6(SIX)],
        ("wrapped.example", AAAA): [v6("::ffff:169.254.169.254"), v6("64:ff9b::7f00:1")],
    }

    async def guarded(rig: Rig) -> None:
        assert await rig.fails("inside.example") == "private_address"
        assert await rig.fails("wrapped.example") == "private_address"
        assert await rig.ip("mixed.example") == FOUR
        assert await rig.ip("split.example") == SIX
        rig.resolver.avoid("mixed.example", FOUR)
        assert await rig.ip("mixed.example") == FOUR

    async def open_to_all(rig: Rig) -> None:
        assert await rig.ip("inside.example") == "10.0.0.7"

    ask(zone, guarded)
    ask(zone, open_to_all, allow_private=True)


def test_a_name_that_moves_inside_is_refused_then(clock: list[float]) -> None:
    async def work(rig: Rig) -> None:
        assert await rig.ip("rebind.example") == FOUR
        rig.servers[0].zone["rebind.example", A] = [v4("127.0.0.1", 0)]
        assert await rig.ip("rebind.example") == FOUR
        clock[0] += 61
        assert await rig.fails("rebind.example") == "private_address"

    ask({("rebind.example", A): [v4(FOUR, 0)]}, work)


# -- hostile answers -----------------------------------------------------------------------------------------------------

MANY = [v4(f"8.8.{number // 250}.{number % 250}") for number in range(1000)]


@pytest.mark.parametrize(
    "answer",
    [
        MANY,
        [cname(f"c{number}.example") for number in range(50)] + [v4("8.8.0.0")],
        [(TXT, 300, b"\x04spam"), (MX, 300, b"\x00\x0a\x01x\x00"), (65_280, 300, b"?" * 200), v4("8.8.0.0")],
    ],
    ids=["a thousand addresses", "a long chain", "other types"],
)
def test_what_is_of_no_use_in_an_answer_is_passed_over(answer: list[Record]) -> None:
    async def work(rig: Rig) -> None:
        assert await rig.ip("a.example") == "8.8.0.0"

    ask({("a.example", A): answer}, work)


@pytest.mark.parametrize(
    "answer",
    [
        [cname("b.example")],
        [cname("b.example"), (CNAME, 300, b"\xc0\x0c")],
        [(TXT, 300, b"\x04spam")],
        [v6(SIX)],
        [(A, 300, b"")],
    ],
    ids=["a chain that ends nowhere", "a loop", "another type", "the other family", "an address of no bytes"],
)
def test_an_answer_without_an_address_is_none(answer: list[Record]) -> None:
    async def work(rig: Rig) -> None:
        assert await rig.fails("a.example") in ("dns_nxdomain", "dns_servfail")

    ask({("a.example", A): answer}, work, timeout_s=0.5)


def test_garbage_is_no_answer() -> None:
    rng = random.Random(7)

    def garbage(query: bytes) -> list[bytes]:
        return [query[:2] + rng.randbytes(rng.randrange(600)) for _ in range(20)]

    def cut(query: bytes) -> list[bytes]:
        whole = reply(query, [v4(FOUR)])
        return [whole[:at] for at in range(0, len(whole) - 1, 3)]

    def pointers(query: bytes) -> list[bytes]:
        return [query[:2] + struct.pack(">HHHHH", 0x8180, 1, 1, 0, 0) + b"\xc0\x0c" + b"\0\1\0\1" + b"\xc0\x0c" * 50]

    async def work(rig: Rig) -> None:
        for name in ("garbage.example", "cut.example", "pointers.example", "empty.example"):
            assert await rig.fails(name) in ("dns_timeout", "dns_servfail")
        assert await rig.ip("a.example") == FOUR

    makers = {"garbage": garbage, "cut": cut, "pointers": pointers, "empty": lambda _: [b"", b"\0"]}
    zone = {(f"{name}.example", A): Raw(make) for name, make in makers.items()}
    ask({**zone, ("a.example", A): [v4(FOUR)]}, work, timeout_s=0.5)


def test_an_answer_to_another_question_is_passed_over() -> None:
    def forged(query: bytes) -> list[bytes]:
        wrong_id = bytes([query[0] ^ 1, query[1]]) + query[2:]
        other = query.replace(b"\x01a\x07", b"\x01b\x07")
        return [reply(wrong_id, [v4("8.8.8.8")]), reply(other, [v4("8.8.8.8")]), reply(query, [v4(FOUR)])]

    async def work(rig: Rig) -> None:
        assert await rig.ip("a.example") == FOUR

    ask({("a.example", A): Raw(forged)}, work)


def test_an_answer_too_long_for_a_datagram_is_fetched_over_tcp() -> None:
    def truncated(query: bytes) -> list[bytes]:
        return [reply(query, [], TRUNCATED)]

    async def work(rig: Rig) -> None:
        server = rig.servers[0]
        assert await rig.fails("alone.example") in ("dns_servfail", "dns_timeout")  # nobody listens
        tcp = await asyncio.start_server(server.accept, "127.0.0.1", server.port)
        assert await rig.ip("long.example") == "8.8.0.0"
        tcp.close()
        await tcp.wait_closed()

    zone = {("alone.example", A): Raw(truncated), ("long.example", A): Raw(truncated, over_tcp=MANY * 4)}
    ask(zone, work, timeout_s=1)


# -- names ---------------------------------------------------------------------------------------------------------------


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
    async def work(rig: Rig) -> None:
        assert await rig.ip(name) == ip
        assert not rig.asked

    async def guarded(rig: Rig) -> None:
        assert await rig.fails(name) == "private_address"

    ask({}, work, allow_private=True)
    ask({}, guarded)


LABELS = ".".join(["a" * 63] * 4)  # 255 characters


@pytest.mark.parametrize(
    "name",
    [
        "1.2.3.4.5", "256.256.256.256", "0x.0x100000000", "[::1", "::g", "[v1.x]", "a" * 64 + ".example", LABELS, LABELS[:254],
        "a" * 10_000, "ü.example", "\ud800.example", "a..b", "", ".", "a\0.example", "a b.example", "a\\.example", "a\\046.example",
    ],
)  # fmt: skip
def test_what_is_no_name_does_not_exist(name: str) -> None:
    async def work(rig: Rig) -> None:
        assert await rig.fails(name) == "dns_nxdomain"
        assert not rig.asked

    ask({}, work)


@pytest.mark.parametrize("name", [LABELS[:253], "_dmarc.a-b.example", "single"])
def test_what_is_a_name_is_asked_for(name: str) -> None:
    async def work(rig: Rig) -> None:
        assert await rig.ip(name) == FOUR
        assert rig.asked == {(name, A): 1}

    ask({(name, A): [v4(FOUR)]}, work)


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


# -- addresses and servers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ip", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"])
def test_public(ip: str) -> None:
    assert is_public(ip)


@pytest.mark.parametrize(
    "ip",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "255.255.255.255",
        "224.0.0.1", "239.1.1.1", "198.18.0.1", "240.0.0.1", "192.0.2.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1",
        "fd00:ec2::254", "ff02::1", "fec0::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808", "2002:7f00:1::", "2002:a00:1::1", "::127.0.0.1", "2001:db8::1", "2001:0:808:808::1", "", "example.org",
        "1.2.3", "192.0.0.8", "192.88.99.1", "168.63.129.16", "::ffff:0:127.0.0.1", "3fff::1", "5f00::1", "100:0:0:1::1", "4000::1",
        "e000::1", "::ffff:168.63.129.16", "64:ff9b::a83f:8110",
    ],
)  # fmt: skip
def test_not_public(ip: str) -> None:
    assert not is_public(ip)


def test_there_is_a_route_to_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert dns.has_route("127.0.0.1")


@pytest.mark.parametrize(
    ("code", "is_there"), [(errno.ENETUNREACH, False), (errno.EAFNOSUPPORT, False), (errno.EADDRNOTAVAIL, False), (errno.EMFILE, True)]
)
def test_the_kernel_says_whether_there_is_a_route(monkeypatch: pytest.MonkeyPatch, code: int, is_there: bool) -> None:
    def refuse(*_: object) -> socket.socket:
        raise OSError(code, "")

    monkeypatch.undo()
    monkeypatch.setattr(socket, "socket", refuse)
    assert dns.has_route(SIX) == is_there


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
