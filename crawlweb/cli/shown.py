"""How commands print: tables, JSON lines, moments, spans of time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import click

from ..errors import without_credentials

FOREVER = datetime(9999, 1, 1, tzinfo=timezone.utc)


def moment(unix_s: float) -> str:
    """In local time."""
    if unix_s >= FOREVER.timestamp():
        return "forever"
    return datetime.fromtimestamp(unix_s, timezone.utc).astimezone().isoformat(" ", "seconds")


def span(seconds: float) -> str:
    for size_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.1f} {unit}"
    return f"{seconds:.1f} s"


def plain(text: str) -> str:
    """No control characters: the text comes from servers, and goes to a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in without_credentials(text))


def print_table(rows: Iterable[Sequence[str]]) -> None:
    lines = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def print_json(objects: Iterable[Mapping[str, Any]]) -> None:
    for one in objects:
        click.echo(json.dumps(one))
