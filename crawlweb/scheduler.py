"""The scheduler: Scrapy's engine on one side, this worker's share of the frontier on the other. Its hooks touch memory only."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import secrets
from collections.abc import Container, Coroutine, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.defer import deferred_from_coro

from .crawl import Crawl, Hooks
from .default_settings import NAMES, Config, load
from .download import in_flight_of, raise_file_limit, resolver_of
from .errors import ConfigError, FetchError, FrontierError
from .frontier.rows import EXACT, NORMAL, UNCHECKED, Link, Outcome
from .job import Job
from .outcome import Judge, Sent, Verdict
from .policy.addresses import Exceptions
from .policy.canonical import Canonicalizer
from .policy.priority import SEED_QUEUE, front_queue, path_depth
from .probes import Probes
from .records import Entry, Target
from .requests import LocalRequests, NotSerialisable, fingerprint, from_fields, to_fields
from .rulebook import RULES_S, STALE_S
from .seeds import SpiderArguments
from .start_urls import start_urls_of
from .stats import summed

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure
    from typing_extensions import Self

logger = logging.getLogger(__name__)

DOWNLOAD_SLOT = "crawlweb"  # one slot without a delay of its own: the frontier keeps hosts apart (addon.py gives it its settings)
CONCURRENCY = 2000  # leases in hand where CONCURRENT_REQUESTS is 0, no bound
LEASES_AHEAD = 64
FILES_KEPT = 200  # for Redis, WARC, logs, look-ups, and leases ahead that turn into fetches
MARGIN = 1.2  # times the download cap: a fetch is begun only if its lease lasts so long
AT_ONCE = 16  # the engine takes requests until there is none: then other callbacks get their turn
LOCAL_WAIT_S = 5.0  # a request that only another process can make waits so long before it is offered again
LOCAL_TRIES = 5
# Nothing of a page is in a cycle: Python's own (700, 10, 10) look through all pages in hand, in vain. Larger ones than these hold up the
# loop: with 2,500 fetches in flight a collection takes 5 us an object.
GC_THRESHOLDS = (3000, 2, 1000)
FRONTIER_ERROR = "frontier_error"


class Scheduler(BaseScheduler):
    """One a crawler. `crawl` is there from `open` on."""

    crawl: Crawl

    def __init__(self, crawler: Crawler, config: Config) -> None:
        settings = crawler.settings
        self.crawler, self.config = crawler, config
        self.canonicalizer = Canonicalizer(config.tracking_parameters, max_url_chars=config.max_url_chars)
        self._timeout_s = settings.getfloat("DOWNLOAD_TIMEOUT")
        self._capacity = (
            _at_most(settings.getint("CONCURRENT_REQUESTS") or CONCURRENCY, raise_file_limit(), config.keep_alive_most) + LEASES_AHEAD
        )
        self._redis_params = settings.getdict("REDIS_PARAMS")
        self._worker_id = secrets.token_hex(4)
        self._local = LocalRequests(self._worker_id)
        self._jobs: dict[Request, Job] = {}
        self._verdicts: dict[Request, Verdict] = {}
        self._judge = Judge(
            self.canonicalizer,
            max_redirects=config.max_redirects,
            give_up_s=config.give_up_s if config.mode == "once" else None,
            timeout_s=self._timeout_s,
            rng=random.Random(),
            crawl_delay_cap_s=config.crawl_delay_cap_s,
            unix_now=lambda: self.crawl.frontier.unix_now(),
        )
        assert crawler.stats is not None
        self._inc_value = crawler.stats.inc_value
        self._probes = Probes(config.probe_days)
        self._resolver = resolver_of(crawler)
        self._in_flight = in_flight_of(crawler)
        self._in_flight.on_room = self._wake
        self._ip_exceptions = Exceptions(config.ip_delay_except)
        self._counted: dict[str, int] = {}  # of others' counters, in the stats
        self._given = 0  # requests in this turn of the loop
        self._reason: str | None = None
        self._warned_local = False
        self._gc_thresholds = gc.get_threshold()
        if config.lease_s < 3 * self._timeout_s:
            raise ConfigError(f"CRAWLWEB_LEASE_S={config.lease_s:g}: at least 3 times DOWNLOAD_TIMEOUT={self._timeout_s:g} expected")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        try:
            return cls(crawler, load(crawler.settings))
        except ConfigError as e:
            raise SystemExit(f"crawlweb: {e}") from None

    # -- start and end ------------------------------------------------------------------------------------------------

    def open(self, spider: Spider) -> Deferred[None]:
        return deferred_from_coro(self._open(spider))

    def close(self, reason: str) -> Deferred[None]:  # noqa: ARG002
        return deferred_from_coro(self._close())

    async def _open(self, spider: Spider) -> None:
        self._spider = spider
        arguments = getattr(spider, "arguments", None)
        if not isinstance(arguments, SpiderArguments):
            arguments = SpiderArguments()
        settings = self.crawler.settings
        try:
            start_urls = start_urls_of(spider, self.config, self.canonicalizer)
        except ConfigError as e:
            raise SystemExit(f"crawlweb: {e}") from None
        self.crawl = Crawl(
            self.config,
            arguments,
            self._worker_id,
            self.canonicalizer,
            Hooks(
                self._wake,
                self._ended,
                self.count,
                self.gauge,
                self._starting,
                self._address_of,
                self._local.drop,
                self._stats,
                self._has_room,
            ),
            settings.get("USER_AGENT") or "",
        )
        try:
            await self.crawl.open(
                explicit={name for name in NAMES if settings.get(name) is not None},
                redis_params=self._redis_params,
                capacity=self._capacity,
                fetch_s=self._timeout_s * MARGIN,
                start_urls=start_urls,
            )
        except (ConfigError, FrontierError) as e:
            raise SystemExit(f"crawlweb: {e}") from None
        self._watch_slot()
        gc.freeze()  # what a start leaves is there to stay: a collection of all of it would hold up the loop
        gc.set_threshold(*GC_THRESHOLDS)

    async def _close(self) -> None:
        await self.crawl.close()
        gc.set_threshold(*self._gc_thresholds)
        gc.unfreeze()  # extension modules complain of what is left at the end of the process,
        gc.collect()  # and a process may run another crawl: what was frozen is of no age that is collected soon

    def _stats(self) -> dict[str, int]:
        """What counts for the whole crawl, with what others have counted up to now."""
        stats = self.crawler.stats
        assert stats is not None
        self.count("quarantined", self._rise("quarantined", self.crawl.frontier.quarantined))
        self.count("links/invalid", self._rise("invalid", self.canonicalizer.invalid))
        self.count("links/repeated", self._rise("repeated", self.canonicalizer.repeated))
        stats.set_value("crawlweb/redis/calls", self.crawl.frontier.calls)
        self.count("in_flight/waits", self._rise("in_flight", self._in_flight.waits))
        stats.set_value("crawlweb/in_flight/bytes", self._in_flight.bytes)
        stats.set_value("crawlweb/in_flight/bytes_most", self._in_flight.most_bytes)
        return summed(stats.get_stats())

    def _rise(self, counter: str, value: int) -> int:
        rise = value - self._counted.get(counter, 0)
        self._counted[counter] = value
        return rise

    def _watch_slot(self) -> None:
        """The engine's slot: in `remove_request` every way of a request ends, `close` is the first to know of closing."""
        slot: Any = self.crawler.engine._slot
        remove, close = slot.remove_request, slot.close

        def remove_request(request: Request) -> None:
            self._finished(request)
            remove(request)

        async def close_slot() -> None:
            self.crawl.worker.stop()
            await close()

        slot.remove_request, slot.close = remove_request, close_slot

    def _wake(self) -> None:
        """Makes the engine ask again; without it, it would on its next heartbeat."""
        slot: Any = getattr(self.crawler.engine, "_slot", None)
        if slot is not None and slot.closing is None:
            slot.nextcall.schedule()

    async def _address_of(self, name: str) -> str:
        """Looks a name up as soon as it is known that it will be needed."""
        try:
            ip = (await self._resolver.resolve(name)).ip
        except FetchError:
            return ""
        return "" if self.crawl.frontier.limits.ip_delay_s == 0 or self._ip_exceptions.contains(ip) else ip

    def _has_room(self) -> bool:
        return self._in_flight.has_room

    def _starting(self) -> bool:
        return getattr(self.crawler.engine, "_start", None) is not None

    def _ended(self, reason: str) -> None:
        self._reason = "finished" if reason == "drained" else reason
        self._wake()

    def count(self, name: str, by: int = 1) -> None:
        """A stat of crawlweb's rises."""
        if by:
            self._inc_value(f"crawlweb/{name}", by)

    def gauge(self, name: str, value: float) -> None:
        """A stat of crawlweb's has a new value."""
        assert self.crawler.stats is not None
        self.crawler.stats.set_value(f"crawlweb/{name}", value)

    # -- the engine's hooks --------------------------------------------------------------------------------------------

    def has_pending_requests(self) -> bool:
        return self._reason is None

    @property
    def reason(self) -> str | None:
        """Why the crawl is over; None while it is not."""
        return self._reason

    def next_request(self) -> Request | None:
        while self._given < AT_ONCE and (job := self.crawl.worker.next_job()) is not None:
            try:
                request = self._request(job)
            except ValueError as e:
                logger.warning("an entry in Redis is not ours: %s", e)
                self.count("quarantined")
                self.crawl.worker.finish(job, Outcome(job.lease, "q", arg="request"))
                continue
            if request is not None:
                self._jobs[request] = job
                if not self._given:
                    asyncio.get_running_loop().call_soon(self._next_turn)
                self._given += 1
                return request
        return None

    def _next_turn(self) -> None:
        given, self._given = self._given, 0
        if given == AT_ONCE:
            self._wake()

    def enqueue_request(self, request: Request) -> bool:
        """A request that we gave out comes back unfetched, or a new one is put into the frontier. Never raises."""
        try:
            job = self._jobs.get(request)
            if job is not None:  # given back unfetched, unless a verdict says what became of it
                self._verdicts.setdefault(request, Verdict(Outcome(job.lease, "l"), "leases/returned"))
                return True
            return self._enqueue(request)
        except Exception:
            logger.exception("%s could not be put into the frontier", request)
            self.count("errors/enqueue")
            return False

    def _enqueue(self, request: Request) -> bool:
        target = self.canonicalizer.target(request.url)
        if target is None:
            return False
        try:
            fields = to_fields(request, self._spider)
        except NotSerialisable as e:
            if not self._warned_local:
                self._warned_local = True
                logger.warning("%s stays in this worker's memory and is lost with it: %s (said once)", request, e)
            fields = self._local.keep(request)
        depth = request.meta.get("depth", 0)
        is_seed = bool(request.meta.pop("is_start_request", None))  # a callback may pass its meta on
        how = EXACT if is_seed else UNCHECKED if request.dont_filter else NORMAL
        queue = SEED_QUEUE if is_seed else max(1, min(9, front_queue(path_depth(target.url)) - request.priority))
        entry = Entry(target.url, queue, depth if isinstance(depth, int) and depth >= 0 else 0, request=fields)
        self.crawl.worker.outbox.add_links([Link(target.host, fingerprint(target.key, request), entry, how)])
        return True

    def _request(self, job: Job) -> Request | None:
        """The Scrapy request of a job; None if another process has it, and the job is finished then. ValueError if it is not ours."""
        lease, entry = job.lease, job.lease.entry
        if job.robots_url:
            meta = {"verbatim_url": True, "crawlweb_any_type": True, "handle_httpstatus_all": True}
            request = Request(job.robots_url, callback=_no_page, dont_filter=True, meta=meta)
        elif not entry.request:
            request = Request(entry.url, dont_filter=True, meta={"verbatim_url": True})
        elif LocalRequests.is_local(entry.request):
            kept = self._local.take(entry.url, entry.request)
            if kept is None:
                self.count("local/elsewhere")
                self.crawl.worker.finish(job, Outcome(lease, "r", wait_s=LOCAL_WAIT_S, arg=(LOCAL_TRIES, "local_request_lost")))
                return None
            request = kept
        else:
            request = from_fields(entry.url, entry.request, self._spider)
        request.errback = request.errback or self._failed
        for name in [name for name in request.meta if isinstance(name, str) and name.startswith("crawlweb_") and not job.robots_url]:
            del request.meta[name]  # of the response that a callback passed on
        request.meta.update(depth=entry.depth, download_slot=DOWNLOAD_SLOT, crawlweb_deadline=job.until)
        if job.ip:
            request.meta["crawlweb_ip"] = job.ip
        if lease.apart_s:
            request.meta["crawlweb_spacing"] = lease.host, lease.apart_s
        return request

    def _failed(self, failure: Failure) -> Failure:
        """Errback of requests that have none: only marks that there was an exception."""
        request: Request = failure.request  # type: ignore[attr-defined]
        job = self._jobs.get(request)
        if job is not None and request not in self._verdicts:
            self.failed(request, failure.value)
        return failure

    # -- what the middlewares and the spider tell ------------------------------------------------------------------------

    def job_of(self, request: Request | None) -> Job | None:
        return self._jobs.get(request) if request is not None else None

    def judged(self, request: Request, response: Response, sent: Sent) -> Verdict:
        """What a response means for its URL."""
        job = self._jobs[request]
        follow = not request.meta.get("dont_redirect") and not self._wants(request, response.status)
        is_unread = "wrong_type" in response.flags or request.method == "HEAD" or ("truncated" in response.flags and not response.body)
        body = None if is_unread else response.body
        return self._judge.response(job, response.status, partial(header_of, response), body, sent, follow).seen_late(sent)

    async def may_store(self, request: Request, verdict: Verdict) -> bool:
        """False: it is a page that would be one more than max_pages. Finds out whether the lease is still ours."""
        job, worker = self._jobs[request], self.crawl.worker
        job.is_late = not await worker.keeps(job)
        if not verdict.is_page or worker.limit is None or await worker.limit.counts(job.lease):
            return True
        released = Outcome(job.lease, "l", verdict.outcome.ended, verdict.outcome.latency_s)
        self._verdicts[request] = Verdict(released, "pages/over_limit", is_last=False)
        return False

    def answered(self, request: Request, verdict: Verdict) -> bool:
        """A response came and is stored. Is it the spider's? Nothing follows from one whose URL somebody else has by now."""
        job = self._jobs[request]
        if job.is_late:
            verdict = replace(verdict, stat=None if verdict.link else verdict.stat, link=None, is_last=False)
        if verdict.link is not None:
            if job.robots_url or self.crawl.scope.contains(Target(verdict.link.entry.url, verdict.link.key, verdict.link.host)):
                self.crawl.worker.outbox.add_links([verdict.link], job.ticket)
            else:
                self.count("redirects/out_of_scope")
                verdict = replace(verdict, link=None)
        self._verdicts[request] = verdict
        return verdict.is_last

    async def keep_record(self, request: Request, status: int = 0) -> None:
        """No page came of a URL that was due again: its record tells when it is the next time."""
        job, verdict, contents = self._jobs[request], self._verdicts.get(request), self.crawl.contents
        if not job.lease.entry.again or not contents.config.records:
            return
        if verdict is None or verdict.outcome.record or verdict.outcome.way not in "dxr":
            return
        kept = await contents.after_failure(job.lease, status, self.crawl.frontier.unix_now())
        if kept is not None:
            outcome = replace(verdict.outcome, record_key=kept[0], record=kept[1])
            self._verdicts[request] = replace(verdict, outcome=outcome)

    def _wants(self, request: Request, status: int) -> bool:
        """Has the spider asked for responses of this status?"""
        wanted = request.meta.get("handle_httpstatus_list", getattr(self._spider, "handle_httpstatus_list", ()))
        return bool(request.meta.get("handle_httpstatus_all")) or (isinstance(wanted, Container) and status in wanted)

    def failed(self, request: Request, error: BaseException | None, sent: Sent | None = None) -> bool:
        """No response. Is the error the spider's?"""
        sent = sent or Sent()
        verdict = self._verdicts[request] = self._judge.failure(self._jobs[request], error, sent).seen_late(sent)
        return verdict.is_last

    def _learn(self, job: Job, verdict: Verdict) -> None:
        """What a request for robots.txt brought."""
        worker = self.crawl.worker
        if verdict.rules is not None:
            worker.rulebook.learn(job.origin, verdict.rules, STALE_S if verdict.outcome.stale_robots else RULES_S)
        if verdict.news is not None:
            worker.tell(job, verdict.news)

    def add_links(self, request: Request, targets: Sequence[Target]) -> None:
        """Links of a page, in bulk; the page is complete when they are in the frontier. They pass no spider middleware."""
        job = self._jobs.get(request)
        if job is not None:
            self.crawl.add_links(targets, job.lease, job.ticket)

    def hold(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        """A page is complete only when this is done, too."""
        self.crawl.worker.outbox.hold(self._jobs[request].ticket, work, lambda: None)

    def _finished(self, request: Request) -> None:
        if held := request.meta.pop("crawlweb_held", None):
            held.release()
        job = self._jobs.pop(request, None)
        if job is None:
            return
        verdict = self._verdicts.pop(request, None)
        if verdict is None:
            # Our errback saw no exception: a middleware answered with another request, which is on its way.
            replaced = request.errback == self._failed and not job.robots_url
            verdict = Verdict(Outcome(job.lease, "d"), "replaced") if replaced else self._judge.failure(job, None, Sent())
        if verdict.stat:
            self.count(verdict.stat)
        if job.robots_url:
            self._learn(job, verdict)
        if verdict.is_page and (probe := self._probes.page(job.lease, self.crawl.frontier.unix_now())):
            self.crawl.worker.outbox.add_links([probe], job.ticket)
        if job.lease.entry.request and verdict.outcome.way in "dx" and verdict.link is None:
            self._local.drop(job.lease.entry.request)
        self.crawl.worker.finish(job, verdict.outcome)


def _at_most(fetches: int, files: int, connections: int) -> int:
    """How many fetches there may be at a time: each takes a file, as do connections that are kept."""
    fewer = max(1, files - FILES_KEPT - connections)
    if fetches <= fewer:
        return fetches
    logger.warning(
        "CONCURRENT_REQUESTS=%d: this process may open %d files (ulimit -n, or LimitNOFILE= of its service), so there are %d fetches at a "
        "time at most",
        fetches,
        files,
        fewer,
    )
    return fewer


def header_of(response: Response, name: str) -> str | None:
    """As browsers read it: UTF-8 if it is, else Latin-1."""
    values: list[bytes] | None = dict.get(response.headers, _header_key(name))  # Headers.get makes each name and default anew
    if not values:
        return None
    value = values[-1]
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


@lru_cache(maxsize=64)
def _header_key(name: str) -> bytes:
    return name.title().encode()


def _no_page(response: Response) -> None:
    """robots.txt is for us, not for the spider."""
