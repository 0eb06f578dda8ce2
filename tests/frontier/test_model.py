"""The frontier against a model: any steps in any order, with calls repeated, answers lost, and things in Redis that are not ours.

The model knows URLs, hosts and their clocks, and nothing of queues, tokens or scores. After every step:

* what stands in Redis is what the model has: no URL lost, none twice, none made up;
* a lease goes to a host that is due, not dead and has no other; its not-before is the time that the model computes;
* no host that is due and has a URL is passed over;
* a back queue is in order of priority, then age; a URL that comes back has its old place;
* the audit finds nothing lost.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from rig import Rig, hosts_in, link

from crawlweb.errors import FrontierError
from crawlweb.frontier import codec, scripts
from crawlweb.frontier.frontier import EXACT, GUARD_MS, NORMAL, UNCHECKED, Lease, Limits, Outcome
from crawlweb.records import Entry

LONG = bool(os.environ.get("MODEL_LONG"))
SHRINK = bool(os.environ.get("MODEL_SHRINK"))  # a failure made small takes minutes
LOOK_MS, LEASE_MS, MIN_MS, FACTOR, CAP_MS = 500, 60_000, 1_000, 10, 30_000
MAX_EXPIRIES = 3
RETRIES, HOST_TRIES, DEAD_MS, GIVE_UP_MS = 3, 2, 600_000, 3_600_000
SPANS_MS = (1, 300, 700, 1_000, 2_500, 10_000, 61_000, 4_000_000)
WAITS_MS = (0, 200, 3_000, 45_000, 90_000)


@dataclass(eq=False)
class Url:
    """`place`: queued, waiting (by itself, until `due_ms`) or leased."""

    host: str
    entry: Entry
    age: int
    place: str = "queued"
    due_ms: int = 0
    back_score: float | None = None

    @property
    def id(self) -> tuple[str, bytes]:
        return self.host, codec.encode(self.entry, self.host)


@dataclass
class Host:
    """`next_ms`: next-allowed; `dead_ms`: dead until; `refused_since_ms`: robots.txt cannot be had."""

    next_ms: int = 0
    crawl_delay_ms: int = 0
    latency_ms: int | None = None
    failures: int = 0
    refused_since_ms: int | None = None
    dead_ms: int = 0
    reason: str = ""
    tainted: bool = False  # has entries in its queues that are not ours: each costs it a turn


@dataclass
class Held:
    lease: Lease
    url: Url
    worker: int
    expires_ms: int
    score: int = 0


@dataclass
class Part:
    """A partition as the model has it. `now`: its clock, which never goes back."""

    now: int = 0
    urls: list[Url] = field(default_factory=list)
    held: dict[str, Held] = field(default_factory=dict)
    merged: int = 0
    dead: int = 0


MODES = st.sampled_from(["once", "once", "once", "twice", "lost"])
WORKERS = st.integers(0, 1)
PARTS = st.integers(0, 1)
ITEMS = st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9), st.sampled_from([NORMAL, NORMAL, EXACT, UNCHECKED]))
NAMES = ["back:", "park:", "host:", "front:0", "front:5", "front:9", "ready", "asleep", "wait", "leases", "leased", "exact", "dead"]
NAMES += ["bloom", "bloom:0:0", "quarantine", "call:w0", "call:w1"]
PLACES = ["back", "park", "front", "front", "wait", "leases", "leased"]
JUNK = ["junk", "a\tb", "h\t1x\t/", "", "\0\xff", "h9.org\t7\tnope", "9\t1\t/x\t\t"]
OUTCOMES = st.tuples(
    st.integers(0, 50),  # which lease
    st.sampled_from("dddxqlwrhu"),
    st.sampled_from([None, 0, 0, 150, 5_000]),  # ms since the request ended
    st.sampled_from([None, 20, 100, 900, 8_000]),  # latency
    st.sampled_from(WAITS_MS),
    st.sampled_from([None, None, None, -1, 0, 1_500, 20_000, 100_000]),  # crawl-delay of a robots.txt that came along
)


class FrontierModel(RuleBasedStateMachine):
    redis_url: ClassVar[str]
    constants: ClassVar[dict[str, int]] = {}
    active_hosts: ClassVar[int | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(
            self.redis_url,
            partitions=2,
            workers=2,
            limits=Limits(expected_urls=4096, latency_cap_s=CAP_MS / 1000),
            constants=self.constants,
            active_hosts=self.active_hosts,
        )
        self.rig.sync.flushdb()
        self.rig.at(1_000_000_000)
        self.names = [hosts_in(p, 2, 4) for p in range(2)]
        self.hosts = {name: Host() for names in self.names for name in names}
        self.parts = [Part(), Part()]
        self.seen: set[str] = set()
        self.exact: set[str] = set()
        self.all_leases: list[Lease] = []
        self.robots: dict[str, bytes] = {}
        self.age = 0
        self.placed: Counter[tuple[str, bytes]] = Counter()
        self.planted: set[bytes] = set()
        self.late: list[tuple[Any, ...]] = []

    def teardown(self) -> None:
        try:
            self.drain()
        finally:
            self.rig.close()

    # calls ---------------------------------------------------------------------------------------------------------

    def call(self, worker: int, mode: str, step: Any) -> Any:
        """Runs a step; `lost`: its answer is dropped once; `twice`: sent again afterwards, which must change nothing."""
        wire = self.rig.wires[worker]
        wire.lose_next = mode == "lost"
        sent = len(wire.sent)
        result = self.rig.run(step(self.rig.frontiers[worker]))
        for args in wire.sent[sent:]:
            if args not in self.late:
                self.late.append(args)
        if mode == "lost":
            assert len(wire.sent) >= sent + 2
        if mode == "twice" and len(wire.sent) > sent:
            args = wire.sent[-1]
            first = self.rig.run(self.rig.client.execute_command(*args))
            before = self.rig.dump()
            assert self.rig.run(self.rig.client.execute_command(*args)) == first
            assert self.rig.dump() == before
        return result

    def tick(self, p: int) -> int:
        self.parts[p].now = max(self.parts[p].now, self.rig.t)
        return self.parts[p].now

    # rules ---------------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.tick(0)
        assert self.rig.run(self.rig.f.lease(0, 5)) == (None, [])

    @rule(worker=WORKERS, p=PARTS, items=st.lists(ITEMS, min_size=1, max_size=8), mode=MODES)
    def enqueue(self, worker: int, p: int, items: list[tuple[int, int, int, int]], mode: str) -> None:
        links = [link(self.names[p][h], f"/{u}", priority, how) for h, u, priority, how in items]
        self.tick(p)
        letters = self.call(worker, mode, lambda f: f.enqueue(p, links))
        expected: dict[int, str] = {}
        by_host = sorted(range(len(links)), key=lambda i: [x.host for x in links].index(links[i].host))
        for i in by_host:  # the order in which the step sees them
            x = links[i]
            url = x.entry.url
            fresh = x.how == UNCHECKED or (x.how == NORMAL and url not in self.seen) or (x.how == EXACT and url not in self.exact)
            if x.how == EXACT:
                self.exact.add(url)
            expected[i] = "n" if fresh else "s"
            if fresh:
                self.seen.add(url)
                self.age += 1
                url_placed = Url(x.host, x.entry, self.age)
                self.parts[p].urls.append(url_placed)
                self.placed[x.host, url_placed.id[1][3:]] += 1
        assert letters == "".join(expected[i] for i in range(len(links)))

    @rule(worker=WORKERS, p=PARTS, most=st.sampled_from([1, 2, 8, 8]), reclaim=st.sampled_from([True, True, False]), mode=MODES)
    def lease(self, worker: int, p: int, most: int, reclaim: bool, mode: str) -> None:
        self.lease_some(worker, p, most, reclaim, mode)

    def lease_some(self, worker: int, p: int, most: int, reclaim: bool, mode: str) -> list[Lease]:
        part, now = self.parts[p], self.tick(p)
        tainted = {name for name in self.names[p] if self.hosts[name].tainted}
        _, leases = self.call(worker, mode, lambda f: f.lease(p, most, reclaim))
        dead = self.new_dead(p)
        if reclaim:
            expired = sorted((h.expires_ms, token) for token, h in part.held.items() if h.expires_ms <= now)
            for _, token in expired[:16]:
                self.reclaim(p, token, dead)
        for host, reason, entry in dead:
            assert self.hosts[host].dead_ms > now, (host, reason)
            assert reason == self.hosts[host].reason
            part.urls.remove(self.find(p, host, entry, now))
        given: set[str] = set()
        for got in leases:
            host = self.hosts[got.host]
            assert not any(h.url.host == got.host for h in part.held.values()), "two leases of a host"
            assert host.dead_ms <= now
            url = self.find(p, got.host, got.entry, now)
            not_before = self.rig.server_ms(got.not_before)
            assert not_before == max(self.rig.t, self.rig.t + host.next_ms - now), "not the time that the host's clock says"
            assert host.next_ms <= now + LOOK_MS
            assert got.expires == self.rig.worker_s() + LEASE_MS / 1000
            assert got.host_failures == host.failures
            assert got.unreachable_ms == (-1 if host.refused_since_ms is None else now - host.refused_since_ms)
            url.place = "leased"
            part.held[got.token] = Held(got, url, worker, now + LEASE_MS)
            given.add(got.host)
        self.all_leases += leases
        self.redis_holds_what_the_model_holds()  # counts what was merged
        if most == 8 and self.active_hosts is None:
            for name in self.names[p]:
                host = self.hosts[name]
                busy = any(h.url.host == name for h in part.held.values())
                has = any(u.host == name and (u.place == "queued" or (u.place == "waiting" and u.due_ms <= now)) for u in part.urls)
                due = has and not busy and host.next_ms <= now + LOOK_MS and host.dead_ms <= now and name not in tainted
                assert not due, f"{name} was passed over at {now}: {host} {self.about(name)}"
        return leases

    @rule(worker=WORKERS, p=PARTS, outcomes=st.lists(OUTCOMES, min_size=1, max_size=4), mode=MODES)
    def complete(self, worker: int, p: int, outcomes: list[tuple[Any, ...]], mode: str) -> None:
        leases = [x for x in self.all_leases if x.partition == p][-12:]
        if not leases:
            return
        part, now, rows, expected = self.parts[p], self.tick(p), [], ""
        for which, way, ago, latency, wait, crawl_delay in outcomes:
            live = [h.lease for h in part.held.values()]
            got = live[which % len(live)] if live and which < 42 else leases[which % len(leases)]
            origin = f"https://{got.host}"
            robots = None if crawl_delay is None else (origin, b"robots %d" % crawl_delay, 86_400_000, crawl_delay)
            arg = {
                "x": "refused",
                "q": "entry",
                "r": [RETRIES, "failed", wait // 2],
                "h": [HOST_TRIES, DEAD_MS, "no such host"],
                "u": [GIVE_UP_MS, DEAD_MS, "no robots.txt"],
            }.get(way)
            ended = None if ago is None else self.rig.worker_s() - ago / 1000
            rows.append(Outcome(got, way, ended, None if latency is None else latency / 1000, wait / 1000, arg, robots))
            expected += self.end(p, got, way, now, ago, latency, wait, crawl_delay)
        letters = self.call(worker, mode, lambda f: f.complete(p, rows))
        assert letters == expected
        for host, _, entry in self.new_dead(p):
            part.urls.remove(self.find(p, host, entry, now, "dead"))
        assert not any(u.place == "dead" for u in part.urls)

    def end(self, p: int, got: Lease, way: str, now: int, ago: int | None, latency: int | None, wait: int, crawl_delay: int | None) -> str:
        part, host = self.parts[p], self.hosts[got.host]
        if crawl_delay is not None:
            self.robots[f"https://{got.host}"] = b"robots %d" % crawl_delay
            if crawl_delay >= 0:
                host.crawl_delay_ms = crawl_delay
        if latency is not None:
            old = host.latency_ms
            host.latency_ms = latency if old is None else math.floor((3 * old + latency) / 4 + 0.5)
        if ago is not None:
            host.next_ms = max(host.next_ms, now - max(0, ago - GUARD_MS) + self.delay_ms(host))
        held = part.held.pop(got.token, None)
        if not held:
            return "g"
        url = held.url
        if ago is not None and way not in "hu" and (host.failures or host.refused_since_ms is not None):
            host.failures, host.refused_since_ms, host.dead_ms = 0, None, 0
        if way in "dq":
            part.urls.remove(url)
        elif way == "x":
            url.place = "dead"
        elif way in "wr":
            if way == "r":
                url.entry = replace(url.entry, failures=url.entry.failures + 1)
                host.next_ms = max(host.next_ms, now + wait // 2) if wait // 2 else host.next_ms
            url.place, url.due_ms = ("dead", 0) if way == "r" and url.entry.failures >= RETRIES else ("waiting", now + wait)
        else:
            url.place = "queued"
            if wait:
                host.next_ms = max(host.next_ms, now + wait)
            if way == "h":
                host.failures += 1
                if host.failures >= HOST_TRIES:
                    host.dead_ms, host.reason = now + DEAD_MS, "no such host"
            elif way == "u":
                host.refused_since_ms = now if host.refused_since_ms is None else host.refused_since_ms
                if now - host.refused_since_ms >= GIVE_UP_MS:
                    host.dead_ms, host.reason = now + DEAD_MS, "no robots.txt"
        return "x" if url.place == "dead" else "k"

    @rule(worker=WORKERS, which=st.lists(st.integers(0, 30), min_size=1, max_size=4))
    def renew(self, worker: int, which: list[int]) -> None:
        leases = {x.token: x for x in (self.all_leases[-1 - i % len(self.all_leases)] for i in which if self.all_leases)}
        for x in leases.values():
            held = self.parts[x.partition].held.get(x.token)
            now = self.tick(x.partition)
            if held:
                held.expires_ms = now + LEASE_MS
        gone = self.rig.run(self.rig.frontiers[worker].renew(leases.values()))
        assert {x.token for x in gone} == {x.token for x in leases.values() if x.token not in self.parts[x.partition].held}

    @rule(ms=st.sampled_from(SPANS_MS))
    def time_passes(self, ms: int) -> None:
        self.rig.later(ms)

    @rule(ms=st.sampled_from([5, 2_000, 100_000]))
    def the_servers_clock_is_set_back(self, ms: int) -> None:
        self.rig.later(-ms)

    @precondition(lambda self: len(self.late) > 3)
    @rule(which=st.integers(0, 20))
    def an_overtaken_call_arrives(self, which: int) -> None:
        args = self.late[which % len(self.late)]
        newest = max(a[5] for a in self.late if a[1] == args[1] and a[3:5] == args[3:5])
        if args[5] == newest or args[1] == self.rig_digest("renew"):
            return
        before = self.rig.dump()
        with pytest.raises(Exception, match="STALE"):
            self.rig.run(self.rig.client.execute_command(*args))
        assert self.rig.dump() == before

    @staticmethod
    def rig_digest(step: str) -> str:
        return scripts.digest(step)

    @rule(p=PARTS, h=st.integers(0, 3), name=st.sampled_from(NAMES), kind=st.integers(0, 1))
    def a_key_that_is_not_ours(self, p: int, h: int, name: str, kind: int) -> None:
        host = self.names[p][h]
        key = self.rig.key(name + host if name.endswith(":") else name, p)
        if self.rig.sync.exists(key):
            return
        mark = b"mark %d" % (len(self.planted) + 1)
        self.planted.add(mark)
        if name.startswith("bloom:"):
            self.rig.sync.rpush(key, mark)
        elif kind:
            self.rig.sync.set(key, mark)
        elif name.startswith(("ready", "asleep", "wait", "leases", "back:", "leased", "host:", "bloom", "call:")):
            self.rig.sync.rpush(key, mark)
        else:
            self.rig.sync.hset(key, "field", mark)

    @rule(p=PARTS, h=st.integers(0, 3), where=st.sampled_from(PLACES), what=st.sampled_from(JUNK))
    def an_entry_that_is_not_ours(self, p: int, h: int, where: str, what: str) -> None:
        host = self.names[p][h]
        sync, key = self.rig.sync, self.rig.key
        junk = what.encode("latin-1")
        kind = {"back": b"zset", "park": b"list", "front": b"list", "wait": b"zset", "leases": b"zset", "leased": b"hash"}[where]
        name = key(f"{where}:{host}" if where in ("back", "park") else "front:3" if where == "front" else where, p)
        if sync.type(name) not in (b"none", kind):
            return
        if where == "back":
            sync.zadd(name, {junk: 3 * 2**48 + 5})
        elif where in ("park", "front"):
            sync.lpush(name, junk)
        elif where == "wait":
            sync.zadd(name, {junk: self.rig.t + 1_000})
        elif sync.type(key("leases", p)) in (b"none", b"zset") and sync.type(key("leased", p)) in (b"none", b"hash"):
            sync.zadd(key("leases", p), {b"x:" + junk: self.rig.t + 1_000})
            if where == "leased":
                sync.hset(name, b"x:" + junk, junk)

    # the model -----------------------------------------------------------------------------------------------------

    def delay_ms(self, host: Host) -> int:
        return max(MIN_MS, host.crawl_delay_ms, min(FACTOR * (host.latency_ms or 0), CAP_MS))

    def reclaim(self, p: int, token: str, dead: list[tuple[str, str, Entry]]) -> None:
        """A lease ran out: it is not known whether the request was made, so it was, just now."""
        part = self.parts[p]
        held = part.held.pop(token)
        url, host = held.url, self.hosts[held.url.host]
        host.next_ms = max(host.next_ms, part.now + self.delay_ms(host))
        url.entry = replace(url.entry, expiries=url.entry.expiries + 1)
        url.place = "queued"
        if url.entry.expiries >= MAX_EXPIRIES:
            dead.remove((url.host, "expired", url.entry))
            part.urls.remove(url)

    def find(self, p: int, host: str, entry: Entry, now: int, place: str = "queued") -> Url:
        found = [u for u in self.parts[p].urls if u.host == host and u.entry == entry and u.place in (place, "waiting")]
        found = [u for u in found if u.place == place or (place == "queued" and u.due_ms <= now)]
        assert found, f"{host} {entry} is not {place}"
        return min(found, key=lambda u: u.place != place)

    def new_dead(self, p: int) -> list[tuple[str, str, Entry]]:
        """Dead letters since the last look, oldest first."""
        key = self.rig.key("dead", p)
        letters = self.rig.sync.lrange(key, 0, -1) if self.rig.sync.type(key) == b"list" else []
        new = letters[: len(letters) - self.parts[p].dead][::-1]
        self.parts[p].dead = len(letters)
        parts = [x.split(b"\t", 3) for x in new]
        return [(host.decode(), reason.decode(), codec.decode(data, host.decode())) for _, host, reason, data in parts]

    @invariant()
    def redis_holds_what_the_model_holds(self) -> None:
        found = self.rig.run(self.rig.frontiers[0].audit())
        assert found["lost"] == 0, found["what"]
        dump = self.rig.dump()
        for p, part in enumerate(self.parts):
            prefix = self.rig.key("", p).encode()
            mine = {k[len(prefix) :].decode("latin-1"): v for k, v in dump.items() if k.startswith(prefix)}
            queued, backs = self.read_queued(self.names[p], mine)
            real_wait = Counter(x for x, _ in self.rows(mine.get("wait", [])))
            real_held = mine.get("leased", {})
            assert all(len([h for h in part.held.values() if h.url.host == name]) <= 1 for name in self.names[p])
            assert {t: self.row(v)[0] for t, v in real_held.items() if self.row(v)} == {
                t.encode(): h.url.id for t, h in part.held.items()
            }, "leased"
            for u in part.urls:  # a wait that is over may have ended
                if u.place == "waiting" and u.due_ms <= part.now and real_wait[u.id] < self.count(part, u.id, "waiting"):
                    u.place = "queued"
            assert real_wait == Counter(u.id for u in part.urls if u.place == "waiting"), "wait"
            merged = int(mine.get("ctr", {}).get(b"merged", 0))
            for ident in {u.id for u in part.urls if u.place == "queued"}:
                twins = self.placed[ident[0], ident[1][3:]] > 1
                while twins and merged > part.merged and self.count(part, ident, "queued") > queued[ident]:
                    part.merged += 1
                    newest = max((u for u in part.urls if u.id == ident and u.place == "queued"), key=lambda u: u.age)
                    part.urls.remove(newest)
            assert merged == part.merged
            assert queued == Counter(u.id for u in part.urls if u.place == "queued"), "queued"
            self.check_backs(part, backs, mine)
        marks = {mark for value in dump.values() for mark in self.marks(value)}
        assert self.planted <= marks, "a key of somebody else is gone"

    @staticmethod
    def count(part: Part, ident: tuple[str, bytes], place: str) -> int:
        return sum(u.id == ident and u.place == place for u in part.urls)

    def marks(self, value: Any) -> list[bytes]:
        items = value.values() if isinstance(value, dict) else [value] if isinstance(value, bytes) else value
        return [x for x in items if isinstance(x, bytes) and x.startswith(b"mark ")]

    @staticmethod
    def is_ours(data: bytes, host: str) -> bool:
        try:
            codec.decode(data, host)
        except ValueError:
            return False
        return True

    def row(self, text: bytes) -> list[Any]:
        """[(host, entry), score] of a row of `leased` or `wait`; empty if it is not ours."""
        parts = text.split(b"\t", 2)
        if len(parts) == 3 and self.is_ours(parts[2], parts[0].decode()):
            return [(parts[0].decode(), parts[2]), int(parts[1])]
        return []

    def rows(self, members: Any) -> list[list[Any]]:
        if not isinstance(members, list) or not members or not isinstance(members[0], tuple):
            return []
        return [row for text, _ in members if (row := self.row(text))]

    def read_queued(
        self, hosts: list[str], mine: dict[str, Any]
    ) -> tuple[Counter[tuple[str, bytes]], dict[str, list[tuple[bytes, float]]]]:
        queued: Counter[tuple[str, bytes]] = Counter()
        backs: dict[str, list[tuple[bytes, float]]] = {}
        tainted = set()
        for name, value in mine.items():
            kind, _, rest = name.partition(":")
            if not isinstance(value, list):
                continue
            if kind == "back" and isinstance(value[0], tuple):
                backs[rest] = [(e, score) for e, score in value if self.is_ours(e, rest)]
                queued.update((rest, e) for e, _ in backs[rest])
                tainted |= {rest} if len(backs[rest]) < len(value) else set()
            elif kind == "park" and not isinstance(value[0], tuple):
                ours = [(rest, e) for e in value if self.is_ours(e, rest)]
                queued.update(ours)
                tainted |= {rest} if len(ours) < len(value) else set()
            elif kind == "front":
                queued.update(row[0] for token in value if (row := self.row(token)))
        for name in hosts:
            self.hosts[name].tainted = name in tainted
        return queued, backs

    def check_backs(self, part: Part, backs: dict[str, list[tuple[bytes, float]]], mine: dict[str, Any]) -> None:
        for host, members in backs.items():
            assert len(members) <= self.constants.get("BACK_CAP", 64) + 1  # one that came back
            order = [(codec.decode(e, host).priority, e) for e, _ in members]
            assert [k for k, _ in order] == sorted(k for k, _ in order)
            if not self.constants:
                ages = {e: [u.age for u in part.urls if u.id == (host, e)] for _, e in order}
                clear = [(k, ages[e][0]) for k, e in order if len(ages[e]) == 1]
                assert clear == sorted(clear), "not in order of priority, then age"
        for held in part.held.values():
            text = mine["leased"][held.lease.token.encode()]
            held.score = self.row(text)[1]
            held.url.back_score = held.score
        for u in part.urls:
            if u.place == "queued" and u.back_score is not None and self.count(part, u.id, "queued") == 1 and not self.constants:
                score = dict(backs.get(u.host, [])).get(u.id[1])
                assert score is not None, "did not come back"
                assert score <= u.back_score, "did not come back to its place"

    def about(self, name: str) -> dict[bytes, Any]:
        """What Redis has on a host, for the message of a failure."""
        return {k: v for k, v in self.rig.dump().items() if b"bloom" not in k and name.encode() in repr((k, v)).encode()}

    def drain(self) -> None:
        """All of it comes to an end."""
        for _ in range(400):
            for p in range(2):
                for got in self.lease_some(0, p, 8, True, "once"):
                    self.complete_one(p, got)
                for token in list(self.parts[p].held):
                    self.complete_one(p, self.parts[p].held[token].lease)
            self.redis_holds_what_the_model_holds()
            if not any(part.urls for part in self.parts) and self.rig.run(self.rig.f.counts()).pending == 0:
                break
            pauses = [self.rig.run(self.rig.f.lease(p, 0))[0] for p in range(2)]
            behind = max(part.now for part in self.parts) - self.rig.t
            self.rig.later(max(0, behind) + min((round(1000 * s) for s in pauses if s is not None), default=0) + 1)
        else:
            raise AssertionError({k: v for k, v in self.rig.dump().items() if b"bloom" not in k}, self.rig.t)
        for p in range(2):
            assert self.rig.run(self.rig.f.lease(p, 8)) == (None, [])
        counts = self.rig.run(self.rig.f.counts())
        assert counts.pending == 0
        assert counts.enqueued == counts.done

    def complete_one(self, p: int, got: Lease) -> None:
        now = self.tick(p)
        expected = self.end(p, got, "d", now, None, None, 0, None)
        assert self.rig.run(self.rig.f.complete(p, [Outcome(got, "d")])) == expected


class NarrowFrontierModel(FrontierModel):
    """The same with queues of four, turns of three URLs and two active hosts a partition, so that hosts wait and URLs are parked."""

    constants: ClassVar[dict[str, int]] = {"BACK_CAP": 4, "QUANTUM_URLS": 3}
    active_hosts: ClassVar[int | None] = 2


def run(machine: type[FrontierModel], url: str, examples: int, steps: int) -> None:
    machine.redis_url = url
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=not LONG,
            deadline=None,
            database=None,
            print_blob=True,
            phases=[Phase.generate, Phase.shrink] if SHRINK else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("machine", [FrontierModel, NarrowFrontierModel])
def test_any_order_of_steps_keeps_the_promises(machine: type[FrontierModel], redis_url: str) -> None:
    run(machine, redis_url, 25, 50)


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="MODEL_LONG=1 runs it")
@pytest.mark.parametrize("machine", [FrontierModel, NarrowFrontierModel])
def test_any_order_of_many_steps_keeps_the_promises(machine: type[FrontierModel], redis_url: str) -> None:
    run(machine, redis_url, int(os.environ.get("MODEL_EXAMPLES", "500")), 80)


def test_a_step_without_an_answer_is_an_error_on_closing(redis_url: str) -> None:
    rig = Rig(redis_url)
    rig.f.closing = True
    rig.wires[0].lose_next = True
    with pytest.raises(FrontierError):
        rig.lease()
    rig.close()
