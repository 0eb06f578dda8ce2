"""The dupefilter under Scrapy's scheduler and scrapy-redis', on a real Redis; whole crawls in a process of their own."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis
from scrapy import Request, Spider
from scrapy.http import FormRequest
from scrapy.utils.test import get_crawler

from crawlweb.default_settings import Config
from crawlweb.dupefilter import DupeFilter
from crawlweb.errors import ConfigError

MODES = pytest.mark.parametrize("mode", ["bloom", "exact"])
SPELLINGS = (
    "http://site.org/page",
    "https://site.org/page",
    "https://www.site.org/page/",
    "http://site.org:80/page#top",
    "https://SITE.org./p%61ge?utm_source=mail&fbclid=1",
    "https://site.org/page;jsessionid=1F2E",
)
OTHERS = (
    "https://site.org/Page",
    "https://site.org/page?id=1",
    "https://site.org:8080/page",
    "https://shop.site.org/page",
    "https://site.org/pa%2Fge",
)


@pytest.fixture
def server(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def filter_of(server: Any, mode: str = "bloom", key: str = "web:dupefilter", **more: Any) -> DupeFilter:
    return DupeFilter(server, key, Config(seen=mode, expected_urls=2_000), **more)


def new(found: DupeFilter, *urls: str) -> list[bool]:
    return [not found.request_seen(Request(url)) for url in urls]


@MODES
def test_spellings_of_a_page_are_one_and_other_pages_are_others(server: redis.Redis, mode: str) -> None:
    found = filter_of(server, mode)
    assert new(found, *SPELLINGS) == [True] + [False] * (len(SPELLINGS) - 1)
    assert new(found, *OTHERS) == [True] * len(OTHERS)
    assert new(filter_of(server, mode), *SPELLINGS, *OTHERS) == [False] * (len(SPELLINGS) + len(OTHERS)), "another worker"


@MODES
def test_method_and_body_count(server: redis.Redis, mode: str) -> None:
    found = filter_of(server, mode)
    requests = [
        Request("https://a.org/f"),
        Request("https://a.org/f", method="POST"),
        FormRequest("https://a.org/f", formdata={"a": "1"}),
        FormRequest("http://www.a.org/f/", formdata={"a": "2"}),
    ]
    assert [found.request_seen(request) for request in requests] == [False] * 4
    assert [found.request_seen(request) for request in requests] == [True] * 4


def test_urls_that_are_not_of_the_web_are_told_apart(server: redis.Redis) -> None:
    found = filter_of(server)
    assert new(found, "file:///a", "file:///b", "data:,a", "file:///a") == [True, True, True, False]


def test_a_redirect_to_another_spelling_of_the_page_is_followed(server: redis.Redis) -> None:
    found = filter_of(server)
    assert new(found, "http://a.org/x", "http://b.org/known") == [True, True]
    redirected = Request("https://www.a.org/x/", meta={"redirect_urls": ["http://a.org/x"]})
    assert not found.request_seen(redirected)
    assert found.request_seen(Request("https://b.org/known", meta={"redirect_urls": ["http://a.org/x"]}))


class Loses:
    """A client whose answer is lost once, as redis-py repeats a call after a time-out."""

    def __init__(self, server: redis.Redis) -> None:
        self._server, self.lose = server, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def execute_command(self, *args: Any) -> Any:
        answer = self._server.execute_command(*args)
        return self._server.execute_command(*args) if self.lose else answer


@MODES
def test_a_call_that_is_repeated_is_answered_as_the_first_time(server: redis.Redis, mode: str) -> None:
    loses = Loses(server)
    found = filter_of(loses, mode)
    assert new(found, "https://a.org/") == [True]  # the script is known now
    loses.lose = True
    assert new(found, "https://a.org/1", "https://a.org/1") == [True, False]


@pytest.mark.parametrize(("first", "second"), [("bloom", "exact"), ("exact", "bloom")])
def test_a_filter_keeps_the_mode_that_it_was_begun_with(server: redis.Redis, first: str, second: str) -> None:
    assert new(filter_of(server, first), "https://a.org/") == [True]
    with pytest.raises(ConfigError, match=f"CRAWLWEB_SEEN={second}: the filter 'web:dupefilter' was begun with {first}"):
        filter_of(server, second)
    filter_of(server, second, "other")


@MODES
def test_clear_forgets_all_of_this_filter_and_nothing_else(server: redis.Redis, mode: str) -> None:
    server.set("web:requests", "not ours")
    found, other = filter_of(server, mode, "web:[a]*"), filter_of(server, mode, "web:a")
    urls = [f"https://a.org/{n}" for n in range(500)]
    assert all(new(found, *urls)) and all(new(other, *urls[:3]))  # noqa: PT018
    found.clear()
    assert not [name for name in server.scan_iter() if name.startswith(b"{web:[a]*}")]
    assert server.get("web:requests") == b"not ours"
    assert new(other, *urls[:3]) == [False] * 3
    assert new(found, *urls[:3]) == [True] * 3


@pytest.mark.parametrize("keep", [True, False])
def test_close_forgets_only_what_was_this_runs_own(server: redis.Redis, keep: bool) -> None:
    found = filter_of(server, keep=keep)
    assert new(found, "https://a.org/") == [True]
    found.close("finished")
    assert bool(server.keys()) is keep


def test_it_is_made_from_the_settings_that_scrapy_redis_reads(redis_url: str, server: redis.Redis, tmp_path: Path) -> None:
    settings = {
        "REDIS_URL": redis_url,
        "REDIS_PARAMS": {"decode_responses": True, "redis_cls": "redis.Redis"},
        "SCHEDULER_DUPEFILTER_KEY": "seen-by-%(spider)s",
        "CRAWLWEB_SEEN": "exact",
    }
    crawler = get_crawler(Spider, settings)
    crawler.spider = Spider.from_crawler(crawler, "s1")
    found = DupeFilter.from_spider(crawler.spider)
    assert new(found, *SPELLINGS[:2]) == [True, False]
    assert server.scard("{seen-by-s1}:seen:0") == 1
    assert new(DupeFilter.from_crawler(crawler), SPELLINGS[0]) == [True], "a run of its own"

    crawler = get_crawler(Spider, {**settings, "JOBDIR": str(tmp_path)})
    crawler.spider = Spider.from_crawler(crawler, "s1")
    assert new(DupeFilter.from_crawler(crawler), SPELLINGS[0]) == [False], "a run that goes on"


def test_duplicates_are_logged_once_or_all_and_counted(server: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    crawler = get_crawler(Spider)
    spider = crawler.spider = Spider.from_crawler(crawler, "s")
    with caplog.at_level(logging.DEBUG, "crawlweb.dupefilter"):
        for debug, lines in ((False, 1), (True, 3)):
            caplog.clear()
            found = filter_of(server, debug=debug)
            for _ in range(3):
                found.log(Request("https://a.org/"), spider)
            assert len(caplog.records) == lines
    assert crawler.stats.get_value("dupefilter/filtered") == 6


# -- whole crawls --------------------------------------------------------------------------------------------------------

PAGES = 12
PROGRAM = '''
import json, sys
from scrapy import Request, Spider
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import AsyncCrawlerProcess

settings, port, out = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]

class Everywhere(HTTP11DownloadHandler):
    """Asks one server for all hosts, whatever the scheme."""
    async def download_request(self, request):
        scheme, _, rest = request.url.partition("://")
        path = rest.partition("/")[2]
        local = request.replace(url=f"http://127.0.0.1:{port}/{path}", headers={**request.headers, "X-Scheme": scheme})
        response = await super().download_request(local)
        return response.replace(url=request.url)

class Web(Spider):
    name = "web"
    async def start(self):
        yield Request("http://site.org/0")
    def parse(self, response):
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)

settings["DOWNLOAD_HANDLERS"] = {"http": Everywhere, "https": Everywhere}
process = AsyncCrawlerProcess(settings)
crawler = process.create_crawler(Web)
process.crawl(crawler)
process.start()
with open(out, "w") as file:
    json.dump(crawler.stats.get_stats(), file, default=str)
'''


@contextmanager
def site() -> Iterator[tuple[int, Counter[str]]]:
    """Every page links to every page in five spellings; page 5 is found under https only. Yields the port, and the pages shown."""
    shown: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0].partition(";")[0].strip("/")
            if path == "5" and self.headers["X-Scheme"] == "http":
                self.send_response(301)
                self.send_header("Location", "https://www.site.org/5/")
                self.end_headers()
                return
            shown[path] += 1
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            spelt = ("http://site.org/%d", "https://site.org/%d/", "https://www.site.org/%d?utm_source=x", "/%d;jsessionid=1A", "/%d#end")
            self.wfile.write("".join(f'<a href="{s % n}">x</a>' for n in range(PAGES) for s in spelt).encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, shown
    finally:
        server.shutdown()
        server.server_close()


SCRAPY_REDIS = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler", "SCHEDULER_PERSIST": True}


@pytest.mark.parametrize(("scheduler", "mode"), [(SCRAPY_REDIS, "bloom"), ({}, "exact")], ids=["scrapy-redis", "scrapy"])
def test_a_crawl_fetches_each_page_once(redis_url: str, tmp_path: Path, scheduler: dict[str, Any], mode: str) -> None:
    if scheduler:
        pytest.importorskip("scrapy_redis")
    settings = {
        **scheduler,
        "REDIS_URL": redis_url,
        "DUPEFILTER_CLASS": "crawlweb.dupefilter.DupeFilter",
        "CRAWLWEB_SEEN": mode,
        "LOG_LEVEL": "WARNING",
        "TELNETCONSOLE_ENABLED": False,
        "DOWNLOAD_DELAY": 0,
    }
    with site() as (port, shown):
        command = [sys.executable, "-c", PROGRAM, json.dumps(settings), str(port), str(tmp_path / "stats")]
        done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert shown == {str(n): 1 for n in range(PAGES)}
    assert json.loads((tmp_path / "stats").read_text())["dupefilter/filtered"] > PAGES * PAGES
    with redis.Redis.from_url(redis_url) as client:
        assert bool(client.keys("{web:dupefilter*")) is bool(scheduler)
