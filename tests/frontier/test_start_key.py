"""Start URLs that others put into a key: taken in batches that outlive their worker, from a list, a set or a zset."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from redis.crc import key_slot
from rig import Rig, link

from crawlweb.errors import ConfigError, FrontierFull
from crawlweb.frontier import scripts
from crawlweb.frontier.rows import EXACT
from crawlweb.frontier.starts import Batch, Foreign, StartKey, beside, inbox

KEY = "web:start_urls"
LASTS_S = 60.0
PUT: dict[str, Callable[[Any, str, list[bytes]], Any]] = {
    "list": lambda client, key, entries: client.rpush(key, *entries),
    "set": lambda client, key, entries: client.sadd(key, *entries),
    "zset": lambda client, key, entries: client.zadd(key, {entry: -n for n, entry in enumerate(entries)}),
}
every_kind = pytest.mark.parametrize("kind", PUT)


@pytest.fixture
def rig(redis_url: str) -> Any:
    rig = Rig(redis_url, workers=3)
    yield rig
    rig.close()


def start_key(rig: Rig, worker: int = 0, kind: str = "", key: str = KEY) -> StartKey:
    return StartKey(rig.frontiers[worker], key, kind=kind)


def take(rig: Rig, key: StartKey, most: int = 100) -> Batch:
    taken = rig.run(key.take(most, LASTS_S))
    assert isinstance(taken, Batch)
    return taken


def urls(count: int, start: int = 0) -> list[bytes]:
    return [f"http://h{n}.org/".encode() for n in range(start, start + count)]


def our_keys(rig: Rig) -> list[bytes]:
    return [key for key in rig.dump() if b"start_urls" in key]


# -- the way of an entry -------------------------------------------------------------------------------------------------


@every_kind
def test_a_batch_is_taken_and_dropped(rig: Rig, kind: str) -> None:
    PUT[kind](rig.sync, KEY, urls(5))
    key = start_key(rig)
    first, second = take(rig, key, 3), take(rig, key, 3)
    assert (len(first.entries), len(second.entries), rig.sync.exists(KEY)) == (3, 2, 0)
    assert Counter(first.entries + second.entries) == Counter(urls(5))
    if kind != "set":
        assert first.entries + second.entries == urls(5), "first ones, or highest scores, first"
    assert rig.run(key.holds())
    assert [rig.run(key.drop(batch, {})) for batch in (first, second)] == [0, 0]
    assert (rig.run(key.take(3, LASTS_S)), rig.run(key.holds()), our_keys(rig)) == (None, False, [])


@every_kind
def test_a_worker_that_dies_with_a_batch_is_followed_by_another(rig: Rig, kind: str) -> None:
    PUT[kind](rig.sync, KEY, urls(4))
    dead, alive = start_key(rig, 0), start_key(rig, 1)
    batch = take(rig, dead)
    rig.later(round(LASTS_S * 1000) - 1)
    assert (rig.run(alive.take(9, LASTS_S)), rig.run(alive.holds())) == (None, True)
    rig.later(1)
    assert take(rig, alive) == batch
    assert rig.run(alive.take(9, LASTS_S)) is None, "it is in hand again"
    rig.run(alive.drop(batch, {}))
    assert our_keys(rig) == []


def test_a_worker_that_dies_after_the_frontier_has_its_batch_leaves_seeds_that_are_known(rig: Rig) -> None:
    rig.sync.rpush(KEY, *urls(2))
    take(rig, start_key(rig))
    links = [link(f"h{n}.org", how=EXACT) for n in range(2)]
    assert rig.enqueue(*links) == "nn"
    rig.later(round(LASTS_S * 1000))
    taken_over = take(rig, start_key(rig, 1))
    assert rig.enqueue(*links) == "ss"
    rig.run(start_key(rig, 1).drop(taken_over, {}))
    assert our_keys(rig) == []
    rig.check()


def test_a_batch_that_is_kept_is_not_taken_over(rig: Rig) -> None:
    rig.sync.rpush(KEY, *urls(1))
    slow, other = start_key(rig, 0), start_key(rig, 1)
    batch = take(rig, slow)
    for _ in range(5):
        rig.later(40_000)
        assert rig.run(other.take(9, LASTS_S)) is None
        rig.run(slow.keep(batch, LASTS_S))
    rig.run(slow.drop(batch, {}))
    rig.run(slow.keep(batch, LASTS_S))
    assert (rig.run(other.holds()), our_keys(rig)) == (False, []), "what is dropped cannot be kept"


def test_a_call_whose_answer_was_lost_gives_the_same_batch(rig: Rig) -> None:
    rig.sync.rpush(KEY, *urls(5))

    def call() -> Any:
        args = (beside(KEY, "t"), "", "take", "w0:1", 2, 60_000)
        return rig.run(scripts.run(rig.client, "starts", KEY, *args))

    assert call() == call() == [b"w0:1", urls(2)]
    assert rig.sync.llen(KEY) == 3


def test_workers_take_different_entries(rig: Rig) -> None:
    rig.sync.rpush(KEY, *urls(30))
    keys = [start_key(rig, n) for n in range(3)]
    taken = [take(rig, keys[n % 3], 4) for n in range(8)]
    assert Counter(entry for batch in taken for entry in batch.entries) == Counter(urls(30))
    assert len({batch.name for batch in taken}) == 8


def test_crawls_take_from_one_key_and_never_each_others_batches(rig: Rig) -> None:
    rig.sync.rpush(KEY, *urls(2))
    take(rig, start_key(rig), 1)
    rig.frontiers[1].crawl = "other"
    rig.later(round(LASTS_S * 2000))
    assert take(rig, start_key(rig, 1)).entries == urls(1, 1)
    assert take(rig, start_key(rig)).entries == urls(1)


@every_kind
def test_nothing_is_lost_whatever_happens_when(rig: Rig, kind: str) -> None:
    """Entries are in the key, in a batch, in quarantine, or were dropped as good, each in one place; in the end all were dropped."""
    rng = random.Random(kind)
    keys = [start_key(rig, n) for n in range(3)]
    hands: list[tuple[StartKey, Batch]] = []
    good: set[bytes] = set()
    put: list[bytes] = []

    def places() -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for key, members in rig.dump().items():
            if key == KEY.encode() or b":batch:" in key:
                found.update(entry if isinstance(entry, bytes) else entry[0] for entry in members)
        return found

    for step in range(120):
        what = rng.randrange(6)
        if what == 0:
            new = urls(rng.randrange(1, 9), len(put))
            PUT[kind](rig.sync, KEY, new)
            put += new
        elif what in (1, 2):
            key = rng.choice(keys)
            taken = rig.run(key.take(rng.randrange(1, 6), LASTS_S))
            if isinstance(taken, Batch):
                hands.append((key, taken))
        elif what == 3 and hands:
            key, batch = hands.pop(rng.randrange(len(hands)))
            rig.run(key.drop(batch, {}))
            good.update(e for e in batch.entries if isinstance(e, bytes))
        elif what == 4 and hands:
            hands.pop(rng.randrange(len(hands)))  # its worker dies
        elif what == 5:
            rig.later(rng.choice((1_000, 30_000, 60_000)))
        there = places()
        assert max(there.values(), default=1) == 1, step
        assert set(there) | good == set(put), step
    rig.later(round(LASTS_S * 1000))
    while isinstance(taken := rig.run(keys[0].take(50, LASTS_S)), Batch):
        rig.run(keys[0].drop(taken, {}))
        good.update(e for e in taken.entries if isinstance(e, bytes))
    assert (good, our_keys(rig)) == (set(put), [])


# -- what is not ours ----------------------------------------------------------------------------------------------------


def test_bad_entries_go_to_quarantine_once(rig: Rig) -> None:
    rig.sync.rpush(KEY, b"http://a.org/", b"\xff", b"no\turl")
    key = start_key(rig)
    batch = take(rig, key)
    assert rig.run(key.drop(batch, {1: "not utf-8", 2: "not\n a URL", 7: "of no entry"})) == 2
    assert rig.sync.lrange(key.quarantine, 0, -1) == [b"not a URL\tno\turl", b"not utf-8\t\xff"]
    assert rig.run(key.drop(batch, {1: "not utf-8"})) == 0, "by a worker that had lost it"
    assert rig.sync.llen(key.quarantine) == 2
    assert not rig.run(key.holds())


def test_an_entry_that_is_too_long_is_told_by_its_length(rig: Rig) -> None:
    rig.sync.rpush(KEY, b"x" * 65_536, b"y" * 65_537, b"z" * 3_000_000, *urls(7), b"http://a.org/")
    key = start_key(rig)
    batch = take(rig, key)
    assert batch.entries[:3] == [b"x" * 65_536, 65_537, 3_000_000]
    assert len(batch.entries) == 10, "a batch ends where it gets large"
    rig.run(key.drop(batch, {1: "65537 bytes"}))
    assert rig.sync.lrange(key.quarantine, 0, -1) == [b"65537 bytes\t" + b"y" * 65_537]
    assert take(rig, key).entries == [b"http://a.org/"]


@pytest.mark.parametrize("kind", ["string", "hash", "stream", *PUT])
@pytest.mark.parametrize("wanted", ["", "set", "zset"])
def test_a_key_of_another_type_is_told_and_left_alone(rig: Rig, kind: str, wanted: str) -> None:
    put = {
        "string": lambda: rig.sync.set(KEY, "x"),
        "hash": lambda: rig.sync.hset(KEY, "a", "b"),
        "stream": lambda: rig.sync.xadd(KEY, {"a": "b"}),
    }
    put.get(kind, lambda: PUT[kind](rig.sync, KEY, urls(1)))()
    key, fits = start_key(rig, kind=wanted), kind in PUT and wanted in ("", kind)
    before = rig.sync.dump(KEY)
    taken = rig.run(key.take(5, LASTS_S))
    if fits:
        assert isinstance(taken, Batch)
    else:
        assert (taken, rig.sync.dump(KEY), rig.sync.keys("*taken")) == (Foreign(KEY, kind), before, [])
    assert rig.run(key.holds()) is fits, "the crawl's end does not wait for what nobody can take"


def test_batches_of_dead_workers_are_taken_over_whatever_the_key_has_become(rig: Rig) -> None:
    rig.sync.rpush(KEY, *urls(1))
    take(rig, start_key(rig))
    rig.sync.set(KEY, "x")
    rig.later(round(LASTS_S * 1000))
    assert take(rig, start_key(rig, 1)).entries == urls(1)


@pytest.mark.parametrize("name", ["taken", "batch:w0:1", "quarantine"])
def test_keys_of_another_type_beside_it_stop_nothing(rig: Rig, name: str) -> None:
    rig.sync.rpush(KEY, *urls(2))
    key = start_key(rig)
    ours = key.prefix + name
    rig.sync.set(ours, "x")
    first = rig.run(key.take(1, LASTS_S))
    if name == "quarantine":
        assert isinstance(first, Batch)
        assert rig.run(key.drop(first, {0: "bad"})) == 1
        assert rig.sync.lrange(ours, 0, -1) == [b"bad\t" + urls(1)[0]]
        assert [rig.sync.get(name) for name in rig.sync.keys(key.prefix + "foreign:*")] == [b"x"]
    else:
        assert (first, rig.sync.get(ours)) == (Foreign(ours, "string"), b"x")
        assert rig.sync.llen(KEY) == 2


def test_a_batch_that_is_gone_is_forgotten(rig: Rig) -> None:
    rig.sync.zadd(beside(KEY, "t") + "taken", {f"nobody:{n}": n for n in range(25)})
    rig.sync.rpush(KEY, *urls(1))
    assert take(rig, start_key(rig)).entries == urls(1)
    for _ in range(3):
        rig.run(start_key(rig, 1).take(1, LASTS_S))
    assert rig.sync.zcard(beside(KEY, "t") + "taken") == 1


def test_a_full_redis_gives_nothing_and_takes_what_is_done(rig: Rig) -> None:
    rig.sync.rpush(KEY, *urls(4))
    key = start_key(rig)
    batch = take(rig, key, 2)
    rig.sync.config_set("maxmemory", 1)
    try:
        before = rig.dump()
        with pytest.raises(FrontierFull):
            rig.run(key.take(2, LASTS_S))
        assert rig.dump() == before
        assert rig.run(key.drop(batch, {1: "bad"})) == 1
    finally:
        rig.sync.config_set("maxmemory", 0)
    assert (rig.sync.llen(KEY), rig.sync.llen(key.quarantine)) == (2, 1)


# -- names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [KEY, "{web}:start_urls", "a{b", "a{b}c{d}", "é:start", "x y", "{{a}b"])
def test_what_lies_beside_a_key_lies_in_its_slot(key: str) -> None:
    prefix = beside(key, "crawl")
    assert {key_slot(f"{prefix}{name}".encode()) for name in ("taken", "batch:w:1", "quarantine")} == {key_slot(key.encode())}


@pytest.mark.parametrize("key", ["a}b", "a{}b", "}", "{}"])
def test_a_key_that_nothing_can_lie_beside_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="REDIS_START_URLS_KEY="):
        beside(key, "crawl")


def test_what_lies_beside_the_inbox_has_its_name(rig: Rig) -> None:
    rig.sync.rpush("{t}:inbox", *urls(1))
    batch = take(rig, inbox(rig.f))
    assert sorted(rig.dump()) == [b"{t}:inbox:batch:" + batch.name.encode(), b"{t}:inbox:taken"]
