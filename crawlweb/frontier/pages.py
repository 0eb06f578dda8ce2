"""Page records as bytes, and the steps that keep them (lua/records.lua, lua/due.lua).

    fetched_at  next_at  priority depth  status flags has  name-bytes host-bytes text-bytes  text ...
    u32         u32      u8       u8     u16    u8    u8   u8         u8         u16         (big-endian)

That head is what the scripts read: times are whole seconds; `text` is the URL without its scheme, its host begins after `name-bytes` of it
(255: the host is no end of its name, and stands before it). What follows is there as `has` says, numbers as varints: seconds from first
seen to fetched, interval, fetches, changes; content hash, fingerprint, ETag, Last-Modified (a number: its second), storage key, canonical
(bytes that it begins with as the URL does, the rest), earlier versions.
"""

from __future__ import annotations

import re
import struct
from datetime import datetime, timezone
from email.utils import format_datetime

from ..records import PageRecord, PageVersion, WarcRef

KEY_BYTES = 8  # of a URL key: the key of its record
DAY_S, AHEAD_S = 86_400, 90_000  # a list of pages that are due on a day is needed so long before it begins (lua/records.lua)
MAX_RECORD_BYTES = 16_384
MAX_ETAG_BYTES = 200  # a longer one is not kept: the next fetch is unconditional, or by Last-Modified
MAX_DATE_BYTES = 60
MAX_VERSIONS = 16
FLAGS = ("soft_404", "noindex", "duplicate", "near_duplicate", "truncated", "rendered")
_FLAGS = [frozenset(flag for i, flag in enumerate(FLAGS) if bits & 1 << i) for bits in range(1 << len(FLAGS))]
_HEAD = struct.Struct(">IIBBHBBBBH")
_PLAIN_HTTP, _HASH, _FINGERPRINT, _ETAG, _DATE, _WARC, _CANONICAL, _VERSIONS = (1 << bit for bit in range(8))
_APART = 255
_MOST_S = 2**32 - 1
_CHANGES = 2**32 - 1  # the last 32 fetches
_MOST = 2**63 - 1
_OURS = re.compile(r"crawlweb-(\d{17})-([A-Za-z0-9._-]{1,200})-(\d{5})\.warc\.gz")
_WORKER = re.compile(r"[A-Za-z0-9._-]{1,200}")
_VERBATIM = 0  # in place of the worker's length


def record_key(url_key: bytes) -> bytes:
    return url_key[:KEY_BYTES]


def _seconds(unix_s: float) -> int:
    return max(0, min(_MOST_S, int(unix_s)))


def _varint(n: int) -> bytes:
    if 0 <= n < 128:
        return bytes((n,))
    n = max(0, min(_MOST, n))
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _short(data: bytes) -> bytes:
    return bytes((len(data),)) + data


def _date(text: str) -> bytes:
    """An HTTP date as its second and a zero byte before it, if it comes back as it was; else the text."""
    try:
        at = datetime.strptime(text, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=timezone.utc)
    except ValueError:
        at = None
    if at and 0 <= at.timestamp() <= _MOST_S and format_datetime(at, usegmt=True) == text:
        return b"\0" + struct.pack(">I", int(at.timestamp()))
    data = text.encode()
    return _short(data) if 0 < len(data) <= MAX_DATE_BYTES else b""


def _storage_key(ref: WarcRef) -> bytes:
    place = _varint(ref.offset) + _varint(ref.length)
    if found := _OURS.fullmatch(ref.file):
        stamp, worker, serial = found.groups()
        return _short(worker.encode()) + int(stamp).to_bytes(8, "big") + _varint(int(serial)) + place
    data = ref.file.encode()
    return bytes((_VERBATIM,)) + _varint(len(data)) + data + place


def encode(record: PageRecord, host: str, priority: int = 9, depth: int = 0) -> bytes:
    """`host`: the politeness key that the page is queued under, `priority` and `depth` how it is queued again. Whole seconds are kept, of
    what servers say only what is short enough. ValueError for what cannot be kept."""
    scheme, sep, text = record.url.partition("://")
    if not sep or scheme not in ("http", "https") or not host or not 0 <= priority <= 9 or not 0 <= record.status < 2**16:
        raise ValueError(f"no page: {record.url[:200]!r} of {host!r}, status {record.status}, priority {priority}")
    if len(record.content_hash) not in (0, 8) or not 0 <= record.fingerprint < 2**64:
        raise ValueError(f"no fingerprint: {record.content_hash!r}, {record.fingerprint}")
    name, host_bytes = re.split(r"[:/?#]", text, maxsplit=1)[0], len(host.encode())
    name_bytes = len(name.encode()) - host_bytes
    if not name.endswith(host) or not 0 <= name_bytes < _APART:
        name_bytes, text = _APART, host + text
    data, has, fetched = text.encode(), 0, _seconds(record.fetched_at)
    first_seen = _seconds(record.first_seen)
    tail = [
        _varint(fetched - first_seen + 1 if 0 < first_seen <= fetched else 0),
        _varint(round(record.interval_s)),
        _varint(record.fetches),
        _varint(record.changes & _CHANGES),
    ]

    def put(bit: int, value: bytes) -> None:
        nonlocal has
        if value:
            has |= bit
            tail.append(value)

    if scheme == "http":
        has |= _PLAIN_HTTP
    put(_HASH, record.content_hash)
    put(_FINGERPRINT, record.fingerprint.to_bytes(8, "big") if record.fingerprint else b"")
    etag = record.etag.encode()
    put(_ETAG, _short(etag) if 0 < len(etag) <= MAX_ETAG_BYTES else b"")
    put(_DATE, _date(record.last_modified))
    put(_WARC, _storage_key(record.warc) if record.warc else b"")
    if record.canonical:
        canonical, url, same = record.canonical.encode(), record.url.encode(), 0
        while same < min(255, len(canonical), len(url)) and canonical[same] == url[same]:
            same += 1
        put(_CANONICAL, bytes((same,)) + _varint(len(canonical) - same) + canonical[same:])
    versions = record.versions[:MAX_VERSIONS]
    if versions:
        some = [bytes((len(versions),))]
        for version in versions:
            if len(version.content_hash) not in (0, 8):
                raise ValueError(f"no hash: {version.content_hash!r}")
            some += (struct.pack(">I", _seconds(version.fetched_at)), _short(version.content_hash))
            some.append(b"\1" + _storage_key(version.warc) if version.warc else b"\0")
        put(_VERSIONS, b"".join(some))
    flags = sum(1 << i for i, flag in enumerate(FLAGS) if flag in record.flags)
    if host_bytes > 255 or len(data) > 65_535:
        raise ValueError(f"too long: {record.url[:200]!r} of {host[:200]!r}")
    head = _HEAD.pack(
        fetched, _seconds(record.next_at), priority, min(depth, 255), record.status, flags, has, name_bytes, host_bytes, len(data)
    )
    packed = b"".join((head, data, *tail))
    if len(packed) > MAX_RECORD_BYTES:
        raise ValueError(f"a record of {len(packed)} bytes: {record.url[:200]!r}")
    return packed


