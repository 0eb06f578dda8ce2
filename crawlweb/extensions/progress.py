"""A line of progress now and then, the closing summary, and the end of the crawl where Scrapy asks for it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import CloseSpider, DontCloseSpider

from ..scheduler import FRONTIER_ERROR, Scheduler

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from typing_extensions import Self

logger = logging.getLogger(__name__)

INTERVAL_S = 10.0
REASON_TEXTS = {
    "max_pages": "max_pages is reached",
    "never_seeded": "ended, nobody gave it a seed",
}


class Progress:
    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._began = time.monotonic()
        self._pages_before = 0
        self._reason = ""
        self._reporting: asyncio.Future[None] | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        progress = cls(crawler)
        crawler.signals.connect(progress.spider_opened, signals.spider_opened)
        crawler.signals.connect(progress.spider_idle, signals.spider_idle)
        crawler.signals.connect(progress.spider_closed, signals.spider_closed)
        crawler.signals.connect(progress.engine_stopped, signals.engine_stopped)
        return progress

    def spider_opened(self) -> None:
        self._reporting = asyncio.ensure_future(self._report_forever())

    def spider_idle(self) -> None:
        scheduler = self._scheduler
        if not isinstance(scheduler, Scheduler):
            return
        if scheduler.reason is None:
            raise DontCloseSpider
        raise CloseSpider(scheduler.reason)

    def spider_closed(self, reason: str) -> None:
        if self._reporting:
            self._reporting.cancel()
        self._reason = reason
        seconds = time.monotonic() - self._began
        kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(self._by_prefix("errors/").items())) or "none"
        logger.info(
            "crawl %s: %d pages, %.1f MB, %d hosts, %d requests in %.0f s; errors: %s; "
            "links: %d new, %d duplicates, %.0f %% known to the worker itself; disallowed by robots.txt: %d; Redis: %.1f MB",
            REASON_TEXTS.get(reason, reason),
            self._stat("pages"),
            self._stat("bytes") / 1e6,
            self._stat("hosts"),
            self._stat("requests"),
            seconds,
            kinds,
            self._stat("links/enqueued"),
            self._stat("links/seen") + self._stat("links/cached"),
            100 * self._cache_rate(),
            self._stat("robots/disallowed"),
            self._stat("memory/used_bytes") / 1e6,
        )

    def engine_stopped(self) -> None:
        """A crawl that could not go on is a failure of the process, after feeds are stored and leases given back."""
        if self._reason == FRONTIER_ERROR:
            raise SystemExit("crawlweb: the crawl stopped on an error of the frontier, see above; start it again to go on")

    async def _report_forever(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            self._report()

    def _report(self) -> None:
        pages = self._stat("pages")
        scheduler = self._scheduler
        in_hand = len(scheduler.crawl.worker.in_hand) if isinstance(scheduler, Scheduler) else 0
        logger.info("%d pages (%.1f/s), %d leases in hand", pages, (pages - self._pages_before) / INTERVAL_S, in_hand)
        self._pages_before = pages
        self._cache_rate()

    def _cache_rate(self) -> float:
        """Share of the links in scope that the worker's cache knew; a stat, too."""
        asked = self._stat("links/found") - self._stat("links/out_of_scope") - self._stat("links/too_deep")
        rate = self._stat("links/cached") / asked if asked else 0.0
        assert self._crawler.stats is not None
        self._crawler.stats.set_value("crawlweb/links/cache_rate", round(rate, 4))
        return rate

    @property
    def _scheduler(self) -> object:
        engine = self._crawler.engine
        return engine.scheduler if engine else None

    def _stat(self, name: str) -> int:
        assert self._crawler.stats is not None
        return int(self._crawler.stats.get_value(f"crawlweb/{name}", 0))

    def _by_prefix(self, prefix: str) -> dict[str, Any]:
        assert self._crawler.stats is not None
        prefix = f"crawlweb/{prefix}"
        return {name[len(prefix) :]: n for name, n in self._crawler.stats.get_stats().items() if name.startswith(prefix)}
