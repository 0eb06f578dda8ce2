"""A full Redis: what it takes and what it refuses, how it is noticed; and what the memory of a crawl is counted at."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from redis.asyncio import Redis
from rig import Rig, link, url_key

from crawlweb.errors import FrontierError, FrontierFull
from crawlweb.frontier import memory as module
from crawlweb.frontier.accounts import EXACT_SET, SEGMENT, Account, Accounts, Tally
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.inspect import host_view, newest_dead_letters
from crawlweb.frontier.memory import Level, MemoryWatch, ServerMemory
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import EXACT, NORMAL, KeptNow, Lease, Limits, Link, Outcome, Override
from crawlweb.records import Entry

MB = 1_000_000


@contextmanager
def full(rig: Rig) -> Iterator[None]:
    """More is used than maxmemory allows."""
    rig.sync.config_set("maxmemory", 1)
    try:
        yield
    finally:
        rig.sync.config_set("maxmemory", 0)


# -- what a full Redis takes -----------------------------------------------------------------------------------------------


def test_nothing_is_leased_and_nothing_is_changed_by_trying(rig: Rig) -> None:
    rig.enqueue(link("a.org"), link("b.org"))
    rig.lease(1)
    rig.enqueue(link("a.org", "/1"), link("c.org"))
    before = rig.dump()
    rig.later(120_000)  # leases have run out, too
    with full(rig):
        for _ in range(3):
            with pytest.raises(FrontierFull):
                rig.lease()
        assert rig.dump() == before
    rig.check()
    hosts = {lease.host for lease in rig.lease()}
    rig.later(2000)
    assert {lease.host for lease in rig.lease()} | hosts == {"a.org", "b.org", "c.org"}


def test_a_lease_whose_answer_was_lost_is_told_again_by_a_full_redis(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    rig.wires[0].lose_next = True
    ask = rig.client.execute_command

    async def fill_up_after(*args: Any) -> Any:
        answer = await ask(*args)
        rig.sync.config_set("maxmemory", 1)
        return answer

    with full(rig), pytest.MonkeyPatch.context() as patch:
        rig.sync.config_set("maxmemory", 0)
        patch.setattr(rig.client, "execute_command", fill_up_after)
        assert [lease.host for lease in rig.lease()] == ["a.org"]
    rig.check()


def test_the_links_of_a_page_in_work_are_taken(rig: Rig) -> None:
    with full(rig):
        assert rig.enqueue(link("a.org"), *(link("b.org", f"/{i}") for i in range(150))) == "n" * 151
        assert rig.enqueue(link("a.org")) == "s"
    assert rig.check()["pending"] == 151


def test_seeds_are_refused_as_a_whole_and_taken_later(rig: Rig) -> None:
    seeds = [link(f"h{i}.org", how=EXACT) for i in range(20)]
    rig.enqueue(link("a.org"))
    before = rig.dump()
    with full(rig):
        with pytest.raises(FrontierFull):
            rig.run(rig.f.enqueue(0, seeds, can_wait=True))
        assert rig.dump() == before
        assert rig.enqueue(link("b.org")) == "n", "they are in nobody's way"
    assert rig.run(rig.f.enqueue(0, seeds, can_wait=True)) == "n" * 20
    assert rig.check()["pending"] == 22


ROBOTS = KeptNow("https://a.org", b'{"v":2,"decision":"rules"}', 3_600_000, 2000, ("https://a.org/sitemap.xml",))
ENDS: list[tuple[str, dict[str, Any]]] = [
    ("d", {}),
    ("d", {"robots": ROBOTS, "latency_s": 0.3}),
    ("l", {"wait_s": 5.0}),
    ("w", {"wait_s": 5.0}),
    ("r", {"wait_s": 5.0, "arg": (3, "timeout")}),
    ("x", {"arg": "http_4xx"}),
    ("q", {"arg": "host"}),
    ("n", {"arg": []}),
]


@pytest.mark.parametrize(("way", "more"), ENDS, ids=[f"{way} {' '.join(more)}".strip() for way, more in ENDS])
def test_a_lease_can_end_in_every_way(rig: Rig, way: str, more: dict[str, Any]) -> None:
    rig.enqueue(link("a.org"), link("a.org", "/1"))
    (lease,) = rig.lease()
    with full(rig):
        rig.complete(lease, way, **more)
    rig.later(60_000)
    assert rig.check()["leased"] == 0
    assert rig.lease(), "the host goes on"


def test_leases_are_renewed(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    (lease,) = rig.lease()
    rig.later(50_000)
    with full(rig):
        assert rig.run(rig.f.renew([lease])) == []
    rig.later(50_000)
    assert rig.lease() == []
    assert rig.check()["leased"] == 1


def test_dead_letters_are_put_back_and_hosts_are_paused(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    (lease,) = rig.lease()
    with full(rig):
        rig.complete(lease, "x", arg="tls")
        assert rig.run(rig.f.requeue()) == 1
        rig.run(rig.f.override("a.org", Override(delay_s=9.0)))
        assert rig.run(rig.f.overrides()) == {"a.org": Override(delay_s=9.0)}
    rig.check()


def test_addresses_are_taken_and_ended(rig: Rig) -> None:
    with full(rig):
        assert rig.run(rig.f.ip_turns(0, [], [("192.0.2.1", "a.org", "t1"), ("192.0.2.1", "b.org", "t2")]))[0] == 0
        rig.run(rig.f.ip_turns(0, [("192.0.2.1", "t1", rig.worker_s())], []))
    rig.later(2000)
    assert rig.run(rig.f.ip_turns(0, [], [("192.0.2.1", "b.org", "t2")])) == [0]


def test_permits_are_given_and_spent_and_seeding_is_said(rig: Rig) -> None:
    meta, keys = Meta(rig.f), [url_key("1"), url_key("2")]
    with full(rig):
        assert rig.run(meta.permits(2, keys)).allowed == [True, True]
        assert rig.run(meta.spend(2, keys[:1])).allowed == [True]
        assert rig.run(meta.end_pages(2, keys[:1], keys[1:])) == ([False], 1, 0, 1)
        assert rig.run(meta.permits(2, [url_key("3")])).allowed == [True]
        rig.run(meta.say_seeding(True))
        assert rig.run(meta.anyone_seeding())
        rig.run(meta.say_seeding(False))
        assert not rig.run(meta.anyone_seeding())


def test_the_frontier_is_read(rig: Rig) -> None:
    rig.enqueue(link("a.org"), link("b.org"))
    rig.complete(rig.lease(1)[0], "x", arg="tls")
    with full(rig):
        assert rig.run(rig.f.counts()).enqueued == 2
        assert rig.run(rig.f.robots("a.org", ["https://a.org"])) == [None]
        assert rig.run(host_view(rig.f, "b.org")) is not None
        assert len(rig.run(newest_dead_letters(rig.f, 10))) == 1
        rig.check()


def test_a_script_that_the_server_does_not_know_yet_is_sent_to_a_full_one(rig: Rig) -> None:
    rig.sync.script_flush()
    with full(rig):
        assert rig.enqueue(link("a.org")) == "n"
    rig.check()


# -- how it is noticed ------------------------------------------------------------------------------------------------------


class Figures:
    """A server's `INFO memory` as the test says it."""

    def __init__(self, used: int = 10 * MB, maxmemory: int = 0, **more: Any) -> None:
        self.info_memory: dict[str, Any] = {"used_memory": used, "maxmemory": maxmemory, "maxmemory_policy": "noeviction", **more}
        self.error: Exception | None = None

    async def info(self, section: str) -> dict[str, Any]:
        assert section == "memory"
        if self.error:
            raise self.error
        return self.info_memory


