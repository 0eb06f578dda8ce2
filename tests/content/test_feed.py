"""What feeds list, well-formed or not, and that no XML an enemy writes costs much or reads anything."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from crawlweb.content import feed as feed_module
from crawlweb.content.feed import is_feed, parse_feed
from crawlweb.records import Anchor, Page

URL = "https://site.test/blog/feed"
ATOM = 'xmlns="http://www.w3.org/2005/Atom"'

RSS = """<?xml version="1.0" encoding="UTF-8"?>
<rss version="2.0" xmlns:media="http://search.yahoo.com/mrss/" xmlns:content="http://purl.org/rss/1.0/modules/content/">
<channel><image><title>no</title><link>/no</link></image><title>News &amp;amp; more</title><link>https://site.test/</link><language>de-AT</language><image><url>/i.png</url></image>
<item><title>One</title><link> /1?a=1&amp;b=2 </link><guid isPermaLink="false">7</guid><media:title>no</media:title>
<enclosure url="/a.mp3" type="audio/mpeg"/><description>&lt;p&gt;bold&lt;b&gt;er&lt;/b&gt;&amp;nbsp;one</description></item>
<item><guid>https://site.test/2</guid><title><![CDATA[Two & 2]]></title><content:encoded><![CDATA[<p>x &amp; y]]></content:encoded></item>
</channel></rss>"""
ATOM_FEED = f"""<feed {ATOM} xml:base="/b/" xml:lang="fr"><title type="text">T</title><link rel="self" href="/self"/>
<link rel="next" href="?page=2"/><link rel="hub" href="/hub"/><entry><id>tag:x</id><link href="e1"/><title>E</title>
<link rel="enclosure" href="/a.mp3"/><link rel="alternate" type="application/json" href="/json"/>
<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><h1>He<i>ad</i></h1><p>body</p></div></content></entry></feed>"""
RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"
 xmlns:dc="http://purl.org/dc/elements/1.1/"><channel rdf:about="/feed"><title>R</title><link>/home</link></channel>
<item rdf:about="/1"><title>One</title><link>/1</link><dc:title>no</dc:title></item></rdf:RDF>"""


@pytest.mark.parametrize(
    ("feed", "page"),
    [
        (
            RSS,
            Page(
                URL,
                ["/1?a=1&b=2", "https://site.test/2", "https://site.test/"],
                "News & more",
                "News & more One bolder one Two & 2 x & y",
                anchors={
                    "/1?a=1&b=2": Anchor("link", ("",), "One"),
                    "https://site.test/2": Anchor("link", ("",), "Two & 2"),
                    "https://site.test/": Anchor("link", ("",), "News & more"),
                },
                language_declared="de-AT",
            ),
        ),
        (
            ATOM_FEED,
            Page(
                "https://site.test/b/",
                ["e1", "?page=2"],
                "T",
                "T E He ad body",
                anchors={"e1": Anchor("link", ("",), "E"), "?page=2": Anchor("link", ("next",), "T")},
                language_declared="fr",
            ),
        ),
        (
            RDF,
            Page(
                URL,
                ["/home", "/1"],
                "R",
                "R One",
                anchors={"/home": Anchor("link", ("",), "R"), "/1": Anchor("link", ("",), "One")},
            ),
        ),
        ("", Page(URL, [])),
        ("no feed at all", Page(URL, [])),
    ],
)
def test_feeds_give_the_pages_they_list_with_titles_and_text(feed: str, page: Page) -> None:
    assert parse_feed(feed.encode(), URL) == page


@pytest.mark.parametrize(
    ("feed", "hrefs", "title"),
    [
        ("<rss><channel><title>a & b &eacute;</title><item><link>/?a=1&b=2</link>", ["/?a=1&b=2"], "a & b é"),
        ("<rss><channel><title>left <br> open<item><link>/?a=1&b=2</link></item><item><link>/2", ["/?a=1&b=2", "/2"], "left open"),
        ("<rss><channel><item><link>/1</link></wrong></item><item><link>/2</link>", ["/1", "/2"], ""),
        ("\n \ufeff<rss><channel><item><link>/1</link><link>/1</link><link>#</link><link>mailto:a@b.test</link>", ["/1"], ""),
        ("<rss><channel><title>T<link>/1<item><title>U<link>/2", ["/2", "/1"], "T"),
        ("<rss><channel><item><link><![CDATA[/?a=1&b=2&amp;]]></link>", ["/?a=1&b=2&amp;"], ""),
        ("<rss><channel><item><link>/\x01\x0b1</link></item><item><link>/2</link>", ["/2"], ""),
        ("<rss><channel><item><link>/1</link></item>" + "<![CDATA[" * 3, ["/1"], ""),
        ("<rss><channel><title>&#xD800;&#56320;&#x1F600;</title><item><link>/1</link>", ["/1"], "\ufffd\ufffd😀"),
    ],
)
def test_malformed_feeds_are_read_as_far_as_they_go(feed: str, hrefs: list[str], title: str) -> None:
    page = parse_feed(feed.encode(), URL)
    assert ([href for href in page.hrefs if href in hrefs], page.title) == (hrefs, title)


