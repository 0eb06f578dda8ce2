"""What somebody else may have put into our Redis: a world with every kind of key, and harms to it."""

from __future__ import annotations

import itertools
import json
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass

from rig import Rig, link, url_key

from crawlweb.frontier.cold import ColdQueues
from crawlweb.frontier.keys import KEYS, Key
from crawlweb.frontier.members import Members
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import EXACT, KeptNow, Lease, OriginFailed, Outcome, Override, PushedBack
from crawlweb.frontier.totals import Totals
from crawlweb.policy.robots import Answer
from crawlweb.records import Entry, PageRecord

HOSTS = [f"h{n}.org" for n in range(10)]
ADDRESS = "10.0.0.1"
MAX_PAGES = 40
NUMBERS = [b"-1", b"nan", b"inf", b"-inf", b"1e999", b"9" * 400, b"1e300", b"1.5", b"0x10", b"0", b"", b"x"]
SCORES = [0, -5, -1e300, 1e15, 1e300, float("inf"), float("-inf"), 0.5]


def junk(rng: random.Random) -> bytes:
    host = rng.choice([b"h1.org", b"evil.org", b"\xff\xfe", b""])
    return rng.choice(
        [
            lambda: pickle.dumps({"url": "http://evil.org", "callback": "os.system"}),
            lambda: rng.randbytes(rng.randrange(1, 80)),
            lambda: b"",
            lambda: json.dumps(["http://evil.org", 3]).encode(),
            lambda: b"Z00\t0\t/evil\t\t",
            lambda: b"-1\t0\t/evil\t\t",
            lambda: host + b"\t" + rng.choice(NUMBERS) + b"\t500\t0\t/evil\t\t",
            lambda: host + b"\t7\tno entry",
            lambda: b"w12\t\x81\xa1n\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",  # a record with NaN in it
            lambda: b"w9" + b"7" * 400 + b"\t",
            lambda: b"\x83\xa1a\x01",  # msgpack that breaks off
            lambda: b"\x81\xabhttps://x.y\x81\xa1u\xa3abc",  # origins in trouble, of another version
            lambda: b"\x81\xabhttps://x.y\x81\xa1u\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",
            lambda: b"L" * 300_000,
            lambda: b"500\t0\t/" + b"L" * 100_000 + b"\t\t",
            lambda: rng.choice(NUMBERS),
        ]
    )()


async def lived(rig: Rig) -> dict[str, str]:
    """Makes the world: keys of nearly every kind. Returns the URLs that are not finished, with their hosts."""
    f, meta, cold = rig.f, Meta(rig.f), ColdQueues(rig.f)
    await meta.agree({"partitions": "1"}, {})
    await meta.widen_scope([*HOSTS, "cold.org"])
    await meta.say_seeding(True)
    rises = itertools.count()
    rig.totals = Totals(f, lambda: {"pages": next(rises), "requests": 4})
    await seen_by_others(rig)
    await cold.my_turn(600)
    links = [link(host, f"/{n}", n % 10) for host in HOSTS for n in range(4)]
    links += [link("h0.org", f"/more/{n}", 8) for n in range(14)]
    links += [link("h1.org", f"/other/{n}", 0, before="https://docs.") for n in range(3)]
    await f.enqueue(0, [link("seed.org", f"/{n}", 0, EXACT) for n in range(3)])
    open_urls = {"https://seed.org/0": "seed.org", "https://seed.org/1": "seed.org", "https://seed.org/2": "seed.org"}
    for first in range(0, len(links), 50):
        await f.enqueue(0, links[first : first + 50])
    await f.enqueue(0, [link("h1.org", "/0", 5, hops=1, chain=(url_key("https://h1.org/x"),), found_as="https://h1.org/x")])
    open_urls |= {one.entry.url: one.host for one in links}
    await f.override("h3.org", Override(delay_s=2.0, concurrency=2, below_minimum=True))
    await f.override("h4.org", Override(pause_until=rig.t / 1000 + 5))
    for host in HOSTS[:2]:
        robots = KeptNow(f"https://{host}", Answer("allow").pack(), 60_000, 1500, (f"https://{host}/map",))
        await f.tell(host, lambda lease, kept=robots: Outcome(lease, "l", robots=kept))  # type: ignore[misc]
    failed = OriginFailed("robots_unreachable", 30.0, 600.0)
    await f.tell("h1.org", lambda lease: Outcome(lease, "l", origin="https://docs.h1.org", failed=failed))
    await f.tell("h2.org", lambda lease: Outcome(lease, "l", robots_hop=("https://h2.org", b"{}", 60_000)))
    await f.tell("h2.org", lambda lease: Outcome(lease, "l", stale_robots=("https://h2.org", 60.0)))
    for _ in range(3):
        leases = (await f.lease(0, 7))[1]
        await f.ip_turns(0, [], [(ADDRESS, lease.host, lease.token) for lease in leases])
        await meta.permits(MAX_PAGES, [url_key(lease.entry.url) for lease in leases])
        await meta.spend(MAX_PAGES, [url_key(lease.entry.url) for lease in leases[:2]])
        done = [ended(rig, lease, "dwxr"[n % 4]) for n, lease in enumerate(leases) if n < 5]  # the rest stays leased
        await f.complete(0, done)
        for outcome in done:
            if outcome.way in "dx":
                del open_urls[outcome.lease.entry.url]
        rig.later(2500)
    await cold.tune(0, 12)
    for first in range(0, 30, 15):
        more = [link("cold.org", f"/{n}", 7) for n in range(first, first + 15)]
        await f.enqueue(0, more)
        open_urls |= {one.entry.url: one.host for one in more}
    await cold.cut(0, "park:cold.org", 3)
    serial, some = await cold.start_of_tail(0, "park:cold.org", 8)
    rig.chunks[chunk := f"{rig.t:013d}-w0-1"] = some
    assert await cold.out(0, "park:cold.org", chunk, some, serial)
    rig.sync.zadd(rig.key("gone"), {f"{rig.t:013d}-w0-0": rig.t})
    await cold.tune(0, 30_000)
    return open_urls


