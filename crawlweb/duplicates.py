"""Which pages show what others show: pages of a moment are looked up together (frontier/near.py), then judged (policy/duplicates.py)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .default_settings import Config
from .errors import ConfigError
from .frontier.frontier import Frontier
from .frontier.near import MINHASH, SIMHASH, NearIndex, ReadRecords
from .policy.duplicates import CHAIN_MOST, Authority, DomainRanks, Verdict, judge, no_authority
from .policy.hosts import host_of
from .records import Copy

WAIT_MOST = 64  # pages that wait for one look-up
KEY_BYTES = 8  # of a URL key, in a record's


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the record of a URL stands."""

    url: str
    key: bytes
    host: str


class Duplicates:
    """`tick_s`: pages wait so long for company. `url_key`: ValueError for what is no URL. `spawn`: starts a task of the worker's."""

    def __init__(
        self,
        index: NearIndex,
        partition_of: Callable[[str], int],
        url_key: Callable[[str], bytes],
        spawn: Callable[[Coroutine[Any, Any, None]], Any],
        tick_s: float,
        authority: Authority = no_authority,
    ) -> None:
        self._index, self._partition_of, self._url_key = index, partition_of, url_key
        self._spawn, self._tick_s, self._authority = spawn, tick_s, authority
        self._waiting: list[tuple[Copy, asyncio.Future[Verdict]]] = []
        self._full = asyncio.Event()
        self._flushing = False

    @classmethod
    def of(
        cls,
        config: Config,
        frontier: Frontier,
        read_records: ReadRecords,
        url_key: Callable[[str], bytes],
        spawn: Callable[[Coroutine[Any, Any, None]], Any],
        *,
        tick_s: float,
        votes_least: int,
    ) -> Duplicates:
        """As the settings say. Reads the file of ranks. ConfigError."""
        for kind in config.near:
            if kind not in (MINHASH, SIMHASH):
                raise ConfigError(f"CRAWLWEB_NEAR={kind!r}: {MINHASH}, {SIMHASH} or both expected")
        authority = DomainRanks.read(config.domain_ranks) if config.domain_ranks else no_authority
        index = NearIndex(frontier, read_records, pages=config.near_pages, votes_least=votes_least, kinds=config.near)
        return cls(index, frontier.partition_of, url_key, spawn, tick_s, authority)

    async def verdict(self, copy: Copy) -> Verdict:
        """Puts a page into the index and says whether it counts. To be asked once for a fetch, of pages with content (no errors, no soft
        404s). Waits for Redis; FrontierError at the end of the crawl."""
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting.append((copy, answer))
        if len(self._waiting) >= WAIT_MOST:
            self._full.set()
        if not self._flushing:
            self._flushing = True
            self._spawn(self._flush())
        return await answer

    async def _flush(self) -> None:
        """Until nobody waits. One look-up at a time: what comes meanwhile is the next one."""
        some: list[tuple[Copy, asyncio.Future[Verdict]]] = []
        try:
            while self._waiting:
                if len(self._waiting) < WAIT_MOST:
                    self._full.clear()
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._full.wait(), self._tick_s)
                some, self._waiting = self._waiting[:WAIT_MOST], self._waiting[WAIT_MOST:]
                verdicts = await self._judged([copy for copy, _ in some])
                aliases = []
                for (copy, answer), verdict in zip(some, verdicts, strict=True):
                    if verdict.duplicate_of:
                        aliases.append(replace(copy, alias_of=verdict.duplicate_of))
                    if not answer.done():
                        answer.set_result(verdict)
                await self._index.tell(aliases)
        except Exception as e:
            for _, answer in (*some, *self._waiting):
                if not answer.done():
                    answer.set_exception(e)
            self._waiting.clear()
        finally:
            self._flushing = False
            for _, answer in (*some, *self._waiting):  # the task was cancelled
                answer.cancel()
            self._waiting.clear()

    async def _judged(self, pages: Sequence[Copy]) -> list[Verdict]:
        targets = [self._place(page.declared) for page in pages]
        pages = [replace(page, declared_key=target.key[:KEY_BYTES] if target else b"") for page, target in zip(pages, targets, strict=True)]
        found = [[replace(match, copy=self._completed(match.copy)) for match in some] for some in await self._index.look_up(pages)]
        starts: list[_Place | None] = [
            None if target is None or target.key == page.key else target for page, target in zip(pages, targets, strict=True)
        ]
        aliases = [match.copy for some in found for match in some if match.copy.alias_of]
        chains = await self._chains([*starts, *(self._place(copy.alias_of) for copy in aliases)])
        heads = {}
        for copy, chain in zip(aliases, chains[len(pages) :], strict=True):
            head = chain[-1] if chain else None
            if chain and head is None:  # what it is an alias of is known by its URL only: the record is on disk
                alias = next((link for link in reversed(chain) if link is not None), copy)
                if place := self._place(alias.alias_of):
                    head = replace(alias, url=place.url, key=place.key, host=place.host, alias_of="", declared_key=b"")
            if head is not None and not head.alias_of:
                heads[copy.key[:KEY_BYTES]] = head
        verdicts = []
        for page, matches, target, chain in zip(pages, found, targets, chains, strict=False):
            known = {match.copy.key[:KEY_BYTES]: match.copy for match in matches}  # more than records, which may not be written yet
            if target is None:  # it declares nothing that could be a page
                verdicts.append(judge(replace(page, declared=""), matches, (), heads, self._authority))
                continue
            if target.key == page.key:
                chain = [page]
            elif chain == [None]:
                chain = [known.get(target.key[:KEY_BYTES])]
            followed = [copy if copy is None else known.get(copy.key[:KEY_BYTES], copy) for copy in chain]
            verdicts.append(judge(page, matches, followed, heads, self._authority))
        return verdicts

    async def _chains(self, starts: Sequence[_Place | None]) -> list[list[Copy | None]]:
        """The page at each place, the page that it is an alias of, and so on; a page that is met again, or not known, ends it. A read a
        hop, for all of them."""
        chains: list[list[Copy | None]] = [[] for _ in starts]
        ahead = list(starts)
        for _ in range(CHAIN_MOST):
            wanted = {(self._partition_of(place.host), place.key[:KEY_BYTES]): place for place in ahead if place is not None}
            if not wanted:
                break
            known = await self._index.known(wanted)
            for n, place in enumerate(ahead):
                if place is None:
                    continue
                copy = known.get((self._partition_of(place.host), place.key[:KEY_BYTES]))
                met = any(link is not None and link.key[:KEY_BYTES] == place.key[:KEY_BYTES] for link in chains[n])
                chains[n].append(None if copy is None else replace(copy, key=place.key, host=place.host))
                ahead[n] = self._place(copy.alias_of) if copy is not None and not met else None
        return chains

    def _place(self, url: str) -> _Place | None:
        try:
            return _Place(url, self._url_key(url), host_of(url)) if url else None
        except ValueError:
            return None

    def _completed(self, copy: Copy) -> Copy:
        try:
            return replace(copy, host=host_of(copy.url))
        except ValueError:
            return copy
