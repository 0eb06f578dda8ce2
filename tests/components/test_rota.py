"""When a partition is asked: by the last answer, by what was put there, and by who else asks."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from crawlweb import rota as module
from crawlweb.rota import Rota

LOOK_AHEAD_S = 0.5
IDLE_S = 1.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(module, "boottime", clock)
    return clock


def rota_of(pollers: dict[int, int], alone: bool = False) -> Rota:
    rota = Rota(8, LOOK_AHEAD_S, IDLE_S, random.Random(1))
    rota.take(pollers, alone)
    return rota


def wait_s(rota: Rota, p: int, next_s: float | None, leases: int = 0, most: int = 64) -> float:
    """Until it is asked again, after this answer."""
    assert rota.due(8) == [p]
    rota.answered(p, next_s, leases, most)
    return rota.until_due_s()


def test_only_own_partitions_are_asked_the_longest_due_first(clock: Clock) -> None:
    rota = rota_of({1: 1, 3: 1, 5: 1})
    rota.due(8)
    for p, at in ((5, 0.2), (1, 0.3), (3, 0.1), (2, 0.0)):
        rota.ask(p, at)
    clock.now += 0.21
    assert (rota.due(1), rota.due(8)) == ([3], [5])
    assert rota.until_due_s() == pytest.approx(0.09)


@pytest.mark.parametrize(("pollers", "asked"), [(1, [1, 2]), (2, [1])])
def test_what_is_due_in_a_moment_is_asked_along_where_nobody_else_asks(clock: Clock, pollers: int, asked: list[int]) -> None:
    rota = rota_of({1: pollers, 2: pollers, 3: pollers})
    rota.due(8)
    for p, at in ((1, 0.1), (2, 0.14), (3, 0.3)):
        rota.ask(p, at)
    clock.now += 0.11
    assert rota.due(8) == asked


def test_twice_as_many_leases_are_asked_for_as_there_were() -> None:
    rota = rota_of({1: 1})
    assert rota.batch(1) == module.BATCH_MOST
    for leases, expected in ((3, module.BATCH_LEAST), (8, 16), (16, 32), (32, 64), (64, 64), (0, module.BATCH_LEAST)):
        rota.answered(1, 0.5, leases, rota.batch(1))
        assert rota.batch(1) == expected


def test_what_was_asked_is_not_due_before_its_answer() -> None:
    rota = rota_of({1: 1})
    assert (rota.due(8), rota.due(8), rota.until_due_s()) == ([1], [], math.inf)
    rota.again(1)
    assert rota.due(8) == [1]


@pytest.mark.parametrize(
    ("next_s", "leases", "most", "expected_s"),
    [
        (None, 0, 64, IDLE_S),
        (None, 3, 64, IDLE_S),
        (30.0, 0, 64, IDLE_S),
        (0.9, 2, 64, 0.7),
        (0.1, 2, 64, module.MIN_S),
        (0.9, 64, 64, 0.0),
    ],
)
def test_a_partition_is_asked_again_when_its_next_host_may_be_leased(
    next_s: float | None, leases: int, most: int, expected_s: float
) -> None:
    assert wait_s(rota_of({1: 1}), 1, next_s, leases, most) == pytest.approx(expected_s)


@pytest.mark.parametrize(("alone", "waits"), [(True, [1, 2, 4, 4]), (False, [1, 2, 2, 2])])
def test_a_partition_that_has_nothing_is_asked_more_and_more_rarely(clock: Clock, alone: bool, waits: list[float]) -> None:
    rota = rota_of({1: 1}, alone)
    for expected_s in waits:
        assert wait_s(rota, 1, None) == pytest.approx(expected_s)
        clock.now += expected_s
    assert wait_s(rota, 1, 5.0, 1) == pytest.approx(IDLE_S)


def test_what_is_put_there_meanwhile_is_not_forgotten() -> None:
    rota = rota_of({1: 1})
    rota.due(8)
    rota.ask(1, 0.2)
    rota.answered(1, None, 0, 64)
    assert rota.until_due_s() == pytest.approx(0.2)


@pytest.mark.parametrize(("in_s", "expected_s"), [(1.0, 0.8), (0.2, 0.0), (0.0, 0.0)])
def test_a_partition_is_asked_a_little_before_what_was_done_there_may_be_followed(in_s: float, expected_s: float) -> None:
    rota = rota_of({1: 1})
    rota.due(8)
    rota.ask_ahead(1, in_s)
    rota.ask_ahead(2, in_s)  # another worker's
    assert rota.until_due_s() == pytest.approx(expected_s)


def test_taking_partitions_leaves_the_others_as_they_were(clock: Clock) -> None:
    rota = rota_of({1: 1, 2: 1})
    rota.due(8)
    rota.answered(1, 0.9, 1, 64)
    rota.answered(2, None, 0, 64)
    rota.take({1: 2, 4: 2}, alone=False, in_s=0.3)
    assert rota.until_due_s() == pytest.approx(0.3)
    clock.now += 0.8
    assert rota.due(8) == [4, 1]
    rota.answered(2, 0.0, 5, 64)  # its answer was on the way
    rota.again(2)
    assert len(rota.own) == 2
    assert rota.due(8) == []


def test_quiet_is_who_found_nothing_in_all_own_partitions() -> None:
    rota = rota_of({1: 1, 2: 2})
    assert not rota.is_quiet
    rota.due(8)
    rota.answered(1, None, 0, 64)
    assert not rota.is_quiet
    rota.answered(2, None, 0, 64)
    assert rota.is_quiet
    rota.ask(2, 5.0)
    assert not rota.is_quiet
    rota.answered(2, 7.0, 0, 64)
    assert not rota.is_quiet
    rota.answered(2, None, 0, 64)
    rota.take({1: 2, 3: 2}, alone=False)
    assert not rota.is_quiet
    assert not Rota(8, LOOK_AHEAD_S, IDLE_S, random.Random(1)).is_quiet


@pytest.mark.parametrize("pollers", [2, 8])
def test_who_has_more_than_the_others_asks_later_but_in_time(pollers: int) -> None:
    waits = []
    for load in (0.8, 1.0, 1.2):
        rota = rota_of({1: pollers})
        rota.load = load
        waits.append(wait_s(rota, 1, 0.7, 1))
    assert waits == sorted(waits)
    assert len(set(waits)) == 3
    assert waits[0] > 0.2
    assert waits[-1] < 0.7, "not after the host's time"


def test_who_has_less_looks_for_what_others_bring_back() -> None:
    rota = rota_of({1: 2})
    rota.load = 0.9
    assert wait_s(rota, 1, 30.0) < IDLE_S / 2


def test_a_load_does_not_matter_where_nobody_else_asks() -> None:
    rota = rota_of({1: 1})
    rota.load = 3.0
    assert wait_s(rota, 1, 0.9, 1) == pytest.approx(0.7)
