"""Main text of pages: precision, recall and CPU of `main_text` beside trafilatura and resiliparse.

    python bench/main_text.py FOLDER [--part report|tune|all] [--rounds N] [--worst N]

FOLDER holds index.jsonl.gz (or index.jsonl) and the pages it names, unpacked (../shared/data/e_html_pages). Labels are of
two kinds: whole article bodies (multisets of four-word shingles, precision and recall averaged over pages, as
scrapinghub's article-extraction-benchmark counts), and trafilatura's sentences that must and must not be in the text
(true and false positives counted over all pages). A site belongs to the part to tune on or to the part to report by the
hash of its domain. CPU is a thread's, on decoded pages; for `main_text` without the parse, which `parse_page` needs anyway.
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
from crawlweb.content.page import _OPTIONS, _tamed, parse_page

SHINGLE_WORDS = 4


def ours(html: str) -> tuple[str, float]:
    tree = LexborHTMLParser(_tamed(html.encode("utf-8", "replace")), options=_OPTIONS)
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
    index = folder / "index.jsonl"
    pages = []
    with index.open("rt") if index.exists() else gzip.open(folder / "index.jsonl.gz", "rt") as lines:
        for line in lines:
            row = json.loads(line)
            label = row.get("label") or {}
            if not (label.get("must") or label.get("article_body")):
                continue
            if part == "all" or is_to_report(row["domain"]) == (part == "report"):
                pages.append((row, decoded((folder / row["file"]).read_bytes())))
    return pages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=["report", "tune", "all"], default="report")
    parser.add_argument("--only", default="", help="candidates whose name begins so")
    parser.add_argument("--rounds", type=int, default=1, help="of all candidates, for CPU")
    parser.add_argument("--worst", type=int, default=0, help="pages to name, by the F1 of the first candidate")
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


if __name__ == "__main__":
    main()