def ended(rig: Rig, lease: Lease, way: str) -> Outcome:
    arg = {"x": "http_4xx", "r": (5, "http_5xx")}.get(way)
    pushed_back = PushedBack(2.0, 60.0) if way == "r" else None
    key = url_key(lease.entry.url)
    next_s = (400, 10_000, 3_000_000)[key[0] % 3]
    record = PageRecord(lease.entry.url, rig.t / 1000, 200, etag="e" * (key[1] % 2), next_at=rig.t / 1000 + next_s) if way == "d" else None
    return Outcome(lease, way, rig.worker_s(), 0.05, wait_s=10.0, arg=arg, pushed_back=pushed_back, record=record, record_key=key[:8])


def kinds() -> list[Key]:
    return [key for key in KEYS if not key.name.startswith(("foreign:", "inbox")) and key.scope != "starts"]


def names_of(rig: Rig, kind: Key) -> list[str]:
    """Keys of a kind in the world; where there is none, the one that would be."""
    prefix = {"partition": "{t:0}:", "addresses": "{t:ip:0}:", "crawl": "{t}:"}[kind.scope]
    fill = {
        "<k>": "5", "<host>": "h1.org", "<bucket>": "0", "<address>": ADDRESS, "<origin>": "https://h1.org", "<worker>": "w0",
        "<hour>": "280", "<span>": "3334", "<day>": "46", "<layer>": "0", "<segment>": "0", "<3 hex digits>": "abc",
    }  # fmt: skip
    one = kind.name
    for hole, value in fill.items():
        one = one.replace(hole, value)
    stem, hole, end = kind.name.partition("<")
    there = [key.decode() for key in rig.sync.scan_iter(f"{prefix}{stem}*", count=1000)] if hole else []
    end = end.rpartition(">")[2]
    there = [
        name for name in there if name.endswith(end) and (":tail" in end or ":chunks" in end or not name.endswith((":tail", ":chunks")))
    ]
    return sorted(there) or [prefix + one]


@dataclass(frozen=True)
class Harm:
    """`adds`: nothing that stood there is touched."""

    name: str
    do: Callable[[Rig, str, Key, random.Random], None]
    adds: bool = False

    def destroys(self, kind: Key) -> bool:
        """Is something gone that was ours? A host's fields can be done without, as can a score."""
        return not self.adds and not (
            kind.kind in ("zset", "hash") and self.name == "replaced" and kind.name not in ("leased", "cold", "ctr")
        )


def _add(rig: Rig, name: str, kind: Key, rng: random.Random) -> None:
    members = [junk(rng) for _ in range(3)]
    match kind.kind:
        case "list":
            rig.sync.lpush(name, *members)
            rig.sync.rpush(name, *members)
        case "zset":
            rig.sync.zadd(name, {member: rng.choice(SCORES) for member in members})
        case "hash":
            rig.sync.hset(name, mapping={junk(rng): member for member in members})
        case "set":
            rig.sync.sadd(name, *members)
        case _:
            rig.sync.set(name, members[0])


def _number(rig: Rig, name: str, kind: Key, rng: random.Random) -> None:
    """One value is replaced by something that is no number of ours, or by another junk; a score by another."""
    match kind.kind:
        case "list":
            if size := rig.sync.llen(name):
                rig.sync.lset(name, rng.randrange(size), junk(rng))
        case "zset":
            for member in rig.sync.zrange(name, 0, -1)[:3]:
                rig.sync.zadd(name, {member: rng.choice(SCORES)})
        case "hash":
            if fields := rig.sync.hkeys(name):
                rig.sync.hset(name, rng.choice(fields), rng.choice([rng.choice(NUMBERS), junk(rng)]))
        case "string":
            rig.sync.setrange(name, rng.randrange(64), junk(rng)[:64])


