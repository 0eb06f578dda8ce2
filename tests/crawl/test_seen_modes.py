"""The seen-set of a whole crawl: exact, fixed for its life, and the worker's cache in front of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.crawl.crawler import PARTITIONS, Crawl, at_once
from tests.web import Tree, Web

PAGES, SITES = 30, 4


async def kept(frontier: Any) -> tuple[int, int]:
    """Keys in exact sets, and keys of Bloom filters."""
    redis, numbers, filters = frontier.redis, 0, 0
    for p in range(PARTITIONS):
        for bucket in range(int(await redis.hget(frontier.key(p, "seen"), "n") or 1)):
            numbers += await redis.scard(frontier.key(p, f"seen:{bucket}"))
        filters += await redis.exists(frontier.key(p, "bloom"))
    return numbers, filters


@at_once
def test_an_exact_crawl_finds_all_once_and_stays_exact(folder: Path) -> None:
    with (
        Web(seed=4, sites=[Tree(f"t{i}.org", pages=PAGES) for i in range(SITES)]) as web,
        Crawl(folder, web.dns_server, CRAWLWEB_SEEN="exact") as crawl,
    ):
        run = crawl.start(web.seeds())
        assert web.wait_until_served(20, 60)
        run.interrupt()
        run.succeeds(20)

        refused = crawl.start(web.seeds(), CRAWLWEB_SEEN="bloom")
        assert refused.wait(60) != 0
        assert "CRAWLWEB_SEEN=bloom: the crawl 'web' was begun with exact" in refused.log
        assert "Traceback" not in refused.log

        del crawl.settings["CRAWLWEB_SEEN"]  # a worker that says nothing takes what the crawl has
        run = crawl.start(web.seeds()).succeeds()
        report = web.report()
        assert (report.found, report.refetched) == (PAGES * SITES, 0)
        assert run.stats.get("crawlweb/seeds/new", 0) == 0
        numbers, filters = crawl.look(kept)
        assert filters == 0
        assert numbers >= PAGES * SITES
        stats = run.stats
        inside = stats["crawlweb/links/found"] - stats.get("crawlweb/links/out_of_scope", 0)
        assert stats["crawlweb/links/cache_rate"] == round(stats["crawlweb/links/cached"] / inside, 4)
