"""What the frontier is told about every answer and every failure."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlweb.errors import FetchError, FrontierError, LeaseExpired, StoreError
from crawlweb.frontier.frontier import NORMAL, UNCHECKED, Lease, Outcome
from crawlweb.outcome import REDIRECTS, STORE_FULL_WAIT_S, Judge, Sent, Verdict, redirected
from crawlweb.policy import retry, robots
from crawlweb.policy.canonical import Canonicalizer
from crawlweb.policy.retry import FAILURES, RETRY_AFTER_CAP_S, UNREACHABLE_ROBOTS, Failure
from crawlweb.records import Entry
from crawlweb.worker import Job

MAX_REDIRECTS = 5
DEAD_MS = round(retry.DEAD_HOST_S * 1000)
SENT = Sent(ended=1000.5, latency_s=0.25)
URL = "https://example.com/a/page"
CANONICALIZER = Canonicalizer()
key = CANONICALIZER.url_key


class Middle(random.Random):
    """No jitter: every draw is the middle of its range."""

    def random(self) -> float:
        return 0.5


def judge(give_up_s: float | None = 3600.0, max_redirects: int = MAX_REDIRECTS) -> Judge:
    return Judge(CANONICALIZER, max_redirects=max_redirects, give_up_s=give_up_s, rng=Middle(0))


def job(
    url: str = URL, *, host_failures: int = 0, unreachable_ms: int = -1, robots_url: str = "", robots_hops: int = 0, **entry: Any
) -> Job:
    lease = Lease("1", 0, "example.com", Entry(url, **entry), 0.0, 60.0, host_failures, unreachable_ms)
    return Job(lease, "https://example.com", robots_url, robots_hops)


def robots_job(**more: Any) -> Job:
    return job(robots_url="https://example.com/robots.txt", **more)


def answer(
    j: Job, status: int, *, location: str | None = None, retry_after: str | None = None, body: bytes = b"", by: Judge | None = None
) -> Verdict:
    return (by or judge()).response(j, status, location, retry_after, body, SENT)


def told(outcome: Outcome) -> tuple[str, float, Any]:
    """Way, wait and argument; the request's end and latency are always passed on."""
    assert (outcome.ended, outcome.latency_s) == (SENT.ended, SENT.latency_s)
    return outcome.way, outcome.wait_s, outcome.arg


# -- answers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 203, 206, 226, 299])
def test_a_2xx_is_a_page(status: int) -> None:
    verdict = answer(job(), status)
    assert told(verdict.outcome) == ("d", 0, None)
    assert (verdict.is_page, verdict.stat, verdict.link, verdict.robots) == (True, None, None, None)


@pytest.mark.parametrize("status", [100, 199, 300, 304, 305, 306, 400, 401, 403, 404, 410, 418, 425, 451, 499])
def test_another_answer_is_final_and_no_page(status: int) -> None:
    verdict = answer(job(), status, location="/other", retry_after="100")
    assert told(verdict.outcome) == ("d", 0, None)
    assert (verdict.is_page, verdict.stat, verdict.link) == (False, None, None)


@pytest.mark.parametrize(
    ("status", "kind"), [(429, "http_429"), (500, "http_5xx"), (503, "http_5xx"), (599, "http_5xx"), (999, "http_5xx")]
)
def test_a_failing_server_rests_and_the_url_comes_again(status: int, kind: str) -> None:
    row = FAILURES[kind]
    verdict = answer(job(failures=1), status)
    assert told(verdict.outcome) == ("r", 2 * row.wait_s, (row.tries, kind, round(2000 * row.wait_s)))
    assert (verdict.is_page, verdict.stat) == (False, f"errors/{kind}")


@pytest.mark.parametrize(
    ("retry_after", "wait_s"),
    [
        ("120", 120),
        ("1", 10),
        ("0", 10),
        ("nonsense", 10),
        ("", 10),
        ("99999999", RETRY_AFTER_CAP_S),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 10),
    ],
)
def test_retry_after_makes_the_wait_longer_never_shorter(retry_after: str, wait_s: float) -> None:
    way, waits, (_, kind, rest_ms) = told(answer(job(), 503, retry_after=retry_after).outcome)
    assert (way, waits, kind, rest_ms) == ("r", wait_s, "http_5xx", wait_s * 1000)


# -- failures ------------------------------------------------------------------------------------------------------------


