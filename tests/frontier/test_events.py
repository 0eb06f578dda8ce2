"""Events of pages: in the stream at least once, each under one id, whatever becomes of answers, of Redis and of its memory."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.asyncio import Redis

from crawlweb.errors import FrontierError
from crawlweb.frontier.accounts import Accounts
from crawlweb.frontier.events import EVENT_BATCH, Events
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.rows import Limits, PageEvent
from crawlweb.policy.canonical import url_key
from crawlweb.records import WarcRef

STREAM = "{web}:events"
NUMBERS = itertools.count()
Work = Callable[[Redis], Awaitable[None]]


class Worker:
    """`losing`: answers to its next calls that are lost on the way."""

    def __init__(self, client: Redis, most: int = 1000) -> None:
        self.frontier = Frontier(client, "web", 4, f"w{next(NUMBERS)}", Limits())
        self.events = Events(self.frontier, most)
        self.losing = 0
        self._client = client
        self.frontier.redis = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def execute_command(self, *args: Any) -> Any:
        answer = await self._client.execute_command(*args)
        if self.losing and args[0] in ("EVAL", "EVALSHA"):
            self.losing -= 1
            raise redis.exceptions.ConnectionError("lost on the way")
        return answer


def page(n: int, **more: Any) -> PageEvent:
    url = f"https://example.com/{n}"
    return PageEvent(url, url_key(url), 200, 1_800_000_000 + n / 1000, **more)


@pytest.fixture
def run(redis_url: str) -> Callable[[Work], None]:
    async def with_client(work: Work) -> None:
        async with Redis.from_url(redis_url, decode_responses=False) as client:
            await work(client)

    return lambda work: asyncio.run(with_client(work))


async def ids(client: Redis) -> list[str]:
    return [fields[b"id"].decode() for _, fields in await client.xrange(STREAM)]


def test_an_event_tells_of_the_page_in_words(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        worker = Worker(client)
        full = page(
            1,
            warc=WarcRef("a.warc.gz", 10, 20),
            fingerprint="00ff00ff00ff00ff",
            changed=True,
            duplicate_of="https://example.org/",
            supersedes=("https://example.com/a", "https://example.com/b"),
            soft_404=True,
            content_type="text/html",
        )
        await worker.events.publish([full, page(2, changed=False)])
        (_, first), (_, second) = await client.xrange(STREAM)
        texts = {name.decode(): value.decode() for name, value in first.items()}
        key = url_key("https://example.com/1").hex()
        assert texts == {
            "id": f"{key}-1800000000001",
            "type": "page.fetched",
            "url": "https://example.com/1",
            "url_key": key,
            "status": "200",
            "warc_file": "a.warc.gz",
            "warc_offset": "10",
            "warc_length": "20",
            "fingerprint": "00ff00ff00ff00ff",
            "changed": "1",
            "duplicate_of": "https://example.org/",
            "supersedes": "https://example.com/a https://example.com/b",
            "soft_404": "1",
            "content_type": "text/html",
            "fetched_at": "2027-01-15T08:00:00.001000+00:00",
            "worker": worker.frontier.worker,
        }
        assert list(second) == list(first)  # the stream keeps the names once
        assert [second[name] for name in (b"warc_file", b"warc_offset", b"changed", b"soft_404")] == [b"", b"", b"0", b"0"]
        await worker.events.publish([page(3)])
        assert (await client.xrange(STREAM))[-1][1][b"changed"] == b""

    run(work)


def test_the_documentation_names_every_field() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "extending.md").read_text()
    _, _, section = text.partition("\n## Events\n")
    rows = [line.split("|")[1] for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == [name.decode() for name in page(1).fields("w")[::2]]


def test_the_id_is_that_of_the_fetch() -> None:
    assert page(1).id == page(1, changed=True).id
    assert len({page(1).id, page(2).id, PageEvent("https://example.com/1", url_key("https://example.com/1"), 200, 1_800_000_009.0).id}) == 3


@pytest.mark.parametrize("text", ["\ud800", "\x00\n", "x" * 70_000, "ä" * 70_000])
def test_what_a_server_says_is_passed_on_bounded_and_hurts_nothing(run: Callable[[Work], None], text: str) -> None:
    async def work(client: Redis) -> None:
        await Worker(client).events.publish([page(1, content_type=text)])
        ((_, fields),) = await client.xrange(STREAM)
        assert fields[b"content_type"].decode() == text.replace("\ud800", "?")[:100]

    run(work)


def test_any_number_of_events_is_published_in_order_and_in_few_calls(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        worker = Worker(client)
        batch = [page(n) for n in range(2 * EVENT_BATCH + 1)]
        await worker.events.publish(batch)
        assert (await ids(client), worker.frontier.calls) == ([event.id for event in batch], 3)
        await worker.events.publish([])
        assert worker.frontier.calls == 3

    run(work)


def test_the_stream_is_bounded(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        worker = Worker(client, most=50)
        for first in range(0, 1000, 100):
            await worker.events.publish([page(n) for n in range(first, first + 100)])
        kept = await ids(client)
        assert 50 <= len(kept) <= 50 + 100  # whole nodes are dropped: of 100 entries, or 4 KB
        assert kept == [page(n).id for n in range(1000)][-len(kept) :]

    run(work)


def test_an_event_whose_answer_was_lost_is_there_again_under_its_id(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        worker = Worker(client)
        worker.losing = 1
        await worker.events.publish([page(1), page(2)])
        assert await ids(client) == [page(1).id, page(2).id] * 2

    run(work)


def test_what_a_server_lost_with_its_last_seconds_is_published_again(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        worker = Worker(client)
        await worker.events.publish([page(1)])
        await worker.events.publish([page(2)])
        await client.delete(STREAM)
        await worker.events.replay()
        assert await ids(client) == [page(1).id, page(2).id]

    run(work)


def test_a_full_redis_takes_the_events_of_pages_in_hand(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        worker = Worker(client)
        await client.config_set("maxmemory", 1)
        try:
            worker.frontier.closing = True
            await worker.events.publish([page(1), page(2)])
        finally:
            await client.config_set("maxmemory", 0)
        assert await ids(client) == [page(1).id, page(2).id]

    run(work)


def test_events_wait_for_a_redis_that_is_away_and_are_given_up_on_closing(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        worker = Worker(client)
        worker.frontier.closing = True
        worker.losing = 1
        with pytest.raises(FrontierError, match="does not answer"):
            await worker.events.publish([page(1)])

    run(work)


@pytest.mark.parametrize("make", [("SET", STREAM, "x"), ("HSET", STREAM, "a", "b"), ("LPUSH", STREAM, "x")], ids=lambda make: make[0])
def test_a_key_of_another_type_is_moved_aside_and_no_event_lost(run: Callable[[Work], None], make: tuple[str, ...]) -> None:
    async def work(client: Redis) -> None:
        await client.execute_command(*make)
        await Worker(client).events.publish([page(1), page(2)])
        assert await ids(client) == [page(1).id, page(2).id]
        (aside,) = await client.keys("{web}:foreign:*:events")
        assert (await client.lindex("{web}:quarantine", 0)).startswith(b"key\t" + aside)  # type: ignore[misc]

    run(work)


@pytest.mark.parametrize(
    "last", ["99999999999999999-5", "18446744073709551614-18446744073709551615", f"{2**64 - 1}-{2**64 - 2}", f"{2**64 - 1}-{2**64 - 1}"]
)
def test_ids_of_others_in_the_stream_stop_no_event(run: Callable[[Work], None], last: str) -> None:
    async def work(client: Redis) -> None:
        await client.xadd(STREAM, {"not": "ours"}, id=last)
        await Worker(client).events.publish([page(1), page(2)])
        found = [fields.get(b"id", b"").decode() for _, fields in await client.xrange(STREAM)]
        assert found[-2:] == [page(1).id, page(2).id]

    run(work)


def test_a_consumer_group_shares_the_events_and_takes_over_what_a_dead_consumer_had(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        await client.xgroup_create(STREAM, "index", id="0", mkstream=True)  # before there is any event
        batch = [page(n) for n in range(6)]
        await Worker(client).events.publish(batch)

        async def read(consumer: str, count: int) -> list[tuple[bytes, str]]:
            ((_, rows),) = await client.xreadgroup("index", consumer, {STREAM: ">"}, count=count)
            return [(entry, fields[b"id"].decode()) for entry, fields in rows]

        first, second = await read("a", 4), await read("b", 4)
        assert [event for _, event in first + second] == [event.id for event in batch]
        await client.xack(STREAM, "index", *[entry for entry, _ in first[:3]])  # then a dies
        _, taken, *_ = await client.xautoclaim(STREAM, "index", "b", min_idle_time=0, start_id="0")
        assert [fields[b"id"].decode() for _, fields in taken] == [event.id for event in batch[3:]]
        await client.xack(STREAM, "index", *[entry for entry, _ in taken])
        assert (await client.xpending(STREAM, "index"))["pending"] == 0

    run(work)


def test_a_consumer_that_is_slower_than_the_bound_loses_events_and_can_tell(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        worker = Worker(client, most=10)
        await client.xgroup_create(STREAM, "index", id="0", mkstream=True)
        await worker.events.publish([page(n) for n in range(5)])
        ((_, rows),) = await client.xreadgroup("index", "a", {STREAM: ">"}, count=5)
        await worker.events.publish([page(n) for n in range(5, 1000)])
        ((oldest, _),) = await client.xrange(STREAM, count=1)
        (group,) = await client.xinfo_groups(STREAM)
        assert _order(group["last-delivered-id"]) < _order(oldest)  # what was between is gone
        _, taken, *_ = await client.xautoclaim(STREAM, "index", "b", min_idle_time=0, start_id="0")
        assert [fields for _, fields in taken if fields] == []  # what it was given and did not acknowledge, too
        assert len(rows) == 5

    run(work)


def _order(entry: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry.split(b"-")))


def test_the_account_of_memory_names_the_stream(run: Callable[[Work], None]) -> None:
    async def work(client: Redis) -> None:
        worker = Worker(client)
        await worker.events.publish([page(n) for n in range(300)])
        account = await Accounts(Frontier(client, "web", 4, "looker")).walk()
        tally = account.kinds["events"]
        assert (tally.keys, tally.members) == (1, 300)
        assert 100 < tally.size_bytes / 300 < 1000

    run(work)
