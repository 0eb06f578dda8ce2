"""When pages are fetched again, by table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crawlweb.policy.recrawl import FIRST_S, LEAST_S, MOST_S, after_fetch, earlier_versions
from crawlweb.records import PageRecord, PageVersion, WarcRef

NOW = 1_000_000.0
HOUR_S, DAY_S = 3_600.0, 86_400.0
PAGE = PageRecord("https://a.org/", NOW - DAY_S, 200, content_hash=b"12345678", interval_s=DAY_S, changes=0b101)


@pytest.mark.parametrize(
    ("before_s", "changed", "flags", "importance", "interval_s", "wait_s"),
    [
        (None, None, (), 0.0, FIRST_S, FIRST_S),
        (None, None, ("soft_404",), 0.0, FIRST_S, 7 * DAY_S),
        (0.0, None, (), 0.0, FIRST_S, FIRST_S),
        (DAY_S, True, (), 0.0, DAY_S / 2, DAY_S / 2),
        (DAY_S, False, (), 0.0, DAY_S * 1.5, DAY_S * 1.5),
        (DAY_S, None, (), 0.0, DAY_S, DAY_S),
        (400.0, True, (), 0.0, LEAST_S, LEAST_S),
        (LEAST_S, True, (), 1.0, LEAST_S, LEAST_S),
        (80 * DAY_S, False, (), 0.0, MOST_S, MOST_S),
        (1e12, False, (), 0.0, MOST_S, MOST_S),
        (1.0, None, (), 0.0, LEAST_S, LEAST_S),
        (DAY_S, False, ("duplicate",), 0.0, DAY_S * 1.5, 7 * DAY_S),
        (10 * DAY_S, False, ("near_duplicate",), 0.0, 15 * DAY_S, 60 * DAY_S),
        (60 * DAY_S, False, ("soft_404",), 0.0, MOST_S, MOST_S),
        (HOUR_S, True, ("soft_404",), 0.0, HOUR_S / 2, 7 * DAY_S),
        (DAY_S, True, ("noindex", "truncated", "rendered"), 0.0, DAY_S / 2, DAY_S / 2),
        (DAY_S, False, (), 1.0, DAY_S * 1.5, DAY_S * 0.75),
        (DAY_S, None, (), 0.5, DAY_S, DAY_S / 1.5),
        (DAY_S, None, (), 7.0, DAY_S, DAY_S / 2),
        (DAY_S, None, (), -1.0, DAY_S, DAY_S),
    ],
)
def test_the_interval_follows_the_changes(
    before_s: float | None, changed: bool | None, flags: tuple[str, ...], importance: float, interval_s: float, wait_s: float
) -> None:
    before = None if before_s is None else replace(PAGE, interval_s=before_s)
    found = after_fetch(before, NOW, changed, flags=flags, importance=importance)
    assert found.interval_s == pytest.approx(interval_s)
    assert found.next_at == pytest.approx(NOW + wait_s)


@pytest.mark.parametrize(
    ("before", "changed", "changes"),
    [(None, None, 0), (0b101, True, 0b1011), (0b101, False, 0b1010), (0b101, None, 0b101), (2**32 - 1, False, 2**32 - 2)],
)
def test_the_history_keeps_the_last_changes(before: int | None, changed: bool | None, changes: int) -> None:
    assert after_fetch(None if before is None else replace(PAGE, changes=before), NOW, changed).changes == changes


def test_a_page_that_never_changes_is_fetched_ever_more_rarely() -> None:
    page, waits = replace(PAGE, interval_s=0.0), []
    for _ in range(20):
        found = after_fetch(page, NOW, False)
        page = replace(page, interval_s=found.interval_s)
        waits.append(found.interval_s)
    assert waits == sorted(waits)
    assert waits[-1] == MOST_S


def test_versions_are_kept_where_all_are_wanted() -> None:
    ref = WarcRef("x.warc.gz", 1, 2)
    older = PageVersion(1.0, b"abcdefgh", ref)
    before = replace(PAGE, warc=ref, versions=(older,))
    assert earlier_versions(before, True, "all") == (PageVersion(before.fetched_at, b"12345678", ref), older)
    assert earlier_versions(before, False, "all") == (older,)
    assert earlier_versions(before, True, "latest") == ()
    assert earlier_versions(None, None, "all") == ()
