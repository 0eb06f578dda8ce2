"""Pages a second and CPU a page, beside the peers, on a synthetic web of many hosts.

    python bench/throughput.py                               every crawler, three alternating rounds
    python bench/throughput.py --crawlers scrapy --rounds 1

Every crawler runs as its users run it, in a process pinned to one core; the web, and Redis where there is one, have
another. The figures are taken between two moments, when the web has served `--warm-up` pages and `--pages` more:
pages by the web's own count, CPU from /proc/<pid>/stat of the crawler's processes and of Redis. Delay 0, one request
at a time to a host. What a crawler does with a page is its own: plain Scrapy parses it, extracts its links,
deduplicates and queues them in memory; crawlweb does this in Redis, and extracts the text and writes WARC as well.

On a machine that others use, compare CPU (ms/page, pages/CPU-s), not pages/s; `busy` is how much of its core a
crawler got or wanted.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.web import Links, Visit, Web, WebProcess  # noqa: E402
from tests.web.kinds import parse  # noqa: E402

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
REDIS = ("redis-server", "valkey-server")
STOP_S = 20


@dataclass(frozen=True)
class Crawler:
    folder: Path
    command: Callable[[WebProcess, Path, Path], list[str]]
    """From the web, the file of seeds and a folder to write to."""


def _crawlweb(web: WebProcess, seeds: Path, folder: Path, off: tuple[str, ...] = ()) -> list[str]:
    """`off`: settings of ours that are switched off."""
    settings = {
        "CRAWLWEB_DATA_DIR": folder / "data",
        "CRAWLWEB_DNS_SERVERS": web.dns_server,
        "CRAWLWEB_ALLOW_PRIVATE_IPS": 1,
        "CRAWLWEB_MIN_DELAY_S": 0,
        "CRAWLWEB_LATENCY_FACTOR": 0,
        "CRAWLWEB_IP_DELAY_S": 0,
        **{f"CRAWLWEB_{name}": False for name in off},
    }
    return ["crawl", "web", "-a", f"seeds=@{seeds}", *(p for k, v in settings.items() for p in ("-s", f"{k}={v}"))]


def _plain(*settings: str) -> Callable[[WebProcess, Path, Path], list[str]]:
    def command(_: WebProcess, seeds: Path, __: Path) -> list[str]:
        return ["crawl", "plain", "-a", f"seeds=@{seeds}", *(p for s in settings for p in ("-s", s))]

    return command


CONTENT = ("MAIN_TEXT", "LANGUAGE", "DUPLICATES", "SOFT_404", "RECORDS", "EVENTS")
PLAIN = ROOT / "bench" / "peers" / "plain_scrapy"
CRAWLERS = {
    "crawlweb": Crawler(ROOT, _crawlweb),
    "crawlweb, links only": Crawler(ROOT, partial(_crawlweb, off=CONTENT)),
    "scrapy": Crawler(PLAIN, _plain("ROBOTSTXT_OBEY=1")),
    "scrapy, no robots": Crawler(PLAIN, _plain("ROBOTSTXT_OBEY=0")),
    "scrapy, uvloop": Crawler(PLAIN, _plain("ROBOTSTXT_OBEY=1", "ASYNCIO_EVENT_LOOP=uvloop.Loop")),
}


@dataclass(frozen=True)
class Run:
    pages: int
    pages_per_s: float
    worker_ms: float
    """CPU a page of the crawler's processes."""
    redis_ms: float
    busy: float
    """Share of its core that the crawler used; well under 1, it waited for something else."""
    rss_mb: float
    new_links: float
    """Links a page that no page before had shown."""
    refetched: int
    overlaps: int


