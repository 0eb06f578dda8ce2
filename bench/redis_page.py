"""What a page costs in Redis: CPU, bytes and calls a page, script by script, from the real crawl of one worker.

    python bench/redis_page.py                            same work and everything on, CONCURRENT_REQUESTS 256 and 64
    python bench/redis_page.py --concurrency 256 --rounds 3
    python bench/redis_page.py --hosts 3000 --delay-s 2   a crawl that waits for its hosts

The crawl is that of throughput.py: the same web, delay 0, the worker on one core, the web and a private Redis with its append-only file on
the other. After the warm-up there are windows of two kinds in turn, `--pages` in each kind. In the first nothing is watched: CPU (INFO cpu)
and bytes of the network (INFO stats) a page, as the server counts them. In the second the server logs how long each call took (SLOWLOG),
and an extension in the worker counts calls, and the bytes of one in eight, as RESP2 would write them; all of it by script. Times are wall
time, and longer where others use the machine, but in proportion: the server's whole CPU (reading, answering and its log on disk included)
is divided as they are. Beside the crawl's calls goes a yardstick: a script that only counts, made to take `YARDSTICK_US` on an idle
server. How much longer it takes at its 99th percentile is what the machine adds to those of the crawl's scripts.

Pages a second of a shard: 70 % of a core divided by CPU a page, at the speed of this crawl.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import redis  # noqa: E402
from redis.asyncio import Redis  # noqa: E402

from bench.crawlers import CRAWLERS, OURS, SAME_WORK, Start  # noqa: E402
from bench.processes import Processes, machine, move  # noqa: E402
from crawlweb.frontier import scripts  # noqa: E402
from crawlweb.frontier.accounts import Account, Accounts  # noqa: E402
from crawlweb.frontier.frontier import Frontier  # noqa: E402
from crawlweb.frontier.server import PrivateServer  # noqa: E402
from tests.web import WebProcess  # noqa: E402

PARTITIONS = 64
WINDOWS = 4  # of each kind
SHARE = 0.7
GIVING_WAY, FIRST = 15, -19  # nice
SIZED = 8
CALLS_KEPT = 500_000
SHORT_US = 10  # what takes less, such as the commands that scripts call, is not logged
GOALS_MS = {SAME_WORK: 0.20, OURS: 0.40}
GOAL_CALLS = 3.0
STATS = ("links/found", "links/out_of_scope", "links/cached", "links/seen", "links/enqueued", "redis/calls", "pages")
DIGESTS = {scripts.digest(step): step for step in scripts.STEPS}
CLIENT = "bench"
YARDSTICK_US = 600  # as a joined call (scripts.MOST_US)
YARDSTICK = "local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i % 7 end return n"

EXTENSION = """
import json, os, signal
from collections import defaultdict
from redis.asyncio import Redis

sizes = defaultdict(lambda: [0, 0, 0, 0])  # calls; of them measured; bytes of questions, of answers
plain = Redis.execute_command

def length(value):
    if value is None or isinstance(value, bool):
        return 5
    if isinstance(value, (int, float)):
        return len(str(value)) + 3
    if isinstance(value, (bytes, str)):
        n = len(value if isinstance(value, bytes) else value.encode())
        return n + len(str(n)) + 5
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return len(str(len(value))) + 3 + sum(map(length, value))

async def watched(self, *args, **options):
    row = sizes[args[1] if args[0] == "EVALSHA" else args[0]]
    row[0] += 1
    is_sized = row[0] % SIZED == 1
    answer = await plain(self, *args, **options)
    if is_sized:
        row[1] += 1
        row[2] += length([str(arg) if isinstance(arg, (int, float)) else arg for arg in args])
        row[3] += length(answer)
    return answer

class Sizes:
    @classmethod
    def from_crawler(cls, crawler):
        def told(*_):
            if Redis.execute_command is plain:
                Redis.execute_command = watched
            else:
                Redis.execute_command = plain
            with open(os.environ["SIZES"] + ".new", "w") as file:
                stats = {name: value for name, value in crawler.stats.get_stats().items() if isinstance(value, (int, float))}
                json.dump({"sizes": sizes, "stats": stats}, file)
            os.replace(os.environ["SIZES"] + ".new", os.environ["SIZES"])
        signal.signal(signal.SIGUSR1, told)
        return cls()
