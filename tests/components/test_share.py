"""Several workers on one real frontier: who polls what, what a join, a leave and a death change, and the end, which is of the whole."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from crawlweb import end, poller, share
from crawlweb.errors import FrontierError
from crawlweb.frontier import members
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.keys import partition_of
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import NORMAL, Limits, Link, Outcome
from crawlweb.job import Job
from crawlweb.policy.canonical import url_key
from crawlweb.policy.owners import assign
from crawlweb.policy.robots import Answer, Rules
from crawlweb.records import Entry, boottime
from crawlweb.worker import Worker

PARTITIONS = 32  # so that not all workers poll all
DELAY_S = 0.15
RULES = Rules(Answer("allow"))
pytestmark = pytest.mark.parametrize("redis_server", ["default"], indirect=True)  # the scripts: tests/frontier/test_members.py


async def until(state: Callable[[], object], seconds: float = 40) -> None:
    """Looks again and again; a state that does not come is a failure, not a wait."""
    deadline = boottime() + seconds
    while not state():
        assert boottime() < deadline, "this state never came"
        await asyncio.sleep(0.002)


class Web:
    """What the hosts see of all workers. A page has the next one as its link, up to `pages` a host."""

    def __init__(self, hosts: int, pages: int) -> None:
        self.hosts, self.pages = [f"h{n}.org" for n in range(hosts)], pages
        self.rng = random.Random(1)
        self.fetched: Counter[str] = Counter()  # by URL
        self.by: Counter[str] = Counter()  # by worker
        self.least_gap_s = 1e9
        self.overlaps = 0
        self._ended: dict[str, float] = {}
        self._busy: set[str] = set()

    @property
    def is_done(self) -> bool:
        return len(self.fetched) == len(self.hosts) * self.pages

    def link(self, host: str, n: int = 0) -> Link:
        url = f"https://{host}/{n}"
        return Link(host, url_key(url), Entry(url, 5), NORMAL)

    async def fetch(self, worker: str, job: Job) -> tuple[float, list[Link]]:
        host, url = job.lease.host, job.lease.entry.url
        self.overlaps += host in self._busy
        self.least_gap_s = min(self.least_gap_s, boottime() - self._ended.get(host, -1e9))
        self._busy.add(host)
        try:
            await asyncio.sleep(self.rng.uniform(0.005, 0.02))
        finally:
            ended = self._ended[host] = boottime()
            self._busy.discard(host)
        self.fetched[url] += 1
        self.by[worker] += 1
        n = int(url.rpartition("/")[2]) + 1
        return ended, [self.link(host, n)] if n < self.pages else []

    def check(self) -> None:
        assert self.is_done
        assert self.overlaps == 0
        assert self.least_gap_s >= DELAY_S


class Hand:
    """A worker and what fetches for it; `stuck`: fetches do not end."""

    names = (f"w{n}" for n in itertools.count())

    def __init__(self, url: str, web: Web, **options: Any) -> None:
        self.web, self.name, self.stuck = web, next(Hand.names), False
        self.client = Redis.from_url(url)
        limits = Limits(min_delay_s=DELAY_S, latency_factor=0, expected_urls=4096, lease_s=30.0)
        self.frontier = Frontier(self.client, "t", PARTITIONS, self.name, limits)
        self.meta = Meta(self.frontier)
        self.ended: list[str] = []
        self.leased = 0
        self.counted = 0
        self._count_all = self.frontier.counts
        self.frontier.counts = self._counts  # type: ignore[method-assign]
        self.worker = Worker(
            self.frontier,
            self.meta,
            **{
                "capacity": 50,
                "fetch_s": 5.0,
                "once": True,
                "max_pages": None,
                "seen_cache_keys": 1000,
                "wake": lambda: None,
                "ended": self.ended.append,
                "count": lambda *_: None,
                "url_key": url_key,
                **options,
            },
        )
        for host in web.hosts:
            self.worker.rulebook.learn(f"https://{host}", RULES)
        self.worker.start()
        self._fetches: set[asyncio.Task[None]] = set()
        self._loop = asyncio.ensure_future(self._fetch_forever())

    async def _counts(self) -> Any:
        self.counted += 1
        return await self._count_all()

    async def _fetch_forever(self) -> None:
        while True:
            while (job := self.worker.next_job()) is not None:
                self.leased += 1
                task = asyncio.ensure_future(self._fetch(job))
                self._fetches.add(task)
                task.add_done_callback(self._fetches.discard)
            await asyncio.sleep(0.005)

    async def _fetch(self, job: Job) -> None:
        ended, links = await self.web.fetch(self.name, job)
        await until(lambda: not self.stuck)
        self.worker.outbox.add_links(links, job.ticket)
        counts = self.worker.limit is None or await self.worker.limit.counts(job.lease)
        self.worker.finish(job, Outcome(job.lease, "d" if counts else "l", ended, 0.01))

    @property
    def polled(self) -> set[int]:
        return set(self.worker._rota._pollers)

    async def leave(self) -> None:
        self.worker.stop()
        while self._fetches:
            await asyncio.wait(self._fetches)
        await self.worker.close()
        self._loop.cancel()
        await self.client.aclose()

    async def die(self) -> None:
        self.worker.closing = self.frontier.closing = True
        tasks = [*self.worker._tasks.alive, self._loop, *self._fetches]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=5)
        await self.client.aclose()


def divided(*hands: Hand) -> bool:
    """Does each poll what is its share among these?"""
    of = assign([hand.name for hand in hands], PARTITIONS)
    return all(hand.polled == {p for p, some in enumerate(of) if hand.name in some} for hand in hands)


def run(url: str, work: Callable[[Callable[..., Hand], Web], Awaitable[None]], hosts: int = 40, pages: int = 3) -> None:
    async def main() -> None:
        web = Web(hosts, pages)
        hands: list[Hand] = []

        def hand(**options: Any) -> Hand:
            hands.append(Hand(url, web, **options))
            return hands[-1]

        try:
            await asyncio.wait_for(work(hand, web), 90)
        finally:
            for one in hands:
                one.stuck = False
                if not one.worker.closing:
                    await one.leave()

    asyncio.run(main())


async def seed(hand: Hand, hosts: list[str]) -> None:
    """Past the worker's buffers."""
    for host in hosts:
        await hand.frontier.enqueue(partition_of(host, PARTITIONS), [hand.web.link(host)])


