"""Link headers, srcset, and what a page says of its links and of itself beside them."""

from __future__ import annotations

import pytest

from crawlweb.content import page as page_module
from crawlweb.content.links import MAX_CANDIDATES, MAX_HEADER_LINKS, HeaderLink, header_links, srcset_urls
from crawlweb.content.page import Wants, parse_page
from crawlweb.records import Anchor

URL = "https://site.test/dir/page.html"
NEXT = HeaderLink("https://site.test/2", "next")


@pytest.mark.parametrize(
    ("values", "links"),
    [
        (["</2>; rel=next"], [NEXT]),
        (['</2>;rel="next"'], [NEXT]),
        (["  ,, </2> ; REL = next ,"], [NEXT]),
        (['</2>; rel=next; rel=prev; title="a, <b>; c\\""'], [NEXT]),
        (["</2>; rel=next, <x>; rel='prev'"], [NEXT, HeaderLink("https://site.test/dir/x", "'prev'")]),
        (["</2>; rel=next", "<//other.test/>; rel=canonical"], [NEXT, HeaderLink("https://other.test/", "canonical")]),
        (
            ['</de>; rel="alternate"; hreflang=de; hreflang="de-AT"; type="text/html"'],
            [HeaderLink("https://site.test/de", "alternate", "text/html", ("de", "de-AT"))],
        ),
        (["</2>; rel=next; anchor=''; anchor='#x'"], []),
        (["</2>; rel=next; anchor='#part'", '</2>; rel=next; anchor="#part"'], [NEXT]),
        (['</2>; rel=next; anchor="/other"'], []),
        (["</2>", "</2>; rel", '</2>; rel=""', "<mailto:a@b.test>; rel=next", "<http://[>; rel=next"], []),
        (["nonsense", "<open; rel=next"], []),
        (["nonsense <x", "</2>; rel=next"], [HeaderLink("https://site.test/dir/x,</2", "next")]),
        (['</2>; rel="next'], [NEXT]),
        (["</2>; rel=next;;; x=; =y"], [NEXT]),
        ([], []),
    ],
)
def test_link_headers_are_read_as_rfc_8288_says_and_malformed_ones_do_no_harm(values: list[str], links: list[HeaderLink]) -> None:
    assert header_links(values, URL) == links


def test_link_headers_are_bounded() -> None:
    assert len(header_links(["</2>; rel=next"] * 10_000, URL)) == MAX_HEADER_LINKS
    for hostile in ('<a>; x="' + "\\" * 1_000_000, "<a>" + ";" * 1_000_000, "<" * 1_000_000, "<a>" + "; a=b" * 200_000, " " * 1_000_000):
        assert header_links([hostile], URL) == []


@pytest.mark.parametrize(
    ("srcset", "urls"),
    [
        ("", []),
        ("/a.png", ["/a.png"]),
        ("/a.png 1x, /b.png 2x", ["/a.png", "/b.png"]),
        ("/a,b.png 100w,/c.png, /d.png", ["/a,b.png", "/c.png", "/d.png"]),
        (" ,, /a.png (x,y) , /b.png", ["/a.png", "/b.png"]),
        ("/a.png (open, /b.png", ["/a.png"]),
        (",,,", []),
        ("/a " * 3, ["/a"]),
        (", ".join(f"/{n} {n}w" for n in range(100)), [f"/{n}" for n in range(MAX_CANDIDATES)]),
    ],
)
def test_srcset_gives_the_urls_of_its_candidates(srcset: str, urls: list[str]) -> None:
    assert list(srcset_urls(srcset)) == urls


def test_anchors_tell_the_first_tag_all_rels_and_the_first_text_of_an_href() -> None:
    html = """<link rel=next href=/2><a href=/1 rel=nofollow><img src=/i.png></a><a href=/1> One  <b>b</b>ig </a><a href=/1>more</a>
    <area href=/area alt=Area><iframe src=/frame></iframe><meta http-equiv=refresh content='0;/meta'><a href=/2 rel=nofollow>two</a>
    <a href=#x>top</a>"""
    page = parse_page(html.encode(), URL, wants=Wants(anchor_text=True), link_headers=["</3>; rel=prev"])
    assert page.anchors == {
        "https://site.test/3": Anchor("header", ("prev",)),
        "/2": Anchor("link", ("next", "nofollow"), "two"),
        "/1": Anchor("a", ("nofollow", ""), "One big"),
        "/area": Anchor("area", ("",), "Area"),
        "/frame": Anchor("iframe"),
        "/meta": Anchor("meta"),
    }
    assert page.hrefs == list(page.anchors)
    assert not any(anchor.text for anchor in parse_page(html.encode(), URL).anchors.values())


