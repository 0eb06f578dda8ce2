"""CPU of reading pages: what each HTML parser needs for links, title and text, beside `parse_page`.

    python bench/page.py [FOLDER] [--pages N] [--rounds N] [--deep]

FOLDER holds .html files (searched recursively; ../shared/data/e_html_pages unpacked, for instance); without it, pages
are made up with a seed. Every candidate does the same: hrefs of `a` and `area`, title, text without script and style.
Medians of alternating rounds, CPU time. `--deep` adds hostile pages, each in a process of its own: seconds and memory.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import lxml.etree
from selectolax.lexbor import LexborHTMLParser

from crawlweb.content.charset import encoding_of
from crawlweb.content.page import Wants, parse_page

Facts = tuple[list[str], str, str]


def made_up(pages: int) -> list[bytes]:
    """Pages of about 31 kB with 100 links."""
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyzäéñ", k=rng.randrange(2, 11))) for _ in range(5_000)]

    def phrase(n: int) -> str:
        return " ".join(rng.choices(words, k=n))

    def page(number: int) -> bytes:
        blocks = [
            f'<div class="row"><p>{phrase(25)} <b>{phrase(2)}</b>, '
            f'<a class="l" href="/{phrase(1)}/{n}?p={number}">{phrase(3)}</a>.</p></div>'
            for n in range(100)
        ]
        script = f"<script>var data = '{phrase(400)}';</script>"
        return f"<!doctype html><title>{phrase(6)}</title><style>p {{}}</style>{script}<body>{''.join(blocks)}".encode()

    return [page(number) for number in range(pages)]


LXML_PARSER = lxml.etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True, collect_ids=False)
LXML_LINKS = lxml.etree.XPath("//a/@href | //area/@href", smart_strings=False)
LXML_TEXT = lxml.etree.XPath("//body//text()[not(parent::script or parent::style or parent::noscript)]", smart_strings=False)
LXML_TITLE = lxml.etree.XPath("string(//title)", smart_strings=False)


def lxml_facts(html: bytes) -> Facts:
    tree = lxml.etree.fromstring(html or b"<p>", LXML_PARSER)
    return LXML_LINKS(tree), LXML_TITLE(tree), " ".join(" ".join(LXML_TEXT(tree)).split())


def selectolax_facts(html: bytes) -> Facts:
    tree = LexborHTMLParser(html, options=1)
    links = [node.attrs.get("href") or "" for node in tree.css("a[href], area[href]")]
    title = tree.css_first("title")
    for node in tree.css("head, script, style, noscript"):
        node.decompose(recursive=False)
    return links, title.text() if title else "", " ".join(tree.text(separator=" ").split())


def crawlweb_facts(html: bytes) -> Facts:
    page = parse_page(html, "http://site.test/", "text/html; charset=utf-8")
    return page.hrefs, page.title, page.text


def wanting(wants: Wants) -> Callable[[bytes], object]:
    return lambda html: parse_page(html, "http://site.test/", "text/html; charset=utf-8", wants=wants)


CANDIDATES: dict[str, Callable[[bytes], object]] = {
    "lxml: parse": lambda html: lxml.etree.fromstring(html or b"<p>", LXML_PARSER),
    "lxml: links, title, text": lxml_facts,
    "selectolax: parse": lambda html: LexborHTMLParser(html, options=1),
    "selectolax: links, title, text": selectolax_facts,
    "parse_page (all facts, guarded)": crawlweb_facts,
    "parse_page, anchor_text": wanting(Wants(anchor_text=True)),
    "parse_page, images": wanting(Wants(images=True)),
    "parse_page, structured": wanting(Wants(structured=True)),
    "parse_page, everything wanted": wanting(Wants(anchor_text=True, images=True, structured=True)),
    "encoding_of, undeclared": lambda html: encoding_of(html),
}
try:
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    def resiliparse_facts(html: bytes) -> Facts:
        tree = HTMLTree.parse(html.decode("utf-8", "replace"))
        links = [node.getattr("href") or "" for node in tree.document.get_elements_by_tag_name("a").values()]
        return links, tree.title or "", extract_plain_text(tree, preserve_formatting=False)

    CANDIDATES["resiliparse: parse"] = lambda html: HTMLTree.parse(html.decode("utf-8", "replace"))
    CANDIDATES["resiliparse: links, title, text"] = resiliparse_facts
except ImportError:
    pass

DEEP: dict[str, Callable[[], bytes]] = {
    "20,000 open div": lambda: b"<div>" * 20_000,
    "40,000 open div": lambda: b"<div>" * 40_000,
    "1,000 open b, 4,000 p (25 kB)": lambda: b"<p>" + b"".join(b"<b a=%d>" % n for n in range(1_000)) + b"<p>x" * 4_000,
    "40,000 attributes": lambda: b"<a " + b"".join(b"a%d=1 " % n for n in range(40_000)) + b">",
    "100,000 links": lambda: b"".join(b"<a href=/%d>x</a>" % n for n in range(100_000)),
}


def tags(count: int, attributes: int, attribute: bytes = b"%x ") -> bytes:
    return (b"<p " + b"".join(attribute % n for n in range(attributes)) + b">\n") * count


# The dearest of about 100 patterns tried, each of 8 to 10 MB, the most that is downloaded.
LARGE: dict[str, Callable[[], bytes]] = {
    "650 tags of 3,500 attributes": lambda: tags(650, 3_500),
    "1,200 tags of 1,800 attributes": lambda: tags(1_200, 1_800),
    "1,300 tags of 1,300 odd quotes": lambda: tags(1_300, 1_300, b'%x=">"'),
    "attributes of body": lambda: tags(1_200, 1_800).replace(b"<p ", b"<body "),
    "900,000 tags, 199,000 names": lambda: b"".join(b"<a a%d>" % (n % 199_000) for n in range(900_000)),
    "600,000 names behind odd quotes": lambda: b"".join(b'<a b=" x="n%d>' % n for n in range(600_000)),
    "600,000 links": lambda: b"".join(b"<a href=%d>" % n for n in range(600_000)),
    "420,000 links in noscript": lambda: b"".join(b"<noscript><a href=%d>" % n for n in range(420_000)),
    "850,000 images": lambda: b"<img src=x>" * 850_000,
    "5,900 links in one another": lambda: b"<svg>" + b"".join(b"<a href=/%d>" % n for n in range(5_900)) + b"x" * 9_000_000,
    "1,900,000 cells": lambda: b"<table>" + b"<td>x" * 1_900_000,
    "2,400,000 ends": lambda: b"</p>" * 2_400_000,
    "1,900,000 comments": lambda: b"<!-->" * 1_900_000,
    "10,000,000 <": lambda: b"<" * 10_000_000,
}
DEEP |= LARGE
DEEP_CANDIDATES = ("lxml: parse", "selectolax: parse", "parse_page (all facts, guarded)")


def report_deep() -> None:
    for case in DEEP:
        for candidate in DEEP_CANDIDATES if case not in LARGE else ("parse_page, everything wanted",):
            subprocess.run([sys.executable, __file__, "--one", case, candidate], check=False)


def report_one(case: str, candidate: str) -> None:
    html = DEEP[case]()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    result = CANDIDATES[candidate](html)
    cpu_s = time.process_time() - started
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    del result
    print(f"{case:32} {candidate:34} {cpu_s:7.3f} s  +{peak_kib / 1024:5.0f} MB", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", nargs="?", type=Path)
    arguments.add_argument("--pages", type=int, default=300)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--deep", action="store_true")
    arguments.add_argument("--one", nargs=2, metavar=("CASE", "CANDIDATE"), help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.one:
        report_one(*options.one)
        return
    if options.folder:
        files = sorted(options.folder.rglob("*.html"))
        random.Random(1).shuffle(files)
        pages = [file.read_bytes() for file in files[: options.pages]]
    else:
        pages = made_up(options.pages)
    if not pages:
        raise SystemExit(f"no .html file under {options.folder}")
    mean_bytes = sum(map(len, pages)) / len(pages)
    print(f"{len(pages)} pages, mean {mean_bytes:,.0f} bytes; CPU per page, median of {options.rounds} rounds")
    cpu_s: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    for _ in range(options.rounds + 1):  # the first warms up
        for name, candidate in CANDIDATES.items():
            started = time.process_time()
            for html in pages:
                candidate(html)
            cpu_s[name].append(time.process_time() - started)
    for name, rounds in cpu_s.items():
        print(f"{name:34} {statistics.median(rounds[1:]) / len(pages) * 1e6:8.0f} µs")
    if options.deep:
        report_deep()


if __name__ == "__main__":
    main()
