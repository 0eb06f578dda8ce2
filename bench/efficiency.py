"""How near a crawl comes to what politeness allows: requests sent, of those that its hosts' delays would have let it send.

    python bench/efficiency.py                                          500 hosts, delay 1 s
    python bench/efficiency.py --hosts 5000 --delay-s 15                as many hosts as one worker's CPU can serve at that delay
    python bench/efficiency.py --hosts 5000                             more than it can: what limits then

Hosts have endless small pages and answer after `--low-s` to `--high-s`, each after a time of its own; the latency factor is 0. Everything
is judged from the web's own log, over `--seconds` after all hosts have been asked and `--warm-up` more have passed:

    allowed    the sum over hosts of 1 / (delay + mean time from the start of a request to the end of its answer)
    lateness   from the moment at which the next request was allowed (end of the last answer + delay) to its start; none may be below 0

CPU is that of the whole window, from /proc/<pid>/stat; calls are the reads of Redis (a pipeline is one). Exit status 1 where a gap was
shorter than the delay, or less than `--least` of what is allowed was sent.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import redis  # noqa: E402

from bench.scaling import Moment, look  # noqa: E402
from bench.throughput import CONTENT, machine, rss_mb  # noqa: E402
from crawlweb.frontier.server import find_binary  # noqa: E402
from tests.conftest import serving  # noqa: E402
from tests.crawl.crawler import Crawl  # noqa: E402
from tests.web import Visit, WebProcess  # noqa: E402

GROUPS = 50  # hosts of one latency share a kind of site
AROUND = 0.1  # of a host's latency: a page takes so much more or less


@dataclass(frozen=True)
class Judgement:
    """`allowed` and `sent`: requests in the window; `shares`: sent ÷ allowed of each host; `late_s`: of requests after a host's first."""

    allowed: float
    sent: int
    shares: list[float]
    late_s: list[float]


def judge(visits: Sequence[Visit], hosts: Sequence[str], delay_s: float, start_s: float, end_s: float) -> Judgement:
    """Requests that start in the window. A host that was not asked in it counts as if it had answered at once."""
    by_host: dict[str, list[Visit]] = defaultdict(list)
    for visit in sorted(visits):
        by_host[visit.host].append(visit)
    allowed, sent = 0.0, 0
    shares, late_s = [], []
    for host in hosts:
        rows = by_host[host]
        inside = [visit for visit in rows if start_s <= visit.start_s < end_s]
        latency_s = statistics.fmean(visit.end_s - visit.start_s for visit in inside) if inside else 0.0
        may = (end_s - start_s) / (delay_s + latency_s)
        allowed, sent = allowed + may, sent + len(inside)
        shares.append(len(inside) / may)
        late_s += [after.start_s - before.end_s - delay_s for before, after in pairwise(rows) if start_s <= after.start_s < end_s]
    return Judgement(allowed, sent, sorted(shares), sorted(late_s))


