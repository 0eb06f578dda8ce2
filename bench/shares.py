"""How evenly workers share a crawl, what a join, a leave and a death move, and whether hosts are spared throughout.

    python bench/shares.py [--workers 4,40] [--partitions 64,1024] [--hosts 2000] [--delay-s 8] [--rounds 4]

Real workers (worker.py) in one process, each with clients of its own, on a private Redis; a fetch is a pause of 0.1 to 0.3 s that finds one
new page of the same host, so every host has work all the time. First all work; then one joins, one leaves, one dies (it stops where it is,
its leases run out). A share is pages fetched, as a multiple of what each would have if all had the same; `moved`: the share of all
work that changed hands by the assignment, as a multiple of 1/N. Gaps are from the end of a fetch to the start of the host's next one, by
the clock of this process; a violation is a gap under the delay. Fails if one is found or a worker had over 1.15 of its share.

The process is one core: pages/s beyond what it can do make gaps longer, not shares uneven.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from redis.asyncio import BlockingConnectionPool, Redis

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crawlweb import rulebook
from crawlweb.frontier.connect import CONNECTIONS
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.keys import partition_of
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import NORMAL, Limits, Link, Outcome
from crawlweb.frontier.server import PrivateServer
from crawlweb.job import Job
from crawlweb.pace import Pace
from crawlweb.policy.canonical import url_key
from crawlweb.policy.owners import assign
from crawlweb.policy.robots import Answer, Rules
from crawlweb.records import Entry, boottime
from crawlweb.worker import Worker

SHARE_MOST = 1.15
RULES = Rules(Answer("allow"))


class Web:
    """What the hosts see."""

    def __init__(self, hosts: int, delay_s: float, rng: random.Random) -> None:
        self.hosts = [f"h{n}.example" for n in range(hosts)]
        self.delay_s, self.rng = delay_s, rng
        self.pages: Counter[str] = Counter()  # by worker
        self.log: list[tuple[float, str, str]] = []  # start, worker, host
        self.gaps: list[float] = []
        self.busy: set[str] = set()
        self.overlaps = 0
        self._ended: dict[str, float] = {}
        self._numbers = itertools.count()

    def link(self, host: str) -> Link:
        url = f"https://{host}/{next(self._numbers)}"
        return Link(host, url_key(url), Entry(url, 5), NORMAL)

    async def fetch(self, worker: str, host: str) -> tuple[float, float]:
        """End and latency, s."""
        start = boottime()
        if host in self.busy:
            self.overlaps += 1
        if host in self._ended:
            self.gaps.append(start - self._ended[host])
        self.busy.add(host)
        await asyncio.sleep(self.rng.uniform(0.1, 0.3))
        end = self._ended[host] = boottime()
        self.busy.discard(host)
        self.pages[worker] += 1
        self.log.append((start, worker, host))
        return end, end - start

    @property
    def violations(self) -> int:
        return sum(gap < self.delay_s for gap in self.gaps)


class Hand:
    """A worker and what fetches for it."""

    def __init__(self, web: Web, url: str, partitions: int, limits: Limits, options: argparse.Namespace) -> None:
        self.web, self.name = web, f"{web.rng.getrandbits(32):08x}"
        self.client = Redis.from_pool(BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=None))
        self.frontier = Frontier(self.client, "shares", partitions, self.name, limits)
        self.gauges: dict[str, float] = {}
        self._wake = asyncio.Event()
        self.worker = Worker(
            self.frontier,
            Meta(self.frontier),
            capacity=options.concurrency + 64,
            fetch_s=5.0,
            once=False,
            max_pages=None,
            seen_cache_keys=1000,
            wake=self._wake.set,
            ended=lambda why: print("ended:", why, flush=True),
            count=lambda *_: None,
            url_key=url_key,
            pace=Pace(self.frontier, options.calls_per_s, self.gauges.__setitem__),
            gauge=self.gauges.__setitem__,
        )
        for host in web.hosts:
            self.worker.rulebook.learn(f"https://{host}", RULES)
        self._free = options.concurrency
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.ensure_future(self._fetch_forever())
        self.worker.start()

    async def _fetch_forever(self) -> None:
        while True:
            self._wake.clear()
            while self._free and (job := self.worker.next_job()):
                self._free -= 1
                task = asyncio.ensure_future(self._fetch(job))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await self._wake.wait()

    async def _fetch(self, job: Job) -> None:
        end, latency_s = await self.web.fetch(self.name, job.lease.host)
        self._free += 1
        self._wake.set()
        self.worker.outbox.add_links([self.web.link(job.lease.host)], job.ticket)
        self.worker.finish(job, Outcome(job.lease, "d", end, latency_s))

    @property
    def polled(self) -> frozenset[int]:
        return frozenset(self.worker._rota._pollers)

    async def leave(self) -> None:
        self.worker.stop()
        await asyncio.gather(*self._tasks)
        await self.worker.close()
        self._loop.cancel()
        await self.client.aclose()

    async def die(self) -> None:
        """Stops in the middle of everything. Its fetches are cut off: hosts see their end."""
        tasks = [*self.worker._tasks.alive, self._loop]
        self.worker.closing = self.frontier.closing = True
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=2)
        await asyncio.gather(*self._tasks)
        await self.client.aclose()


async def until(is_so: Callable[[], object], seconds: float) -> float:
    """Seconds that it took."""
    begun = time.monotonic()
    while not is_so():
        if time.monotonic() - begun > seconds:
            return float("inf")
        await asyncio.sleep(0.02)
    return time.monotonic() - begun


def divided(hands: list[Hand], partitions: int) -> bool:
    """Does every worker poll what the assignment of these says?"""
    of = assign([hand.name for hand in hands], partitions)
    return all(hand.polled == {p for p, some in enumerate(of) if hand.name in some} for hand in hands)


def moved(before: list[str], after: list[str], partitions: int) -> float:
    """The share of all work that changes hands, as a multiple of one worker's share."""
    work = 0.0
    for old, new in zip(assign(before, partitions), assign(after, partitions), strict=True):
        work += sum(max(0.0, 1 / len(new) - (1 / len(old) if name in old else 0.0)) for name in new)
    return work / partitions * max(len(before), len(after))


