"""The end of a crawl's data."""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click
from redis.asyncio import Redis

from ..default_settings import Config
from ..errors import StoreError
from ..frontier.connect import Servers
from ..frontier.frontier import Frontier
from ..frontier.purge import Holdings, delete_keys, delete_meta, holdings, known, living_workers
from ..store.chunks import ChunkStore
from . import main
from .common import Failure, NothingFound, Settings, on_servers, settings_option

T = TypeVar("T")
FOLDERS = ("warc", "logs", "cold")  # of a crawl, in the data directory


@main.command()
@click.argument("crawl")
@click.option("--files", is_flag=True, help="WARC files and logs in the data directory, too")
@click.option("--yes", is_flag=True, help="does not ask")
@settings_option
def purge(crawl: str, files: bool, yes: bool, settings: Settings) -> None:
    """Deletes a crawl: all that Redis has of it, and the files of its long queues. WARC files stay, but with --files.

    Shows what there is and asks first. Refuses while workers of the crawl run. Interrupted, it can be run again; after it, the name is free
    for a new crawl.
    """
    settings = [*settings, ("CRAWLWEB_CRAWL", crawl)]

    async def look(frontier: Frontier, _: Sequence[Redis], config: Config) -> tuple[Holdings, Path]:
        return await holdings(frontier), Path(config.data_dir, config.crawl)

    async def delete(frontier: Frontier, nodes: Sequence[Redis], config: Config) -> int:
        store = (await holdings(frontier)).spill
        total = await delete_keys(frontier, nodes, _show if sys.stderr.isatty() else lambda _: None)
        if store:
            _delete_chunks(config, store)
        if files:
            _delete_files(Path(config.data_dir, config.crawl))
        await delete_meta(frontier)
        return total + 1

    found, folder = _of_crawl(settings, look)
    what = f"{found.pending:,} URLs pending, {found.seen:,} seen, {found.pages:,} pages stored; {folder} {'goes too' if files else 'stays'}"
    click.echo(f"crawl {crawl}: {what}")
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("nothing was deleted: there is no terminal to ask at; --yes deletes without a question")
        if not click.confirm("Delete it?"):
            raise NothingFound("nothing was deleted")
    click.echo(f"{_of_crawl(settings, delete):,} keys deleted")


def _of_crawl(settings: Settings, work: Callable[[Frontier, Sequence[Redis], Config], Awaitable[T]]) -> T:
    """What `work` makes of a crawl that no worker is in, given a client of each server."""

    async def ask(servers: Servers, config: Config) -> T:
        frontier = await known(servers.redis, config.crawl, f"cli-{secrets.token_hex(4)}")
        if frontier is None:
            raise NothingFound(f"{config.crawl}: there is no such crawl")
        if alive := await living_workers(frontier):
            raise Failure(
                f"workers of the crawl {config.crawl} are alive: stop them first (one that was killed counts for 5 s): {', '.join(alive)}"
            )
        return await work(frontier, servers.nodes(), config)

    return on_servers(settings, ask)


def _delete_chunks(config: Config, store_id: str) -> None:
    url = config.spill_url or str(Path(config.data_dir, config.crawl, "cold"))
    try:
        store = ChunkStore(url, store_id)
        if store.is_there():
            store.discard()
        else:
            click.echo(
                f"crawlweb: {url} has no files of this crawl's long queues ({store_id}): if they are elsewhere, delete them there", err=True
            )
    except StoreError as e:
        raise Failure(f"the files of long queues could not be deleted, purge again: {e}") from e


def _delete_files(folder: Path) -> None:
    try:
        for name in FOLDERS:
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    except OSError as e:
        raise Failure(f"not all files could be deleted, purge again: {e}") from e


def _show(deleted: int) -> None:
    click.echo(f"\r{deleted:,} keys \r", err=True, nl=False)
