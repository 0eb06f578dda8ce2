"""Switches crawlweb on in any Scrapy project: ADDONS = {"crawlweb.Addon": 0}.

The project's own settings win, except where they would break politeness: those stop the start, by name.
"""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.settings import SETTINGS_PRIORITIES

from . import __version__
from .default_settings import load
from .dns import parse_servers
from .errors import ConfigError
from .logformatter import hide_credentials
from .scheduler import DOWNLOAD_SLOT

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

# Downloader middlewares of ours, by distance: what is next to the downloader sees a response first.
MIDDLEWARES = {"crawlweb.middlewares.store.StoreMiddleware": 990}

# Scrapy's components that would make a request that nobody counts, or that a leased request must not meet (scrapy-notes.md 1-5, 17, 23).
REMOVED = {
    "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": "the frontier fetches and obeys robots.txt",
    "scrapy.downloadermiddlewares.retry.RetryMiddleware": "the frontier retries",
    "scrapy.downloadermiddlewares.redirect.RedirectMiddleware": "redirects return to the frontier",
    "scrapy.downloadermiddlewares.redirect.MetaRefreshMiddleware": "a meta refresh is a link",
    "scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware": "the download handler decodes, up to the cap",
    "scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware": "the address guard would be blind behind a proxy",
    "scrapy.downloadermiddlewares.httpcache.HttpCacheMiddleware": "a page from a cache has no clock",
}
# Scrapy's middlewares that one of ours does the work of, while a project leaves them as they are and has nothing between them
# (docs/decisions/scrapy-path.md).
MERGED = {
    "DOWNLOADER_MIDDLEWARES": (
        "crawlweb.middlewares.defaults.RequestDefaults",
        (
            "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware",
            "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware",
            "scrapy.downloadermiddlewares.downloadtimeout.DownloadTimeoutMiddleware",
            "scrapy.downloadermiddlewares.defaultheaders.DefaultHeadersMiddleware",
            "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware",
        ),
    ),
    "SPIDER_MIDDLEWARES": (
        "crawlweb.middlewares.output.SpiderOutput",
        (
            "scrapy.spidermiddlewares.start.StartSpiderMiddleware",
            "scrapy.spidermiddlewares.referer.RefererMiddleware",
            "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware",
            "scrapy.spidermiddlewares.depth.DepthMiddleware",
            "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware",
        ),
    ),
}
HANDLER = "crawlweb.download.DownloadHandler"

SETTINGS: dict[str, Any] = {
    "SCHEDULER": "crawlweb.scheduler.Scheduler",
    "DOWNLOADER": "crawlweb.downloader.Downloader",
    "DOWNLOADER_STATS": False,
    "STATS_CLASS": "crawlweb.collector.StatsCollector",
    "USER_AGENT": f"crawlweb/{__version__}",
    "LOG_FORMATTER": "crawlweb.logformatter.LogFormatter",
    "DOWNLOAD_TIMEOUT": 10,
    "CONCURRENT_REQUESTS": 2000,
    "CONCURRENT_ITEMS": 1,
    "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 100_000_000,
    "COOKIES_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "DEFAULT_REQUEST_HEADERS": {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
    "LOGSTATS_INTERVAL": 0,
}

# Settings of a project that would break politeness: name → (is it harmful?, why). Only what somebody set counts.
_REFUSED: dict[str, tuple[Any, str]] = {
    "ROBOTSTXT_OBEY": (lambda v: not v, "robots.txt is always obeyed"),
    "RETRY_ENABLED": (bool, "a retry in the process skips the host's clock; the frontier retries"),
    "REDIRECT_ENABLED": (bool, "a redirect followed in the process skips the host's clock"),
    "METAREFRESH_ENABLED": (bool, "a meta refresh followed in the process skips the host's clock"),
    "HTTPCACHE_ENABLED": (bool, "the frontier's recrawl replaces it"),
    "AUTOTHROTTLE_ENABLED": (bool, "the frontier sets the delays"),
    "SCHEDULER_PERSIST": (lambda v: not v, "nothing is deleted when a crawl closes; `crawlweb purge` deletes one"),
    "SCHEDULER_FLUSH_ON_START": (bool, "nothing is deleted when a crawl starts; `crawlweb purge` deletes one"),
}
_TOOLS = ("shell", "fetch", "view", "parse", "check", "bench")


def _is_tool(argv: list[str]) -> bool:
    """Is this one of Scrapy's commands that look at single pages? They need the download path, not the frontier. `argv`: sys.orig_argv,
    since Scrapy takes the command out of sys.argv."""
    names = [Path(word).name for word in argv]
    at = next((i for i, name in enumerate(names) if name in ("scrapy", "scrapy.exe", "scrapy.cmdline")), None)
    return at is not None and next((word for word in argv[at + 1 :] if not word.startswith("-")), "") in _TOOLS


