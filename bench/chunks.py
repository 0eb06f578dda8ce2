"""Long queues on disk under fire: URLs are put in and taken out while workers and Redis are killed at random moments.

    python bench/chunks.py                       a million URLs of 100 hosts, a kill about every 20 s
    python bench/chunks.py --urls 10000000 --hosts 1000 --chunk 2000
    python bench/chunks.py --sizes PAGES URLS    bytes a URL in chunks: links in page order, real URLs over many hosts
                                                 (../shared/data/e_html_pages unpacked, ../shared/data/a_urls/urls.jsonl.gz)

A feeder process enqueues, then a worker process leases and completes; it sees to long queues all the time. Every kill (SIGKILL) takes the
worker, the server, or both; with the server's, half the time the last second of its append-only file is cut off, as a crash of its machine
would. What was acknowledged less than 5 s before is then sent again. In the end every URL must have been leased; those leased twice are
counted: what was in hand, or completed in a lost second. Exit status 0 if nothing is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import logging
import multiprocessing
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import redis  # noqa: E402
from redis.asyncio import Redis  # noqa: E402

from crawlweb.content.page import parse_page  # noqa: E402
from crawlweb.frontier import codec  # noqa: E402
from crawlweb.frontier.frontier import Frontier  # noqa: E402
from crawlweb.frontier.rows import EXACT, Limits, Link, Outcome  # noqa: E402
from crawlweb.frontier.server import find_binary  # noqa: E402
from crawlweb.policy.canonical import Canonicalizer  # noqa: E402
from crawlweb.records import Entry  # noqa: E402
from crawlweb.spill import Spill  # noqa: E402
from crawlweb.store.chunks import ChunkStore  # noqa: E402

REPLAY_S = 5.0
LOST_S = 1.0
LIMITS = Limits(min_delay_s=0.0, latency_factor=0.0, lease_s=6.0, look_ahead_s=0.1)
PARTITIONS = 4
CHUNK = 10_000
ROW = struct.Struct("<dQ")


class Server:
    """A Redis with an append-only file, whose sizes are remembered so that its last second can be cut off."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, f"unix://{folder}/s"
        self.cuts = 0
        self._sizes: list[tuple[float, str, int]] = []
        self.start()

    def start(self) -> None:
        options = {"port": "0", "unixsocket": str(self.folder / "s"), "dir": str(self.folder), "save": "", "appendonly": "yes"}
        options |= {"appendfsync": "everysec", "auto-aof-rewrite-min-size": "256mb", "zset-max-listpack-value": "1024"}
        command = [find_binary(""), *(word for name, value in options.items() for word in (f"--{name}", value))]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                redis.Redis.from_url(self.url).ping()
                return
            except redis.RedisError:
                time.sleep(0.05)

    def watch(self) -> None:
        files = sorted(self.folder.glob("appendonlydir/*.incr.aof"))
        if files:
            self._sizes.append((time.monotonic(), files[-1].name, files[-1].stat().st_size))
            del self._sizes[:-100]

    def kill(self, lose: bool) -> None:
        at = time.monotonic()
        self.process.kill()
        self.process.wait()
        files = sorted(self.folder.glob("appendonlydir/*.incr.aof"))
        older = [size for then, name, size in self._sizes if at - then >= LOST_S and files and name == files[-1].name]
        if lose and older:
            os.truncate(files[-1], older[-1])
            self.cuts += 1
        self._sizes.clear()


def make(n: int, hosts: int) -> Link:
    host = f"host{n % hosts}.example"
    url = f"https://{host}/articles/2024/{n:08}/a-title.html"
    return Link(host, struct.pack("<QQ", n * 0x9E3779B97F4A7C15 % 2**64, n), Entry(url, 5), EXACT)


def number_of(url: str) -> int:
    return int(url.split("/")[5])


def feed(url: str, urls: int, hosts: int, first: int, log: str) -> None:
    """Enqueues from `first` on, and notes what was acknowledged, and when."""

    logging.disable(logging.WARNING)
    told = open(log, "ab", buffering=0)  # noqa: SIM115

    async def run() -> None:
        frontier = Frontier(Redis.from_url(url), "bench", PARTITIONS, f"f{os.getpid()}", LIMITS)
        with told:
            for start in range(first, urls, 800):
                batches: dict[int, list[Link]] = {}
                for n in range(start, min(start + 800, urls)):
                    link = make(n, hosts)
                    batches.setdefault(frontier.partition_of(link.host), []).append(link)
                calls = [frontier.enqueue(p, rows[i : i + 200]) for p, rows in batches.items() for i in range(0, len(rows), 200)]
                await asyncio.gather(*calls)
                told.write(ROW.pack(time.monotonic(), min(start + 800, urls)))

    asyncio.run(run())


