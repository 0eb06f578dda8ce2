"""A crawl without Twisted's reactor (Scrapy's TWISTED_REACTOR_ENABLED); all the others run with it."""

from __future__ import annotations

from pathlib import Path

from tests.crawl.crawler import Crawl, at_once
from tests.web import Tree, Web

PAGES, SITES = 20, 3


@at_once
def test_a_crawl_finds_all_once_without_the_reactor(folder: Path) -> None:
    with (
        Web(seed=9, sites=[Tree(f"t{i}.org", pages=PAGES) for i in range(SITES)]) as web,
        Crawl(folder, web.dns_server, TWISTED_REACTOR_ENABLED=False) as crawl,
    ):
        run = crawl.start(web.seeds())
        assert web.wait_until_served(10, 60)
        run.interrupt()
        run.succeeds()
        run = crawl.start(web.seeds()).succeeds()
        assert run.summary[0] == "finished"
        report = web.report()
        assert (report.found, report.refetched) == (PAGES * SITES, 0)
        assert "Traceback" not in run.log
