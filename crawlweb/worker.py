"""A worker: the rooms that a lease walks through, and what holds them together.

    poller.py      leases come in, ahead of their time, of the partitions that are this worker's share (share.py, rota.py)
    admission.py   what must be known before a lease is a job: permit, robots.txt (rulebook.py), the turn of its address (turns.py)
    jobs.py        a job waits for its not-before
    worker.py      next_job → the engine has it, and its lease lasts meanwhile (renewals.py) → finish
    outbox.py      its links, its event and its outcome go out

Beside them: recovery.py when a server has changed, end.py for the end of the crawl. Knows no Scrapy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from .admission import Admission
from .end import End
from .frontier.events import Events
from .frontier.frontier import Frontier
from .frontier.members import Members
from .frontier.memory import MemoryWatch
from .frontier.meta import Meta
from .frontier.rows import Lease, Link, Outcome
from .job import Job
from .jobs import Jobs
from .limit import PageLimit
from .outbox import FLUSH_S, Outbox, Told
from .pace import Pace
from .policy import robots
from .poller import Poller
from .records import boottime
from .recovery import Recovery
from .renewals import Renewals
from .rulebook import Rulebook
from .share import Share
from .starts import Starts
from .tasks import Tasks

logger = logging.getLogger(__name__)

LINKS_WAITING = 100_000  # no page is begun while more links than this wait to be sent
LOOK_AGAIN_S = 0.1  # meanwhile the engine is woken so often
NEW_S = 0.25  # or a quarter of the delay: a host that was not known waits so long to be leased, while there is other work
RENEW_S = 2.0  # well within the time that nobody reclaims after a silence of Redis
CLOSE_S = 30.0
CANCEL_S = 2.0


class Worker:
    """`capacity`: leases in hand at a time. `address_of`: of a host name, '' where no clock of its address is in force. `wake` is called
    when `next_job` may have something, `ended` when the crawl is over (why); `starting`: is the spider still giving start requests?
    `has_room`: for one fetch more; where not, `wake` is called when there is. `dropped`: a request will not come back; `stuck_s`: the lease
    of a page that the engine has for so long is not renewed any more."""

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
        has_room: Callable[[], bool] = lambda: True,
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
        self.closing = False
        self.in_hand: dict[str, Lease] = {}
        self.seeding = 0
        self.end: End | None = None  # there is one from `start` on, where the crawl ends
        self.starts: Starts | None = None  # where start URLs come from outside
        self._fetch_s, self._once = fetch_s, once
        self._ended, self._count, self._starting, self._has_room, self._dropped = ended, count, starting, has_room, dropped
        self._events, self._address_of = events, address_of
        self._tasks = Tasks(lambda: self.closing, ended)
        self.limit = None if max_pages is None else PageLimit(meta, max_pages, url_key, self._tasks.run)
        self.rulebook = Rulebook(frontier, count, crawl_delay_cap_s)
        self._jobs = Jobs(wake, fetch_s)
        self._admission = Admission(
            frontier,
            self.limit,
            self.rulebook,
            self._jobs,
            address_of=address_of,
            finish=self.finish,
            give_back=self.give_back,
            run=self._tasks.run,
            count=count,
        )
        self._turns = self._admission.turns
        self._renewals = Renewals(frontier, self.limit, self.in_hand, stuck_s=stuck_s, beside=self._tasks.beside, count=count)
        self._recovery = Recovery(
            frontier,
            self._tell_again,
            self._turns,
            in_hand=self.in_hand,
            running=self._renewals.running,
            fetch_s=fetch_s,
            forget=self._forget,
            done=self._recovered,
            spawn=self._tasks.run,
            count=count,
        )
        self._poller = Poller(
            frontier,
            self._admission,
            self._jobs,
            self._recovery,
            self.memory,
            self.pace,
            self.limit,
            self._tasks,
            in_hand=self.in_hand,
            capacity=capacity,
            has_room=has_room,
            enough=lambda: self.enough,
            count=count,
        )
        self._rota = self._poller.rota
        self.members = Members(frontier)
        self._share = Share(
            self.members,
            frontier.worker,
            frontier.partitions,
            self._rota,
            busy=lambda: not self._is_idle,
            in_hand=self.in_hand,
            leased=lambda: self._poller.leased,
            gauge=gauge,
        )
        told = Told(self._found, self._completing, self._completed, dropped, count, self._tasks.run)
        self.outbox = Outbox(frontier, told, self.memory, seen_cache_keys, self.pace, events)

    # -- what Scrapy's hooks call: memory only ----------------------------------------------------------------------

    def start(self) -> None:
        loops = [self._poller.lease_forever(), self.outbox.flush_forever(), self._renew_forever()]
        loops += [self.memory.watch_forever(), self.pace.watch_forever(), self._share.beat_forever()]
        if self._address_of is not None:
            loops.append(self._turns.ask_forever())
        if self._once:
            self.end = self._make_end()
            loops.append(self.end.watch(lambda: self.closing))
        for loop in loops:
            self._tasks.run(loop)

    def _make_end(self) -> End:
        return End(
            self.frontier,
            self.meta,
            self._share,
            self.limit,
            busy=lambda: self.busy,
            idle=lambda: self._is_idle,
            outside=self.anything_outside,
            leased=lambda: self._poller.leased,
            ended=self._ended,
        )

    def next_job(self) -> Job | None:
        """A job whose time has come; arranges to be woken when the next one's does."""
        if self.closing:
            return None
        if self.outbox.waiting > LINKS_WAITING:
            self._jobs.wake_in(LOOK_AGAIN_S)
            return None
        if not self._has_room():
            return None
        now = boottime()
        while (job := self._jobs.next_due(now)) is not None:
            if self._recovery.is_doubtful(job.lease.partition):
                self._jobs.put_aside(job)
                continue
            if self._full or job.lease.is_gone or job.until - now < self._fetch_s:
                self.give_back(job)
                continue
            self._renewals.begun(job)
            return job
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
        self.outbox.hold(job.ticket, self.frontier.tell(host, news), lambda: self.ask(self.frontier.partition_of(host)))

    def give_back(self, job: Job) -> None:
        self._count("leases/returned")
        self.finish(job, Outcome(job.lease, "l"))

    # -- what the other rooms of the crawl ask of it -----------------------------------------------------------------------

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

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(work)

    def own_partitions(self) -> list[int]:
        return self._rota.own

    def ask(self, p: int) -> None:
        """Something is in a partition."""
        self._rota.ask(p, 0)

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
            self.ask(p)
        else:
            self._rota.ask_ahead(p, min(ends) + self.frontier.limits.min_delay_s - boottime())

    def _found(self, p: int) -> None:
        """New links are in a partition: of hosts that it knows and has its times for, most of them."""
        self._rota.ask(p, min(NEW_S, self.frontier.limits.min_delay_s / 4) if self.in_hand else 0)

    # -- when a server has changed ---------------------------------------------------------------------------------------

    def _recovered(self, partitions: Iterable[int]) -> None:
        self._jobs.put_back()
        for p in partitions:
            self.ask(p)
        self._jobs.wake()

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
        for job in self._jobs.take_old(latest):
            self.give_back(job)

    async def _renew_forever(self) -> None:
        period_s = min(self.frontier.limits.lease_s / 3, RENEW_S)
        while not self.frontier.closing:
            await asyncio.sleep(period_s)
            self._give_back_old(boottime() + period_s)
            self._renewals.renew_due()
            self._tasks.beside(-1, self._keep_up())

    async def _keep_up(self) -> None:
        if self.seeding or self._starting():
            await self.meta.say_seeding(True)
        await self.meta.refresh_scope()
        await self.frontier.read_clock()

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
            self._tasks.run(self._share.leave())
            self._admission.close()
            for job in self._jobs.take_all():
                self.give_back(job)

    async def close(self) -> None:
        """Sends everything that waits. After `CLOSE_S` without Redis the rest is left to expire."""
        self.stop()
        deadline = boottime() + CLOSE_S
        while self._on_its_way and not self._tasks.failed and boottime() < deadline:
            await asyncio.sleep(FLUSH_S)
        if self.outbox.unsent:
            logger.error("not all could be sent to Redis: %d leases will expire, and their pages be fetched again", len(self.in_hand))
        self.frontier.closing = True
        await self._tasks.cancel(CANCEL_S)

    @property
    def _on_its_way(self) -> bool:
        """Something is, to Redis or from there."""
        takes = self.starts is not None and (self.starts.asking or self.starts.handing)
        return bool(self.outbox.unsent or self._turns.unsent or self._poller.polls or takes)
