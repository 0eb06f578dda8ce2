"""The bundled spider: one parse a page, links to the frontier in bulk, one item. Seeds are sent by the scheduler, in bulk too."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cached_property
from typing import Any

from scrapy import Spider
from scrapy.http import HtmlResponse, Response, TextResponse

from .content.charset import decode
from .content.page import parse_page
from .default_settings import load
from .errors import ConfigError
from .policy.canonical import Canonicalizer
from .policy.directives import directives, link_is_nofollow
from .records import Entry, Page, Target, WarcRef
from .scheduler import Scheduler
from .seeds import SpiderArguments

LARGE_BYTES = 256 * 1024  # a larger page is parsed in a thread, so that the event loop goes on
LINKS_AT_ONCE = 2000
ARGUMENTS = [argument.name for argument in fields(SpiderArguments)]


class WebSpider(Spider):
    """`scrapy crawl web -a seeds=https://example.com`; arguments: seeds.SpiderArguments. Subclasses override `item` or `parse`."""

    name = "web"

    def __init__(
        self, seeds: str | None = None, scope: str | None = None, max_pages: Any = None, max_depth: Any = None, **kwargs: Any
    ) -> None:
        super().__init__()
        self._large = ThreadPoolExecutor(1, "crawlweb-parse")  # one at a time: the tree of a hostile page is 80 times its size
        try:
            if kwargs:
                name = next(iter(kwargs))
                near = difflib.get_close_matches(name, ARGUMENTS, n=1, cutoff=0)[0]
                raise ConfigError(f"{name}={kwargs[name]!r}: there is no such argument; the nearest is {near}")
            self.arguments = SpiderArguments.parse(seeds, scope, max_pages, max_depth)
        except ConfigError as e:
            raise SystemExit(f"crawlweb: {e}") from None

    async def parse(self, response: Response, **kwargs: Any) -> AsyncIterator[dict[str, Any]]:  # noqa: ARG002
        if "wrong_type" in response.flags:
            return
        if len(response.body) > LARGE_BYTES:
            page, targets = await asyncio.get_running_loop().run_in_executor(self._large, self._read, response)
        else:
            page, targets = self._read(response)
        said = directives((value.decode("latin-1") for value in response.headers.getlist("X-Robots-Tag")), page.robots)
        follow, others = targets
        if self._scheduler and response.request:
            config = self._scheduler.config
            if config.follow_nofollow:
                follow, others = follow + others, []
            elif said.nofollow:
                follow, others = [], follow + others
            self._scheduler.count("links/nofollow", len(others))
            for first in range(0, len(follow), LINKS_AT_ONCE):
                if first:
                    await asyncio.sleep(0)
                self._scheduler.add_links(response.request, follow[first : first + LINKS_AT_ONCE])
            if said.noindex and config.skip_noindex:
                self._scheduler.count("noindex")
                return
        yield {**self.item(response, page, [target.url for target in follow + others]), "noindex": said.noindex}

    def _read(self, response: Response) -> tuple[Page, tuple[list[Target], list[Target]]]:
        """The one parse of a response of any type, and its links: those to be followed, and those marked as nofollow."""
        content_type = (response.headers.get("Content-Type") or b"").decode("latin-1")
        if isinstance(response, HtmlResponse):
            page = parse_page(response.body, response.url, content_type)
        elif isinstance(response, TextResponse):
            text, encoding = decode(response.body, content_type)
            page = Page(response.url, [], text=text, encoding=encoding)
        else:
            page = Page(response.url, [], encoding="")
        marked = {href for href, rels in page.rels.items() if all(map(link_is_nofollow, rels))}
        follow = self._canonicalizer.targets([href for href in page.hrefs if href not in marked], page.base_url, page.encoding)
        others = (
            self._canonicalizer.targets([href for href in page.hrefs if href in marked], page.base_url, page.encoding) if marked else []
        )
        known = {target.key for target in follow}
        return page, (follow, [target for target in others if target.key not in known])

    def item(self, response: Response, page: Page, links: list[str]) -> dict[str, Any]:
        """The item of a page; fields as in docs/extending.md."""
        scheduler, request = self._scheduler, response.request
        job = scheduler.job_of(request) if scheduler else None
        entry = job.lease.entry if job else Entry(response.url)
        meta = request.meta if request else {}
        warc: WarcRef | None = meta.get("crawlweb_warc")
        return {
            "url": entry.found_as or entry.url,
            "final_url": response.url,
            "canonical_url": self._canonicalizer.canonical_url(response.url),
            "url_key": self._canonicalizer.url_key(response.url).hex(),
            "status": response.status,
            "fetched_at": meta.get("crawlweb_fetched_at"),
            "content_type": (response.headers.get("Content-Type") or b"").decode("latin-1"),
            "encoding": page.encoding,
            "title": page.title,
            "text": page.text,
            "links": links,
            "depth": entry.depth,
            "referrer": entry.referrer,
            "content_hash": hashlib.sha256(response.body).hexdigest(),
            "truncated": meta.get("crawlweb_truncated"),
            "warc_file": warc.file if warc else None,
            "warc_offset": warc.offset if warc else None,
            "warc_length": warc.length if warc else None,
        }

    @property
    def _scheduler(self) -> Scheduler | None:
        """None in `scrapy parse` and the like, which crawl nothing."""
        scheduler = self.crawler.engine.scheduler if self.crawler.engine else None
        return scheduler if isinstance(scheduler, Scheduler) else None

    @property
    def _canonicalizer(self) -> Canonicalizer:
        return self._scheduler.canonicalizer if self._scheduler else self._own_canonicalizer

    @cached_property
    def _own_canonicalizer(self) -> Canonicalizer:
        return Canonicalizer(load(self.crawler.settings).tracking_parameters)
