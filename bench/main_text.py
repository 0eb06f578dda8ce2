"""Main text of pages: precision, recall and CPU of `main_text` beside trafilatura and resiliparse.

    python bench/main_text.py FOLDER [--part report|tune|all] [--rounds N] [--worst N] [--near-dup FOLDER]

FOLDER holds index.jsonl.gz (or index.jsonl) and the pages it names, unpacked (../shared/data/e_html_pages). Labels are of
two kinds: whole article bodies (multisets of four-word shingles, precision and recall averaged over pages, as
scrapinghub's article-extraction-benchmark counts), and trafilatura's sentences that must and must not be in the text
(true and false positives counted over all pages). A site belongs to the part to tune on or to the part to report by the
hash of its domain. CPU is a thread's, on decoded pages; for `main_text` without the parse, which `parse_page` needs anyway; the
last line is every fifth page of the index, labelled or not. `--near-dup` (../shared/data/g_near_dup, its archives unpacked in any folders
below it) adds how alike the main and visible texts of its pairs are.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trafilatura
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree
from selectolax.lexbor import LexborHTMLParser

from crawlweb.content.charset import encoding_of
from crawlweb.content.main_text import main_text
from crawlweb.content.page import _OPTIONS, parse_page
from crawlweb.content.taming import tamed

SHINGLE_WORDS = 4


def ours(html: str) -> tuple[str, float]:
    tree = LexborHTMLParser(tamed(html.encode("utf-8", "replace")), options=_OPTIONS)
    began = time.thread_time()
    text = main_text(tree)
    return text, time.thread_time() - began


def timed(extract: Callable[[str], str | None]) -> Callable[[str], tuple[str, float]]:
    def run(html: str) -> tuple[str, float]:
        began = time.thread_time()
        text = extract(html) or ""
        return text, time.thread_time() - began

    return run


CANDIDATES: dict[str, Callable[[str], tuple[str, float]]] = {
    "main_text": ours,
    "visible text (parse_page)": timed(lambda html: parse_page(html.encode("utf-8", "replace"), "http://site.test/").text),
    "resiliparse main_content": timed(lambda html: extract_plain_text(HTMLTree.parse(html), main_content=True, alt_texts=False)),
    "trafilatura fast": timed(lambda html: trafilatura.extract(html, fast=True, include_comments=False)),
    "trafilatura": timed(lambda html: trafilatura.extract(html, include_comments=False)),
}


def decoded(body: bytes) -> str:
    encoding, mark_bytes = encoding_of(body, None)
    return body[mark_bytes:].decode(encoding, "replace")


def is_to_report(domain: str) -> bool:
    return hashlib.sha1(domain.encode()).digest()[0] % 2 == 0


def shingles(text: str) -> Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", text)
    count = max(1, len(words) - SHINGLE_WORDS + 1) if words else 0
    return Counter(tuple(words[n : n + SHINGLE_WORDS]) for n in range(count))


def body_scores(text: str, body: str) -> tuple[float, float]:
    """Precision and recall; a text without a shingle has precision 0."""
    found, wanted = shingles(text), shingles(body)
    common = sum((found & wanted).values())
    return common / max(1, sum(found.values())), common / max(1, sum(wanted.values()))


def f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / max(1e-9, precision + recall)


def labelled_pages(folder: Path, part: str) -> list[tuple[dict[str, Any], str]]:
    pages = []
    for row in index_rows(folder):
        label = row.get("label") or {}
        if not (label.get("must") or label.get("article_body")):
            continue
        if part == "all" or is_to_report(row["domain"]) == (part == "report"):
            pages.append((row, decoded((folder / row["file"]).read_bytes())))
    return pages


def index_rows(folder: Path) -> list[dict[str, Any]]:
    index = folder / "index.jsonl"
    with index.open("rt") if index.exists() else gzip.open(folder / "index.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def print_near_dup(folder: Path) -> None:
    """Of each kind of pair: means of the Jaccard similarity of sets of word 5-grams, and pairs with at least 0.8."""
    paths = {path.stem: path for path in folder.rglob("*.html")}
    texts: dict[str, tuple[set[tuple[str, ...]], ...]] = {}

    def grams(stem: str) -> tuple[set[tuple[str, ...]], ...]:
        if stem not in texts:
            page = parse_page(paths[stem].read_bytes(), "http://site.test/")
            lists = (page.main_text.split(), page.text.split())
            texts[stem] = tuple({tuple(words[n : n + 5]) for n in range(len(words) - 4)} for words in lists)
        return texts[stem]

    kinds: dict[str, list[list[float]]] = {}
    for pairs in sorted(folder.rglob("pairs.jsonl")):
        for row in map(json.loads, pairs.read_text().splitlines()):
            kind = row.get("variant") or f"{row['set']}, {'same' if row['same_page'] else 'other'} page, {row['label']}"
            one, other = (grams(Path(name).stem) for name in (row.get("a") or row["page_a"], row.get("b") or row["page_b"]))
            alike = [len(a & b) / max(1, len(a | b)) for a, b in zip(one, other, strict=True)]
            kinds.setdefault(kind, []).append(alike)
    print(f"\n{'pairs':46} {'':5} main text (0.8 or more)  visible text")
    for kind, alikes in sorted(kinds.items()):
        main_alike, text_alike = (list(column) for column in zip(*alikes, strict=True))
        counts = [sum(alike >= 0.8 for alike in column) for column in (main_alike, text_alike)]
        means = [statistics.mean(column) for column in (main_alike, text_alike)]
        print(f"{kind:46} {len(alikes):5} {means[0]:9.3f} {counts[0]:6} {means[1]:15.3f} {counts[1]:6}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=["report", "tune", "all"], default="report")
    parser.add_argument("--only", default="", help="candidates whose name begins so")
    parser.add_argument("--rounds", type=int, default=1, help="of all candidates, for CPU")
    parser.add_argument("--worst", type=int, default=0, help="pages to name, by the F1 of the first candidate")
    parser.add_argument("--near-dup", type=Path, help="folder with pairs.jsonl and pages")
    options = parser.parse_args()

    pages = labelled_pages(options.folder, options.part)
    mean_kb = statistics.mean(row["bytes"] for row, _ in pages) / 1000
    print(f"part {options.part}: {len(pages)} pages, mean {mean_kb:.0f} kB")
    print("sentences: pooled over pages; bodies: mean over pages; CPU ms a page: mean, 99th percentile (median of rounds)")
    print(f"{'':26}  {'sentences':^17}   {'bodies':^17}")
    print(f"{'':26} {'prec':>5} {'rec':>5} {'F1':>5}   {'prec':>5} {'rec':>5} {'F1':>5}   {'mean':>7} {'p99':>7}")
    chosen = {name: run for name, run in CANDIDATES.items() if name.startswith(options.only)}
    seconds: dict[str, list[list[float]]] = {name: [] for name in chosen}
    texts: dict[str, list[str]] = {}
    for _ in range(options.rounds):
        for name, run in chosen.items():
            results = [run(html) for _, html in pages]
            texts[name] = [text for text, _ in results]
            seconds[name].append(sorted(spent for _, spent in results))
    worst: list[tuple[float, str]] = []
    for name in chosen:
        true = false = missed = 0
        scores = []
        for (row, _), text in zip(pages, texts[name], strict=True):
            label = row["label"]
            if body := label.get("article_body"):
                scores.append(body_scores(text, body))
                page_f1, page = f1(*scores[-1]), f"{scores[-1][0]:.2f} {scores[-1][1]:.2f}"
            else:
                folded = " ".join(text.split())
                hits = sum(" ".join(sentence.split()) in folded for sentence in label["must"])
                wrong = sum(" ".join(sentence.split()) in folded for sentence in label.get("must_not") or ())
                true, false, missed = true + hits, false + wrong, missed + len(label["must"]) - hits
                page_f1 = f1(hits / max(1, hits + wrong), hits / max(1, len(label["must"])))
                page = f"{hits}/{len(label['must'])} {wrong}/{len(label.get('must_not') or ())}"
            if name == next(iter(chosen)):
                worst.append((page_f1, f"{page_f1:.2f} {page:12} {len(text):6} {row['file']} {row['url']}"))
        line = f"{name:26}"
        precision, recall = true / max(1, true + false), true / max(1, true + missed)
        line += f" {precision:5.3f} {recall:5.3f} {f1(precision, recall):5.3f}  "
        precision, recall = (statistics.mean(column) for column in zip(*scores, strict=True))
        line += f" {precision:5.3f} {recall:5.3f} {f1(precision, recall):5.3f}  "
        mean = statistics.median(statistics.mean(spent) for spent in seconds[name])
        p99 = statistics.median(spent[len(spent) * 99 // 100] for spent in seconds[name])
        print(f"{line} {mean * 1e3:7.3f} {p99 * 1e3:7.2f}")
    for _, description in sorted(worst)[: options.worst]:
        print(description)
    bodies = [(options.folder / row["file"]).read_bytes() for row in index_rows(options.folder)[::5]]
    rounds = [[ours(decoded(body))[1] for body in bodies] for _ in range(options.rounds)]
    mean_ms = statistics.median(statistics.mean(spent) for spent in rounds) * 1e3
    print(f"main_text on {len(bodies)} pages of any kind, mean {sum(map(len, bodies)) / len(bodies) / 1000:.0f} kB: {mean_ms:.3f} ms")
    if options.near_dup:
        print_near_dup(options.near_dup)


if __name__ == "__main__":
    main()
