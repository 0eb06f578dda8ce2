"""CPU of each thing that is done with a page after its response is here, in microseconds: a budget, line by line.

    PYTHONPATH=. python bench/stages.py [FOLDER] [--pages N] [--rounds N]
    PYTHONPATH=. python bench/stages.py --guard --pages 60 --rounds 9

FOLDER holds .html files (searched recursively; ../shared/data/e_html_pages unpacked, for instance); without it, pages of 31 kB with 100
links are made up with a seed. Medians of alternating rounds; CPU time of the worker's process, for what Redis does also the server's
(`used_cpu`), through a private server. Look-ups, records and events go in batches of 32, as of a worker with 320 pages/s. A line in
brackets is part of the one above it, or is off unless a setting asks for it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from page import made_up
from redis.asyncio import Redis
from scrapy.http import HtmlResponse
from scrapy.linkextractors import LinkExtractor
from selectolax.lexbor import LexborHTMLParser

from crawlweb.analysis import Analysis, Analyst, Outlinks, Recipe, Task
from crawlweb.content.charset import encoding_of
from crawlweb.content.fingerprint import VOTES_LEAST, fingerprint
from crawlweb.content.language import detect
from crawlweb.content.main_text import main_text
from crawlweb.content.page import Wants, parse_page
from crawlweb.content.soft_404 import is_error
from crawlweb.content.taming import tamed
from crawlweb.frontier.events import Events
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.near import NearIndex
from crawlweb.frontier.pages import record_key
from crawlweb.frontier.rows import Lease, Link, Outcome, PageEvent
from crawlweb.policy.canonical import Canonicalizer, url_key
from crawlweb.records import About, Copy, Entry, Fetch, PageRecord, WarcRef
from crawlweb.scheduler import GC_THRESHOLDS
from crawlweb.store.warc import WarcWriter
from tests.conftest import _default_binary, serving

GUARDS = {
    "charset and tree": 0.065,
    "tree, links, title, visible text": 0.145,
    "main text": 0.185,
    "language": 0.07,
    "soft 404": 0.016,
    "canonical URLs and keys of links": 0.15,
    "hash of the body": 0.009,
    "fingerprints": 0.13,
    "(of these: hashes alone)": 0.065,
    "analysis, all of the above": 0.80,
    "(with texts of links)": 0.22,
    "(with images)": 0.15,
    "(with structured data)": 0.16,
    "WARC: response, request": 0.085,
    "WARC with the outlinks": 0.12,
    "near-duplicate look-up": 0.026,
    "near-duplicate look-up, Redis": 0.045,
    "event": 0.007,
    "event, Redis": 0.006,
    "record (complete with it, less complete)": 0.02,
    "record (complete with it, less complete), Redis": 0.02,
}
"""Most of what LinkExtractor takes: four tenths over what was measured; the last rows are differences, and small."""

BATCH = 32
NOTHING = Wants(main_text=False, language=False)
HOSTS = 64


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    worker_us: float
    redis_us: float | None = None


def stages_here(tasks: Sequence[Task]) -> dict[str, Callable[[], object]]:
    """What is done in the worker alone. Each does its part for all pages."""
    analyst = Analyst(Recipe(Wants()))
    analyses = [analyst.analyse(task) for task in tasks]
    texts = [analysis.page.main_text for analysis in analyses]
    pages = [analysis.page for analysis in analyses]
    canonicalizer = Canonicalizer()

    def tree(task: Task) -> LexborHTMLParser:
        encoding, mark = encoding_of(task.body, task.content_type)
        html = task.body[mark:]
        return LexborHTMLParser(tamed(html if encoding == "utf-8" else html.decode(encoding, "replace").encode("utf-8", "replace")))

    def parsed(wants: Wants) -> Callable[[], object]:
        return lambda: [parse_page(task.body, task.url, task.content_type, wants=wants) for task in tasks]

    trees = [tree(task) for task in tasks]
    return {
        "charset and tree": lambda: [tree(task) for task in tasks],
        "tree, links, title, visible text": parsed(NOTHING),
        "main text": lambda: [main_text(one) for one in trees],
        "language": lambda: [detect(text, page.language_declared) for text, page in zip(texts, pages, strict=True)],
        "soft 404": lambda: [is_error(page, task.url) for page, task in zip(pages, tasks, strict=True)],
        "canonical URLs and keys of links": lambda: [canonicalizer.links(page.hrefs, page.base_url, page.encoding) for page in pages],
        "hash of the body": lambda: [hashlib.sha256(task.body).hexdigest() for task in tasks],
        "fingerprints": lambda: [fingerprint(task.body, text) for task, text in zip(tasks, texts, strict=True)],
        "(of these: hashes alone)": lambda: [
            fingerprint(task.body, text, minhash=False, simhash=False) for task, text in zip(tasks, texts, strict=True)
        ],
        "analysis, all of the above": lambda: [analyst.analyse(task) for task in tasks],
        "(with texts of links)": parsed(replace(NOTHING, anchor_text=True)),
        "(with images)": parsed(replace(NOTHING, images=True)),
        "(with structured data)": parsed(replace(NOTHING, structured=True)),
    }


def fetch_of(task: Task) -> Fetch:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % len(task.body)
    request = b"GET / HTTP/1.1\r\nHost: site.test\r\nUser-Agent: bench\r\nAccept: text/html\r\n\r\n"
    return Fetch(task.url, "192.0.2.1", 0.0, 0.1, 0.1, 1_800_000_000.0, request, 200, head, task.body, task.body)


async def stored(tasks: Sequence[Task], analyses: Sequence[Analysis], with_links: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        writer = WarcWriter(Path(folder), "bench", software="bench", revisit_bytes=0)
        await writer.append(fetch_of(tasks[0]))
        begun = time.process_time()
        for first in range(0, len(tasks), BATCH):
            some = zip(tasks[first : first + BATCH], analyses[first : first + BATCH], strict=True)
            await asyncio.gather(
                *(writer.append(fetch_of(task), About(outlinks=Outlinks(analysis)) if with_links else None) for task, analysis in some)
            )
        took_s = time.process_time() - begun
        await writer.close()
    return took_s


async def in_redis(url: str, analyses: Sequence[Analysis]) -> dict[str, tuple[float, float]]:
    """CPU seconds a page: of the worker, of Redis."""
    async with Redis.from_url(url) as client:
        await client.flushall()
        frontier = Frontier(client, "web", 64, "bench")
        index = NearIndex(frontier, frontier.records_of, pages=1_000_000, votes_least=VOTES_LEAST, kinds=("minhash",))
        places = [(f"h{n % HOSTS}.org", f"https://h{n % HOSTS}.org/page/{n}.html") for n in range(len(analyses))]
        copies = [Copy(url, url_key(url), host, 1.0, one.fingerprint) for (host, url), one in zip(places, analyses, strict=True)]
        events = [PageEvent(url, url_key(url), 200, 1_800_000_000.0, WarcRef("f.warc.gz", 1, 2), "0" * 16) for _, url in places]
        found: dict[str, tuple[float, float]] = {}

        async def timed(name: str, work: Callable[[], Awaitable[Any]], count: int) -> None:
            before = await cpu_s(client)
            begun = time.process_time()
            await work()
            found[name] = (time.process_time() - begun) / count, (await cpu_s(client) - before) / count

        async def in_batches(call: Callable[[Any], Awaitable[Any]], rows: Sequence[Any]) -> None:
            for first in range(0, len(rows), BATCH):
                await call(rows[first : first + BATCH])

        await timed("near-duplicate look-up", lambda: in_batches(index.look_up, copies), len(copies))
        await timed("event", lambda: in_batches(Events(frontier, 100_000).publish, events), len(events))
        plain = await completed(frontier, client, places, "plain", with_record=False)
        recorded = await completed(frontier, client, places, "recorded", with_record=True)
        found["record (complete with it, less complete)"] = recorded[0] - plain[0], recorded[1] - plain[1]
        return found


async def completed(
    frontier: Frontier, client: Redis, places: Sequence[tuple[str, str]], name: str, with_record: bool
) -> tuple[float, float]:
    """CPU seconds of complete a page: of the worker, of Redis."""
    for host, url in places:
        await frontier.enqueue(frontier.partition_of(host), [Link(host, url_key(url + name), Entry(url + name))])
    waiting: list[tuple[int, list[Outcome]]] = []
    for p in range(frontier.partitions):
        while leases := (await frontier.lease(p, BATCH))[1]:
            waiting.append((p, [outcome_of(lease, with_record) for lease in leases]))
    before, begun = await cpu_s(client), time.process_time()
    for p, outcomes in waiting:
        await frontier.complete(p, outcomes)
    took_s, count = time.process_time() - begun, sum(len(outcomes) for _, outcomes in waiting)
    return took_s / count, (await cpu_s(client) - before) / count


def outcome_of(lease: Lease, with_record: bool) -> Outcome:
    if not with_record:
        return Outcome(lease, "d")
    record = PageRecord(lease.entry.url, 1.7e9, 200, b"12345678", 2**60, '"5e-0123456789"', fetches=1, first_seen=1.7e9, next_at=1.9e9)
    return Outcome(lease, "d", record=record, record_key=record_key(url_key(lease.entry.url)))


async def cpu_s(client: Redis) -> float:
    info: Any = await client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--guard", action="store_true")
    options = parser.parse_args()
    files = sorted(options.folder.rglob("*.html"))[: options.pages] if options.folder else []
    bodies = [file.read_bytes() for file in files] if files else made_up(options.pages)
    tasks = [
        Task(f"https://site{n % 50}.test/page/{n}", body, "html", "" if files else "text/html; charset=utf-8")
        for n, body in enumerate(bodies)
    ]
    print(f"{len(tasks)} pages of {sum(map(len, bodies)) / len(bodies) / 1000:.0f} kB; medians of {options.rounds} rounds")
    work = stages_here(tasks)
    analyst = Analyst(Recipe(Wants()))
    analyses = [analyst.analyse(task) for task in tasks]
    unit, extractor = list[float](), LinkExtractor()
    responses = [HtmlResponse(task.url, body=task.body, headers={"Content-Type": "text/html; charset=utf-8"}) for task in tasks[:20]]
    took: dict[str, list[float]] = {}
    took_redis: dict[str, list[float]] = {}

    gc.collect()
    gc.freeze()  # as a worker does at its start, with its thresholds
    gc.set_threshold(*GC_THRESHOLDS)

    def measure_unit() -> None:
        begun = time.process_time()
        for response in responses:
            extractor.extract_links(response)
        unit.append((time.process_time() - begun) / len(responses))

    with serving(_default_binary()) as server:
        for _ in range(options.rounds):
            for name, run in work.items():
                measure_unit()
                begun = time.process_time()
                run()
                took.setdefault(name, []).append((time.process_time() - begun) / len(tasks))
            for name, with_links in (("WARC: response, request", False), ("WARC with the outlinks", True)):
                took.setdefault(name, []).append(asyncio.run(stored(tasks, analyses, with_links)) / len(tasks))
            for name, (worker_s, redis_s) in asyncio.run(in_redis(server.url, analyses)).items():
                took.setdefault(name, []).append(worker_s)
                took_redis.setdefault(name, []).append(redis_s)
    gc.unfreeze()
    print(f"LinkExtractor: {statistics.median(unit) * 1e6:.0f} us a page")
    print("| stage | worker, us a page | Redis, us a page | share |\n| --- | ---: | ---: | ---: |")
    shares = {name: min(values) / min(unit) for name, values in took.items()}
    shares |= {f"{name}, Redis": min(values) / min(unit) for name, values in took_redis.items()}
    for name, values in took.items():
        redis_us = f"{statistics.median(took_redis[name]) * 1e6:.0f}" if name in took_redis else ""
        print(f"| {name} | {statistics.median(values) * 1e6:.0f} | {redis_us} | {shares[name]:.3f} |")
    if not options.guard:
        return 0
    over = [
        f"{name}: {share:.3f} of LinkExtractor's time, {GUARDS[name]:.3f} allowed" for name, share in shares.items() if share > GUARDS[name]
    ]
    print("\n".join(over) or "no stage is over its bound")
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
