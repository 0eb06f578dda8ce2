"""Long queues, as the worker that moves their middle to disk and back sees them (lua/cold.lua, lua/spill.lua)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from ..errors import FrontierError
from .frontier import Frontier
from .keys import crawl_key

DAYS = 100  # no page is due later (policy/recrawl.py)
ENTRIES_AT_ONCE = 1000  # moved or brought back in one step
_ENTRY = re.compile(rb"\d[0-9a-z][0-9a-z]\t")
_LATER = re.compile(r"later:(\d{1,6})")
_INLINE = re.compile(rb"[^\t]+\t\d+\t\d[0-9a-z][0-9a-z]\t")


@dataclass(frozen=True, slots=True)
class Parts:
    """Entries of a queue in Redis, chunks of it on disk. `first`: the chunk that comes next (a name that is not ours: its bytes as
    characters), `taken` entries of it are in the head."""

    head: int
    chunks: int
    tail: int
    first: str = ""
    taken: int = 0
    size: int = 0


class ColdQueues:
    """Reads of long queues, and the swaps: each is refused (False, 0) where another worker was first."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier

    async def _read(self, *commands: tuple[str | bytes | int, ...]) -> list[Any]:
        """Of one moment. None for a key of another type."""
        answers = await self._frontier.at_once(*commands)
        for answer in answers:
            if isinstance(answer, Exception) and not str(answer).startswith("WRONGTYPE"):
                raise FrontierError(str(answer)) from answer
        return [None if isinstance(answer, Exception) else answer for answer in answers]

    async def parts(self, p: int, queue: str) -> Parts:
        head, chunks, tail, first = await self._read(
            ("LLEN", self._frontier.key(p, queue)),
            ("LLEN", self._frontier.key(p, f"{queue}:chunks")),
            ("LLEN", self._frontier.key(p, f"{queue}:tail")),
            ("LINDEX", self._frontier.key(p, f"{queue}:chunks"), 0),
        )
        if first is None:
            return Parts(head or 0, 0, tail or 0)
        (info,) = await self._read(("HGET", self._frontier.key(p, "cold"), first))
        _, taken, size = _info(info)
        return Parts(head or 0, chunks, tail or 0, first.decode("latin-1"), taken, size)

    async def start_of_tail(self, p: int, queue: str, entries: int) -> tuple[bytes, list[bytes]]:
        """(serial, entries): what may be written into a chunk. Nothing, if the start of the tail changed meanwhile."""
        tails, tail = self._frontier.key(p, "tails"), self._frontier.key(p, f"{queue}:tail")

        async def call() -> list[Any]:
            pipe = self._frontier.redis.pipeline(transaction=False)
            for command in (("HGET", tails, queue), ("LRANGE", tail, 0, entries - 1), ("HGET", tails, queue)):
                pipe.execute_command(*command)
            return await pipe.execute(raise_on_error=False)

        before, some, after = await self._frontier.patiently(call)
        if not isinstance(some, list) or not isinstance(before, bytes) or before != after:
            return b"", []
        return before, some

    async def cut(self, p: int, queue: str, keep: int) -> int:
        return int(await self._frontier.step("spill", p, "cut", queue, ENTRIES_AT_ONCE, keep))

    async def out(self, p: int, queue: str, chunk: str, entries: Sequence[bytes], serial: bytes) -> bool:
        return bool(int(await self._frontier.step("spill", p, "out", queue, chunk, len(entries), urls_in(queue, entries), serial)))

    async def bring_in(self, p: int, queue: str, chunk: str, entries: Sequence[bytes], taken: int) -> bool:
        """All entries of a chunk from `taken` on, in steps."""
        for first in range(taken, len(entries), ENTRIES_AT_ONCE):
            some = entries[first : first + ENTRIES_AT_ONCE]
            if not int(await self._frontier.step("spill", p, "in", queue, chunk, first, urls_in(queue, some), *some)):
                return False
        return True

    async def give_up(self, p: int, queue: str, chunk: str) -> bool:
        """The first chunk cannot be read: its URLs are lost, and counted."""
        return bool(int(await self._frontier.step("spill", p, "lost", queue, chunk.encode("latin-1"))))

    async def done(self, p: int, queue: str, again_s: float = 0.0) -> None:
        await self._frontier.step("spill", p, "done", queue, round(again_s * 1000))

    async def tune(self, p: int, long_entries: int) -> int:
        """From which length on a queue is long. Returns the length before."""
        return int(await self._frontier.step("spill", p, "tune", long_entries))

    async def look_for_days(self, p: int, first_day: int, least: int) -> None:
        """Lists of pages that are due on the days from one on, with so many keys, become chores."""
        queues = [f"later:{first_day + n}" for n in range(DAYS)]
        parts = [self._frontier.key(p, queue + part) for queue in queues for part in ("", ":tail")]
        sizes = await self._read(*(("LLEN", key) for key in parts))
        long = [queue for queue, head, tail in zip(queues, sizes[::2], sizes[1::2], strict=True) if max(head or 0, tail or 0) >= least]
        if long:
            chores = partial(cast(Any, self._frontier.redis.zadd), self._frontier.key(p, "chores"), dict.fromkeys(long, 0), nx=True)
            await self._frontier.patiently(chores)

    async def look_for_long(self, p: int, cursor: int, long_entries: int) -> int:
        """Looks at some park lists for long ones; returns the cursor to go on with, 0 at the end."""
        redis = self._frontier.redis
        pattern = re.sub(r"([][*?\\])", r"\\\1", self._frontier.key(p, "park:")) + "*"
        scan = partial(redis.scan, cursor, match=pattern, count=500, _type="list")
        cursor, keys = await self._frontier.patiently(cast(Any, scan))
        keys = [key for key in keys if not key.endswith((b":tail", b":chunks"))]
        sizes = await self._read(*(("LLEN", key) for key in keys)) if keys else []
        prefix = len(self._frontier.key(p, ""))
        for key, size in zip(keys, sizes, strict=True):
            if (size or 0) >= long_entries:
                await self._frontier.patiently(partial(cast(Any, redis.zadd), self._frontier.key(p, "chores"), {key[prefix:]: 0}, nx=True))
        return int(cursor)

    async def chunks(self, p: int) -> dict[str, tuple[str, int, int]]:
        """Chunks in use: name → (queue, entries taken from it, entries in it)."""
        (rows,) = await self._read(("HGETALL", self._frontier.key(p, "cold")))
        rows = rows or []
        return {chunk.decode(errors="replace"): _info(info) for chunk, info in zip(rows[::2], rows[1::2], strict=True)}

    async def gone(self, p: int, before_ms: int) -> list[str]:
        """Chunks that were used up before a time, by the clock of Redis."""
        (names,) = await self._read(("ZRANGEBYSCORE", self._frontier.key(p, "gone"), "-inf", before_ms))
        return [name.decode(errors="replace") for name in names or ()]

    async def all_gone(self, p: int) -> set[str]:
        (names,) = await self._read(("ZRANGE", self._frontier.key(p, "gone"), 0, -1))
        return {name.decode(errors="replace") for name in names or ()}

    async def forget(self, p: int, chunks: Sequence[str]) -> None:
        """Their files are deleted."""
        await self._read(("ZREM", self._frontier.key(p, "gone"), *chunks))

    async def chores(self, p: int) -> list[str]:
        (queues,) = await self._read(("ZRANGE", self._frontier.key(p, "chores"), 0, -1))
        return [queue.decode(errors="replace") for queue in queues or ()]

    async def my_turn(self, period_s: float) -> bool:
        """One worker of the crawl does what is done once a period."""
        key = crawl_key(self._frontier.crawl, "sweep")
        call = partial(cast(Any, self._frontier.redis.set), key, self._frontier.worker, nx=True, px=round(period_s * 1000))
        if await self._frontier.patiently(call):
            return True
        if (
            await self._frontier.patiently(lambda: cast(Any, self._frontier.redis.pttl(key))) == -1
        ):  # not ours: no worker's turn lasts for ever
            await self._frontier.patiently(lambda: cast(Any, self._frontier.redis.delete(key)))
        return False


def day_of(queue: str) -> int | None:
    """Days since 1970, of a list of pages that are due in days."""
    found = _LATER.fullmatch(queue)
    return int(found[1]) if found else None


def urls_in(queue: str, entries: Sequence[bytes]) -> int:
    """Entries of ours that hold a URL that is pending: a host token may be without, a page that is due is none."""
    if day_of(queue) is not None:
        return 0
    pattern = _INLINE if queue.startswith("front:") else _ENTRY
    return sum(1 for entry in entries if pattern.match(entry))


def _info(info: bytes | None) -> tuple[str, int, int]:
    try:
        queue, taken, size, _ = (info or b"").decode().split("\t")
        return queue, int(taken), int(size)
    except ValueError:
        return "", 0, 0
