"""A Redis that was killed and lacks its last seconds: it is told again what it lost, nobody leases meanwhile, no host is hurried."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from perishable import Perishable, perishable

from crawlweb import poller as poller_module
from crawlweb.frontier import frontier as frontier_module
from crawlweb.frontier import journal as journal_module
from crawlweb.frontier.connect import Servers
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.journal import KEPT_S, Journal
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import EXACT, NORMAL, Lease, Limits, Link, Outcome
from crawlweb.job import Job
from crawlweb.policy.canonical import url_key
from crawlweb.policy.robots import Answer, Rules
from crawlweb.records import Entry, boottime
from crawlweb.worker import Worker

PARTITIONS = 2
CALM_S = 1.0
DELAY_S = 0.05
FETCH_S = 1.0


@pytest.fixture
def server(redis_server: Any) -> Iterator[Perishable]:
    with perishable(redis_server.binary) as one:
        yield one


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier_module, "CALM_S", CALM_S)
    monkeypatch.setattr(frontier_module, "PAUSE_MOST_S", 0.2)
    monkeypatch.setattr(poller_module, "CALM_S", CALM_S)


def link(host: str, path: str = "/", how: int = NORMAL) -> Link:
    url = f"https://{host}{path}"
    return Link(host, url_key(url), Entry(url, 5), how)


async def until(state: Callable[[], object], seconds: float = 20) -> None:
    deadline = boottime() + seconds
    while not state():
        assert boottime() < deadline, "this state never came"
        await asyncio.sleep(0.005)


class Desk:
    """A worker of its own client. Its jobs are taken by the test."""

    def __init__(self, servers: Servers, name: str, **options: Any) -> None:
        self.servers, self.counts = servers, Counter[str]()
        limits = Limits(min_delay_s=DELAY_S, lease_s=5.0, expected_urls=4096, look_ahead_s=0.1)
        self.frontier = Frontier(servers.redis, "t", PARTITIONS, name, limits, servers.run_of)
        servers.on_change = self.frontier.server_changed
        self.meta = Meta(self.frontier)
        self.woken = asyncio.Event()
        self.worker = Worker(
            self.frontier,
            self.meta,
            **{
                "capacity": 100,
                "fetch_s": FETCH_S,
                "once": False,
                "max_pages": None,
                "seen_cache_keys": 1000,
                "wake": self.woken.set,
                "ended": lambda _: None,
                "count": self._count,
                "url_key": url_key,
                **options,
            },
        )

    def _count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    def allow(self, *hosts: str) -> None:
        for host in hosts:
            self.worker.rulebook.learn(f"https://{host}", Rules(Answer("allow")))

    async def job(self, seconds: float = 20) -> Job:
        found: list[Job] = []

        def look() -> bool:
            found.extend(job for job in [self.worker.next_job()] if job)
            return bool(found)

        await until(look, seconds)
        return found[0]

    async def sent(self, *links: Link) -> None:
        self.worker.outbox.add_links(links)
        await until(lambda: not self.worker.outbox.waiting)

    def finish(self, job: Job) -> None:
        self.worker.finish(job, Outcome(job.lease, "d", boottime(), 0.001))

    async def finished(self, job: Job) -> None:
        self.finish(job)
        await until(lambda: job.lease.token not in self.worker.in_hand)

    async def recovered(self, times: int = 1) -> None:
        await until(lambda: self.counts["redis/restarts"] >= times and not self.worker._recovery._doubtful)

    async def audit(self) -> dict[str, Any]:
        found = await Frontier(self.servers.redis, "t", PARTITIONS, "auditor", self.frontier.limits).audit()
        assert found["lost"] == 0, found
        return found


def run(server: Perishable, work: Callable[..., Awaitable[None]], desks: int = 1, **options: Any) -> None:
    async def main() -> None:
        all_servers = [await Servers.connect(server.url, {"socket_timeout": 2.0}) for _ in range(desks)]
        people = [Desk(servers, f"w{n}", **options) for n, servers in enumerate(all_servers)]
        for desk in people:
            desk.worker.start()
        try:
            await asyncio.wait_for(work(*people), 100)
        finally:
            for desk in people:
                await desk.worker.close()
                await desk.servers.close()

    asyncio.run(main())


def leases_of(frontier: Frontier) -> Callable[[], Awaitable[list[Lease]]]:
    async def leases() -> list[Lease]:
        return [lease for p in range(PARTITIONS) for lease in (await frontier.lease(p, 10))[1]]

    return leases


# -- what was acknowledged ----------------------------------------------------------------------------------------------


def test_links_that_redis_lost_are_sent_again(server: Perishable) -> None:
    async def work(desk: Desk) -> None:
        await desk.sent(link("before.org"))
        mark = server.mark()
        await desk.sent(*(link(f"h{n}.org") for n in range(50)), link("seed.org", how=EXACT))
        await asyncio.to_thread(server.crash, mark)
        await desk.recovered()
        assert (await desk.audit())["pending"] == 52

    run(server, work, capacity=0)


def test_a_link_that_another_worker_had_sent_is_sent_again_by_whoever_heard_that_it_is_known(server: Perishable) -> None:
    async def work(first: Desk, second: Desk) -> None:
        mark = server.mark()
        await first.sent(link("h.org"))
        await first.worker.close()  # it will not tell again
        await second.sent(link("h.org"))
        assert second.counts["links/seen"] == 1
        assert second.worker.outbox.sent_lately(link("h.org").key)
        await asyncio.to_thread(server.crash, mark)
        await second.recovered()
        assert (await second.audit())["pending"] == 1

    run(server, work, desks=2, capacity=0)


def test_links_that_redis_lost_are_sent_again_however_long_it_was_away(server: Perishable, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk) -> None:
        desk.allow("h.org")
        await desk.sent(link("h.org"))
        await desk.job()  # the server is asked for its lease first
        mark = server.mark()
        await desk.sent(link("h.org", "/2"))
        await asyncio.to_thread(server.kill)
        monkeypatch.setattr(journal_module, "KEPT_S", 0.0)  # as if it had been away for longer
        await asyncio.to_thread(server.crash, mark)
        await desk.recovered()
        assert (await desk.audit())["pending"] == 2

    run(server, work)


def test_what_a_worker_knows_by_heart_is_forgotten(server: Perishable) -> None:
    async def work(desk: Desk) -> None:
        await desk.sent(link("h.org"))
        desk.frontier._journal.take(desk.frontier.partition_of("h.org"))  # longer ago than the journal goes back
        assert desk.worker.outbox.sent_lately(link("h.org").key)
        await asyncio.to_thread(server.crash)
        await desk.recovered()
        assert not desk.worker.outbox.sent_lately(link("h.org").key)

    run(server, work, capacity=0)


def test_a_page_whose_end_redis_lost_is_not_fetched_again(server: Perishable) -> None:
    async def work(desk: Desk) -> None:
        desk.allow("h.org")
        await desk.sent(link("h.org"))
        job = await desk.job()
        mark = server.mark()
        await desk.finished(job)
        await asyncio.to_thread(server.crash, mark)
        await desk.recovered()
        counts = await desk.frontier.counts()
        assert (counts.pending, counts.done) == (0, 1)

    run(server, work)


def test_what_redis_had_kept_is_not_counted_twice(server: Perishable) -> None:
    async def work(desk: Desk) -> None:
        desk.allow("h.org")
        await desk.sent(link("h.org"))
        await desk.finished(await desk.job())
        before = await desk.audit()
        counters = [await desk.servers.redis.hgetall(desk.frontier.key(p, "ctr")) for p in range(PARTITIONS)]
        await asyncio.to_thread(server.crash)
        await desk.recovered()
        assert await desk.audit() == before
        for p, old in enumerate(counters):
            new = await desk.servers.redis.hgetall(desk.frontier.key(p, "ctr"))
            assert {name: new.get(name) for name in (b"enq", b"done", b"requests", b"late")} == {
                name: old.get(name) for name in (b"enq", b"done", b"requests", b"late")
            }

    run(server, work)


def test_the_values_of_the_crawl_and_its_scope_are_written_again(server: Perishable) -> None:
    async def work(desk: Desk) -> None:
        await desk.sent(link("h.org"))
        mark = server.mark()
        await desk.meta.agree({"partitions": "2"}, {})
        await desk.meta.widen_scope(["h.org"])
        await asyncio.to_thread(server.crash, mark)
        await desk.recovered()
        assert await desk.meta.value("partitions") == "2"
        assert await desk.servers.redis.smembers("{t}:scope") == {b"h.org"}

    run(server, work, capacity=0)


# -- leases --------------------------------------------------------------------------------------------------------------


def test_nobody_leases_for_a_while_after_a_restart_that_nobody_planned(server: Perishable) -> None:
    async def work(desk: Desk) -> None:
        await desk.sent(*(link(f"h{n}.org") for n in range(10)))
        await desk.frontier.lease(0, 1)
        await desk.frontier.lease(1, 1)
        await asyncio.to_thread(server.crash)
        fresh = await Servers.connect(server.url, {})
        began = boottime()
        stranger = Frontier(fresh.redis, "t", PARTITIONS, "stranger", desk.frontier.limits, fresh.run_of)
        leases = leases_of(stranger)
        assert await leases() == []
        found: list[Lease] = []
        while not found:
            await asyncio.sleep(0.02)
            found += await leases()
        assert boottime() - began >= CALM_S - 0.01
        while len(found) < 8:
            await asyncio.sleep(0.02)
            found += await leases()
        await fresh.close()

    run(server, work, capacity=0)


def test_a_server_that_all_workers_had_left_is_leased_from_at_once(server: Perishable) -> None:
    async def work(desk: Desk) -> None:
        await desk.sent(link("h.org"), link("other.org"))
        for p in range(PARTITIONS):
            await desk.frontier.lease(p, 0)
        left = desk.servers.run_of("")
        await asyncio.to_thread(server.crash)
        fresh = await Servers.connect(server.url, {})
        stranger = Frontier(fresh.redis, "t", PARTITIONS, "stranger", desk.frontier.limits, fresh.run_of)
        stranger.left_runs = f"other {left}"
        assert len(await leases_of(stranger)()) == 2
        await fresh.close()

    run(server, work, capacity=0)


def test_only_the_last_worker_says_that_all_have_left_and_whoever_comes_first_hears_it(server: Perishable) -> None:
    async def work(first: Desk, second: Desk) -> None:
        members = first.worker.members, second.worker.members
        await until(lambda: first.worker._share._workers and len(second.worker._share._workers) == 2)
        await members[0].leave()
        await members[0].say_left("run")
        assert await members[1].take_left() == ""
        await members[1].leave()
        await members[1].say_left("run")
        assert await members[0].take_left() == "run"
        assert await members[0].take_left() == ""

    run(server, work, desks=2, capacity=0)


def test_a_job_whose_lease_redis_lost_is_not_begun(server: Perishable) -> None:
    async def work(desk: Desk) -> None:
        desk.allow("h.org")
        await desk.sent(link("h.org"))
        partition = desk.frontier.partition_of("h.org")
        await until(lambda: not desk.worker._jobs.heap and desk.frontier._runs.get(partition))
        mark = server.mark()
        desk.worker._poller.capacity = 10
        await until(lambda: desk.worker._jobs.heap)
        crashed = boottime()
        await asyncio.to_thread(server.crash, mark)
        await desk.recovered()
        assert desk.counts["leases/lost"] == 1
        job = await desk.job()
        assert boottime() - crashed >= CALM_S
        assert job.lease.entry.expiries == 0
        await desk.finished(job)
        await desk.audit()

    run(server, work, capacity=0)


def test_a_host_whose_request_is_under_way_rests_until_that_has_ended(server: Perishable) -> None:
    async def work(desk: Desk, other: Desk) -> None:
        desk.allow("h.org")
        await desk.sent(link("h.org"), link("h.org", "/2"))
        partition = desk.frontier.partition_of("h.org")
        await until(lambda: desk.frontier._runs.get(partition))
        mark = server.mark()
        desk.worker._poller.capacity = 1
        job = await desk.job()
        desk.worker._poller.capacity = 0
        await asyncio.to_thread(server.crash, mark)
        await desk.recovered()
        began = boottime()
        leases = leases_of(other.frontier)
        while not (found := await leases()):
            if boottime() - began < CALM_S + 0.3:
                ended = boottime()
            elif job.lease.token in desk.worker.in_hand and job in desk.worker._renewals.running.values():
                ended = boottime()
                desk.finish(job)
            await asyncio.sleep(0.01)
        assert [lease.host for lease in found] == ["h.org"]
        assert found[0].not_before >= ended + DELAY_S - 0.01
        await until(lambda: desk.counts["leases/late"] == 1)

    run(server, work, desks=2, capacity=0, fetch_s=4.0)


def test_leases_of_a_server_that_changed_under_the_call_are_given_back(server: Perishable) -> None:
    async def work(desk: Desk) -> None:
        await desk.sent(link("h.org"))
        runs = iter(["old", "old", "new"])
        frontier = Frontier(desk.servers.redis, "t", PARTITIONS, "w9", desk.frontier.limits, lambda _: next(runs, "new"))
        partition = frontier.partition_of("h.org")
        assert (await frontier.lease(partition, 5))[1] == []
        assert (await desk.frontier.counts()).pending
        assert await desk.servers.redis.zcard(frontier.key(partition, "leases")) == 0

    run(server, work, capacity=0)


def test_leases_last_longer_and_are_not_reclaimed_after_a_silence(server: Perishable, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (frontier_module, poller_module):
        monkeypatch.setattr(module, "CALM_S", 5.0)  # as it is, however loaded the machine

    async def work(desk: Desk) -> None:
        desk.allow("h.org")
        await desk.sent(link("h.org"))
        job = await desk.job()
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(5.2)  # the lease runs out
        await asyncio.to_thread(server.start)
        await desk.recovered()
        assert await desk.servers.redis.zcard(desk.frontier.key(job.lease.partition, "leases")) == 1
        assert job.lease.expires > boottime() + 3
        await desk.finished(job)
        assert desk.counts["leases/late"] == 0
        assert (await desk.audit())["pending"] == 0

    run(server, work)


# -- all at once -------------------------------------------------------------------------------------------------------------


class Web:
    """Pages that take a while, on hosts that write down when they were asked. A page links to the next one, and to other hosts."""

    def __init__(self, seed: int, hosts: int, pages: int) -> None:
        self.rng = random.Random(seed)
        self.pages, self.hosts = pages, [f"h{n}.org" for n in range(hosts)]
        self.asked: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.fetched: Counter[str] = Counter()

    def links(self, host: str, page: int) -> Iterator[Link]:
        rng = random.Random(f"{host} {page}")
        if page + 1 < self.pages:
            yield link(host, f"/{page + 1}")
        for other in rng.sample(self.hosts, 2):
            yield link(other, "/0")

    async def crawl(self, desk: Desk, until_s: float) -> None:
        tasks: set[asyncio.Task[None]] = set()
        while boottime() < until_s:
            while (job := desk.worker.next_job()) is not None:
                tasks.add(asyncio.ensure_future(self.fetch(desk, job)))
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)

    async def fetch(self, desk: Desk, job: Job) -> None:
        began = boottime()
        await asyncio.sleep(self.rng.uniform(0.01, 0.3))
        url, ended = job.lease.entry.url, boottime()
        heapq.heappush(self.asked[job.lease.host], (began, ended))
        self.fetched[url] += 1
        host, page = url.removeprefix("https://").split("/")
        desk.worker.outbox.add_links(list(self.links(host, int(page))), job.ticket)
        desk.worker.finish(job, Outcome(job.lease, "d", ended, None))


@pytest.mark.parametrize("seed", [1, 2])
def test_two_workers_crawl_all_and_hurry_no_host_while_redis_loses_its_last_second(server: Perishable, seed: int) -> None:
    web = Web(seed, hosts=60, pages=8)

    async def work(*desks: Desk) -> None:
        for desk in desks:
            desk.allow(*web.hosts)
        await desks[0].sent(link(web.hosts[0], "/0", EXACT))
        until_s = boottime() + 60
        crawls = [asyncio.ensure_future(web.crawl(desk, until_s)) for desk in desks]
        for _ in range(3):
            await asyncio.sleep(web.rng.uniform(0.8, 2.0))
            mark = server.mark()
            await asyncio.sleep(web.rng.uniform(0.2, 1.0))
            await asyncio.to_thread(server.crash, mark)
            await asyncio.sleep(CALM_S)
        while (await desks[0].frontier.counts()).pending and boottime() < until_s - 1:
            await asyncio.sleep(0.2)
        for crawl in crawls:
            crawl.cancel()
        assert set(web.fetched) == {f"https://{host}/{page}" for host in web.hosts for page in range(web.pages)}
        for host, requests in web.asked.items():
            for (_, ended), (began, _) in zip(sorted(requests), sorted(requests)[1:], strict=False):
                assert began - ended >= DELAY_S - 0.01, f"{host} was hurried"
        assert (await desks[0].audit())["pending"] == 0
        assert all(desk.counts["redis/restarts"] == 3 for desk in desks)

    run(server, work, desks=2)


# -- the journal --------------------------------------------------------------------------------------------------------------


def test_a_journal_goes_back_some_seconds_from_the_last_answer_of_a_partition() -> None:
    journal: Journal[str] = Journal()
    for at in range(10):
        journal.add(0, at, f"call {at}")
    journal.add(1, 0.0, "of a partition that is silent since")
    assert len(journal) == KEPT_S + 2
    journal.answered(0, 12.0)
    assert journal.take(0) == ["call 7", "call 8", "call 9"]
    assert journal.take(0) == []
    assert journal.take(1) == ["of a partition that is silent since"]
