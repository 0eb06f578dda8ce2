"""The tasks of a worker: all of them end with it, and it ends with the first that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from .errors import FrontierError

logger = logging.getLogger(__name__)


class Tasks:
    """`closing`: is the worker? Redis may be away then. `ended` is told once, of the first that fails. `alive`: those that go on."""

    def __init__(self, closing: Callable[[], bool], ended: Callable[[str], None]) -> None:
        self.alive: set[asyncio.Task[Any]] = set()
        self.failed = False  # one ended with an error, of Redis mostly
        self._closing, self._ended = closing, ended
        self._under_way: set[int] = set()  # what is done once a period

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.spawn(work)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self.alive.add(task)
        task.add_done_callback(self._done)
        return task

    def beside(self, what: int, work: Coroutine[Any, Any, None]) -> None:
        """Starts what is done once a period, unless the last is still under way: a server that is away holds back what is its own."""
        if what in self._under_way:
            work.close()
            return
        self._under_way.add(what)
        self.spawn(work).add_done_callback(lambda _: self._under_way.discard(what))

    async def cancel(self, within_s: float) -> None:
        """Waits no longer for them: redis-py can swallow a cancellation."""
        for task in self.alive:
            task.cancel()
        if self.alive:
            await asyncio.wait(self.alive, timeout=within_s)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.alive.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        if not self.failed and not (self._closing() and isinstance(error, FrontierError)):
            logger.critical("crawlweb stops: %s", error, exc_info=error if not isinstance(error, FrontierError) else None)
            self.failed = True
            self._ended("frontier_error")
