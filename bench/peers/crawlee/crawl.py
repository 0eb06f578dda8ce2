"""Follows every link of every page, as a user of Crawlee for Python would write it for speed: Parsel, everything in memory, uvloop, no
sessions, no retries, as many requests at once as allowed from the start. Its own `enqueue_links(strategy="all")` took a quarter more CPU
a page than the few lines here.

    python crawl.py --seeds FILE --proxy http://127.0.0.1:PORT --concurrency 64 [--no-robots]

The web's host names exist on no name server that its HTTP client (impit, in Rust) asks; it is given the web as its proxy, by which it
keeps a connection a host as it would without. It cannot be told to ask a host for one page at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from pathlib import Path
from urllib.parse import urljoin

import uvloop
from crawlee import ConcurrencySettings, Request, service_locator
from crawlee.configuration import Configuration
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.http_clients import ImpitHttpClient
from crawlee.storage_clients import MemoryStorageClient


async def crawl(seeds: list[str], proxy: str, concurrency: int, robots: bool) -> None:
    # It measures its process and starts nothing new while that has a busy core: which is what this benchmark wants of it.
    service_locator.set_configuration(Configuration(max_used_cpu_ratio=1.0, max_used_memory_ratio=1.0))
    crawler = ParselCrawler(
        http_client=ImpitHttpClient(browser=None, verify=False, proxy=proxy, persist_cookies_per_session=False),
        storage_client=MemoryStorageClient(),
        concurrency_settings=ConcurrencySettings(min_concurrency=concurrency, max_concurrency=concurrency, desired_concurrency=concurrency),
        use_session_pool=False,
        retry_on_blocked=False,
        max_request_retries=0,
        respect_robots_txt_file=robots,
    )

    @crawler.router.default_handler
    async def follow(context: ParselCrawlingContext) -> None:
        base = context.request.loaded_url or context.request.url
        links: dict[str, Request] = {}
        for href in dict.fromkeys(context.selector.xpath("//a/@href").getall()):
            with contextlib.suppress(ValueError):  # no URL: one of these ends the whole crawl
                url = urljoin(base, href.strip())
                if url.startswith(("http://", "https://")) and url not in links:
                    links[url] = Request.from_url(url)
        await context.add_requests(list(links.values()))

    await crawler.run(seeds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=Path, required=True)
    parser.add_argument("--proxy", required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--no-robots", dest="robots", action="store_false")
    options = parser.parse_args()
    uvloop.install()
    asyncio.run(crawl(options.seeds.read_text().split(), options.proxy, options.concurrency, options.robots))
