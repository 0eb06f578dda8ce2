"""The example pipelines that write files: CPU an item, and how long the event loop waits for them.

    PYTHONPATH=. python bench/pipelines.py [--items 2000] [--large 20]

Items of about 20 KB (100 links), and large ones of about 8 MB. Twenty are given at a time; finishing the file is timed apart.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from examples.pipelines.corpus import CorpusPipeline
from examples.pipelines.jsonlines import JsonLinesPipeline
from examples.pipelines.parquet import ParquetPipeline
from examples.pipelines.spool import SpoolPipeline

AT_ONCE = 20


def items(count: int, words: int, rng: random.Random) -> list[dict[str, Any]]:
    vocabulary = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 9))) for _ in range(20_000)]
    return [
        {
            "url": f"https://example.com/{n}",
            "url_key": f"{n:032x}",
            "status": 200,
            "fetched_at": "2027-01-15T08:00:00.000001+00:00",
            "text": " ".join(rng.choices(vocabulary, k=2 * words)),
            "main_text": " ".join(rng.choices(vocabulary, k=words)),
            "links": [f"https://example.com/{n}/{link}" for link in range(100)],
        }
        for n in range(count)
    ]


class Lag:
    """The longest that the event loop was late since `reset`, s."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest_s = max(self.longest_s, time.perf_counter() - began - 0.001)

    def reset(self) -> float:
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s


async def measure(kind: type[SpoolPipeline], given: list[dict[str, Any]]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        pipeline, lag = kind(Path(folder)), Lag()
        watch = asyncio.ensure_future(lag.watch())
        await pipeline.open_spider()
        cpu_s = time.process_time()
        for first in range(0, len(given), AT_ONCE):
            await asyncio.gather(*map(pipeline.process_item, given[first : first + AT_ONCE]))
        writing_s, began = lag.reset(), time.perf_counter()
        await pipeline.close_spider()
        finish_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
        watch.cancel()
        return (
            f"{kind.__name__:18} {cpu_s * 1e3 / len(given):8.2f} ms of CPU an item; the loop waits {writing_s * 1e3:6.1f} ms "
            f"while {AT_ONCE} items are written, {lag.longest_s * 1e3:6.1f} ms while the file is finished ({finish_s:.1f} s)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--large", type=int, default=20)
    options = parser.parse_args()
    for count, words in ((options.items, 1000), (options.large, 500_000)):
        given = items(count, words, random.Random(1))
        print(f"{count} items, {sum(len(item['text']) + len(item['main_text']) for item in given) // count:,} characters each")
        for kind in (JsonLinesPipeline, ParquetPipeline, CorpusPipeline):
            print(asyncio.run(measure(kind, given)))


if __name__ == "__main__":
    main()
