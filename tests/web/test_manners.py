"""The sites that try a crawler's manners, and what the report says of one that has none."""

from __future__ import annotations

import email.utils
import re
import time
from dataclasses import replace
from urllib.parse import urljoin, urlsplit

import pytest

from .manners import Blocking, Flaky, Nofollow, Origins, Pushback, Siblings, Walled
from .report import Visit, report
from .server import Web
from .sites import BUSY, ROBOTS, How, Rest, Robots, Site, Tree
from .test_web import ask, fetch, until

NOW = 1_800_000_000.25


@pytest.mark.parametrize(
    ("how", "retry_after", "ends"),
    [
        ("seconds", "3", NOW + 3),
        ("date", "Fri, 15 Jan 2027 08:00:03 GMT", 1_800_000_003.0),
        ("none", None, NOW + 2.5),
        ("nonsense", "soon, I hope", NOW + 2.5),
        ("negative", "-120", NOW + 2.5),
        ("absurd", "1000000000", NOW + 2.5),
    ],
)
def test_a_rest_ends_when_its_header_says(how: How, retry_after: str | None, ends: float) -> None:
    rest = Rest(2.5, how)
    assert dict(rest.headers(NOW)).get("Retry-After") == retry_after
    assert rest.ends(NOW) == ends
    assert ("Date" in dict(rest.headers(NOW))) == (how == "date")


@pytest.mark.parametrize("how", ["seconds", "date"])
def test_a_rest_is_counted_from_the_answer(how: How) -> None:
    with Web(sites=[Pushback("a.org", rest_s=30, how=how)]) as web:
        before, before_s = time.time(), time.monotonic()
        status, headers, _ = fetch(web, "a.org", "/leaf/3")
        said = headers["retry-after"]
        wait_s = float(said) if how == "seconds" else email.utils.parsedate_to_datetime(said).timestamp() - before
        assert (status, 30 <= wait_s <= 31.1) == (429, True)
        assert web.sites["a.org"].not_before_s - before_s == pytest.approx(wait_s, abs=0.1)


def test_a_request_to_any_name_of_a_host_within_its_rest_is_too_soon() -> None:
    with Web(sites=[Pushback("a.org", rest_s=0.3, how="none", status=503), Tree("b.org")]) as web:
        assert [fetch(web, "a.org", target)[0] for target in ("/", "/leaf/3", "/leaf/3")] == [200, 503, 200]
        fetch(web, "b.org")
        fetch(web, "www.a.org", "/robots.txt")
        until(lambda: time.monotonic() > web.sites["a.org"].not_before_s)
        fetch(web, "a.org", "/leaf/1")
        found = web.report(tolerance_s=0)
    assert [(early.host, early.target) for early in found.too_soon] == [("a.org", "/leaf/3"), ("www.a.org", "/robots.txt")]
    assert all(0 < early.early_s <= 0.3 for early in found.too_soon)


def statuses(web: Web, host: str, times: int = 3) -> list[int]:
    """Of robots.txt, 9 redirects followed."""
    found = []
    for _ in range(times):
        at = web.sites[host].url("/robots.txt")
        for _ in range(9):
            status, headers, _ = fetch(web, urlsplit(at).hostname or "", urlsplit(at).path)
            if "location" not in headers:
                break
            at = urljoin(at, headers["location"])
        found.append(status)
    return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("open", [200] * 3),
        ("late", [503, 503, 200]),
        ("busy", [429, 200, 200]),
        ("busy-date", [429, 200, 200]),
        ("hop", [200] * 3),
        ("hops", [200] * 3),
        ("far", [200] * 3),
        ("loop", [302] * 3),
        ("down", [503] * 3),
        ("failing", [500] * 3),
        *((status, [int(status)] * 3) for status in ("401", "403", "410", "451")),
    ],
)
def test_robots_txt_answers_as_it_is_called(name: str, expected: list[int]) -> None:
    with Web(sites=[Tree("a.org", robots=ROBOTS[name])]) as web:
        assert statuses(web, "a.org") == expected


