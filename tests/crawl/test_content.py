"""What a crawl finds out about its pages: copies, main text, language, feeds; and what it keeps of it in items, records, events, WARC."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import redis
from warcio.archiveiterator import ArchiveIterator

from crawlweb.policy.canonical import url_key
from crawlweb.policy.hosts import host_of
from crawlweb.records import PageRecord
from tests.crawl.crawler import Crawl, at_once
from tests.crawl.test_limits import a_redis
from tests.web.server import Web
from tests.web.sites import NOT_FOUND, Answer, Request, Site
from tests.web.text import prose

EDIT = ". The editors of the paper have since changed this report in one place. "
GERMAN = "Der alte Hafen liegt am Rand der Stadt, und jeden Morgen fahren die Fischer hinaus, um ihre Netze einzuholen. " * 6


@dataclass
class Given(Site):
    """A site of these answers."""

    answers: dict[str, Answer] = field(default_factory=dict)

    def respond(self, request: Request) -> Answer:
        return self.answers.get(request.target, NOT_FOUND)

    def reachable(self) -> frozenset[str]:
        return frozenset()


def page(
    title: str, text: str, *, links: tuple[str, ...] = (), head: str = "", menu: str = "news sport weather", lang: str = "en"
) -> Answer:
    """An article in a template that `menu` tells apart from others."""
    nav = "".join(f"<li><a href='/{word}'>{word}</a></li>" for word in menu.split())
    more = "".join(f"<li><a href='{link}'>more</a></li>" for link in links)
    paragraphs = "".join(f"<p>{part}.</p>" for part in text.split(".") if part.strip())
    html = (
        f"<!doctype html><html lang={lang}><head><title>{title}</title>{head}</head><body><header><ul>{nav}</ul></header><main><article>"
        f"<h1>{title}</h1>{paragraphs}</article></main><aside><ul>{more}</ul></aside><footer>{menu} all rights</footer></body></html>"
    )
    return Answer(html.encode())


def story(name: str, words: int = 250) -> str:
    return prose(Random(name), words)


def sites() -> list[Site]:
    one = story("one")
    feed = "<rss version='2.0'><channel><title>Feed</title><item><title>New</title><link>/from-feed</link></item></channel></rss>"
    paths = ["/story", "/story?print=1", "/amp/two", "/x1", "/x2", "/s1", "/s2", "/de", "/paper.pdf", "/feed.xml", "/large", "/noindex"]
    large = page("Large", story("large", 60_000), links=tuple(f"/leaf/{n}" for n in range(5)))
    a = Given(
        "a.org",
        answers={
            "/": page("Front", story("front"), links=tuple(paths)),
            "/story": page("Flood", one, links=("/story/again",)),
            "/story/again": page(
                "Flood", one.replace(". ", ". The editors of the paper have since changed this report in one place. ", 1), menu="again"
            ),
            "/story?print=1": page("Flood", one, menu="print close"),
            "/two": page("Two", story("two")),
            "/amp/two": page("Two", story("two"), head="<link rel=canonical href=/two>", menu="amp"),
            "/x1": page("First", story("x1")),
            "/x2": page("Second", story("x2")),
            "/s1": page("Contact", "Write to us at the harbour office in the old town"),
            "/s2": page("Opening hours", "We open at nine and close at five on all days but Sunday"),
            "/de": page("Hafen", GERMAN, lang=""),
            "/paper.pdf": Answer(b"%PDF-1.4 not really", content_type="application/pdf"),
            "/feed.xml": Answer(feed.encode(), content_type="application/rss+xml"),
            "/from-feed": page("New", story("new")),
            "/large": large,
            "/noindex": page("Hidden", story("hidden"), head="<meta name=robots content=noindex>"),
        },
    )
    b = Given("b.com", answers={"/": page("B", story("b"), links=("/wire/flood",)), "/wire/flood": page("Flood", one, menu="wire agency")})
    return [a, b]


TYPES = "text/html,application/pdf,application/rss+xml"


@at_once
def test_what_is_found_out_about_pages_is_kept_in_items_records_events_and_warc(folder: Path) -> None:
    settings: dict[str, Any] = {"CRAWLWEB_MIN_DELAY_S": 0.2, "CRAWLWEB_CONTENT_TYPES": TYPES, "CRAWLWEB_ANCHOR_TEXT": True}
    with a_redis() as url, Web(seed=1, sites=sites()) as web:  # noqa: SIM117
        with Crawl(folder, web.dns_server, REDIS_URL=url, **settings) as crawl:
            a, b = web.sites["a.org"], web.sites["b.com"]
            run = crawl.start([a.url(), b.url()]).succeeds()
            assert run.complaints == []
            items = {item["final_url"]: item for item in crawl.items()}
            found, copies = a.url("/story"), (a.url("/story?print=1"), b.url("/wire/flood"))

            assert items[found]["duplicate_of"] is None
            assert {items[copy]["duplicate_of"] for copy in copies} <= {found, None, *copies}
            records = {name: record_of(crawl, name) for name in items}
            named = {copy for copy in copies if items[copy]["duplicate_of"] == found or copy in items[found]["supersedes"]}
            assert named == set(copies) or {items[copy]["duplicate_of"] for copy in copies} & set(copies), "told one way or the other"
            assert {records[copy].canonical for copy in copies} == {found}, "whichever came first, the shorter URL counts"
            assert records[found].canonical == ""
            assert records[a.url("/amp/two")].canonical == a.url("/two"), "as it declares"
            alone = [a.url(path) for path in ("/", "/x1", "/x2", "/s1", "/s2", "/de", "/two", "/large")]
            assert [name for name in alone if records[name].canonical or items[name]["duplicate_of"]] == []
            assert items[a.url("/story/again")]["duplicate_of"] == found
            assert records[a.url("/story/again")].flags == {"near_duplicate"}
            assert run.stats["crawlweb/duplicates/near"] == 1
            assert sum(run.stats.get(f"crawlweb/duplicates/{kind}", 0) for kind in ("exact", "superseded")) >= 2

            one = items[found]
            assert one["main_text"].startswith("Flood")
            assert "all rights" in one["text"]
            assert "all rights" not in one["main_text"]
            assert (one["language"], items[a.url("/de")]["language"]) == ("en", "de")
            assert one["fingerprint"] == f"{records[found].fingerprint:016x}" != ""
            assert (one["soft_404"], one["noindex"], one["changed"]) == (False, False, None)
            assert items[a.url("/noindex")]["noindex"]
            assert "noindex" in records[a.url("/noindex")].flags
            assert items[a.url("/large")]["main_text"].count(" ") > 50_000
            assert a.url("/leaf/3") in items[a.url("/large")]["links"]
            assert items[a.url("/feed.xml")]["links"] == [a.url("/from-feed")]
            assert a.url("/from-feed") in items
            assert (items[a.url("/paper.pdf")]["text"], len(items[a.url("/paper.pdf")]["content_hash"])) == ("", 64)

            for name, item in items.items():
                record = records[name]
                assert (record.url, record.status, record.fetches) == (name, 200, 1)
                assert record.warc is not None
                assert (record.warc.file, record.warc.offset, record.warc.length) == tuple(
                    item[f"warc_{part}"] for part in ("file", "offset", "length")
                )
                assert record.next_at > record.fetched_at
            with redis.Redis.from_url(url) as client:
                events = {row[b"url"].decode(): row for _, row in client.xrange("{web}:events")}
            assert set(events) == set(items)
            assert {events[copy][b"duplicate_of"].decode() for copy in copies} == {items[copy]["duplicate_of"] or "" for copy in copies}
            assert f"outlink: {a.url('/story')} L a/@href text=more" in metadata(crawl, a.url())
            shown = subprocess.run(
                [sys.executable, "-m", "crawlweb.cli", "page", copies[0], "--json", "-s", f"REDIS_URL={url}"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert json.loads(shown.stdout)["canonical"] == found


def record_of(crawl: Crawl, url: str) -> PageRecord:
    record: PageRecord = crawl.look(lambda frontier: frontier.record(host_of(url), url_key(url)))
    return record


def metadata(crawl: Crawl, url: str) -> str:
    """Of the WARC, what is said about a page."""
    for file in crawl.warc_folder.glob("*.warc.gz"):
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream):
                if record.rec_type == "metadata" and record.rec_headers.get_header("WARC-Target-URI") == url:
                    return str(record.content_stream().read().decode())
    return ""


@at_once
def test_copies_are_left_out_where_nobody_wants_them(folder: Path) -> None:
    with Web(seed=1, sites=sites()) as web, Crawl(folder, web.dns_server, CRAWLWEB_MIN_DELAY_S=0.2) as crawl:
        run = crawl.start([site.url() for site in web.sites.values()], CRAWLWEB_SKIP_DUPLICATES=1, CRAWLWEB_STORE_DUPLICATES=0).succeeds()
        items = [item["final_url"] for item in crawl.items()]
        assert not any(item["duplicate_of"] for item in crawl.items())
        assert len(items) == run.stats["crawlweb/pages"] - run.stats["crawlweb/duplicates/skipped"]
        kinds = crawl.record_types()
        assert kinds["revisit"] == run.stats["crawlweb/duplicates/near"] == 1
        assert kinds["response"] + kinds["revisit"] == run.stats["crawlweb/requests"]


@at_once
def test_a_crawl_without_content_work_finds_the_same_pages(folder: Path) -> None:
    off = ("MAIN_TEXT", "LANGUAGE", "DUPLICATES", "SOFT_404", "RECORDS", "EVENTS")
    with Web(seed=1, sites=sites()) as web, Crawl(folder, web.dns_server) as crawl:
        crawl.start([site.url() for site in web.sites.values()], **{f"CRAWLWEB_{name}": False for name in off}).succeeds()
        items = crawl.items()
        assert len(items) > 10
        assert {(item["main_text"], item["language"], item["duplicate_of"], item["soft_404"]) for item in items} == {("", "", None, False)}
        assert record_of(crawl, items[0]["final_url"]) is None


KILLER = """
import os, signal
try:
    from crawlweb import analysis
