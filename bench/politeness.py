"""Politeness as the servers see it: a web that asks for patience in every way, and what its log proves of the workers that crawled it.

    python bench/politeness.py                                        one worker
    python bench/politeness.py --workers 4 --kill 3 --clock-off-s 3600

Every site says what it is by its name (tests/web/judging.py). `--kill`: so many times a worker is killed with `kill -9` and another begins;
`--clock-off-s`: the time of day of one worker is wrong by so much. Each figure is judged; the exit status says whether all of them hold.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from crawlweb.frontier.server import find_binary  # noqa: E402
from tests.conftest import serving  # noqa: E402
from tests.crawl.crawler import Crawl, Run  # noqa: E402
from tests.web import Report, Web  # noqa: E402
from tests.web.judging import DEAD, SHARED, judging  # noqa: E402
from tests.web.report import longest_pause_s  # noqa: E402


class Crew:
    """Workers of one crawl, each in a folder of its own."""

    def __init__(self, folder: Path, web: Web, options: argparse.Namespace, redis_url: str) -> None:
        self._folder, self._web, self._options = folder, web, options
        self._settings = {
            "REDIS_URL": redis_url,
            "CRAWLWEB_MIN_DELAY_S": options.delay_s,
            "CRAWLWEB_IP_DELAY_S": options.ip_delay_s,
            "CRAWLWEB_GIVE_UP_S": options.give_up_s,
            "DOWNLOAD_TIMEOUT": options.timeout_s,
            "CRAWLWEB_LEASE_S": 3 * options.timeout_s,
        }
        self.crawls: list[Crawl] = []
        self.runs: list[Run] = []
        self.working: list[Run] = []

    def begin(self, clock_off_s: int = 0) -> None:
        crawl = Crawl(self._folder / str(len(self.crawls)), self._web.dns_server, **self._settings)
        run = crawl.start(self._web.seeds(), clock_off_s=clock_off_s)
        self.crawls.append(crawl)
        self.runs.append(run)
        self.working.append(run)

    def kill(self, rng: random.Random) -> int:
        """One of them, for another. The leases that were in flight: so many pages may be fetched again."""
        victim = self.working.pop(rng.randrange(len(self.working)))
        victim.kill()
        leased: int = self.crawls[0].audit()["leased"]
        self.begin()
        return leased

    def wait(self, seconds: float) -> list[int]:
        """Exit statuses of those that nobody killed; -9 of one that did not end."""
        until_s = time.monotonic() + seconds
        while any(run.process.poll() is None for run in self.working) and time.monotonic() < until_s:
            time.sleep(0.1)
        for run in self.working:
            run.kill()
        return [run.process.returncode for run in self.working]


@contextmanager
def crew(options: argparse.Namespace, web: Web) -> Iterator[Crew]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        found = Crew(folder, web, options, stack.enter_context(serving(find_binary())).url)
        try:
            yield found
        finally:
            for run in found.runs:
                run.kill()


def proofs(web: Web, report: Report, options: argparse.Namespace, leased: int) -> list[tuple[str, bool]]:
    """What the log of the web shows, and whether it is as it should be."""
    visits = web.visits()
    shared = sum(visit.address == SHARED for visit in visits)
    told = sum(visit.status in (429, 503) for visit in visits)
    missing = {name: len(site.missing) for name, site in report.sites.items() if site.missing}
    usual_s = longest_pause_s(visits, "robots-open.org")
    halves = {fate: f"half-{fate}.org" for fate in ("down", *DEAD)}
    pauses_s = {fate: math.inf if name in missing else longest_pause_s(visits, name) for fate, name in halves.items()}
    mute_s = pauses_s.pop("blackhole")  # one request at a time, and one to a mute origin lasts until its time-out
    pause_s = max(pauses_s.values())
    walled = report.sites["walled.org"]
    held_s = 3 * options.timeout_s * bool(options.kill)  # by a worker that is killed
    return [
        (f"{len(report.violations)} of {report.requests} requests came within the delay of their host", not report.violations),
        (f"{len(report.overlaps)} while another of the host was being answered", not report.overlaps),
        (
            f"{len(report.address_violations)} came within the delay of their address; {shared} went to {SHARED}",
            not report.address_violations and shared > 0,
        ),
        (f"{len(report.too_soon)} came before a rest was over; {told} answers asked for one", not report.too_soon and told > 0),
        (f"{len(report.forbidden)} were forbidden", not report.forbidden),
        (f"{len(report.robots_late)} names were asked for something else before robots.txt", not report.robots_late),
        (f"{report.found} of {report.expected} expected pages found; missing by site: {missing or 'none'}", not missing),
        (f"{report.refetched} pages fetched twice; {leased} leases were in flight when workers were killed", report.refetched <= leased),
        (
            f"{pause_s:.1f} s was the longest pause beside an origin that is down (usually {usual_s:.1f} s)",
            pause_s < usual_s + held_s + 3.0,
        ),
        (
            f"{mute_s:.1f} s beside one that is mute, a request to which lasts {options.timeout_s:g} s",
            mute_s < usual_s + options.timeout_s + held_s + 3.0,
        ),
        (
            f"20 pages behind 2,000 forbidden links took {walled.span_s:.1f} s of {21 * options.delay_s:.1f} s at least",
            walled.span_s < 2 * 21 * options.delay_s + 3 * (usual_s + 1.0) + held_s * options.kill,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kill", type=int, default=0, metavar="TIMES")
    parser.add_argument("--clock-off-s", type=int, default=0, help="of the second worker, or of the only one")
    parser.add_argument("--seed", type=int, default=1, help="of the web and of the kills")
    parser.add_argument("--rounds", type=int, default=2, help="how often every kind of site is there")
    parser.add_argument("--pages", type=int, default=20, help="of a site")
    parser.add_argument("--shared", type=int, default=8, help="hosts on one address, in a round")
    parser.add_argument("--delay-s", type=float, default=1.0)
    parser.add_argument("--ip-delay-s", type=float, default=0.5)
    parser.add_argument("--timeout-s", type=float, default=5, help="DOWNLOAD_TIMEOUT; a lease is three times as long")
    parser.add_argument("--give-up-s", type=float, default=60)
    parser.add_argument("--wait-s", type=float, default=900, help="for the end")
    options = parser.parse_args()

    rng = random.Random(options.seed)
    began_s = time.monotonic()
    with Web(seed=options.seed, sites=judging(options.pages, options.shared, options.rounds)) as web, crew(options, web) as workers:
        total = sum(len(site.expected()) for site in web.sites.values())
        for number in range(options.workers):
            workers.begin(options.clock_off_s if number == min(1, options.workers - 1) else 0)
        leased = 0
        for at in sorted(rng.randrange(total // 10, total * 9 // 10) for _ in range(options.kill)):
            if web.wait_until_served(at, options.wait_s):
                leased += workers.kill(rng)
                print(f"killed a worker after {web.served} pages", flush=True)
        statuses = workers.wait(options.wait_s)
        report = web.report(min_delay_s=options.delay_s, ip_delay_s=options.ip_delay_s, tolerance_s=0.02)
        audit = workers.crawls[0].audit()
        found = proofs(web, report, options, leased)
    found += [
        (f"audit: {audit['pending']} pending, {audit['lost']} lost, {audit['leased']} leased", not audit["pending"] and not audit["lost"]),
        (f"exit statuses of those not killed: {statuses}", not any(statuses)),
    ]
    print(f"{len(web.sites)} hosts, {options.workers} workers, {time.monotonic() - began_s:.0f} s, delay {options.delay_s:g} s", flush=True)
    for text, holds in found:
        print("holds " if holds else "FAILS ", text)
    for gap in (*report.violations[:5], *report.address_violations[:5], *report.too_soon[:5], *report.forbidden[:5]):
        print("       ", gap)
    return 0 if all(holds for _, holds in found) else 1


if __name__ == "__main__":
    sys.exit(main())
