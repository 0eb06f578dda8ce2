"""Start URLs that others put into a key of Redis: taken in batches that outlive their worker, dropped once the frontier has them.

scrapy-redis removes a batch, then queues it: what a worker dies with in between is lost. Here an entry moves into a batch beside the key,
in one step (lua/starts.lua), and goes with `drop`. A batch whose worker died is another's after a while: at least once, and the exact set
of seeds makes it once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from . import scripts
from .frontier import Frontier
from .keys import crawl_key

MOST = 500  # entries of a batch: a call stays under 2 ms


def beside(key: str, crawl: str) -> str:
    """What our keys beside a key of start URLs begin with: in its cluster slot (Redis Cluster specification, "Hash tags"). ConfigError
    if no name can be."""
    _, brace, rest = key.partition("{")
    tag, closing, _ = rest.partition("}")
    if brace and closing and tag:
        return f"{key}:{crawl}:"
    if "}" in key:
        raise ConfigError(f"REDIS_START_URLS_KEY={key}: a brace that closes, without a hash tag in front of it")
    return f"{{{key}}}:{crawl}:"


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries in a worker's hands; a number: the length in bytes of one that is too long to be read."""

    name: str
    entries: list[bytes | int]


@dataclass(frozen=True, slots=True)
class Foreign:
    """A key of a type that cannot hold what is sought there."""

    key: str
    kind: str


class StartKey:
    """`kind`: the type that it must have, empty: list, set or zset. FrontierFull where Redis is full and nothing was taken."""

    def __init__(self, frontier: Frontier, key: str, *, kind: str = "", prefix: str = "") -> None:
        self.key, self.kind = key, kind
        self._frontier = frontier
        self.prefix = prefix or beside(key, frontier.crawl)
        self._numbers = itertools.count(1)

    @property
    def wanted(self) -> str:
        return self.kind or "list, set or zset"

    @property
    def quarantine(self) -> str:
        """The list of entries that are no start URLs: `reason \\t entry`."""
        return f"{self.prefix}quarantine"

    async def take(self, most: int, lasts_s: float) -> Batch | Foreign | None:
        name = f"{self._frontier.worker}:{next(self._numbers)}"
        answer = await self._call("take", name, min(most, MOST), round(lasts_s * 1000), can_wait=True)
        if foreign := _foreign(answer):
            return foreign
        return Batch(answer[0].decode(), answer[1]) if answer[0] else None

    async def keep(self, batch: Batch, lasts_s: float) -> None:
        await self._call("keep", batch.name, round(lasts_s * 1000))

    async def drop(self, batch: Batch, bad: Mapping[int, str]) -> int:
        """The frontier has what was good. `bad`: index → why it is no start URL. How many went to quarantine: none if the batch was
        dropped before."""
        rows = [part for index, reason in bad.items() for part in (index, " ".join(reason.split())[:200])]
        return int(await self._call("drop", batch.name, *rows))

    async def holds(self) -> bool:
        """Are start URLs in the key, or in a worker's hands?"""
        return bool(await self._call("look") == 1)

    async def _call(self, *args: str | int, can_wait: bool = False) -> Any:
        frontier = self._frontier
        return await frontier.patiently(
            lambda: scripts.run(frontier.redis, "starts", self.key, self.prefix, self.kind, *args), can_wait=can_wait
        )


def _foreign(answer: list[Any]) -> Foreign | None:
    return Foreign(*(text.decode(errors="replace") for text in answer)) if len(answer) == 2 and isinstance(answer[1], bytes) else None


def inbox(frontier: Frontier) -> StartKey:
    """Seeds that were given before the crawl's first worker."""
    key = crawl_key(frontier.crawl, "inbox")
    return StartKey(frontier, key, kind="list", prefix=f"{key}:")
