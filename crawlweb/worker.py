"""A worker's share of the frontier: leases ahead, links and outcomes in batches, all on the event loop, none of it waited for by a page.

Knows no Scrapy. The order of a page is kept here: its links are acknowledged before it is completed.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from .errors import FrontierError
from .frontier.frontier import EXACT, Frontier, Lease, Link, Outcome
from .frontier.meta import SEEDING_S, Meta
from .policy import robots
from .policy.hosts import host_of
from .records import boottime

logger = logging.getLogger(__name__)

LINK_BATCH = 200  # links a call: p99 in the server stays under 2 ms
OUTCOME_BATCH = 100
LEASE_BATCH = 64
FLUSH_S = 0.03  # links and outcomes wait so long for company
LINKS_WAITING = 100_000  # no page is begun while more links than this wait to be sent
POLL_MAX_S = 1.0  # a partition that nothing is known of is asked this often
POLL_MIN_S = 0.01
POLLS_AT_ONCE = 16
RULES_CACHED = 20_000
RULES_S = 3600.0
KEYS_CACHED = 200_000
NEVER_SEEDED_S = 60.0
CLOSE_S = 30.0


@dataclass(slots=True)
class Ticket:
    """Links of a page that are not acknowledged yet, and the outcome that waits for them."""

    left: int = 0
    outcome: Outcome | None = None
    key: bytes | None = None  # of the page, if it counts for max_pages


@dataclass(slots=True)
class Job:
    """A lease and what to do with it: fetch its page, or (`robots_url`) the robots.txt that must be known first."""

    lease: Lease
    origin: str
    robots_url: str = ""
    robots_hops: int = 0
    ticket: Ticket = field(default_factory=Ticket)


def is_on_host(url: str, host: str) -> bool:
    """Is it this host's clock that a request for the URL must move? An entry in Redis may say anything."""
    try:
        return host_of(url) == host
    except ValueError:
        return False


class RecentKeys:
    """URL keys that Redis answered for a moment ago: exact, of fixed size, two generations."""

    def __init__(self, size: int) -> None:
        self._half = size // 2
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def __contains__(self, key: bytes) -> bool:
        return key in self._young or key in self._old

    def add(self, key: bytes) -> None:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, set()
        self._young.add(key)


