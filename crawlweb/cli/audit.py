"""What is in which state, and what in none."""

from __future__ import annotations

import sys

import click

from . import main
from .common import Settings, json_option, on_frontier, settings_option
from .shown import print_json, print_table


@main.command()
@click.option("--repair", is_flag=True, help="pages that are due and in no list, so that they would never be fetched again, get into one")
@json_option
@settings_option
def audit(repair: bool, as_json: bool, settings: Settings) -> None:
    """Counts every URL and host by its state, and those in none (lost). Reads the whole frontier, a partition at a time."""
    found = on_frontier(settings, lambda frontier: frontier.audit(repair=repair))
    what = found.pop("what", [])
    if as_json:
        print_json([{**found, "what": what}])
    else:
        print_table([*((name, str(n)) for name, n in sorted(found.items())), *(("", text) for text in what)])
    if found.get("lost"):
        sys.exit(1)
