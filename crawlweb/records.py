"""Frozen values that cross rooms. Times on this machine are seconds of `boottime()`, durations carry their unit."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


def boottime() -> float:
    """Seconds since boot, suspension included: a lease runs out while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class Target:
    """A link made ready for the frontier."""

    url: str  # what is fetched: as found, made valid, without fragment
    key: bytes  # URL key, 16 bytes: hash of the canonical URL
    host: str  # politeness key: registered domain


@dataclass(frozen=True, slots=True)
class Page:
    """What one parse of an HTML page gives."""

    base_url: str  # what hrefs are relative to: `base href`, else the page's URL
    hrefs: list[str]  # as written, entities resolved, in document order, no value twice
    title: str = ""
    text: str = ""  # visible text, white space folded
    main_text: str = ""  # without boilerplate: a block a line
    language: str = ""  # primary subtag of BCP 47; "": unknown
    canonical: str | None = None  # declared by link rel=canonical, absolute
    rels: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of hrefs that stand in links with `rel` only: its values
    robots: tuple[tuple[str, str], ...] = ()  # name and content of meta elements with both
    encoding: str = "utf-8"


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
