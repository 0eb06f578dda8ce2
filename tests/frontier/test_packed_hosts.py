"""Hosts without an active place are packed: a record in a bucket instead of a hash, and nothing of them is lost by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from rig import Rig, link

from crawlweb.frontier import codec
from crawlweb.frontier.inspect import host_view
from crawlweb.frontier.rows import UNCHECKED, Limits, Outcome, Override, PageSeen

DAY_MS = 86_400_000
TROUBLE = msgpack.packb({"https://dev.a.org": {"u": 1_000_009_000, "f": 3, "s": 1_000_000_001, "g": 8_000, "r": "tls", "e": "\t\n\0"}})
DELAYS = msgpack.packb({"https://a.org": [7_000, 1_000_000_000], "http://a.org:81": [1, 2]})
FIELDS = (  # name, value: each as the scripts write it, or as somebody else might
    ("l", b"123"),
    ("l", b"007"),
    ("c", b"7000"),
    ("cd", DELAYS),
    ("p", b"4000"),
    ("b", TROUBLE),
    ("h", b"5 900000 1000000000 3"),
    ("v", b"|/|https://dev.a.org|"),
    ("e", b"g\x00\xff\t\n5678t00277778"),
    ("x", b"999"),
    ("xr", b"blocked"),
    ("xr", b""),
    ("o", b"3000 - - -"),
    ("o", b"- - - 1"),
    ("z", bytes(range(256))),
    ("", b"\t"),
    ("\t\n", b"w5\t"),
)
GARBAGE = (b"", b"w", b"junk", b"w5\t", b"w5", b"wx7\t", b"-x\t", b"-1e9\t", b"\t", b"\0\xff\xfe")
BODIES = (
    *(b"\xc1", b"\x91\x01", b"\x05", b"\x80\x80", b"\xdf" * 9),
    *(msgpack.packb({"n": value}) for value in ([1], {}, float("nan"), 2**60)),
    *(msgpack.packb(body) for body in ({1: "x"}, {f"f{i}": "x" for i in range(5_000)})),
)


@pytest.fixture
def small(redis_url: str) -> Iterator[Rig]:
    """Buckets are split at three hosts, and swept all the time."""
    rig = Rig(redis_url, constants={"BUCKET_HOSTS": 3, "HOSTS_A_SPLIT": 2, "SWEPT_EVERY": 1})
    yield rig
    rig.close()


def has_hash(rig: Rig, host: str = "a.org") -> bool:
    return bool(rig.sync.exists(rig.key(f"host:{host}")))


def buckets(rig: Rig) -> dict[str, dict[bytes, bytes]]:
    keys = [key.decode() for key in rig.sync.scan_iter(match=rig.key("hosts:*"), count=1000) if rig.sync.type(key) == b"hash"]
    return {key: rig.sync.hgetall(key) for key in keys}


def record(rig: Rig, host: str = "a.org") -> bytes | None:
    found = [rows[host.encode()] for rows in buckets(rig).values() if host.encode() in rows]
    assert len(found) <= 1
    return found[0] if found else None


def plant(rig: Rig, text: bytes, host: str = "a.org") -> None:
    """Over the record of a host."""
    (key,) = [key for key, rows in buckets(rig).items() if host.encode() in rows]
    rig.sync.hset(key, host, text)


def go_idle(rig: Rig, host: str = "a.org", **fields: Any) -> None:
    """The host has had a URL and has none any more; `fields` are written meanwhile."""
    rig.enqueue(link(host, "/idle", how=UNCHECKED))
    (lease,) = rig.lease()
    if fields:
        rig.sync.hset(rig.key(f"host:{host}"), mapping=fields)
    rig.complete(lease, ago_ms=None)


def test_a_host_that_waits_has_a_record_and_no_hash_until_it_is_promoted(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    rig.enqueue(link("a.org", "/2"), link("a.org", "/3", priority=2))
    assert not has_hash(rig)
    assert record(rig) == b"w23\t"
    assert (rig.state("a.org"), rig.check()["waiting"]) == ("w", 1)
    (lease,) = rig.lease()
    assert lease.entry.url == "https://a.org/3"
    assert has_hash(rig)
    assert record(rig) is None
    assert rig.check()["inflight"] == 1


def test_a_host_without_urls_has_a_record_and_no_hash(rig: Rig) -> None:
    go_idle(rig)
    assert not has_hash(rig)
    assert rig.fields("a.org") == {b"n": b"0"}
    assert rig.counters()["packed"] == 1
    assert rig.check()["pending"] == 0


def test_the_clock_of_a_host_that_has_no_urls_goes_on(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    (lease,) = rig.lease()
    rig.complete(lease, latency_s=0.5)  # a delay of 5 s
    next_ms = int(rig.fields("a.org")[b"n"])
    assert next_ms > rig.t + 4_900
    rig.later(1_000)
    rig.enqueue(link("a.org", "/2"))
    assert not has_hash(rig)
    assert rig.lease() == []
    rig.at(next_ms - 501)
    assert rig.lease() == []
    rig.at(next_ms - 500)
    (lease,) = rig.lease()
    assert rig.server_ms(lease.not_before) == next_ms


def test_a_url_with_a_time_of_its_own_wakes_a_host_that_is_packed(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    (lease,) = rig.lease()
    rig.complete(lease, "w", latency_s=0.1, wait_s=90)
    assert not has_hash(rig)
    rig.later(90_000)
    assert len(rig.lease()) == 1
    assert rig.fields("a.org")[b"l"] == b"100"
    rig.check()


@pytest.mark.parametrize(("name", "value"), FIELDS)
def test_what_is_known_of_a_host_survives_being_packed(rig: Rig, name: str, value: bytes) -> None:
    go_idle(rig, **{name: value})
    known = {b"n": b"0", name.encode(): value}
    assert not has_hash(rig)
    assert rig.fields("a.org") == known
    rig.later(1_000_000)
    rig.enqueue(link("a.org", "/2"))
    assert rig.fields("a.org") == {**known, b"s": b"w", b"k": b"5", b"t": b"2"}
    rig.run(rig.f.lease(0, 0))
    active = rig.sync.hgetall(rig.key("host:a.org"))
    assert {field: text for field, text in active.items() if field not in (b"s", b"q", b"g")} == known
    rig.check()


def test_all_of_it_at_once_survives_and_the_operator_sees_it(rig: Rig) -> None:
    fields = dict(FIELDS)
    go_idle(rig, **fields)
    assert rig.fields("a.org") == {b"n": b"0", **{name.encode(): value for name, value in fields.items()}}
    view = rig.run(host_view(rig.f, "a.org"))
    assert view
    assert (view.latency_s, view.push_back_s, view.rests) == (0.007, 4, 3)
    assert view.crawl_delays_s == {"https://a.org": 7, "http://a.org:81": 0.001}
    assert [origin.failures for origin in view.origins] == [3]


def test_the_operator_sees_where_a_packed_host_waits(rig: Rig) -> None:
    rig.enqueue(link("a.org", priority=7))
    view = rig.run(host_view(rig.f, "a.org"))
    assert view
    assert (view.state, view.front_queue) == ("waiting", 7)
    assert rig.run(host_view(rig.f, "b.org")) is None


def test_what_is_too_long_for_a_record_keeps_its_hash(rig: Rig) -> None:
    long = b"|" + b"x" * 1_500 + b"|"
    go_idle(rig, v=long)
    assert record(rig) is None
    assert rig.fields("a.org") == {b"n": b"0", b"v": long}
    assert 0 < rig.sync.pttl(rig.key("host:a.org")) <= 30 * DAY_MS
    rig.enqueue(link("a.org", "/2"))
    assert rig.sync.pttl(rig.key("host:a.org")) == -1
    assert (rig.state("a.org"), rig.check()["waiting"]) == ("w", 1)
    rig.enqueue(link("a.org", "/3", priority=1))
    (lease,) = rig.lease()
    assert lease.entry.url == "https://a.org/3"
    assert rig.fields("a.org")[b"v"] == long
    rig.check()


def test_a_host_is_forgotten_30_days_after_its_last_use(rig: Rig) -> None:
    go_idle(rig, l="800")
    rig.later(30 * DAY_MS - 1_000)
    assert rig.fields("a.org")[b"l"] == b"800"
    rig.later(3_600_000)
    assert rig.fields("a.org") == {}
    rig.enqueue(link("a.org", "/2"))
    assert len(rig.lease()) == 1
    assert b"l" not in rig.fields("a.org")
    rig.check()


def test_a_host_that_waits_is_not_forgotten(rig: Rig) -> None:
    go_idle(rig, l="800")
    rig.enqueue(link("a.org", "/2"))
    rig.later(400 * DAY_MS)
    assert len(rig.lease()) == 1
    assert rig.fields("a.org")[b"l"] == b"800"


def test_records_of_forgotten_hosts_are_swept_but_those_of_hosts_with_an_override(small: Rig) -> None:
    for i in range(60):
        go_idle(small, f"h{i}.org")
    small.run(small.f.override("h7.org", Override(3)))
    assert small.counters()["packed"] == 60
    small.later(31 * DAY_MS)
    small.enqueue(*(link(f"new{i}.org") for i in range(90)))
    names = {host for rows in buckets(small).values() for host in rows}
    assert names == {b"h7.org", *(b"new%d.org" % i for i in range(90))}
    assert small.counters()["packed"] == 91
    small.check()


def test_ten_thousand_hosts_are_all_found_in_buckets_that_stay_small(redis_url: str) -> None:
    rig = Rig(redis_url, limits=Limits(expected_urls=20_000, active_hosts=100_000))
    names = [f"{i:x}.example{i % 7}.org" for i in range(10_000)]
    assert rig.enqueue(*(link(name) for name in names)) == "n" * 10_000
    rows = buckets(rig)
    assert sum(map(len, rows.values())) == rig.counters()["packed"] == 10_000
    assert len(rows) > 10_000 / 90
    assert max(map(len, rows.values())) <= 128
    assert {rig.sync.object("encoding", key) for key in rows} <= {b"listpack", b"ziplist"}
    assert rig.check()["waiting"] == 10_000  # each was found
    assert rig.enqueue(*(link(name, "/2") for name in names[::50])) == "n" * 200
    leases = [lease for _ in range(40) for lease in rig.lease(0) or rig.lease(1_000)]
    assert {lease.host for lease in leases} == set(names)
    for i in range(0, 10_000, 1_000):
        rig.run(rig.f.complete(0, [Outcome(lease, "d") for lease in leases[i : i + 1_000]]))
    assert rig.counters()["packed"] == 9_800
    rig.check()
    rig.close()


def test_every_bucket_is_found_while_buckets_are_split(small: Rig) -> None:
    for i in range(150):
        small.enqueue(link(f"h{i}.org"))
        assert sum(map(len, buckets(small).values())) == i + 1
        assert all(small.state(f"h{n}.org") == "w" for n in range(0, i + 1, 7))
    small.check()


@pytest.mark.parametrize("text", GARBAGE)
def test_a_record_that_is_not_ours_is_shown_to_somebody_and_no_url_is_lost(rig: Rig, text: bytes) -> None:
    rig.enqueue(link("a.org"), link("a.org", "/2"), link("a.org", "/3", priority=2))
    plant(rig, text)
    rig.check()
    (lease,) = rig.lease()
    assert rig.sync.lrange(rig.key("quarantine"), 0, -1)
    assert rig.check()["pending"] == 3
    rig.complete(lease)
    for _ in range(20):
        rig.later(1_000)
        for lease in rig.lease():
            rig.complete(lease)
    assert rig.check()["pending"] == 0


@pytest.mark.parametrize("text", GARBAGE)
def test_a_host_whose_record_is_not_ours_is_a_new_one_for_its_next_url(rig: Rig, text: bytes) -> None:
    go_idle(rig)
    plant(rig, text)
    assert rig.enqueue(link("a.org", "/2")) == "n"
    assert rig.counters()["quarantined"] == 1
    assert rig.state("a.org") == "w"
    assert len(rig.lease()) == 1
    rig.check()


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("is_waiting", [False, True])
def test_of_a_record_with_a_body_that_is_not_ours_the_head_holds(rig: Rig, body: bytes, is_waiting: bool) -> None:
    go_idle(rig)
    if is_waiting:
        rig.enqueue(link("a.org", "/2"))
    head = (record(rig) or b"").partition(b"\t")[0]
    plant(rig, head + b"\t" + body)
    assert rig.fields("a.org") == ({b"s": b"w", b"k": b"5", b"t": b"2"} if is_waiting else {})
    rig.enqueue(link("a.org", "/3"))
    assert len(rig.lease()) == 1
    assert rig.sync.lrange(rig.key("quarantine"), 0, -1)
    assert rig.check()["pending"] == 1 + is_waiting


@pytest.mark.parametrize("text", [*GARBAGE, *(b"-\t" + body for body in BODIES)])
def test_every_step_takes_a_host_whose_record_is_not_ours(rig: Rig, text: bytes) -> None:
    go_idle(rig)
    plant(rig, text)
    rig.run(rig.f.override("a.org", Override(3)))
    assert rig.fields("a.org") == {b"n": b"0", b"o": b"3000 - - 0"}
    plant(rig, text)
    rig.run(rig.f.tell("a.org", lambda lease: Outcome(lease, "d", rig.worker_s(), 0.2)))
    assert rig.fields("a.org")[b"l"] == b"200"
    rig.check()


def test_a_key_of_another_type_in_the_place_of_a_bucket_is_moved_aside(small: Rig) -> None:
    places = [small.key(f"hosts:{b}") for b in (0, 1, 2, 5, 63)]
    for place in places:
        small.sync.set(place, "mine")
    small.sync.rpush(small.key("hosts:split"), "mine")
    small.enqueue(*(link(f"h{i}.org") for i in range(200)))
    small.lease()
    aside = [key.decode() for key in small.sync.scan_iter(match=small.key("foreign:*"))]
    assert {small.key(key.split(":", 4)[-1]) for key in aside} >= set(places[:4])
    assert all(small.sync.type(key) in (b"string", b"list") for key in aside)
    small.check()


def test_a_bucket_that_was_overwritten_costs_what_was_known_of_its_hosts_and_no_url(rig: Rig) -> None:
    rig.enqueue(*(link(f"h{i}.org", f"/{n}") for i in range(20) for n in range(3)))
    (bucket,) = buckets(rig)
    rig.sync.delete(bucket)
    rig.sync.set(bucket, "mine")
    found = set()
    for _ in range(9):
        for lease in rig.lease():
            found.add(lease.entry.url)
            rig.complete(lease)
        rig.later(1_000)
    assert len(found) == 60
    assert rig.check()["pending"] == 0


def test_of_a_hash_with_a_state_and_a_record_the_hash_is_right(rig: Rig) -> None:
    rig.enqueue(link("a.org"), link("a.org", "/2"), link("b.org", priority=9))
    (key,) = buckets(rig)
    rig.run(rig.f.lease(0, 1))
    rig.sync.hset(key, "a.org", b"w5999\t" + msgpack.packb({"n": rig.t + 10**9}))  # as if a step had broken off
    rig.check()
    for path in ("/3", "/4"):
        rig.enqueue(link("a.org", path))
        rig.later(61_000)
        for lease in rig.lease():
            rig.complete(lease, ago_ms=None)
        rig.check()
    for _ in range(8):
        rig.later(61_000)
        for lease in rig.lease():
            rig.complete(lease, ago_ms=None)
    assert rig.check()["pending"] == 0
    assert int(rig.fields("a.org")[b"n"]) < rig.t + 10**8


def test_a_hash_without_a_state_beside_a_record_is_no_reason_to_lose_either(rig: Rig) -> None:
    rig.enqueue(link("a.org"), link("a.org", "/2"))
    rig.sync.hset(rig.key("host:a.org"), mapping={"l": "700", "n": rig.t + 2_000})
    rig.sync.pexpire(rig.key("host:a.org"), 5_000)
    rig.check()
    rig.run(rig.f.lease(0, 0))
    assert rig.fields("a.org")[b"l"] == b"700"
    assert rig.sync.pttl(rig.key("host:a.org")) == -1
    assert record(rig) is None
    assert rig.check()["ready"] == 1


@pytest.mark.parametrize("is_waiting", [False, True])
def test_an_override_of_a_packed_host_holds_from_its_next_lease_on(rig: Rig, is_waiting: bool) -> None:
    go_idle(rig, l="100")
    if is_waiting:
        rig.enqueue(link("a.org", "/2"), link("a.org", "/3"))
    rig.run(rig.f.override("a.org", Override(7)))
    assert not has_hash(rig)
    assert rig.fields("a.org")[b"o"] == b"7000 - - 0"
    assert rig.check()["waiting"] == is_waiting
    rig.enqueue(link("a.org", "/2"), link("a.org", "/3"))
    (lease,) = rig.lease()
    rig.complete(lease)
    assert rig.run(rig.f.lease(0, 0))[0] == pytest.approx(7, abs=0.01)
    rig.run(rig.f.override("a.org", None))
    assert b"o" not in rig.fields("a.org")
    rig.check()


def test_an_override_of_a_host_that_nobody_knows_is_packed_for_ever_and_may_be_taken_back(rig: Rig) -> None:
    rig.run(rig.f.override("a.org", Override(7)))
    assert not has_hash(rig)
    rig.later(400 * DAY_MS)
    assert rig.fields("a.org") == {b"n": b"0", b"o": b"7000 - - 0"}
    rig.run(rig.f.override("a.org", None))
    assert rig.fields("a.org") == {b"n": b"0"}
    rig.later(31 * DAY_MS)
    assert rig.fields("a.org") == {}


def test_news_of_a_host_that_has_no_urls_is_packed_with_the_rest(rig: Rig) -> None:
    go_idle(rig, h="2")
    rig.run(rig.f.tell("a.org", lambda lease: Outcome(lease, "d", rig.worker_s(), 0.25, page=PageSeen())))
    assert not has_hash(rig)
    known = rig.fields("a.org")
    assert (known[b"l"], known[b"h"]) == (b"250", b"3")
    rig.run(rig.f.tell("b.org", lambda lease: Outcome(lease, "d", rig.worker_s(), 0.25)))
    assert (has_hash(rig, "b.org"), rig.fields("b.org")[b"l"]) == (False, b"250")
    rig.check()


def test_a_dead_letter_of_a_packed_host_may_be_requeued(rig: Rig) -> None:
    rig.enqueue(link("a.org"), link("b.org"))
    for lease in rig.lease():
        rig.complete(lease, "x", arg="refused", latency_s=0.1)
    assert not has_hash(rig)
    rig.enqueue(link("b.org", "/2"))
    assert rig.run(rig.f.requeue()) == 2
    for host in ("a.org", "b.org"):
        assert (has_hash(rig, host), rig.state(host), rig.fields(host)[b"l"]) == (False, "w", b"100")
    assert rig.check()["pending"] == 3
    rig.later(60_000)
    assert {lease.host for lease in rig.lease()} == {"a.org", "b.org"}
    rig.check()


def test_a_host_with_leases_in_flight_that_gives_its_place_up_is_packed_with_their_number(redis_url: str) -> None:
    rig = Rig(redis_url, constants={"QUANTUM_URLS": 1})
    rig.enqueue(*(link("a.org", f"/{i}") for i in range(6)))
    rig.run(rig.f.override("a.org", Override(0, 3, None, True)))
    held = []
    for _ in range(3):
        held += rig.lease()
        rig.later(1)
    assert len(held) == 3
    rig.enqueue(*(link(f"h{i}.org") for i in range(20)))
    rig.complete(held[0])
    assert (rig.state("a.org"), rig.fields("a.org")[b"f"], has_hash(rig)) == ("w", b"2", False)
    rig.check()
    rig.complete(held[1])
    assert (rig.state("a.org"), rig.fields("a.org")[b"f"], has_hash(rig)) == ("w", b"1", False)
    rig.later(61_000)  # the last of them runs out
    rig.lease(0)
    assert rig.check()["pending"] == 24
    rig.close()


def test_a_call_that_is_repeated_changes_no_record(rig: Rig) -> None:
    wire = rig.wires[0]

    def again() -> None:
        before = rig.dump()
        rig.run(rig.client.execute_command(*wire.sent[-1]))
        assert rig.dump() == before

    rig.enqueue(link("a.org"))
    again()
    (lease,) = rig.lease()
    again()
    rig.complete(lease, "x", arg="refused", latency_s=0.1)
    again()
    rig.run(rig.f.override("a.org", Override(3)))
    again()
    rig.run(rig.f.requeue())
    again()
    assert record(rig)
    rig.check()


def test_a_record_that_a_broken_split_left_behind_does_not_come_back(small: Rig) -> None:
    small.enqueue(*(link(f"h{i}.org") for i in range(3)))
    stale = {f"h{i}.org": b"w9999\t" for i in range(3)}
    for b in (1, 2, 3):
        small.sync.hset(small.key(f"hosts:{b}"), mapping=stale)
    small.enqueue(link("h3.org"))
    names = [host for rows in buckets(small).values() for host in rows]
    assert sorted(names) == [b"h%d.org" % i for i in range(4)]
    assert small.check()["waiting"] == 4


def test_names_of_any_letters_have_their_bucket(rig: Rig) -> None:
    names = ["a", "ab", "abc", "[2001:db8::1]", "192.0.2.1", "xn--bcher-kva.example", "x" * 200 + ".org", "*?[^]\\.org"]
    assert rig.enqueue(*(link(name) for name in names)) == "n" * len(names)
    assert {lease.host for lease in rig.lease()} == set(names)
    rig.check()
    assert all(codec.decode(codec.encode(link(name).entry, name), name).url for name in names)
