"""The Lua steps: files put together by their `-- uses:` line, called by their hash; and calls of one moment that go to Redis as one."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

STEPS = (
    *("enqueue", "lease", "complete", "renew", "hold", "audit", "override", "requeue", "spill", "due", "recall", "peek"),
    *("ip", "starts", "pages", "events", "near", "typed"),  # outside the partitions
)
# Steps that may be called on several partitions at once (lua/common.lua: each), and what a unit of their work takes in Redis at the most.
UNIT_US = {"enqueue": 8, "lease": 12, "complete": 25, "renew": 2, "recall": 4}
PARTITION_US, MOST_US = 20, 600  # of a partition more; of a call: of 1,000 some took 3 to 6 ms on a busy core


@cache
def source(step: str) -> str:
    """The whole script of a step."""
    folder = files(__package__) / "lua"
    text = (folder / f"{step}.lua").read_text()
    uses = re.search(r"^-- uses: (.*)$", text, re.M)
    parts = uses.group(1).split() if uses else []
    if step in UNIT_US:
        text = f"local function step()\n{text}\nend\nreturn each(step)\n"
    return "\n".join([*((folder / f"{part}.lua").read_text() for part in parts), text])


@cache
def digest(step: str) -> str:
    return hashlib.sha1(source(step).encode()).hexdigest()


async def run(redis: Redis, step: str, key: str, *args: bytes | str | int | float) -> Any:
    """Calls a step on a partition (`key`: its counters) or a shard of addresses. Sends the text once where the server does not know it."""
    return await _run(redis, step, 1, key, *args)


async def _run(redis: Redis, step: str, *args: bytes | str | int | float) -> Any:
    call = cast(Callable[..., Awaitable[Any]], redis.execute_command)
    try:
        return await call("EVALSHA", digest(step), *args)
    except NoScriptError:
        return await call("EVAL", source(step), *args)


@dataclass(frozen=True, slots=True)
class _Call:
    key: str
    args: Sequence[bytes | str | int | float]
    took_us: int
    answer: asyncio.Future[Any]


class Together:
    """Makes one call of those that tasks make of a step at the same moment, on keys of one server. `client`: gives its client; `saved`: is
    told how many calls fewer they are."""

    def __init__(self, client: Callable[[], Redis], saved: Callable[[int], None]) -> None:
        self._client, self._saved = client, saved
        self._joining: dict[str, list[_Call]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, step: str, units: int, key: str, *args: bytes | str | int | float) -> Any:
        """`units`: of work, as UNIT_US has them."""
        joined = self._joining.get(step)
        is_first = joined is None
        if joined is None:
            joined = self._joining[step] = []
        call = _Call(key, args, PARTITION_US + units * UNIT_US[step], asyncio.get_running_loop().create_future())
        joined.append(call)
        if is_first:
            try:
                await asyncio.sleep(0)  # others come
            finally:
                del self._joining[step]
                if len(joined) > 1:
                    for some in _portions(joined):
                        task = asyncio.ensure_future(self._make(step, some))
                        self._tasks.add(task)
                        task.add_done_callback(self._tasks.discard)
            if len(joined) == 1:
                return await run(self._client(), step, key, *args)
        return await call.answer

    async def _make(self, step: str, calls: Sequence[_Call]) -> None:
        try:
            if len(calls) == 1:
                answers: Sequence[Any] = [await run(self._client(), step, calls[0].key, *calls[0].args)]
            else:
                self._saved(len(calls) - 1)
                args = [arg for call in calls for arg in (len(call.args), *call.args)]
                answers = await _run(self._client(), step, len(calls), *(call.key for call in calls), *args)
        except Exception as error:  # each who called sees it
            answers = [error] * len(calls)
        for call, answer in zip(calls, answers, strict=True):
            if call.answer.done():  # cancelled
                continue
            if isinstance(answer, Exception):
                call.answer.set_exception(answer)
            else:
                call.answer.set_result(answer)


def _portions(calls: Sequence[_Call]) -> Iterator[Sequence[_Call]]:
    """As many at a time as Redis can do in `MOST_US`, in their order."""
    some: list[_Call] = []
    for call in calls:
        if some and sum(one.took_us for one in some) + call.took_us > MOST_US:
            yield some
            some = []
        some.append(call)
    yield some
