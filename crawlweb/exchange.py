"""One HTTP/1.1 request and its response over one connection, closed at the end unless someone keeps it: nothing is ever sent twice.

The head is split here, as leniently as browsers do (bare LF, folded lines, lines without a colon, any bytes in values,
no reason phrase), because it is kept as received anyway; chunked bodies are undone by llhttp.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import httptools

from crawlweb.decode import Decoder
from crawlweb.errors import FetchError, NoRoom
from crawlweb.in_flight import Body
from crawlweb.records import boottime

_BLANK_LINE: Final = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/(\d(?:\.\d)?)[ \t]+([1-9]\d{2})(?!\d)", re.IGNORECASE)
_FOLD: Final = re.compile(rb"\r?\n[ \t]+")
_LENGTH: Final = re.compile(rb"\d{1,18}")
_CHUNKED_HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_FRAMING_SLACK_BYTES: Final = 1 << 20
_IDENTITY: Final = Decoder(b"", 0)  # it is not fed


@dataclass(frozen=True, slots=True)
class Caps:
    """What one answer may cost."""

    body_bytes: int  # of the payload, and of what it decodes to
    header_bytes: int  # of all heads together, 1xx ones included
    first_byte_s: float  # after the request was written


@dataclass(frozen=True, slots=True)
class Head:
    raw: bytes  # as received, with the final blank line
    version: str  # "1.1"
    status: int
    headers: tuple[tuple[bytes, bytes], ...]  # names as received; values stripped, unfolded

    @classmethod
    def parse(cls, raw: bytes) -> Head:
        """FetchError `bad_response` when the first line is no status line."""
        status_line, *lines = _FOLD.sub(b" ", raw).split(b"\n")
        match = _STATUS_LINE.match(status_line)
        if match is None:
            raise FetchError("bad_response", f"no status line: {status_line[:80]!r}")
        headers = []
        for line in lines:
            name, colon, value = line.partition(b":")
            if colon and (name := name.strip()):
                headers.append((name, value.strip()))
        return cls(raw, match[1].decode(), int(match[2]), tuple(headers))

    def value(self, name: bytes) -> bytes:
        """All values of a header, joined by commas; `name` in lower case."""
        values = []
        for key, value in self.headers:
            if key.lower() == name:
                values.append(value)
        return b",".join(values)

    def has_body(self, method: str) -> bool:
        return method != "HEAD" and self.status not in (204, 304)

    def length_bytes(self) -> int | None:
        """Content-Length; None when it is missing, no number, or contradicts itself: then the close ends the body."""
        values = set(map(bytes.strip, self.value(b"content-length").split(b",")))
        value = values.pop()
        return int(value) if not values and _LENGTH.fullmatch(value) else None


class Exchange(asyncio.Protocol):
    """Reads the response as it comes; `done` resolves when nothing more will.

    Afterwards either `error` is set, or `head`, `payload`, `body`, `truncated` and `flags` hold the response. `held`: its bytes, payload
    and decoded, released by whoever is done with them; where it had to wait, no slowness is the server's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, method: str, wanted: Callable[[Head], bool], caps: Caps, held: Body) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.held = held
        self.error: FetchError | NoRoom | None = None
        self.head: Head | None = None
        self.truncated: str | None = None
        self.flags: list[str] = []
        self.sent: float | None = None
        self.first_byte: float | None = None
        self.finished: float | None = None
        self.on_first_byte: Callable[[], None] = _nothing
        self.keep: Callable[[Head, asyncio.Transport], bool] | None = None
        """Takes over the connection after a whole answer, or refuses; None: it is closed."""
        self._loop = loop
        self._method = method
        self._wanted = wanted
        self._caps = caps
        self._transport: asyncio.Transport | None = None
        self._first_byte_timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray()  # the head while it comes, then the payload
        self._interim_bytes = 0  # heads of 1xx answers
        self._wire_bytes = 0
        self._remaining_bytes: int | None = None
        self._is_delimited = False  # the answer's last byte has come, and nothing after it
        self._chunks: httptools.HttpResponseParser | None = None
        self._unchunked = bytearray()  # of one read: chunks may be a byte long
        self._decoder = _IDENTITY
        self._decoded: list[bytes] = []

    @property
    def payload(self) -> bytes:
        return bytes(self._buffer) if self.head else b""

    def body(self, payload: bytes) -> bytes:
        """Content-encoding undone; `payload` is the property's value."""
        if self._decoder.identity:
            return payload
        if self._decoder.broken:
            return self._decoder.salvage(payload)
        return b"".join(self._decoded)

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self.sent = boottime()
        self._transport.write(data)
        self._first_byte_timer = self._loop.call_later(self._caps.first_byte_s, self.expire)
        self.held.begin(self._transport)

    def end(self, truncated: str | None = None, error: FetchError | None = None) -> None:
        """Closes the connection at once. Only the first call counts."""
        if self.finished is not None:
            return
        self.finished = boottime()
        self._stop_timer()
        self.held.received()
        if self.held.has_waited and (truncated in ("time", "disconnect") or (error is not None and error.kind in ("timeout", "reset"))):
            self.error = NoRoom("its response had to wait, and the time was over, or the server hung up")
            self._part()
            return
        self.error = error
        self.truncated = truncated
        if self.head is not None:
            if self._decoder.broken or (truncated is None and self._buffer and not self._decoder.complete):
                self.flags.append("bad_encoding")
            if truncated in ("length", "time", "disconnect"):
                self.flags.append("truncated")
        self._part()

    def _part(self) -> None:
        """From the connection, and from those who have this exchange: what refers to each other would be left to the garbage collector."""
        if self._transport is not None and not self._is_kept(self._transport):
            self._transport.abort()
        self.on_first_byte, self.keep = _nothing, None
        if not self.done.done():
            self.done.set_result(None)

    def _is_kept(self, transport: asyncio.Transport) -> bool:
        if not self._is_delimited or self.keep is None or self.head is None or self.error or self.truncated or transport.is_closing():
            return False
        return self.keep(self.head, transport)

    def expire(self) -> None:
        """The time is over: what came is kept, once the head came."""
        if self.head is None:
            self.end(error=FetchError("timeout", "no response headers in time"))
        else:
            self.end("time")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        if self.finished is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.finished is not None:
            return
        if self.head is None:
            self.end(error=FetchError("reset", str(exc or "closed before the end of the headers")))
        elif exc is None and self._chunks is None and self._remaining_bytes is None:
            self.end()
        else:
            self._break_off(FetchError("reset", str(exc or "closed before the first byte of the body")))

    def data_received(self, data: bytes) -> None:
        if self.finished is not None:
            return
        if self.first_byte is None:
            self.first_byte = boottime()
            self._stop_timer()
            self.on_first_byte()
        if self.head is None:
            try:
                data = self._read_head(data)
            except FetchError as error:
                self.end(error=error)
                return
        if self.head is not None and self.finished is None and data:
            self._read_body(data)

    def _read_head(self, data: bytes) -> bytes:
        """Returns what follows the final head."""
        buffer = self._buffer
        searched_bytes = max(0, len(buffer) - 3)
        buffer += data
        while True:
            if buffer.startswith((b"\r", b"\n")):
                blank_bytes = len(buffer) - len(buffer.lstrip(b"\r\n"))
                self._interim_bytes += blank_bytes
                del buffer[:blank_bytes]
                searched_bytes = 0
            if not b"HTTP/".startswith(bytes(buffer[:5]).upper()):
                raise FetchError("bad_response", f"not HTTP: {bytes(buffer[:80])!r}")
            match = _BLANK_LINE.search(buffer, searched_bytes)
            head_bytes = match.end() if match else len(buffer)
            if self._interim_bytes + head_bytes > self._caps.header_bytes:
                raise FetchError("bad_response", f"headers over {self._caps.header_bytes} bytes")
            if match is None:
                return b""
            head = Head.parse(bytes(buffer[:head_bytes]))
            del buffer[:head_bytes]
            if head.status >= 200:
                break
            if head.status == 101:
                raise FetchError("bad_response", "switches to another protocol")
            self._interim_bytes += head_bytes
            searched_bytes = 0
        rest = bytes(buffer)
        buffer.clear()
        self._is_delimited = not rest  # where the head ends the answer
        self._begin_body(head)
        return rest

    def _begin_body(self, head: Head) -> None:
        self.head = head
        if not head.has_body(self._method):
            self.end()
            return
        if not self._wanted(head):
            self.flags.append("wrong_type")
            self.end("unspecified")
            return
        if encodings := head.value(b"content-encoding"):
            self._decoder = Decoder(encodings, self._caps.body_bytes)
        if b"chunked" in head.value(b"transfer-encoding").lower():
            self._chunks = httptools.HttpResponseParser(self)
            self._chunks.set_dangerous_leniencies(
                lenient_headers=True,
                lenient_optional_lf_after_cr=True,
                lenient_optional_cr_before_lf=True,
                lenient_optional_crlf_after_chunk=True,
                lenient_spaces_after_chunk_size=True,
            )
            self._chunks.feed_data(_CHUNKED_HEAD)
        else:
            self._remaining_bytes = head.length_bytes()
            if self._remaining_bytes == 0:
                self.end()

    def _read_body(self, data: bytes) -> None:
        self._wire_bytes += len(data)
        if self._chunks is not None:
            self._is_delimited = data.endswith(b"\n\r\n")
            try:
                self._chunks.feed_data(data)
                self._keep_unchunked()
            except httptools.HttpParserError as error:
                self._keep_unchunked()
                self._break_off(FetchError("bad_response", f"chunked body: {error}"))
        elif self._remaining_bytes is None:
            self._keep(data)
        else:
            self._is_delimited = len(data) == self._remaining_bytes
            data = data[: self._remaining_bytes]
            self._remaining_bytes -= len(data)
            self._keep(data)
            if self._remaining_bytes == 0:
                self.end()
        if self._wire_bytes > 2 * len(self._buffer) + _FRAMING_SLACK_BYTES:
            self.end("length")

    def on_body(self, data: bytes) -> None:
        """Called by llhttp with each piece of a chunk."""
        self._unchunked += data

    def on_message_complete(self) -> None:
        """Called by llhttp after the last chunk."""
        self._keep_unchunked()
        self.end()

    def _keep_unchunked(self) -> None:
        data = bytes(self._unchunked)
        self._unchunked.clear()
        self._keep(data)

    def _keep(self, data: bytes) -> None:
        """The next piece of the payload."""
        if self.finished is not None:
            return
        room_bytes = self._caps.body_bytes - len(self._buffer)
        kept = data[:room_bytes]
        self._buffer += kept
        held_bytes = len(kept)
        if not self._decoder.identity:
            self._decoded.append(self._decoder.feed(kept))
            held_bytes += len(self._decoded[-1])
        self.held.add(held_bytes)
        if len(data) > room_bytes or self._decoder.full:
            self.end("length")

    def _break_off(self, error: FetchError) -> None:
        if self._buffer:
            self.end("disconnect")
        else:
            self.end(error=error)

    def _stop_timer(self) -> None:
        if self._first_byte_timer is not None:
            self._first_byte_timer.cancel()


def _nothing() -> None:
    return None
