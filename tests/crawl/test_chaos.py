"""Workers and Redis under blows: nothing is missing, nothing too soon; what is fetched again was in flight. bench/chaos.py is longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crawl.chaos import Blow, Chaos, Plan, RedisBlow, account, by_a_woken_worker, find_again, sites, verdict
from tests.crawl.crawler import at_once
from tests.crawl.servers import one_server
from tests.web import Visit, Web

HOSTS, PAGES = 60, 5
BLOWS = ((0.1, "stop long"), (0.15, "kill"), (0.15, "add"))


@at_once
def test_a_crawl_under_blows_is_whole_and_polite(folder: Path) -> None:
    plan = Plan(workers=3, script=BLOWS, redis=(RedisBlow(0.5, "kill"),))
    with (
        Web(seed=7, sites=sites(HOSTS, PAGES)) as web,
        one_server(folder) as nodes,
        Chaos(folder, web, nodes, plan) as chaos,
    ):
        chaos.run()
        found = account(chaos)
        assert [blow.what for blow in chaos.blows] == [*(what for _, what in BLOWS), "Redis kill 0"]
        assert [proof.text for proof in verdict(chaos, found) if not proof.holds] == [], chaos.workers[0].run.log[-3000:]


def visit(worker: int, start_s: float, path: str = "/a", end_s: float | None = None) -> Visit:
    page = None if path == "/robots.txt" else path
    end_s = start_s + 0.1 if end_s is None else end_s
    return Visit(start_s, end_s, "h.org", "127.16.0.1", path, 200, f"bot (+https://example.com/worker/{worker})", page=page)


LEASED = frozenset({("h.org", "/a")})
FIRST, SECOND = visit(1, 10.0), visit(2, 20.0)


@pytest.mark.parametrize(
    ("blow", "excused"),
    [
        (Blow(10.5, "kill", frozenset({1}), LEASED), True),
        (Blow(10.5, "kill", frozenset({2}), LEASED), False),
        (Blow(10.5, "kill", frozenset({1}), frozenset()), False),
        (Blow(9.5, "kill", frozenset({1}), LEASED), False),
        (Blow(20.5, "kill", frozenset({1}), LEASED), False),
        (Blow(10.5, "Redis kill 0", frozenset({1, 2}), frozenset()), False),
        (Blow(10.5, "Redis lose 0", frozenset({1, 2}), frozenset(), lost_s=1.0, until_s=11.5), True),
        (Blow(12.5, "Redis lose 0", frozenset({1, 2}), frozenset(), lost_s=1.0, until_s=13.5), False),
        (Blow(9.5, "Redis lose 0", frozenset({1, 2}), LEASED, lost_s=1.0, until_s=10.5), True),
    ],
)
def test_what_is_fetched_again_is_excused_if_its_worker_had_it_in_hand_at_a_blow(blow: Blow, excused: bool) -> None:
    (again,) = find_again([FIRST, SECOND], [blow])[0]
    assert (again.place, again.first, again.second, again.excused) == (("h.org", "/a"), FIRST, SECOND, excused)


def test_a_robots_txt_is_excused_by_the_lease_of_any_page_of_its_host() -> None:
    first, second = visit(1, 10.0, "/robots.txt"), visit(2, 20.0, "/robots.txt")
    assert find_again([first, second], [Blow(10.5, "kill", frozenset({1}), LEASED)])[0][0].excused
    later = visit(1, 10.2)  # it had gone on to the page
    assert not find_again([first, later, second], [Blow(10.5, "kill", frozenset({1}), LEASED)])[0][0].excused


@pytest.mark.parametrize(("at_s", "found"), [(20.4, 1), (21.2, 0), (19.9, 0)])
def test_a_worker_that_wakes_is_to_fetch_nothing_that_another_had(at_s: float, found: int) -> None:
    stop = Blow(9.0, "stop long", frozenset({2}), LEASED, until_s=20.0)
    again = find_again([FIRST, visit(2, at_s)], [stop])[0]
    assert sum(by_a_woken_worker(one, [stop]) for one in again) == found
