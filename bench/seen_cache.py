"""The worker's cache of recent URL keys: what share of the links never reaches Redis, and what a look-up costs.

    python bench/seen_cache.py                  sites made up, 2,000 in rotation; then real documentation trees (those that are installed)
    python bench/seen_cache.py --hosts 500 --cpu

A made-up site has pages that link to its header and footer (40), their section's navigation (20), their breadcrumbs (2) and neighbours
(4), to related pages of their section (15) and of the site (12) by Zipf's law, to pages at random (3), and to other sites (4, half of
them front pages). Sizes are log-normal: median 150 pages, 5 % over 3,000. Its pages are crawled in no order. A documentation tree is
copied under many host names, the links between its pages as they are, its pages crawled breadth first. Of all sites in rotation one page
is fetched in turn, as hosts that rest a second are; a site that is done gives its place to the next. Beside the cache (8 ways, each set
half probation, half protected) stand a full LRU and the two generations of sets that were there before.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
import statistics
import sys
import time
import tracemalloc
from bisect import bisect
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate, count, islice
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from real_sites import installed  # noqa: E402

from crawlweb.content.page import parse_page  # noqa: E402
from crawlweb.outbox import RecentKeys  # noqa: E402
from crawlweb.policy.canonical import Canonicalizer  # noqa: E402

KEYS_A_HOST = (25, 50, 100, 200, 300, 500, 1000)
MEDIAN, SIGMA = math.log(150), 1.82


class Cache(Protocol):
    def __contains__(self, key: bytes) -> bool: ...

    def add(self, key: bytes) -> None: ...


class Lru:
    """Full LRU."""

    def __init__(self, keys: int) -> None:
        self._most = keys
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        if key not in self._keys:
            return False
        self._keys.move_to_end(key)
        return True

    def add(self, key: bytes) -> None:
        self._keys[key] = None
        if len(self._keys) > self._most:
            self._keys.popitem(last=False)


class Generations:
    """Two sets: what the cache was."""

    def __init__(self, keys: int) -> None:
        self._half = keys // 2
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def __contains__(self, key: bytes) -> bool:
        return key in self._young or key in self._old

    def add(self, key: bytes) -> None:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, set()
        self._young.add(key)


class Site(Protocol):
    """`size`: pages; `visit`: the numbers of the pages that the next page links to, None after the last."""

    number: int
    size: int

    def visit(self) -> Sequence[int] | None: ...


class MadeUp:
    def __init__(self, rng: random.Random, number: int) -> None:
        self.number, self.size = number, min(200_000, max(20, round(rng.lognormvariate(MEDIAN, SIGMA))))
        self._rng = rng
        self._left = list(range(self.size))
        rng.shuffle(self._left)
        self._sections = min(40, max(2, round(math.sqrt(self.size) / 2)))
        self._everywhere = [rng.randrange(self.size) for _ in range(40)]
        self._navigation = [[rng.randrange(self.size) for _ in range(20)] for _ in range(self._sections)]
        self._weights = list(accumulate(1 / (rank + 1) ** 0.9 for rank in range(self.size)))

    def _popular(self, links: int, among: int, first: int, step: int) -> list[int]:
        """By Zipf's law of `among` pages: first, first + step, …"""
        total = self._weights[among - 1]
        return [first + step * bisect(self._weights, self._rng.random() * total, 0, among - 1) for _ in range(links)]

    def visit(self) -> list[int] | None:
        if not self._left:
            return None
        page = self._left.pop()
        section = page % self._sections
        in_section = (self.size - 1 - section) // self._sections + 1
        return [
            *self._everywhere,
            *self._navigation[section],
            *(0, section),
            *((page + self._sections * step) % self.size for step in (-2, -1, 1, 2)),
            *self._popular(15, in_section, section, self._sections),
            *self._popular(12, self.size, 0, 1),
            *(self._rng.randrange(self.size) for _ in range(3)),
        ]


class Tree:
    """The links between the files of a folder, breadth first from its front page."""

    def __init__(self, folder: str) -> None:
        canonicalizer, origin = Canonicalizer(), "https://tree.org/"
        numbers: dict[bytes, int] = {}
        waiting = [origin + "index.html"]
        queued = {canonicalizer.url_key(waiting[0])}
        self.pages: list[list[int]] = []
        for url in waiting:
            file = Path(folder, unquote(urlsplit(url).path.lstrip("/")))
            if file.suffix not in (".html", ".htm") or not file.is_file():
                continue
            page = parse_page(file.read_bytes(), url)
            targets = canonicalizer.targets(page.hrefs, page.base_url)
            self.pages.append([numbers.setdefault(target.key, len(numbers)) for target in targets])
            for target in targets:
                if target.url.startswith(origin) and target.key not in queued:
                    queued.add(target.key)
                    waiting.append(target.url)


class Copy:
    def __init__(self, tree: Tree, number: int) -> None:
        self.number, self.size = number, len(tree.pages)
        self._pages = iter(tree.pages)

    def visit(self) -> list[int] | None:
        return next(self._pages, None)


