"""What one parse gives, on pages as they are meant, as they are, and as an enemy writes them."""

from __future__ import annotations

import random
import time

import pytest

from crawlweb.content import page as page_module
from crawlweb.content import taming
from crawlweb.content.page import Wants, parse_page

URL = "https://site.test/dir/page.html"


@pytest.mark.parametrize(
    ("html", "hrefs"),
    [
        ("<a href=/a>x</a><a href=b>y</a><a href=/a>again</a>", ["/a", "b"]),
        ('<a href=" \n/x?a=1&amp;b=2&#x26;c\t">', ["/x?a=1&b=2&c"]),
        ("<A HREF='UPPER'>", ["UPPER"]),
        ("<a href=/1><area href=/2><iframe src=/3></iframe><a href=/4>", ["/1", "/2", "/3", "/4"]),
        ("<frameset><frame src=menu.html><frame src=main.html></frameset>", ["menu.html", "main.html"]),
        ("<link rel=next href=/2><link rel='prev nofollow' href=/0><link rel=preload href=/no>", ["/2", "/0"]),
        ("<link rel=alternate hreflang=de href=/de>", ["/de"]),
        ("<link rel=alternate type=application/rss+xml href=/rss>", ["/rss"]),
        ("<link rel=alternate type=application/json+oembed href=/no><link rel='alternate stylesheet' href=/no>", []),
        ("<meta http-equiv=Refresh content=\"5; URL='/next'\">", ["/next"]),
        ("<meta http-equiv=refresh content='0;/bare'>", ["/bare"]),
        ("<meta http-equiv=refresh content=30><meta http-equiv=refresh content=''>", []),
        ("<a href='#top'><a href=JavaScript:void(0)><a href=mailto:a@b.c><a href=tel:1><a href=data:,x>", []),
        ("<a href=''><a href><a>", []),
        ("<!-- <a href=/no> --><script>'<a href=/no>'</script><a href=/yes>", ["/yes"]),
        ("<template><a href=/no></template><a href=/yes>", ["/yes"]),
        ("<noscript><a href=/plain></noscript>", ["/plain"]),
        ("<svg><a href=/svg></a></svg><table><a href=/foster><tr><td><a href=/cell>", ["/svg", "/foster", "/cell"]),
        ("<p><a href=/open><p><div></a><b><i></b></i><a href=/end", ["/open"]),
        ("<a href='/a\0b'>", ["/a\ufffdb"]),
        ("<a href='/ü'><a href='/日本'>", ["/ü", "/日本"]),
        ("<a href='/a' x=\"<a href='/b'>", []),
    ],
)
def test_links_come_in_document_order_once_and_only_where_a_browser_sees_them(html: str, hrefs: list[str]) -> None:
    assert parse_page(html.encode(), URL, "text/html; charset=utf-8").hrefs == hrefs


@pytest.mark.parametrize(
    ("html", "base_url"),
    [
        ("", URL),
        ("<base target=_blank><base href=/x/><base href=/y/>", "https://site.test/x/"),
        ("<base href='//cdn.test/a/'>", "https://cdn.test/a/"),
        ("<base href='javascript:1'>", URL),
        ("<base href='http://[bad'>", URL),
        ("<base href=''>", URL),
    ],
)
def test_the_first_base_is_what_hrefs_are_relative_to(html: str, base_url: str) -> None:
    assert parse_page(html.encode(), URL).base_url == base_url


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title> A &amp;\n B </title><title>second</title>", "A & B"),
        ("<title><b>raw</b></title>", "<b>raw</b>"),
        ("<svg><title>icon</title></svg><title>late</title>", "late"),
        ("<p>none", ""),
        ("<title>" + "x" * 5000, "x" * page_module.MAX_TITLE_CHARS),
    ],
)
def test_the_title_is_the_first_one_folded(html: str, title: str) -> None:
    assert parse_page(html.encode(), URL).title == title


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>one<p>two<div>three</div>four<br>five", "one two three four five"),
        ("W<b>or</b>d<i></i>s <a href=x>link</a>ed, re<!-- React -->act", "Words linked, react"),
        ("<td>1<td>2", "12"),
        ("<table><tr><td>1<td>2</table><ul><li>3<li>4</ul>", "1 2 3 4"),
        ("<title>t</title>a<script>b</script><style>c</style><noscript>d</noscript><template>e</template>f", "af"),
        ("a&nbsp;&lt;b&gt;  \n\t c", "a <b> c"),
        ("<iframe>old</iframe><select><option>x<option>y</select>", "x y"),
        ("<pre>a\n  b</pre>", "a b"),
    ],
)
def test_text_is_what_is_visible_with_blocks_apart(html: str, text: str) -> None:
    assert parse_page(html.encode(), URL).text == text


