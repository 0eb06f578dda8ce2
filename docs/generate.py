"""Writes the pages that follow from tables in the code: settings, stats, failures, Redis keys, figures of scale.

python docs/generate.py            writes them
python docs/generate.py --check    says which are out of date, status 1 if one is
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from crawlweb import addon, default_settings, stats
from crawlweb.frontier import keys, totals
from crawlweb.policy import retry

DOCS = Path(__file__).resolve().parent
SCALE = DOCS / "decisions" / "scale.md"
BEGIN, END = "<!-- python bench/scale.py -->", "<!-- end -->"
TYPES = {"str": "text", "int": "whole number", "float": "number", "bool": "True, False", "tuple[str, ...]": "list"}
SCOPES = {
    "partition": "In a partition: `{<crawl>:<partition>}:` and",
    "addresses": "Of a shard of addresses: `{<crawl>:ip:<shard>}:` and",
    "fingerprints": "Of a shard of fingerprints: `{<crawl>:near:<shard>}:` and",
    "crawl": "Of the whole crawl: `{<crawl>}:` and",
    "starts": "Beside a key of start URLs: `{<key>}:<crawl>:`, or `<key>:<crawl>:` if the key has a hash tag, and",
}


def made(source: str) -> str:
    return f"<!-- made by `python docs/generate.py` from {source}: change it there -->\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def shown(value: object) -> str:
    if value in ("", ()):
        return "empty"
    if isinstance(value, tuple):
        return ", ".join(f"`{part}`" for part in value)
    return f"`{value}`"


def settings_page() -> str:
    rows = []
    for row in fields(default_settings.Config):
        least, unit = row.metadata["low"], row.metadata["unit"]
        limit = f"; at least {least:g}" if least is not None else ""
        choices = row.metadata["choices"]
        kind = " or ".join(f"`{choice}`" for choice in choices) or TYPES[str(row.type)] + (f", {unit}" if unit else "") + limit
        meaning = row.metadata["meaning"] + (" (equal for all workers)" if row.metadata["shared"] else "")
        rows.append((f"`{default_settings.setting_name(row)}`", kind, shown(row.default), meaning))
    lines = [
        "# Settings",
        "",
        made("crawlweb/default_settings.py and crawlweb/addon.py"),
        "Plain Scrapy settings: in the project's settings module, or `-s NAME=VALUE`. An unknown `CRAWLWEB_` name stops the start.",
        "What is *equal for all workers* is fixed by the first worker of a crawl; another value that somebody typed stops the start.",
        "",
        *table(("setting", "type", "default", "meaning"), rows),
        "",
        "`REDIS_PARAMS` (a dict, as in scrapy-redis) goes to the Redis client: password, TLS, time-outs.",
        "",
        "## Scrapy settings that the add-on changes",
        "",
        "The project's own value wins.",
        "",
        *table(("setting", "with the add-on"), ((f"`{name}`", shown(value)) for name, value in addon.SETTINGS.items())),
        "",
        "## Scrapy settings that stop the start",
        "",
        "They would break politeness, or delete a crawl.",
        "",
        *table(("setting", "why"), ((f"`{name}`", why) for name, (_, why) in addon._REFUSED.items())),
        "",
        "## Components that are taken out",
        "",
        "A project that switches one of them on is stopped too.",
        "",
        *table(("component", "why"), ((f"`{path.rpartition('.')[2]}`", why) for path, why in addon.REMOVED.items())),
    ]
    return "\n".join(lines) + "\n"


def stats_page() -> str:
    lines = [
        "# Stats",
        "",
        made("crawlweb/stats.py"),
        "Scrapy stats of one worker: in the log at its end, and in `crawler.stats`. Those that are *summed* stand in Redis too, added up",
        f"over all workers of the crawl, ended ones included: `crawlweb stats`. A worker adds to them every {totals.SEND_S:g} s and at its",
        "end: one that is killed takes up to so much along, a Redis that loses its last second that second's part.",
        "",
        *table(
            ("stat", "of the crawl", "meaning"),
            ((f"`{name}`", "" if name in stats.NOT_SUMMED else "summed", meaning) for name, meaning in stats.STATS.items()),
        ),
    ]
    return "\n".join(lines) + "\n"


def span(seconds: float) -> str:
    size, unit = next(((size, unit) for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")) if seconds >= size), (1, "s"))
    return f"{seconds / size:g} {unit}"


def waits(wait: retry.Wait | None, decays: bool = False) -> str:
    return "" if wait is None else f"{span(wait.first_s)} to {span(wait.most_s)}" + (", decays" if decays else "")


def failures_page() -> str:
    others = {"robots_unreachable": retry.UNREACHABLE_ROBOTS, "robots_elsewhere": retry.ROBOTS_ELSEWHERE}
    rows = []
    for kind, row in (retry.FAILURES | others).items():
        tries = str(row.url_tries) if row.url else "" if row.origin else "final"
        dead_after = str(row.origin_tries or "") + (", URLs wait" if kind == retry.WAITS_WITHOUT_SIBLING else "")
        cells = (waits(row.url), tries, waits(row.origin, row.struggling), dead_after, waits(row.host, decays=True))
        rows.append((f"`{kind}`", row.meaning, *cells))
    lines = [
        "# Failures",
        "",
        made("crawlweb/policy/retry.py"),
        "A wait doubles with each failure in a row, from the first value up to the last, with a quarter of jitter.",
        f"`Retry-After` prolongs it, up to {span(retry.RETRY_AFTER_CAP_S)}. *Decays*: it is halved by each answer, not ended by the first.",
        "After its last try a URL is a dead letter.",
        "",
        f"A dead origin's URLs are dead letters for {span(retry.DEAD_S)}, twice as long each time up to a day; then one URL tries again.",
        "*URLs wait*: those without another spelling do, until the origin is given up. Why: [politeness](decisions/politeness.md).",
        "",
        *table(("failure", "meaning", "the URL waits", "tries", "its origin waits", "dead after", "the host rests"), rows),
        "",
        f"An origin in trouble for {span(retry.GIVE_UP_S)} (mode `once`: `CRAWLWEB_GIVE_UP_S`) is given up: dead, whatever the failure.",
        "In mode `continuous` a robots.txt that cannot be had for so long means that there are no rules.",
    ]
    return "\n".join(lines) + "\n"


def keys_page() -> str:
    lines = [
        "# Redis keys",
        "",
        made("crawlweb/frontier/keys.py"),
        f"Schema {keys.SCHEMA}. Braces are part of the names: what stands in them chooses the slot of a Redis Cluster.",
        "The states of URLs and hosts, and what moves them: `crawlweb/frontier/__init__.py`. Entries: `crawlweb/frontier/codec.py`.",
    ]
    for scope, title in SCOPES.items():
        rows = ((f"`{key.name}`", key.kind, key.meaning) for key in keys.KEYS if key.scope == scope)
        lines += ["", f"## {title} …", "", *table(("key", "type", "meaning"), rows)]
    return "\n".join(lines) + "\n"


def scale_page() -> str:
    """The page as it is, with the tables of today between its marks."""
    printed = subprocess.run([sys.executable, str(DOCS.parent / "bench" / "scale.py")], capture_output=True, text=True, check=True)
    before, _, rest = SCALE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{printed.stdout.strip()}\n\n{END}{after}"


PAGES = {
    DOCS / "settings.md": settings_page,
    DOCS / "stats.md": stats_page,
    DOCS / "failures.md": failures_page,
    DOCS / "redis-keys.md": keys_page,
    SCALE: scale_page,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = []
    for path, page in PAGES.items():
        text = page()
        if not path.exists() or path.read_text() != text:
            stale.append(path)
            if not check:
                path.write_text(text)
    for path in stale:
        print(f"{'out of date' if check else 'written'}: {path.relative_to(DOCS.parent)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
