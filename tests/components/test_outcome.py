"""What the frontier is told about every answer and every failure."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlweb.content import soft_404
from crawlweb.content.page import parse_page
from crawlweb.errors import ConnectionWasClosed, FetchError, FrontierError, LeaseExpired, StoreError
from crawlweb.frontier.rows import (
    GOOD_PAGE,
    NORMAL,
    UNCHECKED,
    KeptNow,
    Lease,
    Link,
    OriginFailed,
    Outcome,
    PageSeen,
    PushedBack,
    Refused,
    error_pages,
)
from crawlweb.job import Job, check_probe, probe_request, robots_request, robots_requested
from crawlweb.outcome import CUT_S, GONE, REDIRECTS, SITEMAPS_MOST, STALE_S, STORE_FULL_WAIT_S, Judge, Sent, Verdict, redirected
from crawlweb.policy import robots
from crawlweb.policy.canonical import Canonicalizer
from crawlweb.policy.hosts import host_of
from crawlweb.policy.retry import FAILURES, RETRY_AFTER_CAP_S, Failure
from crawlweb.records import Entry, Fetch

MAX_REDIRECTS = 5
DAY_S = 86_400.0
GIVE_UP_S = 7200.0
TIMEOUT_S = 20.0
NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT
SENT = Sent(ended=1000.5, latency_s=0.25)
ORIGIN = "https://example.com"
URL = "https://example.com/a/page"
CANONICALIZER = Canonicalizer()
key = CANONICALIZER.url_key


class Middle(random.Random):
    """No jitter: every draw is the middle of its range."""

    def random(self) -> float:
        return 0.5


def judge(give_up_s: float | None = GIVE_UP_S, max_redirects: int = MAX_REDIRECTS, rng: random.Random | None = None) -> Judge:
    return Judge(
        CANONICALIZER, max_redirects=max_redirects, give_up_s=give_up_s, timeout_s=TIMEOUT_S, rng=rng or Middle(0), unix_now=lambda: NOW
    )


def lease(
    url: str = URL,
    *,
    host: str = "example.com",
    origin_failures: int = 0,
    trouble_s: float | None = None,
    origin_has_pages: bool = False,
    others_have_pages: bool = False,
    **entry: Any,
) -> Lease:
    return Lease(
        "1",
        0,
        host,
        Entry(url, **entry),
        0.0,
        60.0,
        origin_failures,
        trouble_s,
        origin_has_pages=origin_has_pages,
        others_have_pages=others_have_pages,
    )


def job(url: str = URL, **more: Any) -> Job:
    return Job(lease(url, **more), robots.origin_of(url), robots_host="example.com")


def robots_job(robots_hops: int = 0, stale: robots.Answer | None = None, **more: Any) -> Job:
    """The turn of a URL, spent on the robots.txt of its origin, or on another URL of its host that this redirects to."""
    url = "https://files.example.com/robots.txt" if robots_hops else "https://example.com/robots.txt"
    return Job(lease(**more), ORIGIN, url, robots_hops, "example.com", stale is not None, stale)


def elsewhere(hops: int = 1, url: str = "https://cdn.org/robots.txt", has_stale: bool = False, **more: Any) -> Job:
    """The robots.txt of example.com, asked for by a link: at another host, or back on its own."""
    request = robots_request("example.com", ORIGIN, hops, has_stale)
    return Job(lease(url, host=host_of(url), request=request, **more), ORIGIN, url, hops, "example.com", has_stale)


BACK_HOME = "https://www.example.com/robots.txt"  # example.com → cdn.org → www.example.com


def answer(
    j: Job,
    status: int,
    *,
    location: str | None = None,
    retry_after: str | None = None,
    date: str | None = None,
    content_type: str | None = None,
    body: bytes | None = b"",
    by: Judge | None = None,
    follow: bool = True,
) -> Verdict:
    values = {"Location": location, "Retry-After": retry_after, "Date": date, "Content-Type": content_type}
    return (by or judge()).response(j, status, values.get, body, SENT, follow)


def told(outcome: Outcome) -> tuple[str, float, Any]:
    """Way, wait and argument; the request's end and latency are always passed on."""
    assert (outcome.ended, outcome.latency_s) == (SENT.ended, SENT.latency_s)
    return outcome.way, outcome.wait_s, outcome.arg


def pushed_back(retry_after_s: float = 0.0) -> PushedBack:
    """As a crawl with `GIVE_UP_S` says it."""
    return PushedBack(5, 3600, 1.0, retry_after_s, GIVE_UP_S, "http_429")


def trouble(outcome: Outcome) -> tuple[OriginFailed | None, PushedBack | None]:
    return outcome.failed, outcome.pushed_back


# -- answers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 203, 206, 226, 299])
def test_a_2xx_is_a_page(status: int) -> None:
    verdict = answer(job(), status, body=b"<p>Tea</p>")
    assert told(verdict.outcome) == ("d", 0, None)
    assert trouble(verdict.outcome) == (None, None)
    assert (verdict.is_page, verdict.stat, verdict.link, verdict.robots) == (True, None, None, None)


@pytest.mark.parametrize("status", [100, 199, 300, 304, 305, 306, 400, 401, 404, 410, 418, 425, 451, 499])
def test_another_answer_is_final_and_no_page(status: int) -> None:
    verdict = answer(job(sibling=2), status, location="/other", retry_after="100")
    assert told(verdict.outcome) == ("d", 0, None)
    assert trouble(verdict.outcome) == (None, None)
    assert (verdict.is_page, verdict.stat, verdict.link) == (False, None, None)


@pytest.mark.parametrize(
    ("status", "kind", "url_wait_s", "tries", "origin_gap_s"),
    [
        (500, "http_5xx", 20, 4, 2),
        (502, "http_5xx", 20, 4, 2),
        (599, "http_5xx", 20, 4, 2),
        (999, "http_5xx", 20, 4, 2),
        (503, "http_503", 20, 4, 5),
    ],
)
def test_a_failing_server_is_its_origin_s_trouble_and_the_url_comes_again(
    status: int, kind: str, url_wait_s: float, tries: int, origin_gap_s: float
) -> None:
    verdict = answer(job(failures=1), status)
    assert told(verdict.outcome) == ("r", url_wait_s, (tries, kind))
    assert verdict.outcome.origin == ORIGIN
    assert verdict.outcome.failed
    assert (verdict.outcome.failed.reason, verdict.outcome.failed.gap_s, verdict.outcome.failed.struggling) == (kind, origin_gap_s, True)
    assert verdict.outcome.pushed_back is None
    assert (verdict.is_page, verdict.stat, verdict.outcome.page) == (False, f"errors/{kind}", None)


def test_whoever_says_429_is_asked_for_less_by_all_its_origins() -> None:
    verdict = answer(job(failures=1), 429)
    assert told(verdict.outcome) == ("r", 20, (5, "http_429"))
    assert trouble(verdict.outcome) == (None, pushed_back())
    assert (verdict.is_page, verdict.stat) == (False, "errors/http_429")


@pytest.mark.parametrize(
    ("retry_after", "asked_s"),
    [
        ("120", 120),
        ("1", 1),
        ("0", 0),
        ("nonsense", 0),
        ("-5", 0),
        ("", 0),
        (None, 0),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ],
)
@pytest.mark.parametrize("status", [429, 500, 503])
def test_retry_after_makes_the_waits_longer_never_shorter(status: int, retry_after: str | None, asked_s: float) -> None:
    """Of the URL here, of the origin or the host in the frontier, which takes the larger of the two."""
    outcome = answer(job(), status, retry_after=retry_after).outcome
    assert (outcome.way, outcome.wait_s) == ("r", max(10, asked_s))
    concerned = outcome.pushed_back if status == 429 else outcome.failed
    assert concerned
    assert concerned.retry_after_s == asked_s


@pytest.mark.parametrize(
    ("date", "asked_s"),
    [
        ("Tue, 14 Nov 2023 22:13:20 GMT", 120),
        ("Tue, 14 Nov 2023 21:13:20 GMT", 3720),  # an hour behind: what it means is by its own clock
        ("Tue, 14 Nov 2023 23:13:20 GMT", 0),
        ("Fri, 30 Feb 2023 22:13:20 GMT", 120),
        ("now", 120),
        (None, 120),
    ],
)
def test_a_date_to_retry_after_is_by_the_clock_of_the_server_that_sent_it(date: str | None, asked_s: float) -> None:
    back = answer(job(), 429, retry_after="Tue, 14 Nov 2023 22:15:20 GMT", date=date).outcome.pushed_back
    assert back
    assert back.retry_after_s == asked_s


