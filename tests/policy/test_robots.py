"""robots.txt as it is found: every spelling, every answer, and values in Redis that are not ours."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crawlweb.policy.canonical import Canonicalizer
from crawlweb.policy.robots import (
    CRAWL_DELAY_CAP_S,
    HOP_TTL_S,
    MAX_BYTES,
    MAX_HOPS,
    TTL_S,
    Answer,
    NotRobots,
    Rules,
    judge,
    origin_of,
    robots_url,
)

SITE = "https://example.com"
ASKED = f"{SITE}/robots.txt"


def rules(*lines: str | bytes) -> Rules:
    return Rules(Answer("rules", b"\n".join(line.encode() if isinstance(line, str) else line for line in lines)))


def allowed(body: Rules, *paths: str) -> list[bool]:
    return [body.allows(SITE + path) for path in paths]


# -- bytes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"User-agent: *\nDisallow: /no",
        b"User-agent: *\r\nDisallow: /no\r\n",
        b"User-agent: *\rDisallow: /no\r",
        b"\xef\xbb\xbfUser-agent: *\nDisallow: /no",
        b"\xef\xbb\xbf\xef\xbb\xbfUser-agent: *\nDisallow: /no",
        b"USER-AGENT:*\nDISALLOW:/no",
        b"  user-agent :  *  \n\t disallow\t: /no  ",
        b"User-agent: * # all of you\nDisallow: /no # nothing here",
        b"# caf\xe9\nUser-agent: *\nDisallow: /caf\xe9\nDisallow: /no",
        b"User-agent: *\nDisallow: /\x00no",
        b"\x00U\x00s\x00e\x00r\x00-agent: *\nDisallow: /no\x00",
        b"\n\n\nUser-agent: *\n\n# a gap\n\nDisallow: /no\n",
        b"Sitemap: https://example.com/map.xml\nUser-agent: *\nSitemap: /other.xml\nDisallow: /no",
        b"User-agent: *\nNonsense: 1\nDisallow: /no\nmore nonsense",
        b"User-agent: *\nDisallow: /no\n\xff\xfe\xfd",
        b"User-agent: *\nDisallow: https://example.com/\nDisallow: /no",
    ],
)
def test_a_rule_is_read_in_every_spelling(body: bytes) -> None:
    assert allowed(Rules(Answer("rules", body)), "/no", "/no/where", "/yes", "/") == [False, False, True, True]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \r\n\t\n",
        b"\x00\x00",
        b"# only a comment: Disallow: /",
        b"Disallow: /",  # of no group
        b"User-agent: *",
        b"User-agent: *\nDisallow:",
        b"User-agent: *\nDisallow: # nothing",
        b"<!DOCTYPE html><html><head><title>404</title></head><body><p>Not found</p></body></html>",
        b"<html>\nUser-agent : we do not know what this is\n</html>",
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
        "User-agent: *\nDisallow: /".encode("utf-16"),
        b"User-agent: other\nDisallow: /",
    ],
)
def test_what_holds_no_rule_for_us_allows_everything(body: bytes) -> None:
    assert allowed(Rules(Answer("rules", body)), "/", "/a?b=c", "/robots.txt") == [True, True, True]


def test_a_file_is_read_up_to_the_cap() -> None:
    filler = b"".join(b"Disallow: /filler/%06d\n" % n for n in range(26_000))
    body = b"User-agent: *\nDisallow: /early\n" + filler + b"Disallow: /late\n"
    assert len(body) > 600_000
    answer = judge(200, body, None, ASKED, 0)
    assert (answer.decision, len(answer.body)) == ("rules", MAX_BYTES)
    assert allowed(Rules(answer), "/early", "/filler/000000", "/late") == [False, False, True]


@pytest.mark.parametrize("decision", ["allow", "redirect", "unreachable"])
def test_only_an_answer_with_rules_has_rules(decision: str) -> None:
    found = Rules(Answer(decision, b"User-agent: *\nDisallow: /\nCrawl-delay: 9"))
    assert (found.allows(SITE + "/"), found.crawl_delay_s) == (True, None)


# -- crawl-delay ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("0.5", 0.5),
        ("10", 10.0),
        (" 7 # seconds", 7.0),
        ("59.999", 59.999),
        ("61", CRAWL_DELAY_CAP_S),
        ("1e9", CRAWL_DELAY_CAP_S),
        ("9" * 300, CRAWL_DELAY_CAP_S),
        ("9" * 400, None),  # infinite as a float
        ("10s", None),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("-inf", None),
        ("1e999", None),
        ("", None),
        ("ten", None),
        ("1,5", None),
        ("0x10", None),
    ],
)
def test_a_crawl_delay_is_a_number_of_seconds_under_the_cap(value: str, seconds: float | None) -> None:
    assert rules("User-agent: *", f"Crawl-delay: {value}", "Disallow: /no").crawl_delay_s == seconds


def test_a_crawl_delay_is_that_of_our_own_group() -> None:
    found = rules("User-agent: *", "Crawl-delay: 30", "User-agent: crawlweb", "Crawl-delay: 2", "User-agent: other", "Crawl-delay: 40")
    assert found.crawl_delay_s == 2
    assert rules("User-agent: *", "Crawl-delay: 30", "User-agent: crawlweb", "Disallow: /x").crawl_delay_s is None
    assert rules("User-agent: other", "Crawl-delay: 30").crawl_delay_s is None


# -- which rule ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "path", "may"),
    [
        # The longest path wins, in whatever order; of two equals, allow (RFC 9309 §2.2.2).
        (["Disallow: /a", "Allow: /a/b"], "/a/b/c", True),
        (["Allow: /a/b", "Disallow: /a"], "/a/b/c", True),
        (["Disallow: /a", "Allow: /a/b"], "/a/c", False),
        (["Allow: /a", "Disallow: /a/b"], "/a/b", False),
        (["Disallow: /page", "Allow: /page"], "/page", True),
        (["Allow: /page", "Disallow: /page"], "/page", True),
        (["Allow: /", "Disallow: /x"], "/x", False),
        (["Disallow: /", "Allow: /$"], "/", True),
        (["Disallow: /", "Allow: /$"], "/x", False),
        (["Disallow: /", "Allow: /public"], "/publican", True),
        # A path is a prefix, its case counts, the query belongs to it.
        (["Disallow: /fish"], "/fish.html", False),
        (["Disallow: /fish"], "/Fish", True),
        (["Disallow: /fish"], "/a/fish", True),
        (["Disallow: /fish/"], "/fish", True),
        (["Disallow: /fish/"], "/fish/salmon", False),
        (["Disallow: /s?q="], "/s?q=1", False),
        (["Disallow: /s?q="], "/s?p=1", True),
        (["Disallow: /?"], "/?a", False),
        (["Disallow: /?"], "/", True),
        # * is any characters, $ the end.
        (["Disallow: /*.php"], "/a/b.php?c", False),
        (["Disallow: /*.php$"], "/a/b.php", False),
        (["Disallow: /*.php$"], "/a/b.php?c", True),
        (["Disallow: /*.php$"], "/a/b.php5", True),
        (["Disallow: /a*/z"], "/abc/d/z", False),
        (["Disallow: /a*/z"], "/abc/d/y", True),
        (["Disallow: /a*"], "/a", False),
        (["Disallow: *"], "/x", False),
        (["Disallow: *"], "/", False),
        (["Disallow: /*?"], "/a?", False),
        (["Disallow: /*?"], "/a", True),
        (["Disallow: /a$b"], "/a$b", False),
        (["Disallow: /***x"], "/abcx", False),
        (["Disallow: /x$"], "/x", False),
        (["Disallow: /x$"], "/xy", True),
        # Both sides are compared with the same escapes (§2.2.3).
        (["Disallow: /caf%C3%A9"], "/café", False),
        (["Disallow: /café"], "/caf%c3%a9", False),
        (["Disallow: /a%2Fb"], "/a/b", True),
        (["Disallow: /a%2fb"], "/a%2Fb", False),
        (["Disallow: /%61"], "/a", False),
        # robots.txt itself is always allowed.
        (["Disallow: /"], "/robots.txt", True),
    ],
)
def test_the_rule_that_decides(lines: list[str], path: str, may: bool) -> None:
    assert rules("User-agent: *", *lines).allows(SITE + path) is may


# -- whose rule ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", ["crawlweb", "CrawlWeb", "CRAWLWEB  # you", "crawlweb/1.0", "crawlweb/0.1.0 (+https://example.com)", "crawlweb*"]
)
def test_a_group_is_ours_by_its_product_token(line: str) -> None:
    found = rules("User-agent: *", "Disallow: /all", f"User-agent: {line}", "Disallow: /ours")
    assert allowed(found, "/ours", "/all", "/") == [False, True, True]


@pytest.mark.parametrize(
    "line",
    ["crawl", "c", "crawlwe", "web", "crawlweb-news", "crawlweb_2", "crawlwebbot", "mycrawlweb", "crawl*", "crawl/1.0", "Mozilla/5.0"],
)
def test_a_group_of_another_robot_is_not_ours(line: str) -> None:
    found = rules("User-agent: *", "Disallow: /all", f"User-agent: {line}", "Disallow: /theirs")
    assert allowed(found, "/theirs", "/all") == [True, False]


@pytest.mark.parametrize(
    ("lines", "no", "yes"),
    [
        # Several groups of ours are one (RFC 9309 §2.2.1).
        (["User-agent: crawlweb", "Disallow: /a", "User-agent: x", "Disallow: /", "User-agent: crawlweb", "Disallow: /b"], "/b", "/c"),
        (["User-agent: crawlweb", "Disallow: /a", "User-agent: x", "Disallow: /", "User-agent: crawlweb", "Disallow: /b"], "/a", "/c"),
        # Several names stand over one group.
        (["User-agent: x", "User-agent: crawlweb", "User-agent: y", "Disallow: /a"], "/a", "/b"),
        (["User-agent: x", "", "# and", "User-agent: crawlweb", "Disallow: /a"], "/a", "/b"),
        # The group for all counts only where there is none of ours; the order is nothing.
        (["User-agent: *", "Disallow: /", "User-agent: crawlweb", "Disallow: /a"], "/a", "/b"),
        (["User-agent: crawlweb", "Disallow: /a", "User-agent: *", "Disallow: /"], "/a", "/b"),
        (["User-agent: crawlweb", "User-agent: *", "Disallow: /a"], "/a", "/b"),
        # What is site-wide does not end a group; another rule than one we know does not either.
        (["User-agent: crawlweb", "Sitemap: /s.xml", "Disallow: /a"], "/a", "/b"),
        (["User-agent: crawlweb", "Crawl-delay: 1", "Disallow: /a"], "/a", "/b"),
    ],
)
def test_the_group_that_counts(lines: list[str], no: str, yes: str) -> None:
    assert allowed(rules(*lines), no, yes) == [False, True]


def test_a_group_of_ours_without_rules_allows_what_others_may_not() -> None:
    found = rules("User-agent: *", "Disallow: /", "", "User-agent: crawlweb", "Disallow:")
    assert allowed(found, "/", "/a") == [True, True]


# -- hostile -------------------------------------------------------------------------------------------------------------

LINES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.builds(
            lambda name, colon, value: name + colon + value,
            st.sampled_from(
                [b"User-agent", b"user agent", b"Disallow", b"Allow", b"Crawl-delay", b"Sitemap", b"Request-rate", b"Visit-time"]
            ),
            st.sampled_from([b":", b" ", b": ", b":::"]),
            st.one_of(
                st.binary(max_size=30), st.sampled_from([b"*", b"crawlweb", b"/", b"/*$", b"%", b"%zz", b"$", b"http://[", b"1/0", b"//["])
            ),
        ),
    ),
    max_size=12,
)


def reader(body: bytes) -> Rules:
    found = Rules(Answer("rules", body))
    assert found.crawl_delay_s is None or 0 <= found.crawl_delay_s <= CRAWL_DELAY_CAP_S
    return found


@given(LINES.map(b"\n".join), st.text(max_size=60))
@example(b"User-agent: *\nDisallow: //[", "//[")
@example(b"User-agent: *\nDisallow: /%", "/%\ud800")
@settings(deadline=None, derandomize=True)
def test_no_file_makes_a_url_of_ours_raise(body: bytes, path: str) -> None:
    target = Canonicalizer().target(SITE + "/" + path)
    found = reader(body)
    if target:
        assert found.allows(target.url) in (True, False)


@given(LINES.map(b"\n".join), st.text(max_size=60))
@example(b"User-agent: *\nDisallow: /", "http://[/robots.txt")
@example(b"User-agent: *\nDisallow: /", "http://[/a(b")
@example(b"User-agent: *\nDisallow: /", "http://a/\ud800")
@settings(deadline=None, derandomize=True)
def test_no_file_and_no_text_in_place_of_a_url_raises(body: bytes, url: str) -> None:
    assert reader(body).allows(url) in (True, False)


@pytest.mark.parametrize(
    "line",
    [
        b"Disallow: /" + b"*a" * 100_000 + b"$",
        b"Disallow: /" + b"%" * 200_000,
        b"Disallow: /" + b"$" * 200_000,
        b"User-agent: " + b"*" * 200_000,
        b":" * 400_000,
        b"Crawl-delay: " + b"9" * 200_000,
    ],
    ids=lambda line: line[:16].decode(),
)
def test_a_line_of_megabytes_is_read_in_reasonable_time(line: bytes) -> None:
    assert reader(b"User-agent: *\n" + line + b"\nDisallow: /no").allows(SITE + "/no") is False


# -- what an answer means ------------------------------------------------------------------------------------------------

RULES, ALLOW, WAITS = "rules", "allow", "unreachable"


@pytest.mark.parametrize(
    ("status", "decision"),
    [
        *((status, RULES) for status in (200, 201, 203, 204, 206, 299)),
        *((status, ALLOW) for status in (300, 304, 305, 306, 310, 399)),
        *((status, ALLOW) for status in (400, 401, 402, 403, 404, 405, 406, 408, 410, 418, 421, 423, 425, 428, 430, 451, 499)),
        (429, WAITS),
        *((status, WAITS) for status in (500, 501, 502, 503, 504, 507, 511, 520, 526, 599, 600, 999)),
        *((status, ALLOW) for status in (301, 302, 303, 307, 308)),  # without Location
    ],
)
def test_what_a_status_means(status: int, decision: str) -> None:
    answer = judge(status, b"User-agent: *\nDisallow: /", None, ASKED, 0)
    assert answer.decision == decision
    assert bool(answer.body) == (decision == RULES)
    assert answer.ttl_s == TTL_S


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("location", "to"),
    [
        ("/other.txt", f"{SITE}/other.txt"),
        ("other.txt", f"{SITE}/other.txt"),
        ("//example.com/r", f"{SITE}/r"),
        ("http://example.com/robots.txt", "http://example.com/robots.txt"),
        ("https://www.example.com/robots.txt", "https://www.example.com/robots.txt"),
        ("https://elsewhere.org/robots.txt", "https://elsewhere.org/robots.txt"),  # whether that is followed is outcome.Judge's
        ("  /padded \t", f"{SITE}/padded"),
        ("?x", f"{ASKED}?x"),
        ("/robots.txt", ASKED),  # to itself: the hops end it
    ],
)
def test_a_redirect_leads_to_the_next_hop(status: int, location: str, to: str) -> None:
    answer = judge(status, b"ignored", location, ASKED, 2)
    assert answer == Answer("redirect", b"", to, 3)
    assert answer.ttl_s == HOP_TTL_S


@pytest.mark.parametrize(
    "location",
    [
        "",
        "ftp://example.com/robots.txt",
        "javascript:alert(1)",
        "data:text/plain,x",
        "mailto:a@b.c",
        "http://",
        "http://[",
        "//[",
        "file:///etc/passwd",
    ],
)
def test_a_redirect_to_nowhere_is_no_rules(location: str) -> None:
    assert judge(301, b"", location, ASKED, 0) == Answer("allow")


def test_a_loop_of_redirects_ends() -> None:
    asked, hops = ASKED, 0
    for _ in range(MAX_HOPS):
        answer = judge(302, b"", "/robots.txt", asked, hops)
        assert answer.decision == "redirect"
        asked, hops = answer.to, answer.hops
    assert judge(302, b"", "/robots.txt", asked, hops) == Answer("allow")


@given(st.integers(100, 999), st.binary(max_size=50), st.none() | st.text(max_size=50), st.integers(0, MAX_HOPS))
@settings(deadline=None, derandomize=True)
def test_no_answer_raises(status: int, body: bytes, location: str | None, hops: int) -> None:
    answer = judge(status, body, location, ASKED, hops)
    assert answer.hops <= MAX_HOPS
    assert (answer.decision == "redirect") == answer.to.startswith(("http://", "https://"))
    if answer.decision != "unreachable":
        assert Answer.unpack(answer.pack()) == answer


@pytest.mark.parametrize(
    ("url", "robots"),
    [
        ("https://example.com/a/b?c", "https://example.com/robots.txt"),
        ("http://example.com:8080/", "http://example.com:8080/robots.txt"),
        ("https://[2001:db8::1]/x", "https://[2001:db8::1]/robots.txt"),
        ("https://example.com/?u=https://other.org/", "https://example.com/robots.txt"),
    ],
)
def test_an_origin_has_one_robots_txt(url: str, robots: str) -> None:
    assert robots_url(origin_of(url)) == robots


# -- in Redis ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        Answer("allow"),
        Answer("rules", b"User-agent: *\nDisallow: /\xff\x00\n\n"),
        Answer("rules"),
        Answer("rules", b"\n" * 3),
        Answer("redirect", to='https://example.com/"\n\\é\U0001f600', hops=5),
    ],
)
def test_an_answer_comes_back_as_it_was(answer: Answer) -> None:
    assert Answer.unpack(answer.pack()) == answer


def packed(body: bytes = b"", **fields: Any) -> bytes:
    good = {"v": 1, "d": "redirect", "to": f"{SITE}/r", "hops": 1}
    return json.dumps({k: v for k, v in {**good, **fields}.items() if v is not ...}).encode() + b"\n" + body


def test_the_garbage_below_differs_from_an_answer_in_one_thing() -> None:
    assert Answer.unpack(packed(b"x")) == Answer("redirect", b"x", f"{SITE}/r", 1)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\n",
        b"User-agent: *\nDisallow: /",
        pickle.dumps({"v": 1, "d": "rules", "to": "", "hops": 0}),
        b"null\n",
        b"[]\n",
        b'"v"\n',
        b"1\n",
        b"{}\n",
        b"\xff\xfe\n",
        b"[" * 100_000,
        b'{"v":' * 100_000,
        packed(v=2),
        packed(v="1"),
        packed(v=None),
        packed(v=...),
        packed(d="unreachable"),
        packed(d="everything"),
        packed(d=["rules"]),
        packed(d={}),
        packed(d=...),
        packed(to=...),
        packed(hops=...),
        packed(hops=None),
        packed(hops="many"),
        packed(hops=[1]),
        packed(hops=float("inf")),
        packed(hops=float("nan")),
        packed(hops=10**400),
        packed(hops=-1),
        packed(hops=MAX_HOPS + 1),
        packed(to=""),  # would be taken for a job without a robots.txt to fetch
        packed(to=None),
        packed(to="/relative"),
        packed(to="file:///etc/passwd"),
        packed(to={}),
    ],
    ids=lambda value: value[:40].decode("latin-1"),
)
def test_what_is_not_ours_is_refused(value: bytes) -> None:
    with pytest.raises(NotRobots):
        Answer.unpack(value)


def test_a_huge_value_is_cut() -> None:
    assert len(Answer.unpack(packed(b"x" * (MAX_BYTES + 100_000), d="rules", to="")).body) == MAX_BYTES


def refused_or_read(value: bytes) -> None:
    try:
        answer = Answer.unpack(value)
    except NotRobots:
        return
    assert answer.decision in ("rules", "allow", "redirect")
    Rules(answer)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=80))
@settings(deadline=None, derandomize=True)
def test_no_bytes_raise_anything_else(value: bytes) -> None:
    refused_or_read(value)


@given(
    st.fixed_dictionaries({"v": st.just(1) | JSON, "d": st.sampled_from(["rules", "allow", "redirect"]) | JSON, "to": JSON, "hops": JSON})
)
@settings(deadline=None, derandomize=True)
def test_no_fields_raise_anything_else(fields: dict[str, Any]) -> None:
    refused_or_read(json.dumps(fields).encode() + b"\nUser-agent: *")
