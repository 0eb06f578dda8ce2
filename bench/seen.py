"""The seen-set, the real Lua in a real Redis: false positives and memory at every power of two; the exact set's CPU and memory.

    python bench/seen.py                        both, to 2^22 keys in one partition
    python bench/seen.py --bloom --most 50000000
    python bench/seen.py --exact --most 10000000
    python bench/seen.py --dupefilter           memory beside scrapy-redis' set of SHA-1 digests

False positives are counted with keys that were never marked; "at most" is the upper end of the interval (Clopper and Pearson, 1934) that
holds the true rate with 95 % confidence. Keys are 16 random bytes, as hashes of URLs are. CPU is the server's, without the client's;
bytes are what `used_memory` grew by. `resident` is measured after the allocator had ten seconds to give pages back.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgpack
import redis

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from crawlweb.default_settings import Config  # noqa: E402
from crawlweb.dupefilter import DupeFilter  # noqa: E402
from crawlweb.frontier.server import PrivateServer  # noqa: E402

BATCH = 200
CTR = "{seen:0}:ctr"
WAYS = {
    # marks what is new, or only tests; answers how many were known
    "bloom": """
local keys, expected, rate = cmsgpack.unpack(ARGV[3]), num(ARGV[4]), num(ARGV[5])
seen_open(expected, rate)
local known = 0
for _, key in ipairs(keys) do
  if is_seen(key) then known = known + 1 elseif ARGV[6] == 'mark' then mark_seen(key, expected, rate) end
end
seen_close(expected, rate)
return known
""",
    "exact": """
local known = 0
for _, key in ipairs(cmsgpack.unpack(ARGV[3])) do
  if not exact_add(key) then known = known + 1 end
