"""How long single callbacks hold up a worker's event loop, with pages of 5 MB among the others.

    PYTHONPATH=. python bench/stalls.py [--pages N] [--large PERCENT]

A web on loopback of 40 hosts with pages of 31 kB and 100 links; some pages are 5 MB of text and 20,000 links. The worker runs with
asyncio's own loop, whose callbacks can be timed one by one (uvloop's cannot): CPU time of the loop's thread, so that other processes do not
count. Prints the longest, by what they ran.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random

from tests.web.server import Web
from tests.web.sites import NOT_FOUND, Answer, Request, Site
from tests.web.text import prose

EXTENSION = """
import asyncio, json, os, time
from collections import defaultdict

took = defaultdict(list)
run = asyncio.events.Handle._run

def timed(self):
    begun = time.thread_time()
    run(self)
    s = time.thread_time() - begun
    if s > 0.005:
        task = getattr(self._callback, "__self__", None)
        coro = task.get_coro() if isinstance(task, asyncio.Task) else None
        took[getattr(coro, "__qualname__", "") or getattr(self._callback, "__qualname__", repr(self._callback))].append(s)
    counts[0] += 1
    total[0] += s

counts, total = [0], [0.0]

class Stalls:
    @classmethod
    def from_crawler(cls, crawler):
        asyncio.events.Handle._run = timed
        from scrapy import signals
        crawler.signals.connect(cls.write, signals.spider_closed)
        return cls()

    @staticmethod
    def write():
        with open(os.environ["STALLS"], "w") as file:
            json.dump({"callbacks": counts[0], "cpu_s": total[0], "took": took}, file)
"""


@dataclass
class Mixed(Site):
    """Pages 0 to `pages`; each `every`th is large."""

    every: int = 20
    page_links: int = field(default=100, init=False)

    def respond(self, request: Request) -> Answer:
        number = request.path.removeprefix("/p") or "0"
        if request.path != "/" and not (number.isdigit() and int(number) < self.pages):
            return NOT_FOUND
        n = int(number) if request.path != "/" else 0
        return Answer(_large(n % 3) if n % self.every == 1 else self._small(n))

    def _small(self, n: int) -> bytes:
        rng = self.rng("page", n)
        links = "".join(f"<li><a href='/p{(n * 3 + k) % self.pages}'>page</a></li>" for k in range(1, 101))
        return f"<!doctype html><title>Page {n}</title><article><p>{prose(rng, 3500)}</p></article><ul>{links}</ul>".encode()

    def reachable(self) -> frozenset[str]:
        return frozenset()


@lru_cache(maxsize=3)
def _large(kind: int) -> bytes:
    rng = Random(kind)
    paragraphs = "".join(f"<p>{prose(rng, 40)}</p>\n" for _ in range(17_000))
    links = "".join(f'<li><a href="http://elsewhere.test/x/{kind}/{n}">link {n}</a></li>\n' for n in range(20_000))
    return f"<!doctype html><title>Large {kind}</title><article>{paragraphs}</article><ul>{links}</ul>".encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=60, help="of each of 40 hosts")
    parser.add_argument("--large", type=float, default=5.0, help="of a hundred pages")
    options = parser.parse_args()
    sites: list[Site] = [Mixed(f"m{n}.org", pages=options.pages, every=round(100 / options.large)) for n in range(40)]
    with tempfile.TemporaryDirectory(prefix="crawlweb-") as name, Web(seed=1, sites=sites) as web:
        folder = Path(name)
        (folder / "stalls.py").write_text(EXTENSION)
        settings = {
            "CRAWLWEB_DATA_DIR": folder / "data",
            "CRAWLWEB_DNS_SERVERS": web.dns_server,
            "CRAWLWEB_ALLOW_PRIVATE_IPS": 1,
            "CRAWLWEB_MIN_DELAY_S": 0.1,
            "CRAWLWEB_LATENCY_FACTOR": 0,
            "CRAWLWEB_IP_DELAY_S": 0,
            "CRAWLWEB_CONTACT": "bench@example.com",
            "ASYNCIO_EVENT_LOOP": "asyncio.SelectorEventLoop",
            "EXTENSIONS": json.dumps({"stalls.Stalls": 0}),
            "LOG_LEVEL": "WARNING",
        }
        command = [sys.executable, "-m", "scrapy", "crawl", "web", "-a", f"seeds={','.join(web.seeds())}", "-a", "scope=domain"]
        command += ["-a", "max_depth=60", "-O", str(folder / "pages.jsonl")]
        command += [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
        path = os.pathsep.join(filter(None, (name, os.environ.get("PYTHONPATH"))))
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path, "STALLS": str(folder / "stalls.json")})
        found = json.loads((folder / "stalls.json").read_text())
        with (folder / "pages.jsonl").open() as file:
            sizes = [len(json.loads(line)["text"]) for line in file]
    large = sum(size > 1_000_000 - 1 for size in sizes)
    print(f"{len(sizes)} pages, {large} of them large; {found['callbacks']} callbacks, {found['cpu_s']:.1f} s of CPU in them")
    rows = sorted(found["took"].items(), key=lambda row: -max(row[1]))
    print("| callback | over 5 ms | longest, ms of CPU |\n| --- | ---: | ---: |")
    for what, times in rows[:12]:
        print(f"| {what} | {len(times)} | {max(times) * 1000:.0f} |")


if __name__ == "__main__":
    main()