def key_of(site: int, page: int) -> bytes:
    return hashlib.blake2b(b"%d/%d" % (site, page), digest_size=16).digest()


def rotation(rng: random.Random, sites: Iterator[Site], hosts: int, outward: int) -> Iterator[list[bytes]]:
    """URL keys of the links of a page of each of `hosts` sites in turn, in another order each round, for ever; of them `outward` to
    other sites."""
    active = list(islice(sites, hosts))
    seen = {site.number: site.size for site in active}
    while True:
        rng.shuffle(active)
        for at, site in enumerate(active):
            found = site.visit()
            while found is None:
                active[at] = site = next(sites)
                seen[site.number] = site.size
                found = site.visit()
            keys = [key_of(site.number, page) for page in dict.fromkeys(found)]
            for _ in range(outward):
                other = min(len(seen) - 1, int(rng.paretovariate(0.5)) - 1)  # a few sites get most of them
                keys.append(key_of(other, 0 if rng.random() < 0.5 else rng.randrange(seen[other])))
            yield keys


def made_up(rng: random.Random) -> Iterator[Site]:
    for number in count():
        yield MadeUp(rng, number)


def copies(rng: random.Random, trees: Sequence[Tree]) -> Iterator[Site]:
    for number in count():
        yield Copy(rng.choice(trees), number)


def hit_rates(pages: Iterator[list[bytes]], caches: Sequence[Cache]) -> tuple[int, float, list[float]]:
    """Links, the share of them that was never seen before, and of each cache the share that it knew."""
    links, hits = 0, [0] * len(caches)
    ever: set[bytes] = set()
    for keys in pages:
        links += len(keys)
        ever.update(keys)
        for i, cache in enumerate(caches):
            new = [key for key in keys if key not in cache]
            hits[i] += len(keys) - len(new)
            for key in new:
                cache.add(key)
    return links, len(ever) / links, [n / links for n in hits]


def print_hit_rates(title: str, pages: Iterator[list[bytes]], hosts: int, most: int) -> None:
    caches = [kind(hosts * size) for size in KEYS_A_HOST for kind in (RecentKeys, Lru, Generations)]
    links, new, rates = hit_rates(islice(pages, most), caches)
    print(f"### {title}, {hosts:,} in rotation: {most:,} pages, {links / most:.0f} links a page, {new:.1%} of them new\n")
    print("| keys a host | the cache | full LRU | two generations |\n| --- | --- | --- | --- |")
    for i, size in enumerate(KEYS_A_HOST):
        print(f"| {size:,} | {' | '.join(f'{rate:.1%}' for rate in rates[3 * i : 3 * i + 3])} |")
    print(flush=True)


def print_costs(keys: int, rounds: int) -> None:
    """CPU of a look-up and bytes a key, each cache full."""
    rng = random.Random(1)
    data = rng.randbytes(32 * keys)

    def fresh(first: int, number: int) -> list[bytes]:
        """New objects: their hashes are not known yet."""
        return [data[at : at + 16] for at in range(16 * first, 16 * (first + number), 16)]

    probes = min(keys, 200_000)
    print("| | bytes a key | known, ns | unknown, ns | added, ns |\n| --- | --- | --- | --- | --- |")
    for kind in (RecentKeys, Lru, Generations):
        times: dict[str, list[float]] = {"known": [], "unknown": [], "added": []}
        size = 0.0
        for _ in range(rounds):
            cache: Any = kind(keys)
            tracemalloc.start()
            cache = kind(keys)
            for key in fresh(0, keys):
                cache.add(key)
            size = tracemalloc.get_traced_memory()[0] / keys
            tracemalloc.stop()
            for name, first in (("known", keys - probes), ("unknown", keys)):
                some = fresh(first, probes)
                start = time.process_time()
                for key in some:
                    key in cache  # noqa: B015
                times[name].append((time.process_time() - start) / probes * 1e9)
            some = fresh(keys, probes)
            start = time.process_time()
            for key in some:
                cache.add(key)
            times["added"].append((time.process_time() - start) / probes * 1e9)
        print(f"| {kind.__name__} | {size:.0f} | {' | '.join(f'{statistics.median(row):.0f}' for row in times.values())} |", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2000, help="in rotation")
    parser.add_argument("--pages", type=int, default=200_000, help="visited")
    parser.add_argument("--cpu", action="store_true", help="only what a look-up costs")
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the caches whose cost is measured")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print_costs(options.keys, options.rounds)
    if options.cpu:
        return
    rng = random.Random(7)
    print_hit_rates("made-up sites", rotation(rng, made_up(rng), options.hosts, 4), options.hosts, options.pages)
    trees = [tree for tree in map(Tree, installed().values()) if tree.pages]
    if trees:
        sizes = ", ".join(str(len(tree.pages)) for tree in trees)
        pages = rotation(rng, copies(rng, trees), options.hosts, 0)
        print_hit_rates(f"copies of {len(trees)} documentation trees ({sizes} pages)", pages, options.hosts, options.pages)


if __name__ == "__main__":
    main()
