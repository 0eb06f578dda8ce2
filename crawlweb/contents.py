"""A page whose response is here: analysed, compared with the pages before it, and made ready for WARC, event and record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .analysis import Analysis, Analyst, Outlinks, Recipe, Task
from .content.fingerprint import VOTES_LEAST
from .content.page import Wants
from .content.soft_404 import is_like
from .default_settings import Config
from .duplicates import UNCHECKED, Duplicates
from .frontier.frontier import Frontier
from .frontier.pages import record_key
from .frontier.rows import Lease, Outcome, PageEvent
from .outbox import flush_s
from .parsers import Parsers
from .policy.canonical import Canonicalizer
from .policy.duplicates import UNKNOWN, Verdict
from .policy.hosts import host_of
from .policy.recrawl import RARE_LEAST_S, after_fetch, earlier_versions
from .records import About, Copy, Earlier, Fetch, PageRecord, Target, WarcRef, boottime

COUNTS_ITSELF = Verdict()
SUPERSEDE_WAITS_S = (0.2, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Content:
    """What is known of a page. `changed`: since its last fetch; None: there was none, or it is not known."""

    analysis: Analysis
    canonical_url: str  # canonical form of its URL; for the page that it is an alias of see `twin`
    url_key: bytes
    soft_404: bool = False
    twin: Verdict = COUNTS_ITSELF
    before: PageRecord | None = None
    changed: bool | None = None

    @classmethod
    def of(cls, analyst: Analyst, task: Task) -> Content:
        """From the response alone."""
        return cls(analyst.analyse(task), analyst.canonicalizer.canonical_url(task.url), analyst.canonicalizer.url_key(task.url))

    @property
    def duplicate_of(self) -> str:
        """URL of the page that this one is an alias of; "": it counts itself."""
        return self.twin.duplicate_of

    @property
    def fingerprint_hex(self) -> str:
        simhash = self.analysis.fingerprint.simhash
        return "" if simhash is None else f"{simhash:016x}"


@dataclass(frozen=True, slots=True)
class Headers:
    """Values that a record keeps, "" where there are none."""

    content_type: str = ""
    etag: str = ""
    last_modified: str = ""


def recipe_of(config: Config) -> Recipe:
    return Recipe(
        Wants(config.anchor_text, config.images, config.structured_data, config.main_text, config.language),
        config.tracking_parameters,
        config.max_url_chars,
        fingerprint=config.duplicates or config.records or config.events,
        minhash=config.duplicates and "minhash" in config.near,
        soft_404=config.soft_404,
    )


class Contents:
    """`count`: a stat rises. `duplicates`: None where nobody looks for them."""

    def __init__(
        self,
        frontier: Frontier,
        canonicalizer: Canonicalizer,
        parsers: Parsers,
        duplicates: Duplicates | None,
        config: Config,
        count: Callable[..., None],
    ) -> None:
        self._frontier, self._canonicalizer, self._parsers, self._duplicates = frontier, canonicalizer, parsers, duplicates
        self.config, self._count = config, count

    @classmethod
    async def open(
        cls,
        config: Config,
        frontier: Frontier,
        canonicalizer: Canonicalizer,
        spawn: Callable[[Coroutine[Any, Any, None]], Any],
        count: Callable[..., None],
    ) -> Contents:
        """ConfigError. `spawn`: starts a task of the worker's."""
        duplicates = None
        if config.duplicates:
            records, url_key, tick_s = frontier.records_of, canonicalizer.url_key, flush_s(frontier.limits.min_delay_s)
            duplicates = await asyncio.to_thread(
                partial(Duplicates.of, config, frontier, records, url_key, spawn, tick_s=tick_s, votes_least=VOTES_LEAST)
            )
        parsers = Parsers(recipe_of(config), canonicalizer, config.parsers, config.inline_bytes)
        return cls(frontier, canonicalizer, parsers, duplicates, config, count)

    async def close(self) -> None:
        await self._parsers.close()

    def dated(self, fetch: Fetch) -> Fetch:
        """With its time by the clock of Redis: this machine's may be wrong."""
        return replace(fetch, fetched_at=self._frontier.unix_now() - (boottime() - fetch.started))

    async def of(self, task: Task, lease: Lease, fetched_at: float) -> Content:
        """FetchError `parser_died`: the page ended the process that analysed it. FrontierError at the end of the crawl."""
        entry = lease.entry
        analysis = await self._parsers.analyse(task, suspect=bool(entry.expiries or entry.failures))
        key = self._canonicalizer.url_key(task.url)
        content = Content(analysis, self._canonicalizer.canonical_url(task.url), key)
        if entry.again or entry.request or entry.failures or entry.expiries:  # others are fetched for the first time
            before = await self._frontier.record(lease.host, key)
            if before is not None:
                content = replace(content, before=before, changed=before.content_hash != _content_hash(analysis))
        looks_missing = analysis.looks_missing
        if self.config.soft_404 and lease.error_shapes and not looks_missing:
            looks_missing = is_like(analysis.page, task.url, lease.error_shapes)
        if looks_missing:
            self._count("soft_404")
            return replace(content, soft_404=True)
        if self._duplicates is not None:
            seen_at = content.before.first_seen if content.before else fetched_at
            twin = await self._duplicates.verdict(Copy(task.url, key, lease.host, seen_at, analysis.fingerprint, _declared(analysis)))
            if twin is UNCHECKED:
                self._count("duplicates/unchecked")
            if twin.kind:
                self._count(f"duplicates/{twin.kind}")
            content = replace(content, twin=twin)
        return content

    async def after_failure(self, lease: Lease, status: int, now: float) -> tuple[bytes, PageRecord] | None:
        """Key and record of a page that was fetched before and is not there now (`status` 0: no answer): it is tried again some day."""
        key = self._canonicalizer.url_key(lease.entry.url)
        before = await self._frontier.record(lease.host, key)
        if before is None:
            return None
        changed = False if status == 304 else None
        recrawl = after_fetch(before, now, changed, flags=before.flags)
        rare = max(recrawl.next_at, now + RARE_LEAST_S) if changed is None else recrawl.next_at
        kept = replace(
            before, fetched_at=now, fetches=before.fetches + 1, changes=recrawl.changes, interval_s=recrawl.interval_s, next_at=rare
        )
        return record_key(key), kept if status == 304 else replace(kept, status=status)

    async def supersede(self, content: Content, url: str) -> None:
        """Pages that were handed on leave their place to this one, a better copy: their records say so. A record that is not there yet is
        waited for, but not for ever: its page may never be complete."""
        left = [place for alias in content.twin.supersedes if (place := self._place(alias)) is not None]
        for wait_s in SUPERSEDE_WAITS_S:
            done = [await self._frontier.make_alias(host, key, url, "duplicate") for host, key in left]
            self._count("duplicates/superseded", sum(done))
            left = [place for place, is_done in zip(left, done, strict=True) if not is_done]
            if not left:
                return
            await asyncio.sleep(wait_s)

    def _place(self, url: str) -> tuple[str, bytes] | None:
        """Host and URL key; None: it is no URL, whatever stood in Redis."""
        try:
            return host_of(url), self._canonicalizer.url_key(url)
        except ValueError:
            return None

    def wanted(self, content: Content) -> Target | None:
        """The canonical URL that a page declares and that is not known: what is there decides whether it is believed."""
        if content.twin.declaration != UNKNOWN or (content.analysis.said.nofollow and not self.config.follow_nofollow):
            return None
        return self._canonicalizer.target(_declared(content.analysis))

    def about(self, content: Content) -> About:
        """What the WARC says of the page."""
        analysis, twin, before = content.analysis, content.twin, content.before
        fields = (
            ("charset", analysis.page.encoding),
            ("language", analysis.page.language),
            ("canonical", analysis.page.canonical or ""),
            ("fingerprint", content.fingerprint_hex),
            ("duplicate-of", twin.duplicate_of),
            ("soft-404", "yes" if content.soft_404 else ""),
        )
        return About(
            outlinks=Outlinks(analysis),
            fields=fields,
            earlier=Earlier(before.url, before.fetched_at, before.warc) if before else None,
            near_duplicate_of=Earlier(twin.duplicate_of) if twin.kind == "near" and not self.config.store_duplicates else None,
        )

    def outcome(self, content: Content, outcome: Outcome, fetch: Fetch, warc: WarcRef | None, headers: Headers) -> Outcome:
        """The outcome of a page, with what is kept and published of it."""
        analysis, twin, before = content.analysis, content.twin, content.before
        content_hash, simhash = _content_hash(analysis), analysis.fingerprint.simhash
        flags = {
            "soft_404": content.soft_404,
            "noindex": analysis.said.noindex,
            "duplicate": bool(twin.duplicate_of) and twin.kind != "near",
            "near_duplicate": bool(twin.duplicate_of) and twin.kind == "near",
            "truncated": fetch.truncated is not None,
        }
        kept_flags = frozenset(name for name, holds in flags.items() if holds)
        recrawl = after_fetch(before, fetch.fetched_at, content.changed, flags=kept_flags)
        record = PageRecord(
            url=fetch.url,
            fetched_at=fetch.fetched_at,
            status=fetch.status,
            content_hash=content_hash,
            fingerprint=simhash or 0,
            etag=headers.etag,
            last_modified=headers.last_modified,
            fetches=before.fetches + 1 if before else 1,
            first_seen=(before.first_seen if before else 0.0) or fetch.fetched_at,
            warc=warc,
            canonical=twin.duplicate_of,
            flags=kept_flags,
            changes=recrawl.changes,
            interval_s=recrawl.interval_s,
            next_at=recrawl.next_at,
            versions=earlier_versions(before, content.changed, self.config.versions),
        )
        event = PageEvent(
            url=fetch.url,
            url_key=content.url_key,
            status=fetch.status,
            fetched_at=fetch.fetched_at,
            warc=warc,
            fingerprint=content.fingerprint_hex,
            changed=content.changed,
            duplicate_of=twin.duplicate_of,
            supersedes=twin.supersedes,
            soft_404=content.soft_404,
            content_type=headers.content_type,
        )
        if not self.config.records:
            return replace(outcome, event=event)
        return replace(outcome, record=record, record_key=record_key(content.url_key), event=event)


def _declared(analysis: Analysis) -> str:
    return analysis.page.canonical or analysis.page.og_url or ""


def _content_hash(analysis: Analysis) -> bytes:
    return analysis.fingerprint.text_hash or analysis.fingerprint.body_hash
