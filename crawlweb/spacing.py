"""Starts of requests to a host that may have several at a time: a delay apart where they are sent.

The frontier hands such URLs out a delay apart; but looking a name up and connecting takes one of them longer than the next.
"""

from __future__ import annotations

import asyncio

from .records import boottime

HOSTS = 1000  # remembered; more only while their turns are to come


class Spacing:
    def __init__(self) -> None:
        self._next: dict[str, float] = {}  # by host, boottime

    async def turn(self, host: str, apart_s: float) -> None:
        """Returns when a request may be sent, and has the next one wait `apart_s` from then."""
        if len(self._next) >= HOSTS:
            now = boottime()
            self._next = {other: next_s for other, next_s in self._next.items() if next_s > now}
        while (left_s := self._next.get(host, 0.0) - boottime()) > 0:
            await asyncio.sleep(left_s)
        self._next[host] = boottime() + apart_s
