"""What a worker sends to the frontier: links in batches; after those of a page are acknowledged its event, and after that its outcome.

Nothing here is waited for by a page: the scheduler puts things in, loops send them. A batch that Redis did not take stays where it is.
"""

from __future__ import annotations

import asyncio
import mmap
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import FrontierFull
from .frontier.events import EVENT_BATCH, Events
from .frontier.frontier import Frontier
from .frontier.memory import MemoryWatch
from .frontier.rows import EXACT, Link, Outcome
from .pace import Pace
from .records import boottime

LINK_BATCH = 100  # links a call: p99 in the server stays under 2 ms, even if all are new and of many hosts
OUTCOME_BATCH = 48  # the same of outcomes, each with a record of its page (64: p99 2.1 ms, bench/records.py)
FLUSH_S = 0.03  # links and outcomes wait so long for company,
FLUSH_MAX_S = 0.1  # or, where hosts rest longer anyway or the worker is busy, up to this: fewer and larger calls
BUSY = 0.8  # of a core: what is sent soon then comes back to a worker that has no time for it
ALL = -1  # partitions
WAYS = 8  # keys of a set of the cache
SET_BYTES = 16 * WAYS
PROTECTED_BYTES = SET_BYTES // 2  # of the keys that were asked for again


def flush_s(min_delay_s: float) -> float:
    """Seconds that things wait to be sent."""
    return min(FLUSH_MAX_S, max(FLUSH_S, min_delay_s / 10))


@dataclass(slots=True)
class Ticket:
    """Links of a page that are not acknowledged yet, and the outcome that waits for them."""

    left: int = 0
    outcome: Outcome | None = None


