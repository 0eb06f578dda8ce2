"""What the frontier's calls for pages cost where those of one moment are one call to Redis, and where each is its own.

    PYTHONPATH=. python bench/together.py [--pages-a-tick 12] [--ticks 40] [--rounds 3]

300 hosts in 64 partitions; a page has 30 new links and 10 that are known (the other 60 of 100 the worker's cache answers). In each tick
the links of its pages are enqueued, 12 partitions are asked for leases, 12 for a page record, and the leases end, each with a record.
Medians of alternating rounds, a page; CPU of Redis from INFO, of the worker from its process.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections import defaultdict

from redis.asyncio import Redis
from stages import cpu_s

from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.pages import record_key
from crawlweb.frontier.rows import Limits, Link, Outcome
from crawlweb.policy.canonical import url_key
from crawlweb.records import Entry, PageRecord
from tests.conftest import _default_binary, serving

HOSTS = [f"h{n}.test" for n in range(300)]
PARTITIONS, NEW, KNOWN, ASKED = 64, 30, 10, 12


def found(number: int, rng: random.Random) -> Link:
    host = rng.choice(HOSTS)
    url = f"https://{host}/page/{number}/"
    return Link(host, url_key(url), Entry(url, 9, 3))


async def enqueue(frontier: Frontier, links: list[Link]) -> None:
    by_partition: dict[int, list[Link]] = defaultdict(list)
    for link in links:
        by_partition[frontier.partition_of(link.host)].append(link)
    await asyncio.gather(*(frontier.enqueue(p, some) for p, some in by_partition.items()))


async def fetch(frontier: Frontier, rng: random.Random) -> None:
    asked = rng.sample(range(PARTITIONS), ASKED)
    answers = await asyncio.gather(*(frontier.lease(p, 1) for p in asked))
    await frontier.records_of([(p, rng.randbytes(8)) for p in rng.sample(range(PARTITIONS), ASKED)])
    ended: dict[int, list[Outcome]] = {}
    for p, (_, leases) in zip(asked, answers, strict=True):
        urls = [lease.entry.url for lease in leases]
        records = [PageRecord(url, 1.7e9, 200, b"12345678", 2**60, '"5e-01"', first_seen=1.7e9, next_at=1.9e9) for url in urls]
        ended[p] = [
            Outcome(lease, "d", record=record, record_key=record_key(url_key(record.url)))
            for lease, record in zip(leases, records, strict=True)
        ]
    await asyncio.gather(*(frontier.complete(p, outcomes) for p, outcomes in ended.items() if outcomes))


async def a_page(url: str, pages: int, ticks: int, *, together: bool) -> tuple[float, float, float]:
    """Calls, CPU of Redis and of the worker, in microseconds."""
    async with Redis.from_url(url) as client:
        await client.flushall()
        frontier = Frontier(client, "web", PARTITIONS, "bench", Limits(min_delay_s=0, latency_factor=0))
        if not together:
            frontier._together = None
        rng, links = random.Random(1), [found(n, random.Random(n)) for n in range(3000)]
        await enqueue(frontier, links)
        before, begun, calls = await cpu_s(client), time.process_time(), frontier.calls
        for _ in range(ticks):
            known = rng.choices(links, k=KNOWN * pages)
            new = [found(len(links) + n, rng) for n in range(NEW * pages)]
            links += new
            await enqueue(frontier, new + known)
            await fetch(frontier, rng)
        count = pages * ticks
        took_s = time.process_time() - begun
        return (frontier.calls - calls) / count, (await cpu_s(client) - before) / count * 1e6, took_s / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages-a-tick", type=int, default=12)
    parser.add_argument("--ticks", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    runs: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    with serving(_default_binary()) as server:
        for _ in range(options.rounds):
            for name, together in (("each alone", False), ("together", True)):
                runs[name].append(asyncio.run(a_page(server.url, options.pages_a_tick, options.ticks, together=together)))
    print(f"{'':<12}{'calls':>8}{'Redis us':>10}{'worker us':>11}  a page, of {options.pages_a_tick} a tick")
    for name, found_ in runs.items():
        calls, redis_us, worker_us = (statistics.median(column) for column in zip(*found_, strict=True))
        print(f"{name:<12}{calls:>8.2f}{redis_us:>10.0f}{worker_us:>11.0f}")


if __name__ == "__main__":
    main()