@pytest.mark.parametrize(("status", "kind"), [(429, "http_429"), (503, "http_503"), (500, "http_5xx")])
@pytest.mark.parametrize("retry_after", ["7201", "99999999", "Wed, 15 Nov 2023 00:13:21 GMT"])
def test_a_crawl_that_ends_does_not_wait_longer_than_until_it_gives_up(status: int, kind: str, retry_after: str) -> None:
    verdict = answer(job(), status, retry_after=retry_after)
    assert (told(verdict.outcome), verdict.is_last, verdict.stat) == (("x", 0, kind), True, f"errors/{kind}")
    outcome = verdict.outcome
    concerned = outcome.pushed_back if status == 429 else outcome.failed
    assert concerned  # nor do its other URLs
    asked_s = min(float(retry_after), RETRY_AFTER_CAP_S) if retry_after.isdigit() else 7201
    assert (concerned.retry_after_s, concerned.give_up_s, concerned.reason) == (asked_s, GIVE_UP_S, kind)


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("retry_after", ["1", "60", "86400"])
def test_a_crawl_that_gives_up_at_once_waits_for_nobody(status: int, retry_after: str) -> None:
    outcome = answer(job(), status, retry_after=retry_after, by=judge(0.0)).outcome
    concerned = outcome.pushed_back if status == 429 else outcome.failed
    assert concerned
    assert (outcome.way, concerned.give_up_s) == ("x", 0.0)
    assert answer(job(), status, retry_after="0", by=judge(0.0)).outcome.way == "r"


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize(
    ("give_up_s", "retry_after"),
    [(None, "99999999"), (None, "86400"), (90_000.0, "99999999"), (86_400.0, "99999999"), (7200.0, "7199"), (7200.0, "7200")],
)
def test_one_that_goes_on_or_has_the_time_waits_as_asked_up_to_a_day(status: int, give_up_s: float | None, retry_after: str) -> None:
    verdict = answer(job(), status, retry_after=retry_after, by=judge(give_up_s))
    assert (verdict.outcome.way, verdict.outcome.wait_s, verdict.is_last) == ("r", min(RETRY_AFTER_CAP_S, float(retry_after)), False)


# -- refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "page", "stat"),
    [
        (200, b"<p>Tea</p>", "good", None),
        (401, b"", None, None),
        (403, b"<p>Tea</p>", "refused", "refusals"),
        (200, b"<html></html>", "refused", "refusals"),
        (200, b"<div class='g-recaptcha'>", "refused", "refusals"),
        (404, b"", None, None),
        (400, b"", None, None),
        (304, b"", None, None),
    ],
)
@pytest.mark.parametrize("follow", [True, False])
def test_the_frontier_is_told_how_a_page_looks(status: int, body: bytes, page: str | None, stat: str | None, follow: bool) -> None:
    verdict = answer(job(sibling=2), status, body=body, follow=follow)
    seen = verdict.outcome.page
    assert page == (None if seen is None else "good" if seen == GOOD_PAGE else "refused")
    assert (told(verdict.outcome), verdict.stat, verdict.is_last) == (("d", 0, None), stat, True)


@pytest.mark.parametrize("status", [200, 203, 206, 401, 403])
def test_what_was_not_read_is_neither_a_page_nor_a_refusal(status: int) -> None:
    """Stopped at the headers for its type, or an answer to HEAD."""
    verdict = answer(job(request={"method": "HEAD"}), status, body=None)
    assert (told(verdict.outcome), verdict.outcome.page) == (("d", 0, None), None)
    assert (verdict.stat, verdict.is_page, verdict.is_last) == (None, False, True)


@pytest.mark.parametrize("status", [204, 205])
def test_what_has_no_body_by_its_status_is_no_refusal(status: int) -> None:
    assert answer(job(), status).outcome.page is None


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failure_is_one_with_or_without_a_body(status: int) -> None:
    assert answer(job(), status, body=None) == answer(job(), status)


@pytest.mark.parametrize("status", [*REDIRECTS, *GONE, 429, 500, 503])
def test_what_is_followed_or_tried_again_tells_nothing_of_it(status: int) -> None:
    assert answer(job(), status, location="/y").outcome.page is None
    assert answer(robots_job(), status, location="/y").outcome.page is None


def test_a_robots_txt_is_no_page_of_the_host() -> None:
    assert [answer(robots_job(), status).outcome.page for status in (200, 403, 404)] == [None, None, None]


@pytest.mark.parametrize(
    ("give_up_s", "rests"),
    [
        (None, Refused(6 * 3600, 7 * DAY_S, None, 3600)),  # a crawl that goes on can wait for days
        (GIVE_UP_S, Refused(7200, 7200, 7200, 3600)),
        (DAY_S, Refused(6 * 3600, 6 * 3600, DAY_S, 3600)),
        (0.0, Refused(1, 1, 0, 3600)),
    ],
)
def test_a_site_that_has_blocked_us_rests_no_longer_than_it_may_take(give_up_s: float | None, rests: Refused) -> None:
    assert answer(job(), 403, by=judge(give_up_s)).outcome.page == PageSeen(rests)


# -- failures ------------------------------------------------------------------------------------------------------------

Told = tuple[str, float, Any]
# What the frontier is told at the first failure: way, wait, argument; of the origin: gap, most, dead after, struggling, URLs wait.
FIRST: dict[str, tuple[Told, tuple[float, float, int | None, bool, bool] | None]] = {
    "dns_nxdomain": (("o", 0, None), (8, 30, 3, False, False)),
    "connect_refused": (("o", 0, None), (8, 30, 3, False, False)),
    "dns_servfail": (("o", 0, None), (10, 21_600, None, False, False)),
    "dns_timeout": (("o", 0, None), (10, 21_600, None, False, False)),
    "connect_timeout": (("o", 0, None), (15, 21_600, None, False, False)),
    "connect_failed": (("o", 0, None), (15, 21_600, None, False, False)),
    "tls": (("o", 0, None), (5, 3600, 2, False, True)),
    "timeout": (("r", 15, (3, "timeout")), (2, 600, None, True, False)),
    "reset": (("r", 10, (3, "reset")), None),
    "bad_response": (("r", 30, (2, "bad_response")), None),
    "http_429": (("r", 10, (5, "http_429")), None),
    "http_503": (("r", 10, (4, "http_503")), (5, 3600, None, True, False)),
    "http_5xx": (("r", 10, (4, "http_5xx")), (2, 600, None, True, False)),
    "private_address": (("x", 0, "private_address"), None),
    "parser_died": (("r", 10, (2, "parser_died")), None),
    "no_outcome": (("r", 5, (3, "no_outcome")), None),
    "error": (("r", 10, (3, "error")), None),
}
NEVER_ANSWERED = ("timeout", "connect_timeout")


def failed(reason: str, row: tuple[float, float, int | None, bool, bool], retry_after_s: float = 0.0) -> OriginFailed:
    """As a crawl with `GIVE_UP_S` says it."""
    gap_s, most_s, dead_after, struggling, urls_wait = row
    return OriginFailed(reason, gap_s, most_s, 1.0, retry_after_s, dead_after, 3600.0, GIVE_UP_S, struggling, urls_wait)


def first(kind: str, j: Job) -> Outcome:
    (way, wait_s, arg), row = FIRST[kind]
    return Outcome(
        j.lease,
        way,
        SENT.ended,
        TIMEOUT_S if kind in NEVER_ANSWERED else SENT.latency_s,
        wait_s,
        arg,
        origin=ORIGIN,
        failed=failed(kind, row) if row else None,
        pushed_back=pushed_back() if kind == "http_429" else None,
    )


def test_every_row_of_the_table_is_tested() -> None:
    assert FIRST.keys() == FAILURES.keys()


@pytest.mark.parametrize("kind", FAILURES)
def test_every_kind_of_failure_has_its_outcome(kind: str) -> None:
    j = job(origin_failures=7, trouble_s=5000.0)  # the frontier counts by itself what is the origin's
    verdict = judge().failure(j, FetchError(kind, "why"), SENT)
    assert verdict.outcome == first(kind, j)
    assert (verdict.stat, verdict.is_page, verdict.link, verdict.news) == (f"errors/{kind}", False, None, None)


@pytest.mark.parametrize(("kind", "row"), [(kind, row) for kind, row in FAILURES.items() if row.url])
def test_a_url_waits_twice_as_long_after_each_of_its_own_failures(kind: str, row: Failure) -> None:
    assert row.url
    waits = [judge().failure(job(failures=n), FetchError(kind), SENT).outcome.wait_s for n in (0, 1, 2, 30)]
    assert waits == [row.url.first_s, 2 * row.url.first_s, 4 * row.url.first_s, row.url.most_s]