class Addon:
    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """What is fixed before there is a crawler: the event loop."""
        settings.set("ASYNCIO_EVENT_LOOP", "uvloop.Loop", "addon")

    def update_settings(self, settings: BaseSettings) -> None:
        try:
            config = load(settings)
            parse_servers(config.dns_servers)
            _check_types(settings)
            _refuse(settings)
        except ConfigError as e:
            raise SystemExit(f"crawlweb: {e}") from None
        values = dict(SETTINGS)
        if config.contact:
            values["USER_AGENT"] = f"crawlweb/{__version__} (+{config.contact})"
        if _is_tool(sys.orig_argv):
            values = {"USER_AGENT": values["USER_AGENT"]}
        else:
            self._take_over(settings)
        for name, value in values.items():
            settings.set(name, value, "addon")
        for scheme in ("http", "https"):
            settings["DOWNLOAD_HANDLERS"].setdefault(scheme, HANDLER)
        if settings.get("LOG_LEVEL") != "DEBUG":  # it writes a line for every 404
            logging.getLogger("scrapy.spidermiddlewares.httperror").setLevel(logging.WARNING)
        hide_credentials()
        if not _is_tool(sys.orig_argv) and not re.search("://|@", settings.get("USER_AGENT") or ""):
            logger.warning("set CRAWLWEB_CONTACT to a URL or an e-mail address: whoever is crawled has no way to reach you")

    def _take_over(self, settings: BaseSettings) -> None:
        middlewares = settings["DOWNLOADER_MIDDLEWARES"]
        for path in REMOVED:
            middlewares.set(path, None, "addon")
        for path, at in MIDDLEWARES.items():
            middlewares.setdefault(path, at)
        for name in MERGED:
            _merge(settings, name)
        settings["EXTENSIONS"].setdefault("crawlweb.extensions.progress.Progress", 0)
        slots = dict(settings.getdict("DOWNLOAD_SLOTS"))
        slots[DOWNLOAD_SLOT] = {"concurrency": sys.maxsize, "delay": 0, "jitter": 0}  # CONCURRENT_REQUESTS is the bound
        settings.set("DOWNLOAD_SLOTS", slots, max(SETTINGS_PRIORITIES["addon"], settings.getpriority("DOWNLOAD_SLOTS") or 0))
        for name in ("jsonlines", "jsonl", "jl"):
            settings["FEED_EXPORTERS"].setdefault(name, "crawlweb.exporters.FlushingJsonLines")


def _merge(settings: BaseSettings, name: str) -> None:
    ours, parts = MERGED[name]
    own, base = settings[name], settings[f"{name}_BASE"]
    places = [base.get(path) for path in parts]
    if None in places or any(_name_of(path) in parts for path in own):
        return
    first, last = min(places), max(places)
    if any(at is not None and first <= at <= last for at in own.values()):
        return
    for path in parts:
        own.set(path, None, "addon")
    own.set(ours, last, "addon")


def _name_of(component: str | type) -> str:
    return component if isinstance(component, str) else f"{component.__module__}.{component.__qualname__}"


def _check_types(settings: BaseSettings) -> None:
    """Scrapy reads these where a wrong type is a traceback."""
    for name, value in SETTINGS.items():
        given = settings.get(name)
        if type(value) is int and given is not None:
            try:
                float(given)
            except (TypeError, ValueError):
                raise ConfigError(f"{name}={given!r}: a number expected") from None
    try:
        settings.getdict("REDIS_PARAMS")
    except (TypeError, ValueError):
        raise ConfigError(f"REDIS_PARAMS={settings.get('REDIS_PARAMS')!r}: a dictionary expected") from None


def _refuse(settings: BaseSettings) -> None:
    project = SETTINGS_PRIORITIES["project"]

    def was_set(name: str) -> bool:
        return (settings.getpriority(name) or 0) >= project

    for name, (is_harmful, why) in _REFUSED.items():
        if not was_set(name):
            continue
        try:
            value = settings.getbool(name)
        except (TypeError, ValueError):
            raise ConfigError(f"{name}={settings.get(name)!r}: True or False expected") from None
        if is_harmful(value):
            raise ConfigError(f"{name}={settings.get(name)!r}: {why}; leave it out")
    if was_set("SCHEDULER") and settings.get("SCHEDULER") != SETTINGS["SCHEDULER"]:
        raise ConfigError(f"SCHEDULER={settings.get('SCHEDULER')!r}: with the add-on it is {SETTINGS['SCHEDULER']}; leave it out")
    for path, at in settings["DOWNLOADER_MIDDLEWARES"].items():
        name = _name_of(path)
        if name in REMOVED and at is not None:
            raise ConfigError(f"DOWNLOADER_MIDDLEWARES has {name}: {REMOVED[name]}; leave it out")
    for scheme in ("http", "https"):
        handler = settings["DOWNLOAD_HANDLERS"].get(scheme, HANDLER)
        if handler != HANDLER:
            raise ConfigError(f"DOWNLOAD_HANDLERS[{scheme!r}]={handler!r}: with the add-on it is {HANDLER}; leave it out")
