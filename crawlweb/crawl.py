"""What one process holds of a crawl: Redis, the frontier and this worker's share of it, the WARC store. Knows no Scrapy."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, cast

from . import __version__
from .contents import Contents
from .default_settings import Config
from .errors import ConfigError, FrontierError, StoreError
from .frontier.accounts import Accounts
from .frontier.connect import Servers, shown
from .frontier.events import Events
from .frontier.frontier import Frontier
from .frontier.kinds import refuse_foreign_crawl, refuse_foreign_partitions
from .frontier.memory import Level, MemoryWatch, evicting, keeps_a_log
from .frontier.meta import Agreed, Meta
from .frontier.rows import NORMAL, Lease, Limits, Link
from .frontier.server import PrivateServer, Revival
from .frontier.starts import StartKey, inbox
from .frontier.totals import Totals
from .outbox import Ticket
from .pace import Pace
from .policy.canonical import Canonicalizer
from .policy.hosts import SUFFIX_LIST_DATE, SUFFIX_LIST_ID, SUFFIX_LIST_OLD_DAYS
from .policy.priority import front_queue, path_depth
from .policy.scope import Scope, in_depth, scope_name
from .records import Entry, Target
from .recrawls import Recrawls
from .seeds import SeedSource, SpiderArguments
from .spill import Spill
from .starts import Starts, StartUrls
from .store.chunks import ChunkStore
from .store.repair import repair
from .store.upload import Uploader
from .store.warc import WarcWriter
from .worker import Worker

logger = logging.getLogger(__name__)

START_S = 5.0  # a Redis that is started again while a worker starts is waited for


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the crawl tells its scheduler: there may be work, the crawl is over (why), a stat rose (by how much), a stat has a value, a
    request will not come back. What it asks: is the
    spider still giving start requests? which address has a name, '' if no clock of addresses is in force for it? what are the stats that
    are summed over workers? is there room for the body of one fetch more?"""

    wake: Callable[[], None]
    ended: Callable[[str], None]
    count: Callable[..., None]
    gauge: Callable[[str, float], None]
    starting: Callable[[], bool]
    address_of: Callable[[str], Awaitable[str]]
    dropped: Callable[[dict[str, object]], None]
    stats: Callable[[], Mapping[str, int]]
    has_room: Callable[[], bool]


