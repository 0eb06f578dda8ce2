"""Which answers of Redis are waited out, and which end the call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from redis import exceptions
from redis.asyncio import Redis

from crawlweb.errors import FrontierError
from crawlweb.frontier import frontier as module
from crawlweb.frontier.frontier import Frontier

PASSING = [
    exceptions.ConnectionError("reset"),
    exceptions.TimeoutError("too slow"),
    exceptions.BusyLoadingError("loading"),
    exceptions.ReadOnlyError("You can't write against a read only replica."),
    exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'. script: 5e28, on @user_script:52."),
    exceptions.ResponseError("user_script:36: OOM command not allowed when used memory > 'maxmemory'. script: 5e28"),
    exceptions.ResponseError("ERR Error running script: @user_script: 36: -OOM command not allowed when used memory > 'maxmemory'."),
    exceptions.ResponseError("user_script:36: MISCONF Redis is configured to save RDB snapshots, but …"),
    exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."),
]


def answers(*errors: Exception, closing: bool = False) -> str:
    waiting = list(errors)

    async def call() -> str:
        if waiting:
            raise waiting.pop(0)
        return "done"

    async def main() -> str:
        frontier = Frontier(Redis(unix_socket_path="nowhere"), "t", 1, "w")
        frontier.closing = closing
        return await frontier.patiently(call)

    return asyncio.run(main())


@pytest.mark.parametrize("error", PASSING, ids=str)
def test_a_redis_that_is_not_itself_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    assert answers(*[error] * 9) == "done"
    assert paused == sorted(paused)
    assert paused[-1] == 2.0, "it backs off, to 2 s at the most: all workers are back while nobody leases"


@pytest.mark.parametrize(
    "text", ["WRONGTYPE Operation against a key", "NOPERM this user has no permissions", "ERR no such way to end a lease"]
)
def test_another_error_ends_the_call(text: str) -> None:
    with pytest.raises(FrontierError, match=text.split()[0]):
        answers(exceptions.ResponseError(text), closing=True)


def test_many_calls_that_wait_say_so_once_and_when_it_is_over(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def sleep(_: float, real: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        await real(0)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    frontier = Frontier(Redis(), "t", 1, "w")

    def call(failures: int) -> Callable[[], Awaitable[str]]:
        waiting = [exceptions.ConnectionError("reset") for _ in range(failures)]

        async def one() -> str:
            if waiting:
                raise waiting.pop()
            return "done"

        return one

    async def main() -> None:
        await asyncio.gather(*(frontier.patiently(call(n)) for n in range(10)))

    asyncio.run(main())
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert [text.partition(",")[0] for text in said] == ["Redis does not answer", "Redis answers again"]
    assert frontier.outage.back_at > 0
