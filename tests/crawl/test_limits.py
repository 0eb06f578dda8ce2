"""Where a crawl ends: max_pages, max_depth, scope, its seeds, and a frontier that is drained."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from crawlweb.frontier.server import find_binary
from tests.conftest import serving
from tests.crawl.crawler import Crawl, at_once
from tests.web import Errors, Redirects, Robots, Tree, Web


class Names(Tree):
    """A tree whose front page also leads to two names below its own; every name has all pages."""

    def extra_hrefs(self) -> list[str]:
        return [self.url("/leaf/1", f"{label}.{self.name}") for label in ("docs", "blog")]


class Deep(Tree):
    """Page k leads to page k + 1 only."""

    def links(self, number: int) -> list[str]:
        return [self.path(number + 1)] if number + 1 < self.pages else []


@contextmanager
def a_redis(aof: str = "yes") -> Iterator[str]:
    with serving(find_binary(), "--appendonly", aof) as server:
        yield server.url


@at_once
def test_max_pages_is_exact(folder: Path) -> None:
    sites = [Tree("a.org", pages=30), Redirects("b.org", pages=30), Errors("c.org", pages=30), Tree("d.org", pages=30)]
    with Web(sites=sites) as web, Crawl(folder, web.dns_server) as crawl:
        run = crawl.start(web.seeds(), arguments=["-a", "max_pages=17"]).succeeds(60)
        pages = crawl.pages()
        assert len(pages) == len(set(pages)) == 17
        assert len(crawl.items()) == 17
        assert run.summary == ("max_pages is reached", 17)
        assert crawl.audit()["leased"] == 0

        again = crawl.start(web.seeds()).succeeds(20)
        assert again.summary == ("max_pages is reached", 0)
        assert len(crawl.pages()) == 17


@at_once
def test_max_pages_is_exact_for_two_workers(folder: Path) -> None:
    with (
        a_redis() as url,
        Web(sites=[Tree(f"t{i}.org", pages=30) for i in range(5)]) as web,
        Crawl(folder / "one", web.dns_server, REDIS_URL=url) as one,
        Crawl(folder / "two", web.dns_server, REDIS_URL=url) as two,
    ):
        for run in [crawl.start(web.seeds(), arguments=["-a", "max_pages=31"]) for crawl in (one, two)]:
            run.succeeds(60)
        pages = one.pages() + two.pages()
        assert len(pages) == len(set(pages)) == 31


@at_once
def test_a_crawl_smaller_than_max_pages_ends_when_it_is_drained(folder: Path) -> None:
    with Web(sites=[Tree("a.org", pages=9)]) as web, Crawl(folder, web.dns_server) as crawl:
        run = crawl.start(web.seeds(), arguments=["-a", "max_pages=100"]).succeeds(60)
        assert run.summary == ("finished", 9)


@at_once
def test_max_depth_counts_links_from_the_seeds(folder: Path) -> None:
    with Web(sites=[Deep("a.org", pages=9)]) as web, Crawl(folder, web.dns_server) as crawl:
        run = crawl.start(web.seeds(), arguments=["-a", "max_depth=3"]).succeeds(60)
        assert sorted(crawl.pages()) == [web.sites["a.org"].url(path) for path in ("/", "/leaf/1", "/leaf/2", "/leaf/3")]
        assert {item["final_url"]: item["depth"] for item in crawl.items()} == {
            web.sites["a.org"].url(path): depth for depth, path in enumerate(("/", "/leaf/1", "/leaf/2", "/leaf/3"))
        }
        assert run.stats["crawlweb/links/too_deep"] == 1


@at_once
def test_max_depth_of_0_fetches_the_seeds_only(folder: Path) -> None:
    with Web(sites=[Tree("a.org", pages=9), Tree("b.org", pages=9)]) as web, Crawl(folder, web.dns_server) as crawl:
        crawl.start(web.seeds(), arguments=["-a", "max_depth=0"]).succeeds(60)
        assert sorted(crawl.pages()) == sorted(web.seeds())


def hosts(crawl: Crawl) -> set[str | None]:
    return {urlsplit(url).hostname for url in crawl.pages()}


@at_once
def test_scope_host_stays_on_the_hosts_of_the_seeds(folder: Path) -> None:
    with Web(sites=[Names("a.org", pages=9), Tree("b.org", pages=9)]) as web, Crawl(folder, web.dns_server) as crawl:
        run = crawl.start(web.seeds()[0], arguments=["-a", "scope=host"]).succeeds(60)
        assert hosts(crawl) == {"a.org"}
        assert len(crawl.pages()) == 9
        assert run.stats["crawlweb/links/out_of_scope"] > 0
        assert {visit.host for visit in web.visits()} == {"a.org"}


@at_once
def test_scope_domain_stays_on_their_registered_domains(folder: Path) -> None:
    with Web(sites=[Names("a.org", pages=9), Tree("b.org", pages=9)]) as web, Crawl(folder, web.dns_server) as crawl:
        crawl.start(web.seeds()[0], arguments=["-a", "scope=domain"]).succeeds(60)
        assert hosts(crawl) == {"a.org", "docs.a.org", "blog.a.org"}
        assert web.report(min_delay_s=0.05, tolerance_s=0.02).violations == (), "names of one domain share a clock"


@at_once
def test_scope_any_goes_everywhere(folder: Path) -> None:
    with Web(sites=[Names("a.org", pages=9), Tree("b.org", pages=9)]) as web, Crawl(folder, web.dns_server) as crawl:
        crawl.start(web.seeds()[0]).succeeds(60)
        assert hosts(crawl) == {"a.org", "docs.a.org", "blog.a.org", "b.org"}


@at_once
def test_seeds_from_a_file_with_comments_and_blank_lines(folder: Path) -> None:
    with Web(sites=[Deep("a.org", pages=3), Deep("b.org", pages=3), Deep("c.org", pages=3)]) as web, Crawl(folder, web.dns_server) as crawl:
        a, b, c = web.seeds()
        file = folder / "seeds.txt"
        file.write_text(f"# sites\n\n  {a}  \r\n{b}\n\n# {c}\n{a}\n{a}#again\n", newline="")
        run = crawl.start(f"@{file}").succeeds(60)
        assert hosts(crawl) == {"a.org", "b.org"}
        assert web.report().refetched == 0
        assert (run.stats["crawlweb/seeds"], run.stats["crawlweb/seeds/new"]) == (4, 2)


@at_once
def test_a_seed_given_twice_is_fetched_once(folder: Path) -> None:
    with Web(sites=[Deep("a.org", pages=3)]) as web, Crawl(folder, web.dns_server) as crawl:
        (a,) = web.seeds()
        crawl.start([a, a, f"{a}?utm_source=mail"]).succeeds(60)
        assert Counter(crawl.pages()) == dict.fromkeys((web.sites["a.org"].url(p) for p in ("/", "/leaf/1", "/leaf/2")), 1)


@at_once
def test_a_finished_crawl_ends_at_once_and_takes_new_seeds(folder: Path) -> None:
    with Web(sites=[Deep("a.org", pages=4), Deep("b.org", pages=4)]) as web, Crawl(folder, web.dns_server) as crawl:
        a, b = web.seeds()
        crawl.start(a).succeeds(60)
        requests = web.report().requests
        again = crawl.start(a).succeeds(20)
        assert again.summary == ("finished", 0)
        assert web.report().requests == requests
        crawl.start().succeeds(20)
        assert web.report().requests == requests
        other = crawl.start(b).succeeds(60)
        assert other.summary == ("finished", 4)


@at_once
def test_forbidden_seeds_end_a_crawl_without_a_page(folder: Path) -> None:
    with Web(sites=[Tree("a.org", robots=Robots(disallow=("/",)))]) as web, Crawl(folder, web.dns_server) as crawl:
        run = crawl.start(web.seeds()).succeeds(60)
        assert run.summary == ("finished", 0)
        assert run.stats["crawlweb/robots/disallowed"] == 1
        assert [visit.target for visit in web.visits()] == ["/robots.txt"]


@pytest.mark.slow
def test_a_crawl_that_nobody_seeds_says_so_after_a_minute(tmp_path: Path) -> None:
    with Crawl(tmp_path, "127.0.0.1:9") as crawl:
        run = crawl.start().succeeds(90)
        reason, pages = run.summary
        assert pages == 0
        assert "seed" in reason


@at_once
def test_the_shortest_lease_allowed_is_enough(folder: Path) -> None:
    with Web(sites=[Deep("a.org", pages=3)]) as web, Crawl(folder, web.dns_server, DOWNLOAD_TIMEOUT=1, CRAWLWEB_LEASE_S=3) as crawl:
        assert crawl.start(web.seeds()).succeeds(60).summary == ("finished", 3)


@at_once
def test_two_crawls_of_one_data_directory_do_not_meet(folder: Path) -> None:
    with Web(sites=[Deep("a.org", pages=4), Deep("b.org", pages=4)]) as web, Crawl(folder, web.dns_server) as crawl:
        a, b = web.seeds()
        runs = [crawl.start(a, CRAWLWEB_CRAWL="one"), crawl.start(b, CRAWLWEB_CRAWL="two")]
        assert [run.succeeds(60).summary for run in runs] == [("finished", 4)] * 2
        assert not crawl.server_answers()
        assert all(list((crawl.data_dir / name / "warc").glob("*.warc.gz")) for name in ("one", "two"))


@at_once
def test_max_pages_is_exact_for_three_workers_of_which_some_are_killed(folder: Path) -> None:
    """Pages that were stored by a worker that died are found, completed and counted once, in all that it left behind."""
    most = 60
    with a_redis() as url, Web(sites=[Tree(f"t{i}.org", pages=12) for i in range(12)]) as web:
        shared = {"REDIS_URL": url, "DOWNLOAD_TIMEOUT": 1, "CRAWLWEB_LEASE_S": 3, "CRAWLWEB_MIN_DELAY_S": 0.3}
        with contextlib.ExitStack() as stack:
            crawls = [
                stack.enter_context(Crawl(folder / str(i), web.dns_server, CRAWLWEB_SPILL_URL=folder / "cold", **shared)) for i in range(3)
            ]
            arguments = ["-a", f"max_pages={most}"]
            first, second, third = (crawl.start(web.seeds(), arguments=arguments) for crawl in crawls)
            with redis.Redis.from_url(url) as client:
                for run, pages in ((first, 15), (second, 35)):
                    third.wait_until(lambda least=pages: client.scard("{web}:pages") >= least)
                    run.kill()
                again = crawls[0].start()
                assert third.succeeds().summary[0] == again.succeeds().summary[0] == "max_pages is reached"
                assert client.scard("{web}:pages") == most
                assert not client.exists("{web}:permits", "{web}:open")
            stored = {page for crawl in crawls for page in crawl.pages()}
            items = {item["final_url"] for crawl in crawls for item in crawl.readable_items()[0]}
            assert (len(stored), len(items)) == (most, most)
            assert crawls[0].audit()["lost"] == 0
