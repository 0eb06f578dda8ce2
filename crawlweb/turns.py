"""The turns of addresses: a request waits until its address is held for it, and gives it back at its end. Batches, a call a shard.

Hosts on one address share a clock in Redis (frontier/lua/ip.lua). A hold begins just before its request and ends with it; a worker that
dies loses it with its lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .frontier.frontier import Frontier
from .records import boottime

if TYPE_CHECKING:
    from .job import Job

TICK_S = 0.01  # wishes and ends wait so long for company
AHEAD_S = 0.02  # an address is asked for so long before its request is due
BATCH = 200


class IpTurns:
    """`came(job, not_before, until)`: the address is the job's, its request must end before `until`; `refused(job, wait_s)`."""

    def __init__(self, frontier: Frontier, came: Callable[[Job, float, float], None], refused: Callable[[Job, float], None]) -> None:
        self._frontier, self._came, self._refused = frontier, came, refused
        self._wishes: list[tuple[float, int, Job]] = []  # heap by not-before
        self._order = itertools.count()
        self._ends: dict[int, list[tuple[str, str, float | None]]] = defaultdict(list)
        self._more = asyncio.Event()
        self._asking = 0

    @property
    def unsent(self) -> bool:
        return bool(self._asking or self._wishes or any(self._ends.values()))

    def wish(self, job: Job, not_before: float) -> None:
        heapq.heappush(self._wishes, (not_before, next(self._order), job))
        self._more.set()

    def end(self, address: str, token: str, ended: float | None) -> None:
        """`ended`: boottime of the end of the request; None if nothing was sent."""
        self._ends[self._frontier.ip_shard_of(address)].append((address, token, ended))
        self._more.set()

    def take_back(self) -> list[Job]:
        """The wishes that were not asked for yet."""
        jobs = [job for _, _, job in self._wishes]
        self._wishes.clear()
        return jobs

    async def hold_again(self, jobs: Sequence[Job]) -> None:
        """Their requests are under way, and Redis may have lost that their addresses are held."""
        shards: dict[int, list[tuple[str, str, str]]] = defaultdict(list)
        for job in jobs:
            shards[self._frontier.ip_shard_of(job.ip)].append((job.ip, job.lease.host, job.lease.token))
        for shard, wishes in shards.items():
            for first in range(0, len(wishes), BATCH):
                await self._frontier.ip_turns(shard, [], wishes[first : first + BATCH])

    async def ask_forever(self) -> None:
        while True:
            if not any(self._ends.values()):
                self._more.clear()
                until_due_s = self._wishes[0][0] - boottime() - AHEAD_S if self._wishes else None
                if until_due_s is None or until_due_s > 0:
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._more.wait(), until_due_s)
            await asyncio.sleep(TICK_S)
            latest = boottime() + AHEAD_S
            wishes: dict[int, list[Job]] = defaultdict(list)
            while self._wishes and self._wishes[0][0] <= latest:
                job = heapq.heappop(self._wishes)[2]
                wishes[self._frontier.ip_shard_of(job.ip)].append(job)
            ends, self._ends = self._ends, defaultdict(list)
            self._asking += 1
            try:
                await asyncio.gather(*(self._ask(shard, ends.get(shard, []), wishes.get(shard, [])) for shard in {*ends, *wishes}))
            finally:
                self._asking -= 1

    async def _ask(self, shard: int, ends: list[tuple[str, str, float | None]], jobs: list[Job]) -> None:
        for first in range(0, max(len(ends), len(jobs)), BATCH):
            some = jobs[first : first + BATCH]
            wishes = [(job.ip, job.lease.host, job.lease.token) for job in some]
            sent = boottime()
            answer = await self._frontier.ip_turns(shard, ends[first : first + BATCH], wishes)
            received = boottime()
            for job, wait_s in zip(some, answer, strict=True):
                if wait_s >= 0:
                    self._came(job, received + wait_s, sent + self._frontier.limits.lease_s)
                else:
                    self._refused(job, -wait_s)
