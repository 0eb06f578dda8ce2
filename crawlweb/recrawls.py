"""Puts pages whose time has come back into their hosts' queues, while a crawl of mode `continuous` runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from .errors import FrontierError, FrontierFull
from .frontier.frontier import Frontier
from .frontier.memory import MemoryWatch

logger = logging.getLogger(__name__)

LOOK_S = 60.0  # a page is due up to 5 min late as it is (frontier/lua/due.lua)
PAGES_AT_ONCE = 64
PAUSE_S = 0.02  # between two calls: a day's pages may be many


class Recrawls:
    """`own`: gives the partitions that this worker asks, others perhaps with it; `ask`: there is something in one."""

    def __init__(
        self,
        frontier: Frontier,
        memory: MemoryWatch,
        own: Callable[[], Iterable[int]],
        ask: Callable[[int], None],
        count: Callable[..., None],
    ) -> None:
        self._frontier, self._memory, self._own, self._ask, self._count = frontier, memory, own, ask, count

    async def run_forever(self) -> None:
        """Never raises."""
        tells = True
        while not self._frontier.closing:
            try:
                for p in list(self._own()):
                    await self.queue(p)
            except FrontierFull:
                self._memory.refused()
            except FrontierError as e:
                if tells and not self._frontier.closing:
                    tells = False
                    logger.warning("pages that are due are not fetched again yet: %s", e)
            await asyncio.sleep(LOOK_S)

    async def queue(self, p: int) -> int:
        """All pages of a partition that are due. How many."""
        queued, more = 0, True
        while more and not self._frontier.closing:
            await self._memory.room()
            found = await self._frontier.due(p, PAGES_AT_ONCE)
            more, queued = found.more, queued + found.queued
            if found.queued:
                self._count("recrawls/queued", found.queued)
                self._ask(p)
            if found.stale:
                self._count("recrawls/stale", found.stale)
            if more:
                await asyncio.sleep(PAUSE_S)
        return queued
