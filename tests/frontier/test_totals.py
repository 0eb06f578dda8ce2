"""Stats of the whole crawl: each rise counts once, whatever becomes of workers, answers and Redis."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis
from redis.asyncio import Redis
from rig import link

from crawlweb.errors import FrontierError
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.rows import Limits
from crawlweb.frontier.totals import Totals, overview
from crawlweb.stats import NOT_SUMMED, STATS, summed

NUMBERS = itertools.count()


class Worker:
    """`stats`: its own. `losing`: answers to its next calls that are lost on the way."""

    def __init__(self, client: Redis, name: str = "") -> None:
        self.frontier = Frontier(client, "web", 4, name or f"w{next(NUMBERS)}", Limits())
        self.stats: dict[str, int] = {}
        self.totals = Totals(self.frontier, lambda: self.stats)
        self.losing = 0
        self._client = client
        self.frontier.redis = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def eval(self, *args: Any) -> Any:
        answer = await self._client.eval(*args)
        if self.losing:
            self.losing -= 1
            raise redis.exceptions.ConnectionError("lost on the way")
        return answer


Work = Callable[[Redis], Awaitable[None]]


@pytest.fixture
def run(redis_url: str) -> Callable[[Work], None]:
    async def with_client(work: Work) -> None:
        async with Redis.from_url(redis_url) as client:
            await work(client)

    return lambda work: asyncio.run(with_client(work))


async def sums(client: Redis) -> dict[str, int]:
    return (await overview(Frontier(client, "web", 4, "looker"))).sums


def test_the_sums_are_those_of_all_workers_whenever_they_send(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        workers = [Worker(client) for _ in range(3)]
        for i, worker in enumerate(workers):
            worker.stats.update(pages=i + 1, bytes=10**15)
            await worker.totals.send()
            await worker.totals.send()
            worker.stats.update(pages=10 * (i + 1), errors=1)
        await workers[0].totals.close()
        await workers[2].totals.close()
        assert await sums(client) == {"bytes": 3 * 10**15, "errors": 2, "pages": 10 + 2 + 30}

    run(work)


def test_a_call_whose_answer_was_lost_counts_once(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        worker = Worker(client)
        worker.stats["pages"] = 5
        worker.losing = 2
        await worker.totals.send()
        worker.stats["pages"] = 7
        await worker.totals.send()
        assert await sums(client) == {"pages": 7}

    run(work)


def test_a_call_that_was_given_up_is_repeated_before_the_next(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        worker = Worker(client)
        worker.stats["pages"] = 5
        worker.losing = 1
        worker.frontier.closing = True
        with pytest.raises(FrontierError):
            await worker.totals.send()
        worker.stats.update(pages=8, errors=1)
        await worker.totals.close()
        assert await sums(client) == {"errors": 1, "pages": 8}

    run(work)


def test_a_new_worker_adds_to_what_ended_ones_left(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        for _ in range(3):
            worker = Worker(client)
            worker.stats["pages"] = 4
            await worker.totals.close()
        assert await sums(client) == {"pages": 12}

    run(work)


def test_what_is_no_number_of_ours_begins_anew(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        foreign = {"pages": "many", "bytes": "9" * 30, "requests": "1.5", "errors": "007", "dead": "5"}
        await client.hset("{web}:stats", mapping=foreign)  # type: ignore[misc]
        worker = Worker(client)
        worker.stats.update(dict.fromkeys(foreign, 2))
        await client.set(f"{{web}}:stats:{worker.frontier.worker}", "inf")
        await worker.totals.send()
        assert await sums(client) == {"bytes": 2, "dead": 7, "errors": 2, "pages": 2, "requests": 2}

    run(work)


def test_a_key_of_another_type_stops_nothing_and_loses_nothing(run: Callable[[Work], None], caplog: pytest.LogCaptureFixture) -> None:
    async def work(client: Redis) -> None:
        await client.set("{web}:stats", "a string")
        worker = Worker(client)
        worker.stats["pages"] = 3
        await worker.totals.close()
        assert "the key {web}:stats is of type string" in caplog.text
        assert await sums(client) == {"pages": 3}
        (aside,) = await client.keys("{web}:foreign:*:stats")
        assert await client.get(aside) == b"a string"

    run(work)


def test_a_full_redis_takes_them(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        await client.config_set("maxmemory", 1)
        try:
            worker = Worker(client)
            worker.frontier.closing = True
            worker.stats["pages"] = 3
            await worker.totals.send()
        finally:
            await client.config_set("maxmemory", 0)
        assert await sums(client) == {"pages": 3}

    run(work)


def test_the_overview_counts_what_is_pending_and_the_hosts_in_work(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        frontier = Frontier(client, "web", 4, f"w{next(NUMBERS)}", Limits(expected_urls=4096))
        for i in range(6):
            links = [link(f"h{i}.org", f"/{n}") for n in range(3)]
            await frontier.enqueue(frontier.partition_of(links[0].host), links)
        seen = await overview(frontier)
        assert (seen.pending, seen.hosts) == (18, 0)
        for p in range(4):
            await frontier.lease(p, 100)
        seen = await overview(frontier)
        assert (seen.pending, seen.hosts) == (18, 6)

    run(work)


def test_gauges_and_what_is_not_ours_are_not_summed() -> None:
    values = {"crawlweb/pages": 2, "crawlweb/status/200": 2, "crawlweb/memory/used_bytes": 5, "crawlweb/links/cache_rate": 0.5}
    assert summed({**values, "item_scraped_count": 2, "crawlweb/hosts": 2, "crawlweb/x": "text"}) == {
        "crawlweb/pages": 2,
        "crawlweb/status/200": 2,
    }
    assert set(STATS) > NOT_SUMMED
