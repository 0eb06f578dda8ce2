"""A web whose server judges, crawled by one worker, and by four of which one is killed and one has a wrong clock; some manners alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.crawl.crawler import Crawl, Run, at_once
from tests.crawl.test_limits import a_redis
from tests.web import Blocking, Pushback, Report, Rest, Robots, Site, Tree, Web
from tests.web.judging import DEAD, SHARED, judging
from tests.web.report import longest_pause_s
from tests.web.sites import ROBOTS, Answer

DELAY_S = 0.3
IP_DELAY_S = 0.2
HOUR_S = 3600
LEASE_S = 6
SHORT = {"DOWNLOAD_TIMEOUT": 2, "CRAWLWEB_LEASE_S": LEASE_S, "CRAWLWEB_GIVE_UP_S": 20}


@dataclass
class Done:
    web: Web
    runs: list[Run]
    dead: dict[str, set[str]]
    """Reasons of dead letters by name."""
    audit: dict[str, Any]
    leased_at_kill: int = 0
    report: Report = field(init=False)

    def __post_init__(self) -> None:
        self.report = self.web.report(min_delay_s=DELAY_S, ip_delay_s=IP_DELAY_S, tolerance_s=0.02)

    @property
    def held_s(self) -> float:
        """How long a host may wait for a lease of the killed worker."""
        return LEASE_S if self.leased_at_kill else 0.0

    def longest_pause_s(self, host: str) -> float:
        return longest_pause_s(self.web.visits(), host)


@contextmanager
def crawlers(folder: Path, count: int, sites: Sequence[Site], **settings: object) -> Iterator[tuple[Web, list[Crawl]]]:
    with ExitStack() as stack:
        if count > 1:
            settings |= {"REDIS_URL": stack.enter_context(a_redis()), "CRAWLWEB_SPILL_URL": folder / "cold"}
        web = stack.enter_context(Web(seed=7, sites=sites))
        shared = {"CRAWLWEB_MIN_DELAY_S": DELAY_S, "CRAWLWEB_IP_DELAY_S": IP_DELAY_S, **SHORT, **settings}
        yield web, [stack.enter_context(Crawl(folder / str(number), web.dns_server, **shared)) for number in range(count)]


def _done(web: Web, crawl: Crawl, runs: list[Run], leased_at_kill: int = 0) -> Done:
    dead: dict[str, set[str]] = {}
    for host, reason, _ in crawl.dead_letters():
        dead.setdefault(host, set()).add(reason)
    return Done(web, runs, dead, crawl.audit(), leased_at_kill)


def _nobody_asked_for_patience(web: Web) -> bool:
    """During the last half second."""
    return not any(visit.status in (429, 503) and time.monotonic() - visit.end_s < 0.5 for visit in web.visits()[-200:])


def crawl_alone(folder: Path) -> Done:
    with crawlers(folder, 1, judging()) as (web, (crawl,)):
        return _done(web, crawl, [crawl.start(web.seeds()).succeeds()])


def crawl_together(folder: Path) -> Done:
    """The second has a clock that is an hour off; the last is killed while it works, but not in the moment in which it alone knows what a
    server has just asked for: nobody could keep that."""
    with crawlers(folder, 4, judging()) as (web, crawls):
        runs = [crawl.start(web.seeds(), clock_off_s=HOUR_S if number == 1 else 0) for number, crawl in enumerate(crawls)]
        victim = runs.pop()
        victim.wait_until(lambda: crawls[-1].items() and web.served > 100 and _nobody_asked_for_patience(web))
        victim.kill()
        leased = crawls[0].audit()["leased"]
        for run in runs:
            run.succeeds()
        return _done(web, crawls[0], runs, leased)


Background = Callable[[Callable[[Path], Done]], Done]
pytestmark = pytest.mark.background(crawl_alone, crawl_together)


@pytest.fixture(params=[crawl_alone, crawl_together])
def done(request: pytest.FixtureRequest, background: Background) -> Done:
    return background(request.param)


def test_no_gap_between_requests_to_a_host_is_shorter_than_its_delay(done: Done) -> None:
    assert done.report.violations == ()
    assert done.report.overlaps == ()


def test_no_gap_between_requests_to_an_address_is_shorter_than_its_delay(done: Done) -> None:
    assert sum(visit.address == SHARED for visit in done.web.visits()) > 40
    assert done.report.address_violations == ()


def test_no_host_is_asked_before_its_retry_after(done: Done) -> None:
    assert sum(visit.status in (429, 503) for visit in done.web.visits()) >= 15
    assert done.report.too_soon == ()


def test_nothing_forbidden_is_asked_for_and_robots_txt_comes_first(done: Done) -> None:
    assert done.report.forbidden == ()
    assert done.report.robots_late == ()


def test_every_expected_page_is_fetched_once_whatever_its_host_answers_meanwhile(done: Done) -> None:
    assert {name: site.missing for name, site in done.report.sites.items() if site.missing} == {}
    assert done.report.refetched <= done.leased_at_kill


def test_robots_txt_is_fetched_once_for_each_origin_after_its_failures(done: Done) -> None:
    fetches = {name: site.robots_fetches for name, site in done.report.sites.items() if name.startswith(("robots-", "origins"))}
    open_ended = {f"robots-{name}.org" for name in ("down", "failing", "loop", "private")}  # private: another host's redirect leads there
    expected = {name: 1 + len(done.web.sites[name].robots.first) for name in fetches.keys() - open_ended - {"origins.org"}}
    more = {name: fetches[name] - times for name, times in (expected | {"origins.org": 3}).items() if fetches[name] != times}
    assert min(more.values(), default=0) >= 0
    assert sum(more.values()) <= done.leased_at_kill, more


def test_the_rest_of_a_host_does_not_wait_for_an_origin_that_is_down(done: Done) -> None:
    usual_s = done.longest_pause_s("robots-open.org")
    names = [f"half-{fate}.org" for fate in ("down", *DEAD)]
    assert [name for name in names if done.report.sites[name].missing] == []
    pauses = {name: done.longest_pause_s(name) for name in names}
    assert {name: pause_s for name, pause_s in pauses.items() if pause_s > usual_s + done.held_s + 3.0} == {}


def test_forbidden_links_cost_the_others_no_wait(done: Done) -> None:
    usual_s = done.longest_pause_s("robots-open.org")
    assert done.report.sites["walled.org"].span_s < 21 * 2 * DELAY_S + 3 * (usual_s + 1.0) + done.held_s


def test_a_dead_letter_says_what_was_wrong_with_its_host(done: Done) -> None:
    reasons = {"dead-nxdomain.org": {"dns_nxdomain"}, "dead-refused.org": {"connect_refused"}}
    reasons |= {"dead-blackhole.org": {"robots_unreachable"}, "robots-failing.org": {"robots_unreachable"}}
    assert {host: found for host, found in done.dead.items() if not host.startswith("half-")} == reasons
    assert done.dead.keys() - reasons.keys() == {f"half-{fate}.org" for fate in ("down", *DEAD)}


def test_the_crawl_ends_by_itself_and_nothing_is_lost(done: Done) -> None:
    assert {run.summary[0] for run in done.runs} == {"finished"}
    assert [complaint for run in done.runs for complaint in run.complaints] == []
    assert (done.audit["pending"], done.audit["lost"], done.audit["leased"]) == (0, 0, 0)


def test_one_worker_of_the_four_has_a_clock_that_is_an_hour_off(background: Background) -> None:
    right, off, _ = (datetime.strptime(run.log[:19], "%Y-%m-%d %H:%M:%S") for run in background(crawl_together).runs)
    assert abs((off - right).total_seconds() - HOUR_S) < 60


def _by_date(folder: Path, clock_off_s: int) -> None:
    sites = [Pushback("page.org", pages=8, how="date", rest_s=14), Tree("rules.org", pages=3, robots=ROBOTS["busy-date"])]
    with crawlers(folder, 1, sites) as (web, (crawl,)):
        crawl.start(web.seeds(), clock_off_s=clock_off_s).succeeds(40)
        report = web.report()
        assert report.too_soon == ()
        assert report.coverage == 1.0


@at_once
def test_a_date_means_the_same_to_a_clock_that_is_an_hour_ahead(folder: Path) -> None:
    _by_date(folder, HOUR_S)


@at_once
def test_a_date_means_the_same_to_a_clock_that_is_an_hour_behind(folder: Path) -> None:
    _by_date(folder, -HOUR_S)


@at_once
def test_a_host_that_asks_for_thirty_years_is_neither_asked_again_nor_waited_for(folder: Path) -> None:
    rules = Robots(first=(Answer(b"", 503, rest=Rest(60, "absurd")),))
    sites = [Pushback("page.org", pages=8, how="absurd", rest_s=60), Tree("rules.org", robots=rules)]
    with crawlers(folder, 1, sites) as (web, (crawl,)):
        crawl.start(web.seeds()).succeeds(40)
        assert web.report().too_soon == ()
        assert {host for host, _, _ in crawl.dead_letters()} == {"page.org", "rules.org"}
        assert crawl.audit()["lost"] == 0


def _left_alone(folder: Path, how: Literal["forbidden", "captcha", "empty"]) -> None:
    """Until nothing was asked for 4 s, or the crawl is over."""
    site = Blocking("a.org", pages=120, how=how)
    with crawlers(folder, 1, [site], CRAWLWEB_MIN_DELAY_S=0.05, CRAWLWEB_IP_DELAY_S=0) as (web, (crawl,)):
        run = crawl.start(web.seeds())
        run.wait_until(lambda: web.report().sites["a.org"].blocked)
        requests, since_s = 0, time.monotonic()
        while run.process.poll() is None and time.monotonic() < since_s + 4.0:
            if len(web.log) > requests:
                requests, since_s = len(web.log), time.monotonic()
            time.sleep(0.05)
        assert web.report().sites["a.org"].blocked <= 30, "after 20 such answers it is clear"


@at_once
def test_a_site_that_answers_403_to_everything_is_left_alone(folder: Path) -> None:
    _left_alone(folder, "forbidden")


@at_once
def test_a_site_that_shows_nothing_but_a_captcha_is_left_alone(folder: Path) -> None:
    _left_alone(folder, "captcha")


@at_once
def test_a_site_that_shows_nothing_but_empty_pages_is_left_alone(folder: Path) -> None:
    _left_alone(folder, "empty")
