"""One parse of an HTML page: links, title, text, and what the page says about itself.

The tree is built by lexbor as the HTML standard says (docs/decisions/html-parser.md); one walk over its elements in
document order finds everything, and text comes from the same tree once what is not visible has been unlinked.

The standard's algorithm is quadratic in open elements, in attributes of a tag, and in formatting elements left open
(25 kB of the last kind make 4 million elements). `_tamed` rewrites pages so that none of the three can grow.
"""

from __future__ import annotations

import re
from urllib.parse import urljoin

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from ..records import Page
from .charset import encoding_of
from .language import detect
from .main_text import main_text

MAX_TITLE_CHARS = 1_000
MAX_METAS = 200
MAX_RELS = 8  # of links to one URL
MAX_TAGS_NESTED = 6_000  # pages with more `<` are parsed flat: 6,000 open elements cost 34 ms, 40,000 cost 1.4 s
LARGE_BYTES = 1_000_000
MAX_WORDS_LARGE = 200_000  # a larger page with more different words is cut: they could all be names of attributes
CUT_BYTES = 8_192  # a tag goes on for at most some four times this

_LINK, _INLINE, _DROPPED, _FRAME, _META, _REL, _BASE, _TITLE = range(8)

_INLINE_TAGS = re.findall(
    r"\w+",
    "abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd mark nobr q ruby s samp small span strike "
    "strong sub sup time tt u var wbr",
)
_KINDS_BY_TAG = {
    "a": _LINK,
    "area": _LINK,
    "iframe": _FRAME,
    "frame": _FRAME,
    "meta": _META,
    "link": _REL,
    "base": _BASE,
    "title": _TITLE,
    **dict.fromkeys(_INLINE_TAGS, _INLINE),
    **dict.fromkeys(("head", "script", "style", "template", "noscript", "noembed", "noframes"), _DROPPED),
}
_PLAIN = ("",)
_ANY_TREE = LexborHTMLParser("<p><!---->")
_KINDS = {_ANY_TREE.create_node(tag).tag_id: kind for tag, kind in _KINDS_BY_TAG.items()}
_KINDS |= {node.tag_id: _DROPPED for node in _ANY_TREE.css("p")[0].traverse() if node.is_comment_node}

_OPTIONS = LexborDocumentOptions.WO_EVENTS.value
_C0_AND_SPACE = "".join(map(chr, range(0x21)))
_NO_LINK = re.compile(r"#|(?:javascript|mailto|tel|data|about|blob|sms):|$", re.IGNORECASE)
_REFRESH = re.compile(r"[\d.]*[\s;,]+(?:url\s*=\s*)?(.+)", re.IGNORECASE | re.DOTALL)
_REL_LINKS = frozenset(("next", "prev", "alternate"))
_PAGE_TYPES = re.compile(r"^$|html|rss|atom|\bxml$", re.IGNORECASE)

# Formatting elements with attributes: without, the standard keeps at most three of a kind open.
# Spelt by first letter: IGNORECASE takes twice as long, and this sees every page.
_FORMATTING = re.compile(
    rb"<[bBcCeEfFiIsStTuU](?:[iI][gG]|[tT]|[mM]|[oO](?:[dD][eE]|[nN][tT])|[mM][aA][lL][lL]|"
    rb"[tT][rR](?:[iI][kK][eE]|[oO][nN][gG]))?(?=[\s/])"
)
_INLINE_TAG = re.compile(rb"</?(?:%s)(?=[\s/>])" % "|".join(_INLINE_TAGS).encode(), re.IGNORECASE)
_NESTING_TAG = re.compile(
    rb"</?(?!(?:a|area|base|frame|frameset|iframe|link|meta|noembed|noframes|plaintext|script|style|template|textarea|"
    rb"title|xmp)[\s/>])[a-z]",
    re.IGNORECASE,
)
_WORD = re.compile(rb"[\s/\"']([^\s/>=]+)")  # an attribute's name, or a word of the text
_ENDS_ANY_TAG = b"<!\"'>"  # outside a tag: a bogus comment; inside: closes whatever quote is open, and the tag
_SEPARATORS = b" \t\n\r\f/\"'"


