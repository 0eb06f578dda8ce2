"""RSS, Atom and RDF feeds: the pages they list, their title and text.

libxml2 reads what is written, well-formed or not, as a stream of events, so neither depth nor size of the tree matters;
entities are not resolved (none of its own, none from outside) and nothing is fetched (docs/decisions/html-parser.md).
"""

from __future__ import annotations

import re
from html import escape, unescape

from lxml import etree

from ..records import Anchor, Page
from .charset import decode
from .links import C0_AND_SPACE, NO_LINK, PAGE_TYPES, http_url
from .page import MAX_ANCHOR_CHARS, MAX_LANGUAGE_CHARS, MAX_TITLE_CHARS, parse_page

MAX_EVENTS = 500_000  # of elements and texts; what comes after is not read
MAX_FIELD_CHARS = 200_000
SNIFFED_BYTES = 4_096

_CONTENT = "{http://purl.org/rss/1.0/modules/content/}encoded"
_NAMESPACES = (
    "",
    "{http://www.w3.org/2005/Atom}",
    "{http://purl.org/atom/ns#}",
    "{http://purl.org/rss/1.0/}",
    "{http://my.netscape.com/rdf/simple/0.9/}",
    "{http://channel.netscape.com/rdf/simple/0.9/}",
    "{http://backend.userland.com/rss2}",
)
_ENTRIES = frozenset(("item", "entry"))
_PARTS = (*_ENTRIES, "channel", "feed", "title", "link", "guid", "description", "summary", "content", "language")
_NAMES = {namespace + name: name for namespace in _NAMESPACES for name in _PARTS} | {_CONTENT: "content"}
_CONTAINERS = frozenset((*_ENTRIES, "channel", "feed"))
_HTML = frozenset(("description", "summary", "content"))
_RELS = frozenset(("alternate", "next", "prev", "previous", "first", "last", "related", "prev-archive", "next-archive"))
_ABOUT = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}about"
_XML = "{http://www.w3.org/XML/1998/namespace}"

_ROOTS = re.compile(r"(?:rss|feed|(?:\w+:)?rdf)\b", re.IGNORECASE)
_FEED_TYPE = re.compile(r"\s*application/(?:rss|atom|rdf)\+xml", re.IGNORECASE)
# Not among the numbers that stay: surrogates, which lxml cannot decode (some others go with them).
_REFERENCE = re.compile(
    r"<!\[CDATA\[.*?(?:\]\]>|\Z)|&(?!#(?!0*5[5-7]\d{3};|x0*[dD][89a-fA-F]..;)(?:\d{1,7}|x[\da-fA-F]{1,6});)(?:(amp|lt|gt|quot|apos);)?",
    re.DOTALL,
)
_NUMBERS = {"amp": "&#38;", "lt": "&#60;", "gt": "&#62;", "quot": "&#34;", "apos": "&#39;", None: "&#38;"}
_BEFORE_ROOT = (("<?", "?>"), ("<!--", "-->"), ("<!", ">"))


class _Enough(Exception):
    pass