async def gone(hand: Hand, by: Hand) -> None:
    """`hand`, which died, beat for the last time long ago."""
    await by.client.zadd("{t}:workers", {hand.name: 1})


async def run_out(hand: Hand, by: Hand) -> int:
    """The leases of `hand`, which died, expire: how many, with those whose answer it did not live to see."""
    lost = 0
    for p in range(PARTITIONS):
        tokens = [
            token for token in await by.client.zrange(by.frontier.key(p, "leases"), 0, -1) if token.startswith(f"{hand.name}:".encode())
        ]
        for token in tokens:
            await by.client.zadd(by.frontier.key(p, "leases"), {token: 1}, xx=True)
        by.worker.ask(p)
        lost += len(tokens)
    return lost


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "BEAT_S", 0.1)
    monkeypatch.setattr(members, "DEAD_S", 20.0)  # whatever the machine does meanwhile
    monkeypatch.setattr(poller, "POLL_MAX_S", 0.2)
    monkeypatch.setattr(end, "PASS_S", 0.1)


# -- shares ----------------------------------------------------------------------------------------------------------------


def test_workers_that_come_go_and_die_share_the_work_and_spare_the_hosts(redis_url: str) -> None:
    async def work(hand: Callable[..., Hand], web: Web) -> None:
        one = hand(once=False)
        await until(lambda: len(one.polled) == PARTITIONS)
        await seed(one, web.hosts)
        two, three, four = hand(once=False), hand(once=False), hand(once=False)
        await until(lambda: divided(one, two, three, four))
        await until(lambda: min(web.by[each.name] for each in (one, two, three, four)))
        await two.leave()
        await until(lambda: divided(one, three, four))
        assert two.worker.in_hand == {}
        await three.die()
        await gone(three, one)
        await until(lambda: divided(one, four))
        lost = await run_out(three, one)
        five = hand(once=False)
        await until(lambda: divided(one, four, five))
        await until(lambda: web.by[five.name] and web.is_done)
        web.check()
        assert max(web.fetched.values()) <= 2
        assert sum(n - 1 for n in web.fetched.values()) <= lost

    run(redis_url, work, pages=20)


