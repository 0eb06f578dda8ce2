"""Middlewares of ours that do the work of several of Scrapy's: the same requests come out, and a project's own settings keep Scrapy's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from scrapy import Request, Spider, signals
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.core.spidermw import SpiderMiddlewareManager
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.httpauth import HttpAuthMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.utils.misc import load_object
from scrapy.utils.test import get_crawler

from crawlweb import Addon
from crawlweb.addon import MERGED
from crawlweb.middlewares.defaults import RequestDefaults
from crawlweb.middlewares.output import SpiderOutput

DOWNLOADER, SPIDER = "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES"


class Shop(Spider):
    name = "shop"
    allowed_domains = ("shop.org",)


class Own:
    """A project's middleware, on either side."""

    def process_request(self, request: Request) -> None:
        request.headers.setdefault("User-Agent", "own")

    async def process_spider_output(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:  # noqa: ARG002
        async for output in result:
            yield output


def crawler_of(kind: str, merged: bool, **settings: Any) -> Crawler:
    """With the middlewares of one kind that are merged, or with what stands in their place, and no others."""
    ours, parts = MERGED[kind]
    base = Settings()[f"{kind}_BASE"]
    chosen = {ours: 500} if merged else {part: base[part] for part in parts}
    crawler = get_crawler(Shop, {f"{kind}_BASE": {}, kind: chosen, "DOWNLOAD_HANDLERS": {}, "EXTENSIONS_BASE": {}, **settings})
    crawler.spider = crawler._create_spider()
    return crawler


REQUESTS: dict[str, dict[str, Any]] = {
    "leased": {"dont_filter": True},
    "on site": {},
    "with a header of its own": {"headers": {"User-Agent": "x", "X-Own": "1"}},
    "with other case": {"headers": {"accept": "a/b", "USER-agent": "x"}},
    "with a time-out": {"meta": {"download_timeout": 3}},
    "with credentials": {"meta": {"http_user": "me", "http_pass": "secret"}},
    "with credentials for a site": {"meta": {"http_user": "me", "http_auth_domain": "shop.org"}},
    "with credentials for another": {"meta": {"http_user": "me", "http_auth_domain": "a.org"}},
    "off site": {"url": "http://a.org/"},
    "off site, leased": {"url": "http://a.org/", "dont_filter": True},
    "off site, allowed": {"url": "http://a.org/", "meta": {"allow_offsite": True}},
}
PROJECTS: list[dict[str, Any]] = [
    {},
    {"USER_AGENT": None},
    {"DEFAULT_REQUEST_HEADERS": {"Accept": ["a/b", "c/d"], "x-own": "1", "Gone": None}},
    {"DOWNLOAD_TIMEOUT": 0},
    {"HTTPAUTH_USER": "all", "HTTPAUTH_PASS": "p", "HTTPAUTH_DOMAIN": None},
]


def requested(merged: bool, project: dict[str, Any], arguments: dict[str, Any]) -> list[Any]:
    """What becomes of two equal requests, one after the other."""

    async def main() -> list[Any]:
        crawler = crawler_of(DOWNLOADER, merged, **project)
        manager = DownloaderMiddlewareManager.from_crawler(crawler)
        await crawler.signals.send_catch_log_async(signals.spider_opened, spider=crawler.spider)
        results: list[Any] = []
        for _ in range(2):
            request = Request(**{"url": "http://www.shop.org/", **arguments})
            try:
                assert await manager._process_request(request, answer) is not None
            except IgnoreRequest as error:
                results.append(str(error))
            else:
                results.append((dict(request.headers), request.meta))
                request.headers.appendlist("Accept", "changed later")
        return [*results, sorted(crawler.stats.get_stats().items())]

    async def answer(request: Request) -> Response:
        return Response(request.url)

    return asyncio.run(main())


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: ", ".join(project) or "defaults")
@pytest.mark.parametrize("arguments", REQUESTS.values(), ids=REQUESTS.keys())
def test_a_request_gets_what_scrapy_s_middlewares_give_it(project: dict[str, Any], arguments: dict[str, Any]) -> None:
    assert requested(True, project, arguments) == requested(False, project, arguments)


