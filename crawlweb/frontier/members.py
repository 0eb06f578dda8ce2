"""The live workers of a crawl: each says now and then that it lives and whether it has something to do. Efficiency, not correctness: a
worker that is taken for dead goes on with what it holds, and all that a wrong picture costs is a poll too many or a moment too late."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass
from typing import Any, cast

from .frontier import Frontier
from .keys import crawl_key

BEAT_S = 1.0
DEAD_S = 5.0  # after the last beat
CHANGED, OVER, PER_MIN = ":changed", ":over", ":per_min"  # fields of `members` that are no worker: its name has no colon

# KEYS: workers, busy, members. ARGV: worker, ms after which it counts as dead, 1 if it is busy, its row, the value of :changed that it
# knows. Returns {value of :changed, workers that are busy, values of :over and :per_min, the workers if :changed is another}.
# A worker that is busy takes back that the crawl is over. A time too far away is not ours, or of a server whose clock was ahead.
# Passes when Redis is full: it begins with a write that takes no memory (lua/common.lua).
_BEAT = f"""
redis.call('PERSIST', KEYS[1])
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local until_ms = string.format('%d', now + tonumber(ARGV[2]))
local changes = redis.call('ZADD', KEYS[1], until_ms, ARGV[1])
local function rate(row) return tonumber(string.match(row or '', '"per_min": (%d+)')) or 0 end
local before = redis.call('HGET', KEYS[3], ARGV[1])
if before ~= ARGV[4] then redis.call('HSET', KEYS[3], ARGV[1], ARGV[4]) end
if ARGV[3] == '1' then
  redis.call('ZADD', KEYS[2], until_ms, ARGV[1])
  redis.call('HDEL', KEYS[3], '{OVER}')
else
  redis.call('ZREM', KEYS[2], ARGV[1])
end
for _, range in ipairs({{{{'-inf', string.format('%d', now)}}, {{string.format('(%d', now + 10 * tonumber(ARGV[2])), '+inf'}}}}) do
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], range[1], range[2])) do
    redis.call('ZREM', KEYS[1], dead)
    redis.call('HDEL', KEYS[3], dead)
    changes = changes + 1
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[2], range[1], range[2])
end
if changes > 0 then
  local sum = 0
  for _, row in ipairs(redis.call('HVALS', KEYS[3])) do sum = sum + rate(row) end
  redis.call('HSET', KEYS[3], '{PER_MIN}', sum, '{CHANGED}', t[1] .. '.' .. t[2] .. ARGV[1])
elseif rate(before) ~= rate(ARGV[4]) then
  local sum = tonumber(string.match(redis.call('HGET', KEYS[3], '{PER_MIN}') or '', '^%d+$')) or 0
  redis.call('HSET', KEYS[3], '{PER_MIN}', math.max(0, sum + rate(ARGV[4]) - rate(before)))
