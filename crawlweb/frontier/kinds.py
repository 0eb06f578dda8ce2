"""Keys under the crawl's names that are not the crawl's: of another type than the table of keys says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .keys import KEYS, crawl_key

if TYPE_CHECKING:
    from .frontier import Frontier

SHOWN = 5
_AT_ONCE = 32
_CRAWL = {row.name: row.kind for row in KEYS if row.scope == "crawl" and "<" not in row.name}
_PARTITION = {row.name: row.kind for row in KEYS if row.scope == "partition" and "<" not in row.name}
_PARTITION |= {f"front:{k}": "list" for k in range(10)}


async def refuse_foreign_crawl(frontier: Frontier) -> None:
    """ConfigError names keys of the whole crawl that are of another type. Reads only."""
    _refuse(await _differences(frontier, {crawl_key(frontier.crawl, name): kind for name, kind in _CRAWL.items()}))


async def refuse_foreign_partitions(frontier: Frontier, partitions: int) -> None:
    """The same for the fixed keys of partitions. What comes into the way later, or under the name of a host or URL, is moved aside by the
    steps (lua/common.lua)."""

    async def of_partition(p: int) -> list[str]:
        return await _differences(frontier, {frontier.key(p, name): kind for name, kind in _PARTITION.items()})

    found: list[str] = []
    for first in range(0, partitions, _AT_ONCE):
        some = range(first, min(first + _AT_ONCE, partitions))
        found += [text for texts in await asyncio.gather(*map(of_partition, some)) for text in texts]
    _refuse(found)


def _refuse(found: list[str]) -> None:
    if found:
        more = f"; and {len(found) - SHOWN} more keys" if len(found) > SHOWN else ""
        raise ConfigError(f"{'; '.join(found[:SHOWN])}{more}: not of this crawl: rename or delete, or set CRAWLWEB_CRAWL to another name")


async def _differences(frontier: Frontier, wanted: Mapping[str, str]) -> list[str]:
    """Of keys of one slot, key → type."""
    rows = zip(wanted.items(), await frontier.at_once(*(("TYPE", key) for key in wanted)), strict=True)
    kinds = ((key, kind, is_of.decode(errors="replace")) for (key, kind), is_of in rows if isinstance(is_of, bytes))
    return [f"the key {key} is of type {is_of}, wanted: {kind}" for key, kind, is_of in kinds if is_of not in (kind, "none")]