@pytest.mark.parametrize("kind", [kind for kind, row in FAILURES.items() if not row.url])
def test_what_is_no_fault_of_a_url_is_not_counted_against_it(kind: str) -> None:
    assert judge().failure(job(failures=30), FetchError(kind), SENT).outcome == first(kind, job(failures=30))


def test_waits_are_spread_by_jitter() -> None:
    rng = random.Random(3)
    outcomes = [judge(rng=rng).failure(job(), FetchError("timeout"), SENT).outcome for _ in range(50)]
    assert len({outcome.wait_s for outcome in outcomes}) > 40
    assert all(0.75 * 15 <= outcome.wait_s <= 1.25 * 15 for outcome in outcomes)
    jitters = {outcome.failed.jitter for outcome in outcomes if outcome.failed}
    assert len(jitters) > 40
    assert all(0.75 <= jitter <= 1.25 for jitter in jitters)
    backs = [answer(job(), 429, by=judge(rng=rng)).outcome.pushed_back for _ in range(50)]
    assert len({back.jitter for back in backs if back}) > 40


def test_a_request_that_was_never_answered_counts_as_so_slow() -> None:
    for kind in FAILURES:
        outcome = judge().failure(job(), FetchError(kind), Sent(ended=5.0)).outcome
        assert outcome.latency_s == (TIMEOUT_S if kind in NEVER_ANSWERED else None)


@pytest.mark.parametrize("kind", [kind for kind, (_, row) in FIRST.items() if row])
@pytest.mark.parametrize(("give_up_s", "dead_s"), [(None, 3600), (0.0, 1), (600.0, 600), (7200.0, 3600)])
def test_an_origin_is_given_up_after_the_configured_time_or_thirty_days(kind: str, give_up_s: float | None, dead_s: float) -> None:
    row = judge(give_up_s).failure(job(), FetchError(kind), SENT).outcome.failed
    assert row
    assert (row.give_up_s, row.dead_s) == (30 * DAY_S if give_up_s is None else give_up_s, dead_s)


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError(), RecursionError(), FetchError("unheard_of"), FrontierError("x"), KeyboardInterrupt()]
)
def test_what_is_not_in_the_table_is_the_row_for_the_rest(error: BaseException) -> None:
    verdict = judge().failure(job(), error, SENT)
    assert verdict.outcome == first("error", job())
    assert verdict.stat == "errors/error"


def test_no_error_and_no_answer_is_a_failure_too() -> None:
    verdict = judge().failure(job(), None, SENT)
    assert verdict.outcome == first("no_outcome", job())
    assert verdict.stat == "errors/no_outcome"


@pytest.mark.parametrize("j", [job(failures=3), robots_job(), elsewhere()])
def test_a_lease_too_short_gives_the_url_back_uncounted(j: Job) -> None:
    verdict = judge().failure(j, LeaseExpired(), Sent())
    assert verdict == Verdict(Outcome(j.lease, "l"), "leases/returned", is_last=False)


@pytest.mark.parametrize("j", [job(failures=3), robots_job(), elsewhere()])
def test_a_kept_connection_that_is_gone_gives_the_url_back_uncounted_but_moves_the_clock(j: Job) -> None:
    verdict = judge().failure(j, ConnectionWasClosed(), Sent(ended=50.0))
    assert verdict == Verdict(Outcome(j.lease, "l", 50.0), "keep_alive/lost", is_last=False)


@pytest.mark.parametrize("j", [job(failures=3), robots_job(), elsewhere()])
def test_a_full_disk_makes_the_url_wait_uncounted(j: Job) -> None:
    """Nor does it make a robots.txt unreachable."""
    verdict = judge().failure(j, StoreError("full"), SENT)
    assert verdict.outcome == Outcome(j.lease, "w", SENT.ended, SENT.latency_s, STORE_FULL_WAIT_S)
    assert (verdict.stat, verdict.news, verdict.robots, verdict.is_last) == ("errors/store", None, None, False)


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


@pytest.mark.parametrize("sibling", [0, 1, 2])
def test_a_redirect_to_another_spelling_remembers_which_were_tried_and_one_to_another_page_does_not(sibling: int) -> None:
    same, other = (answer(job("https://example.com/a", sibling=sibling), 301, location=location).link for location in ("/a/", "/b"))
    assert same
    assert other
    assert (same.entry.sibling, other.entry.sibling) == (sibling, 0)


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
        verdict = answer(Job(Lease("1", 0, "example.com", entry, 0, 60), robots.origin_of(entry.url)), 302, location=location)
        assert verdict.link
        assert (verdict.link.how, verdict.link.entry.hops, verdict.link.entry.found_as) == (how, n, urls[0])
        assert verdict.link.entry.chain == tuple(key(url) for url in urls[:n])
        entry = verdict.link.entry
    one_more = answer(Job(Lease("1", 0, "example.com", entry, 0, 60), robots.origin_of(entry.url)), 302, location="/consent")
    assert one_more.link
    ended = answer(Job(Lease("1", 0, "example.com", one_more.link.entry, 0, 60), ORIGIN), 302, location="/x")
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


@pytest.mark.parametrize("status", [200, 204, 300, 304, 401, 403, 405, 451])
def test_a_final_answer_is_the_spider_s(status: int) -> None:
    assert answer(job(), status).is_last


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_redirect_is_the_spider_s_only_where_nothing_follows(status: int) -> None:
    assert not answer(job(), status, location="/y").is_last
    assert answer(job(), status, location=None).is_last
    assert answer(job(), status, location=URL).is_last
    assert answer(job(hops=MAX_REDIRECTS), status, location="/y").is_last
    own = answer(job(), status, location="/y", follow=False)
    assert (told(own.outcome), own.link, own.is_last) == (("d", 0, None), None, True)


@pytest.mark.parametrize("status", GONE)
def test_a_missing_page_is_the_spider_s_only_where_it_has_no_other_spelling(status: int) -> None:
    assert not answer(job(), status).is_last
    assert answer(job(sibling=2), status).is_last
    assert answer(job("https://example.com/a.html", origin_has_pages=True), status).is_last
    own = answer(job(), status, follow=False)
    assert (told(own.outcome), own.link, own.is_last) == (("d", 0, None), None, True)


@pytest.mark.parametrize(("kind", "row"), FAILURES.items(), ids=FAILURES)
def test_a_failure_is_the_spider_s_when_no_try_is_left(kind: str, row: Failure) -> None:
    shown = [judge().failure(job(failures=n, origin_failures=n), FetchError(kind), SENT).is_last for n in range(row.url_tries)]
    if row.origin and not row.url:
        assert shown == [False]  # the URL comes again, or dies with its origin
    else:
        assert shown == [False] * (row.url_tries - 1) + [True]


@pytest.mark.parametrize(
    "j",
    [
        robots_job(),
        robots_job(2),
        robots_job(stale=robots.Answer("allow")),
        elsewhere(),
        elsewhere(url=BACK_HOME),
        elsewhere(has_stale=True),
    ],
)
def test_robots_txt_is_never_the_spider_s(j: Job) -> None:
    assert not any(answer(j, status, location="/y").is_last for status in (200, 301, 403, 404, 429, 503))
    assert not any(judge().failure(j, FetchError(kind), SENT).is_last for kind in FAILURES)
    assert not judge().failure(j, None, SENT).is_last


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


# -- other spellings -----------------------------------------------------------------------------------------------------

# Have pages: nobody, another origin of the host, the URL's own origin, both.
NOBODY, OTHERS, OWN, BOTH = (False, False), (False, True), (True, False), (True, True)


