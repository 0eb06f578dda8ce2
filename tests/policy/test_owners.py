"""Who polls which partition: the same for all who know the same workers, even, and little changes when one comes or goes."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlweb.policy import owners
from crawlweb.policy.owners import LEAST, POLLERS, SLACK, assign, pollers

names = st.sets(st.text("0123456789abcdef", min_size=1, max_size=8), min_size=1, max_size=30)


def crowd(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [f"{rng.getrandbits(32):08x}" for _ in range(count)]


def shares(of: list[tuple[str, ...]]) -> dict[str, Fraction]:
    """The work of each worker, as a multiple of the mean, if a partition's pollers share it evenly."""
    work: Counter[str] = Counter()
    for some in of:
        for name in some:
            work[name] += Fraction(1, len(some))
    return {name: part * len(work) / len(of) for name, part in work.items()}


def moved(before: list[tuple[str, ...]], after: list[tuple[str, ...]]) -> float:
    """The share of all work that changes hands."""
    gained = Fraction(0)
    for old, new in zip(before, after, strict=True):
        gained += sum(max(Fraction(0), Fraction(1, len(new)) - (Fraction(1, len(old)) if name in old else 0)) for name in new)
    return float(gained / len(before))


@given(names, st.integers(1, 100), st.randoms())
@settings(max_examples=60, deadline=None)
def test_workers_that_know_of_the_same_workers_agree(workers: set[str], partitions: int, rng: random.Random) -> None:
    some = sorted(workers)
    rng.shuffle(some)
    assert assign(some, partitions) == assign(workers, partitions)


@given(names, st.integers(1, 100))
@settings(max_examples=60, deadline=None)
def test_every_partition_has_its_pollers_and_nobody_more_than_the_bound(workers: set[str], partitions: int) -> None:
    of = assign(workers, partitions)
    wanted = pollers(len(workers), partitions)
    assert len(of) == partitions
    assert {(len(some), len(set(some)), set(some) <= workers) for some in of} == {(wanted, wanted, True)}
    mean = wanted * partitions / len(workers)
    left_over = 2  # of the last partitions, where everybody else has as many as they may
    assert max(Counter(name for some in of for name in some).values()) <= max(mean + 1, mean * SLACK) + left_over


@pytest.mark.parametrize("partitions", [1, 7, 64, 1024])
def test_a_worker_alone_polls_everything(partitions: int) -> None:
    assert assign(["a"], partitions) == [("a",)] * partitions


@pytest.mark.parametrize(
    ("workers", "partitions", "expected"),
    [(1, 64, 1), (2, 64, 2), (4, 64, 2), (10, 64, 2), (11, 64, 4), (40, 64, 8), (40, 1024, 2), (100, 1024, 2), (1000, 1024, 16), (5, 1, 5)],
)
def test_so_many_poll_a_partition(workers: int, partitions: int, expected: int) -> None:
    assert pollers(workers, partitions) == expected
    assert expected >= min(workers, POLLERS, -(-2 * workers // partitions))
    assert expected == workers or expected * partitions >= LEAST * workers


@pytest.mark.parametrize("partitions", [64, 1024])
@pytest.mark.parametrize("workers", [2, 4, 10, 40])
def test_no_worker_has_much_over_its_share(workers: int, partitions: int) -> None:
    for seed in range(3):
        found = shares(assign(crowd(workers, seed), partitions))
        assert len(found) == workers
        assert max(found.values()) <= SLACK


@pytest.mark.parametrize("partitions", [64, 1024])
@pytest.mark.parametrize("workers", [2, 4, 39, 40])
def test_a_worker_that_comes_or_goes_moves_about_its_share(workers: int, partitions: int) -> None:
    found = []
    for seed in range(3):
        more = crowd(workers + 1, seed)
        without, with_it = assign(more[:-1], partitions), assign(more, partitions)
        found += [moved(without, with_it) * (workers + 1), moved(with_it, without) * (workers + 1)]
    assert 0.7 < sum(found) / len(found) < 1.6
    assert max(found) < 2


def test_the_hashes_are_those_of_every_other_machine() -> None:
    assert list(owners._hashes("a1b2", 2)) == [
        int.from_bytes(hashlib.shake_128(b"a1b2").digest(16)[at : at + 8], "little") for at in (0, 8)
    ]


def test_few_pairs_are_sorted_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting stops all threads, and with them the event loop."""
    expected = assign(crowd(40), 64)
    monkeypatch.setattr(owners, "MOST_CANDIDATES", 50)
    assert assign(crowd(40), 64) == expected
