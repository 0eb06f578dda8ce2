"""What a crawl brings home: from a well-behaved web, from a broken one, and with dead hosts in between. The three run at once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crawl.crawler import Crawl, Run
from tests.web import Broken, Errors, Redirects, Report, Site, Slow, Spellings, Tree, Web
from tests.web.sites import ROBOTS

DELAY_S = 0.1


def well_behaved() -> list[Site]:
    return [
        Tree("plain.org", pages=25),
        Tree("private.org", pages=12, robots=ROBOTS["private"]),
        Tree("patient.org", pages=5, robots=ROBOTS["delay"]),
        Tree("bare.org", pages=12, robots=ROBOTS["missing"]),
        Tree("late.org", pages=6, robots=ROBOTS["late"]),
        Tree("welcome.org", pages=12, robots=ROBOTS["html"]),
        Tree("named.org", pages=12, robots=ROBOTS["named"]),
        Redirects("moved.org", pages=12),
        Spellings("spelled.org", pages=12),
        Slow("slow.org", pages=12),
        Errors("errors.org", pages=4),
    ]


def broken() -> list[Site]:
    return [Broken("broken.org", pages=10, outside=0), Tree("sound.org", pages=40, outside=0)]


def half_dead() -> list[Site]:
    return [
        Tree("alive.org", pages=40),
        Tree("well.org", pages=40),
        Tree("no-name.org", fate="nxdomain"),
        Tree("refused.org", fate="refused"),
        Tree("silent.org", fate="blackhole"),
    ]


@dataclass
class Done:
    web: Web
    crawl: Crawl
    run: Run

    @property
    def report(self) -> Report:
        return self.web.report(min_delay_s=DELAY_S, tolerance_s=0.02)

    def expected(self) -> set[str]:
        return {site.url(page) for site in self.web.sites.values() for page in site.expected()}

    def kinds(self) -> set[str]:
        return {name.removeprefix("crawlweb/errors/") for name in self.run.stats if name.startswith("crawlweb/errors/")}


def crawl(sites: list[Site], folder: Path, **settings: object) -> Done:
    with Web(seed=2, sites=sites) as web, Crawl(folder, web.dns_server, CRAWLWEB_MIN_DELAY_S=DELAY_S, **settings) as crawl:
        return Done(web, crawl, crawl.start(web.seeds()).succeeds())


def crawl_well_behaved(folder: Path) -> Done:
    return crawl(well_behaved(), folder)


def crawl_broken(folder: Path) -> Done:
    return crawl(broken(), folder, CRAWLWEB_MAX_BODY_BYTES=2_000_000, DOWNLOAD_TIMEOUT=5)


def crawl_half_dead(folder: Path) -> Done:
    return crawl(half_dead(), folder, CRAWLWEB_GIVE_UP_S=10, DOWNLOAD_TIMEOUT=2)


pytestmark = pytest.mark.background(crawl_well_behaved, crawl_broken, crawl_half_dead)
Background = Callable[[Callable[[Path], Done]], Done]


@pytest.fixture
def whole(background: Background) -> Done:
    return background(crawl_well_behaved)


@pytest.fixture
def hurt(background: Background) -> Done:
    return background(crawl_broken)


@pytest.fixture
def mixed(background: Background) -> Done:
    return background(crawl_half_dead)


def test_everything_reachable_is_fetched_exactly_once(whole: Done) -> None:
    assert {name: site.missing for name, site in whole.report.sites.items() if site.missing} == {}
    assert whole.report.refetched == 0


def test_nothing_forbidden_is_asked_for_and_robots_txt_comes_first(whole: Done) -> None:
    assert whole.report.forbidden == ()
    assert whole.report.robots_late == ()


def test_robots_txt_is_fetched_once_for_each_origin(whole: Done) -> None:
    fetches = Counter(visit.host for visit in whole.web.visits() if visit.target == "/robots.txt")
    assert {host: n for host, n in fetches.items() if n != 1} == {"late.org": 3}
    assert {site.name for site in whole.web.sites.values()} <= fetches.keys()


def test_no_gap_between_requests_to_a_site_is_shorter_than_its_delay(whole: Done) -> None:
    assert whole.report.violations == ()


def test_each_page_is_one_item_and_one_warc_response(whole: Done) -> None:
    shown = Counter(
        whole.web.sites[v.host].url(v.page) if "spelled" not in v.host else whole.web.sites[v.host].url(v.target.split("#")[0])
        for v in whole.web.visits()
        if v.page
    )
    assert Counter(item["final_url"] for item in whole.crawl.items()) == shown
    assert Counter(whole.crawl.pages()) == shown


def test_an_item_points_to_its_own_response(whole: Done) -> None:
    for item in whole.crawl.items():
        stored = whole.crawl.read_back(item)
        assert (stored.url, stored.status) == (item["final_url"], item["status"])
        assert hashlib.sha256(stored.body).hexdigest() == item["content_hash"]


def test_an_item_says_what_the_page_is(whole: Done) -> None:
    item = next(item for item in whole.crawl.items() if item["final_url"] == whole.web.sites["plain.org"].url("/leaf/1"))
    assert item["title"] == "plain.org, page 1"
    assert item["text"].startswith("plain.org, page 1 The ")
    assert (item["status"], item["encoding"], item["content_type"]) == (200, "utf-8", "text/html; charset=utf-8")
    assert item["depth"] == 1
    assert item["referrer"] == whole.web.sites["plain.org"].url("/")
    site = whole.web.sites["plain.org"]
    assert isinstance(site, Tree)
    assert {link for link in item["links"] if "plain.org" in link} == {site.url(h) for h in site.links(1) if h.startswith("/")}


def test_an_item_keeps_the_url_that_a_redirect_began_with(whole: Done) -> None:
    moved = [item for item in whole.crawl.items() if "moved.org" in item["final_url"] and "/leaf/" in item["final_url"]]
    assert len(moved) == 11
    assert all("/hop/" in item["url"] for item in moved)


def test_every_exchange_is_in_the_warc_files(whole: Done) -> None:
    types = whole.crawl.record_types()
    assert types["warcinfo"] == 1
    assert types["request"] == types["response"] + types.get("revisit", 0) == whole.report.requests
    asked = Counter((f"{v.host}{v.target.split('#')[0]}", v.status) for v in whole.web.visits())
    port = f":{whole.web.http_port}"
    assert Counter((s.url.removeprefix("http://").replace(port, "", 1), s.status) for s in whole.crawl.stored()) == asked


def test_warc_files_are_closed(whole: Done) -> None:
    assert [file.name for file in whole.crawl.warc_folder.iterdir() if not file.name.endswith((".warc.gz", ".cdxj"))] == []


def test_the_log_has_one_closing_line_and_no_complaint(whole: Done) -> None:
    assert whole.run.summary == ("finished", whole.report.found)
    assert whole.run.complaints == []


def test_the_private_server_ends_with_its_last_worker_and_nothing_is_lost_in_it(whole: Done) -> None:
    assert not whole.crawl.server_answers()
    audit = whole.crawl.audit()
    assert (audit["pending"], audit["lost"], audit["foreign"]) == (0, 0, 0)


def test_every_link_is_counted_once(whole: Done) -> None:
    stats = whole.run.stats
    ways_in = ("links/found", "seeds", "redirects", "siblings", "robots/fetched/redirect_other_host")
    assert sum(stats.get(f"crawlweb/{way}", 0) for way in ways_in) == sum(
        stats.get(f"crawlweb/links/{door}", 0) for door in ("enqueued", "seen", "cached", "out_of_scope", "too_deep")
    )


def test_a_broken_site_is_crawled_to_its_end(hurt: Done) -> None:
    assert hurt.report.sites["broken.org"].missing == ()
    assert hurt.report.sites["sound.org"].missing == ()
    assert {url for url, n in Counter(hurt.crawl.pages()).items() if n > 1} == set()


def test_what_breaks_is_counted_by_kind(hurt: Done) -> None:
    assert {"reset", "bad_response"} <= hurt.kinds()
    errors = {name: n for name, n in hurt.run.stats.items() if name.startswith("crawlweb/errors/")}
    _, _, closing = hurt.run.log.partition("errors: ")
    assert all(f"{name.removeprefix('crawlweb/errors/')} {n:.0f}" in closing for name, n in errors.items())


def test_a_broken_page_is_an_item_like_any_other(hurt: Done) -> None:
    items = {item["final_url"].rpartition(str(hurt.web.http_port))[2]: item for item in hurt.crawl.items()}
    assert items["/charset"]["title"] == "Caf\N{REPLACEMENT CHARACTER}", "a declared charset is believed, and wrong bytes are replaced"
    assert len(items["/many-links"]["links"]) == 7
    assert "\0" not in items["/nul"]["text"]
    assert len(items["/bomb"]["text"]) <= 2_000_000
    assert {"/short", "/endless", "/empty", "/deep", "/unclosed"} <= items.keys()
    assert "/video" not in items
    assert "/picture" not in items


def test_bodies_that_do_not_end_are_cut(hurt: Done) -> None:
    stats = hurt.run.stats
    assert stats["crawlweb/truncated/length"] >= 2  # the bomb and the endless page
    assert stats["crawlweb/truncated/time"] >= 1  # a byte a second


def test_broken_pages_bring_no_traceback(hurt: Done) -> None:
    assert "Traceback" not in hurt.run.log
    assert hurt.run.complaints == []


def test_dead_hosts_take_nothing_from_the_live_ones(mixed: Done) -> None:
    assert mixed.report.sites["alive.org"].missing == mixed.report.sites["well.org"].missing == ()
    assert mixed.report.refetched == 0
    assert mixed.report.violations == ()
    live_s = [v.start_s for v in mixed.web.visits() if v.host in ("alive.org", "well.org")]
    assert max(live_s) - min(live_s) < 3 * 41 * DELAY_S


def test_a_dead_letter_says_why(mixed: Done) -> None:
    reasons = {host: reason for host, reason, _ in mixed.crawl.dead_letters()}
    assert reasons == {"no-name.org": "dns_nxdomain", "refused.org": "connect_refused", "silent.org": "robots_unreachable"}


def test_a_crawl_with_dead_hosts_ends_and_counts_them(mixed: Done) -> None:
    assert mixed.run.summary == ("finished", 80)
    assert {"dns_nxdomain", "connect_refused", "timeout"} <= mixed.kinds()
    assert mixed.crawl.audit()["pending"] == 0
