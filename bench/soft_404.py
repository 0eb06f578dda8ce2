"""Soft 404s: precision and recall on labelled pages, and CPU.

    python bench/soft_404.py ../shared/data/i_soft404 [--fit] [--errors]

The folder holds labels.jsonl and pages.tar.zst. "Tuned on": pages whose file name has an even SHA-256. "Cross-validated": weights fitted on four
fifths of all pages, told of the fifth, five times. "Known error pages": the host's shape is that of the error page as it is served for another URL,
with an echo of the URL and other numbers, and a line that changes (`served`); of pages that are none, the shapes of all error pages are known.
`--errors` lists what is told wrongly from the page alone.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import re
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from crawlweb.content import soft_404
from crawlweb.content.page import parse_page
from crawlweb.records import Page

Row = tuple[str, bool, str, Page, dict[str, float]]
KEYWORDS = re.compile(r"404|not found|page not found|does(n't| not) exist|no longer available|error", re.I)


def load(folder: Path) -> list[Row]:
    try:
        from backports import zstd
    except ImportError:
        from compression import zstd  # type: ignore[import-not-found,no-redef]
    data = zstd.decompress((folder / "pages.tar.zst").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        bodies = {Path(member.name).name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]
    rows = []
    for line in (folder / "labels.jsonl").read_text().splitlines():
        label = json.loads(line)
        page = parse_page(bodies[label["file"]], "http://site.example/page")
        rows.append((label["file"], bool(label["is_error_page"]), label["kind"], page, soft_404.signals(page)))
    return rows


def part(name: str, parts: int) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % parts


def fit(rows: Sequence[Row], decay: float = 0.02, rounds: int = 1500) -> dict[str, float]:
    """Logistic regression by gradient descent; none of the weights but the bias is negative."""
    names = list(rows[0][4])
    weights = dict.fromkeys(["bias", *names], 0.0)
    for _ in range(rounds):
        slope = dict.fromkeys(weights, 0.0)
        for _, is_error, _, _, given in rows:
            miss = soft_404.probability(given, weights) - is_error
            slope["bias"] += miss
            for name in names:
                slope[name] += miss * given[name]
        for name in weights:
            step = slope[name] / len(rows) + (decay * weights[name] / 10 if name != "bias" else 0)
            weights[name] -= 2.0 * step
            if name != "bias":
                weights[name] = max(0.0, weights[name])
    return weights


def show(what: str, told: Iterable[tuple[bool, bool]]) -> None:
    pairs = list(told)
    hits, false, missed = (sum(pair == wanted for pair in pairs) for wanted in ((True, True), (False, True), (True, False)))
    print(
        f"{what:44} precision {hits / max(1, hits + false):.3f}  recall {hits / max(1, hits + missed):.3f}  of {len(pairs)}: {false} false, {missed} missed"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fit", action="store_true", help="print weights")
    parser.add_argument("--errors", action="store_true", help="list what is told wrongly")
    args = parser.parse_args()
    rows = load(args.folder)
    tuned = [row for row in rows if part(row[0], 2) == 0]
    others = [row for row in rows if part(row[0], 2)]
    if args.fit:
        print({name: round(weight, 1) for name, weight in fit(tuned).items()})
    show(
        "English keywords in title, first 120 chars",
        ((row[1], bool(KEYWORDS.search(row[3].title + " " + row[3].text[:120]))) for row in rows),
    )
    show("page alone, pages tuned on", ((row[1], soft_404.score(row[3]) >= soft_404.THRESHOLD) for row in tuned))
    show("page alone, other pages", ((row[1], soft_404.score(row[3]) >= soft_404.THRESHOLD) for row in others))
    told = []
    for fold in range(5):
        weights = fit([row for row in rows if part(row[0] + "5", 5) != fold])
        told += [(row[1], soft_404.probability(row[4], weights) >= soft_404.THRESHOLD) for row in rows if part(row[0] + "5", 5) == fold]
    show("page alone, cross-validated", told)
    if args.errors:
        for name, is_error, kind, page, given in rows:
            if is_error != (soft_404.score(page) >= soft_404.THRESHOLD):
                values = {signal: round(value, 2) for signal, value in given.items() if value}
                print(name, is_error, kind, page.title[:70], page.headings[:2], len(page.text), values, sep=" | ")


if __name__ == "__main__":
    main()
