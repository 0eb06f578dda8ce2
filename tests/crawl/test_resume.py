"""Stopped, killed, started again: nothing is lost, and as little as possible is fetched twice."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from tests.crawl.crawler import Crawl, at_once
from tests.web import Redirects, Site, Slow, Tree, Web

LEASE = {"DOWNLOAD_TIMEOUT": 2, "CRAWLWEB_LEASE_S": 6}
KILLS = 2
PAGES = 40


def sites() -> list[Site]:
    return [
        *(Tree(f"tree{i}.org", pages=PAGES) for i in range(6)),
        Redirects("moved.org", pages=20),
        Slow("slow.org", pages=20, low_s=0.02, high_s=0.2),
    ]


def a_web() -> Web:
    return Web(seed=3, sites=sites())


def expected(web: Web) -> set[str]:
    return {site.url(page) for site in web.sites.values() for page in site.expected()}


def total(web: Web) -> int:
    return len(expected(web))


@at_once
def test_one_interrupt_gives_all_leases_back_and_the_same_command_goes_on(folder: Path) -> None:
    with a_web() as web, Crawl(folder, web.dns_server) as crawl:
        first = crawl.start(web.seeds())
        assert web.wait_until_served(total(web) // 3, 30)
        first.interrupt()
        first.succeeds(20)
        assert first.summary[0] == "shutdown"
        assert first.complaints == []
        assert not crawl.server_answers()
        audit = crawl.audit()
        assert (audit["leased"], audit["inflight"], audit["lost"]) == (0, 0, 0)
        assert audit["pending"] > 0
        assert len(crawl.items()) == len(crawl.pages()) == web.served < total(web)

        second = crawl.start(web.seeds()).succeeds()
        assert second.summary == ("finished", total(web) - first.summary[1])
        report = web.report(min_delay_s=0.05, tolerance_s=0.02)
        assert (report.found, report.refetched, report.violations) == (total(web), 0, ())
        assert Counter(crawl.pages()) == Counter(item["final_url"] for item in crawl.items()) == Counter(expected(web))


@at_once
def test_robots_txt_is_not_fetched_again_after_a_stop(folder: Path) -> None:
    with a_web() as web, Crawl(folder, web.dns_server) as crawl:
        first = crawl.start(web.seeds())
        assert web.wait_until_served(total(web) // 3, 30)
        first.interrupt()
        first.succeeds(20)
        crawl.start().succeeds()
        report = web.report()
        assert {name: site.robots_fetches for name, site in report.sites.items()} == dict.fromkeys(web.sites, 1)
        assert report.found == total(web), "a crawl goes on without its seeds, too"


@at_once
def test_two_interrupts_stop_at_once_and_nothing_is_lost(folder: Path) -> None:
    with a_web() as web, Crawl(folder, web.dns_server, **LEASE) as crawl:
        first = crawl.start(web.seeds())
        assert web.wait_until_served(total(web) // 3, 30)
        first.interrupt()
        first.wait_until(lambda: "Received SIGINT" in first.log)
        first.interrupt()
        first.wait(5)
        assert "Traceback" not in first.log
        under_way = web.served - len(crawl.items())
        assert under_way <= crawl.audit()["leased"], "what has no item yet is still leased, and so is taken up"

        crawl.start(web.seeds()).succeeds()
        assert set(crawl.pages()) == {item["final_url"] for item in crawl.items()} == expected(web)
        assert web.report().found == total(web)


@at_once
def test_what_kill_9_leaves_behind_is_taken_up(folder: Path) -> None:
    rng, in_flight = random.Random(4), 0
    with a_web() as web, Crawl(folder, web.dns_server, **LEASE) as crawl:
        for number in range(KILLS):
            run = crawl.start(web.seeds())
            assert web.wait_until_served(total(web) * (number + 1) // (KILLS + 1) + rng.randrange(20), 40)
            run.kill()
            assert crawl.server_answers(), "the private server outlives its first worker"
            in_flight += crawl.audit()["leased"]
        last = crawl.start(web.seeds()).succeeds()

        assert "finished the WARC file of a worker that died" in last.log
        assert [f.name for f in crawl.warc_folder.iterdir() if not f.name.endswith((".warc.gz", ".cdxj"))] == []
        pages = crawl.pages()
        assert set(pages) == expected(web)
        report = web.report(min_delay_s=0.05, tolerance_s=0.02)
        assert (report.found, report.violations, report.forbidden) == (total(web), (), ())
        assert report.refetched <= in_flight
        assert len(pages) - len(set(pages)) <= in_flight
        items, unreadable = crawl.readable_items()
        assert unreadable <= KILLS
        assert {item["final_url"] for item in items} <= expected(web)
        assert len(expected(web) - {item["final_url"] for item in items}) <= in_flight
        assert crawl.audit()["lost"] == 0


@at_once
def test_the_gap_holds_across_a_kill(folder: Path) -> None:
    with Web(sites=[Tree("one.org", pages=12)]) as web, Crawl(folder, web.dns_server, **LEASE, CRAWLWEB_MIN_DELAY_S=0.5) as crawl:
        run = crawl.start(web.seeds())
        assert web.wait_until_served(4, 30)
        run.kill()
        crawl.start().succeeds()
        report = web.report(min_delay_s=0.5, tolerance_s=0.02)
        assert (report.found, report.violations) == (12, ())


@at_once
def test_a_killed_redis_loses_a_second_at_most(folder: Path) -> None:
    """The private server dies with its worker, as when the machine loses power: its append-only file is a second old at most."""
    with a_web() as web, Crawl(folder, web.dns_server, **LEASE) as crawl:
        run = crawl.start(web.seeds())
        assert web.wait_until_served(total(web) // 2, 30)
        run.kill()
        crawl.kill_server()
        crawl.start(web.seeds()).succeeds()
        assert set(crawl.pages()) == expected(web)
