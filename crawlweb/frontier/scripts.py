"""The Lua steps: files put together by their `-- uses:` line, called by their hash."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

STEPS = (
    *("enqueue", "lease", "complete", "renew", "hold", "audit", "override", "requeue", "spill", "due", "recall", "peek"),
    *("ip", "starts", "pages", "events", "near", "typed"),  # outside the partitions
)


@cache
def source(step: str) -> str:
    """The whole script of a step."""
    folder = files(__package__) / "lua"
    text = (folder / f"{step}.lua").read_text()
    uses = re.search(r"^-- uses: (.*)$", text, re.M)
    parts = uses.group(1).split() if uses else []
    return "\n".join([*((folder / f"{part}.lua").read_text() for part in parts), text])


@cache
def digest(step: str) -> str:
    return hashlib.sha1(source(step).encode()).hexdigest()


async def run(redis: Redis, step: str, key: str, *args: bytes | str | int | float) -> Any:
    """Calls a step on a partition (`key`: its counters) or a shard of addresses. Sends the text once where the server does not know it."""
    call = cast(Callable[..., Awaitable[Any]], redis.execute_command)
    try:
        return await call("EVALSHA", digest(step), 1, key, *args)
    except NoScriptError:
        return await call("EVAL", source(step), 1, key, *args)
