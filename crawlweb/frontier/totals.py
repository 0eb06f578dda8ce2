"""Stats of the whole crawl: every worker adds what its own rose by, and they stay when workers end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from ..errors import FrontierError
from .frontier import Frontier
from .keys import crawl_key
from .members import Members

logger = logging.getLogger(__name__)

SEND_S = 3.0  # a worker that is killed takes so much of its stats along
REMEMBERED_MS = 3_600_000  # as a worker's other calls (common.lua)
ENDED_MS = 60_000
_PARTITIONS_AT_ONCE = 32

# KEYS: stats, stats:<worker>. ARGV: number of the call, ms that it is remembered for, then name and rise of each stat that rose.
# A call of a number that was there before changes nothing. Passes when Redis is full: it begins with a write that takes none (common.lua).
# A field that is no number is not ours and begins anew: HINCRBY would end the script in the middle.
_ADD = """
redis.call('PERSIST', KEYS[1])
local last = redis.call('GET', KEYS[2])
if last and string.match(last, '^%d+$') and tonumber(last) >= tonumber(ARGV[1]) then return 0 end
local names = {}
for i = 3, #ARGV, 2 do names[#names + 1] = ARGV[i] end
local have = #names > 0 and redis.call('HMGET', KEYS[1], unpack(names)) or {}
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
for i, name in ipairs(names) do
  local is_ours = not have[i] or #have[i] < 18 and (have[i] == '0' or string.match(have[i], '^%-?[1-9]%d*$'))
  redis.call(is_ours and 'HINCRBY' or 'HSET', KEYS[1], name, ARGV[2 * i + 2])
end
return 1
"""


class Totals:
    """`read`: this worker's stats, by name, as they are now."""

    def __init__(self, frontier: Frontier, read: Callable[[], Mapping[str, int]]) -> None:
        self._frontier, self._read = frontier, read
        self._added: dict[str, int] = {}  # what the sums have of ours
        self._number = 0
        self._unanswered: dict[str, int] = {}  # rises of the call `_number`, of which no answer came
        self._lock = asyncio.Lock()

    async def send(self, remembered_ms: int = REMEMBERED_MS) -> None:
        """FrontierError: what was not sent will be with the next call."""
        async with self._lock:
            if self._unanswered:
                await self._add(self._unanswered, remembered_ms)
            rises = {name: n - self._added.get(name, 0) for name, n in self._read().items()}
            self._number += 1
            await self._add({name: rise for name, rise in rises.items() if rise}, remembered_ms)

    async def keep(self) -> None:
        """Sends every `SEND_S`."""
        tells = True
        while not self._frontier.closing:
            try:
                await self.send()
            except FrontierError as e:
                if tells and not self._frontier.closing:
                    tells = False
                    logger.warning("this worker's stats are missing in those of the crawl: %s", e)
            await asyncio.sleep(SEND_S)

    async def close(self) -> None:
        """Sends the last of it."""
        try:
            await self.send(ENDED_MS)
        except FrontierError as e:
            logger.warning("the last of this worker's stats is missing in those of the crawl: %s", e)

    async def _add(self, rises: dict[str, int], remembered_ms: int) -> None:
        f = self._frontier
        self._unanswered = rises
        keys = crawl_key(f.crawl, "stats"), crawl_key(f.crawl, f"stats:{f.worker}")
        pairs = [part for pair in rises.items() for part in pair]
        call = partial(cast(Any, f.redis.eval), _ADD, 2, *keys, self._number, remembered_ms, *pairs)
        await f.undisturbed(call, dict(zip(keys, ("HLEN", "STRLEN"), strict=True)))
        self._unanswered = {}
        for name, rise in rises.items():
            self._added[name] = self._added.get(name, 0) + rise


@dataclass(frozen=True, slots=True)
class Overview:
    """A crawl at a glance. `sums`: stats of all workers; `pending`: URLs that are known and not finished; `hosts`: in work, that is
    active, asleep or being asked; `workers`: that are alive."""

    sums: dict[str, int]
    pending: int
    hosts: int
    workers: int


async def overview(frontier: Frontier) -> Overview:
    """FrontierError."""
    raw = await frontier.patiently(lambda: cast(Any, frontier.redis.hgetall(crawl_key(frontier.crawl, "stats"))))

    async def one(partition: int) -> tuple[int, int]:
        counters = ("HMGET", frontier.key(partition, "ctr"), "enq", "done")
        places = [("ZCARD", frontier.key(partition, name)) for name in ("ready", "asleep", "leases")]
        answers, *sizes = await frontier.at_once(counters, *places)
        enqueued, done = answers if isinstance(answers, list) else (0, 0)
        return _whole(enqueued) - _whole(done), sum(map(_whole, sizes))

    rows: list[tuple[int, int]] = []
    for first in range(0, frontier.partitions, _PARTITIONS_AT_ONCE):
        some = range(first, min(first + _PARTITIONS_AT_ONCE, frontier.partitions))
        rows += await asyncio.gather(*map(one, some))
    pending, hosts = (sum(column) for column in zip(*rows, strict=True))
    sums = {name.decode(errors="replace"): _whole(n) for name, n in sorted(raw.items())}
    return Overview(sums, max(0, pending), hosts, len(await Members(frontier).living()))


def _whole(value: object) -> int:
    """0 for what is no whole number."""
    try:
        return int(value)  # type: ignore[call-overload,no-any-return]
    except (TypeError, ValueError):
        return 0
