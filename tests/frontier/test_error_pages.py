"""A host's known error pages: told with an outcome, kept in its record, carried by its leases."""

from __future__ import annotations

import pytest
from rig import Rig, link

from crawlweb.errors import FrontierError
from crawlweb.frontier.rows import UNCHECKED, Lease, error_pages, probed, real_error

HOUR_S = 3600.0
SHAPES = tuple(bytes([n]) * 8 for n in range(1, 9))


def turn(rig: Rig, host: str = "a.org") -> Lease:
    """The next lease of the host, whose clock allows it."""
    rig.later(60_000)
    rig.enqueue(link(host, "/page", how=UNCHECKED))
    (lease,) = rig.lease()
    return lease


def told(rig: Rig, *found: bytes, host: str = "a.org") -> Lease:
    """A lease of a host of which these were told, one after the other."""
    for text in found:
        rig.complete(turn(rig, host), error_pages=text)
    return turn(rig, host)


def test_a_host_that_nothing_was_told_of_has_none(rig: Rig) -> None:
    lease = turn(rig)
    assert (lease.error_shapes, lease.has_real_errors, lease.probed_at) == ((), False, 0.0)
    rig.complete(lease)
    assert b"e" not in rig.fields("a.org")


def test_what_was_told_comes_with_the_next_lease(rig: Rig) -> None:
    lease = told(rig, real_error(SHAPES[0]))
    assert (lease.error_shapes, lease.has_real_errors, lease.probed_at) == (SHAPES[:1], True, 0.0)
    rig.complete(lease)
    assert told(rig, host="b.org").error_shapes == (), "another host's"


def test_it_stays_while_the_host_is_idle_and_waits(rig: Rig) -> None:
    rig.complete(told(rig, real_error(SHAPES[0]), probed(5 * HOUR_S, SHAPES[1])))
    assert not rig.sync.exists(rig.key("host:a.org")), "packed"
    rig.later(86_400_000)
    lease = turn(rig)
    assert (set(lease.error_shapes), lease.has_real_errors, lease.probed_at) == (set(SHAPES[:2]), True, 5 * HOUR_S)
    assert rig.sync.exists(rig.key("host:a.org")), "active"
    rig.check()


def test_four_are_kept_and_the_oldest_goes_first(rig: Rig) -> None:
    lease = told(rig, *map(real_error, SHAPES[:6]))
    assert lease.error_shapes == (SHAPES[5], SHAPES[4], SHAPES[3], SHAPES[2])
    rig.complete(lease, error_pages=real_error(SHAPES[3]))
    assert turn(rig).error_shapes == (SHAPES[3], SHAPES[5], SHAPES[4], SHAPES[2]), "told again, it is the newest"


@pytest.mark.parametrize(
    ("second", "shapes", "has_real"),
    [
        (probed(9 * HOUR_S, SHAPES[1]), SHAPES[1:2], False),
        (probed(9 * HOUR_S), (), False),
        (probed(9 * HOUR_S, SHAPES[1], is_real=True), SHAPES[1:2], True),
    ],
)
def test_a_probe_takes_the_place_of_the_last(rig: Rig, second: bytes, shapes: tuple[bytes, ...], has_real: bool) -> None:
    lease = told(rig, probed(5 * HOUR_S, SHAPES[0]), second)
    assert (lease.error_shapes, lease.has_real_errors, lease.probed_at) == (shapes, has_real, 9 * HOUR_S)


def test_a_probe_leaves_real_error_pages_alone_and_they_it(rig: Rig) -> None:
    lease = told(rig, real_error(SHAPES[0]), probed(5 * HOUR_S, SHAPES[1]), real_error(SHAPES[2]))
    assert (lease.error_shapes, lease.probed_at) == ((SHAPES[2], SHAPES[1], SHAPES[0]), 5 * HOUR_S)


def test_a_call_that_is_repeated_changes_nothing(rig: Rig) -> None:
    lease = turn(rig)
    rig.wires[0].lose_next = True
    rig.complete(lease, error_pages=real_error(SHAPES[0]))
    assert turn(rig).error_shapes == SHAPES[:1]


@pytest.mark.parametrize("text", [b"x", b"g" * 8, b"g" * 10, b"g" * 27])
def test_what_is_of_another_length_is_refused_before_anything_is_written(rig: Rig, text: bytes) -> None:
    lease = turn(rig)
    before = rig.dump()
    with pytest.raises(FrontierError, match="no error pages"):
        rig.complete(lease, error_pages=text)
    assert rig.dump() == before


@pytest.mark.parametrize(
    "text", [b"", b"junk", b"g", b"g" * 9 * 7, b"x" * 9, b"t12ab5678", b"t-0000001", b"t" + b"\xff" * 8, bytes(range(9)) * 5]
)
def test_of_what_is_not_ours_nothing_is_taken(rig: Rig, text: bytes) -> None:
    assert error_pages(text) == ((), False, 0.0)
    lease = turn(rig)
    rig.sync.hset(rig.key("host:a.org"), "e", text)
    rig.complete(lease, error_pages=real_error(SHAPES[0]))
    lease = turn(rig)
    assert SHAPES[0] in lease.error_shapes or len(text) > 50
    assert len(lease.error_shapes) <= 4
