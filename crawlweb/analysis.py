"""Everything that is computed from the body of a page, in one go: what it says, its links as targets, its fingerprint.

Runs on the event loop, or in a process of its own (parsers.py): all that goes in and comes out is plain values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from .content.charset import decode
from .content.feed import parse_feed
from .content.fingerprint import fingerprint
from .content.language import detect
from .content.page import Wants, parse_page
from .content.soft_404 import is_error
from .policy.canonical import Canonicalizer
from .policy.directives import Directives, directives, link_is_nofollow
from .records import Fingerprint, Page, Target

Kind = Literal["html", "feed", "text", "other"]


NO_REL = ("",)
NO_FINGERPRINT = Fingerprint(b"")


@dataclass(frozen=True, slots=True)
class Task:
    """A response. `headers`: values of its Link and X-Robots-Tag headers."""

    url: str
    body: bytes
    kind: Kind
    content_type: str = ""
    link_headers: tuple[str, ...] = ()
    robots_headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Analysis:
    """`follow`, `others`: its links, but those that are marked nofollow, and those; `hrefs` of all of them, in this order. `invalid`,
    `repeated`: hrefs that became no target. `looks_missing`: the page alone looks like one that says that there is none."""

    page: Page
    said: Directives
    fingerprint: Fingerprint
    content_hash: str  # SHA-256 of the body, hexadecimal
    follow: tuple[Target, ...] = ()
    others: tuple[Target, ...] = ()
    hrefs: tuple[str, ...] = ()
    invalid: int = 0
    repeated: int = 0
    looks_missing: bool = False


class Outlinks(Collection[tuple[str, str, str, str]]):
    """URL, source tag, rel, anchor text of each link; made one by one where they are read."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    def __len__(self) -> int:
        return len(self._analysis.hrefs)

    def __iter__(self) -> Iterator[tuple[str, str, str, str]]:
        analysis, anchors = self._analysis, self._analysis.page.anchors
        for target, href in zip((*analysis.follow, *analysis.others), analysis.hrefs, strict=True):
            anchor = anchors[href]
            yield target.url, anchor.tag, " ".join(filter(None, anchor.rels)), anchor.text

    def __contains__(self, row: object) -> bool:
        return any(row == other for other in self)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is wanted of a page; makes an equal `Analyst` in another process."""

    wants: Wants
    tracking_parameters: tuple[str, ...] = ("default",)
    max_url_chars: int = 2083
    fingerprint: bool = True
    minhash: bool = True
    soft_404: bool = True


class Analyst:
    def __init__(self, recipe: Recipe, canonicalizer: Canonicalizer | None = None) -> None:
        self._recipe = recipe
        self.canonicalizer = canonicalizer or Canonicalizer(recipe.tracking_parameters, max_url_chars=recipe.max_url_chars)

    def analyse(self, task: Task) -> Analysis:
        recipe, canonicalizer = self._recipe, self.canonicalizer
        page = self._read(task)
        invalid, repeated = canonicalizer.invalid, canonicalizer.repeated
        marked = {href for href, anchor in page.anchors.items() if anchor.rels != NO_REL and all(map(link_is_nofollow, anchor.rels))}
        follow = canonicalizer.links([href for href in page.hrefs if href not in marked], page.base_url, page.encoding)
        others: list[tuple[str, Target]] = []
        if marked:
            known = {target.key for _, target in follow}
            nofollow = canonicalizer.links([href for href in page.hrefs if href in marked], page.base_url, page.encoding)
            others = [link for link in nofollow if link[1].key not in known]
        return Analysis(
            page=page,
            said=directives(task.robots_headers, page.robots),
            fingerprint=fingerprint(task.body, page.main_text, page.title, minhash=recipe.minhash)
            if recipe.fingerprint
            else NO_FINGERPRINT,
            content_hash=hashlib.sha256(task.body).hexdigest(),
            follow=tuple([target for _, target in follow]),
            others=tuple([target for _, target in others]),
            hrefs=tuple([href for href, _ in (*follow, *others)]),
            invalid=canonicalizer.invalid - invalid,
            repeated=canonicalizer.repeated - repeated,
            looks_missing=recipe.soft_404 and task.kind == "html" and is_error(page, task.url),
        )

    def _read(self, task: Task) -> Page:
        if task.kind == "html":
            return parse_page(task.body, task.url, task.content_type, link_headers=task.link_headers, wants=self._recipe.wants)
        if task.kind == "feed":
            return parse_feed(task.body, task.url, task.content_type)
        if task.kind == "text":
            text, encoding = decode(task.body, task.content_type)
            wants = self._recipe.wants
            language = detect(text) if wants.language else ""
            return Page(task.url, [], text=text, main_text=text if wants.main_text else "", language=language, encoding=encoding)
        return Page(task.url, [], encoding="")
