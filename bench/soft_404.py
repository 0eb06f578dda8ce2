"""Soft 404s: precision and recall on labelled pages and on the synthetic web, and CPU.

    python bench/soft_404.py ../shared/data/i_soft404 [--fit] [--errors] [--sites 360]

The folder holds labels.jsonl and pages.tar.zst. "Keywords": an English rule on title and first 120 characters. "Tuned on": pages whose file
name has an even SHA-256. "Cross-validated": weights fitted on four fifths of all pages, told of the fifth, five times. "Known error pages":
the host's shape is that of the error page as it is served for another URL (`served`), beside three of other hosts; for pages that are none,
those of all error pages are known. `--errors` lists what is told wrongly from the page alone.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import re
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from crawlweb.content import soft_404  # noqa: E402
from crawlweb.content.page import parse_page  # noqa: E402
from crawlweb.records import Page  # noqa: E402
from tests.web.missing import UNKNOWN_WORDINGS, WORDINGS, Missed, Missing, Titles  # noqa: E402

Row = tuple[str, bool, str, Page, dict[str, float]]
KEYWORDS = re.compile(r"404|not found|page not found|does(n't| not) exist|no longer available|error", re.I)


def load(folder: Path) -> tuple[list[Row], dict[str, bytes]]:
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
    return rows, bodies


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
    shares = f"precision {hits / max(1, hits + false):.3f}  recall {hits / max(1, hits + missed):.3f}"
    print(f"{what:52} {shares}  of {len(pairs)}: {false} false, {missed} missed")


def served(body: bytes, url: str, rng: random.Random) -> Page:
    """An error page as its server would give it for another URL: other numbers, an echo of the URL, a line of the day."""
    number = re.compile(rb"(?<=[ >])\d{5,}(?=[ <])")
    body = number.sub(lambda _: b"%d" % rng.randrange(10**9), body)
    line = f"<p>{url} {rng.choice(_LINES)}</p>".encode()
    at = body.lower().rfind(b"</body")
    return parse_page(body + line if at < 0 else body[:at] + line + body[at:], url)


def with_known(rows: Sequence[Row], bodies: dict[str, bytes]) -> Iterator[tuple[bool, bool, bool]]:
    """Is it an error page, is it told, is it told by likeness alone? Each with the shapes of three others besides its own."""
    rng = random.Random(1)
    errors = [name for name, is_error, *_ in rows if is_error]

    def shape(name: str, path: str) -> bytes:
        url = f"http://site.example/{path}"
        return soft_404.shape(served(bodies[name], url, rng), url)

    strangers = [one for name in errors if (one := shape(name, "first-try"))]
    for name, is_error, *_ in rows:
        url = "http://site.example/another/path-that-is-not-there"
        page = served(bodies[name], url, rng) if is_error else parse_page(bodies[name], url)
        shapes = [shape(name, "first-try"), *rng.sample(strangers, 3)] if is_error else strangers
        yield is_error, soft_404.is_error(page, url, shapes), soft_404.is_like(page, url, shapes)


def synthetic(sites: int) -> Iterator[tuple[str, bool, bool, bool]]:
    """Of hosts of the synthetic web: the kind, is it an error page, is it told from the page alone, and with what the host's first 404 or a
    probe gave? Of every third host all pages have the same title and headings, but for its error page."""
    for n in range(sites):
        how: Missed = HOWS[n % 3]
        titles: Titles = TITLES[n // 3 % 6]
        wording = list(WORDINGS)[n // 3 % len(WORDINGS)]
        menu = (4, 12, 40)[n // 60 % 3]
        site = Missing(f"site{n}.example", pages=30, how=how, wording=wording, menu=menu, titles=titles)
        site.join(1, 80, ())
        kind = "home" if how == "home" else "other words" if wording in UNKNOWN_WORDINGS else "known words"

        def page(path: str, site: Missing = site) -> tuple[str, Page]:
            url = site.url(path)
            return url, parse_page(site.answer(path, site.name).body, url)

        url, error = page("/gone/first-one" if how == "half" else "/0123456789abcdef")
        shapes = [one] if (one := soft_404.shape(error, url)) else []
        for path in [site.path(k) for k in range(site.pages)] + [f"/lost/{k}" for k in range(15)]:
            url, found = page(path)
            yield kind, path.startswith("/lost/"), soft_404.is_error(found, url), soft_404.is_error(found, url, shapes)


HOWS: tuple[Missed, ...] = ("soft", "half", "home")
TITLES: tuple[Titles, ...] = ("own", "own", "own", "own", "none", "logo")
_LINES = ("Three new articles today", "Read about boats", "Updated a moment ago", "Visitors online")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fit", action="store_true", help="print weights")
    parser.add_argument("--errors", action="store_true", help="list what is told wrongly")
    parser.add_argument("--sites", type=int, default=360, help="of the synthetic web")
    args = parser.parse_args()
    rows, bodies = load(args.folder)
    tuned = [row for row in rows if part(row[0], 2) == 0]
    others = [row for row in rows if part(row[0], 2)]
    if args.fit:
        print({name: round(weight, 1) for name, weight in fit(tuned).items()})
    show("keywords", ((row[1], bool(KEYWORDS.search(f"{row[3].title} {row[3].text[:120]}"))) for row in rows))
    for what, some in (("page alone, tuned on", tuned), ("page alone, the other half", others)):
        show(what, ((row[1], soft_404.is_error(row[3])) for row in some))
    told = []
    for fold in range(5):
        weights = fit([row for row in rows if part(row[0] + "5", 5) != fold])
        rest = [row for row in rows if part(row[0] + "5", 5) == fold]
        told += [(row[1], soft_404.probability(row[4], weights) >= soft_404.THRESHOLD) for row in rest]
    show("page alone, cross-validated", told)
    known = list(with_known(rows, bodies))
    show("with known error pages", ((is_error, by_both) for is_error, by_both, _ in known))
    show("by likeness to them alone", ((is_error, by_likeness) for is_error, _, by_likeness in known))
    web = list(synthetic(args.sites))
    for kind in ("known words", "other words", "home"):
        show(f"synthetic web, {kind}: page alone", ((is_error, alone) for of, is_error, alone, _ in web if of == kind))
        show(f"synthetic web, {kind}: with known error pages", ((is_error, both) for of, is_error, _, both in web if of == kind))
    show("synthetic web, all: with known error pages", ((is_error, both) for _, is_error, _, both in web))
    for what, step in (
        ("signals", lambda page: soft_404.signals(page)),
        ("shape", lambda page: soft_404.shape(page, "http://a.example/b/c")),
    ):
        begun = time.process_time()
        for _ in range(10):
            for row in rows:
                step(row[3])
        print(f"{what}: {(time.process_time() - begun) / len(rows) * 1e5:.0f} µs a page")
    if args.errors:
        for name, is_error, kind, page, given in rows:
            if is_error != soft_404.is_error(page):
                values = {signal: round(value, 2) for signal, value in given.items() if value}
                print(name, is_error, kind, page.title[:70], page.headings[:2], len(page.text), values, sep=" | ")


if __name__ == "__main__":
    main()