def expected(kind: str, row: Failure, before: int) -> tuple[str, float, Any]:
    wait_s = min(row.wait_s * 2**before, row.cap_s)
    if row.blame == "host":
        return "h", wait_s, (row.tries, DEAD_MS, kind)
    if row.blame == "none":
        return "x", 0, kind
    return "r", wait_s, (row.tries, kind, round(wait_s * 1000) if row.host_rests else 0)


@pytest.mark.parametrize("before", [0, 1, 2, 9])
@pytest.mark.parametrize(("kind", "row"), FAILURES.items(), ids=FAILURES)
def test_every_kind_of_failure_has_its_outcome(kind: str, row: Failure, before: int) -> None:
    blamed: dict[str, Any] = {"host_failures": before} if row.blame == "host" else {"failures": before}
    verdict = judge().failure(job(**blamed), FetchError(kind, "why"), SENT)
    assert told(verdict.outcome) == expected(kind, row, before)
    assert (verdict.stat, verdict.is_page, verdict.link) == (f"errors/{kind}", False, None)


def test_a_host_s_failures_do_not_lengthen_a_url_s_wait_nor_the_other_way_round() -> None:
    assert judge().failure(job(host_failures=5), FetchError("reset"), SENT).outcome.wait_s == FAILURES["reset"].wait_s
    assert judge().failure(job(failures=5), FetchError("dns_timeout"), SENT).outcome.wait_s == FAILURES["dns_timeout"].wait_s


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError(), RecursionError(), FetchError("unheard_of"), FrontierError("x"), KeyboardInterrupt()]
)
def test_what_is_not_in_the_table_is_the_row_for_the_rest(error: BaseException) -> None:
    verdict = judge().failure(job(), error, SENT)
    assert told(verdict.outcome) == expected("error", FAILURES["error"], 0)
    assert verdict.stat == "errors/error"


def test_no_error_and_no_answer_is_a_failure_too() -> None:
    verdict = judge().failure(job(), None, SENT)
    assert told(verdict.outcome) == expected("no_outcome", FAILURES["no_outcome"], 0)


@pytest.mark.parametrize("j", [job(failures=3), robots_job()])
def test_a_lease_too_short_gives_the_url_back_uncounted(j: Job) -> None:
    verdict = judge().failure(j, LeaseExpired(), Sent())
    assert verdict == Verdict(Outcome(j.lease, "l"), "leases/returned", is_last=False)


def test_a_full_disk_makes_the_url_wait_uncounted() -> None:
    verdict = judge().failure(job(failures=3), StoreError("full"), SENT)
    assert told(verdict.outcome) == ("w", STORE_FULL_WAIT_S, None)
    assert verdict.stat == "errors/store"


def test_a_failure_before_anything_was_sent_does_not_move_the_clock() -> None:
    outcome = judge().failure(job(), FetchError("dns_nxdomain"), Sent()).outcome
    assert (outcome.ended, outcome.latency_s) == (None, None)


# -- redirects -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_redirect_is_a_new_url_with_its_history(status: int) -> None:
    verdict = answer(job(priority=3, depth=2, referrer="https://example.com/", failures=1), status, location="../b?c=d#e")
    assert told(verdict.outcome) == ("d", 0, None)
    assert (verdict.stat, verdict.is_page) == ("redirects", False)
    assert verdict.link
    assert (verdict.link.host, verdict.link.key, verdict.link.how) == ("example.com", key("https://example.com/b?c=d"), NORMAL)
    assert verdict.link.entry == Entry(
        url="https://example.com/b?c=d",
        priority=3,
        depth=2,
        referrer="https://example.com/",
        hops=1,
        chain=(key(URL),),
        found_as=URL,
    )


@pytest.mark.parametrize(
    ("url", "location", "target", "how"),
    [
        # Two spellings of one key: seen already, since it is in the chain, and followed nevertheless.
        ("http://example.com/x", "https://example.com/x", "https://example.com/x", UNCHECKED),
        ("https://example.com/x", "https://www.example.com/x", "https://www.example.com/x", UNCHECKED),
        ("https://example.com/x", "/x/", "https://example.com/x/", UNCHECKED),
        ("https://example.com/x?b=2&a=1", "/x?a=1&b=2", "https://example.com/x?a=1&b=2", UNCHECKED),
        # Another page.
        ("https://example.com/x", "/y", "https://example.com/y", NORMAL),
        ("https://example.com/x", "https://other.org", "https://other.org/", NORMAL),
        ("https://example.com/x", "//other.org/z", "https://other.org/z", NORMAL),
        ("https://example.com/x", "  /y \t", "https://example.com/y", NORMAL),
        ("https://example.com/x", "/caf\u00e9", "https://example.com/caf%C3%A9", NORMAL),
        ("https://example.com/x", "https://user:secret@example.com/y", "https://example.com/y", NORMAL),
    ],
)
def test_a_target_is_tested_against_the_seen_set_unless_it_is_in_its_own_chain(url: str, location: str, target: str, how: int) -> None:
    link = answer(job(url), 301, location=location).link
    assert link
    assert (link.entry.url, link.how, link.entry.chain) == (target, how, (key(url),))