def test_anchor_texts_are_cut_one_by_one_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MAX_ANCHORS_CHARS", 1_000)
    html = "".join(f"<a href=/{n}>{'x' * 600}</a>" for n in range(4)).encode()
    texts = [len(anchor.text) for anchor in parse_page(html, URL, wants=Wants(anchor_text=True)).anchors.values()]
    assert texts == [page_module.MAX_ANCHOR_CHARS, page_module.MAX_ANCHOR_CHARS, 0, 0]


def test_images_are_links_if_wanted() -> None:
    html = b"""<picture><source srcset='/s.webp 1x, /s2.webp 2x'><img src=/i.png srcset='/i2.png 2x'></picture><img src=data:x>
    W<img src=/i.png>ord"""
    wanted = parse_page(html, URL, wants=Wants(images=True))
    assert {href: anchor.tag for href, anchor in wanted.anchors.items()} == {
        "/s.webp": "source",
        "/s2.webp": "source",
        "/i.png": "img",
        "/i2.png": "img",
    }
    assert wanted.text == "Word"
    assert parse_page(html, URL).hrefs == []
    many = b"<p>" * 7_000 + html
    assert parse_page(many, URL, wants=Wants(images=True)).hrefs == wanted.hrefs


@pytest.mark.parametrize(
    ("headers", "html", "canonical"),
    [
        (["</h>; rel=canonical"], "<link rel=canonical href=/e>", "https://site.test/h"),
        (["<ftp://x/>; rel=canonical"], "<link rel=canonical href=/e>", "https://site.test/e"),
        (["</h>; rel='x canonical'"], "<base href=/b/>", None),
        (['<h>; rel="x Canonical"'], "<base href=/b/>", "https://site.test/dir/h"),
    ],
)
def test_the_canonical_of_the_header_goes_before_that_of_the_page(headers: list[str], html: str, canonical: str | None) -> None:
    page = parse_page(html.encode(), URL, link_headers=headers)
    assert page.canonical == canonical
    assert page.hrefs == []


@pytest.mark.parametrize(
    ("html", "og_url"),
    [
        ("<meta property=og:url content=/o><meta property=og:url content=/later>", "https://site.test/o"),
        ("<base href=//cdn.test/><meta property=og:url content=o>", "https://cdn.test/o"),
        ("<meta property=og:url content=javascript:1>", None),
        ("<meta property=og:url>", None),
        ("<meta property=og:title content=/o>", None),
    ],
)
def test_og_url_is_absolute_and_kept_apart(html: str, og_url: str | None) -> None:
    page = parse_page(html.encode(), URL)
    assert (page.og_url, page.canonical) == (og_url, None)


def test_hreflangs_are_absolute_and_bounded() -> None:
    html = (
        "<base href=/b/><link rel=alternate hreflang=de href=de><link rel=alternate hreflang=x-default href=/><link hreflang=fr href=/fr>"
    )
    page = parse_page(html.encode(), URL, link_headers=["</it>; rel=alternate; hreflang=it"])
    assert page.hreflang == (("it", "https://site.test/it"), ("de", "https://site.test/b/de"), ("x-default", "https://site.test/"))
    many = "".join(f"<link rel=alternate hreflang=l{n} href=/{n}>" for n in range(1_000))
    assert len(parse_page(many.encode(), URL).hreflang) == page_module.MAX_HREFLANGS


@pytest.mark.parametrize(
    ("html", "language"),
    [
        ("<html lang=' de-AT '>", "de-AT"),
        ("<html xml:lang=fr>", "fr"),
        ("<html lang=''><meta http-equiv=Content-Language content='pt-BR, en'>", "pt-BR"),
        ("<meta http-equiv=content-language content=x><html lang=en>", "en"),
        ("<!doctype html><html class=x lang='ja'>" + "<p>x" * 7_000, "ja"),
        ("<html lang=" + "x" * 100 + ">", "x" * 35),
        ("<p lang=en>", ""),
    ],
)
def test_the_language_is_what_the_root_declares(html: str, language: str) -> None:
    assert parse_page(html.encode(), URL).language_declared == language


@pytest.mark.parametrize(
    ("html", "structured"),
    [
        ("<script type='application/ld+json'>{}</script>", ("json-ld",)),
        ("<div class=x itemscope itemtype=y><p typeof='Person'>", ("microdata", "rdfa")),
        ("itemscope > itemscope <!-- itemscope --> <b>itemscope</b> x typeof=y", ()),
        ("<p itemscope>" + "<p>x" * 7_000, ("microdata",)),
        ("itemscope " * 200 + "<p itemscope>", ()),
    ],
)
def test_structured_data_is_seen_inside_tags(html: str, structured: tuple[str, ...]) -> None:
    assert parse_page(html.encode(), URL, wants=Wants(structured=True)).structured == structured
    assert parse_page(html.encode(), URL).structured == ()
