"""Pages a second and CPU a page, beside the peers, on a web of many hosts.

    python bench/throughput.py                      (a) pages made up: 31 KB, 100 links, text of their own
    python bench/throughput.py --real FOLDER …      (b) real pages: any folders of saved HTML (../shared/data/e_html_pages unpacked);
                                                        without a folder, the Debian documentation that is installed
    python bench/throughput.py --tls                (c) as (a) over HTTPS, each page over a TLS connection of its own
    python bench/throughput.py --crawlers "crawlweb;scrapy" --rounds 1

Two rows are ours. "crawlweb, same work" does what the peers do: it obeys robots.txt, keeps the books of politeness (with a delay of 0),
finds a page's links, leaves out those seen, and queues the others; "crawlweb", everything on, also looks for near-duplicates, main text,
language and error pages, and writes WARC files, page records and events. The peers only do links, seen-set and queue: scrapy-redis in
Redis; plain Scrapy and Crawlee in memory. They are in peers/, each set up for speed by what its users may set.

Every crawler runs in a process pinned to one core; the web, and Redis where there is one, have another. One request at a time to a host
(Crawlee cannot: it may ask a host for several pages at once), as many requests at once for all, and no certificate is verified by any. The
web's host names lead to loopback: by its name server, by a resolver in Scrapy, and for Crawlee by the web as its proxy, which takes CONNECT
for HTTPS. Over HTTPS the server ends the connection after each answer and lets nobody resume a session; over HTTP it keeps connections
open, and a crawler uses them again or not, as it does. Bodies are the same bytes for all.

Figures are taken between two moments: the first when the web has served `--warm-up` pages, or after `--warm-up-s` (but three times the
requests at once: Scrapy fetches all it may before it works on any); the second `--pages` later, or after `--seconds` (but six times). Pages
are the web's own count, CPU is from /proc/<pid>/stat. Rounds alternate; figures are medians, ratios the medians of each round's. The exit
status is 0 if every goal holds, by pages a second and by pages a CPU-second (worker and Redis).

On a machine that others use, compare CPU (ms/page, pages/CPU-s), not pages/s. `busy` is how much of its core a crawler got or wanted;
`2nd core` how much the web and Redis used of theirs: if that is full, the crawler was not the limit.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.crawlers import CRAWLERS, GOALS, MADE, OTHER, OURS, SAME_WORK, Crawler, Start  # noqa: E402
from bench.processes import Processes, cpu_s, machine, move, rss_mb  # noqa: E402
from bench.real_sites import installed  # noqa: E402
from crawlweb.frontier.server import find_binary  # noqa: E402
from tests.conftest import serving  # noqa: E402
from tests.web import Links, Saved, Visit, Web, WebProcess  # noqa: E402
from tests.web.kinds import parse  # noqa: E402
from tests.web.saved import means  # noqa: E402

DEFAULT = f"{SAME_WORK};{OURS};scrapy-redis;scrapy;crawlee"
STALLED_S = 30.0
BATCHES = 6  # a crawler may fetch all that it may at once before it works on any: fewer pages than some such batches tell nothing
FULL_CORE = 0.9


@dataclass(frozen=True)
class Run:
    pages: int
    pages_per_s: float
    worker_ms: float
    """CPU a page of the crawler's processes."""
    redis_ms: float
    web_ms: float
    busy: float
    """Share of its core that the crawler used; well under 1, it waited for something else."""
    second_core: float
    """Share of the other core that the web and Redis used."""
    rss_mb: float
    page_kb: float
    new_links: float
    """Links a page that no page before had shown; of pages made up only."""
    refetched: int
    overlaps: int

    @property
    def pages_per_cpu_s(self) -> float:
        return 1000 / (self.worker_ms + self.redis_ms)


