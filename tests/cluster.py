"""Real Redis servers on loopback ports: a cluster of three, replicas, Sentinels, TLS. Each in a folder of its own, ended with its block."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.conftest import _default_binary, _no_server

START_S = 30.0
FAST_AOF = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "")


def tool(name: str) -> str:
    """A program that comes with Redis; skips the test if it is missing, fails it in CI."""
    found = shutil.which(name)
    if not found:
        _no_server(f"{name} is not on the PATH")
    return str(found)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Node:
    """A server that can be killed and started again with what it had on disk. `more`: keyword arguments of its client."""

    def __init__(self, folder: Path, port: int, *options: str, binary: str = "", ready: bool = True, **more: Any) -> None:
        self.folder, self.port, self._more = folder, port, more
        self.options = list(options)
        self._command = [binary or _default_binary()]
        self._folder_options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--logfile", str(folder / "redis.log")]
        folder.mkdir(parents=True, exist_ok=True)
        self.start(ready)

    def start(self, ready: bool = True) -> None:
        command = [*self._command, *self._folder_options, *self.options]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if ready:
            self.wait_until(lambda client: client.ping())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, **more: Any) -> redis.Redis:
        return redis.Redis(port=self.port, **{"socket_timeout": 10, **self._more, **more})

    def call(self, *command: Any) -> Any:
        with self.client() as client:
            return client.execute_command(*command)

    def wait_until(self, is_so: Callable[[redis.Redis], Any], timeout_s: float = START_S) -> Any:
        """What `is_so` returns once it is true; errors of Redis are taken for no."""
        deadline = time.monotonic() + timeout_s
        with self.client() as client:
            while True:
                with contextlib.suppress(redis.RedisError):
                    if answer := is_so(client):
                        return answer
                assert self.process.poll() is None, f"port {self.port}: ended with {self.process.returncode}\n{self.log}"
                assert time.monotonic() < deadline, f"port {self.port}: not so after {timeout_s} s\n{self.log}"
                time.sleep(0.02)

    @property
    def log(self) -> str:
        file = self.folder / "redis.log"
        return file.read_text(errors="replace")[-3000:] if file.exists() else ""

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="crawlweb-test-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


class Nodes:
    """Starts nodes on free ports; all are killed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[Node] = []

    def start(self, *options: str, port: int = 0, **more: Any) -> Node:
        port = port or free_ports(1)[0]
        node = Node(self.folder / f"{port}", port, *options, **more)
        self.all.append(node)
        return node


@contextmanager
def nodes() -> Iterator[Nodes]:
    with folder() as made:
        started = Nodes(made)
        try:
            yield started
        finally:
            for node in started.all:
                node.kill()


class Cluster:
    def __init__(self, members: list[Node]) -> None:
        self.members = members

    @property
    def url(self) -> str:
        return f"redis://{self.members[0].address}"

    def node_of(self, key: str) -> Node:
        slot = int(self.members[0].call("CLUSTER KEYSLOT", key))
        for first, last, (_, port, *_), *_ in self.members[0].call("CLUSTER SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.members if node.port == port)
        raise AssertionError(f"slot {slot} is nobody's")

    def wait_until_well(self) -> None:
        for node in self.members:
            node.wait_until(lambda client: client.execute_command("CLUSTER INFO").get("cluster_state") == "ok")

    def clear(self) -> None:
        for node in self.members:
            node.call("FLUSHALL")


@contextmanager
def a_cluster(*options: str, members: int = 3) -> Iterator[Cluster]:
    """Masters without replicas, which serve their slots whatever the others do."""
    cli = tool("redis-cli")
    with nodes() as started:
        ports = free_ports(2 * members)
        for port, bus in zip(ports[:members], ports[members:], strict=True):
            its = (
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                str(bus),
                "--cluster-node-timeout",
                "1500",
                "--cluster-require-full-coverage",
                "no",
            )
            started.start(*its, *FAST_AOF, *options, port=port)
        create = [cli, "--cluster", "create", *(node.address for node in started.all), "--cluster-yes"]
        done = subprocess.run(create, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        cluster = Cluster(started.all)
        cluster.wait_until_well()
        yield cluster


@pytest.fixture(scope="session")
def the_cluster() -> Iterator[Cluster]:
    with a_cluster() as cluster:
        yield cluster