def parse_page(body: bytes, url: str, content_type: str | None = None, max_text_chars: int = 1_000_000) -> Page:
    """What `body` gives. `content_type` is the header as received. Raises nothing, whatever the bytes.

    Hrefs that lead to no page (fragments, `javascript:`, `mailto:` …) are left out; the rest is neither resolved nor
    checked. The parse itself runs without the GIL.
    """
    encoding, mark_bytes = encoding_of(body, content_type)
    html = body[mark_bytes:]
    if encoding != "utf-8":
        html = html.decode(encoding, "replace").encode("utf-8", "replace")
    tree = LexborHTMLParser(_tamed(html), options=_OPTIONS)
    if tree.root is None:
        return Page(base_url=url, hrefs=[], encoding=encoding)

    hrefs: dict[str, tuple[str, ...]] = {}  # with the `rel` of each link to it
    inline: list[LexborNode] = []
    dropped: list[LexborNode] = []
    base = canonical = title = None
    metas: list[tuple[str, str]] = []
    kind_of = _KINDS.get
    for node in tree.root.traverse():
        kind = kind_of(node.tag_id)
        if kind is None:
            continue
        if kind == _LINK:
            attrs = node.attrs
            if href := attrs.get("href"):
                href = href.strip(_C0_AND_SPACE)
                rel = attrs.get("rel") or ""
                if href not in hrefs:
                    hrefs[href] = (rel,)
                elif rel not in hrefs[href] and len(hrefs[href]) < MAX_RELS:
                    hrefs[href] += (rel,)
            inline.append(node)
        elif kind == _INLINE:
            inline.append(node)
        elif kind == _DROPPED:
            dropped.append(node)
        elif kind == _FRAME:
            if href := node.attrs.get("src"):
                hrefs[href.strip(_C0_AND_SPACE)] = _PLAIN
            dropped.append(node)
        elif kind == _TITLE:
            if title is None and not _in_svg(node):
                title = node.text()
            dropped.append(node)
        elif kind == _META:
            attributes = node.attributes
            content = attributes.get("content") or ""
            if (name := attributes.get("name")) and content and len(metas) < MAX_METAS:
                metas.append((name, content))
            elif (attributes.get("http-equiv") or "").lower() == "refresh" and (target := _refresh_target(content)):
                hrefs[target] = _PLAIN
        elif kind == _REL:
            attributes = node.attributes
            rels = (attributes.get("rel") or "").lower().split()
            href = (attributes.get("href") or "").strip(_C0_AND_SPACE)
            if canonical is None and "canonical" in rels:
                canonical = href
            page_type = _PAGE_TYPES.search(attributes.get("type") or "")
            if page_type and "stylesheet" not in rels and not _REL_LINKS.isdisjoint(rels):
                hrefs[href] = _PLAIN
        elif base is None:
            base = node.attrs.get("href")

    main = main_text(tree, max_text_chars)
    base_url = (base and _http_url(url, base)) or url
    return Page(
        base_url=base_url,
        hrefs=[href for href in hrefs if not _NO_LINK.match(href)],
        rels={href: rels for href, rels in hrefs.items() if "" not in rels},
        title=_folded(title or "", MAX_TITLE_CHARS),
        main_text=main,
        language=detect(main, tree.root.attributes.get("lang") or ""),
        text=_folded(_visible_text(tree, inline, dropped), max_text_chars),
        canonical=_http_url(base_url, canonical) if canonical else None,
        robots=tuple(metas),
        encoding=encoding,
    )


def _tamed(html: bytes) -> bytes:
    """`html` without what makes tree building quadratic."""
    if len(html) > LARGE_BYTES and len(set(_WORD.findall(html))) > MAX_WORDS_LARGE:
        html = html[:LARGE_BYTES]
    if len(html) > 4 * MAX_TAGS_NESTED and html.count(b"<") > MAX_TAGS_NESTED:
        # `<html>` first: unlinking a node walks over the comments in front of the root.
        html = b"<html>" + _NESTING_TAG.sub(b" <!x", _INLINE_TAG.sub(b"<!", html))
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


def _visible_text(tree: LexborHTMLParser, inline: list[LexborNode], dropped: list[LexborNode]) -> str:
    """Text with a separator wherever a block starts or ends. Takes the tree apart."""
    for node in dropped:
        node.decompose(recursive=False)
    for node in inline:
        node.unwrap(delete_empty=True)
    tree.merge_text_nodes()
    return tree.text(separator="\n", skip_empty=True)


def _in_svg(node: LexborNode) -> bool:
    return node.parent is not None and node.parent.tag == "svg"


def _refresh_target(content: str) -> str:
    """URL of a meta refresh: `5; url='/next'`."""
    match = _REFRESH.match(content.strip())
    if match is None:
        return ""
    target = match[1]
    return (target[1:].split(target[0], 1)[0] if target[0] in "\"'" else target).strip(_C0_AND_SPACE)


def _http_url(base_url: str, href: str) -> str | None:
    try:
        url = urljoin(base_url, href.strip(_C0_AND_SPACE))
    except ValueError:
        return None
    return url if url[:8].lower().startswith(("http://", "https://")) else None


def _folded(text: str, max_chars: int) -> str:
    """`text` with every run of white space one space, cut to `max_chars`."""
    return " ".join(text[: 4 * max_chars].split())[:max_chars]
