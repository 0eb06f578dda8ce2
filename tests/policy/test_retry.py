"""Failures: the table, the waits, and what a server asks for."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import math
import random
import time
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlweb.policy.retry import (
    DEAD_S,
    FAILURES,
    GIVE_UP_S,
    RETRY_AFTER_CAP_S,
    ROBOTS_ELSEWHERE,
    UNREACHABLE_ROBOTS,
    WAITS_WITHOUT_SIBLING,
    Failure,
    Wait,
    jitter,
    retry_after_s,
    status_kind,
    unix_time,
)
from crawlweb.policy.robots import KEPT_S

ALL = {**FAILURES, "robots": UNREACHABLE_ROBOTS, "robots elsewhere": ROBOTS_ELSEWHERE}
ROWS = [pytest.param(row, id=kind) for kind, row in ALL.items()]
WAITS = [
    pytest.param(wait, id=f"{kind} {of}")
    for kind, row in ALL.items()
    for of, wait in (("url", row.url), ("origin", row.origin), ("host", row.host))
    if wait
]
NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


class Fixed(random.Random):
    """Every draw is the same part of its range."""

    def __init__(self, part: float) -> None:
        super().__init__(0)
        self._part = part

    def random(self) -> float:
        return self._part


LEAST, MIDDLE, MOST = Fixed(0.0), Fixed(0.5), Fixed(1.0)


# -- the table -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_complete_and_says_nothing_that_has_no_use(row: Failure) -> None:
    assert row.meaning
    assert row.url_tries > 1 if row.url else row.url_tries == 1
    assert row.origin_tries is None or (row.origin and row.origin_tries > 1)
    assert row.origin or not row.struggling
    assert row.url or not row.host  # whoever is asked for less has an URL that comes again


def test_meanings_are_not_repeated() -> None:
    meanings = [row.meaning for row in ALL.values()]
    assert len(set(meanings)) == len(meanings)


@pytest.mark.parametrize(
    ("kind", "whose"),
    [
        # Who cannot be reached at all is no fault of a URL.
        ("dns_nxdomain", "origin"),
        ("dns_servfail", "origin"),
        ("dns_timeout", "origin"),
        ("connect_refused", "origin"),
        ("connect_timeout", "origin"),
        ("connect_failed", "origin"),
        ("tls", "origin"),
        # A server that is there may fail for one URL or for all.
        ("timeout", "url origin"),
        ("http_503", "url origin"),
        ("http_5xx", "url origin"),
        ("http_429", "url host"),
        ("reset", "url"),
        ("bad_response", "url"),
        ("parser_died", "url"),
        ("no_outcome", "url"),
        ("error", "url"),
        # What trying again cannot change is final.
        ("private_address", ""),
    ],
)
def test_whom_a_failure_concerns(kind: str, whose: str) -> None:
    row = FAILURES[kind]
    assert [name for name in ("url", "origin", "host") if getattr(row, name)] == whose.split()


def test_every_kind_is_in_the_table_above() -> None:
    (mark,) = (mark for mark in test_whom_a_failure_concerns.pytestmark if mark.name == "parametrize")  # type: ignore[attr-defined]
    assert {kind for kind, _ in mark.args[1]} == FAILURES.keys()


@pytest.mark.parametrize("kind", ["dns_nxdomain", "connect_refused"])
def test_an_origin_that_is_not_there_is_dead_within_a_minute(kind: str) -> None:
    row = FAILURES[kind]
    assert row.origin
    assert row.origin_tries == 3
    assert sum(row.origin.after(n, MOST) for n in range(row.origin_tries - 1)) <= 60


def test_only_what_is_surely_not_there_is_dead_after_some_tries() -> None:
    """Any other trouble may pass: it lasts until it is given up."""
    assert {kind for kind, row in ALL.items() if row.origin_tries} == {"dns_nxdomain", "connect_refused", "tls"}


def test_a_server_that_answers_now_and_then_is_struggling_and_one_that_cannot_be_reached_is_not() -> None:
    assert {kind for kind, row in ALL.items() if row.struggling} == {"timeout", "http_503", "http_5xx"}


def test_what_waits_without_a_sibling_is_a_row_of_origins_that_die_by_tries() -> None:
    assert FAILURES[WAITS_WITHOUT_SIBLING].origin_tries


def test_an_origin_is_given_up_when_no_copy_of_its_robots_txt_is_kept_any_more() -> None:
    assert GIVE_UP_S == KEPT_S == 30 * 86_400


def test_an_origin_is_tried_while_it_is_not_dead_for_longer_than_its_longest_wait() -> None:
    for kind, row in ALL.items():
        if row.origin and row.origin_tries:
            assert row.origin.after(row.origin_tries, MOST) <= DEAD_S, kind


def test_rows_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FAILURES["tls"].url_tries = 9  # type: ignore[misc]


# -- waits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", WAITS)
def test_waits_double_and_are_capped(wait: Wait) -> None:
    assert 0 < wait.first_s <= wait.most_s
    waits = [wait.after(n, MIDDLE) for n in range(40)]
    assert waits[0] == pytest.approx(wait.first_s)
    for before, after in itertools.pairwise(waits):
        assert after == pytest.approx(min(2 * before, wait.most_s))
    assert waits[-1] == pytest.approx(wait.most_s)


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("failures", [0, 1, 5, 35, 10**6])
def test_jitter_is_a_quarter_either_way(wait: Wait, failures: int) -> None:
    middle = wait.after(failures, MIDDLE)
    assert wait.after(failures, LEAST) == pytest.approx(0.75 * middle)
    assert wait.after(failures, MOST) == pytest.approx(1.25 * middle)
    rng = random.Random(7)
    drawn = [wait.after(failures, rng) for _ in range(200)]
    assert all(0.75 * middle <= drew <= 1.25 * middle for drew in drawn)
    assert len(set(drawn)) > 100


def test_jitter_is_a_factor_around_one() -> None:
    assert [jitter(rng) for rng in (LEAST, MIDDLE, MOST)] == pytest.approx([0.75, 1, 1.25])


# -- statuses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, None) for status in (100, 200, 206, 301, 304, 400, 403, 404, 408, 410, 425, 428, 430, 499)),
        (429, "http_429"),
        (503, "http_503"),
        *((status, "http_5xx") for status in (500, 501, 502, 504, 520, 599, 600, 999)),
    ],
)
def test_the_statuses_that_are_failures(status: int, kind: str | None) -> None:
    assert status_kind(status) == kind
    assert kind is None or kind in FAILURES


# -- Retry-After ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("1", 1),
        ("120", 120),
        (" 120\t", 120),
        ("007", 7),
        ("86400", 86_400),
        ("86401", RETRY_AFTER_CAP_S),
        ("9" * 5000, RETRY_AFTER_CAP_S),
        ("0" * 20 + "5", 5),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120),
        ("Tue, 14 Nov 2023 23:15:20 +0100", 120),
        ("Tuesday, 14-Nov-23 22:15:20 GMT", 120),  # the older forms of RFC 9110 §5.6.7
        ("Tue Nov 14 22:15:20 2023", 120),
        ("Tue, 14 Nov 2023 22:13:20 GMT", 0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Mon, 14 Nov 2033 22:13:20 GMT", RETRY_AFTER_CAP_S),
        (None, None),
        ("", None),
        ("   ", None),
        ("-5", None),
        ("+5", None),
        ("1.5", None),
        ("1e3", None),
        ("0x10", None),
        ("10 seconds", None),
        ("soon", None),
        ("٣", None),
        ("²", None),
        ("Tue, 99 Nov 2023 22:15:20 GMT", None),
        ("Tue, 14 Nov 2023 99:99:99 GMT", None),
        ("Tue, 14 Nov 99999999999 22:15:20 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -9999", None),
        (",", None),
        ("\x00", None),
    ],
)
def test_what_retry_after_means(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, NOW) == seconds


@pytest.mark.parametrize("zone", ["UTC", "EST5", "JST-9"])
@pytest.mark.parametrize(
    "value", ["Tue Nov 14 22:15:20 2023", "Tue, 14 Nov 2023 22:15:20 GMT", "Tue, 14 Nov 2023 22:15:20 -0000", "Tue, 14 Nov 2023 22:15:20"]
)
def test_a_date_without_a_zone_is_gmt_wherever_the_worker_is(value: str, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert retry_after_s(value, NOW) == 120
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("date", "at"),
    [
        ("Tue, 14 Nov 2023 22:13:20 GMT", NOW),
        ("Tue, 14 Nov 2023 23:13:20 +0100", NOW),
        ("Tuesday, 14-Nov-23 22:13:20 GMT", NOW),
        ("Tue Nov 14 22:13:20 2023", NOW),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        (None, None),
        ("", None),
        ("120", None),
        ("soon", None),
        ("Tue, 99 Nov 2023 22:13:20 GMT", None),
        ("Tue, 14 Nov 99999999999 22:13:20 GMT", None),
    ],
)
def test_what_an_http_date_means(date: str | None, at: float | None) -> None:
    assert unix_time(date) == at


@given(st.integers(-100_000, 200_000))
@settings(deadline=None, derandomize=True)
def test_a_date_is_as_far_away_as_it_says(ahead_s: int) -> None:
    at = datetime.datetime.fromtimestamp(NOW + ahead_s, datetime.timezone.utc)
    assert retry_after_s(format_datetime(at, usegmt=True), NOW) == min(max(ahead_s, 0), RETRY_AFTER_CAP_S)


@given(
    st.one_of(
        st.text(max_size=60),
        st.from_regex(r"[A-Z][a-z]{2}, ?[0-9]{1,3} [A-Z][a-z]{2} [0-9]{1,6} [0-9]{1,3}:[0-9]{2}(:[0-9]{2})?( [A-Z+-].*)?"),
    )
)
@settings(deadline=None, derandomize=True)
def test_no_text_raises_or_waits_outside_the_bounds(value: str) -> None:
    found = retry_after_s(value, NOW)
    assert found is None or (math.isfinite(found) and 0 <= found <= RETRY_AFTER_CAP_S)
