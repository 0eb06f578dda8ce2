"""What belongs to the whole crawl: the values that all workers must share, who is seeding, the scope, the limit of pages."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from redis.asyncio import Redis

from ..errors import ConfigError, FrontierError
from ..records import boottime
from . import scripts
from .frontier import Frontier
from .keys import SCHEMA, crawl_key
from .rows import ms

logger = logging.getLogger(__name__)
T = TypeVar("T")

OLDER = {"seen": "bloom", "false_positives": "0.001"}  # what releases did that did not write it
SEEDING_S = 15.0  # a worker that reads seeds says so again within this
OPEN_S = 900.0  # a page that counts and is not complete, since its worker died, keeps the crawl from ending for so long
REPLAYED_S = 5.0
_SCOPE_BATCH = 1000
_KEYS_AT_ONCE = 1000

# KEYS: seeding. ARGV: worker, seconds. Passes when Redis is full (common.lua): workers say it between renewals.
_SAY_SEEDING = """
redis.call('PERSIST', KEYS[1])
return redis.call('ZADD', KEYS[1], redis.call('TIME')[1] + ARGV[2], ARGV[1])
"""


class Room(NamedTuple):
    """What max_pages leaves. `stored`: pages that count, `unfinished` of them are not complete; `free`: room for more URLs."""

    allowed: list[bool]
    stored: int
    unfinished: int
    free: int


class Meta:
    """The crawl-wide keys, through the frontier's client."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._redis: Redis = frontier.redis
        self.scope: set[str] = set()
        self._spent: deque[tuple[float, bytes]] = deque()  # boottime, key of a page

    def _key(self, name: str) -> str:
        return crawl_key(self._frontier.crawl, name)

    async def agree(self, wanted: Mapping[str, str], explicit: Mapping[str, str]) -> dict[str, str]:
        """The values of the crawl: the first worker's. `explicit`: name here → the setting or argument that somebody typed;
        ConfigError if the crawl has another value for one of those, before anything is written."""
        wanted = {"schema": str(SCHEMA), **wanted}

        def refuse(have: dict[str, str]) -> None:
            for name, value in have.items():
                if name in wanted and value != wanted[name] and (name in explicit or name == "schema"):
                    raise ConfigError(
                        f"{explicit.get(name, name)}={wanted[name]}: the crawl {self._frontier.crawl!r} was begun with {value}"
                    )

        have = await self._all()
        if have:
            have = {**{name: value for name, value in OLDER.items() if name in wanted}, **have}
        refuse(have)
        if not set(wanted) <= set(have):

            async def write() -> Any:
                pipe = self._redis.pipeline(transaction=True)
                for name, value in wanted.items():
                    pipe.hsetnx(self._key("meta"), name, have.get(name, value))
                return await pipe.execute()

            await self._frontier.patiently(write)
            have = await self._all()
            refuse(have)
        return have

    async def value(self, name: str) -> str | None:
        return (await self._all()).get(name)

    async def _all(self) -> dict[str, str]:
        raw = await self._frontier.patiently(lambda: cast(Any, self._redis.hgetall(self._key("meta"))))
        return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in raw.items()}

    async def _typed(self, name: str, command: str, call: Callable[[], Awaitable[T]]) -> T:
        """Makes a repeatable call on a key of which `command` tells the size. A key of another type is not ours: it is moved aside."""
        try:
            return await self._frontier.patiently(call)
        except FrontierError as e:
            if "WRONGTYPE" not in str(e):
                raise
        await self._frontier.patiently(lambda: scripts.run(self._redis, "typed", self._key(name), command))
        logger.error("%s was of another type, and is moved aside", self._key(name))
        return await self._frontier.patiently(call)

    async def say_seeding(self, seeding: bool) -> None:
        """Keeps the crawl from ending while this worker reads seeds."""
        worker, key = self._frontier.worker, self._key("seeding")
        if seeding:
            await self._typed("seeding", "ZCARD", lambda: cast(Any, self._redis.eval(_SAY_SEEDING, 1, key, worker, SEEDING_S)))
        else:
            await self._typed("seeding", "ZCARD", lambda: self._redis.zrem(key, worker))

    async def anyone_seeding(self) -> bool:
        seconds, _ = await self._frontier.patiently(lambda: cast(Any, self._redis.time()))
        latest = seconds + 10 * SEEDING_S  # what is further away is no worker's word
        return bool(await self._typed("seeding", "ZCARD", lambda: self._redis.zcount(self._key("seeding"), seconds, latest)))

    async def widen_scope(self, names: Iterable[str]) -> None:
        new = [name for name in names if name not in self.scope]
        await self._add_to_scope(new)
        self.scope.update(new)

    async def _add_to_scope(self, names: list[str]) -> None:
        for first in range(0, len(names), _SCOPE_BATCH):
            batch = names[first : first + _SCOPE_BATCH]
            await self._typed("scope", "SCARD", partial(self._redis.sadd, self._key("scope"), *batch))

    async def refresh_scope(self) -> None:
        """Takes up what other workers' seeds added, and adds what is missing there."""
        key = self._key("scope")
        size = await self._typed("scope", "SCARD", lambda: cast(Any, self._redis.scard(key)))
        if size < len(self.scope):
            await self._add_to_scope(list(self.scope))
        cursor = None if size == len(self.scope) else 0
        while cursor is not None:
            scan = partial(self._redis.sscan, key, cursor, count=_SCOPE_BATCH)
            cursor, names = cast(Any, await self._frontier.patiently(scan))
            for name in names:
                try:
                    self.scope.add(name.decode())
                except UnicodeDecodeError:
                    logger.error("%r in %s is not ours, and is taken out", name[:100], key)
                    await self._frontier.patiently(partial(cast(Any, self._redis.srem), key, name))
            cursor = cursor or None

    # -- max_pages: lua/pages.lua ------------------------------------------------------------------------------------------

    async def permits(self, max_pages: int, keys: Sequence[bytes]) -> Room:
        """May these URLs be fetched without going over `max_pages`? A permit lasts as long as a lease; asking again renews it."""
        return await self._pages("permit", max_pages, keys)

    async def spend(self, max_pages: int, keys: Sequence[bytes]) -> Room:
        """Pages that are about to be stored: those allowed count from now on, whatever happens to this worker."""
        room = await self._pages("spend", max_pages, keys)
        now = boottime()
        while self._spent and self._spent[0][0] < now - REPLAYED_S:
            self._spent.popleft()
        self._spent.extend((now, key) for key, ok in zip(keys, room.allowed, strict=True) if ok)
        return room

    async def replay(self, max_pages: int) -> Room:
        """After a restart of Redis: what this worker spent lately counts, known or not."""
        since = boottime() - REPLAYED_S
        return await self._pages("again", max_pages, [key for at, key in self._spent if at >= since])

    async def end_pages(self, max_pages: int, complete: Sequence[bytes], unused: Sequence[bytes]) -> Room:
        """Pages that count and are complete; permits that were not needed."""
        if complete or not unused:
            room = await self._pages("end", max_pages, complete)
        if unused:
            room = await self._pages("free", max_pages, unused)
        return room

    async def _pages(self, what: str, max_pages: int, keys: Sequence[bytes]) -> Room:
        frontier, letters = self._frontier, ""
        for first in range(0, max(1, len(keys)), _KEYS_AT_ONCE):
            some = [key[:8] for key in keys[first : first + _KEYS_AT_ONCE]]
            args: list[bytes | str | int] = [what, max_pages, ms(frontier.limits.lease_s), ms(OPEN_S), *some]
            run = partial(scripts.run, self._redis, "pages", self._key("pages"), *args)
            answer, stored, unfinished, free = await frontier.patiently(run)
            letters += answer.decode()
        return Room([letter == "y" for letter in letters], int(stored), int(unfinished), int(free))
