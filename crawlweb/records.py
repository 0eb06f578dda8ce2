"""Frozen values that cross rooms. Times on this machine are seconds of `boottime()`, durations carry their unit."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

# Seconds since boot, suspension included: a lease runs out while the machine sleeps. Called some thirty times a page.
boottime: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Target(NamedTuple):
    """A link made ready for the frontier. A tuple: a page has a hundred, and a dataclass takes twice as long to make."""

    url: str  # what is fetched: as found, made valid, without fragment
    key: bytes  # URL key, 16 bytes: hash of the canonical URL
    host: str  # politeness key: registered domain


@dataclass(frozen=True, slots=True)
class Anchor:
    """How a page links to an href: the tag of the first such link, and what all of them say."""

    tag: str  # a area link iframe frame meta header img source; link in feeds
    rels: tuple[str, ...] = ("",)  # values of `rel` as written, each once; "": one of the links has none
    text: str = ""  # of the first link that has any, white space folded, cut


@dataclass(frozen=True, slots=True)
class Page:
    """What one parse of a page or feed gives."""

    base_url: str  # what hrefs are relative to: `base href`, else the page's URL
    hrefs: list[str]  # as written, entities resolved, in document order, no value twice
    title: str = ""
    text: str = ""  # visible text, white space folded
    canonical: str | None = None  # declared by Link header or link rel=canonical, absolute
    robots: tuple[tuple[str, str], ...] = ()  # name and content of meta elements with both
    encoding: str = "utf-8"
    anchors: dict[str, Anchor] = field(default_factory=dict)  # of each of `hrefs`
    og_url: str | None = None  # absolute
    hreflang: tuple[tuple[str, str], ...] = ()  # language as written, absolute URL
    structured: tuple[str, ...] = ()  # of json-ld, microdata, rdfa
    language_declared: str = ""  # html lang, else meta content-language
    main_text: str = ""  # without boilerplate
    language: str = ""
    headings: tuple[str, ...] = ()  # h1 to h3, the first few, white space folded


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Of a page's content. Hashes are 8 bytes; `simhash` and `bands` are left out for texts too short to tell twins from strangers."""

    body_hash: bytes  # of the normalised body
    text_hash: bytes = b""  # of the normalised main text; b"": there is no text
    simhash: int | None = None  # 64 bits
    bands: tuple[int, ...] = ()  # MinHash LSH: one 64-bit hash per band


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request and its response as they went over the wire; what the WARC stores."""

    url: str
    ip: str
    started: float  # boottime when the request was about to be written
    finished: float  # boottime when the last byte was read or the transport was closed
    latency_s: float | None  # request written → first byte; None when our own loop lagged
    fetched_at: float  # Unix time of `started`
    request_head: bytes  # request line and headers with the final blank line
    status: int
    response_head: bytes  # status line and headers with the final blank line, as received
    payload: bytes  # body, de-chunked, still content-encoded
    body: bytes  # body, content-encoding undone
    truncated: str | None = None  # WARC-Truncated: "length", "time", "disconnect", "unspecified"; None: whole


@dataclass(frozen=True, slots=True)
class WarcRef:
    """Where a response record stands."""

    file: str  # name inside the warc folder, in its final form
    offset: int  # bytes
    length: int  # bytes of the compressed record


@dataclass(frozen=True, slots=True)
class Earlier:
    """A page as it was fetched before, that a record in the WARC refers to instead of having the body."""

    url: str
    fetched_at: float = 0.0  # Unix time; 0: unknown
    warc: WarcRef | None = None


@dataclass(frozen=True, slots=True)
class PageVersion:
    """An earlier version of a page."""

    fetched_at: float
    content_hash: bytes
    warc: WarcRef | None = None


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a page when its exchange goes to the WARC."""

    outlinks: Collection[tuple[str, str, str, str]] = ()  # URL, source tag, rel, anchor text
    fields: Sequence[tuple[str, str]] = ()  # names and values for the metadata record
    earlier: Earlier | None = None  # the same page: what a 304 refers to, and a 200 with the same payload
    near_duplicate_of: Earlier | None = None  # another page, whose body is enough: this one's is not stored


@dataclass(frozen=True, slots=True)
class PageRecord:
    """What is kept of a page that was fetched. Times are Unix seconds; 0: unknown or never."""

    url: str
    fetched_at: float
    status: int
    content_hash: bytes = b""  # 8 bytes
    fingerprint: int = 0  # SimHash; 0: none
    etag: str = ""
    last_modified: str = ""  # as the header says
    fetches: int = 1
    changes: int = 0  # bits, newest lowest: did the content change at a fetch?
    first_seen: float = 0.0
    interval_s: float = 0.0  # recrawl interval
    next_at: float = 0.0
    warc: WarcRef | None = None  # storage key
    canonical: str = ""  # URL of the page that this one is an alias of; "": it is its own
    flags: frozenset[str] = frozenset()  # of soft_404, noindex, duplicate, near_duplicate, truncated, rendered
    versions: tuple[PageVersion, ...] = ()  # earlier ones, newest first


@dataclass(frozen=True, slots=True)
class Copy:
    """A page as one of several that may show the same content. Of a known page as far as its record, or what is kept of it, says."""

    url: str
    key: bytes  # URL key, 16 bytes; of a known page at least its first 8
    host: str
    seen_at: float  # Unix time of its first fetch
    fingerprint: Fingerprint
    declared: str = ""  # the canonical URL that it declares, absolute; "": none. Of a known page not kept
    declared_key: bytes = b""  # first 8 bytes of its URL key; of a known page only for a while
    alias_of: str = ""  # a known page: URL of the page that it is an alias of
    status: int = 200
    flags: frozenset[str] = frozenset()  # as in its record


@dataclass(frozen=True, slots=True)
class Match:
    """A known page with the content of another. `kind`: exact (hash of the body or the main text), or near."""

    copy: Copy
    kind: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A URL in the frontier, with what travels along."""

    url: str
    priority: int = 9  # front queue, 0 first
    depth: int = 0
    referrer: str = ""
    hops: int = 0  # redirects behind it
    chain: tuple[bytes, ...] = ()  # URL keys of the redirect chain, first to last
    found_as: str = ""  # the URL that the chain began with
    failures: int = 0
    expiries: int = 0
    sibling: int = 0  # other spelling of a URL that failed: 1 with or without slash, 2 the last one that is tried
    request: dict[str, object] = field(default_factory=dict)  # a Scrapy request that is more than a plain GET
    again: bool = False  # it was due for a recrawl: its record has the validators
