"""The index of fingerprints: which known pages have the content of a page. Copies meet wherever their hosts stand.

What is remembered is a table for each MinHash band, for each permutation of the SimHash, and for each exact hash (lua/near.lua): a fixed
number of entries, of which the oldest fall out. An entry leads to a page by its *doc id*: partition of its host, first 8 bytes of its URL
key. Redis finds and keeps, this side counts:

    exact     4 more bytes of the hash are equal
    MinHash   the page stands beside the other in at least `votes_least` bands (no signature is kept: the number of bands in which two
              pages meet estimates their Jaccard index)
    SimHash   at most 3 bits differ. Of n blocks at least n - 3 are equal: a table for each choice of so many (Manku, Jain, Das Sarma:
              "Detecting near-duplicates for web crawling", WWW 2007)

Whom two look-ups at the same time tell: a shard puts a page in before it answers, and pages of a call in their order, so of two twins the
later one sees the earlier. Where bands stand in several shards, each may see the other in some: a page that met another in some bands, but
not enough, is looked up once more after all its bands are in; the later one to be all in sees all.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from math import ceil
from typing import Any

import msgpack  # type: ignore[import-untyped]

from ..records import Copy, Fingerprint, Match, PageRecord
from . import scripts
from .frontier import Frontier
from .keys import near_shard_key, near_shards

MINHASH, SIMHASH = "minhash", "simhash"
HAMMING_MOST = 3  # bits that may differ
BATCH = 20  # pages a call: p99 in the server stays under 2 ms
NAMED_MOST = 6  # pages that are named to a page: the surest
NAME_BYTES = 92  # of a page, as a rule: a URL of 65 characters
NAMES_BYTES = 1_008  # of a set of names; a longer one is not kept
BANDS_MOST = 64
FEW_PAGES = 2**20  # a larger window needs longer parts of a SimHash: 16 bits are too few to tell 16 pages a set from the others
_DOC = struct.Struct(">H8s")
_SEGMENT_BYTES = 131_072 - 32  # what the allocator gives for it is no more
_NOBODY = bytes(_DOC.size)
_NAME = struct.Struct(">BIQ8s")  # kind, seconds of `seen_at`, SimHash, key of what it declares; then URL, and what it is an alias of
_HTTPS, _HAS_SIMHASH = 1, 2

CHANGED_BITS = 20  # pages with as many equal bands as twins have differ in fewer; two that have nothing in common differ in 32 ± 4

ReadRecords = Callable[[Sequence[tuple[int, bytes]]], Awaitable[Sequence["PageRecord | None"]]]
"""(partition, first 8 bytes of the URL key) of pages → their records."""


@dataclass(slots=True)
class Table:
    """`ordinal` tells its shard. `entry`: layout of an entry, doc id last; `ways` of them are a set, `sets` a segment."""

    name: str
    ordinal: int
    entry: str
    ways: int
    entries: int  # at the most
    sets: int = 0  # 0: as many as go into a segment
    row_bytes: int = 0  # 0: `ways` entries
    width: int = field(init=False)
    row: struct.Struct = field(init=False)
    head: tuple[str | int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.width = struct.calcsize(">" + self.entry)
        self.row = struct.Struct(">" + self.entry * self.ways)
        self.row_bytes = self.row_bytes or self.row.size
        self.sets = self.sets or _SEGMENT_BYTES // self.row_bytes
        segments = ceil(self.entries * self.width / (self.sets * self.row_bytes))
        self.head = self.name, segments, self.sets * self.row_bytes, self.row_bytes, self.width

    def place(self, key: int) -> tuple[int, str, str]:
        """What chooses the segment, first and last byte of the set there."""
        segment, place = divmod(key, self.sets)
        first = place * self.row_bytes
        return segment, str(first), str(first + self.row_bytes - 1)


_Asked = tuple[Table, list[int], list[int | str | bytes]]  # of which pages; what the script gets of each (lua/near.lua)


@dataclass(slots=True)
class _Found:
    """By doc id: whom a page meets. `bands`: once for each band, `votes`: in how many bands, two at least."""

    exact: set[bytes] = field(default_factory=set)
    bands: list[bytes] = field(default_factory=list)
    votes: dict[bytes, int] = field(default_factory=dict)
    distance: dict[bytes, int] = field(default_factory=dict)

    def count(self, *nobody: bytes) -> None:
        self.votes = {doc: n for doc, n in Counter(self.bands).items() if n > 1}
        self.exact.difference_update(nobody)
        for doc in nobody:
            self.votes.pop(doc, None)
            self.distance.pop(doc, None)


def simhash_tables(pages: int) -> tuple[int, int, list[tuple[int, ...]]]:
    """For a window of so many pages: number of blocks, ways of a set, and the blocks of each table."""
    blocks, ways = (4, 16) if pages <= FEW_PAGES else (5, 4)
    return blocks, ways, list(combinations(range(blocks), blocks - HAMMING_MOST))


def parts_of(simhash: int, blocks: int, chosen: Iterable[tuple[int, ...]]) -> Iterator[int]:
    """The chosen blocks of a SimHash beside each other, for each table; the first block is the lowest."""
    bounds = [64 * i // blocks for i in range(blocks + 1)]
    cut = [(simhash >> low) & ((1 << high - low) - 1) for low, high in pairwise(bounds)]
    for some in chosen:
        part = 0
        for i in some:
            part = part << (bounds[i + 1] - bounds[i]) | cut[i]
        yield part


class NearIndex:
    """`kinds`: of MINHASH and SIMHASH; `pages`: the window, entries of a table; `votes_least`: bands in which twins meet."""

    def __init__(
        self, frontier: Frontier, read_records: ReadRecords, *, pages: int, votes_least: int, kinds: Sequence[str] = (MINHASH, SIMHASH)
    ) -> None:
        self._frontier, self._read_records = frontier, read_records
        self._votes_least, self._kinds = votes_least, frozenset(kinds)
        self._blocks, ways, self._chosen = simhash_tables(pages)
        blocks = self._blocks
        self._exact = [Table(f"exact:{name}", i, "4s10s", 8, 2 * pages) for i, name in enumerate(("body", "text"))]
        self._simhash = [
            Table(f"simhash:{blocks}-{''.join(map(str, some))}", 2 + i, "Q10s", ways, pages, 256 if blocks == 4 else 0)
            for i, some in enumerate(self._chosen)
        ]
        shards = near_shards(frontier.partitions)
        self._names = Table("names", 0, f"{NAME_BYTES}s", 1, ceil(1.25 * pages / shards), row_bytes=NAMES_BYTES)
        self._minhash = [Table(f"minhash:{i}", i, "10s", 8, pages) for i in range(BANDS_MOST)]

    async def look_up(self, batch: Sequence[Copy]) -> list[tuple[Match, ...]]:
        """Puts pages into the index; for each the known pages that have its content, the surest first. Waits for Redis; FrontierError."""
        found: list[_Found] = []
        for first in range(0, len(batch), BATCH):
            found += await self._meet(batch[first : first + BATCH])
        meant = [self._meant(copy, one) for copy, one in zip(batch, found, strict=True)]
        names = await self._named({doc for docs in meant for doc, _ in docs})
        return [
            tuple(
                Match(names[doc], now)
                for doc, kind in docs
                if doc in names and names[doc].url != copy.url and (now := _kind_now(copy, names[doc], kind))
            )
            for copy, docs in zip(batch, meant, strict=True)
        ]

    def doc_of(self, copy: Copy) -> bytes:
        return _DOC.pack(self._frontier.partition_of(copy.host), copy.key[:8])

    # -- what meets in the tables ------------------------------------------------------------------------------------------

    async def _meet(self, batch: Sequence[Copy]) -> list[_Found]:
        found = [_Found() for _ in batch]
        shards = near_shards(self._frontier.partitions)
        named = self._put_names(batch)
        if shards > 1:  # what names a page stands before what leads to it
            await asyncio.gather(*(self._call(shard, [], data) for shard, data in named.items()))
            named.clear()
        await self._ask(batch, range(len(batch)), found, named)
        if shards > 1:
            again = [i for i, one in enumerate(found) if any(n < self._votes_least for n in one.votes.values())]
            for i in again:
                found[i] = _Found()
            if again:
                await self._ask(batch, again, found, named)
        return found

    async def _ask(
        self, batch: Sequence[Copy], which: Iterable[int], found: list[_Found], named: Mapping[int, list[int | str | bytes]]
    ) -> None:
        shards = near_shards(self._frontier.partitions)
        asked: dict[str, _Asked] = {}
        for i in which:
            for table, key, entry in self._entries(batch[i]):
                _, members, data = asked.setdefault(table.name, (table, [], []))
                members.append(i)
                data += (*table.place(key), entry)
        by_shard: dict[int, list[_Asked]] = defaultdict(list)
        for rows_of in asked.values():
            by_shard[rows_of[0].ordinal % shards].append(rows_of)
        touched = sorted({*by_shard, *named})
        answers = await asyncio.gather(*(self._call(shard, by_shard[shard], named.get(shard, [])) for shard in touched))
        for shard, answer in zip(touched, answers, strict=True):
            for (table, members, _), rows in zip(by_shard[shard], answer[:-1], strict=True):
                self._read(table, rows, members, batch, found)
        for i in which:
            found[i].count(self.doc_of(batch[i]), _NOBODY)

    async def _call(
        self, shard: int, asked: Sequence[_Asked], named: Sequence[int | str | bytes], wanted: Sequence[int | str] = ()
    ) -> list[bytes]:
        """`asked`, `named`: put in; `wanted`: sets of names. The sets of the tables asked, then those of names."""
        key = near_shard_key(self._frontier.crawl, shard)
        rows = [(*table.head, data) for table, _, data in asked]
        args = [msgpack.packb(given, use_bin_type=False) for given in (rows, (*self._names.head, named), wanted)]
        answer: list[bytes] = await self._frontier.patiently(lambda: scripts.run(self._frontier.redis, "near", key, *args))
        return answer

    def _entries(self, copy: Copy) -> Iterator[tuple[Table, int, bytes]]:
        """Table, what chooses the set (32 bits), entry."""
        doc, prints = self.doc_of(copy), copy.fingerprint
        for table, value in zip(self._exact, (prints.body_hash, prints.text_hash), strict=True):
            if len(value) == 8:
                yield table, int.from_bytes(value[:4], "big"), value[4:] + doc
        if MINHASH in self._kinds:
            for table, band in zip(self._minhash, prints.bands, strict=False):
                yield table, band & 0xFFFFFFFF, doc
        if SIMHASH in self._kinds and prints.simhash is not None:
            entry = prints.simhash.to_bytes(8, "big") + doc
            for table, part in zip(self._simhash, parts_of(prints.simhash, self._blocks, self._chosen), strict=True):
                yield table, part if self._blocks == 4 else part * 0x9E3779B1 & 0xFFFFFFFF, entry

    def _read(self, table: Table, rows: bytes, members: Sequence[int], batch: Sequence[Copy], found: list[_Found]) -> None:
        """Counts what stands in the sets of a table, one of each of the pages in `members`."""
        unpack, size, prints = table.row.unpack_from, table.row.size, [batch[i].fingerprint for i in members]
        for n, i in enumerate(members):
            row: Any = unpack(rows, n * size)
            if table.width == _DOC.size:
                found[i].bands += row
            elif table.entry[0] == "Q":
                mine = prints[n].simhash or 0
                for value, doc in zip(row[::2], row[1::2], strict=True):
                    if (differ := (value ^ mine).bit_count()) <= HAMMING_MOST:
                        found[i].distance[doc] = differ
            else:
                value = prints[n].body_hash if table.name == "exact:body" else prints[n].text_hash
                found[i].exact.update(doc for tag, doc in zip(row[::2], row[1::2], strict=True) if tag == value[4:])

    def _meant(self, copy: Copy, found: _Found) -> list[tuple[bytes, str]]:
        """Doc ids and kinds of match, the surest first."""
        near = {doc: n / len(copy.fingerprint.bands) for doc, n in found.votes.items() if n >= self._votes_least}
        for doc, differ in found.distance.items():
            near[doc] = max(near.get(doc, 0.0), 1 - differ / 8)
        best = sorted(near.keys() - found.exact, key=lambda doc: (-near[doc], doc))
        return [*((doc, "exact") for doc in sorted(found.exact)), *((doc, "near") for doc in best)][:NAMED_MOST]

    # -- whom a doc id means -----------------------------------------------------------------------------------------------

    def _shard_of(self, doc: bytes) -> int:
        return doc[-1] % near_shards(self._frontier.partitions)

    async def known(self, places: Iterable[tuple[int, bytes]]) -> dict[tuple[int, bytes], Copy]:
        """(partition, first 8 bytes of the URL key) → what its record says of a page, or, where that is not in Redis, the index."""
        found = await self._named({_DOC.pack(*place) for place in places})
        return {_DOC.unpack(doc): copy for doc, copy in found.items()}

    async def _named(self, docs: set[bytes]) -> dict[bytes, Copy]:
        if not docs:
            return {}
        ordered = sorted(docs)
        places = [_DOC.unpack(doc) for doc in ordered]
        known = [(p, key) for p, key in places if p < self._frontier.partitions]
        kept, records = await asyncio.gather(self._kept(ordered), self._read_records(known))
        recorded = dict(zip(known, records, strict=True))
        out = {}
        for doc, (partition, key) in zip(ordered, places, strict=True):
            record, name = recorded.get((partition, key)), kept.get(doc)
            if record is not None:
                simhash = name.fingerprint.simhash if name else record.fingerprint or None
                out[doc] = Copy(
                    record.url,
                    key,
                    "",
                    record.first_seen or record.fetched_at,
                    Fingerprint(record.content_hash, simhash=simhash),
                    declared_key=name.declared_key if name else b"",
                    alias_of=record.canonical,
                    status=record.status,
                    flags=record.flags,
                )
            elif name:
                out[doc] = name
        return out

    def _put_names(self, copies: Iterable[Copy]) -> dict[int, list[int | str | bytes]]:
        """By shard, as `_call` takes them."""
        named: dict[int, list[int | str | bytes]] = defaultdict(list)
        for copy in copies:
            doc = self.doc_of(copy)
            name = doc + _pack(copy)
            if len(name) + 2 <= NAMES_BYTES:
                named[self._shard_of(doc)] += (*self._names.place(_name_number(doc)), len(name).to_bytes(2, "big") + name)
        return named

    async def tell(self, copies: Iterable[Copy]) -> None:
        """What these pages are aliases of: known from now on to pages that meet them, as long as the index names them."""
        await asyncio.gather(*(self._call(shard, [], data) for shard, data in self._put_names(copies).items()))

    async def _kept(self, docs: Sequence[bytes]) -> dict[bytes, Copy]:
        by_shard: dict[int, list[bytes]] = defaultdict(list)
        for doc in docs:
            by_shard[self._shard_of(doc)].append(doc)
        wanted = {shard: [part for doc in some for part in self._names.place(_name_number(doc))] for shard, some in by_shard.items()}
        answers = await asyncio.gather(*(self._call(shard, [], [], parts) for shard, parts in wanted.items()))
        found = {}
        for some, answer in zip(by_shard.values(), answers, strict=True):
            for n, doc in enumerate(some):
                if (data := _name_in(answer[-1], n * NAMES_BYTES, doc)) and (copy := _unpack(doc, data)):
                    found[doc] = copy
        return found


def _name_number(doc: bytes) -> int:
    return int.from_bytes(doc[-5:-1], "big")


def _name_in(rows: bytes, at: int, doc: bytes) -> bytes:
    """What names a page in the set that begins at `at`; b"": nothing."""
    end = at + NAMES_BYTES
    while at + 2 < end and (length := int.from_bytes(rows[at : at + 2], "big")):
        if rows[at + 2 : at + 12] == doc:
            return rows[at + 12 : at + 2 + length] if at + 2 + length <= end else b""
        at += 2 + length
    return b""


def _kind_now(copy: Copy, known: Copy, kind: str) -> str:
    """The index remembers what a page was: by its latest SimHash, an exact copy may be a near one by now, or (empty) none any more."""
    mine, others = copy.fingerprint.simhash, known.fingerprint.simhash
    if mine is None or others is None or mine == others:
        return kind
    return "near" if (mine ^ others).bit_count() <= CHANGED_BITS else ""


def _pack(copy: Copy) -> bytes:
    simhash = copy.fingerprint.simhash
    kind = _HTTPS * copy.url.startswith("https://") + _HAS_SIMHASH * (simhash is not None)
    head = _NAME.pack(kind, max(0, min(int(copy.seen_at), 2**32 - 1)), simhash or 0, copy.declared_key[:8])
    texts = (copy.url.partition("://")[2], copy.alias_of)
    return head + b"\0".join(text.encode("utf-8", "surrogatepass") for text in texts if text)


def _unpack(doc: bytes, data: bytes) -> Copy | None:
    """None for what is not ours."""
    try:
        kind, seen_at, simhash, declared_key = _NAME.unpack_from(data)
        url, _, alias_of = data[_NAME.size :].decode("utf-8", "surrogatepass").partition("\0")
    except (ValueError, struct.error):
        return None
    prints = Fingerprint(b"", simhash=simhash if kind & _HAS_SIMHASH else None)
    scheme = "https" if kind & _HTTPS else "http"
    return Copy(
        f"{scheme}://{url}", doc[2:], "", seen_at, prints, declared_key=declared_key.strip(b"\0") and declared_key, alias_of=alias_of
    )
