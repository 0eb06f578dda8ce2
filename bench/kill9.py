"""What `kill -9` costs: a crawl that is killed again and again, beside one that runs through.

    python bench/kill9.py                 five kills at random moments of one crawl
    python bench/kill9.py --kills 10 --seed 7

Both crawl the same synthetic web. After each kill the audit says how many leases were in flight: so many pages may be fetched again, and no
more. The union of the WARC responses has to be the uninterrupted run's. The exit status says whether all of it holds.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.crawl.crawler import Crawl  # noqa: E402
from tests.web import Redirects, Site, Slow, Tree, Web  # noqa: E402


@dataclass(frozen=True)
class Kill:
    served: int
    """Pages that the web had served by then."""
    leased: int
    lost: int
    """By the audit: URLs or hosts in no place."""


@dataclass(frozen=True)
class Result:
    paths: Counter[str]
    """Responses in the WARC folder that are pages, ports left out."""
    kills: list[Kill]
    refetched: int
    violations: int
    unreadable_lines: int
    without_item: int
    pending: int


def sites(pages: int) -> list[Site]:
    trees = [Tree(f"tree{i}.org", pages=pages) for i in range(20)]
    return [*trees, Redirects("moved.org", pages=pages // 2), Slow("slow.org", pages=pages // 2, low_s=0.02, high_s=0.3)]


def run(options: argparse.Namespace, kills: int) -> Result:
    rng = random.Random(options.seed)
    settings = {"CRAWLWEB_MIN_DELAY_S": options.delay_s, "DOWNLOAD_TIMEOUT": options.timeout_s, "CRAWLWEB_LEASE_S": 3 * options.timeout_s}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Web(seed=options.seed, sites=sites(options.pages)) as web,
        Crawl(Path(folder), web.dns_server, **settings) as crawl,
    ):
        total = sum(len(site.expected()) for site in web.sites.values())
        seen = []
        for at in sorted(rng.randrange(total) for _ in range(kills)):
            started = crawl.start(web.seeds())
            started.wait_until(partial(_is_so_far, web, at))
            started.kill()
            audit = crawl.audit()
            seen.append(Kill(web.served, audit["leased"], audit["lost"]))
        crawl.start(web.seeds()).succeeds(options.wait_s)
        report = web.report(min_delay_s=options.delay_s)
        port = f":{web.http_port}"
        paths = Counter(url.replace(port, "", 1) for url in crawl.pages())
        items, unreadable = crawl.readable_items()
        with_item = {item["final_url"].replace(port, "", 1) for item in items}
        return Result(
            paths,
            seen,
            report.refetched,
            len(report.violations),
            unreadable,
            len(paths.keys() - with_item),
            crawl.audit()["pending"],
        )


def _is_so_far(web: Web, pages: int) -> bool:
    """More than so many pages were served, those that a kill brought again left out."""
    return web.served > pages and web.served - web.report().refetched > pages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of the web and of the moments")
    parser.add_argument("--pages", type=int, default=60, help="of a site; there are 22")
    parser.add_argument("--delay-s", type=float, default=0.2)
    parser.add_argument("--timeout-s", type=float, default=3, help="DOWNLOAD_TIMEOUT; a lease is three times as long")
    parser.add_argument("--wait-s", type=float, default=300, help="for the last run")
    options = parser.parse_args()

    whole = run(options, 0)
    print(f"uninterrupted: {len(whole.paths)} pages, {whole.refetched} refetched, {whole.violations} gaps too short", flush=True)
    killed = run(options, options.kills)
    for number, kill in enumerate(killed.kills, 1):
        print(f"kill {number}: after {kill.served} pages, {kill.leased} leases in flight, audit lost {kill.lost}")
    bound = sum(kill.leased for kill in killed.kills)
    twice = sum(killed.paths.values()) - len(killed.paths)
    print(f"killed {options.kills} times: {len(killed.paths)} pages, {killed.violations} gaps too short, {killed.pending} left pending")
    missing, more = whole.paths.keys() - killed.paths.keys(), killed.paths.keys() - whole.paths.keys()
    print(f"of the uninterrupted run's pages {len(missing)} are missing, and {len(more)} are more")
    print(f"refetched: {killed.refetched} (in WARC twice: {twice}), at most {bound} may be")
    print(f"pages.jsonl: {killed.unreadable_lines} unreadable lines, {killed.without_item} pages without an item")
    holds = (
        not missing
        and not more
        and killed.refetched <= bound
        and not killed.violations
        and not killed.pending
        and killed.unreadable_lines <= options.kills
        and not any(kill.lost for kill in killed.kills)
    )
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
