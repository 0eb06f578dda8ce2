"""Next to the downloader: every response, whatever its status, into the WARC store; every outcome to the scheduler.

A page is analysed before it is stored, so that the store can tell its links. It goes on to other middlewares and the spider only after its
bytes are with the kernel.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scrapy.http import HtmlResponse, TextResponse

from ..analysis import Kind, Task
from ..content.feed import is_feed
from ..contents import Content, Headers
from ..distinct import Distinct
from ..errors import FetchError, StoreError
from ..outcome import Sent, Verdict
from ..records import Fetch
from ..scheduler import Scheduler, header_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

_TEXTS = re.compile(r"^\s*text/|html|xml|json|rss|atom", re.IGNORECASE)


def task_of(response: Response) -> Task:
    """What a response gives to be analysed. What it says to be no text is none, whatever Scrapy finds in it."""
    content_type = header_of(response, "Content-Type") or ""
    kind: Kind = "other"
    if isinstance(response, TextResponse) and (_TEXTS.search(content_type) or not content_type.strip()):
        is_html = isinstance(response, HtmlResponse)
        kind = "feed" if is_feed(content_type, response.body) else "html" if is_html else "text"
    return Task(response.url, response.body, kind, content_type, _values(response, "Link"), _values(response, "X-Robots-Tag"))


def _values(response: Response, name: str) -> tuple[str, ...]:
    values = response.headers.getlist(name)
    return tuple(value.decode("latin-1") for value in values) if values else ()


class StoreMiddleware:
    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._hosts = Distinct()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_response(self, request: Request, response: Response) -> Response | Request:
        """The request itself goes back to the scheduler where the response is not the spider's: robots.txt, redirects, what is retried."""
        scheduler = self._scheduler
        job = scheduler.job_of(request)
        if job is None:
            return response
        fetch: Fetch | None = request.meta.pop("crawlweb_fetch", None)
        sent = Sent() if fetch is None else Sent.of(fetch)
        verdict = scheduler.judged(request, response, sent)
        if not await scheduler.may_store(request, verdict):
            if fetch is not None:
                self._inc("requests")
            return request
        if fetch is not None:
            fetch = scheduler.crawl.contents.dated(fetch)
            content, fault = await self._content(request, response, fetch, verdict)
            store, warc = scheduler.crawl.store, None
            try:
                if store is not None:
                    about = scheduler.crawl.contents.about(content) if content else None
                    warc = request.meta["crawlweb_warc"] = await store.append(fetch, about)
            except StoreError as e:
                scheduler.failed(request, e, sent)
                return request
            request.meta["crawlweb_fetched_at"] = datetime.fromtimestamp(fetch.fetched_at, timezone.utc).isoformat()
            self._count(fetch, response, page=not job.robots_url and not job.is_probe)
            if self._hosts.add(job.lease.host):
                assert self._crawler.stats is not None
                self._crawler.stats.set_value("crawlweb/hosts", len(self._hosts))
            if fault is not None:
                if scheduler.failed(request, fault, sent):
                    raise fault
                return request
            if content is not None:
                request.meta["crawlweb_content"] = content
                if not job.is_late:
                    headers = Headers(*(header_of(response, name) or "" for name in ("Content-Type", "ETag", "Last-Modified")))
                    outcome = scheduler.crawl.contents.outcome(content, verdict.outcome, fetch, warc, headers)
                    verdict = replace(verdict, outcome=outcome)
                    if content.twin.supersedes:
                        scheduler.hold(request, scheduler.crawl.contents.supersede(content, response.url))
                    if (target := scheduler.crawl.contents.wanted(content)) is not None:
                        scheduler.add_links(request, [target])
        is_last = scheduler.answered(request, verdict)
        await scheduler.keep_record(request, response.status)
        return response if is_last else request

    async def _content(
        self, request: Request, response: Response, fetch: Fetch, verdict: Verdict
    ) -> tuple[Content | None, FetchError | None]:
        """Of a page; nothing of other responses. What keeps it from being analysed does not keep it from being stored."""
        if not verdict.is_page:
            return None, None
        job = self._scheduler.job_of(request)
        assert job is not None
        try:
            return await self._scheduler.crawl.contents.of(task_of(response), job.lease, fetch.fetched_at), None
        except FetchError as e:
            return None, e

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        scheduler = self._scheduler
        if scheduler.job_of(request) is None:
            return None
        ended = request.meta.pop("crawlweb_sent", None)
        if ended is not None:
            self._inc("requests")
        is_last = scheduler.failed(request, exception, Sent.failed(ended, exception))
        await scheduler.keep_record(request)
        return None if is_last else request

    def _count(self, fetch: Fetch, response: Response, page: bool) -> None:
        self._inc("requests")
        self._inc(f"status/{response.status}")
        self._inc("bytes", len(fetch.payload))
        if page and 200 <= response.status < 300 and "wrong_type" not in response.flags:
            self._inc("pages")
        if "wrong_type" in response.flags:
            self._inc("wrong_type")
        elif fetch.truncated:
            self._inc(f"truncated/{fetch.truncated}")

    def _inc(self, name: str, by: int = 1) -> None:
        self._scheduler.count(name, by)

    @cached_property
    def _scheduler(self) -> Scheduler:
        scheduler: Any = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler
