"""The end of a crawl, a property of the whole: when all workers say that they have nothing to do, the first of them counts, twice, and
tells the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from .frontier.frontier import Frontier
from .frontier.meta import Meta
from .frontier.rows import Counts
from .limit import PageLimit
from .records import boottime
from .share import Share

logger = logging.getLogger(__name__)

NEVER_SEEDED_S = 60.0
PASS_S, PASS_MOST_S = 0.5, 4.0  # between two looks at all partitions, where nobody knows of anything to do and yet something is pending


class End:
    """`busy`: has this worker something to do? `idle`: has it not, nor had its partitions? `outside`: are there start URLs that the
    frontier does not have yet? `leased`: so many leases has this worker had. `ended` is told why, once. `waits`: for seeds."""

    def __init__(
        self,
        frontier: Frontier,
        meta: Meta,
        share: Share,
        limit: PageLimit | None,
        *,
        busy: Callable[[], bool],
        idle: Callable[[], bool],
        outside: Callable[[], Awaitable[bool]],
        leased: Callable[[], int],
        ended: Callable[[str], None],
    ) -> None:
        self.waits = False
        self._frontier, self._meta, self._share, self._limit = frontier, meta, share, limit
        self._busy, self._idle, self._outside, self._leased, self._ended = busy, idle, outside, leased, ended
        self._started = boottime()
        self._has_ended = False

    async def watch(self, closing: Callable[[], bool]) -> None:
        """Until the worker closes: a late one needs its word."""
        share = self._share
        before: Counts | None = None
        pause_s = PASS_S
        while not closing():
            await asyncio.sleep(PASS_S / 2 if before else pause_s)
            if await self._has_all_pages():
                self._end("max_pages")
            elif share.over and not self._busy() and not await self._outside():
                self._end_drained(share.over)
            elif not (self._idle() and share.all_idle()):
                before, pause_s = None, PASS_S
            elif share.is_first:
                counts = await self._frontier.counts()
                if counts.pending or not self._idle() or await self._meta.anyone_seeding() or await self._outside():
                    before, pause_s = None, min(2 * pause_s, PASS_MOST_S)
                elif counts != before:
                    before = counts
                else:
                    await share.say_over(counts.enqueued)
                    self._end_drained(counts.enqueued)
                    before, pause_s = None, min(2 * pause_s, PASS_MOST_S)
            elif share.over == 0 and not await self._outside():
                self._end_drained(0)

    async def _has_all_pages(self) -> bool:
        if self._limit is None or self._busy():
            return False
        await self._limit.look()
        return self._limit.full and not self._busy()

    def _end_drained(self, urls: int) -> None:
        """Nothing is pending anywhere, of so many URLs that were ever enqueued."""
        if urls:
            if not self._leased() and not self._has_ended:
                logger.info("crawl %s is finished: its %d URLs are done, none was left for this worker", self._frontier.crawl, urls)
            self._end("drained")
        elif boottime() - self._started >= NEVER_SEEDED_S:
            self._end("never_seeded")
        elif not self.waits:
            self.waits = True
            logger.info("crawl %s has no URLs yet: waiting for seeds, %.0f s at the most", self._frontier.crawl, NEVER_SEEDED_S)

    def _end(self, reason: str) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._ended(reason)
