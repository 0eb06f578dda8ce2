"""Deletes a crawl from Redis: every key of it and none of another's."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from redis.asyncio import Redis

from .frontier import Frontier
from .keys import crawl_key, is_key_of
from .members import Members
from .totals import overview

_SCANNED = 1000  # keys looked at in a call
_UNLINKED = 500


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a crawl has. `pages`: stored by its workers; `spill`: the store of its chunks, '': it has none."""

    pending: int
    seen: int
    pages: int
    spill: str


async def known(redis: Redis, crawl: str, worker: str) -> Frontier | None:
    """The frontier of a crawl of any release, as far as it can be read; None if there is no such crawl. Errors end what is done."""
    frontier = Frontier(redis, crawl, 1, worker)
    frontier.closing = True
    meta = await _meta(frontier)
    if not meta:
        return None
    text = meta.get("partitions", "")
    frontier.partitions = int(text) if re.fullmatch(r"[1-9]\d{0,5}", text) else 1
    return frontier


async def holdings(frontier: Frontier) -> Holdings:
    async def seen(partition: int) -> int:
        layers, exact = await frontier.at_once(
            ("HGETALL", frontier.key(partition, "bloom")), ("HGET", frontier.key(partition, "seen"), "u")
        )
        pairs = zip(layers[::2], layers[1::2], strict=False) if isinstance(layers, list) else ()
        used = sum(int(n) for name, n in pairs if re.fullmatch(rb"u\d+", name) and n.isdigit())
        return max(used, int(exact) if isinstance(exact, bytes) and exact.isdigit() else 0)  # where both are, seeds are in both

    found = await overview(frontier)
    total = 0
    for first in range(0, frontier.partitions, 32):
        total += sum(await asyncio.gather(*map(seen, range(first, min(first + 32, frontier.partitions)))))
    return Holdings(found.pending, total, found.sums.get("crawlweb/pages", 0), (await _meta(frontier)).get("spill", ""))


async def living_workers(frontier: Frontier) -> list[str]:
    """Each with its process and machine."""
    members = Members(frontier)
    names, rows = await members.living(), await members.rows()
    return [f"{name} (process {rows.get(name, {}).get('pid')} on {rows.get(name, {}).get('host')})" for name in names]


async def delete_keys(frontier: Frontier, nodes: Sequence[Redis], deleted: Callable[[int], None] = lambda _: None) -> int:
    """All keys but `meta`, which goes last (`delete_meta`): until then there is a crawl to purge. How many; `deleted`: up to now."""
    total, last = 0, crawl_key(frontier.crawl, "meta").encode()
    patterns = f"{{{frontier.crawl}[:}}]*", f"*{{*}}*:{frontier.crawl}:*"  # the latter: beside keys of start URLs
    for node, pattern in itertools.product(nodes, patterns):
        async for keys in _scan(frontier, node, pattern):
            by_tag: dict[bytes, list[bytes]] = defaultdict(list)  # a slot of a cluster each
            for key in keys:
                if key != last and is_key_of(frontier.crawl, key.decode(errors="replace")):
                    by_tag[key.partition(b"}")[0]].append(key)
            for some in by_tag.values():
                for first in range(0, len(some), _UNLINKED):
                    total += int(await frontier.patiently(partial(cast(Any, node.unlink), *some[first : first + _UNLINKED])))
            deleted(total)
    return total


async def delete_meta(frontier: Frontier) -> None:
    await frontier.patiently(lambda: cast(Any, frontier.redis.unlink(crawl_key(frontier.crawl, "meta"))))


async def _scan(frontier: Frontier, node: Redis, pattern: str) -> AsyncIterator[list[bytes]]:
    cursor = None
    while cursor != 0:
        cursor, keys = await frontier.patiently(partial(cast(Any, node.scan), cursor or 0, match=pattern, count=_SCANNED))
        yield keys


async def _meta(frontier: Frontier) -> dict[str, str]:
    raw = await frontier.patiently(lambda: cast(Any, frontier.redis.hgetall(crawl_key(frontier.crawl, "meta"))))
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in raw.items()}
