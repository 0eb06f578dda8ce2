"""What belongs to the whole crawl: the values that all workers must share, who is seeding, the scope, the limit of pages."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from redis.asyncio import Redis

from ..default_settings import MOST_FALSE_POSITIVES, MOST_PAGES, MOST_PARTITIONS, SEEN
from ..errors import ConfigError
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

# KEYS: meta. ARGV: name, value, … Those that are there stay.
_AGREE = """
for i = 1, #ARGV, 2 do redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1]) end
"""
# KEYS: seeding. ARGV: seconds from now until which a word may last.
_SEEDING = """
local now = redis.call('TIME')[1]
return redis.call('ZCOUNT', KEYS[1], now, now + ARGV[1])
"""
# KEYS: seeding. ARGV: worker, seconds. Passes when Redis is full (common.lua): workers say it between renewals.
_SAY_SEEDING = """
redis.call('PERSIST', KEYS[1])
return redis.call('ZADD', KEYS[1], redis.call('TIME')[1] + ARGV[2], ARGV[1])
"""


def _refuse_other_schema(crawl: str, have: Mapping[str, str]) -> None:
    if have.get("schema") != str(SCHEMA):
        found = f"schema {have['schema'][:20]!r}" if "schema" in have else "a meta key without schema"
        by = f" of crawlweb {have['release'][:20]!r}" if "release" in have else ""
        raise ConfigError(
            f"the crawl {crawl!r} has {found}{by}; this release reads schema {SCHEMA}: finish it with the release that began it, or "
            f"delete it with `crawlweb purge {crawl}`"
        )


@dataclass(frozen=True, slots=True)
class Agreed:
    """What the workers of a crawl agreed on. `max_pages`, `max_depth`: None for no limit; `spill`: id of the store of chunks."""

    partitions: int = 64
    min_delay_s: float = 1.0
    latency_factor: float = 10.0
    ip_delay_s: float = 0.5
    seen: str = OLDER["seen"]
    false_positives: float = float(OLDER["false_positives"])
    scope: str = "any"
    max_pages: int | None = None
    max_depth: int | None = None
    spill: str = ""
    canonical: str = ""

    @classmethod
    def read(cls, crawl: str, have: Mapping[str, str]) -> Agreed:
        """Of the crawl's meta key; ConfigError, one line, for another release's or what no release writes."""
        _refuse_other_schema(crawl, have)
        values = {}
        for name, read in _READ.items():
            if name in have or name == "partitions":
                try:
                    values[name] = read(have.get(name, ""))
                except ValueError:
                    raise ConfigError(
                        f"the crawl {crawl!r} was begun with {name}={have.get(name, '')[:40]!r}, which no release writes: set it right in "
                        f"the hash {crawl_key(crawl, 'meta')}, or delete the crawl with `crawlweb purge {crawl}`"
                    ) from None
        return cls(**values)


def _natural(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or not least <= (number := int(text[:20])) <= most:
            raise ValueError(text)
        return number

    return read


def _number(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        number = float(text)
        if not math.isfinite(number) or not least <= number <= most:
            raise ValueError(text)
        return number

    return read


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return read


def _or_none(read: Callable[[str], int]) -> Callable[[str], int | None]:
    return lambda text: read(text) if text else None


_READ: Mapping[str, Callable[[str], Any]] = {
    "partitions": _natural(1, MOST_PARTITIONS),
    "min_delay_s": _number(0, math.inf),
    "latency_factor": _number(0, math.inf),
    "ip_delay_s": _number(0, math.inf),
    "seen": _one_of(*SEEN),
    "false_positives": _number(1e-6, MOST_FALSE_POSITIVES),
    "scope": _one_of("any", "domain", "host"),
    "max_pages": _or_none(_natural(1, MOST_PAGES)),
    "max_depth": _or_none(_natural(0, MOST_PAGES)),
    "spill": str,
    "canonical": str,
}


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
        self._agreed: dict[str, str] = {}
        self._spent: deque[tuple[float, bytes]] = deque()  # boottime, key of a page
        self._ended: deque[tuple[float, bytes]] = deque()
        self._kept_spent: list[bytes] = []  # when a server changed
        self._kept_ended: list[bytes] = []

    def _key(self, name: str) -> str:
        return crawl_key(self._frontier.crawl, name)

    async def agree(self, wanted: Mapping[str, str], explicit: Mapping[str, str]) -> dict[str, str]:
        """The values of the crawl: the first worker's. `explicit`: name here → the setting or argument that somebody typed;
        ConfigError if the crawl has another value for one of those, before anything is written."""
        wanted = {"schema": str(SCHEMA), **wanted}

        def refuse(have: dict[str, str]) -> None:
            for name, value in have.items():
                if name in wanted and value != wanted[name] and name in explicit:
                    raise ConfigError(
                        f"{explicit.get(name, name)}={wanted[name]}: the crawl {self._frontier.crawl!r} was begun with {value}"
                    )

        have = await self._all()
        if have:
            _refuse_other_schema(self._frontier.crawl, have)
            have = {**{name: value for name, value in OLDER.items() if name in wanted}, **have}
        refuse(have)
        if not set(wanted) <= set(have):
            pairs = [word for name, value in wanted.items() for word in (name, have.get(name, value))]
            await self._frontier.patiently(lambda: cast(Any, self._redis.eval(_AGREE, 1, self._key("meta"), *pairs)))
            have = await self._all()
            _refuse_other_schema(self._frontier.crawl, have)
            refuse(have)
        self._agreed = have
        return have

    async def agreed(self) -> Agreed | None:
        """None: no worker has begun the crawl. ConfigError as of `Agreed.read`."""
        have = await self._all()
        return Agreed.read(self._frontier.crawl, have) if have else None

    async def value(self, name: str) -> str | None:
        return (await self._all()).get(name)

    async def _all(self) -> dict[str, str]:
        raw = await self._frontier.patiently(lambda: cast(Any, self._redis.hgetall(self._key("meta"))))
        return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in raw.items()}

    async def _typed(self, name: str, command: str, call: Callable[[], Awaitable[T]]) -> T:
        return await self._frontier.undisturbed(call, {self._key(name): command})

    async def say_seeding(self, seeding: bool) -> None:
        """Keeps the crawl from ending while this worker reads seeds."""
        worker, key = self._frontier.worker, self._key("seeding")
        if seeding:
            await self._typed("seeding", "ZCARD", lambda: cast(Any, self._redis.eval(_SAY_SEEDING, 1, key, worker, SEEDING_S)))
        else:
            await self._typed("seeding", "ZCARD", lambda: self._redis.zrem(key, worker))

    async def anyone_seeding(self) -> bool:
        seconds = round(10 * SEEDING_S)  # what is further away is no worker's word
        return bool(await self._typed("seeding", "ZCARD", lambda: cast(Any, self._redis.eval(_SEEDING, 1, self._key("seeding"), seconds))))

    async def tell_again(self) -> None:
        """What a server that lost its last seconds may lack."""
        if self._agreed:
            pairs = [text for pair in self._agreed.items() for text in pair]
            await self._frontier.patiently(lambda: cast(Any, self._redis.eval(_AGREE, 1, self._key("meta"), *pairs)))
        await self._add_to_scope(list(self.scope))

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
        _remember(self._spent, [key for key, ok in zip(keys, room.allowed, strict=True) if ok])
        return room

    def server_changed(self) -> None:
        """Keeps what it may have lost until it is told again; what it answers first would make us forget."""
        self._kept_spent += [key for _, key in self._spent]
        self._kept_ended += [key for _, key in self._ended]

    async def replay(self, max_pages: int) -> Room:
        """After a restart of Redis: what this worker spent lately counts, known or not, and what it has completed is complete."""
        kept, self._kept_spent = self._kept_spent, []
        room = await self._pages("again", max_pages, [*dict.fromkeys([*kept, *(key for _, key in self._spent)])])
        kept, self._kept_ended = self._kept_ended, []
        ended = [*kept, *(key for _, key in self._ended)]  # as of now: some may have been completed meanwhile
        return room._replace(unfinished=(await self._pages("end", max_pages, ended)).unfinished) if ended else room

    async def end_pages(self, max_pages: int, complete: Sequence[bytes], unused: Sequence[bytes]) -> Room:
        """Pages that count and are complete; permits that were not needed."""
        if complete or not unused:
            room = await self._pages("end", max_pages, complete)
            _remember(self._ended, complete)
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


def _remember(journal: deque[tuple[float, bytes]], keys: Iterable[bytes]) -> None:
    """What was acknowledged now; forgets what is older than REPLAYED_S."""
    now = boottime()
    while journal and journal[0][0] < now - REPLAYED_S:
        journal.popleft()
    journal.extend((now, key) for key in keys)