def _all_numbers(rig: Rig, name: str, kind: Key, rng: random.Random) -> None:
    if kind.kind == "hash":
        for field in rig.sync.hkeys(name):
            rig.sync.hset(name, field, rng.choice(NUMBERS))
    else:
        _number(rig, name, kind, rng)


def _type(rig: Rig, name: str, kind: Key, rng: random.Random) -> None:
    rig.sync.delete(name)
    other = rng.choice([k for k in ("list", "zset", "hash", "set", "string") if k != kind.kind])
    _add(rig, name, Key(kind.name, kind.scope, other, ""), rng)


def _pickle(rig: Rig, name: str, kind: Key, rng: random.Random) -> None:  # noqa: ARG001
    rig.sync.set(name, pickle.dumps(["http://evil.org"]))


HARMS = [
    Harm("added", _add, adds=True),
    Harm("replaced", _number),
    Harm("all values", _all_numbers),
    Harm("another type", _type),
    Harm("a pickle", _pickle),
]


async def seen_by_others(rig: Rig) -> None:
    """What a worker says and hears of the others."""
    members = Members(rig.f)
    await members.take_left()
    await members.leave()
    await members.say_left("a run")
    for per_min in (3, 4):
        await members.beat(True, 1, per_min)
    await members.say_over(9)
    assert rig.f.worker in await members.living()
    await members.rows()
    await rig.totals.send()


async def drained(rig: Rig, turns: int = 80) -> set[str]:
    """Runs everything until nothing is left, or for so many turns. Returns the URLs that were finished."""
    f, meta, cold = rig.f, Meta(rig.f), ColdQueues(rig.f)
    done: set[str] = set()
    chores: list[str] = []
    f.see_to = lambda _, queues: chores.extend(queues)
    await f.override("h5.org", Override(delay_s=1.0))
    await f.override("h5.org", None)
    await f.enqueue(0, [link("new.org", f"/{rig.t}/{n}", 3) for n in range(3)] + [link("h1.org", f"/{rig.t}", 3)])
    await f.enqueue(0, [link("seed.org", f"/{n}", 0, EXACT) for n in range(3)])
    await f.enqueue(0, [link("h1.org", "/0", 5, hops=1, chain=(url_key("https://h1.org/x"),), found_as="https://h1.org/x")])
    await f.requeue()
    await f.robots("h1.org", ["https://h1.org", "https://docs.h1.org"])
    await f.tell("h2.org", lambda lease: Outcome(lease, "l", origin="https://h2.org", failed=OriginFailed("http_5xx", 1.0, 9.0)))
    for host in HOSTS[:2]:
        robots = KeptNow(f"https://{host}", b"x", 60_000, 900, ("https://a.org/map",))
        await f.tell(host, lambda lease, kept=robots: Outcome(lease, "l", robots=kept))  # type: ignore[misc]
    await f.overrides()
    await f.dead_letters()
    await meta.say_seeding(True)
    await seen_by_others(rig)
    await meta.anyone_seeding()
    await meta.widen_scope(["new.org"])
    await meta.refresh_scope()
    await meta.value("partitions")
    await cold.my_turn(600)
    await cold.gone(0, 10**15)
    await cold.chunks(0)
    await f.audit()
    for _ in range(turns):
        await f.due(0)
        next_s, leases = await f.lease(0, 50)
        await f.records(0, [url_key(lease.entry.url)[:8] for lease in leases])
        keys = [url_key(lease.entry.url) for lease in leases]
        await meta.permits(MAX_PAGES, keys)
        await meta.spend(MAX_PAGES, keys[:1])
        await meta.end_pages(MAX_PAGES, keys[:1], keys[1:])
        await f.ip_turns(0, [], [(ADDRESS, lease.host, lease.token) for lease in leases[:3]])
        await f.ip_turns(0, [(ADDRESS, lease.token, rig.worker_s()) for lease in leases[:3]], [])
        await f.renew(leases[:2])
        answer = await f.complete(0, [finished(rig, lease) for lease in leases])
        done |= {lease.entry.url for lease, letter in zip(leases, answer, strict=True) if letter == "k"}
        for queue in [*chores, *await cold.chores(0)]:
            parts = await cold.parts(0, queue)
            if parts.chunks:
                entries = rig.chunks.get(parts.first)
                if entries is None or len(entries) != parts.size:
                    await cold.give_up(0, queue, parts.first)
                else:
                    await cold.bring_in(0, queue, parts.first, entries, parts.taken)
            await cold.done(0, queue)
        chores.clear()
        if next_s is None:
            break
        rig.later(max(1000, min(round(next_s * 1000), 600_000)))
    return done


def finished(rig: Rig, lease: Lease) -> Outcome:
    """As the worker judges a lease: what is not of its host is not ours."""
    return Outcome(lease, "d", rig.worker_s(), 0.02) if lease.entry != Entry("") else Outcome(lease, "q", arg="entry")
