"""What the crawl costs in Redis."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from ..frontier.accounts import Account, Accounts, Tally
from ..frontier.frontier import Frontier
from . import main
from .common import Settings, json_option, on_frontier, settings_option
from .shown import print_json, print_table


@main.command()
@click.option("--sample", "samples", type=click.IntRange(1), metavar="N", help="looks at N samples of 100 keys instead of all keys")
@json_option
@settings_option
def memory(samples: int | None, as_json: bool, settings: Settings) -> None:
    """What the crawl costs in Redis' memory, by kind of key, and what a URL, a host and a page cost. Reads the size of every key, a few
    hundred at a time."""

    async def work(frontier: Frontier) -> Account:
        accounts = Accounts(frontier)
        if samples is None:
            return await accounts.walk(_progress if sys.stderr.isatty() else lambda *_: None)
        for _ in range(samples):
            await accounts.sample()
        return await accounts.estimate()

    account = on_frontier(settings, work)
    if as_json:
        print_json([_accounted(account)])
        return
    print_table(_shares(account))
    click.echo()
    print_table(_costs(account))


def _accounted(account: Account) -> dict[str, Any]:
    figures = ("pending_url", "seen_url", "active_host", "packed_host", "page_record", "keys", "used_bytes", "known_bytes")
    return {
        **{name: getattr(account, name) for name in figures},
        "kinds": {kind: asdict(tally) for kind, tally in account.kinds.items()},
        "servers": [asdict(server) for server in account.servers],
    }


def _shares(account: Account) -> Iterator[Sequence[str]]:
    """Largest first."""

    def row(kind: str, tally: Tally | None, size_bytes: float) -> Sequence[str]:
        counts = [""] * 4
        if tally and tally.keys and tally.members:
            counts = [f"{tally.keys:.0f}", f"{tally.members:.0f}", f"{size_bytes / tally.keys:.1f}", f"{size_bytes / tally.members:.1f}"]
        return kind, f"{size_bytes / 1e6:.2f}", f"{100 * size_bytes / max(1, account.used_bytes):.1f} %", *counts

    yield "kind", "MB", "share", "keys", "members", "B a key", "B a member"
    for kind, tally in sorted(account.kinds.items(), key=lambda item: -item[1].size_bytes):
        yield row(kind, tally, tally.size_bytes)
    yield row("times that keys expire at", None, account.table_bytes)
    yield row("a server that holds nothing", None, sum(server.start_bytes for server in account.servers))
    yield row("unaccounted", None, account.used_bytes - account.known_bytes)
    yield row("whole", None, account.used_bytes)


def _costs(account: Account) -> Iterator[tuple[str, str]]:
    figures = {
        "a pending URL": account.pending_url,
        "a seen URL": account.seen_url,
        "an active host": account.active_host,
        "a packed host": account.packed_host,
        "a page record": account.page_record,
    }
    for name, value in figures.items():
        yield name, "there is none" if value is None else f"{value:.1f} B"
    for server in account.servers:
        yield "resident", f"{server.rss_bytes / 1e6:.1f} MB, {server.fragmentation:.2f} times what is used"
        yield "most ever used", f"{server.peak_bytes / 1e6:.1f} MB"
        most = "none" if server.max_bytes is None else f"{server.max_bytes / 1e6:.1f} MB"
        yield "maxmemory", f"{most}, {server.policy}"


def _progress(done: int, of: int) -> None:
    click.echo(f"\r{done} of {of} keys ", err=True, nl=done >= of)
