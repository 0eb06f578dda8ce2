"""One parse of an HTML page: links, title, text, and what the page says about itself.

The tree is built by lexbor as the HTML standard says (docs/decisions/html-parser.md), from a page that `taming` has made
harmless; one walk over its elements in document order finds everything, and text comes from the same tree once what is
not visible has been unlinked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from ..records import Anchor, Page
from .charset import encoding_of
from .language import detect
from .links import C0_AND_SPACE, NO_LINK, PAGE_TYPES, REL_LINKS, header_links, http_url, refresh_target, srcset_urls
from .main_text import main_text
from .taming import INLINE_TAGS, tamed

MAX_TITLE_CHARS = 1_000
MAX_ANCHOR_CHARS = 200
MAX_ANCHORS_CHARS = 1_000_000  # read for anchor texts of a page: links in SVG can nest, and their texts with them
MIN_ANCHOR_CHARS = 20  # that a text counts as, at the least
MAX_METAS = 200
MAX_HEADINGS = 24
MAX_HEADING_CHARS = 200
MAX_RELS = 8  # of links to one URL
MAX_HREFLANGS = 200
MAX_LANGUAGE_CHARS = 35  # RFC 5646, 4.4.1
MAX_SIGNS = 100  # of structured data, looked at for being in a tag
MAX_TAG_BYTES = 4_096  # between the start of a tag and a sign in it


@dataclass(frozen=True, slots=True)
class Wants:
    """Facts that cost CPU (docs/decisions/html-parser.md), each to be had or not."""

    anchor_text: bool = False
    images: bool = False  # `img` and `source` as links: src and srcset
    structured: bool = False
    main_text: bool = True
    language: bool = True


_LINK, _INLINE, _DROPPED, _FRAME, _META, _REL, _BASE, _TITLE, _IMAGE, _HEADING = range(10)

_KINDS_BY_TAG = {
    "a": _LINK,
    "area": _LINK,
    "iframe": _FRAME,
    "frame": _FRAME,
    "meta": _META,
    "link": _REL,
    "base": _BASE,
    "title": _TITLE,
    **dict.fromkeys(("h1", "h2", "h3"), _HEADING),
    **dict.fromkeys(INLINE_TAGS, _INLINE),
    **dict.fromkeys(("head", "script", "style", "template", "noscript", "noembed", "noframes"), _DROPPED),
}
_BARE = {tag: Anchor(tag) for tag in ("a", "area", "link", "iframe", "frame", "meta", "header", "img", "source")}
_ANY_TREE = LexborHTMLParser("<p><!---->")
_KINDS = {_ANY_TREE.create_node(tag).tag_id: kind for tag, kind in _KINDS_BY_TAG.items()}
_KINDS |= {node.tag_id: _DROPPED for node in _ANY_TREE.css("p")[0].traverse() if node.is_comment_node}
_IMG_ID = _ANY_TREE.create_node("img").tag_id
_KINDS_WITH_IMAGES = {**_KINDS, _IMG_ID: _IMAGE, _ANY_TREE.create_node("source").tag_id: _IMAGE}
_AREA_ID = _ANY_TREE.create_node("area").tag_id

_RELS_READ = REL_LINKS | {"canonical"}
_SPACES = re.compile("  +")
_OPTIONS = LexborDocumentOptions.WO_EVENTS.value
_SIGNS = {"json-ld": b"application/ld+json", "microdata": b"itemscope", "rdfa": b" typeof="}


def parse_page(
    body: bytes,
    url: str,
    content_type: str | None = None,
    max_text_chars: int = 1_000_000,
    link_headers: Sequence[str] = (),
    wants: Wants = Wants(),
) -> Page:
    """What `body` and its `Link` headers give; `content_type` and these as received. Raises nothing, whatever the bytes.

    Hrefs that lead to no page (fragments, `javascript:`, `mailto:` …) are left out; the rest is neither resolved nor
    checked. The parse itself runs without the GIL.
    """
    anchors: dict[str, Anchor] = {}
    base = canonical = title = og_url = None
    language = ""
    hreflangs: list[tuple[str, str]] = []
    alternates: list[tuple[str, str]] = []  # as `hreflangs`, not yet absolute
    for link in header_links(link_headers, url) if link_headers else ():
        rels = frozenset(link.rel.lower().split())
        if canonical is None and "canonical" in rels:
            canonical = link.url
        if _leads_to_page(rels, link.type):
            _add(anchors, link.url, "header", link.rel)
        if "alternate" in rels:
            hreflangs += ((code, link.url) for code in link.hreflangs)

    encoding, mark_bytes = encoding_of(body, content_type)
    html = body[mark_bytes:]
    if encoding != "utf-8":
        html = html.decode(encoding, "replace").encode("utf-8", "replace")
    tree = LexborHTMLParser(tamed(html), options=_OPTIONS)

    inline: list[LexborNode] = []
    dropped: list[LexborNode] = []
    metas: list[tuple[str, str]] = []
    headings: list[str] = []
    chars_left = MAX_ANCHORS_CHARS if wants.anchor_text else 0
    kind_of = (_KINDS_WITH_IMAGES if wants.images else _KINDS).get
    for node in tree.root.traverse() if tree.root else ():
        tag_id = node.tag_id
        kind = kind_of(tag_id)
        if kind is None:
            continue
        if kind == _LINK:
            attributes = node.attributes  # all of them cost less than one of `attrs` that is not there
            if href := attributes.get("href"):
                if href[0] <= " " or href[-1] <= " ":
                    href = href.strip(C0_AND_SPACE)
                rel = attributes.get("rel") or ""
                text = ""
                if chars_left > 0:
                    text = (attributes.get("alt") or "") if tag_id == _AREA_ID else node.text()
                    chars_left -= max(len(text), MIN_ANCHOR_CHARS)
                    text = _folded(text, MAX_ANCHOR_CHARS)
                if text or rel or href in anchors:
                    _add(anchors, href, "area" if tag_id == _AREA_ID else "a", rel, text)
                else:
                    anchors[href] = _BARE["area" if tag_id == _AREA_ID else "a"]
            inline.append(node)
        elif kind == _INLINE:
            inline.append(node)
        elif kind == _DROPPED:
            dropped.append(node)
        elif kind == _FRAME:
            if href := node.attrs.get("src"):
                _add(anchors, href.strip(C0_AND_SPACE), node.tag or "iframe")
            dropped.append(node)
        elif kind == _TITLE:
            if title is None and not _in_svg(node):
                title = node.text()
            dropped.append(node)
        elif kind == _HEADING:
            if len(headings) < MAX_HEADINGS:
                headings.append(_folded(node.text(), MAX_HEADING_CHARS))
        elif kind == _META:
            attributes = node.attributes
            content = attributes.get("content") or ""
            if (name := attributes.get("name")) and content and len(metas) < MAX_METAS:
                metas.append((name, content))
            elif equivalent := (attributes.get("http-equiv") or "").lower():
                if equivalent == "refresh" and (target := refresh_target(content)):
                    _add(anchors, target, "meta")
                elif equivalent == "content-language":
                    language = language or content
            if og_url is None and attributes.get("property") == "og:url":
                og_url = content
        elif kind == _REL:
            attributes = node.attributes
            rel = attributes.get("rel") or ""
            rels = frozenset(rel.lower().split())
            if rels.isdisjoint(_RELS_READ):
                continue
            href = (attributes.get("href") or "").strip(C0_AND_SPACE)
            if canonical is None and "canonical" in rels:
                canonical = href
            if _leads_to_page(rels, attributes.get("type") or ""):
                _add(anchors, href, "link", rel)
                if (code := attributes.get("hreflang")) and "alternate" in rels and len(alternates) < MAX_HREFLANGS:
                    alternates.append((code, href))
        elif kind == _IMAGE:
            _add_images(anchors, node)
            if tag_id == _IMG_ID:
                inline.append(node)
        elif base is None:
            base = node.attrs.get("href")

    base_url = (base and http_url(url, base)) or url
    hreflangs += ((code, absolute) for code, href in alternates if (absolute := http_url(base_url, href)))
    root = tree.root.attributes if tree.root else {}
    declared = (root.get("lang") or root.get("xml:lang") or language).split(",")[0].strip()[:MAX_LANGUAGE_CHARS]
    main = main_text(tree, max_text_chars) if wants.main_text and tree.root else ""
    text = _folded_long(_visible_text(tree, inline, dropped), max_text_chars)
    anchors = {href: anchor for href, anchor in anchors.items() if href[:1] == "/" or not NO_LINK.match(href)}
    return Page(
        base_url=base_url,
        hrefs=list(anchors),
        anchors=anchors,
        title=_folded(title or "", MAX_TITLE_CHARS),
        canonical=http_url(base_url, canonical) if canonical else None,
        og_url=http_url(base_url, og_url) if og_url else None,
        hreflang=tuple((code.strip()[:MAX_LANGUAGE_CHARS], absolute) for code, absolute in hreflangs[:MAX_HREFLANGS]),
        structured=_structured(html) if wants.structured else (),
        language_declared=declared,
        language=detect(main or text, declared) if wants.language else "",
        main_text=main,
        robots=tuple(metas),
        headings=tuple(filter(None, headings)),
        encoding=encoding,
        text=text,
    )


def _leads_to_page(rels: frozenset[str], type_: str) -> bool:
    return not REL_LINKS.isdisjoint(rels) and "stylesheet" not in rels and PAGE_TYPES.search(type_) is not None


def _add(anchors: dict[str, Anchor], href: str, tag: str, rel: str = "", text: str = "") -> None:
    """One more link to `href`."""
    known = anchors.get(href)
    if known is None:
        anchors[href] = Anchor(tag, (rel,), text) if rel or text else _BARE[tag]
    elif (new := rel not in known.rels and len(known.rels) < MAX_RELS) or (text and not known.text):
        anchors[href] = Anchor(known.tag, (*known.rels, rel) if new else known.rels, known.text or text)


def _add_images(anchors: dict[str, Anchor], node: LexborNode) -> None:
    attrs = node.attrs
    tag = node.tag or "img"
    if src := attrs.get("src"):
        _add(anchors, src.strip(C0_AND_SPACE), tag)
    for src in srcset_urls(attrs.get("srcset") or ""):
        _add(anchors, src, tag)


def _structured(html: bytes) -> tuple[str, ...]:
    """Which kinds of structured data there are a sign of inside a tag. Not seen in capitals; seen in comments too."""
    return tuple(kind for kind, sign in _SIGNS.items() if _in_a_tag(html, sign))


def _in_a_tag(html: bytes, sign: bytes) -> bool:
    position = -1
    for _ in range(MAX_SIGNS):
        position = html.find(sign, position + 1)
        if position < 0:
            return False
        earliest = max(0, position - MAX_TAG_BYTES)
        start = html.rfind(b"<", earliest, position)
        if start >= 0 and html[start + 1 : start + 2].isalpha() and html.rfind(b">", start, position) < 0:
            return True
    return False


def _visible_text(tree: LexborHTMLParser, inline: list[LexborNode], dropped: list[LexborNode]) -> str:
    """Text with a space wherever a block starts or ends. Takes the tree apart."""
    for node in dropped:
        node.decompose(recursive=False)
    for node in inline:
        node.unwrap(delete_empty=True)
    tree.merge_text_nodes()
    return tree.text(separator=" ", strip=True, skip_empty=True)


def _in_svg(node: LexborNode) -> bool:
    return node.parent is not None and node.parent.tag == "svg"


def _folded(text: str, max_chars: int) -> str:
    """`text` with every run of white space one space, cut to `max_chars`."""
    return " ".join(text[: 4 * max_chars].split())[:max_chars]


def _folded_long(text: str, max_chars: int) -> str:
    """As `_folded`, which takes twice as long for a text of many words."""
    text = text[: 4 * max_chars]
    for space in "\n\t\r\xa0":
        text = text.replace(space, " ")
    if not text.isprintable():  # of white space, only the space is printable
        text = " ".join(text.split())
    elif "  " in text:
        text = _SPACES.sub(" ", text)
    return text.strip(" ")[:max_chars]
