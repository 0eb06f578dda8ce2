"""What is in which state, and what in none."""

from __future__ import annotations

import sys

from ..frontier.frontier import Frontier
from . import main
from .common import Settings, json_option, on_frontier, settings_option
from .shown import print_json, print_table


@main.command()
@json_option
@settings_option
def audit(as_json: bool, settings: Settings) -> None:
    """Counts every URL and host by its state, and those in none (lost). Reads the whole frontier, a partition at a time."""
    found = on_frontier(settings, Frontier.audit)
    what = found.pop("what", [])
    if as_json:
        print_json([{**found, "what": what}])
    else:
        print_table([*((name, str(n)) for name, n in sorted(found.items())), *(("", text) for text in what)])
    if found.get("lost"):
        sys.exit(1)
