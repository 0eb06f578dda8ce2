"""The line of progress, the closing summary, and the end of the crawl where Scrapy asks for it."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest
from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.utils.test import get_crawler

from crawlweb.extensions import progress as module
from crawlweb.extensions.progress import REASON_TEXTS, Progress
from crawlweb.scheduler import FRONTIER_ERROR, Scheduler
from crawlweb.stats import STATS

ENDS = ("finished", "max_pages", "never_seeded", FRONTIER_ERROR)
SENT = {
    "pages": 12,
    "bytes": 3_456_789,
    "hosts": 3,
    "requests": 20,
    "links/found": 250,
    "links/out_of_scope": 70,
    "links/too_deep": 10,
    "links/enqueued": 70,
    "links/seen": 40,
    "links/cached": 60,
    "robots/disallowed": 5,
    "memory/used_bytes": 45_260_000,
    "errors/timeout": 2,
    "errors/dns_nxdomain": 1,
}


def crawler(scheduler: object = None, **stats: int) -> Crawler:
    c = get_crawler(Spider)
    assert c.stats
    for name, value in stats.items():
        c.stats.set_value(f"crawlweb/{name}", value)
    c.engine = SimpleNamespace(scheduler=scheduler)  # type: ignore[assignment]
    return c


def scheduler(reason: str | None, in_hand: int = 0) -> Scheduler:
    s = Scheduler.__new__(Scheduler)
    s._reason = reason
    s.crawl = SimpleNamespace(worker=SimpleNamespace(in_hand=dict.fromkeys(range(in_hand))))  # type: ignore[assignment]
    return s


async def ended(progress: Progress) -> None:
    """The lines of progress end, and at once: the next was due in ten seconds."""
    assert progress._reporting
    await asyncio.wait([progress._reporting], timeout=5)
    assert progress._reporting.cancelled()


def closing_line(caplog: pytest.LogCaptureFixture, reason: str, **stats: int) -> str:
    async def main() -> None:
        progress = Progress.from_crawler(crawler(scheduler("finished"), **stats))
        progress.spider_opened()
        caplog.clear()
        progress.spider_closed(reason)
        await ended(progress)

    with caplog.at_level(logging.INFO, logger=module.logger.name):
        asyncio.run(main())
    (record,) = (record for record in caplog.records if record.name == module.logger.name)
    return record.getMessage()


def idle(s: object) -> str | None:
    """What the engine is told: None to stay open, a reason, or nothing (Scrapy's own way)."""
    progress = Progress(crawler(s))
    try:
        progress.spider_idle()
    except DontCloseSpider:
        return None
    except CloseSpider as e:
        return e.reason
    return "as Scrapy does"


def test_the_crawl_stays_open_until_the_frontier_s_verdict_and_ends_with_its_reason() -> None:
    assert idle(scheduler(None)) is None
    for reason in ENDS:
        assert idle(scheduler(reason)) == reason
    assert idle(None) == "as Scrapy does"
    assert idle(object()) == "as Scrapy does"  # another scheduler


def test_it_is_connected_to_the_signals() -> None:
    async def main() -> None:
        c = crawler(scheduler("max_pages"))
        progress = Progress.from_crawler(c)
        c.signals.send_catch_log(signals.spider_opened, spider=c.spider)
        assert progress._reporting
        assert not progress._reporting.done()
        ((_, result),) = c.signals.send_catch_log(signals.spider_idle, spider=c.spider, dont_log=CloseSpider)
        assert result.value.reason == "max_pages"
        c.signals.send_catch_log(signals.spider_closed, spider=c.spider, reason="max_pages")
        await ended(progress)

    asyncio.run(main())


def test_the_summary_says_everything_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    line = closing_line(caplog, "finished", **SENT)
    assert line == (
        "crawl finished: 12 pages, 3.5 MB, 3 hosts, 20 requests in 0 s; errors: dns_nxdomain 1, timeout 2; "
        "links: 70 new, 100 duplicates, 35 % known to the worker itself; disallowed by robots.txt: 5; Redis: 45.3 MB"
    )


def test_the_hit_rate_of_the_cache_is_a_stat() -> None:
    for stats, rate in ((SENT, 0.3529), ({}, 0.0)):
        c = crawler(scheduler(None), **stats)
        Progress(c)._report()
        assert c.stats
        assert c.stats.get_value("crawlweb/links/cache_rate") == rate


def test_a_crawl_of_nothing_has_a_summary_too(caplog: pytest.LogCaptureFixture) -> None:
    assert closing_line(caplog, "shutdown").startswith("crawl shutdown: 0 pages, 0.0 MB, 0 hosts, 0 requests in 0 s; errors: none;")


@pytest.mark.parametrize("reason", REASON_TEXTS)
def test_reasons_that_need_words_have_them(caplog: pytest.LogCaptureFixture, reason: str) -> None:
    assert reason in ENDS
    assert closing_line(caplog, reason).startswith(f"crawl {REASON_TEXTS[reason]}: ")


def test_progress_counts_what_came_since_the_line_before(caplog: pytest.LogCaptureFixture) -> None:
    c = crawler(scheduler(None, in_hand=7), pages=50)
    progress = Progress(c)
    with caplog.at_level(logging.INFO, logger=module.logger.name):
        progress._report()
        assert c.stats
        c.stats.inc_value("crawlweb/pages", 25)
        progress._report()
        progress._report()
    lines = [record.getMessage() for record in caplog.records if record.name == module.logger.name]
    assert lines == ["50 pages (5.0/s), 7 leases in hand", "75 pages (2.5/s), 7 leases in hand", "75 pages (0.0/s), 7 leases in hand"]


def test_a_crawl_that_could_not_be_opened_has_no_progress_to_break(caplog: pytest.LogCaptureFixture) -> None:
    """`scheduler.open` failed: its crawl is not there, and the spider is closed without having been opened."""
    c = crawler(Scheduler.__new__(Scheduler))
    progress = Progress.from_crawler(c)
    with caplog.at_level(logging.DEBUG):
        c.signals.send_catch_log(signals.spider_closed, spider=c.spider, reason="shutdown")
    assert [record.getMessage() for record in caplog.records if "progress.Progress" in record.getMessage()] == []
    assert progress  # signals hold their receivers weakly


@pytest.mark.parametrize("reason", ["finished", "max_pages", "never_seeded", "shutdown", "frontier_error"])
def test_only_an_error_of_the_frontier_makes_the_process_fail(reason: str) -> None:
    progress = Progress(crawler(scheduler(reason)))
    progress.spider_closed(reason)
    if reason != "frontier_error":
        progress.engine_stopped()
        return
    with pytest.raises(SystemExit) as failed:
        progress.engine_stopped()
    assert isinstance(failed.value.code, str)  # printed to stderr, status 1
    assert failed.value.code.startswith("crawlweb: ")


def test_the_stats_of_the_lines_are_in_the_table() -> None:
    rows = {name.removeprefix("crawlweb/") for name in STATS}
    families = {name.partition("/")[0] for name in rows if "<" in name}
    assert {name for name in SENT if name not in rows and name.partition("/")[0] not in families} == set()
