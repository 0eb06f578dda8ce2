"""The records of one exchange, each a gzip member of its own: response or revisit, request, metadata.

The stored head agrees with the stored payload (de-chunked, still content-encoded). What no longer fits is renamed, as Common Crawl does it:
`Transfer-Encoding` to `X-Crawler-Transfer-Encoding`, a `Content-Length` that differs to `X-Crawler-Content-Length`. Every other byte of a
head stays, unless a reader would stop at it (`stored_response_head`).
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from io import BytesIO
from urllib.parse import quote

from isal import isal_zlib
from warcio.recordloader import ArcWarcRecordLoader
from warcio.statusandheaders import StatusAndHeadersParser
from warcio.warcwriter import WARCWriter

from ..records import About, Fetch
from . import cdx

GZIP_WBITS = 31
IDENTICAL = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
NEAR_DUPLICATE = "urn:crawlweb:revisit:near-duplicate"
_FIELDS = "application/warc-fields"
_REQUEST, _RESPONSE = (f"application/http; msgtype={kind}" for kind in ("request", "response"))
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_VERBS = tuple(verb.encode() for verb in ArcWarcRecordLoader.HTTP_VERBS)
_MOST_TEXT_CHARS = 500  # of a field's value, but for URLs

# Hop and context of a link, in Heritrix's words. L: link, E: embedded, R: what refreshes, or a header.
_HOPS = {
    **{tag: f"L {tag}/@href" for tag in ("a", "area", "link")},
    **{tag: f"E {tag}/@src" for tag in ("iframe", "frame", "img", "source", "embed", "script")},
    "meta": "R meta/@content",
    "header": "R link:",
}

_STATUS_LINE = re.compile(rb"HTTP/1\.[01]", re.IGNORECASE)
_FRAMING = re.compile(
    rb"^(Transfer-Encoding|Content-Length)([ \t]*:)([^\n]*\n(?:[ \t][^\n]*\n)*)",  # with continuation lines
    re.IGNORECASE | re.MULTILINE,
)
_INVISIBLE_LINE = re.compile(rb"^[^!-~\n]*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Original:
    """The record that has the payload of a revisit."""

    url: str
    date: str = ""  # WARC-Date; "": unknown
    record_id: str = ""
    payload_sha1: bytes = b""  # b"": unknown


@dataclass(frozen=True, slots=True)
class Member:
    """A compressed record, and its entry in the index."""

    data: bytes
    entry: cdx.Entry | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    members: tuple[Member, ...]
    original: Original | None  # what later revisits may refer to; None: it is a revisit itself


class RecordMaker:
    """For one thread. `gzip_level` is ISA-L's, 0 to 3."""

    def __init__(self, gzip_level: int) -> None:
        self._gzip_level = gzip_level
        self._warcio = WARCWriter(BytesIO(), gzip=False, warc_version="1.1")
        self._warcinfo_id = ""

    def warcinfo(self, file: str, info: Mapping[str, str]) -> bytes:
        """The first record of a file; those that follow name it."""
        record = self._warcio.create_warcinfo_record(file, info)
        self._warcinfo_id = record.rec_headers.get_header("WARC-Record-ID")
        return self.member(record)

    def exchange(self, fetch: Fetch, about: About | None, payload_sha1: bytes, profile: str, original: Original | None) -> Exchange:
        """`profile`: of the revisit that refers to `original`; "": the payload is stored."""
        url = stored_url(fetch.url)
        date = datetime.fromtimestamp(fetch.fetched_at, timezone.utc)
        record_id = _new_id()
        shared = {"WARC-Date": warc_date(date), "WARC-Warcinfo-ID": self._warcinfo_id}
        if fetch.ip:
            shared["WARC-IP-Address"] = fetch.ip
        named = shared | {"WARC-Record-ID": record_id}
        if fetch.truncated:
            named["WARC-Truncated"] = fetch.truncated
        head = stored_response_head(fetch) if profile != NEAR_DUPLICATE else b"HTTP/1.1 %d \r\n\r\n" % fetch.status
        digest = digest_text(payload_sha1)
        if original is None:
            named["WARC-Payload-Digest"] = digest
            response = self._record("response", url, _RESPONSE, named, head, fetch.payload)
        else:
            digest = digest_text(original.payload_sha1)
            refers = {
                "WARC-Profile": profile,
                "WARC-Refers-To-Target-URI": original.url,
                "WARC-Refers-To-Date": original.date,
                "WARC-Refers-To": original.record_id,
                "WARC-Payload-Digest": digest,
            }
            named |= {name: value for name, value in refers.items() if value}
            response = self._record("revisit", url, _RESPONSE, named, head)
        entry = cdx.http_entry(url, date.strftime("%Y%m%d%H%M%S"), head, digest or None, revisit=original is not None)
        concurrent = shared | {"WARC-Concurrent-To": record_id}
        members = [Member(response, entry), self._request(url, fetch.request_head, concurrent)]
        lines = _near_duplicate_lines(fetch, payload_sha1, original) if profile == NEAR_DUPLICATE and original else []
        if about is not None or lines:
            lines += _about_lines(fetch, about or About())
            members.append(self._metadata(url, b"".join(lines), concurrent, _FIELDS))
        if original is None:
            return Exchange(tuple(members), Original(url, named["WARC-Date"], record_id, payload_sha1))
        return Exchange(tuple(members), None)

    def _request(self, url: str, head: bytes, concurrent: dict[str, str]) -> Member:
        if not head[:8].upper().startswith(_VERBS):  # a request whose method warcio does not know makes it give up the file
            return self._metadata(url, head, concurrent, _REQUEST)
        named = concurrent | {"WARC-Record-ID": _new_id(), "WARC-Payload-Digest": _DIGEST_OF_NOTHING}
        return Member(self._record("request", url, _REQUEST, named, head))

    def _metadata(self, url: str, block: bytes, concurrent: dict[str, str], kind: str) -> Member:
        named = concurrent | {"WARC-Record-ID": _new_id(), "WARC-Payload-Digest": digest_text(hashlib.sha1(block).digest())}
        entry = None
        if kind != _FIELDS:
            entry = cdx.entry_of(_head("metadata", url, kind, named, len(block)))
        return Member(self._record("metadata", url, kind, named, block), entry)

    def _record(self, record: str, url: str, kind: str, named: dict[str, str], *block: bytes) -> bytes:
        """A record, compressed. `named`: the headers that only this kind of record has, and those that all have."""
        if record == "metadata":
            digest = named["WARC-Payload-Digest"]
        else:
            sha1 = hashlib.sha1()
            for part in block:
                sha1.update(part)
            digest = digest_text(sha1.digest())
        head = _head(record, url, kind, named | {"WARC-Block-Digest": digest}, sum(map(len, block)))
        return self.compressed(b"".join((head, *block, b"\r\n\r\n")))

    def member(self, record: object) -> bytes:
        self._warcio.out = out = BytesIO()
        self._warcio.write_record(record)
        return self.compressed(out.getvalue())

    def compressed(self, record: bytes) -> bytes:
        return isal_zlib.compress(record, self._gzip_level, GZIP_WBITS)