""".replace("SIZED", str(SIZED))


@dataclass
class Row:
    """Of a script or command, a page."""

    calls: float = 0.0
    run_us: float = 0.0
    in_bytes: float = 0.0
    out_bytes: float = 0.0


@dataclass
class Run:
    """`plain`, `watched`: the whole server, a page. `percentiles_us`: 50 and 99, by script; `yardstick_us` likewise."""

    pages_per_s: float
    plain: Row
    watched: Row
    rows: dict[str, Row]
    percentiles_us: dict[str, tuple[int, ...]]
    yardstick_us: tuple[int, ...]
    stats: dict[str, float]
    """A page."""
    account: Account = field(repr=False)


class Crawl:
    """One that runs: its web, its server."""

    def __init__(
        self, web: WebProcess, server: redis.Redis, child: subprocess.Popen[bytes], told: Path, options: argparse.Namespace
    ) -> None:
        self.web, self.server, self.child, self.told, self.options = web, server, child, told, options
        self.deadline_s = time.monotonic() + options.timeout_s
        self._turns = self._turns_of(YARDSTICK_US)

    def _turns_of(self, us: float) -> int:
        """How often the yardstick counts in so many microseconds: the quickest of some."""
        took_s = []
        for _ in range(50):
            begun = time.perf_counter()
            self.server.eval(YARDSTICK, 0, 10_000)
            took_s.append(time.perf_counter() - begun)
        return round(us / 1e6 / min(took_s) * 10_000)

    def wait(self, pages: int, with_yardstick: bool = False) -> int:
        while (served := self.web.served()) < pages:
            if with_yardstick:
                self.server.eval(YARDSTICK, 0, self._turns)
            if self.child.poll() is not None:
                raise RuntimeError(f"the crawler ended with {self.child.returncode} after {served} pages")
            if time.monotonic() > self.deadline_s:
                raise RuntimeError(f"{served} pages in {self.options.timeout_s} s")
            time.sleep(0.01)
        return served

    def tell(self) -> Any:
        """The worker begins or ends to count sizes. What it has counted, and its stats."""
        self.told.unlink(missing_ok=True)
        self.child.send_signal(signal.SIGUSR1)
        while not self.told.exists():
            if self.child.poll() is not None or time.monotonic() > self.deadline_s:
                raise RuntimeError("the worker does not answer")
            time.sleep(0.01)
        return json.loads(self.told.read_text())

    def counters(self) -> dict[str, float]:
        info: Any = {**self.server.info("cpu"), **self.server.info("stats")}
        cpu_us = 1e6 * (info["used_cpu_user"] + info["used_cpu_sys"])
        return {"cpu_us": cpu_us, "in": info["total_net_input_bytes"], "out": info["total_net_output_bytes"], "s": time.monotonic()}

    def window(self, is_watched: bool = False) -> tuple[int, dict[str, float]]:
        """Pages served in it, and by how much the server's counters rose."""
        first, before = self.web.served(), self.counters()
        pages = self.wait(first + self.options.pages // WINDOWS, with_yardstick=is_watched) - first
        after = self.counters()
        return pages, {name: value - before[name] for name, value in after.items()}


def measure(name: str, concurrency: int, options: argparse.Namespace) -> Run:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder_name, WebProcess(options.site, cores={options.server_core}) as web:
        folder = Path(folder_name)
        seeds, log, told = folder / "seeds.txt", folder / "log.txt", folder / "sizes.json"
        seeds.write_text("\n".join(web.seeds()) + "\n")
        (folder / "sizes.py").write_text(EXTENSION)
        command = CRAWLERS[name].command(Start(web, seeds, folder, "", concurrency))
        path = os.pathsep.join(filter(None, (folder_name, os.environ.get("PYTHONPATH"))))
        with log.open("wb") as output:
            child = subprocess.Popen(
                [*command, "-s", f"EXTENSIONS={json.dumps({'sizes.Sizes': 0})}", "-s", f"CRAWLWEB_MIN_DELAY_S={options.delay_s}"],
                cwd=CRAWLERS[name].folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path, "SIZES": str(told)},
                preexec_fn=lambda: os.sched_setaffinity(0, {options.crawler_core}),
            )
        processes = Processes(child.pid, folder)
        socket = PrivateServer(folder / "data").socket
        try:
            with redis.Redis(unix_socket_path=str(socket), client_name=CLIENT) as server:
                crawl = Crawl(web, server, child, told, options)
                crawl.wait(1)
                if options.no_aof:
                    server.config_set("appendonly", "no")
                move(processes.find()[1], {options.server_core})
                os.setpriority(os.PRIO_PROCESS, web.pid, GIVING_WAY)
                with contextlib.suppress(PermissionError):
                    for pid in processes.find()[1]:
                        os.setpriority(os.PRIO_PROCESS, pid, FIRST)
                crawl.wait(options.warm_up)
                return _windows(crawl, str(socket))
        except RuntimeError as error:
            raise RuntimeError(f"{name}: {error}\n{log.read_text(errors='replace')[-3000:]}") from None
        finally:
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(20)
            processes.kill()
            child.wait()


