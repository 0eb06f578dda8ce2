"""Seeds from outside: into a crawl whose workers run, or stand still, or were never started."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import click

from ..default_settings import Config
from ..errors import ConfigError, FrontierFull
from ..frontier.connect import Servers
from ..frontier.frontier import Frontier
from ..frontier.inspect import begun
from ..frontier.meta import SEEDING_S, Meta
from ..frontier.rows import Link
from ..frontier.starts import inbox
from ..policy.canonical import Canonicalizer
from ..policy.hosts import SUFFIX_LIST_ID
from ..policy.scope import scope_name
from ..records import Target
from ..seeds import SeedBatch, SeedLines
from ..starts import place
from . import main
from .common import Failure, Settings, json_option, on_servers, settings_option
from .shown import plain, print_json

BAD_SHOWN = 20


@main.group()
def seeds() -> None:
    """Start URLs of a crawl."""


@seeds.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL|@FILE|-...")
@click.option("--strict", is_flag=True, help="stops at the first line that is no http or https URL; what stands before it is added")
@json_option
@settings_option
def add(urls: tuple[str, ...], strict: bool, as_json: bool, settings: Settings) -> None:
    """Adds seeds: URLs, files of them (a line each, # begins a comment), or - for standard input. Running workers take them up at once.

    A seed that the crawl knows is not fetched again. With scope domain or host, seeds widen the scope. In a crawl that no worker has begun
    they wait for its first one. Exit status 1 if some lines are no URLs.
    """
    counts: Counter[str] = Counter()

    async def work(servers: Servers, config: Config) -> None:
        canonicalizer = Canonicalizer(config.tracking_parameters, max_url_chars=config.max_url_chars)
        lines = SeedLines(urls, canonicalizer, sys.stdin.buffer)
        frontier = Frontier(servers.redis, config.crawl, 1, f"cli-{secrets.token_hex(4)}")
        frontier.closing = True  # an outage is not waited for
        if await Meta(frontier).agreed() is None:
            await _read(lines, strict, counts, partial(_leave, frontier, counts))
        else:
            frontier = await begun(servers.redis, config.crawl, frontier.worker, SUFFIX_LIST_ID)
            await _add(lines, strict, counts, frontier, canonicalizer)

    try:
        on_servers(settings, work, make=True)
    except Failure as e:
        done = f" ({_summary(counts)})" if counts else ""
        raise Failure(f"{e.message}{done}") from e
    if counts["bad"] > BAD_SHOWN:
        click.echo(f"crawlweb: and {counts['bad'] - BAD_SHOWN} more lines that are no URLs", err=True)
    if as_json:
        print_json([{name: counts[name] for name in ("new", "known", "waiting", "bad")}])
    else:
        click.echo(_summary(counts))
    if counts["bad"]:
        sys.exit(1)


def _summary(counts: Counter[str]) -> str:
    waiting = f"{counts['waiting']} wait for the crawl's first worker" if counts["waiting"] else ""
    added = f"{counts['new']} new, {counts['known']} known" if not waiting or counts["new"] + counts["known"] else ""
    return ", ".join(filter(None, (waiting, added, f"{counts['bad']} bad")))


async def _read(lines: SeedLines, strict: bool, counts: Counter[str], send: Callable[[Sequence[Link]], Awaitable[None]]) -> None:
    """Sends batch by batch; a file is read in a thread, and no more of it than a batch is held."""
    source = iter(lines.batches())
    while (batch := cast("SeedBatch | None", await asyncio.to_thread(next, source, None))) is not None:
        stops = strict and bool(batch.bad)
        links = batch.links[: batch.bad[0].links_before] if stops else batch.links
        if links:
            await send(links)
        if stops:
            raise ConfigError(batch.bad[0].text)
        for one in batch.bad[: max(0, BAD_SHOWN - counts["bad"])]:
            click.echo(f"crawlweb: {plain(one.text)}", err=True)
        counts["bad"] += len(batch.bad)


async def _leave(frontier: Frontier, counts: Counter[str], links: Sequence[Link]) -> None:
    key, urls = inbox(frontier).key, [link.entry.url for link in links]
    await frontier.patiently(lambda: cast(Any, frontier.redis.rpush(key, *urls)))
    counts["waiting"] += len(links)


async def _add(lines: SeedLines, strict: bool, counts: Counter[str], frontier: Frontier, canonicalizer: Canonicalizer) -> None:
    meta = Meta(frontier)
    agreed = await meta.agreed()
    assert agreed is not None
    if agreed.canonical and agreed.canonical != canonicalizer.profile_id:
        raise ConfigError(
            f"CRAWLWEB_TRACKING_PARAMETERS: canonical form {canonicalizer.profile_id}: the crawl {frontier.crawl!r} was begun with "
            f"{agreed.canonical}"
        )
    kind = cast(Any, agreed.scope)

    async def send(links: Sequence[Link]) -> None:
        if kind != "any":
            await meta.widen_scope({scope_name(kind, Target(link.entry.url, link.key, link.host)) for link in links})
            meta.scope.clear()  # of a million seeds it would be large
        try:
            letters = await place(links, frontier.partition_of, lambda p, some: frontier.enqueue(p, some, can_wait=True))
        except FrontierFull:
            raise ConfigError("Redis is full: add the seeds again when it has room, those that are in the crawl do no harm") from None
        for letter, name in (("n", "new"), ("s", "known"), ("q", "bad")):
            counts[name] += letters.count(letter)

    done = asyncio.Event()

    async def say_seeding() -> None:
        while not done.is_set():
            await meta.say_seeding(True)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(done.wait(), SEEDING_S / 3)

    await meta.say_seeding(True)
    saying = asyncio.ensure_future(say_seeding())
    try:
        await _read(lines, strict, counts, send)
    finally:
        done.set()
        await saying
        await meta.say_seeding(False)
