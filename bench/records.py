"""Page records in Redis: bytes a page all in, CPU of the server for a record in complete, and the time of a complete.

    python bench/records.py [--pages 1000000] [--binary redis-server] [--default]

One partition, 20,000 hosts, URLs of 62 bytes, records of 130 bytes in the mean, due over the next day. No persistence. Bytes are what the
data costs by MEMORY STATS, tables of keys included, and what Redis has of the allocator for them. Calls of as many leases as a worker sends
end with their records (p50, p99: CPU of the server, and as Redis measured them), every other round without. `--default`: the server's own
limits of packed hashes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import redis  # noqa: E402
from frontier import start  # noqa: E402
from redis.asyncio import Redis  # noqa: E402

from crawlweb.frontier import pages  # noqa: E402
from crawlweb.frontier.frontier import Frontier  # noqa: E402
from crawlweb.frontier.rows import UNCHECKED, Lease, Limits, Link, Outcome  # noqa: E402
from crawlweb.frontier.server import find_binary  # noqa: E402
from crawlweb.outbox import OUTCOME_BATCH  # noqa: E402
from crawlweb.records import Entry, PageRecord, WarcRef  # noqa: E402

HOSTS, BATCH, DAY_S = 20_000, OUTCOME_BATCH, 86_400


class Bench:
    def __init__(self, socket: str) -> None:
        self.sync = redis.Redis(unix_socket_path=socket)
        self.f = Frontier(Redis(unix_socket_path=socket), "r", 1, "b", Limits(min_delay_s=0, latency_factor=0, lease_s=3600))
        self.rng = random.Random(6)

    def used(self) -> int:
        stats = self.sync.memory_stats()
        tables = sum(n for name, rows in stats.items() if name.startswith("db.") for n in rows.values())
        return int(stats["total.allocated"] - stats["overhead.total"] + tables)

    def cpu_us(self) -> float:
        info = self.sync.info("cpu")
        return 1e6 * float(info["used_cpu_user"] + info["used_cpu_sys"])

    def host(self, n: int) -> str:
        return f"host{n % HOSTS:06}.example"

    def record(self, n: int, now_s: float) -> PageRecord:
        """Half of the pages have an ETag and a date, as about half of the web's."""
        more = {"etag": f'"{self.rng.getrandbits(52):x}"', "last_modified": "Mon, 30 Nov 2026 12:34:56 GMT"} if n % 2 else {}
        ref = WarcRef(f"crawlweb-20261130123456789-{'0a1b2c3d'}-{n // 40_000:05}.warc.gz", n % 40_000 * 25_000, 24_000)
        return PageRecord(
            url=f"https://{self.host(n)}/articles/2024/{n:08}/a-title.html",
            fetched_at=now_s,
            status=200,
            content_hash=self.rng.randbytes(8),
            fingerprint=self.rng.getrandbits(64),
            first_seen=now_s,
            interval_s=DAY_S,
            next_at=now_s + self.rng.randrange(3_700, DAY_S),
            warc=ref,
            **more,
        )

    async def leases(self, first: int) -> list[Lease]:
        links = [
            Link(self.host(n), self.rng.randbytes(16), Entry(self.record(n, 0).url, 5, 3), UNCHECKED) for n in range(first, first + BATCH)
        ]
        await self.f.enqueue(0, links)
        held: list[Lease] = []
        while len(held) < BATCH:
            held += (await self.f.lease(0, BATCH - len(held)))[1]
        return held

    async def complete(self, first: int, with_records: bool) -> float:
        """CPU µs of the server a page."""
        held, now_s = await self.leases(first), self.f.unix_now()
        records = [self.record(first + i, now_s) for i in range(BATCH)]
        outcomes = [Outcome(lease, "d", 0.0) for lease in held]
        if with_records:
            outcomes = [
                Outcome(lease, "d", 0.0, record=record, record_key=self.rng.randbytes(8))
                for lease, record in zip(held, records, strict=True)
            ]
        begun = self.cpu_us()
        await self.f.complete(0, outcomes)
        return (self.cpu_us() - begun) / BATCH

    async def fill(self, wanted: int) -> None:
        """Records by the step itself, without URLs in queues: leases that are gone, told again."""
        step = 256
        now_s = self.f.unix_now()
        for first in range(0, wanted, step):
            some = [self.record(n, now_s) for n in range(first, min(first + step, wanted))]
            gone = [Lease(f"x:{first + i}", 0, self.host(first + i), Entry(record.url), 0.0, 0.0) for i, record in enumerate(some)]
            outcomes = [Outcome(lease, "d", record=r, record_key=self.rng.randbytes(8)) for lease, r in zip(gone, some, strict=True)]
            await self.f.complete(0, outcomes, again=True)
            self.f._journal.take(0)


