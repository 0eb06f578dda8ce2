"""The crawlers that benchmarks set side by side, each as its users run it, and what crawlweb is to be ahead of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.web import WebProcess

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"


@dataclass(frozen=True)
class Start:
    """What a crawler is started with: a file of seeds, a folder to write to, a Redis if it asks for one."""

    web: WebProcess
    seeds: Path
    folder: Path
    redis_url: str
    concurrency: int


@dataclass(frozen=True)
class Crawler:
    folder: Path
    """Where it is started."""
    command: Callable[[Start], list[str]]
    needs_redis: bool = False


def _scrapy(spider: str, start: Start, settings: dict[str, object]) -> list[str]:
    settings = {"CONCURRENT_REQUESTS": start.concurrency, "LOG_LEVEL": "INFO", **settings}
    words = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    return [sys.executable, "-m", "scrapy", "crawl", spider, "-a", f"seeds=@{start.seeds}", *words]


def _crawlweb(start: Start, off: tuple[str, ...] = ()) -> list[str]:
    """`off`: settings of ours that are switched off."""
    settings: dict[str, object] = {
        "CRAWLWEB_DATA_DIR": start.folder / "data",
        "CRAWLWEB_DNS_SERVERS": start.web.dns_server,
        "CRAWLWEB_ALLOW_PRIVATE_IPS": 1,
        "CRAWLWEB_MIN_DELAY_S": 0,
        "CRAWLWEB_LATENCY_FACTOR": 0,
        "CRAWLWEB_IP_DELAY_S": 0,
        **{f"CRAWLWEB_{name}": False for name in off},
    }
    return _scrapy("web", start, settings)


def _plain(start: Start, **settings: object) -> list[str]:
    return _scrapy("plain", start, settings)


def _scrapy_redis(start: Start) -> list[str]:
    return _scrapy("plain", start, {"REDIS_URL": start.redis_url})


def _crawlee(start: Start, *options: str) -> list[str]:
    proxy = f"http://127.0.0.1:{start.web.http_port}"
    concurrency = str(start.concurrency)
    return [sys.executable, "crawl.py", "--seeds", str(start.seeds), "--proxy", proxy, "--concurrency", concurrency, *options]


CONTENT = ("MAIN_TEXT", "LANGUAGE", "DUPLICATES", "SOFT_404", "RECORDS", "EVENTS")
OURS, SAME_WORK = "crawlweb", "crawlweb, same work"
CRAWLERS = {
    OURS: Crawler(ROOT, _crawlweb),
    SAME_WORK: Crawler(ROOT, partial(_crawlweb, off=(*CONTENT, "WARC"))),
    "crawlweb, links only": Crawler(ROOT, partial(_crawlweb, off=CONTENT)),
    "scrapy-redis": Crawler(PEERS / "scrapy_redis", _scrapy_redis, needs_redis=True),
    "scrapy": Crawler(PEERS / "plain_scrapy", _plain),
    "scrapy, no robots": Crawler(PEERS / "plain_scrapy", partial(_plain, ROBOTSTXT_OBEY=0)),
    "scrapy, default loop": Crawler(PEERS / "plain_scrapy", partial(_plain, ASYNCIO_EVENT_LOOP="")),
    "crawlee": Crawler(PEERS / "crawlee", _crawlee),
    "crawlee, no robots": Crawler(PEERS / "crawlee", lambda start: _crawlee(start, "--no-robots")),
}

MADE, OTHER = "made", "other"
GOALS: dict[str, dict[str, dict[str, float]]] = {
    MADE: {
        SAME_WORK: {"scrapy-redis": 8.0, "scrapy": 4.0, "crawlee": 2.0},
        OURS: {"scrapy-redis": 5.0, "scrapy": 2.5, "crawlee": 1.3},
    },
    OTHER: {SAME_WORK: {"scrapy-redis": 3.0, "scrapy": 2.0, "crawlee": 1.5}},
}
"""Times the peer's pages a second, and times its pages a CPU-second: on pages made up, and on real ones or over HTTPS."""
