"""Start URLs from outside into a real frontier, by workers that stop at any point of the way: taken, enqueued, dropped."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import redis
from redis.asyncio import Redis

from crawlweb import starts as module
from crawlweb.frontier import memory
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.memory import MemoryWatch
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import EXACT, Counts, Limits, Link
from crawlweb.frontier.starts import StartKey
from crawlweb.policy.canonical import url_key
from crawlweb.policy.hosts import host_of
from crawlweb.records import Entry, boottime
from crawlweb.starts import Starts
from crawlweb.worker import Worker

PARTITIONS = 4
KEY = "shop:start_urls"


async def until(state: Callable[[], object], seconds: float = 20) -> None:
    deadline = boottime() + seconds
    while not state():
        assert boottime() < deadline, "this state never came"
        await asyncio.sleep(0.005)


def read(data: bytes) -> list[Link]:
    url = data.decode()
    if not url.startswith("http"):
        raise ValueError(f"{url} is no URL")
    return [Link(host_of(url), url_key(url), Entry(url, 0), EXACT)]


class Gated(Frontier):
    """Stops before or after an enqueue where a gate is closed."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.before, self.after = asyncio.Event(), asyncio.Event()
        self.before.set()
        self.after.set()
        self.asked = self.answered = 0

    async def enqueue(self, partition: int, links: Sequence[Link], can_wait: bool = False) -> str:
        self.asked += 1
        await self.before.wait()
        answer = await super().enqueue(partition, links, can_wait)
        self.answered += 1
        await self.after.wait()
        return answer


class Office:
    """A worker's loop for one key. `lease_s`: so long its batches last."""

    def __init__(self, url: str, name: str = "w1", lease_s: float = 60.0, most: int = 100, kind: str = "") -> None:
        self.client = Redis.from_url(url)
        self.frontier = Gated(self.client, "t", PARTITIONS, name, Limits(lease_s=lease_s, expected_urls=4096))
        self.key = StartKey(self.frontier, KEY, kind=kind)
        self.counts: Counter[str] = Counter()
        self.widened: list[str] = []
        self.memory = MemoryWatch(self.frontier)
        self.enough = False
        self.starts = Starts(
            [self.key],
            self.frontier,
            self.memory,
            most=most,
            read=read,
            widen=self._widen,
            count=self._count,
            arrived=lambda _: None,
            enough=lambda: self.enough,
        )
        self.task: asyncio.Task[None] | None = None

    async def _widen(self, links: Sequence[Link]) -> None:
        self.widened += [link.host for link in links]

    def _count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    def start(self) -> None:
        self.task = asyncio.ensure_future(self.starts.take_forever())

    async def die(self) -> None:
        """At once, wherever it is: nothing more is sent to Redis."""
        assert self.task
        while not self.task.done():  # redis-py can swallow a cancellation
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=0.1)

    async def close(self) -> None:
        if self.task:
            await self.die()
        await self.client.aclose()


def run(url: str, work: Callable[..., Awaitable[None]], *offices: dict[str, Any]) -> None:
    async def main() -> None:
        made = [Office(url, f"w{n}", **options) for n, options in enumerate(offices or ({},))]
        try:
            await work(*made)
        finally:
            for office in made:
                await office.close()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.02)
    monkeypatch.setattr(memory, "LOOK_S", 0.05)
    monkeypatch.setattr(memory, "TRY_S", 0.05)


@pytest.fixture
def raw(redis_url: str) -> Any:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def urls(count: int) -> list[str]:
    return [f"http://h{n}.org/" for n in range(count)]


def left(client: redis.Redis) -> list[bytes]:
    return [key for key in client.scan_iter() if b"start_urls" in key]


async def enqueued(office: Office) -> int:
    return (await office.frontier.counts()).enqueued


# -- the way -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "set", "zset"])
def test_all_entries_become_seeds_and_leave_the_key(redis_url: str, raw: Any, kind: str) -> None:
    put = {"list": raw.rpush, "set": raw.sadd, "zset": lambda key, *entries: raw.zadd(key, dict.fromkeys(entries, 1.0))}[kind]
    put(KEY, *urls(250), "none", *urls(250))

    async def work(office: Office) -> None:
        office.start()
        await until(lambda: office.counts["start_urls/taken"] == (501 if kind == "list" else 251))
        assert await enqueued(office) == office.counts["seeds/new"] == 250
        assert set(office.widened) == {host_of(url) for url in urls(250)}
        assert office.counts["start_urls/malformed"] == 1
        assert left(raw) == [office.key.quarantine.encode()]
        assert not await office.starts.anything_outside()

    run(redis_url, work)