@pytest.mark.parametrize("status", GONE)
@pytest.mark.parametrize(
    ("url", "sibling", "have_pages", "other", "tried"),
    [
        # where the origin has pages, the slash first
        ("https://example.com/a", 0, OWN, "https://example.com/a/", 1),
        ("https://example.com/a", 0, BOTH, "https://example.com/a/", 1),
        ("https://example.com/a/", 0, OWN, "https://example.com/a", 1),
        ("http://example.com:8080/a", 0, OWN, "http://example.com:8080/a/", 1),
        ("https://shop.example.com/a", 0, OWN, "https://shop.example.com/a/", 1),
        # then, if others have some too, the URL as it was found there
        ("https://example.com/a/", 1, BOTH, "https://www.example.com/a", 2),
        ("https://www.example.com/a", 1, BOTH, "https://example.com/a/", 2),
        ("http://example.com/a/", 1, BOTH, "https://example.com/a", 2),
        # at once, if it has no other slash
        ("http://example.com/a?b=c", 0, BOTH, "https://example.com/a?b=c", 2),
        ("https://example.com/a.html", 0, BOTH, "https://www.example.com/a.html", 2),
        ("https://example.com/", 0, BOTH, "https://www.example.com/", 2),
        # where nothing was ever found, the whole origin may be the wrong one
        ("http://example.com/a?b=c", 0, NOBODY, "https://example.com/a?b=c", 2),
        ("https://example.com/", 0, NOBODY, "https://www.example.com/", 2),
        ("https://www.example.com/a", 0, NOBODY, "https://example.com/a", 2),
        ("http://example.com:8080/a", 0, NOBODY, "http://www.example.com:8080/a", 2),
        ("https://www.example.com/a", 0, OTHERS, "https://example.com/a", 2),
        ("https://www.example.com/a", 1, OTHERS, "https://example.com/a/", 2),
    ],
)
def test_a_missing_page_is_tried_under_another_spelling(
    status: int, url: str, sibling: int, have_pages: tuple[bool, bool], other: str, tried: int
) -> None:
    own, others = have_pages
    entry: dict[str, Any] = {"priority": 3, "depth": 2, "referrer": "https://example.com/", "hops": 1, "chain": (b"k" * 16,)}
    j = job(url, origin_has_pages=own, others_have_pages=others, failures=2, expiries=1, sibling=sibling, **entry)
    verdict = answer(j, status)
    assert told(verdict.outcome) == ("d", 0, None)
    assert (verdict.stat, verdict.is_page, verdict.is_last) == ("siblings", False, False)
    assert verdict.link == Link("example.com", key(url), Entry(other, sibling=tried, **entry), UNCHECKED)


@pytest.mark.parametrize(
    ("url", "sibling", "have_pages"),
    [
        # the origin has pages, so this is none; no other has any
        ("https://example.com/", 0, OWN),
        ("https://example.com/a.html", 0, OWN),
        ("https://example.com/a?b=c", 0, OWN),
        ("https://example.com/a/", 1, OWN),
        ("https://shop.example.com/a/", 1, BOTH),  # www.shop.example.com is no other name of it
        ("https://shop.example.com/a", 0, NOBODY),
        ("http://shop.example.com:8080/a", 0, NOBODY),
    ],
)
def test_a_missing_page_without_another_spelling_is_final(url: str, sibling: int, have_pages: tuple[bool, bool]) -> None:
    own, others = have_pages
    verdict = answer(job(url, origin_has_pages=own, others_have_pages=others, sibling=sibling), 404)
    assert (told(verdict.outcome), verdict.stat, verdict.link, verdict.is_last) == (("d", 0, None), None, None, True)


@pytest.mark.parametrize("sibling", [0, 1])
@pytest.mark.parametrize("have_pages", [NOBODY, OTHERS, OWN, BOTH])
def test_a_spelling_that_was_behind_a_redirect_is_not_tried_again(sibling: int, have_pages: tuple[bool, bool]) -> None:
    own, others = have_pages
    j = job(
        "https://example.com/a/",
        origin_has_pages=own,
        others_have_pages=others,
        sibling=sibling,
        hops=1,
        chain=(key(URL), key("https://example.com/a")),
    )
    assert answer(j, 404).link is None


# Requests for a page that no site has, and how many may be made until that is known.
@pytest.mark.parametrize(
    ("site", "have_pages", "asked"),
    [
        ("plain", OWN, ["https://example.com/a", "https://example.com/a/"]),
        ("plain", BOTH, ["https://example.com/a", "https://example.com/a/", "https://www.example.com/a"]),
        ("plain", NOBODY, ["https://example.com/a", "https://www.example.com/a"]),
        ("plain", OTHERS, ["https://example.com/a", "https://www.example.com/a"]),
        # puts a slash to everything
        ("slash", OWN, ["https://example.com/a", "https://example.com/a/"]),
        ("slash", BOTH, ["https://example.com/a", "https://example.com/a/"]),
        ("slash", NOBODY, ["https://example.com/a", "https://example.com/a/"]),
        # has one name, and sends the other one there
        ("bare", OWN, ["https://example.com/a", "https://example.com/a/"]),
        ("bare", NOBODY, ["https://example.com/a", "https://www.example.com/a", "https://example.com/a"]),
        ("www", BOTH, ["https://example.com/a", "https://www.example.com/a"]),
        ("www", NOBODY, ["https://example.com/a", "https://www.example.com/a"]),
    ],
)
def test_a_page_that_is_nowhere_costs_three_requests_at_the_most(site: str, have_pages: tuple[bool, bool], asked: list[str]) -> None:
    requests: list[str] = []
    entry, (own, others) = Entry("https://example.com/a"), have_pages
    while len(requests) < 20:
        requests.append(entry.url)
        j = Job(
            Lease("1", 0, "example.com", entry, 0.0, 60.0, origin_has_pages=own, others_have_pages=others),
            robots.origin_of(entry.url),
            robots_host="example.com",
        )
        is_www = entry.url.startswith("https://www.")
        if site == "slash" and not entry.url.endswith("/"):
            verdict = answer(j, 301, location=entry.url + "/")
        elif site == "www" and not is_www:
            verdict = answer(j, 301, location=entry.url.replace("//", "//www."))
        elif site == "bare" and is_www:
            verdict = answer(j, 301, location=entry.url.replace("//www.", "//"))
        else:
            verdict = answer(j, 404)
        if verdict.link is None:
            break
        entry = verdict.link.entry
    assert requests == asked


@pytest.mark.parametrize("host", ["192.0.2.7", "localhost", "github.io"])
def test_a_host_whose_www_is_not_itself_has_no_other_origin(host: str) -> None:
    url = f"https://{host}/a"
    j = Job(lease(url, host=host), robots.origin_of(url), robots_host=host)
    assert answer(j, 404).link is None


@pytest.mark.parametrize("status", GONE)
@pytest.mark.parametrize("have_pages", [NOBODY, OTHERS, OWN, BOTH])
@pytest.mark.parametrize(
    "entry",
    [
        {"sibling": 2},  # it is the last spelling
        {"request": {"method": "POST"}},
        {"request": {"callback": "parse_item"}},
    ],
)
def test_only_a_plain_get_is_tried_once_more(status: int, have_pages: tuple[bool, bool], entry: dict[str, Any]) -> None:
    own, others = have_pages
    verdict = answer(job(origin_has_pages=own, others_have_pages=others, **entry), status)
    assert (told(verdict.outcome), verdict.stat, verdict.link, verdict.is_last) == (("d", 0, None), None, None, True)


@pytest.mark.parametrize("status", GONE)
def test_a_missing_page_that_the_spider_asked_for_is_the_spider_s(status: int) -> None:
    verdict = answer(job(), status, follow=False)
    assert (told(verdict.outcome), verdict.stat, verdict.link, verdict.is_last) == (("d", 0, None), None, None, True)


def test_a_missing_robots_txt_has_no_other_spelling() -> None:
    assert [answer(robots_job(), status).link for status in GONE] == [None, None]


@given(st.sampled_from(GONE), st.booleans(), st.booleans(), st.sampled_from((0, 1, 2)), st.text(max_size=40))
@settings(deadline=None, derandomize=True)
def test_no_spelling_leads_to_another_page_or_is_tried_twice(status: int, own: bool, others: bool, sibling: int, path: str) -> None:
    target = CANONICALIZER.target("http://example.com/" + path)
    if target is None:
        return
    verdict = answer(job(target.url, origin_has_pages=own, others_have_pages=others, sibling=sibling), status)
    if verdict.link is not None:
        assert (verdict.link.host, verdict.link.key) == (target.host, target.key)
        assert verdict.link.key == key(verdict.link.entry.url)
        assert verdict.link.entry.url != target.url
        assert verdict.link.entry.sibling > sibling


# -- robots.txt ----------------------------------------------------------------------------------------------------------

KEPT_MS = 30 * 86_400_000
RULES = b"User-agent: *\nDisallow: /no\nCrawl-delay: 2.5"


def kept(verdict: Verdict) -> tuple[robots.Answer, int, int]:
    """The answer that is put into Redis, its life and the crawl-delay; the URL of the lease goes back as it was."""
    assert told(verdict.outcome) == ("l", 0, None)
    assert verdict.outcome.robots
    assert (verdict.is_page, verdict.link, verdict.news) == (False, None, None)
    assert trouble(verdict.outcome) == (None, None)
    found = verdict.outcome.robots
    assert found.origin == ORIGIN
    assert verdict.robots
    assert verdict.robots.pack() == found.value
    assert robots.Answer.unpack(found.value).decision == verdict.robots.decision
    return verdict.robots, found.lives_ms, found.crawl_delay_ms


