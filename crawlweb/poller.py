"""Leases come in: partitions are asked when the rota says, for as many as there is room for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from .admission import Admission
from .errors import FrontierFull
from .frontier.frontier import CALM_S, Frontier
from .frontier.memory import MemoryWatch
from .frontier.rows import Lease
from .jobs import Jobs
from .limit import PageLimit
from .pace import Pace
from .records import boottime
from .recovery import Recovery
from .rota import MIN_S, Rota
from .tasks import Tasks

POLL_MAX_S = 1.0  # a partition that has nothing is asked this often at first
POLLS_LEAST, POLLS_AT_ONCE = 4, 16  # the more, the more leases may be had
FREE_LEAST = 16  # leases, or a quarter of the capacity: no poll is made for fewer while there are jobs
HUNG_S = 0.25  # a partition that takes longer to answer does not hold back the others,
AWAY_S = 2.0  # and after this it does not keep the leases from them that it was asked for


class Poller:
    """`capacity`: leases `in_hand` at a time (by token; the poller puts them there). `has_room`: for one fetch more; `enough`: no more are
    to be leased. `leased`: so many so far; `polls`: lease calls on their way, until their leases are jobs."""

    def __init__(
        self,
        frontier: Frontier,
        admission: Admission,
        jobs: Jobs,
        recovery: Recovery,
        memory: MemoryWatch,
        pace: Pace,
        limit: PageLimit | None,
        tasks: Tasks,
        *,
        in_hand: dict[str, Lease],
        capacity: int,
        has_room: Callable[[], bool],
        enough: Callable[[], bool],
        count: Callable[..., None],
    ) -> None:
        self.capacity = capacity
        self.leased = self.polls = 0
        self._asked: dict[int, tuple[float, int]] = {}  # by partition, until it answers: since when, for how many leases
        self.rota = Rota(frontier.partitions, frontier.limits.look_ahead_s, POLL_MAX_S, random.Random())
        self._frontier, self._admission, self._jobs, self._recovery = frontier, admission, jobs, recovery
        self._memory, self._pace, self._limit, self._tasks = memory, pace, limit, tasks
        self._in_hand, self._has_room, self._enough, self._count = in_hand, has_room, enough, count
        self._free_least = max(1, min(FREE_LEAST, capacity // 4))
        self._started = 0.0

    async def lease_forever(self) -> None:
        self._started = boottime()
        rota = self.rota
        while not self._enough():
            if not self._memory.has_room:
                await self._memory.room()
                continue
            if self._limit is not None:
                await self._limit.room()
            rota.asked.clear()
            free = self._free()
            until_due_s = rota.until_due_s()
            if free > 0 and until_due_s <= 0:
                polls = max(min(free, POLLS_LEAST), min(free // FREE_LEAST, POLLS_AT_ONCE))
                some = rota.due(min(polls, await self._pace.room()))
                if not some:  # others have taken them meanwhile
                    continue
                most = max(1, free // len(some))
                await asyncio.wait([self._tasks.spawn(self._lease(p, min(most, rota.batch(p)))) for p in some], timeout=HUNG_S)
                await asyncio.sleep(0)
                continue
            pause_s = max(MIN_S, min(until_due_s, POLL_MAX_S)) if free > 0 else POLL_MAX_S / 20
            try:
                await asyncio.wait_for(rota.asked.wait(), pause_s)
            except asyncio.TimeoutError:
                continue
            await asyncio.sleep(MIN_S)

    def _free(self) -> int:
        """Leases that may be asked for now."""
        latest = boottime() - AWAY_S
        asked = sum(most for since, most in self._asked.values() if since > latest)
        free = self.capacity - len(self._in_hand) - asked if self._has_room() else 0
        if self._jobs.heap and free < self._free_least:
            free = 0
        return free if self._limit is None else min(free, self._limit.leases)

    async def _lease(self, p: int, most: int) -> None:
        if self._recovery.is_doubtful(p):  # it is asked when that is over
            self.rota.answered(p, CALM_S, 0, most)
            return
        self.polls += 1
        try:
            self._asked[p] = boottime(), most
            try:
                began = max(self._started, self._frontier.outage.back_at)
                may_reclaim = boottime() - began >= CALM_S  # others may be about to renew theirs
                next_s, leases = await self._frontier.lease(p, most, may_reclaim)
            except FrontierFull:
                self.rota.again(p)
                self._memory.refused()
                return
            finally:
                del self._asked[p]
            self._memory.passed()
            self.rota.answered(p, next_s, len(leases), most)
            for lease in leases:
                self._in_hand[lease.token] = lease
            self._count("leases", len(leases))
            self.leased += len(leases)
            await self._admission.admit(leases)
        finally:
            self.polls -= 1
