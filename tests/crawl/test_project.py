"""An ordinary Scrapy project with the add-on: Scrapy's own template, spiders that know nothing of crawlweb."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.crawl.crawler import ROOT, Crawl, Run, at_once, scrapy
from tests.web import Redirects, Tree, Web

SPIDERS = '''
import asyncio

from scrapy import FormRequest, Request, Spider
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class Rules(CrawlSpider):
    name = "rules"
    rules = [
        Rule(LinkExtractor(allow=r"/(leaf|hop)/\\d"), callback="parse_leaf", errback="failed", follow=True, cb_kwargs={"kind": "leaf"}),
        Rule(LinkExtractor(allow=r"/$"), callback="parse_leaf", follow=True, cb_kwargs={"kind": "front"}),
    ]

    def __init__(self, start_url="http://nobody.org/", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = start_url.split(",")

    def parse_start_url(self, response, **kwargs):
        return self.parse_leaf(response, "start")

    def parse_leaf(self, response, kind):
        yield {"url": response.url, "kind": kind, "depth": response.meta.get("depth"), "text": response.meta.get("link_text", "")}

    def failed(self, failure):
        yield {"url": failure.request.url, "kind": "failed", "depth": 0}


class Detour(Spider):
    """A request that cannot leave the process, redirected twice."""

    name = "detour"

    def __init__(self, start_url="http://nobody.org/", **kwargs):
        super().__init__(**kwargs)
        self.at = start_url.rstrip("/")

    async def start(self):
        yield Request(f"{self.at}/hop/2/3", lambda response: [{"url": response.url}])


class Slow(Spider):
    """Waits for its second start request."""

    name = "slow"

    def __init__(self, start_url="http://nobody.org/", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = start_url.split(",")

    async def start(self):
        yield Request(self.start_urls[0])
        await asyncio.sleep(4)
        yield Request(self.start_urls[1])

    def parse(self, response):
        yield {"url": response.url}


class Chain(Spider):
    """Page by page, what it knows travelling in cb_kwargs and meta."""

    name = "chain"

    def __init__(self, start_url="http://nobody.org/", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = start_url.split(",")

    def parse(self, response, number=0):
        yield {"url": response.url, "number": number, "colours": response.meta.get("colours", [])}
        if number < 14:
            meta = {"colours": [*response.meta.get("colours", []), f"colour {number}"]}
            yield response.follow(f"/leaf/{number + 1}", self.parse, cb_kwargs={"number": number + 1}, meta=meta, errback=self.failed)

    def failed(self, failure):
        yield {"url": failure.request.url, "number": -1}


class Odd(Spider):
    """Every kind of request there is."""

    name = "odd"
    custom_settings = {"ITEM_PIPELINES": {"shop.pipelines.Choosy": 300}}

    def __init__(self, start_url="http://nobody.org/", **kwargs):
        super().__init__(**kwargs)
        self.at = start_url.rstrip("/")

    async def start(self):
        posted = {"callback": self.posted, "errback": self.failed, "meta": {"handle_httpstatus_list": [405]}}
        yield Request(f"{self.at}/", self.front, meta={"colour": "red"}, cb_kwargs={"number": 7}, headers={"X-Odd": "yes"})
        yield FormRequest(f"{self.at}/leaf/1", formdata={"name": "a"}, **posted)
        yield FormRequest(f"{self.at}/leaf/1", formdata={"name": "a"}, **posted)
        yield FormRequest(f"{self.at}/leaf/1", formdata={"name": "b"}, **posted)
        yield Request(f"{self.at}/nothing/here", self.never, errback=self.failed)
        yield Request(f"{self.at}/leaf/3", lambda response: [{"what": "lambda"}])
        yield Request(f"{self.at}/leaf/4", self.breaks)
        yield Request(f"{self.at}/leaf/5", self.refused)
        yield Request(f"{self.at}/leaf/6", self.in_turn)
        yield Request("mailto:nobody@example.org")

    def front(self, response, number):
        request = response.request
        yield Request(f"{self.at}/leaf/2", self.twice)
        for _ in range(2):
            yield Request(f"{self.at}/leaf/7", self.once)
        yield {"what": "front", "colour": response.meta["colour"], "number": number, "header": request.headers["X-Odd"].decode()}

    def posted(self, response):
        yield {"what": "posted", "method": response.request.method, "body": response.request.body.decode()}

    def failed(self, failure):
        yield {"what": "failed", "status": failure.value.response.status}

    def twice(self, response):
        yield {"what": "twice"}
        if not response.meta.get("again"):
            yield Request(response.url, self.twice, meta={"again": True}, dont_filter=True)

    def once(self, response):
        yield {"what": "once"}

    def breaks(self, response):
        yield {"what": "before"}
        raise RuntimeError("the spider broke")

    def refused(self, response):
        yield {"what": "refused"}

    async def in_turn(self, response):
        yield {"what": "async"}

    def never(self, response):
        yield {"what": "never"}
'''
PIPELINES = """
class Choosy:
    def process_item(self, item):
        if item["what"] == "refused":
            raise ValueError("the pipeline broke")
        return item