def allow() -> KeptNow:
    return KeptNow(ORIGIN, robots.Answer("allow").pack(), KEPT_MS, -1)


@pytest.mark.parametrize(
    ("line", "delay_ms"), [(b"Crawl-delay: 2.5", 2500), (b"Crawl-delay: 0", 0), (b"Crawl-delay: 1e9", 60_000), (b"Disallow: /x", -1)]
)
def test_rules_are_kept_with_their_crawl_delay(line: bytes, delay_ms: int) -> None:
    body = b"User-agent: *\n" + line
    verdict = answer(robots_job(), 200, body=body)
    assert kept(verdict) == (robots.Answer("rules", body), KEPT_MS, delay_ms)
    assert verdict.stat == "robots/fetched/rules"


def test_the_cap_of_a_crawl_delay_can_be_set() -> None:
    by = Judge(
        CANONICALIZER, max_redirects=5, give_up_s=None, timeout_s=TIMEOUT_S, rng=Middle(0), crawl_delay_cap_s=2.0, unix_now=lambda: NOW
    )
    assert kept(answer(robots_job(), 200, body=RULES, by=by))[2] == 2000


SITEMAPS = b"Sitemap: https://cdn.org/s.xml\nUser-agent: *\nSitemap: s/2.xml"


def test_sitemaps_are_kept_a_bounded_number_and_relative_to_where_they_stood() -> None:
    here, there = answer(robots_job(), 200, body=SITEMAPS), answer(elsewhere(url="https://cdn.org/a/robots.txt"), 200, body=SITEMAPS)
    assert here.outcome.robots
    assert here.outcome.robots.sitemaps == ("https://cdn.org/s.xml", "https://example.com/s/2.xml")
    found = news(there).robots
    assert found
    assert found.sitemaps == ("https://cdn.org/s.xml", "https://cdn.org/a/s/2.xml")
    many = answer(robots_job(), 200, body=b"".join(b"Sitemap: /%d.xml\n" % n for n in range(5000)))
    assert many.outcome.robots
    assert len(many.outcome.robots.sitemaps) == SITEMAPS_MOST


@pytest.mark.parametrize("status", [300, 304, 400, 401, 403, 404, 410, 451])
def test_no_robots_txt_allows_everything(status: int) -> None:
    verdict = answer(robots_job(), status, body=b"User-agent: *\nDisallow: /\nCrawl-delay: 9")
    assert kept(verdict) == (robots.Answer("allow"), KEPT_MS, -1)
    assert verdict.stat == "robots/fetched/allow"


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize(
    "location", ["/other.txt", "http://example.com/robots.txt", "https://www.example.com/robots.txt", "https://cdn.example.com/r"]
)
@pytest.mark.parametrize("hops", [0, 1, 4])
@pytest.mark.parametrize("stale", [None, robots.Answer("allow")])
def test_a_redirect_on_the_host_is_the_next_turn_s(status: int, location: str, hops: int, stale: robots.Answer | None) -> None:
    """Remembered for some minutes, beside the old copy of robots.txt, which it does not replace."""
    j = robots_job(hops, stale)
    if not hops:
        j.robots_url = "https://example.com/first.txt"
    verdict = answer(j, status, location=location)
    assert verdict.outcome.robots_hop
    origin, value, lives_ms = verdict.outcome.robots_hop
    found = robots.Answer.unpack(value)
    assert verdict.outcome == Outcome(j.lease, "l", SENT.ended, SENT.latency_s, origin=ORIGIN, robots_hop=(ORIGIN, value, lives_ms))
    assert (origin, found, lives_ms) == (ORIGIN, robots.Answer("redirect", to=robots_target(j, location), hops=hops + 1), 300_000)
    assert (verdict.stat, verdict.robots, verdict.link, verdict.news) == ("robots/fetched/redirect", found, None, None)


def robots_target(j: Job, location: str) -> str:
    target = CANONICALIZER.target(location, j.robots_url)
    assert target
    return target.url


@pytest.mark.parametrize(
    ("location", "why"),
    [("/robots.txt", "loop"), ("https://example.com/robots.txt#x", "loop"), ("", "invalid"), ("http://[", "invalid"), (None, "invalid")],
)
def test_a_redirect_that_leads_nowhere_is_no_rules_and_counted(location: str | None, why: str) -> None:
    verdict = answer(robots_job(), 301, location=location)
    assert kept(verdict) == (robots.Answer("allow"), KEPT_MS, -1)
    assert verdict.stat == f"robots/fetched/{why}"


@pytest.mark.parametrize("location", ["/next", "https://cdn.org/robots.txt"])
def test_too_many_redirects_of_robots_txt_are_no_rules(location: str) -> None:
    verdict = answer(robots_job(robots_hops=robots.MAX_HOPS), 301, location=location)
    assert kept(verdict)[0] == robots.Answer("allow")
    assert verdict.stat == "robots/fetched/too_many"


# -- robots.txt at another host ------------------------------------------------------------------------------------------

WAITS = failed("robots_elsewhere", (30, 1800, None, False, False))


@pytest.mark.parametrize(
    ("location", "host", "target"),
    [
        ("https://other.org/robots.txt", "other.org", "https://other.org/robots.txt"),
        ("//example.org/r", "example.org", "https://example.org/r"),
        ("https://example.com.evil.org/", "evil.org", "https://example.com.evil.org/"),
        ("http://user:secret@cdn.org/r#x", "cdn.org", "http://cdn.org/r"),
        ("http://192.0.2.1", "192.0.2.1", "http://192.0.2.1/"),
        ("http://[2001:db8::1]/", "[2001:db8::1]", "http://[2001:db8::1]/"),
    ],
)
@pytest.mark.parametrize("hops", [0, 3])
def test_a_redirect_to_another_host_waits_for_that_host_s_turn(location: str, host: str, target: str, hops: int) -> None:
    """Its clock moves for the request; the origin waits meanwhile."""
    j = robots_job(robots_hops=hops)
    verdict = answer(j, 301, location=location)
    assert verdict.outcome == Outcome(j.lease, "o", SENT.ended, SENT.latency_s, origin=ORIGIN, failed=WAITS)
    assert (verdict.stat, verdict.robots, verdict.news, verdict.is_last) == ("robots/fetched/redirect_other_host", None, None, False)
    assert verdict.link
    link = verdict.link
    assert (link.host, link.how) == (host, UNCHECKED)
    assert link.entry == Entry(target, 0, request=robots_request("example.com", ORIGIN, hops + 1))
    assert robots_requested(link.entry.request) == ("example.com", ORIGIN, hops + 1, False)


@pytest.mark.parametrize("stale", [robots.Answer("rules", b"User-agent: *"), robots.Answer("allow")])
@pytest.mark.parametrize("hops", [0, 3])
def test_an_older_copy_is_obeyed_while_the_new_one_is_fetched_from_another_host(stale: robots.Answer, hops: int) -> None:
    """Nobody waits for the other host, and nobody needs to be told if it has none."""
    j = robots_job(hops, stale)
    verdict = answer(j, 301, location="https://cdn.org/robots.txt", retry_after="7000")
    assert verdict.outcome == Outcome(j.lease, "l", SENT.ended, SENT.latency_s, origin=ORIGIN, stale_robots=(ORIGIN, STALE_S))
    assert (verdict.stat, verdict.robots, verdict.news, verdict.is_last) == ("robots/fetched/redirect_other_host", stale, None, False)
    assert verdict.link
    assert (verdict.link.host, verdict.link.entry.url, verdict.link.how) == ("cdn.org", "https://cdn.org/robots.txt", UNCHECKED)
    assert robots_requested(verdict.link.entry.request) == ("example.com", ORIGIN, hops + 1, True)


def test_the_same_robots_txt_is_asked_for_by_each_origin_and_is_not_taken_for_a_page() -> None:
    links = []
    for origin in (ORIGIN, "https://www.example.com"):
        j = Job(lease(origin + "/x"), origin, origin + "/robots.txt", 0, "example.com")
        links.append(answer(j, 301, location="https://cdn.org/robots.txt").link)
    keys = {link.key for link in links if link}
    assert len(keys) == 2
    assert key("https://cdn.org/robots.txt") not in keys