def test_a_detour_back_is_followed_while_hops_remain_and_ends() -> None:
    """http → https → a page that sets something → back: the chain of URL keys grows with each hop."""
    urls = [
        "http://example.com/x",
        "https://example.com/x",
        "https://example.com/consent",
        "https://example.com/x?ok",
        "https://example.com/x",
    ]
    hows = [UNCHECKED, NORMAL, NORMAL, UNCHECKED]
    entry = Entry(urls[0], depth=1)
    for n, (location, how) in enumerate(zip(urls[1:], hows, strict=True), 1):
        verdict = answer(Job(Lease("1", 0, "example.com", entry, 0, 60), ""), 302, location=location)
        assert verdict.link
        assert (verdict.link.how, verdict.link.entry.hops, verdict.link.entry.found_as) == (how, n, urls[0])
        assert verdict.link.entry.chain == tuple(key(url) for url in urls[:n])
        entry = verdict.link.entry
    one_more = answer(Job(Lease("1", 0, "example.com", entry, 0, 60), ""), 302, location="/consent")
    assert one_more.link
    ended = answer(Job(Lease("1", 0, "example.com", one_more.link.entry, 0, 60), ""), 302, location="/x")
    assert (told(ended.outcome), ended.stat, ended.link) == (("d", 0, None), "redirects/too_many", None)


@pytest.mark.parametrize(
    ("most", "hops", "followed"), [(5, 4, True), (5, 5, False), (5, 99, False), (1, 0, True), (1, 1, False), (0, 0, False)]
)
def test_redirects_in_a_row_are_limited(most: int, hops: int, followed: bool) -> None:
    verdict = answer(job(hops=hops), 301, location="/y", by=judge(max_redirects=most))
    assert (verdict.link is not None, verdict.stat) == (followed, "redirects" if followed else "redirects/too_many")


@pytest.mark.parametrize(
    "location", [URL, "page", "/a/page", "#top", "/a/./page#x", "https://EXAMPLE.com:443/a/page", "//example.com/a/page"]
)
def test_a_redirect_to_itself_is_a_loop(location: str) -> None:
    verdict = answer(job(), 302, location=location)
    assert (told(verdict.outcome), verdict.stat, verdict.link) == (("d", 0, None), "redirects/loop", None)


@pytest.mark.parametrize(
    "location",
    [
        None,
        "",
        "http://",
        "http://[",
        "//[",
        "javascript:alert(1)",
        "data:text/html,x",
        "mailto:a@b.c",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://a b/",
        "/" + "x" * 3000,
    ],
)
def test_a_redirect_to_no_page_is_counted_and_final(location: str | None) -> None:
    verdict = answer(job(), 302, location=location)
    assert (told(verdict.outcome), verdict.stat, verdict.link) == (("d", 0, None), "redirects/invalid", None)


@given(st.sampled_from(REDIRECTS), st.text(max_size=80))
@settings(deadline=None, derandomize=True)
def test_no_location_raises(status: int, location: str) -> None:
    verdict = answer(job(), status, location=location)
    assert verdict.outcome.way == "d"
    assert (verdict.link is not None) == (verdict.stat == "redirects")


# -- what the spider is shown -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 204, 300, 304, 401, 404, 410])
def test_a_final_answer_is_the_spider_s(status: int) -> None:
    assert answer(job(), status).is_last


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_redirect_is_the_spider_s_only_where_nothing_follows(status: int) -> None:
    assert not answer(job(), status, location="/y").is_last
    assert answer(job(), status, location=None).is_last
    assert answer(job(), status, location=URL).is_last
    assert answer(job(hops=MAX_REDIRECTS), status, location="/y").is_last
    own = judge().response(job(), status, "/y", None, b"", SENT, follow=False)
    assert (told(own.outcome), own.link, own.is_last) == (("d", 0, None), None, True)


