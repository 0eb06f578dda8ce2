"""Calls of one moment on several partitions are one call to Redis, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from rig import hosts_in, link

from crawlweb.errors import FrontierError
from crawlweb.frontier import scripts
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.rows import Link, Outcome

PARTITIONS = 8


def run(url: str, work: Callable[[Frontier, list[tuple[Any, ...]]], Awaitable[None]]) -> None:
    """`work` is given a frontier, and what it sends."""

    async def all_of_it() -> None:
        async with Redis.from_url(url) as client:
            await client.flushall()
            sent: list[tuple[Any, ...]] = []
            execute: Any = client.execute_command

            async def noted(*args: Any, **options: Any) -> Any:
                if args[0] == "EVALSHA":
                    sent.append(args)
                return await execute(*args, **options)

            client.execute_command = noted  # type: ignore[method-assign]
            await work(Frontier(client, "web", PARTITIONS, "w1"), sent)

    asyncio.run(all_of_it())


def links_of(p: int, count: int = 2) -> list[Link]:
    return [link(hosts_in(p, PARTITIONS, 1)[0], f"/{n}") for n in range(count)]


def test_calls_on_several_partitions_are_one_and_do_what_they_would_alone(redis_url: str) -> None:
    async def work(frontier: Frontier, sent: list[tuple[Any, ...]]) -> None:
        await frontier.enqueue(0, links_of(0, 1))  # the script is known from here on
        sent.clear()
        calls = frontier.calls
        answers = await asyncio.gather(*(frontier.enqueue(p, links_of(p)) for p in range(PARTITIONS)))
        assert answers == ["sn", *["nn"] * (PARTITIONS - 1)]
        assert [args[2] for args in sent] == [PARTITIONS]
        assert frontier.calls == calls + 1
        leases = [rows for _, rows in await asyncio.gather(*(frontier.lease(p, 4) for p in range(PARTITIONS)))]
        assert [[lease.entry.url for lease in rows] for rows in leases] == [[links_of(p)[0].entry.url] for p in range(PARTITIONS)]
        ended = await asyncio.gather(*(frontier.complete(p, [Outcome(rows[0], "d")]) for p, rows in enumerate(leases)))
        assert ended == ["k"] * PARTITIONS
        counts = await frontier.counts()
        assert (counts.enqueued, counts.done) == (2 * PARTITIONS, PARTITIONS)
        assert (await frontier.audit())["what"] == []

    run(redis_url, work)


def test_an_error_is_the_answer_of_its_partition_alone(redis_url: str) -> None:
    broken = [Link("h.org", b"short", links_of(3)[0].entry)]

    async def work(frontier: Frontier, _: list[tuple[Any, ...]]) -> None:
        calls = [frontier.enqueue(p, broken if p == 3 else links_of(p)) for p in range(PARTITIONS)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(answers[3], FrontierError)
        assert [answer for p, answer in enumerate(answers) if p != 3] == ["nn"] * (PARTITIONS - 1)

    run(redis_url, work)


@pytest.mark.parametrize("cancelled", [0, 3])
def test_who_is_cancelled_takes_nothing_from_the_others(redis_url: str, cancelled: int) -> None:
    async def work(frontier: Frontier, _: list[tuple[Any, ...]]) -> None:
        tasks = [asyncio.ensure_future(frontier.enqueue(p, links_of(p))) for p in range(PARTITIONS)]
        await asyncio.sleep(0)
        tasks[cancelled].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers[cancelled], asyncio.CancelledError)
        assert [answer for p, answer in enumerate(answers) if p != cancelled] == ["nn"] * (PARTITIONS - 1)

    run(redis_url, work)


def test_no_call_is_longer_than_redis_may_take(redis_url: str) -> None:
    most = (scripts.MOST_US - scripts.PARTITION_US) // scripts.UNIT_US["enqueue"] // 2

    async def work(frontier: Frontier, sent: list[tuple[Any, ...]]) -> None:
        await asyncio.gather(*(frontier.enqueue(p, links_of(p, most)) for p in range(PARTITIONS)))
        assert [args[2] for args in sent] == [1] * PARTITIONS or max(args[2] for args in sent) <= 2

    run(redis_url, work)