def test_feeds_are_read_in_their_encoding() -> None:
    feed = '<?xml version="1.0" encoding="koi8-r"?><rss><channel><title>Привет</title></channel></rss>'
    assert parse_feed(feed.encode("koi8-r"), URL).title == "Привет"
    assert parse_feed(feed.encode("cp1251"), URL, "application/rss+xml; charset=windows-1251").title == "Привет"


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/xml", RSS, True),
        ("application/rss+xml", RSS, True),
        ("text/html", " <?xml version='1.0'?><!-- x --><!DOCTYPE rss><RSS>", True),
        (None, ATOM_FEED, True),
        (None, RDF, True),
        ("application/atom+xml; charset=utf-8", "", True),
        ("application/rss+xml", "<!doctype html><html><rss>", False),
        ("application/xml", "<urlset>", False),
        ("application/xml", "<feedback>", False),
        ("text/html", "rss feed", False),
        (None, "<!-- " * 2_000, False),
    ],
)
def test_a_feed_is_told_by_its_root(content_type: str | None, body: str, expected: bool) -> None:
    assert is_feed(content_type, body.encode()) is expected
    assert is_feed(content_type, body.encode("utf-16")) is expected


def ten_times(letters: str, declared: str, sign: str) -> str:
    """Entities each of which stands for ten of the one before."""
    return "".join(f'<!ENTITY {declared}{of} "{(sign + what + ";") * 10}">' for what, of in pairwise(letters))


def test_no_entity_is_expanded_and_nothing_is_read() -> None:
    laughs = f'<!DOCTYPE r [<!ENTITY a "ha">{ten_times("abcdefghijklm", "", "&")}]>'
    page = parse_feed(f"{laughs}<rss><channel><title>&m;</title><item><link>/&m;</link></item></channel></rss>".encode(), URL)
    assert (page.title, page.hrefs) == ("&m;", ["/&m;"])
    outside = '<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd"><!ENTITY % p SYSTEM "http://127.0.0.1:1/">%p;]>'
    assert parse_feed(f"{outside}<rss><channel><title>&a;</title></channel></rss>".encode(), URL).title == "&a;"


HOSTILE = {
    "parameter entities": f'<!DOCTYPE r [<!ENTITY % a "ha">{ten_times("abcdefghijklm", "% ", "%")}%m;]><rss><channel><title>x</title>',
    "default attributes": "<!DOCTYPE r [" + "".join(f'<!ATTLIST a b{n} CDATA "x">' for n in range(100_000)) + "]>" + "<a/>" * 9_000,
    "deep": "<rss><channel>" + "<item>" * 500_000,
    "wide": "<rss><channel>" + "<item><link>/1</link></item>" * 100_000,
    "attributes": "<rss " + "".join(f'a{n}="" ' for n in range(200_000)) + ">",
    "namespaces": "<rss " + "".join(f'xmlns:a{n}="{n}" ' for n in range(100_000)) + ">",
    "references": "<rss><channel><title>" + "&amp;" * 600_000,
    "bare references": "<rss><channel><title>" + "&" * 2_000_000,
    "open CDATA": "<rss>" + "<![CDATA[" * 300_000,
    "open comments": "<rss>" + "<!--" * 700_000,
    "hostile HTML": "<rss><channel><item><description><![CDATA[" + "<b a=1>" * 200_000,
    "titles in titles": "<rss><channel>" + "<item><title>" * 100 + "x" * 1_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_feeds_take_bounded_time(name: str) -> None:
    body = HOSTILE[name].encode()
    started = time.thread_time()
    parse_feed(body, URL)
    assert time.thread_time() - started < 2


def test_what_is_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "MAX_EVENTS", 50)
    page = parse_feed(b"<rss><channel><title>T</title>" + b"".join(b"<item><link>/%d</link></item>" % n for n in range(100)), URL)
    assert page.title == "T"
    assert page.hrefs == [f"/{n}" for n in range(len(page.hrefs))]
    assert 10 < len(page.hrefs) < 25


def test_no_bytes_raise() -> None:
    rng = random.Random(3)
    tokens = [b"<rss>", b"<channel>", b"<item>", b"</item>", b"<title>", b"</title>", b"<link>", b"</link>", b"<link href='", b"'/>"]
    tokens += [
        b"<![CDATA[",
        b"]]>",
        b"<!--",
        b"-->",
        b"<!DOCTYPE x [",
        b"]>",
        b"<!ENTITY a 'b'>",
        b"&a;",
        b"&#0;",
        b"&#xD800;",
        b"&",
        b"<?",
    ]
    tokens += [b"<feed xmlns='http://www.w3.org/2005/Atom' xml:base='http://['>", b"<entry>", b"\0", b"\xff", b"http://[", b"x", b">", b'"']
    for _ in range(1_500):
        body = b"".join(rng.choices(tokens, k=rng.randrange(40)))
        page = parse_feed(body, rng.choice([URL, "", "http://["]), rng.choice([None, "text/xml; charset=utf-16", "\0"]))
        "".join((page.title, page.text, *page.hrefs)).encode()
        is_feed(None, body)