@pytest.mark.parametrize(("kind", "row"), FAILURES.items(), ids=FAILURES)
def test_a_failure_is_the_spider_s_when_no_try_is_left(kind: str, row: Failure) -> None:
    shown = [judge().failure(job(failures=n, host_failures=n), FetchError(kind), SENT).is_last for n in range(row.tries)]
    if row.blame == "host":
        assert shown == [False] * row.tries  # the URL comes again, or dies with its host
    else:
        assert shown == [False] * (row.tries - 1) + [True]


def test_robots_txt_and_a_full_disk_are_never_the_spider_s() -> None:
    assert not any(answer(robots_job(), status, location="/y").is_last for status in (200, 301, 404, 503))
    assert not any(judge().failure(robots_job(), FetchError(kind), SENT).is_last for kind in FAILURES)
    assert not judge().failure(job(), StoreError("full"), SENT).is_last


POST: dict[str, object] = {"method": "POST", "body": "YQ==", "callback": "parse_item", "meta": {"page": 1}}
KEPT: dict[str, object] = {"callback": "parse_item", "meta": {"page": 1}}


@pytest.mark.parametrize(
    ("request_", "status", "carried"),
    [
        ({}, 303, {}),
        (KEPT, 301, KEPT),
        (POST, 301, KEPT),
        (POST, 302, KEPT),
        (POST, 303, KEPT),
        (POST, 307, POST),
        (POST, 308, POST),
        ({**POST, "method": "PUT"}, 302, {**POST, "method": "PUT"}),
        ({**POST, "method": "PUT"}, 303, KEPT),
        ({"method": "HEAD"}, 303, {"method": "HEAD"}),
    ],
)
def test_a_request_is_carried_to_the_target_as_browsers_do(request_: dict[str, object], status: int, carried: dict[str, object]) -> None:
    assert redirected(request_, status) == carried
    link = answer(job(request=request_), status, location="/y").link
    assert link
    assert link.entry.request == carried


def headers(request: dict[str, object]) -> set[str]:
    rows: Any = request.get("headers", [])
    return {name for name, _ in rows}


def test_a_get_that_was_a_post_has_no_headers_of_a_body() -> None:
    with_headers = {**POST, "headers": [["Content-Type", ["application/json"]], ["Content-Length", ["1"]], ["X-Own", ["1"]]]}
    link = answer(job(request=with_headers), 303, location="/y").link
    assert link
    assert headers(link.entry.request) == {"X-Own"}


@pytest.mark.parametrize("location", ["https://other.org/", "https://evil.com/a/page"])
def test_secrets_for_one_host_do_not_go_to_another(location: str) -> None:
    request: dict[str, object] = {
        "headers": [["Authorization", ["Basic x"]], ["Cookie", ["s=1"]], ["Proxy-Authorization", ["x"]], ["X-Own", ["1"]]]
    }
    link = answer(job(request=request), 302, location=location).link
    assert link
    assert headers(link.entry.request) == {"X-Own"}
    home = answer(job(request=request), 302, location="/y").link
    assert home
    assert {"Authorization", "Cookie"} <= headers(home.entry.request)


def test_a_post_that_stays_one_is_not_taken_for_a_get_of_its_target() -> None:
    post = answer(job(request=POST), 307, location="/y").link
    get = answer(job(), 307, location="/y").link
    assert post
    assert get
    assert get.key == key("https://example.com/y")
    assert post.key != get.key


# -- robots.txt ----------------------------------------------------------------------------------------------------------


def kept(verdict: Verdict) -> tuple[robots.Answer, int, int]:
    """The answer that is put into Redis, its life and the crawl-delay; the URL of the lease goes back as it was."""
    assert told(verdict.outcome) == ("l", 0, None)
    assert verdict.outcome.robots
    assert (verdict.is_page, verdict.link) == (False, None)
    origin, value, ttl_ms, delay_ms = verdict.outcome.robots
    assert origin == "https://example.com"
    assert verdict.robots == robots.Answer.unpack(value)
    return verdict.robots, ttl_ms, delay_ms


@pytest.mark.parametrize(
    ("line", "delay_ms"), [(b"Crawl-delay: 2.5", 2500), (b"Crawl-delay: 0", 0), (b"Crawl-delay: 1e9", 60_000), (b"Disallow: /x", -1)]
)
def test_rules_are_kept_with_their_crawl_delay(line: bytes, delay_ms: int) -> None:
    body = b"User-agent: *\n" + line
    verdict = answer(robots_job(), 200, body=body)
    assert kept(verdict) == (robots.Answer("rules", body), 86_400_000, delay_ms)
    assert verdict.stat == "robots/fetched/rules"


