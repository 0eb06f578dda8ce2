"""Rewrites pages so that building their tree takes time in proportion to their size.

The standard's algorithm is quadratic in open elements, in attributes of a tag, and in formatting elements left open
(25 kB of the last kind make 4 million elements); no page of ours may take over 2 s (docs/decisions/html-parser.md).
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

MAX_TAGS_NESTED = 6_000  # pages with more `<` are parsed flat: 6,000 open elements cost 34 ms, 40,000 cost 1.4 s
MAX_TAGS = 420_000  # a page is cut behind so many `<`
CUT_BYTES = 8_192  # a tag goes on for at most some four times this
LARGE_BYTES = 1_000_000  # words of larger pages are counted, for the next two
MAX_LOOKUPS = 5_000_000_000  # words times different words, 1.4e-10 s each: lexbor's table of attribute names has chains
MAX_PAIRS = 250_000_000  # words times half the words that a tag can hold, 2e-9 s each: a new attribute is compared with all

INLINE_TAGS = re.findall(
    r"\w+",
    "abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd mark nobr q ruby s samp small span strike "
    "strong sub sup time tt u var wbr",
)

# Formatting elements with attributes: without, the standard keeps at most three of a kind open.
_FORMATTING = re.compile(
    rb"<[bBcCeEfFiIsStTuU](?:[iI][gG]|[tT]|[mM]|[oO](?:[dD][eE]|[nN][tT])|[mM][aA][lL][lL]|"
    rb"[tT][rR](?:[iI][kK][eE]|[oO][nN][gG]))?(?=[\s/])"
)
_BEGINS_FORMATTING = np.zeros((256, 256), np.bool_)  # by the two bytes behind `<`: may it match?
_BEGINS_FORMATTING[np.ix_([*b"bBcCeEfFiIsStTuU"], [*b"iItTmMoO \t\n\r\f\v/"])] = True
_INLINE_TAG = re.compile(rb"</?(?:%s)(?=[\s/>])" % "|".join(tag for tag in INLINE_TAGS if tag != "img").encode(), re.IGNORECASE)
_NESTING_TAG = re.compile(
    rb"</?(?!(?:a|area|base|frame|frameset|iframe|img|link|meta|noembed|noframes|plaintext|script|source|style|template|textarea|"
    rb"title|xmp)[\s/>])[a-z]",
    re.IGNORECASE,
)
_HTML_TAG = re.compile(rb"<html\s[^<>]{0,1000}>", re.IGNORECASE)
_SCRIPT = re.compile(rb"<script[\s/>].*?(?:</script[^>]*>|\Z)", re.IGNORECASE | re.DOTALL)
# What holds no name of an attribute. Behind `>`: it ends the tag, or a quote is open and none is closed. Between quotes: they
# are those of a value, or an odd quote stands before them and remains.
_TEXT = re.compile(rb">[^<>\"']*")
_VALUE = re.compile(rb"""(?<=[^ \t\n\r\f=])[ \t\n\r\f][\w:.@-]+=(?:"[^"'<>\s]*"|'[^"'<>\s]*')""")
_WORD = re.compile(rb"[\s/\"']([^\s/>=]+)")  # an attribute's name, or a word
_WORD_BYTES = 4  # the shortest of which there are many, with what is between
_ENDS_ANY_TAG = b"<!\"'>"  # outside a tag: a bogus comment; inside: closes whatever quote is open, and the tag
_TAG_START, _TAG_END = b"<>"
_LINES_TRIED = 16
_SEPARATORS = b" \t\n\r\f/\"'"


def tamed(html: bytes) -> bytes:
    """`html` without what makes tree building quadratic."""
    cut_bytes = CUT_BYTES
    if len(html) > LARGE_BYTES:
        html, words = _shortened(_SCRIPT.sub(b" ", html))
        cut_bytes = min(CUT_BYTES, _WORD_BYTES * MAX_PAIRS // max(1, words))
    tags = np.flatnonzero(np.frombuffer(html, np.uint8) == _TAG_START)
    if len(html) > 4 * MAX_TAGS_NESTED and len(tags) > MAX_TAGS_NESTED:
        # `<html>` first: unlinking a node walks over the comments in front of the root.
        root = _HTML_TAG.search(html, 0, CUT_BYTES)
        html = (root[0] if root else b"<html>") + _NESTING_TAG.sub(b" <!x", _INLINE_TAG.sub(b"<!", html))
    else:
        html = _unformatted(html, tags)
    return html if len(html) <= 4 * cut_bytes else b"".join(_cut(html, cut_bytes))


def _unformatted(html: bytes, tags: npt.NDArray[np.intp]) -> bytes:
    """`_FORMATTING.sub(b"<span", html)`, tried at the few of `tags` only where it may match."""
    shown = np.frombuffer(html, np.uint8)
    tags = tags[: np.searchsorted(tags, len(html) - 2)]
    pieces: list[bytes] = []
    start = 0
    for tag in tags[_BEGINS_FORMATTING[shown[tags + 1], shown[tags + 2]]].tolist():
        if found := _FORMATTING.match(html, tag):
            pieces += (html[start:tag], b"<span")
            start = found.end()
    return b"".join((*pieces, html[start:])) if pieces else html


def _shortened(html: bytes) -> tuple[bytes, int]:
    """`html` up to where tags or words get too many, and how many words there are that may be names of attributes."""
    different: set[bytes] = set()
    words = odd_quotes = tags = 0
    for start in range(0, len(html), LARGE_BYTES // 4):
        block = html[start : start + LARGE_BYTES // 4]
        tags += block.count(b"<")
        rest = _VALUE.sub(b" ", _TEXT.sub(b">", block))
        found = _WORD.findall(rest)
        different.update(found)
        odd_quotes += rest.count(b"'") + rest.count(b'"')
        words += len(found)
        if tags > MAX_TAGS or (len(different) + odd_quotes) * (words + odd_quotes) > MAX_LOOKUPS:
            return html[:start] or block, words + odd_quotes
    return html, words + odd_quotes


def _cut(html: bytes, cut_bytes: int) -> list[bytes]:
    """Pieces of `html` with `_ENDS_ANY_TAG` between: after a line that ends in `>`, else after any `>`."""
    pieces: list[bytes] = []
    start = position = separators = 0
    while len(html) - position > 2 * cut_bytes:
        window_end = position + 2 * cut_bytes
        cut = _line_behind_tag(html, position + cut_bytes, window_end)
        if not cut and not (cut := html.find(b">", position + cut_bytes, window_end) + 1):
            window = html[position:window_end]
            separators += len(window) - len(window.translate(None, _SEPARATORS))
            position = window_end
            if separators < cut_bytes:
                continue
            cut = window_end
        pieces += (html[start:cut], _ENDS_ANY_TAG)
        start = position = cut
        separators = 0
    pieces.append(html[start:])
    return pieces


def _line_behind_tag(html: bytes, start: int, end: int) -> int:
    """Where the line ends that the first `>` before a newline ends; 0: there is none. One byte is found far quicker than two."""
    newline = start
    for _ in range(_LINES_TRIED):
        newline = html.find(b"\n", newline + 1, end)
        if newline < 0:
            return 0
        if html[newline - 1] == _TAG_END:
            return newline
    return html.find(b">\n", newline, end) + 1
