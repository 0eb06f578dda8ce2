"""`scrapy crawl web` as a user starts it, in a process of its own, and what it leaves behind: log, items, WARC files, frontier."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis
from warcio.archiveiterator import ArchiveIterator

from crawlweb.frontier.connect import Servers
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.server import PrivateServer
from crawlweb.records import Entry

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 16
WAIT_S = 120.0
_STAT = re.compile(r"^[ {]'([^']+)': (-?[0-9.]+|'[^']*'),?\}?$", re.M)
_COMPLAINT = re.compile(r"^\S+ \S+ \[[^\]]+\] (?:WARNING|ERROR|CRITICAL): .*$", re.M)
_SUMMARY = re.compile(r"^.*\] INFO: crawl ([^:]+): (\d+) pages, .*$", re.M)


class Run:
    """A started process. Its output, standard error included, is a file."""

    def __init__(self, command: Sequence[str], log: Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> None:
        self.log_file = log
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SCRAPY_", "REDIS_", "CRAWLWEB_"))}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=cwd, env={**kept, **(env or {})}, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def complaints(self) -> list[str]:
        """Log lines above INFO."""
        return _COMPLAINT.findall(self.log)

    @property
    def stats(self) -> dict[str, Any]:
        """Scrapy's closing stats: the numbers and words among them."""
        _, _, dump = self.log.rpartition("Dumping Scrapy stats:\n")
        return {name: value.strip("'") if "'" in value else float(value) for name, value in _STAT.findall(dump)}

    @property
    def summary(self) -> tuple[str, int]:
        """Of the closing line: how the crawl ended, and its pages."""
        found = _SUMMARY.findall(self.log)
        assert len(found) == 1, self.log[-3000:]
        return found[0][0], int(found[0][1])

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """The exit status; a process that takes longer is killed, and its log shown."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout_s} s\n{self.log[-4000:]}") from None

    def succeeds(self, timeout_s: float = WAIT_S) -> Run:
        status = self.wait(timeout_s)
        assert status == 0, f"exit status {status}\n{self.log[-4000:]}"
        return self

    def interrupt(self, times: int = 1) -> None:
        for _ in range(times):
            self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()

    def wait_until(self, is_so: Callable[[], T], timeout_s: float = WAIT_S) -> T:
        """What `is_so` returns once it is true, while the process runs."""
        deadline = time.monotonic() + timeout_s
        while not (answer := is_so()):
            assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.log[-4000:]}"
            assert time.monotonic() < deadline, f"not so after {timeout_s} s\n{self.log[-4000:]}"
            time.sleep(0.02)
        return answer


def scrapy(*arguments: object, log: Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> Run:
    return Run([sys.executable, "-m", "scrapy", *map(str, arguments)], log, cwd, env)


@dataclass(frozen=True)
class Stored:
    """A response in the WARC folder."""

    url: str
    status: int
    file: str
    offset: int
    length: int
    body: bytes

    @property
    def is_page(self) -> bool:
        return 200 <= self.status < 300 and not self.url.endswith("/robots.txt")


class Crawl:
    """A crawl in `folder`: its data directory, its items, its processes. A context manager: at its end none of them runs."""

    def __init__(self, folder: Path, dns_server: str, **settings: Any) -> None:
        self.folder, self.data_dir = folder, folder / "data"
        self.items_file = folder / "pages.jsonl"
        self.runs: list[Run] = []
        self.settings: dict[str, object] = {
            "CRAWLWEB_DATA_DIR": self.data_dir,
            "CRAWLWEB_DNS_SERVERS": dns_server,
            "CRAWLWEB_CONTACT": "https://example.com/bot",
            "CRAWLWEB_ALLOW_PRIVATE_IPS": 1,
            "CRAWLWEB_PARTITIONS": PARTITIONS,
            "CRAWLWEB_MIN_DELAY_S": 0.05,
            "CRAWLWEB_LATENCY_FACTOR": 0,
            "CRAWLWEB_IP_DELAY_S": 0,
            "CRAWLWEB_PROBE_DAYS": 0,
            **settings,
        }

    def __enter__(self) -> Crawl:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self.runs:
            run.kill()
        if not self.settings.get("REDIS_URL"):
            self.kill_server()

    def kill_server(self) -> None:
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(PrivateServer(self.data_dir).url) as client:
            client.shutdown(nosave=True)

    def start(
        self,
        seeds: Iterable[str] | str = (),
        *,
        spider: str = "web",
        cwd: Path = ROOT,
        arguments: Sequence[str] = (),
        clock_off_s: int = 0,
        **settings: Any,
    ) -> Run:
        """`seeds`: URLs, or the argument as it stands; `arguments`: more of the command line; `clock_off_s`: its time of day is wrong by
        so much."""
        seeds = seeds if isinstance(seeds, str) else ",".join(seeds)
        merged = {**self.settings, **settings}
        words = ["crawl", spider, *(["-a", f"seeds={seeds}"] if seeds else []), "-o", str(self.items_file), *arguments]
        words += [word for name, value in merged.items() if value is not None for word in ("-s", f"{name}={value}")]
        self.folder.mkdir(parents=True, exist_ok=True)
        run = scrapy(*words, log=self.folder / f"run{len(self.runs)}.log", cwd=cwd, env=_clock(clock_off_s))
        self.runs.append(run)
        return run

    def items(self) -> list[dict[str, Any]]:
        return self.readable_items()[0]

    def readable_items(self) -> tuple[list[dict[str, Any]], int]:
        """Items, and the number of lines that are none."""
        found, broken = [], 0
        for line in self.items_file.read_bytes().splitlines() if self.items_file.exists() else ():
            try:
                found.append(json.loads(line))
            except ValueError:
                broken += bool(line.strip())
        return found, broken

    @property
    def warc_folder(self) -> Path:
        return self.data_dir / "web" / "warc"

    def record_types(self) -> dict[str, int]:
        """Records of each WARC type."""
        counts: dict[str, int] = {}
        for file in sorted(self.warc_folder.glob("*.warc.gz*")):
            with file.open("rb") as stream:
                for record in ArchiveIterator(stream):
                    counts[record.rec_type] = counts.get(record.rec_type, 0) + 1
        return counts

    def stored(self) -> list[Stored]:
        """Every response of the WARC folder, files that are still open included; of revisits with the body that they refer to."""
        found = []
        bodies: dict[str, bytes] = {}
        for file in sorted(self.warc_folder.glob("*.warc.gz*")):
            with file.open("rb") as stream:
                records = ArchiveIterator(stream)
                for record in records:
                    if record.rec_type not in ("response", "revisit"):
                        continue
                    url, status = record.rec_headers.get_header("WARC-Target-URI"), int(record.http_headers.get_statuscode())
                    digest = record.rec_headers.get_header("WARC-Payload-Digest")
                    if record.rec_type == "response":
                        bodies[digest] = record.content_stream().read()
                    name = file.name.removesuffix(".open")
                    found.append((url, status, name, records.get_record_offset(), records.get_record_length(), digest))
        return [Stored(*place, bodies.get(digest, b"")) for *place, digest in found]

    def pages(self) -> list[str]:
        """The URL of every page in the WARC folder, as often as it is there."""
        return [stored.url for stored in self.stored() if stored.is_page]

    def read_back(self, item: Mapping[str, Any]) -> Stored:
        """The response that an item points to, read from those bytes alone, but for the body of a revisit."""
        with (self.warc_folder / item["warc_file"]).open("rb") as stream:
            stream.seek(item["warc_offset"])
            data = stream.read(item["warc_length"])
        part = self.folder / "part.warc.gz"
        part.write_bytes(data)
        with part.open("rb") as stream:
            records = ArchiveIterator(stream)
            record = next(records)
            url, status = record.rec_headers.get_header("WARC-Target-URI"), int(record.http_headers.get_statuscode())
            place = item["warc_file"], item["warc_offset"], item["warc_length"]
            body = record.content_stream().read()
            if record.rec_type == "revisit":
                body = next(stored.body for stored in self.stored() if (stored.file, stored.offset, stored.length) == place)
            else:
                assert record.rec_type == "response"
            assert next(records, None) is None, "more than the record"
            return Stored(url, status, *place, body)

    def server_answers(self) -> bool:
        with redis.Redis.from_url(PrivateServer(self.data_dir).url) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def look(self, work: Callable[[Frontier], Any]) -> Any:
        """What a coroutine function of the frontier returns; starts the private server if it does not run."""
        server = None
        url = str(self.settings.get("REDIS_URL") or "")
        if not url:
            server = PrivateServer(self.data_dir)
            server.start()
            url = server.url

        async def run() -> Any:
            servers = await Servers.connect(url, json.loads(str(self.settings.get("REDIS_PARAMS", "{}"))))
            try:
                return await work(Frontier(servers.redis, "web", int(str(self.settings["CRAWLWEB_PARTITIONS"])), "looker"))
            finally:
                await servers.close()

        try:
            return asyncio.run(run())
        finally:
            if server:
                server.stop()

    def audit(self) -> dict[str, Any]:
        found: dict[str, Any] = self.look(lambda frontier: frontier.audit())
        return found

    def dead_letters(self) -> list[tuple[str, str, Entry | None]]:
        """(host, reason, entry)."""
        found: list[tuple[str, str, Entry | None]] = self.look(lambda frontier: frontier.dead_letters())
        return found


def _clock(off_s: int) -> dict[str, str]:
    """The environment of a process whose time of day is off."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent / "clock"), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "WALL_CLOCK_OFF_S": str(off_s)} if off_s else {}


def at_once(function: Callable[[Path], Any]) -> Callable[..., None]:
    """Makes a test of a function that takes a folder. Its crawls mostly wait, so those of a session run at the same time:
    conftest.py starts them, the test waits for its own and shows what it raised."""

    def test(background: Callable[[Callable[[Path], Any]], Any]) -> None:
        background(function)

    test.__name__, test.__doc__, test.__module__ = function.__name__, function.__doc__, function.__module__
    marked: Callable[..., None] = pytest.mark.background.with_args(function)(test)
    return marked
