"""The scheduler between a real frontier and Scrapy's own slot: what becomes of each request that it gave out.

The engine here makes no requests: a test answers them, and does with them what the engine does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urljoin

import pytest
from scrapy import Request, Spider
from scrapy.core.engine import _Slot
from scrapy.http import HtmlResponse, Response
from scrapy.utils.reactor import CallLaterOnce
from scrapy.utils.test import get_crawler
from twisted.python.failure import Failure

from crawlweb.errors import FetchError, LeaseExpired, NoRoom, StoreError
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.rows import KeptNow, Limits, Link, Outcome
from crawlweb.in_flight import Body
from crawlweb.outcome import Sent
from crawlweb.policy import robots
from crawlweb.policy.canonical import url_key
from crawlweb.policy.hosts import host_of
from crawlweb.records import Entry, boottime
from crawlweb.scheduler import DOWNLOAD_SLOT, Scheduler, _at_most
from crawlweb.seeds import SpiderArguments
from tests.web.names import NameServer
from tests.web.sites import Site, Tree

PARTITIONS = 2
TEA = b"<p>Tea</p>"
ALLOW = robots.Answer("allow")
DISALLOW = b"User-agent: *\nDisallow: /no"


class Shop(Spider):
    name = "shop"
    arguments: SpiderArguments | None = None

    def parse(self, response: Response, **kwargs: Any) -> None:  # noqa: ARG002
        return None

    def not_there(self, failure: Failure) -> None: ...


class Desk:
    """A scheduler, opened, with the slot of an engine."""

    def __init__(self, redis_url: str, folder: Path, name_server: str, arguments: SpiderArguments | None = None, **more: Any) -> None:
        settings = {
            "REDIS_URL": redis_url,
            "CRAWLWEB_CRAWL": "t",
            "CRAWLWEB_DATA_DIR": str(folder),
            "CRAWLWEB_PARTITIONS": PARTITIONS,
            "CRAWLWEB_MIN_DELAY_S": 0.02,
            "CRAWLWEB_IP_DELAY_S": 0,
            "CRAWLWEB_ALLOW_PRIVATE_IPS": True,
            "CRAWLWEB_EXPECTED_URLS": 4096,
            "CRAWLWEB_MODE": "continuous",
            "CRAWLWEB_DNS_SERVERS": name_server,
            "DOWNLOAD_TIMEOUT": 10,
            "TELNETCONSOLE_ENABLED": False,
            **more,
        }
        self.crawler = get_crawler(Shop, settings)
        self.spider = Shop.from_crawler(self.crawler)
        if arguments:
            self.spider.arguments = arguments
        self.scheduler = Scheduler.from_crawler(self.crawler)
        self.wakes = 0
        self.slot: Any = _Slot(False, CallLaterOnce(self._woken), self.scheduler)
        self.crawler.engine = SimpleNamespace(_slot=self.slot, _start=None)  # type: ignore[assignment]

    def _woken(self) -> None:
        self.wakes += 1

    @property
    def frontier(self) -> Frontier:
        return self.scheduler.crawl.frontier

    @property
    def redis(self) -> Any:
        return self.frontier.redis

    def stat(self, name: str) -> Any:
        assert self.crawler.stats is not None
        return self.crawler.stats.get_value(f"crawlweb/{name}", 0)

    def put(self, *urls: str | Request) -> None:
        for url in urls:
            assert self.scheduler.enqueue_request(url if isinstance(url, Request) else Request(url))

    async def passes(self, seconds: float) -> None:
        """The frontier's clock, which never goes back, is ahead of Redis' own by so much; it stands still until that has caught up."""
        now, us = await self.redis.time()
        for p in range(PARTITIONS):
            ctr = self.frontier.key(p, "ctr")
            last = int(await self.redis.hget(ctr, "now") or 0)
            await self.redis.hset(ctr, "now", str(round(max(last, now * 1000 + us // 1000) + seconds * 1000)))
            self.scheduler.crawl.worker.ask(p)

    async def keep(self, origin: str, answer: robots.Answer, age_s: float = 0.0) -> None:
        """As if its robots.txt had been fetched so long ago."""
        lives_ms = round((robots.KEPT_S - age_s) * 1000)
        kept = KeptNow(origin, answer.pack(), lives_ms, -1)
        await self.frontier.tell(host_of(origin), lambda lease: Outcome(lease, "l", robots=kept))

    async def request(self) -> Request:
        """The next one, on its way."""
        found: list[Request] = []

        def look() -> bool:
            request = self.scheduler.next_request()
            if request is not None:
                found.append(request)
            return bool(found)

        await until(look)
        self.slot.add_request(found[0])
        return found[0]

    def answer(
        self, request: Request, status: int = 200, headers: dict[str, str] | None = None, body: bytes = TEA, flags: tuple[str, ...] = ()
    ) -> bool:
        """As the store middleware and the engine: what is not the spider's goes back to the scheduler. Was it the spider's?"""
        response = HtmlResponse(request.url, status, headers=headers, body=body, flags=list(flags), request=request)
        shown = self.scheduler.answered(request, self.scheduler.judged(request, response, Sent(boottime(), 0.001)))
        if not shown:
            assert self.scheduler.enqueue_request(request)
        self.slot.remove_request(request)
        return shown

    def fail(self, request: Request, error: BaseException, sent: Sent | None = None) -> bool:
        shown = self.scheduler.failed(request, error, sent or Sent(boottime()))
        if not shown:
            assert self.scheduler.enqueue_request(request)
        self.slot.remove_request(request)
        return shown

    async def told(self, request: Request, *answer: Any) -> None:
        """Answered, and the frontier knows."""
        job = self.scheduler.job_of(request)
        assert job
        self.answer(request, *answer)
        await until(lambda: job.lease.token not in self.scheduler.crawl.worker.in_hand)

    async def settled(self) -> None:
        await until(lambda: not self.scheduler.crawl.worker.busy)

    async def dead(self) -> list[tuple[str, str]]:
        return [(entry.url, reason) for _, reason, entry, *_ in await self.frontier.dead_letters() if entry]

    async def audit(self) -> dict[str, Any]:
        found = await Frontier(self.frontier.redis, "t", PARTITIONS, "auditor", Limits()).audit()
        assert found["lost"] == 0, found
        return found


async def until(state: Callable[[], object], seconds: float = 10) -> None:
    """Looks again and again; a state that does not come is a failure, not a wait."""
    deadline = boottime() + seconds
    while not state():
        assert boottime() < deadline, "this state never came"
        await asyncio.sleep(0.001)


def site(name: str) -> Site:
    """Every name leads to 127.0.0.1; that of a host whose name servers are silent to nowhere."""
    return Tree(name, address="127.0.0.1", fate="silent" if "silent" in name else "alive")


@asynccontextmanager
async def name_server() -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: NameServer(site), local_addr=("127.0.0.1", 0))
    try:
        yield f"127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    finally:
        transport.close()


Work = Callable[[Desk], Awaitable[None]]


def run(redis_url: str, folder: Path, work: Work, **settings: Any) -> Desk:
    desks: list[Desk] = []

    async def main() -> None:
        async with name_server() as address:
            desk = Desk(redis_url, folder, address, **settings)
            desks.append(desk)
            await desk.scheduler._open(desk.spider)
            try:
                await asyncio.wait_for(work(desk), 30)
            finally:
                for request in list(desk.slot.inprogress):
                    desk.slot.remove_request(request)
                await desk.slot.close()
                desk.slot.nextcall.cancel()
                await desk.scheduler._close()
                await desk.scheduler._resolver.close()

    asyncio.run(main())
    return desks[0]


# -- pages ---------------------------------------------------------------------------------------------------------------


def test_a_url_goes_into_the_frontier_and_comes_back_as_a_request_with_its_limits(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put(Request("https://a.org/x?b=1&a=2#c", meta={"depth": 3}))
        request = await desk.request()
        job = desk.scheduler.job_of(request)
        assert job
        assert (request.url, request.meta["depth"], request.meta["download_slot"]) == ("https://a.org/x?b=1&a=2", 3, DOWNLOAD_SLOT)
        assert (request.meta["crawlweb_deadline"], request.dont_filter, request.callback) == (job.until, True, None)
        assert desk.answer(request)
        await desk.settled()
        assert (await desk.audit())["pending"] == 0

    desk = run(redis_url, tmp_path, work)
    assert (desk.stat("leases"), desk.stat("links/enqueued")) == (1, 1)


@pytest.mark.parametrize(
    ("status", "headers", "shown"),
    [
        (200, {}, True),
        (403, {}, True),
        (404, {}, False),  # another spelling is tried
        (301, {"Location": "/y"}, False),
        (301, {"Location": "/x"}, True),
        (301, {}, True),
        (429, {}, False),
        (500, {}, False),
        (503, {"Retry-After": "3"}, False),
    ],
)
def test_the_spider_is_shown_what_nothing_follows(
    redis_url: str, tmp_path: Path, status: int, headers: dict[str, str], shown: bool
) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put("https://a.org/x")
        assert desk.answer(await desk.request(), status, headers) is shown
        await desk.settled()
        await desk.audit()

    run(redis_url, tmp_path, work)


@pytest.mark.parametrize("meta", [{"handle_httpstatus_list": [301, 404]}, {"handle_httpstatus_all": True}])
@pytest.mark.parametrize("status", [301, 404])
def test_a_status_that_the_spider_asked_for_is_the_spider_s(redis_url: str, tmp_path: Path, meta: dict[str, Any], status: int) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put(Request("https://a.org/x", meta=meta))
        assert desk.answer(await desk.request(), status, {"Location": "/y"})
        await desk.settled()
        assert (await desk.audit())["pending"] == 0

    run(redis_url, tmp_path, work)


@pytest.mark.parametrize("status", [200, 301])
def test_nothing_follows_from_a_response_whose_lease_somebody_else_has(redis_url: str, tmp_path: Path, status: int) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put("https://a.org/x")
        request = await desk.request()
        job = desk.scheduler.job_of(request)
        assert job
        p = desk.frontier.partition_of("a.org")
        await desk.redis.delete(desk.frontier.key(p, "leases"), desk.frontier.key(p, "leased"))
        job.lease.expires = boottime() - 1
        response = HtmlResponse(request.url, status, headers={"Location": "/y"}, body=TEA, request=request)
        verdict = desk.scheduler.judged(request, response, Sent(boottime(), 0.001))
        assert await desk.scheduler.may_store(request, verdict), "a second record is allowed"
        assert not desk.scheduler.answered(request, verdict)
        assert desk.scheduler.enqueue_request(request)
        desk.slot.remove_request(request)
        await desk.settled()
        assert desk.stat("links/enqueued") == 1

    assert run(redis_url, tmp_path, work).stat("leases/late") == 1


def test_a_page_beyond_max_pages_is_neither_stored_nor_shown(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put("https://a.org/x")
        request = await desk.request()
        await desk.redis.delete("{t}:permits")
        await desk.scheduler.crawl.meta.spend(1, [b"another!"])
        response = HtmlResponse(request.url, body=TEA, request=request)
        for status, may in ((404, True), (200, False)):
            verdict = desk.scheduler.judged(request, response.replace(status=status), Sent(boottime(), 0.001))
            assert await desk.scheduler.may_store(request, verdict) is may
        assert desk.scheduler.enqueue_request(request)
        desk.slot.remove_request(request)
        await desk.settled()
        assert (await desk.audit())["pending"] == 1

    desk = run(redis_url, tmp_path, work, arguments=SpiderArguments(max_pages=1))
    assert desk.stat("pages/over_limit") == 1


def test_no_fetch_is_begun_over_the_cap_on_bytes_in_flight(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        await desk.keep("https://b.org", ALLOW)
        desk.put("https://a.org/x")
        request = await desk.request()
        held = request.meta["crawlweb_held"] = Body(desk.scheduler._in_flight)
        held.begin(asyncio.Transport())
        held.add(1000)
        held.received()
        assert desk.scheduler.next_request() is None
        desk.put("https://b.org/x")
        await until(lambda: not desk.scheduler.crawl.worker.outbox.unsent)
        assert desk.scheduler.next_request() is None
        before = desk.wakes
        desk.slot.remove_request(request)
        assert (await desk.request()).url == "https://b.org/x"
        assert desk.wakes > before

    run(redis_url, tmp_path, work, CRAWLWEB_BYTES_IN_FLIGHT=1000)


@pytest.mark.parametrize(
    ("fetches", "files", "at_most"), [(2000, 65_536, 2000), (2000, 1024, 568), (500, 1024, 500), (2000, 300, 1)], ids=str
)
def test_there_are_no_more_fetches_at_a_time_than_files(fetches: int, files: int, at_most: int, caplog: pytest.LogCaptureFixture) -> None:
    assert _at_most(fetches, files, 256) == at_most
    assert len(caplog.records) == (at_most < fetches)
    assert all("ulimit -n" in record.message for record in caplog.records)


def test_a_response_that_had_no_room_is_nobody_s_failure(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put("https://a.org/x")
        assert not desk.fail(await desk.request(), NoRoom("full"), Sent.failed(boottime(), NoRoom("full")))
        job = desk.scheduler.job_of(await desk.request())
        assert job
        assert job.lease.entry.failures == 0

    assert run(redis_url, tmp_path, work).stat("in_flight/given_back") == 1


@pytest.mark.parametrize("error", [LeaseExpired("too short"), None], ids=["expired", "given back"])
def test_what_was_not_requested_comes_again_uncounted(redis_url: str, tmp_path: Path, error: LeaseExpired | None) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put("https://a.org/x")
        request = await desk.request()
        if error:
            assert not desk.fail(request, error, Sent())
        else:
            assert desk.scheduler.enqueue_request(request)
            desk.slot.remove_request(request)
        again = await desk.request()
        job = desk.scheduler.job_of(again)
        assert job
        assert (again.url, job.lease.entry.failures, job.lease.entry.expiries) == ("https://a.org/x", 0, 0)
        desk.answer(again)
        await desk.settled()

    desk = run(redis_url, tmp_path, work)
    assert (desk.stat("leases/returned"), desk.stat("links/enqueued")) == (1, 1)


def test_a_verdict_is_not_taken_back_when_its_request_comes_back(redis_url: str, tmp_path: Path) -> None:
    """A dead letter stays one, though the engine gives the request to the scheduler."""

    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put("https://a.org/x")
        request = await desk.request()
        desk.scheduler.failed(request, FetchError("private_address"), Sent())
        assert desk.scheduler.enqueue_request(request)
        desk.slot.remove_request(request)
        await desk.settled()
        assert await desk.dead() == [("https://a.org/x", "private_address")]

    run(redis_url, tmp_path, work)


def test_a_request_that_a_middleware_replaced_is_done_and_one_that_ended_without_a_word_is_not(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put("https://a.org/x", Request("https://a.org/y", errback=desk.spider.not_there))
        for _ in range(2):
            desk.slot.remove_request(await desk.request())
        await until(lambda: desk.stat("replaced") and desk.stat("errors/no_outcome"))
        await until(lambda: not desk.scheduler.crawl.worker.in_hand)
        assert (await desk.audit())["pending"] == 1  # comes again

    run(redis_url, tmp_path, work)


def test_an_exception_of_a_request_without_errback_is_told_by_ours_and_goes_on_to_scrapy(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put("https://a.org/x")
        request = await desk.request()
        failure = Failure(FetchError("reset"))  # type: ignore[no-untyped-call]
        failure.request = request  # type: ignore[attr-defined]
        assert request.errback
        assert request.errback(failure) is failure
        desk.slot.remove_request(request)
        await until(lambda: not desk.scheduler.crawl.worker.in_hand)

    assert run(redis_url, tmp_path, work).stat("errors/reset") == 1


def test_an_entry_that_makes_no_request_is_moved_aside(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        not_ours: list[dict[str, object]] = [{"callback": "_x"}, {"class": "Nobody"}, {"method": "G T"}, {"headers": 7}, {"body": "?"}]
        for n, fields in enumerate(not_ours):
            url = f"https://a.org/{n}"
            desk.scheduler.crawl.worker.outbox.add_links([Link("a.org", url_key(url), Entry(url, 5, request=fields))])
        desk.put("https://a.org/good")
        request = await desk.request()
        assert request.url == "https://a.org/good"
        desk.answer(request)
        await desk.settled()
        assert (await desk.audit())["pending"] == 0
        p = desk.frontier.partition_of("a.org")
        assert await desk.redis.llen(desk.frontier.key(p, "quarantine")) == 5

    assert run(redis_url, tmp_path, work).stat("quarantined") == 5


def test_what_was_not_read_is_no_page(redis_url: str, tmp_path: Path) -> None:
    """Good pages, then images and answers to HEAD only: nobody has blocked us."""

    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        for n in range(30):
            desk.put(Request(f"https://a.org/{n}", method="HEAD" if n % 2 and n > 9 else "GET", priority=-n // 15))
        for n in range(30):
            request = await desk.request()
            is_page = n < 10
            desk.answer(request, body=TEA if is_page else b"", flags=() if is_page or request.method == "HEAD" else ("wrong_type",))
            await desk.passes(0.05)
        await desk.settled()
        p = desk.frontier.partition_of("a.org")
        assert await desk.redis.hget(desk.frontier.key(p, "ctr"), "blocked") is None

    assert run(redis_url, tmp_path, work).stat("refusals") == 0


def test_a_page_that_was_cut_before_its_first_byte_is_no_refusal(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put("https://a.org/cut", "https://a.org/empty")
        for _ in range(2):
            request = await desk.request()
            desk.answer(request, body=b"", flags=("truncated",) if request.url.endswith("cut") else ())
        await desk.settled()

    assert run(redis_url, tmp_path, work).stat("refusals") == 1


@pytest.mark.parametrize("fate", ["answered", "failed"])
def test_the_slot_lets_a_request_go_whatever_became_of_it(redis_url: str, tmp_path: Path, fate: str) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put("https://a.org/x")
        request = await desk.request()
        desk.answer(request) if fate == "answered" else desk.fail(request, StoreError("full"))
        assert desk.slot.inprogress == set()
        assert desk.scheduler.job_of(request) is None
        desk.slot.add_request(other := Request("https://b.org/"))  # of somebody else's
        desk.slot.remove_request(other)
        await until(lambda: not desk.scheduler.crawl.worker.in_hand)

    run(redis_url, tmp_path, work)


# -- robots.txt ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 301, 403, 404, 429, 500, 503])
@pytest.mark.parametrize("location", ["/r.txt", "https://b.org/r.txt", "https://www.a.org/r.txt", ""])
def test_a_robots_txt_is_never_the_spider_s(redis_url: str, tmp_path: Path, status: int, location: str) -> None:
    async def work(desk: Desk) -> None:
        desk.put(Request("https://a.org/x", callback=desk.spider.parse, errback=desk.spider.not_there, meta={"page": 1}))
        request = await desk.request()
        assert (request.url, request.method, request.dont_filter) == ("https://a.org/robots.txt", "GET", True)
        assert request.callback not in (None, desk.spider.parse)
        assert request.errback not in (None, desk.spider.not_there)
        assert request.meta["crawlweb_any_type"]
        assert "page" not in request.meta
        assert not desk.answer(request, status, {"Location": location, "Retry-After": "1"}, b"")
        await until(lambda: not desk.scheduler.crawl.worker.in_hand or desk.scheduler.crawl.worker._jobs.heap)
        assert await desk.dead() == []
        await desk.audit()

    run(redis_url, tmp_path, work)


def test_rules_hold_for_this_worker_at_once_and_for_others_from_redis(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        desk.put("https://a.org/no", "https://a.org/yes")
        desk.answer(await desk.request(), 200, {}, DISALLOW)
        request = await desk.request()
        assert request.url == "https://a.org/yes"
        desk.answer(request)
        await desk.settled()
        (kept,) = await desk.frontier.robots("a.org", ["https://a.org"])
        assert kept
        assert kept.value == robots.Answer("rules", DISALLOW).pack()

    desk = run(redis_url, tmp_path, work)
    assert (desk.stat("robots/disallowed"), desk.stat("robots/fetched/rules")) == (1, 1)


@pytest.mark.parametrize(
    ("chain", "stats"),
    [
        (["https://b.org/r"], {"redirect_other_host": 1}),
        (["https://b.org/r", "https://www.a.org/r"], {"redirect_other_host": 1, "redirect": 1}),
        (["https://www.a.org/r", "https://b.org/r"], {"redirect_other_host": 1, "redirect": 1}),
        (["https://b.org/r", "https://c.org/r", "https://b.org/s"], {"redirect_other_host": 1, "redirect": 2}),
        (["/1", "/2", "/3", "/4", "/5"], {"redirect": 5}),
    ],
)
def test_a_robots_txt_is_followed_where_it_leads_and_its_pages_come_after(
    redis_url: str, tmp_path: Path, chain: list[str], stats: dict[str, int]
) -> None:
    async def work(desk: Desk) -> None:
        desk.put("https://a.org/no", "https://a.org/yes")
        asked = "https://a.org/robots.txt"
        for location in [*chain, ""]:
            request = await desk.request()
            assert request.url == asked
            if location:
                await desk.told(request, 302, {"Location": location})
                asked = urljoin(asked, location)
        desk.answer(request, 200, {}, DISALLOW)
        request = await desk.request()
        assert request.url == "https://a.org/yes"
        desk.answer(request)
        await desk.settled()
        assert (await desk.audit())["pending"] == 0

    desk = run(redis_url, tmp_path, work)
    assert {name: desk.stat(f"robots/fetched/{name}") for name in stats} == stats
    assert (desk.stat("robots/fetched/rules"), desk.stat("robots/disallowed")) == (1, 1)


def test_a_robots_txt_elsewhere_is_fetched_though_that_host_is_out_of_scope(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        desk.put("https://a.org/", "https://a.org/moved")
        await desk.told(await desk.request(), 301, {"Location": "https://b.org/robots.txt"})
        request = await desk.request()
        assert request.url == "https://b.org/robots.txt"
        desk.answer(request, 404)
        for _ in range(2):
            request = await desk.request()
            if request.url == "https://a.org/moved":
                desk.answer(request, 301, {"Location": "https://b.org/page"})
            else:
                desk.answer(request)
        await desk.settled()
        assert (await desk.audit())["pending"] == 0

    desk = run(redis_url, tmp_path, work, arguments=SpiderArguments(seeds=None, scope="domain", max_pages=None, max_depth=None))
    assert desk.stat("redirects/out_of_scope") == 1


@pytest.mark.parametrize("how", [503, "dns_servfail", "connect_refused", "private_address"])
def test_whoever_asked_waits_when_another_host_does_not_have_it(redis_url: str, tmp_path: Path, how: int | str) -> None:
    async def work(desk: Desk) -> None:
        desk.put("https://a.org/x")
        await desk.told(await desk.request(), 301, {"Location": "https://b.org/robots.txt"})
        request = await desk.request()
        if isinstance(how, int):
            desk.answer(request, how)
        else:
            desk.fail(request, FetchError(how))
        await desk.settled()
        assert await desk.dead() == []
        assert (await desk.audit())["pending"] == 1
        await desk.passes(3600)
        assert (await desk.request()).url == "https://a.org/robots.txt"

    run(redis_url, tmp_path, work)


def test_an_older_copy_is_learned_for_a_moment_only(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", robots.Answer("rules", DISALLOW), 90_000)
        desk.put("https://a.org/no", "https://a.org/yes")
        desk.answer(await desk.request(), 500)
        assert (await desk.request()).url == "https://a.org/yes"

    desk = run(redis_url, tmp_path, work)
    assert (desk.stat("robots/fetched/stale"), desk.stat("robots/disallowed")) == (1, 1)


def test_an_answer_from_another_host_may_be_faster_than_the_outcome_that_waits_for_it(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        desk.put("https://a.org/page")
        desk.answer(await desk.request(), 301, {"Location": "https://b.org/r"})
        desk.answer(await desk.request(), 404)
        assert (await desk.request()).url == "https://a.org/page"

    run(redis_url, tmp_path, work)


def test_a_page_is_not_done_because_a_middleware_replaced_the_request_for_its_robots_txt(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        desk.put("https://a.org/x")
        desk.slot.remove_request(await desk.request())
        await until(lambda: desk.stat("errors/no_outcome"))
        await until(lambda: not desk.scheduler.crawl.worker.in_hand)
        await desk.passes(60)
        job = desk.scheduler.job_of(await desk.request())
        assert job
        assert (job.lease.entry.url, job.robots_url) == ("https://a.org/x", "https://a.org/robots.txt")

    assert run(redis_url, tmp_path, work).stat("replaced") == 0


def test_a_request_for_a_robots_txt_that_comes_back_unfetched_is_asked_for_again(redis_url: str, tmp_path: Path) -> None:
    """Also one at another host: it is not a new URL for the frontier."""

    async def work(desk: Desk) -> None:
        desk.put("https://a.org/x")
        request = await desk.request()
        assert desk.scheduler.enqueue_request(request)
        desk.slot.remove_request(request)
        await desk.told(await desk.request(), 301, {"Location": "https://b.org/r"})
        request = await desk.request()
        assert request.url == "https://b.org/r"
        assert not desk.fail(request, LeaseExpired("too short"), Sent())
        request = await desk.request()
        assert request.url == "https://b.org/r"
        desk.answer(request, 404)
        desk.answer(await desk.request())
        await desk.settled()
        assert (await desk.audit())["pending"] == 0

    assert run(redis_url, tmp_path, work).stat("links/enqueued") == 2


# -- requests that only this process can make ----------------------------------------------------------------------------


def local(url: str, **more: Any) -> Request:
    """Nobody else knows its callback."""

    def parse_local(response: Response) -> None: ...

    return Request(url, callback=parse_local, dont_filter=True, **more)


@pytest.mark.parametrize("end", ["page", "redirect", "dead"])
def test_a_local_request_is_kept_until_it_is_done(redis_url: str, tmp_path: Path, end: str) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        mine = local("https://a.org/x")
        desk.put(mine)
        request = await desk.request()
        assert request is mine
        desk.fail(request, LeaseExpired("too short"), Sent())
        request = await desk.request()
        assert request is mine
        if end == "redirect":
            desk.answer(request, 301, {"Location": "/y"})
            request = await desk.request()
            assert (request.url, request.callback) == ("https://a.org/y", mine.callback)
        if end == "dead":
            desk.fail(request, FetchError("private_address"))
        else:
            desk.answer(request)
        await desk.settled()
        assert desk.scheduler._local._kept == {}

    run(redis_url, tmp_path, work)


INHERITED = {"crawlweb_ip": "192.0.2.9", "crawlweb_any_type": True, "crawlweb_warc": None, "own": 1}


@pytest.mark.parametrize("make", [local, Request], ids=["local", "plain"])
def test_what_a_callback_passed_on_of_another_response_is_left_out(redis_url: str, tmp_path: Path, make: Callable[..., Request]) -> None:
    """meta=response.meta: above all, another host's address."""

    async def work(desk: Desk) -> None:
        await desk.keep("https://b.org", ALLOW)
        desk.put(make("https://b.org/x", meta=dict(INHERITED)))
        request = await desk.request()
        assert {name for name in request.meta if name in INHERITED} == {"own"}

    run(redis_url, tmp_path, work)


