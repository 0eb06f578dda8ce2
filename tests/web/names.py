"""The web's name server: A records over UDP."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable
from typing import cast

from .sites import Site

TTL_S = 60
_NOERROR, _SERVFAIL, _NXDOMAIN = 0, 2, 3
_TYPE_A = 1


def question(query: bytes) -> tuple[str, int, bytes]:
    """Name (lower case), type and the question section as sent (its case is to be echoed). ValueError: no query."""
    labels: list[str] = []
    at = 12
    while at < len(query) and query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1").lower())
        at += 1 + query[at]
    section = query[12 : at + 5]
    if len(section) < 5 or at + 5 > len(query):
        raise ValueError("truncated query")
    return ".".join(labels), struct.unpack_from(">H", query, at + 1)[0], section


def answer(query: bytes, site_of: Callable[[str], Site | None]) -> bytes | None:
    """The datagram that answers a query (RFC 1035, section 4); None: no answer is ever sent."""
    name, kind, section = question(query)
    site = site_of(name)
    fate = site.fate_of(name) if site else "nxdomain"
    if fate == "silent":
        return None
    rcode = {"nxdomain": _NXDOMAIN, "servfail": _SERVFAIL}.get(fate, _NOERROR)
    record = b""
    if site and rcode == _NOERROR and kind == _TYPE_A:
        record = struct.pack(">HHHIH", 0xC00C, _TYPE_A, 1, TTL_S, 4) + socket.inet_aton(site.address_of(name))
    return query[:2] + struct.pack(">HHHHH", 0x8180 | rcode, 1, bool(record), 0, 0) + section + record


class NameServer(asyncio.DatagramProtocol):
    """Counts the questions by name in `asked`."""

    def __init__(self, site_of: Callable[[str], Site | None]) -> None:
        self.asked: Counter[str] = Counter()
        self._site_of = site_of
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        try:
            name, _, _ = question(data)
            reply = answer(data, self._site_of)
        except ValueError:
            return
        self.asked[name] += 1
        if reply is not None and self._transport is not None:
            self._transport.sendto(reply, addr)
