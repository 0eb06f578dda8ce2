"""Connections whose server may be asked again soon: between two requests they wait here, and nobody reads from them.

A request that goes out on a connection that its server is closing at that moment may have been seen or not (RFC 9112 §9.3.1). It is not
repeated on the spot: the host's clock counts it, and its URL goes back to its place. An origin that lost one has no connection kept again.
"""

from __future__ import annotations

import asyncio
import re
import select
from collections import OrderedDict
from typing import Final, NamedTuple

from .exchange import Head

_MARGIN_S: Final = 1.0  # a server's time-out begins half a round trip before our clock does
_SWEEP_S: Final = 0.5
_UNRELIABLE_MOST: Final = 1000
_PARAMETER: Final = re.compile(rb"\b(timeout|max)\s*=\s*\"?(\d{1,9})", re.IGNORECASE)


class Peer(NamedTuple):
    """Where a connection leads. `name`: that of the certificate, "" without TLS."""

    ip: str
    port: int
    host: str
    name: str


def keeps_s(head: Head, most_s: float) -> float:
    """For how long the server keeps the connection after this answer; 0: not at all. `Keep-Alive`: RFC 2068 §19.7.1.1."""
    tokens = {token.strip() for token in head.value(b"connection").lower().split(b",")}
    if b"close" in tokens or not (head.version == "1.1" or b"keep-alive" in tokens):
        return 0.0
    said = {name.lower(): int(value) for name, value in _PARAMETER.findall(head.value(b"keep-alive"))}
    if said.get(b"max") == 0:
        return 0.0
    timeout_s = said.get(b"timeout")
    return most_s if timeout_s is None else max(0.0, min(most_s, timeout_s - _MARGIN_S))


class Connections:
    """`most_s`: a connection waits no longer; `most`: so many wait at once. 0 of either: none is kept.

    When there is no room, those that wait stay: were the oldest closed for new ones, none would live until its host's next turn.
    """

    def __init__(self, most_s: float, most: int) -> None:
        self.most_s, self._most = most_s if most else 0.0, most
        self._waiting: dict[Peer, _Waiting] = {}
        self._unreliable: OrderedDict[Peer, None] = OrderedDict()
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def wants(self, peer: Peer) -> bool:
        """Whether a connection would be kept if its server agreed."""
        return self.most_s > 0 and peer not in self._unreliable

    def keep(self, peer: Peer, transport: asyncio.Transport, for_s: float) -> bool:
        """False: there is no room."""
        loop = asyncio.get_running_loop()
        if known := self._waiting.pop(peer, None):
            known.transport.abort()
        if len(self._waiting) >= self._most:
            return False
        waiting = _Waiting(self, peer, transport, loop.time() + for_s)
        transport.set_protocol(waiting)
        self._waiting[peer] = waiting
        if self._sweeper is None:
            self._sweeper = loop.call_later(_SWEEP_S, self._sweep)
        return True

    def take(self, peer: Peer) -> asyncio.Transport | None:
        """A connection for one more request, whose protocol is then the caller's to set."""
        waiting = self._waiting.pop(peer, None)
        if waiting is None:
            return None
        if waiting.until <= asyncio.get_running_loop().time() or waiting.transport.is_closing() or _has_news(waiting.transport):
            waiting.transport.abort()
            return None
        return waiting.transport

    def distrust(self, peer: Peer) -> None:
        self._unreliable[peer] = None
        if len(self._unreliable) > _UNRELIABLE_MOST:
            self._unreliable.popitem(last=False)

    def forget(self, waiting: _Waiting) -> None:
        if self._waiting.get(waiting.peer) is waiting:
            del self._waiting[waiting.peer]

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for waiting in self._waiting.values():
            waiting.transport.abort()
        self._waiting.clear()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        for waiting in [w for w in self._waiting.values() if w.until <= loop.time()]:
            del self._waiting[waiting.peer]
            waiting.transport.abort()
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep) if self._waiting else None


def _has_news(transport: asyncio.Transport) -> bool:
    """The server has closed the connection, or has spoken unasked, and the loop has not come to it yet."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


class _Waiting(asyncio.Protocol):
    """What a server says now answers nothing we asked: the connection is of no use any more."""

    def __init__(self, connections: Connections, peer: Peer, transport: asyncio.Transport, until: float) -> None:
        self.peer, self.transport, self.until = peer, transport, until
        self._connections = connections

    def data_received(self, _: bytes) -> None:
        self._end()

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, _: Exception | None) -> None:
        self._connections.forget(self)

    def _end(self) -> None:
        self._connections.forget(self)
        self.transport.abort()
