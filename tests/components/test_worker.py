"""A worker's share of a real frontier: the order of a page, the end of a crawl, and what is given back."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from crawlweb import end, outbox, poller, rulebook
from crawlweb import worker as module
from crawlweb.errors import FrontierError
from crawlweb.frontier import memory
from crawlweb.frontier.events import EVENT_BATCH, Events
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.keys import partition_of
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import (
    EXACT,
    NORMAL,
    UNCHECKED,
    Counts,
    KeptNow,
    Lease,
    Limits,
    Link,
    OriginFailed,
    Outcome,
    Override,
    PageEvent,
)
from crawlweb.job import Job, probe_request, robots_request
from crawlweb.outbox import LINK_BATCH, RecentKeys, Ticket
from crawlweb.outcome import Judge, Sent, Verdict
from crawlweb.policy.canonical import Canonicalizer, url_key
from crawlweb.policy.hosts import host_of
from crawlweb.policy.robots import Answer, Rules
from crawlweb.records import Entry, boottime
from crawlweb.worker import Worker

PARTITIONS = 2
ALLOW = Answer("allow")
KEPT_MS = 30 * 86_400_000


async def until(state: Callable[[], object], seconds: float = 10) -> None:
    """Looks again and again; a state that does not come is a failure, not a wait."""
    deadline = boottime() + seconds
    while not state():
        assert boottime() < deadline, "this state never came"
        await asyncio.sleep(0.001)


class Watched(Frontier):
    """A real frontier whose calls are written down, and can be held back (`gates`) or fail (`fails`)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.log: list[tuple[str, Any]] = []
        self.gates = {name: asyncio.Event() for name in ("enqueue", "lease", "complete", "publish")}
        for gate in self.gates.values():
            gate.set()
        self.fails: set[str] = set()
        self.passes: list[Counts] = []  # answers of `counts` to give instead
        self.counted = 0

    def hold(self, name: str) -> None:
        self.gates[name].clear()

    def free(self, name: str) -> None:
        self.gates[name].set()

    def done(self, name: str) -> list[Any]:
        return [what for happened, what in self.log if happened == name]

    async def enqueue(self, partition: int, links: Sequence[Link], can_wait: bool = False) -> str:
        self.log.append(("enqueue asked", [link.entry.url for link in links]))
        await self.gates["enqueue"].wait()
        if "enqueue" in self.fails:
            raise FrontierError("no")
        answer = await super().enqueue(partition, links, can_wait)
        self.log += [("enqueued", link.entry.url) for link in links]
        return answer

    async def lease(self, partition: int, most: int, reclaim: bool = True) -> tuple[float | None, list[Lease]]:
        answer = await super().lease(partition, most, reclaim)
        if answer[1]:
            self.log.append(("leased", [lease.entry.url for lease in answer[1]]))
            await self.gates["lease"].wait()
        return answer

    async def complete(self, partition: int, outcomes: Sequence[Outcome]) -> str:
        await self.gates["complete"].wait()
        answer = await super().complete(partition, outcomes)
        self.log += [("completed", (o.lease.entry.url, o.way)) for o in outcomes]
        return answer

    async def counts(self) -> Counts:
        self.counted += 1
        return self.passes.pop(0) if self.passes else await super().counts()


class WatchedEvents(Events):
    """Written down in the log of a frontier, whose gate `publish` can hold them back."""

    def __init__(self, frontier: Watched) -> None:
        super().__init__(frontier, 1000)
        self._watched = frontier

    async def publish(self, batch: Sequence[PageEvent]) -> None:
        self._watched.log.append(("publish asked", [event.url for event in batch]))
        await self._watched.gates["publish"].wait()
        await super().publish(batch)
        self._watched.log += [("published", event.url) for event in batch]


class Looked(Worker):
    """Counts how often somebody asked whether it is busy."""

    looks = 0

    @property
    def busy(self) -> bool:
        self.looks += 1
        return super().busy


