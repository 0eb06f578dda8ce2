"""What a page says to crawlers about itself: meta robots, X-Robots-Tag, and `rel` of links.

Of several that concern us, every restriction holds, as Google has it; `all`, `index` and `follow` lift none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .robots import PRODUCT_TOKEN

NAMES = frozenset(("robots", PRODUCT_TOKEN))  # of meta elements
_SCOPES = NAMES | {"*"}
_VALUED = frozenset(("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"))
_NOINDEX = frozenset(("noindex", "none"))
_NOFOLLOW = frozenset(("nofollow", "none"))
_NOFOLLOW_RELS = frozenset(("nofollow", "ugc", "sponsored"))
_PREFIX = re.compile(r"\s*(\*|[a-z][a-z_-]*)(?:[0-9/.][\w/.-]*)?\s*:", re.ASCII)  # a product token, perhaps with a version
_BETWEEN = re.compile(r"[\s,;]+")


@dataclass(frozen=True, slots=True)
class Directives:
    noindex: bool = False  # not to be shown in search results
    nofollow: bool = False  # none of its links is to be followed


def directives(header_values: Iterable[str], meta: Iterable[tuple[str, str]]) -> Directives:
    """`header_values`: each X-Robots-Tag header; `meta`: (name, content) of meta elements, of whatever name.

    A user agent at the beginning of a header, or behind a comma, owns what follows in that header up to the next user agent
    (https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag).
    """
    words = {word for value in header_values for word in _of_header(value.lower())}
    for name, content in meta:
        if name.strip().lower() in NAMES:
            words.update(_BETWEEN.split(content.lower()))
    return Directives(not words.isdisjoint(_NOINDEX), not words.isdisjoint(_NOFOLLOW))


def _of_header(value: str) -> Iterator[str]:
    """The words that concern us. A date or another value is not a user agent, whatever colons and commas stand in it."""
    ours = True
    for part in value.split(","):
        at = 0
        while (prefix := _PREFIX.match(part, at)) and prefix[1] not in _VALUED:
            ours, at = prefix[1] in _SCOPES, prefix.end()
        if ours and not prefix:
            yield from _BETWEEN.split(part[at:])


def link_is_nofollow(rel: str) -> bool:
    """`rel`: value of a link's attribute, "" without one."""
    return not _NOFOLLOW_RELS.isdisjoint(rel.lower().split())
