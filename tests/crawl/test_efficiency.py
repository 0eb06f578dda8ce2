"""A worker that has all the time it needs asks each host about as often as the host's delay allows, and never more often.

`bench/efficiency.py` measures it; here the machine may be busy, so what is judged of the waits is their median.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from tests.crawl.crawler import Crawl, at_once
from tests.web import Links, Web
from tests.web.report import gaps

HOSTS = 12
DELAY_S = 1.0


@at_once
def test_hosts_are_asked_again_as_soon_as_their_delay_is_over(folder: Path) -> None:
    sites = [
        Links(pages=10_000, links=10, page_bytes=4000, low_s=latency_s, high_s=latency_s)
        for latency_s in (0.02 + 0.18 * number / HOSTS for number in range(HOSTS))
    ]
    delays = {"CRAWLWEB_MIN_DELAY_S": DELAY_S, "CRAWLWEB_IP_DELAY_S": 0.5}
    with Web(seed=3, sites=sites) as web, Crawl(folder, web.dns_server, **delays) as crawl:
        crawl.start(web.seeds(), arguments=("-a", f"max_pages={6 * HOSTS}")).succeeds()
        found = gaps(web.visits(), lambda visit: visit.host)
        report = web.report(min_delay_s=DELAY_S, ip_delay_s=0.5, tolerance_s=0.0)
    assert (report.violations, report.address_violations) == ((), ())
    of_host = {host: [gap.gap_s - DELAY_S for gap in found if gap.key == host] for host in web.sites}
    assert min(map(len, of_host.values())) >= 3, "each had its share"
    late_s = {host: statistics.median(some) for host, some in of_host.items()}
    assert statistics.median(late_s.values()) < DELAY_S / 2, late_s
