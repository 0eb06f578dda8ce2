"""What a URL costs: keys, targets and hosts a second on one core, and the parsers and hashes that were weighed. And whether the quick
parser reads each link as the reference does.

    python bench/canonical.py [FILE...]        e.g. ../shared/data/a_urls/urls.jsonl.gz

FILE is JSON lines (.gz too) with a field `url`, or `base` and `href`. Without one, URLs are made from a seed. Medians of
alternating rounds of CPU time; w3lib, xxhash and mmh3 are measured where they are installed.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import blake2b, sha256
from pathlib import Path

import ada_url
import can_ada
from ada_url._ada_wrapper import ffi, lib

from crawlweb.policy import hosts
from crawlweb.policy.canonical import Canonicalizer, canonical_url, url_key
from crawlweb.policy.hosts import host_of
from crawlweb.policy.priority import front_queue, path_depth

PAGE_LINKS = 100
GARBAGE = [
    "javascript:void(0)",
    "mailto:a@example.com",
    "tel:+123",
    "http://[",
    "http://a b/",
    "http://",
    "data:,x",
    "//",
    "http://a.com:99999/",
]


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


def c_functions(url: str) -> str:
    """ada-url without its Python: the C functions, from a module of its own that is private."""
    data = url.encode()
    parsed = lib.ada_parse(data, len(data))
    href = lib.ada_get_href(parsed)
    out = ffi.unpack(href.data, href.length) if href.length else b""
    lib.ada_free(parsed)
    if not out:
        raise ValueError(url)
    return bytes(out).decode()


def report_agreement(links: list[tuple[str, str]]) -> None:
    """Each link as `hosts.parse` reads it, beside ada-url."""
    asked = 0

    class Counted:
        def normalize_url(self, url: str) -> str:
            nonlocal asked
            asked += 1
            return ada_url.normalize_url(url)

        def join_url(self, base: str, url: str) -> str:
            nonlocal asked
            asked += 1
            return ada_url.join_url(base, url)

    def read(parse: Callable[[], str]) -> str | None:
        try:
            return parse()
        except ValueError:
            return None

    parse_base = lru_cache(64)(hosts.parse_base)
    differ = 0
    bases = {base for base, _ in links if base}
    for base in bases:
        parse_base(base)
    hosts.ada_url = Counted()  # type: ignore[assignment]
    for base, url in links:
        found = read(lambda base=base, url=url: hosts.parse(url, parse_base(base)) if base else hosts.parse(url))  # type: ignore[misc]
        wanted = read(lambda base=base, url=url: ada_url.join_url(base, url) if base else ada_url.normalize_url(url))  # type: ignore[misc]
        differ += found != wanted
    hosts.ada_url = ada_url
    print(f"as ada-url reads them: {len(links) - differ:,} of {len(links):,}; can_ada did not do for {asked:,}")


def report_threads(urls: list[str]) -> None:
    """cffi lets other threads run during each call. Wall time, since that is what is lost."""
    is_over = False

    def work() -> None:
        while not is_over:
            sum(range(1_000))

    print(f"\nBeside a thread that is busy: {len(urls):,} URLs")
    for name, parse in (("can_ada", lambda url: can_ada.parse(url).href), ("ada_url, C functions", c_functions)):
        thread = threading.Thread(target=work)
        is_over = False
        started = time.perf_counter()
        each(parse, urls)()
        alone = time.perf_counter() - started
        thread.start()
        started = time.perf_counter()
        each(parse, urls)()
        beside = time.perf_counter() - started
        is_over = True
        thread.join()
        print(f"  {name:44} {alone / len(urls) * 1e6:6.2f} µs alone  {beside / len(urls) * 1e6:6.2f} µs beside it")


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
    report_agreement(links)

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

    report("Refused", "hrefs", len(GARBAGE) * 1_000, {
        "target(href, base)": each(lambda href: canonicalizer.target(href, "https://www.example.com/"), GARBAGE * 1_000),
    }, options.rounds)  # fmt: skip

    base = can_ada.parse("https://www.example.com/a/page.html")
    w3lib = optional("w3lib.url", "canonicalize_url")
    parsers: dict[str, Callable[[str], object]] = {
        "can_ada": lambda url: can_ada.parse(url).href,
        "can_ada, joined": lambda url: (base + url).href,
        "ada_url, normalize_url": ada_url.normalize_url,
        "ada_url, URL": lambda url: ada_url.URL(url).href,
        "ada_url, C functions": c_functions,
    }
    if w3lib:
        parsers["w3lib canonicalize_url (no WHATWG parser)"] = w3lib
    report("Parsers", "URLs", len(urls), {name: each(parse, urls) for name, parse in parsers.items()}, options.rounds)
    report_threads(urls[:20_000])

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