class Processes:
    """A crawler's processes: the one started, its descendants, and servers that work in its folder."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid, self._folder = pid, str(folder)

    def find(self) -> tuple[set[int], set[int]]:
        """Workers and Redis servers alive now."""
        parents: dict[int, int] = {}
        redis: set[int] = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                name, fields = _stat(int(entry.name))
                parents[int(entry.name)] = int(fields[1])
                if name in REDIS and self._folder in (entry / "cmdline").read_text() + os.readlink(entry / "cwd"):
                    redis.add(int(entry.name))
        family = {self._pid} & parents.keys()
        while grown := {p for p, parent in parents.items() if parent in family} - family:
            family |= grown
        return family - redis, redis

    def kill(self) -> None:
        for pid in set().union(*self.find()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> tuple[str, list[str]]:
    """Name, and the fields from `state` on (proc(5))."""
    before, _, after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return before.partition("(")[2], after.split()


def cpu_s(pids: set[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += sum(map(int, _stat(pid)[1][11:13]))
    return total / TICKS_PER_S


def rss_mb(pids: set[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(_stat(pid)[1][21])
    return total * os.sysconf("SC_PAGE_SIZE") / 1e6


def move(pids: set[int], cores: set[int]) -> None:
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)


def measure(crawler: Crawler, options: argparse.Namespace, site: str) -> Run:
    """One run. RuntimeError, with the end of its log, if the crawler ends or stalls before its pages are served."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, WebProcess(site, cores={options.server_core}) as web:
        folder = Path(name)
        seeds, log = folder / "seeds.txt", folder / "log.txt"
        seeds.write_text("\n".join(web.seeds()) + "\n")
        limits = (f"CONCURRENT_REQUESTS={options.concurrency}", f"CLOSESPIDER_TIMEOUT={options.timeout_s}")
        command = [sys.executable, "-m", "scrapy", *crawler.command(web, seeds, folder)]
        with log.open("wb") as output:
            child = subprocess.Popen(
                [*command, *(p for s in limits for p in ("-s", s)), "-s", "LOG_LEVEL=INFO"],
                cwd=crawler.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: os.sched_setaffinity(0, {options.crawler_core}),
            )
        processes = Processes(child.pid, folder)
        try:
            run = _watch(child, processes, web, options)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{log.read_text(errors='replace')[-3000:]}") from None
        finally:
            _stop(child, processes)
        visits = web.visits()
        report = web.report()
        return dataclasses.replace(
            run,
            new_links=_new_links(visits, site),
            refetched=report["refetched"],
            overlaps=len(report["overlaps"]),
        )


def _watch(child: subprocess.Popen[bytes], processes: Processes, web: WebProcess, options: argparse.Namespace) -> Run:
    deadline_s = time.monotonic() + options.timeout_s

    def wait(pages: int) -> int:
        while (served := web.served()) < pages:
            if child.poll() is not None:
                raise RuntimeError(f"the crawler ended with {child.returncode} after {served} pages")
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{served} pages in {options.timeout_s} s")
            time.sleep(0.01)
        return served

    wait(1)
    move(processes.find()[1], {options.server_core})
    first = wait(options.warm_up)
    workers, redis = processes.find()
    start_s, worker_s, redis_s = time.monotonic(), cpu_s(workers), cpu_s(redis)
    pages = wait(first + options.pages) - first
    elapsed_s, worker_s, redis_s = time.monotonic() - start_s, cpu_s(workers) - worker_s, cpu_s(redis) - redis_s
    return Run(
        pages=pages,
        pages_per_s=pages / elapsed_s,
        worker_ms=worker_s / pages * 1000,
        redis_ms=redis_s / pages * 1000,
        busy=worker_s / elapsed_s,
        rss_mb=rss_mb(workers),
        new_links=0.0,
        refetched=0,
        overlaps=0,
    )


def _stop(child: subprocess.Popen[bytes], processes: Processes) -> None:
    child.send_signal(signal.SIGINT)
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        processes.kill()
        child.wait()
    deadline_s = time.monotonic() + STOP_S
    while processes.find()[1] and time.monotonic() < deadline_s:
        time.sleep(0.1)
    processes.kill()


