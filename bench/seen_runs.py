"""A seen-set on disk: sorted runs of 64-bit keys, asked key by key, and merged with a batch as IRLbot's DRUM does.

    python bench/seen_runs.py --keys 100000000 --folder DIR

A run is a file of sorted 8-byte keys; in memory stays the first key of each 4 KiB block (0.016 B a key). `ask`: one block is read for each
key, with the page cache dropped before. `merge`: the run is read, the batch's keys are tested on the way, and what was new is written with
the rest into a new run. With `rocksdict` installed: the same keys in RocksDB (what Kvrocks stores in), with Bloom filters of 10 bits.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

BLOCK = 512  # keys
CHUNK = 4_000_000


def cold(path: Path) -> None:
    """Out of the page cache."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


class Timer:
    def __enter__(self) -> Timer:
        self.wall_s, self.cpu_s = -time.perf_counter(), -time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s += time.perf_counter()
        self.cpu_s += time.process_time()


def make(path: Path, keys: int, rng: np.random.Generator) -> None:
    """Sorted uniform keys, a range at a time."""
    parts = max(1, keys // CHUNK)
    width = 2**63 // parts
    with path.open("wb") as file:
        for part in range(parts):
            some = rng.integers(part * width, (part + 1) * width, keys // parts, dtype=np.uint64)
            some.sort()
            some.tofile(file)


def ask(path: Path, keys: np.ndarray) -> int:
    """How many are in the run."""
    fences = np.memmap(path, dtype=np.uint64)[::BLOCK].copy()
    cold(path)
    at = np.searchsorted(fences, keys, side="right") - 1
    handle = os.open(path, os.O_RDONLY)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
    found = 0
    for key, block in zip(keys, at, strict=True):
        if block >= 0:
            some = np.frombuffer(os.pread(handle, 8 * BLOCK, int(block) * 8 * BLOCK), dtype=np.uint64)
            i = int(some.searchsorted(key))
            found += i < len(some) and some[i] == key
    os.close(handle)
    return found


def merge(old: Path, batch: np.ndarray, new: Path) -> int:
    """How many of the batch were known. The batch is sorted here, as DRUM sorts its buckets."""
    batch = np.sort(batch)
    known, first = 0, 0
    with old.open("rb") as source, new.open("wb") as target:
        while True:
            some = np.fromfile(source, dtype=np.uint64, count=CHUNK)
            last = len(batch) if len(some) < CHUNK else int(np.searchsorted(batch, some[-1], side="right"))
            asked = batch[first:last]
            first = last
            if len(some):
                at = np.minimum(np.searchsorted(some, asked), len(some) - 1)
                fresh = asked[some[at] != asked]
                known += len(asked) - len(fresh)
            else:
                fresh = asked
            np.insert(some, np.searchsorted(some, fresh), fresh).tofile(target)
            if len(some) < CHUNK:
                break
        target.flush()
        os.fsync(target.fileno())
    return known


def rocks(folder: Path, run: Path, keys: int, probes: int, rng: np.random.Generator) -> None:
    try:
        import rocksdict
    except ImportError:
        return
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    tables = rocksdict.BlockBasedOptions()
    tables.set_bloom_filter(10, False)
    options.set_block_based_table_factory(tables)
    store = rocksdict.Rdict(str(folder / "rocks"), options)
    data = np.memmap(run, dtype=np.uint64)
    stored = rng.permutation(data[:: max(1, len(data) // keys)][:keys]).byteswap()
    with Timer() as filled:
        for at in range(0, len(stored), 1000):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key in stored[at : at + 1000]:
                batch.put(key.tobytes(), b"")
            store.write(batch)
        store.flush()
    with Timer() as compacted:
        store.compact_range(None, None)
    size = sum(path.stat().st_size for path in (folder / "rocks").iterdir())
    known, unknown = rng.choice(stored, probes), rng.integers(0, 2**63, probes, dtype=np.uint64)
    times = []
    for some in (known, unknown):
        for path in (folder / "rocks").glob("*.sst"):
            cold(path)
        with Timer() as asked:
            for key in some:
                store.get(key.tobytes())
        times.append(f"{asked.wall_s / probes * 1e6:.0f} µs wall, {asked.cpu_s / probes * 1e6:.0f} CPU")
    count = len(stored)
    wall_us, cpu_us = filled.wall_s / count * 1e6, filled.cpu_s / count * 1e6
    print(f"RocksDB, {count:,} keys: {size / count:.1f} B a key; written {wall_us:.1f} µs a key, {cpu_us:.1f} CPU")
    print(f"    compacted in {compacted.wall_s:.0f} s; known key {times[0]}; unknown key {times[1]}", flush=True)
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100_000_000, help="of the run")
    parser.add_argument("--folder", help="on the disk to be measured")
    parser.add_argument("--probes", type=int, default=20_000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="seen-runs-", dir=options.folder))
    try:
        rng, run, merged = np.random.default_rng(3), folder / "run", folder / "merged"
        with Timer() as made:
            make(run, options.keys, rng)
        keys = run.stat().st_size // 8
        print(f"{keys:,} keys, {run.stat().st_size / 1e6:.0f} MB, made in {made.wall_s:.0f} s", flush=True)
        half = options.probes // 2
        probes = np.concatenate((rng.choice(np.memmap(run, dtype=np.uint64), half), rng.integers(0, 2**63, half, dtype=np.uint64)))
        rng.shuffle(probes)
        with Timer() as asked:
            found = ask(run, probes)
        assert found >= half
        print(
            f"ask: {asked.wall_s / len(probes) * 1e6:.0f} µs a key, {asked.cpu_s / len(probes) * 1e6:.0f} CPU, one read of 4 KiB",
            flush=True,
        )
        for size in (100_000, 1_000_000, 10_000_000):
            if size > keys // 2:
                break
            batch = np.concatenate(
                (rng.choice(np.memmap(run, dtype=np.uint64), size * 4 // 5), rng.integers(0, 2**63, size // 5, dtype=np.uint64))
            )
            rng.shuffle(batch)
            cold(run)
            with Timer() as spent:
                known = merge(run, batch, merged)
            assert known >= size * 4 // 5
            assert abs(merged.stat().st_size // 8 - keys - (len(batch) - known)) == 0
            scanned, cpu_us, io = keys / spent.wall_s / 1e6, spent.cpu_s / size * 1e6, 16 * keys / size
            print(f"merge with a batch of {size:,}: {spent.wall_s:.1f} s, {spent.cpu_s:.1f} CPU, {scanned:.0f} M keys of the run a second;")
            print(f"    a key of the batch: {cpu_us:.2f} µs CPU, {io:,.0f} B read and written", flush=True)
        rocks(folder, run, min(keys, 20_000_000), options.probes, rng)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