@pytest.mark.parametrize(("name", "error"), [("mute", TimeoutError), ("reset", ConnectionResetError)])
def test_robots_txt_that_fails_once_is_there_the_second_time(name: str, error: type[Exception]) -> None:
    with Web(sites=[Tree("a.org", robots=ROBOTS[name])]) as web:
        site = web.sites["a.org"]
        with pytest.raises(error):
            fetch(web, "a.org", "/robots.txt", timeout_s=0.05)
        assert site.forbids("/")
        assert fetch(web, "a.org", "/robots.txt")[0] == 200
        assert not site.forbids("/")


@pytest.mark.parametrize(("hops", "paths"), [(1, 2), (5, 6), (6, 7)])
def test_robots_txt_is_so_many_redirects_away(hops: int, paths: int) -> None:
    with Web(sites=[Tree("a.org", robots=replace(ROBOTS["private"], hops=hops))]) as web:
        assert statuses(web, "a.org", 1) == [200]
        assert [v.target for v in web.visits()] == ["/robots.txt", *(f"/robots/{k}" for k in range(1, paths))]
        assert web.report().forbidden == ()


def test_every_page_is_forbidden_until_the_rules_behind_redirects_are_read() -> None:
    with Web(sites=[Tree("a.org", robots=ROBOTS["hop"]), Tree("b.org", robots=ROBOTS["loop"])]) as web:
        site = web.sites["a.org"]
        fetch(web, "a.org", "/robots.txt")
        assert (site.forbids("/"), site.forbids("/robots/1")) == (True, False)
        fetch(web, "a.org", "/robots/1")
        assert (site.forbids("/"), site.forbids("/private/x")) == (False, True)
        fetch(web, "b.org", "/robots.txt")
        assert not web.sites["b.org"].forbids("/private/x"), "a loop is no rules"


def test_robots_txt_that_is_down_forbids_everything_until_it_is_up() -> None:
    with Web(sites=[Tree("a.org", robots=replace(ROBOTS["private"], down_s=0.2))]) as web:
        site = web.sites["a.org"]
        assert (fetch(web, "a.org", "/robots.txt")[0], site.forbids("/")) == (503, True)
        until(lambda: not site.forbids("/"))
        assert fetch(web, "a.org", "/robots.txt")[0] == 200
        assert site.forbids("/private/x")


def test_robots_txt_of_another_host_is_where_the_redirect_says() -> None:
    rules = ROBOTS["private"]
    with Web(sites=[Tree("a.org", robots=replace(rules, to="b.org")), Tree("b.org", robots=rules)]) as web:
        assert statuses(web, "a.org", 1) == [200]
        assert [(v.host, v.target) for v in web.visits()] == [("a.org", "/robots.txt"), ("b.org", "/robots.txt")]
        assert [web.sites[host].forbids("/private/x") for host in ("a.org", "b.org")] == [True, True]


def test_the_rule_that_matters_ends_before_500_kib_of_a_longer_file() -> None:
    body = ROBOTS["long"].rules().body
    assert len(body) > 600 * 1024
    assert 400 * 1024 < body.index(b"Disallow: /private/\n") + 20 <= 500 * 1024


def origins(**more: object) -> Origins:
    others = {
        "shop": Robots(crawl_delay_s=1.5),
        "docs": Robots(crawl_delay_s=0.7),
        "dev": ROBOTS["failing"],
        "old": Robots(),
        "lost": Robots(),
    }
    site = Origins("a.org", pages=3, others=others, fates={"old": "refused", "lost": "nxdomain"}, address="127.9.0.1")
    return replace(site, **more)  # type: ignore[arg-type]


def test_each_name_of_a_host_has_a_fate_and_a_robots_txt_of_its_own() -> None:
    with Web(sites=[origins(), Tree("b.org")]) as web:
        found = [ask(web, name) for name in ("a.org", "shop.a.org", "old.a.org", "lost.a.org")]
        assert found == [(0, "127.9.0.1"), (0, "127.9.0.1"), (0, "127.137.0.1"), (3, None)]
        site = web.sites["a.org"]
        assert [site.forbids("/", host) for host in ("a.org", "shop.a.org", "dev.a.org")] == [False, False, True]
        fronts = re.findall(r'href="http://(\w+)\.a\.org:', fetch(web, "a.org")[2].decode())
        assert fronts == ["shop", "docs", "dev", "old", "lost"]
        for name in ("shop.a.org", "docs.a.org"):
            assert [fetch(web, name, path)[0] for path in ("/", "/leaf/1", "/leaf/2", "/leaf/3")] == [200, 200, 200, 404]
        assert site.expected() == {
            *(path for path in ("/", "/leaf/1", "/leaf/2")),
            *(f"//{name}.a.org{path}" for name in ("shop", "docs") for path in ("/", "/leaf/1", "/leaf/2")),
        }
        pages = {v.page for v in web.visits() if v.page}
        assert pages == site.expected() - {"/leaf/1", "/leaf/2"}
        with pytest.raises(ConnectionRefusedError):
            fetch(web, "old.a.org")


