"""What crosses between a worker and the frontier: links in, leases out, outcomes in. Shapes only; the scripts give them their meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple

from ..records import Entry, PageRecord, WarcRef

MAX_ERROR_CHARS = 120
MAX_TYPE_CHARS = 100
_ERROR_PAGE_BYTES, _ERROR_PAGES_MOST = 9, 6
_ONE_LINE = re.compile(r"[\x00-\x1f\x7f]+")
NORMAL, EXACT, UNCHECKED = 0, 10, 20  # how a link is tested: the seen-set, the exact set (what must not be missed), not at all


def ms(seconds: float) -> int:
    return round(seconds * 1000)


@dataclass(frozen=True, slots=True)
class Link:
    """A URL on its way into the frontier."""

    host: str
    key: bytes
    entry: Entry
    how: int = NORMAL


@dataclass(slots=True)
class Lease:
    """A URL in this worker's hands. `expires` moves when it is renewed; times are seconds of `boottime()`.

    `shown`: entries that come next on this host, as Redis has them, and their URLs; only after robots.txt disallowed its last one.
    """

    token: str
    partition: int
    host: str
    entry: Entry
    not_before: float
    expires: float
    origin_failures: int = 0  # in a row, of the origin
    trouble_s: float | None = None  # since the first of them
    shown: tuple[tuple[bytes, str], ...] = ()
    origin_has_pages: bool = False  # has had some
    others_have_pages: bool = False  # other origins of the host have, or may have: it is hardly known
    error_shapes: tuple[bytes, ...] = ()  # of known error pages of the host (content/soft_404.py)
    has_real_errors: bool = False  # some of them came with status 404 or 410
    probed_at: float = 0.0  # Unix time, to the hour, of the last request for a path that cannot be there; 0: none
    has_permission: bool = False  # an override allows its host less than the minimum delay
    apart_s: float = 0.0  # from start to start, where its host may have several requests at a time
    is_gone: bool = False  # it ran out, and somebody else may have the URL


@dataclass(frozen=True, slots=True)
class OriginFailed:
    """An origin is in trouble: its URLs wait `gap_s` at first, twice as long after each failure in a row, `most_s` at the most,
    `retry_after_s` at the least. After `dead_after` failures in a row (None: never) or `give_up_s` of trouble (None: never) it is dead
    for `dead_s`: its URLs become dead letters. `struggling`: the gap is halved by every answer, instead of ended by the first."""

    reason: str
    gap_s: float
    most_s: float
    jitter: float = 1.0
    retry_after_s: float = 0.0
    dead_after: int | None = None
    dead_s: float = 3600.0
    give_up_s: float | None = None
    struggling: bool = False
    urls_wait: bool = False  # dead by `dead_after`: URLs without another spelling wait, and are dead letters only when it is given up


@dataclass(frozen=True, slots=True)
class PushedBack:
    """The host asked for fewer requests: it rests, as OriginFailed says of an origin that is struggling. Retry-After over
    `give_up_s` (None: none is too long) is not waited for: the host is dead so long, for `reason`."""

    gap_s: float
    most_s: float
    jitter: float = 1.0
    retry_after_s: float = 0.0
    give_up_s: float | None = None
    reason: str = "pushed_back"


@dataclass(frozen=True, slots=True)
class Refused:
    """When nearly all pages of a host look like refusals after good ones, it rests: `first_s`, then twice as long each time. After
    `give_up_s` of it (None: never) it is dead for `dead_s`."""

    first_s: float
    most_s: float
    give_up_s: float | None
    dead_s: float


@dataclass(frozen=True, slots=True)
class PageSeen:
    """A page of the host; `rest`: it looks like a refusal, None: it is a good one."""

    rest: Refused | None = None


GOOD_PAGE = PageSeen()


@dataclass(frozen=True, slots=True)
class PageEvent:
    """A page was fetched, and its response is stored. `url`: what was fetched; `fetched_at`: Unix time; `changed`: since the last fetch,
    None: there was none, or it is not known; `duplicate_of`: URL, "": of none."""

    url: str
    url_key: bytes
    status: int
    fetched_at: float
    warc: WarcRef | None = None
    fingerprint: str = ""  # 16 hex digits
    changed: bool | None = None
    duplicate_of: str = ""
    supersedes: tuple[str, ...] = ()  # pages that were handed on, and are aliases of this one from now on
    soft_404: bool = False
    content_type: str = ""  # as the header says

    @property
    def id(self) -> str:
        """The same whenever this fetch is told of; another fetch of the page has another."""
        return f"{self.url_key.hex()}-{ms(self.fetched_at)}"

    def fields(self, worker: str) -> list[bytes]:
        """Names and values for XADD, always the same names in the same order: a stream keeps those once (docs/extending.md)."""
        warc = self.warc
        values = {
            "id": self.id,
            "type": "page.fetched",
            "url": self.url,
            "url_key": self.url_key.hex(),
            "status": self.status,
            "warc_file": warc.file if warc else "",
            "warc_offset": warc.offset if warc else "",
            "warc_length": warc.length if warc else "",
            "fingerprint": self.fingerprint,
            "changed": "" if self.changed is None else int(self.changed),
            "duplicate_of": self.duplicate_of,
            "supersedes": " ".join(self.supersedes),
            "soft_404": int(self.soft_404),
            "content_type": self.content_type[:MAX_TYPE_CHARS],
            "fetched_at": datetime.fromtimestamp(self.fetched_at, timezone.utc).isoformat(),
            "worker": worker,
        }
        return [str(part).encode(errors="replace") for pair in values.items() for part in pair]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a lease ended: a row of lua/complete.lua. `ended`: boottime of the end of the request, None if nothing was sent."""

    lease: Lease
    way: str
    ended: float | None = None
    latency_s: float | None = None
    wait_s: float = 0.0
    arg: Any = None
    robots: KeptNow | None = None
    robots_hop: tuple[str, bytes, int] | None = None  # origin, value, ms it lives: where its robots.txt redirects to
    origin: str = ""  # whose trouble it is, if not of the URL's
    failed: OriginFailed | None = None
    pushed_back: PushedBack | None = None
    stale_robots: tuple[str, float] | None = None  # origin; seconds that the copy of its robots.txt still holds
    page: PageSeen | None = None
    cut_s: float = 0.0  # the server saw the end of the request so much later than we did
    error_pages: bytes = b""  # found on the host: `real_error` or `probed`
    error: str = field(default="", compare=False)  # in words, for the dead letter
    record: PageRecord | None = None  # of the page, kept in the step that ends the lease
    record_key: bytes = b""  # pages.record_key of its URL key
    event: PageEvent | None = field(default=None, compare=False)  # published before the lease ends (outbox.py)

    def signs(self) -> dict[str, object] | None:
        signs: dict[str, object] = {}
        if self.origin:
            signs["at"] = self.origin
        if f := self.failed:
            dead_after, give_up_ms = f.dead_after or 0, -1 if f.give_up_s is None else ms(f.give_up_s)
            waits = ms(f.gap_s), ms(f.most_s), f.jitter, ms(f.retry_after_s)
            signs["o"] = (f.reason, *waits, dead_after, ms(f.dead_s), give_up_ms, int(f.struggling), int(f.urls_wait))
        if b := self.pushed_back:
            give_up_ms = -1 if b.give_up_s is None else ms(b.give_up_s)
            signs["p"] = (ms(b.gap_s), ms(b.most_s), b.jitter, ms(b.retry_after_s), give_up_ms, b.reason)
        if self.error:
            signs["e"] = _ONE_LINE.sub(" ", self.error)[:MAX_ERROR_CHARS]
        if self.robots_hop:
            signs["h"] = self.robots_hop
        if self.stale_robots:
            signs["s"] = (self.stale_robots[0], ms(self.stale_robots[1]))
        if self.error_pages:
            signs["x"] = self.error_pages
        if self.cut_s:
            signs["c"] = ms(self.cut_s)
        if self.page is not None:
            g = self.page.rest
            signs["k"] = 0 if g is None else (ms(g.first_s), ms(g.most_s), -1 if g.give_up_s is None else ms(g.give_up_s), ms(g.dead_s))
        return signs or None