class Office:
    """A worker with a client of its own, and what it told."""

    def __init__(self, url: str, *, name: str = "w1", limits: Limits | None = None, **options: Any) -> None:
        self.client = Redis.from_url(url)
        self.limits = limits or Limits(min_delay_s=0.02, expected_urls=4096)
        self.frontier = Watched(self.client, "t", PARTITIONS, name, self.limits)
        self.meta = Meta(self.frontier)
        self.counts: Counter[str] = Counter()
        self.woken: list[float] = []
        self.ended: list[str] = []
        self.worker = Looked(
            self.frontier,
            self.meta,
            **{
                "capacity": 100,
                "fetch_s": 12.0,
                "once": False,
                "max_pages": None,
                "seen_cache_keys": 1000,
                "wake": lambda: self.woken.append(boottime()),
                "ended": self.ended.append,
                "count": self._count,
                "url_key": url_key,
                "events": WatchedEvents(self.frontier),
                **options,
            },
        )

    def _count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    async def job(self) -> Job:
        found: list[Job] = []

        def look() -> bool:
            job = self.worker.next_job()
            if job:
                found.append(job)
            return bool(job)

        await until(look)
        return found[0]

    async def sent(self, *links: Link) -> None:
        """Links into Redis, past the worker's buffers."""
        for p in range(PARTITIONS):
            some = [link for link in links if partition_of(link.host, PARTITIONS) == p]
            if some:
                await Frontier.enqueue(self.frontier, p, some)
                self.worker.ask(p)  # as after links of its own

    async def passes(self, seconds: float) -> None:
        """The frontier's clock, which never goes back, is ahead of Redis' own by so much; it stands still until that has caught up."""
        now, us = await self.client.time()
        for p in range(PARTITIONS):
            ctr = self.frontier.key(p, "ctr")
            last = int(await self.client.hget(ctr, "now") or 0)
            await self.client.hset(ctr, "now", str(round(max(last, now * 1000 + us // 1000) + seconds * 1000)))
            self.worker.ask(p)

    def allow(self, *links: Link) -> None:
        for link in links:
            self.worker.rulebook.learn(f"https://{link.host}", Rules(ALLOW))

    def key(self, host: str, name: str) -> str:
        return self.frontier.key(partition_of(host, PARTITIONS), name)

    async def audit(self) -> dict[str, Any]:
        found = await Frontier(self.client, "t", PARTITIONS, "auditor", self.limits).audit()
        assert found["lost"] == 0, found
        return found


def run(url: str, work: Callable[[Office], Awaitable[None]], *, start: bool = True, **options: Any) -> Office:
    offices: list[Office] = []

    async def main() -> None:
        office = Office(url, **options)
        offices.append(office)
        if start:
            office.worker.start()
        try:
            await asyncio.wait_for(work(office), 30)
        finally:
            for name in office.frontier.gates:
                office.frontier.free(name)
            if not office.worker.closing or start:
                await office.worker.close()
            await office.client.aclose()

    asyncio.run(main())
    return offices[0]


def link(host: str, path: str = "/", priority: int = 5, how: int = NORMAL, **more: Any) -> Link:
    url = f"https://{host}{path}"
    return Link(host, url_key(url), Entry(url, priority, **more), how)


def hosts(partition: int, count: int) -> list[str]:
    """Hosts of one partition."""
    names = (f"h{n}.org" for n in range(10_000))
    return [name for name in names if partition_of(name, PARTITIONS) == partition][:count]


def finished(office: Office, job: Job, way: str = "d", **more: Any) -> None:
    office.worker.finish(job, Outcome(job.lease, way, boottime(), 0.001), **more)


class Hurried:
    """asyncio, with pauses a tenth as long; those of a second at the most, 10 ms."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 10 if seconds > 1 else min(seconds / 10, 0.01))


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (module, poller, outbox, end):
        monkeypatch.setattr(room, "asyncio", Hurried())
    monkeypatch.setattr(poller, "POLL_MAX_S", 0.1)
    monkeypatch.setattr(module, "CLOSE_S", 2.0)  # a failing test does not wait for outcomes that nobody takes


# -- the order of a page -------------------------------------------------------------------------------------------------


def test_a_page_is_completed_after_its_links_are_acknowledged(redis_url: str) -> None:
    first, second = (link(host) for host in hosts(0, 2))
    found = [link(host) for host in (*hosts(0, 9)[4:], *hosts(1, 5))]  # in both partitions

    async def work(office: Office) -> None:
        frontier, worker = office.frontier, office.worker
        office.allow(first, second)
        await office.sent(first)
        with_links = await office.job()
        await office.sent(second)
        without = await office.job()
        assert (with_links.lease.entry.url, without.lease.entry.url) == (first.entry.url, second.entry.url)
        frontier.hold("enqueue")
        worker.outbox.add_links(found, with_links.ticket)
        finished(office, with_links)
        await until(lambda: len(frontier.done("enqueue asked")) == 2)
        finished(office, without)  # later, and of the same partition
        await until(lambda: frontier.done("completed"))
        assert frontier.done("completed") == [(second.entry.url, "d")]
        assert with_links.lease.token in worker.in_hand
        frontier.free("enqueue")
        await until(lambda: len(frontier.done("completed")) == 2)
        happened = [what for what, _ in frontier.log if what in ("enqueued", "completed")]
        assert happened == ["completed", *["enqueued"] * len(found), "completed"]

    office = run(redis_url, work)
    assert office.counts["links/enqueued"] == len(found)


def test_links_that_come_after_the_outcome_are_not_waited_for_by_others(redis_url: str) -> None:
    page, other = (link(host) for host in hosts(0, 2))

    async def work(office: Office) -> None:
        office.allow(page, other)
        await office.sent(page)
        job = await office.job()
        office.frontier.hold("enqueue")
        office.worker.outbox.add_links([other])  # of nobody: a seed
        finished(office, job)
        await until(lambda: office.frontier.done("completed"))

    run(redis_url, work)


def test_a_page_without_new_links_is_completed_at_once(redis_url: str) -> None:
    page, other = (link(host) for host in hosts(0, 2))

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        office.frontier.hold("enqueue")
        office.worker.outbox.add_links([], job.ticket)
        office.worker.outbox.add_links([other])
        assert job.ticket.left == 0
        finished(office, job)
        await until(lambda: office.frontier.done("completed"))

    run(redis_url, work)


def test_a_link_that_cannot_be_an_entry_does_not_hold_its_page(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    page, bad = link("h0.org"), link("h1.org", "/", depth=-1)

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        office.worker.outbox.add_links([bad, link("h2.org")], job.ticket)
        finished(office, job)
        await until(lambda: office.frontier.done("completed"))

    office = run(redis_url, work)
    assert "Not queued" in caplog.text
    doors = [n for name, n in office.counts.items() if name.startswith("links/") or name == "quarantined"]
    assert sum(doors) == 2  # each link leaves by a counted door


def test_a_page_that_is_held_is_completed_after_what_holds_it(redis_url: str) -> None:
    page, other = (link(host) for host in hosts(0, 2))

    async def work(office: Office) -> None:
        worker, may_go_on = office.worker, asyncio.Event()
        office.allow(page, other)
        await office.sent(page)
        job = await office.job()

        async def hold() -> None:
            await may_go_on.wait()

        worker.outbox.hold(job.ticket, hold(), lambda: worker.outbox.add_links([other], job.ticket))
        finished(office, job)
        await office.sent(other)  # its lease shows that calls go out meanwhile
        finished(office, await office.job())
        await until(lambda: office.frontier.done("completed"))
        assert office.frontier.done("completed") == [(other.entry.url, "d")]
        may_go_on.set()
        await until(lambda: len(office.frontier.done("completed")) == 2)
        assert [what for what, _ in office.frontier.log if what in ("enqueued", "completed")] == ["completed", "enqueued", "completed"]

    run(redis_url, work)


@pytest.mark.parametrize(("way", "arg"), [("x", "tls"), ("r", (1, "tls", 0))])
def test_dead_letters_and_late_leases_are_counted(redis_url: str, way: str, arg: Any) -> None:
    pages = [link(f"h{n}.org") for n in range(2)]

    async def work(office: Office) -> None:
        office.allow(*pages)
        await office.sent(*pages)
        dead, late = await office.job(), await office.job()
        office.worker.finish(dead, Outcome(dead.lease, way, boottime(), arg=arg))
        await office.frontier.complete(late.lease.partition, [Outcome(late.lease, "d", boottime())])  # as if it had run out
        finished(office, late)
        await until(lambda: not office.worker.in_hand)

    office = run(redis_url, work)
    assert (office.counts["dead"], office.counts["leases/late"]) == (1, 1)


# -- events --------------------------------------------------------------------------------------------------------------


def ends_with_event(office: Office, job: Job, at: float = 1_800_000_000.0, way: str = "d", **more: Any) -> PageEvent:
    """A page that is stored leaves the engine."""
    url = job.lease.entry.url
    event = PageEvent(url, url_key(url), 200, at)
    office.worker.finish(job, Outcome(job.lease, way, boottime(), 0.001, event=event, **more))
    return event


async def published(office: Office) -> list[str]:
    """The ids in the stream."""
    return [fields[b"id"].decode() for _, fields in await office.client.xrange("{t}:events")]


def test_the_event_of_a_page_comes_after_its_links_and_before_its_completion(redis_url: str) -> None:
    page, found = link(hosts(0, 1)[0]), link(hosts(1, 1)[0])

    async def work(office: Office) -> None:
        frontier, worker = office.frontier, office.worker
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        frontier.hold("enqueue")
        frontier.hold("publish")
        worker.outbox.add_links([found], job.ticket)
        event = ends_with_event(office, job)
        await until(lambda: frontier.done("enqueue asked"))
        frontier.free("enqueue")
        await until(lambda: frontier.done("publish asked"))
        assert worker.outbox.unsent
        frontier.free("publish")
        await until(lambda: frontier.done("completed"))
        happened = [what for what, _ in frontier.log if what in ("enqueued", "published", "completed")]
        assert happened == ["enqueued", "published", "completed"]
        assert await published(office) == [event.id]
        await until(lambda: not worker.outbox.unsent)

    assert run(redis_url, work).counts["events"] == 1


def test_pages_without_an_event_do_not_wait_for_those_that_have_one(redis_url: str) -> None:
    first, second = (link(host) for host in hosts(0, 2))

    async def work(office: Office) -> None:
        office.allow(first, second)
        await office.sent(first, second)
        job, other = await office.job(), await office.job()
        office.frontier.hold("publish")
        ends_with_event(office, job)
        await until(lambda: office.frontier.done("publish asked"))
        finished(office, other)
        await until(lambda: office.frontier.done("completed"))
        assert office.frontier.done("completed") == [(other.lease.entry.url, "d")]

    run(redis_url, work)


def test_events_of_all_partitions_go_out_in_one_call(redis_url: str) -> None:
    pages = [link(host) for p in range(PARTITIONS) for host in hosts(p, 5)]

    async def work(office: Office) -> None:
        office.allow(*pages)
        await office.sent(*pages)
        jobs = [await office.job() for _ in pages]
        events = [ends_with_event(office, job) for job in jobs]
        await until(lambda: len(office.frontier.done("completed")) == len(pages))
        assert len(office.frontier.done("publish asked")) == 1
        assert await published(office) == [event.id for event in events]

    run(redis_url, work)


def test_events_without_end_go_out_in_batches_that_are_bounded(redis_url: str) -> None:
    pages = [link(f"h{n}.org") for n in range(EVENT_BATCH + 50)]

    async def work(office: Office) -> None:
        office.allow(*pages)
        await office.sent(*pages)
        jobs = [await office.job() for _ in pages]
        office.frontier.hold("publish")
        for job in jobs:
            ends_with_event(office, job)
        office.frontier.free("publish")
        await until(lambda: len(office.frontier.done("completed")) == len(pages))
        assert [len(urls) for urls in office.frontier.done("publish asked")] == [EVENT_BATCH, 50]

    run(redis_url, work, capacity=400)


def test_what_a_server_asked_for_does_not_wait_for_the_next_flush(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "flush_s", lambda _: 1000.0)  # never
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        trouble = OriginFailed("timeout", 1.0, 10.0)
        ends_with_event(office, job, origin="https://h0.org", failed=trouble)
        await until(lambda: office.frontier.done("completed"))
        assert len(await published(office)) == 1

    run(redis_url, work)


def test_a_worker_that_closes_publishes_what_waits(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        event = ends_with_event(office, await office.job())
        await office.worker.close()
        assert (await published(office), office.frontier.done("completed")) == ([event.id], [(page.entry.url, "d")])

    run(redis_url, work)


def test_a_redis_that_is_away_between_page_and_event_delays_both_and_loses_nothing(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        call, tries = office.client.execute_command, []

        async def away(*args: Any, **options: Any) -> Any:
            if args[0] in ("EVALSHA", "EVAL") and len(tries) < 3:
                tries.append(args)
                raise redis.exceptions.ConnectionError("away")
            return await call(*args, **options)

        office.client.execute_command = away  # type: ignore[method-assign]
        event = ends_with_event(office, job)
        await until(lambda: office.frontier.done("completed"))
        assert len(tries) == 3
        assert await published(office) == [event.id]

    run(redis_url, work)


def test_a_page_of_a_worker_that_died_after_its_event_is_told_of_again_under_another_id(redis_url: str) -> None:
    page = link("h0.org")

    async def dies(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        office.frontier.hold("complete")
        ends_with_event(office, await office.job(), at=1_800_000_000.0)
        await until(lambda: office.frontier.done("published"))
        for task in office.worker._tasks.alive:
            task.cancel()
        office.worker.closing = True

    async def refetches(office: Office) -> None:
        office.allow(page)
        await office.passes(office.limits.lease_s + 1)
        ends_with_event(office, await office.job(), at=1_800_000_061.0)
        await until(lambda: office.frontier.done("completed"))
        ids = await published(office)
        assert len(set(ids)) == 2
        assert {each.partition("-")[0] for each in ids} == {page.key.hex()}
        await office.audit()

    run(redis_url, dies)
    run(redis_url, refetches, name="w2")


def test_events_of_the_last_seconds_are_published_again_after_a_restart_of_redis(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        event = ends_with_event(office, await office.job())
        await until(lambda: office.frontier.done("completed"))
        await office.client.delete("{t}:events")
        await office.worker._tell_again()
        assert await published(office) == [event.id]

    run(redis_url, work)


def test_without_events_a_page_is_completed_without_one(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        ends_with_event(office, await office.job())
        await until(lambda: office.frontier.done("completed"))
        assert await published(office) == []

    assert run(redis_url, work, events=None).counts["events"] == 0


# -- the cache of recent keys --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [NORMAL, EXACT, UNCHECKED])
def test_a_key_is_recent_only_after_redis_answered_for_it(redis_url: str, how: int) -> None:
    one = link("h0.org", how=how)

    async def work(office: Office) -> None:
        worker = office.worker
        office.frontier.hold("enqueue")
        worker.outbox.add_links([one])
        await until(lambda: office.frontier.done("enqueue asked"))
        assert not worker.outbox.sent_lately(one.key)
        office.frontier.free("enqueue")
        await until(lambda: office.frontier.done("enqueued"))
        assert worker.outbox.sent_lately(one.key)
        worker.outbox.add_links([one])  # whoever asks for it is heard
        await until(lambda: len(office.frontier.done("enqueued")) == 2)

    office = run(redis_url, work)
    assert office.counts["links/enqueued"] == (2 if how == UNCHECKED else 1)
    assert office.counts["links/seen"] == (0 if how == UNCHECKED else 1)
    assert office.counts["seeds/new"] == (1 if how == EXACT else 0)


def test_a_batch_that_failed_does_not_look_seen_and_its_page_is_not_completed(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    page, other = (link(host) for host in hosts(0, 2))

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        office.frontier.fails.add("enqueue")
        office.worker.outbox.add_links([other], job.ticket)
        finished(office, job)
        await until(lambda: office.ended)
        assert office.ended[0] == "frontier_error"
        assert not office.worker.outbox.sent_lately(other.key)
        assert office.frontier.done("completed") == []
        office.frontier.fails.clear()

    run(redis_url, work)
    assert "crawlweb stops: no" in caplog.text


class Losing:
    """A client that loses the answers to some calls: they were made."""

    def __init__(self, client: Any, lost: int) -> None:
        self._client, self.lost = client, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        answer = await self._client.execute_command(*args, **options)
        if self.lost and args[0] == "EVALSHA":
            self.lost -= 1
            raise redis.exceptions.ConnectionError("lost on the way")
        return answer


def test_a_batch_whose_answer_was_lost_is_sent_again_and_counted_once(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    page = link("h0.org")
    found = [link(f"h{n}.org") for n in range(1, 2 * LINK_BATCH)]

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        losing = Losing(office.client, 2)
        office.frontier.redis = losing  # type: ignore[assignment]
        office.worker.outbox.add_links(found, job.ticket)
        finished(office, job)
        await until(lambda: (page.entry.url, "d") in office.frontier.done("completed"))
        assert losing.lost == 0
        counts = await Frontier.counts(office.frontier)
        assert (counts.enqueued, counts.done) == (len(found) + 1, 1)

    office = run(redis_url, work)
    assert office.counts["links/enqueued"] == len(found)
    assert "Redis does not answer" in caplog.text


def some_key(n: int) -> bytes:
    """Keys whose halves are those of others: they must not be found across two."""
    return n.to_bytes(8, "big") + (n * 7 % 31).to_bytes(8, "big")


@given(st.lists(st.integers(0, 30), max_size=200), st.integers(1, 60))
@settings(deadline=None, derandomize=True)
def test_recent_keys_are_exact_and_bounded(added: list[int], size: int) -> None:
    recent = RecentKeys(size)
    for n in added:
        recent.add(some_key(n))
        assert some_key(n) in recent
        assert some_key(n) in recent  # where it was moved to
    kept = {n for n in range(31) if some_key(n) in recent}
    assert kept <= set(added)
    assert len(kept) <= max(16, size)


@pytest.mark.parametrize("size", [1, 16, 100, 1_000])
def test_recent_keys_that_are_new_know_nothing(size: int) -> None:
    recent = RecentKeys(size)
    assert not any(n.to_bytes(16, "big") in recent for n in range(1000))
    assert not any(bytes([n]) * 16 in recent for n in range(256))


def test_a_key_that_was_asked_for_again_outlives_those_that_were_met_once() -> None:
    recent = RecentKeys(16_000)
    shared = [random.Random(n).randbytes(16) for n in range(1_000)]
    for key in shared:
        recent.add(key)
    assert sum(key in recent for key in shared) >= 980, "some sets got more than the four that enter in their middle"
    for n in range(100_000):
        recent.add(n.to_bytes(16, "big"))
    assert sum(key in recent for key in shared) >= 950
    assert sum(n.to_bytes(16, "big") in recent for n in range(100_000)) <= 16_000


def test_no_page_is_begun_while_too_many_links_wait(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINKS_WAITING", 20)
    page = link("h0.org")
    found = [link(f"h{n}.org") for n in range(1, 30)]

    async def work(office: Office) -> None:
        office.allow(page)
        office.frontier.hold("enqueue")
        office.worker.outbox.add_links(found)
        await office.sent(page)
        await until(lambda: office.worker._jobs.heap)
        assert office.worker.next_job() is None
        office.frontier.free("enqueue")
        assert (await office.job()).lease.host == page.host

    run(redis_url, work)


# -- jobs ----------------------------------------------------------------------------------------------------------------


def test_what_is_given_back_keeps_its_place(redis_url: str) -> None:
    urls = [link("h0.org", f"/{n}", priority=priority) for n, priority in enumerate((3, 5, 5, 7))]

    async def work(office: Office) -> None:
        office.allow(urls[0])
        await office.sent(*urls)
        for _ in range(3):
            job = await office.job()
            assert job.lease.entry == urls[0].entry
            office.worker.give_back(job)
            await until(lambda job=job: job.lease.token not in office.worker.in_hand)  # type: ignore[misc]
        for expected in urls:
            job = await office.job()
            assert job.lease.entry == expected.entry
            finished(office, job)

    office = run(redis_url, work)
    assert office.counts["leases/returned"] == 3


def test_a_lease_too_short_for_a_fetch_is_given_back(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        await until(lambda: office.worker._jobs.heap)
        assert office.worker.next_job() is None
        await until(lambda: office.frontier.done("completed"))
        assert office.frontier.done("completed")[0] == (page.entry.url, "l")

    office = run(redis_url, work, limits=Limits(lease_s=5.0), fetch_s=6.0)
    assert office.counts["leases/returned"] >= 1


def test_a_job_waits_for_its_time_and_somebody_is_woken_then(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "POLL_MAX_S", 5.0)  # a poll would wake somebody too
    urls = [link("h0.org", f"/{n}") for n in range(2)]

    async def work(office: Office) -> None:
        worker = office.worker
        office.allow(*urls)
        await office.sent(*urls)
        job = await office.job()
        finished(office, job)
        ended = boottime()
        await until(lambda: worker._jobs.heap)  # leased ahead of its time
        not_before = worker._jobs.heap[0][0]
        assert not_before >= ended + 0.15
        assert boottime() < not_before
        assert worker.next_job() is None
        office.woken.clear()
        await until(lambda: office.woken)
        assert not_before <= office.woken[0] < not_before + 0.2
        job = worker.next_job()  # type: ignore[assignment]
        assert job
        assert job.lease.entry.url == urls[1].entry.url

    run(redis_url, work, limits=Limits(min_delay_s=0.2))


def test_leases_in_hand_never_exceed_the_capacity_and_what_ends_makes_room(redis_url: str) -> None:
    pages = [link(f"h{n}.org") for n in range(40)]

    async def work(office: Office) -> None:
        worker = office.worker
        office.allow(*pages)
        await office.sent(*pages)
        fetched: set[str] = set()
        while len(fetched) < len(pages):
            job = await office.job()
            assert len(worker.in_hand) <= 5
            fetched.add(job.lease.entry.url)
            finished(office, job)
        assert fetched == {page.entry.url for page in pages}

    run(redis_url, work, capacity=5)


def test_partitions_that_answer_late_do_not_bring_more_than_the_capacity(redis_url: str) -> None:
    first, second = ([link(host) for host in hosts(p, 30)] for p in range(2))

    async def work(office: Office) -> None:
        office.allow(*first, *second)
        office.frontier.hold("lease")
        await office.sent(*first)
        await until(lambda: len(office.frontier.done("leased")) == 1)
        await office.sent(*second)
        await asyncio.sleep(2 * poller.HUNG_S)
        office.frontier.free("lease")
        await until(lambda: office.worker.in_hand != {})
        await asyncio.sleep(2 * poller.HUNG_S)
        assert len(office.worker.in_hand) <= 20

    run(redis_url, work, capacity=20)


def test_a_partition_that_is_away_keeps_no_leases_from_the_others(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "AWAY_S", 0.3)
    away, near = (link(hosts(p, 1)[0]) for p in range(2))

    async def work(office: Office) -> None:
        office.allow(away, near)
        held, passed = asyncio.Event(), asyncio.Event()
        passed.set()
        office.frontier.gates["lease"] = held
        await office.sent(away)
        await until(lambda: len(office.frontier.done("leased")) == 1)
        office.frontier.gates["lease"] = passed
        await office.sent(near)
        await until(lambda: [lease.host for lease in office.worker.in_hand.values()] == [near.host])
        held.set()

    run(redis_url, work, capacity=1)


def test_leases_that_are_held_long_are_renewed(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        first = job.lease.expires
        await until(lambda: job.lease.expires > first + 0.3)
        finished(office, job)
        await until(lambda: office.frontier.done("completed"))

    office = run(redis_url, work, limits=Limits(lease_s=0.8), fetch_s=0.1)
    assert office.counts["leases/late"] == 0


def test_what_only_waits_to_be_fetched_is_given_back_before_its_lease_runs_out(redis_url: str) -> None:
    pages = [link("h0.org"), link("h1.org")]

    async def work(office: Office) -> None:
        office.allow(*pages)
        await office.sent(*pages)
        job = await office.job()  # the engine takes no other
        waiting = {lease.token: lease.expires for lease in office.worker.in_hand.values() if lease is not job.lease}
        await until(lambda: [what for what in office.frontier.done("completed") if what[1] == "l"])
        assert not waiting.keys() & office.worker.in_hand.keys()
        assert job.lease.token in office.worker.in_hand
        finished(office, job)

    office = run(redis_url, work, limits=Limits(lease_s=1.2), fetch_s=0.2)
    assert office.counts["leases/late"] == 0


def test_an_outcome_that_cannot_be_sent_yet_keeps_its_lease(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        office.frontier.hold("complete")
        finished(office, job)
        first = job.lease.expires
        await until(lambda: job.lease.expires > first + 0.9)
        office.frontier.free("complete")
        await until(lambda: office.frontier.done("completed"))

    office = run(redis_url, work, limits=Limits(lease_s=0.8), fetch_s=0.1)
    assert office.counts["leases/late"] == 0


def test_a_page_that_is_stuck_is_named_and_then_left_to_others(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        stuck = await office.job()
        await until(lambda: office.counts["leases/abandoned"])
        assert (office.counts["leases/stuck"], office.counts["leases/abandoned"]) == (1, 1)
        again = await office.job()
        assert (again.lease.entry.url, again.lease.entry.expiries) == (page.entry.url, 1)
        finished(office, again)
        finished(office, stuck)
        await until(lambda: len(office.frontier.done("completed")) == 2)

    office = run(redis_url, work, limits=Limits(lease_s=0.8, min_delay_s=0.02), fetch_s=0.1, stuck_s=2.0)
    assert office.counts["leases/late"] == 1
    assert caplog.text.count("https://h0.org/ is in callbacks or pipelines for") == 2


def test_a_lease_that_is_gone_is_not_begun_and_its_page_not_kept(redis_url: str) -> None:
    pages = [link(f"h{n}.org") for n in range(3)]

    async def work(office: Office) -> None:
        office.allow(*pages)
        await office.sent(*pages)
        begun = await office.job()
        await until(lambda: len(office.worker.in_hand) == 3)
        assert await office.worker.keeps(begun)
        for p in range(PARTITIONS):
            await office.client.delete(office.frontier.key(p, "leases"), office.frontier.key(p, "leased"))
        assert await office.worker.keeps(begun), "its lease lasts: nobody is asked"
        begun.lease.expires = boottime() - 1
        assert not await office.worker.keeps(begun)
        for lease in office.worker.in_hand.values():
            lease.is_gone = True
        assert office.worker.next_job() is None
        finished(office, begun)
        await until(lambda: not office.worker.in_hand)

    office = run(redis_url, work, start=True)
    assert (office.counts["leases/returned"], office.counts["leases/late"]) == (2, 3)


def test_a_lease_that_ran_out_and_was_not_taken_is_kept(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        job.lease.expires = boottime() - 1
        assert await office.worker.keeps(job)
        assert job.lease.expires > boottime() + 30
        finished(office, job)

    run(redis_url, work)


# -- robots.txt ----------------------------------------------------------------------------------------------------------


def test_an_origin_s_robots_txt_comes_before_its_pages(redis_url: str) -> None:
    page = link("h0.org", "/page")

    async def work(office: Office) -> None:
        await office.sent(page)
        job = await office.job()
        assert (job.origin, job.robots_url, job.robots_hops) == ("https://h0.org", "https://h0.org/robots.txt", 0)
        assert job.lease.entry == page.entry
        hop = "https://h0.org", Answer("redirect", to="https://www.h0.org/r", hops=1).pack(), 300_000
        office.worker.finish(job, Outcome(job.lease, "l", boottime(), robots_hop=hop))
        job = await office.job()
        assert (job.robots_url, job.robots_hops, job.origin) == ("https://www.h0.org/r", 1, "https://h0.org")
        assert job.lease.entry == page.entry
        kept = KeptNow("https://h0.org", Answer("rules", b"User-agent: *\nDisallow: /no").pack(), KEPT_MS, -1)
        office.worker.finish(job, Outcome(job.lease, "l", boottime(), robots=kept))
        job = await office.job()
        assert (job.robots_url, job.lease.entry) == ("", page.entry)
        rules = office.worker.rulebook.of("https://h0.org")
        assert rules
        assert not rules.allows("https://h0.org/no")
        (found,) = await office.frontier.robots("h0.org", ["https://h0.org"])
        assert found
        assert (found.value, found.hop) == (kept.value, None)  # where it lies is asked anew the next time

    run(redis_url, work)


def test_each_origin_of_a_host_has_its_own_rules(redis_url: str) -> None:
    pages = [
        Link("h0.org", url_key(url), Entry(url, 5))
        for url in ("https://h0.org/a", "https://www.h0.org/b", "http://h0.org/c", "https://h0.org:8443/d")
    ]

    async def work(office: Office) -> None:
        await office.sent(*pages)
        asked: set[str] = set()
        for _ in pages:
            job = await office.job()
            asked.add(job.robots_url)
            office.worker.rulebook.learn(job.origin, Rules(ALLOW))
            finished(office, job)
        assert asked == {
            "https://h0.org/robots.txt",
            "https://www.h0.org/robots.txt",
            "http://h0.org/robots.txt",
            "https://h0.org:8443/robots.txt",
        }

    run(redis_url, work)


def test_a_disallowed_url_costs_no_request(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "POLL_MAX_S", 5.0)
    urls = [link("h0.org", path) for path in ("/no/1", "/no/2", "/no/3", "/yes")]

    async def work(office: Office) -> None:
        office.worker.rulebook.learn("https://h0.org", Rules(Answer("rules", b"User-agent: *\nDisallow: /no")))
        await office.sent(*urls)
        began = boottime()
        job = await office.job()
        assert job.lease.entry.url == urls[3].entry.url
        assert boottime() - began < 2  # no turn of 5 s each
        finished(office, job)
        await until(lambda: (urls[3].entry.url, "d") in office.frontier.done("completed"))
        assert await office.client.hmget(office.key("h0.org", "ctr"), "requests", "done") == [b"1", b"4"]

    office = run(redis_url, work, limits=Limits(min_delay_s=5.0))
    assert office.counts["robots/disallowed"] == 3


def test_what_is_disallowed_next_goes_with_what_is_disallowed_now(redis_url: str) -> None:
    """Of a site that disallows everything, 64 URLs a lease; what is not the origin's, or is allowed, stays."""
    urls = [link("h0.org", f"/no/{n}") for n in range(200)]
    others = [Link("h0.org", url_key(url), Entry(url, 5)) for url in ("https://www.h0.org/no/1x", "http://h0.org:81/no/2x")]
    allowed = [link("h0.org", f"/yes/{n}", priority=7) for n in range(2)]

    async def work(office: Office) -> None:
        for origin in ("https://h0.org", "https://www.h0.org", "http://h0.org:81"):
            rules = Answer("rules", b"User-agent: *\nDisallow: /no") if origin == "https://h0.org" else ALLOW
            office.worker.rulebook.learn(origin, Rules(rules))
        await office.sent(*urls[:100], *others, *urls[100:], *allowed)
        fetched = set()
        for _ in range(4):
            job = await office.job()
            fetched.add(job.lease.entry.url)
            finished(office, job)
        assert fetched == {one.entry.url for one in (*others, *allowed)}
        await until(lambda: not office.worker.in_hand)
        assert len(office.frontier.done("leased")) < 20
        assert await office.client.hmget(office.key("h0.org", "ctr"), "requests", "done") == [b"4", b"204"]
        await office.audit()

    run(redis_url, work)


RULES = Answer("rules", b"user-agent:*\ndisalow:/no")  # as it is kept


@pytest.mark.parametrize("count", [1, 2, 50, 150])
def test_what_is_disallowed_is_counted_once(redis_url: str, count: int) -> None:
    async def work(office: Office) -> None:
        office.worker.rulebook.learn("https://h0.org", Rules(RULES))
        await office.sent(*(link("h0.org", f"/no/{n}") for n in range(count)))
        await until(lambda: office.counts["leases"] and not office.worker.in_hand and office.counts["robots/disallowed"] >= count)
        assert (await Frontier.counts(office.frontier)).pending == 0

    assert run(redis_url, work).counts["robots/disallowed"] == count


def test_what_a_lease_shows_is_what_comes_after_it(redis_url: str) -> None:
    urls = [link("h0.org", f"/{n}", priority=n) for n in range(5)]

    async def work(office: Office) -> None:
        p = partition_of("h0.org", PARTITIONS)
        await Frontier.enqueue(office.frontier, p, urls)
        (lease,) = (await Frontier.lease(office.frontier, p, 1))[1]
        assert (lease.entry, lease.shown) == (urls[0].entry, ())
        await office.frontier.complete(p, [Outcome(lease, "n", arg=[])])
        (lease,) = (await Frontier.lease(office.frontier, p, 1))[1]
        assert (lease.entry, [url for _, url in lease.shown]) == (urls[1].entry, [one.entry.url for one in urls[2:]])

    run(redis_url, work, start=False)


@pytest.mark.parametrize("url", ["https://[", "https://a[b@h0.org/no/x", "https://\u2100@h0.org/no/x"])
def test_what_stands_behind_a_disallowed_url_stops_nobody_whatever_it_is(redis_url: str, url: str) -> None:
    urls = [link("h0.org", f"/no/{n}") for n in range(3)]

    async def work(office: Office) -> None:
        office.worker.rulebook.learn("https://h0.org", Rules(RULES))
        await office.sent(*urls[:2], Link("h0.org", b"x" * 16, Entry(url, 5)), urls[2], link("h0.org", "/yes", priority=6))
        await until(lambda: office.ended or office.worker._jobs.heap)
        assert office.ended == []

    run(redis_url, work)


async def keep(office: Office, origin: str, answer: Answer, age_s: float) -> None:
    """As if it had been fetched so long ago."""
    host = host_of(origin)
    left_ms = KEPT_MS - round(age_s * 1000)
    await office.frontier.tell(host, lambda lease: Outcome(lease, "l", robots=KeptNow(origin, answer.pack(), left_ms, -1)))


async def hop(office: Office, origin: str, to: str, hops: int = 1, lives_s: float = 300.0) -> None:
    """As if its robots.txt had redirected there a moment ago."""
    value = Answer("redirect", to=to, hops=hops).pack()
    await office.frontier.tell(host_of(origin), lambda lease: Outcome(lease, "l", robots_hop=(origin, value, round(lives_s * 1000))))


@pytest.mark.parametrize(
    ("answer", "age_s", "robots_url", "stale"),
    [
        (RULES, 86_000, "", None),
        (ALLOW, 86_000, "", None),
        # after a day it is asked for anew, the old copy at hand
        (RULES, 86_500, "https://h0.org/robots.txt", RULES),
        (ALLOW, 29 * 86_400, "https://h0.org/robots.txt", ALLOW),
    ],
)
def test_what_redis_has_of_a_robots_txt_holds_a_day(
    redis_url: str, answer: Answer, age_s: float, robots_url: str, stale: Answer | None
) -> None:
    page = link("h0.org", "/page")

    async def work(office: Office) -> None:
        await keep(office, "https://h0.org", answer, age_s)
        await office.sent(page)
        job = await office.job()
        assert (job.robots_url, job.stale_robots, job.robots_host, job.origin) == (robots_url, stale, "h0.org", "https://h0.org")
        assert (job.robots_hops, job.has_stale, job.lease.entry) == (0, stale is not None, page.entry)

    run(redis_url, work)


@pytest.mark.parametrize("stale", [None, RULES])
@pytest.mark.parametrize(
    ("to", "hops", "asked"),
    [
        ("https://www.h0.org/r", 1, ("https://www.h0.org/r", 1)),
        ("http://files.h0.org:8080/r?x", 5, ("http://files.h0.org:8080/r?x", 5)),
        # that host's own turn is another matter
        ("https://h1.org/r", 1, ("https://h0.org/robots.txt", 0)),
        ("https://h0.org.evil.com/r", 1, ("https://h0.org/robots.txt", 0)),
    ],
)
def test_a_redirect_of_a_robots_txt_is_followed_for_some_minutes_on_the_host_itself(
    redis_url: str, to: str, hops: int, asked: tuple[str, int], stale: Answer | None
) -> None:
    """The old copy stays at hand beside it."""

    async def work(office: Office) -> None:
        if stale:
            await keep(office, "https://h0.org", stale, 90_000)
        await hop(office, "https://h0.org", to, hops)
        await office.sent(link("h0.org", "/page"))
        job = await office.job()
        assert ((job.robots_url, job.robots_hops), job.stale_robots, job.has_stale) == (asked, stale, stale is not None)
        assert 0 < await office.client.pttl(office.key("h0.org", "hop:https://h0.org")) <= 300_000

    run(redis_url, work)


def test_a_robots_txt_that_is_fresh_is_not_looked_for_where_an_older_one_was(redis_url: str) -> None:
    async def work(office: Office) -> None:
        await keep(office, "https://h0.org", RULES, 100)
        await hop(office, "https://h0.org", "https://www.h0.org/r")
        await office.sent(link("h0.org", "/page"))
        assert (await office.job()).robots_url == ""

    run(redis_url, work)


@pytest.mark.parametrize(
    "value",
    [b"garbage", Answer("allow").pack(), RULES.pack(), b'{"v":2,"d":"redirect","to":"https://www.h0.org/","hops":9}\n'],
)
def test_a_hop_in_redis_that_is_not_ours_is_as_good_as_none(redis_url: str, value: bytes) -> None:
    async def work(office: Office) -> None:
        await office.client.set(office.key("h0.org", "hop:https://h0.org"), value)
        await office.sent(link("h0.org", "/page"))
        job = await office.job()
        assert (job.robots_url, job.robots_hops, job.stale_robots) == ("https://h0.org/robots.txt", 0, None)

    assert run(redis_url, work).ended == []


def test_an_old_copy_holds_for_a_while_where_it_could_not_be_renewed(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [link("h0.org", path) for path in ("/yes/1", "/no", "/yes/2", "/yes/3")]

    async def work(office: Office) -> None:
        origin = "https://h0.org"
        await keep(office, origin, RULES, 90_000)
        await office.sent(*pages)
        job = await office.job()
        assert (job.robots_url, job.stale_robots) == ("https://h0.org/robots.txt", RULES)
        office.worker.finish(job, Outcome(job.lease, "l", boottime(), stale_robots=(origin, 600)))
        job = await office.job()  # by whichever worker
        assert (job.robots_url, job.lease.entry.url) == ("", pages[0].entry.url)
        finished(office, job)
        job = await office.job()
        assert (job.robots_url, job.lease.entry.url) == ("", pages[2].entry.url)
        monkeypatch.setattr(rulebook, "STALE_S", 0.0)
        office.worker.rulebook._rules.clear()  # a worker remembers it not longer than a moment
        finished(office, job)
        await office.client.delete(office.key("h0.org", f"stale:{origin}"))
        job = await office.job()
        assert (job.robots_url, job.stale_robots) == ("https://h0.org/robots.txt", RULES)

    office = run(redis_url, work)
    assert office.counts["robots/disallowed"] == 1


def test_rules_are_remembered_an_hour_at_the_most(redis_url: str) -> None:
    async def work(office: Office) -> None:
        now = boottime()
        office.worker.rulebook.learn("https://h0.org", Rules(ALLOW), 1e9)
        office.worker.rulebook.learn("https://h1.org", Rules(ALLOW), 0.0)
        office.worker.rulebook.learn("https://h2.org", Rules(ALLOW), 60.0)
        assert 3590 < office.worker.rulebook._rules["https://h0.org"][0] - now < 3610
        assert office.worker.rulebook.of("https://h0.org")
        assert office.worker.rulebook.of("https://h2.org")
        assert office.worker.rulebook.of("https://h1.org") is None

    run(redis_url, work, start=False)


# -- robots.txt at another host ------------------------------------------------------------------------------------------


def robots_link(host: str, url: str, fields: dict[str, object]) -> Link:
    return Link(host, b"r" * 16, Entry(url, 0, request=fields), UNCHECKED)


def judging(
    office: Office, job: Job, status: int, location: str | None = None, body: bytes | None = b"", retry_after: str | None = None
) -> Verdict:
    """What the scheduler does with an answer."""
    by = Judge(Canonicalizer(), max_redirects=5, give_up_s=3600.0, timeout_s=20.0, rng=random.Random(1))
    values = {"Location": location, "Retry-After": retry_after}
    verdict = by.response(job, status, values.get, body, Sent(boottime(), 0.001))
    if verdict.link is not None:
        office.worker.outbox.add_links([verdict.link], job.ticket)
    if verdict.rules is not None:
        office.worker.rulebook.learn(job.origin, verdict.rules, rulebook.STALE_S if verdict.outcome.stale_robots else rulebook.RULES_S)
    if verdict.news is not None:
        office.worker.tell(job, verdict.news)
    office.worker.finish(job, verdict.outcome)
    return verdict


@pytest.mark.parametrize("hosts_of", [("h0.org", "h1.org"), tuple(hosts(0, 2))], ids=["any", "one partition"])
@pytest.mark.parametrize("status", [200, 404])
def test_a_robots_txt_at_another_host_is_fetched_in_that_host_s_turn(redis_url: str, hosts_of: tuple[str, str], status: int) -> None:
    here, there = hosts_of
    urls = [link(here, path) for path in ("/no", "/yes")]
    busy = link(there, "/page")

    async def work(office: Office) -> None:
        office.allow(busy)
        await office.sent(*urls)
        job = await office.job()
        assert (job.robots_url, job.robots_host) == (f"https://{here}/robots.txt", here)
        await office.sent(busy)
        page = await office.job()  # the other host is busy
        assert page.lease.host == there
        judging(office, job, 301, f"https://{there}/rules.txt")
        await until(lambda: (urls[0].entry.url, "o") in office.frontier.done("completed"))
        finished(office, page)
        ended = boottime()
        job = await office.job()
        assert (job.lease.host, job.robots_url) == (there, f"https://{there}/rules.txt")
        assert (job.robots_host, job.origin, job.robots_hops) == (here, f"https://{here}", 1)
        assert job.lease.not_before - ended >= office.limits.min_delay_s - 0.01
        judging(office, job, status, body=b"User-agent: *\nDisallow: /no")
        job = await office.job()
        expected = urls[1] if status == 200 else urls[0]
        assert (job.lease.host, job.robots_url, job.lease.entry) == (here, "", expected.entry)
        finished(office, job)
        if status == 404:
            finished(office, await office.job())
        await until(lambda: not office.worker.in_hand)
        done = office.frontier.done("completed")
        assert done.index(("", "l")) < done.index((f"https://{there}/rules.txt", "d"))  # told before it is complete
        assert (await Frontier.counts(office.frontier)).pending == 0
        await office.audit()

    office = run(redis_url, work)
    assert office.counts["robots/disallowed"] == (1 if status == 200 else 0)


def test_a_robots_txt_that_comes_back_to_the_host_that_asked_is_asked_for_once(redis_url: str) -> None:
    """h0.org → h1.org → www.h0.org: three requests, and then the pages."""

    async def work(office: Office) -> None:
        await office.sent(*(link("h0.org", f"/{n}") for n in range(3)))
        judging(office, await office.job(), 301, "https://h1.org/r")
        judging(office, await office.job(), 301, "https://www.h0.org/r")
        job = await office.job()
        assert (job.robots_url, job.lease.host, job.robots_host, job.origin, job.robots_hops) == (
            "https://www.h0.org/r",
            "h0.org",
            "h0.org",
            "https://h0.org",
            2,
        )
        judging(office, job, 200, body=b"User-agent: *\nDisallow: /1")
        for url in ("https://h0.org/0", "https://h0.org/2"):
            job = await office.job()
            assert (job.robots_url, job.lease.entry.url) == ("", url)
            finished(office, job)
        await until(lambda: not office.worker.busy)
        assert (await Frontier.counts(office.frontier)).pending == 0
        await office.audit()

    office = run(redis_url, work)
    assert office.counts["robots/disallowed"] == 1


def test_an_older_copy_outlives_a_redirect_on_the_host(redis_url: str) -> None:
    async def work(office: Office) -> None:
        await keep(office, "https://h0.org", RULES, 90_000)
        await office.sent(link("h0.org", "/no"), link("h0.org", "/page"))
        job = await office.job()
        assert job.stale_robots == RULES
        judging(office, job, 301, "https://www.h0.org/robots.txt")
        job = await office.job()
        assert (job.robots_url, job.stale_robots) == ("https://www.h0.org/robots.txt", RULES)
        assert judging(office, job, 503).robots == RULES
        job = await office.job()
        assert (job.robots_url, job.lease.entry.url) == ("", "https://h0.org/page")

    assert run(redis_url, work).counts["robots/disallowed"] == 1


@pytest.mark.parametrize("status", [503, 404, 200])
def test_an_older_copy_is_obeyed_until_another_host_has_told_the_new_one(redis_url: str, status: int) -> None:
    """Neither the pages nor the other host's answer wait for each other."""

    async def work(office: Office) -> None:
        await keep(office, "https://h0.org", RULES, 90_000)
        await office.sent(link("h0.org", "/no"), *(link("h0.org", f"/{n}") for n in range(2)))
        judging(office, await office.job(), 301, "https://h1.org/robots.txt")
        by_host = {job.lease.host: job for job in (await office.job(), await office.job())}
        page, elsewhere = by_host["h0.org"], by_host["h1.org"]
        assert (page.robots_url, page.lease.entry.url) == ("", "https://h0.org/0")
        assert (elsewhere.robots_url, elsewhere.has_stale) == ("https://h1.org/robots.txt", True)
        judging(office, elsewhere, status, body=b"User-agent: *\nDisallow: /1")
        await until(lambda: elsewhere.lease.token not in office.worker.in_hand)
        finished(office, page)
        await until(lambda: not office.worker.in_hand or office.worker._jobs.heap)
        (kept,) = await office.frontier.robots("h0.org", ["https://h0.org"])
        assert kept
        assert kept.value == {503: RULES, 404: ALLOW, 200: Answer("rules", b"User-agent: *\nDisallow: /1")}[status].pack()
        assert kept.holds == (status == 503)

    run(redis_url, work)


def test_retry_after_is_waited_for_and_trouble_stays_though_an_older_copy_is_obeyed(redis_url: str) -> None:
    async def work(office: Office) -> None:
        origin, failed = "https://h0.org", OriginFailed("http_503", 1, 60, struggling=True)
        await keep(office, origin, RULES, 90_000)
        await office.frontier.tell("h0.org", lambda lease: Outcome(lease, "l", origin=origin, failed=failed))
        await office.sent(link("h0.org", "/page"))
        await office.passes(2)
        job = await office.job()
        assert (job.lease.origin_failures, job.robots_url) == (1, "https://h0.org/robots.txt")
        judging(office, job, 503, retry_after="300")
        await until(lambda: not office.worker.in_hand)
        await office.passes(299)
        p = partition_of("h0.org", PARTITIONS)
        assert (await Frontier.lease(office.frontier, p, 1))[1] == []
        await office.passes(2)
        job = await office.job()
        assert job.lease.origin_failures == 2

    run(redis_url, work)


async def leased(office: Office, host: str = "h0.org") -> Lease | None:
    leases = (await Frontier.lease(office.frontier, partition_of(host, PARTITIONS), 1))[1]
    return leases[0] if leases else None


def judged(job: Job, status: int, location: str | None = None, retry_after: str | None = None) -> Outcome:
    by = Judge(Canonicalizer(), max_redirects=5, give_up_s=3600.0, timeout_s=20.0, rng=random.Random(1))
    values = {"Location": location, "Retry-After": retry_after}
    return by.response(job, status, values.get, b"", Sent(boottime(), 0.001)).outcome


def test_a_robots_txt_that_is_never_had_is_given_up_though_it_is_behind_a_redirect_of_the_host(redis_url: str) -> None:
    """robots.txt → files.h0.org/r: 503, for ever. The hop is forgotten every five minutes, the trouble is not."""

    async def work(office: Office) -> None:
        await Frontier.enqueue(office.frontier, partition_of("h0.org", PARTITIONS), [link("h0.org", "/page")])
        passed_s, hop_until_s, asked = 0.0, 0.0, []
        while (await Frontier.counts(office.frontier)).pending:
            lease = await leased(office)
            if lease is None:
                passed_s += 10
                await office.passes(10)
                assert passed_s < 2 * 3600
                continue
            if passed_s < hop_until_s:
                job = Job(lease, "https://h0.org", "https://files.h0.org/r", 1, "h0.org")
                outcome = judged(job, 503)
            else:
                job = Job(lease, "https://h0.org", "https://h0.org/robots.txt", 0, "h0.org")
                outcome = judged(job, 301, "https://files.h0.org/r")
                hop_until_s = passed_s + 300
            asked.append(job.robots_hops)
            await Frontier.complete(office.frontier, lease.partition, [outcome])
        assert passed_s >= 3600
        assert sum(asked) < 20  # the waits grow

    run(redis_url, work, start=False)


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_that_is_too_long_is_not_waited_for_with_an_older_copy_either(redis_url: str, status: int) -> None:
    async def work(office: Office) -> None:
        await Frontier.enqueue(office.frontier, partition_of("h0.org", PARTITIONS), [link("h0.org", "/page")])
        lease = await leased(office)
        assert lease
        job = Job(lease, "https://h0.org", "https://h0.org/robots.txt", 0, "h0.org", True, RULES)
        await Frontier.complete(office.frontier, lease.partition, [judged(job, status, retry_after="86400")])
        await office.passes(3600)
        if lease := await leased(office):
            await Frontier.complete(office.frontier, lease.partition, [Outcome(lease, "d", boottime())])
        assert (await Frontier.counts(office.frontier)).pending == 0

    run(redis_url, work, start=False)


@pytest.mark.parametrize("stale", [None, RULES])
def test_retry_after_of_an_origin_s_robots_txt_does_not_stop_the_host_s_others(redis_url: str, stale: Answer | None) -> None:
    async def work(office: Office) -> None:
        url = "https://www.h0.org/x"
        both = [Link("h0.org", url_key(url), Entry(url, 1)), link("h0.org", "/page")]
        await Frontier.enqueue(office.frontier, partition_of("h0.org", PARTITIONS), both)
        lease = await leased(office)
        assert lease
        assert lease.entry.url == url
        job = Job(lease, "https://www.h0.org", "https://www.h0.org/robots.txt", 0, "h0.org", stale is not None, stale)
        await Frontier.complete(office.frontier, lease.partition, [judged(job, 503, retry_after="3000")])
        await office.passes(30)
        other = await leased(office)
        assert other
        assert other.entry.url == "https://h0.org/page"
        await Frontier.complete(office.frontier, other.partition, [Outcome(other, "d", boottime())])
        await office.passes(2900)
        assert await leased(office) is None
        await office.passes(100)
        again = await leased(office)
        assert again
        assert again.entry.url == url

    run(redis_url, work, start=False)


def test_a_redirect_that_stands_where_a_robots_txt_should_is_no_older_copy(redis_url: str) -> None:
    async def work(office: Office) -> None:
        await keep(office, "https://h0.org", Answer("redirect", to="https://www.h0.org/r", hops=1), 400)
        await office.sent(link("h0.org", "/page"))
        job = await office.job()
        assert (job.robots_url, job.stale_robots, job.has_stale) == ("https://h0.org/robots.txt", None, False)

    run(redis_url, work)


def test_the_next_worker_knows_what_another_host_said(redis_url: str) -> None:
    page = link("h0.org", "/page")

    async def work(office: Office) -> None:
        await office.sent(page)
        judging(office, await office.job(), 301, "https://h1.org/r")
        judging(office, await office.job(), 200, body=b"User-agent: *\nCrawl-delay: 0.2")
        await until(lambda: ("https://h1.org/r", "d") in office.frontier.done("completed"))
        (kept,) = await office.frontier.robots("h0.org", ["https://h0.org"])
        assert kept
        assert kept.value == Answer("rules", b"User-agent: *\nCrawl-delay: 0.2").pack()
        assert await office.client.hget(office.key("h0.org", "host:h0.org"), "c") == b"200"
        assert await office.client.hget(office.key("h1.org", "host:h1.org"), "c") is None

    run(redis_url, work)


@pytest.mark.parametrize("fields", [{"probe": 2}, {"probe": None}, {"probe": 1, "method": "POST"}])
def test_a_probe_that_is_not_ours_is_moved_aside(redis_url: str, fields: dict[str, object]) -> None:
    async def work(office: Office) -> None:
        await office.sent(robots_link("h1.org", "https://h1.org/0123", fields))
        await until(lambda: office.frontier.done("completed"))
        assert office.frontier.done("completed") == [("https://h1.org/0123", "q")]

    assert run(redis_url, work).counts["quarantined"] == 1


@pytest.mark.parametrize(("rules", "way"), [(b"User-agent: *\nDisallow: /", "n"), (b"User-agent: *\nDisallow: /a/", "d")])
def test_a_probe_is_sent_where_robots_txt_allows_it(redis_url: str, rules: bytes, way: str) -> None:
    async def work(office: Office) -> None:
        office.worker.rulebook.learn("https://h1.org", Rules(Answer("rules", rules)))
        await office.sent(robots_link("h1.org", "https://h1.org/0123", probe_request()))
        if way == "d":
            job = await office.job()
            assert job.is_probe
            assert not judging(office, job, 200, body=b"<p>Somebody must have left this pier long before").is_page
        await until(lambda: office.frontier.done("completed"))
        assert office.frontier.done("completed") == [("https://h1.org/0123", way)]

    run(redis_url, work)


def test_pages_of_another_host_do_not_wait_for_the_robots_txt_that_they_share(redis_url: str) -> None:
    """robots.txt of another origin is nobody's page: the rules of the host that it lies on are not asked for it."""

    async def work(office: Office) -> None:
        office.worker.rulebook.learn("https://h1.org", Rules(Answer("rules", b"User-agent: *\nDisallow: /")))
        await office.sent(robots_link("h1.org", "https://h1.org/r", robots_request("h0.org", "https://h0.org", 3)))
        job = await office.job()
        assert (job.robots_url, job.robots_hops, job.stale_robots) == ("https://h1.org/r", 3, None)

    run(redis_url, work)


def test_a_worker_is_busy_until_the_host_that_asked_is_told(redis_url: str) -> None:
    async def work(office: Office) -> None:
        await office.sent(robots_link("h1.org", "https://h1.org/r", robots_request("h0.org", "https://h0.org", 1)))
        job = await office.job()
        office.frontier.hold("complete")
        judging(office, job, 200)
        assert office.worker.busy
        office.frontier.free("complete")
        await until(lambda: not office.worker.busy)
        assert office.frontier.done("completed") == [("", "l"), ("https://h1.org/r", "d")]

    run(redis_url, work)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "h0.org",
        ["h0.org", "https://h0.org", 1],
        ["h0.org", "https://h9.org", 1, 0],
        ["h0.org", "https://h0.org", 99, 0],
        ["h0.org", "https://[", 1, 0],
        {"a": 1},
    ],
)
def test_a_request_for_a_robots_txt_that_is_not_ours_is_moved_aside(redis_url: str, value: object) -> None:
    async def work(office: Office) -> None:
        await office.sent(robots_link("h1.org", "https://h1.org/r", {"robots": value}))
        await until(lambda: office.frontier.done("completed"))
        assert office.frontier.done("completed") == [("https://h1.org/r", "q")]
        assert await office.client.llen(office.key("h1.org", "quarantine")) == 1

    office = run(redis_url, work)
    assert (office.counts["quarantined"], office.ended) == (1, [])


@pytest.mark.parametrize(
    "value",
    [b"garbage", b"[" * 100_000, b'{"v":2,"d":"redirect","to":"","hops":0}\n', b'{"v":2,"d":"allow","to":"","hops":1e999}\n', b'{"v":9}\n'],
)
def test_a_robots_txt_in_redis_that_is_not_ours_is_fetched_anew(redis_url: str, value: bytes) -> None:
    page = link("h0.org", "/page")

    async def work(office: Office) -> None:
        await office.client.set(office.key("h0.org", "robots:https://h0.org"), value)
        await office.sent(page)
        job = await office.job()
        assert job.robots_url == "https://h0.org/robots.txt"

    office = run(redis_url, work)
    assert office.ended == []
    assert office.counts["quarantined"] == 1


@pytest.mark.parametrize("max_pages", [None, 10])
@pytest.mark.parametrize(
    "url",
    [
        "https://[",
        "https://[::1/x",
        "http://a]b/",
        "https://",
        "http:///x",
        "https://a:99999999/",
        "https://\u2100.org/",
        # on its host, as browsers read it
        "https://a[b@HOST/",
        "https://a]b@HOST/x",
        "https://u:p[@HOST/",
        "https://\u2100@HOST/",
        "https://HOST\\x/",
    ],
)
def test_an_entry_that_is_no_url_is_moved_aside_and_stops_nobody(redis_url: str, url: str, max_pages: int | None) -> None:
    good = link(hosts(0, 2)[1])
    host = hosts(0, 1)[0]
    bad = Link(host, b"x" * 16, Entry(url.replace("HOST", host), 0))

    async def work(office: Office) -> None:
        office.allow(good)
        await office.sent(bad)
        await until(lambda: office.frontier.done("leased"))
        await office.sent(good)
        await until(lambda: office.ended or any(good.entry.url in urls for urls in office.frontier.done("leased")))
        assert office.ended == []
        job = await office.job()
        while job.lease.host == bad.host:  # at worst it is a job that fails
            finished(office, job)
            job = await office.job()
        finished(office, job)
        await until(lambda: (good.entry.url, "d") in office.frontier.done("completed"))

    run(redis_url, work, max_pages=max_pages)


# -- other spellings -----------------------------------------------------------------------------------------------------


def test_a_lease_says_whether_its_origin_and_others_had_pages_whoever_fetched_them(redis_url: str) -> None:
    urls = ("https://h0.org/1", "https://h0.org/2", "https://www.h0.org/3", "https://h0.org/4", "http://h0.org/5")
    pages = [Link("h0.org", url_key(url), Entry(url, 5)) for url in urls]

    async def work(office: Office) -> None:
        for origin in ("https://h0.org", "https://www.h0.org", "http://h0.org"):
            office.worker.rulebook.learn(origin, Rules(ALLOW))
        await office.sent(*pages)
        had = []
        for status in (404, 200, 200, 200, 200):
            job = await office.job()
            had.append((job.lease.origin_has_pages, job.lease.others_have_pages))
            finished(office, job) if status == 404 else judging(office, job, status, body=b"<p>Tea</p>")
        assert had == [(False, True), (False, True), (False, True), (True, True), (False, True)], "a host is hardly known before five pages"

    run(redis_url, work)


@pytest.mark.parametrize("status", [404, 410])
def test_other_spellings_are_tried_one_after_the_other_and_each_once(redis_url: str, status: int) -> None:
    """The slash, then another origin that has pages. Each is a URL of its own with the same key."""

    async def work(office: Office) -> None:
        for origin in ("https://h0.org", "https://www.h0.org"):
            office.worker.rulebook.learn(origin, Rules(ALLOW))
        pages = [Link("h0.org", url_key(url), Entry(url, 0)) for url in ("https://h0.org/", "https://www.h0.org/x")]
        await office.sent(*pages, link("h0.org", "/a", priority=5))
        for _ in pages:
            judging(office, await office.job(), 200, body=b"<p>Tea</p>")
        asked = []
        for _ in range(3):
            job = await office.job()
            asked.append((job.lease.entry.url, job.lease.entry.sibling))
            judging(office, job, status)
        assert asked == [("https://h0.org/a", 0), ("https://h0.org/a/", 1), ("https://www.h0.org/a", 2)]
        await until(lambda: not office.worker.busy)
        assert (await Frontier.counts(office.frontier)).pending == 0
        await office.audit()

    office = run(redis_url, work)
    assert office.counts["links/enqueued"] == 2


def test_what_was_not_read_does_not_make_an_origin_one_with_pages(redis_url: str) -> None:
    """An image, or an answer to HEAD."""
    urls = [link("h0.org", f"/{n}.png", priority=n) for n in range(2)]

    async def work(office: Office) -> None:
        office.allow(*urls)
        await office.sent(*urls)
        judging(office, await office.job(), 200, body=None)
        assert not (await office.job()).lease.origin_has_pages

    run(redis_url, work)


def test_a_site_of_images_has_not_blocked_us(redis_url: str) -> None:
    """Good pages, then links to images that are not wanted: no rest."""

    async def work(office: Office) -> None:
        office.allow(link("h0.org"))
        await office.sent(*(link("h0.org", f"/{n}", priority=1 if n < 8 else 2) for n in range(28)))
        for n in range(28):
            job = await office.job()
            judging(office, job, 200, body=b"<p>Tea</p>" if n < 8 else None)
            await office.passes(0.05)
        await until(lambda: not office.worker.busy)
        assert (await Frontier.counts(office.frontier)).pending == 0
        assert await office.client.hget(office.key("h0.org", "ctr"), "blocked") is None

    run(redis_url, work)


# -- turns of addresses --------------------------------------------------------------------------------------------------

IP = "192.0.2.1"
SHARED = Limits(min_delay_s=0.02, ip_delay_s=0.06, look_ahead_s=0.02, expected_urls=4096)


async def one_address(name: str) -> str:
    return IP if name.startswith("h") else ""


async def holder(office: Office) -> str | None:
    found = await office.client.hget(f"{{t:ip:0}}:ip:{IP}", "h")
    return found.decode() if isinstance(found, bytes) else None


def test_hosts_on_one_address_take_turns_and_others_do_not_wait(redis_url: str) -> None:
    shared, free = [link(f"h{n}.org") for n in range(4)], [link(f"f{n}.org") for n in range(10)]

    async def work(office: Office) -> None:
        office.allow(*shared, *free)
        await office.sent(*shared, *free)
        ends: list[float] = []
        fetched = set()
        for n in range(len(shared) + len(free)):
            job = await office.job()
            fetched.add(job.lease.entry.url)
            assert job.ip == (IP if job.lease.host.startswith("h") else "")
            if job.ip:
                assert boottime() - max(ends, default=0.0) >= SHARED.ip_delay_s
                assert await holder(office) == job.lease.token
                ends.append(boottime())
                assert n < len(free) + 1 or len(ends) > 1
            finished(office, job)
        assert fetched == {one.entry.url for one in (*shared, *free)}
        await until(lambda: not office.worker.busy)
        assert await holder(office) is None
        await office.audit()

    office = run(redis_url, work, limits=SHARED, address_of=one_address)
    assert office.counts["ip/refused"] >= 3


def test_a_host_that_is_refused_goes_back_to_its_place_with_a_wait(redis_url: str) -> None:
    first, second = link("h0.org"), link("h1.org")

    async def work(office: Office) -> None:
        office.allow(first, second)
        await office.sent(first)
        job = await office.job()
        await office.sent(second)
        await until(lambda: office.counts["ip/refused"])
        await until(lambda: office.frontier.done("completed"))
        assert office.frontier.done("completed")[0] == (second.entry.url, "l")
        next_ms = int(await office.client.hget(office.key("h1.org", "host:h1.org"), "n") or 0)
        seconds, us = await office.client.time()
        assert next_ms > seconds * 1000 + us / 1000
        assert await office.client.hget(office.key("h1.org", "ctr"), "requests") is None
        finished(office, job)
        ended = boottime()
        other = await office.job()
        assert (other.lease.host, boottime() - ended >= SHARED.ip_delay_s) == ("h1.org", True)
        assert other.lease.entry.expiries == other.lease.entry.failures == 0

    run(redis_url, work, limits=SHARED, address_of=one_address)


def test_a_request_must_end_while_its_address_is_held(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        assert job.until == min(job.lease.expires, job.ip_until)
        job.lease.expires += 100  # renewed: the hold is not
        assert job.until == job.ip_until <= boottime() + office.limits.lease_s
        job.ip_until += 1000
        assert job.until == job.lease.expires

    run(redis_url, work, limits=SHARED, address_of=one_address)


def test_a_job_whose_hold_is_too_short_for_a_fetch_is_given_back_and_frees_its_address(redis_url: str) -> None:
    first, second = link("h0.org"), link("h1.org")

    async def work(office: Office) -> None:
        office.allow(first, second)
        await office.sent(first)
        await until(lambda: office.worker._jobs.heap)
        office.worker._jobs.heap[0][2].ip_until = boottime() + 1
        assert office.worker.next_job() is None
        await until(lambda: office.frontier.done("completed"))
        assert office.frontier.done("completed") == [(first.entry.url, "l")]
        job = await office.job()  # nothing was sent, so nobody waits for the address
        assert job.ip == IP
        assert await holder(office) == job.lease.token

    office = run(redis_url, work, limits=SHARED, address_of=one_address)
    assert office.counts["leases/returned"] == 1


def test_a_robots_txt_has_the_turn_of_the_address_that_it_lies_on(redis_url: str) -> None:
    asked: list[str] = []

    async def address_of(name: str) -> str:
        asked.append(name)
        return IP

    async def work(office: Office) -> None:
        await hop(office, "https://h0.org", "https://files.h0.org:8443/r")
        await office.sent(link("h0.org", "/page"))
        job = await office.job()
        assert (job.robots_url, job.ip) == ("https://files.h0.org:8443/r", IP)

    run(redis_url, work, limits=SHARED, address_of=address_of)
    assert asked == ["files.h0.org"]


def test_a_name_that_is_not_found_keeps_nobody_waiting(redis_url: str) -> None:
    """Names are looked up side by side; where that fails, the request finds out."""
    slow, quick, nowhere = link("h0.org"), link("h1.org"), link("f0.org")
    found = asyncio.Event()

    async def address_of(name: str) -> str:
        if name == "h0.org":
            await found.wait()
        return "" if name == "f0.org" else f"192.0.2.{name[1]}"

    async def work(office: Office) -> None:
        office.allow(slow, quick, nowhere)
        await office.sent(slow, quick, nowhere)
        jobs = [await office.job(), await office.job()]
        assert {job.lease.host: job.ip for job in jobs} == {"h1.org": "192.0.2.1", "f0.org": ""}
        assert office.worker.next_job() is None
        found.set()
        assert (await office.job()).lease.host == "h0.org"

    run(redis_url, work, limits=SHARED, address_of=address_of)


def test_a_host_with_permission_takes_no_turns(redis_url: str) -> None:
    """An operator's own site: an override allows it less than the minimum delay."""
    page, other = link("h0.org"), link("h1.org")

    async def work(office: Office) -> None:
        office.allow(page, other)
        await office.frontier.override("h0.org", Override(delay_s=0.0, below_minimum=True))
        await office.frontier.override("h1.org", Override(delay_s=1.0))
        await office.sent(page, other)
        jobs = {job.lease.host: job for job in (await office.job(), await office.job())}
        assert {host: (job.lease.has_permission, job.ip) for host, job in jobs.items()} == {"h0.org": (True, ""), "h1.org": (False, IP)}
        assert jobs["h0.org"].until == jobs["h0.org"].lease.expires

    run(redis_url, work, limits=SHARED, address_of=one_address)


@pytest.mark.parametrize("looked_up_s", [0.05, 60])
def test_closing_does_not_wait_for_names_and_gives_their_leases_back(redis_url: str, looked_up_s: float) -> None:
    page, asked = link("h0.org"), asyncio.Event()

    async def address_of(name: str) -> str:  # noqa: ARG001
        asked.set()
        await asyncio.sleep(looked_up_s)
        return IP

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        await asyncio.wait_for(asked.wait(), 5)
        began = boottime()
        await office.worker.close()
        assert boottime() - began < 1
        assert office.worker.in_hand == {}
        assert office.frontier.done("completed") == [(page.entry.url, "l")]
        assert (await office.audit()).get("leased", 0) == 0

    assert run(redis_url, work, limits=SHARED, address_of=address_of).counts["leases/returned"] == 1


@pytest.mark.parametrize("state", ["looked up", "not due", "asked", "at hand"])
def test_closing_gives_back_leases_and_addresses_in_whatever_state(redis_url: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = link("h0.org")
    found, asked, gate = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def address_of(name: str) -> str:
        asked.set()
        await found.wait()
        return await one_address(name)

    async def work(office: Office) -> None:
        worker, ip_turns = office.worker, office.frontier.ip_turns

        async def held_back(*args: Any) -> list[float]:
            asked.set()
            await gate.wait()
            return await ip_turns(*args)

        office.allow(page)
        if state == "not due":
            monkeypatch.setattr("crawlweb.turns.AHEAD_S", -1000.0)
        await office.sent(page)
        await asyncio.wait_for(asked.wait(), 5)
        asked.clear()
        if state == "asked":
            monkeypatch.setattr(office.frontier, "ip_turns", held_back)
        if state != "looked up":
            found.set()
        if state == "not due":
            await until(lambda: worker._turns.unsent)
        elif state == "asked":
            await asyncio.wait_for(asked.wait(), 5)
        elif state == "at hand":
            await until(lambda: worker._jobs.heap)
        worker.stop()
        found.set()
        gate.set()
        assert worker.next_job() is None
        await until(lambda: not worker.in_hand)
        await worker.close()
        assert office.frontier.done("completed") == [(page.entry.url, "l")]
        assert await holder(office) is None
        assert (await office.audit()).get("leased", 0) == 0

    office = run(redis_url, work, limits=SHARED, address_of=address_of)
    assert office.counts["leases/returned"] == 1


def test_a_worker_is_busy_while_the_end_of_a_hold_is_unsent(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page, gate = link("h0.org"), asyncio.Event()

    async def work(office: Office) -> None:
        ip_turns = office.frontier.ip_turns

        async def held_back(*args: Any) -> list[float]:
            await gate.wait()
            return await ip_turns(*args)

        office.allow(page)
        await office.sent(page)
        job = await office.job()
        monkeypatch.setattr(office.frontier, "ip_turns", held_back)
        finished(office, job)
        await until(lambda: not office.worker.in_hand)
        assert office.worker.busy
        gate.set()
        await until(lambda: not office.worker.busy)

    run(redis_url, work, limits=SHARED, address_of=one_address)


# -- max_pages -----------------------------------------------------------------------------------------------------------


async def stored(office: Office, job: Job) -> bool:
    """As the store middleware asks before it writes, and then the page leaves the engine."""
    assert office.worker.limit
    counts = await office.worker.limit.counts(job.lease)
    finished(office, job, "d" if counts else "l")
    return counts


def test_no_more_pages_are_begun_than_max_pages_and_the_crawl_ends_there(redis_url: str) -> None:
    pages = [link(f"h{n}.org") for n in range(12)]

    async def work(office: Office) -> None:
        worker = office.worker
        office.allow(*pages)
        await office.sent(*pages)
        jobs = [await office.job() for _ in range(3)]
        await until(lambda: len(office.frontier.done("completed")) >= 9)  # the rest went back, to wait for a while
        assert worker.next_job() is None
        finished(office, jobs[0])  # a 404: its permit is free again
        await until(lambda: jobs[0].lease.token not in worker.in_hand)
        await office.passes(4.0)
        jobs.append(await office.job())
        assert all([await stored(office, job) for job in jobs[1:]])
        await until(lambda: not worker.in_hand)
        await office.passes(1.0)
        await until(lambda: (worker.next_job(), office.ended)[1])
        assert office.ended == ["max_pages"]
        assert await office.client.scard("{t}:pages") == 3
        assert not await office.client.exists("{t}:permits", "{t}:open")

    run(redis_url, work, max_pages=3, once=True)


def test_a_url_given_back_gives_its_permit_back(redis_url: str) -> None:
    pages = [link(f"h{n}.org") for n in range(3)]

    async def work(office: Office) -> None:
        office.allow(*pages)
        await office.sent(*pages)
        for _ in range(4):
            job = await office.job()
            office.worker.give_back(job)
        await until(lambda: len(office.frontier.done("completed")) >= 4)

    run(redis_url, work, max_pages=1)


def test_a_permit_lasts_as_long_as_its_page_is_worked_on(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        first = await office.client.zscore("{t}:permits", url_key(page.entry.url)[:8])
        await until(lambda: job.lease.expires > boottime() + 0.7)
        assert await office.client.zscore("{t}:permits", url_key(page.entry.url)[:8]) >= first
        await asyncio.sleep(1.0)  # longer than the first permit
        assert not (await Meta(Frontier(office.client, "t", PARTITIONS, "w2")).spend(1, [b"another!"])).allowed[0]
        assert await stored(office, job)

    run(redis_url, work, max_pages=1, limits=Limits(lease_s=0.8), fetch_s=0.1)


def test_a_page_for_which_there_is_no_room_any_more_is_given_back(redis_url: str) -> None:
    pages = [link("h0.org"), link("h1.org")]

    async def work(office: Office) -> None:
        office.allow(*pages)
        await office.sent(*pages)
        job = await office.job()
        other = Meta(Frontier(office.client, "t", PARTITIONS, "w2"))
        await office.client.delete("{t}:permits")  # it was stopped longer than they last
        assert (await other.spend(1, [b"another!"])).allowed == [True]
        assert not await stored(office, job)
        await until(lambda: not office.worker.in_hand)
        assert office.ended == []  # the other's page is not complete
        await other.end_pages(1, [b"another!"], [])
        await until(lambda: office.ended)
        assert office.ended == ["max_pages"]
        assert (await office.audit())["pending"] == 2

    run(redis_url, work, max_pages=1, once=True)


def test_a_page_that_counts_and_whose_worker_died_is_found_and_completed_before_the_crawl_ends(redis_url: str) -> None:
    """Behind a better URL of its host, for which there is no room."""
    page, better = link("h0.org", "/counts", 5), link("h0.org", "/better", 1)
    others = [link(f"h{n}.org") for n in range(1, 9)]

    async def work(office: Office) -> None:
        await Meta(Frontier(office.client, "t", PARTITIONS, "died")).spend(1, [url_key(page.entry.url)])
        office.allow(page, *others)
        await office.sent(page, better, *others)
        job: list[Job] = []

        async def search() -> None:
            while not job:
                await office.passes(0.02)
                job.extend(found for found in [office.worker.next_job()] if found)
                await asyncio.sleep(0.01)

        await search()
        assert job[0].lease.entry.url == page.entry.url
        assert office.ended == []
        assert await stored(office, job[0])
        await until(lambda: office.ended)
        assert office.ended == ["max_pages"]

    run(redis_url, work, max_pages=1, once=True)


# -- the end -------------------------------------------------------------------------------------------------------------


def test_a_crawl_ends_when_its_frontier_is_drained(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        finished(office, await office.job())
        await until(lambda: office.ended)
        assert office.ended == ["drained"]
        assert office.frontier.counted >= 2

    run(redis_url, work, once=True)


def test_two_equal_passes_make_an_end(redis_url: str) -> None:
    """Between two passes another worker may have finished what the first pass did not see."""
    passes = [Counts(1, 1, 0), Counts(2, 1, 1), Counts(2, 2, 0), Counts(3, 3, 0), Counts(3, 3, 0)]

    async def work(office: Office) -> None:
        office.frontier.passes = list(passes)
        await until(lambda: office.ended)
        assert office.frontier.counted == len(passes)

    run(redis_url, work, once=True)


def test_continuous_crawls_do_not_end(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        finished(office, await office.job())
        await until(lambda: office.frontier.done("completed"))
        assert not any("End.watch" in repr(task) and not task.done() for task in office.worker._tasks.alive)

    assert run(redis_url, work).ended == []


@pytest.mark.parametrize("waiting", ["lease", "links", "outcome"])
def test_a_worker_with_something_in_hand_does_not_end_the_crawl(redis_url: str, waiting: str) -> None:
    page, other = (link(host) for host in hosts(0, 2))

    async def work(office: Office) -> None:
        worker, frontier = office.worker, office.frontier
        office.allow(page, other)
        await office.sent(page)
        job = await office.job()
        if waiting == "links":
            frontier.hold("enqueue")
            worker.outbox.add_links([other])
            finished(office, job)
            await until(lambda: frontier.done("completed"))
        elif waiting == "outcome":
            frontier.hold("complete")
            finished(office, job)
        frontier.passes = [Counts(1, 1, 0)] * 2  # as if the frontier knew nothing of it
        looks = worker.looks
        await until(lambda: worker.looks > looks + 2)
        assert office.ended == []
        frontier.passes = []
        frontier.free("enqueue")
        frontier.free("complete")
        if waiting == "lease":
            finished(office, job)
        elif waiting == "links":
            finished(office, await office.job())
        await until(lambda: office.ended)

    assert run(redis_url, work, once=True).ended == ["drained"]


def test_nobody_ends_a_crawl_while_a_file_of_seeds_is_read(redis_url: str) -> None:
    page, late = link("h0.org", how=EXACT), link("h1.org", how=EXACT)
    may_go_on = threading.Event()

    def batches() -> Iterator[list[Link]]:
        yield [page]
        may_go_on.wait(20)  # in a thread
        yield [late]

    async def work(office: Office) -> None:
        worker = office.worker
        office.allow(page, late)
        worker.seeding += 1
        await office.meta.say_seeding(True)
        worker.run(worker.seed(batches()))
        try:
            finished(office, await office.job())
            await until(lambda: office.frontier.done("completed"))
            looks = worker.looks
            await until(lambda: worker.looks > looks + 2)
            assert office.ended == []
            assert await office.meta.anyone_seeding()
        finally:
            may_go_on.set()
        finished(office, await office.job())
        await until(lambda: office.ended)
        assert office.ended == ["drained"]
        assert not await office.meta.anyone_seeding()

    office = run(redis_url, work, once=True)
    assert (office.counts["seeds"], office.counts["seeds/new"]) == (2, 2)


def test_nobody_ends_a_crawl_while_another_worker_reads_seeds(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        other = Meta(Frontier(office.client, "t", PARTITIONS, "w2"))
        await other.say_seeding(True)
        await office.sent(page)
        finished(office, await office.job())
        await until(lambda: office.frontier.counted > 2)
        assert office.ended == []
        await other.say_seeding(False)
        await until(lambda: office.ended)

    assert run(redis_url, work, once=True).ended == ["drained"]


def test_a_crawl_that_was_never_seeded_waits_a_while_and_says_so(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(office: Office) -> None:
        await until(lambda: office.frontier.counted > 1)
        assert office.ended == []
        monkeypatch.setattr(end, "NEVER_SEEDED_S", 0.0)
        await until(lambda: office.ended)

    assert run(redis_url, work, once=True).ended == ["never_seeded"]


# -- closing -------------------------------------------------------------------------------------------------------------


def test_closing_sends_what_waits_and_gives_back_what_is_not_begun(redis_url: str) -> None:
    pages = [link(f"h{n}.org") for n in range(20)]
    found = [link(f"n{n}.org") for n in range(500)]

    async def work(office: Office) -> None:
        worker = office.worker
        office.allow(*pages)
        await office.sent(*pages)
        job = await office.job()
        await until(lambda: len(worker.in_hand) == len(pages))
        worker.outbox.add_links(found, job.ticket)
        finished(office, job)
        await worker.close()
        assert worker.next_job() is None
        assert worker.in_hand == {}
        state = await office.audit()
        counts = await Frontier.counts(office.frontier)
        assert (counts.enqueued, counts.done) == (len(pages) + len(found), 1)
        assert state.get("leased", 0) == 0, state

    office = run(redis_url, work)
    assert office.counts["leases/returned"] == len(pages) - 1


def test_a_lease_that_arrives_while_closing_goes_back(redis_url: str) -> None:
    """The call was on its way when the crawl was stopped."""
    page = link("h0.org")

    async def work(office: Office) -> None:
        frontier, worker = office.frontier, office.worker
        office.allow(page)
        frontier.hold("lease")
        await office.sent(page)
        await until(lambda: frontier.done("leased"))
        worker.stop()
        closing = asyncio.ensure_future(worker.close())
        asyncio.get_running_loop().call_soon(frontier.free, "lease")
        await closing
        assert await office.client.zcard(office.key(page.host, "leases")) == 0

    run(redis_url, work)


def test_a_page_in_progress_at_the_stop_is_completed_before_the_close(redis_url: str) -> None:
    page, other = link("h0.org"), link("h1.org")

    async def work(office: Office) -> None:
        worker = office.worker
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        worker.stop()
        worker.stop()
        worker.outbox.add_links([other], job.ticket)
        finished(office, job)
        await worker.close()
        counts = await Frontier.counts(office.frontier)
        assert (counts.enqueued, counts.done) == (2, 1)

    run(redis_url, work)


def test_what_holds_a_page_is_waited_for_at_the_close(redis_url: str) -> None:
    page, other = link("h0.org"), link("h1.org")

    async def work(office: Office) -> None:
        worker, may_go_on = office.worker, asyncio.Event()
        office.allow(page)
        await office.sent(page)
        job = await office.job()

        async def hold() -> None:
            await may_go_on.wait()

        worker.outbox.hold(job.ticket, hold(), lambda: worker.outbox.add_links([other], job.ticket))
        finished(office, job)
        closing = asyncio.ensure_future(worker.close())
        asyncio.get_running_loop().call_later(0.01, may_go_on.set)
        await closing
        counts = await Frontier.counts(office.frontier)
        assert (counts.enqueued, counts.done) == (2, 1)

    run(redis_url, work)


class Deaf:
    """A client that loses a cancellation in a call, as asyncio.wait_for did before Python 3.12 (redis-py waits for `drain` so)."""

    def __init__(self, client: Any) -> None:
        self._client, self.asked = client, asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def time(self) -> Any:
        self.asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return await self._client.time()


def test_closing_ends_though_a_cancellation_is_lost(redis_url: str) -> None:
    async def work(office: Office) -> None:
        deaf = Deaf(office.client)
        office.frontier.redis = deaf  # type: ignore[assignment]
        await asyncio.wait_for(deaf.asked.wait(), 5)
        await asyncio.wait_for(office.worker.close(), 1)

    run(redis_url, work, limits=Limits(lease_s=3.0), fetch_s=0.1)


def test_closing_ends_though_redis_is_gone(redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.05)
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job = await office.job()
        office.frontier.hold("complete")
        finished(office, job)
        await office.worker.close()

    run(redis_url, work)
    assert "1 leases will expire" in caplog.text


def test_a_ticket_without_links_is_settled_by_its_outcome() -> None:
    assert (Ticket().left, Ticket().outcome) == (0, None)


def test_a_page_in_progress_at_the_stop_is_renewed_until_it_is_done(redis_url: str) -> None:
    page = link("h0.org")

    async def work(office: Office) -> None:
        office.allow(page)
        await office.sent(page)
        job_ = await office.job()
        office.worker.stop()
        first = job_.lease.expires
        await until(lambda: job_.lease.expires > first + 0.3, 2)
        finished(office, job_)

    office = run(redis_url, work, limits=Limits(lease_s=0.8), fetch_s=0.1)
    assert office.counts["leases/late"] == 0


@pytest.mark.parametrize("how", ["at once", "later", "never"])
def test_a_stop_in_the_moment_in_which_a_name_is_about_to_be_looked_up_gives_the_lease_back(redis_url: str, how: str) -> None:
    page, offices = link("h0.org"), []

    async def address_of(name: str) -> str:  # noqa: ARG001
        if how != "at once":
            await asyncio.sleep(0.1 if how == "later" else 100)
        return ""

    async def work(office: Office) -> None:
        offices.append(office)
        office.allow(page)
        await office.sent(page)
        await until(lambda: office.worker.closing)
        await office.worker.close()
        assert office.worker.in_hand == {}
        assert (await office.audit()).get("leased", 0) == 0

    run(redis_url, work, limits=SHARED, address_of=address_of, wake=lambda: offices and offices[0].worker.stop())


def test_what_is_not_ours_in_the_place_of_a_robots_txt_does_not_unblock_an_origin(redis_url: str) -> None:

    async def work(office: Office) -> None:
        await office.client.set(office.key("h0.org", "robots:https://h0.org"), b'{"v":1,"d":"allow","to":"","hops":0}\n')
        await office.sent(link("h0.org", "/page"))
        judging(office, await office.job(), 301, "https://h1.org/r")
        elsewhere = await office.job()
        assert elsewhere.lease.host == "h1.org"
        await until(lambda: len(office.worker.in_hand) == 1)
        await office.passes(2)
        await asyncio.sleep(0.05)
        assert office.worker.next_job() is None  # h0.org waits

    run(redis_url, work)


@pytest.mark.parametrize("call", ["robots", "permits"])
def test_closing_gives_back_a_lease_that_is_being_admitted(redis_url: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page, asked, gate = link("h0.org"), asyncio.Event(), asyncio.Event()

    async def work(office: Office) -> None:
        whose: Any = office.frontier if call == "robots" else office.meta
        original = getattr(whose, call)

        async def held_back(*args: Any) -> Any:
            asked.set()
            await gate.wait()
            return await original(*args)

        monkeypatch.setattr(whose, call, held_back)
        await office.sent(page)
        await asyncio.wait_for(asked.wait(), 5)
        closing = asyncio.ensure_future(office.worker.close())
        await asyncio.sleep(0.02)
        gate.set()
        await closing
        assert (await office.audit()).get("leased", 0) == 0

    run(redis_url, work, max_pages=10 if call == "permits" else None)


# -- a full Redis --------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def full(office: Office) -> AsyncIterator[None]:
    """More is used than maxmemory allows."""
    await office.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        await office.client.config_set("maxmemory", 0)


@pytest.fixture
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LOOK_S", 0.02)
    monkeypatch.setattr(memory, "TRY_S", 0.1)


@pytest.mark.usefixtures("_look_often")
def test_a_full_redis_pauses_leases_and_seeds_and_pages_in_work_are_finished(redis_url: str) -> None:
    first, later, seed, found = link("h0.org"), link("h1.org"), link("h2.org", how=EXACT), link("h3.org")

    async def work(office: Office) -> None:
        worker = office.worker
        office.allow(first, later, seed, found)
        await office.sent(first)
        job = await office.job()
        await office.sent(later)
        await office.job()
        async with full(office):
            worker.outbox.add_links([seed])
            worker.outbox.add_links([found], job.ticket)
            finished(office, job)
            await until(lambda: office.frontier.done("completed"))
            await until(lambda: office.counts["memory/pauses"])
            assert worker.busy, "the seed waits"
            assert not worker.memory.has_room
            assert office.frontier.done("enqueued") == [found.entry.url]
            office.frontier.log.clear()
        await until(lambda: office.frontier.done("enqueued") == [seed.entry.url])
        assert {(await office.job()).lease.host for _ in range(2)} == {"h2.org", "h3.org"}
        assert office.counts["memory/pauses"] == 1

    run(redis_url, work)


@pytest.mark.usefixtures("_look_often")
def test_closing_leaves_nothing_behind_when_redis_is_full(redis_url: str) -> None:
    page, seed = link("h0.org"), link("h1.org", how=EXACT)

    async def work(office: Office) -> None:
        await office.sent(page)
        await office.job()
        async with full(office):
            office.worker.outbox.add_links([seed])
            await until(lambda: office.counts["memory/pauses"])
            for lease in list(office.worker.in_hand.values()):
                office.worker.give_back(Job(lease, ""))
            await asyncio.wait_for(office.worker.close(), 10)
        assert not office.worker.outbox.unsent
        found = await office.audit()
        assert (found["pending"], found.get("leased", 0)) == (2, 0)

    run(redis_url, work)