OUTPUTS = {
    "an item": lambda: {"text": "a"},
    "a request": lambda: Request("http://b.org/"),
    "a request with a referrer": lambda: Request("http://b.org/", headers={"Referer": "http://c.org/"}),
    "one that begins anew": lambda: Request("http://b.org/", meta={"depth_reset": True}),
    "a long one": lambda: Request("http://b.org/" + "x" * 3000),
    "one with a policy": lambda: Request("http://b.org/", meta={"referrer_policy": "no-referrer"}),
    "one with meta of its page": lambda: Request("http://b.org/", meta={"download_latency": 1.0}),
    "nothing": lambda: None,
}
SPIDER_PROJECTS: list[dict[str, Any]] = [
    {},
    {"DEPTH_LIMIT": 2, "DEPTH_STATS_VERBOSE": True, "DEPTH_PRIORITY": 1},
    {"URLLENGTH_LIMIT": 0, "REFERER_ENABLED": False},
]


def put_out(merged: bool, project: dict[str, Any], meta: dict[str, Any]) -> list[Any]:
    """What comes out of all outputs of a page, and of the start requests; with stats."""

    async def main() -> list[Any]:
        crawler = crawler_of(SPIDER, merged, **project)
        manager = SpiderMiddlewareManager.from_crawler(crawler)
        request = Request("http://a.org/page?x=1", meta=meta)
        response = Response(request.url, request=request)

        async def callback(*_: Any) -> AsyncIterator[Any]:
            return outputs()

        async def outputs() -> AsyncIterator[Any]:
            for make in OUTPUTS.values():
                yield make()

        crawler.spider.start = outputs  # type: ignore[method-assign, union-attr]
        page = [seen(o) async for o in await manager.scrape_response_async(callback, response, request)]
        start = await manager.process_start()
        assert start is not None
        return [page, [seen(o) async for o in start], response.meta, sorted(crawler.stats.get_stats().items())]

    return asyncio.run(main())


def seen(output: Any) -> Any:
    return (output.url, dict(output.headers), output.meta, output.priority) if isinstance(output, Request) else output


@pytest.mark.parametrize("meta", [{}, {"depth": 1}, {"depth": 2}])
@pytest.mark.parametrize("project", SPIDER_PROJECTS, ids=lambda project: ", ".join(project) or "defaults")
def test_what_a_spider_puts_out_is_what_scrapy_s_middlewares_let_through(project: dict[str, Any], meta: dict[str, Any]) -> None:
    assert put_out(True, project, meta) == put_out(False, project, meta)


# -- when ---------------------------------------------------------------------------------------------------------------


def applied(**project: Any) -> Settings:
    settings = Settings()
    settings.setdict(project, priority="project")
    Addon().update_settings(settings)
    return settings


@pytest.mark.parametrize("kind", MERGED)
@pytest.mark.parametrize("own", [{}, {Own: 20}, {Own: 1001}, {Own: None}], ids=str)
def test_ours_stand_in_for_scrapy_s(kind: str, own: dict[Any, Any]) -> None:
    ours, parts = MERGED[kind]
    components = applied(**{kind: own}).get_component_priority_dict_with_base(kind)
    names = [load_object(component) for component, at in components.items() if at is not None]
    assert load_object(ours) in {RequestDefaults, SpiderOutput}
    assert load_object(ours) in names
    assert not {load_object(part) for part in parts} & set(names)


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (DOWNLOADER, {Own: 50}),
        (DOWNLOADER, {Own: 400}),
        (DOWNLOADER, {f"{__name__}.Own": 500}),
        (DOWNLOADER, {"scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None, Own: 900}),
        (DOWNLOADER, {HttpAuthMiddleware: 310}),
        (SPIDER, {Own: 543}),
        (SPIDER, {Own: 1000}),
        (SPIDER, {"scrapy.spidermiddlewares.referer.RefererMiddleware": None}),
    ],
)
def test_scrapy_s_stay_where_a_project_has_one_between_them_or_changes_them(kind: str, own: dict[Any, Any]) -> None:
    ours, parts = MERGED[kind]
    components = applied(**{kind: own}).get_component_priority_dict_with_base(kind)
    names = {load_object(component) for component, at in components.items() if at is not None}
    assert load_object(ours) not in names
    changed = {load_object(component) for component in own}
    assert {load_object(part) for part in parts} - changed <= names


@pytest.mark.parametrize("kind", MERGED)
def test_every_part_is_one_of_scrapy_s_own_with_a_place(kind: str) -> None:
    base = Settings()[f"{kind}_BASE"]
    assert all(base[part] is not None for part in MERGED[kind][1])