def test_a_request_goes_to_the_address_whose_turn_it_has_and_to_no_other(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://b.org", ALLOW)
        desk.put(local("https://b.org/x"))
        request = await desk.request()
        assert request.meta["crawlweb_ip"] == "127.0.0.1"
        desk.fail(request, LeaseExpired("too short"), Sent())

        async def nowhere(name: str) -> str:  # noqa: ARG001
            return ""

        desk.scheduler.crawl.worker._admission._address_of = nowhere
        assert "crawlweb_ip" not in (await desk.request()).meta

    run(redis_url, tmp_path, work, CRAWLWEB_IP_DELAY_S=0.02)


# -- the end -------------------------------------------------------------------------------------------------------------


def test_closing_gives_back_what_is_not_begun_and_waits_for_what_is(redis_url: str, tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        await desk.keep("https://b.org", ALLOW)
        desk.put("https://a.org/x")
        request = await desk.request()
        desk.put("https://b.org/x")
        await until(lambda: desk.scheduler.crawl.worker._jobs.heap)
        closing = asyncio.ensure_future(desk.slot.close())
        await until(lambda: desk.stat("leases/returned"))
        assert desk.scheduler.next_request() is None
        assert not closing.done()
        desk.answer(request)
        await closing
        await until(lambda: not desk.scheduler.crawl.worker.in_hand)
        found = await desk.audit()
        assert (found["pending"], found["leased"]) == (1, 0)

    run(redis_url, tmp_path, work)


def test_closing_in_the_engine_s_order_gives_back_leases_whose_names_are_being_looked_up(redis_url: str, tmp_path: Path) -> None:
    """The slot, then the download handler with its resolver, then the scheduler."""

    async def work(desk: Desk) -> None:
        await desk.keep("https://silent.org", ALLOW)
        desk.put("https://silent.org/x")
        await until(lambda: desk.scheduler._resolver._in_flight)
        await desk.slot.close()
        await desk.scheduler._resolver.close()
        await desk.scheduler.crawl.worker.close()
        assert (await desk.audit())["leased"] == 0

    assert run(redis_url, tmp_path, work).stat("leases/returned") == 1


def test_a_request_of_this_process_alone_is_forgotten_when_it_is_a_dead_letter(redis_url: str, tmp_path: Any) -> None:

    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put(local("https://a.org/x"))
        for _ in range(5):
            desk.fail(await desk.request(), FetchError("bad_response"))
            await until(lambda: not desk.scheduler.crawl.worker.in_hand)
            await desk.passes(3600)
            await asyncio.sleep(0.05)
            if (await desk.frontier.counts()).pending == 0:
                break
        assert len(await desk.dead()) == 1
        assert desk.scheduler._local._kept == {}

    run(redis_url, tmp_path, work, CRAWLWEB_MODE="once", CRAWLWEB_GIVE_UP_S=60)


@pytest.mark.parametrize("location", ["https://a.org/seen", "https://b.org/out"])
def test_a_request_of_this_process_alone_is_forgotten_when_its_redirect_leads_to_what_is_seen_or_out_of_scope(
    redis_url: str, tmp_path: Any, location: str
) -> None:
    async def work(desk: Desk) -> None:
        await desk.keep("https://a.org", ALLOW)
        desk.put("https://a.org/seen")
        desk.answer(await desk.request())
        desk.put(local("https://a.org/x"))
        desk.answer(await desk.request(), 301, {"Location": location})
        await desk.settled()
        assert (await desk.audit())["pending"] == 0
        assert desk.scheduler._local._kept == {}

    arguments = SpiderArguments(scope="domain")
    run(redis_url, tmp_path, work, arguments=arguments)