def news(verdict: Verdict) -> Outcome:
    """What the host that asked is told, by a call without a lease; the other host's URL is done."""
    assert (told(verdict.outcome), verdict.outcome.robots, verdict.link, verdict.is_last) == (("d", 0, None), None, None, False)
    assert verdict.news
    no_lease = Lease("", 3, "example.com", Entry(""), 0.0, 0.0)
    outcome = verdict.news(no_lease)
    assert (outcome.lease, outcome.way, outcome.ended, outcome.latency_s) == (no_lease, "l", None, None)
    return outcome


@pytest.mark.parametrize(
    ("status", "location", "body", "found", "delay_ms", "stat"),
    [
        (200, None, RULES, robots.Answer("rules", RULES), 2500, "rules"),
        (200, None, b"", robots.Answer("rules"), -1, "rules"),
        (404, None, RULES, robots.Answer("allow"), -1, "allow"),
        (403, None, b"", robots.Answer("allow"), -1, "allow"),
        (301, "https://cdn.org/robots.txt", b"", robots.Answer("allow"), -1, "loop"),
        (301, "http://[", b"", robots.Answer("allow"), -1, "invalid"),
        (301, "ftp://cdn.org/", b"", robots.Answer("allow"), -1, "invalid"),
    ],
)
@pytest.mark.parametrize("has_stale", [False, True])
@pytest.mark.parametrize("url", ["https://cdn.org/robots.txt", BACK_HOME])
def test_what_a_link_brings_holds_for_the_origin_that_asked(
    url: str, has_stale: bool, status: int, location: str | None, body: bytes, found: robots.Answer, delay_ms: int, stat: str
) -> None:
    """Also where the way led back to the host that asked: its page did not wait in this turn, so nothing is released."""
    verdict = answer(
        elsewhere(1, url, has_stale), status, location=location and location.replace("https://cdn.org/robots.txt", url), body=body
    )
    outcome = news(verdict)
    assert outcome.robots == KeptNow(ORIGIN, found.pack(), KEPT_MS, delay_ms)
    assert (verdict.robots, verdict.stat, trouble(outcome)) == (found, f"robots/fetched/{stat}", (None, None))
    assert trouble(verdict.outcome) == (None, None)


@pytest.mark.parametrize(
    "location", ["/moved.txt", "https://third.net/robots.txt", "https://www.example.com/r.txt", ORIGIN + "/robots.txt"]
)
@pytest.mark.parametrize("has_stale", [False, True])
@pytest.mark.parametrize("url", ["https://cdn.org/robots.txt", BACK_HOME])
def test_whoever_has_the_link_may_send_on(url: str, location: str, has_stale: bool) -> None:
    """To its own host, to a third one, back to the host that asked: a link again, which knows whether an old copy is at hand."""
    j = elsewhere(2, url, has_stale)
    verdict = answer(j, 302, location=location)
    assert verdict.outcome == Outcome(j.lease, "d", SENT.ended, SENT.latency_s)
    assert (verdict.stat, verdict.robots, verdict.news) == ("robots/fetched/redirect", None, None)
    assert verdict.link
    target = CANONICALIZER.target(location, url)
    assert target
    assert (verdict.link.host, verdict.link.entry.url, verdict.link.how) == (target.host, target.url, UNCHECKED)
    assert robots_requested(verdict.link.entry.request) == ("example.com", ORIGIN, 3, has_stale)


@pytest.mark.parametrize("after", [200, 404])
def test_five_hops_over_other_hosts_are_followed(after: int) -> None:
    verdict = answer(robots_job(), 301, location="https://h1.org/robots.txt")
    for hop in range(2, robots.MAX_HOPS + 1):
        assert verdict.link
        verdict = answer(elsewhere(hop - 1, verdict.link.entry.url), 301, location=f"https://h{hop}.org/robots.txt")
    assert verdict.link
    assert robots_requested(verdict.link.entry.request) == ("example.com", ORIGIN, robots.MAX_HOPS, False)
    last = answer(elsewhere(robots.MAX_HOPS, verdict.link.entry.url), after, body=RULES)
    found = news(last).robots
    assert found
    assert found.value == (robots.Answer("rules", RULES) if after == 200 else robots.Answer("allow")).pack()


def test_a_sixth_hop_is_no_rules_and_counted_and_so_is_a_ring_of_hosts() -> None:
    verdict, hops = answer(robots_job(), 301, location="https://h1.org/"), 0
    while verdict.link is not None:
        hops += 1
        back = "https://h2.org/" if hops % 2 else "https://h1.org/"
        verdict = answer(elsewhere(hops, verdict.link.entry.url), 301, location=back)
    assert hops == robots.MAX_HOPS
    assert (news(verdict).robots, verdict.stat) == (allow(), "robots/fetched/too_many")


@pytest.mark.parametrize("fields", [{}, {"method": "POST"}])
def test_other_requests_are_no_robots_txt(fields: dict[str, object]) -> None:
    assert robots_requested(fields) is None
    assert not job(request=fields).is_robots_link


@pytest.mark.parametrize("host", ["example.com", "cdn.org"])
def test_a_link_for_a_robots_txt_is_known_by_its_entry_whatever_host_it_is_on(host: str) -> None:
    url = f"https://{host}/robots.txt"
    assert elsewhere(url=url).is_robots_link
    assert not Job(lease(url, host=host), ORIGIN, url, 1, "example.com").is_robots_link


@pytest.mark.parametrize(("hops", "has_stale"), [(1, False), (5, True)])
def test_a_request_for_a_robots_txt_comes_back_as_it_was(hops: int, has_stale: bool) -> None:
    fields = json.loads(json.dumps(robots_request("example.com", ORIGIN, hops, has_stale)))
    assert robots_requested(fields) == ("example.com", ORIGIN, hops, has_stale)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "example.com",
        [],
        ["example.com", ORIGIN],
        ["example.com", ORIGIN, 1],
        ["example.com", ORIGIN, "1", 0],
        ["example.com", ORIGIN, 0, 0],
        ["example.com", ORIGIN, -1, 0],
        ["example.com", ORIGIN, 6, 0],
        ["example.com", ORIGIN, 1, None],
        ["example.com", ORIGIN, 1, "0"],
        ["example.com", ORIGIN, 1, 0, 0],
        ["example.com", "https://other.org", 1, 0],  # whose rules would another's host set?
        ["example.com", "example.com", 1, 0],
        ["example.com", "https://[", 1, 0],
        ["example.com", 7, 1, 0],
        [None, ORIGIN, 1, 0],
        {"host": "example.com"},
    ],
)
def test_a_request_for_a_robots_txt_that_is_not_ours_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"robots\.txt"):
        robots_requested({"robots": value})


# -- robots.txt that cannot be had ---------------------------------------------------------------------------------------

CANNOT = failed("robots_unreachable", (5, 1800, None, False, False))
HOWS = [
    500,
    503,
    600,
    "timeout",
    "reset",
    "bad_response",
    "dns_servfail",
    "dns_timeout",
    "connect_timeout",
    "connect_failed",
    "error",
    None,
]


def cannot(j: Job, how: int | str | None, by: Judge | None = None, retry_after: str | None = None) -> Verdict:
    """A status, a kind of failure, or nothing at all."""
    if isinstance(how, int):
        verdict = answer(j, how, retry_after=retry_after, by=by)
        stat = "stale" if verdict.outcome.stale_robots else "defer" if how == 429 else "unreachable"
        assert verdict.stat in (f"robots/fetched/{stat}", "robots/fetched/unreachable_allow")
        return verdict
    verdict = (by or judge()).failure(j, FetchError(how) if how else None, SENT)
    assert verdict.stat == f"errors/{how or 'no_outcome'}"
    return verdict


def slow(how: int | str | None) -> float | None:
    return TIMEOUT_S if how in NEVER_ANSWERED else SENT.latency_s


@pytest.mark.parametrize("how", HOWS)
def test_while_a_robots_txt_cannot_be_had_the_urls_of_its_origin_wait(how: int | str | None) -> None:
    j = robots_job(origin_failures=7, failures=3, trouble_s=100 * DAY_S)  # a crawl that ends never crawls without it
    verdict = cannot(j, how)
    assert verdict.outcome == Outcome(j.lease, "o", SENT.ended, slow(how), origin=ORIGIN, failed=CANNOT)
    assert (verdict.robots, verdict.link, verdict.news, verdict.is_page) == (None, None, None, False)


@pytest.mark.parametrize("how", [*HOWS, 429])
@pytest.mark.parametrize(("give_up_s", "dead_s"), [(0.0, 1), (600.0, 600), (7200.0, 3600)])
def test_an_origin_without_robots_txt_is_given_up_after_the_configured_time(how: int | str | None, give_up_s: float, dead_s: float) -> None:
    waits = cannot(robots_job(trouble_s=100 * DAY_S), how, judge(give_up_s)).outcome.failed
    assert waits
    assert (waits.reason, waits.give_up_s, waits.dead_s, waits.dead_after) == ("robots_unreachable", give_up_s, dead_s, None)