"""


def project(folder: Path) -> Path:
    """Made by `scrapy startproject`, switched on by one line."""
    root = folder / "shop"
    log = folder / "startproject.log"
    folder.mkdir(parents=True, exist_ok=True)
    scrapy("startproject", "shop", root, log=log, cwd=folder).succeeds()
    settings = root / "shop" / "settings.py"
    text = settings.read_text()
    lines = {"ADDONS = {}", "ROBOTSTXT_OBEY = True", "DOWNLOAD_DELAY = 1", "CONCURRENT_REQUESTS_PER_DOMAIN = 1"}
    assert lines <= set(text.splitlines())
    settings.write_text(text.replace("ADDONS = {}", 'ADDONS = {"crawlweb.Addon": 0}'))
    (root / "shop" / "spiders" / "all.py").write_text(SPIDERS)
    (root / "shop" / "pipelines.py").write_text(PIPELINES)
    return root


def start(crawl: Crawl, spider: str, urls: list[str]) -> Run:
    cwd = crawl.folder / "shop" if crawl.runs else project(crawl.folder)
    return crawl.start(spider=spider, cwd=cwd, arguments=["-a", "start_url=" + ",".join(urls)])


@at_once
def test_a_crawl_spider_fetches_everything_once_at_the_frontiers_pace(folder: Path) -> None:
    sites = [Tree("a.org", pages=25), Tree("b.org", pages=25), Redirects("c.org", pages=20), Tree("d.org", pages=25)]
    with Web(sites=sites) as web, Crawl(folder, web.dns_server) as crawl:
        run = start(crawl, "rules", web.seeds()[:1]).succeeds()
        report = web.report(min_delay_s=0.05, tolerance_s=0.02)
        missing = {page for site in report.sites.values() for page in site.missing}
        assert missing == {"/folder/"}, "the rules do not follow this one"
        assert (report.refetched, report.violations, report.robots_late) == (0, (), ())
        assert report.seconds < 20, "95 pages, the busiest site 46 requests: DOWNLOAD_DELAY = 1 is not in force"
        items = crawl.items()
        assert Counter(item["url"] for item in items) == Counter(crawl.pages())
        kinds = {urlsplit(item["url"]).path: item["kind"] for item in items if "a.org" in item["url"]}
        assert kinds["/"] == "start"
        assert {kind for path, kind in kinds.items() if path != "/"} == {"leaf"}
        assert {item["kind"] for item in items if item["url"] in web.seeds()[1:]} == {"front"}
        assert {item["kind"] for item in items if "c.org" in item["url"] and "/leaf/" in item["url"]} == {"leaf"}, "a redirect keeps it"
        assert all(item["text"] for item in items if "/leaf/" in item["url"] and "c.org" not in item["url"]), "meta of the rules travels"
        assert run.summary == ("finished", 95)
        assert run.complaints == []


@at_once
def test_a_request_that_stays_in_the_process_follows_redirects(folder: Path) -> None:
    with Web(sites=[Redirects("a.org", pages=10)]) as web, Crawl(folder, web.dns_server) as crawl:
        assert start(crawl, "detour", web.seeds()).succeeds(60).summary == ("finished", 1)
        assert [item["url"] for item in crawl.items()] == [f"{web.seeds()[0]}leaf/3"]


@at_once
def test_the_crawl_does_not_end_before_the_spider_has_started(folder: Path) -> None:
    """Everything known is fetched long before the second start request comes."""
    with Web(sites=[Tree("a.org", pages=1), Tree("b.org", pages=1)]) as web, Crawl(folder, web.dns_server) as crawl:
        assert start(crawl, "slow", web.seeds()).succeeds(60).summary == ("finished", 2)
        assert {item["url"] for item in crawl.items()} == set(web.seeds())


@at_once
def test_every_kind_of_request_goes_through_the_frontier(folder: Path) -> None:
    with Web(sites=[Tree("a.org", pages=10)]) as web, Crawl(folder, web.dns_server) as crawl:
        start(crawl, "odd", web.seeds()).succeeds(60)
        items = crawl.items()
        assert Counter(item["what"] for item in items) == {
            "front": 1,
            "posted": 2,
            "failed": 1,
            "twice": 2,
            "once": 1,
            "lambda": 1,
            "before": 1,
            "async": 1,
        }
        assert {"what": "front", "colour": "red", "number": 7, "header": "yes"} in items
        assert {item["body"] for item in items if item["what"] == "posted"} == {"name=a", "name=b"}
        assert {item["method"] for item in items if item["what"] == "posted"} == {"POST"}
        assert {"what": "failed", "status": 404} in items
        assert web.report(min_delay_s=0.05, tolerance_s=0.02).violations == ()


@at_once
def test_what_breaks_in_a_project_is_counted_and_the_crawl_goes_on(folder: Path) -> None:
    with Web(sites=[Tree("a.org", pages=10)]) as web, Crawl(folder, web.dns_server) as crawl:
        run = start(crawl, "odd", web.seeds()).succeeds(60)
        assert run.stats["spider_exceptions/RuntimeError"] == 1
        assert run.log.count("ValueError: the pipeline broke") == 1
        said = [line for line in run.complaints if "stays in this worker's memory" in line]
        assert len(said) == 1, "a lambda cannot leave the process"
        assert "Engine slot" not in run.log
        assert crawl.audit()["pending"] == 0


@at_once
def test_requests_go_on_after_an_interrupt_with_all_they_carry(folder: Path) -> None:
    sites = [Tree(f"t{i}.org", pages=15) for i in range(4)]
    with Web(sites=sites) as web, Crawl(folder, web.dns_server, CRAWLWEB_MIN_DELAY_S=0.2) as crawl:
        first = start(crawl, "chain", web.seeds())
        assert web.wait_until_served(16, 60)
        first.interrupt()
        first.succeeds(20)
        before = len(crawl.items())
        assert 0 < before < 60
        start(crawl, "chain", web.seeds()).succeeds(60)
        items = crawl.items()
        assert len(items) == len({item["url"] for item in items}) == 60
        assert all(item["colours"] == [f"colour {k}" for k in range(item["number"])] for item in items)
        assert web.report().refetched == 0


@at_once
def test_requests_go_on_after_a_kill(folder: Path) -> None:
    lease = {"DOWNLOAD_TIMEOUT": 2, "CRAWLWEB_LEASE_S": 6}
    with Web(sites=[Tree(f"t{i}.org", pages=15) for i in range(4)]) as web, Crawl(folder, web.dns_server, **lease) as crawl:
        first = start(crawl, "chain", web.seeds())
        assert web.wait_until_served(16, 60)
        first.kill()
        held = crawl.audit()["leased"]
        start(crawl, "chain", web.seeds()).succeeds(60)
        assert {site.url(p) for site in web.sites.values() for p in site.expected()} == set(crawl.pages())
        assert web.report().refetched <= held


TOOLS = {
    "fetch": (["fetch", "URL"], "<title>a.org, page 0</title>"),
    "shell": (["shell", "URL", "-c", "(response.status, response.css('title::text').get())"], "(200, 'a.org, page 0')"),
    "parse": (["parse", "URL", "--spider=rules", "-a", "start_url=URL", "-c", "parse_start_url"], "'kind': 'start'"),
    "check": (["check"], "OK"),
    "list": (["list"], "chain\ndetour\nodd\nrules\nslow"),
    "settings": (["settings", "--get", "BOT_NAME"], "shop"),
}
OWN_TOOLS = {
    "fetch": (["fetch", "URL"], "<title>a.org, page 0</title>"),
    "shell": (["shell", "URL", "-c", "response.status"], "200"),
    "parse": (["parse", "URL", "--spider=web"], "'title': 'a.org, page 0'"),
    "check": (["check"], "OK"),
    "list": (["list"], "web"),
}


# Not: a loop that Scrapy's command left open, closed as the interpreter ends.
_TRACEBACK = re.compile(r"(?<!__del__ at 0x[0-9a-f]{12}>\n)^Traceback", re.M)


def use_tools(tools: dict[str, tuple[list[str], str]], folder: Path, cwd: Path) -> dict[str, str]:
    """Those that fail, with what they said."""
    wrong = {}
    with Web(sites=[Tree("a.org", pages=3)]) as web:
        (url,) = web.seeds()
        for name, (words, says) in tools.items():
            settings = [f"CRAWLWEB_DNS_SERVERS={web.dns_server}", "CRAWLWEB_ALLOW_PRIVATE_IPS=1", f"CRAWLWEB_DATA_DIR={folder / 'data'}"]
            command = [*(word.replace("URL", url) for word in words), *(w for s in settings for w in ("-s", s))]
            run = scrapy(*command, log=folder / f"{name}.log", cwd=cwd)
            run.wait(30)
            if run.process.returncode != 0 or says not in run.log or _TRACEBACK.search(run.log):
                wrong[name] = f"{run.process.returncode}: {run.log[-1500:]}"
    return wrong


@at_once
def test_scrapys_tools_work_in_a_project_and_make_no_data_directory(folder: Path) -> None:
    root = project(folder)
    assert use_tools(TOOLS, folder, root) == {}
    assert not (root / "data").exists()
    assert not (folder / "data").exists()


@at_once
def test_scrapys_tools_work_in_the_repository(folder: Path) -> None:
    assert use_tools(OWN_TOOLS, folder, ROOT) == {}
    assert not (folder / "data").exists()


@pytest.mark.slow
def test_a_lambda_is_lost_with_its_worker_and_becomes_a_dead_letter(tmp_path: Path) -> None:
    lease = {"DOWNLOAD_TIMEOUT": 2, "CRAWLWEB_LEASE_S": 6, "CRAWLWEB_MIN_DELAY_S": 1}
    with Web(sites=[Tree("a.org", pages=10)]) as web, Crawl(tmp_path, web.dns_server, **lease) as crawl:
        first = start(crawl, "odd", web.seeds())
        assert web.wait_until_served(1, 60)
        first.kill()
        start(crawl, "odd", web.seeds()).succeeds(120)
        items = crawl.readable_items()[0]
        assert {"front", "posted", "twice", "async"} <= {item["what"] for item in items}
        reasons = {reason for _, reason, _ in crawl.dead_letters()}
        assert reasons <= {"local_request_lost"}
        assert json.dumps(crawl.audit()["lost"]) == "0"
