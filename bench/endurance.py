"""Memory over a long crawl: one worker with everything on, a million small pages of 50,000 hosts; is it flat after the warm-up?

    python bench/endurance.py                                 1,000,000 fetches, about half an hour
    python bench/endurance.py --pages 50000 --hosts 4000      a short look
    python bench/endurance.py --json run.jsonl                every sample as a line, as it is taken

The web, of a process of its own, answers for all hosts from 4,000 addresses of loopback: pages of 1.5 kB with 7 links, some of them copies,
redirects, 404s, 503s, bodies that end too soon, other types, cookies; each host has a robots.txt. Delay 0, addresses have their clock.
Worker on one core, web and Redis on the other.

An extension in the worker tells its memory (VmRSS), file descriptors, threads and slots every `--sample-s`; a census of its live objects by
type, and of every container that is reached from the crawler with its length, every `--census-s`. A line is fitted to the second half of
the fetches: the worker holds if it grows by less than `--most-mb` in 100,000. What grew in the second half is named, and what Redis' memory
is for: it grows with its data (records, fingerprints, queues). SIGINT ends the run early, with the figures up to then.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import redis  # noqa: E402
from redis.asyncio import Redis  # noqa: E402
from throughput import Processes, machine, move, rss_mb  # noqa: E402

from crawlweb.frontier.accounts import Accounts  # noqa: E402
from crawlweb.frontier.frontier import Frontier  # noqa: E402
from crawlweb.frontier.server import PrivateServer  # noqa: E402
from tests.web.names import question  # noqa: E402
from tests.web.text import prose  # noqa: E402

ADDRESSES = 4000
SUFFIX = "example"
TEXTS = 1999
FEW = 50  # containers with less, and fewer objects of a type more, are not named
GREW = 1.05

EXTENSION = '''
import collections, functools, gc, json, os, threading, time, types
from collections import Counter, deque
from twisted.internet import task

BY_VALUE = (dict, list, set, frozenset, deque, bytearray)
OURS = ("crawlweb", "scrapy", "redis", "aiodns", "asyncio", "twisted", "spiders", "heapq", "collections", "functools")

def containers(roots):
    """Name → length of what is reached from objects of ours, the longest of each name; objects by way of their attributes, what they call
    by its closure."""
    found, seen, ways = {}, set(), deque(roots)
    while ways and len(seen) < 300_000:
        name, value, depth = ways.popleft()
        if id(value) in seen or depth > 14:
            continue
        seen.add(id(value))
        if isinstance(value, BY_VALUE) or hasattr(value, "currsize"):
            length = len(value)
            if length >= FEW_HERE:
                found[name] = max(length, found.get(name, 0))
            if length <= 200 and not isinstance(value, bytearray):
                items = value.values() if isinstance(value, dict) else value
                ways.extend((name + "[]", item, depth + 1) for item in list(items))
            continue
        if hasattr(value, "cache_info"):
            found[name] = value.cache_info().currsize
        elif isinstance(value, types.MethodType):
            ways.append((name, value.__self__, depth))
            continue
        elif isinstance(value, functools.partial):
            ways.extend((name, one, depth + 1) for one in (value.func, *value.args))
            continue
        elif isinstance(value, types.FunctionType):
            for cell in value.__closure__ or ():
                try:
                    ways.append((name + "()", cell.cell_contents, depth + 1))
                except ValueError:
                    pass
            continue
        elif isinstance(value, tuple):
            ways.extend((name + "[]", item, depth + 1) for item in value[:50])
            continue
        elif isinstance(value, (type, types.ModuleType)) or not str(type(value).__module__).startswith(OURS):
            continue
        names = list(getattr(value, "__dict__", ()))
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            names += [slots] if isinstance(slots, str) else slots
        for attribute in names:
            try:
                ways.append((f"{type(value).__name__}.{attribute}", getattr(value, attribute), depth + 1))
            except Exception:
                pass
    return found

class Census:
    def __init__(self, crawler):
        self.crawler, self.begun = crawler, time.monotonic()
        self.file = open(os.environ["CENSUS"], "a", buffering=1)
        self.next_census = 0.0

    @classmethod
    def from_crawler(cls, crawler):
        from scrapy import signals
        found = cls(crawler)
        found.loop = task.LoopingCall(found.sample)
        crawler.signals.connect(found.start, signals.engine_started)
        crawler.signals.connect(found.stop, signals.engine_stopped)
        return found

    def start(self):
        self.loop.start(float(os.environ["SAMPLE_S"]))

    def stop(self):
        if self.loop.running:
            self.loop.stop()

    def sample(self):
        crawler, engine = self.crawler, self.crawler.engine
        stats = {name: value for name, value in crawler.stats.get_stats().items() if isinstance(value, (int, float))}
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        slot = engine._slot
        row = {
            "s": time.monotonic() - self.begun,
            "fetches": stats.get("crawlweb/requests", 0),
            "pages": stats.get("crawlweb/pages", 0),
            "rss_mb": int(status["VmRSS"].split()[0]) / 1024,
            "fds": len(os.listdir("/proc/self/fd")),
            "threads": int(status["Threads"]),
            "downloader_slots": len(engine.downloader.slots),
            "in_progress": len(slot.inprogress) if slot else 0,
            "cpu_s": time.process_time(),
        }
        if row["s"] >= self.next_census:
            self.next_census = row["s"] + float(os.environ["CENSUS_S"])
            begun = time.thread_time()
            gc.collect()
            kinds = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
            row["objects"] = sum(kinds.values())
            row["kinds"] = dict(kinds.most_common(400))
            row["stats"] = len(crawler.stats.get_stats())
            roots = [("crawler", crawler, 0), ("engine", engine, 0)]
            import sys
            for name, module in list(sys.modules.items()):
                if name.startswith(("crawlweb", "scrapy", "w3lib", "publicsuffix", "redis")) and isinstance(module, types.ModuleType):
                    for key, value in list(vars(module).items()):
                        if hasattr(value, "cache_info"):
                            found_in = getattr(value, "__module__", name)
                            if found_in == name:
                                roots.append((f"{name}.{key}", value, 0))
                        elif isinstance(value, (dict, set, list, deque)) and not key.startswith("__"):
                            roots.append((f"{name}.{key}", value, 13))
            row["containers"] = containers(roots)
            row["counters"] = {name: value for name, value in stats.items() if name.startswith("crawlweb/")}
            row["census_s"] = time.thread_time() - begun
        self.file.write(json.dumps(row) + "\\n")
'''.replace("FEW_HERE", str(FEW))


class Pages:
    """What a host answers: everything follows from its number and the path. A page's children are the next of a binary tree of its host;
    two links lead to other hosts."""

    def __init__(self, hosts: int, pages: int, words: int, port: int) -> None:
        self._hosts, self._pages, self._port = hosts, pages, port
        rng = Random(1)
        self._texts = [prose(rng, words) for _ in range(TEXTS)]

    def answer(self, host: int, target: str) -> tuple[int, str, bytes, str]:
        """Status, type, body, more headers."""
        if target == "/robots.txt":
            rules = "".join(f"Disallow: /private/{n}/\n" for n in range(host % 12))
            return 200, "text/plain", f"User-agent: *\n{rules}Disallow: /no/{host}\n".encode(), ""
        number = target.removeprefix("/p/")
        n = int(number) if number.isdigit() and len(number) < 7 else 0 if target == "/" else -1
        if target.startswith("/r/") and target[3:].isdigit():
            return 301, "text/html", b"", f"Location: /p/{target[3:]}\r\n"
        if not 0 <= n < self._pages:
            return 404, "text/html", b"<!doctype html><title>Not found</title><p>There is no such page here.", ""
        what = (host * 31 + n * 7) % 200
        if what == 1:
            return 503, "text/plain", b"busy", ""
        if what == 2:
            return 200, "image/png", b"\x89PNG" + bytes(300), ""
        body = self._page(host, n if what > 4 else 1_000_000 + what)
        more = f'ETag: "{host}-{n}"\r\nSet-Cookie: visitor={host}-{n}; Path=/\r\n' if what % 2 else ""
        return 200, "text/html; charset=utf-8", body, more

    def _page(self, host: int, n: int) -> bytes:
        below = [f"/p/{k}" for k in (2 * n + 1, 2 * n + 2) if k < self._pages]
        jumps = [f"http://h{(host * 7 + n * 13 + k * 104_729) % self._hosts}.{SUFFIX}:{self._port}/" for k in (1, 2)]
        hrefs = [*below, *jumps, f"/r/{(3 * n + 1) % self._pages}", f"/lost/{n}" if n % 9 == 0 else "/", f"/no/{host}"]
        links = "".join(f'<li><a href="{href}">link {k}</a></li>' for k, href in enumerate(hrefs))
        # Two texts of many for each page, but for those of one number beyond the others: they are copies of one another.
        pick = (0 if n >= 1_000_000 else host * 2_654_435_761) + n * 40_503_007
        words = self._texts[pick % TEXTS], self._texts[pick // TEXTS % TEXTS]
        name = n if n >= 1_000_000 else f"{host} {n}"
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Page {name}</title></head><body>'
            f"<article><h1>Page {name}</h1><p>{words[0]}</p><p>{words[1]}</p></article><ul>{links}</ul></body></html>"
        ).encode()


class Server(asyncio.Protocol):
    """HTTP/1.1, one request a read; closes where asked."""

    served = 0

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._head += data
        while (end := self._head.find(b"\r\n\r\n")) >= 0:
            head, self._head = self._head[:end].decode("latin-1"), self._head[end + 4 :]
            target = head.split(" ", 2)[1]
            at = head.lower().find("\r\nhost:")
            name = head[at + 7 :].split("\r\n")[0].strip()
            host = int(digits) if (digits := name[1:].partition(".")[0]).isdigit() else 0
            status, kind, body, more = self._pages.answer(host, target)
            length = len(body) + (500 if (host + len(target)) % 401 == 0 and status == 200 and target != "/robots.txt" else 0)
            self._transport.write(
                f"HTTP/1.1 {status} OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}\r\n".encode("latin-1") + body
            )
            if length != len(body) or "\r\nconnection: close" in head.lower():
                self._transport.close()


class Names(asyncio.DatagramProtocol):
    """An address of loopback for every name."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        with contextlib.suppress(ValueError):
            name, kind, section = question(data)
            digits = name[1:].partition(".")[0]
            number = (int(digits) if digits.isdigit() else 0) % ADDRESSES
            ip = bytes((127, 0, number // 250, 1 + number % 250))
            record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x0e\x10\x00\x04" + ip if kind == 1 else b""
            self._transport.sendto(data[:2] + b"\x81\x80\x00\x01\x00" + bytes((bool(record),)) + bytes(4) + section + record, addr)


async def serve(hosts: int, pages: int, words: int) -> None:
    """Until standard input ends. Tells its ports as the first line."""
    loop = asyncio.get_running_loop()
    first = await loop.create_server(lambda: Server(made), "127.0.0.1", 0, backlog=1024)
    port = first.sockets[0].getsockname()[1]
    made = Pages(hosts, pages, words, port)
    for n in range(1, ADDRESSES):
        await loop.create_server(functools.partial(Server, made), f"127.0.{n // 250}.{1 + n % 250}", port, backlog=128)
    names, _ = await loop.create_datagram_endpoint(Names, ("127.0.0.1", 0))
    print(json.dumps({"port": port, "dns": names.get_extra_info("sockname")[1]}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def web(hosts: int, pages: int, words: int, core: int) -> Iterator[dict[str, int]]:
    child = subprocess.Popen(
        [sys.executable, __file__, "--serve", f"{hosts},{pages},{words}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    try:
        assert child.stdout is not None
        yield json.loads(child.stdout.readline())
    finally:
        child.kill()
        child.wait()


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Samples of the worker, Redis' figures added."""
    samples: list[dict[str, Any]] = []
    host_pages = max(2, -(-options.pages * 6 // (5 * options.hosts)))
    with tempfile.TemporaryDirectory(prefix="bench-") as name, web(options.hosts, host_pages, options.words, options.server_core) as opened:
        folder = Path(name)
        (folder / "census.py").write_text(EXTENSION)
        seeds, log, told = folder / "seeds.txt", folder / "log.txt", folder / "census.jsonl"
        seeds.write_text("".join(f"http://h{n}.{SUFFIX}:{opened['port']}/\n" for n in range(min(options.hosts, 1000))))
        told.touch()
        settings = {
            "CRAWLWEB_DATA_DIR": folder / "data",
            "CRAWLWEB_DNS_SERVERS": f"127.0.0.1:{opened['dns']}",
            "CRAWLWEB_ALLOW_PRIVATE_IPS": 1,
            "CRAWLWEB_MIN_DELAY_S": 0,
            "CRAWLWEB_LATENCY_FACTOR": 0,
            "CRAWLWEB_IP_DELAY_S": options.ip_delay_s,
            "CRAWLWEB_CONTACT": "bench@example.com",
            "CONCURRENT_REQUESTS": options.concurrency,
            "EXTENSIONS": json.dumps({"census.Census": 0}),
            "LOG_LEVEL": "INFO",
            **dict(pair.split("=", 1) for pair in options.set),
        }
        words = [word for key, value in settings.items() for word in ("-s", f"{key}={value}")]
        with log.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "scrapy", "crawl", "web", "-a", f"seeds=@{seeds}", *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join((str(ROOT), name)),
                    "CENSUS": str(told),
                    "SAMPLE_S": str(options.sample_s),
                    "CENSUS_S": str(options.census_s),
                },
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, {options.crawler_core}),
            )
        processes = Processes(child.pid, folder)
        server = redis.Redis(unix_socket_path=str(PrivateServer(folder / "data").socket), decode_responses=True)
        try:
            samples += _watch(child, processes, server, told, options)
            with contextlib.suppress(redis.RedisError):
                asyncio.run(_account(str(PrivateServer(folder / "data").socket), samples))
        finally:
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(60)
            print(f"the worker ended with {child.returncode}")
            processes.kill()
            child.wait()
            words = [line for line in log.read_text(errors="replace").splitlines() if " ERROR" in line or " WARNING" in line]
            print(f"its log: {len(words)} warnings and errors" + "".join(f"\n  {line[:200]}" for line in words[:10]))
    return samples


def _watch(
    child: subprocess.Popen[bytes], processes: Processes, server: redis.Redis, told: Path, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Until the pages are fetched, the crawl ends, or somebody interrupts."""
    samples: list[dict[str, Any]] = []
    begun, moved = time.monotonic(), False
    stop = False

    def stopped(*_: object) -> None:
        nonlocal stop
        stop = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stopped)
    out = options.json.open("w") if options.json else None
    with told.open() as lines:
        rest = ""
        while not stop and time.monotonic() - begun < options.timeout_s:
            line = lines.readline()
            rest += line
            if not line.endswith("\n"):
                if child.poll() is not None:
                    break
                time.sleep(0.2)
                continue
            sample, rest = json.loads(rest), ""
            workers, servers = processes.find()
            if servers and not moved:
                move(servers, {options.server_core})
                moved = True
            sample["family_mb"] = rss_mb(workers)
            with contextlib.suppress(redis.RedisError):
                memory, cpu = server.info("memory"), server.info("cpu")
                sample["redis_mb"], sample["redis_rss_mb"] = memory["used_memory"] / 2**20, memory["used_memory_rss"] / 2**20
                sample["redis_cpu_s"] = cpu["used_cpu_user"] + cpu["used_cpu_sys"]
            samples.append(sample)
            if out:
                out.write(json.dumps(sample) + "\n")
                out.flush()
            if "containers" in sample or len(samples) % 6 == 0:
                print(shown(samples), flush=True)
            if sample["fetches"] >= options.pages:
                break
    if out:
        out.close()
    return samples


async def _account(socket: str, samples: Sequence[dict[str, Any]]) -> None:
    """What Redis' memory is for."""
    async with Redis(unix_socket_path=socket) as client:
        account = await Accounts(Frontier(client, "web", 64, "bench")).walk()
    fetches = max(1, samples[-1]["fetches"]) if samples else 1
    print(f"Redis: {account.used_bytes / 2**20:.1f} MB used, of which are known {account.known_bytes / 2**20:.1f}; by kind:")
    for name, tally in sorted(account.kinds.items(), key=lambda kind: -kind[1].size_bytes)[:14]:
        print(f"  {name:40} {tally.keys:11,.0f} keys {tally.size_bytes / 2**20:9.1f} MB {tally.size_bytes / fetches:8.1f} B a fetch")


def shown(samples: Sequence[dict[str, Any]]) -> str:
    """The last one as a line."""
    last, before = samples[-1], samples[max(0, len(samples) - 7)]
    rate = (last["fetches"] - before["fetches"]) / max(1e-9, last["s"] - before["s"])
    parts = [
        f"{last['s']:6.0f} s {last['fetches']:9,} fetches {rate:6.0f}/s; worker {last['rss_mb']:6.1f} MB (with children "
        f"{last['family_mb']:6.1f}), {last['fds']} files, {last['threads']} threads, {last['downloader_slots']} slots, "
        f"{last['in_progress']} in progress; Redis {last.get('redis_mb', 0):6.1f} MB, {last.get('redis_rss_mb', 0):6.1f} resident"
    ]
    if "objects" in last:
        longest = sorted(last["containers"].items(), key=lambda item: -item[1])[:6]
        parts.append(f"    {last['objects']:,} objects, {last['stats']} stats; longest: " + ", ".join(f"{k} {v:,}" for k, v in longest))
    return "\n".join(parts)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line fitted by least squares."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def summary(samples: Sequence[dict[str, Any]], most_mb: float) -> None:
    if len(samples) < 4:
        print("too few samples")
        return
    last = samples[-1]
    half = [sample for sample in samples if sample["fetches"] >= last["fetches"] / 2]
    print(f"\n{last['fetches']:,} fetches, {last['pages']:,} pages in {last['s']:.0f} s; the second half: {len(half)} samples")
    print("| | first | at half | at the end | most | in 100,000 fetches of the second half |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    rows = (
        ("worker, MB resident", "rss_mb"),
        ("with its children", "family_mb"),
        ("file descriptors", "fds"),
        ("threads", "threads"),
        ("downloader slots", "downloader_slots"),
        ("requests in the engine", "in_progress"),
        ("live objects", "objects"),
        ("names of stats", "stats"),
        ("Redis, MB used", "redis_mb"),
        ("Redis, MB resident", "redis_rss_mb"),
    )
    grows: dict[str, float] = {}
    for text, key in rows:
        found = [(sample["fetches"], sample[key]) for sample in samples if key in sample]
        later = [(x, y) for x, y in found if x >= last["fetches"] / 2]
        if len(later) < 2:
            continue
        grows[key] = slope(later) * 100_000
        values = [y for _, y in found]
        print(f"| {text} | {values[0]:,.1f} | {later[0][1]:,.1f} | {values[-1]:,.1f} | {max(values):,.1f} | {grows[key]:+,.2f} |")
    cpu = (last["cpu_s"] - samples[0]["cpu_s"]) / max(1, last["fetches"] - samples[0]["fetches"]) * 1000
    print(f"CPU a fetch: worker {cpu:.2f} ms", end="")
    with_redis = [sample for sample in samples if "redis_cpu_s" in sample]
    if with_redis:
        of, to = with_redis[0], with_redis[-1]
        print(f", Redis {(to['redis_cpu_s'] - of['redis_cpu_s']) / max(1, to['fetches'] - of['fetches']) * 1000:.2f} ms", end="")
    verdict = "holds" if grows["rss_mb"] < most_mb else "MISSED"
    print(f"\nworker {grows['rss_mb']:+.2f} MB in 100,000 fetches, less than {most_mb:g}: {verdict}")
    censuses = [sample for sample in samples if "containers" in sample]
    later = [sample for sample in censuses if sample["fetches"] >= last["fetches"] / 2]
    if len(later) < 2:
        return
    at_half, at_end = later[0], later[-1]
    print(f"censuses at {at_half['fetches']:,} and {at_end['fetches']:,} fetches; the longest containers:")
    for name, length in sorted(at_end["containers"].items(), key=lambda item: -item[1])[:25]:
        print(f"  {name:50} {at_half['containers'].get(name, 0):10,} {length:10,}")
    for what in ("containers", "kinds"):
        grown = {
            name: (at_half[what].get(name, 0), count)
            for name, count in at_end[what].items()
            if count > GREW * at_half[what].get(name, 0) and count - at_half[what].get(name, 0) >= FEW
        }
        print(f"{what} that grew: {'none' if not grown else ''}")
        for name, (before, after) in sorted(grown.items(), key=lambda item: item[1][0] - item[1][1])[:25]:
            print(f"  {name:50} {before:10,} {after:10,}")
    counters = at_end["counters"]
    print("counters: " + ", ".join(f"{name.removeprefix('crawlweb/')} {value:,.7g}" for name, value in sorted(counters.items())))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1_000_000, help="fetches")
    parser.add_argument("--hosts", type=int, default=50_000)
    parser.add_argument("--words", type=int, default=60, help="of a paragraph of two; payloads under 1 kB (20) are not remembered")
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--ip-delay-s", type=float, default=0.002)
    parser.add_argument("--sample-s", type=float, default=5.0)
    parser.add_argument("--census-s", type=float, default=60.0)
    parser.add_argument("--most-mb", type=float, default=1.0, help="that the worker may grow by in 100,000 fetches")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the worker")
    parser.add_argument("--timeout-s", type=float, default=3600.0)
    parser.add_argument("--crawler-core", type=int, default=0)
    parser.add_argument("--server-core", type=int, default=1)
    parser.add_argument("--json", type=Path, help="samples as lines")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        with contextlib.suppress(ImportError):
            import uvloop

            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        asyncio.run(serve(*map(int, options.serve.split(","))))
        os._exit(0)
    print("\n".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    summary(run(options), options.most_mb)
    return 0


if __name__ == "__main__":
    sys.exit(main())
