"""Redis servers that write what they know to disk, are killed and come back: one, or a cluster."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from crawlweb.frontier.server import find_binary

START_S = 30.0
SAMPLE_S = 0.05
SLOTS = 16_384
BUS = 10_000  # a cluster's nodes talk on a port so much higher


class Node:
    """A server in a folder of its own, on a Unix socket or, if `port`, on 127.0.0.1. The size that its append-only file had is remembered,
    so that it can come back without its last second, as after a crash of its machine."""

    def __init__(self, folder: Path, port: int = 0, *options: str) -> None:
        self.folder, self.port = folder, port
        self.url = f"redis://127.0.0.1:{port}" if port else f"unix://{folder}/s"
        self._options = options
        self._sizes: deque[tuple[float, Path, int]] = deque(maxlen=round(10 / SAMPLE_S))
        self._watching = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.start()
        threading.Thread(target=self._watch, daemon=True, name=f"sizes of {folder}").start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it has loaded its data."""
        where = {"port": str(self.port), "bind": "127.0.0.1"} if self.port else {"port": "0", "unixsocket": f"{self.folder}/s"}
        options = {"dir": str(self.folder), "save": "", "appendonly": "yes", "appendfsync": "everysec", "aof-load-truncated": "yes"}
        options |= {"auto-aof-rewrite-percentage": "0", "logfile": f"{self.folder}/log", **where}
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([find_binary(), *words, *self._options], stdin=subprocess.DEVNULL, cwd=self.folder)
        deadline_s = time.monotonic() + START_S
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError:
                    if self._process.poll() is not None or time.monotonic() > deadline_s:
                        log = self.folder / "log"
                        raise RuntimeError(
                            f"Redis did not start: {log.read_text()[-500:] if log.exists() else self._process.args}"
                        ) from None
                    time.sleep(0.01)

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, socket_timeout=5)

    def stop(self) -> None:
        """As an operator does: nothing is lost."""
        self._end(signal.SIGTERM)

    def kill(self, lose_s: float | None = None) -> float:
        """`kill -9`. `lose_s`: its file is cut to what it was so long before. How many seconds before the kill that was."""
        killed_s = time.monotonic()
        self._end(signal.SIGKILL)
        if lose_s is None:
            return 0.0
        file = self._file()
        older = [(at_s, size) for at_s, of, size in list(self._sizes) if of == file and killed_s - at_s >= lose_s]
        at_s, size = older[-1] if older else (killed_s, file.stat().st_size)
        os.truncate(file, size)
        self._sizes.clear()
        return killed_s - at_s

    def close(self) -> None:
        self._watching.set()
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait()

    def _file(self) -> Path:
        """What is appended to: one of several files from Redis 7 on."""
        parts = list(self.folder.glob("appendonlydir/*.incr.aof"))
        return max(parts, key=lambda part: int(part.name.split(".")[-3])) if parts else self.folder / "appendonly.aof"

    def _watch(self) -> None:
        while not self._watching.wait(SAMPLE_S):
            file = self._file()
            at_s = time.monotonic()
            if file.exists():
                self._sizes.append((at_s, file, file.stat().st_size))


@contextmanager
def one_server(folder: Path) -> Iterator[list[Node]]:
    node = Node(folder / "redis")
    try:
        yield [node]
    finally:
        node.close()


@contextmanager
def a_cluster(folder: Path, shares: Sequence[float], node_timeout_s: float = 1.0) -> Iterator[list[Node]]:
    """Masters with these shares of the slots, each at least one; at least three, or none could do without another."""
    cuts = [round(SLOTS * sum(shares[:i]) / sum(shares)) for i in range(len(shares) + 1)]
    timeout = ("--cluster-node-timeout", str(round(node_timeout_s * 1000)))
    options = ("--cluster-enabled", "yes", *timeout, "--cluster-require-full-coverage", "no")
    with ExitStack() as stack:
        nodes = []
        for i in range(len(shares)):
            nodes.append(Node(folder / f"node{i}", _free_port(), *options))
            stack.callback(nodes[-1].close)
        for i, node in enumerate(nodes):
            with node.client() as client:
                client.execute_command("CLUSTER ADDSLOTS", *range(cuts[i], cuts[i + 1]))
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", i + 1)
                for other in nodes[:i]:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", other.port)
        wait_for_cluster(nodes)
        yield nodes


def wait_for_cluster(nodes: Sequence[Node]) -> None:
    """Until every node knows all others and holds the cluster to be well."""
    deadline_s = time.monotonic() + START_S
    for node in nodes:
        with node.client() as client:
            while True:
                found = client.execute_command("CLUSTER INFO")
                well = found["cluster_state"] == "ok" and int(found["cluster_slots_ok"]) == SLOTS
                if well and int(found["cluster_known_nodes"]) == len(nodes):
                    break
                if time.monotonic() > deadline_s:
                    raise RuntimeError(f"no cluster after {START_S:.0f} s: {found}")
                time.sleep(0.02)


def _free_port() -> int:
    """Below the ports that the system gives out by itself, so that neither it nor its bus port is taken meanwhile."""
    while True:
        port = random.randrange(10_000, 20_000)
        try:
            for number in (port, port + BUS):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
            return port
        except OSError:
            continue