def _new_links(visits: list[Visit], site: str) -> float:
    """A page, over the whole run."""
    seen: set[tuple[bytes | str, int]] = set()
    pages = [v for v in visits if v.page]
    with Web(sites=parse(site)) as web:
        origins = {s.url("").encode(): s.name for s in web.sites.values()}
        for visit in pages:
            kind = web.sites[visit.host]
            assert isinstance(kind, Links)
            assert visit.page
            targets = kind.targets(int(visit.page.removeprefix("/page/").strip("/") or 0))
            seen.update((origins[origin] if origin else visit.host, k) for origin, k in targets)
    return len(seen) / len(pages)


def machine() -> dict[str, str]:
    model = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), "?: unknown")
    packages = ("scrapy", "twisted", "lxml", "redis", "uvloop")
    return {
        "cpu": f"{model.partition(':')[2].strip()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
        "commit": _output("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "redis-server": _output("redis-server", "--version"),
    }


def _output(*command: str) -> str:
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return "none"


def medians(runs: list[Run]) -> dict[str, float]:
    return {field.name: statistics.median(getattr(run, field.name) for run in runs) for field in dataclasses.fields(Run)}


def table(results: dict[str, list[Run]]) -> Iterator[str]:
    columns = (
        ("pages/s", 9),
        ("pages/CPU-s", 13),
        ("ms/page", 9),
        ("Redis ms", 10),
        ("busy", 6),
        ("MB", 6),
        ("new links", 11),
        ("again", 7),
    )
    yield f"{'crawler':<20}" + "".join(f"{title:>{width}}" for title, width in columns) + " overlaps  all pages/s"
    for name, runs in results.items():
        if not runs:
            yield f"{name:<20} failed"
            continue
        row = medians(runs)
        yield (
            f"{name:<20}{row['pages_per_s']:>9.1f}{1000 / row['worker_ms']:>13.1f}{row['worker_ms']:>9.2f}"
            f"{row['redis_ms']:>10.2f}{row['busy']:>6.2f}{row['rss_mb']:>6.0f}{row['new_links']:>11.1f}"
            f"{row['refetched']:>7.0f}{row['overlaps']:>9.0f}  " + " ".join(f"{run.pages_per_s:.1f}" for run in runs)
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crawlers", default="crawlweb;scrapy", help=f"separated by ';', of: {'; '.join(CRAWLERS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=3000, help="measured, in each run")
    parser.add_argument("--warm-up", type=int, default=500, help="pages before these")
    parser.add_argument("--hosts", type=int, default=300)
    parser.add_argument("--host-pages", type=int, default=300, help="decides how many links are new")
    parser.add_argument("--links", type=int, default=100)
    parser.add_argument("--page-bytes", type=int, default=31_000)
    parser.add_argument("--concurrency", type=int, default=64, help="CONCURRENT_REQUESTS of all")
    parser.add_argument("--timeout-s", type=int, default=300, help="of a run")
    parser.add_argument("--crawler-core", type=int, default=0)
    parser.add_argument("--server-core", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write all runs here as well")
    options = parser.parse_args()
    names = [name.strip() for name in options.crawlers.split(";")]
    if unknown := set(names) - CRAWLERS.keys():
        parser.error(f"unknown: {', '.join(unknown)}")
    site = f"links:count={options.hosts},pages={options.host_pages},links={options.links},page_bytes={options.page_bytes}"
    if options.hosts * options.host_pages < 2 * (options.warm_up + options.pages):
        parser.error("the web is too small: at least twice the pages of a run")
    os.sched_setaffinity(0, {options.server_core})

    facts = {**machine(), "web": site, "concurrency": str(options.concurrency)}
    print("\n".join(f"{key}: {value}" for key, value in facts.items()), end="\n\n", flush=True)
    results: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            try:
                results[name].append(measure(CRAWLERS[name], options, site))
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr)
    print("\n".join(table(results)))
    if options.json:
        runs = {name: [dataclasses.asdict(run) for run in runs] for name, runs in results.items()}
        options.json.write_text(json.dumps({"machine": facts, "runs": runs}, indent=1) + "\n")
    return 0 if all(len(runs) == options.rounds for runs in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