def _windows(crawl: Crawl, socket: str) -> Run:
    server = crawl.server
    server.config_set("slowlog-max-len", CALLS_KEPT)
    server.slowlog_reset()
    pages, watched = 0, 0
    rose, watched_rose, stats = Counter[str](), Counter[str](), Counter[str]()
    for _ in range(WINDOWS):
        served, more = crawl.window()
        pages += served
        rose.update(more)
        before = crawl.tell()
        server.config_set("slowlog-log-slower-than", SHORT_US)
        served, more = crawl.window(is_watched=True)
        watched += served
        watched_rose.update(more)
        server.config_set("slowlog-log-slower-than", -1)
        after = crawl.tell()
        for name in STATS:
            stats[name] += after["stats"].get(f"crawlweb/{name}", 0) - before["stats"].get(f"crawlweb/{name}", 0)

    took_us: dict[str, list[int]] = defaultdict(list)
    yardstick_us = []
    for logged in server.slowlog_get(CALLS_KEPT):
        if logged["client_name"] == CLIENT.encode():
            if logged["command"].startswith(b"EVAL"):
                yardstick_us.append(logged["duration"])
        else:
            took_us[_named(*logged["command"].decode(errors="replace").split(" ")[:2])].append(logged["duration"])
    sizes: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for command, counted in after["sizes"].items():
        row = sizes[_named("EVALSHA" if command in DIGESTS else command, command)]
        row[:] = [a + b for a, b in zip(row, counted, strict=True)]
    rows = {}
    for name, (calls, measured, in_bytes, out_bytes) in sizes.items():
        if calls:
            logged_us = took_us[name][-calls:]
            run_us = sum(logged_us) + (calls - len(logged_us)) * SHORT_US / 2
            rows[name] = Row(calls / watched, run_us / watched, *(calls / max(1, measured) * n / watched for n in (in_bytes, out_bytes)))
    calls = sum(row.calls for row in rows.values())
    return Run(
        pages_per_s=pages / rose["s"],
        plain=Row(calls, *(rose[name] / pages for name in ("cpu_us", "in", "out"))),
        watched=Row(calls, *(watched_rose[name] / watched for name in ("cpu_us", "in", "out"))),
        rows=rows,
        percentiles_us={name: tuple(_percentile(times, share) for share in (0.5, 0.99)) for name, times in took_us.items() if times},
        yardstick_us=tuple(_percentile(yardstick_us, share) for share in (0.5, 0.99)),
        stats={name: value / watched for name, value in stats.items()},
        account=asyncio.run(_account(socket)),
    )


def _percentile(values: list[int], share: float) -> int:
    return sorted(values)[math.ceil(len(values) * share) - 1]


def _named(command: str, argument: str = "") -> str:
    """A script's name, or a command's in small letters."""
    if command.upper() == "EVALSHA":
        return DIGESTS.get(argument, "other scripts")
    return "other scripts" if command.upper() == "EVAL" else command.lower()


async def _account(socket: str) -> Account:
    async with Redis(unix_socket_path=socket, client_name=CLIENT) as client:
        return await Accounts(Frontier(client, "web", PARTITIONS, CLIENT)).walk()


