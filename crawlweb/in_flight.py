"""The cap on bytes in flight: of bodies that are being received, and of those whose page is not finished (analysed, stored, handed on).

At the cap no fetch is begun, and responses wait, also those that have not begun: their sockets are not read, so that TCP holds back the
servers. As pages are finished, they give their bytes back; where none is here whole, one body is read on, whatever its size. So there is
never more than the cap, that body and a read. Those that wait are read on in the order of their requests, begun ones first, as far as there
is room; at half the cap all are. Who brings next to nothing goes to the end of the line.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import Callable

READ_BYTES = 256 * 1024  # what one read of the event loop brings at most
LOOK_S = 0.25
LITTLE_BYTES = 16 * 1024  # of all that are read, in `LOOK_S`: they do not use their turn
TLS_BUFFER_BYTES = 64 * 1024  # of a connection that waits; without it, TLS reads 512 KB ahead


class Body:
    """One body's bytes: they count from when they come until `release`."""

    __slots__ = ("_in_flight", "_transport", "bytes", "has_waited", "turn", "waits")

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._transport: asyncio.Transport | None = None
        self.bytes = 0
        self.turn = (True, 0)  # nothing came of it when it was to come; how many before it
        self.waits = self.has_waited = False

    def begin(self, transport: asyncio.Transport) -> None:
        """Its request is sent. It may have to wait at once."""
        self._transport = transport
        self._in_flight.begin(self)

    def add(self, size_bytes: int) -> None:
        """So much more of it is held."""
        self.bytes += size_bytes
        self.turn = (False, self.turn[1])
        self._in_flight.added(size_bytes)

    def received(self) -> None:
        """No more of it will be read."""
        if self._transport is not None:
            if self.waits:  # it came in the read that filled the cap; the connection may be kept
                self.go_on()
            self._transport = None
            self._in_flight.received(self)

    def release(self) -> None:
        """Its bytes are given back. Twice does no harm."""
        self.received()
        if self.bytes:
            size_bytes, self.bytes = self.bytes, 0
            self._in_flight.released(size_bytes)

    def wait(self) -> None:
        self.waits = self.has_waited = True
        assert self._transport is not None
        with contextlib.suppress(RuntimeError):  # uvloop: it is closed, and `connection_lost` is on its way
            self._transport.pause_reading()
            limit = getattr(self._transport, "set_read_buffer_limits", None)
            if limit is not None:
                limit(TLS_BUFFER_BYTES)

    def go_on(self) -> None:
        self.waits = False
        assert self._transport is not None
        with contextlib.suppress(RuntimeError):
            self._transport.resume_reading()

    def __del__(self) -> None:
        self.release()  # whoever should have done it is gone, too


class InFlight:
    """`on_room`: a fetch was refused, and may begin now. `bytes`, `most_bytes`: now, and the most there were; `waits`: times that a
    response had to wait."""

    def __init__(self, cap_bytes: int, on_room: Callable[[], None] = lambda: None) -> None:
        self.bytes = self.most_bytes = self.waits = 0
        self.on_room = on_room
        self._cap_bytes = cap_bytes
        self._turns = itertools.count()
        self._read: dict[Body, None] = {}
        self._waiting: list[tuple[tuple[bool, int], Body]] = []  # heap by turn; some may have ended
        self._whole = 0  # bodies that came and were not released
        self._refused = False
        self._brought_bytes = 0  # since the last look
        self._look: asyncio.TimerHandle | None = None

    @property
    def has_room(self) -> bool:
        """May a fetch begin? Where not, `on_room` tells when."""
        self._refused = not self._is_open
        return not self._refused

    def begin(self, body: Body) -> None:
        body.turn = (True, next(self._turns))
        if self._is_open:
            self._read[body] = None
        else:
            self._hold_up([body])
            self._admit()

    def added(self, size_bytes: int) -> None:
        self.bytes += size_bytes
        self.most_bytes = max(self.most_bytes, self.bytes)
        self._brought_bytes += size_bytes
        if self.bytes >= self._cap_bytes and self._read:
            first = None if self._whole else min(self._read, key=lambda body: body.turn)
            self._hold_up([body for body in self._read if body is not first])

    def received(self, body: Body) -> None:
        self._read.pop(body, None)
        self._whole += body.bytes > 0
        self._admit()

    def released(self, size_bytes: int) -> None:
        self.bytes -= size_bytes
        self._whole -= 1
        self._admit()

    @property
    def _is_open(self) -> bool:
        self._forget_gone()
        return not self._waiting and self.bytes < self._cap_bytes

    def _hold_up(self, bodies: list[Body]) -> None:
        if not bodies:
            return
        for body in bodies:
            self._read.pop(body, None)
            body.wait()
            heapq.heappush(self._waiting, (body.turn, body))
        self.waits += len(bodies)
        if self._look is None:
            self._brought_bytes = 0
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def _admit(self) -> None:
        room = (self._cap_bytes - self.bytes) // READ_BYTES - len(self._read)
        if self.bytes <= self._cap_bytes // 2:
            room = len(self._waiting)
        self._forget_gone()
        while self._waiting and (room > 0 or not (self._read or self._whole)):
            body = heapq.heappop(self._waiting)[-1]
            self._read[body] = None
            body.go_on()
            room -= 1
            self._forget_gone()
        if self._refused and self._is_open:
            self._refused = False
            self.on_room()

    def _forget_gone(self) -> None:
        """Those at the head that do not wait any more: they ended meanwhile."""
        while self._waiting and not self._waiting[0][-1].waits:
            heapq.heappop(self._waiting)

    def _look_again(self) -> None:
        self._look = None
        self._forget_gone()
        if not self._waiting:
            return
        if self._brought_bytes < LITTLE_BYTES:
            idle = list(self._read)
            for body in idle:
                body.turn = (True, next(self._turns))
            self._hold_up(idle)
            self._admit()
        self._brought_bytes = 0
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)