async def run(options: argparse.Namespace, folder: str) -> None:
    bench = Bench(f"{folder}/s")
    if options.default:
        for name, value in (("hash-max-listpack-value", 64), ("hash-max-listpack-entries", 128)):
            bench.sync.config_set(name, value)
    await bench.f.read_clock()
    for n in range(8):  # hosts and scripts are there before
        await bench.complete(n * BATCH, False)
    empty, rss = bench.used(), int(bench.sync.info("memory")["used_memory_rss"])
    await bench.fill(options.pages)
    n = int(bench.sync.hget(bench.f.key(0, "ctr"), "recs") or 0)
    packed = statistics.fmean(len(pages.encode(bench.record(i, 1e9), bench.host(i), 5, 3)) for i in range(2_000))
    grown = int(bench.sync.info("memory")["used_memory_rss"]) - rss
    print(f"{n} pages; packed {packed:.1f} B; {(bench.used() - empty) / n:.1f} B a page all in, resident {grown / n:.1f}", flush=True)
    keys = sum(bench.sync.llen(key) for key in bench.sync.scan_iter(match="*:due:*", count=10_000))
    size = sum(bench.sync.memory_usage(key, samples=0) or 0 for key in bench.sync.scan_iter(match="*:due:*", count=10_000))
    print(f"of that {size / max(1, keys):.1f} B in lists of due pages", flush=True)
    cost: dict[bool, list[float]] = {True: [], False: []}
    calls: dict[bool, list[float]] = {True: [], False: []}
    first = options.pages
    for n in range(options.rounds):
        with_records = n % 2 > 0
        first += BATCH
        bench.sync.config_set("slowlog-log-slower-than", 0)
        bench.sync.slowlog_reset()
        cost[with_records].append(await bench.complete(first, with_records))
        calls[with_records].append(max(row["duration"] for row in bench.sync.slowlog_get(16) if b"EVALSHA" in row["command"]) / 1000)
    a, b = (statistics.median(cost[which]) for which in (True, False))
    print(f"server CPU a page: {a:.1f} µs with its record, {b:.1f} without", flush=True)
    for which, name in ((True, "with"), (False, "without")):
        took = sorted(calls[which])
        cpu_ms = sorted(us * BATCH / 1000 for us in cost[which])
        print(f"CPU of a complete of {BATCH} {name}: p50 {cpu_ms[len(cpu_ms) // 2]:.2f} ms, p99 {cpu_ms[int(len(cpu_ms) * 0.99)]:.2f}")
        print(f"complete of {BATCH} {name}: p50 {took[len(took) // 2]:.2f} ms, p99 {took[int(len(took) * 0.99)]:.2f}, most {took[-1]:.2f}")
    pair = [pages.encode(bench.record(i, 1e9), bench.host(i), 5, 3) for i in range(20_000)]
    begun = time.process_time()
    for data in pair:
        pages.decode(data)
    decoded = time.process_time() - begun
    some = [bench.record(i, 1e9) for i in range(20_000)]
    begun = time.process_time()
    for i, record in enumerate(some):
        pages.encode(record, bench.host(i), 5, 3)
    print(f"client CPU: encode {(time.process_time() - begun) / 0.02:.1f} µs, decode {decoded / 0.02:.1f} µs", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--binary", default="")
    parser.add_argument("--default", action="store_true", help="hash-max-listpack-value 64, entries 128")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = start(find_binary(options.binary), folder)
        try:
            asyncio.run(run(options, folder))
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
