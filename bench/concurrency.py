"""Fetches in flight of one worker on slow servers, its memory, and how long it holds up its event loop.

    python bench/concurrency.py [--everything] [--page-bytes N --links N]

A web on loopback of 6,000 hosts that answer after 1 to 5 s; one worker with CONCURRENT_REQUESTS 2500, delay 1 s, by default without content
work. In flight is counted by the web's own log: requests that it has read and not answered. Two runs of so many seconds: with uvloop, as
users run it, for requests, pages/s, memory and lag (wall time: by how much a sleep of 10 ms was late); with asyncio's own loop, whose
callbacks can be timed one by one, for the longest of them in CPU time.

Memory is the worker's resident set; before the first fetch the spider is opened and Redis connected. Exit code 1 if less than 2,000 were
in flight, memory passed 150 MB and the cap on bytes in flight, or a callback took more than 50 ms of CPU.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.processes import Processes, machine, move, rss_mb  # noqa: E402
from bench.stalls import EXTENSION as STALLS  # noqa: E402
from crawlweb.default_settings import Config  # noqa: E402
from tests.web import Visit, WebProcess  # noqa: E402

BASE_MB, IN_FLIGHT, CALLBACK_S = 150.0, 2000, 0.050
CONTENT = ("MAIN_TEXT", "LANGUAGE", "DUPLICATES", "SOFT_404", "RECORDS", "EVENTS")
SAMPLE_S = 0.25
STOP_S = 120
AT_CLOSE = ("Scheduler._close", "Crawler.stop_async")  # nobody waits for them any more
WATCH = """
import asyncio, gc, json, os, time
from scrapy import signals

collected = [[], [], []]  # CPU seconds of each collection, by generation
begun = [0.0]

def timed(phase, info):
    if phase == "start":
        begun[0] = time.thread_time()
    else:
        collected[info["generation"]].append(time.thread_time() - begun[0])

