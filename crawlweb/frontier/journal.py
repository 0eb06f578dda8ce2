"""What Redis acknowledged a moment ago. A server that is started again, or a replica in its place, may not have it, and is told again.

With `appendfsync everysec` a server that is killed may lack what it answered in its last second, or two where its disk is busy
(redis.conf, *no-appendfsync-on-rewrite* and *appendfsync*); a replica lacks what had not reached it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

KEPT_S = 5.0


class Journal(Generic[T]):
    """Calls by partition, oldest first. Those that a partition outlived by `KEPT_S` are forgotten; those of one that is silent are not."""

    def __init__(self) -> None:
        self._calls: dict[int, deque[tuple[float, T]]] = defaultdict(deque)

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))

    def add(self, partition: int, now: float, call: T) -> None:
        """It was acknowledged at `now`."""
        self.answered(partition, now)
        self._calls[partition].append((now, call))

    def answered(self, partition: int, now: float) -> None:
        """The partition gave an answer, so what is old is on its disk."""
        calls = self._calls.get(partition)
        while calls and calls[0][0] < now - KEPT_S:
            calls.popleft()

    def take(self, partition: int) -> Sequence[T]:
        """Takes all calls of a partition out."""
        return [call for _, call in self._calls.pop(partition, ())]