async def fill(web: Web, url: str, partitions: int, limits: Limits) -> None:
    """Two URLs of each host, the hosts one after the other within a round."""
    async with Redis.from_url(url) as client:
        frontier = Frontier(client, "shares", partitions, "filler", limits)
        begun = time.monotonic()
        for n, host in enumerate(web.hosts):
            await asyncio.sleep(max(0.0, begun + web.delay_s * n / len(web.hosts) - time.monotonic()))
            await frontier.enqueue(partition_of(host, partitions), [web.link(host), web.link(host)])


async def run(workers: int, partitions: int, options: argparse.Namespace, url: str) -> bool:
    rng = random.Random(options.seed)
    round_s = options.delay_s + 0.2
    web = Web(options.hosts, options.delay_s, rng)
    limits = Limits(min_delay_s=options.delay_s, latency_factor=0, lease_s=options.lease_s, active_hosts=4 * options.hosts)
    async with Redis.from_url(url) as client:
        await client.flushall()
    print(f"\n{workers} workers, {partitions} partitions, {options.hosts} hosts, delay {options.delay_s:g} s", flush=True)
    hands = [Hand(web, url, partitions, limits, options) for _ in range(workers)]
    took_s = await until(lambda: divided(hands, partitions), 30)
    await fill(web, url, partitions, limits)
    print(f"  shared after {took_s:.1f} s, {sum(len(hand.polled) for hand in hands) / partitions:.0f} pollers a partition")
    await asyncio.sleep(2 * round_s)

    async def window(seconds: float) -> tuple[float, float, float]:
        """Pages/s; the largest and the smallest share."""
        web.pages.clear()
        begun = time.monotonic()
        await asyncio.sleep(seconds)
        counts = [web.pages[hand.name] for hand in hands]
        mean = sum(counts) / len(counts)
        return sum(counts) / (time.monotonic() - begun), max(counts) / mean, min(counts) / mean

    cpu_s = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    per_s, most, least = await window(options.rounds * round_s)
    cpu = (sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - cpu_s) / (options.rounds * round_s)
    counts = sorted((web.pages[hand.name] for hand in hands), reverse=True)
    calls = [hand.gauges.get("redis/calls_per_s", 0.0) for hand in hands]
    allowed = options.hosts / round_s
    print(f"  {per_s:.0f} pages/s ({per_s / allowed:.2f} of allowed), CPU {cpu:.2f}; pages: {' '.join(map(str, counts))}")
    print(
        f"  share: most {most:.2f}, least {least:.2f}; Redis calls/s of a worker: mean {sum(calls) / len(calls):.0f}, most {max(calls):.0f}"
    )
    is_fair = most <= SHARE_MOST

    async def change(what: str, work: Callable[[], Awaitable[None]], after: float) -> None:
        before = [hand.name for hand in hands]
        begun = time.monotonic()
        await work()
        await until(lambda: divided(hands, partitions), 30)
        took_s = time.monotonic() - begun
        share = moved(before, [hand.name for hand in hands], partitions)
        await asyncio.sleep(2 * round_s + after)
        per_s, most, least = await window(options.rounds * round_s)
        print(f"  {what}: shared anew after {took_s:.1f} s, moved {share:.2f} of 1/N", end="; ")
        print(f"then {per_s:.0f} pages/s, share most {most:.2f}, least {least:.2f}", flush=True)

    leaving: list[asyncio.Future[None]] = []

    async def join() -> None:
        begun = boottime()
        hands.append(Hand(web, url, partitions, limits, options))
        name = hands[-1].name
        await until(lambda: web.pages[name], 30)
        print(f"  a joining worker's first page came after {boottime() - begun:.1f} s")

    async def leave() -> None:
        hand = hands.pop(0)
        hand.worker.stop()
        await until(lambda: divided(hands, partitions), 30)
        leaving.append(asyncio.ensure_future(hand.leave()))

    async def die() -> None:
        await hands.pop(0).die()

    await change("join", join, 0.0)
    await change("leave", leave, 0.0)
    await change("death", die, options.lease_s)
    gaps = sorted(web.gaps)
    print(f"  gaps: {len(gaps)}, least {gaps[0]:.3f} s, under the delay {web.violations}, overlaps {web.overlaps}", flush=True)
    await asyncio.gather(*leaving, *(hand.leave() for hand in hands))
    return is_fair and not web.violations and not web.overlaps


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=numbers, default=[4, 40])
    parser.add_argument("--partitions", type=numbers, default=[64, 1024])
    parser.add_argument("--hosts", type=int, default=2000)
    parser.add_argument("--delay-s", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=4, help="of counting: times that each host has its turn")
    parser.add_argument("--lease-s", type=float, default=15.0)
    parser.add_argument("--concurrency", type=int, default=64, help="of a worker")
    parser.add_argument("--calls-per-s", type=float, default=2000.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rulebook.CACHED = max(rulebook.CACHED, options.hosts)
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server = PrivateServer(Path(folder))
        server.start()
        try:
            good = [asyncio.run(run(n, p, options, server.url)) for n in options.workers for p in options.partitions]
        finally:
            server.stop()
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