def test_text_is_bounded() -> None:
    assert parse_page(b"<p>word" * 1000, URL, max_text_chars=9).text == "word word"


@pytest.mark.parametrize(
    ("html", "canonical"),
    [
        ("<base href=/b/><link rel=canonical href=c>", "https://site.test/b/c"),
        ("<link rel='x Canonical' href=//other.test/>", "https://other.test/"),
        ("<link rel=canonical href=ftp://x/>", None),
        ("<link rel=canonical><link rel=canonical href=/late>", None),
        ("", None),
    ],
)
def test_canonical_is_absolute_http(html: str, canonical: str | None) -> None:
    assert parse_page(html.encode(), URL).canonical == canonical


def test_what_meta_elements_say_is_handed_on_as_written() -> None:
    html = "<meta name=ROBOTS content='NoIndex, follow'><meta name=crawlweb content=nofollow><meta name=robots><meta content=none>"
    assert parse_page(html.encode(), URL).robots == (("ROBOTS", "NoIndex, follow"), ("crawlweb", "nofollow"))


def test_the_rels_of_all_links_to_a_url_are_told() -> None:
    html = (
        "<a href=/1 rel=nofollow>1</a><a href=/2 rel='ugc sponsored'>2</a><a href=/2 rel=noopener>2</a><a href=/3 rel=nofollow>3</a>"
        "<a href=/3>3</a><a href=/4>4</a><a href=/4 rel=nofollow>4</a><area href=/5 rel=nofollow>" + "<a href=/6 rel=x{}>6</a>" * 3
    )
    page = parse_page(html.encode(), URL)
    assert page.hrefs == ["/1", "/2", "/3", "/4", "/5", "/6"]
    assert {href: anchor.rels for href, anchor in page.anchors.items()} == {
        "/1": ("nofollow",),
        "/2": ("ugc sponsored", "noopener"),
        "/3": ("nofollow", ""),
        "/4": ("", "nofollow"),
        "/5": ("nofollow",),
        "/6": ("x{}",),
    }


@pytest.mark.parametrize(
    ("body", "content_type", "title", "encoding"),
    [
        ("<title>Привет</title>".encode("koi8-r"), "text/html; charset=koi8-r", "Привет", "koi8-r"),
        ("<meta charset=shift_jis><title>日本</title>".encode("cp932"), None, "日本", "cp932"),
        ("\ufeff<title>é</title>".encode("utf-16-be"), None, "é", "utf-16-be"),
        (b"<title>caf\xe9</title>", "text/html; charset=utf-8", "caf\ufffd", "utf-8"),
        ("<title>日本</title>".encode()[:11], "text/html; charset=utf-8", "日\ufffd", "utf-8"),
    ],
)
def test_pages_are_read_in_their_encoding(body: bytes, content_type: str | None, title: str, encoding: str) -> None:
    page = parse_page(body, URL, content_type)
    assert (page.title, page.encoding) == (title, encoding)


def numbered(pattern: bytes, times: int) -> bytes:
    return b"".join(pattern % n for n in range(times))


