"""What is in Redis and not ours is put aside and counted; the crawl goes on."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import Any

from crawlweb.frontier.keys import KEYS, partition_of
from tests.crawl.crawler import PARTITIONS, Crawl, at_once
from tests.web import Site, Tree, Web


def sites() -> list[Site]:
    return [Tree(f"tree{i}.org", pages=20) for i in range(4)]


async def plant(frontier: Any) -> int:
    """Things that are not ours, in every partition; returns how many."""
    redis, planted = frontier.redis, 0
    for p in range(PARTITIONS):
        for member in (pickle.dumps({"url": "http://evil.org"}), b"", b"\xff\xfe", b"no\ttabs", json.dumps(["list"]).encode()):
            await redis.rpush(frontier.key(p, "front:3"), member)
            planted += 1
        await redis.zadd(frontier.key(p, "wait"), {pickle.dumps(["a", p]): 1, b"x\ty\tz": 2})
        await redis.zadd(frontier.key(p, "ready"), {b"nowhere.org": 1, b"\xff": 1})
    return planted


async def wrong_types(frontier: Any) -> None:
    """Keys of another type where ours are expected."""
    redis = frontier.redis
    for p in range(PARTITIONS):
        for name in ("front:0", "wait", "asleep", "leases", "leased", "bloom"):
            await redis.set(frontier.key(p, name), "a string", nx=True)
    p = partition_of("tree0.org", PARTITIONS)
    for scheme in ("http", "https"):
        await redis.set(frontier.key(p, f"robots:{scheme}://tree0.org:1"), b"nonsense")


async def quarantined(frontier: Any) -> int:
    return sum([await frontier.redis.llen(frontier.key(p, "quarantine")) for p in range(PARTITIONS)])


def begin(web: Web, crawl: Crawl, pages: int) -> None:
    run = crawl.start(web.seeds())
    assert web.wait_until_served(pages, 30)
    run.interrupt()
    run.succeeds(20)


@at_once
def test_foreign_entries_in_a_stopped_crawl_are_quarantined(folder: Path) -> None:
    with Web(sites=sites()) as web, Crawl(folder, web.dns_server) as crawl:
        begin(web, crawl, 20)
        planted = crawl.look(plant)
        run = crawl.start().succeeds(60)
        report = web.report()
        assert (report.found, report.refetched) == (80, 0)
        assert "Traceback" not in run.log
        assert crawl.look(quarantined) >= planted


@at_once
def test_foreign_entries_in_a_running_crawl_are_quarantined(folder: Path) -> None:
    with Web(sites=sites()) as web, Crawl(folder, web.dns_server) as crawl:
        run = crawl.start(web.seeds())
        assert web.wait_until_served(10, 30)
        crawl.look(plant)
        run.succeeds(60)
        assert (web.report().found, web.report().refetched) == (80, 0)
        assert "Traceback" not in run.log
        assert crawl.look(quarantined) > 0


@at_once
def test_keys_of_another_type_are_moved_aside(folder: Path) -> None:
    with Web(sites=sites()) as web, Crawl(folder, web.dns_server) as crawl:
        run = crawl.start(web.seeds())
        assert web.wait_until_served(20, 30)
        crawl.look(wrong_types)
        run.succeeds(60)
        assert web.report().found == 80
        assert "Traceback" not in run.log
        assert run.summary[0] == "finished"


PREFIXES = {
    "partition": "{web:%d}:",
    "addresses": "{web:ip:%d}:",
    "fingerprints": "{web:near:%d}:",
    "crawl": "{web}:",
    "starts": "{web:start_urls}:web:",
}


async def a_bit_of_everything(frontier: Any) -> None:
    """Things that are not ours into every kind of key there is, and into some that are not there yet; a few keys of another type."""
    redis, rng = frontier.redis, random.Random(4)
    for kind in KEYS:
        prefix = PREFIXES[kind.scope]
        stem = kind.name.partition("<")[0]
        for p in range(PARTITIONS if kind.scope == "partition" else 1):
            start = prefix % p if "%" in prefix else prefix
            names = [key.decode() async for key in redis.scan_iter(f"{start}{stem}*")] if "<" in kind.name else [start + stem]
            for name in names[:3]:
                await put(redis, name, rng)
    for p in range(4):
        await redis.delete(frontier.key(p, "alias:abc"), frontier.key(p, "call:me"))
        await redis.set(frontier.key(p, "call:me"), pickle.dumps("x"))
    await redis.set("{web}:sweep", "for ever")


async def put(redis: Any, name: str, rng: random.Random) -> None:
    """Something that is not ours beside what stands in a key."""
    for junk in (pickle.dumps({"url": "http://evil.org"}), rng.randbytes(50), b"", b"Z00\t0\t/evil\t\t", b"nan", b"L" * 200_000):
        match (await redis.type(name)).decode():
            case "list":
                await redis.rpush(name, junk)
            case "zset":
                await redis.zadd(name, {junk: rng.choice([0, -5, 1e300, float("inf")])})
            case "hash":
                await redis.hset(name, junk, junk)
            case "set" if not name.endswith(("pages", "scope")):
                await redis.sadd(name, junk)


@at_once
def test_whatever_else_stands_in_redis_the_crawl_comes_to_its_end(folder: Path) -> None:
    with Web(sites=sites()) as web, Crawl(folder, web.dns_server) as crawl:
        begin(web, crawl, 20)
        crawl.look(a_bit_of_everything)
        run = crawl.start().succeeds(60)
        report = web.report()
        assert (report.found, report.refetched) == (80, 0)
        assert "Traceback" not in run.log
        assert run.summary[0] == "finished"
        assert crawl.look(quarantined) > 20


async def bad_requests(frontier: Any, port: int) -> None:
    """Entries of the right shape whose Scrapy request is not one."""
    requests = [
        {"callback": "os.system"},
        {"callback": "__init__"},
        {"class": "Evil"},
        {"meta": 3},
        {"headers": "x"},
        {"body": "\u00e9"},
        {"local": 5},
        {"method": 7, "cb_kwargs": []},
    ]
    for number, request in enumerate(requests):
        host = f"tree{number % 4}.org"
        entry = "\t".join(("900", "0", f"http://{host}:{port}/evil/{number}", "", json.dumps({"r": request})))
        await frontier.redis.rpush(frontier.key(frontier.partition_of(host), f"park:{host}"), entry)
        await frontier.redis.hincrby(frontier.key(frontier.partition_of(host), "ctr"), "enq", 1)


@at_once
def test_requests_in_redis_call_nothing_that_they_name(folder: Path) -> None:
    with Web(sites=sites()) as web, Crawl(folder, web.dns_server) as crawl:
        begin(web, crawl, 20)
        crawl.look(lambda frontier: bad_requests(frontier, web.http_port))
        run = crawl.start().succeeds(90)
        assert web.report().found == 80
        assert "Traceback" not in run.log
        assert run.stats.get("crawlweb/quarantined", 0) >= 5