def test_a_worker_that_joins_leases_after_the_others_heard_of_it(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(hand: Callable[..., Hand], web: Web) -> None:
        one = hand(once=False)
        await until(lambda: len(one.polled) == PARTITIONS)
        monkeypatch.setattr(share, "BEAT_S", 1000.0)
        late = hand(once=False)
        await until(lambda: late.polled)
        await seed(one, web.hosts)
        await until(lambda: web.is_done)
        assert web.by[late.name] == 0
        one.worker._share._early.set()
        await until(lambda: divided(one, late))

    run(redis_url, work)


def test_a_worker_alone_begins_at_once(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "BEAT_S", 1000.0)

    async def work(hand: Callable[..., Hand], web: Web) -> None:
        one = hand(once=False)
        await until(lambda: len(one.polled) == PARTITIONS)
        await seed(one, web.hosts)
        await until(lambda: len(web.fetched) >= len(web.hosts))

    run(redis_url, work)


def test_leases_in_hand_stay_when_a_partition_is_given_up(redis_url: str) -> None:
    async def work(hand: Callable[..., Hand], web: Web) -> None:
        one = hand(once=False)
        one.stuck = True
        await seed(one, web.hosts)
        await until(lambda: len(one.worker.in_hand) == len(web.hosts))
        two, three, four = hand(once=False), hand(once=False), hand(once=False)
        await until(lambda: divided(one, two, three, four))
        held = {lease.partition for lease in one.worker.in_hand.values()}
        assert held - one.polled
        one.stuck = False
        await until(lambda: web.is_done)
        web.check()
        assert max(web.fetched.values()) == 1

    run(redis_url, work)


@pytest.mark.parametrize("before", [True, False])
def test_a_worker_whose_beats_fail_keeps_what_it_had_or_takes_all(
    redis_url: str, before: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails: set[str] = set()
    beat = members.Members.beat

    async def maybe(self: members.Members, *args: Any) -> members.Roll:
        if self._frontier.worker in fails:
            raise FrontierError("WRONGTYPE")
        return await beat(self, *args)

    monkeypatch.setattr(members.Members, "beat", maybe)

    async def work(hand: Callable[..., Hand], web: Web) -> None:
        one = hand(once=False)
        two = hand(once=False)
        if before:
            await until(lambda: divided(one, two))
        fails.add(two.name)
        await until(lambda: "does not tell who else" in caplog.text)
        await until(lambda: two.polled)
        assert before or len(two.polled) == PARTITIONS
        await seed(one, web.hosts)
        await until(lambda: web.is_done)
        web.check()

    run(redis_url, work)
    assert caplog.text.count("does not tell who else") == 1


# -- the end ---------------------------------------------------------------------------------------------------------------


def test_all_workers_end_together_and_one_of_them_counts(redis_url: str) -> None:
    async def work(hand: Callable[..., Hand], web: Web) -> None:
        hands = [hand() for _ in range(4)]
        await hands[0].meta.say_seeding(True)
        await until(lambda: divided(*hands))
        await seed(hands[0], web.hosts)
        await until(lambda: web.fetched)
        before = [each.counted for each in hands]  # while they did not know of each other
        await hands[0].meta.say_seeding(False)
        await until(lambda: all(each.ended for each in hands))
        web.check()
        assert {why for each in hands for why in each.ended} == {"drained"}
        assert sum(each.counted > n for each, n in zip(hands, before, strict=True)) == 1

    run(redis_url, work)


def test_nobody_ends_while_another_has_a_lease_or_died_with_one(redis_url: str) -> None:
    async def work(hand: Callable[..., Hand], web: Web) -> None:
        one, two = hand(), hand()
        await until(lambda: divided(one, two))
        two.stuck, one.worker._poller.capacity = True, 0
        await seed(one, web.hosts)
        await until(lambda: two.worker.in_hand)
        one.worker._poller.capacity = 50
        await until(lambda: len(web.fetched) >= len(web.hosts) and not one.worker.busy)
        assert one.ended == []
        await two.die()
        await gone(two, one)
        await until(lambda: divided(one))
        counted = one.counted
        await until(lambda: not one.worker.busy)
        assert one.ended == []
        await run_out(two, one)
        await until(lambda: one.ended)
        assert web.is_done
        assert one.counted >= counted + 2

    run(redis_url, work)


def test_a_worker_that_starts_on_a_finished_crawl_says_so_and_ends(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def work(hand: Callable[..., Hand], web: Web) -> None:
        one = hand()
        await seed(one, web.hosts)
        await until(lambda: one.ended)
        assert "is finished" not in caplog.text
        late, later = hand(), hand()  # `one` is there still
        await until(lambda: late.ended and later.ended)
        assert late.ended == later.ended == ["drained"]
        assert caplog.text.count("crawl t is finished: its 120 URLs are done") == 2

    run(redis_url, work)


def test_workers_that_wait_for_seeds_join_in_when_one_brings_them(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def work(hand: Callable[..., Hand], web: Web) -> None:
        early = [hand(), hand()]
        await until(lambda: caplog.text.count("waiting for seeds") == 2)
        late = hand()
        late.worker.seeding += 1
        await late.meta.say_seeding(True)
        late.worker.run(late.worker.seed([[web.link(host) for host in web.hosts]]))
        hands = [*early, late]
        await until(lambda: all(each.leased for each in early))
        await until(lambda: all(each.ended for each in hands))
        web.check()
        assert {why for each in hands for why in each.ended} == {"drained"}

    run(redis_url, work, pages=12)


def test_nobody_waits_for_seeds_forever(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(hand: Callable[..., Hand], _: Web) -> None:
        hands = [hand(), hand(), hand()]
        await until(lambda: all(each.worker.end.waits for each in hands))
        assert not any(each.ended for each in hands)
        monkeypatch.setattr(end, "NEVER_SEEDED_S", 0.0)
        await until(lambda: all(each.ended for each in hands))
        assert {why for each in hands for why in each.ended} == {"never_seeded"}

    run(redis_url, work)


def test_all_workers_end_when_max_pages_are_stored_whoever_stored_them(redis_url: str) -> None:
    async def work(hand: Callable[..., Hand], web: Web) -> None:
        hands = [hand(max_pages=10) for _ in range(3)]
        await until(lambda: divided(*hands))
        await seed(hands[0], web.hosts)
        await until(lambda: all(each.ended for each in hands))
        assert {why for each in hands for why in each.ended} == {"max_pages"}
        assert (await hands[0].meta.permits(10, [])).stored == 10

    run(redis_url, work)


def test_a_continuous_crawl_goes_on(redis_url: str) -> None:
    async def work(hand: Callable[..., Hand], web: Web) -> None:
        one, two = hand(once=False), hand(once=False)
        await seed(one, web.hosts)
        await until(lambda: web.is_done and one.worker._is_idle and two.worker._is_idle)
        await until(lambda: not (one.worker._share._said_busy or one.worker._share._others_busy))
        assert one.counted == two.counted == 0
        assert one.ended == two.ended == []

    run(redis_url, work)
