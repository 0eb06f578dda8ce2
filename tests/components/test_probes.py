from __future__ import annotations

import pytest

from crawlweb import probes
from crawlweb.frontier.rows import NORMAL, Lease, Link
from crawlweb.job import probe_request
from crawlweb.probes import PAGES, Probes
from crawlweb.records import Entry

DAYS = 30.0
PERIOD_S = DAYS * 86_400
NOW = 650 * PERIOD_S + 5_000.0


def lease(host: str = "example.com", *, probed_at: float = 0.0, has_real_errors: bool = False) -> Lease:
    return Lease("1", 0, host, Entry(f"https://www.{host}/a/b"), 0.0, 60.0, probed_at=probed_at, has_real_errors=has_real_errors)


def found(by: Probes, pages: int = PAGES, now: float = NOW, of: Lease | None = None) -> list[Link]:
    return [link for _ in range(pages) if (link := by.page(of or lease(), now))]


def test_a_host_is_probed_once_when_it_has_had_some_pages() -> None:
    by = Probes(DAYS)
    assert found(by, PAGES - 1) == []
    (link,) = found(by, 1000)
    assert link.entry.url.startswith("https://www.example.com/")
    assert (link.host, link.how, link.entry.request, link.entry.priority) == ("example.com", NORMAL, probe_request(), 6)
    assert len(link.key) == 16


def test_all_workers_have_one_key_for_a_host_and_period() -> None:
    (first,) = found(Probes(DAYS))
    (other,) = found(Probes(DAYS), now=NOW + PERIOD_S - 10_000)
    assert first == other
    (later,) = found(Probes(DAYS), now=NOW + PERIOD_S)
    (elsewhere,) = found(Probes(DAYS), of=lease("example.org"))
    assert len({link.key for link in (first, later, elsewhere)}) == 3
    assert len({link.entry.url for link in (first, later, elsewhere)}) == 3


def test_a_crawl_that_goes_on_probes_again_in_the_next_period() -> None:
    by = Probes(DAYS)
    assert len(found(by)) == 1
    assert found(by, now=NOW + PERIOD_S - 10_000) == []
    assert len(found(by, now=NOW + PERIOD_S)) == 1


def test_a_host_that_was_probed_a_while_ago_has_time() -> None:
    assert found(Probes(DAYS), of=lease(probed_at=NOW - PERIOD_S + 1)) == []
    assert len(found(Probes(DAYS), of=lease(probed_at=NOW - PERIOD_S))) == 1


def test_a_host_whose_404_is_known_needs_no_probe() -> None:
    assert found(Probes(DAYS), 100, of=lease(has_real_errors=True)) == []


def test_without_days_there_are_none() -> None:
    assert found(Probes(0), 100) == []


def test_the_hosts_that_are_counted_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "HOSTS_MOST", 3)
    by = Probes(DAYS)
    found(by, PAGES - 1)
    for n in range(3):
        found(by, 1, of=lease(f"h{n}.org"))
    assert found(by, 1) == [], "it was forgotten"
    assert len(by._pages) == 3