def work(url: str, store_url: str, chunk: int, log: str, counts: str, pause: Any) -> None:
    """Leases and completes; notes each URL before it is completed. While `pause` is set it only sees to long queues."""

    logging.disable(logging.WARNING)
    told = open(log, "ab", buffering=0)  # noqa: SIM115
    counted = open(counts, "a", buffering=1)  # noqa: SIM115

    async def run() -> None:
        frontier = Frontier(Redis.from_url(url), "bench", PARTITIONS, f"w{os.getpid()}", LIMITS)
        await frontier.read_clock()
        tasks: set[asyncio.Task[None]] = set()
        total: dict[str, int] = {}

        def spawn(work: Coroutine[Any, Any, None]) -> None:
            task = asyncio.ensure_future(work)
            tasks.add(task)
            task.add_done_callback(lambda t: (tasks.discard(t), t.result()))

        def count(name: str, by: int = 1) -> None:
            total[name] = total.get(name, 0) + by

        spill = Spill(frontier, ChunkStore(store_url, "bench"), chunk_entries=chunk, count=count, run=spawn)
        spawn(spill.tune_forever())
        since = time.monotonic()

        async def turn(p: int) -> int:
            _, leases = await frontier.lease(p, 0 if pause.is_set() else 250)
            if leases:
                told.write(array("Q", (number_of(lease.entry.url) for lease in leases)).tobytes())
                await frontier.complete(p, [Outcome(lease, "d") for lease in leases])
            return len(leases)

        with told:
            while True:
                done = sum(await asyncio.gather(*(turn(p) for p in range(PARTITIONS))))
                if not done:
                    await asyncio.sleep(0.05)
                if time.monotonic() - since > 1:
                    await frontier.read_clock()
                    since = time.monotonic()
                    counted.write(json.dumps(total) + "\n")
                    total.clear()

    asyncio.run(run())


