"""Where pages are analysed: small ones on the event loop, large ones and suspects in processes of their own.

A suspect is a page whose lease ran out before, or whose parser died: it may be what killed its worker. Its process dies alone: then the
URL is tried once more, and is a dead letter after that (policy/retry.py, `parser_died`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import msgpack  # type: ignore[import-untyped]

from .analysis import Analysis, Analyst, Recipe, Task
from .errors import FetchError
from .policy.canonical import Canonicalizer
from .records import Anchor, Target

INLINE_BYTES = 256 * 1024  # a larger page takes the loop longer than 20 ms (bench/stages.py)
PARSE_MOST_S = 30.0
MEMORY_BYTES = 4 << 30  # address space of a process; the tree of a hostile page is 80 times its size
TASKS_MOST = 1000  # then a process is replaced: what a parser leaks ends with it
LINKS_AT_ONCE = 2000


class _Process:
    """Analyses one page at a time."""

    def __init__(self, recipe: Recipe) -> None:
        """Not by `multiprocessing`: a child of a fork would hold the lock of the WARC file (store/warc.py), and a spawned one runs the main
        module again, which may be a script that starts a crawl."""
        ours, theirs = socket.socketpair()
        code = f"from crawlweb.parsers import serve; serve({theirs.fileno()})"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=env)
        theirs.close()
        self._socket, self._pipe = ours, Connection(os.dup(ours.fileno()))
        self._pipe.send(recipe)
        self.tasks = 0

    def analyse(self, task: Task, most_s: float) -> tuple[Analysis, _Links] | FetchError:
        """FetchError: raised there. EOFError or OSError: it died, or said nothing for `most_s`."""
        self.tasks += 1
        wait = struct.pack("ll", int(most_s), int(most_s % 1 * 1e6))
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, wait)
        self._pipe.send(task)
        answer: tuple[Analysis, _Links] | FetchError = self._pipe.recv()
        return answer

    def end(self) -> int:
        """Its exit code."""
        self._process.kill()
        self._pipe.close()
        self._socket.close()
        return self._process.wait()


class Parsers:
    """Processes start when the first page needs one. `inline_bytes`: the largest page that is analysed on the loop."""

    def __init__(self, recipe: Recipe, canonicalizer: Canonicalizer, processes: int = 1, inline_bytes: int = INLINE_BYTES) -> None:
        self._recipe, self._canonicalizer, self._inline_bytes = recipe, canonicalizer, inline_bytes
        self._here = Analyst(recipe, canonicalizer)
        self._threads = ThreadPoolExecutor(processes, "crawlweb-parser")
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()

    async def analyse(self, task: Task, suspect: bool = False) -> Analysis:
        """FetchError `parser_died` where the page ended its process, by its death or by taking too long; `error` for what the analysis
        itself raised."""
        if len(task.body) <= self._inline_bytes and not suspect:
            try:
                return self._here.analyse(task)
            except Exception as e:
                raise _failure(task, e) from e
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._elsewhere, task)
        if isinstance(answer, FetchError):
            raise answer
        analysis, links = answer
        self._canonicalizer.invalid += analysis.invalid
        self._canonicalizer.repeated += analysis.repeated
        return await _whole(analysis, links)

    async def close(self) -> None:
        """What is being analysed is waited for."""
        await asyncio.to_thread(self._threads.shutdown)
        while not self._idle.empty():
            self._idle.get().end()

    def _elsewhere(self, task: Task) -> tuple[Analysis, _Links] | FetchError:
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = _Process(self._recipe)
        try:
            answer = process.analyse(task, PARSE_MOST_S)
        except (EOFError, OSError):
            return FetchError("parser_died", f"exit code {process.end()}")
        if process.tasks < TASKS_MOST:
            self._idle.put(process)
        else:
            process.end()
        return answer


@dataclass(frozen=True, slots=True)
class _Links:
    """What a page links to, in packed pieces: it may be a hundred thousand, and the loop takes a piece at a time."""

    anchors: list[bytes]  # of rows: href, tag, rels, text
    targets: list[bytes]  # of rows: href, URL, key, host
    follow: int  # so many of the targets; the rest is marked nofollow


async def _whole(analysis: Analysis, links: _Links) -> Analysis:
    anchors: dict[str, Anchor] = {}
    for piece in links.anchors:
        for href, tag, rels, text in _unpacked(piece):
            anchors[href] = Anchor(tag, rels, text)
        await asyncio.sleep(0)
    hrefs: list[str] = []
    targets: list[Target] = []
    for piece in links.targets:
        for href, url, key, host in _unpacked(piece):
            hrefs.append(href)
            targets.append(Target(url, key, host))
        await asyncio.sleep(0)
    page = replace(analysis.page, hrefs=list(anchors), anchors=anchors)
    follow, others = tuple(targets[: links.follow]), tuple(targets[links.follow :])
    return replace(analysis, page=page, hrefs=tuple(hrefs), follow=follow, others=others)


def _packed(rows: Sequence[tuple[object, ...]]) -> list[bytes]:
    some = (rows[first : first + LINKS_AT_ONCE] for first in range(0, len(rows), LINKS_AT_ONCE))
    return [msgpack.packb(piece, unicode_errors="surrogatepass") for piece in some]


def _unpacked(piece: bytes) -> Iterator[Any]:
    return iter(msgpack.unpackb(piece, use_list=False, unicode_errors="surrogatepass"))


def _failure(task: Task, e: Exception) -> FetchError:
    return FetchError("error", f"{task.url} could not be analysed: {e!r}")


# -- in the process ------------------------------------------------------------------------------------------------------


def serve(fd: int) -> None:
    """Analyses what comes through a socket, until the worker closes its end, or dies. First comes the recipe."""
    pipe = Connection(fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the keyboard: the worker ends it
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MEMORY_BYTES, most), most))
    with contextlib.suppress(EOFError, OSError):
        analyst = Analyst(pipe.recv())
        while True:
            task = pipe.recv()
            try:
                pipe.send(_without_links(analyst.analyse(task)))
            except Exception as e:
                pipe.send(_failure(task, e))


def _without_links(whole: Analysis) -> tuple[Analysis, _Links]:
    rows = [(href, anchor.tag, anchor.rels, anchor.text) for href, anchor in whole.page.anchors.items()]
    targets = zip(whole.hrefs, (*whole.follow, *whole.others), strict=True)
    links = _Links(_packed(rows), _packed([(href, t.url, t.key, t.host) for href, t in targets]), len(whole.follow))
    return replace(whole, page=replace(whole.page, hrefs=[], anchors={}), follow=(), others=(), hrefs=()), links
