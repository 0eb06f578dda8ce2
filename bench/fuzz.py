"""Mutated real pages through `parse_page` and `parse_feed`: what raises, and the slowest.

    python bench/fuzz.py FOLDER [--seconds N] [--seed N]

FOLDER holds .html files (../shared/data/e_html_pages unpacked, for instance). A page is cut, doubled and has pieces of others and of
markup inserted, repeated up to 1 MB; content types, Link headers and URLs are made up. Ends with 1 if anything raised or took over 2 s.
"""

from __future__ import annotations

import argparse
import random
import time
import traceback
from pathlib import Path

from crawlweb.content.feed import is_feed, parse_feed
from crawlweb.content.page import Wants, parse_page

MAX_CPU_S = 2
MAX_REPEATED_BYTES = 1_000_000
ALL = Wants(anchor_text=True, images=True, structured=True)
TOKENS = [b"<", b">", b"'", b'"', b"=", b"/", b"\0", b"\xff", b"&", b"&#xD800;", b"<!--", b"-->", b"<svg>", b"<math>", b"<table>", b"<td>"]
TOKENS += [
    b"<b a=1>",
    b"<a href=x>",
    b"</p>",
    b"<select>",
    b"<template>",
    b"<script>",
    b"</script>",
    b"<title>",
    b"<plaintext>",
    b"<![CDATA[",
]
TOKENS += [
    b"<rss><channel><item>",
    b"<meta charset=utf-16>",
    b"<base href=http://[>",
    b"<frameset>",
    b"<noscript>",
    b"<body x=y>",
    b"\x1b$B",
]
TYPES = [
    None,
    "text/html",
    "text/html; charset=utf-8",
    "text/html; charset=utf-16le",
    "text/html; charset=hz",
    "\0;charset=\xff",
    "text/xml",
]
LINKS = ["</a>; rel=next", '<b>; rel="canonical alternate"; hreflang=de', '<http://[>; rel="', "<<<;;,,", "</x>; anchor='#'; rel=prev"]


def mutated(rng: random.Random, pages: list[bytes]) -> bytes:
    body = rng.choice(pages)
    for _ in range(rng.randrange(1, 12)):
        start = rng.randrange(len(body) + 1)
        end = min(len(body), start + int(2 ** (rng.random() * 14)))
        other = rng.choice(pages)
        cut = rng.randrange(len(other) + 1)
        piece = rng.choice((rng.choice(TOKENS), rng.randbytes(rng.randrange(8)), body[start:end], other[cut : cut + 2_000]))
        if rng.random() < 0.2:
            piece *= min(int(2 ** (rng.random() * 17)), MAX_REPEATED_BYTES // max(1, len(piece)))
        body = body[:start] + piece + body[end:]
    return body


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    pages = [file.read_bytes() for file in sorted(options.folder.rglob("*.html"))]
    rng = random.Random(options.seed)
    count = raised = slow = read_bytes = 0
    slowest = 0.0
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        body, content_type, links = mutated(rng, pages), rng.choice(TYPES), rng.choices(LINKS, k=rng.randrange(4))
        started = time.thread_time()
        try:
            parse_page(body, "https://site.test/a", content_type, link_headers=links, wants=ALL)
            page_s = time.thread_time() - started
            is_feed(content_type, body)
            parse_feed(body, "https://site.test/a", content_type)
        except Exception:
            raised += 1
            traceback.print_exc()
            continue
        cpu_s = max(page_s, time.thread_time() - started - page_s)
        count, read_bytes, slow = count + 1, read_bytes + len(body), slow + (cpu_s > MAX_CPU_S)
        if cpu_s > slowest:
            slowest = cpu_s
            print(f"slowest so far: page {count} of {len(body):,} bytes, {cpu_s:.3f} s", flush=True)
    print(f"{count} pages of {read_bytes / max(1, count):,.0f} bytes; {raised} raised, {slow} over {MAX_CPU_S} s, slowest {slowest:.3f} s")
    raise SystemExit(bool(raised or slow))


if __name__ == "__main__":
    main()