class Watch:
    def __init__(self, crawler):
        self.crawler, self.base_mb, self.late_s = crawler, 0.0, []
        crawler.signals.connect(self.opened, signals.spider_opened)
        crawler.signals.connect(self.closed, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def opened(self):
        with open("/proc/self/statm") as file:
            self.base_mb = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
        self.task = asyncio.ensure_future(self.tick())
        gc.callbacks.append(timed)

    async def tick(self):
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + 0.010
            await asyncio.sleep(0.010)
            self.late_s.append(loop.time() - due)

    def closed(self):
        self.task.cancel()
        gc.callbacks.remove(timed)
        stats = {k: v for k, v in self.crawler.stats.get_stats().items() if isinstance(v, int | float)}
        with open(os.environ["WATCH"], "w") as file:
            json.dump({"base_mb": self.base_mb, "late_s": sorted(self.late_s), "stats": stats, "collected": collected}, file)
"""


@dataclass(frozen=True)
class Found:
    visits: list[Visit]
    watch: dict[str, Any]
    stalls: dict[str, Any]
    memory: list[tuple[float, float]]
    """Seconds since the first request, MB."""
    from_s: float
    until_s: float
    """Of the steady state, by time.monotonic."""


def crawl(options: argparse.Namespace, *, timed: bool) -> Found:
    site = f"links:count={options.hosts},pages=1000000,links={options.links},page_bytes={options.page_bytes},low_s=1,high_s=5"
    with tempfile.TemporaryDirectory(prefix="bench-") as name, WebProcess(site, cores={options.server_core}) as web:
        folder = Path(name)
        (folder / "stalls.py").write_text(STALLS)
        (folder / "watch.py").write_text(WATCH)
        (folder / "seeds.txt").write_text("\n".join(web.seeds()) + "\n")
        settings: dict[str, object] = {
            "CRAWLWEB_DATA_DIR": folder / "data",
            "CRAWLWEB_DNS_SERVERS": web.dns_server,
            "CRAWLWEB_ALLOW_PRIVATE_IPS": 1,
            "CRAWLWEB_MIN_DELAY_S": 1,
            "CRAWLWEB_LATENCY_FACTOR": 0,
            "CRAWLWEB_CONTACT": "bench@example.com",
            "CONCURRENT_REQUESTS": options.concurrency,
            "EXTENSIONS": json.dumps({"watch.Watch": 0, **({"stalls.Stalls": 0} if timed else {})}),
            "LOG_LEVEL": "WARNING",
            **({"ASYNCIO_EVENT_LOOP": "asyncio.SelectorEventLoop"} if timed else {}),
            **({} if options.everything else {f"CRAWLWEB_{name}": False for name in CONTENT}),
        }
        words = [sys.executable, "-m", "scrapy", "crawl", "web", "-a", f"seeds=@{folder / 'seeds.txt'}"]
        words += [word for key, value in settings.items() for word in ("-s", f"{key}={value}")]
        path = os.pathsep.join(filter(None, (name, str(ROOT), os.environ.get("PYTHONPATH"))))
        env = {**os.environ, "PYTHONPATH": path, "STALLS": str(folder / "stalls.json"), "WATCH": str(folder / "watch.json")}
        child = subprocess.Popen(words, cwd=ROOT, env=env, preexec_fn=lambda: os.sched_setaffinity(0, {options.crawler_core}))
        processes = Processes(child.pid, folder)
        try:
            memory, from_s, until_s = _watch(child, processes, web, options)
            visits = web.visits()
            child.send_signal(signal.SIGINT)
            child.wait(STOP_S)
        finally:
            processes.kill()
            child.wait()
        watch = json.loads((folder / "watch.json").read_text())
        stalls = json.loads((folder / "stalls.json").read_text()) if timed else {}
        return Found(visits, watch, stalls, memory, from_s, until_s)


def _watch(
    child: subprocess.Popen[bytes], processes: Processes, web: WebProcess, options: argparse.Namespace
) -> tuple[list[tuple[float, float]], float, float]:
    deadline_s = time.monotonic() + 120
    while not web.served():
        if child.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError("no page came")
        time.sleep(0.05)
    move(processes.find()[1], {options.server_core})
    begun_s, memory = time.monotonic(), []
    while (past_s := time.monotonic() - begun_s) < options.warm_up_s + options.seconds:
        if child.poll() is not None:
            raise RuntimeError(f"the crawl ended with {child.returncode}")
        memory.append((past_s, rss_mb({child.pid})))
        time.sleep(SAMPLE_S)
    return memory, begun_s + options.warm_up_s, time.monotonic()


def in_flight(visits: list[Visit], from_s: float, until_s: float) -> list[int]:
    """Requests that were read and not answered, every 0.1 s."""
    starts, ends = sorted(visit.start_s for visit in visits), sorted(visit.end_s for visit in visits)
    moments = [from_s + i / 10 for i in range(max(1, round((until_s - from_s) * 10)))]
    return [bisect.bisect_right(starts, at_s) - bisect.bisect_right(ends, at_s) for at_s in moments]


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _print_collections(found: Found) -> None:
    rows = [f"generation {n}: {len(took)}, longest {max(took) * 1000:.0f} ms" for n, took in enumerate(found.watch["collected"]) if took]
    print("    garbage collections: " + "; ".join(rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=6000)
    parser.add_argument("--concurrency", type=int, default=2500, help="CONCURRENT_REQUESTS")
    parser.add_argument(
        "--page-bytes", type=int, default=2000, help="31000 with --links 100: as many are in flight as one core keeps up with"
    )
    parser.add_argument("--links", type=int, default=10)
    parser.add_argument("--everything", action="store_true", help="with all content work")
    parser.add_argument("--warm-up-s", type=float, default=20, help="after the first page")
    parser.add_argument("--seconds", type=float, default=30, help="of the steady state")
    parser.add_argument("--crawler-core", type=int, default=0)
    parser.add_argument("--server-core", type=int, default=1)
    parser.add_argument("--runs", default="uvloop,timed", help="which of the two")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.server_core})
    print("\n".join(f"{key}: {value}" for key, value in machine().items()) + f"\noptions: {vars(options)}\n", flush=True)
    cap_mb, holds = Config().bytes_in_flight / 1e6, []

    def judge(what: str, value: str, well: bool) -> None:
        holds.append(well)
        print(f"{'ok' if well else 'NOT'}: {what}: {value}", flush=True)

    if "uvloop" in options.runs:
        found = crawl(options, timed=False)
        steady = in_flight(found.visits, found.from_s, found.until_s)
        all_time = in_flight(found.visits, found.from_s - options.warm_up_s, found.until_s)
        judge(f"in flight at the servers, at least {IN_FLIGHT} at a time", f"most {max(all_time)}", max(all_time) >= IN_FLIGHT)
        print(f"    steady state: median {statistics.median(steady):.0f}, most {max(steady)}, least {min(steady)}")
        print("    by 2 s: " + " ".join(str(n) for n in all_time[::20]))
        ended = sum(found.from_s <= visit.end_s < found.until_s and visit.page is not None for visit in found.visits)
        print(f"    pages/s: {ended / (found.until_s - found.from_s):.0f}")
        base_mb, most_mb = found.watch["base_mb"], max(mb for _, mb in found.memory)
        steady_mb = statistics.median(mb for past_s, mb in found.memory if past_s >= options.warm_up_s)
        judge(f"memory before the first fetch, {BASE_MB:.0f} MB at most", f"{base_mb:.0f} MB", base_mb <= BASE_MB)
        judge(f"memory, {BASE_MB:.0f} MB and a cap of {cap_mb:.0f} MB at most", f"{most_mb:.0f} MB", most_mb <= BASE_MB + cap_mb)
        stats = found.watch["stats"]
        held_mb, waits = stats.get("crawlweb/in_flight/bytes_most", 0) / 1e6, stats.get("crawlweb/in_flight/waits", 0)
        print(f"    steady state: {steady_mb:.0f} MB; bytes in flight: most {held_mb:.1f} MB, {waits} waits")
        late_s = found.watch["late_s"]
        shown = ", ".join(f"p{100 * share:g} {percentile(late_s, share) * 1000:.0f} ms" for share in (0.5, 0.99, 0.999))
        print(f"    lag of the loop, wall time: {shown}")
        _print_collections(found)
    if "timed" in options.runs:
        found = crawl(options, timed=True)
        rows = sorted(found.stalls["took"].items(), key=lambda row: -max(row[1]))
        longest_s = max((max(times) for what, times in rows if what not in AT_CLOSE), default=0.0)
        judge(f"callbacks, {CALLBACK_S * 1000:.0f} ms of CPU at most", f"longest {longest_s * 1000:.0f} ms", longest_s <= CALLBACK_S)
        for what, times in rows[:8]:
            print(f"    {what}: {len(times)} over 5 ms, longest {max(times) * 1000:.0f} ms")
        _print_collections(found)
        print(f"    in flight: most {max(in_flight(found.visits, found.from_s - options.warm_up_s, found.until_s))}")
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
