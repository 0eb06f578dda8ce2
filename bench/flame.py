"""A flame graph of a worker with everything on: which of its functions have the interpreter, by Python's own stack.

    python bench/flame.py docs/flame-after.svg
    python bench/flame.py docs/flame-before.svg --root CHECKOUT

Needs py-spy (`pip install py-spy`). 100 samples a second of what holds the GIL, while the synthetic web of throughput.py is crawled (300
hosts, pages of 31 KB with 100 links). `--root`: another checkout of the project, whose code is run instead.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.crawlers import CRAWLERS, OURS, Start  # noqa: E402
from bench.processes import Processes  # noqa: E402
from tests.web import WebProcess  # noqa: E402

SITE = "links:count=300,pages=100000,links=100,page_bytes=31000"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("svg", type=Path)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--warm-up", type=int, default=1500, help="pages before")
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    crawler = replace(CRAWLERS[OURS], folder=options.root.resolve())
    with tempfile.TemporaryDirectory(prefix="bench-") as name, WebProcess(SITE) as web:
        folder = Path(name)
        seeds = folder / "seeds.txt"
        seeds.write_text("\n".join(web.seeds()) + "\n")
        command = crawler.command(Start(web, seeds, folder, "", 256))
        with (folder / "log.txt").open("wb") as log:
            child = subprocess.Popen(command, cwd=crawler.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            while web.served() < options.warm_up:
                if child.poll() is not None:
                    raise RuntimeError((folder / "log.txt").read_text()[-3000:])
                time.sleep(0.05)
            recorder = ["py-spy", "record", "--pid", str(child.pid), "--gil", "--function", "--format", "flamegraph"]
            subprocess.run([*recorder, "--duration", str(options.seconds), "--output", str(options.svg)], check=True)
        finally:
            Processes(child.pid, folder).kill()
            child.wait()
    options.svg.write_text(re.sub(r"(<text id=\"title\"[^>]*>)[^<]*", r"\1crawlweb, a worker with everything on", options.svg.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
