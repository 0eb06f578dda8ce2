"""`crawlweb workers N`: real processes under one command, and what the crawl's sums say of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from crawlweb.frontier.server import PrivateServer
from crawlweb.stats import summed
from tests.crawl.crawler import Crawl, Run, at_once
from tests.web import Tree, Web

FEED = "pages-%(worker)s.jsonl"


def a_web(sites: int = 12, pages: int = 8) -> Web:
    return Web(seed=7, sites=[Tree(f"many{i}.org", pages=pages) for i in range(sites)])


def options(crawl: Crawl, **settings: object) -> list[str]:
    merged = {**crawl.settings, **settings}
    return [word for name, value in merged.items() for word in ("-s", f"{name}={value}")]


def start(crawl: Crawl, number: int, seeds: Sequence[str], *more: str, **settings: object) -> Run:
    """`crawlweb workers`; its output is the run's log."""
    crawl.folder.mkdir(parents=True, exist_ok=True)
    words = ["workers", str(number), "-a", f"seeds={','.join(seeds)}", "-o", str(crawl.folder / FEED), *more]
    run = Run([sys.executable, "-m", "crawlweb.cli", *words, *options(crawl, **settings)], crawl.folder / f"workers{len(crawl.runs)}.log")
    crawl.runs.append(run)
    return run


def workers_of(run: Run) -> list[int]:
    """Process ids, in the order of their start."""
    children = [int(pid) for pid in Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()]
    return [pid for pid in children if b"crawl" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]


def seeder_of(run: Run) -> int:
    (pid,) = (pid for pid in workers_of(run) if b"seeds=" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return pid


def log_of(crawl: Crawl, worker: int) -> Run:
    """Of a worker, as a run's."""
    run = Run.__new__(Run)
    run.log_file = crawl.data_dir / "web" / "logs" / f"worker-{worker}.log"
    return run


def has_begun(crawl: Crawl, worker: int) -> bool:
    """A worker that is interrupted before has nothing to sum up."""
    log = log_of(crawl, worker)
    return log.log_file.exists() and " partitions are this one's" in log.log


def items(crawl: Crawl) -> Counter[str]:
    files = crawl.folder.glob("pages-*.jsonl")
    return Counter(json.loads(line)["final_url"] for file in files for line in file.read_text().splitlines())


def stats(crawl: Crawl) -> dict[str, Any]:
    command = [sys.executable, "-m", "crawlweb.cli", "stats", "--json", *options(crawl)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found: dict[str, Any] = json.loads(told)
    return found


@at_once
def test_three_workers_share_a_crawl_and_its_sums_are_theirs(folder: Path) -> None:
    with a_web() as web, Crawl(folder, web.dns_server) as crawl:
        run = start(crawl, 3, web.seeds()).succeeds()
        assert set(items(crawl).values()) == {1}
        report = web.report(min_delay_s=0.05, tolerance_s=0.02)
        assert (report.found, report.refetched, report.violations) == (report.expected, 0, ())
        logs = [log_of(crawl, n) for n in (1, 2, 3)]
        theirs = Counter[str]()
        for log in logs:
            theirs.update(summed({name: int(n) for name, n in log.stats.items() if isinstance(n, float) and n.is_integer()}))
        found = stats(crawl)
        assert Counter(found["sums"]) == theirs
        assert found["sums"]["crawlweb/pages"] == report.found
        assert (found["pending"], found["hosts"]) == (0, 0)
        assert f"{report.found} pages" in run.log.splitlines()[-1]
        assert not crawl.server_answers()
        again = start(crawl, 2, web.seeds()).succeeds()
        assert "restart" not in again.log
        assert stats(crawl)["sums"]["crawlweb/pages"] == report.found


@at_once
def test_a_killed_worker_is_started_again_and_brings_the_rest_of_the_seeds(folder: Path) -> None:
    lease = {"DOWNLOAD_TIMEOUT": 2, "CRAWLWEB_LEASE_S": 6}
    with a_web() as web, Crawl(folder, web.dns_server, **lease) as crawl:
        run = start(crawl, 2, web.seeds(), CRAWLWEB_MIN_DELAY_S=0.4)
        pid = run.wait_until(lambda: web.wait_until_served(10, 0.01) and seeder_of(run))
        os.kill(pid, signal.SIGKILL)
        run.succeeds()
        assert re.search(r"worker 1 died \(SIGKILL\), it starts again in 1 s", run.log)
        report = web.report(min_delay_s=0.4, tolerance_s=0.02)
        assert (report.found, report.violations) == (report.expected, ())
        assert set(items(crawl)) == {site.url(page) for site in web.sites.values() for page in site.expected()}
        assert crawl.audit()["lost"] == 0


@at_once
def test_one_interrupt_stops_all_cleanly(folder: Path) -> None:
    with a_web(pages=60) as web, Crawl(folder, web.dns_server) as crawl:
        run = start(crawl, 3, web.seeds())
        run.wait_until(lambda: web.wait_until_served(30, 0.01))
        run.wait_until(lambda: all(has_begun(crawl, n) for n in (1, 2, 3)))
        workers = workers_of(run)
        run.interrupt()
        run.succeeds(60)
        assert len(workers) == 3
        assert [log_of(crawl, n).summary[0] for n in (1, 2, 3)] == ["shutdown"] * 3
        assert not crawl.server_answers()
        audit = crawl.audit()
        assert (audit["leased"], audit["lost"]) == (0, 0)
        assert audit["pending"] > 0


@at_once
def test_a_second_interrupt_ends_them_at_once(folder: Path) -> None:
    with a_web(pages=60) as web, Crawl(folder, web.dns_server) as crawl:
        run = start(crawl, 2, web.seeds())
        run.wait_until(lambda: web.wait_until_served(30, 0.01))
        run.interrupt()
        run.wait_until(lambda: "stopping" in run.log)
        run.interrupt()
        run.succeeds(60)
        assert crawl.audit()["lost"] == 0


@at_once
def test_a_private_redis_that_is_killed_is_started_again_by_a_worker(folder: Path) -> None:
    lease = {"DOWNLOAD_TIMEOUT": 2, "CRAWLWEB_LEASE_S": 6}
    with a_web() as web, Crawl(folder, web.dns_server, CRAWLWEB_MIN_DELAY_S=0.4, **lease) as crawl:
        run = start(crawl, 2, web.seeds())
        run.wait_until(lambda: web.wait_until_served(20, 0.01))
        with redis.Redis.from_url(PrivateServer(crawl.data_dir).url) as client:
            pid = int(client.info("server")["process_id"])
        os.kill(pid, signal.SIGKILL)
        run.succeeds()
        told = [log_of(crawl, n).log.count("the private Redis had died and was started again") for n in (1, 2)]
        assert sum(told) == 1
        report = web.report(min_delay_s=0.4, tolerance_s=0.02)
        assert report.found == report.expected
        assert set(items(crawl)) == {site.url(page) for site in web.sites.values() for page in site.expected()}
        audit = crawl.audit()
        assert (audit["pending"], audit["lost"]) == (0, 0)


@at_once
def test_what_no_worker_starts_with_is_one_line(folder: Path) -> None:
    with Crawl(folder, "127.0.0.1:1") as crawl:
        run = start(crawl, 3, ["http://a.org/"], CRAWLWEB_LEASE_S=3)
        assert run.wait(60) == 1
        log = [line for line in run.log.splitlines() if "workers" not in line]
        assert log == ["crawlweb: CRAWLWEB_LEASE_S=3: at least 3 times DOWNLOAD_TIMEOUT=10 expected"]
        assert not crawl.server_answers()
