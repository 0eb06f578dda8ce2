"""What dead writers left of their WARC files: an open file that nobody has locked is cut, indexed and named finally."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from isal import isal_zlib

from ..errors import StoreError
from . import cdx
from .files import OPEN, WARC, index_path, lock, make_folder
from .warc_records import GZIP_WBITS

_SCAN_BYTES = 64 << 10  # about six records: what is left of a piece is copied at each member's end


@dataclass(frozen=True, slots=True)
class Repaired:
    """A file that its writer left open."""

    file: str  # name in its final form
    kept_bytes: int  # 0: it held no exchange and was removed
    cut_bytes: int  # behind the last whole record


def repair(folder: Path) -> list[Repaired]:
    """Finish what dead writers left open: cut after the last whole record, make the index, give the final name. Blocks; for a thread.

    A record whose partner was cut stays. Files without an exchange are removed. Safe beside live writers and other
    repairers. Makes the folder if there is none. StoreError when the folder or a file in it cannot be written.
    """
    make_folder(folder)
    repaired = []
    for path in sorted(folder.glob("*" + WARC + OPEN)):
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:  # finished since the listing
            continue
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        try:
            if lock(fd, path):
                repaired.append(_repair_locked(fd, path))
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        finally:
            os.close(fd)
    return repaired


def write_index(fd: int, final: Path) -> None:
    """The index of a finished file that has none, or an old one; the file must be locked. OSError."""
    index = cdx.Index(final.parent)
    try:
        _scan(fd, final.name, index)
        index.write(index_path(final))
    finally:
        index.close()


def _repair_locked(fd: int, path: Path) -> Repaired:
    final = path.with_name(path.name[: -len(OPEN)])
    found_bytes = os.fstat(fd).st_size
    index = cdx.Index(path.parent)
    try:
        whole_bytes, records = _scan(fd, final.name, index)
        if records < 2:  # no more than a warcinfo
            for each in (index_path(final), path):
                with suppress(FileNotFoundError):
                    os.unlink(each)
            return Repaired(final.name, 0, found_bytes)
        os.ftruncate(fd, whole_bytes)
        index.write(index_path(final))
        os.fsync(fd)
        os.rename(path, final)
    finally:
        index.close()
    return Repaired(final.name, whole_bytes, found_bytes - whole_bytes)


def _scan(fd: int, file: str, index: cdx.Index) -> tuple[int, int]:
    """Bytes and number of the whole records at the file's start; their lines go into the index."""
    whole_bytes = records = 0
    for start, end in _whole_records(fd):
        if entry := cdx.entry_of(start):
            index.add(entry.line(whole_bytes, end - whole_bytes, file))
        whole_bytes = end
        records += 1
    return whole_bytes, records


def _whole_records(fd: int) -> Iterator[tuple[bytes, int]]:
    """The gzip members at the file's start that are whole, checksum included: what each begins with, unpacked, and where it ends."""
    read_bytes = 0
    piece = b""
    while True:
        member = isal_zlib.decompressobj(GZIP_WBITS)
        start = b""
        while not member.eof:
            if not piece:
                piece = os.pread(fd, _SCAN_BYTES, read_bytes)
                read_bytes += len(piece)
                if not piece:
                    return
            try:
                unpacked = member.decompress(piece)
            except isal_zlib.error:  # type: ignore[misc]  # the stub declares a value
                return
            if len(start) < cdx.HEAD_BYTES:
                start += unpacked[: cdx.HEAD_BYTES - len(start)]
            piece = member.unused_data
        yield start, read_bytes - len(piece)