def repacked(data: bytes, record: PageRecord) -> bytes:
    """`record` as it is queued like the one in `data`. ValueError."""
    host, _ = decode(data)
    _, _, priority, depth, *_ = _HEAD.unpack_from(data)
    return encode(record, host, priority, depth)


class _Bytes:
    """Taken from the left; ValueError where there are none left."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise ValueError("a record that breaks off")
        self.at += n
        return self.data[self.at - n : self.at]

    def byte(self) -> int:
        at, self.at = self.at, self.at + 1
        if at >= len(self.data):
            raise ValueError("a record that breaks off")
        return self.data[at]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def varint(self) -> int:
        byte = self.byte()
        if byte < 128:
            return byte
        n, shift = byte & 127, 7
        while True:
            byte = self.byte()
            n |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 56:
                raise ValueError("not a number")
        return n

    def text(self, n: int) -> str:
        return self.take(n).decode()

    def hash(self) -> bytes:
        n = self.byte()
        if n not in (0, 8):
            raise ValueError("not a hash")
        return self.take(n)

    def date(self) -> str:
        n = self.byte()
        return self.text(n) if n else format_datetime(datetime.fromtimestamp(self.u32(), timezone.utc), usegmt=True)

    def storage_key(self) -> WarcRef:
        n = self.byte()
        if n == _VERBATIM:
            file = self.text(self.varint())
        else:
            worker, stamp, serial = self.text(n), int.from_bytes(self.take(8), "big"), self.varint()
            file = f"crawlweb-{stamp:017}-{worker}-{serial:05}.warc.gz"
            if stamp >= 10**17 or serial >= 10**5 or not _WORKER.fullmatch(worker):
                raise ValueError("not a storage key")
        return WarcRef(file, self.varint(), self.varint())

    def version(self) -> PageVersion:
        fetched_at, content_hash = float(self.u32()), self.hash()
        return PageVersion(fetched_at, content_hash, self.storage_key() if self.byte() else None)


def decode(data: bytes) -> tuple[str, PageRecord]:
    """The host and the record; ValueError for what `encode` did not make."""
    if not _HEAD.size < len(data) <= MAX_RECORD_BYTES:
        raise ValueError("not a record")
    fetched, next_at, priority, _, status, flags, has, name_bytes, host_bytes, text_bytes = _HEAD.unpack_from(data)
    rest = _Bytes(data, _HEAD.size)
    text = rest.take(text_bytes)
    start = 0 if name_bytes == _APART else name_bytes
    host = text[start : start + host_bytes].decode()
    if priority > 9 or not host or len(host.encode()) != host_bytes or flags >> len(FLAGS):
        raise ValueError("not a record")
    scheme = "http" if has & _PLAIN_HTTP else "https"
    url = f"{scheme}://{text[host_bytes if name_bytes == _APART else 0 :].decode()}"
    since_first, interval_s, fetches, changes = rest.varint(), rest.varint(), rest.varint(), rest.varint()
    content_hash = rest.take(8) if has & _HASH else b""
    fingerprint = int.from_bytes(rest.take(8), "big") if has & _FINGERPRINT else 0
    etag = rest.text(rest.byte()) if has & _ETAG else ""
    last_modified = rest.date() if has & _DATE else ""
    warc = rest.storage_key() if has & _WARC else None
    canonical = ""
    if has & _CANONICAL:
        same = rest.byte()
        canonical = (url.encode()[:same] + rest.take(rest.varint())).decode()
    versions = tuple(rest.version() for _ in range(min(rest.byte(), MAX_VERSIONS))) if has & _VERSIONS else ()
    if rest.at != len(data) or since_first > fetched:
        raise ValueError("not a record")
    return host, PageRecord(
        url=url,
        fetched_at=float(fetched),
        status=status,
        content_hash=content_hash,
        fingerprint=fingerprint,
        etag=etag,
        last_modified=last_modified,
        fetches=fetches,
        changes=changes,
        first_seen=float(fetched - since_first + 1) if since_first else 0.0,
        interval_s=float(interval_s),
        next_at=float(next_at),
        warc=warc,
        canonical=canonical,
        flags=_FLAGS[flags],
        versions=versions,
    )