end
exact_close()
return known
""",
    "nothing": "return #cmsgpack.unpack(ARGV[3])",
}


class SeenSet:
    """lua/seen.lua or lua/exact.lua by itself, in batches as links come."""

    def __init__(self, client: redis.Redis, way: str, expected: int, rate: float) -> None:
        folder = files("crawlweb.frontier") / "lua"
        text = "".join((folder / f"{part}.lua").read_text() for part in ("time", "common", "seen", "exact")) + WAYS[way]
        self.client, self.digest = client, client.script_load(text)
        self._expected, self._rate = expected, rate

    def call(self, data: bytes, what: str = "mark", batch: int = BATCH, ctr: str = CTR) -> int:
        """How many of the keys in `data` were known."""
        known = 0
        pipe = self.client.pipeline(transaction=False)
        for n, first in enumerate(range(0, len(data), 16 * batch), 1):
            keys = [data[at : at + 16] for at in range(first, min(first + 16 * batch, len(data)), 16)]
            pipe.evalsha(self.digest, 1, ctr, "w", 1, msgpack.packb(keys, use_bin_type=False), self._expected, self._rate, what)
            if n % 50 == 0:
                known += sum(pipe.execute())
        return known + sum(pipe.execute())


@contextmanager
def server() -> Iterator[redis.Redis]:
    """Without persistence."""
    with tempfile.TemporaryDirectory(prefix="seen-") as folder:
        private = PrivateServer(Path(folder))
        private.start()
        try:
            with redis.Redis.from_url(private.url, socket_timeout=None) as client:
                client.config_set("appendonly", "no")
                client.config_set("save", "")
                yield client
        finally:
            private.stop()


def cpu_s(client: redis.Redis) -> float:
    info: dict[str, Any] = client.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def used_bytes(client: redis.Redis, what: str = "used_memory") -> int:
    """Without buffers of clients, where the server tells."""
    info: dict[str, Any] = client.info("memory")
    return int(info[what]) - (int(info.get("mem_clients_normal", 0)) if what == "used_memory" else 0)


def upper_bound(hits: int, tries: int, confidence: float = 0.95) -> float:
    """Clopper-Pearson, one-sided: the rate at which so few hits, or fewer, have the probability 1 - confidence."""

    def log_term(k: int, p: float) -> float:
        return math.lgamma(tries + 1) - math.lgamma(k + 1) - math.lgamma(tries - k + 1) + k * math.log(p) + (tries - k) * math.log1p(-p)

    low, high = hits / tries, min(1.0, (hits + 10 * math.sqrt(hits + 10)) / tries)
    for _ in range(60):
        p = (low + high) / 2
        tail = sum(math.exp(log_term(k, p)) for k in range(max(0, hits - 4000), hits + 1)) if p > 0 else 1.0
        low, high = (p, high) if tail > 1 - confidence else (low, p)
    return high


def powers(most: int) -> list[int]:
    sizes = [2**i for i in range(10, most.bit_length() + 1) if 2**i < most]
    return [*sizes, most]


def bloom(most: int, expected: int, rate: float, probes: bool) -> None:
    print(f"### Bloom filter, one partition, first layer for {expected:,} keys, allowed {rate:.3%}\n")
    print("| keys | layers | B a key | false positives | tries | rate | at most (95 %) | new keys taken for known |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    rng, worst = random.Random(11), 0.0
    with server() as client:
        seen = SeenSet(client, "bloom", expected, rate)
        seen.call(rng.randbytes(16 * 2_000), ctr="{warm:0}:ctr")
        client.flushall()
        before, count, hidden = used_bytes(client), 0, 0
        for size in powers(most):
            while count < size:
                step = min(size - count, 1_000_000)
                hidden += seen.call(rng.randbytes(16 * step), "mark", 1000)
                count += step
            layers = int(client.hget("{seen:0}:bloom", "n") or 0)
            stored = (used_bytes(client) - before) / size
            if not probes:
                print(f"| {size:,} | {layers} | {stored:.2f} | | | | | {hidden} ({hidden / size:.4%}) |", flush=True)
                continue
            tries = 200_000 if size < 2**16 else 1_000_000
            hits = sum(seen.call(rng.randbytes(16 * 200_000), "test", 1000) for _ in range(tries // 200_000))
            bound = upper_bound(hits, tries)
            worst = max(worst, bound)
            counted = f"{hits} | {tries:,} | {hits / tries:.4%} | {bound:.4%} | {hidden} ({hidden / size:.4%})"
            print(f"| {size:,} | {layers} | {stored:.2f} | {counted} |", flush=True)
    if probes:
        print(f"\nThe largest upper bound is {worst:.4%}, {'under' if worst <= rate else 'OVER'} the {rate:.3%} allowed.\n", flush=True)


def exact(most: int) -> None:
    print("### Exact set, one partition\n")
    print("| keys | buckets | fullest | not intsets | B a key | resident | new, µs | known, µs | wrong |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    rng = random.Random(12)
    with server() as client:
        seen, nothing = SeenSet(client, "exact", 1, 1), SeenSet(client, "nothing", 1, 1)
        nothing.call(rng.randbytes(16 * 200_000))
        seen.call(rng.randbytes(16 * 2_000), ctr="{warm:0}:ctr")  # the server's statistics of commands take memory, too
        client.flushall()
        before, resident = used_bytes(client), used_bytes(client, "used_memory_rss")
        count, wrong = 0, 0
        for size in [most // 100, most // 30, most // 10, most // 3, most * 45 // 100, most * 60 // 100, most * 80 // 100, most]:
            spent, added, again_us = 0.0, size - count, []
            while count < size:
                step = min(size - count, 500_000)
                data = rng.randbytes(16 * step)
                start = cpu_s(client)
                wrong += seen.call(data)  # a new key that was known
                spent += cpu_s(client) - start
                sample = data[: 16 * 200_000]
                start = cpu_s(client)
                nothing.call(sample)
                idle = (cpu_s(client) - start) / (len(sample) // 16)
                spent -= idle * step
                start = cpu_s(client)
                wrong += len(sample) // 16 - seen.call(sample)  # a known key that was new
                again_us.append(((cpu_s(client) - start) / (len(sample) // 16) - idle) * 1e6)
                count += step
            stored = (used_bytes(client) - before) / size
            time.sleep(10)
            settled = (used_bytes(client, "used_memory_rss") - resident) / size
            buckets = int(client.hget("{seen:0}:seen", "n") or 1)
            sizes, kinds = [], []
            for first in range(0, buckets, 5000):
                pipe = client.pipeline(transaction=False)
                for b in range(first, min(first + 5000, buckets)):
                    pipe.scard(f"{{seen:0}}:seen:{b}")
                    pipe.object("encoding", f"{{seen:0}}:seen:{b}")
                answers = pipe.execute()
                sizes += answers[::2]
                kinds += answers[1::2]
            others = sum(kind != b"intset" for kind in kinds)
            assert sum(sizes) == size, (sum(sizes), size)
            print(
                f"| {size:,} | {buckets:,} | {max(sizes)} | {others} | {stored:.2f} | {settled:.2f} | {spent / added * 1e6:.2f} "
                f"| {statistics.median(again_us):.2f} | {wrong} |",
                flush=True,
            )
        client.config_resetstat()
        for _ in range(2_000):  # one at a time: in a pipeline they wait for one another
            seen.call(rng.randbytes(16 * BATCH))
        stats: dict[str, Any] = client.info("latencystats")
        print(f"\nA call of {BATCH}, µs in the server: {stats.get('latency_percentiles_usec_evalsha')}\n", flush=True)


def dupefilter(requests: int) -> None:
    """Memory of the same requests in scrapy-redis' set and in ours, and the CPU of client and server."""
    from scrapy import Request

    print(f"### A dupefilter of {requests:,} requests\n\n| | taken for known | B a request | server, µs | client, µs |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    rng = random.Random(13)
    urls = [f"https://host{rng.randrange(10_000)}.example/articles/{rng.getrandbits(64):016x}" for _ in range(requests)]

    def row(name: str, seen: Any, client: redis.Redis) -> None:
        before, server_s, client_s = used_bytes(client), cpu_s(client), time.process_time()
        known = sum(seen(Request(url)) for url in urls)
        client_us, server_us = (time.process_time() - client_s) * 1e6 / requests, (cpu_s(client) - server_s) * 1e6 / requests
        print(f"| {name} | {known} | {(used_bytes(client) - before) / requests:.1f} | {server_us:.1f} | {client_us:.0f} |", flush=True)

    with server() as client:
        row(
            "scrapy-redis' way: a set of SHA-1 digests in hex",
            lambda r: not client.sadd("s", hashlib.sha1(r.url.encode()).hexdigest()),
            client,
        )
        for mode in ("bloom", "exact"):
            config = Config(seen=mode, expected_urls=requests)
            row(f"crawlweb.dupefilter.DupeFilter, {mode}", DupeFilter(client, mode, config).request_seen, client)
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bloom", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--dupefilter", action="store_true")
    parser.add_argument("--most", type=int, default=2**22, help="keys at the end")
    parser.add_argument("--expected", type=int, default=1_000_000, help="CRAWLWEB_EXPECTED_URLS of the partition")
    parser.add_argument("--no-probes", action="store_true", help="of the filter, memory only")
    parser.add_argument("--rate", type=float, default=0.001, help="CRAWLWEB_FALSE_POSITIVES")
    options = parser.parse_args()
    both = not (options.bloom or options.exact or options.dupefilter)
    if options.bloom or both:
        bloom(options.most, options.expected, options.rate, not options.no_probes)
    if options.exact or both:
        exact(options.most)
    if options.dupefilter:
        dupefilter(min(options.most, 300_000))


if __name__ == "__main__":
    main()
