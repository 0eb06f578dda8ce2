"""Pages of a moment are looked up together and judged by what is known of their copies; Redis away is waited for."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.asyncio import Redis

from crawlweb.default_settings import Config
from crawlweb.duplicates import WAIT_MOST, Duplicates
from crawlweb.errors import ConfigError, FrontierError
from crawlweb.frontier.frontier import Frontier
from crawlweb.policy.duplicates import Verdict
from crawlweb.policy.hosts import host_of
from crawlweb.records import Copy, Fingerprint, PageRecord

PARTITIONS = 4
BANDS = 16


def url_key(url: str) -> bytes:
    if not url.startswith("http"):
        raise ValueError(url)
    return hashlib.blake2b(url.partition("://")[2].encode(), digest_size=16).digest()


def prints(seed: int) -> Fingerprint:
    rng = random.Random(seed)
    return Fingerprint(rng.randbytes(8), rng.randbytes(8), rng.getrandbits(64), tuple(rng.getrandbits(64) for _ in range(BANDS)))


def page(url: str, seed: int, declared: str = "", seen_at: float = 1000.0) -> Copy:
    return Copy(url, url_key(url), host_of(url), seen_at, prints(seed), declared)


class Wire:
    """A client that counts look-ups, and is away for a while."""

    def __init__(self, client: Redis) -> None:
        self._client, self.look_ups, self.away = client, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def execute_command(self, *args: Any) -> Any:
        if self.away:
            self.away -= 1
            raise redis.exceptions.ConnectionError("away")
        self.look_ups += args[0] == "EVALSHA"
        return await self._client.execute_command(*args)


class World:
    """One worker. `verdicts` asks of pages at the same moment, and writes their records as complete would."""

    def __init__(self, client: Redis, **config: Any) -> None:
        self.wire = Wire(client)
        self.frontier = Frontier(self.wire, "t", PARTITIONS, "w")  # type: ignore[arg-type]
        self.records: dict[tuple[int, bytes], PageRecord] = {}
        self.reads = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.duplicates = Duplicates.of(
            Config(**config), self.frontier, self.read, url_key, self.spawn, tick_s=config.pop("tick_s", 0.001), votes_least=5
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.ensure_future(work))

    async def read(self, places: Sequence[tuple[int, bytes]]) -> list[PageRecord | None]:
        self.reads += bool(places)
        return [self.records.get(place) for place in places]

    def record(self, copy: Copy, verdict: Verdict, **more: Any) -> None:
        values = {"fingerprint": copy.fingerprint.simhash or 0, "content_hash": copy.fingerprint.body_hash, "first_seen": copy.seen_at}
        record = PageRecord(copy.url, copy.seen_at, more.pop("status", 200), canonical=verdict.duplicate_of, **values, **more)
        self.records[self.frontier.partition_of(copy.host), copy.key[:8]] = record

    async def verdicts(self, *pages: Copy) -> list[Verdict]:
        verdicts = await asyncio.gather(*map(self.duplicates.verdict, pages))
        for copy, verdict in zip(pages, verdicts, strict=True):
            self.record(copy, verdict)
        return verdicts


def run(redis_url: str, work: Callable[[World], Awaitable[Any]], **config: Any) -> Any:
    async def main() -> Any:
        client = Redis.from_url(redis_url)
        try:
            return await asyncio.wait_for(work(World(client, **config)), 30)
        finally:
            await client.aclose()

    return asyncio.run(main())


def test_pages_of_a_moment_take_one_call_and_those_that_have_copies_two_more_to_name_them_and_to_tell(redis_url: str) -> None:
    async def work(world: World) -> None:
        await world.verdicts(page("https://a.org/0", 0))
        before = world.wire.look_ups
        assert await world.verdicts(*(page(f"https://h{n}.org/", 1 + n) for n in range(20))) == [Verdict()] * 20
        assert world.wire.look_ups == before + 1
        verdicts = await world.verdicts(*(page(f"https://the-mirror.org/{n}", 1 + n) for n in range(20)))
        assert verdicts == [Verdict(f"https://h{n}.org/", "exact") for n in range(20)]
        assert world.wire.look_ups == before + 4

    run(redis_url, work)


def test_a_full_batch_does_not_wait_for_its_tick(redis_url: str) -> None:
    async def work(world: World) -> None:
        world.duplicates._tick_s = 1e6
        verdicts = await world.verdicts(*(page(f"https://h{n}.org/", n) for n in range(WAIT_MOST)))
        assert verdicts == [Verdict()] * WAIT_MOST

    run(redis_url, work)


def test_a_story_on_many_sites_counts_once_and_a_shorter_url_takes_the_place(redis_url: str) -> None:
    async def work(world: World) -> None:
        first = "https://paper.org/2026/story-of-the-day"
        assert await world.verdicts(page(first, 1)) == [Verdict()]
        assert await world.verdicts(page("https://syndicate.org/2026/story-of-the-day?from=paper", 1)) == [Verdict(first, "exact")]
        assert await world.verdicts(page(first, 1)) == [Verdict()]  # fetched again
        short = "https://paper.org/1"
        assert await world.verdicts(page(short, 1)) == [Verdict(supersedes=(first,))]
        world.record(page(first, 1), Verdict(short))
        assert await world.verdicts(page("https://mirror.org/2026/story-of-the-day?mirror=1", 1)) == [Verdict(short, "exact")]

    run(redis_url, work)


def test_a_declared_canonical_is_looked_for_in_its_record(redis_url: str) -> None:
    async def work(world: World) -> None:
        home, story, gone = (page(f"https://x.org/{path}", n) for n, path in enumerate(("", "a-long-name-of-a-story", "gone")))
        await world.verdicts(home, story)
        world.record(gone, Verdict(), status=404)
        variant = replace(
            page("https://x.org/s", 5), fingerprint=replace(story.fingerprint, body_hash=b"variant!", text_hash=b"", bands=())
        )
        for declared, expected in (
            (story.url, Verdict(story.url, "declared", "believed")),
            (home.url, Verdict("", "", "other_content", (story.url,))),
            (gone.url, Verdict("", "", "error", (story.url,))),
            ("https://x.org/never-seen", Verdict("", "", "unknown", (story.url,))),
            ("https://x.org/s", Verdict("", "", "self", (story.url,))),
            ("mailto:x@x.org", Verdict(supersedes=(story.url,))),
        ):
            assert await world.verdicts(replace(variant, declared=declared)) == [expected], declared

    run(redis_url, work)


def test_records_are_not_read_where_there_is_nothing_to_name(redis_url: str) -> None:
    async def work(world: World) -> None:
        await world.verdicts(*(page(f"https://h{n}.org/", n, f"https://h{n}.org/") for n in range(10)))
        assert world.reads == 0

    run(redis_url, work)


def test_a_page_whose_target_came_a_moment_before_is_its_alias(redis_url: str) -> None:
    async def work(world: World) -> None:
        target, alias = page("https://x.org/the-one-that-counts", 1), page("https://x.org/m", 1, "https://x.org/the-one-that-counts")
        verdicts = await asyncio.gather(*map(world.duplicates.verdict, (target, alias)))  # no record is written yet
        assert verdicts == [Verdict(), Verdict(target.url, "declared", "believed")]

    run(redis_url, work)


def test_aliases_of_aliases_are_followed_and_loops_end(redis_url: str) -> None:
    async def work(world: World) -> None:
        urls = [f"https://x.org/alias-{n}" for n in range(3)]
        for n, url in enumerate(urls):
            world.record(page(url, 1), Verdict(urls[(n + 1) % 3]))
        assert (await world.verdicts(page("https://x.org/p", 1, urls[0])))[0].declaration == "loop"
        world.record(page(urls[2], 1), Verdict())
        assert await world.verdicts(page("https://x.org/q", 2, urls[0])) == [Verdict(declaration="other_content")]
        assert await world.verdicts(page("https://x.org/r", 1, urls[0])) == [Verdict(urls[2], "declared", "believed")]

    run(redis_url, work)


def test_records_on_disk_are_not_missed(redis_url: str) -> None:
    async def work(world: World) -> None:
        first, second = "https://x.org/1st", "https://x.org/the-second"
        await world.verdicts(page(first, 1))
        await world.verdicts(page(second, 1))
        world.records.clear()
        assert await world.verdicts(page("https://y.org/a-third-one", 1)) == [Verdict(first, "exact")]
        world.records.clear()
        assert await world.verdicts(page("https://x.org/0", 1, second)) == [Verdict(first, "declared", "believed")]

    run(redis_url, work)


def test_redis_away_is_waited_for(redis_url: str) -> None:
    async def work(world: World) -> None:
        await world.verdicts(page("https://a.org/story", 1))
        world.wire.away = 2
        assert await world.verdicts(page("https://b.org/the-story", 1)) == [Verdict("https://a.org/story", "exact")]

    run(redis_url, work)


def test_at_the_end_of_the_crawl_an_outage_is_no_longer_waited_for(redis_url: str) -> None:
    async def work(world: World) -> None:
        world.frontier.closing, world.wire.away = True, 10**9
        found = await asyncio.gather(*(world.duplicates.verdict(page(f"https://h{n}.org/", n)) for n in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [FrontierError] * 3
        world.wire.away = 0
        assert await world.verdicts(page("https://a.org/", 1)) == [Verdict()]

    run(redis_url, work)


def test_pages_that_wait_are_let_go_when_the_flush_is_cancelled(redis_url: str) -> None:
    async def work(world: World) -> None:
        world.duplicates._tick_s = 1e6
        asked = [asyncio.ensure_future(world.duplicates.verdict(page(f"https://h{n}.org/", n))) for n in range(3)]
        while not world.tasks:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # it begins
        for task in world.tasks:
            task.cancel()
        assert [type(one) for one in await asyncio.gather(*asked, return_exceptions=True)] == [asyncio.CancelledError] * 3

    run(redis_url, work)


def test_the_page_of_the_better_domain_counts(redis_url: str, tmp_path: Path) -> None:
    ranks = tmp_path / "ranks.csv"
    ranks.write_text("1,famous.org\n")

    async def work(world: World) -> None:
        famous = "https://news.famous.org/a/long/way/to/the/story"
        await world.verdicts(page("https://x.org/s", 1))
        assert await world.verdicts(page(famous, 1)) == [Verdict(supersedes=("https://x.org/s",))]

    run(redis_url, work, domain_ranks=str(ranks))


def test_an_unknown_way_to_find_copies_stops_the_start(redis_url: str) -> None:
    async def work(_: World) -> None:
        raise AssertionError

    with pytest.raises(ConfigError, match="CRAWLWEB_NEAR='md5'"):
        run(redis_url, work, near=("md5",))