def under_fire(options: argparse.Namespace, folder: Path) -> bool:
    rng, spawn = random.Random(options.seed), multiprocessing.get_context("spawn")
    server = Server(folder)
    store = ChunkStore(str(folder / "cold"), "bench")
    store.create()
    fed, leased, counts = folder / "fed", folder / "leased", folder / "counts"
    pause = spawn.Event()
    pause.set()

    def start_worker() -> Any:
        process = spawn.Process(
            target=work, args=(server.url, str(folder / "cold"), options.chunk, str(leased), str(counts), pause), daemon=True
        )
        process.start()
        return process

    def start_feeder(crashed_at: float) -> Any:
        """What was acknowledged less than REPLAY_S before is sent again."""
        rows = list(ROW.iter_unpack(fed.read_bytes()[: fed.stat().st_size // ROW.size * ROW.size])) if fed.exists() else []
        kept = [n for then, n in rows if crashed_at - then > REPLAY_S]
        first = kept[-1] if kept else 0
        process = spawn.Process(target=feed, args=(server.url, options.urls, options.hosts, first, str(fed)), daemon=True)
        process.start()
        return process

    worker, feeder = start_worker(), start_feeder(time.monotonic())
    begun = next_kill = time.monotonic()
    kills = {"worker": 0, "server": 0, "both": 0}
    most_bytes, most_cold, memory_at_most_cold = 0, 0, 0
    client = redis.Redis.from_url(server.url)
    next_kill += rng.uniform(0.5, 1.5) * options.every_s
    while True:
        time.sleep(0.1)
        server.watch()
        if not feeder.is_alive() and pause.is_set():
            pause.clear()
        now = time.monotonic()
        if now >= next_kill:
            what = rng.choice(list(kills))
            kills[what] += 1
            if what != "server":
                worker.kill()
                worker.join()
            if what != "worker":
                lose = rng.random() < 0.5
                crashed_at = time.monotonic()
                feeder.kill()
                feeder.join()
                if lose:  # its machine: nothing of the last second came back, and workers replay what they had acknowledged
                    worker.kill()
                    worker.join()
                server.kill(lose)
                server.start()
                # In any case: a Redis whose disk is slow answers up to 2 s before it writes.
                feeder = start_feeder(crashed_at)
            if not worker.is_alive():
                worker = start_worker()
            next_kill = time.monotonic() + rng.uniform(0.5, 1.5) * options.every_s
        try:
            if int(now * 10) % 5 == 0:
                used = client.info("memory")["used_memory"]
                most_bytes = max(most_bytes, used)
                cold = sum(size for p in range(PARTITIONS) for size in sizes_of_cold(client, p))
                if cold > most_cold:
                    most_cold, memory_at_most_cold = cold, used
            pending = sum(
                int(a or 0) - int(b or 0) for a, b in (client.hmget(f"{{bench:{p}}}:ctr", "enq", "done") for p in range(PARTITIONS))
            )
        except redis.RedisError:
            continue
        if not feeder.is_alive() and not pending and fed.exists():
            break
    worker.kill()
    worker.join()
    took_s = time.monotonic() - begun

    numbers = array("Q")
    numbers.frombytes(leased.read_bytes()[: leased.stat().st_size // 8 * 8])
    times = bytearray(options.urls)
    for n in numbers:
        times[n] = min(255, times[n] + 1)
    missed = times.count(0)
    frontier = Frontier(Redis.from_url(server.url), "bench", PARTITIONS, "audit", LIMITS)
    audit = asyncio.run(frontier.audit())
    unreadable = sum(int(client.hget(f"{{bench:{p}}}:ctr", "unreadable") or 0) for p in range(PARTITIONS))
    total: dict[str, int] = {}
    for line in counts.read_text().splitlines():
        for name, by in json.loads(line).items():
            total[name] = total.get(name, 0) + by
    server.process.terminate()
    out, size = total.get("spill/entries_out", 0), total.get("spill/bytes_out", 0)
    print(f"{options.urls:,} URLs of {options.hosts} hosts in {took_s:.0f} s, seed {options.seed}")
    print(f"killed: worker {kills['worker']}, server {kills['server']}, both {kills['both']}; last second lost {server.cuts} times")
    at_most = memory_at_most_cold / 2**20
    print(f"at most {most_cold:,} entries on disk at a time, Redis then {at_most:,.0f} MiB (most ever {most_bytes / 2**20:,.0f})")
    print(f"entries written {out:,}, {size / max(1, out):.1f} B each (what workers told before they were killed)")
    print(f"leased {len(numbers):,}: every URL but {missed}; twice or more {sum(1 for t in times if t > 1):,}")
    print(f"dead letters {audit['dead']}, in no place {audit['lost']}, in chunks that could not be read {unreadable}")
    return not (missed or audit["lost"] or audit["dead"] or unreadable)


def sizes_of_cold(client: Any, p: int) -> list[int]:
    rows = client.hvals(f"{{bench:{p}}}:cold")
    return [int(size) - int(taken) for _, taken, size, _ in (row.split(b"\t") for row in rows)]


def sizes(pages: Path, urls: Path) -> None:
    """Bytes an entry in chunks of 10,000: links of real pages in page order, real URLs shuffled, each as a host token carries it."""
    canonicalizer = Canonicalizer()

    def tokens(with_referrer: bool) -> list[bytes]:
        found: list[bytes] = []
        with gzip.open(pages / "index.jsonl.gz", "rt") as f:
            for row in map(json.loads, f):
                path = pages / row["file"]
                if path.exists() and row["url"]:
                    page = parse_page(path.read_bytes(), row["url"])
                    for t in canonicalizer.targets(page.hrefs, page.base_url):
                        entry = Entry(t.url, 5, 1, row["url"] if with_referrer else "")
                        found.append(f"{t.host}\t{len(found)}\t".encode() + codec.encode(entry, t.host))
        return found

    with gzip.open(urls, "rt") as f:
        targets = [canonicalizer.target(json.loads(line)["url"]) for line in f]
    shuffled = [f"{t.host}\t{i}\t".encode() + codec.encode(Entry(t.url, 5, 1), t.host) for i, t in enumerate(targets) if t]
    random.Random(1).shuffle(shuffled)
    with tempfile.TemporaryDirectory() as folder:
        store = ChunkStore(folder, "sizes")
        store.create()
        kinds = {
            "links in page order": tokens(False),
            "links in page order, with their referrer": tokens(True),
            "real URLs over many hosts, shuffled": shuffled,
        }
        for name, entries in kinds.items():
            chunks = [entries[i : i + CHUNK] for i in range(0, len(entries) - CHUNK + 1, CHUNK)]
            n = len(chunks) * CHUNK
            begun = time.process_time()
            total = sum(store.write(0, f"{i:013d}-x-1", "front:5", chunk) for i, chunk in enumerate(chunks))
            cpu_us = (time.process_time() - begun) / n * 1e6
            mean = sum(len(e) for chunk in chunks for e in chunk) / n
            print(f"{name}: {n:,} entries of {mean:.1f} B: {total / n:.1f} B each, {cpu_us:.2f} us CPU to write")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=1_000_000)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--chunk", type=int, default=1000, help="entries of a chunk")
    parser.add_argument("--every-s", type=float, default=20.0, help="mean seconds between kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", type=Path, nargs=2, metavar=("PAGES", "URLS"), help="only the sizes of chunks of real URLs")
    options = parser.parse_args()
    if options.sizes:
        sizes(*options.sizes)
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        return 0 if under_fire(options, Path(folder)) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