def visit(start_s: float, host: str, target: str = "/robots.txt") -> Visit:
    return Visit(start_s, start_s, host, "127.9.0.1", target, 200)


def test_the_largest_crawl_delay_of_a_host_counts_from_when_it_was_told() -> None:
    web = Web(sites=[origins()])
    log = [visit(0, "a.org"), visit(0.3, "a.org", "/"), visit(0.6, "docs.a.org"), visit(1.0, "a.org", "/leaf/1"), visit(1.7, "shop.a.org")]
    log += [visit(2.5, "docs.a.org", "/"), visit(4.0, "a.org", "/leaf/2")]
    found = report(log, web.sites, web.site_of, min_delay_s=0.3)
    assert [(round(gap.gap_s, 3), gap.target) for gap in found.violations] == [(0.4, "/leaf/1"), (0.8, "/")]


def test_requests_to_one_address_at_a_time_count_over_all_its_hosts() -> None:
    web = Web(sites=[Tree("a.org", address="127.9.0.1"), Tree("b.org", address="127.9.0.1"), Tree("c.org", address="127.9.0.2")])
    log = [
        visit(0, "a.org"),
        visit(0.6, "b.org")._replace(end_s=2.0),
        visit(1.0, "a.org", "/during"),
        visit(1.2, "c.org")._replace(address="127.9.0.2"),
        visit(2.3, "a.org", "/after"),
        visit(2.9, "b.org", "/late"),
    ]
    found = report(log, web.sites, web.site_of, ip_delay_s=0.5)
    assert [(gap.key, round(gap.gap_s, 3), gap.target) for gap in found.address_violations] == [
        ("127.9.0.1", -1.0, "/during"),
        ("127.9.0.1", 0.3, "/after"),
    ]
    assert found.violations == found.overlaps == ()


def reach(web: Web, host: str) -> None:
    """Every page that links lead to on any name of the site, siblings included; each spelling of a URL once."""
    site = web.sites[host]
    seen, left = set[str](), [site.url()]
    while left:
        at = left.pop(0)
        name, path = urlsplit(at).hostname or "", urlsplit(at).path
        if at in seen or web.site_of(name) is not site or site.forbids(path, name):
            continue
        seen.add(at)
        status, _, body = fetch(web, name, path)
        if status == 404:
            bare = name.removeprefix("www.")
            left += [site.url(path, bare if name != bare else f"www.{name}"), at.rstrip("/") if path.endswith("/") else f"{at}/"]
        left += [urljoin(at, href.replace("&amp;", "&")) for href in re.findall(r'<a [^>]*href="([^"]+)"', body.decode())]


@pytest.mark.parametrize(
    "site",
    [
        Siblings("a.org", pages=9),
        Siblings("a.org", pages=9, differ="www"),
        origins(others={"shop": Robots(), "docs": ROBOTS["missing"]}, fates={}),
        Nofollow("a.org", pages=9),
        Walled("a.org", walled=30),
    ],
    ids=lambda site: f"{type(site).__name__}-{getattr(site, 'differ', '')}",
)
def test_all_expected_pages_can_be_reached_and_no_others(site: Site) -> None:
    with Web(sites=[site]) as web:
        reach(web, "a.org")
        found = web.report()
    assert found.sites["a.org"].missing == ()
    assert {v.page for v in web.visits()} - {None} == site.expected()
    assert (found.refetched, found.forbidden) == (0, ())


