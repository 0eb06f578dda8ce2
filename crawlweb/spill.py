"""Long queues to disk and back: what a worker does with the queues that a lease names (frontier/lua/cold.lua), and with files nobody uses.

Order of a chunk's life: file durable → swapped in for its entries → entries back, in steps → an hour later, file deleted. A crash between
any two of them leaves a file too many, never one too few; Redis may come back a little older than it was, and finds its files.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from .errors import StoreError
from .frontier.cold import ColdQueues, Parts, day_of
from .frontier.frontier import Frontier
from .frontier.pages import AHEAD_S, DAY_S, KEY_BYTES
from .records import boottime
from .store.chunks import ChunkCorrupt, ChunkMissing, ChunkStore, chunk_name

logger = logging.getLogger(__name__)

LONG_CHUNKS = 3  # a queue of so many chunks' entries is long
SCARCE_PART = 5  # chunks are so many times smaller while memory is scarce
LATER_PART = 20  # chunks of pages that are due in days are so many times smaller, for there are many such queues
LOW_PART = 5  # the next chunk is read when the head has less than this part of one
AT_ONCE = 4
AGAIN_S = 10.0  # after the store failed
READ_TRIES = 3
READ_PAUSE_S = 1.0
KEPT_S = 3600.0  # a file outlives its use by this, and an unused one lives so long
SWEEP_S = 600.0
LEVEL_S = 2.0


class Spill:
    """`scarce`: memory is; `full`: nothing is brought in. `run` starts a task of the worker's."""

    def __init__(
        self,
        frontier: Frontier,
        store: ChunkStore,
        *,
        chunk_entries: int,
        count: Callable[..., None],
        run: Callable[[Coroutine[Any, Any, None]], None],
        scarce: Callable[[], bool] = lambda: False,
        full: Callable[[], bool] = lambda: False,
    ) -> None:
        self.store, self.cold = store, ColdQueues(frontier)
        self._frontier, self._chunk_entries, self._count, self._run = frontier, chunk_entries, count, run
        self._scarce, self._full = scarce, full
        self._numbers = itertools.count(1)
        self._busy: set[tuple[int, str]] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._warned = -AGAIN_S
        frontier.see_to = self.see_to

    @property
    def chunk_entries(self) -> int:
        return max(1, self._chunk_entries // SCARCE_PART) if self._scarce() else self._chunk_entries

    def see_to(self, partition: int, queues: list[str]) -> None:
        for queue in queues:
            if (partition, queue) not in self._busy:
                self._busy.add((partition, queue))
                self._run(self._see_to(partition, queue))

    async def _see_to(self, p: int, queue: str) -> None:
        try:
            async with self._slots:
                await self.cold.done(p, queue, AGAIN_S if not await self.balance(p, queue) else 0.0)
        finally:
            self._busy.discard((p, queue))

    async def balance(self, p: int, queue: str) -> bool:
        """Moves what is too much in Redis to disk, and what is needed next back. False: the store failed, or memory is full."""
        day = day_of(queue)
        while True:
            parts, chunk = await self.cold.parts(p, queue), self.chunk_entries
            try:
                if day is not None and self._frontier.unix_now() < day * DAY_S - AHEAD_S:
                    if not await self._put_away(p, queue, parts, max(1, chunk // LATER_PART)):
                        return True
                elif parts.chunks and parts.head < max(1, chunk // LOW_PART):
                    if self._full():
                        return False
                    await self._bring_in(p, queue, parts)
                elif day is None and parts.tail >= (LONG_CHUNKS - 1) * chunk:
                    await self._take_out(p, queue, chunk)
                elif day is None and not parts.chunks and parts.head >= LONG_CHUNKS * chunk:
                    while await self.cold.cut(p, queue, chunk):
                        pass
                else:
                    return True
            except StoreError as e:
                self._count("spill/failed")
                if boottime() - self._warned >= AGAIN_S:
                    self._warned = boottime()
                    logger.warning("long queues stay where they are, again in %.0f s: %s", AGAIN_S, e)
                return False

    async def _put_away(self, p: int, queue: str, parts: Parts, entries: int) -> bool:
        """Pages of a day to come, with their records. False: there is nothing to do."""
        if parts.tail > entries:
            return await self._take_out(p, queue, entries)
        return not parts.chunks and parts.head >= entries and await self.cold.cut(p, queue, 0) > 0

    async def _take_out(self, p: int, queue: str, entries: int) -> bool:
        """False: the tail has become another."""
        serial, some = await self.cold.start_of_tail(p, queue, entries)
        if len(some) < entries:
            return False
        records: list[tuple[bytes, bytes]] = []
        if day_of(queue) is not None:
            packed = await self._frontier.packed_records(p, some)
            records = [(key, data) for key, data in zip(some, packed, strict=True) if len(key) == KEY_BYTES and data]
            some = [key + data if len(key) == KEY_BYTES and data else key for key, data in zip(some, packed, strict=True)]
        chunk = chunk_name(round(self._frontier.unix_now() * 1000), self._frontier.worker, next(self._numbers))
        written = await asyncio.to_thread(self.store.write, p, chunk, queue, some)
        if await self.cold.out(p, queue, chunk, some, serial):
            self._count("spill/chunks_out")
            self._count("spill/entries_out", len(some))
            self._count("spill/bytes_out", written)
            if records:
                await self._frontier.drop_records(p, records)
            return True
        await asyncio.to_thread(self.store.delete, p, chunk)
        return False

    async def _bring_in(self, p: int, queue: str, parts: Parts) -> None:
        try:
            entries = await self._read(p, parts.first, queue)
            if len(entries) != parts.size:
                raise ChunkCorrupt(f"chunk {parts.first} has {len(entries)} entries instead of {parts.size}")
        except (ChunkMissing, ChunkCorrupt) as e:
            if await self.cold.give_up(p, queue, parts.first):
                self._count("spill/unreadable", parts.size - parts.taken)
                logger.error("%d entries of %s are lost, the crawl goes on without them: %s", parts.size - parts.taken, queue, e)
            return
        if await self.cold.bring_in(p, queue, parts.first, entries, parts.taken):
            self._count("spill/chunks_in")

    async def _read(self, p: int, chunk: str, queue: str) -> list[bytes]:
        for left in reversed(range(READ_TRIES)):
            try:
                return await asyncio.to_thread(self.store.read, p, chunk, queue)
            except (ChunkMissing, ChunkCorrupt):
                if not left:
                    raise
            await asyncio.sleep(READ_PAUSE_S)
        raise AssertionError

    # -- what runs beside ---------------------------------------------------------------------------------------------

    async def tune_forever(self) -> None:
        """Tells the frontier from which length on a queue is long; while memory is scarce, looks for queues that have become so."""
        told = 0
        while True:
            wanted = LONG_CHUNKS * self.chunk_entries
            if wanted != told:
                for p in range(self._frontier.partitions):
                    if wanted < await self.cold.tune(p, wanted):
                        await self._look_for_long(p, wanted)
                told = wanted
            if self._full():  # no lease names a queue
                for p in range(self._frontier.partitions):
                    self.see_to(p, await self.cold.chores(p))
            await asyncio.sleep(LEVEL_S)

    async def _look_for_long(self, p: int, long_entries: int) -> None:
        await self.cold.look_for_days(p, int(self._frontier.unix_now()) // DAY_S + 1, max(1, long_entries // LONG_CHUNKS // LATER_PART))
        cursor = await self.cold.look_for_long(p, 0, long_entries)
        while cursor:
            cursor = await self.cold.look_for_long(p, cursor, long_entries)

    async def sweep_forever(self) -> None:
        while True:
            if await self.cold.my_turn(SWEEP_S):
                try:
                    for p in range(self._frontier.partitions):
                        await self.sweep(p)
                except StoreError as e:
                    logger.warning("unused chunks could not be looked for: %s", e)
            await asyncio.sleep(SWEEP_S)

    async def sweep(self, p: int) -> int:
        """Deletes the files that nobody needs, nor an older state of Redis would. How many."""
        before_ms = round((self._frontier.unix_now() - KEPT_S) * 1000)
        files = [chunk for made_ms, chunk in await asyncio.to_thread(self.store.chunks, p) if made_ms < before_ms]
        used_up = await self.cold.gone(p, before_ms)
        if files:
            in_use, gone = await self.cold.chunks(p), await self.cold.all_gone(p)
            unused = [chunk for chunk in files if chunk not in in_use and (chunk not in gone or chunk in used_up)]
        else:
            unused = []
        for chunk in unused:
            await asyncio.to_thread(self.store.delete, p, chunk)
        if used_up:
            await self.cold.forget(p, used_up)
        self._count("spill/deleted", len(unused))
        return len(unused)


async def record_in_chunks(cold: ColdQueues, store: ChunkStore, p: int, key: bytes) -> bytes | None:
    """The newest record of a page that is due in days, with its key on disk: all chunks of such pages of the partition are read.
    StoreError."""
    found: list[bytes] = []
    for chunk, (queue, taken, _) in (await cold.chunks(p)).items():
        if day_of(queue) is None:
            continue
        with contextlib.suppress(ChunkMissing, ChunkCorrupt):
            entries = await asyncio.to_thread(store.read, p, chunk, queue)
            found += [entry[KEY_BYTES:] for entry in entries[taken:] if entry.startswith(key) and len(entry) > KEY_BYTES]
    return max(found, default=None)
