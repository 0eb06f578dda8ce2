"""The web as a process of its own, and its handle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .report import Visit

ROOT = Path(__file__).resolve().parents[2]


class WebProcess:
    """`python -m tests.web` as a child: `sites` are texts for `kinds.parse`. It ends when its standard input does, so
    it outlives neither this object nor this process. `tls`, `keep_alive`: as of `Web`."""

    def __init__(self, *sites: str, seed: int = 1, cores: set[int] | None = None, tls: bool = False, keep_alive: bool = True) -> None:
        arguments = [part for site in sites for part in ("--site", site)]
        arguments += ["--tls"] * tls + ["--no-keep-alive"] * (not keep_alive)
        if cores:
            arguments += ["--cores", ",".join(map(str, sorted(cores)))]
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.web", "--seed", str(seed), *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._child.pid
        try:
            opened = self._answer()
        except RuntimeError:
            self.close()
            raise
        self.http_port: int = opened["http_port"]
        self.dns_server: str = opened["dns_server"]
        self._seeds: list[str] = opened["seeds"]

    def seeds(self) -> list[str]:
        return self._seeds

    def served(self) -> int:
        return int(self._ask("served"))

    def served_bytes(self) -> int:
        return int(self._ask("served-bytes"))

    def visits(self) -> list[Visit]:
        return [Visit(*row) for row in self._ask("log")]

    def report(self, *, min_delay_s: float = 0.0, ip_delay_s: float = 0.0) -> dict[str, Any]:
        """`Report` as JSON."""
        answer: dict[str, Any] = self._ask(f"report {min_delay_s} {ip_delay_s}")
        return answer

    def close(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def __enter__(self) -> WebProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, command: str) -> Any:
        assert self._child.stdin is not None
        self._child.stdin.write(command + "\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError("the web's process ended")
        return json.loads(line)
