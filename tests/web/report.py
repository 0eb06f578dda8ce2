"""What a log of requests says of the crawler that made them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from .sites import Site


class Visit(NamedTuple):
    """One request. `start_s`: its head was read; `end_s`: its answer was handed to the socket, or the connection ended
    (both `time.monotonic`); `at_s`: `start_s` as seconds since the epoch."""

    start_s: float
    end_s: float
    host: str
    address: str
    target: str
    status: int
    """0: nothing was answered."""
    agent: str = ""
    at_s: float = 0.0
    page: str | None = None
    """Which of the site's expected pages the answer showed, whole."""
    forbidden: bool = False
    """By robots.txt, or because only nofollow links lead there."""
    early_s: float = 0.0
    """How long before the end of a rest that the site had asked for (`Rest`)."""
    blocked: bool = False
    """The answer was a block."""


class Early(NamedTuple):
    host: str
    early_s: float
    target: str


class Gap(NamedTuple):
    """From the end of all earlier requests of a site (or address) to the start of one. Negative: they overlap."""

    key: str
    gap_s: float
    target: str


@dataclass(frozen=True, slots=True)
class SiteReport:
    kind: str
    requests: int
    robots_fetches: int
    expected: int
    found: int
    refetched: int
    blocked: int
    """Requests that a block was the answer to."""
    span_s: float
    """From the start of its first request to the end of its last."""
    missing: tuple[str, ...]
    """Some of the pages that were not fetched, at most 20."""


@dataclass(frozen=True, slots=True)
class Report:
    requests: int
    seconds: float
    expected: int
    found: int
    refetched: int
    violations: tuple[Gap, ...]
    """Gaps shorter than the delay of their site, overlaps included."""
    address_violations: tuple[Gap, ...]
    """Of all hosts of an address, overlaps included; none are looked for where the delay of addresses is 0."""
    overlaps: tuple[Gap, ...]
    too_soon: tuple[Early, ...]
    """Requests within a rest that the site had asked for."""
    shortest_gap_s: float | None
    robots_late: tuple[str, ...]
    """Hosts whose first request was not for robots.txt."""
    forbidden: tuple[str, ...]
    unknown_hosts: tuple[str, ...]
    agents: dict[str, int]
    sites: dict[str, SiteReport]

    @property
    def coverage(self) -> float:
        return self.found / self.expected if self.expected else 1.0


def gaps(visits: Iterable[Visit], key_of: Callable[[Visit], str | None]) -> list[Gap]:
    """All gaps, grouped by key; visits without a key are left out."""
    ends: dict[str, float] = {}
    found = []
    for visit in sorted(visits, key=lambda v: v.start_s):
        key = key_of(visit)
        if key is None:
            continue
        if key in ends:
            found.append(Gap(key, visit.start_s - ends[key], visit.target))
        ends[key] = max(ends.get(key, visit.end_s), visit.end_s)
    return found


def longest_pause_s(visits: Iterable[Visit], host: str) -> float:
    """From the end of a request to a name to the start of its next."""
    of_host = sorted(visit for visit in visits if visit.host == host)
    return max((after.start_s - before.end_s for before, after in pairwise(of_host)), default=0.0)


def report(
    visits: Iterable[Visit],
    sites: Mapping[str, Site],
    site_of: Callable[[str], Site | None],
    *,
    min_delay_s: float = 0.0,
    ip_delay_s: float = 0.0,
    tolerance_s: float = 0.01,
) -> Report:
    """Judge a log. A site's delay is the larger of `min_delay_s` and the largest crawl-delay that its origins had told by then; a gap is
    measured at the server, from end to start, over all hosts of the site. `tolerance_s`: what its clock may lag behind its sockets."""
    visits = sorted(visits, key=lambda v: v.start_s)
    by_site: dict[str, list[Visit]] = defaultdict(list)
    first_target: dict[str, str] = {}
    unknown = set()
    names: dict[str, str | None] = {}
    for visit in visits:
        if visit.host not in names:
            site = site_of(visit.host)
            names[visit.host] = site.name if site else None
        name = names[visit.host]
        if name is None:
            unknown.add(visit.host)
            continue
        by_site[name].append(visit)
        first_target.setdefault(visit.host, visit.target)

    site_gaps = gaps(visits, lambda v: names[v.host])
    reports = {name: _of_site(site, by_site[name]) for name, site in sites.items()}
    return Report(
        requests=len(visits),
        seconds=visits[-1].end_s - visits[0].start_s if visits else 0.0,
        expected=sum(r.expected for r in reports.values()),
        found=sum(r.found for r in reports.values()),
        refetched=sum(r.refetched for r in reports.values()),
        violations=tuple(g for name, site in sites.items() for g in _too_short(site, by_site[name], min_delay_s, tolerance_s)),
        address_violations=tuple(g for g in gaps(visits, lambda v: v.address) if g.gap_s < ip_delay_s - tolerance_s) if ip_delay_s else (),
        overlaps=tuple(g for g in site_gaps if g.gap_s < -tolerance_s),
        too_soon=tuple(Early(v.host, v.early_s, v.target) for v in visits if v.early_s > tolerance_s),
        shortest_gap_s=min((g.gap_s for g in site_gaps), default=None),
        robots_late=tuple(host for host, target in first_target.items() if target != "/robots.txt"),
        forbidden=tuple(f"{v.host}{v.target}" for v in visits if v.forbidden),
        unknown_hosts=tuple(sorted(unknown)),
        agents=dict(Counter(v.agent for v in visits)),
        sites=reports,
    )


def _too_short(site: Site, visits: list[Visit], min_delay_s: float, tolerance_s: float) -> Iterable[Gap]:
    """With every robots.txt that is answered, the delay may grow."""
    known: set[str] = set()
    for before, gap in zip(visits, gaps(visits, lambda _: site.name), strict=False):
        if before.status == 200 and before.target == "/robots.txt":
            known.add(before.host)
        if gap.gap_s < max(min_delay_s, site.crawl_delay_s(known)) - tolerance_s:
            yield gap


def _of_site(site: Site, visits: list[Visit]) -> SiteReport:
    expected = site.expected()
    shown = Counter(v.page for v in visits if v.page is not None)
    found = expected & shown.keys()
    return SiteReport(
        kind=type(site).__name__.lower(),
        requests=len(visits),
        robots_fetches=sum(v.target == "/robots.txt" for v in visits),
        expected=len(expected),
        found=len(found),
        refetched=sum(shown.values()) - len(shown),
        blocked=sum(v.blocked for v in visits),
        span_s=max(v.end_s for v in visits) - visits[0].start_s if visits else 0.0,
        missing=tuple(sorted(expected - found)[:20]),
    )