def measure(crawler: Crawler, options: argparse.Namespace, site: str) -> Run:
    """One run. RuntimeError, with the end of its log, if the crawler ends or stalls before its pages are served."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        web = stack.enter_context(WebProcess(site, cores={options.server_core}, tls=options.tls, keep_alive=not options.tls))
        redis = stack.enter_context(serving(find_binary())) if crawler.needs_redis else None
        seeds, log = folder / "seeds.txt", folder / "log.txt"
        seeds.write_text("\n".join(web.seeds()) + "\n")
        start = Start(web, seeds, folder, redis.url if redis else "", options.concurrency)
        with log.open("wb") as output:
            child = subprocess.Popen(
                crawler.command(start),
                cwd=crawler.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: os.sched_setaffinity(0, {options.crawler_core}),
            )
        processes = Processes(child.pid, folder, frozenset({redis.pid} if redis else ()))
        try:
            run = _watch(child, processes, web, options)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{log.read_text(errors='replace')[-3000:]}") from None
        finally:
            processes.kill()
            child.wait()
        report = web.report()
        return dataclasses.replace(
            run,
            new_links=_new_links(web.visits(), site),
            refetched=report["refetched"],
            overlaps=len(report["overlaps"]),
        )


def _watch(child: subprocess.Popen[bytes], processes: Processes, web: WebProcess, options: argparse.Namespace) -> Run:
    def wait(pages: int, most_s: float, least: int) -> int:
        """So many pages, or so long, but `least` pages."""
        began = grew = time.monotonic()
        last = web.served()
        while (served := web.served()) < pages:
            now = time.monotonic()
            if served != last:
                last, grew = served, now
            if child.poll() is not None:
                raise RuntimeError(f"the crawler ended with {child.returncode} after {served} pages")
            if now > grew + STALLED_S:
                raise RuntimeError(f"no page in {STALLED_S:.0f} s after {served} pages")
            if now > began + most_s and served >= least:
                break
            time.sleep(0.01)
        return served

    wait(1, STALLED_S, 1)
    move(processes.find()[1], {options.server_core})
    first = wait(options.warm_up, options.warm_up_s, 3 * options.concurrency)
    workers, redis = processes.find()
    sets = (workers, redis, {web.pid})
    start_s, start_bytes, used_s = time.monotonic(), web.served_bytes(), [cpu_s(pids) for pids in sets]
    pages = wait(first + options.pages, options.seconds, first + BATCHES * options.concurrency) - first
    elapsed_s = time.monotonic() - start_s
    worker_s, redis_s, web_s = (cpu_s(pids) - before for pids, before in zip(sets, used_s, strict=True))
    return Run(
        pages=pages,
        pages_per_s=pages / elapsed_s,
        worker_ms=worker_s / pages * 1000,
        redis_ms=redis_s / pages * 1000,
        web_ms=web_s / pages * 1000,
        busy=worker_s / elapsed_s,
        second_core=(redis_s + web_s) / elapsed_s,
        rss_mb=rss_mb(workers),
        page_kb=(web.served_bytes() - start_bytes) / pages / 1000,
        new_links=0.0,
        refetched=0,
        overlaps=0,
    )


def _new_links(visits: list[Visit], site: str) -> float:
    """A page, over the whole run."""
    if not site.startswith("links:"):
        return 0.0
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


Results = dict[str, list[Run | None]]
"""The runs of each crawler, one a round; None: it failed."""

COLUMNS = (
    ("pages/s", 9, ".1f", "pages_per_s"),
    ("pages/CPU-s", 13, ".1f", "pages_per_cpu_s"),
    ("ms/page", 9, ".2f", "worker_ms"),
    ("Redis ms", 10, ".2f", "redis_ms"),
    ("web ms", 8, ".2f", "web_ms"),
    ("busy", 6, ".2f", "busy"),
    ("2nd core", 10, ".2f", "second_core"),
    ("MB", 6, ".0f", "rss_mb"),
    ("KB/page", 9, ".1f", "page_kb"),
    ("new links", 11, ".1f", "new_links"),
    ("again", 7, ".0f", "refetched"),
    ("overlaps", 10, ".0f", "overlaps"),
)


def table(results: Results) -> Iterator[str]:
    yield f"{'crawler':<22}" + "".join(f"{title:>{width}}" for title, width, _, _ in COLUMNS) + "  all pages/s"
    for name, rounds in results.items():
        runs = [run for run in rounds if run]
        if not runs:
            yield f"{name:<22} failed"
            continue
        row = [format(statistics.median(getattr(run, field) for run in runs), form).rjust(width) for _, width, form, field in COLUMNS]
        yield f"{name:<22}{''.join(row)}  " + " ".join(f"{run.pages_per_s:.1f}" for run in runs)
        if max(run.second_core for run in runs) > FULL_CORE:
            yield f"{'':<22}  (not the limit itself: the core of the web and Redis was full)"


def ratios(results: Results, web: str) -> Iterator[tuple[str, bool]]:
    """A line for each of our rows and each peer, and whether its goal holds (if it has one)."""
    yield f"{'':<22}{'beside':<22}{'pages/s':>9}{'pages/CPU-s':>13}{'goal':>7}", True
    for ours in (name for name in results if name.startswith(OURS)):
        for peer in (name for name in results if not name.startswith(OURS)):
            both = [(a, b) for a, b in zip(results[ours], results[peer], strict=True) if a and b]
            goal = GOALS[web].get(ours, {}).get(peer)
            if not both:
                yield f"{ours:<22}{peer:<22}{'no round with both':>29}", goal is None
                continue
            times = [statistics.median(getattr(a, what) / getattr(b, what) for a, b in both) for what in ("pages_per_s", "pages_per_cpu_s")]
            holds = goal is None or min(times) >= goal
            verdict = "" if goal is None else f"{goal:>5g} x  {'holds' if holds else 'DOES NOT HOLD'}"
            yield f"{ours:<22}{peer:<22}{times[0]:>7.2f} x{times[1]:>11.2f} x{verdict}", holds


def site_of(options: argparse.Namespace) -> tuple[str, str]:
    """The web as an argument of `tests.web`, and described. ValueError if it has no pages."""
    over = ", HTTPS, a connection a page" if options.tls else ", HTTP"
    if options.real is None:
        size = f"count={options.hosts},pages={options.host_pages},links={options.links},page_bytes={options.page_bytes}"
        return f"links:{size}", f"{options.hosts} hosts, pages made up: {options.page_bytes / 1000:g} KB, {options.links} links{over}"
    pages, size_bytes, links = means(options.real, Saved.files)
    real = f"{pages} real pages, {size_bytes / 1000:.1f} KB and {links:.0f} links each in the mean"
    return f"saved:count={options.hosts},folder={options.real}", f"{options.hosts} hosts, {real}{over}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crawlers", default=DEFAULT, help=f"separated by ';', of: {'; '.join(CRAWLERS)}")
    parser.add_argument("--real", nargs="*", metavar="FOLDER", help="real pages, from these folders")
    parser.add_argument("--tls", action="store_true", help="over HTTPS, a connection a page")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=3000, help="measured, in each run")
    parser.add_argument("--seconds", type=float, default=10.0, help="or so long")
    parser.add_argument("--warm-up", type=int, default=400, help="pages before these")
    parser.add_argument("--warm-up-s", type=float, default=15.0, help="or so long")
    parser.add_argument("--hosts", type=int, default=300)
    parser.add_argument("--host-pages", type=int, default=300, help="decides how many links are new")
    parser.add_argument("--links", type=int, default=100)
    parser.add_argument("--page-bytes", type=int, default=31_000)
    parser.add_argument(
        "--concurrency", type=int, default=100, help="requests at once, of all crawlers: as Scrapy's guide to broad crawls has it"
    )
    parser.add_argument("--crawler-core", type=int, default=0)
    parser.add_argument("--server-core", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write all runs here as well")
    options = parser.parse_args()
    names = [name.strip() for name in options.crawlers.split(";")]
    if unknown := set(names) - CRAWLERS.keys():
        parser.error(f"unknown: {', '.join(unknown)}")
    if options.hosts * options.host_pages < 2 * (options.warm_up + options.pages):
        parser.error("the web is too small: at least twice the pages of a run")
    os.sched_setaffinity(0, {options.server_core})

    with tempfile.TemporaryDirectory(prefix="bench-") as gathered:
        if options.real is not None:
            for number, folder in enumerate(options.real or installed().values()):
                Path(gathered, str(number)).symlink_to(Path(folder).resolve())
            options.real = gathered
        try:
            site, described = site_of(options)
        except ValueError as error:
            parser.error(str(error))
        facts = {**machine("scrapy-redis", "crawlee", "impit", "parsel"), "web": described, "concurrency": str(options.concurrency)}
        print("\n".join(f"{key}: {value}" for key, value in facts.items()), end="\n\n", flush=True)
        results: Results = {name: [] for name in names}
        for number in range(options.rounds):
            for name in names if number % 2 == 0 else reversed(names):
                try:
                    results[name].append(measure(CRAWLERS[name], options, site))
                except RuntimeError as error:
                    results[name].append(None)
                    print(f"{name}: {error}", file=sys.stderr)
    print("\n".join(table(results)), end="\n\n")
    lines = list(ratios(results, MADE if options.real is None and not options.tls else OTHER))
    print("\n".join(line for line, _ in lines))
    if options.json:
        runs = {name: [run and dataclasses.asdict(run) for run in runs] for name, runs in results.items()}
        options.json.write_text(json.dumps({"machine": facts, "runs": runs}, indent=1) + "\n")
    return 0 if all(holds for _, holds in lines) and all(run for runs in results.values() for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
