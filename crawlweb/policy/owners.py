"""Who polls which partition: rendezvous hashing with bounded load, a function of the set of live workers.

Every worker computes it for itself and finds the same. Each pair of a worker and a partition has a hash (highest random weight; Thaler,
Ravishankar: "A name-based mapping scheme for rendezvous", 1996). Pairs are taken highest first, unless the partition has its pollers
already or the worker is at its bound (as in Mirrokni, Thorup, Zadimoghaddam: "Consistent hashing with bounded loads", 2018). Correctness
does not depend on it: the frontier gives a URL to one worker, whoever asks.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Collection

LEAST = 12  # partitions that a worker polls, where there are so many: fewer, and whole numbers and chance make shares uneven
POLLERS = 2  # of a partition at least: they even out what chance did, and one that dies is not missed
SLACK = 1.125  # a worker's bound, as a multiple of the mean
HASHES = 1 << 64
CANDIDATES, MOST_CANDIDATES = 3, 20_000  # pairs sorted at a time, as a multiple of those that are missing: sorting stops all threads


def pollers(workers: int, partitions: int) -> int:
    """Of each partition: enough that a worker has `LEAST` of them. Doubled where it is not, since every change of it moves much."""
    count = POLLERS
    while count < workers and count * partitions < LEAST * workers:
        count *= 2
    return min(count, workers)


def assign(workers: Collection[str], partitions: int) -> list[tuple[str, ...]]:
    """The pollers of each partition; of the same workers in any order the same. `workers`: one at least."""
    names = sorted(set(workers))
    wanted = pollers(len(names), partitions)
    if wanted == len(names):
        return [tuple(names)] * partitions
    mean = wanted * partitions / len(names)
    bound = max(-(-wanted * partitions // len(names)), int(SLACK * mean))
    hashes = [_hashes(name, partitions) for name in names]
    of: list[list[int]] = [[] for _ in range(partitions)]
    load = [0] * len(names)
    high, missing = HASHES, wanted * partitions
    while missing and high:
        free = [w for w, n in enumerate(load) if n < bound]
        open_ = [p for p in range(partitions) if len(of[p]) < wanted]
        low = max(0, high - max(1, high * min(CANDIDATES * missing, MOST_CANDIDATES) // (len(free) * len(open_))))
        pairs = [(h, w, p) for w in free for row in (hashes[w],) for p in open_ if low <= (h := row[p]) < high]
        for _, w, p in sorted(pairs, reverse=True):
            if load[w] < bound and len(of[p]) < wanted:
                of[p].append(w)
                load[w] += 1
                missing -= 1
        high = low
    for p, some in enumerate(of):  # those for whom all others are at their bound
        while len(some) < wanted:
            w = min((w for w in range(len(names)) if w not in some), key=lambda w: (load[w], hashes[w][p]))
            some.append(w)
            load[w] += 1
    return [tuple(names[w] for w in some) for some in of]


def _hashes(worker: str, partitions: int) -> array[int]:
    """Of a worker with each partition, 64 bits each; the same on every machine."""
    hashes = array("Q", hashlib.shake_128(worker.encode()).digest(8 * partitions))
    if sys.byteorder == "big":
        hashes.byteswap()
    return hashes
