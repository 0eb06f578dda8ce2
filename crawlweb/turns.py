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

from .frontier.frontier import Frontier
from .job import Job
from .records import boottime

TICK_S, TICK_MOST_S = 0.01, 0.05  # wishes and ends wait so long for company: a tenth of the delay of addresses within these
AHEAD_S = 0.02  # and a tick: an address is asked for so long before its request is due
BATCH = 200


def tick_s(ip_delay_s: float) -> float:
    return max(TICK_S, min(TICK_MOST_S, ip_delay_s / 10))


class IpTurns:
    """`came(job, not_before, until)`: the address is the job's, its request must end before `until`; `refused(job, wait_s)`."""

    def __init__(self, frontier: Frontier, came: Callable[[Job, float, float], None], refused: Callable[[Job, float], None]) -> None:
        self._frontier, self._came, self._refused = frontier, came, refused
        self._wishes: list[tuple[float, int, Job]] = []  # heap by not-before
        self._order = itertools.count()
        self._due: dict[int, list[Job]] = defaultdict(list)  # wishes whose time has come, by shard
        self._ends: dict[int, list[tuple[str, str, float | None]]] = defaultdict(list)
        self._more = asyncio.Event()
        self._calls: dict[int, asyncio.Task[None]] = {}  # by shard: one whose server is away does not hold back the others

    @property
    def unsent(self) -> bool:
        return bool(self._calls or self._wishes or any(self._due.values()) or any(self._ends.values()))

    def wish(self, job: Job, not_before: float) -> None:
        heapq.heappush(self._wishes, (not_before, next(self._order), job))
        self._more.set()

    def end(self, address: str, token: str, ended: float | None) -> None:
        """`ended`: boottime of the end of the request; None if nothing was sent."""
        self._ends[self._frontier.ip_shard_of(address)].append((address, token, ended))
        self._more.set()

    def take_back(self) -> list[Job]:
        """The wishes that were not asked for yet."""
        jobs = [*(job for _, _, job in self._wishes), *itertools.chain(*self._due.values())]
        self._wishes.clear()
        self._due.clear()
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
        try:
            while True:
                wait_s = tick_s(self._frontier.limits.ip_delay_s)
                ahead_s = AHEAD_S + wait_s
                for shard in [shard for shard, call in self._calls.items() if call.done()]:
                    self._calls.pop(shard).result()
                if not self._free_shards():
                    self._more.clear()
                    until_due_s = self._wishes[0][0] - boottime() - ahead_s if self._wishes else None
                    if until_due_s is None or until_due_s > 0:
                        with contextlib.suppress(asyncio.TimeoutError):
                            await asyncio.wait_for(self._more.wait(), until_due_s)
                if not any(self._due[shard] for shard in self._free_shards()):  # else they have waited for the last call
                    await asyncio.sleep(wait_s)
                latest = boottime() + ahead_s
                while self._wishes and self._wishes[0][0] <= latest:
                    job = heapq.heappop(self._wishes)[2]
                    self._due[self._frontier.ip_shard_of(job.ip)].append(job)
                for shard in self._free_shards():
                    call = asyncio.ensure_future(self._ask(shard, self._ends.pop(shard, []), self._due.pop(shard, [])))
                    call.add_done_callback(lambda _: self._more.set())
                    self._calls[shard] = call
        finally:
            for call in self._calls.values():
                call.cancel()

    def _free_shards(self) -> list[int]:
        """With something to send, and no call under way."""
        waiting = {shard for queues in (self._ends, self._due) for shard, queue in queues.items() if queue}
        return [shard for shard in waiting if shard not in self._calls]

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