def at(values: Sequence[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else math.nan


def sites(options: argparse.Namespace) -> Iterator[str]:
    groups = min(GROUPS, options.hosts)
    for number in range(groups):
        latency_s = options.low_s + (options.high_s - options.low_s) * number / max(1, groups - 1)
        count = options.hosts // groups + (number < options.hosts % groups)
        yield (
            f"links:count={count},pages=1000000000,links={options.links},page_bytes={options.page_bytes}"
            f",low_s={latency_s * (1 - AROUND):.4f},high_s={latency_s * (1 + AROUND):.4f}"
        )


def measure(options: argparse.Namespace) -> tuple[Judgement, Moment, Moment, float]:
    """One crawl; the last figure: MB of the workers. RuntimeError if it does not get going."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(serving(find_binary(), "--appendonly", "yes", "--appendfsync", "everysec"))
        client = stack.enter_context(redis.Redis.from_url(server.url))
        web = stack.enter_context(WebProcess(*sites(options)))
        seeds = folder / "seeds.txt"
        seeds.write_text("\n".join(web.seeds()) + "\n")
        runs = []
        for number in range(options.workers):
            crawl = Crawl(
                folder / f"w{number}",
                web.dns_server,
                REDIS_URL=server.url,
                CRAWLWEB_PARTITIONS=options.partitions,
                CRAWLWEB_MIN_DELAY_S=options.delay_s,
                CRAWLWEB_LATENCY_FACTOR=0,
                CRAWLWEB_IP_DELAY_S=options.ip_delay_s,
                CRAWLWEB_SPILL_URL=folder / "cold",
                LOG_LEVEL="INFO",
                **({} if options.content else {f"CRAWLWEB_{name}": False for name in CONTENT}),
                **dict(setting.split("=", 1) for setting in options.set),
            )
            runs.append(stack.enter_context(crawl).start("" if number else f"@{seeds}"))
        deadline_s = time.monotonic() + options.wait_s
        while (served := web.served()) < options.hosts:
            if time.monotonic() > deadline_s or any(run.process.poll() is not None for run in runs):
                raise RuntimeError(f"{served} pages in {options.wait_s:g} s\n{runs[0].log[-2000:]}")
            time.sleep(0.2)
        time.sleep(options.warm_up + options.delay_s)
        pids = {run.process.pid for run in runs}
        before = look(web, pids, server.pid, client, options.partitions)
        time.sleep(options.seconds)
        after = look(web, pids, server.pid, client, options.partitions)
        memory_mb = rss_mb(pids)
        for run in runs:
            run.kill()
        hosts = [url.split("/")[2].partition(":")[0] for url in web.seeds()]
        return judge(web.visits(), hosts, options.delay_s, before.at_s, after.at_s), before, after, memory_mb


def lines(found: Judgement, before: Moment, after: Moment, memory_mb: float, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    seconds, pages = after.at_s - before.at_s, max(1, after.pages - before.pages)
    spent = {"workers": after.worker_s - before.worker_s, "Redis": after.redis_s - before.redis_s, "web": after.web_s - before.web_s}
    yield "requests a second", f"{found.sent / seconds:.1f} of {found.allowed / seconds:.1f} allowed"
    yield "achieved ÷ allowed", f"{found.sent / found.allowed:.3f}"
    yield (
        "of single hosts",
        "p1 {:.3f}, p10 {:.3f}, p50 {:.3f}, p90 {:.3f}, {} not asked".format(
            *(at(found.shares, share) for share in (0.01, 0.1, 0.5, 0.9)), sum(share == 0 for share in found.shares)
        ),
    )
    yield (
        "lateness, ms",
        "shortest {:.1f}, p50 {:.1f}, p90 {:.1f}, p99 {:.1f}, longest {:.0f}".format(
            *(1000 * at(found.late_s, share) for share in (0, 0.5, 0.9, 0.99, 1))
        ),
    )
    yield "gaps below the delay", f"{sum(late < 0 for late in found.late_s)} of {len(found.late_s)}"
    yield "cores busy", ", ".join(f"{name} {s / seconds:.2f}" for name, s in spent.items())
    yield "CPU ms a page", ", ".join(f"{name} {s / pages * 1000:.3f}" for name, s in spent.items())
    yield "calls to Redis a page", f"{(after.calls - before.calls) / pages:.2f}, {(after.scripts - before.scripts) / pages:.2f} of scripts"
    yield "new links a page", f"{(after.links - before.links) / pages:.1f}"
    yield "memory, MB", f"{memory_mb:.0f} ({options.workers} workers)" if options.workers > 1 else f"{memory_mb:.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=500)
    parser.add_argument("--delay-s", type=float, default=1.0)
    parser.add_argument("--low-s", type=float, default=0.02, help="latency of the fastest host")
    parser.add_argument("--high-s", type=float, default=0.2, help="and of the slowest")
    parser.add_argument("--ip-delay-s", type=float, default=0.5, help="each host has an address of its own; 0: no clocks of addresses")
    parser.add_argument("--seconds", type=float, default=60, help="measured")
    parser.add_argument("--warm-up", type=float, default=10, help="seconds before that")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--links", type=int, default=10, help="of a page")
    parser.add_argument("--page-bytes", type=int, default=4000)
    parser.add_argument("--content", action="store_true", help="main text, fingerprints, records and events of pages, too")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--least", type=float, default=0.95, help="achieved ÷ allowed")
    parser.add_argument("--wait-s", type=float, default=120, help="for a page of each host")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="more settings of the crawl")
    options = parser.parse_args()

    facts = {**machine(), "load": f"{os.getloadavg()[0]:.1f}", "web": f"{options.hosts} hosts, {options.low_s:g} to {options.high_s:g} s"}
    print("\n".join(f"{key}: {value}" for key, value in facts.items()), flush=True)
    wrong = False
    for _ in range(options.rounds):
        found, *moments = measure(options)
        print()
        for name, value in lines(found, *moments, options):
            print(f"{name:<24} {value}", flush=True)
        wrong |= found.sent < options.least * found.allowed or found.late_s[0] < 0
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