class _Reader:
    """What libxml2 calls for each element and text."""

    def __init__(self) -> None:
        self.anchors: dict[str, Anchor] = {}
        self.html: list[str] = []
        self.title = self.base = self.language = ""
        self._events = self._depth = 0
        self._containers: list[tuple[int, dict[str, str]]] = [(1, {})]  # open ones: depth, links with their rels, title as ""
        self._field = ""  # that is being read
        self._field_depth = 0
        self._pieces: list[str] = []
        self._chars = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count()
        self._depth += 1
        if self._depth == 1:
            self.base, self.language = attributes.get(_XML + "base", ""), attributes.get(_XML + "lang", "")
        name = _NAMES.get(tag)
        in_place = self._depth == self._containers[-1][0] + 1  # not the title of an image
        if self._field:
            if not name:  # XHTML
                self._pieces.append(" ")
                return
            self._end_field()  # it was left open
            in_place = True
        if name in _CONTAINERS:
            self._containers.append((self._depth, {}))
            if name in _ENTRIES:
                self._link(attributes.get(_ABOUT, ""))
        elif name == "link" and "href" in attributes:
            if PAGE_TYPES.search(attributes.get("type", "")) and attributes.get("rel", "alternate") in _RELS:
                self._link(attributes["href"], attributes.get("rel", ""))
        elif name and in_place and not (name == "guid" and attributes.get("isPermaLink", "").lower() == "false"):
            self._field, self._field_depth, self._pieces, self._chars = name, self._depth, [], 0

    def data(self, text: str) -> None:
        self._count()
        if self._field and self._chars < MAX_FIELD_CHARS:
            self._pieces.append(text)
            self._chars += len(text)

    def end(self, tag: str) -> None:
        if self._field and self._depth == self._field_depth:
            self._end_field()
        elif not self._field and _NAMES.get(tag) in _CONTAINERS and len(self._containers) > 1:
            self._end_container()
        self._depth -= 1

    def close(self) -> None:
        if self._field:
            self._end_field()
        while self._containers:
            self._end_container()

    def _end_field(self) -> None:
        field, self._field = self._field, ""
        value = "".join(self._pieces).strip(C0_AND_SPACE)
        if field == "title":
            title = _folded(unescape(value), MAX_TITLE_CHARS)
            self._containers[-1][1].setdefault("", title)
            self.title = self.title or title
            self.html.append(f"<p>{escape(title)}</p>")
        elif field == "link" or (field == "guid" and value[:8].lower().startswith(("http://", "https://"))):
            self._link(value)
        elif field in _HTML:
            self.html.append(f"<div>{value}</div>")
        elif field == "language":
            self.language = self.language or value

    def _link(self, href: str, rel: str = "") -> None:
        if not NO_LINK.match(href := href.strip(C0_AND_SPACE)):
            self._containers[-1][1].setdefault(href, rel)

    def _end_container(self) -> None:
        _, links = self._containers.pop()
        title = links.pop("", "")[:MAX_ANCHOR_CHARS]
        for href, rel in links.items():
            self.anchors.setdefault(href, Anchor("link", (rel,), title))

    def _count(self) -> None:
        self._events += 1
        if self._events > MAX_EVENTS:
            raise _Enough


def is_feed(content_type: str | None, body: bytes) -> bool:
    """Whether `body` begins as a feed, whatever its type, or says nothing and its type does."""
    root = _root(decode(body[:SNIFFED_BYTES], content_type)[0])
    return _ROOTS.match(root) is not None if root else _FEED_TYPE.match(content_type or "") is not None


def parse_feed(body: bytes, url: str, content_type: str | None = None, max_text_chars: int = 1_000_000) -> Page:
    """Pages that the feed at `url` lists, each with its entry's title as anchor text. Raises nothing, whatever the bytes.

    `text` is that of titles and contents. Of `xml:base`, only the root's counts.
    """
    text, encoding = decode(body, content_type)
    reader = _Reader()
    parser = etree.XMLParser(
        target=reader,
        encoding="utf-8",
        recover=True,
        resolve_entities="internal",
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        # Behind the first error libxml2 leaves out all references but numbers; before, HTML's entities and the bare `&` of URLs.
        text = _REFERENCE.sub(lambda found: found[0] if found[0][0] == "<" else _NUMBERS[found[1]], text.lstrip(C0_AND_SPACE))
        etree.fromstring(text.encode("utf-8", "replace"), parser)
    except (etree.LxmlError, UnicodeError, _Enough):
        reader.close()
    html = "".join(reader.html)[: 4 * max_text_chars].encode("utf-8", "replace")
    return Page(
        base_url=(reader.base and http_url(url, reader.base)) or url,
        hrefs=list(reader.anchors),
        anchors=reader.anchors,
        title=reader.title,
        text=parse_page(html, url, "text/html; charset=utf-8", max_text_chars).text,
        language_declared=reader.language[:MAX_LANGUAGE_CHARS],
        encoding=encoding,
    )


def _root(text: str) -> str:
    """From the name of the first element on; "" where there is none."""
    position = 0
    while True:
        while position < len(text) and (text[position].isspace() or text[position] == "\0"):
            position += 1
        for start, end in _BEFORE_ROOT:
            if text.startswith(start, position):
                position = text.find(end, position)
                break
        else:
            return text[position + 1 :] if text.startswith("<", position) else ""
        if position < 0:
            return ""
        position += len(end)


def _folded(text: str, max_chars: int) -> str:
    return " ".join(text[: 4 * max_chars].split())[:max_chars]