@pytest.mark.parametrize("how", [*HOWS, 429])
@pytest.mark.parametrize(
    ("trouble_s", "allowed"), [(None, False), (0.0, False), (29 * DAY_S, False), (30 * DAY_S, True), (100 * DAY_S, True)]
)
def test_a_crawl_that_goes_on_has_no_rules_after_thirty_days_without_them(
    how: int | str | None, trouble_s: float | None, allowed: bool
) -> None:
    verdict = cannot(robots_job(trouble_s=trouble_s), how, judge(None))
    if allowed:
        assert verdict.outcome.robots == allow()
        assert (verdict.outcome.way, verdict.robots, verdict.outcome.failed) == ("l", robots.Answer("allow"), None)
        assert not isinstance(how, int) or how == 429 or verdict.stat == "robots/fetched/unreachable_allow"
    else:
        waits = verdict.outcome.failed
        assert waits
        assert (verdict.outcome.way, verdict.outcome.robots) == ("o", None)
        assert (waits.give_up_s, waits.dead_after) == (None, None)  # the 30 days are not the origin's end, but that of the wait


@pytest.mark.parametrize(("retry_after", "asked_s"), [("300", 300), ("1", 1), ("x", 0), (None, 0), ("9999999", DAY_S)])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_retry_after_counts_for_robots_txt_too(status: int, retry_after: str | None, asked_s: float) -> None:
    outcome = cannot(robots_job(), status, retry_after=retry_after).outcome
    assert outcome.failed == failed("robots_unreachable", (5, 1800, None, False, False), asked_s)
    assert outcome.pushed_back == (pushed_back(asked_s) if status == 429 else None)


def test_429_for_a_robots_txt_defers_the_whole_host() -> None:
    j = robots_job()
    verdict = answer(j, 429, retry_after="40")
    waits = failed("robots_unreachable", (5, 1800, None, False, False), 40)
    back = pushed_back(40)
    assert verdict.outcome == Outcome(j.lease, "o", SENT.ended, SENT.latency_s, origin=ORIGIN, failed=waits, pushed_back=back)
    assert (verdict.stat, verdict.robots, verdict.link) == ("robots/fetched/defer", None, None)


@pytest.mark.parametrize("stale", [robots.Answer("rules", RULES), robots.Answer("allow")])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("give_up_s", [None, GIVE_UP_S])
def test_an_older_copy_is_obeyed_while_a_new_one_cannot_be_had(
    stale: robots.Answer, how: int | str | None, give_up_s: float | None
) -> None:
    j = robots_job(stale=stale, trouble_s=100 * DAY_S)
    verdict = cannot(j, how, judge(give_up_s))
    assert verdict.outcome == Outcome(j.lease, "l", SENT.ended, slow(how), origin=ORIGIN, stale_robots=(ORIGIN, STALE_S))
    assert (verdict.robots, verdict.link, verdict.news) == (stale, None, None)


@pytest.mark.parametrize("hops", [0, 1])
@pytest.mark.parametrize(("retry_after", "asked_s"), [("1", 1), ("7200", 7200), ("x", 0)])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_page_waits_for_retry_after_though_an_older_copy_holds(status: int, retry_after: str, asked_s: float, hops: int) -> None:
    j = robots_job(hops, robots.Answer("allow"))
    outcome = cannot(j, status, retry_after=retry_after).outcome
    if status == 429:  # the host rests, copy or not
        assert (outcome.pushed_back, outcome.way, outcome.failed) == (pushed_back(asked_s), "l", None)
    elif asked_s:  # only the origin waits
        assert outcome.failed
        assert (outcome.way, outcome.failed.retry_after_s, outcome.failed.give_up_s, outcome.origin) == ("o", asked_s, None, ORIGIN)
    else:
        assert (outcome.way, outcome.failed, outcome.pushed_back) == ("l", None, None)
    assert outcome.stale_robots == (ORIGIN, STALE_S + (0 if status == 429 else asked_s))
    assert outcome.wait_s == 0


@pytest.mark.parametrize(("give_up_s", "way"), [(3600.0, "l"), (None, "o")])
def test_a_retry_after_that_is_too_long_is_not_waited_for_where_an_older_copy_holds(give_up_s: float | None, way: str) -> None:
    outcome = cannot(robots_job(0, robots.Answer("allow")), 503, judge(give_up_s), retry_after="86400").outcome
    assert (outcome.way, outcome.wait_s) == (way, 0)


@pytest.mark.parametrize("kind", ["dns_nxdomain", "connect_refused", "tls"])
@pytest.mark.parametrize("stale", [None, robots.Answer("allow")])
def test_an_origin_that_is_not_there_is_no_question_of_robots_txt(kind: str, stale: robots.Answer | None) -> None:
    j = robots_job(stale=stale)
    verdict = judge().failure(j, FetchError(kind), SENT)
    assert verdict.outcome == first(kind, j)
    assert (verdict.stat, verdict.robots) == (f"errors/{kind}", None)


NOT_THERE = ["dns_nxdomain", "connect_refused", "tls", "private_address"]


@pytest.mark.parametrize("kind", NOT_THERE)
@pytest.mark.parametrize("stale", [None, robots.Answer("allow")])
def test_an_origin_is_there_though_its_robots_txt_redirects_to_one_that_is_not(kind: str, stale: robots.Answer | None) -> None:
    j = robots_job(1, stale)
    verdict = judge().failure(j, FetchError(kind), SENT)
    expected = Outcome(j.lease, "o", SENT.ended, SENT.latency_s, origin=ORIGIN, failed=CANNOT)
    if stale:
        expected = replace(expected, way="l", failed=None, stale_robots=(ORIGIN, STALE_S))
    assert verdict.outcome == expected
    assert (verdict.stat, verdict.robots, verdict.news) == (f"errors/{kind}", stale, None)


def blamed(how: int | str | None) -> OriginFailed | None:
    """Of the host that has the link: the trouble that it would be for a page of its own."""
    kind = "http_503" if how == 503 else "http_5xx" if isinstance(how, int) else how or "no_outcome"
    row = FIRST[kind][1]
    return failed(kind, row) if row else None


@pytest.mark.parametrize("how", [*HOWS, *NOT_THERE])
@pytest.mark.parametrize("give_up_s", [None, GIVE_UP_S])
@pytest.mark.parametrize("url", ["https://cdn.org/robots.txt", BACK_HOME])
@pytest.mark.parametrize("has_stale", [False, True])
def test_whoever_asked_is_told_that_a_link_did_not_bring_it_unless_it_has_an_older_copy(
    how: int | str | None, give_up_s: float | None, url: str, has_stale: bool
) -> None:
    j = elsewhere(1, url, has_stale)
    verdict = cannot(j, how, judge(give_up_s))
    trouble_there = blamed(how)
    if trouble_there and give_up_s is None:
        trouble_there = replace(trouble_there, give_up_s=30 * DAY_S)
    assert verdict.outcome == Outcome(j.lease, "d", SENT.ended, slow(how), failed=trouble_there)  # of the origin that the link is on
    assert (verdict.robots, verdict.link) == (None, None)
    if has_stale:
        assert verdict.news is None
        return
    no_lease = Lease("", 3, "example.com", Entry(""), 0.0, 0.0)
    assert verdict.news
    outcome = verdict.news(no_lease)
    waits = outcome.failed
    assert waits
    assert outcome == Outcome(no_lease, "l", origin=ORIGIN, failed=waits)
    assert (waits.reason, waits.gap_s, waits.most_s, waits.give_up_s) == ("robots_unreachable", 5, 1800, give_up_s)


@pytest.mark.parametrize(("status", "kind"), [(500, "http_5xx"), (503, "http_503")])
@pytest.mark.parametrize("retry_after", ["300", "99999999"])
def test_retry_after_is_heeded_where_it_was_said_and_by_whoever_asked(status: int, kind: str, retry_after: str) -> None:
    verdict = answer(elsewhere(), status, retry_after=retry_after)
    row = FIRST[kind][1]
    assert row
    asked_s = min(float(retry_after), RETRY_AFTER_CAP_S)
    assert verdict.outcome.failed == failed(kind, row, asked_s)
    assert verdict.news
    assert verdict.news(lease()).failed == failed("robots_unreachable", (5, 1800, None, False, False), asked_s)


