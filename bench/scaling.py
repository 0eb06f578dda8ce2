"""Pages a second of one, two and four workers on servers that take their time, and what Redis and the workers pay for a page.

    python bench/scaling.py                                  two rounds of 1, 2 and 4 workers, and of one with the connections of four
    python bench/scaling.py --rounds 3 --runs 1x16,8x16,1x128

A worker of `4x64` (one of four) has 64 requests at a time and waits for most of its life, so that it is not the machine's cores that say
how many pages there are. Delay 1 s, no latency factor; addresses have their clocks. Redis writes its append-only file. Figures are taken
between two moments, when the web has served `--warm-up` pages and `--pages` more, so that about as many links are new in all runs: pages by
the web's own count, CPU from /proc/<pid>/stat, calls by the reads of Redis (a pipeline is one). Rounds alternate, figures are medians.

What `--target` pages a second need is arithmetic. A cost is fitted as so much a page and so much a worker and second, by least squares over
all runs; and a worker is given `--per-worker` pages a second.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import redis  # noqa: E402

from bench.processes import cpu_s, machine  # noqa: E402
from crawlweb.frontier.keys import partition_prefix  # noqa: E402
from crawlweb.frontier.server import find_binary  # noqa: E402
from tests.conftest import serving  # noqa: E402
from tests.crawl.crawler import Crawl  # noqa: E402
from tests.web import WebProcess  # noqa: E402

CORE_SHARE = 0.7  # of a core; with more, calls wait for each other


@dataclass(frozen=True)
class Figures:
    """Of one run; costs are for a page. `busy`: share of the machine's cores that workers, web and Redis used together."""

    workers: float
    pages_per_s: float
    worker_ms: float
    redis_ms: float
    calls: float
    scripts: float
    redis_bytes: float
    new_links: float
    web_ms: float
    busy: float


TITLES = {
    "workers": "workers",
    "pages_per_s": "pages/s",
    "worker_ms": "worker, CPU ms/page",
    "redis_ms": "Redis, CPU ms/page",
    "calls": "calls/page",
    "scripts": "scripts/page",
    "redis_bytes": "bytes to and from Redis/page",
    "new_links": "new links/page",
    "web_ms": "web, CPU ms/page",
    "busy": "cores busy",
}


@dataclass(frozen=True)
class Moment:
    at_s: float
    pages: int
    worker_s: float
    redis_s: float
    web_s: float
    calls: int
    scripts: int
    redis_bytes: int
    links: int
    """Ever queued."""


