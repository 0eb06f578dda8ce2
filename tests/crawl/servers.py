"""Redis servers for a crawl under blows, which come back without their last second if asked: one, or a cluster."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.cluster import FAST_AOF, Cluster, Node

SAMPLE_S = 0.05
SLOTS = 16_384
BUS = 10_000  # a cluster's nodes talk on a port so much higher
AOF = (*FAST_AOF, "--aof-load-truncated", "yes", "--auto-aof-rewrite-percentage", "0")
CLUSTER = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no")


class Loser(Node):
    """A node that remembers which size its append-only file had, so that it can come back without its last second, as after a crash of its
    machine."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._sizes: deque[tuple[float, Path, int]] = deque(maxlen=round(10 / SAMPLE_S))
        self._closed = threading.Event()
        super().__init__(folder, _free_port(), *AOF, *options)
        self.start()
        threading.Thread(target=self._watch, daemon=True, name=f"sizes of {folder}").start()

    def end(self) -> None:
        """As an operator does: nothing is lost."""
        assert self.process
        self.process.terminate()
        self.process.wait()

    def lose(self, lost_s: float = 1.0) -> float:
        """`kill -9`, and the file is cut to what it was so long before. How many seconds before the kill that was."""
        killed_s = time.monotonic()
        self.kill()
        file = self._file()
        older = [(at_s, size) for at_s, of, size in list(self._sizes) if of == file and killed_s - at_s >= lost_s]
        at_s, size = older[-1] if older else (killed_s, file.stat().st_size)
        os.truncate(file, size)
        self._sizes.clear()
        return killed_s - at_s

    def close(self) -> None:
        self._closed.set()
        self.kill()

    def _file(self) -> Path:
        """What is appended to: one of several files from Redis 7 on."""
        parts = list(self.folder.glob("appendonlydir/*.incr.aof"))
        return max(parts, key=lambda part: int(part.name.split(".")[-3])) if parts else self.folder / "appendonly.aof"

    def _watch(self) -> None:
        while not self._closed.wait(SAMPLE_S):
            file, at_s = self._file(), time.monotonic()
            if file.exists():
                self._sizes.append((at_s, file, file.stat().st_size))


@contextmanager
def one_server(folder: Path) -> Iterator[list[Loser]]:
    with _started(folder, 1) as nodes:
        yield nodes


@contextmanager
def shards(folder: Path, shares: Sequence[float]) -> Iterator[list[Loser]]:
    """A cluster of masters with these shares of the slots; with less than three, none could do without another."""
    cuts = [round(SLOTS * sum(shares[:i]) / sum(shares)) for i in range(len(shares) + 1)]
    with _started(folder, len(shares), *CLUSTER) as nodes:
        for i, node in enumerate(nodes):
            node.call("CLUSTER ADDSLOTS", *range(cuts[i], cuts[i + 1]))
            node.call("CLUSTER SET-CONFIG-EPOCH", i + 1)
            for other in nodes[:i]:
                node.call("CLUSTER MEET", "127.0.0.1", other.port)
        for node in nodes:
            node.wait_until(lambda client: int(client.execute_command("CLUSTER INFO")["cluster_known_nodes"]) == len(nodes))
        Cluster(list(nodes)).wait_until_well()
        yield nodes


@contextmanager
def _started(folder: Path, count: int, *options: str) -> Iterator[list[Loser]]:
    with ExitStack() as stack:
        nodes = []
        for number in range(count):
            nodes.append(Loser(folder / f"redis{number}", *options))
            stack.callback(nodes[-1].close)
        yield nodes


def _free_port() -> int:
    """Below the ports that the system gives to connections: nothing takes it, or the bus port, while the server is away."""
    while True:
        port = random.randrange(10_000, 20_000)
        try:
            for number in (port, port + BUS):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
            return port
        except OSError:
            continue
