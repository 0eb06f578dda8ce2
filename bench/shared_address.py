"""Thousands of hosts on one address beside hosts with addresses of their own: what do the free ones lose?

    python bench/shared_address.py                       5,000 hosts on one address, 100 free ones, 60 s a crawl
    python bench/shared_address.py --workers 2 --rounds 3

Crawls the free hosts alone and together with the others, in turns, and compares the pages of the free ones after the same time. The web's
log judges the gaps of hosts and of the address. Exit status 1 if the free ones lose 5 % or more, or a gap is short.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from crawlweb.frontier.server import find_binary  # noqa: E402
from tests.conftest import serving  # noqa: E402
from tests.crawl.crawler import Crawl  # noqa: E402
from tests.web import Report, Tree, Web  # noqa: E402

SHARED = "127.9.9.9"


def crawl(options: argparse.Namespace, shared: int, seed: int) -> tuple[int, int, Report]:
    """Pages of the free hosts and of the others, and the report."""
    free = [Tree(f"free{i}.org", pages=options.seconds * 3) for i in range(options.free)]
    others = [Tree(f"shop{i}.org", pages=5, address=SHARED) for i in range(shared)]
    settings = {"CRAWLWEB_MIN_DELAY_S": options.delay_s, "CRAWLWEB_IP_DELAY_S": options.ip_delay_s, "CONCURRENT_REQUESTS": 2000}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        serving(find_binary()) as redis,
        Web(seed=seed, sites=[*free, *others]) as web,
    ):
        crews = [Crawl(Path(folder, str(i)), web.dns_server, REDIS_URL=redis.url, **settings) for i in range(options.workers)]
        seeds = Path(folder, "seeds.txt")
        seeds.write_text("\n".join(web.seeds()))
        runs = [crew.start([f"@{seeds}"]) for crew in crews]
        begun = time.monotonic()
        while not any(visit.host.startswith("free") and visit.page for visit in web.visits()):
            time.sleep(0.1)
            if time.monotonic() - begun > 120:
                raise SystemExit("no page came")
        time.sleep(options.seconds)
        for run in runs:
            run.kill()
        report = web.report(min_delay_s=options.delay_s, ip_delay_s=options.ip_delay_s, tolerance_s=0.02)
    counts = {name: site.found for name, site in report.sites.items()}
    return sum(n for name, n in counts.items() if name[0] == "f"), sum(n for name, n in counts.items() if name[0] == "s"), report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=5000, help="on one address")
    parser.add_argument("--free", type=int, default=100, help="hosts with addresses of their own")
    parser.add_argument("--seconds", type=int, default=60, help="from the first page of a free host")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--delay-s", type=float, default=1.0)
    parser.add_argument("--ip-delay-s", type=float, default=0.5)
    options = parser.parse_args()
    alone, together, broken = [], [], 0
    for seed in range(options.rounds):
        for shared, pages in ((0, alone), (options.hosts, together)):
            free, others, report = crawl(options, shared, seed)
            pages.append(free)
            wrong = len(report.violations) + len(report.address_violations) + len(report.overlaps)
            broken += wrong
            beside = f"beside {shared} on one address" if shared else "alone"
            print(f"{options.free} free hosts {beside}: {free} pages in {options.seconds} s")
            print(f"    {others} pages of the others, {report.requests} requests, {wrong} too early", flush=True)
    loss = 1 - statistics.median(together) / statistics.median(alone)
    print(f"the free ones lose {100 * loss:.1f} %")
    return int(loss >= 0.05 or broken > 0)


if __name__ == "__main__":
    sys.exit(main())
