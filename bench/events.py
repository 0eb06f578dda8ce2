"""What an event costs: bytes in the stream, time in Redis, CPU time of the worker.

    PYTHONPATH=. python bench/events.py [--rounds 5] [--events 100000]

A private Redis without persistence. URLs of 60 characters on average, 1 % duplicates, 2 % soft 404s.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from typing import Any

from redis.asyncio import Redis

from crawlweb.frontier.events import Events
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.rows import PageEvent
from crawlweb.policy.canonical import url_key
from crawlweb.records import WarcRef
from tests.conftest import _default_binary, serving


def events(count: int, rng: random.Random) -> list[PageEvent]:
    found, offset = [], 0
    for n in range(count):
        url = f"https://www.host{rng.randrange(count // 20)}.example/{rng.randbytes(rng.randrange(4, 20)).hex()}"
        size = rng.randrange(1000, 30_000)
        found.append(
            PageEvent(
                url,
                url_key(url),
                200,
                1_800_000_000 + n / 100,
                WarcRef("web-20270115080000-1a2b3c4d-00001.warc.gz", offset, size),
                rng.randbytes(8).hex(),
                rng.choice((None, True, False)),
                url[:-1] if rng.random() < 0.01 else "",
                rng.random() < 0.02,
                "text/html; charset=utf-8",
            )
        )
        offset += size
    return found


async def measure(url: str, batch: int, found: list[PageEvent]) -> dict[str, float]:
    async with Redis.from_url(url) as client:
        await client.flushall()
        await client.config_resetstat()
        publisher = Events(Frontier(client, "web", 64, "1a2b3c4d"), len(found))
        before: Any = await client.info("memory")
        cpu_s = time.process_time()
        for first in range(0, len(found), batch):
            await publisher.publish(found[first : first + batch])
        cpu_s = time.process_time() - cpu_s
        info: Any = await client.info("commandstats")
        after: Any = await client.info("memory")
        spent_us = info["cmdstat_evalsha"]["usec"]
        return {
            "bytes an event": (after["used_memory"] - before["used_memory"]) / len(found),
            "Redis, us an event": spent_us / len(found),
            "a call in the server, us": spent_us / (len(found) / batch),
            "worker CPU, us an event": cpu_s * 1e6 / len(found),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=100_000)
    options = parser.parse_args()
    found = events(options.events, random.Random(1))
    with serving(_default_binary()) as server:
        for batch in (1, 8, 64, 100):
            rounds = [asyncio.run(measure(server.url, batch, found)) for _ in range(options.rounds)]
            print(f"{batch:4} a call:", *(f"{statistics.median(r[name] for r in rounds):.1f} {name}" for name in rounds[0]), sep="  ")


if __name__ == "__main__":
    main()
