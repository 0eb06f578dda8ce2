"""The frontier against a model: any steps in any order, with calls repeated, answers lost, and things in Redis that are not ours.

The model knows URLs, hosts and their clocks, and nothing of queues, tokens or scores. After every step:

* what stands in Redis is what the model has: no URL lost, none twice, none made up;
* a lease goes to a host that is due, not dead and has no other, for a URL of an origin that is neither blocked nor dead; its not-before is
  the time that the model computes;
* no host that is due and has such a URL is passed over, whatever the host's other origins do;
* URLs of a dead origin get their other spelling, wait, or become dead letters with the reason;
* a back queue is in order of priority, then age; a URL that comes back has its old place;
* the audit finds nothing lost.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from rig import WORKER_AHEAD_S, Rig, hosts_in, link

from crawlweb.errors import FrontierError
from crawlweb.frontier import codec, scripts
from crawlweb.frontier.frontier import GUARD_MS
from crawlweb.frontier.rows import (
    EXACT,
    NORMAL,
    UNCHECKED,
    KeptNow,
    Lease,
    Limits,
    OriginFailed,
    Outcome,
    Override,
    PageSeen,
    PushedBack,
    Refused,
)
from crawlweb.records import Entry
from crawlweb.spill import Spill

LONG = bool(os.environ.get("MODEL_LONG"))
SHRINK = bool(os.environ.get("MODEL_SHRINK"))  # a failure made small takes minutes
LOOK_MS, LEASE_MS, MIN_MS, FACTOR, CAP_MS = 500, 60_000, 1_000, 10, 30_000
MAX_EXPIRIES = 9
MOVED_MOST, WOKEN_MOST = 128, 64
RETRIES, DEAD_MS = 3, 600_000
SOFT_REST_MS, SOFT_FAILURES, VISIBLE, DEAD_MOST_MS = 20_000, 3, 16, 86_400_000
PAGES_BEFORE, REFUSALS = 5, 800_000
REFUSED = Refused(3_000, 100_000, 4_000, 600)
TROUBLES = (  # reason, dead after, struggling
    OriginFailed("dns_nxdomain", 8, 30, dead_after=2, dead_s=600, give_up_s=3_600),
    OriginFailed("tls", 5, 3_600, dead_after=2, dead_s=600, give_up_s=3_600, urls_wait=True),
    OriginFailed("robots_unreachable", 5, 1_800, 1.2, dead_s=600, give_up_s=100),
    OriginFailed("http_503", 5, 3_600, 0.8, retry_after_s=3, dead_s=600, give_up_s=3_600, struggling=True),
    OriginFailed("http_503", 2, 600, retry_after_s=300, struggling=True),
)
PUSHES = (PushedBack(5, 3_600), PushedBack(1, 100, 0.8, retry_after_s=30), PushedBack(5, 3_600, retry_after_s=30, give_up_s=20))
OVERRIDES = (None, Override(3), Override(0.2), Override(0.2, below_minimum=True), Override(0.5, 2, None, True), Override(concurrency=3))
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
    _named: tuple[Entry | None, bytes] = None, b""

    @property
    def id(self) -> tuple[str, bytes]:
        if self._named[0] is not self.entry:  # coded once: a step of the model asks for it thousands of times
            self._named = self.entry, codec.encode(self.entry, self.host)
        return self.host, self._named[1]

    @property
    def origin(self) -> str:
        return origin_of(self.entry.url)


def origin_of(url: str) -> str:
    return "/".join(url.split("/")[:3])


@dataclass
class Origin:
    """`until_ms`: blocked; `dead_ms`: dead until; `since_ms`: of the first failure in a row; `waits`: its URLs wait, if they have no other
    spelling."""

    until_ms: int = 0
    failures: int = 0
    since_ms: int | None = None
    gap_ms: int = 0
    dead_ms: int = 0
    deaths: int = 0
    reason: str = ""
    struggling: bool = False
    waits: bool = False
    crawl_delay_ms: int = -1
    crawl_delay_since_ms: int = 0


@dataclass
class Host:
    """`next_ms`: next-allowed; `gap_ms`: after push-back; `dead_ms`: dead until; `share`: of refusals."""

    next_ms: int = 0
    latency_ms: int | None = None
    gap_ms: int = 0
    pages: int = 0
    share: int = 0
    refused_since_ms: int = 0
    refused_times: int = 0
    dead_ms: int = 0
    reason: str = ""
    had_pages: list[str] = field(default_factory=list)
    override: Override = field(default_factory=Override)
    origins: dict[str, Origin] = field(default_factory=dict)
    was_full: bool = False  # had more URLs than a back queue holds
    tainted: bool = False  # has entries in its queues that are not ours: each costs it a turn

    def of(self, url: Url) -> Origin:
        return self.origins.setdefault(url.origin, Origin())

    @property
    def concurrency(self) -> int:
        return self.override.concurrency or 1

    @property
    def paused_ms(self) -> int:
        return round((self.override.pause_until or 0) * 1000)


@dataclass
class Held:
    lease: Lease
    url: Url
    worker: int
    expires_ms: int
    score: int = 0


@dataclass
class Part:
    """A partition as the model has it. `kept`: its clock when it was last changed, which never goes back; `now`: at the last call."""

    kept: int = 0
    now: int = 0
    urls: list[Url] = field(default_factory=list)
    held: dict[str, Held] = field(default_factory=dict)
    merged: int = 0
    dead: int = 0


SPELLINGS = ("https://", "https://", "http://www.", "http://")
MODES = st.sampled_from(["once", "once", "once", "twice", "lost"])
WORKERS = st.integers(0, 1)
PARTS = st.integers(0, 1)
ITEMS = st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9), st.sampled_from([NORMAL, NORMAL, EXACT, UNCHECKED]))
NAMES = ["back:", "park:", "host:", "front:0", "front:5", "front:9", "ready", "asleep", "wait", "leases", "leased", "exact", "dead"]
NAMES += ["seen", "seen:0", "bloom", "bloom:0:0", "quarantine", "call:w0", "call:w1", "hosts:0", "hosts:1", "hosts:2"]
PLACES = ["back", "park", "front", "front", "wait", "wait:", "leases", "leased", "hosts"]
JUNK = ["junk", "a\tb", "h\t1x\t/", "", "\0\xff", "h9.org\t7\tnope", "9\t1\t/x\t\t"]
OUTCOMES = st.tuples(
    st.integers(0, 50),  # which lease
    st.sampled_from("dddxqlwroon"),
    st.sampled_from([None, 0, 0, 150, 5_000]),  # ms since the request ended
    st.sampled_from([None, 20, 100, 900, 8_000]),  # latency
    st.sampled_from(WAITS_MS),
    st.sampled_from([None, None, None, -1, 0, 1_500, 20_000, 100_000]),  # crawl-delay of a robots.txt that came along
    st.sampled_from([None, None, None, None, *TROUBLES]),
    st.sampled_from([None, None, None, None, *PUSHES]),
    st.sampled_from([None, None, PageSeen(), PageSeen(REFUSED), PageSeen(REFUSED)]),
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
        self.letters: list[list[tuple[str, str, Entry]]] = [[], []]  # dead, oldest first
        self.on_disk: set[str] = set()  # hosts with URLs there

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
        part, kept = self.parts[p], int(self.rig.sync.hget(self.rig.key("ctr", p), "now") or 0)
        assert part.kept <= kept <= self.rig.latest, "its clock went back, or ahead"
        part.kept, part.now = kept, max(kept, self.rig.t)  # an answer of nothing leaves no trace
        return part.now

    # rules ---------------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.tick(0)
        assert self.rig.run(self.rig.f.lease(0, 5)) == (None, [])

    @rule(worker=WORKERS, p=PARTS, items=st.lists(ITEMS, min_size=1, max_size=8), mode=MODES)
    def enqueue(self, worker: int, p: int, items: list[tuple[int, int, int, int]], mode: str) -> None:
        self.enqueue_some(worker, p, items, mode)

    def enqueue_some(self, worker: int, p: int, items: list[tuple[int, int, int, int]], mode: str) -> None:
        links = [link(self.names[p][h], f"/{u}", priority, how, SPELLINGS[u % 4]) for h, u, priority, how in items]
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
        # A call moves no more than so many out of the way, and wakes no more.
        is_crowded = sum(not self.is_free(self.hosts[u.host], u, now) for u in part.urls) >= MOVED_MOST
        is_crowded |= sum(u.place == "waiting" and u.due_ms <= now for u in part.urls) >= WOKEN_MOST
        _, leases = self.call(worker, mode, lambda f: f.lease(p, most, reclaim))
        dead = self.new_dead(p)
        if reclaim:
            expired = sorted((h.expires_ms, token) for token, h in part.held.items() if h.expires_ms <= now)
            for _, token in expired[:16]:
                self.reclaim(p, token, dead)
        for name, reason, entry in dead:
            host, url = self.hosts[name], self.find(p, name, entry, now)
            if host.dead_ms > now:
                assert reason == host.reason
            else:
                assert host.of(url).dead_ms > now
                assert host.of(url).reason == reason
                assert not self.has_other_spelling(host, url, now)
                assert not host.of(url).waits
            part.urls.remove(url)
        self.find_new_spellings(p, now)
        troubled = {got.host for got in leases if self.hosts[got.host].concurrency > 1}
        for got in leases:
            host = self.hosts[got.host]
            in_flight = sum(h.url.host == got.host for h in part.held.values())
            assert in_flight < host.concurrency, "too many leases of a host"
            assert host.dead_ms <= now
            assert host.paused_ms <= now + LOOK_MS
            url = self.find(p, got.host, got.entry, now)
            origin = host.of(url)
            assert origin.dead_ms <= now
            assert origin.until_ms <= now + LOOK_MS
            not_before = self.rig.server_ms(got.not_before)
            if mode != "lost" or got.host not in troubled:  # the answer is made anew, from a clock that has moved
                expected_ms = max(host.next_ms, host.paused_ms, origin.until_ms, now)
                assert not_before == self.rig.t + expected_ms - now, "not the time that the clocks say"
                assert host.next_ms <= now + LOOK_MS
            assert got.expires == self.rig.worker_s() + LEASE_MS / 1000
            assert got.origin_failures == origin.failures
            if origin.failures:
                assert got.trouble_s == (now - (origin.since_ms or 0)) / 1000
            else:
                assert got.trouble_s is None
            url.place = "leased"
            part.held[got.token] = Held(got, url, worker, now + LEASE_MS)
            if host.concurrency > 1:
                host.next_ms = max(host.next_ms, now) + self.delay_ms(host)
                if origin.failures:
                    origin.until_ms = now + LEASE_MS
        self.all_leases += leases
        self.redis_holds_what_the_model_holds()  # counts what was merged
        if most == 8 and self.active_hosts is None and not is_crowded:
            for name in self.names[p]:
                host = self.hosts[name]
                busy = sum(h.url.host == name for h in part.held.values()) > 0
                has = any(u.host == name and self.is_free(host, u, now) for u in part.urls)
                is_its_time = max(host.next_ms, host.paused_ms) <= now + LOOK_MS and host.dead_ms <= now
                due = has and not busy and is_its_time and name not in tainted | self.on_disk
                assert not due, f"{name} was passed over at {now}: {host} {self.about(name)}"
        return leases

    @staticmethod
    def is_free(host: Host, url: Url, now: int) -> bool:
        origin = host.of(url)
        is_here = url.place == "queued" or (url.place == "waiting" and url.due_ms <= now)
        return is_here and origin.dead_ms <= now and origin.until_ms <= now + LOOK_MS

    @staticmethod
    def other_spelling(url: Url, reason: str) -> Entry | None:
        entry = url.entry
        if entry.sibling or entry.hops or entry.request or reason not in ("dns_nxdomain", "tls", "connect_refused"):
            return None
        scheme, _, rest = entry.url.partition("://")
        if reason == "dns_nxdomain":
            other = f"{scheme}://{rest.removeprefix('www.') if rest.startswith('www.') else 'www.' + rest}"
        else:
            other = f"{'http' if scheme == 'https' else 'https'}://{rest}"
        return replace(entry, url=other, sibling=2)

    def has_other_spelling(self, host: Host, url: Url, now: int) -> bool:
        other = self.other_spelling(url, host.of(url).reason)
        return other is not None and host.origins.get(origin_of(other.url), Origin()).dead_ms <= now

    def find_new_spellings(self, p: int, now: int) -> None:
        """URLs of dead origins that the step gave their other spelling, or made wait."""
        part = self.parts[p]
        dump = {k: v for k, v in self.rig.dump().items() if k.startswith(self.rig.key("", p).encode())}
        prefix = len(self.rig.key("", p))
        queued, _ = self.read_queued(self.names[p], {k[prefix:].decode("latin-1"): v for k, v in dump.items()})
        leased = dump.get(self.rig.key("leased", p).encode(), {})
        for row in (self.row(v) for v in leased.values()) if isinstance(leased, dict) else ():
            if row:
                queued[row[0]] += 1
        rows = dump.get(self.rig.key("wait", p).encode(), [])
        waiting = Counter(x for x, _ in self.rows(rows))
        due = {tuple(row[0]): int(at) for text, at in rows if (row := self.row(text))} if waiting else {}
        merged = int(dump.get(self.rig.key("ctr", p).encode(), {}).get(b"merged", 0))
        for url in part.urls:
            host = self.hosts[url.host]
            origin = host.of(url)
            if url.place == "leased" or origin.dead_ms <= now or host.dead_ms > now:
                continue
            other = self.other_spelling(url, origin.reason)
            old = url.id
            if queued[old] + waiting[old] >= self.count(part, old, "queued") + self.count(part, old, "waiting"):
                continue
            if self.has_other_spelling(host, url, now) and other is not None:
                twin = (url.host, codec.encode(other, url.host))
                here = sum(self.count(part, twin, place) for place in ("queued", "waiting", "leased"))
                if queued[twin] + waiting[twin] > here or (merged > part.merged and queued[twin]):
                    url.entry, url.place, url.back_score = other, "queued", None
                    self.placed[twin[0], twin[1][3:]] += 1
        for url in part.urls:
            host = self.hosts[url.host]
            origin = host.of(url)
            gone = url.place != "leased" and queued[url.id] < self.count(part, url.id, "queued")
            if gone and origin.dead_ms > now and origin.waits and waiting[url.id] > self.count(part, url.id, "waiting"):
                url.place, url.due_ms = "waiting", origin.dead_ms
            if url.place == "waiting" and url.due_ms <= now and origin.waits and due.get(url.id) == origin.dead_ms:
                url.due_ms = origin.dead_ms  # woke, and waits again

    @rule(worker=WORKERS, p=PARTS, outcomes=st.lists(OUTCOMES, min_size=1, max_size=4), mode=MODES)
    def complete(self, worker: int, p: int, outcomes: list[tuple[Any, ...]], mode: str) -> None:
        leases = [x for x in self.all_leases if x.partition == p][-12:]
        if not leases:
            return
        part, now, rows, expected = self.parts[p], self.tick(p), [], ""
        used: set[str] = set()
        for which, way, ago, latency, wait, crawl_delay, failed, pushed_back, page in outcomes:
            live = [h.lease for h in part.held.values()]
            got = live[which % len(live)] if live and which < 42 else leases[which % len(leases)]
            if got.host in used:  # what the one before did to the queues is not known yet
                continue
            used.add(got.host)
            origin = origin_of(got.entry.url)
            robots = None if crawl_delay is None else KeptNow(origin, b"robots %d" % crawl_delay, 86_400_000, crawl_delay)
            if way == "o" and failed is None:
                failed = TROUBLES[which % len(TROUBLES)]
            arg: Any = {"x": "refused", "q": "entry", "r": [RETRIES, "failed"]}.get(way)
            if way == "n":
                arg = self.rig.sync.zrange(self.rig.key(f"back:{got.host}", p), 0, 1) if self.is_zset(f"back:{got.host}", p) else []
            ended = None if ago is None else self.rig.worker_s() - ago / 1000
            latency_s = None if latency is None else latency / 1000
            row = Outcome(got, way, ended, latency_s, wait / 1000, arg, robots, failed=failed, pushed_back=pushed_back, page=page)
            rows.append(row)
            expected += self.end(p, row, now, ago, latency, wait)
        letters = self.call(worker, mode, lambda f: f.complete(p, rows))
        assert letters == expected
        for host, _, entry in self.new_dead(p):
            part.urls.remove(self.find(p, host, entry, now, "dead"))
        assert not any(u.place == "dead" for u in part.urls)

    @rule(
        worker=WORKERS,
        p=PARTS,
        rounds=st.integers(2, 5),
        spelling=st.sampled_from(["https://", "http://www.", "http"]),
        trouble=st.sampled_from(TROUBLES),
        way=st.sampled_from("oor"),
        pause=st.sampled_from([1_000, 8_000, 30_000, 90_000]),
    )
    def an_outage(self, worker: int, p: int, rounds: int, spelling: str, trouble: OriginFailed, way: str, pause: int) -> None:
        """URLs of some spelling fail again and again while the others are fetched."""
        for n in range(rounds):
            self.enqueue_some(worker, p, [(n % 4, 100 + 4 * self.age + k, 5, NORMAL) for k in range(4)], "once")
            for got in self.lease_some(worker, p, 8, True, "once"):
                now, fails = self.tick(p), got.entry.url.startswith(spelling)
                ended = self.rig.worker_s()
                arg = [RETRIES, "failed"] if way == "r" else None
                row = Outcome(got, way, ended, None, 3.0, arg, failed=trouble) if fails else Outcome(got, "d", ended, 0.02)
                expected = self.end(p, row, now, 0, None if fails else 20, 3_000 if fails else 0)
                assert self.call(worker, "once", lambda f, row=row: f.complete(p, [row])) == expected
                for host, _, entry in self.new_dead(p):
                    self.parts[p].urls.remove(self.find(p, host, entry, now, "dead"))
            self.rig.later(pause)
            self.redis_holds_what_the_model_holds()

    def is_kind(self, name: str, p: int, kind: bytes) -> bool:
        return bool(self.rig.sync.type(self.rig.key(name, p)) == kind)

    def is_zset(self, name: str, p: int) -> bool:
        return self.is_kind(name, p, b"zset")

    def has_other_origin(self, p: int, name: str, origin: str) -> bool:
        """Among those that had pages, or the first URLs of the back queue."""
        if set(self.hosts[name].had_pages) - {origin}:
            return True
        if not self.is_zset(f"back:{name}", p):
            return False
        first = self.rig.sync.zrange(self.rig.key(f"back:{name}", p), 0, VISIBLE - 1)
        return any(self.is_ours(x, name) and origin_of(codec.decode(x, name).url) != origin for x in first)

    def origin_failed(self, p: int, name: str, origin_name: str, how: OriginFailed, now: int) -> int:
        """ms that the host rests; 0: the origin is blocked or dead."""
        origin = self.hosts[name].origins.setdefault(origin_name, Origin())
        origin.failures += 1
        origin.since_ms = now if origin.since_ms is None else origin.since_ms
        origin.reason, origin.struggling = how.reason, how.struggling
        origin.gap_ms = int(min(how.most_s * 1000, max(how.gap_s * 1000, origin.gap_ms * 2)))
        rest_ms = max(round(how.retry_after_s * 1000), math.floor(origin.gap_ms * how.jitter))
        most_ms = None if how.give_up_s is None else how.give_up_s * 1000
        given_up = most_ms is not None and max(now - origin.since_ms, round(how.retry_after_s * 1000)) >= most_ms
        if given_up or (how.dead_after and origin.failures >= how.dead_after):
            origin.waits = how.urls_wait and not given_up
            origin.dead_ms = now + max(rest_ms, min(round(how.dead_s * 1000) * 2**origin.deaths, DEAD_MOST_MS))
            origin.deaths += 1
            origin.until_ms = 0
            return 0
        if origin.failures <= SOFT_FAILURES and rest_ms <= SOFT_REST_MS and not self.has_other_origin(p, name, origin_name):
            origin.until_ms = 0
            return rest_ms
        origin.until_ms = now + rest_ms
        return 0

    @staticmethod
    def origin_answered(origin: Origin, now: int) -> int:
        blocked = origin.until_ms > 0
        gap_ms = origin.gap_ms // 2 if origin.struggling else 0
        gap_ms = gap_ms if gap_ms >= MIN_MS else 0
        until_ms = now + gap_ms if blocked and gap_ms else 0
        origin.failures, origin.since_ms, origin.dead_ms, origin.deaths = 0, None, 0, 0
        origin.gap_ms, origin.until_ms = gap_ms, until_ms
        return 0 if blocked else gap_ms

    def refused_ms(self, host: Host, page: PageSeen, now: int) -> int:
        refused = page.rest
        if refused is None and host.pages >= PAGES_BEFORE and host.share == 0:
            return 0
        host.share = math.floor(host.share * 0.9) + (100_000 if refused else 0)
        if refused is None:
            host.pages, host.refused_since_ms, host.refused_times = min(host.pages + 1, PAGES_BEFORE), 0, 0
            host.share = 0 if host.share < 1_000 else host.share
        elif host.pages >= PAGES_BEFORE and host.share >= REFUSALS:
            host.refused_since_ms = host.refused_since_ms or now
            rest_ms = min(round(refused.first_s * 1000) * 2 ** min(host.refused_times, 8), round(refused.most_s * 1000))
            host.refused_times += 1
            if refused.give_up_s is not None and now - host.refused_since_ms >= refused.give_up_s * 1000:
                host.dead_ms, host.reason = now + round(refused.dead_s * 1000), "blocked"
            return rest_ms
        return 0

    def end(self, p: int, o: Outcome, now: int, ago: int | None, latency: int | None, wait: int) -> str:
        part, got, way = self.parts[p], o.lease, o.way
        host = self.hosts[got.host]
        if o.robots is not None:
            self.robots[o.robots[0]] = o.robots[1]
            origin = host.origins.setdefault(o.robots[0], Origin())
            if o.robots[3] >= 0 or origin.crawl_delay_ms >= 0:
                origin.crawl_delay_ms, origin.crawl_delay_since_ms = o.robots[3], now
                for other in host.origins.values():
                    if other.crawl_delay_since_ms + 30 * 86_400_000 < now:
                        other.crawl_delay_ms = -1
        if latency is not None:
            old = host.latency_ms
            host.latency_ms = latency if old is None else math.floor((3 * old + latency) / 4 + 0.5)
        held = part.held.pop(got.token, None)
        rest_ms = gap_ms = 0
        name = o.robots[0] if o.robots else held.url.origin if held else ""
        if o.failed and name:
            rest_ms = self.origin_failed(p, got.host, name, o.failed, now)
        elif ago is not None and not o.pushed_back and name in host.origins:
            gap_ms = self.origin_answered(host.origins[name], now)
        if o.pushed_back:
            push = o.pushed_back
            host.gap_ms = int(min(push.most_s * 1000, max(push.gap_s * 1000, host.gap_ms * 2)))
            push_ms = max(round(push.retry_after_s * 1000), math.floor(host.gap_ms * push.jitter))
            if push.give_up_s is not None and push.retry_after_s > push.give_up_s:
                host.dead_ms, host.reason = now + push_ms, push.reason
            else:
                rest_ms = max(rest_ms, push_ms)
        elif host.gap_ms and ago is not None and not o.failed:
            gap_ms = max(gap_ms, host.gap_ms // 2)
            host.gap_ms = host.gap_ms // 2 if host.gap_ms // 2 >= MIN_MS else 0
        if ago is not None:
            if host.concurrency == 1:
                delay_ms = max(self.delay_ms(host), gap_ms)
                host.next_ms = max(host.next_ms, now - max(0, ago - GUARD_MS) + delay_ms)
            if not o.failed and not o.pushed_back:
                host.dead_ms = 0
        if o.page is not None and o.page.rest is None and name and name not in host.had_pages:
            host.had_pages.append(name)
        if o.page is not None:
            rest_ms = max(rest_ms, self.refused_ms(host, o.page, now))
        if not held:
            if rest_ms:
                host.next_ms = max(host.next_ms, now + rest_ms)
            return "g"
        url = held.url
        if way in "dqn":
            part.urls.remove(url)
            for data in o.arg if way == "n" else ():
                gone = [u for u in part.urls if u.id == (got.host, data) and u.place == "queued"]
                gone += [u for u in part.urls if u.id == (got.host, data) and u.place == "waiting" and u.due_ms <= now]
                part.urls.remove(gone[-1])
        elif way == "x":
            url.place = "dead"
        elif way in "wr":
            if way == "r":
                url.entry = replace(url.entry, failures=url.entry.failures + 1)
            url.place, url.due_ms = ("dead", 0) if way == "r" and url.entry.failures >= RETRIES else ("waiting", now + wait)
        else:
            url.place = "queued"
            if way == "o" and rest_ms == 0:
                url.back_score = None
            if way == "l":
                rest_ms = max(rest_ms, wait)
        if rest_ms:
            host.next_ms = max(host.next_ms, now + rest_ms)
        return "x" if url.place == "dead" else "k"

    @rule(worker=WORKERS, p=PARTS, h=st.integers(0, 3), which=st.integers(0, len(OVERRIDES)), mode=MODES)
    def override(self, worker: int, p: int, h: int, which: int, mode: str) -> None:
        now = self.tick(p)
        name = self.names[p][h]
        wanted = OVERRIDES[which] if which < len(OVERRIDES) else Override(pause_until=(now + 20_000) / 1000)
        self.call(worker, mode, lambda f: f.override(name, wanted))
        self.hosts[name].override = wanted or Override()

    @rule(worker=WORKERS, p=PARTS, h=st.integers(0, 3), reason=st.sampled_from(["", "", "tls", "failed"]), mode=MODES)
    def requeue(self, worker: int, p: int, h: int, reason: str, mode: str) -> None:
        name = self.names[p][h]
        if not self.is_kind("dead", p, b"list"):
            return
        self.tick(p)
        moved = self.call(worker, mode, lambda f: f.requeue(reason, name))
        chosen = [x for x in self.letters[p] if x[0] == name and (not reason or x[1] == reason)]
        assert moved == len(chosen)
        self.letters[p] = [x for x in self.letters[p] if x not in chosen]
        self.parts[p].dead -= moved
        host = self.hosts[name]
        was_dead = bool(chosen) and host.dead_ms > 0
        for _, _, entry in chosen:
            host.dead_ms = 0
            self.age += 1
            url = Url(name, replace(entry, failures=0, expiries=0), self.age)
            self.parts[p].urls.append(url)
            self.placed[name, url.id[1][3:]] += 1
            old = host.of(url)
            host.origins[url.origin] = Origin(crawl_delay_ms=old.crawl_delay_ms, crawl_delay_since_ms=old.crawl_delay_since_ms)
        if was_dead:
            host.pages = host.share = host.refused_since_ms = host.refused_times = 0

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
        if args[1] == self.rig_digest("lease") and int(self.rig.sync.hget(f"{args[3][:-3]}call:{args[4]}", "l") or 0) <= args[5]:
            return  # the later ones got nothing, and left no trace
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
        elif name.startswith(("ready", "asleep", "wait", "leases", "back:", "leased", "host:", "hosts:", "bloom", "seen", "call:")):
            self.rig.sync.rpush(key, mark)
        else:
            self.rig.sync.hset(key, "field", mark)

    @rule(p=PARTS, h=st.integers(0, 3), where=st.sampled_from(PLACES), what=st.sampled_from(JUNK))
    def an_entry_that_is_not_ours(self, p: int, h: int, where: str, what: str) -> None:
        host = self.names[p][h]
        sync, key = self.rig.sync, self.rig.key
        junk = what.encode("latin-1")
        kinds = {
            "back": b"zset",
            "park": b"list",
            "front": b"list",
            "wait": b"zset",
            "wait:": b"list",
            "leases": b"zset",
            "leased": b"hash",
            "hosts": b"hash",
        }
        kind = kinds[where]
        names = {
            "back": f"back:{host}",
            "park": f"park:{host}",
            "front": "front:3",
            "wait:": f"wait:{host} http://{host}",
            "hosts": "hosts:0",
        }
        name = key(names.get(where, where), p)
        if sync.type(name) not in (b"none", kind):
            return
        if where == "back":
            sync.zadd(name, {junk: 3 * 2**48 + 5})
        elif where in ("park", "front", "wait:"):
            sync.lpush(name, junk)
        elif where == "wait":
            sync.zadd(name, {junk: self.rig.t + 1_000})
        elif where == "hosts":
            sync.hset(name, "junk.org", junk)
        elif sync.type(key("leases", p)) in (b"none", b"zset") and sync.type(key("leased", p)) in (b"none", b"hash"):
            sync.zadd(key("leases", p), {b"x:" + junk: self.rig.t + 1_000})
            if where == "leased":
                sync.hset(name, b"x:" + junk, junk)

    # the model -----------------------------------------------------------------------------------------------------

    def delay_ms(self, host: Host) -> int:
        override = host.override
        if override.delay_s is not None:
            return max(round(override.delay_s * 1000), 0 if override.below_minimum else MIN_MS)
        crawl_delay_ms = max((origin.crawl_delay_ms for origin in host.origins.values()), default=0)
        return max(MIN_MS, crawl_delay_ms, min(FACTOR * (host.latency_ms or 0), CAP_MS))

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
        found = [(host.decode(), reason.decode(), codec.decode(data, host.decode())) for _, host, reason, data in parts]
        self.letters[p] += found
        return found

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
            for name in self.names[p]:
                assert len([h for h in part.held.values() if h.url.host == name]) <= max(3, self.hosts[name].concurrency)
            assert {t: self.row(v)[0] for t, v in real_held.items() if self.row(v)} == {
                t.encode(): h.url.id for t, h in part.held.items()
            }, "leased"
            waiting = Counter(u.id for u in part.urls if u.place == "waiting")
            for u in part.urls:  # a wait that is over may have ended
                if u.place == "waiting" and u.due_ms <= part.now and real_wait[u.id] < waiting[u.id]:
                    u.place = "queued"
                    waiting[u.id] -= 1
            waiting = +waiting
            assert real_wait == waiting, "wait"
            due = {tuple(row[0]): int(at) for text, at in mine.get("wait", ()) if (row := self.row(text))} if real_wait else {}
            for u in part.urls:
                assert u.place != "waiting" or waiting[u.id] > 1 or due[u.id] == u.due_ms, (u, due[u.id])
            merged = int(mine.get("ctr", {}).get(b"merged", 0))
            for ident in {u.id for u in part.urls if u.place == "queued"}:
                twins = self.placed[ident[0], ident[1][3:]] > 1
                while twins and merged > part.merged and self.count(part, ident, "queued") > queued[ident]:
                    part.merged += 1
                    newest = max((u for u in part.urls if u.id == ident and u.place == "queued"), key=lambda u: u.age)
                    part.urls.remove(newest)
            assert merged == part.merged, (merged, part.merged, queued, [(u.id, u.place) for u in part.urls], self.placed)
            assert queued == Counter(u.id for u in part.urls if u.place == "queued"), "queued"
            self.check_backs(part, backs, mine)
        marks = {mark for value in dump.values() for mark in self.marks(value)}
        assert self.planted <= marks, "a key of somebody else is gone"

    @invariant()
    def redis_knows_the_trouble_that_the_model_knows(self) -> None:
        for p, names in enumerate(self.names):
            for name in names:
                packed = self.rig.fields(name, p).get(b"b")
                rows = msgpack.unpackb(packed) if packed else {}
                found = {origin: (row.get("f", 0), row.get("s"), row.get("g", 0), row.get("u", 0)) for origin, row in rows.items() if row}
                model = {
                    origin: (o.failures, o.since_ms, o.gap_ms, o.until_ms)
                    for origin, o in self.hosts[name].origins.items()
                    if o.failures or o.gap_ms or (origin in found and found[origin] == (0, None, 0, 0))
                }
                assert found == model, name

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
        tainted, blocked = set(), set[tuple[str, bytes, int]]()
        for name, value in mine.items():
            kind, _, rest = name.partition(":")
            if not isinstance(value, list):
                continue
            if kind == "back" and isinstance(value[0], tuple):
                backs[rest] = [(e, score) for e, score in value if self.is_ours(e, rest)]
                queued.update((rest, e) for e, _ in backs[rest])
                tainted |= {rest} if len(backs[rest]) < len(value) else set()
            elif kind == "park" and not isinstance(value[0], tuple):
                rest = rest.removesuffix(":tail").removesuffix(":chunks")
                ours = [(rest, e) for e in self.entries_of(name, value, mine) if self.is_ours(e, rest)]
                queued.update(ours)
                tainted |= {rest} if len(ours) < len(value) else set()
            elif kind == "wait" and not isinstance(value[0], tuple):
                name = rest.partition(" ")[0]
                ours = [(name, e) for e in (x.partition(b"\t")[2] for x in value) if self.is_ours(e, name)]
                queued.update(ours)
                blocked.update(
                    (name, e, int(n)) for n, _, e in (x.partition(b"\t") for x in value) if n.isdigit() and self.is_ours(e, name)
                )
                tainted |= {name} if len(ours) < len(value) else set()
            elif kind == "front":
                queued.update(row[0] for token in self.entries_of(name, value, mine) if (row := self.row(token)))
        self.blocked_scores = {(name, data): score for name, data, score in blocked}
        for name in hosts:
            self.hosts[name].tainted = name in tainted
        return queued, backs

    def entries_of(self, name: str, value: list[bytes], mine: dict[str, Any]) -> list[bytes]:  # noqa: ARG002
        return value

    def check_backs(self, part: Part, backs: dict[str, list[tuple[bytes, float]]], mine: dict[str, Any]) -> None:
        urls_of = Counter(u.host for u in part.urls)
        queued = Counter(u.id for u in part.urls if u.place == "queued")
        ages_of: dict[tuple[str, bytes], list[int]] = {}
        for u in part.urls:
            ages_of.setdefault(u.id, []).append(u.age)
        for host, members in backs.items():
            assert len(members) <= self.constants.get("BACK_CAP", 64)
            order = [(codec.decode(e, host).priority, e) for e, _ in members]
            assert [k for k, _ in order] == sorted(k for k, _ in order)
            # What was parked for want of room comes back as if it were new, behind what returns from a lease meanwhile.
            self.hosts[host].was_full |= urls_of[host] > 64
            if not self.constants and not self.hosts[host].was_full:
                ages = {e: ages_of[host, e] for _, e in order}
                # Of two placements of one URL it is not known which is which.
                clear = [(k, ages[e][0]) for k, e in order if len(ages[e]) == 1 and self.placed[host, e[3:]] == 1]
                assert clear == sorted(clear), "not in order of priority, then age"
        scores = {(host, e): score for host, members in backs.items() for e, score in members}
        for held in part.held.values():
            text = mine["leased"][held.lease.token.encode()]
            held.score = self.row(text)[1]
            held.url.back_score = held.score
        for u in part.urls:
            is_clear = not self.constants and not self.hosts[u.host].was_full and queued[u.id] == 1
            if u.place == "queued" and u.back_score is not None and is_clear:
                score = scores.get(u.id, self.blocked_scores.get(u.id))
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
            self.see_to_all()
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

    def see_to_all(self) -> None:
        pass

    def complete_one(self, p: int, got: Lease) -> None:
        outcome = Outcome(got, "d")
        expected = self.end(p, outcome, self.tick(p), None, None, 0)
        assert self.rig.run(self.rig.f.complete(p, [outcome])) == expected


class NarrowFrontierModel(FrontierModel):
    """The same with queues of four, turns of three URLs and two active hosts a partition, so that hosts wait and URLs are parked; with
    buckets of one host."""

    constants: ClassVar[dict[str, int]] = {"BACK_CAP": 4, "QUANTUM_URLS": 3, "BUCKET_HOSTS": 1, "HOSTS_A_SPLIT": 1, "SWEPT_EVERY": 3}
    active_hosts: ClassVar[int | None] = 2


class Chunks:
    """A store of chunks in memory."""

    def __init__(self) -> None:
        self.files: dict[tuple[int, str], tuple[str, list[bytes]]] = {}

    def write(self, partition: int, chunk: str, queue: str, entries: list[bytes]) -> int:
        self.files[partition, chunk] = queue, list(entries)
        return len(entries)

    def read(self, partition: int, chunk: str, queue: str) -> list[bytes]:
        owner, entries = self.files[partition, chunk]
        assert owner == queue
        return entries

    def delete(self, partition: int, chunk: str) -> None:
        del self.files[partition, chunk]


class ColdFrontierModel(FrontierModel):
    """The same with back queues of four and all but the ends of longer queues on disk, in chunks of two."""

    constants: ClassVar[dict[str, int]] = {"BACK_CAP": 4, "LONG": 6}

    def __init__(self) -> None:
        super().__init__()
        self.store = Chunks()
        self.wanted: list[Any] = []

        def spill(frontier: Any) -> Spill:
            frontier._unix_offset_s = -WORKER_AHEAD_S
            return Spill(frontier, self.store, chunk_entries=2, count=lambda *_: None, run=self.wanted.append)  # type: ignore[arg-type]

        self.spills = [spill(frontier) for frontier in self.rig.frontiers]

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.forget_wanted()

    def forget_wanted(self) -> None:
        while self.wanted:
            self.wanted.pop().close()
        for spill in self.spills:
            spill._busy.clear()

    @rule(worker=WORKERS, p=PARTS, which=st.integers(0, 5), mode=MODES)
    def a_worker_sees_to_a_queue(self, worker: int, p: int, which: int, mode: str) -> None:
        chores = self.rig.sync.zrange(self.rig.key("chores"), 0, -1) if self.is_zset("chores", p) else []
        queues = [q.decode() for q in chores] or [f"park:{name}" for name in self.names[p]]
        self.see_to(worker, p, queues[which % len(queues)], mode)

    def see_to(self, worker: int, p: int, queue: str, mode: str) -> None:
        wire = self.rig.wires[worker]
        wire.lose_next, sent = mode == "lost", len(wire.sent)
        self.rig.run(self.spills[worker].balance(p, queue))
        wire.lose_next = False
        if len(wire.sent) > sent:
            self.tick(p)
        self.late += [args for args in wire.sent[sent:] if args not in self.late]
        if mode == "twice" and len(wire.sent) > sent:
            args = wire.sent[-1]
            before = self.rig.dump()
            self.rig.run(self.rig.client.execute_command(*args))
            assert self.rig.dump() == before

    @rule(worker=WORKERS)
    def a_worker_dies_with_what_it_was_asked(self, worker: int) -> None:  # noqa: ARG002
        self.forget_wanted()

    def see_to_all(self) -> None:
        self.forget_wanted()
        for p in range(2):
            chores = self.rig.sync.zrange(self.rig.key("chores", p), 0, -1) if self.is_zset("chores", p) else []
            for queue in chores:
                self.see_to(0, p, queue.decode(errors="replace"), "once")

    def read_queued(self, hosts: list[str], mine: dict[str, Any]) -> Any:
        self.on_disk -= set(hosts)
        return super().read_queued(hosts, mine)

    def entries_of(self, name: str, value: list[bytes], mine: dict[str, Any]) -> list[bytes]:
        """Of a list of chunks, what is left in them."""
        if not name.endswith(":chunks"):
            return value
        found = []
        queue = name.removesuffix(":chunks")
        for chunk in value:
            _, taken, _, _ = mine["cold"][chunk].split(b"\t")
            (entries,) = (entries for (_, c), (q, entries) in self.store.files.items() if c == chunk.decode() and q == queue)
            found += entries[int(taken) :]
        if queue.startswith("park:"):
            self.on_disk.add(queue.removeprefix("park:"))
        else:
            self.on_disk |= {row[0][0] for token in found if (row := self.row(token))}
        return found


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


MACHINES = [FrontierModel, NarrowFrontierModel, ColdFrontierModel]


@pytest.mark.parametrize("machine", MACHINES)
def test_any_order_of_steps_keeps_the_promises(machine: type[FrontierModel], redis_url: str) -> None:
    run(machine, redis_url, 25, 50)


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="MODEL_LONG=1 runs it")
@pytest.mark.parametrize("machine", MACHINES)
def test_any_order_of_many_steps_keeps_the_promises(machine: type[FrontierModel], redis_url: str) -> None:
    run(machine, redis_url, int(os.environ.get("MODEL_EXAMPLES", "500")), 80)


def test_a_step_without_an_answer_is_an_error_on_closing(redis_url: str) -> None:
    rig = Rig(redis_url)
    rig.f.closing = True
    rig.wires[0].lose_next = True
    with pytest.raises(FrontierError):
        rig.lease()
    rig.close()
