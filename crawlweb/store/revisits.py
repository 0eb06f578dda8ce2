"""Which payloads were stored before, so that a record can refer to one instead of having it again (WARC 1.1, §6.7)."""

from __future__ import annotations

import base64
import os
import re
from collections import OrderedDict
from contextlib import suppress
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from uuid import UUID

from isal import isal_zlib
from warcio.recordloader import ArcWarcRecordLoader
from warcio.statusandheaders import StatusAndHeadersParser

from ..records import About, Earlier, Fetch, WarcRef
from .files import OPEN
from .warc_records import (
    GZIP_WBITS,
    IDENTICAL,
    NEAR_DUPLICATE,
    NOT_MODIFIED,
    Original,
    digest_text,
    stored_url,
    warc_date,
)

LEAST_BYTES = 1024  # a smaller payload costs no more than what refers to it
_ENTRY_BYTES = 250  # what Python takes for an entry, but for what is in it
_READ_BYTES = 8 << 10
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_WARC = StatusAndHeadersParser(ArcWarcRecordLoader.WARC_TYPES)


class Payloads:
    """The payloads that were stored last, by digest, exact, in `most_bytes` of memory; the one not met for the longest goes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._originals: OrderedDict[bytes, bytes] = OrderedDict()  # record id, date, space, URL; the last met is last

    def get(self, sha1: bytes) -> Original | None:
        found = self._originals.pop(sha1, None)
        if found is None:
            return None
        self._originals[sha1] = found
        date, _, url = found[16:].decode("ascii").partition(" ")
        return Original(url, date, f"<urn:uuid:{UUID(bytes=found[:16])}>", sha1)

    def add(self, original: Original) -> None:
        self.forget(original)
        packed = UUID(original.record_id[1:-1]).bytes + f"{original.date} {original.url}".encode("ascii")
        self._originals[original.payload_sha1] = packed
        self._bytes += _ENTRY_BYTES + len(packed)
        while self._bytes > self._most_bytes:
            _, oldest = self._originals.popitem(last=False)
            self._bytes -= _ENTRY_BYTES + len(oldest)

    def forget(self, original: Original) -> None:
        found = self._originals.pop(original.payload_sha1, None)
        if found is not None:
            self._bytes -= _ENTRY_BYTES + len(found)


def revisited(folder: Path, payloads: Payloads, fetch: Fetch, about: About | None, sha1: bytes) -> tuple[str, Original | None]:
    """Profile and original of the revisit that is enough for this exchange; ("", None): its payload is to be stored. Reads the head of the
    earlier record if that is in the folder."""
    if about is not None and about.near_duplicate_of is not None:
        return NEAR_DUPLICATE, _original(about.near_duplicate_of)
    earlier = about.earlier if about is not None else None
    if fetch.status == 304 and not fetch.payload and earlier is not None:
        return NOT_MODIFIED, _read(folder, earlier) or _original(earlier)
    if len(fetch.payload) < LEAST_BYTES or fetch.truncated:
        return "", None
    found = payloads.get(sha1)
    if found is None and earlier is not None:
        found = _read(folder, earlier)
    return (IDENTICAL, found) if found is not None and found.payload_sha1 == sha1 else ("", None)


def _original(earlier: Earlier) -> Original:
    """As far as it is known without its record. It has no digest: readers would look for one that nothing has."""
    date = ""
    with suppress(ValueError, OverflowError, OSError):
        date = warc_date(datetime.fromtimestamp(earlier.fetched_at, timezone.utc)) if earlier.fetched_at else ""
    return Original(stored_url(earlier.url), date)


def _read(folder: Path, earlier: Earlier) -> Original | None:
    """What the earlier record says; if it is a revisit, what that refers to. None unless the record is here and of this URL, whole."""
    ref = earlier.warc
    start = _start(folder, ref) if ref is not None else b""
    try:
        head = _WARC.parse(BytesIO(start))
        kind, refers = head.get_header("WARC-Type"), ""
        if head.get_header("WARC-Target-URI") != stored_url(earlier.url) or head.get_header("WARC-Truncated"):
            return None
        if kind == "revisit" and head.get_header("WARC-Profile") != NEAR_DUPLICATE:
            refers = "-Refers-To"
        elif kind != "response":
            return None
        algorithm, _, digest = head.get_header("WARC-Payload-Digest", "").partition(":")
        original = Original(
            url=head.get_header(f"WARC{refers}-Target-URI", ""),
            date=head.get_header(f"WARC{refers}-Date", ""),
            record_id=head.get_header("WARC-Refers-To" if refers else "WARC-Record-ID", ""),
            payload_sha1=_sha1(algorithm, digest),
        )
    except Exception:  # warcio raises what its parts raise
        return None
    return original if original.url and original.date and original.payload_sha1 else None


def _sha1(algorithm: str, digest: str) -> bytes:
    sha1 = base64.b32decode(digest) if algorithm == "sha1" else b""
    return sha1 if digest_text(sha1) == f"sha1:{digest}" else b""


def _start(folder: Path, ref: WarcRef) -> bytes:
    """The beginning of a record, unpacked; b"": there is none. Where it stands is from outside."""
    if not _NAME.fullmatch(ref.file) or ref.offset < 0:
        return b""
    for name in (ref.file, ref.file + OPEN):
        with suppress(OSError, OverflowError):
            fd = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK)
            try:
                data = os.pread(fd, _READ_BYTES, ref.offset)
            finally:
                os.close(fd)
            try:
                return bytes(isal_zlib.decompressobj(GZIP_WBITS).decompress(data, _READ_BYTES))
            except isal_zlib.error:  # type: ignore[misc]  # the stub declares a value
                return b""
    return b""
