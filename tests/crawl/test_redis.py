"""Redis goes away, breaks connections, is full: the crawl waits or ends, and nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import redis

from tests.crawl.crawler import Crawl, at_once
from tests.crawl.test_limits import a_redis
from tests.web import Tree, Web

PAGES, SITES = 25, 6


def a_web() -> Web:
    return Web(seed=6, sites=[Tree(f"t{i}.org", pages=PAGES) for i in range(SITES)])


def is_whole(web: Web, crawl: Crawl) -> None:
    report = web.report(min_delay_s=0.2, tolerance_s=0.02)
    assert (report.found, report.refetched, report.violations) == (PAGES * SITES, 0, ())
    assert max(Counter(crawl.pages()).values()) == 1
    assert len(crawl.items()) == PAGES * SITES
    audit = crawl.audit()
    assert (audit["pending"], audit["lost"]) == (0, 0)


@at_once
def test_broken_connections_to_redis_cost_nothing(folder: Path) -> None:
    with a_redis() as url, a_web() as web, Crawl(folder, web.dns_server, REDIS_URL=url, CRAWLWEB_MIN_DELAY_S=0.2) as crawl:
        run = crawl.start(web.seeds())
        with redis.Redis.from_url(url) as client:
            for pages in range(10, 130, 10):
                assert web.wait_until_served(pages, 60)
                client.client_kill_filter(_type="normal", skipme=True)
        run.succeeds()
        assert run.summary == ("finished", PAGES * SITES)
        assert "Traceback" not in run.log
        is_whole(web, crawl)


@at_once
def test_a_crawl_waits_for_a_redis_that_does_not_answer(folder: Path) -> None:
    with a_redis(aof="no") as url, a_web() as web, Crawl(folder, web.dns_server, REDIS_URL=url, CRAWLWEB_MIN_DELAY_S=0.2) as crawl:
        run = crawl.start(web.seeds())
        with redis.Redis.from_url(url) as client:
            pid = int(client.info("server")["process_id"])
        assert web.wait_until_served(40, 60)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(3)
        finally:
            os.kill(pid, signal.SIGCONT)
        run.succeeds()
        assert "Redis keeps no append-only file" in run.log
        is_whole(web, crawl)


@at_once
def test_a_crawl_waits_while_redis_is_full(folder: Path) -> None:
    with a_redis() as url, a_web() as web, Crawl(folder, web.dns_server, REDIS_URL=url, CRAWLWEB_MIN_DELAY_S=0.2) as crawl:
        run = crawl.start(web.seeds())
        assert web.wait_until_served(40, 60)
        with redis.Redis.from_url(url) as client:
            client.config_set("maxmemory", 1)
            run.wait_until(lambda: any("OOM" in line or "memory" in line for line in run.complaints), 20)
            assert run.process.poll() is None
            client.config_set("maxmemory", 0)
        run.succeeds()
        is_whole(web, crawl)


@at_once
def test_a_crawl_that_is_stopped_while_redis_is_full_goes_on_later(folder: Path) -> None:
    lease = {"DOWNLOAD_TIMEOUT": 2, "CRAWLWEB_LEASE_S": 6}
    with a_redis() as url, a_web() as web, Crawl(folder, web.dns_server, REDIS_URL=url, CRAWLWEB_MIN_DELAY_S=0.2, **lease) as crawl:
        run = crawl.start(web.seeds())
        assert web.wait_until_served(40, 60)
        with redis.Redis.from_url(url) as client:
            client.config_set("maxmemory", 1)
            run.interrupt(2)
            run.wait(60)
            assert "Traceback" not in run.log
            client.config_set("maxmemory", 0)
        crawl.start().succeeds()
        assert set(crawl.pages()) == {site.url(page) for site in web.sites.values() for page in site.expected()}
        assert crawl.audit()["lost"] == 0