def real_error(shape: bytes) -> bytes:
    """Of a page of status 404 or 410, as the host's record has it (lua/host.lua: e). `shape`: 8 bytes."""
    return b"g" + shape


def probed(unix_s: float, shape: bytes = b"", is_real: bool = False) -> bytes:
    """That a host was probed; `shape`: of what it answered, b"": of nothing that can be told again."""
    return b"t%08d" % (unix_s / 3600) + (b"pg"[is_real : is_real + 1] + shape if shape else b"")


def error_pages(text: bytes) -> tuple[tuple[bytes, ...], bool, float]:
    """Shapes, whether one is of a real error, Unix time of the last probe. Of what is not ours nothing is left."""
    rows = [text[i : i + _ERROR_PAGE_BYTES] for i in range(0, len(text), _ERROR_PAGE_BYTES)]
    if len(text) % _ERROR_PAGE_BYTES or len(rows) > _ERROR_PAGES_MOST:
        return (), False, 0.0
    shapes = tuple(row[1:] for row in rows if row[:1] in (b"g", b"p"))
    probed_at = max((3600.0 * int(row[1:]) for row in rows if row[:1] == b"t" and row[1:].isdigit()), default=0.0)
    return shapes, any(row[:1] == b"g" for row in rows), probed_at


class Due(NamedTuple):
    """`queued`: pages; `stale`: keys that counted no more; `more`: there is more to do at once."""

    queued: int
    stale: int
    more: bool


