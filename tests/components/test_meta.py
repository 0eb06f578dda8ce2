"""What belongs to the whole crawl, with several workers at the same moment."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis
from redis.asyncio import Redis

from crawlweb.errors import ConfigError
from crawlweb.frontier import meta as module
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.keys import SCHEMA
from crawlweb.frontier.meta import Agreed, Meta, Room

FIRST = {"partitions": "64", "min_delay_s": "1", "scope": "any"}
NAMED = {"partitions": "CRAWLWEB_PARTITIONS", "min_delay_s": "CRAWLWEB_MIN_DELAY_S", "scope": "scope"}
LEASE_S = 60.0


def run(url: str, work: Callable[..., Awaitable[None]], workers: int = 1, crawl: str = "t") -> None:
    """`work` gets a Meta for each worker, each with a client of its own."""

    async def main() -> None:
        clients = [Redis.from_url(url) for _ in range(workers)]
        try:
            await work(*(Meta(Frontier(client, crawl, 1, f"w{n}")) for n, client in enumerate(clients)))
        finally:
            for client in clients:
                await client.aclose()

    asyncio.run(main())


def raw(url: str) -> redis.Redis:
    return redis.Redis.from_url(url)


def keys(count: int, start: int = 0) -> list[bytes]:
    return [n.to_bytes(16, "little") for n in range(start, start + count)]


# -- agreement -----------------------------------------------------------------------------------------------------------


def test_the_first_worker_writes_and_later_ones_take(redis_url: str) -> None:
    async def work(first: Meta, second: Meta) -> None:
        assert await first.agree(FIRST, {}) == {"schema": str(SCHEMA), **FIRST}
        # Defaults that nobody typed give way.
        assert await second.agree({**FIRST, "partitions": "1024", "min_delay_s": "5"}, {}) == {"schema": str(SCHEMA), **FIRST}
        # What was typed and is the same is no contradiction; explicit names without a value are none either.
        assert await second.agree(FIRST, NAMED) == {"schema": str(SCHEMA), **FIRST}

    run(redis_url, work, 2)
    with raw(redis_url) as client:
        assert client.hget("{t}:meta", "partitions") == b"64"


@pytest.mark.parametrize(("name", "value"), [("partitions", "1024"), ("min_delay_s", "0.5"), ("scope", "domain")])
def test_a_contradiction_names_both_values_and_writes_nothing(redis_url: str, name: str, value: str) -> None:
    async def work(first: Meta, second: Meta) -> None:
        await first.agree(FIRST, NAMED)
        with raw(redis_url) as client:
            before = client.hgetall("{t}:meta"), sorted(client.keys())
            with pytest.raises(ConfigError) as refused:
                await second.agree({**FIRST, name: value, "new": "x"}, NAMED)
            assert str(refused.value) == f"{NAMED[name]}={value}: the crawl 't' was begun with {FIRST[name]}"
            assert (client.hgetall("{t}:meta"), sorted(client.keys())) == before

    run(redis_url, work, 2)


def test_a_value_that_a_later_release_adds_is_added(redis_url: str) -> None:
    async def work(first: Meta, second: Meta) -> None:
        await first.agree(FIRST, {})
        assert await second.agree({**FIRST, "ip_delay_s": "0.5"}, {}) == {"schema": str(SCHEMA), **FIRST, "ip_delay_s": "0.5"}
        assert (await first.agree(FIRST, {}))["ip_delay_s"] == "0.5"

    run(redis_url, work, 2)


def test_what_older_releases_did_without_saying_so_is_a_value_of_the_crawl(redis_url: str) -> None:
    mode = {"seen": "exact"}

    async def work(first: Meta, second: Meta) -> None:
        await first.agree(FIRST, {})  # an older release
        with pytest.raises(ConfigError, match="CRAWLWEB_SEEN=exact: the crawl 't' was begun with bloom"):
            await second.agree({**FIRST, **mode}, {"seen": "CRAWLWEB_SEEN"})
        assert (await second.agree({**FIRST, **mode, "new": "x"}, {}))["seen"] == "bloom"
        assert (await first.agree({**FIRST, "seen": "bloom"}, {"seen": "CRAWLWEB_SEEN"}))["seen"] == "bloom"

    run(redis_url, work, 2)
    with raw(redis_url) as client:
        assert client.hget("{t}:meta", "seen") == b"bloom"


def test_another_schema_is_refused_though_nobody_typed_it(redis_url: str) -> None:
    with raw(redis_url) as client:
        client.hset("{t}:meta", "schema", str(SCHEMA + 1))

    async def work(meta: Meta) -> None:
        with pytest.raises(
            ConfigError, match=f"the crawl 't' has schema '{SCHEMA + 1}'; this release reads schema {SCHEMA}: .*crawlweb purge t"
        ):
            await meta.agree(FIRST, {})

    run(redis_url, work)


@pytest.mark.parametrize(
    ("have", "says"),
    [
        ({"schema": "1"}, "has schema '1'; this release reads schema"),
        ({"schema": "3", "release": "0.9.0"}, "has schema '3' of crawlweb '0.9.0'; this release reads schema"),
        ({"schema": "two"}, "has schema 'two'"),
        ({"schema": ""}, "has schema ''"),
        ({"schema": "\x00\n" * 100}, "has schema '\\x00"),
        ({"partitions": "64"}, "has a meta key without schema"),
    ],
)
def test_a_crawl_of_another_schema_is_refused_in_one_line_that_says_what_to_do(redis_url: str, have: dict[str, str], says: str) -> None:
    with raw(redis_url) as client:
        client.hset("{t}:meta", mapping=have)
        before = client.hgetall("{t}:meta")

        async def work(meta: Meta) -> None:
            for ask in (meta.agreed(), meta.agree(FIRST, {})):
                with pytest.raises(ConfigError) as refused:
                    await ask
                text = str(refused.value)
                assert (says in text, "crawlweb purge t" in text, "\n" in text, len(text) < 400) == (True, True, False, True)
            assert client.hgetall("{t}:meta") == before

        run(redis_url, work)


NO_VALUES = {
    "partitions": ["abc", "-1", "0", "", "1.5", "99999999999", "9" * 5000, "\u0664", "65537", "64 "],
    "min_delay_s": ["", "soon", "-1", "nan", "inf", "1e999"],
    "latency_factor": ["x", "-0.1"],
    "ip_delay_s": ["-5", "None"],
    "seen": ["", "cuckoo", "Bloom"],
    "false_positives": ["0", "2", "x", "nan"],
    "scope": ["", "site"],
    "max_pages": ["0", "-1", "many", "1e3"],
    "max_depth": ["-1", "deep"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NO_VALUES.items() for value in values])
def test_a_value_that_cannot_be_read_is_named_in_one_line(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Agreed.read("t", {"schema": str(SCHEMA), "partitions": "64", name: value})
    text = str(refused.value)
    assert (f"{name}={value[:40]!r}" in text, "{t}:meta" in text, "\n" in text, len(text) < 300) == (True, True, False, True)


def test_partitions_are_never_guessed() -> None:
    with pytest.raises(ConfigError, match="partitions=''"):
        Agreed.read("t", {"schema": str(SCHEMA)})


def test_what_was_agreed_is_read(redis_url: str) -> None:
    wanted = {"partitions": "7", "min_delay_s": "0.25", "seen": "exact", "scope": "host", "max_pages": "5", "max_depth": ""}

    async def work(meta: Meta) -> None:
        assert await meta.agreed() is None
        await meta.agree(wanted, {})
        assert await meta.agreed() == Agreed(partitions=7, min_delay_s=0.25, seen="exact", scope="host", max_pages=5)

    run(redis_url, work)


def test_bytes_that_are_no_text_are_refused_too(redis_url: str) -> None:
    with raw(redis_url) as client:
        client.hset("{t}:meta", mapping={"schema": str(SCHEMA), "partitions": b"\xff\xfe", b"\x80": b"\x81"})

    async def work(meta: Meta) -> None:
        with pytest.raises(ConfigError, match="partitions="):
            await meta.agreed()

    run(redis_url, work)


def test_crawls_in_one_redis_do_not_meet(redis_url: str) -> None:
    async def one(meta: Meta) -> None:
        await meta.agree(FIRST, {})
        await meta.widen_scope(["a.org"])
        await meta.say_seeding(True)
        await meta.permits(1, keys(1))

    async def other(meta: Meta) -> None:
        assert (await meta.agree({**FIRST, "partitions": "2"}, NAMED))["partitions"] == "2"
        await meta.refresh_scope()
        assert meta.scope == set()
        assert not await meta.anyone_seeding()
        assert letters(await meta.permits(1, keys(1, 5))) == "y"

    run(redis_url, one, crawl="t")
    run(redis_url, other, crawl="t2")


class Together:
    """A client whose first reads of the meta hash wait until all workers have read."""

    def __init__(self, client: Any, barrier: Callable[[], Awaitable[None]]) -> None:
        self._client, self._barrier, self._waited = client, barrier, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def hgetall(self, name: str) -> Any:
        answer = await self._client.hgetall(name)
        if not self._waited:
            self._waited = True
            await self._barrier()
        return answer


def together(metas: tuple[Meta, ...]) -> None:
    met, left = asyncio.Event(), [len(metas)]

    async def barrier() -> None:
        left[0] -= 1
        if not left[0]:
            met.set()
        await met.wait()

    for meta in metas:
        meta._redis = Together(meta._redis, barrier)  # type: ignore[assignment]


def test_two_first_workers_at_the_same_moment_agree_on_one_set_of_values(redis_url: str) -> None:
    async def work(*metas: Meta) -> None:
        together(metas)
        wanted = [{name: f"{name}-{n}" for name in FIRST} for n in range(len(metas))]
        answers = await asyncio.gather(*(meta.agree(values, {}) for meta, values in zip(metas, wanted, strict=True)))
        assert len({tuple(sorted(answer.items())) for answer in answers}) == 1
        # All values are one worker's: none of one and one of the other.
        assert {k: v for k, v in answers[0].items() if k != "schema"} in wanted

    run(redis_url, work, 4)


def test_of_two_first_workers_that_contradict_each_other_one_starts(redis_url: str) -> None:
    async def work(*metas: Meta) -> None:
        together(metas)
        answers = await asyncio.gather(
            *(meta.agree({**FIRST, "partitions": str(n)}, NAMED) for n, meta in enumerate(metas, 1)), return_exceptions=True
        )
        started = [answer for answer in answers if isinstance(answer, dict)]
        refused = [answer for answer in answers if isinstance(answer, ConfigError)]
        assert (len(started), len(refused)) == (1, len(metas) - 1)
        assert all(f"begun with {started[0]['partitions']}" in str(error) for error in refused)

    run(redis_url, work, 3)


# -- seeding -------------------------------------------------------------------------------------------------------------


def test_seeding_is_known_until_every_worker_has_ended_it(redis_url: str) -> None:
    async def work(first: Meta, second: Meta) -> None:
        assert not await first.anyone_seeding()
        await first.say_seeding(True)
        await first.say_seeding(True)
        await second.say_seeding(True)
        await first.say_seeding(False)
        assert await first.anyone_seeding()
        await second.say_seeding(False)
        await second.say_seeding(False)
        assert not await first.anyone_seeding()

    run(redis_url, work, 2)


def test_the_word_of_a_worker_that_died_expires(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(died: Meta, other: Meta) -> None:
        monkeypatch.setattr(module, "SEEDING_S", -2.0)  # it said so a while ago
        await died.say_seeding(True)
        assert not await other.anyone_seeding()
        monkeypatch.undo()
        await died.say_seeding(True)
        assert await other.anyone_seeding()

    run(redis_url, work, 2)


# -- scope ---------------------------------------------------------------------------------------------------------------


def test_what_one_worker_s_seeds_add_reaches_the_others(redis_url: str) -> None:
    async def work(first: Meta, second: Meta) -> None:
        await first.widen_scope(f"h{n}.org" for n in range(2500))
        assert second.scope == set()
        await second.refresh_scope()
        assert second.scope == first.scope == {f"h{n}.org" for n in range(2500)}
        await second.widen_scope(["h1.org", "new.org"])
        await first.refresh_scope()
        assert "new.org" in first.scope
        await first.refresh_scope()
        assert first.scope == second.scope

    run(redis_url, work, 2)


def test_the_scope_is_not_read_again_while_it_is_the_same(redis_url: str) -> None:
    async def work(first: Meta, second: Meta) -> None:
        await first.widen_scope(["a.org"])
        await second.refresh_scope()
        with raw(redis_url) as client:
            client.config_resetstat()
            await second.refresh_scope()
            assert "cmdstat_sscan" not in client.info("commandstats")

    run(redis_url, work, 2)


def test_two_workers_that_widen_at_once_find_each_other_s_names(redis_url: str) -> None:
    """What a worker knows is always a part of what Redis has, so the sizes tell."""

    async def work(first: Meta, second: Meta) -> None:
        await first.widen_scope(["a.org"])
        await second.widen_scope(["b.org"])
        for meta in (first, second):
            await meta.refresh_scope()
            assert meta.scope == {"a.org", "b.org"}

    run(redis_url, work, 2)


# -- max_pages -----------------------------------------------------------------------------------------------------------


def letters(room: Room) -> str:
    return "".join("y" if ok else "n" for ok in room.allowed)


def hurry(client: redis.Redis, name: str, seconds: float) -> None:
    """Members of a zset expire so much earlier."""
    for member, at in client.zrange(f"{{t}}:{name}", 0, -1, withscores=True):
        client.zadd(f"{{t}}:{name}", {member: at - 1000 * seconds})


def test_permits_are_given_up_to_the_limit_and_once_a_url(redis_url: str) -> None:
    async def work(meta: Meta) -> None:
        assert await meta.permits(3, keys(5)) == Room([True, True, True, False, False], 0, 0, 0)
        assert letters(await meta.permits(3, keys(5))) == "yyynn"  # leased again: it has one
        assert await meta.spend(3, keys(2)) == Room([True, True], 2, 2, 0)
        assert await meta.end_pages(3, keys(2), keys(1, 2)) == Room([False], 2, 0, 1)
        assert await meta.permits(3, keys(2, 3)) == Room([True, False], 2, 0, 0)
        assert await meta.spend(3, keys(1, 3)) == Room([True], 3, 1, 0)
        assert letters(await meta.permits(3, keys(1, 9))) == "n"
        assert letters(await meta.permits(3, keys(2))) == "yy"  # pages that count, leased again after a crash

    run(redis_url, work)


def test_a_page_counts_once_however_often_it_is_spent(redis_url: str) -> None:
    async def work(first: Meta, second: Meta) -> None:
        await first.permits(3, keys(1))
        for meta in (first, first, second):
            assert await meta.spend(3, keys(1) * 2) == Room([True, True], 1, 1, 2)
        await second.end_pages(3, [], keys(1))  # a permit given back late takes no page back
        assert (await second.permits(3, [])) == Room([], 1, 1, 2)

    run(redis_url, work, 2)


def test_who_was_stopped_past_its_permit_stores_nothing_if_others_took_the_room(redis_url: str) -> None:
    async def work(stopped: Meta, other: Meta) -> None:
        assert letters(await stopped.permits(2, keys(2))) == "yy"
        assert letters(await other.permits(2, keys(1, 5))) == "n"
        with raw(redis_url) as client:
            hurry(client, "permits", LEASE_S)
        assert letters(await other.permits(2, keys(1, 5))) == "y"
        assert letters(await other.spend(2, keys(1, 5))) == "y"
        assert letters(await stopped.spend(2, keys(2))) == "yn", "there was room for one of them"
        assert letters(await stopped.spend(2, keys(2))) == "yn"
        with raw(redis_url) as client:
            assert client.scard("{t}:pages") == 2

    run(redis_url, work, 2)


def test_of_two_without_a_permit_one_gets_the_last_page(redis_url: str) -> None:
    async def work(*metas: Meta) -> None:
        rooms = await asyncio.gather(*(meta.spend(1, keys(1, n)) for n, meta in enumerate(metas)))
        assert sorted(letters(room) for room in rooms) == ["n", "y"]

    run(redis_url, work, 2)


def test_a_permit_held_by_another_is_no_room(redis_url: str) -> None:
    async def work(holder: Meta, other: Meta) -> None:
        await holder.permits(1, keys(1))
        assert letters(await other.spend(1, keys(1, 1))) == "n"
        assert letters(await holder.spend(1, keys(1))) == "y"

    run(redis_url, work, 2)


def test_a_worker_killed_before_it_spent_leaves_room_when_its_permit_is_over(redis_url: str) -> None:
    async def work(died: Meta, other: Meta) -> None:
        await died.permits(1, keys(1))
        assert (await other.permits(1, keys(1, 1))).free == 0
        assert letters(await other.permits(1, keys(1))) == "y", "whoever gets the URL has its permit"
        with raw(redis_url) as client:
            hurry(client, "permits", LEASE_S)
        assert letters(await other.permits(1, keys(1, 1))) == "y"

    run(redis_url, work, 2)


def test_a_page_of_a_worker_killed_after_it_spent_is_open_until_another_has_completed_it(redis_url: str) -> None:
    async def work(died: Meta, other: Meta) -> None:
        await died.permits(1, keys(1))
        await died.spend(1, keys(1))
        assert await other.permits(1, keys(1, 1)) == Room([False], 1, 1, 0)
        with raw(redis_url) as client:
            hurry(client, "permits", LEASE_S)
            hurry(client, "open", LEASE_S)
        assert await other.permits(1, keys(1)) == Room([True], 1, 1, 0)
        assert await other.spend(1, keys(1)) == Room([True], 1, 1, 0)
        assert await other.end_pages(1, keys(1), []) == Room([False], 1, 0, 0)

    run(redis_url, work, 2)


def test_nobody_waits_for_ever_for_a_page_that_does_not_come_back(redis_url: str) -> None:
    async def work(died: Meta, other: Meta) -> None:
        await died.spend(1, keys(1))
        with raw(redis_url) as client:
            hurry(client, "open", module.OPEN_S)
        assert await other.permits(1, []) == Room([], 1, 0, 0), "it counts all the same"

    run(redis_url, work, 2)


def test_a_permit_lasts_as_long_as_a_lease_and_is_renewed_by_asking(redis_url: str) -> None:
    async def work(meta: Meta) -> None:
        with raw(redis_url) as client:
            for _ in range(2):
                await meta.permits(1, keys(1))
                seconds, micros = client.time()
                left = client.zscore("{t}:permits", keys(1)[0][:8]) / 1000 - seconds - micros / 1e6
                assert LEASE_S - 5 < left <= LEASE_S + 0.01
                hurry(client, "permits", 10)

    run(redis_url, work)


def test_a_server_that_lost_its_last_second_is_told_again_what_was_spent(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(meta: Meta) -> None:
        now = [1000.0]
        monkeypatch.setattr(module, "boottime", lambda: now[0])
        await meta.spend(9, keys(2))
        now[0] += 6
        await meta.spend(9, keys(2, 2))
        now[0] += 3600  # the server was away for so long
        with raw(redis_url) as client:
            client.delete("{t}:pages", "{t}:open", "{t}:permits")
            for _ in range(2):
                assert await meta.replay(9) == Room([True, True], 2, 2, 7)
                assert client.smembers("{t}:pages") == {key[:8] for key in keys(2, 2)}
            client.delete("{t}:pages")
            assert (await meta.replay(1)).stored == 2, "they are stored, whoever took the room meanwhile"

    run(redis_url, work)


def test_a_server_that_lost_its_last_second_is_told_again_which_pages_are_complete(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(meta: Meta) -> None:
        now = [1000.0]
        monkeypatch.setattr(module, "boottime", lambda: now[0])
        await meta.spend(3, keys(3))
        await meta.end_pages(3, keys(2), [])
        with raw(redis_url) as client:
            client.delete("{t}:pages", "{t}:open")
        meta.server_changed()
        now[0] += 60
        await meta.spend(3, keys(1, 3))  # what is answered first does not make us forget
        await meta.end_pages(3, [], [])
        room = await meta.replay(3)
        assert (room.stored, room.unfinished) == (4, 2), "the third of before, and the new one"

    run(redis_url, work)


def test_more_keys_than_fit_into_a_call_are_asked_for_in_several(redis_url: str) -> None:
    async def work(meta: Meta) -> None:
        room = await meta.permits(2500, keys(3000))
        assert letters(room) == "y" * 2500 + "n" * 500
        assert room.free == 0

    run(redis_url, work)


def test_concurrent_workers_never_store_more_than_max_pages(redis_url: str) -> None:
    most = 37

    async def work(*metas: Meta) -> None:
        rng = random.Random(11)
        stored: set[bytes] = set()

        async def fetch(meta: Meta, urls: list[bytes]) -> None:
            while urls:
                some, urls = urls[:4], urls[4:]
                may = [url for url, ok in zip(some, (await meta.permits(most, some)).allowed, strict=True) if ok or rng.random() < 0.1]
                await asyncio.sleep(0)
                pages = [url for url in may if rng.random() < 0.7]
                allowed = (await meta.spend(most, pages)).allowed if pages else []
                stored.update(url for url, ok in zip(pages, allowed, strict=True) if ok)
                await meta.end_pages(most, pages, [url for url in may if url not in pages])

        urls = keys(400)
        rng.shuffle(urls)
        await asyncio.gather(*(fetch(meta, urls[n :: len(metas)]) for n, meta in enumerate(metas)))
        assert len(stored) == most
        assert await metas[0].permits(most, keys(1, 999)) == Room([False], most, 0, 0)

    run(redis_url, work, 6)


WORKER = """
import asyncio, random, sys
from redis.asyncio import Redis
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import Limits

