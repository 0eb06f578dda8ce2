"""The live workers of a crawl, as they tell each other through Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig import Rig

from crawlweb.frontier.members import DEAD_S, Members


@pytest.fixture
def three(redis_url: str) -> Iterator[Rig]:
    rig = Rig(redis_url, workers=3)
    yield rig
    rig.close()


@pytest.fixture
def members(three: Rig) -> list[Members]:
    return [Members(frontier) for frontier in three.frontiers]


def expire(rig: Rig, worker: str) -> None:
    """Its last beat is too long ago."""
    for key in ("{t}:workers", "{t}:busy"):
        rig.sync.zadd(key, {worker: 1}, xx=True)


def test_workers_know_each_other_after_a_beat(three: Rig, members: list[Members]) -> None:
    for n, who in enumerate(members):
        assert three.run(who.beat(True, 0, 0)).workers == tuple(f"w{i}" for i in range(n + 1))
    assert {three.run(who.beat(True, 0, 0)).workers for who in members} == {("w0", "w1", "w2")}


def test_the_list_is_sent_only_after_a_change_or_when_it_is_asked_for(three: Rig, members: list[Members]) -> None:
    one, other, _ = members
    three.run(one.beat(False, 0, 0))
    three.run(other.beat(False, 0, 0))
    three.run(one.beat(False, 0, 0))
    three.sync.zadd("{t}:workers", {"w9": three.sync.zscore("{t}:workers", "w0")})  # nobody said so
    assert three.run(one.beat(False, 0, 0)).workers == ("w0", "w1")
    assert three.run(one.beat(False, 0, 0, whole=True)).workers == ("w0", "w1", "w9")


def test_a_worker_whose_beats_stopped_is_removed_and_comes_back_with_the_next(three: Rig, members: list[Members]) -> None:
    one, other, _ = members
    three.run(one.beat(True, 1, 60))
    three.run(other.beat(True, 1, 30))
    expire(three, "w0")
    roll = three.run(other.beat(True, 1, 30))
    assert (roll.workers, roll.busy, roll.per_min) == (("w1",), 1, 30)
    assert set(three.run(other.rows())) == {"w1"}
    assert three.run(one.beat(True, 1, 60)).workers == ("w0", "w1")
    assert three.run(other.beat(True, 1, 30)).workers == ("w0", "w1")


def test_a_worker_that_leaves_is_gone_at_once(three: Rig, members: list[Members]) -> None:
    one, other, _ = members
    three.run(one.beat(True, 0, 0))
    three.run(other.beat(True, 0, 0))
    three.run(one.leave())
    roll = three.run(other.beat(False, 0, 0))
    assert (roll.workers, roll.busy) == (("w1",), 0)
    three.run(one.leave())  # again: its answer was lost


def test_the_busy_and_their_leases_are_counted(three: Rig, members: list[Members]) -> None:
    for n, who in enumerate(members):
        three.run(who.beat(n > 0, n, 10 * n))
    roll = three.run(members[1].beat(False, 1, 25))
    assert (roll.busy, roll.per_min) == (1, 45)


def test_that_the_crawl_is_over_holds_until_a_worker_is_busy(three: Rig, members: list[Members]) -> None:
    one, other, late = members
    assert three.run(one.beat(False, 0, 0)).over is None
    three.run(one.say_over(17))
    assert three.run(other.beat(False, 0, 0)).over == 17
    assert three.run(late.beat(True, 0, 0)).over is None
    assert three.run(other.beat(False, 0, 0)).over is None


def test_a_full_redis_takes_beats(three: Rig, members: list[Members]) -> None:
    three.run(members[0].beat(True, 0, 0))
    three.sync.config_set("maxmemory", 1)
    try:
        assert three.run(members[1].beat(True, 0, 0)).workers == ("w0", "w1")
        three.run(members[0].say_over(1))
        three.run(members[0].leave())
    finally:
        three.sync.config_set("maxmemory", 0)
    assert three.run(members[1].beat(False, 0, 0)).workers == ("w1",)


@pytest.mark.parametrize("field", [":over", ":per_min", ":changed", "w1"])
@pytest.mark.parametrize("value", [b"", b"\x80\xff", b"9" * 5000, b"-1", b"[]", b"{"])
def test_what_stands_there_and_is_not_ours_stops_nobody(three: Rig, members: list[Members], field: str, value: bytes) -> None:
    three.sync.hset("{t}:members", field, value)
    roll = three.run(members[0].beat(False, 0, 0))
    assert roll.workers == ("w0",)
    assert set(three.run(members[0].rows())) == {"w0"}


def test_a_worker_of_the_far_future_is_none(three: Rig, members: list[Members]) -> None:
    """Else its partitions would be polled by nobody, and its being busy be waited for."""
    seconds, _ = three.sync.time()
    for key in ("{t}:workers", "{t}:busy"):
        three.sync.zadd(key, {"ghost": (seconds + 3600) * 1000, b"\xff": "inf"})
    roll = three.run(members[0].beat(False, 0, 0))
    assert (roll.workers, roll.busy) == (("w0",), 0)


def test_a_beat_lasts_some_seconds(three: Rig, members: list[Members]) -> None:
    three.run(members[0].beat(True, 0, 0))
    seconds, _ = three.sync.time()
    assert abs(three.sync.zscore("{t}:workers", "w0") / 1000 - seconds - DEAD_S) < 2
    row = three.run(members[0].rows())["w0"]
    assert (row["busy"], row["leases"], row["per_min"]) == (True, 0, 0)
    assert row["host"]
    assert row["pid"] > 0
