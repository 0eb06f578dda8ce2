"""The bundled spider: one parse a page, links to the frontier in bulk, one item."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy import Spider
from scrapy.http import HtmlResponse, Response, TextResponse

from .content.charset import decode
from .content.page import parse_page
from .errors import ConfigError
from .records import Page, WarcRef
from .scheduler import Scheduler
from .seeds import SpiderArguments


class WebSpider(Spider):
    """`scrapy crawl web -a seeds=https://example.com`. Arguments: seeds.SpiderArguments. Subclass it and override `item`, or `parse`."""

    name = "web"

    def __init__(self, seeds: str | None = None, scope: str | None = None, max_pages: Any = None, max_depth: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        try:
            self.arguments = SpiderArguments.parse(seeds, scope, max_pages, max_depth)
        except ConfigError as e:
            raise SystemExit(f"crawlweb: {e}") from None

    async def start(self) -> AsyncIterator[Any]:
        """Nothing: the scheduler sends the seeds, in bulk."""
        for nothing in ():
            yield nothing

    def parse(self, response: Response, **kwargs: Any) -> Iterator[dict[str, Any]]:
        content_type = (response.headers.get("Content-Type") or b"").decode("latin-1")
        if isinstance(response, HtmlResponse):
            page = parse_page(response.body, response.url, content_type)
        elif isinstance(response, TextResponse):
            text, encoding = decode(response.body, content_type)
            page = Page(response.url, [], text=text, encoding=encoding)
        else:
            page = Page(response.url, [], encoding="")
        links = self._follow(response, page)
        yield self.item(response, page, links)

    def item(self, response: Response, page: Page, links: list[str]) -> dict[str, Any]:
        """The item of a page; fields as in docs/extending.md."""
        scheduler = self._scheduler
        request = response.request
        assert request is not None
        job = scheduler.job_of(request)
        entry = job.lease.entry if job else None
        warc: WarcRef | None = request.meta.get("crawlweb_warc")
        canonicalizer = scheduler.canonicalizer
        return {
            "url": entry.found_as or entry.url if entry else response.url,
            "final_url": response.url,
            "canonical_url": canonicalizer.canonical_url(response.url),
            "url_key": canonicalizer.url_key(response.url).hex(),
            "status": response.status,
            "fetched_at": request.meta.get("crawlweb_fetched_at"),
            "content_type": (response.headers.get("Content-Type") or b"").decode("latin-1"),
            "encoding": page.encoding,
            "title": page.title,
            "text": page.text,
            "links": links,
            "depth": entry.depth if entry else 0,
            "referrer": entry.referrer if entry else "",
            "content_hash": hashlib.sha256(response.body).hexdigest(),
            "warc_file": warc.file if warc else None,
            "warc_offset": warc.offset if warc else None,
            "warc_length": warc.length if warc else None,
        }

    def _follow(self, response: Response, page: Page) -> list[str]:
        """Sends the links of a page to the frontier; returns them as URLs."""
        scheduler = self._scheduler
        targets = scheduler.canonicalizer.targets(page.hrefs, page.base_url)
        if not page.nofollow and response.request is not None:
            scheduler.add_links(response.request, targets)
        return [target.url for target in targets]

    @property
    def _scheduler(self) -> Scheduler:
        scheduler = self.crawler.engine.scheduler  # type: ignore[union-attr]
        if not isinstance(scheduler, Scheduler):
            raise ConfigError('the spider needs crawlweb\'s scheduler: ADDONS = {"crawlweb.Addon": 0}')
        return scheduler
