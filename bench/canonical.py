"""What a URL costs: keys, targets and hosts a second on one core, and the parsers and hashes that were weighed.

    python bench/canonical.py [FILE...]        e.g. ../shared/data/a_urls/urls.jsonl.gz

FILE is JSON lines (.gz too) with a field `url`, or `base` and `href`. Without one, URLs are made from a seed. Medians of
alternating rounds of CPU time; ada-url, w3lib, xxhash and mmh3 are measured where they are installed.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b, sha256
from pathlib import Path

import can_ada

from crawlweb.policy.canonical import Canonicalizer, canonical_url, url_key
from crawlweb.policy.hosts import host_of
from crawlweb.policy.priority import front_queue, path_depth

PAGE_LINKS = 100


def read(files: list[Path]) -> Iterator[tuple[str, str]]:
    """(base or "", href)."""
    for file in files:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                yield row.get("base", ""), row["url"] if "url" in row else row["href"]


def made(count: int, seed: int = 1) -> Iterator[tuple[str, str]]:
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnoprstuvwxyz", k=rng.randint(3, 10))) for _ in range(2_000)]
    names = [f"{rng.choice(['', 'www.', 'blog.'])}{a}-{i}.{rng.choice(['com', 'org', 'co.uk', 'de'])}" for i, a in enumerate(words * 5)]
    for _ in range(count):
        path = "/".join(rng.choices(words, k=rng.randint(0, 5))) + rng.choice(["", "/", ".html"])
        query = "&".join(f"{rng.choice(words)}={rng.randint(1, 999)}" for _ in range(rng.randint(1, 3))) if rng.random() < 0.12 else ""
        yield "", f"http{rng.choice(['', 's'])}://{rng.choice(names)}/{path}{'?' if query else ''}{query}"


def each(function: Callable[[str], object], items: list[str]) -> Callable[[], None]:
    def run() -> None:
        for item in items:
            function(item)

    return run


def report(title: str, unit: str, count: int, runs: dict[str, Callable[[], None]], rounds: int) -> None:
    cpu_s: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            started = time.process_time()
            run()
            cpu_s[name].append(time.process_time() - started)
    print(f"\n{title}: {count:,} {unit}, median of {rounds} rounds")
    for name, values in cpu_s.items():
        median = statistics.median(values)
        print(f"  {name:44} {median / count * 1e6:6.2f} µs  {count / median:>12,.0f} /s")


def optional(module: str, name: str) -> Callable[..., object] | None:
    try:
        found: Callable[..., object] = getattr(importlib.import_module(module), name)
    except ImportError:
        return None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()

    links = list(read(options.files)) if options.files else list(made(100_000))
    canonicalizer = Canonicalizer()
    targets = [(base, href, target) for base, href in links if (target := canonicalizer.target(href, base or None))]
    urls = [target.url for _, _, target in targets]
    print(f"{len(links):,} links: {canonicalizer.invalid:,} invalid, {len({t.key for _, _, t in targets}):,} keys, ", end="")
    print(f"{len({t.host for _, _, t in targets}):,} hosts, mean length {statistics.mean(map(len, urls)):.0f}")

    def with_base() -> None:
        for base, href, _ in targets:
            canonicalizer.target(href, base or "https://www.example.com/a/page.html")

    pages = [[href for _, href, _ in targets[at : at + PAGE_LINKS]] for at in range(0, len(targets), PAGE_LINKS)]
    relative = [[url[url.index("/", 8) :] for url in urls[at : at + PAGE_LINKS]] for at in range(0, len(urls), PAGE_LINKS)]

    def in_bulk(pages: list[list[str]]) -> Callable[[], None]:
        def run() -> None:
            for page in pages:
                canonicalizer.targets(page, "https://www.example.com/a/page.html")

        return run

    def without_host_cache() -> None:
        cold = Canonicalizer(known_hosts=0)
        for url in urls:
            cold.url_key(url)

    report("Ours", "URLs", len(urls), {
        "url_key(url)": each(url_key, urls),
        "url_key(url), origins not cached": without_host_cache,
        "canonical_url(url)": each(canonical_url, urls),
        "host_of(url)": each(host_of, urls),
        "front_queue(path_depth(url))": each(lambda url: front_queue(path_depth(url)), urls),
        "target(href, base)": with_base,
        f"targets({PAGE_LINKS} hrefs, base), hrefs as found": in_bulk(pages),
        f"targets({PAGE_LINKS} hrefs, base), paths on one site": in_bulk(relative),
    }, options.rounds)  # fmt: skip

    base = can_ada.parse("https://www.example.com/a/page.html")
    ada_url, w3lib = optional("ada_url", "URL"), optional("w3lib.url", "canonicalize_url")
    parsers: dict[str, Callable[[str], object]] = {
        "can_ada": lambda url: can_ada.parse(url).href,
        "can_ada, joined": lambda url: (base + url).href,
    }
    if ada_url:
        parsers["ada_url"] = lambda url: ada_url(url).href  # type: ignore[attr-defined]
    if w3lib:
        parsers["w3lib canonicalize_url (no WHATWG parser)"] = w3lib
    report("Parsers", "URLs", len(urls), {name: each(parse, urls) for name, parse in parsers.items()}, options.rounds)

    hashes: dict[str, Callable[[str], object]] = {
        "blake2b, 16 bytes": lambda url: blake2b(url.encode(), digest_size=16).digest(),
        "sha256": lambda url: sha256(url.encode()).digest(),
    }
    xxh3, mmh3 = optional("xxhash", "xxh3_128_digest"), optional("mmh3", "hash_bytes")
    if xxh3:
        hashes["xxh3_128"] = lambda url: xxh3(url.encode())
    if mmh3:
        hashes["mmh3"] = lambda url: mmh3(url.encode())
    report("Hashes, encoding included", "URLs", len(urls), {name: each(digest, urls) for name, digest in hashes.items()}, options.rounds)


if __name__ == "__main__":
    main()
