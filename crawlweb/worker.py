"""A worker's share of the frontier: leases ahead, and what to do with each. What goes out is outbox.py's, which leases last longer
renewals.py's, the end of the crawl end.py's.

Knows no Scrapy.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

from .end import End
from .errors import FrontierError, FrontierFull
from .frontier.events import Events
from .frontier.frontier import CALM_S, Frontier
from .frontier.members import Members
from .frontier.memory import MemoryWatch
from .frontier.meta import Meta
from .frontier.rows import Lease, Link, Outcome
from .job import ROBOTS_FOR, Job, check_probe, robots_requested
from .limit import PageLimit
from .outbox import FLUSH_S, Outbox, Told
from .pace import Pace
from .policy import robots
from .policy.hosts import is_on_host, name_of
from .records import boottime
from .recovery import Recovery
from .renewals import Renewals
from .rota import MIN_S, Rota
from .rulebook import Kept, Rulebook
from .share import Share
from .starts import Starts
from .turns import IpTurns

logger = logging.getLogger(__name__)

LEASE_BATCH = 64
LINKS_WAITING = 100_000  # no page is begun while more links than this wait to be sent
POLL_MAX_S = 1.0  # a partition that has nothing is asked this often at first
POLLS_LEAST, POLLS_AT_ONCE = 4, 16  # the more, the more leases may be had
FREE_LEAST = 16  # leases, or a quarter of the capacity: no poll is made for fewer while there are jobs
NEW_S = 0.25  # or a quarter of the delay: a host that was not known waits so long to be leased, while there is other work
HUNG_S = 0.25  # a partition that takes longer to answer does not hold back the others
RENEW_S = 2.0  # well within the time that nobody reclaims after a silence of Redis
CLOSE_S = 30.0
CANCEL_S = 2.0
SHOWN_S = 0.005  # the time to look at what comes next on a host that disallows much


class Worker:
    """`capacity`: leases in hand at a time. `address_of`: of a host name, '' where no clock of its address is in force. `wake` is called
    when `next_job` may have something, `ended` when the crawl is over (why); `starting`: is the spider still giving start requests?
    `dropped`: a request will not come back; `stuck_s`: the lease of a page that the engine has for so long is not renewed any more."""

    def __init__(
        self,
        frontier: Frontier,
        meta: Meta,
        *,
        capacity: int,
        fetch_s: float,
        once: bool,
        max_pages: int | None,
        seen_cache_keys: int,
        wake: Callable[[], None],
        ended: Callable[[str], None],
        count: Callable[..., None],
        url_key: Callable[[str], bytes],
        starting: Callable[[], bool] = lambda: False,
        dropped: Callable[[dict[str, object]], None] = lambda _: None,
        address_of: Callable[[str], Awaitable[str]] | None = None,
        crawl_delay_cap_s: float = robots.CRAWL_DELAY_CAP_S,
        stuck_s: float = 3600.0,
        memory: MemoryWatch | None = None,
        pace: Pace | None = None,
        gauge: Callable[[str, float], None] = lambda *_: None,
        events: Events | None = None,
    ) -> None:
        self.frontier, self.meta = frontier, meta
        self.memory = memory or MemoryWatch(frontier, count=count)
        self.pace = pace or Pace(frontier)
        told = Told(self._found, self._completing, self._completed, dropped, count, self.run)
        self._dropped = dropped
        self.outbox = Outbox(frontier, told, self.memory, seen_cache_keys, self.pace, events)
        self._events = events
        self.closing = False
        self.in_hand: dict[str, Lease] = {}
        self.seeding = 0
        self.end: End | None = None  # there is one from `start` on, where the crawl ends
        self.starts: Starts | None = None  # where start URLs come from outside
        self._capacity, self._fetch_s, self._once = capacity, fetch_s, once
        self._free_least = max(1, min(FREE_LEAST, capacity // 4))
        self.limit = None if max_pages is None else PageLimit(meta, max_pages, url_key, self.run)
        self._wake, self._ended, self._count, self._starting = wake, ended, count, starting
        self._address_of = address_of
        self.rulebook = Rulebook(frontier, count, crawl_delay_cap_s)
        self._turns = IpTurns(frontier, self._turn_came, self._turn_refused)
        self._jobs: list[tuple[float, int, Job]] = []  # heap by not-before
        self._order = itertools.count()
        self.members = Members(frontier)
        self._rota = Rota(frontier.partitions, frontier.limits.look_ahead_s, POLL_MAX_S, random.Random())
        self._share = Share(
            self.members,
            frontier.worker,
            frontier.partitions,
            self._rota,
            busy=lambda: not self._is_idle,
            in_hand=lambda: len(self.in_hand),
            leases=lambda: self._leased,
            gauge=gauge,
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._wake_at: asyncio.TimerHandle | None = None
        self._started = 0.0
        self._polls = 0  # lease calls on their way, until their leases are jobs
        self._leased = 0
        self._failed = False  # Redis gave an answer that is an error
        self._under_way: set[int] = set()  # renewals by partition, -1: what is the crawl's
        self._resolving: dict[str, Job] = {}  # whose address is being looked up, by token
        self._renewals = Renewals(frontier, self.limit, self.in_hand, stuck_s=stuck_s, beside=self._beside, count=count)
        self._aside: list[Job] = []  # their partition's server has changed
        self._recovery = Recovery(
            frontier,
            self._tell_again,
            self._turns,
            in_hand=self.in_hand,
            running=self._renewals.running,
            fetch_s=fetch_s,
            forget=self._forget,
            done=self._recovered,
            spawn=self.run,
            count=count,
        )

    # -- what Scrapy's hooks call: memory only ----------------------------------------------------------------------

    def start(self) -> None:
        self._started = boottime()
        loops = [self._lease_forever(), self.outbox.flush_forever(), self._renew_forever()]
        loops += [self.memory.watch_forever(), self.pace.watch_forever(), self._share.beat_forever()]
        if self._address_of is not None:
            loops.append(self._turns.ask_forever())
        if self._once:
            self.end = self._make_end()
            loops.append(self.end.watch(lambda: self.closing))
        for loop in loops:
            self._spawn(loop)

    def _make_end(self) -> End:
        return End(
            self.frontier,
            self.meta,
            self._share,
            self.limit,
            busy=lambda: self.busy,
            idle=lambda: self._is_idle,
            outside=self.anything_outside,
            leases=lambda: self._leased,
            ended=self._ended,
        )

    def next_job(self) -> Job | None:
        """A job whose time has come; arranges to be woken when the next one's does."""
        if self.closing:
            return None
        if self.outbox.waiting > LINKS_WAITING:
            self._wake_in(POLL_MAX_S / 10)
            return None
        now = boottime()
        while self._jobs and self._jobs[0][0] <= now:
            job = heapq.heappop(self._jobs)[2]
            if self._recovery.is_doubtful(job.lease.partition):
                self._aside.append(job)
                continue
            if self._full or job.lease.is_gone or job.until - now < self._fetch_s:
                self.give_back(job)
                continue
            self._renewals.begun(job)
            return job
        if self._jobs:
            self._wake_in(self._jobs[0][0] - now)
        return None

    def finish(self, job: Job, outcome: Outcome) -> None:
        """The page of a job has left the engine."""
        token = job.lease.token
        if job.ip:
            self._turns.end(job.ip, token, None if outcome.ended is None else outcome.ended + outcome.cut_s)
        self._renewals.finished(token)
        self.outbox.finish(job.ticket, outcome)

    def tell(self, job: Job, news: Callable[[Lease], Outcome]) -> None:
        """The job is complete only when the host whose robots.txt it fetched knows."""
        host = job.robots_host
        self.outbox.hold(job.ticket, self.frontier.tell(host, news), lambda: self._ask(self.frontier.partition_of(host), 0))

    def give_back(self, job: Job) -> None:
        self._count("leases/returned")
        self.finish(job, Outcome(job.lease, "l"))

    @property
    def busy(self) -> bool:
        handing = self.starts is not None and self.starts.handing
        return bool(self.in_hand or self.seeding or handing or self.outbox.unsent or self._turns.unsent or self._starting())

    @property
    def enough(self) -> bool:
        """It takes no more work."""
        return self.closing or self._full

    async def anything_outside(self) -> bool:
        """Start URLs that the frontier does not have yet."""
        return self.starts is not None and await self.starts.anything_outside()

    @property
    def _full(self) -> bool:
        return self.limit is not None and self.limit.full

    # -- outcomes out -------------------------------------------------------------------------------------------------

    async def _completing(self, batch: Sequence[Outcome]) -> None:
        if self.limit is not None:
            await self.limit.end(batch)

    def _completed(self, p: int, batch: Sequence[Outcome], answer: str) -> None:
        for outcome, letter in zip(batch, answer, strict=True):
            self.in_hand.pop(outcome.lease.token, None)
            self._renewals.sent(outcome.lease.token)
            if letter != "k":
                self._count("leases/late" if letter == "g" else "dead")
            if letter == "x" and outcome.lease.entry.request:
                self._dropped(outcome.lease.entry.request)
        ends = [outcome.ended for outcome in batch if outcome.ended is not None]
        if not self.in_hand or len(ends) < len(batch):
            self._ask(p, 0)
        else:
            self._rota.ask_for(p, min(ends) + self.frontier.limits.min_delay_s - boottime())

    def _found(self, p: int) -> None:
        """New links are in a partition: of hosts that it knows and has its times for, most of them."""
        self._ask(p, min(NEW_S, self.frontier.limits.min_delay_s / 4) if self.in_hand else 0)

    # -- leases in ------------------------------------------------------------------------------------------------------

    def _ask(self, p: int, in_s: float) -> None:
        self._rota.ask(p, in_s)

    async def _lease_forever(self) -> None:
        rota = self._rota
        while not self.closing and not self._full:
            if not self.memory.has_room:
                await self.memory.room()
                continue
            if self.limit is not None:
                await self.limit.room()
            rota.asked.clear()
            free = self._capacity - len(self.in_hand)
            if self._jobs and free < self._free_least:
                free = 0
            if self.limit is not None:
                free = min(free, self.limit.leases)
            until_due_s = rota.until_due_s()
            if free > 0 and until_due_s <= 0:
                polls = max(min(free, POLLS_LEAST), min(free // FREE_LEAST, POLLS_AT_ONCE))
                some = rota.due(min(polls, await self.pace.room()))
                most = min(LEASE_BATCH, max(1, free // len(some)))
                await asyncio.wait([self._spawn(self._lease(p, most)) for p in some], timeout=HUNG_S)
                await asyncio.sleep(0)
                continue
            pause_s = max(MIN_S, min(until_due_s, POLL_MAX_S)) if free > 0 else POLL_MAX_S / 20
            try:
                await asyncio.wait_for(rota.asked.wait(), pause_s)
            except asyncio.TimeoutError:
                continue
            await asyncio.sleep(MIN_S)

    async def _lease(self, p: int, most: int) -> None:
        if self._recovery.is_doubtful(p):  # it is asked when that is over
            self._rota.answered(p, CALM_S, 0, most)
            return
        self._polls += 1
        try:
            try:
                may_reclaim = boottime() - max(self._started, self.frontier.outage.back_at) >= CALM_S  # others may be about to renew theirs
                next_s, leases = await self.frontier.lease(p, most, may_reclaim)
            except FrontierFull:
                self._rota.again(p)
                self.memory.refused()
                return
            self.memory.passed()
            self._rota.answered(p, next_s, len(leases), most)
            for lease in leases:
                self.in_hand[lease.token] = lease
            self._count("leases", len(leases))
            self._leased += len(leases)
            await self._admit(leases)
        finally:
            self._polls -= 1

    async def _admit(self, leases: list[Lease]) -> None:
        """Makes jobs of leases: of the host's own URLs, with a permit under max_pages, robots.txt of the origin known or to be fetched."""
        foreign = [lease for lease in leases if not is_on_host(lease.entry.url, lease.host)]
        for lease in foreign:
            self._count("quarantined")
            self.finish(Job(lease, ""), Outcome(lease, "q", arg="host"))
        leases = [lease for lease in leases if lease not in foreign] if foreign else leases
        if self.limit is not None and leases:
            refused = await self.limit.admit(leases)
            for outcome in refused:
                self.finish(Job(outcome.lease, ""), outcome)
            tokens = {outcome.lease.token for outcome in refused}
            leases = [lease for lease in leases if lease.token not in tokens]
        kept = await self.rulebook.look_up(lease for lease in leases if ROBOTS_FOR not in lease.entry.request)
        for lease in leases:
            self._make_job(lease, kept.get(robots.origin_of(lease.entry.url), Kept()))
        if leases:
            self._wake()

    def _make_job(self, lease: Lease, kept: Kept) -> None:
        origin = robots.origin_of(lease.entry.url)
        job = Job(lease, origin, robots_host=lease.host)
        try:
            check_probe(lease.entry.request)
            elsewhere = robots_requested(lease.entry.request)
        except ValueError:
            self._count("quarantined")
            self.finish(job, Outcome(lease, "q", arg="request"))
            return
        if elsewhere is not None:
            job.robots_host, job.origin, job.robots_hops, job.has_stale = elsewhere
            job.robots_url = lease.entry.url
        elif (rules := self.rulebook.of(origin)) is None:
            job.robots_url = robots.robots_url(origin)
            job.stale_robots, job.has_stale = kept.old, kept.old is not None
            if kept.hop is not None and is_on_host(kept.hop.to, lease.host):
                job.robots_url, job.robots_hops = kept.hop.to, kept.hop.hops
        elif not rules.allows(lease.entry.url):
            others = list(_disallowed(lease, origin, rules))
            self._count("robots/disallowed", 1 + len(others))
            self.finish(job, Outcome(lease, "n", arg=others))
            return
        if self.closing:
            self.give_back(job)
        elif self._address_of is None or lease.has_permission:
            self._push(job, lease.not_before)
        else:
            self._resolving[lease.token] = job
            self._spawn(self._resolve(job))

    def _push(self, job: Job, not_before: float) -> None:
        heapq.heappush(self._jobs, (not_before, next(self._order), job))

    # -- turns of addresses ---------------------------------------------------------------------------------------------

    async def _resolve(self, job: Job) -> None:
        """The name is looked up when the lease arrives; where that fails, the request will find the failure in the resolver's cache."""
        assert self._address_of is not None
        ip = await self._address_of(name_of(job.robots_url or job.lease.entry.url))
        if self._resolving.pop(job.lease.token, None) is None:  # given back meanwhile
            return
        job.ip = ip
        if ip:
            self._turns.wish(job, job.lease.not_before)
        else:
            self._push(job, job.lease.not_before)
            self._wake()

    def _turn_came(self, job: Job, not_before: float, until: float) -> None:
        job.ip_until = until
        if self.closing:
            self.give_back(job)
            return
        self._push(job, max(not_before, job.lease.not_before))
        self._wake()

    def _turn_refused(self, job: Job, wait_s: float) -> None:
        self._count("ip/refused")
        job.ip = ""
        self.finish(job, Outcome(job.lease, "l", wait_s=wait_s))

    def _recovered(self, partitions: Iterable[int]) -> None:
        for job in self._aside:
            self._push(job, job.lease.not_before)
        self._aside.clear()
        for p in partitions:
            self._ask(p, 0)
        self._wake()

    def _forget(self) -> None:
        self.outbox.forget()
        self.meta.server_changed()

    async def _tell_again(self) -> None:
        await self.meta.tell_again()
        if self.limit is not None:
            await self.limit.replay()
        if self._events is not None:
            await self._events.replay()

    # -- leases that last longer ----------------------------------------------------------------------------------------

    async def keeps(self, job: Job) -> bool:
        """Is the lease of a page that was fetched still this worker's?"""
        return await self._renewals.keeps(job.lease)

    def _give_back_old(self, latest: float) -> None:
        """What only waits to be fetched, and would not be before `latest`, goes back: it has no claim to last."""
        old = [row for row in self._jobs if row[2].until - self._fetch_s < latest]
        if old:
            self._jobs = [row for row in self._jobs if row[2].until - self._fetch_s >= latest]
            heapq.heapify(self._jobs)
            for _, _, job in old:
                self.give_back(job)

    async def _renew_forever(self) -> None:
        period_s = min(self.frontier.limits.lease_s / 3, RENEW_S)
        while not self.frontier.closing:
            await asyncio.sleep(period_s)
            self._give_back_old(boottime() + period_s)
            self._renewals.renew_due()
            self._beside(-1, self._keep_up())

    async def _keep_up(self) -> None:
        if self.seeding or self._starting():
            await self.meta.say_seeding(True)
        await self.meta.refresh_scope()
        await self.frontier.read_clock()

    def _beside(self, what: int, work: Coroutine[Any, Any, None]) -> None:
        """Starts what is done once a period, unless the last is still under way: a server that is away holds back what is its own."""
        if what in self._under_way:
            work.close()
            return
        self._under_way.add(what)
        self._spawn(work).add_done_callback(lambda _: self._under_way.discard(what))

    # -- the end --------------------------------------------------------------------------------------------------------

    @property
    def _is_idle(self) -> bool:
        """This worker has nothing to do, nor had its partitions. What it leases in this moment is pending to everybody who counts."""
        return not self.busy and (self._rota.is_quiet or self._full or bool(self._share.over))

    async def seed(self, batches: Iterable[list[Link]]) -> None:
        """Sends seeds batch by batch; the crawl does not end meanwhile. `batches` may read a file: each is made in a thread."""
        source = iter(batches)
        while (batch := await asyncio.to_thread(next, source, None)) is not None:
            self.outbox.add_links(batch)
            self._count("seeds", len(batch))
            while self.outbox.waiting > LINKS_WAITING // 10:
                await asyncio.sleep(FLUSH_S)
        while self.outbox.waiting:
            await asyncio.sleep(FLUSH_S)
        self.seeding -= 1
        await self.meta.say_seeding(False)

    def stop(self) -> None:
        """No further job; what is buffered goes back."""
        if not self.closing:
            self.closing = True
            self.memory.stop()
            self._spawn(self._share.leave())
            for job in (*self._turns.take_back(), *self._resolving.values()):
                job.ip = ""
                self.give_back(job)
            self._resolving.clear()
            for job in self._aside:
                self.give_back(job)
            self._aside.clear()
            while self._jobs:
                self.give_back(heapq.heappop(self._jobs)[2])

    async def close(self) -> None:
        """Sends everything that waits. After `CLOSE_S` without Redis the rest is left to expire."""
        self.stop()
        deadline = boottime() + CLOSE_S
        while (self.outbox.unsent or self._turns.unsent or self._polls or self._takes) and not self._failed and boottime() < deadline:
            await asyncio.sleep(FLUSH_S)
        if self.outbox.unsent:
            logger.error("not all could be sent to Redis: %d leases will expire, and their pages be fetched again", len(self.in_hand))
        self.frontier.closing = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # redis-py can swallow a cancellation
            await asyncio.wait(self._tasks, timeout=CANCEL_S)

    @property
    def _takes(self) -> bool:
        return self.starts is not None and (self.starts.asking or self.starts.handing)

    def arrived(self, p: int) -> None:
        """New URLs are in a partition."""
        self._ask(p, 0)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._spawn(work)

    def own_partitions(self) -> list[int]:
        return self._rota.own

    def ask(self, p: int) -> None:
        """Something is in a partition."""
        self._ask(p, 0)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        if not self._failed and not (self.closing and isinstance(error, FrontierError)):
            logger.critical("crawlweb stops: %s", error, exc_info=error if not isinstance(error, FrontierError) else None)
            self._failed = True
            self._ended("frontier_error")

    def _wake_in(self, seconds: float) -> None:
        if self._wake_at is not None:
            self._wake_at.cancel()
        self._wake_at = asyncio.get_running_loop().call_later(max(seconds, 0.0005), self._wake)


def _disallowed(lease: Lease, origin: str, rules: robots.Rules) -> Iterator[bytes]:
    """What comes next on the host of a disallowed URL and is disallowed too; hostile rules take long to apply."""
    until = boottime() + SHOWN_S
    for data, url in lease.shown:
        if robots.origin_of(url) == origin and not rules.allows(url):
            yield data
        if boottime() > until:
            return