def test_429_at_another_host_is_that_host_s_and_whoever_asked_waits() -> None:
    j = elsewhere()
    verdict = answer(j, 429, retry_after="40")
    assert verdict.outcome == Outcome(j.lease, "d", SENT.ended, SENT.latency_s, pushed_back=pushed_back(40))
    assert verdict.stat == "robots/fetched/defer"
    assert verdict.news
    told_ = verdict.news(j.lease)
    assert told_.pushed_back is None
    assert told_.failed == failed("robots_unreachable", (5, 1800, None, False, False), 40)


@pytest.mark.parametrize("has_stale", [False, True])
def test_429_at_another_host_is_told_only_to_whoever_has_no_older_copy(has_stale: bool) -> None:
    verdict = answer(elsewhere(has_stale=has_stale), 429)
    assert (verdict.outcome.pushed_back, verdict.news is None) == (pushed_back(), has_stale)


@given(
    st.sampled_from(("own", "stale", "elsewhere", "back home", "elsewhere, stale")),
    st.none() | st.just(3600.0),
    st.integers(100, 999),
    st.none() | st.text(max_size=40) | st.sampled_from(("/x", "https://cdn.org/x", "https://example.com/robots.txt")),
    st.none() | st.text(max_size=20),
    st.binary(max_size=60),
    st.integers(1, 5),
)
@settings(deadline=None, derandomize=True)
def test_no_answer_for_robots_txt_raises(
    whose: str, give_up_s: float | None, status: int, location: str | None, retry_after: str | None, body: bytes, hops: int
) -> None:
    """It is known afterwards, or somebody waits for it."""
    j = {
        "own": robots_job(robots_hops=hops),
        "stale": robots_job(hops, robots.Answer("allow")),
        "elsewhere": elsewhere(hops),
        "back home": elsewhere(hops, BACK_HOME),
        "elsewhere, stale": elsewhere(hops, has_stale=True),
    }[whose]
    verdict = answer(j, status, location=location, retry_after=retry_after, body=body, by=judge(give_up_s))
    assert verdict.outcome.way == ("d" if j.is_robots_link else "o" if verdict.outcome.failed else "l")
    assert (verdict.is_last, verdict.is_page) == (False, False)
    told_ = verdict.news(j.lease) if verdict.news else verdict.outcome
    holds = whose == "elsewhere, stale"  # the old copy, whatever becomes of the link
    assert any((told_.robots, told_.robots_hop, told_.failed, told_.stale_robots, verdict.link, holds))
    assert verdict.robots is None or verdict.robots.decision in ("rules", "allow", "redirect")


@pytest.mark.parametrize("give_up_s", [0.0, 3600.0])
def test_who_gives_up_at_once_waits_for_no_retry_after_with_an_old_copy(give_up_s: float) -> None:
    outcome = answer(robots_job(stale=robots.Answer("allow")), 503, retry_after="86400", by=judge(give_up_s)).outcome
    assert outcome.wait_s == 0
    assert outcome.failed is None


# -- error pages of hosts --------------------------------------------------------------------------------------------------

SAILED = b"<title>The ferry has sailed</title><p>Somebody must have left this pier long before you came along."
PROBE_URL = "https://example.com/0123456789abcdef"


def probe(**more: Any) -> Job:
    return job(PROBE_URL, request=probe_request(), **more)


def shapes(verdict: Verdict) -> tuple[bytes, ...]:
    return error_pages(verdict.outcome.error_pages)[0]


@pytest.mark.parametrize("status", [404, 410])
def test_the_host_is_told_the_shape_of_a_page_that_is_not_there(status: int) -> None:
    verdict = answer(job(), status, body=SAILED)
    found, is_real, probed_at = error_pages(verdict.outcome.error_pages)
    assert (len(found), is_real, probed_at) == (1, True, 0.0)
    assert soft_404.is_like(parse_page(SAILED, PROBE_URL), PROBE_URL, found)


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (200, SAILED, None),
        (403, SAILED, None),
        (404, b"", None),
        (404, None, None),
        (404, b"<title>404</title>Not Found", None),
        (404, SAILED + b" " * 200_000, None),
        (404, SAILED, "text/plain"),
        (404, SAILED, "application/json"),
    ],
)
def test_other_answers_have_none_to_tell(status: int, body: bytes | None, content_type: str | None) -> None:
    assert answer(job(), status, body=body, content_type=content_type).outcome.error_pages == b""


def test_a_missing_page_whose_other_spelling_is_tried_is_one_of_the_host_too() -> None:
    verdict = answer(job(origin_has_pages=True), 404, body=SAILED)
    assert verdict.stat == "siblings"
    assert len(shapes(verdict)) == 1


def test_of_a_host_whose_error_page_is_known_one_in_sixteen_is_looked_at() -> None:
    known = shapes(answer(job(), 404, body=SAILED))
    other = b"<title>Nobody here</title><p>This house has been empty for many years, says the neighbour."
    by, told_new = judge(rng=random.Random(3)), 0
    for _ in range(800):
        j = job()
        j.lease.error_shapes = known
        assert answer(j, 404, body=SAILED, by=by).outcome.error_pages == b"", "known"
        told_new += bool(shapes(answer(j, 404, body=other, by=by)))
    assert 30 <= told_new <= 75


@pytest.mark.parametrize(("status", "is_real"), [(200, False), (404, True), (410, True)])
def test_what_a_probe_gets_is_an_error_page_of_the_host_and_no_page(status: int, is_real: bool) -> None:
    verdict = answer(probe(), status, body=SAILED)
    assert told(verdict.outcome) == ("d", 0, None)
    assert (verdict.is_page, verdict.is_last, verdict.link, verdict.stat) == (False, False, None, "probes")
    found, has_real, probed_at = error_pages(verdict.outcome.error_pages)
    assert (len(found), has_real, probed_at) == (1, is_real, NOW // 3600 * 3600)


@pytest.mark.parametrize(
    ("status", "location", "body"), [(301, "/", b""), (302, "/login", SAILED), (403, None, SAILED), (204, None, b""), (200, None, None)]
)
def test_a_probe_that_brings_no_error_page_is_remembered_and_followed_nowhere(
    status: int, location: str | None, body: bytes | None
) -> None:
    verdict = answer(probe(), status, location=location, body=body)
    assert (told(verdict.outcome)[0], verdict.is_page, verdict.is_last, verdict.link) == ("d", False, False, None)
    assert error_pages(verdict.outcome.error_pages) == ((), False, NOW // 3600 * 3600)


@pytest.mark.parametrize("status", [429, 500, 503, 999])
def test_a_probe_is_not_tried_again_but_its_host_is_heard(status: int) -> None:
    verdict, page = answer(probe(), status), answer(job(), status)
    assert (told(verdict.outcome), verdict.is_last) == (("d", 0, None), False)
    assert trouble(verdict.outcome) == trouble(page.outcome)


def test_a_probe_of_an_origin_in_trouble_waits_as_all_its_urls_do() -> None:
    error = FetchError("connect_refused")
    assert judge().failure(probe(), error, SENT).outcome.way == judge().failure(job(), error, SENT).outcome.way


def test_the_robots_txt_that_a_probe_waits_for_is_no_probe() -> None:
    j = probe()
    j.robots_url = "https://example.com/robots.txt"
    assert not j.is_probe
    assert answer(j, 200, body=b"User-agent: *").outcome.way == "l"


@pytest.mark.parametrize("request_fields", [{"probe": 2}, {"probe": "1"}, {"probe": 1, "method": "POST"}, {"probe": None}])
def test_a_probe_that_is_not_ours_is_refused(request_fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a probe"):
        check_probe(request_fields)
    check_probe({})
    check_probe(probe_request())


@pytest.mark.parametrize(
    ("truncated", "cut_s"), [(None, 0.0), ("disconnect", 0.0), ("length", CUT_S), ("time", CUT_S), ("unspecified", CUT_S)]
)
def test_who_closed_the_connection_decides_when_the_server_knew(truncated: str | None, cut_s: float) -> None:
    fetch = Fetch("https://a.org/", "192.0.2.1", 1.0, 3.0, 0.5, 0.0, b"", 200, b"", b"", b"", truncated)
    assert Sent.of(fetch) == Sent(3.0, 0.5, cut_s)
    assert Verdict(Outcome(job().lease, "d")).seen_late(Sent.of(fetch)).outcome.cut_s == cut_s


def test_a_request_that_was_given_up_ended_later_for_the_server() -> None:
    assert Sent.failed(3.0, FetchError("timeout")).cut_s == CUT_S
    assert Sent.failed(3.0, FetchError("reset")).cut_s == 0
