"""Events: what downstream learns of a page that is stored, through a stream in Redis (docs/extending.md).

At least once: a page is complete only after its event was acknowledged. A call whose answer was lost is repeated, and what a server
acknowledged in its last seconds is published again after it was started again; `PageEvent.id` tells such repetitions from news.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgpack  # type: ignore[import-untyped]

from ..records import boottime
from . import scripts
from .frontier import Frontier
from .journal import Journal
from .keys import crawl_key
from .rows import PageEvent

EVENT_BATCH = 100  # a call: p99 in the server stays under 2 ms


class Events:
    """`most`: entries kept in the stream, read or not."""

    def __init__(self, frontier: Frontier, most: int) -> None:
        self._frontier, self._most = frontier, most
        self._key = crawl_key(frontier.crawl, "events")
        self._journal: Journal[Sequence[PageEvent]] = Journal()

    async def publish(self, batch: Sequence[PageEvent]) -> None:
        """In their order, `EVENT_BATCH` a call; waits for Redis. FrontierError, or being cancelled: some may be in the stream."""
        frontier = self._frontier
        for first in range(0, len(batch), EVENT_BATCH):
            some = batch[first : first + EVENT_BATCH]
            packed = msgpack.packb([event.fields(frontier.worker) for event in some], use_bin_type=False)
            await frontier.patiently(partial(scripts.run, frontier.redis, "events", self._key, self._most, packed))
            self._journal.add(0, boottime(), some)

    async def replay(self) -> None:
        """After a restart of Redis that may have lost its last seconds."""
        for batch in self._journal.take(0):
            await self.publish(batch)
