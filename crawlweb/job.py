"""A lease and what to do with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .frontier.rows import Lease
from .outbox import Ticket
from .policy import robots
from .policy.hosts import is_on_host

ROBOTS_FOR = "robots"  # in an entry's request: it is the robots.txt of an origin of another host
PROBE = "probe"  # there: it is a path that cannot be there (probes.py)


@dataclass(slots=True)
class Job:
    """A lease and what to do with it: fetch its page, or (`robots_url`) the robots.txt of `origin`, which must be known first.

    `robots_host`: the host of that origin. `stale_robots`: an old copy, `has_stale`: there is one.
    `ip`: the address whose turn was taken, usable until `ip_until` (boottime). `begun`: boottime when the engine got it; `stuck`: 1 after
    it was said that it is there for long, 2 when its lease is not renewed any more; `is_late`: its lease was gone when its response came.
    """

    lease: Lease
    origin: str
    robots_url: str = ""
    robots_hops: int = 0
    robots_host: str = ""
    has_stale: bool = False
    stale_robots: robots.Answer | None = None
    ip: str = ""
    ip_until: float = math.inf
    begun: float = math.inf
    stuck: int = 0
    is_late: bool = False
    ticket: Ticket = field(default_factory=Ticket)

    @property
    def is_robots_link(self) -> bool:
        """The lease is for the robots.txt of an origin that redirects to this URL; else that origin's page waits for it."""
        return ROBOTS_FOR in self.lease.entry.request

    @property
    def is_probe(self) -> bool:
        """It shows what its host answers where there is nothing; no page, whatever comes."""
        return PROBE in self.lease.entry.request and not self.robots_url

    @property
    def until(self) -> float:
        """The request must have ended then; boottime."""
        return min(self.lease.expires, self.ip_until)


def robots_request(host: str, origin: str, hops: int, has_stale: bool = False) -> dict[str, object]:
    return {ROBOTS_FOR: [host, origin, hops, int(has_stale)]}


def probe_request() -> dict[str, object]:
    return {PROBE: 1}


def check_probe(request: Mapping[str, object]) -> None:
    """ValueError: it says that it is a probe, and is none of ours."""
    if PROBE in request and request != probe_request():
        raise ValueError("not a probe")


def robots_requested(request: Mapping[str, object]) -> tuple[str, str, int, bool] | None:
    """The arguments of `robots_request`; None: it is another request. ValueError: it is none of ours."""
    if ROBOTS_FOR not in request:
        return None
    match request[ROBOTS_FOR]:
        case [str(host), str(origin), int(hops), int(stale)] if is_on_host(origin + "/", host) and 0 < hops <= robots.MAX_HOPS:
            return host, origin, hops, bool(stale)
    raise ValueError("not a request for a robots.txt")