def look(web: WebProcess, workers: set[int], server: int, client: redis.Redis, partitions: int) -> Moment:
    stats, commands = client.info("stats"), client.info("commandstats")
    links = sum(int(client.hget(partition_prefix("web", p) + "ctr", "enq") or 0) for p in range(partitions))
    return Moment(
        time.monotonic(),
        web.served(),
        cpu_s(workers),
        cpu_s({server}),
        cpu_s({web.pid}),
        stats["total_reads_processed"],
        sum(commands.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval")),
        stats["total_net_input_bytes"] + stats["total_net_output_bytes"],
        links,
    )


def measure(workers: int, connections: int, options: argparse.Namespace) -> Figures:
    """One run. RuntimeError if it stalls."""
    site = f"links:count={options.hosts},pages={options.host_pages},links={options.links},page_bytes={options.page_bytes}"
    site += f",low_s={options.low_s},high_s={options.high_s}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(serving(find_binary(), "--appendonly", "yes", "--appendfsync", "everysec"))
        client = stack.enter_context(redis.Redis.from_url(server.url))
        web = stack.enter_context(WebProcess(site))
        seeds = folder / "seeds.txt"
        seeds.write_text("\n".join(web.seeds()) + "\n")
        runs = []
        for number in range(workers):
            crawl = Crawl(
                folder / f"w{number}",
                web.dns_server,
                REDIS_URL=server.url,
                CRAWLWEB_PARTITIONS=options.partitions,
                CRAWLWEB_MIN_DELAY_S=1,
                CRAWLWEB_IP_DELAY_S=None,
                CRAWLWEB_SPILL_URL=folder / "cold",
                CONCURRENT_REQUESTS=connections,
                LOG_LEVEL="INFO",
            )
            runs.append(stack.enter_context(crawl).start("" if number else f"@{seeds}"))
        deadline_s = time.monotonic() + options.wait_s

        def wait(pages: int) -> None:
            while (served := web.served()) < pages:
                if time.monotonic() > deadline_s or any(run.process.poll() is not None for run in runs):
                    raise RuntimeError(f"{served} pages in {options.wait_s:g} s\n{runs[0].log[-2000:]}")
                time.sleep(0.05)

        wait(options.warm_up)
        pids = {run.process.pid for run in runs}
        before = look(web, pids, server.pid, client, options.partitions)
        wait(before.pages + options.pages)
        after = look(web, pids, server.pid, client, options.partitions)
    pages, seconds = after.pages - before.pages, after.at_s - before.at_s
    spent_s = after.worker_s - before.worker_s, after.redis_s - before.redis_s, after.web_s - before.web_s
    return Figures(
        workers=workers,
        pages_per_s=pages / seconds,
        worker_ms=spent_s[0] / pages * 1000,
        redis_ms=spent_s[1] / pages * 1000,
        calls=(after.calls - before.calls) / pages,
        scripts=(after.scripts - before.scripts) / pages,
        redis_bytes=(after.redis_bytes - before.redis_bytes) / pages,
        new_links=(after.links - before.links) / pages,
        web_ms=spent_s[2] / pages * 1000,
        busy=sum(spent_s) / seconds / (os.cpu_count() or 1),
    )


def median(runs: list[Figures]) -> Figures:
    return Figures(*(statistics.median(getattr(run, field.name) for run in runs) for field in fields(Figures)))


def fit(found: Iterable[Figures], name: str) -> tuple[float, float]:
    """A cost as (so much a page, so much a worker and second). The costs of a page are weighed by pages."""
    rows = [(run.pages_per_s, run.workers, run.pages_per_s * getattr(run, name)) for run in found]
    pp, pw, ww = sum(p * p for p, _, _ in rows), sum(p * w for p, w, _ in rows), sum(w * w for _, w, _ in rows)
    pc, wc = sum(p * c for p, _, c in rows), sum(w * c for _, w, c in rows)
    by = pp * ww - pw * pw
    return (pc * ww - wc * pw) / by, (wc * pp - pc * pw) / by


def needs(found: Sequence[Figures], options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """What `--target` pages a second take."""
    target, workers = options.target, math.ceil(options.target / options.per_worker)

    def cost(name: str) -> tuple[float, str]:
        page, worker = fit(found, name)
        return target * page + workers * worker, f"{page:.2f} a page, {worker:.1f} a worker and second"

    worker_ms, of_worker = cost("worker_ms")
    redis_ms, of_redis = cost("redis_ms")
    calls, of_calls = cost("calls")
    redis_bytes, of_bytes = cost("redis_bytes")
    yield "workers", f"{workers} at {options.per_worker:g} pages/s, {worker_ms / 1000 / workers:.2f} of a core each ({of_worker} ms)"
    yield "cores of workers", f"{worker_ms / 1000:.1f}"
    yield (
        "cores of Redis",
        f"{redis_ms / 1000:.2f}: {math.ceil(redis_ms / 1000 / CORE_SHARE)} shards, {CORE_SHARE:.0%} busy ({of_redis} ms)",
    )
    yield "one Redis, 100 % busy", f"{target / redis_ms * 1000:,.0f} pages/s"
    yield "calls to Redis", f"{calls:,.0f} a second ({of_calls})"
    yield "network of Redis", f"{redis_bytes * 8 / 1e6:,.0f} Mbit/s ({of_bytes} bytes)"
    yield "network of the web", f"{target * options.page_bytes * 8 / 1e6:,.0f} Mbit/s, pages not compressed"
    yield "requests open at a time", f"{target * (options.low_s + options.high_s) / 2:,.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="1x64,2x64,4x64,1x256", help="workers x CONCURRENT_REQUESTS")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--low-s", type=float, default=0.7, help="a page takes the server at least so long")
    parser.add_argument("--high-s", type=float, default=1.3, help="and at most")
    parser.add_argument("--hosts", type=int, default=1500)
    parser.add_argument("--host-pages", type=int, default=50, help="decides how many links are new")
    parser.add_argument("--links", type=int, default=100, help="of a page")
    parser.add_argument("--page-bytes", type=int, default=31_000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--warm-up", type=int, default=2000, help="pages before these")
    parser.add_argument("--pages", type=int, default=2000, help="measured, in each run")
    parser.add_argument("--target", type=float, default=3900, help="pages a second")
    parser.add_argument("--per-worker", type=float, default=300, help="pages a second that a worker is given there")
    parser.add_argument("--wait-s", type=float, default=240, help="for a run")
    options = parser.parse_args()
    names = options.runs.split(",")
    sizes = {name: tuple(map(int, name.split("x"))) for name in names}

    print("\n".join(f"{key}: {value}" for key, value in machine().items()), end="\n\n", flush=True)
    runs: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            runs[name].append(measure(*sizes[name], options))
            print(f"round {number + 1}, {name}: {runs[name][-1].pages_per_s:.1f} pages/s", flush=True)
    found = {name: median(of) for name, of in runs.items()}
    print(f"\n{'':<30}" + "".join(f"{name:>12}" for name in names))
    for field, title in TITLES.items():
        print(f"{title:<30}" + "".join(f"{getattr(found[name], field):>12.2f}" for name in names))
    print(f"\n{options.target:,.0f} pages/s:")
    for title, value in needs(list(found.values()), options):
        print(f"{title:<30} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
