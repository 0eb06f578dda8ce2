"""Follows every link of every page, as a user of Scrapy would write it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor


class PlainSpider(scrapy.Spider):
    name = "plain"

    def __init__(self, seeds: str, **more: Any) -> None:
        super().__init__(**more)
        self._seeds = Path(seeds.removeprefix("@"))
        self._links = LinkExtractor()

    async def start(self) -> AsyncIterator[Any]:
        for url in self._seeds.read_text().split():
            yield scrapy.Request(url)

    def parse(self, response: Response) -> Iterator[scrapy.Request]:
        for link in self._links.extract_links(response):  # type: ignore[arg-type]
            yield scrapy.Request(link.url)
