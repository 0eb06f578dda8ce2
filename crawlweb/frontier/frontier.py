"""The frontier as a worker sees it: one method a step, batch in, batch out, each call repeatable."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import msgpack  # type: ignore[import-untyped]
from redis.asyncio import Redis
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..errors import ConfigError, FrontierError, FrontierFull
from ..records import Entry, PageRecord, boottime
from . import codec, pages, scripts
from .cluster import Cluster
from .journal import Journal
from .keys import ip_shard_key, ip_shard_of, ip_shards, partition_of, partition_prefix
from .kinds import refuse_foreign_crawl, refuse_foreign_partitions
from .outage import Outage
from .rows import Counts, Due, KeptRobots, Lease, Limits, Link, Outcome, Override, error_pages, ms

logger = logging.getLogger(__name__)
T = TypeVar("T")

REQUEUED_AT_ONCE = 100
RECORDS_AT_ONCE = 200
LINKS_AT_ONCE = 100
QUEUES_AT_ONCE = 4
TOLD_AT_ONCE = 16  # partitions
CALM_S = 5.0  # nobody leases so long after a server has changed, nor reclaims after it was silent
PAUSE_S = 0.05
PAUSE_MOST_S = 2.0  # until Redis is asked again: well within that
GUARD_MS = 5  # a request counts as ended so much later: three clocks are rounded, and a server sees its end after we do
# Full, or not itself for a while; out of a script the word stands in the middle of the text.
_PASSING_WORDS = re.compile(r"\b(OOM|MISCONF|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS)\b")
_FULL = re.compile(r"\bOOM\b")
AWAY = (RedisConnectionError, RedisTimeoutError, BusyLoadingError)
# AskError: MOVED and ASK; ClusterError: CLUSTERDOWN, MASTERDOWN.
_PASSING = (*AWAY, OutOfMemoryError, ReadOnlyError, AskError, TryAgainError, ClusterError)
# KEYS: one of the partition. ARGV: msgpack [[command, argument, ...], ...]
_AT_ONCE = """
local out = {}
for i, command in ipairs(cmsgpack.unpack(ARGV[1])) do out[i] = redis.pcall(unpack(command)) end
return out
"""


def _number(text: bytes | None) -> int:
    """0 for what is none."""
    return int(text) if text and text.isdigit() and len(text) < 16 else 0


def _packed_page(outcome: Outcome, record: PageRecord) -> tuple[bytes, bytes] | None:
    """None for what cannot be kept: the lease ends all the same."""
    lease, key = outcome.lease, outcome.record_key
    try:
        if len(key) != pages.KEY_BYTES:
            raise ValueError(f"a key of {len(key)} bytes")
        return key, pages.encode(record, lease.host, lease.entry.priority, lease.entry.depth)
    except ValueError as e:
        logger.warning("No record is kept of a page: %s", e)
        return None


def _record(data: object, host: str | None = None) -> PageRecord | None:
    """None for what is none, or another host's."""
    with contextlib.suppress(ValueError, TypeError):
        of, record = pages.decode(cast(bytes, data))
        if host in (None, of):
            return record
    return None


def _shown(rows: Iterable[bytes], host: str) -> Iterable[tuple[bytes, str]]:
    for data in rows:
        with contextlib.suppress(ValueError):
            yield data, codec.decode(data, host).url