class KeptNow(NamedTuple):
    """A robots.txt to be kept. `crawl_delay_ms`: -1 for none."""

    origin: str
    value: bytes
    lives_ms: int
    crawl_delay_ms: int
    sitemaps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptRobots:
    """A robots.txt in Redis. `left_s`: until it is forgotten; `holds`: it is old, but the last try to renew it failed a moment ago; `hop`:
    where it has redirected to a moment ago."""

    value: bytes | None
    left_s: float
    holds: bool
    hop: bytes | None = None


@dataclass(frozen=True, slots=True)
class Override:
    """What an operator wants of a host; None: as the crawler finds. `delay_s`: instead of crawl-delay, latency and minimum, but not below
    the minimum unless `below_minimum`; `concurrency`: leases at a time, `delay_s` from start to start; `pause_until`: Unix time."""

    delay_s: float | None = None
    concurrency: int | None = None
    pause_until: float | None = None
    below_minimum: bool = False

    def pack(self) -> str:
        values = [self.delay_s, self.pause_until]
        delay, pause = ("-" if value is None else str(ms(value)) for value in values)
        return f"{delay} {'-' if self.concurrency is None else self.concurrency} {pause} {int(self.below_minimum)}"

    @classmethod
    def unpack(cls, text: str) -> Override:
        """ValueError for anything that `pack` did not make."""
        delay, concurrency, pause, below = text.split(" ")
        delay_s, pause_s = (None if value == "-" else int(value) / 1000 for value in (delay, pause))
        return cls(delay_s, None if concurrency == "-" else int(concurrency), pause_s, below == "1")


@dataclass(frozen=True, slots=True)
class Limits:
    """Numbers that the scripts enforce, equal for all workers of a crawl."""

    min_delay_s: float = 1.0
    latency_factor: float = 10.0
    latency_cap_s: float = 30.0
    ip_delay_s: float = 0.5
    lease_s: float = 60.0
    look_ahead_s: float = 0.5
    expected_urls: int = 1_000_000
    seen: str = "bloom"  # or "exact"
    false_positives: float = 0.001
    active_hosts: int = 40_000  # of the whole crawl


@dataclass(frozen=True, slots=True)
class Counts:
    """What the partitions hold, summed."""

    enqueued: int
    done: int
    pending: int  # hosts and URLs in any place: 0 only if nothing is left
