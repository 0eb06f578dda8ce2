"""A host that has had some pages is asked for one that cannot be there: what it answers is its error page (docs/decisions/soft-404.md).

The probe is a link like any other, with the host's clock and robots.txt. Its key is made of host and period, so that of all workers one
puts it into the frontier. A host that was seen to answer 404 to what is missing needs none.
"""

from __future__ import annotations

import hashlib

from .frontier.rows import Lease, Link
from .job import probe_request
from .policy import robots
from .policy.priority import front_queue, path_depth
from .records import Entry

PAGES = 20  # of a host, that this worker has stored
HOSTS_MOST = 50_000  # whose pages are counted
DAY_S = 86_400.0


class Probes:
    """`days`: between two probes of a host; 0: there are none."""

    def __init__(self, days: float) -> None:
        self._period_s = days * DAY_S
        self._pages: dict[str, int] = {}  # by host; latest last
        self._period = 0

    def page(self, lease: Lease, unix_s: float) -> Link | None:
        """A page of a host is there. The probe, if it is time for one."""
        if not self._period_s or lease.has_real_errors or unix_s - lease.probed_at < self._period_s:
            return None
        period = int(unix_s / self._period_s)
        if period != self._period:
            self._period = period
            self._pages.clear()
        host = lease.host
        pages = self._pages.pop(host, 0) + 1
        self._pages[host] = pages
        if len(self._pages) > HOSTS_MOST:
            del self._pages[next(iter(self._pages))]
        if pages != PAGES:
            return None
        name = hashlib.blake2b(f"probe {host} {period}".encode(), digest_size=16).digest()
        url = f"{robots.origin_of(lease.entry.url)}/{name[:8].hex()}"
        return Link(host, name, Entry(url, front_queue(path_depth(url)), request=probe_request()))
