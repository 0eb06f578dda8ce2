"""A worker's share of a crawl: it says that it lives, learns who else does, and takes the partitions that are its own among them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Callable, Sized

from .errors import FrontierError
from .frontier.members import BEAT_S, Members
from .policy.owners import assign
from .records import boottime
from .rota import Rota

logger = logging.getLogger(__name__)

SMOOTH_S = 10.0
FEW = 20  # leases a minute more or less are chance
WHOLE = 30  # of so many beats one asks for the whole list


class Share:
    """`busy`: has this worker something to do, or may its partitions have? `in_hand`: leases by token; `leased`: so many so far. `over`:
    see members.Roll."""

    def __init__(
        self,
        members: Members,
        worker: str,
        partitions: int,
        rota: Rota,
        busy: Callable[[], bool],
        in_hand: Sized,
        leased: Callable[[], int],
        gauge: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self.over: int | None = None
        self._members, self._worker, self._partitions, self._rota = members, worker, partitions, rota
        self._busy, self._in_hand, self._leased, self._gauge = busy, in_hand, leased, gauge
        self._workers: tuple[str, ...] = ()
        self._said_busy, self._others_busy = True, True
        self._left = False
        self._per_min, self._measured, self._counted = 0.0, boottime(), 0
        self._calling = asyncio.Lock()  # a beat that overtook the leave would undo it
        self._early = asyncio.Event()

    @property
    def is_alone(self) -> bool:
        return self._workers == (self._worker,)

    @property
    def is_first(self) -> bool:
        """Of the live workers one is: what one can do for all is for it."""
        return self._workers[:1] == (self._worker,)

    def all_idle(self) -> bool:
        """No live worker has anything to do, as far as they said; this one, which has not, says so soon."""
        if self._said_busy:
            self._early.set()
        return self.is_alone or not (self._said_busy or self._others_busy)

    async def beat_forever(self) -> None:
        beats, tells = 0, True
        while not self._left:
            self._early.clear()
            try:
                await self._beat(whole=beats % WHOLE == 0)
            except FrontierError as e:
                if tells and not self._left:
                    tells = False
                    logger.warning("Redis does not tell who else works on this crawl: %s", e)
                if not self._workers:
                    await self._divide((self._worker,))
                self._said_busy = self._others_busy = False
            beats += 1
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._early.wait(), BEAT_S * random.uniform(0.8, 1.0))  # not all at the same moment

    async def say_over(self, urls: int) -> None:
        """The crawl is drained, of so many URLs that were ever enqueued."""
        if not self.is_alone:
            await self._members.say_over(urls)

    async def leave(self) -> None:
        """The others take over at once."""
        self._left = True
        self._early.set()
        async with self._calling:
            await self._members.leave()

    async def _beat(self, whole: bool) -> None:
        async with self._calling:
            if self._left:
                return
            busy = self._busy()
            self._measure()
            roll = await self._members.beat(busy, len(self._in_hand), round(self._per_min), whole)
        self._said_busy, self._others_busy, self.over = busy, roll.busy > int(busy), roll.over
        self._rota.load = (self._per_min + FEW) / (roll.per_min / max(1, len(roll.workers)) + FEW)
        if roll.workers != self._workers:
            await self._divide(roll.workers)

    def _measure(self) -> None:
        now, leased = boottime(), self._leased()
        passed_s = max(1e-3, now - self._measured)
        per_min = 60 * (leased - self._counted) / passed_s
        self._per_min += (per_min - self._per_min) * (1 - math.exp(-passed_s / SMOOTH_S))
        self._measured, self._counted = now, leased

    async def _divide(self, workers: tuple[str, ...]) -> None:
        is_alone = workers == (self._worker,)
        if is_alone:
            own = dict.fromkeys(range(self._partitions), 1)
        else:
            of = await asyncio.to_thread(assign, {*workers, self._worker}, self._partitions)
            own = {p: len(some) for p, some in enumerate(of) if self._worker in some}
        self._rota.take(own, is_alone, 0.0 if is_alone else BEAT_S)  # the others have heard of it by then
        if self._workers or not is_alone:
            logger.info("%d workers; %d of %d partitions are this one's", len(workers), len(own), self._partitions)
        self._workers = workers
        self._gauge("workers", len(workers))
        self._gauge("partitions", len(own))
