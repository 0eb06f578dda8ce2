"""What ADDONS = {"crawlweb.Addon": 0} does to a project's settings, and what it refuses."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.core.downloader import Downloader
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.misc import load_object
from scrapy.utils.test import get_crawler

from crawlweb import Addon, __version__
from crawlweb.addon import _REFUSED, HANDLER, MERGED, MIDDLEWARES, REMOVED, SETTINGS, _is_tool
from crawlweb.download import DownloadHandler
from crawlweb.exporters import FlushingJsonLines
from crawlweb.extensions.progress import Progress
from crawlweb.middlewares.store import StoreMiddleware
from crawlweb.scheduler import DOWNLOAD_SLOT, Scheduler

# What `scrapy startproject` writes.
TEMPLATE = {
    "BOT_NAME": "shop",
    "ROBOTSTXT_OBEY": True,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    "DOWNLOAD_DELAY": 1,
    "FEED_EXPORT_ENCODING": "utf-8",
}


def applied(project: dict[str, Any] | None = None, *, priority: str = "project", **more: Any) -> Settings:
    settings = Settings()
    settings.setdict({**(project or {}), **more}, priority=priority)
    Addon().update_settings(settings)
    return settings


def crawler(**project: Any) -> Crawler:
    return get_crawler(Spider, {"ADDONS": {"crawlweb.Addon": 0}, "DOWNLOAD_HANDLERS": {}, **project})


def refusal(project: dict[str, Any], priority: str = "project") -> str:
    with pytest.raises(SystemExit) as stopped:
        applied(project, priority=priority)
    assert isinstance(stopped.value.code, str)  # printed to stderr, status 1
    assert "\n" not in stopped.value.code
    return stopped.value.code


@pytest.fixture(autouse=True)
def _a_crawl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "/bin/scrapy", "crawl", "web"])


# -- switched on ---------------------------------------------------------------------------------------------------------


def test_everything_of_the_table_is_set() -> None:
    settings = applied()
    assert {name: settings[name] for name in SETTINGS} == SETTINGS
    assert settings["DOWNLOAD_HANDLERS"]["http"] == settings["DOWNLOAD_HANDLERS"]["https"] == HANDLER


def test_what_the_tables_name_exists() -> None:
    assert load_object(SETTINGS["SCHEDULER"]) is Scheduler
    assert load_object(HANDLER) is DownloadHandler
    assert {load_object(path) for path in MIDDLEWARES} == {StoreMiddleware}
    for path in REMOVED:
        load_object(path)
    settings = applied()
    assert [load_object(path) for path in settings["EXTENSIONS"]] == [Progress]
    assert {load_object(settings["FEED_EXPORTERS"][name]) for name in ("jsonlines", "jsonl", "jl")} == {FlushingJsonLines}


def test_the_event_loop_is_set_before_there_is_a_crawler() -> None:
    settings = BaseSettings()
    Addon.update_pre_crawler_settings(settings)
    assert settings["ASYNCIO_EVENT_LOOP"] == "uvloop.Loop"


def test_scrapy_s_own_middlewares_that_make_requests_are_gone_and_ours_is_next_to_the_downloader() -> None:
    """As Scrapy builds them."""
    manager = DownloaderMiddlewareManager.from_crawler(crawler())
    names = [f"{type(m).__module__}.{type(m).__qualname__}" for m in manager.middlewares]
    assert set(names) & REMOVED.keys() == set()
    assert names[-1] == "crawlweb.middlewares.store.StoreMiddleware"
    stock = DownloaderMiddlewareManager.from_crawler(get_crawler(Spider))
    gone = {f"{type(m).__module__}.{type(m).__qualname__}" for m in stock.middlewares} - set(names)
    switched_off = {"scrapy.downloadermiddlewares.cookies.CookiesMiddleware", "scrapy.downloadermiddlewares.stats.DownloaderStats"}
    assert gone <= REMOVED.keys() | switched_off | set(MERGED["DOWNLOADER_MIDDLEWARES"][1])
    assert {"RetryMiddleware", "RedirectMiddleware"} <= {name.rpartition(".")[2] for name in gone}


def test_a_template_project_is_taken_over() -> None:
    settings = crawler(**TEMPLATE).settings
    assert settings["SCHEDULER"] == SETTINGS["SCHEDULER"]
    assert settings["BOT_NAME"] == "shop"


@pytest.mark.parametrize(
    "project", [{}, TEMPLATE, {"CONCURRENT_REQUESTS": 5}, {"CONCURRENT_REQUESTS": 50_000, "DOWNLOAD_DELAY_JITTER": 0.9}]
)
def test_the_downloader_s_slot_of_leased_requests_is_neutral(project: dict[str, Any]) -> None:
    """A delay of its own would hold requests past their leases."""

    async def main() -> None:  # the downloader wants a loop
        c = crawler(**project)
        downloader = Downloader(c)
        try:
            key, slot = downloader._get_slot(Request("https://example.com/", meta={"download_slot": DOWNLOAD_SLOT}))
            assert key == DOWNLOAD_SLOT
            assert (slot.delay, slot.jitter, slot.download_delay()) == (0, 0, 0)
            assert slot.concurrency >= max(c.settings.getint("CONCURRENT_REQUESTS"), downloader.total_concurrency)
        finally:
            downloader.close()

    asyncio.run(main())


def test_a_project_s_own_slots_stay() -> None:
    slots = applied({"DOWNLOAD_SLOTS": {"api": {"delay": 3}, DOWNLOAD_SLOT: {"delay": 9}}})["DOWNLOAD_SLOTS"]
    assert slots["api"] == {"delay": 3}
    assert slots[DOWNLOAD_SLOT]["delay"] == 0


# -- the project's own settings ------------------------------------------------------------------------------------------

OWN = {
    "DOWNLOADER": "scrapy.core.downloader.Downloader",
    "DOWNLOADER_STATS": True,
    "STATS_CLASS": "scrapy.statscollectors.DummyStatsCollector",
    "USER_AGENT": "shopbot/2.0",
    "LOG_FORMATTER": "scrapy.logformatter.LogFormatter",
    "DOWNLOAD_TIMEOUT": 5,
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_ITEMS": 100,
    "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 5_000_000,
    "COOKIES_ENABLED": True,
    "TELNETCONSOLE_ENABLED": True,
    "REMOTE_CONTROL_ENABLED": True,
    "DEFAULT_REQUEST_HEADERS": {"Accept": "text/html"},
    "LOGSTATS_INTERVAL": 60,
}


@pytest.mark.parametrize("priority", ["project", "spider", "cmdline"])
def test_the_project_s_settings_win(priority: str) -> None:
    settings = applied(OWN, priority=priority)
    for name, value in OWN.items():
        found = settings[name]
        assert (dict(found) if isinstance(value, dict) else found) == value, name
    assert OWN.keys() | {"SCHEDULER"} == SETTINGS.keys()


def test_the_project_s_components_stay_beside_ours() -> None:
    settings = applied(
        DOWNLOADER_MIDDLEWARES={"shop.Headers": 543, "crawlweb.middlewares.store.StoreMiddleware": 995},
        EXTENSIONS={"shop.Mail": 1, "crawlweb.extensions.progress.Progress": None},
        FEED_EXPORTERS={"jsonl": "shop.Exporter"},
        DOWNLOAD_HANDLERS={"s3": None, "https": HANDLER},
    )
    assert settings["DOWNLOADER_MIDDLEWARES"]["shop.Headers"] == 543
    assert settings["DOWNLOADER_MIDDLEWARES"]["crawlweb.middlewares.store.StoreMiddleware"] == 995
    assert dict(settings["EXTENSIONS"]) == {"shop.Mail": 1, "crawlweb.extensions.progress.Progress": None}
    assert settings["FEED_EXPORTERS"]["jsonl"] == "shop.Exporter"
    assert settings["DOWNLOAD_HANDLERS"]["s3"] is None


@pytest.mark.parametrize(
    ("project", "agent"),
    [
        ({}, f"crawlweb/{__version__}"),
        ({"CRAWLWEB_CONTACT": "https://example.com/bot"}, f"crawlweb/{__version__} (+https://example.com/bot)"),
        ({"CRAWLWEB_CONTACT": "https://example.com/bot", "USER_AGENT": "own"}, "own"),
    ],
)
def test_the_operator_s_address_is_sent_with_the_user_agent(project: dict[str, Any], agent: str) -> None:
    assert applied(project)["USER_AGENT"] == agent


@pytest.mark.parametrize(
    ("project", "warns"),
    [
        ({}, True),
        ({"USER_AGENT": "shopbot/2.0"}, True),
        ({"CRAWLWEB_CONTACT": "https://example.com/bot"}, False),
        ({"CRAWLWEB_CONTACT": "ops@example.com"}, False),
        ({"USER_AGENT": "shopbot/2.0 (+https://shop.example/bot)"}, False),
    ],
)
@pytest.mark.parametrize("command", ["crawl", "shell"])
def test_a_crawl_that_nobody_can_complain_to_is_told_once(
    project: dict[str, Any], warns: bool, command: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "/bin/scrapy", command, "web"])
    applied(project)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == (warns and command == "crawl")
    assert all("CRAWLWEB_CONTACT" in line and "\n" not in line for line in said)


def test_from_here_on_no_log_shows_credentials(caplog: pytest.LogCaptureFixture) -> None:
    before = logging.getLogRecordFactory()
    try:
        applied()
        applied()
        logging.getLogger("shop").warning("Ignoring %s", Request("http://me:secret@example.com/"))
    finally:
        logging.setLogRecordFactory(before)
    assert caplog.messages[-1] == "Ignoring <GET http://example.com/>"


# -- what is refused -----------------------------------------------------------------------------------------------------

HARMFUL = {
    "ROBOTSTXT_OBEY": False,
    "RETRY_ENABLED": True,
    "REDIRECT_ENABLED": True,
    "METAREFRESH_ENABLED": True,
    "HTTPCACHE_ENABLED": True,
    "AUTOTHROTTLE_ENABLED": True,
    "SCHEDULER_PERSIST": False,
    "SCHEDULER_FLUSH_ON_START": True,
}


def test_the_table_below_is_complete() -> None:
    assert HARMFUL.keys() == _REFUSED.keys()


@pytest.mark.parametrize("priority", ["project", "spider", "cmdline"])
@pytest.mark.parametrize(("name", "value"), HARMFUL.items())
def test_a_setting_that_would_break_politeness_stops_the_start(name: str, value: bool, priority: str) -> None:
    for spelling in (value, str(value), int(value), str(int(value))):
        line = refusal({name: spelling}, priority)
        assert line.startswith(f"crawlweb: {name}={spelling!r}: ")
        assert line.endswith("; leave it out")


@pytest.mark.parametrize(("name", "value"), HARMFUL.items())
def test_its_harmless_value_is_accepted_and_scrapy_s_default_is_nobody_s_wish(name: str, value: bool) -> None:
    applied({name: not value})
    applied({name: value}, priority="default")


@pytest.mark.parametrize("name", HARMFUL)
@pytest.mark.parametrize("value", ["maybe", [1], "2.5"])
def test_nonsense_in_place_of_true_or_false_is_named(name: str, value: Any) -> None:
    assert f"{name}={value!r}" in refusal({name: value})


@pytest.mark.parametrize(
    ("project", "words"),
    [
        ({"SCHEDULER": "scrapy.core.scheduler.Scheduler"}, ["SCHEDULER='scrapy.core.scheduler.Scheduler'", "crawlweb.scheduler.Scheduler"]),
        ({"SCHEDULER": "scrapy_redis.scheduler.Scheduler"}, ["SCHEDULER='scrapy_redis.scheduler.Scheduler'"]),
        *(({"DOWNLOADER_MIDDLEWARES": {path: 500}}, ["DOWNLOADER_MIDDLEWARES", path, why]) for path, why in REMOVED.items()),
        ({"DOWNLOADER_MIDDLEWARES": {RetryMiddleware: 1}}, ["scrapy.downloadermiddlewares.retry.RetryMiddleware", "the frontier retries"]),
        (
            {"DOWNLOAD_HANDLERS": {"https": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"}},
            ["DOWNLOAD_HANDLERS['https']=", "scrapy_playwright"],
        ),
        ({"CRAWLWEB_PARTITION": 5}, ["CRAWLWEB_PARTITION:", "CRAWLWEB_PARTITIONS"]),
        ({"CRAWLWEB_MODE": "forever"}, ["CRAWLWEB_MODE='forever'"]),
        ({"CRAWLWEB_FROM": "nobody"}, ["CRAWLWEB_FROM='nobody'", "e-mail"]),
        ({"CRAWLWEB_FROM": "a@b.org\r\nX-Evil: 1"}, ["CRAWLWEB_FROM='a@b.org\\r\\nX-Evil: 1'"]),
        ({"CRAWLWEB_FROM": "a@b.org\n"}, ["CRAWLWEB_FROM="]),
        ({"CRAWLWEB_FROM": "Ops <ops@b.org>"}, ["CRAWLWEB_FROM="]),
        ({"CRAWLWEB_CONTACT": "https://b.org/\r\nX-Evil: 1"}, ["CRAWLWEB_CONTACT="]),
        ({"CRAWLWEB_DNS_SERVERS": "nonsense"}, ["CRAWLWEB_DNS_SERVERS", "nonsense"]),
    ],
    ids=lambda value: str(value)[:70],
)
def test_other_things_that_cannot_be_are_named(project: dict[str, Any], words: list[str]) -> None:
    line = refusal(project)
    assert [word for word in words if word not in line] == []


def test_ours_may_be_named() -> None:
    applied(SCHEDULER=SETTINGS["SCHEDULER"], DOWNLOAD_HANDLERS={"http": HANDLER, "https": HANDLER})
    applied(DOWNLOADER_MIDDLEWARES=dict.fromkeys(REMOVED))  # removed already


# -- Scrapy's other commands ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "tool"),
    [
        (["python", "/env/bin/scrapy", "shell", "https://example.com/"], True),
        (["/usr/bin/python3", "-X", "dev", "/env/bin/scrapy", "fetch", "--nolog", "https://example.com/"], True),
        (["python3.11", "-m", "scrapy", "view", "https://example.com/"], True),
        (["python", "-m", "scrapy.cmdline", "shell"], True),
        (["C:/env/Scripts/scrapy.exe", "parse", "--spider=web", "https://example.com/"], True),
        (["scrapy", "check"], True),
        (["scrapy", "bench"], True),
        (["scrapy", "--nolog", "shell"], True),
        (["scrapy", "crawl", "web"], False),
        (["scrapy", "crawl", "shell"], False),
        (["scrapy", "crawl", "web", "-a", "seeds=https://example.com/", "fetch"], False),
        (["scrapy", "runspider", "check.py"], False),
        (["scrapy", "list"], False),
        (["scrapy"], False),
        (["scrapy", "-h"], False),
        (["python", "-m", "pytest", "shell"], False),
        (["python", "crawl.py", "fetch"], False),
        ([], False),
        (["python", "-c", "import scrapy", "shell"], False),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_commands_that_look_at_single_pages_are_known(argv: list[str], tool: bool) -> None:
    assert _is_tool(argv) is tool


def test_they_get_the_download_path_and_not_the_frontier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "/bin/scrapy", "shell"])
    settings = applied()
    assert settings["SCHEDULER"] == Settings()["SCHEDULER"]
    assert dict(settings["DOWNLOADER_MIDDLEWARES"]) == {}
    assert dict(settings["EXTENSIONS"]) == {}
    assert settings["DOWNLOAD_HANDLERS"]["https"] == HANDLER
    assert settings["USER_AGENT"] == SETTINGS["USER_AGENT"]
