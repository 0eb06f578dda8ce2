"""Malformed input of every kind: nothing leaves the parsers but a page, and none takes long.

FUZZ_EXAMPLES=20000 makes it a long run; bench/fuzz.py mutates real pages.
"""

from __future__ import annotations

import os
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawlweb.content.charset import decode
from crawlweb.content.feed import is_feed, parse_feed
from crawlweb.content.page import Wants, parse_page
from crawlweb.records import Page

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "150"))
MAX_CPU_S = 2
ALL = Wants(anchor_text=True, images=True, structured=True)

PAGES = [
    b"<!doctype html><html lang=de><head><meta charset=koi8-r><base href=/b/><title>T</title><link rel=canonical href=/c>"
    b"<link rel=alternate hreflang=fr href=/fr><meta property=og:url content=/o><meta name=robots content=noindex></head>"
    b"<body><a href='/1' rel=nofollow>one <b>two</b></a><img src=/i srcset='/i 1x, /j 2x'><svg><a href=/2><title>x</title></a></svg>"
    b"<table><tr><td>1<p></table><iframe src=/f></iframe><script type='application/ld+json'>{}</script><p itemscope>\xc1\xd2</body></html>",
    b"<frameset><frame src=a><frame src=b></frameset><noscript><a href=/n></noscript><template><b a=1></template><!-- x -->",
    b"<meta http-equiv=refresh content=\"0; url='/r'\"><meta http-equiv=content-type content='text/html; charset=iso-2022-jp'>"
    b'\x1b$B$"\x1b(B',
]
FEEDS = [
    b"<?xml version='1.0' encoding='koi8-r'?><!DOCTYPE rss [<!ENTITY a 'b'>]><rss><channel><title>&a;\xc1</title><item><link>/1</link>"
    b"<description>&lt;p&gt;x<![CDATA[<b>&]]></description></item></channel></rss>",
    b"<feed xmlns='http://www.w3.org/2005/Atom' xml:base='/x/'><entry><title type='xhtml'><i>t</i></title><link href='/1'/></entry></feed>",
]
LINKS = [
    "</a>; rel=\"next\", <b>;rel=canonical;title*=UTF-8''x",
    "<//x.test/>; rel=alternate; hreflang=de; anchor='#a'",
    '<>; rel="',
    ";,<",
]
TOKENS = [
    b"<",
    b">",
    b"'",
    b'"',
    b"=",
    b"/",
    b"\0",
    b"\xff\xfe",
    b"&#xD800;",
    b"<!--",
    b"-->",
    b"<svg>",
    b"<table>",
    b"<b x>",
    b"]]>",
    b" ",
]
TYPES = [
    "text/html",
    "text/html; charset=",
    "text/html; charset=utf-16",
    "text/html;charset=\0",
    "application/rss+xml; charset='big5",
    "",
    "é",
]
URLS = ["https://site.test/a/b", "http://[", "", "nonsense", "https://site.test:99999999/"]


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """One of `seeds`, with pieces cut out, doubled, replaced and inserted."""
    body = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, len(body)))
        end = draw(st.integers(start, min(len(body), start + 60)))
        new = draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=6), st.just(body[start:end] * draw(st.integers(0, 40)))))
        body = body[:start] + new + body[end:]
    return body


def check(page: Page, started: float) -> None:
    assert time.thread_time() - started < MAX_CPU_S
    assert page.hrefs == list(page.anchors)
    for url in (page.canonical, page.og_url, *(url for _, url in page.hreflang)):
        assert url is None or url[:8].lower().startswith(("http://", "https://"))
    for text in (
        page.title,
        page.text,
        page.language_declared,
        page.main_text,
        *page.headings,
        *page.hrefs,
        *(anchor.text for anchor in page.anchors.values()),
    ):
        text.encode()


def fuzz(examples: int = EXAMPLES) -> settings:
    return settings(max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))


@fuzz()
@given(
    mutated(PAGES),
    st.sampled_from([*TYPES, None]),
    st.lists(st.sampled_from(LINKS) | st.text(max_size=30), max_size=3),
    st.sampled_from(URLS),
)
def test_pages_headers_and_charsets(body: bytes, content_type: str | None, links: list[str], url: str) -> None:
    started = time.thread_time()
    check(parse_page(body, url, content_type, link_headers=links, wants=ALL), started)
    decode(body, content_type)


@fuzz()
@given(mutated(FEEDS), st.sampled_from([*TYPES, None]), st.sampled_from(URLS))
def test_feeds(body: bytes, content_type: str | None, url: str) -> None:
    started = time.thread_time()
    is_feed(content_type, body)
    check(parse_feed(body, url, content_type), started)


@fuzz(EXAMPLES // 10)
@given(st.binary(min_size=1, max_size=12), st.integers(1, 60_000), st.sampled_from(PAGES + FEEDS))
def test_pieces_repeated_many_times(piece: bytes, times: int, before: bytes) -> None:
    body = before + piece * times
    started = time.thread_time()
    check(parse_page(body, URLS[0], wants=ALL), started)
    started = time.thread_time()
    check(parse_feed(body, URLS[0]), started)


@settings(deadline=None, derandomize=True, max_examples=EXAMPLES)
@given(st.text(st.sampled_from("ab é日.\t\n\x0b\x0c \x1c\x1f\x85\xa0\xad\u1680\u2003\u200b\u2028\u202f\u205f\u3000\ufeff"), max_size=40))
def test_every_white_space_of_a_text_is_one_space(text: str) -> None:
    assert parse_page(f"<p>{text}</p>".encode(), "https://a.test/", "text/html; charset=utf-8").text == " ".join(text.split())
