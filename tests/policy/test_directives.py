"""Meta robots, X-Robots-Tag and rel as they are found."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlweb.policy.directives import Directives, directives, link_is_nofollow

NOTHING = ""
NOINDEX, NOFOLLOW, BOTH = "noindex", "nofollow", "noindex nofollow"


def told(found: Directives) -> str:
    return " ".join(name for name in ("noindex", "nofollow") if getattr(found, name))


@pytest.mark.parametrize(
    ("value", "means"),
    [
        ("noindex", NOINDEX),
        ("nofollow", NOFOLLOW),
        ("noindex, nofollow", BOTH),
        ("noindex,nofollow", BOTH),
        ("NoIndex , NOFOLLOW", BOTH),
        ("noindex nofollow", BOTH),
        ("noindex; nofollow", BOTH),
        ("none", BOTH),
        ("NONE", BOTH),
        ("all", NOTHING),
        ("index, follow", NOTHING),
        ("all, noindex", NOINDEX),
        ("noindex, follow", NOINDEX),
        ("noindex, index", NOINDEX),
        ("noarchive, nosnippet, noimageindex, notranslate", NOTHING),
        ("noindexing", NOTHING),
        ("no-index", NOTHING),
        ("", NOTHING),
        (" , ,, ", NOTHING),
        (",noindex,", NOINDEX),
        ("max-snippet:-1, noindex", NOINDEX),
        ("max-image-preview:large, max-video-preview:-1", NOTHING),
        ("noindex, max-snippet:20", NOINDEX),
        ("unavailable_after: 25 Jun 2010 15:00:00 PST", NOTHING),
        ("unavailable_after: Wednesday, 25-Jun-10 15:00:00 PST", NOTHING),
        ("unavailable_after: Wednesday, 25-Jun-10 15:00:00 PST, noindex", NOINDEX),
        ("unavailable_after: 2010-06-25T15:00:00+02:00, nofollow", NOFOLLOW),
        ("noindex, unavailable_after: 25 Jun 2010 15:00:00 PST, nofollow", BOTH),
        ("\u00a0noindex\u00a0", NOINDEX),
    ],
)
def test_header_and_meta_say_the_same_in_the_same_words(value: str, means: str) -> None:
    assert told(directives([value], [])) == means
    assert told(directives([], [("robots", value)])) == means
    assert told(directives([], [("crawlweb", value)])) == means


@pytest.mark.parametrize(
    ("values", "means"),
    [
        ([], NOTHING),
        (["crawlweb: noindex"], NOINDEX),
        (["CrawlWeb: noindex"], NOINDEX),
        (["crawlweb/1.0: noindex"], NOINDEX),
        (["crawlweb :nofollow"], NOFOLLOW),
        (["robots: noindex"], NOINDEX),
        (["*: noindex"], NOINDEX),
        (["googlebot: noindex"], NOTHING),
        (["crawl: noindex"], NOTHING),
        (["crawlweb-news: noindex"], NOTHING),
        (["mycrawlweb: noindex"], NOTHING),
        # A user agent owns the rest of its header, up to the next one.
        (["otherbot: noindex, nofollow"], NOTHING),
        (["crawlweb: noindex, nofollow"], BOTH),
        (["noindex, otherbot: nofollow"], NOINDEX),
        (["otherbot: noindex, crawlweb: nofollow"], NOFOLLOW),
        (["crawlweb: nofollow, otherbot: noindex, none"], NOFOLLOW),
        (["googlebot: bingbot: noindex"], NOTHING),
        (["googlebot: crawlweb: noindex"], NOINDEX),
        # But no other header.
        (["otherbot: noindex", "nofollow"], NOFOLLOW),
        (["googlebot: nofollow", "otherbot: noindex, nofollow"], NOTHING),
        (["noindex", "nofollow"], BOTH),
        (["all", "none"], BOTH),
        # Values are no user agents, and go with the one before them.
        (["crawlweb: unavailable_after: 25 Jun 2010 15:00:00 PST, noindex"], NOINDEX),
        (["googlebot: unavailable_after: Wed, 25 Jun 2010 15:00:00 PST, noindex"], NOTHING),
        (["googlebot: max-snippet:5, noindex", "crawlweb: max-snippet:5, nofollow"], NOFOLLOW),
        (["unavailable_after: noindex"], NOTHING),
        (["max-snippet: none"], NOTHING),
        (["15:00:00 noindex"], NOINDEX),
        ([":noindex", "::", ": ,:"], NOTHING),
    ],
)
def test_a_header_may_be_for_somebody_else(values: list[str], means: str) -> None:
    assert told(directives(values, [])) == means


@pytest.mark.parametrize(
    ("meta", "means"),
    [
        ([("ROBOTS", "noindex")], NOINDEX),
        ([(" robots ", "noindex")], NOINDEX),
        ([("CrawlWeb", "nofollow")], NOFOLLOW),
        ([("robots", "noindex"), ("crawlweb", "nofollow")], BOTH),
        ([("robots", "noindex"), ("crawlweb", "all")], NOINDEX),
        ([("robots", "noindex"), ("robots", "nofollow")], BOTH),
        ([("googlebot", "none"), ("robot", "none"), ("", "none"), ("description", "none")], NOTHING),
        ([("crawlweb-news", "none"), ("crawl", "none")], NOTHING),
        ([("robots", ""), ("robots", "\n")], NOTHING),
    ],
)
def test_a_meta_element_counts_by_its_name(meta: list[tuple[str, str]], means: str) -> None:
    assert told(directives([], meta)) == means


def test_what_header_and_page_forbid_adds_up() -> None:
    assert directives(["noindex"], [("robots", "nofollow")]) == Directives(noindex=True, nofollow=True)


@pytest.mark.parametrize(
    ("rel", "nofollow"),
    [
        ("nofollow", True),
        ("ugc", True),
        ("sponsored", True),
        ("NoFollow", True),
        ("UGC", True),
        ("noopener nofollow", True),
        ("external\tnofollow\nme", True),
        ("  sponsored  ", True),
        ("nofollow ugc sponsored", True),
        ("", False),
        ("noopener noreferrer", False),
        ("follow", False),
        ("nofollowing", False),
        ("no-follow", False),
        ("nofollow,ugc", False),
        ("next", False),
    ],
)
def test_a_link_is_not_to_be_followed_by_its_rel(rel: str, nofollow: bool) -> None:
    assert link_is_nofollow(rel) is nofollow


PIECES = st.sampled_from(["noindex", "none", "crawlweb", "x", ":", ",", " ", "unavailable_after", "/", "1", "*", "\x00", "é"])


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40))
@settings(deadline=None, derandomize=True)
def test_no_text_raises(text: str) -> None:
    assert told(directives([text], [(text, text), ("robots", text)])) in (NOTHING, NOINDEX, NOFOLLOW, BOTH)
    assert link_is_nofollow(text) in (True, False)


@pytest.mark.parametrize("piece", ["a", "a:", " ", ":", "a,", "crawlweb: ", "1/", "a/.", ";"])
def test_a_huge_value_takes_linear_time(piece: str) -> None:
    value = piece * (200_000 // len(piece))
    started = time.process_time()
    directives([value], [("robots", value)])
    assert time.process_time() - started < 1.0
