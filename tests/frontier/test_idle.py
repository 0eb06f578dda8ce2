"""A partition that has nothing to give is asked for nothing: no write, so no byte in the append-only file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rig import Rig, link

from crawlweb.frontier import scripts


def changes(rig: Rig) -> int:
    """Writes that Redis counts: what it would write to its append-only file."""
    return int(rig.sync.info("persistence")["rdb_changes_since_last_save"])


def nothing(_: Rig) -> None:
    pass


def in_flight(rig: Rig) -> None:
    rig.enqueue(link("a.org"), link("a.org", "/2"))
    assert rig.lease()


def asleep(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    lease = rig.lease()[0]
    rig.complete(lease, "r", wait_s=300.0, arg=(5, "http_5xx"))
    rig.lease()


def drained(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    rig.complete(rig.lease()[0])


def between_turns(rig: Rig) -> None:
    rig.enqueue(link("a.org"), link("a.org", "/2"))
    rig.complete(rig.lease()[0])


@pytest.mark.parametrize("state", [nothing, in_flight, asleep, drained, between_turns])
def test_an_empty_answer_writes_nothing(rig: Rig, state: Callable[[Rig], None]) -> None:
    state(rig)
    rig.lease()
    before, everything = changes(rig), rig.dump()
    for _ in range(3):
        assert rig.lease() == []
    assert (changes(rig), rig.dump()) == (before, everything)


def test_what_a_call_without_leases_moves_is_written_with_its_time(rig: Rig) -> None:
    """A host that wakes is ready, at a time that the next call may not go behind."""
    rig.enqueue(link("a.org"), link("a.org", "/2"))
    rig.complete(rig.lease()[0], "l", None, wait_s=120.0)
    assert rig.state("a.org") == "a"
    rig.later(120_000)
    assert rig.lease(0) == []
    assert (rig.state("a.org"), rig.counters()["now"]) == ("r", rig.t)
    rig.check()


def test_the_first_of_a_call_that_was_sent_twice_comes_too_late_to_lease(rig: Rig) -> None:
    """It was under way for long, and nobody would receive its leases."""
    rig.wires[0].lose_next = True
    assert rig.lease() == []
    first, second = [args for args in rig.wires[0].sent if args[1] == scripts.digest("lease")]
    assert (first[:-1], first[-1], second[-1]) == (second[:-1], 0, 1)
    rig.enqueue(link("a.org"))
    for late in (first, second):
        rig.run(rig.client.execute_command(*late))
    assert rig.check().get("leased", 0) == 0
    assert rig.lease()


def test_an_empty_call_may_be_repeated_and_then_find_something(rig: Rig) -> None:
    rig.lease()
    rig.enqueue(link("a.org"))
    sent = [args for args in rig.wires[0].sent if args[1] == scripts.digest("lease")]
    answer = rig.run(rig.client.execute_command(*sent[-1]))
    again = rig.run(rig.client.execute_command(*sent[-1]))
    assert b"a.org" in answer
    assert again == answer
    assert rig.check()["leased"] == 1


def test_a_call_that_a_later_one_overtook_is_still_refused(rig: Rig) -> None:
    rig.lease()
    early = next(args for args in rig.wires[0].sent if args[1] == scripts.digest("lease"))
    rig.enqueue(link("a.org"), link("b.org"))
    rig.lease()
    with pytest.raises(Exception, match="STALE"):
        rig.run(rig.client.execute_command(*early))
