"""Calls to Redis in a second: how many may be begun, and who waits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from crawlweb import pace as module
from crawlweb.pace import Pace

PER_S = 100.0


class Time:
    """asyncio whose pauses pass at once, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class Calls:
    calls = 0


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(module, "asyncio", time)
    monkeypatch.setattr(module, "boottime", time)
    return time


def run(work: Callable[[Calls, Pace], Awaitable[None]], per_s: float = PER_S, **more: Any) -> None:
    async def main() -> None:
        calls = Calls()
        await work(calls, Pace(calls, per_s, **more))  # type: ignore[arg-type]

    asyncio.run(main())


def test_in_the_long_run_no_more_are_begun_than_is_allowed(time: Time) -> None:
    async def work(calls: Calls, pace: Pace) -> None:
        begun_s = time.now
        for _ in range(500):
            calls.calls += await pace.room()
        assert calls.calls / (time.now - begun_s) < PER_S * 1.05 + 20

    run(work)


def test_after_a_pause_a_few_may_be_begun_together(time: Time) -> None:
    async def work(_: Calls, pace: Pace) -> None:
        time.now += 60
        assert await pace.room() == module.BURST_S * PER_S

    run(work)


def test_calls_that_did_not_ask_are_paid_for_by_those_that_do(time: Time) -> None:
    async def work(calls: Calls, pace: Pace) -> None:
        calls.calls += 51
        before_s = time.now
        await pace.room()
        assert time.now - before_s == pytest.approx(0.51, abs=0.01)

    run(work)


def test_a_storm_of_calls_that_cannot_wait_holds_others_up_for_a_second_at_most(time: Time) -> None:
    async def work(calls: Calls, pace: Pace) -> None:
        calls.calls += 1_000_000
        before_s = time.now
        await pace.room()
        assert time.now - before_s < module.DEBT_S + 0.1

    run(work)


def test_those_who_wait_come_in_their_order() -> None:
    order: list[int] = []

    async def work(calls: Calls, pace: Pace) -> None:
        async def ask(n: int) -> None:
            calls.calls += min(1, await pace.room())
            order.append(n)

        await asyncio.gather(*(ask(n) for n in range(20)))

    run(work)
    assert order == list(range(20))


def test_without_a_bound_nobody_waits(time: Time) -> None:
    async def work(calls: Calls, pace: Pace) -> None:
        calls.calls += 1_000_000
        assert await pace.room() > 1_000_000

    run(work, math.inf)
    assert time.now == 1000.0


def test_the_rate_of_the_last_seconds_is_a_stat_and_so_is_the_most_of_it() -> None:
    shown: dict[str, list[float]] = {}

    async def work(calls: Calls, pace: Pace) -> None:
        watch = asyncio.ensure_future(pace.watch_forever())
        for per_tick in (30, 10):
            for _ in range(20):
                await asyncio.sleep(0)
                calls.calls += per_tick
        watch.cancel()

    run(work, gauge=lambda name, value: shown.setdefault(name, []).append(value))
    rates = shown["redis/calls_per_s"]
    assert shown["redis/calls_per_s_most"][-1] == max(rates) > rates[-1] > 0