class RecentKeys:
    """URL keys (16 bytes) that Redis answered for: exact, a table of fixed size, 16 bytes a key.

    A set has room for eight, the latest first, and is a segmented LRU (Karedla, Love, Wherry, "Caching strategies to improve disk system
    performance", 1994): a new key enters in the middle, where the next ones push it out unless it is asked for again: then it goes to the
    front. So the links that all pages of a site share outlive the thousands in between that are met once.
    """

    def __init__(self, keys: int) -> None:
        self._sets = max(2, keys // WAYS)
        self._table = mmap.mmap(-1, self._sets * SET_BYTES)  # takes memory as it fills
        self._find = self._table.find
        empty = hash(bytes(16)) % self._sets
        stranger = next(key for n in range(1, 1000) if hash(key := n.to_bytes(16, "big")) % self._sets != empty)
        self._table[empty * SET_BYTES : (empty + 1) * SET_BYTES] = stranger * WAYS  # what stands in an unused place is no key of its set

    def __contains__(self, key: bytes) -> bool:
        start = (hash(key) % self._sets) * SET_BYTES
        end = start + SET_BYTES
        at = self._find(key, start, end)
        while at >= 0 and at % 16:  # across two keys
            at = self._find(key, at + 1, end)
        if at < 0:
            return False
        if at >= start + PROTECTED_BYTES:
            self._table[start : at + 16] = key + self._table[start:at]
        return True

    def add(self, key: bytes) -> None:
        if key not in self:
            end = (hash(key) % self._sets) * SET_BYTES + SET_BYTES
            start = end - SET_BYTES + PROTECTED_BYTES
            self._table[start:end] = key + self._table[start : end - 16]


@dataclass(frozen=True, slots=True)
class Told:
    """Whom an outbox tells: new URLs are in a partition; outcomes will be sent there; they were, with these letters as answer; a request
    that was not queued, since its URL is known."""

    arrived: Callable[[int], None]
    completing: Callable[[Sequence[Outcome]], Awaitable[None]]
    completed: Callable[[int, Sequence[Outcome], str], None]
    dropped: Callable[[dict[str, object]], None]
    count: Callable[..., None]
    spawn: Callable[[Coroutine[Any, Any, None]], None]


class Outbox:
    """`waiting`: links not acknowledged yet; `unsent`: is anything left to send?"""

    def __init__(
        self, frontier: Frontier, told: Told, memory: MemoryWatch, keys_cached: int, pace: Pace, events: Events | None = None
    ) -> None:
        self.waiting = 0
        self._frontier, self._told, self._memory, self._pace, self._events = frontier, told, memory, pace, events
        self._links: dict[int, deque[tuple[Link, Ticket]]] = defaultdict(deque)
        self._seeds: dict[int, deque[tuple[Link, Ticket]]] = defaultdict(deque)  # wait while Redis is full: they can be given again
        self._untold: deque[Outcome] = deque()  # of all partitions, whose events are not acknowledged
        self._outcomes: dict[int, deque[Outcome]] = defaultdict(deque)
        self._flushing: set[tuple[str, int]] = set()
        self._links_under_way = 0  # calls, or what waits to be one
        self._keys_cached = keys_cached
        self._recent = RecentKeys(keys_cached)
        self._held = 0  # pages that something else than links keeps from being complete

    @property
    def unsent(self) -> bool:
        return bool(self.waiting or self._held or self._untold or any(self._outcomes.values()))

    def sent_lately(self, key: bytes) -> bool:
        """The frontier answered for this key a moment ago: a link to it is known there."""
        return key in self._recent

    def forget(self) -> None:
        """Redis may not know any longer what it answered for."""
        self._recent = RecentKeys(self._keys_cached)

    def add_links(self, links: Iterable[Link], ticket: Ticket | None = None) -> None:
        """`ticket`: the page that is complete only when they are acknowledged."""
        ticket = ticket or Ticket()
        for link in links:
            p = self._frontier.partition_of(link.host)
            what, queue = ("seeds", self._seeds[p]) if link.how == EXACT else ("links", self._links[p])
            queue.append((link, ticket))
            ticket.left += 1
            self.waiting += 1
            if len(queue) == LINK_BATCH:
                self._flush(what, p)

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

        self._told.spawn(held())

    def finish(self, ticket: Ticket, outcome: Outcome) -> None:
        """The page of a ticket has left the engine."""
        ticket.outcome = outcome
        if not ticket.left:
            self._settle(ticket)

    async def flush_forever(self) -> None:
        pause_s = flush_s(self._frontier.limits.min_delay_s)
        at, worked = boottime(), time.thread_time()
        while True:
            await asyncio.sleep(pause_s)
            if (left_s := at + FLUSH_MAX_S - boottime()) > 0 and time.thread_time() - worked > BUSY * (boottime() - at):
                await asyncio.sleep(left_s)
            at, worked = boottime(), time.thread_time()
            links = [("links", p) for p, waiting in self._links.items() if waiting]
            finished = [] if links and not self._links_under_way else self._finished()  # else they go when the links are acknowledged
            await self._flush_due([*finished, *links, *(("seeds", p) for p, waiting in self._seeds.items() if waiting)])

    def _finished(self) -> list[tuple[str, int]]:
        """What waits for no links any more."""
        return ([("events", ALL)] if self._untold else []) + [("outcomes", p) for p, waiting in self._outcomes.items() if waiting]

    async def _flush_due(self, due: list[tuple[str, int]]) -> None:
        while due:
            some = await self._pace.room()
            for what, p in due[:some]:
                self._flush(what, p)
            del due[:some]
            await asyncio.sleep(0)  # they begin

    def _acknowledge(self, ticket: Ticket) -> None:
        ticket.left -= 1
        if not ticket.left and ticket.outcome is not None:
            self._settle(ticket)

    def _settle(self, ticket: Ticket) -> None:
        assert ticket.outcome is not None
        outcome, ticket.outcome = ticket.outcome, None
        if self._events is None or outcome.event is None:
            self._complete(outcome)
            return
        self._untold.append(outcome)
        if _is_urgent(outcome) or len(self._untold) >= EVENT_BATCH:
            self._flush("events", ALL)

    def _complete(self, outcome: Outcome) -> None:
        p = outcome.lease.partition
        self._outcomes[p].append(outcome)
        if _is_urgent(outcome) or len(self._outcomes[p]) >= OUTCOME_BATCH:
            self._flush("outcomes", p)

    def _flush(self, what: str, p: int) -> None:
        if (what, p) not in self._flushing:
            self._flushing.add((what, p))
            if what == "events":
                self._told.spawn(self._flush_events())
            else:
                self._links_under_way += what == "links"
                self._told.spawn(self._flush_outcomes(p) if what == "outcomes" else self._flush_links(what, p))

    async def _flush_events(self) -> None:
        assert self._events is not None
        count = self._told.count
        try:
            while self._untold:
                batch = [self._untold[i] for i in range(min(EVENT_BATCH, len(self._untold)))]
                await self._events.publish([outcome.event for outcome in batch if outcome.event])
                count("events", len(batch))
                for outcome in batch:
                    self._untold.popleft()
                    self._complete(outcome)
                await self._flush_due([("outcomes", p) for p in {outcome.lease.partition for outcome in batch}])
        finally:
            self._flushing.discard(("events", ALL))

    async def _flush_links(self, what: str, p: int) -> None:
        waiting, count = self._seeds[p] if what == "seeds" else self._links[p], self._told.count
        try:
            while waiting:
                if what == "seeds":
                    await self._memory.room()
                batch = [waiting[i] for i in range(min(LINK_BATCH, len(waiting)))]
                can_wait = what == "seeds" and not self._memory.stopped
                try:
                    answer = await self._frontier.enqueue(p, [link for link, _ in batch], can_wait)
                except FrontierFull:
                    self._memory.refused()
                    continue
                new = answer.count("n")
                count("links/enqueued", new)
                count("links/seen", answer.count("s"))
                count("quarantined", answer.count("q"))
                for (link, ticket), letter in zip(batch, answer, strict=True):
                    waiting.popleft()
                    if letter != "q":
                        self._recent.add(link.key)
                    if letter == "n" and link.how == EXACT:
                        count("seeds/new")
                    if letter == "s" and link.entry.hops:
                        count("redirects/known")
                    if letter != "n" and link.entry.request:
                        self._told.dropped(link.entry.request)
                    self._acknowledge(ticket)
                self.waiting -= len(batch)
                if new:
                    self._told.arrived(p)
        finally:
            self._flushing.discard((what, p))
            self._links_under_way -= what == "links"
        if what == "links" and not self._links_under_way:  # the last of those that were sent together
            await self._flush_due(self._finished())

    async def _flush_outcomes(self, p: int) -> None:
        waiting = self._outcomes[p]
        try:
            while waiting:
                batch = [waiting[i] for i in range(min(OUTCOME_BATCH, len(waiting)))]
                await self._told.completing(batch)
                answer = await self._frontier.complete(p, batch)
                for _ in batch:
                    waiting.popleft()
                self._told.completed(p, batch, answer)
        finally:
            self._flushing.discard(("outcomes", p))


def _is_urgent(outcome: Outcome) -> bool:
    """What a server asked for must be known before a crash."""
    return bool(outcome.pushed_back or outcome.failed)
