"""Stats of the whole crawl."""

from __future__ import annotations

from dataclasses import asdict

from ..frontier.totals import overview
from . import main
from .common import Settings, json_option, on_frontier, settings_option
from .shown import print_json, print_table


@main.command()
@json_option
@settings_option
def stats(as_json: bool, settings: Settings) -> None:
    """Stats of the whole crawl: summed over its workers, those that run and those that ended. And what there is to do: URLs that are
    pending, hosts in work, workers alive."""
    found = on_frontier(settings, overview)
    if as_json:
        print_json([asdict(found)])
        return
    print_table(
        [
            ("URLs pending", str(found.pending)),
            ("hosts in work", str(found.hosts)),
            ("workers alive", str(found.workers)),
            *((name, str(n)) for name, n in found.sums.items()),
        ]
    )
