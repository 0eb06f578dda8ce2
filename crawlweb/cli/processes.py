"""Worker processes of this machine: started, started again when they die, stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process, create_subprocess_exec
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import without_credentials

PAUSE_S, PAUSE_MOST_S = 1.0, 60.0  # before a worker that died is started again; doubled each time
SETTLED_S = 60.0  # a worker that lives so long has a start behind it that worked
SAME_ERRORS = 3  # so many in a row, while no worker is settled, are the error of all
_LAST_BYTES = 8192
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d ")


@dataclass
class Slot:
    """One worker at a time. Its output is appended to `log`."""

    number: int
    command: Sequence[str]
    log: Path
    process: Process | None = None
    began: float = 0.0
    has_ended: bool = False  # as it should

    @property
    def is_settled(self) -> bool:
        return self.process is not None and time.monotonic() - self.began >= SETTLED_S


class Processes:
    """`tell`: one line for the operator. `error`: the line that stopped all, if one did."""

    def __init__(self, commands: Sequence[Sequence[str]], folder: Path, tell: Callable[[str], None]) -> None:
        self.slots = [Slot(n, command, folder / f"worker-{n}.log") for n, command in enumerate(commands, 1)]
        self.restarts = 0
        self.error = ""
        self._tell = tell
        self._stopped = asyncio.Event()
        self._same = ("", 0)  # line that the last workers ended with, how many
        self._has_failed = False

    @property
    def trouble(self) -> str:
        """What keeps workers from starting, if anything does."""
        return self._same[0]

    @property
    def alive(self) -> int:
        return sum(slot.process is not None for slot in self.slots)

    async def run(self) -> bool:
        """Until all have ended; true if as they should."""
        await asyncio.gather(*map(self._keep, self.slots))
        return not (self.error or self._has_failed)

    def stop(self) -> None:
        """Passes a signal on to all, each time; none is started again. SIGTERM, which Scrapy takes for SIGINT: Python may lose a SIGINT, or
        fail in many ways, before Scrapy listens, and a SIGTERM just ends it."""
        self._stopped.set()
        for slot in self.slots:
            _terminate(slot)

    async def _keep(self, slot: Slot) -> None:
        pause_s = PAUSE_S
        while not self._stopped.is_set():
            how, line, was_settled = await self._run_once(slot)
            if not how:
                slot.has_ended = True
                return
            if self._stopped.is_set():
                if how != signal.SIGTERM.name:  # ours, before it could listen
                    self._has_failed = True
                    self._tell(f"worker {slot.number} ended with {how}: {line or slot.log}")
                return
            if was_settled:
                pause_s = PAUSE_S
            if not self._is_same_error(line, was_settled):
                self._tell(f"worker {slot.number} died ({how}), it starts again in {pause_s:.0f} s: {line or slot.log}")
            elif self._same[1] >= SAME_ERRORS:
                self.error = line
                self.stop()
                return
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), pause_s)
            pause_s = min(2 * pause_s, PAUSE_MOST_S)
            self.restarts += 1

    async def _run_once(self, slot: Slot) -> tuple[str, str, bool]:
        """How it ended ('': with 0), the line it failed with, was it settled?"""
        try:
            with slot.log.open("ab") as output:
                before_bytes = output.seek(0, os.SEEK_END)
                # A session of its own: a Ctrl-C at the terminal reaches a worker once, through us.
                slot.process = await create_subprocess_exec(
                    *slot.command, stdin=DEVNULL, stdout=output, stderr=STDOUT, start_new_session=True
                )
            slot.began = time.monotonic()
            if self._stopped.is_set():  # meanwhile
                _terminate(slot)
            status = await slot.process.wait()
            was_settled, slot.process = slot.is_settled, None
            return _how(status), _last_line(slot.log, before_bytes) if status > 0 else "", was_settled
        except OSError as e:
            return "not started", f"{e.filename or slot.command[0]}: {e.strerror or e}", False

    def _is_same_error(self, line: str, was_settled: bool) -> bool:
        """May it be one that starting again does not help against?"""
        if not line or was_settled or any(slot.is_settled for slot in self.slots):
            self._same = ("", 0)
            return False
        self._same = (line, self._same[1] + 1 if self._same[0] == line else 1)
        return True


def _terminate(slot: Slot) -> None:
    if slot.process is not None:
        with contextlib.suppress(ProcessLookupError):
            slot.process.terminate()


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}" if status else ""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _last_line(log: Path, start_bytes: int) -> str:
    """What a process that failed said last, '' if that is a line of its log: our own word (`crawlweb: …`), or the end of a traceback."""
    with log.open("rb") as stream:
        size_bytes = stream.seek(0, os.SEEK_END)
        stream.seek(max(start_bytes, size_bytes - _LAST_BYTES))
        lines = [line.strip() for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("crawlweb: ")]
    last = (ours or lines or [""])[-1]
    return "" if _LOG_LINE.match(last) else without_credentials(last)