class Watched:
    """A watch over figures, and what it told."""

    def __init__(self, *servers: Figures, ceiling_bytes: int | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}
        self.now = 1000.0
        nodes: Any = servers
        frontier = Frontier(nodes[0], "t", 1, "w")
        frontier.closing = True  # an error is not waited out
        self.watch = MemoryWatch(frontier, ceiling_bytes, nodes, self._count, self.gauges.__setitem__)

    def _count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by


def watching(monkeypatch: pytest.MonkeyPatch, w: Watched, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    monkeypatch.setattr(module, "boottime", lambda: w.now)
    asyncio.run(work())


LEVELS = [
    (10, 0, None, Level.PLENTY),
    (10**6, 0, None, Level.PLENTY),
    (74, 100, None, Level.PLENTY),
    (75, 100, None, Level.SCARCE),
    (94, 100, None, Level.SCARCE),
    (95, 100, None, Level.FULL),
    (500, 100, None, Level.FULL),
    (40, 0, 100, Level.PLENTY),
    (80, 0, 100, Level.SCARCE),
    (96, 0, 100, Level.FULL),
    (96, 100, 1000, Level.FULL),  # what is asked for is more than there is
    (96, 1000, 100, Level.FULL),
    (96, 1000, 1000, Level.PLENTY),
]


@pytest.mark.parametrize(("used", "maxmemory", "ceiling", "level"), LEVELS)
def test_the_level_is_by_the_lower_of_the_setting_and_maxmemory(used: int, maxmemory: int, ceiling: int | None, level: Level) -> None:
    async def work() -> None:
        w = Watched(Figures(used * MB, maxmemory * MB), ceiling_bytes=ceiling and ceiling * MB)
        await w.watch.look()
        assert (w.watch.level, w.watch.has_room) == (level, level is not Level.FULL)

    asyncio.run(work())


def test_what_redis_does_not_count_is_not_counted() -> None:
    async def work() -> None:
        w = Watched(Figures(99 * MB, 100 * MB, mem_not_counted_for_evict=40 * MB))
        await w.watch.look()
        assert w.watch.level is Level.PLENTY

    asyncio.run(work())


def test_of_several_servers_the_fullest_counts() -> None:
    async def work() -> None:
        w = Watched(Figures(10 * MB, 100 * MB), Figures(96 * MB, 100 * MB), Figures(50 * MB))
        await w.watch.look()
        assert w.watch.level is Level.FULL
        assert w.gauges["memory/used_bytes"] == 156 * MB

    asyncio.run(work())


def test_a_pause_is_said_once_and_lasts_until_there_is_some_room(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    server = Figures(96 * MB, 100 * MB)
    w = Watched(server)

    async def work() -> None:
        for used, is_paused in ((96, True), (94, True), (99, True), (91, True), (89, False), (94, False)):
            server.info_memory["used_memory"] = used * MB
            await w.watch.look()
            assert w.watch.has_room is not is_paused
            w.now += 2.5
        assert (w.counts["memory/pauses"], w.counts["memory/paused_s"]) == (1, 10)

    watching(monkeypatch, w, work)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 2
    assert said[0].startswith("Redis is full (96.0 MB used of maxmemory 100.0 MB): nothing is leased")
    assert "CRAWLWEB_REDIS_MEMORY_BYTES" in said[0]
    assert said[1] == "Redis has room again (89.0 MB used of maxmemory 100.0 MB): leasing goes on after 10 s"


def test_who_waits_for_room_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Figures(96 * MB, 100 * MB)
    w = Watched(server)

    async def work() -> None:
        await w.watch.look()
        waiting = asyncio.ensure_future(w.watch.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        server.info_memory["maxmemory"] = 200 * MB
        await w.watch.look()
        await asyncio.wait_for(waiting, 5)

    watching(monkeypatch, w, work)


def test_at_the_end_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Watched(Figures(96 * MB, 100 * MB))

    async def work() -> None:
        await w.watch.look()
        w.now += 7
        w.watch.stop()
        await asyncio.wait_for(w.watch.room(), 5)
        await w.watch.look()
        w.watch.refused()
        assert w.watch.has_room
        assert w.counts["memory/paused_s"] == 7

    watching(monkeypatch, w, work)


def test_a_refusal_pauses_at_once_and_the_figures_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Figures(70 * MB, 100 * MB)
    w = Watched(server)

    async def work() -> None:
        await w.watch.look()
        w.watch.refused()
        w.watch.refused()
        w.watch.passed()  # a call that was sent before
        assert (w.watch.level, w.watch.has_room) == (Level.FULL, False)
        server.info_memory["used_memory"] = 101 * MB
        await w.watch.look()
        server.info_memory["used_memory"] = 80 * MB
        await w.watch.look()
        assert (w.watch.level, w.watch.has_room) == (Level.SCARCE, True)
        assert w.counts["memory/pauses"] == 1

    watching(monkeypatch, w, work)


@pytest.mark.parametrize("tells", [True, False], ids=["figures without an end", "no figures"])
def test_a_redis_that_is_full_and_does_not_say_why_is_tried_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tells: bool
) -> None:
    server = Figures(70 * MB)
    server.error = None if tells else redis.exceptions.NoPermissionError("this user has no permissions to run 'info'")
    w = Watched(server)
    w.watch._frontier.closing = False
    looks = 0

    async def work() -> None:
        nonlocal looks
        looked = asyncio.Condition()

        async def pause(_: float) -> None:
            nonlocal looks
            async with looked:
                looks += 1
                looked.notify_all()
                await looked.wait()

        async def look_again(after_s: float) -> None:
            w.now += after_s
            async with looked:
                n = looks
                looked.notify_all()
                await looked.wait_for(lambda: looks > n)

        monkeypatch.setattr(module.asyncio, "sleep", pause)
        watch = asyncio.ensure_future(w.watch.watch_forever())
        async with looked:
            await looked.wait_for(lambda: looks)
        w.watch.refused()
        for _ in range(3):
            await look_again(module.TRY_S / 2)
            assert not w.watch.has_room
            await look_again(module.TRY_S / 2 + 1)
            assert w.watch.has_room, "one may try"
            assert w.watch.level is Level.FULL
            w.watch.refused()
            assert not w.watch.has_room
        await look_again(module.TRY_S + 1)
        w.watch.passed()
        assert (w.watch.level, w.watch.has_room) == (Level.PLENTY, True)
        assert w.counts["memory/pauses"] == 1
        watch.cancel()

    watching(monkeypatch, w, work)
    assert sum("does not tell" in record.getMessage() for record in caplog.records) == (0 if tells else 1)
    assert sum("Redis is full (it refuses" in record.getMessage() for record in caplog.records) == 1
    assert sum("has room again" in record.getMessage() for record in caplog.records) == 1


def test_a_policy_that_becomes_evicting_is_an_error_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        server = Figures()
        w = Watched(server)
        await w.watch.look()
        server.info_memory["maxmemory_policy"] = "allkeys-lru"
        for _ in range(3):
            await w.watch.look()

    asyncio.run(work())
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "allkeys-lru" in record.getMessage()


@pytest.mark.parametrize("info", [{}, {"used_memory": "?", "maxmemory": None}, {"used_memory": 5}], ids=str)
def test_rows_that_are_left_out_are_done_without(info: dict[str, Any]) -> None:
    server = ServerMemory.parse(info)
    assert (server.max_bytes, server.evicts) == (None, False)


def test_the_figures_of_a_real_server(rig: Rig) -> None:
    rig.sync.config_set("maxmemory", 512 * MB)
    try:
        server = rig.run(module.server_memory(rig.f, rig.client))
    finally:
        rig.sync.config_set("maxmemory", 0)
    assert (server.max_bytes, server.policy) == (512 * MB, "noeviction")
    assert 0 < server.start_bytes < server.counted_bytes <= server.used_bytes <= server.peak_bytes
    assert server.rss_bytes > 0


# -- what it costs -----------------------------------------------------------------------------------------------------------

URLS, HOSTS, PARTITIONS = 50_000, 4000, 4


async def grow(frontier: Frontier, urls: int) -> None:
    """Hosts of very different sizes, some active, with robots.txt files, some leases."""
    rng = random.Random(7)
    links: dict[int, list[Link]] = {p: [] for p in range(PARTITIONS)}
    for i in range(urls):
        host = f"host{int(HOSTS * rng.random() ** 2):05}.example"
        url = f"https://{host}/articles/{i:08}/{'t' * rng.randrange(1, 30)}.html"
        referrer = "https://www.example.com/" if rng.random() < 0.5 else ""
        links[frontier.partition_of(host)].append(Link(host, url_key(url), Entry(url, rng.randrange(1, 9), 3, referrer), NORMAL))
    for p, some in links.items():
        for first in range(0, len(some), 200):
            await frontier.enqueue(p, some[first : first + 200])
    for p in range(PARTITIONS):
        for _ in range(4):
            _, leases = await frontier.lease(p, 64)
            await frontier.complete(p, [Outcome(lease, "d", robots=_robots(lease, rng)) for lease in leases[::2]])


def _robots(lease: Lease, rng: random.Random) -> KeptNow:
    return KeptNow(f"https://{lease.host}", b'{"v":2,' + bytes(rng.randrange(100, 3000)), 30 * 86_400_000, -1)


@pytest.fixture(scope="module")
def grown(redis_server: Any) -> Iterator[tuple[str, int]]:
    """A server with a crawl, and the memory that this crawl took."""
    limits = Limits(expected_urls=URLS, active_hosts=2000)

    async def main() -> int:
        async with Redis.from_url(redis_server.url) as client:
            await client.flushall()
            await grow(Frontier(client, "before", PARTITIONS, "w1", limits), 2000)  # Redis keeps statistics of commands and scripts
            await client.flushall()
            empty = (await client.info("memory"))["used_memory"]
            await grow(Frontier(client, "t", PARTITIONS, "w1", limits), URLS)
            return int((await client.info("memory"))["used_memory"] - empty)

    yield redis_server.url, asyncio.run(main())
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()


def account(url: str, samples: int = 0, crawl: str = "t") -> Account:
    """Of all keys, or by some samples."""

    async def main() -> Account:
        async with Redis.from_url(url) as client:
            accounts = Accounts(Frontier(client, crawl, PARTITIONS, "looker"))
            for _ in range(samples):
                await accounts.sample()
            return await (accounts.estimate() if samples else accounts.walk())

    return asyncio.run(main())


def of_keys(whole: Account) -> float:
    return sum(tally.size_bytes for tally in whole.kinds.values()) + whole.table_bytes


def test_all_keys_together_are_what_the_crawl_took(grown: tuple[str, int]) -> None:
    url, took_bytes = grown
    whole = account(url)
    assert of_keys(whole) == pytest.approx(took_bytes, rel=0.15)
    assert whole.known_bytes <= whole.used_bytes


def test_each_kind_is_what_its_removal_frees(grown: tuple[str, int]) -> None:
    url, _ = grown
    whole = account(url)
    with redis.Redis.from_url(url) as client:
        for kind, pattern in (("park:<host>", "*:park:*"), ("back:<host>", "*:back:*"), (SEGMENT, "*:bloom:*"), ("front:<k>", "*:front:*")):
            names = list(client.scan_iter(pattern, count=1000))
            copies = {name: client.dump(name) for name in names}
            before = client.info("memory")["used_memory"]
            for first in range(0, len(names), 500):
                client.delete(*names[first : first + 500])
            freed = before - client.info("memory")["used_memory"]
            assert whole.kinds[kind].keys == len(names)
            assert whole.kinds[kind].size_bytes == pytest.approx(freed, rel=0.15), kind
            for name, data in copies.items():
                client.restore(name, 0, data)


def test_members_are_the_urls_that_they_are_counted_as(grown: tuple[str, int]) -> None:
    url, _ = grown
    whole = account(url)
    with redis.Redis.from_url(url) as client:
        counters = [client.hmget(f"{{t:{p}}}:ctr", "enq", "done") for p in range(PARTITIONS)]
        leased = sum(client.hlen(f"{{t:{p}}}:leased") for p in range(PARTITIONS))
    enqueued, done = (sum(int(row[i]) for row in counters) for i in (0, 1))
    queued = sum(whole.kinds[kind].members for kind in ("front:<k>", "back:<host>", "park:<host>") if kind in whole.kinds)
    assert queued == pytest.approx(enqueued - done - leased, rel=0.05)
    assert whole.kinds[SEGMENT].members == pytest.approx(URLS, rel=0.01)
    assert whole.kinds["robots:<origin>"].members > 100
    assert whole.page_record is None, "there are none yet"
    assert 60 < (whole.pending_url or 0) < 200
    assert 2 < (whole.seen_url or 0) < 10, "a filter that has just begun to grow"
    assert 100 < (whole.active_host or 0) < 700


def test_samples_come_near_the_whole(grown: tuple[str, int]) -> None:
    url, took_bytes = grown
    whole, some = account(url), account(url, samples=20)
    assert of_keys(some) == pytest.approx(took_bytes, rel=0.25)
    for name in ("pending_url", "seen_url", "active_host"):
        assert getattr(some, name) == pytest.approx(getattr(whole, name), rel=0.2), name


def test_samples_of_a_crawl_that_they_cover_are_the_whole(redis_url: str) -> None:
    async def main() -> None:
        async with Redis.from_url(redis_url) as client:
            await grow(Frontier(client, "t", PARTITIONS, "w1", Limits(expected_urls=4000, active_hosts=100)), 500)

    asyncio.run(main())
    whole, some = account(redis_url), account(redis_url, samples=40)
    for kind, tally in whole.kinds.items():
        assert some.kinds[kind].size_bytes == pytest.approx(tally.size_bytes, rel=0.1), kind


def test_keys_of_others_and_of_other_types_are_no_part_of_the_crawl(rig: Rig) -> None:
    rig.enqueue(link("a.org"), link("a.org", "/1"), link("b.org"))
    rig.sync.set("{other:0}:host:a.org", "x" * 1000)
    rig.sync.set("{t:0}:nothing of ours", "x" * 1000)
    rig.sync.set(rig.key("ready"), "not a zset")
    rig.sync.set(rig.key("park:c.org"), "not a list")
    rig.sync.hset(rig.key("bloom"), mapping={"b7": "many", "bx": "1", "b" + "\xff": "1"})
    whole = rig.run(Accounts(rig.f).walk())
    assert whole.kinds["not of this crawl"].keys == 3  # the test's clock is one
    assert "ready" not in whole.kinds
    assert whole.kinds["park:<host>"].keys == 1
    assert rig.run(Accounts(rig.f).sample()) is True


def test_an_empty_database_costs_nothing(rig: Rig) -> None:
    rig.sync.flushall()
    accounts = Accounts(rig.f)
    rig.run(accounts.sample())
    empty = rig.run(accounts.estimate())
    assert (empty.pending_url, empty.seen_url, empty.active_host, empty.packed_host, empty.page_record) == (None,) * 5
    assert rig.run(Accounts(rig.f).estimate()).kinds == {}


def test_in_exact_mode_the_seen_set_is_its_buckets() -> None:
    kinds = {EXACT_SET: Tally(keys=10, members=2000, size_bytes=20_000.0)}
    assert Account(kinds, 10, 0.0, ()).seen_url == 10.0
    with_filter = {**kinds, SEGMENT: Tally(keys=1, members=20_000, size_bytes=40_000.0)}
    assert Account(with_filter, 11, 0.0, ()).seen_url == 3.0


def test_stats_tell_it_and_closing_does_not_wait_for_redis(rig: Rig) -> None:
    told: dict[str, float] = {}
    rig.enqueue(link("a.org"))
    accounts = Accounts(rig.f, gauge=told.__setitem__)
    rig.enqueue(*(link("b.org", f"/{n}") for n in range(3)))
    assert len(rig.lease()) == 2
    rig.enqueue(link("c.org"))
    rig.run(accounts.close())
    assert told["memory/pending_url"] > 60
    assert told["memory/packed_host"] > 10
    assert told["memory/active_host"] > 100
    assert "memory/page_record" not in told

    class Gone:
        async def hangs(self, *_: Any, **__: Any) -> None:
            await asyncio.Event().wait()

        info = scan = hangs

    rig.run(Accounts(rig.f, nodes=[Gone()]).close())  # type: ignore[list-item]


def test_a_redis_that_does_not_tell_is_not_asked_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    class Forbids:
        async def scan(self, *_: Any, **__: Any) -> None:
            raise redis.exceptions.NoPermissionError("this user has no permissions to run 'scan'")

    with caplog.at_level(logging.INFO):
        rig.run(Accounts(rig.f, nodes=[Forbids()]).keep())  # type: ignore[list-item]
    assert "is not known" in caplog.text
    with pytest.raises(FrontierError):
        rig.run(Accounts(rig.f, nodes=[Forbids()]).sample())  # type: ignore[list-item]