class Frontier:
    """`worker`: short and unique among the processes of the crawl, no colon in it. `run_of`: of a key, which run of its server answers."""

    def __init__(
        self,
        redis: Redis,
        crawl: str,
        partitions: int,
        worker: str,
        limits: Limits | None = None,
        run_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self.redis, self.crawl, self.partitions, self.worker = redis, crawl, partitions, worker
        self.limits = limits or Limits()
        self._run_of = run_of
        self.calls = 0  # to Redis
        self._together = None if isinstance(redis, Cluster) else scripts.Together(lambda: self.redis, self._saved)
        self.quarantined = 0  # leased entries that could not be read
        self.closing = False  # an outage is no longer waited for
        self.see_to: Callable[[int, list[str]], None] | None = None  # called with long queues of a partition (cold.py)
        self.on_restart: Callable[[], None] | None = None  # called when the server of a partition is not the run that it was
        self.left_runs = ""  # run ids of servers that all workers have left in peace
        self.outage = Outage()
        self._runs: dict[int, str] = {}  # which run of its server has answered for a partition
        self._journal: Journal[bytes | Sequence[Outcome]] = Journal()  # enqueued, as packed; completed
        self._to_tell: dict[int, list[bytes | Sequence[Outcome]]] = defaultdict(list)  # what stood there when a server changed
        self.on_outage: Callable[[], Awaitable[None]] | None = None  # called before a call is repeated that no server answered
        self._unix_offset_s = time.time() - boottime()
        self._numbers = itertools.count(1)  # of calls, over all partitions: a lease's token is unique in the crawl
        self._locks: dict[tuple[str, int], asyncio.Lock] = defaultdict(asyncio.Lock)

    def unix_now(self) -> float:
        """Unix time by the clock of Redis, as of the last `read_clock`: workers' own may be wrong."""
        return boottime() + self._unix_offset_s

    async def read_clock(self) -> None:
        seconds, micros = await self.patiently(cast(Any, self.redis.time))
        self._unix_offset_s = seconds + micros / 1e6 - boottime()

    def partition_of(self, host: str) -> int:
        return partition_of(host, self.partitions)

    def key(self, partition: int, name: str) -> str:
        return partition_prefix(self.crawl, partition) + name

    async def patiently(self, call: Callable[[], Awaitable[T]], *, can_wait: bool = False) -> T:
        """Makes a repeatable call until Redis answers; FrontierError for an answer that is an error, or on closing. `can_wait`:
        FrontierFull if Redis is full."""
        pause_s, waits, answered = PAUSE_S, False, False
        try:
            while True:
                self.calls += 1
                try:
                    answer = await call()
                    answered = True
                    return answer
                except (*_PASSING, ResponseError) as e:
                    if not isinstance(e, _PASSING) and not _PASSING_WORDS.search(str(e)):
                        raise FrontierError(await self._named(e)) from e
                    if can_wait and (isinstance(e, OutOfMemoryError) or _FULL.search(str(e))):
                        raise FrontierFull(str(e)) from e
                    if self.closing:
                        raise FrontierError(f"Redis does not answer: {e}") from e
                    if not waits:
                        waits = True
                        self.outage.begins()
                    self.outage.tried(e, pause_s)
                    if self.on_outage is not None and isinstance(e, RedisConnectionError):
                        await self.on_outage()
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, PAUSE_MOST_S)
                except RedisError as e:
                    raise FrontierError(str(e)) from e
        finally:
            if waits:
                self.outage.ends(answered)

    async def _named(self, e: RedisError) -> str:
        """The text of an error; where a key is of another type than ours, which one."""
        if "WRONGTYPE" in str(e):
            try:
                await refuse_foreign_crawl(self)
                await refuse_foreign_partitions(self, self.partitions)
            except (ConfigError, FrontierError) as why:
                return f"WRONGTYPE: {why}"
        return str(e)

    async def undisturbed(self, call: Callable[[], Awaitable[T]], keys: Mapping[str, str]) -> T:
        """Makes a repeatable call on keys outside the partitions: key → a command that only its type understands. A key of another type
        is not ours: it is moved aside."""
        try:
            return await self.patiently(call)
        except FrontierError as e:
            if "WRONGTYPE" not in str(e):
                raise
            logger.error("what is not ours is moved aside: %s", e)
        for key, command in keys.items():
            await self.patiently(partial(scripts.run, self.redis, "typed", key, command))
        return await self.patiently(call)

    async def at_once(self, *commands: tuple[bytes | str | int | float, ...]) -> list[Any]:
        """Raw answers to commands that read keys of one partition, all of one moment; an error stands in its place. A script, since a full
        Redis refuses MULTI."""
        packed = msgpack.packb(commands, use_bin_type=False)
        answers: list[Any] = await self.patiently(lambda: cast(Any, self.redis.eval(_AT_ONCE, 1, commands[0][1], packed)))
        return answers

    def _saved(self, calls: int) -> None:
        self.calls -= calls  # each was counted

    def _run(self, step: str, units: int, partition: int, *args: bytes | str | int | float) -> Awaitable[Any]:
        """`units`: of work (scripts.UNIT_US)."""
        if self._together is None or step not in scripts.UNIT_US:
            return scripts.run(self.redis, step, self.key(partition, "ctr"), self.worker, *args)
        return self._together.run(step, units, self.key(partition, "ctr"), self.worker, *args)

    async def step(
        self,
        step: str,
        partition: int,
        *args: bytes | str | int | float,
        units: int = 1,
        can_wait: bool = False,
        tells_tries: bool = False,
    ) -> Any:
        """One repeatable call: one at a time for a step and partition, numbered. `units`: see `_run`; `tells_tries`: how often it was
        sent before is the last argument."""
        async with self._locks[step, partition]:
            number = next(self._numbers)
            tries = itertools.count()

            def call() -> Awaitable[Any]:
                last = (next(tries),) if tells_tries else ()
                return self._run(step, units, partition, number, *args, *last)

            answer = await self.patiently(call, can_wait=can_wait)
        self._answered(partition)
        return answer

    async def enqueue(self, partition: int, links: Sequence[Link], can_wait: bool = False) -> str:
        """Marks and places links of one partition, 200 at the most; a letter for each: n new, s seen, q cannot be an entry. A full Redis
        takes them too, but for those that can wait: FrontierFull."""
        groups: dict[str, list[tuple[int, Link]]] = defaultdict(list)
        for i, link in enumerate(links):
            groups[link.host].append((i, link))
        order: list[int] = []
        blob: list[list[object]] = []
        for host, members in groups.items():
            row: list[object] = [host]
            for i, link in members:
                try:
                    row += (link.key, link.entry.priority + link.how, codec.encode(link.entry, host))
                except ValueError as e:
                    logger.warning("Not queued: %s", e)
                    continue
                order.append(i)
            if len(row) > 1:
                blob.append(row)
        answer = await self._enqueue(partition, msgpack.packb(blob, use_bin_type=False), can_wait, len(order))
        letters = ["q"] * len(links)
        for i, letter in zip(order, answer.decode(), strict=True):
            letters[i] = letter
        return "".join(letters)

    async def _enqueue(self, partition: int, packed: bytes, can_wait: bool = False, links: int = LINKS_AT_ONCE) -> bytes:
        limits = self.limits
        expected = max(1, limits.expected_urls // self.partitions)
        args = (expected, limits.false_positives, packed, int(can_wait), limits.seen)
        answer: bytes = await self.step("enqueue", partition, *args, units=links, can_wait=can_wait)
        self._journal.add(partition, boottime(), packed)
        return answer

    async def lease(self, partition: int, most: int, reclaim: bool = True) -> tuple[float | None, list[Lease]]:
        """Leases, and the seconds until something may be due here (None: the partition is empty). FrontierFull if Redis is."""
        limits = self.limits
        sent, run = boottime(), self.run_of(partition)
        answer = await self.step(
            "lease",
            partition,
            most,
            ms(limits.lease_s),
            ms(limits.look_ahead_s),
            max(8, limits.active_hosts // self.partitions),
            256,
            16 if reclaim else 0,
            ms(limits.min_delay_s),
            limits.latency_factor,
            ms(limits.latency_cap_s),
            QUEUES_AT_ONCE if self.see_to else 0,
            run,
            ms(CALM_S),
            self.left_runs,
            units=most,
            can_wait=True,
            tells_tries=True,
        )
        received = boottime()
        next_ms, queues, *rows = msgpack.unpackb(answer, raw=True)
        if queues and self.see_to:
            self.see_to(partition, [queue.decode(errors="replace") for queue in queues])
        leases = []
        for token, host_bytes, data, wait_ms, failures, trouble_ms, shown, flags, errors, apart_ms in rows:
            try:
                host = host_bytes.decode()
                entry = codec.decode(data, host)
            except ValueError:
                self.quarantined += 1
                broken = Lease(token.decode(), partition, host_bytes.decode(errors="surrogateescape"), Entry(""), received, sent)
                await self.complete(partition, [Outcome(broken, "q", arg="entry")])
                continue
            trouble_s = None if trouble_ms < 0 else trouble_ms / 1000
            lease = Lease(token.decode(), partition, host, entry, received + wait_ms / 1000, sent + limits.lease_s, failures, trouble_s)
            lease.shown = tuple(_shown(shown, host))
            lease.origin_has_pages, lease.has_permission, lease.others_have_pages = bool(flags & 1), bool(flags & 2), bool(flags & 4)
            lease.error_shapes, lease.has_real_errors, lease.probed_at = error_pages(errors)
            lease.apart_s = apart_ms / 1000
            leases.append(lease)
        if leases and self.run_of(partition) != run:  # the server changed under the call, and did not know it
            await self.complete(partition, [Outcome(lease, "l") for lease in leases])
            return CALM_S, []
        return (None if next_ms < 0 else next_ms / 1000), leases

    async def complete(self, partition: int, outcomes: Sequence[Outcome], *, again: bool = False) -> str:
        """Ends leases of one partition; a letter for each: k as asked, x a dead letter now, g the lease was gone. `again`: the partition
        was told before, and may have lost it."""
        limits = self.limits

        def row(o: Outcome, now: float) -> list[object]:
            age = -1 if o.ended is None else max(0, ms(now - o.ended) - GUARD_MS)
            latency = -1 if o.latency_s is None else ms(o.latency_s)
            arg = o.arg if o.arg is not None else False
            page = records.get(id(o), False)
            return [o.lease.token, o.lease.host, o.way, age, latency, ms(o.wait_s), arg, o.robots or False, o.signs() or False, page]

        records = {id(o): page for o in outcomes if o.record and (page := _packed_page(o, o.record))}
        async with self._locks["complete", partition]:
            number = next(self._numbers)

            def call() -> Awaitable[Any]:
                now = boottime()
                packed = msgpack.packb([row(o, now) for o in outcomes], use_bin_type=False, unicode_errors="surrogateescape")
                args = (ms(limits.min_delay_s), limits.latency_factor, ms(limits.latency_cap_s), packed, int(again))
                return self._run("complete", len(outcomes), partition, number, *args)

            answer: bytes = await self.patiently(call)
        self._answered(partition)
        self._journal.add(partition, boottime(), outcomes)
        return answer.decode()

    # -- page records (lua/records.lua) ------------------------------------------------------------------------------------------------

    async def packed_records(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """As they stand in Redis, by keys of `record_key`. Those of pages that are due in days may be in chunks: None."""
        found: list[bytes | None] = []
        for first in range(0, len(keys), RECORDS_AT_ONCE):
            some = keys[first : first + RECORDS_AT_ONCE]
            recall = partial(self._run, "recall", len(some), partition, 0, "get", *some)
            answer = await self.patiently(recall)
            found += [data if isinstance(data, bytes) else None for data in msgpack.unpackb(answer, raw=True)]
        return found

    async def records(self, partition: int, keys: Sequence[bytes]) -> list[PageRecord | None]:
        return [_record(data) for data in await self.packed_records(partition, keys)]

    async def records_of(self, places: Sequence[tuple[int, bytes]]) -> list[PageRecord | None]:
        """Of pages, by partition and key."""
        by_partition: dict[int, list[bytes]] = defaultdict(list)
        for partition, key in places:
            by_partition[partition].append(key)
        answers = await asyncio.gather(*(self.records(p, keys) for p, keys in by_partition.items()))
        rows = {p: iter(records) for p, records in zip(by_partition, answers, strict=True)}
        return [next(rows[partition]) for partition, _ in places]

    async def record(self, host: str, key: bytes) -> PageRecord | None:
        """`key`: URL key, or its first 8 bytes."""
        (data,) = await self.packed_records(self.partition_of(host), [pages.record_key(key)])
        return _record(data, host)

    async def make_alias(self, host: str, key: bytes, canonical: str, kind: str) -> bool:
        """The record of a page says from now on that it is an alias of another. `kind`: `duplicate` or `near_duplicate`. False: there is
        no record, or it changed at this moment."""
        p, short = self.partition_of(host), pages.record_key(key)
        (data,) = await self.packed_records(p, [short])
        record = _record(data, host)
        if data is None or record is None:
            return False
        try:
            alias = pages.repacked(data, replace(record, canonical=canonical, flags=record.flags | {kind}))
        except ValueError:
            return False
        return bool(int(await self.step("recall", p, "swap", short + data[:8] + alias)))

    async def find_record(self, key: bytes) -> tuple[str, PageRecord] | None:
        """(host, record): looked for in all partitions."""
        for first in range(0, self.partitions, 32):
            some = range(first, min(first + 32, self.partitions))
            for rows in await asyncio.gather(*(self.packed_records(p, [pages.record_key(key)]) for p in some)):
                with contextlib.suppress(ValueError, TypeError):
                    return pages.decode(cast(bytes, rows[0]))
        return None

    async def drop_records(self, partition: int, rows: Sequence[tuple[bytes, bytes]]) -> int:
        """(key, record) of what is in a chunk now: what has not changed since leaves Redis. How many."""
        heads = [key + data[:8] for key, data in rows]
        return sum(
            [
                int(await self.step("recall", partition, "drop", *heads[first : first + RECORDS_AT_ONCE], units=RECORDS_AT_ONCE))
                for first in range(0, len(heads), RECORDS_AT_ONCE)
            ]
        )

    async def due(self, partition: int, most: int = 100) -> Due:
        """Puts pages whose time has come into their hosts' queues (lua/due.lua); FrontierFull."""
        answer = await self.step("due", partition, most, can_wait=True)
        queued, stale, more = msgpack.unpackb(answer)
        return Due(queued, stale, bool(more))

    async def renew(self, leases: Iterable[Lease]) -> list[Lease]:
        """Makes leases last `lease_s` from now; returns those that are gone."""
        by_partition: dict[int, list[Lease]] = defaultdict(list)
        for lease in leases:
            by_partition[lease.partition].append(lease)
        gone = []
        for partition, held in by_partition.items():
            sent = boottime()
            answer = await self.step("renew", partition, ms(self.limits.lease_s), *(lease.token for lease in held), units=len(held))
            for lease, letter in zip(held, answer.decode(), strict=True):
                if letter == "k":
                    lease.expires = sent + self.limits.lease_s
                else:
                    gone.append(lease)
        return gone

    # -- when a server has changed: started again, or another in its place -----------------------------------------------

    def run_of(self, partition: int) -> str:
        """Which run of its server answers for a partition; '': not known."""
        return self._run_of(self.key(partition, "ctr"))

    def run_of_address(self, address: str) -> str:
        return self._run_of(ip_shard_key(self.crawl, self.ip_shard_of(address)))

    def _answered(self, partition: int) -> None:
        run = self.run_of(partition)
        if run != self._runs.setdefault(partition, run) and run:
            self.server_changed()
        self._journal.answered(partition, boottime())

    def server_changed(self) -> None:
        if self.on_restart:
            self.on_restart()

    def take_changed(self) -> set[int]:
        """The partitions whose server is not the run that it was; known as it is from now on."""
        changed = {p for p, run in self._runs.items() if self.run_of(p) not in (run, "")}
        self._runs.update((p, self.run_of(p)) for p in changed)
        for p in changed:  # at once: what the new run answers would make the journal forget
            self._to_tell[p] += self._journal.take(p)
        return changed

    async def hold(self, partition: int, held: Sequence[tuple[Lease, float]]) -> list[Lease]:
        """Leases and the seconds that their requests may still take. Those that the partition knows last longer; returns the others: the
        hosts of their requests rest so long."""
        sent = boottime()
        rows = [(lease.token, lease.host, ms(most_s)) for lease, most_s in held]
        args = ms(self.limits.lease_s), msgpack.packb(rows), self.run_of(partition), ms(CALM_S)
        answer = await self.step("hold", partition, *args)
        gone = []
        for (lease, _), letter in zip(held, answer.decode(), strict=True):
            if letter == "k":
                lease.expires = sent + self.limits.lease_s
            else:
                gone.append(lease)
        return gone

    async def tell_again(self, partitions: Iterable[int]) -> int:
        """Tells partitions what they acknowledged in the last seconds before their server changed, links first. How many calls."""
        calls = {p: self._to_tell.pop(p, []) for p in partitions}

        async def links(p: int) -> None:
            for call in calls[p]:
                if isinstance(call, bytes):
                    await self._enqueue(p, call)

        async def outcomes(p: int) -> None:
            for call in calls[p]:
                if not isinstance(call, bytes):
                    await self.complete(p, call, again=True)

        waiting = [p for p, some in calls.items() if some]
        for tell in (links, outcomes):
            for first in range(0, len(waiting), TOLD_AT_ONCE):
                await asyncio.gather(*(tell(p) for p in waiting[first : first + TOLD_AT_ONCE]))
        return sum(map(len, calls.values()))

    async def robots(self, host: str, origins: Sequence[str]) -> list[KeptRobots | None]:
        """What is known of the robots.txt files of a host's origins."""
        p = self.partition_of(host)

        async def call() -> list[Any]:
            pipe = self.redis.pipeline(transaction=False)
            pipe.mget([*(self.key(p, f"robots:{origin}") for origin in origins), *(self.key(p, f"hop:{origin}") for origin in origins)])
            for origin in origins:
                pipe.pttl(self.key(p, f"robots:{origin}"))
                pipe.exists(self.key(p, f"stale:{origin}"))
            return await pipe.execute()

        values, *rest = await self.patiently(call)
        hops = values[len(origins) :]
        return [
            None if value is None and hop is None else KeptRobots(value, max(0, ttl) / 1000, bool(holds), hop)
            for value, hop, ttl, holds in zip(values[: len(origins)], hops, rest[::2], rest[1::2], strict=True)
        ]

    async def tell(self, host: str, outcome: Callable[[Lease], Outcome]) -> None:
        """News of a host that does not come with a lease."""
        p = self.partition_of(host)
        await self.complete(p, [outcome(Lease("", p, host, Entry(""), 0.0, 0.0))])

    def ip_shard_of(self, address: str) -> int:
        return ip_shard_of(address, self.partitions)

    @property
    def ip_shards(self) -> int:
        return ip_shards(self.partitions)

    async def ip_turns(
        self, shard: int, ends: Sequence[tuple[str, str, float | None]], wishes: Sequence[tuple[str, str, str]]
    ) -> list[float]:
        """Ends holds (address, token, boottime of the request's end, None if nothing was sent), then takes others (address, host, token).
        For each wish the seconds until it may be used; negative: refused, to be asked for again after so many."""
        limits, key = self.limits, ip_shard_key(self.crawl, shard)

        def call() -> Awaitable[Any]:
            now = boottime()
            rows = [(address, token, -1 if ended is None else max(0, ms(now - ended) - GUARD_MS)) for address, token, ended in ends]
            times = ms(limits.ip_delay_s), ms(limits.lease_s), ms(limits.look_ahead_s)
            return scripts.run(self.redis, "ip", key, *times, msgpack.packb(rows), msgpack.packb(list(wishes)))

        answer = await self.patiently(call)
        return [ms / 1000 for ms in msgpack.unpackb(answer)]

    async def override(self, host: str, override: Override | None) -> None:
        """Sets or takes back what an operator wants of a host; it outlives every worker."""
        await self.step("override", self.partition_of(host), host, "" if override is None else override.pack())

    async def overrides(self) -> dict[str, Override]:
        found = {}
        for p in range(self.partitions):
            rows = await self.patiently(partial(cast(Any, self.redis.hgetall), self.key(p, "overrides")))
            for host, text in rows.items():
                with contextlib.suppress(ValueError):
                    found[host.decode()] = Override.unpack(text.decode())
        return found

    async def requeue(self, reason: str = "", host: str = "") -> int:
        """Puts dead letters back into the frontier; all, or those with a reason, of a host. How many."""
        moved = 0
        for p in [self.partition_of(host)] if host else range(self.partitions):
            (size,) = await self.at_once(("LLEN", self.key(p, "dead")))
            left = size if isinstance(size, int) else REQUEUED_AT_ONCE  # a key of another type: the step moves it aside
            while left > 0:
                moved += int(await self.step("requeue", p, min(left, REQUEUED_AT_ONCE), reason, host))
                left -= REQUEUED_AT_ONCE
        return moved

    async def counts(self) -> Counts:
        """Two equal answers with nothing pending mean that the crawl is at its end (design: end of a crawl)."""

        async def one(partition: int) -> tuple[int, int, int]:
            commands = [("LLEN", self.key(partition, f"front:{k}")) for k in range(10)]
            for name in ("ready", "asleep", "wait", "leases"):
                commands.append(("ZCARD", self.key(partition, name)))
            commands.append(("HLEN", self.key(partition, "tails")))
            counters, *sizes = await self.at_once(("HMGET", self.key(partition, "ctr"), "enq", "done"), *commands)
            enqueued, done = (None, None) if isinstance(counters, Exception) else counters
            for size in (counters, *sizes):
                if isinstance(size, Exception) and not str(size).startswith("WRONGTYPE"):
                    raise FrontierError(str(size)) from size
            if sizes[-1] and not any(sizes[:-1]):  # only pages that are due in days may have a part on disk: they are not pending
                (queues,) = await self.at_once(("HKEYS", self.key(partition, "tails")))
                if isinstance(queues, list):
                    sizes[-1] = sum(not queue.startswith(b"later:") for queue in queues)
            # A key of another type hides what is there until a step has moved it aside: not known to be empty.
            return _number(enqueued), _number(done), sum(size if isinstance(size, int) else 1 for size in sizes)

        rows = []
        for first in range(0, self.partitions, 32):
            rows += await asyncio.gather(*(one(p) for p in range(first, min(first + 32, self.partitions))))
        return Counts(*(sum(column) for column in zip(*rows, strict=True)))

    async def audit(
        self, tokens_in_chunks: Callable[[int], Awaitable[dict[str, str] | None]] | None = None, repair: bool = False
    ) -> dict[str, Any]:
        """Counts all partitions by state (lua/audit.lua). Reads everything: for tests and repairs, with no worker running.
        `tokens_in_chunks`: host → serial of its token, of a partition; without it, a host whose token is nowhere else counts as waiting
        in a chunk. `repair`: pages that are due and in no list are put into theirs again."""
        total: dict[str, Any] = defaultdict(int, what=[])
        for p in range(self.partitions):
            tokens = None if tokens_in_chunks is None else await tokens_in_chunks(p)
            answer = await self.step("audit", p, b"" if tokens is None else msgpack.packb(tokens, use_bin_type=False), int(repair))
            for name, value in msgpack.unpackb(answer, unicode_errors="replace").items():
                if name == "what":
                    total["what"] += list(value)
                else:
                    total[name] += value
        return dict(total)

    async def dead_letters(self, most: int = 1000) -> list[tuple[str, str, Entry | None]]:
        """(host, reason, entry) of the newest dead letters of each partition."""
        letters: list[tuple[str, str, Entry | None]] = []
        for p in range(self.partitions):
            (texts,) = await self.at_once(("LRANGE", self.key(p, "dead"), 0, most - 1))
            for text in texts if isinstance(texts, list) else ():
                with contextlib.suppress(ValueError):
                    _, host, reason, data = text.split(b"\t", 3)
                    kind = reason.partition(b": ")[0]
                    letters.append((host.decode(), kind.decode(), codec.decode(data, host.decode())))
        return letters
