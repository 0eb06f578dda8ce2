"""Leases last while their pages are worked on: by the engine, or as outcomes that are not sent yet. What only waits is not renewed."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from .errors import FrontierError
from .frontier.frontier import Frontier
from .frontier.rows import Lease
from .job import Job
from .limit import PageLimit
from .records import boottime

logger = logging.getLogger(__name__)

STUCK_SAID_S = 600.0  # a page that is in callbacks and pipelines for so long is worth a warning


class Renewals:
    """`in_hand`: leases by token; `stuck_s`: the lease of a page that the engine has for so long is not renewed any more; `beside` starts
    a call on a partition, unless the last is still under way. `running`: what the engine has, by token."""

    def __init__(
        self,
        frontier: Frontier,
        limit: PageLimit | None,
        in_hand: Mapping[str, Lease],
        *,
        stuck_s: float,
        beside: Callable[[int, Coroutine[Any, Any, None]], None],
        count: Callable[..., None],
    ) -> None:
        self.running: dict[str, Job] = {}
        self._finished: set[str] = set()  # tokens whose outcomes are not sent yet
        self._frontier, self._limit, self._in_hand = frontier, limit, in_hand
        self._stuck_s, self._beside, self._count = stuck_s, beside, count

    def begun(self, job: Job) -> None:
        """The engine has it."""
        job.begun = boottime()
        self.running[job.lease.token] = job

    def finished(self, token: str) -> None:
        """Its outcome is to be sent."""
        self.running.pop(token, None)
        self._finished.add(token)

    def sent(self, token: str) -> None:
        self._finished.discard(token)

    async def keeps(self, lease: Lease) -> bool:
        """Is the lease of a page that was fetched still this worker's? Redis is asked where that is not certain."""
        if not lease.is_gone and lease.expires <= boottime():
            try:
                await self._renew([lease])
            except FrontierError:
                return False
        return not lease.is_gone

    def renew_due(self) -> None:
        """Begins to renew what has used up a third of its time."""
        now, lease_s = boottime(), self._frontier.limits.lease_s
        held: dict[int, list[Lease]] = defaultdict(list)
        for lease in self._worked_on(now):
            if lease.expires - now < lease_s * 2 / 3 and not lease.is_gone:
                held[lease.partition].append(lease)
        for p, leases in held.items():
            self._beside(p, self._renew(leases))

    async def _renew(self, leases: Sequence[Lease]) -> None:
        for lease in await self._frontier.renew(leases):
            lease.is_gone = True
        if self._limit is not None:
            await self._limit.renew([lease for lease in leases if not lease.is_gone])

    def _worked_on(self, now: float) -> Iterator[Lease]:
        """But for what is stuck in the engine."""
        for job in self.running.values():
            age_s = now - job.begun
            if age_s >= self._stuck_s:
                if job.stuck < 2:
                    job.stuck = 2
                    self._count("leases/abandoned")
                    logger.error("%s is in callbacks or pipelines for %.0f s: its lease is left to run out", job.lease.entry.url, age_s)
                continue
            if age_s >= min(STUCK_SAID_S, self._stuck_s / 2) and not job.stuck:
                job.stuck = 1
                self._count("leases/stuck")
                logger.warning("%s is in callbacks or pipelines for %.0f s", job.lease.entry.url, age_s)
            yield job.lease
        yield from (self._in_hand[token] for token in self._finished if token in self._in_hand)