class Worker:
    """`capacity`: leases in hand at a time. `wake` is called when `next_job` may have something, `ended` when the crawl is over (why)."""

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
    ) -> None:
        self.frontier, self.meta = frontier, meta
        self.closing = False
        self.in_hand: dict[str, Lease] = {}
        self.seeding = 0
        self._capacity, self._fetch_s, self._once, self._max_pages = capacity, fetch_s, once, max_pages
        self._wake, self._ended, self._count, self._url_key = wake, ended, count, url_key
        self._jobs: list[tuple[float, int, Job]] = []  # heap by not-before
        self._order = itertools.count()
        self._links: dict[int, deque[tuple[Link, Ticket]]] = defaultdict(deque)
        self._links_waiting = 0
        self._outcomes: dict[int, deque[tuple[Outcome, bytes | None]]] = defaultdict(deque)
        self._flushing: set[tuple[str, int]] = set()
        self._due = [0.0] * frontier.partitions
        self._turn = 0
        self._poll = asyncio.Event()
        self._recent = RecentKeys(KEYS_CACHED)
        self._rules: OrderedDict[str, tuple[float, robots.Rules]] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._wake_at: asyncio.TimerHandle | None = None
        self._started = 0.0
        self._polls = 0  # lease calls on their way
        self._held = 0  # pages that something else than links keeps from being complete
        self._failed = False  # Redis gave an answer that is an error
        self._full = False  # max_pages are stored
        self._permits: dict[str, bytes] = {}  # of leases, by token

    # -- what Scrapy's hooks call: memory only ----------------------------------------------------------------------

    def start(self) -> None:
        self._started = boottime()
        for loop in (self._lease_forever(), self._flush_forever(), self._renew_forever(), self._watch_end()):
            self._spawn(loop)

    def next_job(self) -> Job | None:
        """A job whose time has come; arranges to be woken when the next one's does."""
        if self.closing or self._links_waiting > LINKS_WAITING:
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

    def sent_lately(self, key: bytes) -> bool:
        """The frontier answered for this key a moment ago: a link to it is known there."""
        return key in self._recent

    def add_links(self, links: Iterable[Link], ticket: Ticket | None = None) -> None:
        """Queues links for the frontier; `ticket`: the page that is complete only when they are acknowledged."""
        ticket = ticket or Ticket()
        for link in links:
            p = self.frontier.partition_of(link.host)
            self._links[p].append((link, ticket))
            ticket.left += 1
            self._links_waiting += 1
            if len(self._links[p]) == LINK_BATCH:
                self._flush("links", p)

    def hold(self, ticket: Ticket, work: Coroutine[Any, Any, None], then: Callable[[], None]) -> None:
        """Keeps a page from being complete until `work` is done and `then` has run."""
        ticket.left += 1
        self._held += 1

        async def held() -> None:
            try:
                await work
            finally:
                self._held -= 1
            then()
            self._acknowledge(ticket)

        self._spawn(held())

    def finish(self, job: Job, outcome: Outcome, page_key: bytes | None = None) -> None:
        """The page of a job has left the engine. `page_key`: it counts for max_pages under this key."""
        ticket = job.ticket
        ticket.outcome, ticket.key = outcome, page_key
        if not ticket.left:
            self._settle(ticket)

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
        return bool(self.in_hand or self.seeding or self._unsent)

    @property
    def _unsent(self) -> bool:
        return bool(self._links_waiting or self._held or any(self._outcomes.values()))

    # -- links and outcomes out ---------------------------------------------------------------------------------------

    def _acknowledge(self, ticket: Ticket) -> None:
        ticket.left -= 1
        if not ticket.left and ticket.outcome is not None:
            self._settle(ticket)

    def _settle(self, ticket: Ticket) -> None:
        assert ticket.outcome is not None
        p = ticket.outcome.lease.partition
        self._outcomes[p].append((ticket.outcome, ticket.key))
        ticket.outcome = None
        if len(self._outcomes[p]) >= OUTCOME_BATCH:
            self._flush("outcomes", p)

    async def _flush_forever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            for p in [p for p, waiting in self._links.items() if waiting]:
                self._flush("links", p)
            for p in [p for p, waiting in self._outcomes.items() if waiting]:
                self._flush("outcomes", p)

    def _flush(self, what: str, p: int) -> None:
        if (what, p) not in self._flushing:
            self._flushing.add((what, p))
            self._spawn(self._flush_links(p) if what == "links" else self._flush_outcomes(p))

    async def _flush_links(self, p: int) -> None:
        waiting = self._links[p]
        try:
            while waiting:
                batch = [waiting[i] for i in range(min(LINK_BATCH, len(waiting)))]
                answer = await self.frontier.enqueue(p, [link for link, _ in batch])
                new = answer.count("n")
                self._count("links/enqueued", new)
                self._count("links/seen", answer.count("s"))
                self._count("quarantined", answer.count("q"))
                for (link, ticket), letter in zip(batch, answer, strict=True):
                    waiting.popleft()
                    self._recent.add(link.key)
                    if letter == "n" and link.how == EXACT:
                        self._count("seeds/new")
                    self._acknowledge(ticket)
                self._links_waiting -= len(batch)
                if new:
                    self._ask(p, 0)
        finally:
            self._flushing.discard(("links", p))

    async def _flush_outcomes(self, p: int) -> None:
        waiting = self._outcomes[p]
        try:
            while waiting:
                batch = [waiting[i] for i in range(min(OUTCOME_BATCH, len(waiting)))]
                if self._max_pages is not None:
                    stored = [key for _, key in batch if key]
                    permits = [(self._permits.pop(outcome.lease.token, None), key) for outcome, key in batch]
                    await self.meta.spend(stored, [permit for permit, key in permits if permit and not key])
                answer = await self.frontier.complete(p, [outcome for outcome, _ in batch])
                for (outcome, _), letter in zip(batch, answer, strict=True):
                    waiting.popleft()
                    self.in_hand.pop(outcome.lease.token, None)
                    if letter != "k":
                        self._count("leases/late" if letter == "g" else "dead")
                free_now = any(outcome.ended is None for outcome, _ in batch)
                self._ask(p, 0 if free_now else self.frontier.limits.min_delay_s - self.frontier.limits.look_ahead_s)
        finally:
            self._flushing.discard(("outcomes", p))

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
            await asyncio.sleep(min(period_s, 5.0))
            now = boottime()
            held = [lease for lease in self.in_hand.values() if lease.expires - now < 2 * period_s]
            if held:
                await self.frontier.renew(held)
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
        said = boottime()
        while (batch := await asyncio.to_thread(next, source, None)) is not None:
            self.add_links(batch)
            self._count("seeds", len(batch))
            if boottime() - said > SEEDING_S / 3:
                await self.meta.say_seeding(True)
                said = boottime()
            while self._links_waiting > LINKS_WAITING // 10:
                await asyncio.sleep(FLUSH_S)
        while self._links_waiting:
            await asyncio.sleep(FLUSH_S)
        await self.meta.say_seeding(False)
        self.seeding -= 1

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
        while (self._unsent or self._polls) and not self._failed and boottime() < deadline:
            await asyncio.sleep(FLUSH_S)
        if self._unsent:
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
