"""Rewrites pages so that building their tree takes time in proportion to their size.

The standard's algorithm is quadratic in open elements, in attributes of a tag, and in formatting elements left open
(25 kB of the last kind make 4 million elements); no page of ours may take over 2 s (docs/decisions/html-parser.md).
"""

from __future__ import annotations

import re

MAX_TAGS_NESTED = 6_000  # pages with more `<` are parsed flat: 6,000 open elements cost 34 ms, 40,000 cost 1.4 s
LARGE_BYTES = 1_000_000
MAX_WORDS_LARGE = 200_000  # a larger page with more different words is cut: they could all be names of attributes
CUT_BYTES = 8_192  # a tag goes on for at most some four times this

INLINE_TAGS = re.findall(
    r"\w+",
    "abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd mark nobr q ruby s samp small span strike "
    "strong sub sup time tt u var wbr",
)

# Formatting elements with attributes: without, the standard keeps at most three of a kind open.
# Spelt by first letter: IGNORECASE takes twice as long, and this sees every page.
_FORMATTING = re.compile(
    rb"<[bBcCeEfFiIsStTuU](?:[iI][gG]|[tT]|[mM]|[oO](?:[dD][eE]|[nN][tT])|[mM][aA][lL][lL]|"
    rb"[tT][rR](?:[iI][kK][eE]|[oO][nN][gG]))?(?=[\s/])"
)
_INLINE_TAG = re.compile(rb"</?(?:%s)(?=[\s/>])" % "|".join(tag for tag in INLINE_TAGS if tag != "img").encode(), re.IGNORECASE)
_NESTING_TAG = re.compile(
    rb"</?(?!(?:a|area|base|frame|frameset|iframe|img|link|meta|noembed|noframes|plaintext|script|source|style|template|textarea|"
    rb"title|xmp)[\s/>])[a-z]",
    re.IGNORECASE,
)
_HTML_TAG = re.compile(rb"<html\s[^<>]{0,1000}>", re.IGNORECASE)
_WORD = re.compile(rb"[\s/\"']([^\s/>=]+)")  # an attribute's name, or a word of the text
_ENDS_ANY_TAG = b"<!\"'>"  # outside a tag: a bogus comment; inside: closes whatever quote is open, and the tag
_SEPARATORS = b" \t\n\r\f/\"'"


def tamed(html: bytes) -> bytes:
    """`html` without what makes tree building quadratic."""
    if len(html) > LARGE_BYTES and len(set(_WORD.findall(html))) > MAX_WORDS_LARGE:
        html = html[:LARGE_BYTES]
    if len(html) > 4 * MAX_TAGS_NESTED and html.count(b"<") > MAX_TAGS_NESTED:
        # `<html>` first: unlinking a node walks over the comments in front of the root.
        root = _HTML_TAG.search(html, 0, CUT_BYTES)
        html = (root[0] if root else b"<html>") + _NESTING_TAG.sub(b" <!x", _INLINE_TAG.sub(b"<!", html))
    else:
        html = _FORMATTING.sub(b"<span", html)
    return html if len(html) <= 4 * CUT_BYTES else b"".join(_cut(html))


def _cut(html: bytes) -> list[bytes]:
    """Pieces of `html` with `_ENDS_ANY_TAG` between: after a line that ends in `>`, else after any `>`."""
    pieces: list[bytes] = []
    start = position = separators = 0
    while len(html) - position > 2 * CUT_BYTES:
        window_end = position + 2 * CUT_BYTES
        cut = html.find(b">\n", position + CUT_BYTES, window_end) + 1
        if not cut and not (cut := html.find(b">", position + CUT_BYTES, window_end) + 1):
            window = html[position:window_end]
            separators += len(window) - len(window.translate(None, _SEPARATORS))
            position = window_end
            if separators < CUT_BYTES:
                continue
            cut = window_end
        pieces += (html[start:cut], _ENDS_ANY_TAG)
        start = position = cut
        separators = 0
    pieces.append(html[start:])
    return pieces
