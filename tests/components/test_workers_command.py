"""Processes under `crawlweb workers`: which are started again, and what ends them all. Real ones, small."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

from crawlweb.cli import main, processes
from crawlweb.cli.processes import SAME_ERRORS, Processes
from crawlweb.cli.workers import _command

COUNT = "import sys, pathlib; p = pathlib.Path(sys.argv[1]); n = len(p.read_text()) if p.exists() else 0; p.write_text('x' * (n + 1)); "
WAITS = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PAUSE_S", 0.01)


class Run:
    """`codes`: a worker each. `told`: lines for the operator."""

    def __init__(self, folder: Path, *codes: str) -> None:
        self.folder, self.told = folder, list[str]()
        commands = [[sys.executable, "-c", code, str(folder / f"count-{n}")] for n, code in enumerate(codes, 1)]
        self.processes = Processes(commands, folder, self.told.append)

    def well(self) -> bool:
        return asyncio.run(asyncio.wait_for(self.processes.run(), 120))

    def starts(self, worker: int = 1) -> int:
        return len((self.folder / f"count-{worker}").read_text())


def test_a_worker_that_ends_well_is_not_started_again(tmp_path: Path) -> None:
    run = Run(tmp_path, COUNT, COUNT)
    assert run.well()
    assert (run.starts(1), run.starts(2), run.processes.restarts, run.told) == (1, 1, 0, [])


def test_one_that_dies_is_started_again_until_it_ends_well(tmp_path: Path) -> None:
    run = Run(tmp_path, f"{COUNT} import os; os.kill(os.getpid(), 9) if n < 4 else None")
    assert run.well()
    assert (run.starts(), run.processes.restarts) == (5, 4)
    assert all("worker 1 died (SIGKILL)" in line for line in run.told)


def test_errors_that_differ_are_no_reason_to_give_up(tmp_path: Path) -> None:
    run = Run(tmp_path, f"{COUNT} sys.exit(f'crawlweb: error {{n}}' if n < 2 * {SAME_ERRORS} else 0)")
    assert run.well()


def test_the_same_error_again_and_again_stops_all_with_its_line(tmp_path: Path) -> None:
    run = Run(tmp_path, f"{COUNT} print('more'); sys.exit('crawlweb: it cannot be')", WAITS)
    assert not run.well()
    assert (run.processes.error, run.starts(), run.told) == ("crawlweb: it cannot be", SAME_ERRORS, [])


def test_workers_that_fail_alike_count_together(tmp_path: Path) -> None:
    with mock.patch.object(processes, "PAUSE_S", 600):
        run = Run(tmp_path, *[f"{COUNT} raise ValueError('bad')"] * SAME_ERRORS)
        assert not run.well()
    assert run.processes.error == "ValueError: bad"


def test_while_others_are_settled_the_same_error_is_tried_again(tmp_path: Path) -> None:
    settled = f"{COUNT} import time; time.sleep(600)"
    run = Run(tmp_path, settled, f"{COUNT} sys.exit('crawlweb: away' if n < 6 else 0)")

    async def until_well() -> bool:
        running = asyncio.ensure_future(run.processes.run())
        while not run.processes.slots[1].has_ended:
            await asyncio.sleep(0.01)
        run.processes.stop()
        return await running

    with mock.patch.object(processes, "SETTLED_S", 0.0):
        assert asyncio.run(asyncio.wait_for(until_well(), 120))
    assert run.starts(2) == 7


def test_a_line_of_the_log_is_no_error_to_give_up_for(tmp_path: Path) -> None:
    run = Run(tmp_path, f"{COUNT} sys.exit('2026-12-01 08:00:00 [scrapy] INFO: closed' if n < 5 else 0)")
    assert run.well()


def test_a_program_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    found = Processes([["/no/such/program"]], tmp_path, lambda _: None)
    assert not asyncio.run(asyncio.wait_for(found.run(), 60))
    assert "/no/such/program: No such file" in found.error


def test_a_worker_that_is_stopped_before_it_can_listen_has_ended_well(tmp_path: Path) -> None:
    run = Run(
        tmp_path, WAITS, WAITS, f"import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); {COUNT} time.sleep(600)"
    )

    async def until_stopped() -> bool:
        running = asyncio.ensure_future(run.processes.run())
        while not (tmp_path / "count-3").exists():
            await asyncio.sleep(0.01)
        run.processes.stop()
        return await running

    assert asyncio.run(asyncio.wait_for(until_stopped(), 60))
    assert run.told == []


def test_each_attempt_appends_to_the_workers_log(tmp_path: Path) -> None:
    run = Run(tmp_path, f"{COUNT} print('attempt', n); sys.exit(3 if n < 2 else 0)")
    assert run.well()
    assert (tmp_path / "worker-1.log").read_text().splitlines() == ["attempt 0", "attempt 1", "attempt 2"]


def test_only_the_first_worker_gets_the_seeds_and_each_its_number() -> None:
    first, second = (
        _command(n, "web", [("seeds", "@s.txt"), ("scope", "host")], ["p-%(worker)s.jl"], [("LOG_FILE", "l%(worker)s")]) for n in (1, 2)
    )
    assert "seeds=@s.txt" in first
    assert [word for word in second[5:] if word[0] != "-"] == ["LOG_FILE=", "LOG_FILE=l2", "scope=host", "p-2.jl"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("2", "-o", "pages.jsonl"), "-o pages.jsonl: each worker needs a file of its own"),
        (("2", "-s", 'FEEDS={"pages.jsonl": {"format": "jsonlines"}}'), "FEEDS has pages.jsonl"),
        (("2", "-s", "CRAWLWEB_LEAS_S=3"), "the nearest is CRAWLWEB_LEASE_S"),
        (("2", "-s", "REDIS_URL=redis://127.0.0.1:1/0"), "REDIS_URL=redis://127.0.0.1:1/0"),
        (("2", "-s", "CRAWLWEB_DATA_DIR=/dev/null"), "CRAWLWEB_DATA_DIR=/dev/null"),
    ],
)
def test_what_cannot_be_started_is_one_line(words: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "settings.local")
    result = CliRunner().invoke(main, ["workers", "-s", f"CRAWLWEB_DATA_DIR={tmp_path}", *words])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert says in result.stderr
