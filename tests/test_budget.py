"""The CPU of a page does not grow unseen: each stage is held against Scrapy's LinkExtractor on the same page, measured in between, and a
short crawl may not call more Python functions a request. Neither depends on how fast the machine is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

COMMANDS = {
    "stages": ["bench/stages.py", "--guard", "--pages", "30", "--rounds", "9"],
    "calls, pages of 2 links": ["bench/calls.py", "--crawlers", "crawlweb, same work", "--most", "900"],
    "calls, everything on": ["bench/calls.py", "--crawlers", "crawlweb", "--links", "100", "--page-bytes", "31000", "--most", "2050"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_stage_takes_more_than_its_share(command: list[str]) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
