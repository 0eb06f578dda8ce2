"""What an operator wants of hosts, typed at the command line, judged at the server."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import redis

from crawlweb.frontier.server import PrivateServer
from tests.crawl.crawler import Crawl, Run, at_once
from tests.web import Robots, Slow, Tree, Web
from tests.web.report import Visit

DELAY_S = 0.3
TOLERANCE_S = 0.02
LATE_S = 0.1  # from start to start, one that begins late comes nearer to the next


def sites() -> list[Tree]:
    return [
        Tree("usual.org", pages=12),
        Tree("gentle.org", pages=8),
        Tree("told.org", pages=8, robots=Robots(crawl_delay_s=3.0)),
        Slow("quick.org", pages=24, low_s=0.5, high_s=0.5),
        Tree("paused.org", pages=4),
    ]


WANTED = {
    "gentle.org": ("--delay", "1"),
    "told.org": ("--delay", "0.6"),
    "quick.org": ("--delay", "0.2", "--concurrency", "2", "--below-minimum"),
    "paused.org": ("--pause-until", "forever"),
}


def crawlweb(crawl: Crawl, *words: str) -> list[dict[str, Any]]:
    """What the command says, with --json."""
    command = [sys.executable, "-m", "crawlweb.cli", *words, "--json", "-s", f"CRAWLWEB_DATA_DIR={crawl.data_dir}"]
    return [json.loads(line) for line in Run(command, crawl.folder / "cli.log").succeeds(60).log.splitlines()]


def is_begun(crawl: Crawl) -> bool:
    try:
        with redis.Redis.from_url(PrivateServer(crawl.data_dir).url) as client:
            return bool(client.exists("{web}:meta"))
    except redis.RedisError:
        return False


def shortest_gap_s(visits: list[Visit], *, from_start: bool = False) -> float:
    return min(after.start_s - (before.start_s if from_start else before.end_s) for before, after in pairwise(visits))


def at_a_time(visits: list[Visit]) -> int:
    """Requests that the server worked on, at the most."""
    return max(sum(other.start_s <= visit.start_s < other.end_s for other in visits) for visit in visits)


@at_once
def test_overrides_are_obeyed_by_all_workers_and_after_restarts(folder: Path) -> None:
    settings = {"CRAWLWEB_MIN_DELAY_S": DELAY_S, "CRAWLWEB_IP_DELAY_S": 0}
    with Web(seed=5, sites=sites()) as web, Crawl(folder, web.dns_server, **settings) as crawl:
        first = crawl.start()  # without seeds: it begins the crawl
        first.wait_until(lambda: is_begun(crawl))
        for host, options in WANTED.items():
            crawlweb(crawl, "host", host, *options)
        first.interrupt()
        first.succeeds(20)

        second = crawl.start(web.seeds())
        assert web.wait_until_served(15, 30)
        second.interrupt()
        second.succeeds(20)
        assert {row["host"] for row in crawlweb(crawl, "hosts")} == WANTED.keys()
        others = sum(len(site.expected()) for name, site in web.sites.items() if name != "paused.org")
        assert web.served < others

        third = crawl.start()
        assert web.wait_until_served(others, 60)
        visits = {name: sorted(v for v in web.visits() if v.host == name) for name in web.sites}
        assert visits["paused.org"] == []
        (paused,) = crawlweb(crawl, "host", "paused.org")
        assert paused["next_s"] > 1e9
        crawlweb(crawl, "host", "paused.org", "--clear")
        third.succeeds(60)

        report = web.report()
        assert (report.found, report.refetched) == (report.expected, 0)
        assert shortest_gap_s(visits["usual.org"]) > DELAY_S - TOLERANCE_S
        assert shortest_gap_s(visits["gentle.org"]) > 1.0 - TOLERANCE_S
        assert 0.6 - TOLERANCE_S < shortest_gap_s(visits["told.org"]) < 2.0
        assert shortest_gap_s(visits["quick.org"], from_start=True) > 0.2 - LATE_S
        assert at_a_time(visits["quick.org"]) == 2
        assert [complaint for run in crawl.runs for complaint in run.complaints] == []
