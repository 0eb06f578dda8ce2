"""Feeds: CPU, links and titles of `parse_feed` beside feedparser, if that is installed.

    python bench/feed.py FOLDER [FOLDER …]

The folders hold files of any kind (../shared/data/d_sitemaps/files and ../shared/data/l_charset/files, for instance); those
that `is_feed` knows are read. Medians of alternating rounds, CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin

from crawlweb.content.feed import is_feed, parse_feed

URL = "http://site.test/feed"
CANDIDATES: dict[str, Callable[[bytes], object]] = {"parse_feed": lambda body: parse_feed(body, URL)}
try:
    import feedparser

    CANDIDATES["feedparser"] = feedparser.parse
except ImportError:
    feedparser = None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folders", nargs="+", type=Path)
    arguments.add_argument("--rounds", type=int, default=5)
    options = arguments.parse_args()
    bodies = {file.name: file.read_bytes() for folder in options.folders for file in sorted(folder.rglob("*")) if file.is_file()}
    feeds = {name: body for name, body in bodies.items() if is_feed(None, body)}
    print(f"{len(feeds)} feeds of {len(bodies)} files, mean {sum(map(len, feeds.values())) / len(feeds):,.0f} bytes")
    cpu_s: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    for _ in range(options.rounds):
        for name, candidate in CANDIDATES.items():
            started = time.process_time()
            for body in feeds.values():
                candidate(body)
            cpu_s[name].append(time.process_time() - started)
    for name, rounds in cpu_s.items():
        print(f"{name:12} {statistics.median(rounds) / len(feeds) * 1e6:8.0f} µs a feed")
    if feedparser:
        compare(feeds)


def compare(feeds: dict[str, bytes]) -> None:
    expected = missing = 0
    for name, body in feeds.items():
        ours, theirs = parse_feed(body, URL), feedparser.parse(body)
        links = {link for entry in theirs.entries if (link := entry.get("link"))}
        lacking = links - {urljoin(ours.base_url, href) for href in ours.hrefs} - set(ours.hrefs)
        expected += len(links)
        missing += len(lacking)
        if lacking:
            print(f"  {name}: {len(lacking)} of {len(links)} links are not ours, e.g. {min(lacking)}")
        title = " ".join((theirs.feed.get("title") or "").split())
        if title != ours.title:
            print(f"  {name}: title {ours.title!r}, feedparser {title!r}")
    print(f"links of feedparser's entries: {expected}, of which we lack {missing}")


if __name__ == "__main__":
    main()
