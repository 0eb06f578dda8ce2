"""Next to the downloader: every response, whatever its status, into the WARC store; every outcome to the scheduler.

A response goes on to other middlewares and the spider only after its bytes are with the kernel.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ..errors import StoreError
from ..outcome import Sent
from ..records import Fetch
from ..scheduler import Scheduler

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self


class StoreMiddleware:
    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._hosts: set[str] = set()

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
        sent = Sent() if fetch is None else Sent(fetch.finished, fetch.latency_s)
        verdict = scheduler.judged(request, response, sent)
        if not await scheduler.may_store(request, verdict):
            if fetch is not None:
                self._inc("requests")
            return request
        if fetch is not None:
            try:
                request.meta["crawlweb_warc"] = await scheduler.crawl.store.append(fetch)
            except StoreError as e:
                scheduler.failed(request, e, sent)
                return request
            request.meta["crawlweb_fetched_at"] = datetime.fromtimestamp(fetch.fetched_at, timezone.utc).isoformat()
            self._count(fetch, response, page=not job.robots_url and not job.is_probe)
            if job.lease.host not in self._hosts:
                self._hosts.add(job.lease.host)
                self._inc("hosts")
        return response if scheduler.answered(request, verdict) else request

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        scheduler = self._scheduler
        if scheduler.job_of(request) is None:
            return None
        ended = request.meta.pop("crawlweb_sent", None)
        if ended is not None:
            self._inc("requests")
        return None if scheduler.failed(request, exception, Sent(ended)) else request

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
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value(f"crawlweb/{name}", by)

    @property
    def _scheduler(self) -> Scheduler:
        scheduler: Any = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler
