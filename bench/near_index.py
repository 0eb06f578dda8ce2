"""The index of fingerprints in a real Redis: CPU and bytes a page, the longest calls, and which planted twins are found, by their age.

    python bench/near_index.py                          a window of 1 M pages, filled one and a quarter times
    python bench/near_index.py --window 100000 --kinds minhash
    python bench/near_index.py --load --batch 64        percentiles of calls by the size of a batch

Pages have random hashes, as pages with nothing in common have. A twin shares 12 of 16 bands and all but 3 bits of the SimHash with a page
of a certain age (pages that were put in since); a copy has its hashes. CPU is the server's, without the client's; bytes are what
`used_memory` grew by.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from hashlib import shake_128
from pathlib import Path
from typing import Any
from unittest import mock

import redis
from redis.asyncio import Redis

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from crawlweb.frontier import near  # noqa: E402
from crawlweb.frontier.frontier import Frontier  # noqa: E402
from crawlweb.frontier.server import PrivateServer  # noqa: E402
from crawlweb.records import Copy, Fingerprint, PageRecord  # noqa: E402

AGES = (0.01, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)  # of the window
TWINS = 300  # at each age
BANDS, SHARED_BANDS, VOTES_LEAST = 16, 12, 5
_ODD = 0x9E37_79B9_7F4A_7C15  # URL keys look like random numbers
_PRINT = struct.Struct(f">8s8sQ{BANDS}Q")


class Pages:
    """Made from their numbers, so that none has to be kept."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fingerprint(self, n: int) -> Fingerprint:
        values = _PRINT.unpack(shake_128(b"%d %d" % (self.seed, n)).digest(_PRINT.size))
        return Fingerprint(*values[:3], bands=values[3:])

    def page(self, n: int) -> Copy:
        return self._copy(n, self.fingerprint(n))

    def twin(self, n: int, of: int, kind: str) -> Copy:
        mine, others = self.fingerprint(n), self.fingerprint(of)
        if kind == "exact":
            return self._copy(n, Fingerprint(others.body_hash, mine.text_hash))
        if kind == "minhash":
            return self._copy(n, Fingerprint(mine.body_hash, bands=others.bands[:SHARED_BANDS] + mine.bands[SHARED_BANDS:]))
        rng, bits = random.Random(n), 0
        for bit in rng.sample(range(64), 3):
            bits |= 1 << bit
        return self._copy(n, Fingerprint(mine.body_hash, simhash=(others.simhash or 0) ^ bits))

    def _copy(self, n: int, prints: Fingerprint) -> Copy:
        return Copy(self.url(n), (n * _ODD % 2**64).to_bytes(8, "big") + bytes(8), f"h{n % 5000}.org", 0.0, prints)

    @staticmethod
    def url(n: int) -> str:
        return f"https://h{n % 5000}.org/articles/{n}"


async def no_records(places: Sequence[tuple[int, bytes]]) -> list[PageRecord | None]:
    return [None for _ in places]  # on disk: the index names them


def cpu_s(client: redis.Redis) -> float:
    info: dict[str, Any] = client.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def used_bytes(client: redis.Redis) -> int:
    info: dict[str, Any] = client.info("memory")
    return int(info["used_memory"]) - int(info.get("mem_clients_normal", 0))


async def fill(index: near.NearIndex, pages: Pages, first: int, last: int) -> tuple[float, int]:
    """CPU seconds of the client in look-ups; matches, all of them wrong."""
    spent, wrong = 0.0, 0
    for at in range(first, last, 64):
        batch = [pages.page(n) for n in range(at, min(at + 64, last))]
        start = time.process_time()
        wrong += sum(map(len, await index.look_up(batch)))
        spent += time.process_time() - start
    return spent, wrong


async def recall(index: near.NearIndex, pages: Pages, age: int, newest: int, kinds: Sequence[str]) -> dict[str, float]:
    found: dict[str, int] = defaultdict(int)
    for kind in kinds:
        for at in range(0, TWINS, 50):
            olds = [newest - age - at - i for i in range(50)]
            twins = [pages.twin(10**12 + old, old, kind) for old in olds]
            matches = await index.look_up(twins)
            found[kind] += sum(any(m.copy.url == Pages.url(old) for m in some) for old, some in zip(olds, matches, strict=True))
    return {kind: found[kind] / TWINS for kind in kinds}


async def run(options: argparse.Namespace) -> None:
    kinds = tuple(options.kinds.split(","))
    with tempfile.TemporaryDirectory(prefix="near-") as folder:
        private = PrivateServer(Path(folder))
        private.start()
        client, link = redis.Redis.from_url(private.url, socket_timeout=None), Redis.from_url(private.url, single_connection_client=True)
        try:
            client.config_set("appendonly", "no")
            client.config_set("save", "")
            frontier = Frontier(link, "bench", options.partitions, "w")
            index = near.NearIndex(frontier, no_records, pages=options.window, votes_least=VOTES_LEAST, kinds=kinds)
            pages = Pages(7)
            if options.load:
                await percentiles(index, pages, client, options)
                return
            await fill(index, Pages(8), 0, 64)
            client.flushall()
            before, done, wrong = used_bytes(client), 0, 0
            head = " | ".join(("pages", "MB", "B a page", "Redis, µs a page", "client, µs a page", "call p50, p99, µs"))
            print(f"### Window of {options.window:,} pages, {', '.join(kinds)}, exact\n\n| {head} |\n| --- | --- | --- | --- | --- | --- |")
            for share in (0.01, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25):
                target = int(options.window * share)
                step = min(target - done, options.measured)
                wrong += (await fill(index, pages, done, target - step))[1]
                client.config_resetstat()
                start = cpu_s(client)
                mine, more = await fill(index, pages, target - step, target)
                wrong += more
                spent, done = cpu_s(client) - start, target
                stats: dict[str, Any] = client.info("latencystats")
                calls = stats.get("latency_percentiles_usec_evalsha", {})
                size = used_bytes(client) - before
                print(
                    f"| {done:,} | {size / 1e6:.1f} | {size / done:.0f} | {spent / step * 1e6:.1f} | {mine / step * 1e6:.1f} "
                    f"| {calls.get('p50')}, {calls.get('p99')} |",
                    flush=True,
                )
            asked = (*kinds, "exact")
            print(f"\nStrangers taken for copies: {wrong}.\n\n| age, pages | {' | '.join(asked)} |\n| --- |{' --- |' * len(asked)}")
            for age in AGES:
                shares = await recall(index, pages, int(options.window * age), done - 1, asked)
                print(f"| {int(options.window * age):,} | {' | '.join(f'{shares[kind]:.3f}' for kind in asked)} |", flush=True)
        finally:
            await link.aclose()
            client.close()
            private.stop()


async def percentiles(index: near.NearIndex, pages: Pages, client: redis.Redis, options: argparse.Namespace) -> None:
    print("| pages a call | Redis, µs a page | p50 | p99 of a call, µs |\n| --- | --- | --- | --- |")
    done = 0
    for batch in (8, 16, 32, 64):
        with mock.patch.object(near, "BATCH", batch):
            client.config_resetstat()
            start = cpu_s(client)
            await fill(index, pages, done, done + options.measured)
            done += options.measured
            spent = cpu_s(client) - start
        stats: dict[str, Any] = client.info("latencystats")
        calls = stats.get("latency_percentiles_usec_evalsha", {})
        print(f"| {batch} | {spent / options.measured * 1e6:.1f} | {calls.get('p50')} | {calls.get('p99')} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, default=1_000_000, help="CRAWLWEB_NEAR_PAGES")
    parser.add_argument("--kinds", default="minhash,simhash", help="CRAWLWEB_NEAR")
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--measured", type=int, default=20_000, help="pages that CPU is measured over")
    parser.add_argument("--load", action="store_true", help="percentiles by the size of a batch, nothing else")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
