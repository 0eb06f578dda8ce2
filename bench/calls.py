"""Calls of Python functions a page, in a worker's main thread: what Scrapy, Twisted and our own code do around it, deterministically.

    python bench/calls.py                                    links only, pages of 2 links
    python bench/calls.py --crawlers "crawlweb;scrapy" --links 100 --functions 30

A short crawl of the synthetic web runs under `sys.setprofile`, which sees every call of a Python function and every time that a generator
or coroutine goes on. Counted from the moment that `--warm-up` requests have left the engine until `--requests` more have. What is not
done in batches (BATCHED) is the same on every machine, busy or not, to 1 %: it makes a guard where seconds are worthless.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from scrapy.crawler import Crawler as ScrapyCrawler

EXTENSION = "bench.calls.Profile"
DEPTH = {"crawlweb": 2}  # parts of a module's name by which calls are summed
BATCHED = ("redis", "asyncio", "contextlib", "_weakrefset", "crawlweb.frontier", "crawlweb.outbox", "crawlweb.pace", "crawlweb.rota")
"""What is done for several pages at once, in batches that depend on how busy the machine is, and what asyncio does for it."""


class Profile:
    """Scrapy extension: counts, writes `{file: {function: calls}}` to BENCH_CALLS_FILE, and ends the crawl."""

    def __init__(self, crawler: ScrapyCrawler) -> None:
        from scrapy.core.engine import _Slot

        settings = crawler.settings
        self._end_of_request: CodeType = _Slot.remove_request.__code__
        self._from = settings.getint("BENCH_WARM_UP")
        self._until = self._from + settings.getint("BENCH_REQUESTS")
        self._file = Path(settings["BENCH_CALLS_FILE"])
        self._requests = 0
        self._calls: Counter[CodeType] = Counter()
        sys.setprofile(self._warm_up)

    @classmethod
    def from_crawler(cls, crawler: ScrapyCrawler) -> Profile:
        return cls(crawler)

    def _warm_up(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is self._end_of_request:
            self._requests += 1
            if self._requests == self._from:
                sys.setprofile(self._count)

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        self._calls[frame.f_code] += 1
        if frame.f_code is self._end_of_request:
            self._requests += 1
            if self._requests == self._until:
                sys.setprofile(None)
                calls: dict[str, Counter[str]] = {}
                for code, number in self._calls.items():
                    name = getattr(code, "co_qualname", code.co_name)  # since Python 3.11
                    calls.setdefault(code.co_filename, Counter())[name] += number
                self._file.write_text(json.dumps(calls))
                os.kill(os.getpid(), signal.SIGINT)


def module_of(file: str) -> str:
    """`crawlweb.frontier` of a file of ours, `scrapy`, `twisted`, `asyncio` of others'."""
    path = Path(file)
    parts = path.with_suffix("").parts
    if "site-packages" in parts:
        parts = parts[parts.index("site-packages") + 1 :]
    elif path.is_relative_to(ROOT):
        parts = path.relative_to(ROOT).with_suffix("").parts
    else:  # the standard library; `<frozen importlib>` and the like
        at = next((i for i, part in enumerate(parts) if part.startswith("python3.")), -1)
        parts = parts[at + 1 :]
    return ".".join(parts[: DEPTH.get(parts[0], 1)])


def run(name: str, options: argparse.Namespace) -> dict[str, Counter[str]]:
    """Calls of a crawl: module → function → number. RuntimeError, with the end of its log, if it ended before."""
    from bench.crawlers import CRAWLERS, Start
    from tests.web import WebProcess

    site = f"links:count={options.hosts},pages=100000,links={options.links},page_bytes={options.page_bytes}"
    with tempfile.TemporaryDirectory(prefix="bench-") as folder_name, WebProcess(site) as web:
        folder = Path(folder_name)
        seeds, log, found = folder / "seeds.txt", folder / "log.txt", folder / "calls.json"
        seeds.write_text("\n".join(web.seeds()) + "\n")
        crawler = CRAWLERS[name]
        settings = {
            "EXTENSIONS": json.dumps({EXTENSION: 1}),
            "BENCH_CALLS_FILE": found,
            "BENCH_WARM_UP": options.warm_up,
            "BENCH_REQUESTS": options.requests,
            "CLOSESPIDER_TIMEOUT": options.timeout_s,
        }
        path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
        with log.open("wb") as output:
            subprocess.run(
                [
                    *crawler.command(Start(web, seeds, folder, "", options.concurrency)),
                    *(part for key, value in settings.items() for part in ("-s", f"{key}={value}")),
                    *(part for setting in options.set for part in ("-s", setting)),
                ],
                cwd=crawler.folder,
                env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=2 * options.timeout_s,
                check=False,
            )
        if not found.exists():
            raise RuntimeError(f"{name} ended before {options.warm_up + options.requests} requests:\n{log.read_text()[-3000:]}")
        modules: dict[str, Counter[str]] = {}
        for file, functions in json.loads(found.read_text()).items():
            modules.setdefault(module_of(file), Counter()).update(functions)
        return modules


def total(modules: dict[str, Counter[str]], requests: int, left_out: tuple[str, ...] = ()) -> float:
    return sum(sum(functions.values()) for module, functions in modules.items() if module not in left_out) / requests


def table(modules: dict[str, Counter[str]], requests: int, functions_shown: int) -> Iterator[str]:
    for module, functions in sorted(modules.items(), key=lambda row: -sum(row[1].values())):
        if sum(functions.values()) >= requests / 20:
            yield f"  {module:<28}{sum(functions.values()) / requests:>9.2f}"
    rows = Counter({f"{module}: {function}": n for module, functions in modules.items() for function, n in functions.items()})
    for function, n in rows.most_common(functions_shown):
        yield f"    {function:<80}{n / requests:>9.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crawlers", default="crawlweb, links only", help="separated by ';', as in throughput.py")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--requests", type=int, default=1000, help="counted, in each run")
    parser.add_argument("--warm-up", type=int, default=500, help="requests before these, robots.txt included")
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--links", type=int, default=2)
    parser.add_argument("--page-bytes", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--functions", type=int, default=0, help="show so many functions with the most calls")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the crawlers")
    parser.add_argument(
        "--most", type=float, help="exit status 1 if a crawler needs more calls a request than this, without what is done in batches"
    )
    parser.add_argument("--timeout-s", type=int, default=100)
    options = parser.parse_args()
    worst = 0.0
    for name in (name.strip() for name in options.crawlers.split(";")):
        runs = [run(name, options) for _ in range(options.rounds)]
        totals = [total(modules, options.requests) for modules in runs]
        steady = [total(modules, options.requests, BATCHED) for modules in runs]
        worst = max(worst, statistics.median(steady))
        print(
            f"{name}: {statistics.median(steady):.1f} calls a request ({' '.join(f'{n:.1f}' for n in steady)}); "
            f"with what is done in batches {statistics.median(totals):.1f} ({' '.join(f'{n:.1f}' for n in totals)})"
        )
        print("\n".join(table(runs[-1], options.requests, options.functions)), flush=True)
    return int(options.most is not None and worst > options.most)


if __name__ == "__main__":
    sys.exit(main())