@pytest.mark.parametrize("status", [300, 304, 400, 401, 403, 404, 410, 451])
def test_no_robots_txt_allows_everything(status: int) -> None:
    verdict = answer(robots_job(), status, body=b"User-agent: *\nDisallow: /\nCrawl-delay: 9")
    assert kept(verdict) == (robots.Answer("allow"), 86_400_000, -1)
    assert verdict.stat == "robots/fetched/allow"


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize(
    "location", ["/other.txt", "http://example.com/robots.txt", "https://www.example.com/robots.txt", "https://cdn.example.com/r"]
)
def test_a_redirect_on_the_host_is_the_next_turn_s(status: int, location: str) -> None:
    verdict = answer(robots_job(robots_hops=1), status, location=location)
    found, ttl_ms, delay_ms = kept(verdict)
    assert (found.decision, found.hops, ttl_ms, delay_ms) == ("redirect", 2, 300_000, -1)
    assert verdict.stat == "robots/fetched/redirect"


@pytest.mark.parametrize(
    "location",
    ["https://other.org/robots.txt", "//example.org/robots.txt", "https://example.com.evil.org/", "http://10.0.0.1/", "http://[::1]/"],
)
def test_a_redirect_to_another_host_is_no_rules(location: str) -> None:
    verdict = answer(robots_job(), 301, location=location)
    assert kept(verdict) == (robots.Answer("allow"), 86_400_000, -1)
    assert verdict.stat == "robots/fetched/redirect_other_host"


def test_too_many_redirects_of_robots_txt_are_no_rules() -> None:
    assert kept(answer(robots_job(robots_hops=robots.MAX_HOPS), 301, location="/next"))[0] == robots.Answer("allow")


@pytest.mark.parametrize(
    ("since_ms", "wait_s"), [(-1, 5), (0, 5), (4_000, 5), (5_000, 5), (20_000, 20), (600_000, 600), (10_000_000, 1800)]
)
@pytest.mark.parametrize("how", ["status", "timeout", "tls", "nothing"])
def test_a_robots_txt_that_cannot_be_had_makes_the_host_wait_as_long_again(since_ms: int, wait_s: float, how: str) -> None:
    j = robots_job(unreachable_ms=since_ms, failures=7)
    if how == "status":
        verdict = answer(j, 503)
        assert verdict.stat == "robots/fetched/unreachable"
    else:
        verdict = judge().failure(j, FetchError(how) if how != "nothing" else None, SENT)
        assert verdict.stat == f"errors/{'no_outcome' if how == 'nothing' else how}"
    assert told(verdict.outcome) == ("u", wait_s, (3_600_000, DEAD_MS, "robots_unreachable"))
    assert verdict.outcome.robots is None
    assert wait_s <= UNREACHABLE_ROBOTS.cap_s


@pytest.mark.parametrize(("give_up_s", "give_up_ms"), [(None, -1), (0.0, 0), (7200.0, 7_200_000)])
def test_a_host_is_given_up_after_the_configured_time_or_never(give_up_s: float | None, give_up_ms: int) -> None:
    assert answer(robots_job(), 500, by=judge(give_up_s)).outcome.arg[0] == give_up_ms


def test_retry_after_counts_for_robots_txt_too() -> None:
    assert answer(robots_job(), 429, retry_after="300").outcome.wait_s == 300
    assert answer(robots_job(), 503, retry_after="1").outcome.wait_s == 5


@pytest.mark.parametrize("kind", [kind for kind, row in FAILURES.items() if row.blame == "host"])
def test_a_host_that_cannot_be_reached_is_that_for_robots_txt_too(kind: str) -> None:
    verdict = judge().failure(robots_job(host_failures=1), FetchError(kind), SENT)
    assert told(verdict.outcome) == expected(kind, FAILURES[kind], 1)


def test_a_full_disk_does_not_make_robots_txt_unreachable() -> None:
    assert judge().failure(robots_job(), StoreError("full"), SENT).outcome.way == "w"


@given(st.integers(100, 999), st.none() | st.text(max_size=40), st.none() | st.text(max_size=20), st.binary(max_size=60), st.integers(0, 5))
@settings(deadline=None, derandomize=True)
def test_no_answer_for_robots_txt_raises(status: int, location: str | None, retry_after: str | None, body: bytes, hops: int) -> None:
    verdict = answer(robots_job(robots_hops=hops), status, location=location, retry_after=retry_after, body=body)
    assert verdict.outcome.way in "lu"
    assert (verdict.outcome.robots is None) == (verdict.outcome.way == "u")
