"""What a crawl costs in Redis' memory, by kind of key: sampled a little at a time while it runs, or counted whole for an operator.

A sample is a page of SCAN, whose keys stand for all, and one partition's keys of fixed names (front queues, seen-set, zsets: few and
large, a page of SCAN would miss them), which stand for those of all partitions. Bytes are those of MEMORY USAGE and a key's share of Redis'
table of names; what the allocator wastes and buffers of connections are not among them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import AskError

from ..errors import FrontierError
from .cluster import nodes_of
from .frontier import Frontier
from .keys import KEYS, Key, crawl_key, near_shard_key, near_shards
from .memory import ServerMemory, server_memory

logger = logging.getLogger(__name__)

SAMPLE_S = 15.0
SAMPLE_KEYS = 100
SAMPLES_KEPT = 240  # an hour's
WALK_KEYS = 500  # a page of the whole walk
CLOSE_S, CLOSE_SAMPLES = 1.0, 5
TOKENS = 32
WHOLE_MEMBERS = 1000  # a key with no more is measured whole, a larger one by some of its members
SOME_MEMBERS = 100
POINTER_BYTES = 8
SEGMENT_BLOCKS, SEGMENTS_MEASURED = 65_535, 16  # of a filter's layer (lua/seen.lua)
EXPIRY_BYTES = 32  # a key's row in the table of those that expire

FRONT, SEGMENT, EXACT_SET = "front:<k>", "bloom:<layer>:<segment>", "seen:<bucket>"
OTHERS = Key("not of this crawl", "", "any", "")
_COUNTED_BY = {"list": "LLEN", "zset": "ZCARD", "hash": "HLEN", "set": "SCARD", "stream": "XLEN"}
_PENDING = (FRONT, "back:<host>", "park:<host>", "wait", "wait:<host> <origin>")
_SEEN = ("bloom", SEGMENT, "exact", "seen", EXACT_SET)
_HOST, _HOSTS, _PLACES, _RECORDS = "host:<host>", "hosts:<bucket>", ("ready", "asleep"), "rec:<bucket>"
_DUE = ("due:<hour>", "soon:<span>", "later:<day>")


@dataclass(slots=True)
class Tally:
    """`members`: of lists, zsets, hashes and sets; of front queues the URLs, of the filter's strings the URL keys in them; else one a
    key."""

    keys: float = 0.0
    members: float = 0.0
    size_bytes: float = 0.0

    def add(self, other: Tally, times: float = 1.0) -> None:
        self.keys += other.keys * times
        self.members += other.members * times
        self.size_bytes += other.size_bytes * times


Tallies = dict[str, Tally]


@dataclass(slots=True)
class Sample:
    """`scanned`: of `keys` that SCAN named; `fixed`: of `partitions`; `crawl`: keys that there is one of."""

    keys: int = 0
    partitions: int = 0
    scanned: Tallies = field(default_factory=lambda: defaultdict(Tally))
    fixed: Tallies = field(default_factory=lambda: defaultdict(Tally))
    crawl: Tallies = field(default_factory=lambda: defaultdict(Tally))


@dataclass(frozen=True, slots=True)
class Account:
    """`kinds`: by name in the table of keys; `table_bytes`: of the table of keys that expire. A figure is None where there is nothing of
    its kind."""

    kinds: Tallies
    keys: int
    table_bytes: float
    servers: tuple[ServerMemory, ...]

    def _each(self, kinds: Iterable[str], members: float | None = None) -> float | None:
        tallies = [self.kinds.get(kind, Tally()) for kind in kinds]
        n = sum(tally.members for tally in tallies) if members is None else members
        return sum(tally.size_bytes for tally in tallies) / n if n else None

    @property
    def pending_url(self) -> float | None:
        """Bytes a pending URL, in its queue alone."""
        return self._each(_PENDING)

    @property
    def seen_url(self) -> float | None:
        """Bytes a URL that was seen; seeds are in the exact set beside the filter."""
        filtered, exact = (self.kinds.get(kind, Tally()).members for kind in (SEGMENT, EXACT_SET))
        return self._each(_SEEN, filtered or exact)

    @property
    def active_host(self) -> float | None:
        """Bytes a host with a hash of its own, its place among the ready or the sleeping included."""
        alone = self._each([_HOST], self.kinds.get(_HOST, Tally()).keys)
        return None if alone is None else alone + (self._each(_PLACES) or 0.0)

    @property
    def packed_host(self) -> float | None:
        """Bytes a host that is packed with others."""
        return self._each([_HOSTS])

    @property
    def page_record(self) -> float | None:
        """Bytes a page record that is in Redis, what names it as due included."""
        records = self.kinds.get(_RECORDS)
        return self._each([_RECORDS, *_DUE], records.members) if records else None

    @property
    def used_bytes(self) -> int:
        return sum(server.used_bytes for server in self.servers)

    @property
    def known_bytes(self) -> float:
        """Of keys, tables, and servers that hold nothing."""
        empty = sum(server.start_bytes for server in self.servers)
        return empty + self.table_bytes + sum(tally.size_bytes for tally in self.kinds.values())


class Accounts:
    """`nodes`: gives a client for each server, by default the frontier's. `gauge`: a stat has this value."""

    def __init__(
        self,
        frontier: Frontier,
        nodes: Callable[[], Sequence[Redis]] | None = None,
        gauge: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self._frontier, self._tell = frontier, gauge
        self._nodes = nodes or partial(nodes_of, frontier.redis)
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_KEPT)
        self._partition = 0
        self._turn = 0
        self._cursors: dict[Redis, int] = {}  # of SCAN
        self._ours = re.compile(rf"\{{{re.escape(frontier.crawl)}(?::(?:(?:ip|near):)?\d+)?\}}:(.+)", re.S)
        self._pauses_s = itertools.chain((1.0, 4.0), itertools.repeat(SAMPLE_S))

    async def keep(self) -> None:
        """Keeps the stats up to date. Never raises."""
        try:
            for pause_s in self._pauses_s:
                await asyncio.sleep(pause_s)
                await self.sample()
                self._show(await self.estimate())
        except FrontierError as e:
            if not self._frontier.closing:
                logger.info("What the crawl costs in Redis is not known: %s", e)

    async def close(self) -> None:
        """The last figures, if Redis gives them at once. Never raises."""

        async def last() -> None:
            for _ in range(CLOSE_SAMPLES):
                if await self.sample():
                    break
            self._show(await self.estimate())

        try:
            await asyncio.wait_for(last(), CLOSE_S)
        except (FrontierError, asyncio.TimeoutError):
            logger.debug("Redis gave no last figures of its memory")

    def _show(self, account: Account) -> None:
        self._gauge("memory/pending_url", account.pending_url)
        self._gauge("memory/seen_url", account.seen_url)
        self._gauge("memory/active_host", account.active_host)
        self._gauge("memory/packed_host", account.packed_host)
        self._gauge("memory/page_record", account.page_record)
        self._gauge("memory/known_bytes", account.known_bytes)

    def _gauge(self, name: str, value: float | None) -> None:
        if value is not None:
            self._tell(name, round(value, 1) if value < 1e6 else round(value))

    # -- what is looked at --------------------------------------------------------------------------------------------------------

    async def sample(self) -> bool:
        """One more sample; true if SCAN came to its end."""
        sample = Sample()
        await self._fixed(sample, self._partition)
        await self._fingerprints(sample)
        self._partition = (self._partition + 1) % self._frontier.partitions
        nodes = self._nodes()
        self._turn += 1
        node = nodes[self._turn % len(nodes)]
        self._cursors[node] = await self._scan(sample, node, self._cursors.get(node, 0), SAMPLE_KEYS)
        self._samples.append(sample)
        return self._cursors[node] == 0

    async def walk(self, progress: Callable[[int, int], None] = lambda *_: None) -> Account:
        """Counts all keys; `progress`: so many of how many."""
        whole = Sample()
        for p in range(self._frontier.partitions):
            await self._fixed(whole, p)
        await self._fingerprints(whole)
        keys = sum([n for n, _ in [await self._sizes(node) for node in self._nodes()]])
        for node in self._nodes():
            cursor = -1
            while cursor:
                cursor = await self._scan(whole, node, max(cursor, 0), WALK_KEYS)
                progress(whole.keys, keys)
        return await self._account([whole])

    async def estimate(self) -> Account:
        """Of all keys, by the samples."""
        return await self._account(self._samples)

    async def _account(self, samples: Iterable[Sample]) -> Account:
        whole = Sample()
        for sample in samples:
            whole.keys += sample.keys
            whole.partitions += sample.partitions
            for mine, its in ((whole.scanned, sample.scanned), (whole.fixed, sample.fixed)):
                for kind, tally in its.items():
                    mine[kind].add(tally)
            whole.crawl = sample.crawl
        sizes = [await self._sizes(node) for node in self._nodes()]
        keys, slots_bytes = sum(n for n, _ in sizes), sum(_slots(n) for n, _ in sizes) * POINTER_BYTES
        kinds: Tallies = defaultdict(Tally)
        for tallies, times in (
            (whole.scanned, keys / whole.keys if whole.keys else 0.0),
            (whole.fixed, self._frontier.partitions / whole.partitions if whole.partitions else 0.0),
            (whole.crawl, 1.0),
        ):
            for kind, tally in tallies.items():
                kinds[kind].add(tally, times)
        for tally in kinds.values():
            tally.size_bytes += tally.keys * slots_bytes / max(1, keys)
        table_bytes = sum(expiring * EXPIRY_BYTES + _slots(expiring) * POINTER_BYTES for _, expiring in sizes)
        servers = tuple([await server_memory(self._frontier, node) for node in self._nodes()])
        return Account(dict(kinds), keys, table_bytes, servers)

    async def _fixed(self, sample: Sample, p: int) -> None:
        """A partition's keys of fixed names, and the crawl's own."""
        frontier = self._frontier
        fronts = [frontier.key(p, f"front:{k}") for k in range(10)]
        named = [*((row, frontier.key(p, row.name)) for row in _FIXED), *((_ROWS[FRONT], front) for front in fronts)]
        measured = await self._measured(frontier.redis, named)
        if FRONT in measured:
            measured[FRONT].members = await self._inline(fronts)
        for kind, tally in measured.items():
            sample.fixed[kind].add(tally)
        await self._filter(sample, p)
        sample.partitions += 1
        sample.crawl = await self._measured(frontier.redis, [(row, crawl_key(frontier.crawl, row.name)) for row in _CRAWL])

    async def _fingerprints(self, sample: Sample) -> None:
        """The tables of the index of fingerprints, by their first segments: all are of one size."""
        for shard in range(near_shards(self._frontier.partitions)):
            key = near_shard_key(self._frontier.crawl, shard)
            (state,) = await self._ask(self._frontier.redis, [("HGETALL", key)])
            fields = state.items() if isinstance(state, dict) else ()
            tables = {name[1:]: int(n) for name, n in fields if name[:1] == b"n" and _is_number(n)}
            firsts = [key.removesuffix("near").encode() + table + b":0" for table in tables]
            named = [(self._row_of(first), first) for first in firsts]
            for kind, tally in (await self._measured(self._frontier.redis, named)).items():
                segments = [n for (row, _), n in zip(named, tables.values(), strict=True) if row.name == kind]
                sample.crawl[kind].add(tally, sum(segments) / len(segments))

    async def _inline(self, fronts: Sequence[str]) -> float:
        """URLs that travel with tokens, by the first tokens of each queue."""
        answers = await self._ask(self._frontier.redis, [c for key in fronts for c in (("LLEN", key), ("LRANGE", key, 0, TOKENS - 1))])
        queues = [(n, tokens) for n, tokens in zip(answers[::2], answers[1::2], strict=True) if n and tokens]
        return float(sum(n * sum(token.count(b"\t") > 2 for token in tokens) / len(tokens) for n, tokens in queues))

    async def _filter(self, sample: Sample, p: int) -> None:
        """The segments of a partition's filter, by the first of each layer: all have their share of keys."""
        (layers,) = await self._ask(self._frontier.redis, [("HGETALL", self._frontier.key(p, "bloom"))])
        layers = layers if isinstance(layers, dict) else {}
        for name, blocks in layers.items():
            layer = name[1:].decode(errors="replace")
            if name[:1] != b"b" or not layer.isdecimal() or not _is_number(blocks):
                continue
            segments = -(-int(blocks) // SEGMENT_BLOCKS)
            looked_at = min(segments, SEGMENTS_MEASURED)
            named = [(_ROWS[SEGMENT], self._frontier.key(p, f"bloom:{layer}:{s}")) for s in range(looked_at)]
            measured = (await self._measured(self._frontier.redis, named)).get(SEGMENT, Tally())
            measured.members = 0
            sample.fixed[SEGMENT].add(measured, segments / looked_at if looked_at else 0)
            used = layers.get(b"u" + name[1:], b"")
            sample.fixed[SEGMENT].members += int(used) if _is_number(used) else 0

    async def _scan(self, sample: Sample, client: Redis, cursor: int, count: int) -> int:
        """A page of names from a cursor; the next cursor, 0 at the end."""
        cursor, names = await self._frontier.patiently(lambda: cast(Any, client.scan(cursor, count=count)))
        named = [(self._row_of(name), name) for name in names]
        sample.keys += len(named)
        by_sample = [(row, name) for row, name in named if row not in _APART]
        for kind, tally in (await self._measured(client, by_sample)).items():
            sample.scanned[kind].add(tally)
        return int(cursor)

    def _row_of(self, name: bytes) -> Key:
        found = self._ours.fullmatch(name.decode(errors="replace"))
        return next((row for pattern, row in _PATTERNS if pattern.fullmatch(found[1])), OTHERS) if found else OTHERS

    async def _measured(self, client: Redis, named: Sequence[tuple[Key, bytes | str]]) -> Tallies:
        """Of keys that are there and of the type that their row says."""
        tallies: Tallies = defaultdict(Tally)
        counts = await self._ask(client, [(_COUNTED_BY.get(row.kind, "EXISTS"), name) for row, name in named])
        there = [(row, name, n) for (row, name), n in zip(named, counts, strict=True) if n]
        samples = [0 if n <= WHOLE_MEMBERS else SOME_MEMBERS for _, _, n in there]
        usage = [("MEMORY USAGE", name, "SAMPLES", some) for (_, name, _), some in zip(there, samples, strict=True)]
        for (row, _, n), size_bytes in zip(there, await self._ask(client, usage), strict=True):
            if size_bytes:
                tallies[row.name].add(Tally(1, n, size_bytes))
        return tallies

    async def _ask(self, client: Redis, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers; None where a key is of another type, or not there any longer."""

        async def call() -> list[Any]:
            pipe = client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            answers = await pipe.execute(raise_on_error=False)
            for answer in answers:
                # A key may have gone to another node since this one named it.
                if isinstance(answer, Exception) and not isinstance(answer, AskError) and not str(answer).startswith("WRONGTYPE"):
                    raise answer
            return [None if isinstance(answer, Exception) else answer for answer in answers]

        return await self._frontier.patiently(call) if commands else []

    async def _sizes(self, client: Redis) -> tuple[int, int]:
        """Keys in the database, and those that expire."""
        spaces = await self._frontier.patiently(lambda: cast(Any, client.info("keyspace")))
        space = spaces.get(f"db{client.connection_pool.connection_kwargs.get('db') or 0}", {})
        return int(space.get("keys", 0)), int(space.get("expires", 0))


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) < 16


def _slots(keys: int) -> int:
    """Of a table for so many keys."""
    return 1 << (keys - 1).bit_length() if keys else 0


def _pattern(row: Key) -> re.Pattern[str]:
    return re.compile("".join(".+" if part.startswith("<") else re.escape(part) for part in re.split(r"(<[^>]*>)", row.name)), re.S)


_ROWS = {row.name: row for row in KEYS}
_FIXED = [row for row in KEYS if row.scope == "partition" and "<" not in row.name]
_CRAWL = [row for row in KEYS if row.scope == "crawl" and "<" not in row.name]
_APART = [*_FIXED, *_CRAWL, _ROWS[FRONT], _ROWS[SEGMENT], *(row for row in KEYS if row.name.endswith(":<segment>"))]
# The more of a name is given, the earlier: `park:<host>:chunks` before `park:<host>`.
_PATTERNS = sorted(((_pattern(row), row) for row in KEYS), key=lambda pair: -len(re.sub("<[^>]*>", "", pair[1].name)))
