"""`crawlweb`: what an operator asks of a crawl and wants of it, whether its workers run or not.

A module here is a room of commands (`@main.command()`), found by being here; common.py is what they share, shown.py how they print.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import click

from .. import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Looks into a crawl and steers it, while its workers run or not. Run it where scrapy crawl is run.

    Exit status: 0 done, 1 nothing was found, the audit found URLs in no place, or some seeds are no URLs, 2 it could not be done.
    """


for _room in iter_modules(__path__):
    if _room.name != "__main__":
        import_module(f".{_room.name}", __name__)
