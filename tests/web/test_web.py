"""The synthetic web itself: what the other tests rely on when they use it as their judge."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from . import kinds, names, sites
from .process import WebProcess
from .report import Visit, gaps, longest_pause_s, report
from .server import Web
from .sites import BUSY, ROBOTS, Broken, Errors, Files, Links, Redirects, Robots, Site, Slow, Spellings, Tree


def fetch(web: Web, host: str, target: str = "/", agent: str = "test", timeout_s: float = 5) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (lower case) and body (as far as it came) of one request on a connection of its own."""
    site = web.site_of(host)
    with socket.create_connection((site.address_of(host) if site else "127.0.0.1", web.http_port), timeout=timeout_s) as client:
        client.sendall(
            f"GET {target} HTTP/1.1\r\nHost: {host}:{web.http_port}\r\nUser-Agent: {agent}\r\nConnection: close\r\n\r\n".encode()
        )
        data = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    return int(status.split()[1]), {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}, body


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">HHHHHH", 77, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def ask(web: Web, name: str, kind: int = 1) -> tuple[int, str | None]:
    """Response code and address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.sendto(query(name, kind), ("127.0.0.1", web.dns_port))
        reply = client.recv(512)
    assert reply[:2] == query(name)[:2]
    answers = struct.unpack_from(">H", reply, 6)[0]
    return reply[3] & 15, socket.inet_ntoa(reply[-4:]) if answers else None


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline_s


def walk(web: Web, host: str) -> None:
    """A crawl of one site: robots.txt first, then every link within the site that it allows, in order, each target once."""
    site = web.sites[host]
    fetch(web, host, "/robots.txt")
    seen, left = {"/"}, ["/"]
    while left:
        target = left.pop(0)
        _, headers, body = fetch(web, host, target)
        found = [headers.get("location", ""), *re.findall(r'href="([^"]+)"', body.decode())]
        for href in (h.replace("&amp;", "&").partition("#")[0] for h in found):
            link = href.removeprefix(site.url("")) or "/"
            if href and link.startswith("/") and link not in seen and not site.forbids(link):
                seen.add(link)
                left.append(link)


def test_the_same_seed_gives_the_same_web_and_another_seed_another() -> None:
    def pages(seed: int) -> list[bytes]:
        with Web(seed=seed, http_port=0, sites=[Tree(pages=5), Links(pages=5), Slow(low_s=0, high_s=0)]) as web:
            hosts = list(web.sites)
            bodies = [fetch(web, host, path)[2] for host in hosts for path in ("/", "/leaf/3", "/page/3")]
            return [json.dumps(hosts).encode(), *(b.replace(b":%d" % web.http_port, b"") for b in bodies)]

    assert pages(1) == pages(1)
    assert all(one != two for one, two in zip(pages(1), pages(2), strict=True) if b"Not found" not in one)


@pytest.mark.parametrize(
    "site",
    [
        Tree("a.org", pages=30),
        Tree("a.org", pages=30, robots=ROBOTS["private"]),
        Tree("a.org", pages=1, fanout=1),
        Slow("a.org", pages=8, low_s=0, high_s=0.01),
        Redirects("a.org", pages=12),
        Links("a.org", pages=40, links=20, page_bytes=3_000),
    ],
    ids=lambda site: f"{type(site).__name__}-{site.pages}-{len(site.robots.disallow)}",
)
def test_all_expected_pages_can_be_reached_from_the_front_page(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites.Redirects, "extra_hrefs", lambda _: ["/folder"])
    with Web(sites=[site]) as web:
        walk(web, "a.org")
        found = web.report()
    assert found.sites["a.org"].missing == ()
    assert (found.coverage, found.refetched, found.forbidden, found.robots_late) == (1.0, 0, (), ())


def test_a_page_of_the_benchmark_kind_has_the_size_and_links_it_should() -> None:
    with Web(sites=[Links() for _ in range(20)]) as web:
        host = next(iter(web.sites))
        bodies = [fetch(web, host, f"/page/{k}")[2] for k in range(1, 21)]
    assert {body.count(b"<a href=") for body in bodies} == {100}
    assert all(29_500 < len(body) < 32_500 for body in bodies)
    assert len(set(bodies)) == 20


def test_every_visit_is_logged_with_host_address_target_status_and_agent() -> None:
    with Web(sites=[Tree("a.org", pages=3, address="127.5.0.1"), Slow("b.org", low_s=0.05, high_s=0.05)]) as web:
        fetch(web, "a.org", "/leaf/1?x=1", agent="crawlweb")
        fetch(web, "a.org", "/nothing")
        fetch(web, "b.org")
        assert web.wait_until_served(2, timeout_s=5)
        log = web.visits()
    assert [v[2:7] for v in log] == [
        ("a.org", "127.5.0.1", "/leaf/1?x=1", 200, "crawlweb"),
        ("a.org", "127.5.0.1", "/nothing", 404, "test"),
        ("b.org", web.sites["b.org"].address, "/", 200, "test"),
    ]
    assert [v.page for v in log] == ["/leaf/1", None, "/"]
    assert log[2].end_s - log[2].start_s >= 0.05
    assert all(v.start_s <= v.end_s and v.at_s > 1.7e9 for v in log)


def test_a_request_without_an_answer_is_logged_when_its_connection_ends_and_before_as_open() -> None:
    with Web(sites=[Tree("hole.org", fate="blackhole")]) as web:
        client = socket.create_connection(("127.0.0.1", web.http_port))
        client.sendall(b"GET / HTTP/1.1\r\nHost: hole.org\r\n\r\n")
        until(lambda: web.visits())
        assert web.log == []
        client.close()
        until(lambda: web.log)
        assert web.log[0].status == 0
        assert web.report().expected == 0


def test_a_kept_alive_connection_answers_pipelined_requests_in_order() -> None:
    with Web(sites=[Tree("a.org", pages=5)]) as web, socket.create_connection(("127.0.0.1", web.http_port)) as client:
        client.sendall(
            b"GET /leaf/1 HTTP/1.1\r\nHost: a.org\r\n\r\nGET /leaf/2 HTTP/1.1\r\nhost:A.ORG\r\n\r\n"
            b"GET /leaf/3 HTTP/1.1\r\nHost: www.a.org\r\nConnection: close\r\n\r\n"
        )
        data = b"".join(iter(lambda: client.recv(65536), b""))
        assert [data.count(b"page %d</title>" % k) for k in (1, 2, 3)] == [1, 1, 1]
        assert [v.page for v in web.visits()] == ["/leaf/1", "/leaf/2", "/leaf/3"]
        assert web.report().overlaps == ()


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("a.org", 1, (0, "127.5.0.1")),
        ("WWW.A.org", 1, (0, "127.5.0.1")),
        ("deep.below.a.org", 1, (0, "127.5.0.1")),
        ("a.org", 28, (0, None)),
        ("xa.org", 1, (3, None)),
        ("org", 1, (3, None)),
        ("gone.org", 1, (3, None)),
        ("lame.org", 1, (2, None)),
        ("hole.org", 1, (0, "127.16.0.4")),
    ],
)
def test_the_name_server_answers_for_the_web_alone(name: str, kind: int, expected: tuple[int, str | None]) -> None:
    fates = {"gone.org": "nxdomain", "lame.org": "servfail", "hole.org": "blackhole"}
    dead = [Tree(n, fate=f) for n, f in fates.items()]  # type: ignore[arg-type]
    with Web(sites=[Tree("a.org", address="127.5.0.1"), *dead]) as web:
        assert ask(web, name, kind) == expected
        assert web.names.asked == {name.lower(): 1}


def test_a_silent_name_is_never_answered_and_a_malformed_query_neither() -> None:
    site = Tree("mute.org", fate="silent")
    assert names.answer(query("mute.org"), lambda _: site) is None
    for length in range(len(query("mute.org"))):
        with pytest.raises(ValueError):
            names.answer(query("mute.org")[:length], lambda _: None)


def test_a_refusing_site_refuses_while_the_others_answer() -> None:
    with Web(sites=[Tree("a.org"), Tree("b.org"), Tree("no.org", fate="refused")]) as web:
        assert fetch(web, "a.org")[0] == fetch(web, "b.org")[0] == 200
        with pytest.raises(ConnectionRefusedError):
            fetch(web, "no.org")
        assert ask(web, "no.org")[0] == 0


def test_two_webs_run_at_a_time_and_end_without_leaving_anything_open() -> None:
    with Web(sites=[Tree("a.org")]) as one, Web(sites=[Tree("a.org"), Tree("b.org", fate="refused")]) as two:
        assert one.http_port != two.http_port
        assert one.dns_port != two.dns_port
        idle = socket.create_connection(("127.0.0.1", one.http_port))
        fetch(one, "a.org")
        fetch(two, "a.org")
    with idle:
        assert idle.recv(1) == b""
    for web in (one, two):
        with pytest.raises(ConnectionRefusedError):
            fetch(web, "a.org")


def test_a_port_that_is_taken_fails_at_the_start() -> None:
    with Web(sites=[Tree("a.org")]) as web, pytest.raises(OSError), Web(sites=[], http_port=web.http_port):
        pass


def test_what_breaks_inside_a_site_is_raised_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tree, "links", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError), Web(sites=[Tree("a.org")]) as web:
        assert fetch(web, "a.org")[0] == 500


def visit(start_s: float, end_s: float, target: str = "/", host: str = "a.org", **more: object) -> Visit:
    return Visit(start_s, end_s, host, "127.0.0.1", target, 200)._replace(**more)  # type: ignore[arg-type]


def judge(visits: list[Visit], **options: float) -> Callable[[str], object]:
    web = Web(sites=[Tree("a.org", pages=3), Tree("b.org", pages=1, robots=Robots(crawl_delay_s=2.0))])
    result = report(visits, web.sites, web.site_of, **options)
    return lambda name: getattr(result, name)


def test_a_gap_runs_from_the_end_of_all_earlier_requests_to_the_start_of_the_next() -> None:
    log = [visit(5.0, 6.0), visit(0.0, 4.5), visit(1.0, 2.0), visit(7.5, 8.0, host="b.org")]
    assert [g.gap_s for g in gaps(log, lambda v: v.host)] == [-3.5, 0.5]
    assert [g.gap_s for g in gaps(log, lambda v: v.address)] == [-3.5, 0.5, 1.5]


def test_a_pause_is_of_a_name_alone() -> None:
    log = [visit(6.0, 7.0), visit(0.0, 1.0), visit(2.5, 3.0), visit(4.0, 5.0, host="www.a.org")]
    assert (longest_pause_s(log, "a.org"), longest_pause_s(log, "www.a.org")) == (3.0, 0.0)


def test_gaps_count_over_all_hosts_of_a_site() -> None:
    log = [visit(0, 1), visit(1.5, 2, host="www.a.org"), visit(3.5, 4, host="blog.a.org"), visit(1, 3.6, host="b.org")]
    verdict = judge(log, min_delay_s=1.0)
    assert verdict("violations") == (("a.org", 0.5, "/"),)
    assert verdict("shortest_gap_s") == 0.5


@pytest.mark.parametrize(
    ("gap_s", "min_delay_s", "host", "violations"),
    [
        (1.0, 1.0, "a.org", 0),
        (0.995, 1.0, "a.org", 0),
        (0.98, 1.0, "a.org", 1),
        (0.0, 0.0, "a.org", 0),
        (-0.5, 0.0, "a.org", 1),
        (1.5, 1.0, "b.org", 1),
        (2.0, 1.0, "b.org", 0),
        (2.0, 3.0, "b.org", 1),
    ],
)
def test_a_gap_shorter_than_the_larger_delay_is_a_violation(gap_s: float, min_delay_s: float, host: str, violations: int) -> None:
    log = [visit(10.0, 11.0, host=host), visit(11.0 + gap_s, 12.0 + gap_s, host=host)]
    verdict = judge(log, min_delay_s=min_delay_s)
    assert len(verdict("violations")) == violations  # type: ignore[arg-type]
    assert len(verdict("overlaps")) == (gap_s < 0)  # type: ignore[arg-type]


def test_gaps_of_an_address_are_judged_when_asked() -> None:
    log = [visit(0, 1), visit(1.2, 2, host="b.org")]
    assert judge(log)("address_violations") == ()
    assert len(judge(log, ip_delay_s=0.5)("address_violations")) == 1  # type: ignore[arg-type]


def test_the_report_counts_coverage_refetches_late_robots_forbidden_and_strangers() -> None:
    log = [
        visit(0, 0, "/robots.txt"),
        visit(1, 1, "/", page="/"),
        visit(2, 2, "/?again", page="/"),
        visit(3, 3, "/leaf/1", page="/leaf/1"),
        visit(4, 4, "/private/x", forbidden=True),
        visit(5, 5, "/", host="b.org", page="/"),
        visit(6, 6, "/", host="elsewhere.org"),
    ]
    verdict = judge(log)
    expected = {
        "requests": 7,
        "expected": 4,
        "found": 3,
        "coverage": 0.75,
        "refetched": 1,
        "robots_late": ("b.org",),
        "forbidden": ("a.org/private/x",),
        "unknown_hosts": ("elsewhere.org",),
    }
    assert {name: verdict(name) for name in expected} == expected
    assert judge([])("shortest_gap_s") is None


@pytest.mark.parametrize(
    ("robots", "path", "forbidden"),
    [
        (ROBOTS["open"], "/private/1", False),
        (ROBOTS["private"], "/private/1", True),
        (ROBOTS["private"], "/private/open/1", False),
        (ROBOTS["private"], "/privat", False),
        (ROBOTS["missing"], "/", False),
        (ROBOTS["failing"], "/", True),
        (ROBOTS["failing"], "/robots.txt", False),
        (ROBOTS["html"], "/", False),
        (Robots(disallow=("/",)), "/robots.txt", False),
    ],
)
def test_robots_forbids_by_the_longest_match_and_by_status(robots: Robots, path: str, forbidden: bool) -> None:
    assert robots.forbids(path) is forbidden


def test_a_forbidden_page_is_noticed_also_while_robots_txt_still_fails() -> None:
    with Web(sites=[Tree("a.org", robots=ROBOTS["private"]), Tree("b.org", robots=replace(ROBOTS["open"], first=(BUSY,)))]) as web:
        assert b"/private/" in fetch(web, "a.org")[2]
        fetch(web, "a.org", "/private/1")
        assert [fetch(web, "b.org", target)[0] for target in ("/robots.txt", "/", "/robots.txt", "/")] == [
            503,
            200,
            200,
            200,
        ]
        assert [v.forbidden for v in web.visits()] == [False, True, False, True, False, False]


def test_the_crawl_delay_stands_in_robots_txt() -> None:
    assert ROBOTS["delay"].rules().body == b"User-agent: *\nDisallow: \nCrawl-delay: 2\n"


def test_redirects_lead_where_they_should() -> None:
    with Web(sites=[Redirects("a.org", hops=4)]) as web:
        origin = web.sites["a.org"].url("")
        targets = ["/hop/2/7", "/hop/1/7", "/folder", "/loop/a", "/loop/b", "/loop/self", "/onwards/8"]
        found = [fetch(web, "a.org", t)[1]["location"] for t in targets]
        assert all(f'href="/hop/{1 + k % 4}/{k}"' in fetch(web, "a.org")[2].decode() for k in (1, 2, 3))
    ends = ["/folder/", "/loop/b", "/loop/a", "/loop/self"]
    assert found == ["/hop/1/7", "/leaf/7", *(origin + end for end in ends), "/onwards/9"]


def test_all_spellings_of_a_page_show_the_same_page() -> None:
    with Web(sites=[Spellings("a.org", pages=9)]) as web:
        hrefs = web.sites["a.org"].hrefs(5)  # type: ignore[attr-defined]
        assert len(set(hrefs)) == 6
        for href in hrefs[:-1]:
            fetch(web, "a.org", href.partition("#")[0])
        assert urlsplit(hrefs[-1]).hostname == "a.org"
        assert {v.page for v in web.visits()} == {"/leaf/5"}


def test_errors_end_after_their_number_and_the_lost_stay_lost() -> None:
    with Web(sites=[Errors("a.org", failures=2)]) as web:
        assert [fetch(web, "a.org", "/leaf/4")[0] for _ in range(3)] == [503, 503, 200]
        assert [fetch(web, "a.org", t)[0] for t in ("/leaf/3", "/lost/3", "/gone/3", "/leaf/20")] == [
            200,
            404,
            410,
            404,
        ]


def test_the_broken_site_breaks_as_it_says() -> None:
    with Web(sites=[Broken("a.org")]) as web:
        assert b"\0" in fetch(web, "a.org", "/nul")[2]
        assert fetch(web, "a.org", "/many-links")[2].count(b"<a ") == 100_000
        _, headers, body = fetch(web, "a.org", "/short")
        assert len(body) < int(headers["content-length"])
        _, headers, body = fetch(web, "a.org", "/long")
        assert len(body) > int(headers["content-length"])
        with pytest.raises(ConnectionResetError):
            fetch(web, "a.org", "/reset")
        with socket.create_connection(("127.0.0.1", web.http_port)) as client:
            client.sendall(b"GET /endless HTTP/1.1\r\nHost: a.org\r\n\r\n")
            received = 0
            while received < 20_000_000:
                received += len(client.recv(1 << 20))
        assert {"/nul", "/many-links", "/leaf/1"} < web.sites["a.org"].expected()


def test_a_folder_of_files_is_served_with_types_and_slashes_and_its_links_are_walked(tmp_path: Path) -> None:
    files = {
        "index.html": '<a href="guide">g</a> <a class=x href=caf%C3%A9.html>c</a> <!-- <a href="hidden.html"> --> <a href="a.css">',
        "guide/index.html": '<base href="/guide/sub/"><a href="deep.html?x=1#y">d</a><a href="../../index.html">up</a>',
        "guide/sub/deep.html": "<a href='//elsewhere.org/'>e</a><a href='http://[bad'>b</a><a href='missing.html'>m</a>",
        "café.html": "<p>",
        "hidden.html": "<p>",
        "a.css": "p {}",
        "page.html.gz": "x",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with Web(sites=[Files("docs.org", folder=str(tmp_path / "guide" / ".."))]) as web:
        assert web.sites["docs.org"].expected() == {"/", "/index.html", "/guide/", "/guide/sub/deep.html", "/café.html"}
        assert fetch(web, "docs.org", "/guide")[:2] == (301, {"location": "/guide/", "content-length": "0"} | _html())
        types = {t: fetch(web, "docs.org", t)[1]["content-type"] for t in ("/", "/a.css", "/page.html.gz")}
        assert types == {"/": "text/html", "/a.css": "text/css", "/page.html.gz": "application/gzip"}
        for target in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/%00", "/guide/sub", "//etc/passwd"):
            assert fetch(web, "docs.org", target)[0] == 404, target


def _html() -> dict[str, str]:
    return {"content-type": "text/html; charset=utf-8"}


def test_sites_are_built_from_text_and_a_mistake_in_it_is_named() -> None:
    built = kinds.parse("slow:count=3,pages=7,low_s=0.5,robots=private")
    assert [(type(s), s.pages, s.robots) for s in built] == [(Slow, 7, ROBOTS["private"])] * 3
    for wrong in ("tre", "tree:page=3", "tree:pages=x", "tree:robots=odd", "tree:port=80"):
        with pytest.raises(ValueError):
            kinds.parse(wrong)


def test_the_web_runs_as_a_process_of_its_own_and_ends_with_its_input() -> None:
    with WebProcess("tree:count=2,pages=4", seed=3) as web:
        url = web.seeds()[1]
        request = urllib.request.Request(f"http://127.0.0.1:{web.http_port}/leaf/2", headers={"Host": urlsplit(url).netloc})
        with urllib.request.urlopen(request, timeout=5) as response:
            assert response.status == 200
        assert web.served() == 1
        assert web.visits()[0].host == urlsplit(url).hostname
        assert web.report(min_delay_s=1.0)["expected"] == 8
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(request, timeout=5)


def test_a_web_opens_on_a_running_loop_too() -> None:
    async def run() -> bytes:
        web = Web(sites=[Tree("a.org")])
        await web.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", web.http_port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a.org\r\nConnection: close\r\n\r\n")
        data = await reader.read()
        writer.close()
        await writer.wait_closed()
        await web.close()
        return data

    assert asyncio.run(run()).startswith(b"HTTP/1.1 200 OK\r\n")
