"""The operator's commands on a real crawl in Redis: what they show, change and refuse, and how they end."""

from __future__ import annotations

import asyncio
import configparser
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

import msgpack  # type: ignore[import-untyped]
import pytest
import redis
from click.testing import CliRunner, Result
from redis.asyncio import Redis

from crawlweb.cli import main
from crawlweb.cli.shown import FOREVER
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.inspect import HOST_FIELDS
from crawlweb.frontier.keys import partition_of, partition_prefix
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import Limits, Link, OriginFailed, Outcome, Override, PushedBack
from crawlweb.frontier.server import PrivateServer
from crawlweb.policy.canonical import url_key
from crawlweb.policy.hosts import SUFFIX_LIST_ID, host_of
from crawlweb.records import Entry, PageRecord, PageVersion, WarcRef, boottime
from crawlweb.spill import Spill
from crawlweb.store.chunks import ChunkStore

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4
TESTERS = itertools.count()  # a worker's name is never used twice: its calls are numbered
AGREED = {"partitions": str(PARTITIONS), "min_delay_s": "2", "latency_factor": "10", "ip_delay_s": "0.5", "suffixes": SUFFIX_LIST_ID}


def with_frontier(url: str, work: Callable[[Frontier], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Redis.from_url(url) as client:
            return await work(Frontier(client, "web", PARTITIONS, f"tester{next(TESTERS)}", Limits(min_delay_s=2.0, expected_urls=4096)))

    return asyncio.run(run())


def link(url: str, **more: Any) -> Link:
    return Link(host_of(url), url_key(url), Entry(url, **more))


async def begin(frontier: Frontier) -> None:
    await Meta(frontier).agree(AGREED, {})


async def enqueue(frontier: Frontier, *urls: str) -> None:
    for url in urls:
        await frontier.enqueue(frontier.partition_of(host_of(url)), [link(url)])


async def fetch(frontier: Frontier, host: str, **outcome: Any) -> None:
    """Leases the host's next URL and ends the lease."""
    _, (lease,) = await frontier.lease(frontier.partition_of(host), 1)
    assert lease.host == host
    await frontier.complete(lease.partition, [Outcome(lease, **{"way": "d", "ended": boottime(), **outcome})])


def key_of_a(name: str) -> str:
    """A key of the partition that a.org belongs to."""
    return partition_prefix("web", partition_of("a.org", PARTITIONS)) + name


class Crawl:
    """A crawl that was begun, and the commands on it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.do(begin)

    def do(self, work: Callable[[Frontier], Awaitable[T]]) -> T:
        return with_frontier(self.url, work)

    def call(self, *words: str, **settings: str) -> Result:
        options = [word for name, value in {"REDIS_URL": self.url, **settings}.items() for word in ("-s", f"{name}={value}")]
        return CliRunner().invoke(main, [*words, *options])

    def says(self, *words: str) -> str:
        result = self.call(*words)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.says(*words, "--json").splitlines()]

    def overrides(self) -> dict[str, Override]:
        return self.do(Frontier.overrides)

    def bury(self, *urls: str, reason: str = "reset") -> None:
        """Makes dead letters."""

        async def work(frontier: Frontier) -> None:
            for url in urls:
                await enqueue(frontier, url)
                await fetch(frontier, host_of(url), way="x", ended=None, arg=reason)

        self.do(work)


@pytest.fixture
def crawl(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Crawl:
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "settings.local")
    return Crawl(redis_url)


# -- overrides -----------------------------------------------------------------------------------------------------------


def test_an_override_is_kept_shown_and_taken_back(crawl: Crawl) -> None:
    assert "override" in crawl.says("host", "example.com", "--delay", "5")
    assert crawl.overrides() == {"example.com": Override(delay_s=5.0)}
    assert crawl.says("hosts").splitlines()[1].split() == ["example.com", "5", "s", "-", "-", "-"]
    assert crawl.json("hosts") == [
        {"host": "example.com", "delay_s": 5.0, "concurrency": None, "pause_until": None, "below_minimum": False}
    ]
    assert "override" not in crawl.says("host", "example.com", "--clear")
    assert crawl.overrides() == {}
    assert crawl.says("hosts") == ""


@pytest.mark.parametrize(
    ("named", "host"),
    [
        ("www.example.co.uk", "example.co.uk"),
        ("https://Shop.Example.com:8080/a?b#c", "example.com"),
        ("example.com/path", "example.com"),
        ("bücher.example.de", "example.de"),
        ("me.github.io", "me.github.io"),
        ("192.0.2.7:81", "192.0.2.7"),
        ("2001:db8::1", "[2001:db8::1]"),
        ("http://[2001:db8::1]:80/", "[2001:db8::1]"),
    ],
)
def test_a_host_may_be_named_by_any_of_its_names_and_urls(crawl: Crawl, named: str, host: str) -> None:
    crawl.says("host", named, "--delay", "7")
    assert crawl.overrides() == {host: Override(delay_s=7.0)}


def test_an_override_that_is_not_named_stays_and_none_takes_one_back(crawl: Crawl) -> None:
    crawl.says("host", "a.org", "--delay", "5")
    crawl.says("host", "a.org", "--pause-until", "forever")
    assert crawl.overrides()["a.org"] == Override(delay_s=5.0, pause_until=FOREVER.timestamp())
    crawl.says("host", "a.org", "--delay", "none")
    assert crawl.overrides()["a.org"] == Override(pause_until=FOREVER.timestamp())
    crawl.call("host", "a.org", "--pause-until", "none")
    assert crawl.overrides() == {}


@pytest.mark.parametrize("options", [("--delay", "1.9"), ("--delay", "0"), ("--concurrency", "2")])
def test_what_is_quicker_than_the_crawls_minimum_needs_a_permission(crawl: Crawl, options: tuple[str, str]) -> None:
    refused = crawl.call("host", "a.org", *options)
    assert (refused.exit_code, refused.output.count("\n")) == (2, 1)
    assert "--below-minimum" in refused.output
    assert crawl.overrides() == {}
    crawl.says("host", "a.org", *options, "--below-minimum")
    assert crawl.overrides()["a.org"].below_minimum


def test_a_permission_holds_for_what_it_was_given_for(crawl: Crawl) -> None:
    crawl.says("host", "a.org", "--delay", "0.5", "--below-minimum")
    crawl.says("host", "a.org", "--pause-until", "+1h")
    assert crawl.overrides()["a.org"].below_minimum
    assert crawl.call("host", "a.org", "--delay", "0.4").exit_code == 2
    crawl.says("host", "a.org", "--delay", "2")
    assert not crawl.overrides()["a.org"].below_minimum


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("2126-12-01T08:00Z", datetime(2126, 12, 1, 8, tzinfo=timezone.utc)),
        ("2126-12-01T08:00+02:00", datetime(2126, 12, 1, 6, tzinfo=timezone.utc)),
        ("2126-12-01 08:00", datetime(2126, 12, 1, 8).astimezone()),
        ("2126-12-01", datetime(2126, 12, 1).astimezone()),
        ("forever", FOREVER),
    ],
)
def test_a_pause_ends_at_a_moment(crawl: Crawl, text: str, until: datetime) -> None:
    crawl.says("host", "a.org", "--pause-until", text)
    assert crawl.overrides() == {"a.org": Override(pause_until=until.timestamp())}


@pytest.mark.parametrize(
    ("text", "length"),
    [("+90s", timedelta(seconds=90)), ("+2h", timedelta(hours=2)), ("+1.5d", timedelta(days=1.5)), ("+1w", timedelta(7))],
)
def test_a_pause_lasts_from_now_on_by_the_clock_of_redis(crawl: Crawl, text: str, length: timedelta) -> None:
    crawl.says("host", "a.org", "--pause-until", text)
    with redis.Redis.from_url(crawl.url) as client:
        now_s = client.time()[0]
    until_s = crawl.overrides()["a.org"].pause_until
    assert until_s == pytest.approx(now_s + length.total_seconds(), abs=30)


@pytest.mark.parametrize(
    "words",
    [
        ("host",),
        ("host", "not a host"),
        ("host", "ftp://a.org/"),
        ("host", "a.org:x"),
        ("host", "a.org", "--delay", "-1"),
        ("host", "a.org", "--delay", "nan"),
        ("host", "a.org", "--delay", "inf"),
        ("host", "a.org", "--delay", "5s"),
        ("host", "a.org", "--concurrency", "0"),
        ("host", "a.org", "--concurrency", "1.5"),
        ("host", "a.org", "--concurrency", "1000000", "--below-minimum"),
        ("host", "a.org", "--pause-until", "tomorrow"),
        ("host", "a.org", "--pause-until", "+2"),
        ("host", "a.org", "--pause-until", "+99999999999999h"),
        ("host", "a.org", "--pause-until", "+999999999w"),
        ("host", "a.org", "--pause-until", "2001-01-01"),
        ("host", "a.org", "--pause-until", "0001-01-01T00:00+23:00"),
        ("host", "a.org", "--below-minimum"),
        ("host", "a.org", "--clear", "--delay", "5"),
        ("dead", "--limit", "0"),
        ("dead", "--host", "://"),
        ("requeue", "a.org"),
        ("hosts", "-s", "REDIS_URL"),
        ("purge",),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_a_usage_error_and_changes_nothing(crawl: Crawl, words: tuple[str, ...]) -> None:
    result = crawl.call(*words)
    assert (result.exit_code, crawl.overrides()) == (2, {})
    assert isinstance(result.exception, SystemExit)


# -- a host --------------------------------------------------------------------------------------------------------------


def test_a_host_that_nobody_knows_is_not_found(crawl: Crawl) -> None:
    result = crawl.call("host", "example.com")
    assert (result.exit_code, result.output) == (1, "crawlweb: example.com: the crawl knows no such host\n")
    assert crawl.call("host", "example.com", "--clear").exit_code == 1


def test_a_hosts_urls_are_counted_by_place(crawl: Crawl) -> None:
    crawl.do(lambda f: enqueue(f, *(f"https://a.org/{n}" for n in range(70))))
    (view,) = crawl.json("host", "a.org")
    assert (view["state"], view["front_queue"], view["back"], view["park"]) == ("waiting", 9, 0, 69)
    _, (lease,) = crawl.do(lambda f: f.lease(f.partition_of("a.org"), 1))
    (view,) = crawl.json("host", "a.org")
    assert (view["state"], view["in_flight"], view["back"] + view["park"]) == ("in flight", 1, 69)
    crawl.do(lambda f: f.complete(lease.partition, [Outcome(lease, "w", boottime(), wait_s=100.0)]))
    (view,) = crawl.json("host", "a.org")
    assert (view["state"], view["in_flight"], view["wait"]) == ("ready", 0, 1)
    assert "1 in wait" in crawl.says("host", "a.org")


@pytest.mark.parametrize(
    ("outcome", "options", "delay", "why"),
    [
        ({}, (), 2.0, "minimum"),
        ({"latency_s": 0.7}, (), 7.0, "latency"),
        ({"latency_s": 9.0}, (), 30.0, "latency"),
        ({"latency_s": 0.7, "robots": ("https://a.org", b"", 1000, 8000)}, (), 8.0, "crawl-delay"),
        ({"latency_s": 0.7, "robots": ("https://a.org", b"", 1000, 8000)}, ("--delay", "3"), 3.0, "override"),
        ({"latency_s": 0.7}, ("--delay", "0", "--below-minimum"), 0.0, "override"),
    ],
)
def test_a_hosts_delay_says_where_it_comes_from(
    crawl: Crawl, outcome: dict[str, Any], options: tuple[str, ...], delay: float, why: str
) -> None:
    crawl.do(lambda f: enqueue(f, "https://a.org/", "https://a.org/b"))
    crawl.do(lambda f: fetch(f, "a.org", **outcome))
    (before,) = crawl.json("host", "a.org")
    (view,) = crawl.json("host", "a.org", *options)
    assert (view["delay_s"], view["delay_from"]) == (delay, why)
    assert before["next_s"] > 0
    assert view["latency_s"] == outcome.get("latency_s")
    assert f"{delay:g} s ({why})" in crawl.says("host", "a.org")


def test_a_pause_counts_in_the_time_until_the_next_request(crawl: Crawl) -> None:
    crawl.do(lambda f: enqueue(f, "https://a.org/"))
    (view,) = crawl.json("host", "a.org", "--pause-until", "+3h")
    assert view["next_s"] == pytest.approx(10_800, abs=30)
    assert "in 3.0 h" in crawl.says("host", "a.org")


def test_an_origin_in_trouble_is_shown_with_what_waits_for_it(crawl: Crawl) -> None:
    async def fail(frontier: Frontier) -> None:
        await enqueue(frontier, "https://dev.a.org/", "https://a.org/")
        failed = OriginFailed("tls", gap_s=50.0, most_s=100.0)
        await fetch(frontier, "a.org", way="o", ended=None, failed=failed)

    crawl.do(fail)
    (view,) = crawl.json("host", "a.org")
    (origin,) = view["origins"]
    assert (origin["origin"], origin["reason"], origin["failures"], origin["urls"]) == ("https://dev.a.org", "tls", 1, 1)
    assert (origin["blocked_s"], origin["dead_s"]) == (pytest.approx(50, abs=10), 0)
    assert "https://dev.a.org: tls, 1 in a row" in crawl.says("host", "a.org")


def test_the_fields_of_a_host_are_those_that_the_scripts_read() -> None:
    texts = [path.read_text() for path in (ROOT / "crawlweb" / "frontier" / "lua").glob("*.lua")]
    read = {name for text in texts for pair in re.findall(r"\bh\.(\w+)|\b(?:HMGET|HGET)', '(\w+)'", text) for name in pair}
    assert set(HOST_FIELDS) - read == set()


def test_push_back_is_shown(crawl: Crawl) -> None:
    crawl.do(lambda f: enqueue(f, "https://a.org/"))
    crawl.do(lambda f: fetch(f, "a.org", way="r", wait_s=60.0, arg=[5, "http_429"], pushed_back=PushedBack(40.0, 100.0)))
    (view,) = crawl.json("host", "a.org")
    assert (view["push_back_s"], view["wait"]) == (40.0, 1)
    assert "40 s after 429" in crawl.says("host", "a.org")


@pytest.mark.parametrize("kind", ["string", "garbage"])
def test_a_host_whose_hash_is_not_ours_is_shown_as_far_as_it_can_be(crawl: Crawl, kind: str) -> None:
    crawl.do(lambda f: enqueue(f, "https://a.org/", "https://a.org/2"))
    key = key_of_a("host:a.org")
    with redis.Redis.from_url(crawl.url) as client:
        if kind == "string":
            client.set(key, "x")
        else:
            packed = msgpack.packb({"https://a.org": [], "\ud800": 3, 5: {"u": "x", "f": float("nan")}}, unicode_errors="surrogatepass")
            client.hset(key, mapping={"s": "?", "n": "nan", "l": "x", "b": packed, "cd": b"\xc1", "h": "1 x", "o": "a b", "x": "1e999"})
    assert crawl.says("host", "a.org").startswith("host")
    assert crawl.json("host", "a.org")[0]["host"] == "a.org"


def test_a_host_that_looks_as_if_it_had_blocked_us_or_is_dead_is_shown_so(crawl: Crawl) -> None:
    with redis.Redis.from_url(crawl.url) as client:
        now_ms = client.time()[0] * 1000
        key = key_of_a("host:a.org")
        client.hset(key, mapping={"n": 0, "h": f"5 900000 {now_ms - 60_000} 3", "x": now_ms + 600_000, "xr": "blocked"})
    (view,) = crawl.json("host", "a.org")
    assert (view["rests"], view["dead_reason"], view["override"]) == (3, "blocked", None)
    assert view["refused_s"] == pytest.approx(60, abs=30)
    assert view["dead_s"] == pytest.approx(600, abs=30)
    assert "rested 3 times" in crawl.says("host", "a.org")


# -- dead letters --------------------------------------------------------------------------------------------------------

BURIED = [("https://a.org/1", "reset"), ("http://www.a.org/2", "http_5xx"), ("https://b.org/3", "reset"), ("https://c.org/4", "blocked")]


@pytest.fixture
def buried(crawl: Crawl) -> Crawl:
    for url, reason in BURIED:
        crawl.bury(url, reason=reason)
    return crawl


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ((), [0, 1, 2, 3]),
        (("--reason", "reset"), [0, 2]),
        (("--host", "https://www.a.org/"), [0, 1]),
        (("--host", "a.org", "--reason", "reset"), [0]),
        (("--limit", "2"), [2, 3]),
    ],
)
def test_dead_letters_are_listed_newest_first(buried: Crawl, options: tuple[str, ...], rows: list[int]) -> None:
    result = buried.call("dead", "--json", *options)
    letters = [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted((one["url"], one["reason"]) for one in letters) == sorted(BURIED[row] for row in rows)
    assert [one["at"] for one in letters] == sorted((one["at"] for one in letters), reverse=True)
    assert ("--limit shows more" in result.stderr) is ("--limit" in options)


def test_a_dead_letter_tells_when_where_why_and_after_how_many_tries(crawl: Crawl) -> None:
    async def fail(frontier: Frontier) -> None:
        await enqueue(frontier, "https://user:secret@a.org/")
        await fetch(frontier, "a.org", way="r", arg=[1, "timeout"], error="after 10 s:\tnothing")

    crawl.do(fail)
    head, row = crawl.says("dead").splitlines()
    assert head.split() == ["at", "host", "reason", "tries", "url", "error"]
    assert row.split()[2:] == ["a.org", "timeout", "1", "https://a.org/", "after", "10", "s:", "nothing"]
    moment = datetime.fromisoformat(" ".join(row.split()[:2]))
    assert abs(moment.timestamp() - crawl.json("dead")[0]["at"]) < 1


def test_dead_letters_are_counted_by_reason(buried: Crawl) -> None:
    assert buried.says("dead", "--summary").split() == ["reason", "letters", "reset", "2", "blocked", "1", "http_5xx", "1"]
    assert buried.json("dead", "--summary", "--host", "b.org") == [{"reason": "reset", "letters": 1}]


def test_every_letter_of_a_long_list_is_read_once_and_shown_without_control_characters(crawl: Crawl) -> None:
    with redis.Redis.from_url(crawl.url) as client:
        client.rpush(
            key_of_a("dead"), *(f"{10_000 - n}\ta.org\treset\t900\t0\t/{n}\t\t" for n in range(2345)), "no letter", "1\ta.org\tx\x1b[2J\t?"
        )
    letters = crawl.json("dead", "--limit", "5000")
    assert [one["url"] for one in letters] == [*(f"https://a.org/{n}" for n in range(2345)), ""]
    assert "\x1b" not in crawl.says("dead", "--limit", "5000")
    assert crawl.json("dead", "--limit", "3")[-1]["url"] == "https://a.org/2"


def test_dead_letters_go_back_into_the_frontier(buried: Crawl) -> None:
    assert buried.says("requeue", "--reason", "reset", "--host", "a.org") == "1 requeued\n"
    assert buried.says("requeue", "--host", "www.a.org") == "1 requeued\n"
    assert buried.says("requeue") == "2 requeued\n"
    assert buried.says("requeue") == "0 requeued\n"
    assert buried.says("dead") == ""
    (found,) = buried.json("audit")
    assert (found["pending"], found["dead"], found["lost"]) == (4, 0, 0)


@pytest.mark.parametrize("command", [("dead",), ("dead", "--summary"), ("requeue",)])
@pytest.mark.parametrize("options", [("--reason", "none_such"), ("--host", "z.org")])
def test_no_dead_letter_of_those_named_is_exit_status_1(buried: Crawl, command: tuple[str, ...], options: tuple[str, ...]) -> None:
    assert buried.call(*command, *options).exit_code == 1


# -- audit ---------------------------------------------------------------------------------------------------------------


def test_the_audit_counts_and_fails_if_anything_is_lost(crawl: Crawl) -> None:
    crawl.do(lambda f: enqueue(f, "https://a.org/", "https://a.org/2"))
    assert ["lost", "0"] in [line.split() for line in crawl.says("audit").splitlines()]
    with redis.Redis.from_url(crawl.url) as client:
        client.delete(*(key_of_a(f"front:{k}") for k in range(10)))
    lost = crawl.call("audit", "--json")
    assert lost.exit_code == 1
    assert json.loads(lost.output)["lost"] > 0


# -- the crawl that is meant ---------------------------------------------------------------------------------------------


def test_the_crawls_own_values_hold_and_not_the_settings(crawl: Crawl) -> None:
    result = crawl.call("host", "a.org", "--delay", "1.5", CRAWLWEB_MIN_DELAY_S="1", CRAWLWEB_PARTITIONS="64")
    assert "the crawl's minimum is 2 s" in result.output
    crawl.call("host", "a.org", "--delay", "3", CRAWLWEB_PARTITIONS="64")
    assert crawl.overrides() == {"a.org": Override(delay_s=3.0)}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"CRAWLWEB_CRAWL": "other"}, "CRAWLWEB_CRAWL=other: no such crawl"),
        ({"CRAWLWEB_PARTITION": "3"}, "the nearest is CRAWLWEB_PARTITIONS"),
        ({"REDIS_PARAMS": "["}, "REDIS_PARAMS"),
        ({"REDIS_URL": "redis://user:secret@127.0.0.1:1/0"}, "REDIS_URL=redis://127.0.0.1:1/0"),
        ({"REDIS_URL": "", "CRAWLWEB_DATA_DIR": "no/such/folder"}, "CRAWLWEB_DATA_DIR=no/such/folder"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_status_2(crawl: Crawl, settings: dict[str, str], says: str) -> None:
    result = crawl.call("hosts", **settings)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert says in result.stderr
    assert not Path("no").exists()


@pytest.mark.parametrize(("name", "value"), [("suffixes", "other"), ("schema", "99"), ("partitions", "x"), ("min_delay_s", "")])
def test_a_crawl_of_another_release_is_refused(crawl: Crawl, name: str, value: str) -> None:
    with redis.Redis.from_url(crawl.url) as client:
        client.hset("{web}:meta", name, value)
    result = crawl.call("host", "a.org", "--delay", "5")
    assert (result.exit_code, result.output.count("\n")) == (2, 1)


def test_an_error_of_redis_is_one_line(crawl: Crawl) -> None:
    with redis.Redis.from_url(crawl.url) as client:
        client.config_set("min-replicas-to-write", 1)
        try:
            result = crawl.call("host", "a.org", "--delay", "5")
        finally:
            client.config_set("min-replicas-to-write", 0)
    assert (result.exit_code, result.output.count("\n")) == (2, 1)


def test_memory_shows_each_kind_of_key_and_what_a_url_costs(crawl: Crawl) -> None:
    with_frontier(crawl.url, lambda frontier: enqueue(frontier, *(f"https://h{i}.org/{n}" for i in range(9) for n in range(3))))
    for more in ((), ("--sample", "40")):
        lines = {line[:28].strip(): line[28:].split() for line in crawl.says("memory", *more).splitlines()}
        assert [lines[name][4] for name in ("front:<k>", "park:<host>")] == ["9", "18"]
        assert lines["whole"][1] == "100.0"
        (found,) = crawl.json("memory", *more)
        assert 60 < found["pending_url"] < 200
        assert found["kinds"]["park:<host>"]["keys"] == pytest.approx(9)
        assert found["servers"][0]["policy"] == "noeviction"
        assert found["page_record"] is None


PAGE = PageRecord(
    url="https://a.org/x",
    fetched_at=1_700_000_000.0,
    status=200,
    content_hash=b"12345678",
    fingerprint=255,
    etag='"e"',
    fetches=3,
    changes=0b10,
    first_seen=1_600_000_000.0,
    interval_s=86_400.0,
    next_at=1_700_086_400.0,
    warc=WarcRef("crawlweb-20231114221320000-w-00001.warc.gz", 5, 7),
    flags=frozenset({"noindex"}),
    versions=(PageVersion(1_600_000_000.0, b"abcdefgh"),),
)


def keep_page(crawl: Crawl) -> None:
    async def work(frontier: Frontier) -> None:
        await enqueue(frontier, PAGE.url)
        await fetch(frontier, "a.org", record=PAGE, record_key=url_key(PAGE.url)[:8])

    crawl.do(work)


def test_a_page_is_shown_by_any_spelling_of_its_url(crawl: Crawl) -> None:
    keep_page(crawl)
    (found,) = crawl.json("page", "HTTPS://A.org:443/x#y")
    assert (found["url"], found["host"], found["content_hash"], found["fingerprint"]) == (
        PAGE.url,
        "a.org",
        b"12345678".hex(),
        "00000000000000ff",
    )
    assert (found["flags"], found["warc"]["offset"], found["versions"][0]["content_hash"]) == (["noindex"], 5, b"abcdefgh".hex())
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in crawl.says("page", PAGE.url).splitlines()}
    assert lines["changed"] == "1 of the last 2 times"
    assert lines["stored"] == "crawlweb-20231114221320000-w-00001.warc.gz, 7 B at 5"
    (memory,) = crawl.json("memory")
    assert 100 < memory["page_record"] < 1_000  # alone in its bucket


def test_a_page_that_is_due_in_days_is_found_on_disk(crawl: Crawl, tmp_path: Path) -> None:
    keep_page(crawl)
    store = ChunkStore(str(tmp_path), "ab12")
    store.create()

    async def put_away(frontier: Frontier) -> None:
        await Meta(frontier).agree({"spill": "ab12"}, {})
        p, key = frontier.partition_of("a.org"), url_key(PAGE.url)[:8]
        (data,) = await frontier.packed_records(p, [key])
        assert data
        await frontier.redis.rpush(frontier.key(p, "later:40000"), b"12345678", key, b"87654321")  # type: ignore[misc]
        spill = Spill(frontier, store, chunk_entries=40, count=lambda *_: None, run=lambda work: work.close())
        await spill.balance(p, "later:40000")
        assert await frontier.packed_records(p, [key]) == [None]

    crawl.do(put_away)
    result = crawl.call("page", PAGE.url, "--json", CRAWLWEB_SPILL_URL=str(tmp_path))
    assert json.loads(result.stdout)["url"] == PAGE.url


def test_a_page_that_was_not_fetched_is_not_found(crawl: Crawl) -> None:
    assert crawl.call("page", "https://b.org/").exit_code == 1
    assert crawl.call("page", "mailto:x").exit_code == 2


def test_a_full_redis_takes_an_operator_s_word_and_tells_what_it_holds(crawl: Crawl) -> None:
    with redis.Redis.from_url(crawl.url) as client:
        client.config_set("maxmemory", 1)
        try:
            results = [crawl.call(*words) for words in (("host", "a.org", "--pause-until", "+2h"), ("hosts",), ("dead",), ("memory",))]
        finally:
            client.config_set("maxmemory", 0)
    assert [result.exit_code for result in results] == [0, 0, 0, 0]
    assert "a.org" in results[1].stdout
    assert "maxmemory" in results[3].stdout


# -- as it is typed ------------------------------------------------------------------------------------------------------


def test_the_command_is_installed_by_its_name() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    name, _, target = config["options.entry_points"]["console_scripts"].strip().partition(" = ")
    module, _, function = target.partition(":")
    assert (name, getattr(importlib.import_module(module), function)) == ("crawlweb", main)


def test_in_a_project_folder_a_private_server_is_started_for_the_command_only(tmp_path: Path) -> None:
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = the_settings\n")
    (tmp_path / "the_settings.py").write_text('ADDONS = {"crawlweb.Addon": 0}\nCRAWLWEB_DATA_DIR = "store"\n')
    server = PrivateServer(tmp_path / "store")
    server.start()
    with_frontier(server.url, begin)
    assert server.stop()

    def call(*words: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SCRAPY_", "REDIS_", "CRAWLWEB_"))}
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
        command = [sys.executable, "-m", "crawlweb.cli", *words]
        done = subprocess.run(command, cwd=tmp_path, env={**kept, **paths}, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    assert "delay 5 s" in call("host", "www.example.com", "--delay", "5")
    assert call("hosts").splitlines()[1].startswith("example.com  5 s")
    with redis.Redis.from_url(server.url) as client, pytest.raises(redis.ConnectionError):
        client.ping()
