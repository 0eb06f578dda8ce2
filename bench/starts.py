"""What start URLs from outside cost: an empty key, a batch in Redis by type of key, the whole way into the frontier, the look at a start.

    python bench/starts.py                100,000 entries
    python bench/starts.py --entries 1000000

CPU times; the medians of three rounds, which alternate between the types.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import redis  # noqa: E402
from redis.asyncio import Redis  # noqa: E402
from scrapy import Spider  # noqa: E402

from crawlweb.frontier.frontier import Frontier  # noqa: E402
from crawlweb.frontier.kinds import refuse_foreign_crawl, refuse_foreign_partitions  # noqa: E402
from crawlweb.frontier.memory import MemoryWatch  # noqa: E402
from crawlweb.frontier.server import find_binary  # noqa: E402
from crawlweb.frontier.starts import Batch, StartKey, inbox  # noqa: E402
from crawlweb.policy.canonical import Canonicalizer  # noqa: E402
from crawlweb.start_urls import Reader  # noqa: E402
from crawlweb.starts import Starts  # noqa: E402
from tests.conftest import serving  # noqa: E402

KEY, MOST, ROUNDS, IDLE = "web:start_urls", 200, 3, 2000


class Bench:
    def __init__(self, client: Redis, sync: redis.Redis) -> None:
        self.client, self.sync = client, sync
        self.used: dict[str, float] = {}

    @contextmanager
    def cpu(self) -> Iterator[None]:
        """`used`: CPU seconds of the client, of the server's scripts; p99 of a script call, us."""
        self.sync.config_resetstat()
        began = time.process_time()
        yield
        self.used["client_s"] = time.process_time() - began
        self.used["scripts_s"] = self.sync.info("commandstats").get("cmdstat_evalsha", {}).get("usec", 0) / 1e6
        percentiles = self.sync.info("latencystats").get("latency_percentiles_usec_evalsha", {})
        self.used["p99_us"] = float(percentiles.get("p99", 0))

    def frontier(self, partitions: int) -> Frontier:
        return Frontier(self.client, "web", partitions, "bench")

    def put(self, kind: str, entries: list[bytes]) -> None:
        for first in range(0, len(entries), 10_000):
            some = entries[first : first + 10_000]
            if kind == "list":
                self.sync.rpush(KEY, *some)
            elif kind == "set":
                self.sync.sadd(KEY, *some)
            else:
                self.sync.zadd(KEY, {entry: first + n for n, entry in enumerate(some)})


async def look(bench: Bench, partitions: int) -> tuple[float, float]:
    frontier = bench.frontier(partitions)
    began = time.monotonic()
    with bench.cpu():
        await refuse_foreign_crawl(frontier)
        await refuse_foreign_partitions(frontier, partitions)
    return time.monotonic() - began, bench.used["client_s"]


async def empty(bench: Bench) -> dict[str, float]:
    frontier = bench.frontier(64)
    keys = [inbox(frontier), StartKey(frontier, KEY)]
    with bench.cpu():
        for _ in range(IDLE):
            for key in keys:
                assert await key.take(MOST, 60.0) is None
    return dict(bench.used)


async def batches(bench: Bench, kind: str, entries: list[bytes]) -> dict[str, float]:
    bench.put(kind, entries)
    key = StartKey(bench.frontier(64), KEY)
    with bench.cpu():
        while isinstance(batch := await key.take(MOST, 60.0), Batch):
            await key.drop(batch, {})
    return dict(bench.used)


async def whole_way(bench: Bench, entries: list[bytes]) -> tuple[float, float]:
    bench.put("list", entries)
    frontier = bench.frontier(64)
    counts: Counter[str] = Counter()

    def count(name: str, by: int = 1) -> None:
        counts[name] += by

    async def widen(_: Any) -> None: ...

    starts = Starts(
        [StartKey(frontier, KEY)],
        frontier,
        MemoryWatch(frontier),
        most=MOST,
        read=Reader(Spider("web"), Canonicalizer()),
        widen=widen,
        count=count,
        arrived=lambda _: None,
        enough=lambda: counts["start_urls/taken"] >= len(entries),
    )
    began = time.monotonic()
    with bench.cpu():
        await starts.take_forever()
    assert counts["seeds/new"] == len(entries)
    return time.monotonic() - began, bench.used["client_s"]


async def run(url: str, count: int) -> None:
    entries = [b"https://h%d.org/some/path/%d" % (n % 997, n) for n in range(count)]
    with redis.Redis.from_url(url) as sync:
        async with Redis.from_url(url) as client:
            bench = Bench(client, sync)
            kinds: dict[str, list[dict[str, float]]] = {"list": [], "set": [], "zset": []}
            idle, looks, ways = [], {64: [], 1024: []}, []
            for _ in range(ROUNDS):
                sync.flushall()
                for partitions, found in looks.items():
                    found.append(await look(bench, partitions))
                idle.append(await empty(bench))
                for kind, figures in kinds.items():
                    figures.append(await batches(bench, kind, entries))
                ways.append(await whole_way(bench, entries))
    calls = 2 * IDLE
    client_us, script_us = (median(one[name] for one in idle) / calls * 1e6 for name in ("client_s", "scripts_s"))
    print(f"an empty key asked: {client_us:.0f} us in the worker, {script_us:.1f} us in Redis")
    for kind, figures in kinds.items():
        client_us, script_us = (median(one[name] for one in figures) / count * 1e6 for name in ("client_s", "scripts_s"))
        p99_ms = median(one["p99_us"] for one in figures) / 1000
        print(
            f"taken and dropped, {kind}: {client_us:.1f} us an entry in the worker, {script_us:.1f} in Redis; p99 of a call {p99_ms:.1f} ms"
        )
    seconds, cpu_s = sorted(ways)[len(ways) // 2]
    print(f"the whole way, list: {count / seconds:.0f} entries/s, {cpu_s / count * 1e6:.0f} us an entry in the worker")
    for partitions, found in looks.items():
        seconds, cpu_s = sorted(found)[len(found) // 2]
        print(f"types of all fixed keys, {partitions} partitions: {seconds * 1000:.0f} ms, {cpu_s * 1000:.0f} ms CPU in the worker")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=100_000)
    arguments = parser.parse_args()
    with serving(find_binary()) as server:
        print(f"Redis {server.version}, Python {sys.version.split()[0]}, {arguments.entries} entries, batches of {MOST}")
        asyncio.run(run(server.url, arguments.entries))


if __name__ == "__main__":
    main()
