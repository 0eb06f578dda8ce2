"""What the processes of a benchmark cost, and the machine they run on."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
REDIS = ("redis-server", "valkey-server")


class Processes:
    """A crawler's processes: the one started, its descendants, `servers`, and Redis servers that work in its folder."""

    def __init__(self, pid: int, folder: Path, servers: frozenset[int] = frozenset()) -> None:
        self._pid, self._folder, self._servers = pid, str(folder), servers

    def find(self) -> tuple[set[int], set[int]]:
        """Workers and Redis servers alive now."""
        parents: dict[int, int] = {}
        redis: set[int] = set(self._servers)
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                name, fields = _stat(int(entry.name))
                parents[int(entry.name)] = int(fields[1])
                if name in REDIS and self._folder in (entry / "cmdline").read_text() + os.readlink(entry / "cwd"):
                    redis.add(int(entry.name))
        family = {self._pid} & parents.keys()
        while grown := {p for p, parent in parents.items() if parent in family} - family:
            family |= grown
        return family - redis, redis & parents.keys()

    def kill(self) -> None:
        for pid in set().union(*self.find()) - self._servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> tuple[str, list[str]]:
    """Name, and the fields from `state` on (proc(5))."""
    before, _, after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return before.partition("(")[2], after.split()


def cpu_s(pids: set[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += sum(map(int, _stat(pid)[1][11:13]))
    return total / TICKS_PER_S


def rss_mb(pids: set[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(_stat(pid)[1][21])
    return total * os.sysconf("SC_PAGE_SIZE") / 1e6


def move(pids: set[int], cores: set[int]) -> None:
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)


def machine(*peers: str) -> dict[str, str]:
    """With the versions of `peers`, packages that may be missing."""
    model = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), "?: unknown")
    packages = ("scrapy", "twisted", "lxml", "redis", "uvloop", *peers)
    return {
        "cpu": f"{model.partition(':')[2].strip()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **{package: _version(package) for package in packages},
        "commit": _output("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "redis-server": _output("redis-server", "--version"),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _output(*command: str) -> str:
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return "none"
