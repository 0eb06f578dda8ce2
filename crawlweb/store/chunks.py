"""Chunks: immutable files of queue entries, zstd with a checksum, at any fsspec URL (a folder, object storage).

A file is written whole and durably before anybody names it, read whole, and deleted long after its last use; which of them are in use only
Redis knows (frontier/cold.py). All functions block: they are run in threads.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import fsspec  # type: ignore[import-untyped]
import msgpack  # type: ignore[import-untyped]

from ..errors import StoreError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_FORMAT = "crawlweb-chunk-1"
# Of level and form, and what they cost: docs/decisions/cold-queues.md.
_OPTIONS: Mapping[int, int] = {zstd.CompressionParameter.compression_level: 6, zstd.CompressionParameter.checksum_flag: 1}
_MARK = "crawlweb-chunks"
_NAME = re.compile(r"(\d{13,16})-[0-9a-z]+-\d+")
MAX_BYTES = 256 << 20  # of a chunk, unpacked; ours have a hundredth


class ChunkMissing(StoreError):
    """The store is there, the chunk is not."""


class ChunkCorrupt(StoreError):
    """The chunk is there and cannot be read, or is not what its name says."""


class ChunkStore:
    """The chunks of a crawl: `<url>/<store id>/<partition>/<chunk>.zst`. A file in `<store id>` marks it, so that an empty folder, such as
    a disk that is not mounted or another machine's, is not taken for the store."""

    def __init__(self, url: str, store_id: str) -> None:
        try:
            self._fs, root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError, OSError) as e:
            raise StoreError(f"{url}: {e}") from None
        self.url, self.id = url, store_id
        self._is_local = "file" in (self._fs.protocol if isinstance(self._fs.protocol, (tuple, list)) else (self._fs.protocol,))
        self._root = f"{root.rstrip('/')}/{store_id}"

    @staticmethod
    def new_id() -> str:
        return secrets.token_hex(8)

    def create(self) -> None:
        """Makes the store. StoreError if that cannot be."""
        try:
            self._fs.makedirs(self._root, exist_ok=True)
            self._write(f"{self._root}/{_MARK}", self.id.encode())
        except Exception as e:
            raise StoreError(f"{self.url}: {_short(e)}") from e

    def is_there(self) -> bool:
        """StoreError if it cannot be told."""
        try:
            self._fs.invalidate_cache()
            return bool(self._fs.exists(f"{self._root}/{_MARK}"))
        except Exception as e:
            raise StoreError(f"{self.url}: {_short(e)}") from e

    def discard(self) -> None:
        """Takes back a store that was created and is not wanted."""
        try:
            self._fs.rm(self._root, recursive=True)
        except Exception as e:
            raise StoreError(f"{self.url}: {_short(e)}") from e

    def write(self, partition: int, chunk: str, queue: str, entries: Sequence[bytes]) -> int:
        """Returns bytes written, once they are durable. StoreError: nothing may name the chunk."""
        is_text = not any(b"\n" in entry for entry in entries)
        packed = msgpack.packb([_FORMAT, queue, b"\n".join(entries) if is_text else list(entries)], use_bin_type=True)
        data = zstd.compress(packed, options=_OPTIONS)
        try:
            self._fs.makedirs(f"{self._root}/{partition}", exist_ok=True)
            self._write(self._path(partition, chunk), data)
        except Exception as e:  # each file system has its own errors
            raise StoreError(f"{self.url}: chunk {chunk}: {_short(e)}") from e
        return len(data)

    def read(self, partition: int, chunk: str, queue: str) -> list[bytes]:
        """The entries. ChunkMissing, ChunkCorrupt: trying again will not help. StoreError: it may."""
        try:
            data = self._fs.cat_file(self._path(partition, chunk))
        except FileNotFoundError:
            if self.is_there():
                raise ChunkMissing(f"{self._path(partition, chunk)} is missing") from None
            raise StoreError(f"{self.url}: the store {self.id} is not there") from None
        except Exception as e:
            raise StoreError(f"{self.url}: chunk {chunk}: {_short(e)}") from e
        try:
            unpacker = zstd.ZstdDecompressor()
            packed = unpacker.decompress(data, MAX_BYTES)
            if not unpacker.eof or unpacker.unused_data:
                raise ValueError("cut off, or longer than it should be")
            form, owner, entries = msgpack.unpackb(packed)
            if isinstance(entries, bytes):
                entries = entries.split(b"\n")
            if form != _FORMAT or owner != queue or not isinstance(entries, list) or not all(isinstance(e, bytes) for e in entries):
                raise ValueError("not the chunk that it should be")
        except (zstd.ZstdError, ValueError, TypeError, msgpack.UnpackException) as e:
            raise ChunkCorrupt(f"{self._path(partition, chunk)} cannot be read: {_short(e)}") from None
        return entries

    def delete(self, partition: int, chunk: str) -> None:
        """A chunk that is not there is deleted. StoreError."""
        try:
            self._fs.rm_file(self._path(partition, chunk))
        except FileNotFoundError:
            pass
        except Exception as e:
            raise StoreError(f"{self.url}: chunk {chunk}: {_short(e)}") from e

    def chunks(self, partition: int) -> list[tuple[int, str]]:
        """(ms at which it was made, chunk) of all files of a partition, whether in use or not. StoreError."""
        try:
            self._fs.invalidate_cache()
            paths = self._fs.ls(f"{self._root}/{partition}", detail=False)
        except FileNotFoundError:
            return []
        except Exception as e:
            raise StoreError(f"{self.url}: {_short(e)}") from e
        return list(_named(paths))

    def _path(self, partition: int, chunk: str) -> str:
        if not _NAME.fullmatch(chunk):
            raise ChunkCorrupt(f"{chunk!r} is no name of a chunk")
        return f"{self._root}/{partition}/{chunk}.zst"

    def _write(self, path: str, data: bytes) -> None:
        if not self._is_local:
            self._fs.pipe_file(path, data)
            return
        with open(path, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def chunk_name(made_ms: int, worker: str, number: int) -> str:
    return f"{made_ms:013d}-{worker}-{number}"


def _named(paths: Sequence[Any]) -> Iterator[tuple[int, str]]:
    for path in paths:
        chunk = str(path).rpartition("/")[2].removesuffix(".zst")
        if found := _NAME.fullmatch(chunk):
            yield int(found[1]), chunk


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
