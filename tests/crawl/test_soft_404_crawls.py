"""What is asked where there is nothing, and what is known of hosts by it: crawls of hosts that differ there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crawlweb.content import soft_404
from crawlweb.content.page import parse_page
from crawlweb.frontier import scripts
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.rows import error_pages
from tests.crawl.crawler import Crawl, at_once
from tests.web import Missing, Robots, Site, Web

PROBE = re.compile(r"/[0-9a-f]{16}")
NOWHERE = "/nowhere/at-all"


def sites() -> list[Site]:
    return [
        Missing("proper.org", pages=24, how="proper", outside=0),
        Missing("soft.org", pages=24, how="soft", wording="joke", outside=0),
        Missing("home.org", pages=24, how="home", outside=0),
        Missing("moved.org", pages=24, how="redirect", outside=0),
        Missing("shell.org", pages=24, how="shell", outside=0),
        Missing("small.org", pages=5, how="proper", wording="joke", outside=0),
        Missing("walled.org", pages=24, how="soft", outside=0, robots=Robots(disallow=("/",), allow=("/$", "/leaf/", "/gone/", "/lost/"))),
    ]


def known(crawl: Crawl, site: Site) -> tuple[tuple[bytes, ...], bool, float]:
    async def look(frontier: Frontier) -> Any:
        key = frontier.key(frontier.partition_of(site.name), "ctr")
        pairs = await scripts.run(frontier.redis, "peek", key, "peek", 0, site.name)
        return error_pages(dict(zip(pairs[::2], pairs[1::2], strict=True)).get(b"e", b""))

    found: tuple[tuple[bytes, ...], bool, float] = crawl.look(look)
    return found


def is_error(site: Site, path: str, shapes: tuple[bytes, ...]) -> bool:
    url = site.url(path)
    return soft_404.is_error(parse_page(site.answer(path, site.name).body, url), url, shapes)


@at_once
def test_hosts_with_pages_are_probed_once_and_their_error_pages_are_known(folder: Path) -> None:
    with Web(seed=4, sites=sites()) as web, Crawl(folder, web.dns_server, CRAWLWEB_PROBE_DAYS=30) as crawl:
        run = crawl.start([site.url() for site in web.sites.values()]).succeeds()
        assert run.summary[0] == "finished"
        asked = {name: [target for _, target in site.hits if PROBE.fullmatch(target)] for name, site in web.sites.items()}
        assert {name: len(targets) for name, targets in asked.items()} == {
            **dict.fromkeys(("soft.org", "home.org", "moved.org"), 1),
            **dict.fromkeys(("proper.org", "small.org", "walled.org", "shell.org"), 0),
        }
        probes = {web.sites[name].url(target) for name, targets in asked.items() for target in targets}
        assert run.stats["crawlweb/probes"] == 3
        assert run.stats["crawlweb/pages"] == run.summary[1] == len(crawl.items())
        assert {probe for probe in probes if "home.org" not in probe} <= {stored.url for stored in crawl.stored()}
        assert crawl.record_types()["request"] == run.stats["crawlweb/requests"], "the home page again is there as a revisit"
        assert not probes & {item["url"] for item in crawl.items()}
        assert not crawl.dead_letters()
        flagged = Counter(urlsplit(item["url"]).hostname for item in crawl.items() if item["soft_404"])
        assert set(flagged) == {"soft.org", "home.org", "walled.org"}
        assert flagged["walled.org"] > 40, "by what they say"
        assert min(flagged["soft.org"], flagged["home.org"]) > 20, "from the probe on"
        assert run.stats["crawlweb/soft_404"] == sum(flagged.values())
        pages = {site.url(path) for site in web.sites.values() for path in site.expected()}
        assert not [item["url"] for item in crawl.items() if item["soft_404"] and item["url"] in pages]

        for name, has_shape, is_real in (
            ("proper.org", True, True),
            ("small.org", True, True),
            ("soft.org", True, False),
            ("home.org", True, False),
            ("moved.org", False, False),
            ("shell.org", False, False),
            ("walled.org", False, False),
        ):
            site = web.sites[name]
            shapes, has_real, probed_at = known(crawl, site)
            assert (bool(shapes), has_real, probed_at > 0) == (has_shape, is_real, bool(asked[name])), name
            assert not any(is_error(site, page, shapes) for page in site.expected()), name
            if name in ("proper.org", "small.org", "soft.org", "home.org"):
                assert is_error(site, NOWHERE, shapes), name


@at_once
def test_a_probe_counts_for_no_limit(folder: Path) -> None:
    with (
        Web(seed=4, sites=[Missing("soft.org", pages=40, outside=0)]) as web,
        Crawl(folder, web.dns_server, CRAWLWEB_PROBE_DAYS=30) as crawl,
    ):
        run = crawl.start(web.seeds(), arguments=("-a", "max_pages=30")).succeeds()
        assert run.summary == ("max_pages is reached", 30)
        assert len(crawl.items()) == len(set(crawl.pages()) - {stored.url for stored in crawl.stored() if PROBE.search(stored.url)}) == 30