def show(crawler: str, concurrency: int, runs: list[Run]) -> None:
    """Medians of the rounds."""

    def median(of: Any) -> float:
        return statistics.median(of(run) for run in runs)

    def total(which: str) -> Row:
        return Row(*(median(lambda run, k=key: getattr(getattr(run, which), k)) for key in Row.__dataclass_fields__))

    plain, watched = total("plain"), total("watched")
    print(f"\n{crawler}, CONCURRENT_REQUESTS {concurrency}: {median(lambda run: run.pages_per_s):.0f} pages/s")
    print("| script | calls a page | CPU, us a page | us a call | p50, us | p99, us | bytes to Redis a page | bytes from it |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    names = sorted({name for run in runs for name in run.rows})
    rows = {
        name: Row(*(median(lambda run, n=name, k=key: getattr(run.rows.get(n, Row()), k)) for key in Row.__dataclass_fields__))
        for name in names
    }
    per_us = watched.run_us / sum(row.run_us for row in rows.values())
    small = [rows.pop(name) for name, row in list(rows.items()) if row.run_us < 1 and row.calls < 0.01]
    rows[f"{len(small)} smaller ones"] = Row(*(sum(getattr(row, key) for row in small) for key in Row.__dataclass_fields__))
    for name, row in sorted(rows.items(), key=lambda item: -item[1].run_us):
        cpu_us = row.run_us * per_us
        tail = [f"{median(lambda run, n=name, k=k: run.percentiles_us.get(n, (0, 0))[k]):.0f}" for k in (0, 1)]
        print(
            f"| {name} | {row.calls:.2f} | {cpu_us:.0f} | {cpu_us / max(row.calls, 1e-9):.0f} | {tail[0]} | {tail[1]} "
            f"| {row.in_bytes:,.0f} | {row.out_bytes:,.0f} |"
        )
    for text, row in (("all of these", watched), ("**whole server, not watched**", plain)):
        print(f"| {text} | {row.calls:.2f} | {row.run_us:.0f} | | | | {row.in_bytes:,.0f} | {row.out_bytes:,.0f} |")
    half, most = (median(lambda run, k=k: run.yardstick_us[k]) for k in (0, 1))
    print(f"yardstick of {YARDSTICK_US} us: p50 {half:.0f}, p99 {most:.0f} us")
    goal_us, pages_per_s = 1000 * GOALS_MS[crawler], SHARE * 1e6 / plain.run_us
    print(
        f"CPU {plain.run_us / 1000:.3f} ms a page, goal {goal_us / 1000:.2f}: {'holds' if plain.run_us <= goal_us else 'MISSED'}; "
        f"calls {plain.calls:.2f} a page, goal {GOAL_CALLS:.0f}: {'holds' if plain.calls <= GOAL_CALLS else 'MISSED'}; "
        f"{SHARE:.0%} of a core are {pages_per_s:,.0f} pages/s, {8e-6 * (plain.in_bytes + plain.out_bytes) * pages_per_s:,.0f} Mbit/s"
    )
    each = {name: median(lambda run, n=name: run.stats[n]) for name in STATS}
    inside = each["links/found"] - each["links/out_of_scope"]
    print(
        f"links a page: {each['links/found']:.1f}, of them in scope {inside:.1f}; the worker's cache knew {each['links/cached']:.1f} "
        f"({each['links/cached'] / max(1e-9, inside):.1%}), the seen-set {each['links/seen']:.1f}; new {each['links/enqueued']:.1f}; "
        f"page bodies stored {each['pages']:.2f}"
    )
    bytes_each = {
        text: getattr(runs[-1].account, key)
        for text, key in (
            ("pending URL", "pending_url"),
            ("seen URL", "seen_url"),
            ("active host", "active_host"),
            ("packed host", "packed_host"),
            ("page record", "page_record"),
        )
    }
    print("bytes each: " + ", ".join(f"{text} {value:.1f}" for text, value in bytes_each.items() if value is not None), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crawlers", default=";".join(GOALS_MS), help="separated by ';'")
    parser.add_argument("--concurrency", default="256,64", help="CONCURRENT_REQUESTS, each in turn")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--pages", type=int, default=2000, help="of a kind of window")
    parser.add_argument("--warm-up", type=int, default=1000, help="pages before these")
    parser.add_argument("--hosts", type=int, default=300)
    parser.add_argument("--host-pages", type=int, default=300, help="decides how many links are new")
    parser.add_argument("--delay-s", type=float, default=0.0, help="least delay of a host")
    parser.add_argument("--no-aof", action="store_true", help="without the append-only file")
    parser.add_argument("--timeout-s", type=int, default=300, help="of a run")
    parser.add_argument("--crawler-core", type=int, default=0)
    parser.add_argument("--server-core", type=int, default=1)
    options = parser.parse_args()
    names = [name.strip() for name in options.crawlers.split(";")]
    if unknown := set(names) - GOALS_MS.keys():
        parser.error(f"unknown: {', '.join(unknown)}")
    options.site = f"links:count={options.hosts},pages={options.host_pages},links=100,page_bytes=31000"
    os.sched_setaffinity(0, {options.server_core})
    print("\n".join(f"{key}: {value}" for key, value in {**machine(), "web": options.site}.items()), flush=True)
    concurrencies = [int(number) for number in options.concurrency.split(",")]
    runs: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for _ in range(options.rounds):
        for concurrency in concurrencies:
            for name in names:
                runs[name, concurrency].append(measure(name, concurrency, options))
    for (name, concurrency), found in runs.items():
        show(name, concurrency, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