def _head(record: str, url: str, kind: str, named: Mapping[str, str], block_bytes: int) -> bytes:
    fields = "".join([f"{name}: {value}\r\n" for name, value in named.items()])
    return (
        f"WARC/1.1\r\n{fields}WARC-Type: {record}\r\nWARC-Target-URI: {url}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {block_bytes}\r\n\r\n"
    ).encode()


def _new_id() -> str:
    """`<urn:uuid:…>` of version 4 (RFC 9562)."""
    data = bytearray(os.urandom(16))
    data[6], data[8] = data[6] & 15 | 64, data[8] & 63 | 128
    h = data.hex()
    return f"<urn:uuid:{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}>"


def stored_url(url: str) -> str:
    return url if _is_plain(url) else quote(url, safe=_PRINTABLE, errors="surrogatepass")


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def warc_date(date: datetime) -> str:
    return date.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def digest_text(sha1: bytes) -> str:
    return "sha1:" + base64.b32encode(sha1).decode() if sha1 else ""


_DIGEST_OF_NOTHING = digest_text(hashlib.sha1().digest())


def stored_response_head(fetch: Fetch) -> bytes:
    """The response head as the WARC has it: in agreement with `fetch.payload`, and such that readers find its end.

    Lines that look blank would end the head and are left out; a status line that is not HTTP/1.x makes warcio give up
    the file and moves to `X-Crawler-Status-Line`. A length is not touched where the body is absent by definition: in
    answers to HEAD and in 304 (RFC 9110, 8.6).
    """
    head = fetch.response_head
    if not head.endswith(b"\n"):
        head += b"\r\n"
    head = _INVISIBLE_LINE.sub(_visible, head)
    if not _STATUS_LINE.match(head):
        head = b"HTTP/1.1 %d \r\nX-Crawler-Status-Line: %b" % (fetch.status, head or b"\r\n")
    length = str(len(fetch.payload)).encode()
    bodiless = fetch.status == 304 or fetch.request_head.startswith(b"HEAD ")
    stated = renamed = False

    def agree(match: re.Match[bytes]) -> bytes:
        nonlocal stated, renamed
        name, colon, value = match.groups()
        is_length = name.lower() == b"content-length"
        if is_length and (bodiless or value.strip() == length) and not stated:
            stated = True
            return match[0]
        renamed = True
        return b"X-Crawler-%b%b%b" % (name, colon, value)

    head = _FRAMING.sub(agree, head)
    if renamed and not stated and not bodiless:
        head += b"Content-Length: %b\r\n" % length
    return head + b"\r\n"


