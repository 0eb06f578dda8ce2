"""Crawls whose start URLs come from outside: scrapy-redis' key, `crawlweb seeds add`."""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from redis.asyncio import Redis

from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.keys import SCHEMA
from crawlweb.frontier.starts import Batch, StartKey
from tests.crawl.crawler import PARTITIONS, ROOT, Crawl, at_once
from tests.crawl.test_limits import a_redis
from tests.web import Tree, Web

PAGES, SITES = 12, 4  # whose home pages link to each other: a late seed may be known by a link, which only `exact` tells for sure
KEY = "web:start_urls"


def a_web() -> Web:
    return Web(seed=8, sites=[Tree(f"t{i}.org", pages=PAGES) for i in range(SITES)])


def is_whole(web: Web, crawl: Crawl) -> None:
    report = web.report()
    assert (report.found, report.refetched) == (PAGES * SITES, 0)
    assert max(Counter(crawl.pages()).values()) == 1
    assert crawl.audit()["lost"] == 0


def left(client: redis.Redis) -> list[bytes]:
    """Keys that hold start URLs."""
    return sorted(key for key in client.scan_iter() if b"start_urls" in key or b"inbox" in key)


@at_once
def test_a_crawl_lives_on_the_start_urls_of_scrapy_redis_alone(folder: Path) -> None:
    with (
        a_redis() as url,
        a_web() as web,
        Crawl(folder, web.dns_server, REDIS_URL=url, CRAWLWEB_SEEN="exact") as crawl,
        redis.Redis.from_url(url) as client,
    ):
        plain, as_json, late, later = web.seeds()
        client.rpush(KEY, plain, "no url", json.dumps({"url": as_json, "meta": {"job": "7"}}), b"\xff", plain)
        theirs = {"web:requests": {pickle.dumps({"url": plain}): 1.0}, "web:dupefilter": {b"0" * 40: 0.0}}
        for key, members in theirs.items():
            client.zadd(key, members)
        run = crawl.start()
        run.wait_until(lambda: not client.exists(KEY))
        client.rpush(KEY, late)
        run.wait_until(lambda: not client.exists(KEY))
        client.zadd(KEY, {later: 5})  # another type, while the crawl runs
        run.succeeds()
        is_whole(web, crawl)
        assert run.summary == ("finished", PAGES * SITES)
        assert left(client) == [b"{web:start_urls}:web:quarantine"]
        assert client.llen("{web:start_urls}:web:quarantine") == run.stats["crawlweb/start_urls/malformed"] == 2
        assert run.stats["crawlweb/start_urls/taken"] == 7
        assert {key: dict(client.zrange(key, 0, -1, withscores=True)) for key in theirs} == theirs
        assert len([line for line in run.complaints if "start URL" in line]) == 1


@at_once
def test_the_end_waits_for_what_a_dead_worker_took(folder: Path) -> None:
    async def take(url: str) -> None:
        async with Redis.from_url(url) as client:
            taken = await StartKey(Frontier(client, "web", PARTITIONS, "dead"), KEY).take(100, 5.0)
            assert isinstance(taken, Batch)

    with (
        a_redis() as url,
        a_web() as web,
        Crawl(folder, web.dns_server, REDIS_URL=url, CRAWLWEB_SEEN="exact") as crawl,
        redis.Redis.from_url(url) as client,
    ):
        client.rpush(KEY, *web.seeds()[1:])
        asyncio.run(take(url))
        assert not client.exists(KEY)
        run = crawl.start(web.seeds()[:1]).succeeds()
        is_whole(web, crawl)
        assert (run.summary[0], left(client)) == ("finished", [])


def add(crawl: Crawl, *words: str, stdin: str = "") -> str:
    settings = [word for name, value in crawl.settings.items() for word in ("-s", f"{name}={value}")]
    command = [sys.executable, "-m", "crawlweb.cli", "seeds", "add", *words, *settings]
    done = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@at_once
def test_seeds_are_added_before_a_crawl_and_while_it_runs(folder: Path) -> None:
    with a_web() as web, Crawl(folder, web.dns_server, CRAWLWEB_SEEN="exact") as crawl:  # on a private server that nobody has started yet
        first, second, *others = web.seeds()
        assert add(crawl, first) == "1 wait for the crawl's first worker, 0 bad\n"
        run = crawl.start(arguments=["-a", "scope=domain"], CRAWLWEB_MODE="continuous")
        assert web.wait_until_served(PAGES, 60)
        assert add(crawl, second, first) == "1 new, 1 known, 0 bad\n"
        assert add(crawl, "-", stdin="\n".join(others)) == "2 new, 0 known, 0 bad\n"
        assert web.wait_until_served(PAGES * SITES, 60)
        run.interrupt()
        run.succeeds()
        is_whole(web, crawl)


@at_once
def test_what_is_not_this_releases_stops_the_start_and_nothing_is_changed(folder: Path) -> None:
    def everything(client: redis.Redis) -> dict[bytes, Any]:
        return {key: client.dump(key) for key in client.scan_iter()}

    with a_redis() as url, Crawl(folder, "127.0.0.1:9", REDIS_URL=url, CRAWLWEB_SEEN="exact") as crawl, redis.Redis.from_url(url) as client:
        states: dict[str, Callable[[], Any]] = {
            "the key {web}:meta is of type string, wanted: hash": lambda: client.set("{web}:meta", "x"),
            "the key {web:3}:front:0 is of type string, wanted: list": lambda: client.set("{web:3}:front:0", "x"),
            "the crawl 'web' has schema '1'; ": lambda: client.hset("{web}:meta", "schema", "1"),
            "begun with partitions='abc', ": lambda: client.hset("{web}:meta", mapping={"schema": SCHEMA, "partitions": "abc"}),
        }
        for says, make in states.items():
            client.flushall()
            make()
            before = everything(client)
            run = crawl.start("http://a.org/")
            assert run.wait(60) == 1
            (line,) = [line for line in run.log.splitlines() if line.startswith("crawlweb: ")]
            assert says in line
            assert (everything(client), crawl.data_dir.exists(), "Traceback" in run.log) == (before, False, False)
