"""When a page is fetched again: often where it changes, rarely where it does not (after Cho, Garcia-Molina: "The Evolution of the Web and
Implications for an Incremental Crawler", 2000: an interval that follows what was seen needs no model of the page)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..records import PageRecord, PageVersion

LEAST_S, MOST_S = 300.0, 90 * 86_400.0
FIRST_S = 86_400.0  # half of the pages that change at all do so within days (Cho, Garcia-Molina)
AFTER_CHANGE, AFTER_NONE = 0.5, 1.5
RARE, RARE_LEAST_S = 4.0, 7 * 86_400.0
RARE_FLAGS = frozenset({"soft_404", "duplicate", "near_duplicate"})
CHANGES_KEPT = 32
VERSIONS = ("latest", "all")


class Recrawl(NamedTuple):
    """`interval_s`: what the page's changes say, to go on from next time; `next_at`: Unix time; `changes`: history, newest lowest."""

    interval_s: float
    next_at: float
    changes: int


def after_fetch(
    before: PageRecord | None, now: float, changed: bool | None, *, flags: Iterable[str] = (), importance: float = 0.0
) -> Recrawl:
    """`changed`: None if it cannot be told, as at a first fetch or after an error. `flags`: of the new record; error pages and copies are
    fetched rarely, whatever they do. `importance`: 0 to 1, where 1 is fetched twice as often."""
    interval_s, changes = FIRST_S, 0
    if before is not None:
        changes = before.changes
        if before.interval_s > 0:
            interval_s = before.interval_s
        if changed is not None:
            interval_s *= AFTER_CHANGE if changed else AFTER_NONE
            changes = (changes << 1 | changed) & (1 << CHANGES_KEPT) - 1
    interval_s = min(MOST_S, max(LEAST_S, interval_s))
    wait_s = interval_s / (1 + min(1.0, max(0.0, importance)))
    if not RARE_FLAGS.isdisjoint(flags):
        wait_s = max(RARE * wait_s, RARE_LEAST_S)
    return Recrawl(interval_s, now + min(MOST_S, max(LEAST_S, wait_s)), changes)


def earlier_versions(before: PageRecord | None, changed: bool | None, versions: str) -> tuple[PageVersion, ...]:
    """What a new record keeps of versions before it: nothing if `latest` is wanted, else those whose content was another, newest first.
    The frontier keeps 16 of them."""
    if before is None or versions != "all":
        return ()
    if not changed:
        return before.versions
    return (PageVersion(before.fetched_at, before.content_hash, before.warc), *before.versions)