# What costs an unguarded parser seconds to hours, or gigabytes, at a size that keeps the test short.
HOSTILE = {
    "deep nesting": b"<div>" * 100_000,
    "deep lists": b"<ul><li>" * 50_000,
    "ends that match nothing": b"<span>" * 50_000 + b"</x>" * 50_000,
    "formatting left open": b"<p>" + numbered(b"<b a=%d>", 2_900) + b"<p>x" * 2_900,
    "formatting left open, much": b"<p>" + numbered(b"<FONT\na=%d>", 50_000) + b"<p>x" * 50_000,
    "attributes": b"<a " + numbered(b"a%d ", 200_000),
    "attributes with quoted ends": b"<a " + numbered(b'a%d=">"', 100_000),
    "attributes of body": numbered(b"<body a%d>", 100_000),
    "names of attributes": numbered(b"<a a%d>", 300_000),
    "attributes of many tags": (b"<p " + numbered(b"%x ", 1_800) + b">\n") * 160,
    "attributes of large tags": (b"<p " + numbered(b"%x ", 3_500) + b">") * 80,
    "names in values": numbered(b'<a b=" x="n%d>', 100_000),
    "many tags": b"<td>x" * 150_000,
    "links in one another": b"<svg>" + numbered(b"<a href=/%d>", 5_900) + b"x" * 1_000_000,
    "images": b"<img src=x srcset='x 1x,'>" * 60_000,
    "nested noscript": numbered(b"<noscript><a href=%d>", 50_000),
    "nested templates": b"<template>" * 50_000,
    "comments first": b"<!>" * 100_000 + b"<script></script>" * 50_000,
    "only <": b"<" * 1_000_000,
    "only NUL": b"\0" * 1_000_000,
    "open comments": b"<!--" * 250_000,
    "spaces in a refresh": b"<meta http-equiv=refresh content='" + b" ;" * 500_000 + b"'>",
    "no character": b"\xff" * 1_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_take_bounded_time(name: str) -> None:
    started = time.thread_time()
    parse_page(HOSTILE[name], URL, wants=Wants(anchor_text=True, images=True, structured=True))
    assert time.thread_time() - started < 2


def test_scripts_of_large_pages_are_taken_out_and_their_links_kept() -> None:
    script = b"<script>var x = '<a href=/no>" + numbered(b" word%d", 120_000) + b"'</script>"
    html = b"<title>T</title><p>a" + script + b"b<a href=/1>c</a><SCRIPT src=x></SCRIPT\n>d<script>" + script[:-9]
    page = parse_page(html, URL)
    assert (page.title, page.text, page.hrefs) == ("T", "a bc d", ["/1"])


def test_large_pages_are_cut_where_tags_get_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taming, "LARGE_BYTES", 40_000)
    monkeypatch.setattr(taming, "MAX_TAGS", 3_000)
    html = numbered(b"<a href=/%d>x</a>", 4_000)
    assert 1_000 < len(parse_page(html, URL).hrefs) <= 1_500
    assert len(parse_page(html[:39_000], URL).hrefs) > 1_500


def test_links_survive_depth_and_number() -> None:
    assert parse_page(b"<div>" * 100_000 + b"<a href=/deep>x</a>", URL).hrefs == ["/deep"]
    many = parse_page(numbered(b'<li><a href="/%d">x</a>', 100_000), URL)
    assert len(many.hrefs) == 100_000
    assert many.text == "x " * 99_999 + "x"


@pytest.mark.parametrize("seed", range(20))
def test_a_flat_parse_finds_what_the_tree_has(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    parts = ["<div class=x>", "</div>", "<p>", "<b>", "</b>", "<ul><li>", "</ul>", "word ", "<!-- <br--> -->", "<br>"]
    parts += ["<script>if (a<b) '<a href=/no>'</script>", "<img src=x>", "<h1 title=h>", "</h1>"]
    parts += [f"<a href=/{n}>link</a> " for n in range(5)]
    html = "".join(rng.choices(parts, k=9_000)).encode()
    flat = parse_page(html, URL)
    monkeypatch.setattr(taming, "MAX_TAGS_NESTED", len(html))
    nested = parse_page(html, URL)
    assert flat.hrefs == nested.hrefs
    assert flat.text.replace(" ", "") == nested.text.replace(" ", "")


def test_no_bytes_raise() -> None:
    rng = random.Random(2)
    tokens = [b"<a href=", b"<base href=", b"<meta ", b"http-equiv=refresh content=", b"<link rel=canonical href="]
    tokens += [b"<title>", b"</title>", b"<!--", b"-->", b">", b"'", b'"', b" ", b"x", b"http://[", b"&#x110000;"]
    tokens += [b"<svg>", b"<table>", b"<select>", b"<template>", b"</p>", b"\0", b"\xff", b"\xed\xa0\x80"]
    tokens += [b"<b>", b"</b>", b"<div>", b"<frameset>", b"<noscript>", b"</body>", b"<head>"]
    for _ in range(2_000):
        body = b"".join(rng.choices(tokens, k=rng.randrange(60)))
        url = rng.choice([URL, "", "nonsense", "http://["])
        page = parse_page(body, url, rng.choice([None, "text/html; charset=utf-16", "\0"]))
        "".join((page.title, page.text, *page.hrefs)).encode()


def test_headings_are_the_first_few_of_the_three_highest_levels() -> None:
    html = "<h1> Boats <b>for</b>\n hire</h1><h4>Small</h4><h2></h2><div><h3>Prices</h3></div>" + "<h2>More</h2>" * 100
    assert parse_page(html.encode(), "https://a.org/").headings[:3] == ("Boats for hire", "Prices", "More")
    assert len(parse_page(html.encode(), "https://a.org/").headings) < 30
    assert len(parse_page(b"<h1>" + b"long " * 1000, "https://a.org/").headings[0]) <= 200


def test_headings_within_headings_cost_no_more_than_others() -> None:
    begun = time.process_time()
    parse_page(b"<h1><div>" * 2_000 + b" " * 1_000_000, "https://a.org/")
    assert time.process_time() - begun < 1
