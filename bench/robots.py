"""robots.txt against Google's conformance cases and thousands of real files: what is decided otherwise, and what it costs.

    python bench/robots.py FOLDER        e.g. ../shared/data/c_robots

FOLDER holds vectors.jsonl (robotstxt, agent, url, allowed), real_robots.tar.zst (robots/HOST.txt), real_robots_decisions.jsonl
(host, agent, path, google_port, protego) and real_robots_sitemaps_delay.jsonl (host, sitemaps, crawl_delay, as Protego reads them).
Without it only hostile files, made here, are measured. CPU time, the best of alternating rounds for each file (medians where several
parsers are compared); Protego, gpyrobotstxt and fast-robotstxt are measured where they are installed.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import statistics
import tarfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from backports import zstd

from crawlweb.policy.robots import MAX_BYTES, Answer, Rules

Can = Callable[[str, str], bool]  # (token, URL): whether a parsed file allows it
Parse = Callable[[bytes], Can]


def ours(body: bytes, token: str = "crawlweb", base: str = "") -> Rules:
    return Rules(Answer("rules", body), token=token, base=base)


def rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def real_files(folder: Path) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(zstd.decompress((folder / "real_robots.tar.zst").read_bytes()))) as tar:
        return {Path(member.name).stem: found.read() for member in tar if (found := tar.extractfile(member))}


# -- other parsers -------------------------------------------------------------------------------------------------------


def protego(module: Any) -> Parse:
    def parse(body: bytes) -> Can:
        parsed = module.Protego.parse(body.decode("utf-8", "replace"))
        return lambda token, url: bool(parsed.can_fetch(url, token))

    return parse


def gpyrobotstxt(module: Any) -> Parse:
    """Reads the file again for each URL."""
    return lambda body: lambda token, url: bool(module.RobotsMatcher().one_agent_allowed_by_robots(body, token, url))


def fast_robotstxt(module: Any) -> Parse:
    """Reads the file again for each URL; takes no bytes."""
    matcher = module.RobotsMatcher()
    return lambda body: (lambda text: lambda token, url: bool(matcher.is_allowed(text, token, url)))(body.decode("utf-8", "replace"))


OTHERS: dict[str, tuple[str, Callable[[Any], Parse]]] = {
    "Protego": ("protego", protego),
    "gpyrobotstxt": ("gpyrobotstxt.robots_cc", gpyrobotstxt),
    "fast-robotstxt": ("robotstxt", fast_robotstxt),
}


STEADY = ("Protego", "fast-robotstxt")  # gpyrobotstxt raises TypeError on a line of one word, which real files have


def allows(rules: Rules, _token: str, url: str) -> bool:
    return rules.allows(url)


def parsers() -> dict[str, Parse]:
    found: dict[str, Parse] = {"ours": lambda body: lambda token, url: ours(body, token).allows(url)}
    for name, (module, adapt) in OTHERS.items():
        try:
            found[name] = adapt(importlib.import_module(module))
        except ImportError:
            continue
    return found


# -- what is decided -----------------------------------------------------------------------------------------------------


def conformance(folder: Path) -> None:
    cases = list(rows(folder / "vectors.jsonl"))
    leniencies = sum(bool(case.get("google_only")) for case in cases)
    print(f"\nconformance: {len(cases)} cases, {leniencies} of them google_only")
    for name, parse in parsers().items():
        failed: list[tuple[dict[str, Any], object]] = []
        for case in cases:
            got: object
            try:
                got = parse(case["robotstxt"].encode("latin-1"))(case["agent"], case["url"])
            except Exception as e:  # of a parser that is only compared
                got = type(e).__name__
            if got != case["allowed"]:
                failed.append((case, got))
        print(f"  {name:16} fails {len(failed):3}, {sum(bool(case.get('google_only')) for case, _ in failed)} of them google_only")
        if name == "ours":
            for case, got in failed:
                print(f"    {case['test']}: {case['agent']} {case['url']} → {got}\n      {case['robotstxt']!r}")


def decisions(folder: Path, files: dict[str, bytes]) -> None:
    parsed: dict[tuple[str, str], Rules] = {}
    sides: Counter[str] = Counter()
    for row in rows(folder / "real_robots_decisions.jsonl"):
        key = row["host"], row["agent"]
        if key not in parsed:
            parsed[key] = ours(files[row["host"]], row["agent"])
        got = parsed[key].allows(f"https://{row['host']}{row['path']}")
        if row["google_port"] == row["protego"]:
            side = "both agree, and so do we" if got == row["google_port"] else "both agree, we do not"
        else:
            side = "they differ, we side with " + ("Google" if got == row["google_port"] else "Protego")
        sides[side] += 1
        if side.endswith(("do not", "Protego")):
            print(f"  {row['host']}{row['path']} for {row['agent']}: {'allowed' if got else 'disallowed'}")
    print(f"decisions on real files: {sides.total():,}")
    for side, count in sides.most_common():
        print(f"  {side:40} {count:6,}")


def sitemaps_and_delays(folder: Path, files: dict[str, bytes]) -> None:
    """Protego's list is as written and cut at 50; ours is of absolute URLs, each once."""
    compared = delays = missing = 0
    for row in rows(folder / "real_robots_sitemaps_delay.jsonl"):
        compared += 1
        host = row["host"]
        found = Rules(Answer("rules", files[host]), float("inf"), base=f"https://{host}/robots.txt")
        if found.crawl_delay_s != row["crawl_delay"]:
            delays += 1
            print(f"  {host}: crawl-delay {found.crawl_delay_s}, Protego {row['crawl_delay']}")
        absent = [url for url in row["sitemaps"] if url.startswith(("http://", "https://")) and url not in found.sitemaps]
        missing += len(absent)
        for url in absent:
            print(f"  {host}: no sitemap {url!r}")
    print(f"crawl-delay and sitemaps beside Protego, {compared:,} files: {delays} delays differ, {missing} absolute sitemaps are missing")


