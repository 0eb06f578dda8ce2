"""One spider middleware in the place of five of Scrapy's: each would be three more generators round the output of every page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.exceptions import NotConfigured
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.spidermiddlewares.metacopy import MetaCopyDetectionMiddleware
from scrapy.spidermiddlewares.referer import RefererMiddleware
from scrapy.spidermiddlewares.start import StartSpiderMiddleware
from scrapy.spidermiddlewares.urllength import UrlLengthMiddleware

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.crawler import Crawler
    from scrapy.http import Response


class SpiderOutput(BaseSpiderMiddleware):
    """What the five do, in their order from the spider to the engine, to each request; items pass."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._depth = DepthMiddleware.from_crawler(crawler)
        self._steps: list[BaseSpiderMiddleware] = [MetaCopyDetectionMiddleware.from_crawler(crawler), self._depth]
        for kind in (UrlLengthMiddleware, RefererMiddleware, StartSpiderMiddleware):
            try:
                self._steps.append(kind.from_crawler(crawler))
            except NotConfigured:  # URLLENGTH_LIMIT=0, REFERER_ENABLED=False
                continue

    async def process_spider_output_async(
        self,
        response: Response | None,
        result: AsyncIterator[Any],
        spider: Spider | None = None,  # noqa: ARG002
    ) -> AsyncIterator[Any]:
        if response is not None and "depth" not in response.meta:
            list(self._depth.process_spider_output(response, ()))
        async for output in result:
            if isinstance(output, Request):
                if (request := self.get_processed_request(output, response)) is not None:
                    yield request
            elif output is not None:
                yield output

    def get_processed_request(self, request: Request, response: Response | None) -> Request | None:
        for step in self._steps:
            processed = step.get_processed_request(request, response)
            if processed is None:
                return None
            request = processed
        return request
