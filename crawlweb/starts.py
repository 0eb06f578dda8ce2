"""Start URLs from outside: a worker's loop that takes them out of Redis keys and hands them to the frontier as seeds."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from .errors import FrontierFull
from .frontier.frontier import Frontier
from .frontier.memory import MemoryWatch
from .frontier.rows import EXACT, Link
from .frontier.starts import Batch, Foreign, StartKey
from .outbox import LINK_BATCH

logger = logging.getLogger(__name__)

POLL_S = 1.0  # an empty key is asked this often, up to 1.5 times as long
READ_AT_ONCE = 50  # entries between two looks at the rest of the event loop
PARTITIONS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class StartUrls:
    """Where start URLs come from outside. `key`: empty for nowhere; `kind`: the type that it must have, empty: list, set or zset; `read`:
    the links of an entry, ValueError says why it is no start URL."""

    key: str
    kind: str
    most: int
    read: Callable[[bytes], list[Link]]


async def place(links: Iterable[Link], partition_of: Callable[[str], int], enqueue: Callable[[int, list[Link]], Awaitable[str]]) -> str:
    """Puts links into their partitions; a letter for each, as of Frontier.enqueue."""
    by_partition: dict[int, list[tuple[int, Link]]] = defaultdict(list)
    for at, link in enumerate(links):
        by_partition[partition_of(link.host)].append((at, link))
    letters: dict[int, str] = {}

    async def send(p: int, rows: list[tuple[int, Link]]) -> None:
        for first in range(0, len(rows), LINK_BATCH):
            some = rows[first : first + LINK_BATCH]
            answer = await enqueue(p, [link for _, link in some])
            letters.update((at, letter) for (at, _), letter in zip(some, answer, strict=True))

    parts = list(by_partition.items())
    for first in range(0, len(parts), PARTITIONS_AT_ONCE):
        await asyncio.gather(*(send(p, rows) for p, rows in parts[first : first + PARTITIONS_AT_ONCE]))
    return "".join(letters[at] for at in range(len(letters)))


class Starts:
    """`read`: the links of an entry, ValueError says why it is no start URL. `widen`: is awaited before its links are sent. `arrived`: new
    URLs are in a partition. `enough`: is the worker to take no more? `asking`: may a batch have been given to it that it does not know of
    yet? `handing`: is one on its way into the frontier?"""

    def __init__(
        self,
        keys: Sequence[StartKey],
        frontier: Frontier,
        memory: MemoryWatch,
        *,
        most: int,
        read: Callable[[bytes], list[Link]],
        widen: Callable[[Sequence[Link]], Awaitable[None]],
        count: Callable[..., None],
        arrived: Callable[[int], None],
        enough: Callable[[], bool],
    ) -> None:
        self.asking = self.handing = False
        self._keys, self._frontier, self._memory, self._most = keys, frontier, memory, most
        self._read, self._widen, self._count, self._arrived, self._enough = read, widen, count, arrived, enough
        self._warned: set[Foreign] = set()
        self._said: set[str] = set()  # keys of which it was said that they hold what is no start URL
        self._rng = random.Random()

    async def anything_outside(self) -> bool:
        """Start URLs that the frontier does not have yet, in a key or in a worker's hands."""
        return any([await key.holds() for key in self._keys])

    async def take_forever(self) -> None:
        while not self._enough():
            taken = [await self._take(key) for key in self._keys]
            if not any(taken):
                await asyncio.sleep(POLL_S * self._rng.uniform(1, 1.5))

    async def _take(self, key: StartKey) -> bool:
        await self._memory.room()
        if self._enough():
            return False
        self.asking = True
        try:
            taken = await key.take(self._most, self._frontier.limits.lease_s)
            self.handing = isinstance(taken, Batch)
        except FrontierFull:
            self._memory.refused()
            return False
        finally:
            self.asking = False
        if isinstance(taken, Batch):
            try:
                await self._hand_over(key, taken)
            finally:
                self.handing = False
            return True
        if taken:
            self._count("start_urls/foreign")
            if taken not in self._warned:
                self._warned.add(taken)
                wanted = key.wanted if taken.key == key.key else "a key of ours"
                logger.warning("%s is of type %s, wanted: %s; no start URLs are taken while it is", taken.key, taken.kind, wanted)
        return False

    async def _hand_over(self, key: StartKey, batch: Batch) -> None:
        """The batch is kept while that takes time: nobody else needs to take it over."""
        lasts_s = self._frontier.limits.lease_s
        work = asyncio.ensure_future(self._enqueue(key, batch))
        try:
            while not (await asyncio.wait({work}, timeout=lasts_s / 3))[0]:
                await key.keep(batch, lasts_s)
            await work
        finally:
            work.cancel()

    async def _enqueue(self, key: StartKey, batch: Batch) -> None:
        links: list[Link] = []
        source: list[int] = []  # index of the entry, of each link
        bad: dict[int, str] = {}
        for at, entry in enumerate(batch.entries):
            if at % READ_AT_ONCE == READ_AT_ONCE - 1:
                await asyncio.sleep(0)
            try:
                if isinstance(entry, int):
                    raise ValueError(f"{entry} bytes")
                found = self._read(entry)
            except ValueError as e:
                bad[at] = str(e)
                continue
            links += found
            source += [at] * len(found)
        await self._widen(links)
        letters = await place(links, self._frontier.partition_of, self._send)
        bad |= {at: "cannot be an entry" for at, letter in zip(source, letters, strict=True) if letter == "q"}
        self._count("seeds", len(links))
        self._count("seeds/new", sum(letter == "n" and link.how == EXACT for link, letter in zip(links, letters, strict=True)))
        self._count("links/enqueued", letters.count("n"))
        self._count("links/seen", letters.count("s"))
        self._count("start_urls/malformed", await key.drop(batch, bad))
        self._count("start_urls/taken", len(batch.entries))
        if bad and key.key not in self._said:
            self._said.add(key.key)
            why = next(iter(bad.values()))
            logger.warning("%s holds what is no start URL (%s): such entries are moved to %s (said once)", key.key, why, key.quarantine)

    async def _send(self, p: int, links: list[Link]) -> str:
        while True:
            await self._memory.room()
            try:
                answer = await self._frontier.enqueue(p, links, can_wait=not self._memory.stopped)
            except FrontierFull:
                self._memory.refused()
                continue
            if "n" in answer:
                self._arrived(p)
            return answer
