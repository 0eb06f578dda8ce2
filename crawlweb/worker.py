"""A worker's share of the frontier: leases ahead, what to do with each, and the end of the crawl. What goes out is outbox.py's.

Knows no Scrapy.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import FrontierError
from .frontier.frontier import Frontier, Lease, Link, Outcome
from .frontier.meta import SEEDING_S, Meta
from .outbox import FLUSH_S, Ended, Outbox, Ticket, Told
from .policy import robots
from .policy.hosts import is_on_host
from .records import boottime

logger = logging.getLogger(__name__)

LEASE_BATCH = 64
LINKS_WAITING = 100_000  # no page is begun while more links than this wait to be sent
POLL_MAX_S = 1.0  # a partition that nothing is known of is asked this often
POLL_MIN_S = 0.01
POLLS_AT_ONCE = 16
RULES_CACHED = 20_000
RULES_S = 3600.0
NEVER_SEEDED_S = 60.0
CLOSE_S = 30.0


@dataclass(slots=True)
class Job:
    """A lease and what to do with it: fetch its page, or (`robots_url`) the robots.txt that must be known first."""

    lease: Lease
    origin: str
    robots_url: str = ""
    robots_hops: int = 0
    ticket: Ticket = field(default_factory=Ticket)


class Worker:
    """`capacity`: leases in hand at a time. `wake` is called when `next_job` may have something, `ended` when the crawl is over (why);
    `starting`: is the spider still giving start requests?"""

    def __init__(
        self,
        frontier: Frontier,
        meta: Meta,
        *,
        capacity: int,
        fetch_s: float,
        once: bool,
        max_pages: int | None,
        wake: Callable[[], None],
        ended: Callable[[str], None],
        count: Callable[..., None],
        url_key: Callable[[str], bytes],
        starting: Callable[[], bool] = lambda: False,
    ) -> None:
        self.frontier, self.meta = frontier, meta
        told = Told(lambda p: self._ask(p, 0), self._completing, self._completed, count, self._spawn)
        self.outbox = Outbox(frontier, told)
        self.closing = False
        self.in_hand: dict[str, Lease] = {}
        self.seeding = 0
        self._capacity, self._fetch_s, self._once, self._max_pages = capacity, fetch_s, once, max_pages
        self._wake, self._ended, self._count, self._url_key, self._starting = wake, ended, count, url_key, starting
        self._jobs: list[tuple[float, int, Job]] = []  # heap by not-before
        self._order = itertools.count()
        self._due = [0.0] * frontier.partitions
        self._turn = 0
        self._poll = asyncio.Event()
        self._rules: OrderedDict[str, tuple[float, robots.Rules]] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._wake_at: asyncio.TimerHandle | None = None
        self._started = 0.0
        self._polls = 0  # lease calls on their way
        self._failed = False  # Redis gave an answer that is an error
        self._full = False  # max_pages are stored
        self._permits: dict[str, bytes] = {}  # of leases, by token

    # -- what Scrapy's hooks call: memory only ----------------------------------------------------------------------

    def start(self) -> None:
        self._started = boottime()
        for loop in (self._lease_forever(), self.outbox.flush_forever(), self._renew_forever(), self._watch_end()):
            self._spawn(loop)

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
            if self._full or job.lease.expires - now < self._fetch_s:
                self.give_back(job)
                continue
            return job
        if self._jobs:
            self._wake_in(self._jobs[0][0] - now)
        return None

    def finish(self, job: Job, outcome: Outcome, page_key: bytes | None = None) -> None:
        """The page of a job has left the engine. `page_key`: it counts for max_pages under this key."""
        self.outbox.finish(job.ticket, outcome, page_key)

    def give_back(self, job: Job) -> None:
        self._count("leases/returned")
        self.finish(job, Outcome(job.lease, "l"))

    def rules_of(self, origin: str) -> robots.Rules | None:
        found = self._rules.get(origin)
        if found is None or found[0] < boottime():
            return None
        self._rules.move_to_end(origin)
        return found[1]

    @property
    def busy(self) -> bool:
        return bool(self.in_hand or self.seeding or self.outbox.unsent or self._starting())

    # -- outcomes out -------------------------------------------------------------------------------------------------

    async def _completing(self, batch: Sequence[Ended]) -> None:
        """Permits become pages before the URLs are complete: after a crash in between, the page is fetched again and counted once."""
        if self._max_pages is not None:
            permits = [(self._permits.pop(outcome.lease.token, None), key) for outcome, key in batch]
            await self.meta.spend([key for _, key in batch if key], [permit for permit, key in permits if permit and not key])

    def _completed(self, p: int, batch: Sequence[Ended], answer: str) -> None:
        for (outcome, _), letter in zip(batch, answer, strict=True):
            self.in_hand.pop(outcome.lease.token, None)
            if letter != "k":
                self._count("leases/late" if letter == "g" else "dead")
        free_now = any(outcome.ended is None for outcome, _ in batch)
        self._ask(p, 0 if free_now else self.frontier.limits.min_delay_s - self.frontier.limits.look_ahead_s)

    # -- leases in ------------------------------------------------------------------------------------------------------

    def _ask(self, p: int, in_s: float) -> None:
        at = boottime() + max(0.0, in_s)
        if at < self._due[p]:
            self._due[p] = at
            self._poll.set()

    async def _lease_forever(self) -> None:
        while not self.closing and not self._full:
            self._poll.clear()
            now = boottime()
            free = self._capacity - len(self.in_hand)
            due = sorted((p for p in range(len(self._due)) if self._due[p] <= now), key=lambda p: (p - self._turn) % len(self._due))
            if free > 0 and due:
                some = due[:POLLS_AT_ONCE]
                self._turn = (some[-1] + 1) % len(self._due)
                most = min(LEASE_BATCH, max(1, free // len(some)))
                await asyncio.gather(*(self._lease(p, most) for p in some[:free]))
                await asyncio.sleep(0)
                continue
            pause_s = max(POLL_MIN_S, min(min(self._due) - now, POLL_MAX_S)) if free > 0 else POLL_MAX_S / 20
            try:
                await asyncio.wait_for(self._poll.wait(), pause_s)
            except asyncio.TimeoutError:
                continue
            await asyncio.sleep(POLL_MIN_S)

    async def _lease(self, p: int, most: int) -> None:
        self._due[p] = math.inf  # until the answer tells, or something is put into the partition meanwhile
        self._polls += 1
        try:
            next_s, leases = await self.frontier.lease(p, most)
        finally:
            self._polls -= 1
        look_ahead_s = self.frontier.limits.look_ahead_s
        wait_s = POLL_MAX_S if next_s is None else min(POLL_MAX_S, max(POLL_MIN_S, next_s - look_ahead_s * 0.8))
        self._due[p] = min(self._due[p], boottime() + (0 if len(leases) == most else wait_s))
        for lease in leases:
            self.in_hand[lease.token] = lease
        self._count("leases", len(leases))
        await self._admit(leases)

    async def _admit(self, leases: list[Lease]) -> None:
        """Makes jobs of leases: of the host's own URLs, with a permit under max_pages, robots.txt of the origin known or to be fetched."""
        foreign = [lease for lease in leases if not is_on_host(lease.entry.url, lease.host)]
        for lease in foreign:
            self._count("quarantined")
            self.finish(Job(lease, ""), Outcome(lease, "q", arg="host"))
        leases = [lease for lease in leases if lease not in foreign] if foreign else leases
        if self._max_pages is not None and leases:
            keys = [self._url_key(lease.entry.url) for lease in leases]
            allowed, stored = await self.meta.permits(self._max_pages, keys, self.frontier.limits.lease_s)
            self._full = stored >= self._max_pages
            self._permits.update((lease.token, key) for lease, key, ok in zip(leases, keys, allowed, strict=True) if ok)
            for lease, ok in zip(leases, allowed, strict=True):
                if not ok:
                    self.finish(Job(lease, ""), Outcome(lease, "l", wait_s=1.0))
            leases = [lease for lease, ok in zip(leases, allowed, strict=True) if ok]
        unknown: dict[str, list[str]] = defaultdict(list)
        for lease in leases:
            origin = robots.origin_of(lease.entry.url)
            if self.rules_of(origin) is None and origin not in unknown[lease.host]:
                unknown[lease.host].append(origin)
        answers: dict[str, robots.Answer] = {}
        asked = [(host, origins) for host, origins in unknown.items() if origins]
        for (_, origins), values in zip(asked, await asyncio.gather(*(self.frontier.robots(h, o) for h, o in asked)), strict=True):
            for origin, value in zip(origins, values, strict=True):
                if value is None:
                    continue
                try:
                    answers[origin] = robots.Answer.unpack(value)
                except robots.NotRobots:
                    self._count("quarantined")
                    continue
                if answers[origin].decision != "redirect":
                    self.learn_rules(origin, answers[origin])
        for lease in leases:
            self._make_job(lease, answers)
        if leases:
            self._wake()

    def learn_rules(self, origin: str, answer: robots.Answer) -> robots.Rules:
        rules = robots.Rules(answer)
        self._rules[origin] = (boottime() + RULES_S, rules)
        if len(self._rules) > RULES_CACHED:
            self._rules.popitem(last=False)
        return rules

    def _make_job(self, lease: Lease, answers: dict[str, robots.Answer]) -> None:
        origin = robots.origin_of(lease.entry.url)
        job = Job(lease, origin)
        rules = self.rules_of(origin)
        if rules is None:
            hop = answers.get(origin)
            job.robots_url, job.robots_hops = robots.robots_url(origin), 0
            if hop and is_on_host(hop.to, lease.host):
                job.robots_url, job.robots_hops = hop.to, hop.hops
        elif not rules.allows(lease.entry.url):
            self._count("robots/disallowed")
            self.finish(job, Outcome(lease, "d"))
            return
        if self.closing:
            self.give_back(job)
        else:
            heapq.heappush(self._jobs, (lease.not_before, next(self._order), job))

    async def _renew_forever(self) -> None:
        period_s = self.frontier.limits.lease_s / 3
        while True:
            await asyncio.sleep(min(period_s, SEEDING_S / 3))
            now = boottime()
            held = [lease for lease in self.in_hand.values() if lease.expires - now < 2 * period_s]
            if held:
                await self.frontier.renew(held)
            if self.seeding or self._starting():
                await self.meta.say_seeding(True)
            await self.meta.refresh_scope()

    # -- the end --------------------------------------------------------------------------------------------------------

    async def _watch_end(self) -> None:
        before = None
        while self._once and not self.closing:
            await asyncio.sleep(0.25 if before else 0.5)
            if self._full and not self.busy:
                self._ended("max_pages")
                return
            if self.busy:
                before = None
                continue
            counts = await self.frontier.counts()
            if counts.pending or self.busy or await self.meta.anyone_seeding():
                before = None
                await asyncio.sleep(0.5)
            elif not counts.enqueued and boottime() - self._started < NEVER_SEEDED_S:
                before = None
            elif before == counts:
                self._ended("drained" if counts.enqueued else "never_seeded")
                return
            else:
                before = counts

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
            while self._jobs:
                self.give_back(heapq.heappop(self._jobs)[2])

    async def close(self) -> None:
        """Sends everything that waits. After `CLOSE_S` without Redis the rest is left to expire."""
        self.stop()
        deadline = boottime() + CLOSE_S
        while (self.outbox.unsent or self._polls) and not self._failed and boottime() < deadline:
            await asyncio.sleep(FLUSH_S)
        if self.outbox.unsent:
            logger.error("not all could be sent to Redis: %d leases will expire, and their pages be fetched again", len(self.in_hand))
        self.frontier.closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._spawn(work)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        if not (self.closing and isinstance(error, FrontierError)):
            logger.critical("crawlweb stops: %s", error, exc_info=error if not isinstance(error, FrontierError) else None)
            self._failed = True
            self._ended("frontier_error")

    def _wake_in(self, seconds: float) -> None:
        if self._wake_at is not None:
            self._wake_at.cancel()
        self._wake_at = asyncio.get_running_loop().call_later(max(seconds, 0.0005), self._wake)