async def main(url, seed, most):
    meta, rng = Meta(Frontier(Redis.from_url(url), "t", 1, f"p{seed}", Limits(lease_s=0.2))), random.Random(seed)
    print("ready", flush=True)
    stored = 0
    while stored < most:
        keys = [rng.randrange(10**6).to_bytes(16, "little") for _ in range(3)]
        allowed, stored, _, _ = await meta.permits(most, keys)
        await meta.spend(most, [key for key, ok in zip(keys, allowed) if ok and rng.random() < 0.8])

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


def test_killed_workers_leave_no_permit_for_ever_and_no_page_too_many(redis_url: str) -> None:
    """Two processes, killed in turn and replaced, until the limit is reached: permits of the killed expire."""
    most, rng = 300, random.Random(3)

    def start(seed: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", WORKER, redis_url, str(seed), str(most)], stdout=subprocess.PIPE)
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        return process

    def end(process: subprocess.Popen[bytes], kill: bool) -> None:
        if kill:
            process.kill()  # if it has not ended by itself
        assert process.stdout
        process.stdout.read()
        process.stdout.close()
        process.wait(20)

    with raw(redis_url) as client:
        for seed in range(3):
            target, process = client.scard("{t}:pages") + rng.randrange(10, 60), start(seed)
            while process.poll() is None and client.scard("{t}:pages") < target:
                assert client.scard("{t}:pages") + client.zcard("{t}:permits") <= most
            end(process, kill=True)
        last = start(9)
        end(last, kill=False)
        assert last.returncode == 0
        assert client.scard("{t}:pages") == most
