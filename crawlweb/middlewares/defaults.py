"""One downloader middleware in the place of five of Scrapy's that look at every request and seldom have anything to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.downloadermiddlewares.defaultheaders import DefaultHeadersMiddleware
from scrapy.downloadermiddlewares.downloadtimeout import DownloadTimeoutMiddleware
from scrapy.downloadermiddlewares.httpauth import HttpAuthMiddleware
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.downloadermiddlewares.useragent import UserAgentMiddleware

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from typing_extensions import Self


class RequestDefaults:
    """Leaves to each of the five the requests that concern it, in their order. A leased request is `dont_filter` and has no headers, most
    often: it gets those of the settings as they were made once."""

    def __init__(self, crawler: Crawler) -> None:
        self._offsite = OffsiteMiddleware.from_crawler(crawler)
        self._auth = HttpAuthMiddleware.from_crawler(crawler)
        self._timeout = DownloadTimeoutMiddleware.from_crawler(crawler)
        self._headers = DefaultHeadersMiddleware.from_crawler(crawler)
        self._agent = UserAgentMiddleware.from_crawler(crawler)
        self._usual: list[tuple[bytes, list[bytes]]] | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        if not request.dont_filter:
            self._offsite.process_request(request)
        meta, headers = request.meta, request.headers
        if self._auth._auth or "http_user" in meta or "http_pass" in meta:
            self._auth.process_request(request)
        if "download_timeout" not in meta:
            self._timeout.process_request(request)
        if headers:
            self._add_headers(request)
            return
        if self._usual is None:  # no sooner: a spider's user_agent is known by now
            usual = Request(request.url)
            self._add_headers(usual)
            self._usual = list(usual.headers.items())
        for name, values in self._usual:
            dict.__setitem__(headers, name, values[:])

    def _add_headers(self, request: Request) -> None:
        self._headers.process_request(request)
        self._agent.process_request(request)
