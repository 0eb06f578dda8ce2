"""The tour, runnable: one URL walks through the rooms (docs/life-of-a-url.md), here without the worker that batches and waits for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler
from warcio.archiveiterator import ArchiveIterator

from crawlweb.content.page import parse_page
from crawlweb.download import DownloadHandler
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.rows import EXACT, NORMAL, KeptNow, Lease, Limits, Link, Outcome
from crawlweb.policy import robots
from crawlweb.policy.canonical import Canonicalizer
from crawlweb.policy.priority import SEED_QUEUE, front_queue, path_depth
from crawlweb.records import Entry, boottime
from crawlweb.store.warc import WarcWriter
from tests.web import Robots, Tree, Web

DELAY_S = 0.2


def test_life_of_a_url(redis_url: str, tmp_path: Path) -> None:
    with Web(sites=[Tree("example.org", pages=3, robots=Robots(disallow=("/private/",)))]) as web:
        asyncio.run(walk(web, redis_url, tmp_path))
        assert web.report(min_delay_s=DELAY_S).violations == ()
        assert [visit.target for visit in web.visits()] == ["/robots.txt", "/?utm_source=mail"]


async def walk(web: Web, redis_url: str, folder: Path) -> None:
    canonicalizer = Canonicalizer()
    handler = DownloadHandler(get_crawler(Spider, {"CRAWLWEB_DNS_SERVERS": web.dns_server, "CRAWLWEB_ALLOW_PRIVATE_IPS": True}))
    store = WarcWriter(folder, "tour", software="crawlweb")
    limits = Limits(min_delay_s=DELAY_S, latency_factor=0)
    frontier = Frontier(Redis.from_url(redis_url), "tour", partitions=4, worker="tour", limits=limits)

    async def lease() -> Lease:
        (leased,) = (await frontier.lease(partition, 1))[1]
        await asyncio.sleep(max(0.0, leased.not_before - boottime()))
        return leased

    async def fetch(url: str) -> Any:
        request = Request(url, meta={"verbatim_url": True, "crawlweb_any_type": url.endswith("robots.txt")})
        await handler.download_request(request)
        return request.meta["crawlweb_fetch"]

    # Canonical: what is fetched is the URL as found; what it is known by is the key of its canonical form. The host is whose clock counts.
    target = canonicalizer.target(f"http://www.EXAMPLE.org:{web.http_port}/?utm_source=mail#top")
    assert target is not None
    assert target.url == f"http://www.example.org:{web.http_port}/?utm_source=mail"
    assert target.key == canonicalizer.url_key(f"https://example.org:{web.http_port}")
    assert target.host == "example.org"

    # Into the frontier: marked as seen and placed, in one step, once. A seed goes to front queue 0.
    partition = frontier.partition_of(target.host)
    seed = Link(target.host, target.key, Entry(target.url, priority=SEED_QUEUE), EXACT)
    assert [await frontier.enqueue(partition, [seed]) for _ in range(2)] == ["n", "s"]

    # Leased: nobody else gets a URL of this host meanwhile. robots.txt comes first, and the URL goes back to its place.
    first = await lease()
    assert (first.entry.url, (await frontier.lease(partition, 64))[1]) == (target.url, [])
    origin = robots.origin_of(target.url)
    await store.append(fetched := await fetch(robots.robots_url(origin)))
    answer = robots.judge(fetched.status, fetched.body, None, fetched.url, 0)
    kept = KeptNow(origin, answer.pack(), round(robots.KEPT_S * 1000), crawl_delay_ms=-1)
    assert await frontier.complete(partition, [Outcome(first, "l", fetched.finished, robots=kept)]) == "k"

    # Leased again, a delay after the end of that request. The rules allow it, and forbid another.
    again = await lease()
    assert again.not_before - fetched.finished >= DELAY_S
    (known,) = await frontier.robots(target.host, [origin])
    assert known
    assert known.value
    assert robots.KEPT_S - 60 < known.left_s <= robots.KEPT_S
    rules = robots.Rules(robots.Answer.unpack(known.value))
    assert [rules.allows(url) for url in (again.entry.url, f"{origin}/private/page")] == [True, False]

    # Fetched, stored (the bytes are with the kernel now), parsed.
    fetched = await fetch(again.entry.url)
    ref = await store.append(fetched)
    page = parse_page(fetched.body, fetched.url, "text/html; charset=utf-8")
    assert page.title == "example.org, page 0"

    # Its links go into the frontier before it is complete: a crash in between costs a second fetch, never a URL.
    targets = canonicalizer.targets(page.hrefs, page.base_url)
    links = [Link(t.host, t.key, Entry(t.url, front_queue(path_depth(t.url)), depth=1, referrer=fetched.url), NORMAL) for t in targets]
    letters = await frontier.enqueue(partition, links)
    assert letters == "".join("s" if t.key == target.key else "n" for t in targets)
    assert await frontier.complete(partition, [Outcome(again, "d", fetched.finished, fetched.latency_s)]) == "k"

    # Complete. Every URL is in exactly one place.
    audit = await frontier.audit()
    assert (audit["leased"], audit["lost"], audit["pending"]) == (0, 0, letters.count("n"))
    for part in (store.close, handler.close, frontier.redis.aclose):
        await part()
    with (folder / ref.file).open("rb") as warc:
        warc.seek(ref.offset)
        assert next(ArchiveIterator(warc)).rec_headers.get_header("WARC-Target-URI") == target.url
