"""Failures: the table, the waits, and what a server asks for."""

from __future__ import annotations

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
    DEAD_HOST_S,
    FAILURES,
    RETRY_AFTER_CAP_S,
    UNREACHABLE_ROBOTS,
    Failure,
    retry_after_s,
    status_kind,
    wait_s,
)

ROWS = [pytest.param(row, id=kind) for kind, row in {**FAILURES, "robots": UNREACHABLE_ROBOTS}.items()]
NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


class Fixed(random.Random):
    """Every draw is the same part of its range."""

    def __init__(self, part: float) -> None:
        super().__init__(0)
        self._part = part

    def random(self) -> float:
        return self._part


LEAST, MIDDLE, MOST = Fixed(0.0), Fixed(0.5), Fixed(1.0)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_complete(row: Failure) -> None:
    assert row.meaning
    assert row.blame in ("url", "host", "none")
    assert row.tries >= (0 if row is UNREACHABLE_ROBOTS else 1)
    assert row.wait_s > 0 or row.blame == "none"
    assert row.wait_s <= row.cap_s
    assert not (row.host_rests and row.blame != "url")  # a host that is to blame rests anyway


def test_meanings_are_not_repeated() -> None:
    meanings = [row.meaning for row in FAILURES.values()]
    assert len(set(meanings)) == len(meanings)


def test_only_what_trying_again_cannot_change_is_final() -> None:
    assert {kind for kind, row in FAILURES.items() if row.blame == "none"} == {"private_address"}


@pytest.mark.parametrize("kind", ["dns_nxdomain", "connect_refused"])
def test_a_host_that_is_not_there_is_dead_within_a_minute(kind: str) -> None:
    row = FAILURES[kind]
    assert row.tries == 3
    assert sum(wait_s(row, n, MOST) for n in range(row.tries - 1)) <= 60


@pytest.mark.parametrize("row", ROWS)
def test_waits_grow_and_are_capped(row: Failure) -> None:
    waits = [wait_s(row, n, MIDDLE) for n in range(40)]
    assert waits[0] == pytest.approx(row.wait_s)
    for before, after in itertools.pairwise(waits):
        assert after == pytest.approx(min(2 * before, row.cap_s)) or before == pytest.approx(row.cap_s) or not row.wait_s
    assert waits[-1] == pytest.approx(row.cap_s if row.wait_s else 0)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("failures", [0, 1, 5, 35, 10**6])
def test_jitter_is_a_quarter_either_way(row: Failure, failures: int) -> None:
    middle = wait_s(row, failures, MIDDLE)
    assert wait_s(row, failures, LEAST) == pytest.approx(0.75 * middle)
    assert wait_s(row, failures, MOST) == pytest.approx(1.25 * middle)
    rng = random.Random(7)
    drawn = [wait_s(row, failures, rng) for _ in range(200)]
    assert all(0.75 * middle <= wait <= 1.25 * middle or wait == pytest.approx(middle) for wait in drawn)
    assert len(set(drawn)) > 100 or not row.wait_s


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, None) for status in (100, 200, 206, 301, 304, 400, 403, 404, 408, 410, 425, 428, 430, 499)),
        (429, "http_429"),
        *((status, "http_5xx") for status in (500, 501, 503, 504, 520, 599, 600, 999)),
    ],
)
def test_the_statuses_that_are_failures(status: int, kind: str | None) -> None:
    assert status_kind(status) == kind
    assert kind is None or kind in FAILURES


def test_a_dead_host_is_tried_again_after_its_last_wait_could_have_ended() -> None:
    assert max(row.cap_s for row in FAILURES.values() if row.blame == "host") <= DEAD_HOST_S


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


def test_a_date_is_compared_with_the_clock_unless_told_otherwise() -> None:
    assert retry_after_s("Thu, 01 Jan 1970 00:00:00 GMT") == 0
    assert retry_after_s("Fri, 31 Dec 9999 23:59:59 GMT") == RETRY_AFTER_CAP_S


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
