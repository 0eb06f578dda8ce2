"""Two workers on one Redis server: one crawl, shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crawl.crawler import Crawl, at_once
from tests.crawl.test_limits import a_redis
from tests.web import Redirects, Slow, Spellings, Tree, Web
from tests.web.sites import ROBOTS

DELAY_S = 0.8
HOSTS = 75  # more than the 65 leases that a worker with CONCURRENT_REQUESTS = 1 takes


def a_web(hosts: int = HOSTS) -> Web:
    sites = [Tree(f"tree{i}.org", pages=6) for i in range(hosts)]
    others = [Redirects("moved.org", pages=5), Spellings("spelled.org", pages=5), Slow("slow.org", pages=5, high_s=0.2)]
    return Web(seed=5, sites=[*sites, *others, Tree("private.org", pages=5, robots=ROBOTS["private"])])


@contextmanager
def two_workers(folder: Path, **settings: object) -> Iterator[tuple[Web, Crawl, Crawl]]:
    """A web, and two crawlers with a Redis server between them."""
    with a_redis() as url, a_web() as web:
        shared = {
            "REDIS_URL": url,
            "CRAWLWEB_SPILL_URL": folder / "cold",
            "CRAWLWEB_MIN_DELAY_S": DELAY_S,
            "CONCURRENT_REQUESTS": 1,
            **settings,
        }
        with Crawl(folder / "one", web.dns_server, **shared) as one, Crawl(folder / "two", web.dns_server, **shared) as two:
            yield web, one, two


def check(web: Web, one: Crawl, two: Crawl) -> None:
    """Nothing is missing, nothing was fetched twice or too soon, by either."""
    report = web.report(min_delay_s=DELAY_S, tolerance_s=0.02)
    assert {name: site.missing for name, site in report.sites.items() if site.missing} == {}
    assert (report.refetched, report.violations, report.overlaps, report.forbidden, report.robots_late) == (0, (), (), (), ())
    assert {name: site.robots_fetches for name, site in report.sites.items()} == dict.fromkeys(web.sites, 1)
    items = Counter(item["final_url"] for crawl in (one, two) for item in crawl.items())
    assert max(items.values()) == 1
    assert sum(items.values()) == report.found


@at_once
def test_a_late_worker_without_seeds_shares_the_crawl(folder: Path) -> None:
    with two_workers(folder) as (web, one, two):
        first = one.start(web.seeds())
        assert web.wait_until_served(20, 60)
        second = two.start()
        assert first.succeeds().summary[0] == second.succeeds().summary[0] == "finished"
        assert first.complaints == second.complaints == []
        check(web, one, two)
        assert min(len(one.items()), len(two.items())) > 0, "both had a share"
        assert Counter([*one.pages(), *two.pages()]).most_common(1)[0][1] == 1
        audit = one.audit()
        assert (audit["pending"], audit["lost"], audit["leased"]) == (0, 0, 0)


@at_once
def test_two_workers_share_the_private_server_of_a_data_directory(folder: Path) -> None:
    with (
        a_web(5) as web,
        Crawl(folder / "one", web.dns_server, CRAWLWEB_MIN_DELAY_S=DELAY_S) as one,
        Crawl(folder / "two", web.dns_server, CRAWLWEB_MIN_DELAY_S=DELAY_S, CRAWLWEB_DATA_DIR=one.data_dir) as two,
    ):
        runs = [one.start(web.seeds()), two.start(web.seeds())]
        for run in runs:
            run.succeeds()
        check(web, one, two)
        assert sum(run.summary[1] for run in runs) == len(one.pages()) == len(set(one.pages()))
        assert not one.server_answers()


@at_once
def test_the_other_worker_takes_over_what_a_killed_one_held(folder: Path) -> None:
    with two_workers(folder, DOWNLOAD_TIMEOUT=2, CRAWLWEB_LEASE_S=6) as (web, one, two):
        first, second = one.start(web.seeds()), two.start()
        second.wait_until(lambda: one.items() and two.items())
        first.kill()
        held = one.audit()["leased"]
        assert second.succeeds().summary[0] == "finished"
        report = web.report(min_delay_s=DELAY_S, tolerance_s=0.02)
        assert (report.found, report.violations, report.overlaps) == (report.expected, (), ())
        assert report.refetched <= held
        assert one.audit()["lost"] == 0


@at_once
def test_a_stopped_worker_leaves_the_rest_to_the_other(folder: Path) -> None:
    with two_workers(folder) as (web, one, two):
        first, second = one.start(web.seeds()), two.start()
        second.wait_until(lambda: one.items() and two.items())
        first.interrupt()
        assert first.succeeds(20).summary[0] == "shutdown"
        assert second.succeeds().summary[0] == "finished"
        check(web, one, two)
