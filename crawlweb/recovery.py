"""What a worker does when a server of the frontier has changed: it was started again, or another stands in its place, and the last
seconds may be missing there.

In this order: which leases does it know still, and let the hosts of requests under way rest until they have ended; tell it again what
it had acknowledged; go on. Meanwhile nobody leases from it (`CALM_S`, lua/lease.lua), and no job of its partitions is begun here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from .frontier.frontier import Frontier
from .frontier.rows import Lease
from .job import Job
from .records import boottime
from .turns import IpTurns

logger = logging.getLogger(__name__)

AT_ONCE = 16
HELD_AT_ONCE = 500


class Recovery:
    """`tell_crawl`: writes what belongs to the whole crawl again; `in_hand`: leases by token; `running`: jobs whose request may be under
    way, by token; `forget`: what is known by heart is not to be relied on; `done`: the partitions may be worked on again."""

    def __init__(
        self,
        frontier: Frontier,
        tell_crawl: Callable[[], Awaitable[None]],
        turns: IpTurns,
        *,
        in_hand: Mapping[str, Lease],
        running: Mapping[str, Job],
        fetch_s: float,
        forget: Callable[[], None],
        done: Callable[[Iterable[int]], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        count: Callable[..., None],
    ) -> None:
        self._frontier, self._tell_crawl, self._turns = frontier, tell_crawl, turns
        self._in_hand, self._running, self._fetch_s = in_hand, running, fetch_s
        self._forget, self._done, self._spawn, self._count = forget, done, spawn, count
        self._doubtful: Counter[int] = Counter()  # partitions → servers' changes that are being dealt with
        frontier.on_restart = self.begin

    def is_doubtful(self, partition: int) -> bool:
        """Nothing is to be leased there, nor begun."""
        return bool(self._doubtful) and self._doubtful[partition] > 0

    def begin(self) -> None:
        changed = self._frontier.take_changed()
        if changed:
            self._count("redis/restarts")
            self._doubtful.update(changed)
            self._forget()
            self._spawn(self._recover(changed))

    async def _recover(self, changed: set[int]) -> None:
        began = boottime()
        held: dict[int, list[Lease]] = defaultdict(list)
        for lease in self._in_hand.values():
            if lease.partition in changed:
                held[lease.partition].append(lease)
        lost = sum(await _each(held, lambda p: self._hold(p, held[p])))
        runs = {self._frontier.run_of(p) for p in changed}  # an address may lie on another node of a cluster than its hosts
        await self._turns.hold_again([job for job in self._running.values() if job.ip and self._frontier.run_of_address(job.ip) in runs])
        await self._tell_crawl()
        calls = await self._frontier.tell_again(changed)
        self._doubtful.subtract(changed)
        self._doubtful = +self._doubtful
        logger.warning(
            "Redis was started again, or another server is in its place: it was told %d calls again in %.1f s, and had lost %d leases",
            calls,
            boottime() - began,
            lost,
        )
        self._done(changed)

    async def _hold(self, partition: int, leases: list[Lease]) -> int:
        lost = 0
        for first in range(0, len(leases), HELD_AT_ONCE):
            some = leases[first : first + HELD_AT_ONCE]
            gone = await self._frontier.hold(partition, [(lease, self._request_s(lease)) for lease in some])
            for lease in gone:
                lease.is_gone = True
            lost += len(gone)
        self._count("leases/lost", lost)
        return lost

    def _request_s(self, lease: Lease) -> float:
        """So long may its request still take, at the most."""
        job = self._running.get(lease.token)
        return max(0.0, min(job.until - boottime(), self._fetch_s)) if job else 0.0


async def _each(partitions: Iterable[int], work: Callable[[int], Coroutine[Any, Any, int]]) -> list[int]:
    """The answers of `work` for all partitions, some at a time."""
    some, answers = list(partitions), []
    for first in range(0, len(some), AT_ONCE):
        answers += await asyncio.gather(*(work(p) for p in some[first : first + AT_ONCE]))
    return answers