def _about_lines(fetch: Fetch, about: About) -> list[bytes]:
    """As Heritrix has them: `outlink: URL hop context`, to which we add `rel=` and, up to the end of the line, `text=`."""
    lines = [_line("fetchTimeMs", str(round((fetch.finished - fetch.started) * 1000)))]
    lines += [_line(name, value) for name, value in about.fields if value]
    lines.append(_outlinks(about.outlinks).encode("utf-8", "replace"))
    return lines


def _outlinks(links: Iterable[tuple[str, str, str, str]]) -> str:
    urls, ends = [], []
    known: dict[tuple[str, str, str], str] = {}
    for url, tag, rel, text in links:
        end = known.get((tag, rel, text))
        if end is None:
            hop = _HOPS.get(tag) or f"L {_folded(tag) or '='}"
            rels, texts = f" rel={','.join(rel.split())}" if rel else "", f" text={_folded(text)}" if text else ""
            end = known[tag, rel, text] = f" {hop}{rels}{texts}\r\n"
        urls.append(url)
        ends.append(end)
    if not _is_plain("".join(urls)):
        urls = [stored_url(url) for url in urls]
    return "".join([f"outlink: {url}{end}" for url, end in zip(urls, ends, strict=True)])


def _near_duplicate_lines(fetch: Fetch, payload_sha1: bytes, original: Original) -> list[bytes]:
    """What the record would have said of the body that is not stored, and of its head, which readers would give to the other one's body."""
    lines = [
        _line("near-duplicate-of", original.url),
        _line("payload-digest", digest_text(payload_sha1)),
        _line("payload-length", str(len(fetch.payload))),
    ]
    return lines + [_line("http-header", line.decode("latin-1")) for line in stored_response_head(fetch).splitlines() if line]


def _line(name: str, value: str) -> bytes:
    name = "".join(char for char in name if char.isascii() and (char.isalnum() or char in "-_")) or "field"
    return f"{name}: {_folded(value)}\r\n".encode("utf-8", "replace")


def _folded(text: str) -> str:
    if len(text) <= _MOST_TEXT_CHARS and text.isprintable():  # no white space but U+0020
        return text
    return " ".join(text[:_MOST_TEXT_CHARS].split())


def _visible(line: re.Match[bytes]) -> bytes:
    """The line, unless warcio takes it for blank: it decodes UTF-8, else Latin-1, and strips every Unicode space."""
    return line[0] if StatusAndHeadersParser.decode_header(line[0]).strip() else b""
