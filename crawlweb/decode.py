"""Content-Encoding undone piece by piece, in bounded memory (RFC 9110 §8.4, RFC 9659 for the zstd window)."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import brotli  # type: ignore[import-untyped]

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ACCEPT_ENCODING: Final = b"gzip, deflate, br, zstd"
_PIECE_BYTES: Final = 4096  # fed at once, so that a defect costs little of what stands before it
_MEMBERS_MAX: Final = 100  # gzip members or zstd frames in one body: each costs a copy of what follows
_LAYERS_MAX: Final = 3
_ZSTD_WINDOW_LOG_MAX: Final = 23
_ERRORS: Final = (zlib.error, brotli.error, zstd.ZstdError, EOFError)


class Decoder:
    """Decodes one body. `encodings` is the value of Content-Encoding; what is unknown there counts as identity.

    No layer yields more than `cap_bytes`; `full` says that there was more. `broken` says that the data did not follow
    the encoding named: nothing comes after the defect.
    """

    def __init__(self, encodings: bytes, cap_bytes: int) -> None:
        self._encodings = encodings
        self._cap_bytes = cap_bytes
        names = [name.strip().lower() for name in encodings.split(b",")]
        names = [name for name in names if name not in (b"", b"identity", b"none")]
        self.full = False
        self.broken = len(names) > _LAYERS_MAX or any(name not in _LAYERS for name in names)
        self._layers = [_LAYERS[name]() for name in reversed(names[:_LAYERS_MAX]) if name in _LAYERS]
        self._rooms_bytes = [cap_bytes] * len(self._layers)
        self._intact_bytes = 0  # input before the piece that broke
        self._stopped = False

    @property
    def identity(self) -> bool:
        return not self._layers

    @property
    def complete(self) -> bool:
        """The encoded data ended where its format says. Not to be asked once `broken`."""
        return all(layer.eof for layer in self._layers)

    def feed(self, data: bytes, piece_bytes: int = _PIECE_BYTES) -> bytes:
        out = []
        for start in range(0, len(data), piece_bytes):
            if self._stopped:
                break
            out.append(self._decode(data[start : start + piece_bytes]))
        return b"".join(out)

    def salvage(self, payload: bytes) -> bytes:
        """The whole body again, up to the very byte that broke; `payload` is all that was fed."""
        intact = self._intact_bytes
        again = Decoder(self._encodings, self._cap_bytes)
        return again.feed(payload[:intact]) + again.feed(payload[intact : intact + _PIECE_BYTES], piece_bytes=1)

    def _decode(self, piece: bytes) -> bytes:
        data = piece
        for index, layer in enumerate(self._layers):
            room_bytes = self._rooms_bytes[index]
            try:
                data = layer.decode(data, room_bytes + 1)
            except _ERRORS:
                self.broken = self._stopped = True
                return b""
            self.broken |= layer.mislabelled
            if len(data) > room_bytes:
                self.full = self._stopped = True
                data = data[:room_bytes]
            self._rooms_bytes[index] -= len(data)
        self._intact_bytes += len(piece)
        return data


class _Layer(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def mislabelled(self) -> bool: ...

    def decode(self, data: bytes, limit_bytes: int) -> bytes:
        """At least `limit_bytes` when there is as much; then no further call is made."""


class _Zlib:
    """gzip (several members, garbage after the last ignored) and deflate, with or without its zlib header."""

    def __init__(self, headless: bool) -> None:
        self.eof = self.mislabelled = False
        self._headless = headless  # data with neither header is raw deflate; else it is not compressed at all
        self._inflate = zlib.decompressobj()
        self._started = False
        self._held = b""
        self._members = 0

    def decode(self, data: bytes, limit_bytes: int) -> bytes:
        if self.mislabelled:
            return data
        data = self._held + data
        self._held = b""
        out = b""
        while data and len(out) < limit_bytes:
            if not self._started:
                if len(data) < 2:
                    self._held = data
                    break
                if not self._start(data):
                    return out + data if self.mislabelled else out
            out += self._inflate.decompress(data, limit_bytes - len(out))
            self.eof = self._inflate.eof
            self._started = not self.eof
            data = self._inflate.unused_data if self.eof else self._inflate.unconsumed_tail
        return out

    def _start(self, data: bytes) -> bool:
        self._members += 1
        if data[:2] == b"\x1f\x8b" and self._members <= _MEMBERS_MAX:
            self._inflate = zlib.decompressobj(31)
        elif self._members > 1:
            return False
        elif data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0:
            self._inflate = zlib.decompressobj(15)
        elif self._headless:
            self._inflate = zlib.decompressobj(-15)
        else:
            self.mislabelled = True
            return False
        self._started = True
        return True


class _Brotli:
    mislabelled = False

    def __init__(self) -> None:
        self._decompressor = brotli.Decompressor()

    @property
    def eof(self) -> bool:
        return bool(self._decompressor.is_finished())

    def decode(self, data: bytes, limit_bytes: int) -> bytes:
        out: bytes = b"" if self.eof else self._decompressor.process(data, output_buffer_limit=limit_bytes)
        while len(out) < limit_bytes and not (self.eof or self._decompressor.can_accept_more_data()):
            out += self._decompressor.process(b"", output_buffer_limit=limit_bytes - len(out))
        return out


class _Zstd:
    mislabelled = False

    def __init__(self) -> None:
        self.eof = False
        self._frames = 0
        self._decompressor = self._frame()

    def decode(self, data: bytes, limit_bytes: int) -> bytes:
        out = b""
        while data and len(out) < limit_bytes:
            if self.eof:
                if self._frames == _MEMBERS_MAX:
                    return out
                self._decompressor = self._frame()
            out += self._decompressor.decompress(data, max_length=limit_bytes - len(out))
            self.eof = self._decompressor.eof
            data = self._decompressor.unused_data if self.eof else b""
        return out

    def _frame(self) -> zstd.ZstdDecompressor:
        self._frames += 1
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX}
        decompressor: zstd.ZstdDecompressor = zstd.ZstdDecompressor(options=options)
        return decompressor


_LAYERS: Final[dict[bytes, Callable[[], _Layer]]] = {
    b"gzip": partial(_Zlib, headless=False),
    b"x-gzip": partial(_Zlib, headless=False),
    b"deflate": partial(_Zlib, headless=True),
    b"br": _Brotli,
    b"zstd": _Zstd,
}
