"""What belongs to the whole crawl: the values that all workers must share, who is seeding, the scope, the limit of pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from redis.asyncio import Redis

from ..default_settings import MOST_FALSE_POSITIVES, MOST_PAGES, MOST_PARTITIONS, SEEN
from ..errors import ConfigError
from .frontier import Frontier
from .keys import SCHEMA, crawl_key

OLDER = {"seen": "bloom", "false_positives": "0.001"}  # what releases did that did not write it
SEEDING_S = 15.0  # a worker that reads seeds says so again within this
_SCOPE_BATCH = 1000

# max_pages. KEYS: pages, permits. ARGV: most pages, ms that a permit lasts, URL keys (8 bytes) …
# A key that was stored or holds a permit needs none.
_PERMIT = """
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
local free = tonumber(ARGV[1]) - redis.call('SCARD', KEYS[1]) - redis.call('ZCARD', KEYS[2])
local out = {}
for i = 3, #ARGV do
  local known = redis.call('SISMEMBER', KEYS[1], ARGV[i]) == 1 or redis.call('ZSCORE', KEYS[2], ARGV[i])
  if not known and free > 0 then free = free - 1 known = true end
  if known and redis.call('SISMEMBER', KEYS[1], ARGV[i]) == 0 then redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[i]) end
  out[#out + 1] = known and 'y' or 'n'
end
return {table.concat(out), redis.call('SCARD', KEYS[1])}
"""
# KEYS: pages, permits. ARGV: url keys whose page is stored. Passes when Redis is full: it begins with a write that takes none (common.lua).
_SPEND = """
redis.call('PERSIST', KEYS[1])
for i = 1, #ARGV do
  redis.call('SADD', KEYS[1], ARGV[i])
  redis.call('ZREM', KEYS[2], ARGV[i])
end
return redis.call('SCARD', KEYS[1])
"""
# KEYS: meta. ARGV: name, value, … Those that are there stay.
_AGREE = """
for i = 1, #ARGV, 2 do redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1]) end
"""
# KEYS: seeding.
_SEEDING = """
return redis.call('ZCOUNT', KEYS[1], redis.call('TIME')[1], '+inf')
"""
# KEYS: seeding. ARGV: worker, seconds. Passes when Redis is full, as above: workers say it between renewals.
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


class Meta:
    """The crawl-wide keys, through the frontier's client."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._redis: Redis = frontier.redis
        self.scope: set[str] = set()
        self._agreed: dict[str, str] = {}
        self._widened: set[str] = set()  # names that this worker added to the scope

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

    async def say_seeding(self, seeding: bool) -> None:
        """Keeps the crawl from ending while this worker reads seeds."""
        worker, key = self._frontier.worker, self._key("seeding")
        if seeding:
            await self._frontier.patiently(lambda: cast(Any, self._redis.eval(_SAY_SEEDING, 1, key, worker, SEEDING_S)))
        else:
            await self._frontier.patiently(lambda: self._redis.zrem(key, worker))

    async def anyone_seeding(self) -> bool:
        return bool(await self._frontier.patiently(lambda: cast(Any, self._redis.eval(_SEEDING, 1, self._key("seeding")))))

    async def tell_again(self) -> None:
        """What a server that lost its last seconds may lack."""
        if self._agreed:
            pairs = [text for pair in self._agreed.items() for text in pair]
            await self._frontier.patiently(lambda: cast(Any, self._redis.eval(_AGREE, 1, self._key("meta"), *pairs)))
        await self._add_to_scope(list(self._widened))

    async def widen_scope(self, names: Iterable[str]) -> None:
        new = [name for name in names if name not in self.scope]
        await self._add_to_scope(new)
        self.scope.update(new)
        self._widened.update(new)

    async def _add_to_scope(self, names: list[str]) -> None:
        for first in range(0, len(names), _SCOPE_BATCH):
            batch = names[first : first + _SCOPE_BATCH]
            await self._frontier.patiently(partial(self._redis.sadd, self._key("scope"), *batch))

    async def refresh_scope(self) -> None:
        """Takes up what other workers' seeds added."""
        size = await self._frontier.patiently(lambda: cast(Any, self._redis.scard(self._key("scope"))))
        cursor = None if size == len(self.scope) else 0
        while cursor is not None:
            scan = partial(self._redis.sscan, self._key("scope"), cursor, count=_SCOPE_BATCH)
            cursor, names = cast(Any, await self._frontier.patiently(scan))
            self.scope.update(name.decode() for name in names)
            cursor = cursor or None

    async def permits(self, max_pages: int, keys: list[bytes], lease_s: float) -> tuple[list[bool], int]:
        """May these URLs be fetched without going over `max_pages`? And how many pages are stored."""
        args: list[Any] = [self._key("pages"), self._key("permits"), max_pages, round(lease_s * 2000), *(key[:8] for key in keys)]
        answer = await self._frontier.patiently(lambda: cast(Any, self._redis.eval(_PERMIT, 2, *args)))
        return [letter == "y" for letter in answer[0].decode()], int(answer[1])

    async def stored(self) -> int:
        """Pages that count for `max_pages`."""
        return int(await self._frontier.patiently(lambda: cast(Any, self._redis.scard(self._key("pages")))))

    async def spend(self, stored: list[bytes], unused: list[bytes]) -> None:
        """Turns the permits of stored pages into pages, and gives the unused ones back."""
        pages, permits = self._key("pages"), self._key("permits")
        if stored:
            args = [key[:8] for key in stored]
            await self._frontier.patiently(lambda: cast(Any, self._redis.eval(_SPEND, 2, pages, permits, *args)))
        if unused:
            members = [key[:8] for key in unused]
            await self._frontier.patiently(lambda: self._redis.zrem(permits, *members))
