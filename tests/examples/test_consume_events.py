"""The example consumer: all events, each once in effect, also those that a dead member of its group had."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from crawlweb.frontier.events import Events
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.rows import PageEvent
from crawlweb.policy.canonical import url_key

ROOT = Path(__file__).resolve().parents[2]
STREAM = "{web}:events"


def page(n: int) -> PageEvent:
    url = f"https://example.com/{n}"
    return PageEvent(url, url_key(url), 200, 1_800_000_000 + n)


def publish(redis_url: str, *events: PageEvent) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis.from_url(redis_url) as client:
            await Events(Frontier(client, "web", 4, "w1"), 1000).publish(events)

    asyncio.run(work())


def consumed(redis_url: str, output: Path, until: Callable[[], bool], *options: str) -> list[dict[str, Any]]:
    """Events that the example prints until then; it is asked to end, and ends."""
    command = [sys.executable, "examples/consume_events.py", redis_url, "web", *options]
    with output.open("wb") as file, subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT) as process:
        try:
            deadline = time.monotonic() + 30
            while not until():
                assert process.poll() is None, output.read_text()
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, output.read_text()
        finally:
            process.kill()
    return [json.loads(line) for line in output.read_text().splitlines()]


def test_events_come_once_and_in_order_and_are_acknowledged(redis_url: str, tmp_path: Path) -> None:
    events = [page(n) for n in range(250)]
    publish(redis_url, *events)
    publish(redis_url, *events[100:150])  # again, as after a lost answer
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:

        def all_acknowledged() -> bool:
            groups = client.xinfo_groups(STREAM)
            return bool(groups) and groups[0]["pending"] == 0 and groups[0]["last-delivered-id"] == client.xrevrange(STREAM, count=1)[0][0]

        found = consumed(redis_url, tmp_path / "out", all_acknowledged)
        assert [event["id"] for event in found] == [event.id for event in events]
        publish(redis_url, page(1000))
        assert [event["url"] for event in consumed(redis_url, tmp_path / "out", all_acknowledged)] == [page(1000).url]


def test_what_a_dead_member_of_the_group_had_is_taken_over(redis_url: str, tmp_path: Path) -> None:
    publish(redis_url, page(1), page(2))
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        client.xgroup_create(STREAM, "index", id="0")
        client.xreadgroup("index", "dead", {STREAM: ">"})
        found = consumed(
            redis_url,
            tmp_path / "out",
            lambda: client.xpending(STREAM, "index")["pending"] == 0,
            *("--group", "index", "--consumer", "alive", "--idle-ms", "0"),
        )
    assert [event["id"] for event in found] == [page(1).id, page(2).id]
