"""The jobs of a worker until the engine takes them: each waits for its not-before."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from .job import Job


class Jobs:
    """`wake` is called when `next_due` may have something; `fetch_s`: a request takes so long at the most."""

    def __init__(self, wake: Callable[[], None], fetch_s: float) -> None:
        self.wake = wake
        self.heap: list[tuple[float, int, Job]] = []  # by not-before
        self._fetch_s = fetch_s
        self._order = itertools.count()
        self._aside: list[Job] = []  # their partition's server has changed
        self._wake_at: asyncio.TimerHandle | None = None

    def push(self, job: Job, not_before: float) -> None:
        heapq.heappush(self.heap, (not_before, next(self._order), job))

    def next_due(self, now: float) -> Job | None:
        """Takes one whose time has come; arranges to be woken when the next one's does."""
        if not self.heap:
            return None
        not_before = self.heap[0][0]
        if not_before <= now:
            return heapq.heappop(self.heap)[2]
        self.wake_in(not_before - now)
        return None

    def wake_in(self, seconds: float) -> None:
        if self._wake_at is not None:
            self._wake_at.cancel()
        self._wake_at = asyncio.get_running_loop().call_later(max(seconds, 0.0005), self.wake)

    def put_aside(self, job: Job) -> None:
        """Its server is doubtful."""
        self._aside.append(job)

    def put_back(self) -> None:
        """Those that were put aside: their servers are to be relied on again, or they are put aside again."""
        for job in self._aside:
            self.push(job, job.lease.not_before)
        self._aside.clear()

    def take_old(self, latest: float) -> list[Job]:
        """Those whose requests would not end in time if they began at `latest`."""
        old = [row for row in self.heap if row[2].until - self._fetch_s < latest]
        if old:
            self.heap = [row for row in self.heap if row[2].until - self._fetch_s >= latest]
            heapq.heapify(self.heap)
        return [job for _, _, job in old]

    def take_all(self) -> list[Job]:
        jobs = [*self._aside, *(job for _, _, job in sorted(self.heap))]
        self._aside.clear()
        self.heap.clear()
        return jobs
