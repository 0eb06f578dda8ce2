"""Redis CPU and memory of the frontier: enqueue, lease and complete, through the client that workers use.

    python bench/frontier.py [--urls 1000000] [--hosts 100000] [--rounds 3] [--binary redis-server]

CPU is the server's own (INFO cpu, user + sys), so it includes parsing and replies; percentiles are of the scripts (INFO latencystats,
Redis 7). One partition, delay 0, no persistence. Pin server and client to a core each for steadier figures.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import redis

from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.rows import NORMAL, Lease, Limits, Link, Outcome
from crawlweb.frontier.server import find_binary
from crawlweb.records import Entry

BATCH = 200
CORE_SERVER, CORE_CLIENT = 0, 1


def start(binary: str, folder: str) -> subprocess.Popen[bytes]:
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    words = "ziplist" if "v=6." in version else "listpack"
    options = ["--port", "0", "--unixsocket", f"{folder}/s", "--save", "", f"--zset-max-{words}-value", "1024"]
    options += [f"--hash-max-{words}-value", "1024", "--dir", folder]
    process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(process.pid, {CORE_SERVER})
        os.sched_setaffinity(0, {CORE_CLIENT})
    while True:
        try:
            redis.Redis(unix_socket_path=f"{folder}/s").ping()
            return process
        except redis.RedisError:
            time.sleep(0.05)


def make(host: int, n: int) -> Link:
    """A URL of about 61 bytes, as the mean of real ones."""
    name = f"host{host:06}.example"
    url = f"https://{name}/articles/2024/{n:08}/a-title.html"
    return Link(name, hashlib.blake2b(url.encode(), digest_size=16).digest(), Entry(url, 5 + n % 4, 3), NORMAL)


class Bench:
    def __init__(self, socket: str, crawl: str, expected: int, hosts: int) -> None:
        limits = Limits(min_delay_s=0, latency_factor=0, expected_urls=expected, active_hosts=hosts, lease_s=3600)
        self.client = redis.asyncio.Redis(unix_socket_path=socket)
        self.sync = redis.Redis(unix_socket_path=socket)
        self.f = Frontier(self.client, crawl, 1, "b", limits)

    def cpu_us(self) -> float:
        info = self.sync.info("cpu")
        return 1e6 * (info["used_cpu_user"] + info["used_cpu_sys"])

    def percentiles(self) -> str:
        stats = self.sync.info("commandstats").get("cmdstat_evalsha", {})
        text = f"{stats.get('usec_per_call', 0) / 1000:5.2f}"
        try:
            p = self.sync.info("latencystats")["latency_percentiles_usec_evalsha"]
            return text + "".join(f" {p[name] / 1000:6.2f}" for name in ("p50", "p99", "p99.9"))
        except (KeyError, redis.RedisError):
            return text + "      -      -      -"

    async def enqueue(self, batches: Sequence[Sequence[Link]]) -> tuple[float, str]:
        """CPU µs a URL."""
        self.sync.config_resetstat()
        begun = self.cpu_us()
        for batch in batches:
            await self.f.enqueue(0, batch)
        return (self.cpu_us() - begun) / sum(map(len, batches)), self.percentiles()

    async def lease_and_complete(self, calls: int, most: int = 64) -> tuple[float, str, float, str, float]:
        """CPU µs and percentiles of lease, of complete; URLs a call."""
        held: list[list[Lease]] = []
        self.sync.config_resetstat()
        begun = self.cpu_us()
        for _ in range(calls):
            held.append((await self.f.lease(0, most))[1])
        urls = sum(map(len, held))
        lease_us, lease_p = (self.cpu_us() - begun) / urls, self.percentiles()
        self.sync.config_resetstat()
        begun = self.cpu_us()
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        for leases in held:
            await self.f.complete(0, [Outcome(x, "d", now, 0.05) for x in leases])
        return lease_us, lease_p, (self.cpu_us() - begun) / urls, self.percentiles(), urls / calls


def batches_of(hosts: Sequence[int], first: int, count: int, group: int) -> list[list[Link]]:
    """`count` batches of 200 new URLs, `group` of each host."""
    out, n = [], first
    picked = random.Random(first)
    for _ in range(count):
        batch = []
        for host in picked.sample(hosts, BATCH // group):
            for _ in range(group):
                batch.append(make(host, n))
                n += 1
        out.append(batch)
    return out


async def run(args: argparse.Namespace, socket: str) -> None:
    print(f"{'enqueue, batches of 200':44} {'µs CPU/URL':>10}   ms a call: mean p50 p99 p99.9")
    rows: dict[str, list[tuple[float, str]]] = {}
    for r in range(args.rounds):
        bench = Bench(socket, f"e{r}", 1_000_000, 20_000)
        bench.sync.flushall()
        for group in (1, 10, 50):
            unknown = batches_of(range(1_000_000 * group, 1_000_000 * group + 20_000), 10_000_000 * group, 100, group)
            rows.setdefault(f"new, waiting hosts, group {group}", []).append(await bench.enqueue(unknown))
            rows.setdefault(f"known, group {group}", []).append(await bench.enqueue(unknown))
        bench.sync.flushall()
        await bench.enqueue([[make(i, i) for i in range(k, k + BATCH)] for k in range(0, 5_000, BATCH)])
        for _ in range(25):
            await bench.f.lease(0, 0)
        for group in (1, 10):
            rows.setdefault(f"new, active hosts, group {group}", []).append(
                await bench.enqueue(batches_of(range(5_000), 20_000_000 * group, 100, group))
            )
        await bench.client.aclose()
    for name, got in sorted(rows.items()):
        us = statistics.median(x for x, _ in got)
        print(f"{name:44} {us:10.2f}   {min(got, key=lambda g: abs(g[0] - us))[1]}")

    print(f"\n{'lease 64 and complete':44} {'µs CPU/URL':>10}   ms a call: mean p50 p99 p99.9")
    for hosts, urls in ((args.hosts // 10, args.urls), (args.hosts, args.urls)):
        bench = Bench(socket, "l", urls, hosts)
        bench.sync.flushall()
        empty = bench.sync.info("memory")["used_memory"]
        per_host = urls // hosts
        for i in range(0, hosts, 20):
            for k in range(0, per_host, 10):
                await bench.f.enqueue(0, [make(h, k + j) for h in range(i, min(i + 20, hosts)) for j in range(10)])
        info = bench.sync.info("memory")["used_memory"] - empty
        bloom = sum(bench.sync.memory_usage(k) or 0 for k in bench.sync.scan_iter(match="*bloom:*", count=10_000))
        count = hosts * (per_host - per_host % 10)
        print(f"  {hosts} hosts, {count} URLs waiting: {(info - bloom) / count:.0f} B a URL, seen-set {bloom / count:.1f} B")
        while int(bench.sync.hget(bench.f.key(0, "ctr"), "tok") or 0):
            await bench.f.lease(0, 0)
        used = bench.sync.info("memory")["used_memory"] - empty - bloom
        print(f"  {hosts} hosts, {count} URLs, all hosts active: {used / count:.0f} B a URL")
        got = [await bench.lease_and_complete(min(args.calls, hosts // 64)) for _ in range(args.rounds)]
        for what, i in (("lease", 0), ("complete", 2)):
            us = statistics.median(g[i] for g in got)
            best = min(got, key=lambda g: abs(g[i] - us))
            print(f"{f'{what}, {hosts} hosts, {best[4]:.1f} a call':44} {us:10.2f}   {best[i + 1]}")
        await bench.client.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=1_000_000)
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--binary", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crawlweb-bench-") as folder:
        process = start(find_binary(args.binary), folder)
        try:
            with redis.Redis(unix_socket_path=f"{folder}/s") as client:
                version = client.info("server")["redis_version"]
            cpu = next((x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), "?")
            print(f"{cpu}, {os.cpu_count()} cores; Redis {version}; Python {sys.version.split()[0]}, redis-py {redis.__version__}")
            print(f"{platform.platform()}\n")
            asyncio.run(run(args, f"{folder}/s"))
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
