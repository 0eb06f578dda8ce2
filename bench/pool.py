"""What it costs to analyse all pages in a process of their own, instead of on the event loop where small ones are.

    PYTHONPATH=. python bench/pool.py [FOLDER] [--pages N] [--rounds N]

FOLDER holds .html files (searched recursively); without it, pages of 31 kB with 100 links are made up. CPU ms a page, of the worker (the
loop and the threads that talk to the process) and of the process; medians of alternating rounds. The worker's part is what the loop saves
when a core is free; the sum is what the page costs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from page import made_up

from crawlweb.analysis import Recipe, Task
from crawlweb.content.page import Wants
from crawlweb.parsers import INLINE_BYTES, Parsers
from crawlweb.policy.canonical import Canonicalizer

AT_ONCE = 32


def children_s() -> float:
    """CPU of this process' children that live."""
    pids = [pid for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()]
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


async def measure(pages: list[Task], analyse: Callable[[Task], Awaitable[object]]) -> tuple[float, float]:
    """CPU ms a page here, and in the process."""
    here_s, there_s = time.process_time(), children_s()
    for first in range(0, len(pages), AT_ONCE):
        await asyncio.gather(*(analyse(task) for task in pages[first : first + AT_ONCE]))
    return (time.process_time() - here_s) * 1000 / len(pages), (children_s() - there_s) * 1000 / len(pages)


async def main(pages: list[Task], rounds: int) -> None:
    parsers = Parsers(Recipe(Wants()), Canonicalizer())
    ways: dict[str, Callable[[Task], Awaitable[object]]] = {
        "on the loop": parsers.analyse,
        "in a process": lambda task: parsers.analyse(task, suspect=True),
    }
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    await parsers.analyse(pages[0], suspect=True)
    for _ in range(rounds):
        for name, analyse in ways.items():
            measured[name].append(await measure(pages, analyse))
    await parsers.close()
    print(f"{len(pages)} pages, mean {sum(len(task.body) for task in pages) / len(pages) / 1000:.0f} kB")
    for name, values in measured.items():
        here, there = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{name:<13} worker {here:.2f} ms, process {there:.2f} ms, together {here + there:.2f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    files = sorted(options.folder.rglob("*.html"))[: options.pages] if options.folder else []
    bodies = [file.read_bytes() for file in files] or made_up(options.pages)
    tasks = [Task(f"http://www.example.org/page/{number}", body, "html") for number, body in enumerate(bodies)]
    asyncio.run(main([task for task in tasks if len(task.body) <= INLINE_BYTES], options.rounds))
