"""How many calls to Redis a worker makes in a second: those that can wait do, and go in larger batches then."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable

from .frontier.frontier import Frontier
from .records import boottime

BURST_S = 0.1  # calls of so many seconds may be made at once
DEBT_S = 1.0  # calls that could not wait hold up others so long at the most
LOOK_S, SHOWN_S = 1.0, 5.0


class Pace:
    """A token bucket. Every call to Redis takes from it; only those that wait for `room` are held up. `per_s`: math.inf, none is."""

    def __init__(self, frontier: Frontier, per_s: float = math.inf, gauge: Callable[[str, float], None] = lambda *_: None) -> None:
        self._frontier, self._per_s, self._gauge = frontier, per_s, gauge
        self._tokens, self._at, self._calls = 1.0, boottime(), frontier.calls
        self._turn = asyncio.Lock()  # first come, first served
        self._most_per_s = 0.0

    async def room(self) -> int:
        """Calls that may be begun now, at least one; waits for it. They are counted as they begin."""
        if self._per_s == math.inf:
            return 1 << 30
        async with self._turn:
            while self._refilled() < 1:
                await asyncio.sleep(max(0.001, (1 - self._tokens) / self._per_s))
            return int(self._tokens)

    def _refilled(self) -> float:
        now, calls = boottime(), self._frontier.calls
        tokens = self._tokens + (now - self._at) * self._per_s - (calls - self._calls)
        self._tokens = min(max(tokens, -DEBT_S * self._per_s), max(1.0, BURST_S * self._per_s))
        self._at, self._calls = now, calls
        return self._tokens

    async def watch_forever(self) -> None:
        seen: deque[tuple[float, int]] = deque(maxlen=round(SHOWN_S / LOOK_S) + 1)
        while True:
            seen.append((boottime(), self._frontier.calls))
            (first_s, first), (last_s, last) = seen[0], seen[-1]
            if last_s - first_s > SHOWN_S / 2:
                per_s = round((last - first) / (last_s - first_s), 1)
                self._most_per_s = max(self._most_per_s, per_s)
                self._gauge("redis/calls_per_s", per_s)
                self._gauge("redis/calls_per_s_most", self._most_per_s)
            await asyncio.sleep(LOOK_S)
