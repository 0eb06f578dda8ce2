"""A Redis that can lose what it acknowledged last, as after a crash with `appendfsync everysec`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis


class Perishable:
    """`mark`: bytes of the append-only file now; a call that was answered is in it. Started again as of a mark, the server lacks what
    came after."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.folder, self.url = folder, f"unix://{folder / 'redis.sock'}"
        options = {"port": "0", "unixsocket": str(folder / "redis.sock"), "dir": str(folder), "save": "", "appendonly": "yes"}
        options |= {"appendfsync": "no", "auto-aof-rewrite-percentage": "0", "logfile": str(folder / "redis.log")}
        self._command = [binary, *(word for name, value in options.items() for word in (f"--{name}", value))]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        with redis.Redis.from_url(self.url) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError:
                    if self._process.poll() is not None or time.monotonic() > deadline:
                        raise AssertionError((self.folder / "redis.log").read_text()) from None
                    time.sleep(0.01)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _file(self) -> Path:
        return next(file for file in self.folder.rglob("*.aof") if ".base." not in file.name)

    def mark(self) -> int:
        return self._file().stat().st_size

    def crash(self, mark: int | None = None) -> None:
        """kill -9, and started again as of a mark."""
        self.kill()
        if mark is not None:
            os.truncate(self._file(), mark)
        self.start()


@contextmanager
def perishable(binary: str) -> Iterator[Perishable]:
    folder = Path(tempfile.mkdtemp(prefix="crawlweb-test-"))
    server = Perishable(binary, folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
