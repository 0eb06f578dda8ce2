"""The CDXJ index beside a WARC file: a line for each record that can be replayed, sorted, as `cdxj-indexer --sort` makes it.

A line is `<SURT key> <timestamp> <JSON>`; keys as the Wayback machines' URL canonicalisation makes them (the rules of Heritrix's
`WaybackURLKeyMaker`), so that pywb, OutbackCDX and others find them. docs/decisions/warc.md says why the `surt` package does not.
"""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

from warcio.recordloader import ArcWarcRecordLoader
from warcio.statusandheaders import StatusAndHeaders, StatusAndHeadersParser
from warcio.timeutils import iso_date_to_timestamp

from .files import OPEN

HEAD_BYTES = 256 << 10  # a record's headers, WARC and HTTP, end within
_RUN_LINES = 16_384  # sorted at a time, about 10 ms with the interpreter's lock
_READ_BYTES = 64 << 10
_INDEXED = ("response", "revisit", "resource", "metadata")
_MIME_END = re.compile(r"[;\s]")

_HTTP = StatusAndHeadersParser([], verify=False)
_WARC = StatusAndHeadersParser(ArcWarcRecordLoader.WARC_TYPES)

_SAFE = "".join(map(chr, range(0x21, 0x7F))).translate({ord("#"): None, ord("%"): None})
_WWW = re.compile(rb"^www\d*\.")
_PORTS = {"http": 80, "https": 443}
_QUERY_SESSIONS = tuple(
    re.compile(rb"^(.*)(?:%b)(?:&(.*))?$" % each, re.DOTALL)
    for each in (
        *(rb"jsessionid=[0-9a-z]{32}", rb"phpsessid=[0-9a-z]{32}", rb"sid=[0-9a-z]{32}"),
        *(rb"aspsessionid[a-z]{8}=[a-z]{24}", rb"cfid=[^&]+&cftoken=[^&]+"),
    )
)
_PATH_SESSION = re.compile(rb"/(?:(?:\((?:[a-z]\([0-9a-z]{24}\))+\))|(?:\([0-9a-z]{24}\)))(?=/[^?]+\.aspx)")


@dataclass(frozen=True, slots=True)
class Entry:
    """What the index says of a record, but for its place."""

    url: str
    timestamp: str  # 14 digits
    mime: str | None
    status: str | None
    digest: str | None  # of the payload

    def line(self, offset: int, length: int, file: str) -> bytes:
        fields = {"url": self.url, "mime": self.mime, "status": self.status, "digest": self.digest}
        found = {name: value for name, value in fields.items() if value is not None}
        found |= {"length": str(length), "offset": str(offset), "filename": file}
        return f"{surt_key(self.url)} {self.timestamp} {json.dumps(found)}\n".encode()


def http_entry(url: str, timestamp: str, head: bytes, digest: str | None, *, revisit: bool) -> Entry:
    """Of a response, or a revisit, whose HTTP head is `head` as it is stored."""
    http = _HTTP.parse(BytesIO(head))
    mime = "warc/revisit" if revisit else _mime(http.get_header("content-type"))
    return Entry(url, timestamp, mime, http.get_statuscode() if http else None, digest)


def entry_of(start: bytes) -> Entry | None:
    """Of a record, from the bytes it begins with (HEAD_BYTES at most); None if it is not indexed, or no record."""
    stream = BytesIO(start)
    try:
        warc: StatusAndHeaders = _WARC.parse(stream)
        kind, url = warc.get_header("WARC-Type"), warc.get_header("WARC-Target-URI")
        timestamp = iso_date_to_timestamp(warc.get_header("WARC-Date"))
        mime = warc.get_header("Content-Type")
        if kind not in _INDEXED or not url or (kind in ("metadata", "resource") and mime == "application/warc-fields"):
            return None
        digest = warc.get_header("WARC-Payload-Digest")
        if kind in ("response", "revisit"):
            return http_entry(url, timestamp, start[stream.tell() :], digest, revisit=kind == "revisit")
        return Entry(url, timestamp, _mime(mime), None, digest)
    except Exception:  # warcio raises what its parts raise
        return None


