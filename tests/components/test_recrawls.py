"""Pages that are due are queued again, by the worker that asks their partitions."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest
from redis.asyncio import Redis

from crawlweb.errors import FrontierFull
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.memory import MemoryWatch
from crawlweb.frontier.rows import UNCHECKED, Limits, Link, Outcome
from crawlweb.policy.canonical import url_key
from crawlweb.records import Entry, PageRecord
from crawlweb.recrawls import PAGES_AT_ONCE, Recrawls

pytestmark = pytest.mark.parametrize("redis_server", ["default"], indirect=True)  # the scripts: tests/frontier/test_pages.py
PAGES = PAGES_AT_ONCE + 20


async def fetched(frontier: Frontier, ago_s: float) -> None:
    """Pages on as many hosts; they were due before now."""
    await frontier.read_clock()
    links = [Link(f"h{n}.org", url_key(f"https://h{n}.org/"), Entry(f"https://h{n}.org/"), UNCHECKED) for n in range(PAGES)]
    await frontier.enqueue(0, links)
    leases = list(itertools.chain(*[(await frontier.lease(0, PAGES))[1] for _ in range(3)]))
    assert len(leases) == PAGES
    now = frontier.unix_now()
    outcomes = [
        Outcome(
            lease,
            "d",
            record=PageRecord(lease.entry.url, now - 2 * ago_s, 200, next_at=now - ago_s),
            record_key=url_key(lease.entry.url)[:8],
        )
        for lease in leases
    ]
    await frontier.complete(0, outcomes)


def test_due_pages_go_back_into_their_queues_and_are_counted(redis_url: str) -> None:
    counts: Counter[str] = Counter()
    asked: list[int] = []

    def count(name: str, by: int = 1) -> None:
        counts[name] += by

    async def run() -> None:
        async with Redis.from_url(redis_url) as client:
            frontier = Frontier(client, "t", 1, "w", Limits(min_delay_s=0))
            await fetched(frontier, 700)
            await client.hset(frontier.key(0, "ctr"), "dus", int(frontier.unix_now()) // 300 - 2)  # type: ignore[misc]
            (key,) = [key async for key in client.scan_iter(match=frontier.key(0, "soon:*"))]
            await client.rename(key, frontier.key(0, f"soon:{int(frontier.unix_now()) // 300 - 1}"))
            recrawls = Recrawls(frontier, MemoryWatch(frontier), lambda: [0], asked.append, count)
            assert await recrawls.queue(0) == PAGES
            assert await recrawls.queue(0) == 0
            assert (await frontier.counts()).pending > 0

    asyncio.run(run())
    assert counts == {"recrawls/queued": PAGES}
    assert asked == [0, 0]


def test_a_full_redis_pauses_them(redis_url: str) -> None:
    async def run() -> None:
        async with Redis.from_url(redis_url) as client:
            frontier = Frontier(client, "t", 1, "w", Limits(min_delay_s=0))
            await client.config_set("maxmemory", 1)
            try:
                with pytest.raises(FrontierFull):
                    await frontier.due(0)
            finally:
                await client.config_set("maxmemory", 0)
            assert await frontier.due(0) == (0, 0, False)

    asyncio.run(run())


def test_a_page_is_recorded_by_a_full_redis_too(redis_url: str) -> None:
    async def run() -> None:
        async with Redis.from_url(redis_url) as client:
            frontier = Frontier(client, "t", 1, "w", Limits(min_delay_s=0))
            await frontier.enqueue(0, [Link("a.org", url_key("https://a.org/"), Entry("https://a.org/"), UNCHECKED)])
            (lease,) = (await frontier.lease(0, 1))[1]
            record = PageRecord("https://a.org/", float(int(frontier.unix_now())), 200)
            await client.config_set("maxmemory", 1)
            try:
                assert await frontier.complete(0, [Outcome(lease, "d", record=record, record_key=url_key("https://a.org/")[:8])]) == "k"
                assert await frontier.record("a.org", url_key("https://a.org/")) == record
            finally:
                await client.config_set("maxmemory", 0)

    asyncio.run(run())
