"""Pages analysed on the loop and in processes of their own, and what a page that kills its parser does to others."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from crawlweb import parsers as parsers_module
from crawlweb.analysis import Analysis, Analyst, Recipe, Task
from crawlweb.content.page import Wants
from crawlweb.errors import FetchError
from crawlweb.parsers import INLINE_BYTES, Parsers
from crawlweb.policy.canonical import Canonicalizer

T = TypeVar("T")
HEAD = b"<html lang=en><title>Otters</title><link rel=canonical href=/otters><h1>Otters</h1><a href=/food rel=nofollow>food</a>"
SENTENCE = b'<p>The otter number %d swims in river number %d and eats fish. <a href="/otter/%d">More</a></p>'


def page(paragraphs: int) -> bytes:
    return HEAD + b"".join(SENTENCE % (i, i * 7, i) for i in range(paragraphs))


def task(body: bytes, name: str = "otters") -> Task:
    return Task(f"https://site.test/{name}", body, "html", "text/html; charset=utf-8", (), ("noindex",))


def run(work: Callable[[Parsers], Awaitable[T]], processes: int = 1) -> T:
    async def go() -> T:
        parsers = Parsers(Recipe(Wants()), Canonicalizer(), processes)
        try:
            return await work(parsers)
        finally:
            await parsers.close()

    return asyncio.run(go())


def children() -> list[int]:
    """Processes of ours that analyse pages."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            command = (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if lines["PPid"] == str(os.getpid()) and b"crawlweb.parsers" in command:
            found.append(int(status.parent.name))
    return found


async def until(condition: Callable[[], T]) -> T:
    deadline = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    return value


def test_a_page_gives_the_same_in_a_process_of_its_own() -> None:
    async def both(parsers: Parsers) -> tuple[Analysis, Analysis]:
        return await parsers.analyse(task(page(50))), await parsers.analyse(task(page(50)), suspect=True)

    here, there = run(both)
    assert here == there
    assert len(here.follow) == 50
    assert [target.url for target in here.others] == ["https://site.test/food"]
    assert here.said.noindex
    assert here.fingerprint.bands


def test_a_small_page_needs_no_process() -> None:
    async def small(parsers: Parsers) -> list[int]:
        await parsers.analyse(task(page(50)))
        return children()

    assert run(small) == []


def test_the_loop_goes_on_while_a_large_page_is_analysed() -> None:
    body = page(5_000_000 // 82)
    assert len(body) > 4_000_000

    async def work(parsers: Parsers) -> tuple[int, float]:
        await parsers.analyse(task(page(50)), suspect=True)  # the process is there
        gc.collect()
        gc.freeze()  # as the scheduler does
        analysis = asyncio.ensure_future(parsers.analyse(task(body)))
        longest_s = 0.0
        while not analysis.done():
            begun = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - begun)
        return len(analysis.result().follow), longest_s

    try:
        links, longest_s = run(work)
    finally:
        gc.unfreeze()
    assert links > 50_000
    assert longest_s < 0.05  # CPU of the loop's thread in one go


def test_a_worker_with_cores_to_spare_analyses_every_page_elsewhere() -> None:
    async def main() -> tuple[Analysis, Analysis]:
        parsers = Parsers(Recipe(Wants()), Canonicalizer(), inline_bytes=0)
        try:
            there = await parsers.analyse(task(page(3)))
            assert len(children()) == 1
        finally:
            await parsers.close()
        here = Parsers(Recipe(Wants()), Canonicalizer())
        try:
            return there, await here.analyse(task(page(3)))
        finally:
            await here.close()

    there, here = asyncio.run(main())
    assert there == here


def test_a_page_whose_process_dies_is_told_apart_from_the_others() -> None:
    large = page(INLINE_BYTES // 40)

    async def work(parsers: Parsers) -> list[Analysis | BaseException]:
        await parsers.analyse(task(page(1)), suspect=True)
        (child,) = children()
        os.kill(child, signal.SIGSTOP)
        waiting = [asyncio.ensure_future(parsers.analyse(task(large, f"{n}"))) for n in range(3)]
        await asyncio.sleep(0.3)  # the first is in the process
        os.kill(child, signal.SIGKILL)
        return await asyncio.gather(*waiting, return_exceptions=True)

    results = run(work)
    died = [result for result in results if isinstance(result, FetchError)]
    assert [error.kind for error in died] == ["parser_died"]
    assert sum(isinstance(result, Analysis) for result in results) == 2


def test_a_page_that_takes_for_ever_ends_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(parsers: Parsers) -> Analysis:
        await parsers.analyse(task(page(1)), suspect=True)
        (child,) = children()
        monkeypatch.setattr(parsers_module, "PARSE_MOST_S", 0.5)
        os.kill(child, signal.SIGSTOP)
        with pytest.raises(FetchError, match="parser_died"):
            await parsers.analyse(task(page(1)), suspect=True)
        monkeypatch.setattr(parsers_module, "PARSE_MOST_S", 60.0)
        return await parsers.analyse(task(page(1)), suspect=True)

    assert run(work).page.title == "Otters"


def test_processes_end_with_their_worker() -> None:
    async def work(parsers: Parsers) -> list[int]:
        await parsers.analyse(task(page(1)), suspect=True)
        return children()

    assert len(run(work)) == 1
    assert children() == []


def test_plain_text_has_a_language_and_is_all_main_text_where_those_are_wanted() -> None:
    text = "Der alte Hafen liegt am Rand der Stadt, und die Fischer fahren jeden Morgen hinaus. " * 4
    german = Task("https://a.org/t", text.encode(), "text", "text/plain")
    page = Analyst(Recipe(Wants())).analyse(german).page
    assert (page.language, page.main_text) == ("de", page.text)
    page = Analyst(Recipe(Wants(main_text=False, language=False))).analyse(german).page
    assert (page.language, page.main_text) == ("", "")
    assert page.text


WORKER = """
import asyncio
from crawlweb.analysis import Recipe, Task
from crawlweb.content.page import Wants
from crawlweb.parsers import Parsers
from crawlweb.policy.canonical import Canonicalizer

parsers = Parsers(Recipe(Wants()), Canonicalizer())
asyncio.run(parsers.analyse(Task("https://a.org/", b"<p>text", "html"), suspect=True))
print(parsers._idle.get()._process.pid, flush=True)
input()
"""


def test_a_process_ends_when_its_worker_is_killed() -> None:
    """A script without a guard of its main module, too: nothing runs it a second time."""
    worker = subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    child = int(worker.stdout.readline())
    os.kill(child, 0)
    worker.kill()
    worker.communicate()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and "zombie" not in Path(f"/proc/{child}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