# -- what it costs -------------------------------------------------------------------------------------------------------


def cpu_s(call: Callable[[], object], rounds: int = 3) -> float:
    """Best of some rounds: what else runs on the machine only ever adds."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        call()
        best = min(best, time.process_time() - started)
    return best


def costs(files: dict[str, bytes]) -> None:
    parse_s = sorted((cpu_s(partial(ours, body)), host) for host, body in files.items())
    times = [seconds for seconds, _ in parse_s]
    print(
        f"\nparsing {len(files):,} real files: median {statistics.median(times) * 1e6:.0f} µs, mean {statistics.mean(times) * 1e6:.0f} µs"
    )
    for seconds, host in reversed(parse_s[-3:]):
        print(f"  {seconds * 1e3:6.1f} ms  {len(files[host]):8,} B  {host}")
    kept = [ours(body) for body in files.values()]
    urls = ("/", "/a/b/page-1.html", "/search?q=test&page=2", "/caf%C3%A9/%7Ejoe/")
    per_s = sorted(
        (cpu_s(lambda rules=rules: [rules.allows("https://example.org" + url) for url in urls]) / len(urls), host)  # type: ignore[misc]
        for rules, host in zip(kept, files, strict=True)
    )
    times = [seconds for seconds, _ in per_s]
    print(
        f"allows: median {statistics.median(times) * 1e6:.1f} µs, mean {statistics.mean(times) * 1e6:.1f} µs, "
        f"slowest {times[-1] * 1e6:.0f} µs ({per_s[-1][1]})"
    )


def side_by_side(files: dict[str, bytes], rounds: int) -> None:
    """One parse and one URL of each file, as a crawler does that sees a host for the first time; what it then keeps."""
    spent: dict[str, list[float]] = {}
    compared = {name: parse for name, parse in parsers().items() if name in ("ours", *STEADY)}
    for _ in range(rounds):
        for name, parse in compared.items():
            started = time.process_time()
            for body in files.values():
                parse(body)("crawlweb", "https://example.org/a/b/page-1.html")
            spent.setdefault(name, []).append(time.process_time() - started)
    mean_bytes = statistics.mean(map(len, files.values()))
    print(f"\nparse and one URL of files of {mean_bytes / 1000:.1f} KB in the mean, median of {rounds} rounds")
    for name, values in spent.items():
        tracemalloc.start()
        kept = [ours(body) if name == "ours" else compared[name](body) for body in files.values()]
        kept_bytes = tracemalloc.get_traced_memory()[0] / len(kept)
        tracemalloc.stop()
        print(f"  {name:16} {statistics.median(values) / len(files) * 1e6:8.1f} µs a file, keeps {kept_bytes / 1000:5.1f} KB")


HOSTILE: dict[str, Callable[[], bytes]] = {
    "shortest rules": lambda: b"Allow:/a\n" * (MAX_BYTES // 9),
    "different short wildcards": lambda: b"".join(b"Disallow:/*%x\n" % n for n in range(36_000)),
    "as many stars as fit": lambda: (b"Disallow: /" + b"*a" * 8_000 + b"b\n") * 31,
    "needles of 50 among a's": lambda: b"".join(
        b"Disallow: /*" + b"a" * (20 + n % 30) + b"b" + b"a" * (20 + n // 30) + b"*\n" for n in range(1_200)
    ),
    "a rule of each length": lambda: b"".join(b"Disallow:/" + b"a" * n + b"!\n" for n in range(990)),
    "escapes": lambda: b"".join(b"Allow:/%%61%%%x\xe9\n" % n for n in range(30_000)),
    "agents, then rules": lambda: b"User-agent:*\n" * 18_000 + b"Allow:/b\n" * 30_000,
    "bad sitemaps": lambda: b"Sitemap:http://[\n" * (MAX_BYTES // 17),
    "line ends": lambda: b"\n" * MAX_BYTES,
    "spaces": lambda: b" " * MAX_BYTES,
    "one name": lambda: b"allow" + b"a" * MAX_BYTES,
}


def hostile() -> None:
    print(f"\nhostile files of up to {MAX_BYTES:,} B, and URLs of 2,000 characters: ms to parse, ms a URL")
    compared: dict[str, Parse] = {"ours": lambda body: partial(allows, ours(body))}
    compared.update((name, parse) for name, parse in parsers().items() if name in STEADY)
    urls = ["https://a.org/" + path for path in ("a" * 2_000, "%61" * 666)]
    print(f"  {'':28}" + "".join(f"{name:>18}" for name in compared))
    for name, make in HOSTILE.items():
        body = b"User-agent: *\n" + make()
        cells = []
        for parse in compared.values():
            can = parse(body)
            parse_ms = cpu_s(partial(parse, body)) * 1e3
            url_ms = max(cpu_s(partial(can, "crawlweb", url)) for url in urls) * 1e3
            cells.append(f"{parse_ms:9.1f} {url_ms:8.2f}")
        print(f"  {name:28}" + "".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.folder:
        files = real_files(options.folder)
        conformance(options.folder)
        decisions(options.folder, files)
        sitemaps_and_delays(options.folder, files)
        costs(files)
        side_by_side(files, options.rounds)
    hostile()


if __name__ == "__main__":
    main()
