"""Dead letters: what was given up, and another try."""

from __future__ import annotations

from typing import Any

import click

from ..errors import without_credentials
from ..frontier.inspect import DeadLetter, count_dead_letters, newest_dead_letters
from . import main
from .common import NothingFound, Settings, host_name, json_option, on_frontier, settings_option
from .shown import moment, print_json, print_table

reason_option = click.option("--reason", default="", metavar="REASON", help="only dead letters with this reason")
host_option = click.option("--host", type=host_name, metavar="HOST", help="only dead letters of this host")


@main.command()
@reason_option
@host_option
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="the newest N")
@click.option("--summary", is_flag=True, help="how many there are, by reason")
@json_option
@settings_option
def dead(reason: str, host: str | None, limit: int, summary: bool, as_json: bool, settings: Settings) -> None:
    """Dead letters: URLs that were given up, and why. Newest first."""
    if summary:
        counts = on_frontier(settings, lambda frontier: count_dead_letters(frontier, reason, host or ""))
        rows: list[dict[str, Any]] = [{"reason": why, "letters": n} for why, n in sorted(counts.items(), key=lambda row: (-row[1], row[0]))]
    else:
        rows = [_letter(one) for one in on_frontier(settings, lambda frontier: newest_dead_letters(frontier, limit, reason, host or ""))]
    if as_json:
        print_json(rows)
    elif rows:
        print_table([tuple(rows[0]), *(tuple(moment(v) if name == "at" else str(v) for name, v in row.items()) for row in rows)])
    if not summary and len(rows) == limit:
        click.echo(f"the newest {limit}; --limit shows more", err=True)
    if not rows and (reason or host):
        raise NothingFound("no such dead letter")


@main.command()
@reason_option
@host_option
@settings_option
def requeue(reason: str, host: str | None, settings: Settings) -> None:
    """Puts dead letters back into the frontier, as if they were new."""
    moved = on_frontier(settings, lambda frontier: frontier.requeue(reason, host or ""))
    if not moved and (reason or host):
        raise NothingFound("no such dead letter")
    click.echo(f"{moved} requeued")


def _letter(letter: DeadLetter) -> dict[str, Any]:
    entry = letter.entry
    url = without_credentials(entry.url) if entry else ""
    tries = entry.failures if entry else 0
    return {"at": letter.at, "host": letter.host, "reason": letter.reason, "tries": tries, "url": url, "error": letter.error}
