"""A frontier that grows: rates, CPU and memory of Redis, and the time of a lease call, while it fills with URLs of many hosts (Zipf).

    python bench/growth.py                                     10 M URLs on 1 M hosts
    python bench/growth.py --spill                             the same, the middle of long queues on disk
    python bench/growth.py --spill --chunk 1000                as if memory were scarce
    python bench/growth.py --seen exact
    python bench/growth.py --peer 200000                       scrapy-redis' memory for as many of the same URLs
    python bench/growth.py --matrix                            10^4 to 10^7 pending URLs on 10^3 to 10^6 hosts: is it flat?

64 partitions, delay 0, no append-only file, batches of as many links as a worker sends, seven in a row of one host (--group 1: each of
another, the dearest order). At every step some lease calls of 64 and their completions are timed. Server and client have a core each.

`--matrix`: for each number of hosts a new server is filled, first with a URL of each host, then by Zipf's law. At each size there are
rounds of calls that add, lease and complete the same number of URLs, with their page records: links in batches of a worker, leases of 8
(what 64 partitions of 1,000 hosts can give at a time). In every other round the server's CPU is taken (medians), in the others the time of
each call in the server. The seen-set is that of the settings, made for a million at first. A figure over 1.3 times the median of its table
is marked with `!`. Where more hosts wait than have a place (40,000), a lease makes room for as many hosts as it empties: the promotion of
a host is in its time there.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import math
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import numpy as np  # noqa: E402
import redis  # noqa: E402
from frontier import start  # noqa: E402
from redis.asyncio import Redis  # noqa: E402

from crawlweb.frontier.accounts import Accounts  # noqa: E402
from crawlweb.frontier.frontier import Frontier  # noqa: E402
from crawlweb.frontier.pages import record_key  # noqa: E402
from crawlweb.frontier.rows import NORMAL, Lease, Limits, Link, Outcome  # noqa: E402
from crawlweb.frontier.server import find_binary  # noqa: E402
from crawlweb.outbox import LINK_BATCH  # noqa: E402
from crawlweb.policy.canonical import url_key as url_key_of  # noqa: E402
from crawlweb.records import Entry, PageRecord  # noqa: E402
from crawlweb.spill import Spill  # noqa: E402
from crawlweb.store.chunks import ChunkStore  # noqa: E402

PARTITIONS = 64
CALLS = 256
ROUNDS, URLS_A_ROUND, LEASES = 6, 3072, 8  # of the matrix
FLAT = 1.3


def hosts_of_urls(urls: int, hosts: int, exponent: float, group: int) -> Any:
    """The host's number of each URL, Zipf, every host at least once; shuffled in groups of one host's."""
    weights = 1.0 / np.arange(1, hosts + 1) ** exponent
    low, high = 0.0, float(urls)
    for _ in range(60):
        mid = (low + high) / 2
        low, high = (mid, high) if np.maximum(1, mid * weights).sum() < urls else (low, mid)
    counts = np.maximum(1, low * weights).astype(np.int64)
    groups = np.repeat(np.arange(hosts, dtype=np.int32), -(-counts // group))
    sizes = np.full(len(groups), group)
    sizes[np.cumsum(-(-counts // group)) - 1] = (counts - 1) % group + 1
    order = np.random.default_rng(1).permutation(len(groups))
    return np.repeat(groups[order], sizes[order])[:urls]


def make(host: int, n: int) -> Link:
    """A URL of about 61 bytes, as the mean of real ones."""
    name = f"host{host:06}.example"
    url = f"https://{name}/articles/2024/{n:08}/a-title.html"
    return Link(name, hashlib.blake2b(url.encode(), digest_size=16).digest(), Entry(url, 5, 3), NORMAL)


class Growth:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.sync = redis.Redis(unix_socket_path=f"{folder}/s")
        limits = Limits(min_delay_s=0, latency_factor=0, expected_urls=options.expected or options.urls, lease_s=3600)
        if options.seen:
            limits = replace(limits, seen=options.seen)
        self.frontier = Frontier(Redis(unix_socket_path=f"{folder}/s"), "g", PARTITIONS, "b", limits)
        self.tasks: set[asyncio.Task[None]] = set()
        self.counts: dict[str, int] = {}
        self.spill: Spill | None = None
        if options.spill:
            store = ChunkStore(str(folder / "cold"), "g")
            store.create()
            self.spill = Spill(self.frontier, store, chunk_entries=options.chunk, count=self._count, run=self._run)
        self.empty = self.used()

    def _count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(lambda t: (self.tasks.discard(t), t.result()))

    def used(self) -> int:
        return int(self.sync.info("memory")["used_memory"])

    def cpu_us(self) -> float:
        info = self.sync.info("cpu")
        return 1e6 * (info["used_cpu_user"] + info["used_cpu_sys"])

    def in_server(self) -> str:
        """p50, p99, p99.9 and the longest call in the server since the last reset, ms."""
        p = self.sync.info("latencystats")["latency_percentiles_usec_evalsha"]
        return " ".join(f"{p[name] / 1000:5.2f}" for name in ("p50", "p99", "p99.9"))

    async def see_to_chores(self) -> None:
        if self.spill:
            for p in range(PARTITIONS):
                self.spill.see_to(p, await self.spill.cold.chores(p))
            while self.tasks:
                await asyncio.wait(self.tasks)

    async def add(self, hosts: Any, first: int) -> tuple[float, float, str]:
        """URLs a second, CPU µs a URL, ms a call in the server."""
        batches: list[tuple[int, list[Link]]] = []
        waiting: list[list[Link]] = [[] for _ in range(PARTITIONS)]
        busy_s = cpu_us = 0.0
        self.sync.config_resetstat()
        for start_at in range(0, len(hosts), 100_000):
            for i, host in enumerate(hosts[start_at : start_at + 100_000].tolist()):
                link = make(host, first + start_at + i)
                p = self.frontier.partition_of(link.host)
                waiting[p].append(link)
                if len(waiting[p]) == self.options.batch:
                    batches.append((p, waiting[p]))
                    waiting[p] = []
            begun, cpu = time.perf_counter(), self.cpu_us()
            for p, batch in batches:
                await self.frontier.enqueue(p, batch)
            busy_s += time.perf_counter() - begun
            cpu_us += self.cpu_us() - cpu
            batches.clear()
            await self.see_to_chores()
        for p, rest in enumerate(waiting):
            if rest:
                await self.frontier.enqueue(p, rest)
        return len(hosts) / busy_s, cpu_us / len(hosts), self.in_server()

    async def lease(self, calls: int) -> tuple[str, float, str, float, str, float]:
        """ms a call at the client; CPU µs a URL and ms in the server, of lease and of complete; URLs a call."""
        took: list[float] = []
        held = []
        for p in range(PARTITIONS):  # promotion first, as it is in a crawl that goes on
            for _ in range(3):
                await self.frontier.lease(p, 0)
        self.sync.config_resetstat()
        cpu = self.cpu_us()
        for n in range(calls):
            begun = time.perf_counter()
            held.append((await self.frontier.lease(n % PARTITIONS, 64))[1])
            took.append((time.perf_counter() - begun) * 1000)
        urls = sum(map(len, held))
        lease_us, lease_ms = (self.cpu_us() - cpu) / max(1, urls), self.in_server()
        self.sync.config_resetstat()
        cpu = self.cpu_us()
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        for leases in held:
            if leases:
                await self.frontier.complete(leases[0].partition, [Outcome(x, "d", now, 0.05) for x in leases])
        complete_us, complete_ms = (self.cpu_us() - cpu) / max(1, urls), self.in_server()
        took.sort()
        client = f"{took[len(took) // 2]:5.2f} {took[math.ceil(len(took) * 0.99) - 1]:5.2f}"
        return client, lease_us, lease_ms, complete_us, complete_ms, urls / calls


async def run(options: argparse.Namespace, folder: Path) -> None:
    hosts = hosts_of_urls(options.urls, options.hosts, options.exponent, options.group)
    growth = Growth(options, folder)
    if growth.spill:
        for p in range(PARTITIONS):
            await growth.spill.cold.tune(p, 3 * options.chunk)
    print(f"{options.urls:,} URLs on {options.hosts:,} hosts, Zipf {options.exponent:g}: the largest has {np.bincount(hosts).max():,}")
    print("times in ms: p50 p99 p99.9 of a call in the server, p50 p99 at the client (URLs a call); CPU of the server in µs a URL")
    print("    URLs |  enqueue/s   CPU  in the server     | lease CPU  in the server      at the client | complete  in the server | B/URL")
    first = 0
    for step in range(1, options.steps + 1):
        until = options.urls * step // options.steps
        rate, enqueue_us, enqueue_ms = await growth.add(hosts[first:until], first)
        first = until
        client, lease_us, lease_ms, complete_us, complete_ms, a_call = await growth.lease(CALLS)
        per_url = (growth.used() - growth.empty) / until
        print(
            f"{until / 1e6:6.2f} M | {rate:9,.0f} {enqueue_us:6.2f}  {enqueue_ms} | {lease_us:8.2f}  {lease_ms}   {client} ({a_call:.0f}) "
            f"| {complete_us:8.2f}  {complete_ms} | {per_url:6.1f}",
            flush=True,
        )
    await growth.see_to_chores()
    memory = growth.sync.info("memory")
    print(f"Redis: {memory['used_memory'] / 2**20:,.0f} MiB used, {memory['used_memory_rss'] / 2**20:,.0f} resident")
    account = await Accounts(growth.frontier).walk()
    figures = {
        "pending URL": account.pending_url,
        "seen URL": account.seen_url,
        "active host": account.active_host,
        "host without a place": account.packed_host,
    }
    print("bytes each: " + ", ".join(f"{name} {value:.1f}" for name, value in figures.items() if value is not None))
    for name, tally in sorted(account.kinds.items(), key=lambda kind: -kind[1].size_bytes)[:8]:
        print(f"  {name:28} {tally.keys:12,.0f} keys {tally.members:12,.0f} members {tally.size_bytes / 2**20:9,.1f} MiB")
    if growth.spill:
        out, size = growth.counts.get("spill/entries_out", 0), growth.counts.get("spill/bytes_out", 0)
        print(f"on disk: {out:,} entries in {growth.counts.get('spill/chunks_out', 0)} chunks, {size / max(1, out):.1f} B each")
    await growth.frontier.redis.aclose()


@dataclass(slots=True)
class Cell:
    """`cpu_us`: of the server, a URL; `commands`: that scripts call, a URL; `times_us`: of each call in the server; by script."""

    cpu_us: dict[str, float]
    commands: dict[str, float]
    times_us: dict[str, list[int]]
    a_lease: float


class Steady:
    """A server with `hosts` hosts, at any number of pending URLs."""

    def __init__(self, growth: Growth, hosts: int, options: argparse.Namespace) -> None:
        self.growth, self.frontier, self.options = growth, growth.frontier, options
        self._rng = np.random.default_rng(hosts)
        self._first = self._rng.permutation(hosts)
        weights = 1.0 / np.arange(1, hosts + 1) ** options.exponent
        self._shares = np.cumsum(weights / weights.sum())
        self.made = 0
        self._waiting: list[list[Link]] = [[] for _ in range(PARTITIONS)]

    def _hosts(self) -> list[int]:
        """Of the next links: all once at first, then groups of one host's."""
        if self.made < len(self._first):
            found: list[int] = self._first[self.made : self.made + 10_000].tolist()
            return found
        groups = np.searchsorted(self._shares, self._rng.random(10_000 // self.options.group))
        return np.repeat(np.minimum(groups, len(self._first) - 1), self.options.group).tolist()  # type: ignore[no-any-return]

    def batches(self, urls: int) -> Iterator[tuple[int, list[Link]]]:
        """Of `urls` new URLs in all, and those that were left; what fills none waits for the next."""
        until = self.made + urls
        while self.made < until:
            for host in self._hosts()[: until - self.made]:
                link = make(host, self.made)
                self.made += 1
                p = self.frontier.partition_of(link.host)
                self._waiting[p].append(link)
                if len(self._waiting[p]) == self.options.batch:
                    yield p, self._waiting[p]
                    self._waiting[p] = []

    async def fill(self, pending: int) -> None:
        waiting = self.batches(pending - self.made)
        while some := list(itertools.islice(waiting, 8)):
            await asyncio.gather(*(self.frontier.enqueue(p, batch) for p, batch in some))
        for p, rest in enumerate(self._waiting):
            if rest:
                await self.frontier.enqueue(p, rest)
        self._waiting = [[] for _ in range(PARTITIONS)]
        for p in range(PARTITIONS):  # hosts get their places
            for _ in range(4):
                await self.frontier.lease(p, 0)

    async def measure(self) -> Cell:
        rounds_us: dict[str, list[float]] = defaultdict(list)  # a URL
        commands: dict[str, float] = defaultdict(float)
        counted: dict[str, int] = defaultdict(int)
        times_us: dict[str, list[int]] = defaultdict(list)
        leased = []
        for n in range(2 * ROUNDS):
            is_timed = n % 2 == 1
            cpu_us: dict[str, float] = defaultdict(float)
            urls: dict[str, int] = defaultdict(int)

            async def run(
                name: str,
                calls: Sequence[tuple[int, Callable[[], Awaitable[Any]]]],
                is_timed: bool = is_timed,
                cpu_us: Any = cpu_us,
                urls: Any = urls,
            ) -> list[Any]:
                answers = []
                begun, cpu, spent = self._commands(), self.growth.cpu_us(), self._spent_us() if is_timed else 0
                for _, call in calls:
                    answers.append(await call())
                    if is_timed:
                        before, spent = spent, self._spent_us()
                        times_us[name].append(spent - before)
                cpu_us[name] += self.growth.cpu_us() - cpu
                commands[name] += self._commands() - begun if not is_timed else 0
                urls[name] += sum(count for count, _ in calls)
                return answers

            new = list(self.batches(URLS_A_ROUND))
            await run("enqueue", [(len(links), partial(self.frontier.enqueue, p, links)) for p, links in new])
            for _ in range(URLS_A_ROUND // (LEASES * PARTITIONS)):
                found = await run("lease", [(0, partial(self.frontier.lease, p, LEASES)) for p in range(PARTITIONS)])
                held = [leases for _, leases in found if leases]
                leased.append(sum(map(len, held)) / PARTITIONS)
                urls["lease"] += sum(map(len, held))
                now = time.clock_gettime(time.CLOCK_BOOTTIME)
                outcomes = [(x[0].partition, [_done(lease, now) for lease in x]) for x in held]
                await run("complete", [(len(rows), partial(self.frontier.complete, p, rows)) for p, rows in outcomes])
            if not is_timed:
                for name, us in cpu_us.items():
                    rounds_us[name].append(us / max(1, urls[name]))
                    counted[name] += urls[name]
        a_url = {name: count / max(1, counted[name]) for name, count in commands.items()}
        return Cell({name: float(np.median(us)) for name, us in rounds_us.items()}, a_url, times_us, sum(leased) / len(leased))

    def _commands(self) -> int:
        """That scripts have called."""
        stats = self.growth.sync.info("commandstats")
        return sum(row["calls"] for name, row in stats.items() if name not in ("cmdstat_info", "cmdstat_evalsha", "cmdstat_eval"))

    def _spent_us(self) -> int:
        """In scripts since the server began."""
        return int(self.growth.sync.info("commandstats")["cmdstat_evalsha"]["usec"])


def _done(lease: Lease, now: float) -> Outcome:
    """With the record of its page."""
    url = lease.entry.url
    record = PageRecord(url, 1.7e9, 200, b"12345678", 2**60, '"5e-0123456789"', fetches=1, first_seen=1.7e9, next_at=1.9e9)
    return Outcome(lease, "d", now, 0.05, record=record, record_key=record_key(url_key_of(url)))


def matrix(options: argparse.Namespace, binary: str) -> None:
    hosts_of_rows, sizes = ([int(float(n)) for n in text.split(",")] for text in (options.matrix_hosts, options.matrix_urls))
    cells: dict[tuple[int, int], Cell] = {}
    per_url: dict[tuple[int, int], float] = {}

    async def row(hosts: int, folder: Path) -> None:
        growth = Growth(options, folder)
        steady = Steady(growth, hosts, options)
        for urls in sizes:
            if urls < hosts:
                continue
            begun = time.monotonic()
            await steady.fill(urls)
            filled_s = time.monotonic() - begun
            cells[hosts, urls] = cell = await steady.measure()
            per_url[hosts, urls] = (growth.used() - growth.empty) / urls
            text = ", ".join(f"{name} {cell.cpu_us[name]:.1f}" for name in cell.cpu_us)
            print(f"{hosts:,} hosts, {urls:,} URLs: us of CPU a URL: {text}; filled in {filled_s:.0f} s", flush=True)
        await growth.frontier.redis.aclose()

    for hosts in hosts_of_rows:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            process = start(binary, folder)
            try:
                asyncio.run(row(hosts, Path(folder)))
            finally:
                process.kill()
                process.wait()

    def table(title: str, of: Callable[[tuple[int, int]], float], digits: int, is_judged: bool = True) -> None:
        values = {key: of(key) for key in cells}
        most = FLAT * float(np.median(list(values.values())))
        print(f"\n| {title} | " + " | ".join(f"{urls:,} URLs" for urls in sizes) + " |")
        print("| --- |" + " ---: |" * len(sizes))
        for hosts in hosts_of_rows:
            shown = [
                f"{values[key]:.{digits}f}{' !' if is_judged and values[key] > most else ''}" if (key := (hosts, urls)) in values else ""
                for urls in sizes
            ]
            print(f"| {hosts:,} hosts | " + " | ".join(shown) + " |")
        if is_judged:
            print(f"\nlargest / smallest {max(values.values()) / min(values.values()):.2f}")

    for name in ("enqueue", "lease", "complete"):
        table(f"{name}: us of CPU a URL", lambda key, n=name: cells[key].cpu_us[n], 1)  # type: ignore[misc]
        table(f"{name}: commands that the script calls, a URL", lambda key, n=name: cells[key].commands[n], 2)  # type: ignore[misc]
        for share in (0.5, 0.99):
            table(f"{name}: p{share * 100:.0f} of a call, us", lambda key, n=name, s=share: _percentile(cells[key].times_us[n], s), 0)  # type: ignore[misc]
    table(f"URLs a lease call of {LEASES}", lambda key: cells[key].a_lease, 1, is_judged=False)
    table("all of Redis, B a pending URL", lambda key: per_url[key], 0, is_judged=False)


def _percentile(values: list[int], share: float) -> float:
    return float(sorted(values)[math.ceil(len(values) * share) - 1])


def peer(urls: int, options: argparse.Namespace, folder: Path) -> None:
    """What scrapy-redis' own queue and dupefilter take."""
    from scrapy import Request, Spider
    from scrapy.utils.test import get_crawler
    from scrapy_redis.dupefilter import RFPDupeFilter
    from scrapy_redis.queue import PriorityQueue

    server = redis.Redis(unix_socket_path=f"{folder}/s")
    spider = Spider.from_crawler(get_crawler(Spider), name="s")
    queue, seen = PriorityQueue(server, spider, "%(spider)s:requests"), RFPDupeFilter(server, "s:dupefilter")
    empty = server.info("memory")["used_memory"]
    numbers: Sequence[int] = hosts_of_urls(options.urls, options.hosts, options.exponent, options.group)[:urls].tolist()
    for n, host in enumerate(numbers):
        request = Request(make(host, n).entry.url)
        if not seen.request_seen(request):
            queue.push(request)
    print(f"scrapy-redis: {(server.info('memory')['used_memory'] - empty) / urls:.0f} B a URL ({urls:,} URLs)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=10_000_000)
    parser.add_argument("--hosts", type=int, default=1_000_000)
    parser.add_argument("--exponent", type=float, default=0.9)
    parser.add_argument("--group", type=int, default=7, help="URLs of a host in a row; links of real pages in page order: 7")
    parser.add_argument("--batch", type=int, default=LINK_BATCH, help="links a call; default: what a worker sends")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--expected", type=int, default=0, help="URLs that the seen-set is made for at first; default: all")
    parser.add_argument("--seen", choices=("bloom", "exact"), default="")
    parser.add_argument("--spill", action="store_true")
    parser.add_argument("--chunk", type=int, default=10_000)
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--matrix-hosts", default="1e3,1e4,1e5,1e6")
    parser.add_argument("--matrix-urls", default="1e4,1e5,1e6,1e7")
    parser.add_argument("--peer", type=int, default=0)
    parser.add_argument("--binary", default="")
    options = parser.parse_args()
    if options.matrix:
        options.expected = options.expected or Limits().expected_urls
        matrix(options, find_binary(options.binary))
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        process = start(find_binary(options.binary), folder)
        try:
            print(f"Redis {redis.Redis(unix_socket_path=f'{folder}/s').info('server')['redis_version']}, {os.cpu_count()} cores")
            if options.peer:
                peer(options.peer, options, Path(folder))
            else:
                asyncio.run(run(options, Path(folder)))
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