@pytest.mark.parametrize("gap", ["taken", "enqueuing", "enqueued", "dropped"])
def test_a_worker_may_die_anywhere_on_the_way(redis_url: str, raw: Any, gap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw.rpush(KEY, *urls(40), "none")

    async def work(dead: Office, alive: Office) -> None:
        async def stop(*_: Any) -> Any:
            reached.set()
            await asyncio.Event().wait()

        reached = asyncio.Event()
        if gap == "taken":
            dead.starts._hand_over = stop  # type: ignore[method-assign]
        elif gap == "enqueuing":  # some partitions have theirs
            real = dead.frontier.enqueue

            async def enqueue(p: int, links: Sequence[Link], can_wait: bool = False) -> str:
                return str(await stop()) if p % 2 else await real(p, links, can_wait)

            monkeypatch.setattr(dead.frontier, "enqueue", enqueue)
        elif gap == "enqueued":
            dead.key.drop = stop  # type: ignore[method-assign]
        else:
            real_drop = dead.key.drop

            async def drop(*args: Any) -> int:
                await real_drop(*args)
                return int(await stop())

            dead.key.drop = drop  # type: ignore[method-assign]
        dead.start()
        await asyncio.wait_for(reached.wait(), 20)
        if gap == "enqueuing":
            await until(lambda: dead.frontier.answered)
        assert await alive.starts.anything_outside() == (gap != "dropped")
        await dead.die()
        alive.start()
        deadline = boottime() + 20
        while await alive.starts.anything_outside() or alive.starts.handing:
            assert boottime() < deadline
            await asyncio.sleep(0.01)
        assert await enqueued(alive) == 40
        assert raw.lrange(alive.key.quarantine, 0, -1) == [b"none is no URL\tnone"]
        assert left(raw) == [alive.key.quarantine.encode()]
        assert (await alive.frontier.audit())["lost"] == 0

    run(redis_url, work, {"lease_s": 0.5}, {"lease_s": 0.5})


def test_two_workers_share_one_key(redis_url: str, raw: Any) -> None:
    raw.rpush(KEY, *urls(300))

    async def work(*offices: Office) -> None:
        for office in offices:
            office.start()
        await until(lambda: sum(office.counts["start_urls/taken"] for office in offices) == 300)
        assert sum(office.counts["seeds/new"] for office in offices) == 300
        assert all(office.counts["start_urls/taken"] for office in offices)
        assert left(raw) == []

    run(redis_url, work, {"most": 10}, {"most": 10})


def test_a_batch_that_takes_long_stays_in_its_workers_hands(redis_url: str, raw: Any) -> None:
    raw.rpush(KEY, *urls(3))

    async def work(slow: Office, other: Office) -> None:
        slow.frontier.before.clear()
        taken = f"{slow.key.prefix}taken"
        slow.start()
        await until(lambda: slow.frontier.asked)
        ((batch, first),) = raw.zrange(taken, 0, -1, withscores=True)
        other.start()
        await until(lambda: raw.zscore(taken, batch) > first)
        assert slow.starts.handing
        slow.frontier.before.set()
        await until(lambda: slow.counts["start_urls/taken"] == 3)
        assert (other.counts["start_urls/taken"], left(raw)) == (0, [])

    run(redis_url, work, {"lease_s": 3.0}, {"lease_s": 3.0})


def test_a_full_redis_leaves_entries_where_they_are_until_it_has_room(redis_url: str, raw: Any) -> None:
    async def work(office: Office) -> None:
        watch = asyncio.ensure_future(office.memory.watch_forever())
        office.frontier.before.clear()
        raw.rpush(KEY, *urls(1))
        office.start()
        await until(lambda: office.frontier.asked)
        raw.rpush(KEY, *urls(2))
        raw.config_set("maxmemory", 1)
        try:
            office.frontier.before.set()
            await until(lambda: not office.memory.has_room)
            assert (raw.llen(KEY), office.counts["start_urls/taken"]) == (2, 0)
        finally:
            raw.config_set("maxmemory", 0)
        await until(lambda: office.counts["start_urls/taken"] == 3)
        assert (await enqueued(office), left(raw)) == (2, [])
        watch.cancel()

    run(redis_url, work)


def test_a_worker_that_has_enough_takes_no_more(redis_url: str, raw: Any) -> None:
    async def work(office: Office) -> None:
        office.enough = True
        raw.rpush(KEY, *urls(1))
        office.start()
        assert office.task
        await asyncio.wait_for(office.task, 20)
        assert raw.llen(KEY) == 1

    run(redis_url, work)


# -- what is not ours ----------------------------------------------------------------------------------------------------


def test_a_key_of_another_type_is_told_once_and_asked_again(redis_url: str, raw: Any, caplog: pytest.LogCaptureFixture) -> None:
    raw.set(KEY, "x")

    async def work(office: Office) -> None:
        office.start()
        await until(lambda: office.counts["start_urls/foreign"] >= 3)
        assert not await office.starts.anything_outside()
        raw.delete(KEY)
        raw.rpush(KEY, *urls(2))
        await until(lambda: office.counts["start_urls/taken"] == 2)

    with caplog.at_level(logging.WARNING, "crawlweb.starts"):
        run(redis_url, work)
    told = [record.getMessage() for record in caplog.records]
    assert told == ["shop:start_urls is of type string, wanted: list, set or zset; no start URLs are taken while it is"]


def test_bad_entries_are_told_once_and_stop_nothing(redis_url: str, raw: Any, caplog: pytest.LogCaptureFixture) -> None:
    raw.rpush(KEY, "none", b"\xff", "x" * 70_000, *urls(1), "none", f"http://a.h.org/{'x' * 65_521}")

    async def work(office: Office) -> None:
        office.start()
        await until(lambda: office.counts["start_urls/taken"] == 6)
        assert office.counts["start_urls/malformed"] == 5
        reasons = [entry.partition(b"\t")[0] for entry in reversed(raw.lrange(office.key.quarantine, 0, -1))]
        assert [reasons[0], reasons[2], reasons[4]] == [b"none is no URL", b"70000 bytes", b"cannot be an entry"]

    with caplog.at_level(logging.WARNING, "crawlweb.starts"):
        run(redis_url, work, {"most": 2})
    (told,) = [record.getMessage() for record in caplog.records if record.name == "crawlweb.starts"]
    assert "shop:start_urls holds what is no start URL (none is no URL)" in told
    assert "{shop:start_urls}:t:quarantine" in told


# -- the end of the crawl ------------------------------------------------------------------------------------------------


def test_the_crawl_does_not_end_before_its_start_urls_are_in_the_frontier(
    redis_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(office: Office, other: Office) -> None:
        ended: list[str] = []
        worker = Worker(
            office.frontier,
            Meta(office.frontier),
            capacity=10,
            fetch_s=1.0,
            once=True,
            max_pages=None,
            seen_cache_keys=1000,
            wake=lambda: None,
            ended=ended.append,
            count=lambda *_: None,
            url_key=url_key,
        )
        looks = Counter[str]()
        anything = office.starts.anything_outside

        async def looked() -> bool:
            looks["at the end"] += 1
            return await anything()

        worker.starts = office.starts
        office.starts.anything_outside = looked  # type: ignore[method-assign]
        passes = Counts(5, 5, 0)  # nothing pending, twice

        async def counts() -> Counts:
            return passes

        monkeypatch.setattr(office.frontier, "counts", counts)
        raw.rpush(KEY, *urls(1))
        worker.start()
        await until(lambda: looks["at the end"] >= 2)
        taken = await other.key.take(10, 60.0)  # in another worker's hands
        looks.clear()
        await until(lambda: looks["at the end"] >= 2)
        assert ended == []
        await other.key.drop(taken, {})  # type: ignore[arg-type]
        await until(lambda: ended)
        assert ended == ["drained"]
        await worker.close()

    run(redis_url, work, {}, {})
