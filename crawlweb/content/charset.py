"""The encoding of a page or text, found as browsers do (https://encoding.spec.whatwg.org, HTML 13.2.3.2).

Order: byte order mark, `charset` of the Content-Type header, declaration in the first 1,024 bytes, UTF-16 without a
mark, valid UTF-8, detector, windows-1252. Nothing here raises; what cannot be decoded becomes U+FFFD.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from functools import lru_cache

import webencodings
from charset_normalizer import from_bytes

PRESCAN_BYTES = 1024
SAMPLE_BYTES = 4096
FALLBACK = "cp1252"

# Python's codecs of these names know fewer characters than browsers do.
_WIDER = {
    "gbk": "gb18030",
    "gb2312": "gb18030",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "big5": "big5hkscs",
    "iso-8859-8-i": "iso-8859-8",
    "x-mac-cyrillic": "mac-cyrillic",
    "macintosh": "mac-roman",
    "windows-874": "cp874",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
    "x-user-defined": FALLBACK,
}
# Real pages also declare encodings that browsers never knew. Not among them: utf-7, which hides markup, and the codecs
# of Python that are no charsets.
_BEYOND_BROWSERS = re.compile(
    r"(cp|ibm)-?\d+|mac[-_]?[a-z]+|iso[-_]?8859[-_]\d+|iso[-_]?2022[-_]\w+|hz|johab|ptcp154|kz1048|utf[-_]32([-_]?[lb]e)?"
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_HEADER_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_CONTENT_CHARSET = re.compile(rb"charset\s*=\s*[\"']?\s*([^\s\"';]+)", re.IGNORECASE)
_MARKUP = re.compile(
    rb"""<!--.*?(?:-->|$) | <\?xml\s[^>]*?encoding\s*=\s*["'](?P<xml>[^"']+) | <[!/?][^>]* | <(?P<tag>[a-z][^\s/>]*)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_ATTRIBUTE = re.compile(rb"""[\s/]*(=?[^\s/>=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)))?""")


@lru_cache(maxsize=256)
def codec_of(label: str) -> str | None:
    """Python codec that decodes what a page means by `label`; None for a label that means no charset."""
    known = webencodings.lookup(label)
    if known is not None:
        return _WIDER.get(known.name, known.name) if known.name != "replacement" else None
    if not _BEYOND_BROWSERS.fullmatch(label.lower()):
        return None
    try:
        return codecs.lookup(label).name
    except LookupError:
        return None


def _declared(body: bytes, content_type: str | None) -> str | None:
    if content_type and (match := _HEADER_CHARSET.search(content_type)) and (codec := codec_of(match[1])):
        return codec
    for label in _prescanned(body[:PRESCAN_BYTES]):
        if codec := codec_of(label.decode("latin-1")):
            # A declaration that could be read as ASCII does not stand in UTF-16.
            return "utf-8" if codec.startswith("utf-16") else codec
    return None


def _prescanned(head: bytes) -> Iterator[bytes]:
    """Labels that `head` declares, in order."""
    position = 0
    while found := _MARKUP.search(head, position):
        position = found.end()
        if found["xml"]:
            yield found["xml"]
        if found["tag"] is None:
            continue
        attributes: dict[bytes, bytes] = {}
        while attribute := _ATTRIBUTE.match(head, position):
            position = attribute.end()
            attributes.setdefault(attribute[1].lower(), attribute[2] or attribute[3] or attribute[4] or b"")
        if found["tag"].lower() != b"meta" or position == len(head):
            continue
        if charset := attributes.get(b"charset"):
            yield charset
        elif attributes.get(b"http-equiv", b"").lower() == b"content-type":
            yield from _CONTENT_CHARSET.findall(attributes.get(b"content", b""))


def _guessed(body: bytes) -> str:
    sample = body[:PRESCAN_BYTES]
    for codec, high_bytes in ("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2]):
        if (nuls := high_bytes.count(0)) > len(sample) // 8 and nuls * 10 > sample.count(0) * 9:
            return codec
    try:
        body.decode("utf-8")
        return "utf-8"
    except UnicodeDecodeError as error:
        if error.start >= len(body) - 3 and error.reason == "unexpected end of data":
            return "utf-8"
        start = max(0, error.start - SAMPLE_BYTES // 4)
    best = from_bytes(body[start : start + SAMPLE_BYTES]).best()
    return (codec_of(best.encoding) if best else None) or FALLBACK


def encoding_of(body: bytes, content_type: str | None = None) -> tuple[str, int]:
    """Python codec of `body`, and the length of its byte order mark in bytes."""
    for mark, codec in _MARKS:
        if body.startswith(mark):
            return codec, len(mark)
    return _declared(body, content_type) or _guessed(body), 0


def decode(body: bytes, content_type: str | None = None) -> tuple[str, str]:
    """Text of `body` without byte order mark, and the Python codec it was decoded with."""
    codec, mark_bytes = encoding_of(body, content_type)
    return body[mark_bytes:].decode(codec, "replace"), codec