@pytest.mark.parametrize("differ", ["slash", "www"])
def test_a_sibling_is_not_found_as_it_is_linked(differ: str) -> None:
    with Web(sites=[Siblings("a.org", pages=9, differ=differ)]) as web:  # type: ignore[arg-type]
        site = web.sites["a.org"]
        links = [url for k in range(9) for url in site.hrefs(k)]  # type: ignore[attr-defined]
        found = {url: fetch(web, urlsplit(url).hostname or "", urlsplit(url).path)[0] for url in links}
    assert [url for url, status in found.items() if status != 404] == ([site.url("/")] if differ == "slash" else [])


@pytest.mark.parametrize(("how", "status"), [("forbidden", 403), ("captcha", 200), ("empty", 200)])
def test_requests_after_a_block_are_counted(how: str, status: int) -> None:
    with Web(sites=[Blocking("a.org", pages=50, good=3, how=how)]) as web:  # type: ignore[arg-type]
        got = [fetch(web, "a.org", f"/leaf/{k}") for k in (1, 2, 3, 1, 4)]
        assert fetch(web, "a.org", "/robots.txt")[0] == 200
        found = web.report().sites["a.org"]
    assert [status for status, _, _ in got] == [200] * 3 + [status] * 2
    assert (found.blocked, found.expected, found.requests) == (2, 0, 6)
    assert (got[4][2] == b"") == (how == "empty")


def test_what_only_nofollow_links_lead_to_is_forbidden() -> None:
    with Web(sites=[Nofollow("a.org", pages=4)]) as web:
        front = fetch(web, "a.org")[2].decode()
        assert re.findall(r'<a rel="(?:nofollow|UGC|noopener sponsored|\s*noFollow\s*)" href="(/hidden/\d)"', front) == [
            f"/hidden/{k}" for k in range(4)
        ]
        marked = re.findall(r'<a href="(/(?:meta|header)[a-z-]*)"', front)
        leads = {path: re.findall(r'href="/(\w+)/', fetch(web, "a.org", path)[2].decode()) for path in marked}
        fetch(web, "a.org", "/hidden/meta")
        fetch(web, "a.org", "/shown/both")
        assert fetch(web, "a.org", "/header-ours")[1]["x-robots-tag"] == "crawlweb: nofollow"
        assert web.report().forbidden == ("a.org/hidden/meta",)
    assert len(leads) == 11
    assert {path for path, to in leads.items() if to == ["shown"]} == {"/meta-other", "/meta-noindex", "/header-other", "/header-noindex"}
    assert {path for path, to in leads.items() if to == ["hidden"]} == leads.keys() - {
        *("/meta-other", "/meta-noindex", "/header-other", "/header-noindex")
    }


def test_a_wall_of_forbidden_links_stands_before_the_pages() -> None:
    with Web(sites=[Walled("a.org", walled=2_000)]) as web:
        hrefs = re.findall(r'href="([^"]+)"', fetch(web, "a.org")[2].decode())
        fetch(web, "a.org", "/walled/7")
        assert all(href.startswith("/walled/") for href in hrefs[:2_000])
        assert len(set(hrefs[2_000:]) & web.sites["a.org"].expected()) >= 3
        found = web.report()
    assert found.forbidden == ("a.org/walled/7",)
    assert 0 < found.sites["a.org"].span_s < 5


def test_a_flaky_site_fails_once_a_page() -> None:
    with Web(sites=[Flaky("a.org", pages=6)]) as web:
        assert [fetch(web, "a.org", f"/leaf/{k}")[0] for k in (1, 2, 2, 3)] == [200, 500, 200, 200]
        with pytest.raises(TimeoutError):
            fetch(web, "a.org", "/leaf/5", timeout_s=0.05)
        assert fetch(web, "a.org", "/leaf/5")[0] == 200


def test_pages_push_back_once_each() -> None:
    with Web(sites=[Pushback("a.org", pages=20, status=503, how="negative", rest_s=0)]) as web:
        first = [fetch(web, "a.org", f"/leaf/{k}" if k else "/") for k in range(20)]
        assert [k for k, (status, _, _) in enumerate(first) if status == 503] == [3, 10, 17]
        assert {headers.get("retry-after") for _, headers, _ in first} == {None, "-120"}
        assert [fetch(web, "a.org", f"/leaf/{k}")[0] for k in (3, 10, 17)] == [200] * 3


def test_a_busy_answer_says_nothing_of_when() -> None:
    assert (BUSY.status, BUSY.rest, BUSY.headers) == (503, None, ())