class Index:
    """Lines of one file in the making. Not in memory all at once: runs of them are sorted into unnamed files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: list[bytes] = []
        self._runs: list[tuple[int, int]] = []  # begin and end in the file
        self._file: IO[bytes] | None = None

    def add(self, line: bytes) -> None:
        """OSError when the disk is full."""
        self._lines.append(line)
        if len(self._lines) >= _RUN_LINES:
            self._file = self._file or TemporaryFile(dir=self._folder)  # noqa: SIM115
            begin = self._file.seek(0, os.SEEK_END)
            self._file.writelines(sorted(self._lines))
            self._file.flush()
            self._runs.append((begin, self._file.tell()))
            self._lines = []

    def write(self, path: Path) -> None:
        """All lines, sorted, to `path`, whole or not at all. OSError."""
        part = path.with_name(path.name + OPEN)
        runs: list[Iterable[bytes]] = [self._run(begin, end) for begin, end in self._runs]
        with part.open("wb") as out:
            out.writelines(heapq.merge(*runs, sorted(self._lines)))
        os.rename(part, path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _run(self, begin: int, end: int) -> Iterator[bytes]:
        assert self._file is not None
        rest = b""
        while begin < end:
            piece = os.pread(self._file.fileno(), min(_READ_BYTES, end - begin), begin)
            if not piece:
                raise OSError(5, "a temporary file became shorter")
            begin += len(piece)
            *lines, rest = (rest + piece).splitlines(keepends=True)
            yield from lines
            if rest.endswith(b"\n"):
                yield rest
                rest = b""


def surt_key(url: str) -> str:
    """`https://www.A.test:8080/B/../C/?z=1&a=2` → `test,a:8080)/c?a=2&z=1`. A URL that is none is its own key."""
    try:
        parts = urlsplit(url)
        scheme, port = parts.scheme, parts.port
    except ValueError:
        return url
    if scheme not in _PORTS or not parts.hostname:
        return url
    host = _unescaped(parts.hostname).lower().replace(b"..", b".").strip(b".")
    host = _escaped(_WWW.sub(b"", host, count=1))
    key = b",".join(reversed(host.split(b".")))
    if port is not None and port != _PORTS[scheme]:
        key += b":%d" % port
    key += b")" + _path(_unescaped(parts.path))
    query = _query(_escaped(_unescaped(parts.query)).lower())
    return (key + (b"?" + query if query else b"")).decode("ascii")


def _path(path: bytes) -> bytes:
    kept: list[bytes] = []
    for segment in path.split(b"/")[1:]:
        if segment == b".." and kept:
            kept.pop()
        elif segment != b".":
            kept.append(segment)
    path = b"/" + b"/".join([*filter(None, kept[:-1]), *kept[-1:]])
    path = _escaped(path).lower()
    if b".aspx" in path:
        path = _PATH_SESSION.sub(b"", path)
    return path[:-1] if path.endswith(b"/") and len(path) > 1 else path


def _query(query: bytes) -> bytes:
    if b"sid=" in query or b"sessionid" in query or b"cfid=" in query:
        for session in _QUERY_SESSIONS:
            if match := session.match(query):
                query = match[1] + (match[2] or b"")
    if b"&" in query:
        query = b"&".join(b"=".join(pair) for pair in sorted(tuple(pair.split(b"=", 1)) for pair in query.split(b"&")))
    return query


def _unescaped(text: str | bytes) -> bytes:
    """Percent-decoded until nothing is left to decode."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    while b"%" in data and (decoded := unquote_to_bytes(data)) != data:
        data = decoded
    return data


def _escaped(data: bytes) -> bytes:
    return quote_from_bytes(data, _SAFE).encode("ascii")


def _mime(content_type: str | None) -> str | None:
    return _MIME_END.split(content_type, maxsplit=1)[0].strip() if content_type else content_type
