"""When which partition is asked for leases: at the time that its last answer named, at once after something was put there, and rarely where
nothing is."""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections.abc import Mapping

from .records import boottime

MIN_S = 0.01
IDLE_MOST, IDLE_MOST_ALONE = 2, 4  # times `idle_s`: what others put into a partition is found no later
# Of the look-ahead: a partition is asked so long before its next host's time. With less, hosts whose times come soon after share the call;
# what is left must do for the call, and for the turn of an address.
EARLY = 0.4
EARLY_SHARED, EARLY_MOST, EARLY_LEAST, JITTER = 0.5, 0.8, 0.1, 0.1  # where others ask too; less by EVENING for each 1 of load over the mean
EVENING = 4.0
SEEKING = 10.0
TOGETHER_S = 0.05  # where nobody else asks
BATCH_LEAST, BATCH_MOST = 8, 64  # leases asked for: twice what there were the last time


class Rota:
    """`look_ahead_s`: a lease may be had so long before its not-before; `idle_s`: a partition that has nothing is asked again after this,
    then more rarely. `asked`: something became due earlier than was said. `load`: this worker's leases to the mean of all; where several
    ask a partition, who has more asks later, so that the others take what it would have had."""

    def __init__(self, partitions: int, look_ahead_s: float, idle_s: float, rng: random.Random) -> None:
        self.asked = asyncio.Event()
        self.load = 1.0
        self._look_ahead_s, self._idle_s, self._rng = look_ahead_s, idle_s, rng
        self._due = [math.inf] * partitions
        self._empty = [0] * partitions  # answers in a row without a lease
        self._batch = [BATCH_MOST] * partitions
        self._pollers: Mapping[int, int] = {}
        self._quiet: set[int] = set()  # own ones whose last answer was that nothing is there
        self._is_alone = True

    def take(self, pollers: Mapping[int, int], alone: bool, in_s: float = 0.0) -> None:
        """These partitions are this worker's from now on; how many workers poll each. New ones are asked in so many seconds."""
        at = boottime() + in_s
        for p in self._pollers.keys() - pollers.keys():
            self._due[p] = math.inf
            self._quiet.discard(p)
        new = pollers.keys() - self._pollers.keys()
        self._pollers, self._is_alone = pollers, alone
        for p in new:
            self._due[p], self._empty[p] = at, 0
        self.asked.set()

    @property
    def own(self) -> list[int]:
        return list(self._pollers)

    @property
    def is_quiet(self) -> bool:
        """Nothing was in any of this worker's partitions when it was asked last."""
        return len(self._quiet) == len(self._pollers) > 0

    def ask(self, p: int, in_s: float) -> None:
        """Something is there, or will be."""
        if p not in self._pollers:
            return
        self._quiet.discard(p)
        at = boottime() + max(0.0, in_s)
        if at < self._due[p]:
            self._due[p] = at
            self.asked.set()

    def ask_ahead(self, p: int, in_s: float) -> None:
        """Something there may be fetched in so many seconds: its lease can be had before."""
        if p in self._pollers:
            self.ask(p, in_s - self._early(p) * self._look_ahead_s)

    def due(self, most: int) -> list[int]:
        """Own partitions whose time has come, longest due first, and those with whom it will in a moment: they can share a call. Each is
        not due again before it was answered or asked for."""
        now = boottime()
        latest = now, now + TOGETHER_S
        some = heapq.nsmallest(most, (p for p, n in self._pollers.items() if self._due[p] <= latest[n == 1]), key=self._due.__getitem__)
        for p in some:
            self._due[p] = math.inf
        return some

    def batch(self, p: int) -> int:
        """Leases to ask for. Calls on partitions share one to Redis only as long as they do not ask for many."""
        return self._batch[p]

    def answered(self, p: int, next_s: float | None, leases: int, most: int) -> None:
        """`leases` of `most` that were asked for; `next_s`: until something may be due there, None: nothing is there."""
        pollers = self._pollers.get(p)
        if pollers is None:  # given up meanwhile
            return
        self._empty[p] = 0 if leases else self._empty[p] + 1
        self._batch[p] = min(BATCH_MOST, max(BATCH_LEAST, 2 * leases))
        if next_s is None and not leases:
            self._quiet.add(p)
        else:
            self._quiet.discard(p)
        wait_s = self._idle_s * min(2 ** max(0, self._empty[p] - 1), IDLE_MOST_ALONE if self._is_alone else IDLE_MOST)
        if leases == most:
            wait_s = 0.0
        elif next_s is not None:
            if pollers > 1:  # what others have in flight comes back before that
                wait_s *= min(1.0, max(0.25, 1 + SEEKING * (self.load - 1)))
            wait_s = min(wait_s, max(MIN_S, next_s - self._look_ahead_s * self._early(p)))
        self._due[p] = min(self._due[p], boottime() + wait_s)

    def _early(self, p: int) -> float:
        """A share of the look-ahead."""
        if self._pollers[p] == 1:
            return EARLY
        early = EARLY_SHARED - EVENING * (self.load - 1) + self._rng.uniform(-JITTER, JITTER)
        return min(EARLY_MOST, max(EARLY_LEAST, early))

    def again(self, p: int) -> None:
        """It could not be asked."""
        if p in self._pollers:
            self._due[p] = 0.0

    def until_due_s(self) -> float:
        return min((self._due[p] for p in self._pollers), default=math.inf) - boottime()