except ImportError:  # a process of another environment
    pass
else:
    def read(self, task, read=analysis.Analyst._read):
        if b"ends whoever reads it" in task.body:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(self, task)
    analysis.Analyst._read = read
"""


@at_once
def test_a_page_that_kills_whoever_reads_it_becomes_a_dead_letter_and_takes_one_worker_with_it(folder: Path) -> None:
    """The first time it takes the worker; then it is read in a process of its own."""
    (folder / "env").mkdir(parents=True)
    (folder / "env" / "sitecustomize.py").write_text(KILLER)
    links = tuple(f"/p{n}" for n in range(12))
    answers = {link: page(link, story(link)) for link in links}
    site = Given("k.org", answers={"/": page("Front", story("front"), links=(*links[:6], "/killer", *links[6:])), **answers})
    site.answers["/killer"] = page("Killer", "This page ends whoever reads it")
    others = Given("l.org", answers={"/": page("Other", story("other"), links=links), **{k: page(k, story("l" + k)) for k in links}})
    settings: dict[str, Any] = {"CRAWLWEB_LEASE_S": 6, "DOWNLOAD_TIMEOUT": 2, "CRAWLWEB_MIN_DELAY_S": 0.1}
    with a_redis() as url, Web(seed=2, sites=[site, others]) as web, Crawl(folder, web.dns_server, REDIS_URL=url, **settings) as crawl:
        env = {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder / "env"), os.environ.get("PYTHONPATH"))))}
        first = crawl.start([site.url(), others.url()], env=env)
        assert first.wait() == -signal.SIGKILL
        run = crawl.start(env=env).succeeds()
        assert run.stats["crawlweb/errors/parser_died"] == 2
        assert [(reason, entry.url) for _, reason, entry in crawl.dead_letters() if entry] == [("parser_died", site.url("/killer"))]
        assert {item["final_url"] for item in crawl.items()} == {
            *(site.url(path) for path in ("/", *links)),
            *(others.url(path) for path in ("/", *links)),
        }
        assert site.url("/killer") in crawl.pages(), "it was fetched, and is stored"
