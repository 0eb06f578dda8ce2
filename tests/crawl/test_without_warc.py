"""A crawl that keeps no responses: CRAWLWEB_WARC=False."""

from __future__ import annotations

from pathlib import Path

from crawlweb.policy.canonical import url_key
from crawlweb.policy.hosts import host_of
from tests.crawl.crawler import Crawl, at_once
from tests.web import Tree, Web


@at_once
def test_pages_have_items_and_records_and_no_place_in_a_file(tmp_path: Path) -> None:
    with Web(seed=3, sites=[Tree(pages=8), Tree(pages=8)]) as web, Crawl(tmp_path, web.dns_server, CRAWLWEB_WARC=False) as crawl:
        run = crawl.start(web.seeds()).succeeds()
        report = web.report(min_delay_s=0.05)
        assert (report.coverage, report.refetched, report.violations, run.complaints) == (1.0, 0, (), [])
        items = crawl.items()
        assert len(items) == 16
        assert {item["warc_file"] for item in items} == {item["warc_length"] for item in items} == {None}
        assert not crawl.warc_folder.exists()
        url = items[0]["final_url"]
        record = crawl.look(lambda frontier: frontier.record(host_of(url), url_key(url)))
        assert (record.url, record.status, record.warc) == (url, 200, None)
