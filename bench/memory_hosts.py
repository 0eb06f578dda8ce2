"""Bytes and Redis CPU of a host: waiting, active, in flight, idle; through the client that workers use.

    python bench/memory_hosts.py [--hosts 100000] [--bucket 60] [--error-pages] [--binary redis-server]

One partition, one URL a host at a time, delay 1 s, no persistence, names of 20 characters. Bytes are what the data costs by MEMORY STATS,
tables of keys included, without the seen-set and the front queues; CPU is the server's own (INFO cpu, user + sys). Hosts come in batches of
200 (enqueue) and 64 (lease, complete). `--bucket`: another size of the buckets of packed hosts (lua/pack.lua). `--error-pages`:
with each page complete one more error page of the host is known.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import cache

import redis
from frontier import start

from crawlweb.frontier import scripts
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.rows import NORMAL, Lease, Limits, Link, Outcome, PageSeen, real_error
from crawlweb.frontier.server import find_binary
from crawlweb.records import Entry

BATCH, LEASES = 200, 64


class Bench:
    def __init__(self, socket: str, hosts: int, error_pages: bool) -> None:
        limits = Limits(expected_urls=8 * hosts, active_hosts=2 * max(hosts, 2_000), lease_s=3600)
        self.sync = redis.Redis(unix_socket_path=socket)
        self.f = Frontier(redis.asyncio.Redis(unix_socket_path=socket), "m", 1, "b", limits)
        self.rng = random.Random(1)
        self.hosts = [f"{self.rng.getrandbits(48):012x}.example" for _ in range(2_000)]
        self.held: list[list[Lease]] = []
        self.empty = 0
        self.error_pages = error_pages

    async def begin(self, hosts: int) -> None:
        """Once through all steps with few hosts, so that what the server needs for itself is there before."""
        await self.enqueue("0")
        await self.promote()
        await self.lease()
        await self.complete()
        self.sync.flushall()
        self.empty = self.used()
        self.hosts = [f"{self.rng.getrandbits(48):012x}.example" for _ in range(hosts)]

    def used(self) -> int:
        """What is stored costs, without what the server needs for itself."""
        stats = self.sync.memory_stats()
        tables = sum(n for name, rows in stats.items() if name.startswith("db.") for n in rows.values())
        return int(stats["total.allocated"] - stats["overhead.total"] + tables)

    def bytes_a_host(self) -> float:
        names = [self.f.key(0, f"front:{k}") for k in range(10)] + list(self.sync.scan_iter(match="*}:bloom:*", count=10_000))
        beside = sum(self.sync.memory_usage(name, samples=0) or 0 for name in names)
        return (self.used() - self.empty - beside) / len(self.hosts)

    async def step(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        def cpu_us() -> float:
            info = self.sync.info("cpu")
            return 1e6 * float(info["used_cpu_user"] + info["used_cpu_sys"])

        begun = cpu_us()
        await step()
        us = (cpu_us() - begun) / len(self.hosts)
        key = self.f.key(0, f"host:{self.hosts[0]}")
        size = self.sync.memory_usage(key)
        print(
            f"{what:46} {us:8.2f} {self.bytes_a_host():8.0f}   {f'{self.sync.hlen(key)} fields, {size} B' if size else 'none'}", flush=True
        )

    async def enqueue(self, path: str) -> None:
        """A URL of about 61 bytes for each host."""

        def link(host: str) -> Link:
            return Link(host, self.rng.randbytes(16), Entry(f"https://{host}/articles/2024/{path}/a-title.html", 5, 3), NORMAL)

        for i in range(0, len(self.hosts), BATCH):
            await self.f.enqueue(0, [link(host) for host in self.hosts[i : i + BATCH]])

    async def promote(self) -> None:
        while int(self.sync.hget(self.f.key(0, "ctr"), "tok") or 0):
            await self.f.lease(0, 0)

    async def lease(self) -> None:
        self.held = []
        while sum(map(len, self.held)) < len(self.hosts):
            self.held.append((await self.f.lease(0, LEASES))[1])
            if not self.held[-1]:
                raise SystemExit("not every host was due: the machine is too slow for so many hosts")

    async def complete(self) -> None:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        for leases in self.held:
            found = [real_error(self.rng.randbytes(8)) if self.error_pages else b"" for _ in leases]
            pages = zip(leases, found, strict=True)
            await self.f.complete(0, [Outcome(x, "d", now, 0.123, page=PageSeen(), error_pages=found) for x, found in pages])


def resize_buckets(hosts: int) -> None:
    text = scripts.source

    def resized(step: str) -> str:
        sizes = {"BUCKET_HOSTS": hosts, "HOSTS_A_SPLIT": (hosts + 1) // 2}
        return re.sub(r"^local (BUCKET_HOSTS|HOSTS_A_SPLIT) = \d+", lambda m: f"local {m[1]} = {sizes[m[1]]}", text(step), flags=re.M)

    scripts.source = cache(resized)


async def run(hosts: int, socket: str, error_pages: bool) -> None:
    bench = Bench(socket, hosts, error_pages)
    await bench.begin(hosts)
    print(f"{'':46} {'µs/host':>8} {'B/host':>8}   hash host:<host>")
    await bench.step("waiting: first URL, in its token", lambda: bench.enqueue("00000001"))
    await bench.step("active: promoted", bench.promote)
    await bench.step("in flight: leased", bench.lease)
    await bench.step("idle: page complete", bench.complete)
    await bench.step("waiting: known host, next URL in its token", lambda: bench.enqueue("00000002"))
    await bench.step("waiting: one more, parked", lambda: bench.enqueue("00000003"))
    await bench.step("active: promoted", bench.promote)
    await asyncio.sleep(1)
    await bench.step("in flight: leased, another URL in back", bench.lease)
    await bench.step("active: page complete", bench.complete)
    await asyncio.sleep(1)
    await bench.step("in flight: leased, the last URL", bench.lease)
    await bench.step("idle: page complete", bench.complete)
    await bench.f.redis.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--bucket", type=int)
    parser.add_argument("--error-pages", action="store_true")
    parser.add_argument("--binary", default="")
    args = parser.parse_args()
    if args.bucket:
        resize_buckets(args.bucket)
    with tempfile.TemporaryDirectory(prefix="crawlweb-bench-") as folder:
        process = start(find_binary(args.binary), folder)
        try:
            with redis.Redis(unix_socket_path=f"{folder}/s") as client:
                version = client.info("server")["redis_version"]
            print(f"{args.hosts} hosts; Redis {version}; Python {sys.version.split()[0]}, redis-py {redis.__version__}")
            asyncio.run(run(args.hosts, f"{folder}/s", args.error_pages))
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