end
local known = redis.call('HMGET', KEYS[3], '{CHANGED}', '{OVER}', '{PER_MIN}')
local all = known[1] ~= ARGV[5] and redis.call('ZRANGE', KEYS[1], 0, -1) or {{}}
return {{known[1], redis.call('ZCARD', KEYS[2]), known[2] or '', known[3] or '', all}}
"""
# KEYS: as above. ARGV: worker.
_LEAVE = f"""
redis.call('PERSIST', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
local t = redis.call('TIME')
redis.call('HSET', KEYS[3], '{CHANGED}', t[1] .. '.' .. t[2] .. ARGV[1])
"""
# KEYS: workers, left. ARGV: run ids of the servers. Written by the last worker when nothing is under way any longer.
_SAY_LEFT = """
redis.call('PERSIST', KEYS[1])
if redis.call('ZCARD', KEYS[1]) == 0 then redis.call('SET', KEYS[2], ARGV[1]) end
"""
# KEYS: left.
_TAKE_LEFT = """
local left = redis.call('GET', KEYS[1])
redis.call('DEL', KEYS[1])
return left
"""
# KEYS: workers.
_LIVING = """
local t = redis.call('TIME')
return redis.call('ZRANGEBYSCORE', KEYS[1], string.format('%d', tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)), '+inf')
"""
# KEYS: members. ARGV: what to say.
_SAY_OVER = f"redis.call('PERSIST', KEYS[1]) redis.call('HSET', KEYS[1], '{OVER}', ARGV[1])"
_TYPED = {  # commands that only a key of their type understands
    "workers": "ZCARD",
    "busy": "ZCARD",
    "members": "HLEN",
    "left": "STRLEN",
}


@dataclass(frozen=True, slots=True)
class Roll:
    """`workers`: sorted, this one among them. `busy`: how many of them have something to do. `over`: a worker found the crawl drained,
    of so many URLs, and nobody has been busy since; None: not so. `per_min`: leases a minute of all."""

    workers: tuple[str, ...]
    busy: int
    per_min: int
    over: int | None


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) < 16 else None


class Members:
    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._changed: bytes | str = ""
        self._workers: tuple[str, ...] = ()
        self._me = {"host": socket.gethostname(), "pid": os.getpid(), "since": round(time.time())}

    def _key(self, name: str) -> str:
        return crawl_key(self._frontier.crawl, name)

    def _call(self, script: str, *args: bytes | str | int) -> Any:
        return self._on(script, (self._key("workers"), self._key("busy"), self._key("members")), *args)

    def _on(self, script: str, keys: tuple[str, ...], *args: bytes | str | int) -> Any:
        typed = {key: _TYPED[key.rpartition(":")[2]] for key in keys}
        return self._frontier.undisturbed(lambda: cast(Any, self._frontier.redis.eval(script, len(keys), *keys, *args)), typed)

    async def beat(self, busy: bool, leases: int, per_min: int, whole: bool = False) -> Roll:
        """`leases`: in hand; `per_min`: received a minute, lately. `whole`: the list of workers is asked for though it did not change."""
        row = json.dumps({**self._me, "busy": busy, "leases": leases, "per_min": per_min})
        known = "" if whole else self._changed
        me = self._frontier.worker
        changed, count, over, per_min_of_all, workers = await self._call(_BEAT, me, round(DEAD_S * 1000), int(busy), row, known)
        if changed != known:
            self._changed, self._workers = changed or "", tuple(sorted(name.decode(errors="replace") for name in workers))
        return Roll(self._workers, count, _number(per_min_of_all) or 0, _number(over))

    async def leave(self) -> None:
        await self._call(_LEAVE, self._frontier.worker)

    async def say_left(self, runs: str) -> None:
        """This worker ends, and has nothing under way. If it is the last one, a server that is started again has lost nothing that matters.
        `runs`: run ids of the servers."""
        await self._on(_SAY_LEFT, (self._key("workers"), self._key("left")), runs)

    async def take_left(self) -> str:
        """Run ids of the servers as all workers left them; '': they did not. Asked once, by whoever comes first."""
        runs = await self._on(_TAKE_LEFT, (self._key("left"),))
        return runs.decode(errors="replace") if runs else ""

    async def say_over(self, urls: int) -> None:
        """The crawl is drained: so many URLs were enqueued, and all are done."""
        await self._on(_SAY_OVER, (self._key("members"),), str(urls))

    async def living(self) -> list[str]:
        """Sorted. One that was killed lives for `DEAD_S` more."""
        names = await self._on(_LIVING, (self._key("workers"),))
        return sorted(name.decode(errors="replace") for name in names)

    async def rows(self) -> dict[str, dict[str, Any]]:
        """What workers last said of themselves: host, pid, since (Unix time), busy, leases in hand and a minute. For people."""
        rows: dict[str, dict[str, Any]] = {}
        key = self._key("members")
        raw = await self._frontier.undisturbed(lambda: cast(Any, self._frontier.redis.hgetall(key)), {key: _TYPED["members"]})
        for name, text in raw.items():
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                rows[name.decode(errors="replace")] = row
        return rows
