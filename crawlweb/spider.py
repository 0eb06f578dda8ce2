"""The bundled spider: one parse a page, links to the frontier in bulk, one item. Seeds are sent by the scheduler, in bulk too."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator
from dataclasses import fields
from functools import cached_property
from typing import Any

from scrapy import Spider
from scrapy.http import Response

from .analysis import Analyst
from .contents import Content, recipe_of
from .default_settings import load
from .errors import ConfigError
from .middlewares.store import task_of
from .records import Entry, Page, WarcRef
from .scheduler import Scheduler
from .seeds import SpiderArguments

LINKS_AT_ONCE = 2000
ARGUMENTS = [argument.name for argument in fields(SpiderArguments)]


class WebSpider(Spider):
    """`scrapy crawl web -a seeds=https://example.com`; arguments: seeds.SpiderArguments. Subclasses override `item` or `parse`."""

    name = "web"

    def __init__(
        self, seeds: str | None = None, scope: str | None = None, max_pages: Any = None, max_depth: Any = None, **kwargs: Any
    ) -> None:
        super().__init__()
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
        content = self.content_of(response)
        said, follow, others = content.analysis.said, content.analysis.follow, content.analysis.others
        scheduler = self._scheduler
        if scheduler and response.request:
            config = scheduler.config
            if config.follow_nofollow:
                follow, others = follow + others, ()
            elif said.nofollow:
                follow, others = (), follow + others
            scheduler.count("links/nofollow", len(others))
            for first in range(0, len(follow), LINKS_AT_ONCE):
                if first:
                    await asyncio.sleep(0)
                scheduler.add_links(response.request, follow[first : first + LINKS_AT_ONCE])
            if said.noindex and config.skip_noindex:
                scheduler.count("noindex")
                return
            if content.duplicate_of and config.skip_duplicates:
                scheduler.count("duplicates/skipped")
                return
        links = [target.url for target in (*follow, *others)]
        yield self.item(response, content.analysis.page, links)

    def item(self, response: Response, page: Page, links: list[str]) -> dict[str, Any]:
        """The item of a page; fields as in docs/extending.md."""
        scheduler, request, content = self._scheduler, response.request, self.content_of(response)
        job = scheduler.job_of(request) if scheduler else None
        entry = job.lease.entry if job else Entry(response.url)
        meta = request.meta if request else {}
        warc: WarcRef | None = meta.get("crawlweb_warc")
        return {
            "url": entry.found_as or entry.url,
            "final_url": response.url,
            "canonical_url": content.canonical_url,
            "url_key": content.url_key.hex(),
            "status": response.status,
            "fetched_at": meta.get("crawlweb_fetched_at"),
            "content_type": (response.headers.get("Content-Type") or b"").decode("latin-1"),
            "encoding": page.encoding,
            "title": page.title,
            "text": page.text,
            "main_text": page.main_text,
            "language": page.language,
            "links": links,
            "depth": entry.depth,
            "referrer": entry.referrer,
            "content_hash": content.analysis.content_hash,
            "fingerprint": content.fingerprint_hex,
            "duplicate_of": content.duplicate_of or None,
            "supersedes": list(content.twin.supersedes),
            "soft_404": content.soft_404,
            "noindex": content.analysis.said.noindex,
            "changed": content.changed,
            "truncated": meta.get("crawlweb_truncated"),
            "warc_file": warc.file if warc else None,
            "warc_offset": warc.offset if warc else None,
            "warc_length": warc.length if warc else None,
        }

    def content_of(self, response: Response) -> Content:
        """What is known of a page (contents.py). A response that was no page to the crawl is analysed here."""
        meta = response.request.meta if response.request else {}
        content = meta.get("crawlweb_content")
        if not isinstance(content, Content):
            content = meta["crawlweb_content"] = Content.of(self._analyst, task_of(response))
        return content

    @property
    def _scheduler(self) -> Scheduler | None:
        """None in `scrapy parse` and the like, which crawl nothing."""
        scheduler = self.crawler.engine.scheduler if self.crawler.engine else None
        return scheduler if isinstance(scheduler, Scheduler) else None

    @cached_property
    def _analyst(self) -> Analyst:
        return Analyst(recipe_of(load(self.crawler.settings)))
