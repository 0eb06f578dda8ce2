"""Crawls whose queues do not fit: their middle is on disk, and comes back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.crawl.crawler import Crawl, at_once
from tests.crawl.test_limits import a_redis
from tests.web import Tree, Web

HOSTS = 150
SMALL = {"CRAWLWEB_PARTITIONS": 1, "CRAWLWEB_ACTIVE_HOSTS": 8, "CRAWLWEB_SPILL_CHUNK": 10, "DOWNLOAD_TIMEOUT": 2, "CRAWLWEB_LEASE_S": 6}


def a_web() -> Web:
    return Web(seed=8, sites=[Tree(f"tree{i}.org", pages=4) for i in range(HOSTS)])


def files(crawl: Crawl) -> list[Path]:
    return list((crawl.data_dir / "web" / "cold").rglob("*.zst"))


@at_once
def test_a_crawl_that_is_killed_finds_its_queues_on_disk(folder: Path) -> None:
    with a_web() as web, Crawl(folder, web.dns_server, **SMALL) as crawl:
        first = crawl.start(web.seeds())
        first.wait_until(lambda: files(crawl))
        assert web.wait_until_served(web.served + 30, 60)
        first.kill()
        audit = crawl.audit()
        assert audit["lost"] == 0
        assert audit["cold"] > 0
        last = crawl.start(web.seeds()).succeeds()
        assert last.stats["crawlweb/spill/chunks_in"] > 0
        assert set(crawl.pages()) == {site.url(page) for site in web.sites.values() for page in site.expected()}
        report = web.report(min_delay_s=0.05, tolerance_s=0.02)
        assert (report.found, report.violations) == (4 * HOSTS, ())
        assert report.refetched <= audit["leased"]
        audit = crawl.audit()
        assert (audit["pending"], audit["cold"], audit["lost"]) == (0, 0, 0)


@at_once
def test_a_worker_that_does_not_reach_the_files_leaves_them_to_the_others(folder: Path) -> None:
    with a_redis() as url, a_web() as web:
        shared = {"REDIS_URL": url, **SMALL}
        with Crawl(folder / "one", web.dns_server, **shared) as one, Crawl(folder / "two", web.dns_server, **shared) as two:
            first = one.start(web.seeds())
            first.wait_until(lambda: files(one))
            second = two.start()
            assert first.succeeds().summary[0] == second.succeeds().summary[0] == "finished"
            assert first.complaints == []
            (complaint,) = second.complaints
            assert "CRAWLWEB_SPILL_URL" in complaint
            assert files(two) == []
            pages = Counter([*one.pages(), *two.pages()])
            assert set(pages) == {site.url(page) for site in web.sites.values() for page in site.expected()}
            assert one.audit()["lost"] == 0


@at_once
def test_workers_of_two_machines_share_a_store(folder: Path) -> None:
    with a_redis() as url, a_web() as web:
        shared = {"REDIS_URL": url, "CRAWLWEB_SPILL_URL": (folder / "shared").as_uri(), **SMALL}
        with Crawl(folder / "one", web.dns_server, **shared) as one, Crawl(folder / "two", web.dns_server, **shared) as two:
            first, second = one.start(web.seeds()), two.start()
            assert first.succeeds().summary[0] == second.succeeds().summary[0] == "finished"
            assert first.complaints == second.complaints == []
            moved = [run.stats.get("crawlweb/spill/chunks_out", 0) for run in (first, second)]
            assert sum(moved) > 0
            assert web.report().found == 4 * HOSTS


@at_once
def test_a_store_that_cannot_be_is_one_line(folder: Path) -> None:
    with a_web() as web, Crawl(folder, web.dns_server) as crawl:
        crawl.folder.mkdir(parents=True, exist_ok=True)
        (crawl.folder / "file").write_text("not a folder")
        for spill_url in ("nonsense://bucket", str(crawl.folder / "file" / "cold")):
            run = crawl.start(web.seeds(), CRAWLWEB_SPILL_URL=spill_url)
            assert run.wait() == 1
            assert f"crawlweb: CRAWLWEB_SPILL_URL={spill_url}: " in run.log
            assert "Traceback" not in run.log
        assert web.served == 0
