"""max_pages as one worker sees it: permits for what it leases, and a word from Redis before a page is stored.

A permit keeps workers from fetching what would not count; it lasts as long as a lease and may run out. What is hard is the word: a page
counts (lua/pages.lua) before anything of it is stored, or nothing of it is. A page that counts is stored and published, by this worker or,
if it dies, by whoever gets its URL then: the crawl ends when the limit is reached and all pages that count are complete.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from .frontier.meta import Meta, Room
from .frontier.rows import Lease, Outcome

PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 1.0
REFUSED = (("l", 1.0), ("w", 4.0))  # in turn, where a URL finds no room: the host rests, or the URL waits and another of its host is next
TRIED = 64  # leases at a time while there is no room: one may be of a page that counts already, whose worker died
FINAL = "dxnq"  # ways to end a lease after which its URL does not come back
BATCH = 200


class PageLimit:
    """`most` pages. `spawn`: starts a task of the worker's."""

    def __init__(self, meta: Meta, most: int, url_key: Callable[[str], bytes], spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self.full = False  # as many pages as may be are complete
        self.leases = TRIED  # that may be asked for at a time
        self._meta, self._most, self._url_key, self._spawn = meta, most, url_key, spawn
        self._pause_s: float | None = None  # there is no room; None: not known
        self._keys: dict[str, bytes] = {}  # of leases, by token
        self._counted: set[str] = set()  # tokens of those whose page counts
        self._asked: deque[tuple[bytes, asyncio.Future[bool]]] = deque()
        self._asking = False
        self._tries = 0

    async def room(self) -> None:
        """Before leases are asked for. Returns at once while there is room, after a pause where there was none a moment ago."""
        if self._pause_s == 0.0:
            return
        pause_s = self._pause_s or 0.0
        await asyncio.sleep(pause_s)
        self._learn(await self._meta.permits(self._most, []))
        if self._pause_s:
            self._pause_s = min(2 * max(pause_s, PAUSE_MIN_S), PAUSE_MAX_S)

    async def look(self) -> None:
        """Others may have stored the last page."""
        self._learn(await self._meta.permits(self._most, []))

    async def admit(self, leases: Sequence[Lease]) -> list[Outcome]:
        """Takes permits. Returns the outcomes of the leases that get none."""
        keys = [self._url_key(lease.entry.url) for lease in leases]
        room = await self._meta.permits(self._most, keys)
        self._learn(room)
        self._tries += 1
        way, wait_s = REFUSED[self._tries % 2]
        refused = []
        for lease, key, allowed in zip(leases, keys, room.allowed, strict=True):
            if allowed:
                self._keys[lease.token] = key
            else:
                refused.append(Outcome(lease, way, wait_s=wait_s))
        return refused

    async def renew(self, leases: Iterable[Lease]) -> None:
        """As long as the leases."""
        keys = [self._keys[lease.token] for lease in leases if lease.token in self._keys and lease.token not in self._counted]
        if keys:
            self._learn(await self._meta.permits(self._most, keys))

    async def replay(self) -> None:
        """After a restart of Redis that may have lost its last seconds."""
        self._learn(await self._meta.replay(self._most))
        self._learn(await self._meta.permits(self._most, list(self._keys.values())))

    async def counts(self, lease: Lease) -> bool:
        """Does the page of a lease count? To be asked before it is stored. False too where Redis cannot be asked any more."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked.append((self._keys.get(lease.token) or self._url_key(lease.entry.url), answer))
        if not self._asking:
            self._asking = True
            self._spawn(self._ask())
        counts = await answer
        if counts:
            self._counted.add(lease.token)
        return counts

    async def _ask(self) -> None:
        some: list[tuple[bytes, asyncio.Future[bool]]] = []
        try:
            while self._asked:
                some = [self._asked.popleft() for _ in range(min(BATCH, len(self._asked)))]
                room = await self._meta.spend(self._most, [key for key, _ in some])
                self._learn(room)
                for (_, answer), counts in zip(some, room.allowed, strict=True):
                    if not answer.done():
                        answer.set_result(counts)
        finally:
            self._asking = False
            for _, answer in (*some, *self._asked):
                if not answer.done():
                    answer.set_result(False)
            self._asked.clear()

    async def end(self, outcomes: Iterable[Outcome]) -> None:
        """Before leases end: gives back what they held, unless somebody else has the URL. After a crash in between the page is fetched
        again, and the end of the crawl does not wait for that: it is stored and published."""
        complete, unused = [], []
        for outcome in outcomes:
            lease = outcome.lease
            key, counted = self._keys.pop(lease.token, None), lease.token in self._counted
            self._counted.discard(lease.token)
            if key is not None and not lease.is_gone:
                if outcome.way in FINAL:
                    complete.append(key)
                if not counted:
                    unused.append(key)
        if complete or unused:
            self._learn(await self._meta.end_pages(self._most, complete, unused))

    def _learn(self, room: Room) -> None:
        self.full = room.stored >= self._most and not room.unfinished
        self.leases = max(TRIED, room.free)
        self._pause_s = 0.0 if room.free > 0 else self._pause_s or PAUSE_MIN_S