class Crawl:
    """Opened and closed on the event loop. `explicit`: names of the settings that somebody set."""

    frontier: Frontier
    meta: Meta
    worker: Worker
    store: WarcWriter | None  # None: no WARC files are written
    contents: Contents
    uploader: Uploader | None

    def __init__(
        self, config: Config, arguments: SpiderArguments, worker_id: str, canonicalizer: Canonicalizer, hooks: Hooks, user_agent: str
    ) -> None:
        self.config, self.arguments, self.worker_id, self.canonicalizer, self.hooks = config, arguments, worker_id, canonicalizer, hooks
        self.folder = Path(config.data_dir, config.crawl)
        self.max_pages: int | None = None
        self.max_depth: int | None = None
        self.scope = Scope()
        self._user_agent = user_agent
        self._server: PrivateServer | None = None

    async def open(
        self,
        *,
        explicit: set[str],
        redis_params: Mapping[str, Any],
        capacity: int,
        fetch_s: float,
        start_urls: StartUrls | None = None,
    ) -> None:
        """ConfigError, one line, before anything is changed, for whatever the crawl cannot start with."""
        config, seeds = self.config, SeedSource(self.arguments.seeds, self.canonicalizer)
        await asyncio.to_thread(seeds.check)
        url = config.redis_url
        if not url:
            self._server = PrivateServer(Path(config.data_dir), config.redis_binary)
            await asyncio.to_thread(self._server.start)
            url = self._server.url
        self._servers = await Servers.connect(url, redis_params, config.redis_cluster, START_S)
        limits = Limits(
            min_delay_s=config.min_delay_s,
            latency_factor=config.latency_factor,
            ip_delay_s=config.ip_delay_s,
            lease_s=config.lease_s,
            expected_urls=config.expected_urls,
            active_hosts=config.active_hosts,
        )
        self.frontier = Frontier(self._servers.redis, config.crawl, config.partitions, self.worker_id, limits, self._servers.run_of)
        self._servers.on_change = self.frontier.server_changed
        if self._server:
            self.frontier.on_outage = Revival(self._server)
        self.meta = Meta(self.frontier)
        memory = MemoryWatch(self.frontier, config.redis_memory_bytes or None, count=self.hooks.count, gauge=self.hooks.gauge)
        self.accounts = Accounts(self.frontier, gauge=self.hooks.gauge)
        self.totals = Totals(self.frontier, self.hooks.stats)
        if (date.today() - SUFFIX_LIST_DATE).days > SUFFIX_LIST_OLD_DAYS:
            logger.warning("the public suffix list is of %s: before the next crawl, pip install -U publicsuffixlist", SUFFIX_LIST_DATE)
        try:
            await self._refuse_eviction(memory, url)
            await self._warn_of_volatility()
            start_keys = [inbox(self.frontier)]
            if start_urls and start_urls.key:
                start_keys.append(StartKey(self.frontier, start_urls.key, kind=start_urls.kind))
            await self._refuse_what_is_not_ours()
            await self._open_store()
            chunks = await self._agree_on_chunks(explicit)
            self.contents = await Contents.open(
                config, self.frontier, self.canonicalizer, lambda work: self.worker.run(work), self.hooks.count
            )
            if self.uploader:
                self.uploader.start()
        except (ConfigError, FrontierError):
            await self._leave_redis()
            raise
        self.worker = Worker(
            self.frontier,
            self.meta,
            capacity=capacity,
            fetch_s=fetch_s,
            once=config.mode == "once",
            max_pages=self.max_pages,
            seen_cache_keys=config.seen_cache_keys,
            wake=self.hooks.wake,
            ended=self.hooks.ended,
            count=self.hooks.count,
            url_key=self.canonicalizer.url_key,
            starting=self.hooks.starting,
            address_of=self.hooks.address_of,
            dropped=self.hooks.dropped,
            crawl_delay_cap_s=config.crawl_delay_cap_s,
            stuck_s=config.stuck_s,
            memory=memory,
            pace=Pace(self.frontier, config.redis_calls_per_s, self.hooks.gauge),
            gauge=self.hooks.gauge,
            has_room=self.hooks.has_room,
            events=Events(self.frontier, config.events_most) if config.events else None,
        )
        await self.meta.refresh_scope()
        await self.frontier.read_clock()
        self.frontier.left_runs = await self.worker.members.take_left()
        if self.arguments.seeds:
            self.worker.seeding += 1
            await self.meta.say_seeding(True)
        if start_urls:
            self.worker.starts = Starts(
                start_keys,
                self.frontier,
                memory,
                most=start_urls.most,
                read=start_urls.read,
                widen=self._widen,
                count=self.hooks.count,
                arrived=self.worker.ask,
                enough=lambda: self.worker.enough,
            )
        self.worker.start()
        self.worker.run(self.accounts.keep())
        if self.worker.starts:
            self.worker.run(self.worker.starts.take_forever())
        self.worker.run(self.totals.keep())
        if config.mode == "continuous":
            worker = self.worker
            recrawls = Recrawls(self.frontier, memory, own=worker.own_partitions, ask=worker.ask, count=self.hooks.count)
            worker.run(recrawls.run_forever())
        if chunks:
            spill = Spill(
                self.frontier,
                chunks,
                chunk_entries=config.spill_chunk,
                count=self.hooks.count,
                run=self.worker.run,
                scarce=lambda: memory.level >= Level.SCARCE,
                full=lambda: memory.level >= Level.FULL,
            )
            self.worker.run(spill.tune_forever())
            self.worker.run(spill.sweep_forever())
        if self.arguments.seeds:
            await self._seed(seeds)

    async def close(self) -> None:
        await self.worker.close()
        await self.contents.close()
        if self.store:
            await self.store.close()
        if self.uploader:
            await asyncio.to_thread(self.uploader.close)
        await self.accounts.close()
        await self.totals.close()
        with contextlib.suppress(FrontierError):  # it is away
            if not self.worker.in_hand:
                await self.worker.members.say_left(self._servers.runs)
        await self._leave_redis()

    def add_links(self, targets: Sequence[Target], lease: Lease, ticket: Ticket) -> None:
        """Links of a page into the frontier: those in scope, not too deep, not sent a moment ago."""
        parent = lease.entry
        if not self.scope.contains(Target(parent.url, b"", lease.host)):  # a seed that another worker added a moment ago
            self.worker.outbox.hold(ticket, self.meta.refresh_scope(), lambda: self._add_links(targets, parent, ticket))
        else:
            self._add_links(targets, parent, ticket)

    def _add_links(self, targets: Sequence[Target], parent: Entry, ticket: Ticket) -> None:
        count, depth = self.hooks.count, parent.depth + 1
        count("links/found", len(targets))
        if not in_depth(depth, self.max_depth):
            count("links/too_deep", len(targets))
            return
        referrer = parent.url if self.config.referrer else ""
        scope = self.scope
        inside = [target for target in targets if scope.contains(target)]
        count("links/out_of_scope", len(targets) - len(inside))
        new = [target for target in inside if not self.worker.outbox.sent_lately(target.key)]
        count("links/cached", len(inside) - len(new))
        self.worker.outbox.add_links(
            (Link(t.host, t.key, Entry(t.url, front_queue(path_depth(t.url)), depth, referrer), NORMAL) for t in new), ticket
        )

    async def _refuse_what_is_not_ours(self) -> None:
        """Keys of other types, another release's crawl, or one whose values cannot be read."""
        await refuse_foreign_crawl(self.frontier)
        begun = await self.meta.agreed()
        await refuse_foreign_partitions(self.frontier, begun.partitions if begun else self.config.partitions)

    async def _refuse_eviction(self, memory: MemoryWatch, url: str) -> None:
        try:
            await memory.look()
        except FrontierError:  # it does not tell; the watch will say so
            return
        for server in memory.servers:
            if server.evicts:
                raise ConfigError(f"REDIS_URL={shown(url)}: {evicting(server.policy)}")

    async def _warn_of_volatility(self) -> None:
        with contextlib.suppress(FrontierError):  # it does not tell
            if not all([await keeps_a_log(self.frontier, node) for node in self._servers.nodes()]):
                logger.warning(
                    "Redis keeps no append-only file: if it dies, everything since its last snapshot is lost, and what was done since "
                    "then is done again; set appendonly to yes (redis.conf, CONFIG SET, or the provider's parameters)"
                )

    async def _open_store(self) -> None:
        folder, config = self.folder / "warc", self.config
        self.store = self.uploader = None
        if not config.warc:
            return
        try:
            for done in await asyncio.to_thread(repair, folder):
                logger.info("finished the WARC file of a worker that died: %s", done)
        except StoreError as e:
            raise ConfigError(f"CRAWLWEB_DATA_DIR={config.data_dir}: {e}") from None
        try:
            self.uploader = Uploader(folder, config.warc_upload, keep=config.warc_keep) if config.warc_upload else None
        except StoreError as e:
            raise ConfigError(f"CRAWLWEB_WARC_UPLOAD={e}") from None
        self.store = WarcWriter(
            folder,
            self.worker_id,
            software=f"crawlweb/{__version__}",
            user_agent=self._user_agent,
            operator=config.contact,
            max_bytes=config.warc_max_bytes,
            on_finished=self.uploader.wake if self.uploader else lambda: None,
        )

    async def _agree_on_chunks(self, explicit: set[str]) -> ChunkStore | None:
        """As `_agree`. Returns the crawl's store of chunks, which its first worker makes; None, with a warning, if it is out of reach."""
        url = self.config.spill_url or str(self.folder / "cold")
        try:
            store_id = await self.meta.value("spill")
            made = None
            if store_id is None:
                made = ChunkStore(url, ChunkStore.new_id())
                await asyncio.to_thread(made.create)
            try:
                have = await self._agree(explicit, made.id if made else "")
            except (ConfigError, FrontierError):
                if made:
                    await asyncio.to_thread(made.discard)
                raise
            if made and have == made.id:
                return made
            if made:
                await asyncio.to_thread(made.discard)
            store = ChunkStore(url, have)
            if await asyncio.to_thread(store.is_there):
                return store
        except StoreError as e:
            raise ConfigError(f"CRAWLWEB_SPILL_URL={url}: {e}") from None
        logger.warning(
            "CRAWLWEB_SPILL_URL=%s is not where this crawl keeps the middle of its long queues: this worker leaves that to the others", url
        )
        return None

    async def _agree(self, explicit: set[str], spill: str) -> str:
        """Takes the values that the crawl was begun with; ConfigError for one that was set and differs. Returns the id of the store of
        chunks; `spill`: the one for a crawl that begins."""
        config, arguments = self.config, self.arguments
        numbers = ("partitions", "min_delay_s", "latency_factor", "ip_delay_s", "false_positives")
        shared = {name: f"CRAWLWEB_{name.upper()}" for name in (*numbers, "seen")}
        wanted = {name: f"{getattr(config, name):g}" for name in numbers} | {"seen": config.seen}
        named = {name: setting for name, setting in shared.items() if setting in explicit}
        wanted |= {"release": __version__, "canonical": self.canonicalizer.profile_id, "suffixes": SUFFIX_LIST_ID}
        named |= {"canonical": "canonical form (CRAWLWEB_TRACKING_PARAMETERS)", "suffixes": "public suffix list (publicsuffixlist)"}
        for name, default in (("scope", "any"), ("max_pages", ""), ("max_depth", "")):
            value = getattr(arguments, name)
            wanted[name] = default if value is None else str(value)
            if value is not None:
                named[name] = name
        have = Agreed.read(config.crawl, await self.meta.agree(wanted | ({"spill": spill} if spill else {}), named))
        self.frontier.partitions = have.partitions
        self.frontier.limits = replace(
            self.frontier.limits,
            min_delay_s=have.min_delay_s,
            latency_factor=have.latency_factor,
            ip_delay_s=have.ip_delay_s,
            seen=have.seen,
            false_positives=have.false_positives,
        )
        self.max_pages, self.max_depth = have.max_pages, have.max_depth
        self.scope = Scope(cast(Literal["any", "domain", "host"], have.scope), self.meta.scope)
        return have.spill

    async def _seed(self, seeds: SeedSource) -> None:
        kind = self.scope.kind
        if kind != "any":
            await self.meta.widen_scope(await asyncio.to_thread(lambda: {scope_name(kind, t) for t in seeds.targets()}))
        self.worker.run(self.worker.seed(seeds.batches()))

    async def _widen(self, seeds: Sequence[Link]) -> None:
        """Where the scope is that of the seeds, theirs too."""
        kind = self.scope.kind
        if kind != "any":
            await self.meta.widen_scope({scope_name(kind, Target(s.entry.url, s.key, s.host)) for s in seeds})

    async def _leave_redis(self) -> None:
        await self._servers.close()
        if self._server:
            await asyncio.to_thread(self._server.stop)
