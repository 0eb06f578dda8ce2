"""Counting what is different without keeping it."""

from __future__ import annotations

import sys

import pytest

from crawlweb.distinct import Distinct


def test_a_few_thousand_are_counted_one_by_one() -> None:
    found = Distinct()
    rises = [found.add(f"host{n % 500}.test") for n in range(1000)]
    assert sum(rises) >= 499  # two may share a bit
    assert abs(len(found) - 500) <= 1


def test_many_are_counted_to_a_thousandth_in_the_same_memory() -> None:
    found = Distinct()
    empty_bytes = sys.getsizeof(found._bits)
    for n in range(300_000):
        found.add(f"host{n}.test")
    assert len(found) == pytest.approx(300_000, rel=0.002)
    assert sys.getsizeof(found._bits) == empty_bytes


def test_it_never_falls_and_has_an_end() -> None:
    found = Distinct()
    found._bits = bytearray(b"\xff") * len(found._bits)
    found._set = len(found._bits) * 8
    assert not found.add("another")
    assert len(found) > 100_000_000
