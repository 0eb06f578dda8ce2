"""A crawl whose pages do not fit under its cap on bytes in flight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.crawl.crawler import Crawl, at_once
from tests.web import Tree, Web
from tests.web.sites import Answer, Request

PAGE_BYTES = 150_000
READ_BYTES = 256 * 1024


@dataclass
class Large(Tree):
    """A tree of large pages that come all at once, a while after they were asked for."""

    def respond(self, request: Request) -> Answer:
        answer = super().respond(request)
        return replace(answer, body=answer.body + b"<!-- " + b"x" * PAGE_BYTES + b" -->", wait_s=0.2) if answer.page else answer


@pytest.mark.parametrize("cap_bytes", [2 * PAGE_BYTES, 10_000])
def test_large_pages_stay_under_the_cap_and_none_is_lost(cap_bytes: int, tmp_path: Path) -> None:
    sites = [Large(f"large{n}.org", pages=3) for n in range(8)]
    with Web(sites=sites) as web, Crawl(tmp_path, web.dns_server, CRAWLWEB_BYTES_IN_FLIGHT=cap_bytes) as crawl:
        run = crawl.start(web.seeds()).succeeds(60)
        pages = crawl.pages()
        assert len(pages) == len(set(pages)) == 24
        assert all(len(stored.body) > PAGE_BYTES for stored in crawl.stored() if stored.is_page)
        assert crawl.audit()["pending"] == crawl.audit()["leased"] == 0
        stats = run.stats
        assert 0 < stats["crawlweb/in_flight/bytes_most"] <= cap_bytes + 1.1 * PAGE_BYTES + READ_BYTES
        assert stats["crawlweb/in_flight/bytes"] == 0
        assert "crawlweb/leases/late" not in stats
        assert "crawlweb/in_flight/given_back" not in stats


@at_once
def test_a_crawl_of_small_pages_never_waits(folder: Path) -> None:
    with Web(sites=[Tree("small.org", pages=9)]) as web, Crawl(folder, web.dns_server) as crawl:
        stats = crawl.start(web.seeds()).succeeds(60).stats
        assert stats["crawlweb/in_flight/bytes_most"] > 0
        assert "crawlweb/in_flight/waits" not in stats
