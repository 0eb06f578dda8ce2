"""Nobody waits for somebody else's queue: a huge host, dead hosts, low priorities."""

from __future__ import annotations

import os

import pytest
from rig import Rig, link

from crawlweb.frontier.rows import UNCHECKED, Lease, Limits, OriginFailed

LONG = bool(os.environ.get("MODEL_LONG"))


def until_done(rig: Rig, hosts: set[str], most_calls: int) -> int:
    """Virtual ms of leasing and completing until each of `hosts` was leased."""
    begun = rig.t
    for _ in range(most_calls):
        pause, leases = rig.run(rig.f.lease(0, 64))
        for got in leases:
            hosts.discard(got.host)
            rig.complete(got)
        if not hosts:
            return rig.t - begun
        if not leases:
            rig.later(round(1000 * pause) + 1 if pause else 1)
    raise AssertionError(f"{len(hosts)} hosts were not leased in {most_calls} calls and {rig.t - begun} ms")


MILLION = pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.skipif(not LONG, reason="MODEL_LONG=1 runs it")])


@pytest.mark.parametrize("urls", [100_000, MILLION])
def test_a_huge_host_does_not_keep_a_thousand_small_ones_waiting(redis_url: str, urls: int) -> None:
    rig = Rig(redis_url, limits=Limits(expected_urls=2 * urls, active_hosts=625))
    for i in range(0, urls, 200):
        assert rig.run(rig.f.enqueue(0, [link("huge.org", f"/{n}", how=UNCHECKED) for n in range(i, i + 200)])) == "n" * 200
    rig.lease()
    small = {f"s{i}.org" for i in range(1000)}
    assert rig.enqueue(*(link(host, how=UNCHECKED) for host in sorted(small))) == "n" * 1000
    assert until_done(rig, small, most_calls=40) <= 2_000
    rig.close()


def test_a_thousand_dead_hosts_take_no_turn_from_ten_live_ones(redis_url: str) -> None:
    rig = Rig(redis_url, limits=Limits(expected_urls=20_000, active_hosts=625))
    dead = {f"dead{i}.org" for i in range(1000)}
    live = {f"live{i}.org" for i in range(10)}
    assert "s" not in rig.enqueue(*(link(host, f"/{n}") for host in sorted(dead) for n in range(3)))
    assert "s" not in rig.enqueue(*(link(host, f"/{n}") for host in sorted(live) for n in range(200)))
    turns = dict.fromkeys(live, 0)
    first: dict[str, int] = {}
    begun, seconds = rig.t, 120
    while rig.t < begun + seconds * 1000:
        while leases := rig.lease(64):
            for got in leases:
                finish(rig, got, dead)
                if got.host in live:
                    turns[got.host] += 1
                    first.setdefault(got.host, rig.t - begun)
        rig.later(100)
    assert max(first.values()) <= 1_000
    assert min(turns.values()) >= seconds - 1, turns  # one request a second
    assert rig.check()["dead"] == 3000
    rig.close()


def finish(rig: Rig, got: Lease, dead: set[str]) -> None:
    if got.host in dead:
        rig.complete(got, "o", failed=OriginFailed("connection refused", 20, 20, dead_after=3, dead_s=86_400))
    else:
        rig.complete(got)


def test_a_low_priority_never_starves(redis_url: str) -> None:
    """While new hosts of priority 0 keep coming faster than they can be taken, one of each other priority gets its turn."""
    rig = Rig(redis_url, limits=Limits(expected_urls=100_000, active_hosts=8), active_hosts=8)
    others = {f"low{k}.org" for k in range(1, 10)}
    assert rig.enqueue(*(link(f"first{i}.org", priority=0) for i in range(200))) == "n" * 200
    assert rig.enqueue(*(link(f"low{k}.org", priority=k) for k in range(1, 10))) == "n" * 9
    order: list[str] = []
    new = 0
    while others and len(order) < 2_000:
        rig.enqueue(*(link(f"new{new + i}.org", priority=0) for i in range(20)))
        new += 20
        for got in rig.lease(8):
            order.append(got.host)
            others.discard(got.host)
            rig.complete(got)
        rig.later(1_000)
    assert not others
    assert len(order) <= 1_100  # queue 9 has every 512th pick
    rig.close()


def test_half_of_the_picks_are_for_the_first_queue(redis_url: str) -> None:
    rig = Rig(redis_url, active_hosts=64)
    for k in range(10):
        rig.enqueue(*(link(f"k{k}n{i}.org", priority=k) for i in range(64)))
    got = [lease.entry.priority for lease in rig.lease(64)]
    assert got.count(0) == 32
    assert got.count(1) == 16
    assert got.count(2) == 8
    rig.close()
