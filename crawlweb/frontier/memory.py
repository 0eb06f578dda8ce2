"""How near Redis is to the end of its memory: what begins earlier when it is scarce, and what waits when it is full.

A full Redis refuses whatever may take memory. The frontier does not die of it: leasing and seeding pause a little before, pages in work are
finished (lua/common.lua, pass_when_full), and all goes on when there is room again.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from ..errors import FrontierError
from ..records import boottime
from .cluster import nodes_of
from .frontier import AWAY, Frontier

logger = logging.getLogger(__name__)

SCARCE, FULL, ROOM = 0.75, 0.95, 0.90  # of the ceiling; what paused at FULL goes on below ROOM
LOOK_S = 2.0
TRY_S = 10.0  # where Redis is full and does not say why, a lease is tried so often
NOEVICTION = "noeviction"


class Level(enum.IntEnum):
    PLENTY = 0
    SCARCE = 1  # time to spill
    FULL = 2  # nothing is leased


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """`counted_bytes`: of those used, what Redis holds against `max_bytes` (its maxmemory; None: it has none, or does not tell);
    `start_bytes`: what it used when it was empty; `fragmentation`: resident to used."""

    used_bytes: int
    counted_bytes: int
    start_bytes: int
    rss_bytes: int
    peak_bytes: int
    fragmentation: float
    max_bytes: int | None
    policy: str

    @classmethod
    def parse(cls, info: Mapping[str, Any]) -> ServerMemory:
        """Of `INFO memory`; managed servers leave rows out."""

        def number(name: str) -> int:
            value = info.get(name)
            return int(value) if isinstance(value, int | float) else 0

        used = number("used_memory")
        rss = number("used_memory_rss")
        return cls(
            used_bytes=used,
            counted_bytes=max(0, used - number("mem_not_counted_for_evict")),
            start_bytes=number("used_memory_startup"),
            rss_bytes=rss,
            peak_bytes=number("used_memory_peak"),
            fragmentation=rss / used if used else 0.0,
            max_bytes=number("maxmemory") or None,
            policy=str(info.get("maxmemory_policy") or NOEVICTION),
        )

    @property
    def evicts(self) -> bool:
        return self.policy != NOEVICTION


def evicting(policy: str) -> str:
    """Why a crawl cannot do with a server of this policy, and what to do."""
    return (
        f"its maxmemory-policy is {policy}: full, it would delete keys, and with them URLs and the clocks of hosts; "
        f"set maxmemory-policy to {NOEVICTION} (redis.conf, CONFIG SET, or the provider's parameters)"
    )


async def server_memory(frontier: Frontier, node: Redis) -> ServerMemory:
    return ServerMemory.parse(await frontier.patiently(lambda: cast(Any, node.info("memory"))))


async def keeps_a_log(frontier: Frontier, node: Redis) -> bool:
    """Has a server an append-only file? True too where it does not tell."""
    info = await frontier.patiently(lambda: cast(Any, node.info("persistence")))
    return bool(info.get("aof_enabled") != 0)


class MemoryWatch:
    """Looks at the servers' memory now and then, and keeps what can wait waiting while one is full.

    `ceiling_bytes`: of each server; None: its maxmemory alone. `nodes`: gives a client for each server, by default the frontier's.
    `count`: a stat rises, `gauge`: a stat has this value."""

    def __init__(
        self,
        frontier: Frontier,
        ceiling_bytes: int | None = None,
        nodes: Callable[[], Sequence[Redis]] | None = None,
        count: Callable[..., None] = lambda *_: None,
        gauge: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self.servers: list[ServerMemory] = []
        self.level = Level.PLENTY
        self.stopped = False
        self._frontier, self._ceiling_bytes, self._count, self._gauge = frontier, ceiling_bytes, count, gauge
        self._nodes = nodes or partial(nodes_of, frontier.redis)
        self._told: dict[Redis, ServerMemory] = {}  # by servers, lately
        self._share = 0.0  # used of the ceiling, where that is nearest
        self._is_full = False  # by the servers' figures
        self._refused = False  # Redis refused a call that can wait: full, whatever the figures say
        self._trying = False
        self._try_at = 0.0
        self._since: float | None = None  # a pause began
        self._paused_s = 0  # counted of it
        self._room = asyncio.Event()
        self._room.set()

    @property
    def has_room(self) -> bool:
        """May leases be asked for, and seeds be sent?"""
        return self._room.is_set()

    async def room(self) -> None:
        """Returns when there is."""
        await self._room.wait()

    def refused(self) -> None:
        """Redis refused a call that can wait."""
        self._refused, self._trying, self._try_at = True, False, boottime() + TRY_S
        self._judge()

    def passed(self) -> None:
        """It took one."""
        if self._trying:
            self._refused = self._trying = False
            self._judge()

    def stop(self) -> None:
        """Nobody waits any longer."""
        self.stopped = True
        self._count_pause()
        self._room.set()

    async def watch_forever(self) -> None:
        tells = True
        while not self._frontier.closing:
            try:
                await self.look()
            except FrontierError as e:
                if tells and not self._frontier.closing:
                    tells = False
                    logger.warning("Redis does not tell of its memory: leasing pauses only when it refuses to be written to: %s", e)
            self._trying = self._refused and boottime() >= self._try_at
            self._judge()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Reads the servers' figures; FrontierError if one does not tell."""
        before, self.servers = self.servers, await self._ask(self._nodes())
        for old, new in zip(before, self.servers, strict=False):
            if new.evicts and not old.evicts:
                logger.error("Redis may lose URLs from now on: %s", evicting(new.policy))
        self._gauge("memory/used_bytes", sum(server.used_bytes for server in self.servers))
        self._gauge("memory/rss_bytes", sum(server.rss_bytes for server in self.servers))
        self._gauge("memory/fragmentation", round(max((server.fragmentation for server in self.servers), default=0.0), 2))
        self._share = max(map(self._share_of, self.servers), default=0.0)
        self._is_full = self._share >= (ROOM if self._is_full else FULL)
        if self._is_full:
            self._refused = False  # the figures show when there is room again
        self._judge()

    async def _ask(self, nodes: Sequence[Redis]) -> list[ServerMemory]:
        """One of several servers may be away: what it told before counts."""
        if len(nodes) == 1:
            return [await server_memory(self._frontier, nodes[0])]

        async def one(node: Redis) -> ServerMemory | None:
            try:
                self._told[node] = ServerMemory.parse(await cast(Any, node).info("memory"))
            except AWAY:
                logger.debug("a Redis server is away and does not tell of its memory")
            except RedisError as e:
                raise FrontierError(str(e)) from e
            return self._told.get(node)

        return [server for server in await asyncio.gather(*map(one, nodes)) if server]

    def _ceiling_of(self, server: ServerMemory) -> int | None:
        return min((limit for limit in (self._ceiling_bytes, server.max_bytes) if limit), default=None)

    def _share_of(self, server: ServerMemory) -> float:
        ceiling_bytes = self._ceiling_of(server)
        return server.counted_bytes / ceiling_bytes if ceiling_bytes else 0.0

    def _judge(self) -> None:
        is_full = self._is_full or self._refused
        self.level = Level.FULL if is_full else Level.SCARCE if self._share >= SCARCE else Level.PLENTY
        if is_full and self._since is None and not self.stopped:
            self._since, self._paused_s = boottime(), 0
            self._count("memory/pauses")
            logger.warning(
                "Redis is full (%s): nothing is leased and no seed is sent until it has room; pages in work are finished. Raise its "
                "maxmemory or CRAWLWEB_REDIS_MEMORY_BYTES; `crawlweb memory` shows what it holds",
                self._described(),
            )
        elif self._since is not None:
            self._count_pause()
            if not is_full:
                logger.warning("Redis has room again (%s): leasing goes on after %.0f s", self._described(), boottime() - self._since)
                self._since = None
        if not is_full or self._trying or self.stopped:
            self._room.set()
        else:
            self._room.clear()

    def _count_pause(self) -> None:
        """Whole seconds, as they pass."""
        if self._since is not None:
            seconds = int(boottime() - self._since)
            self._count("memory/paused_s", seconds - self._paused_s)
            self._paused_s = seconds

    def _described(self) -> str:
        worst = max(self.servers, key=self._share_of, default=None)
        ceiling_bytes = worst and self._ceiling_of(worst)
        if not worst or not ceiling_bytes:
            return "it refuses to be written to" if self._refused else "it may be written to"
        bound = "maxmemory" if ceiling_bytes == worst.max_bytes else "CRAWLWEB_REDIS_MEMORY_BYTES"
        refuses = "it refuses to be written to; " if self._refused else ""
        return f"{refuses}{worst.counted_bytes / 1e6:.1f} MB used of {bound} {ceiling_bytes / 1e6:.1f} MB"
