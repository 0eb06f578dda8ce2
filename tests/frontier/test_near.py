"""The index of fingerprints in a real Redis: who meets whom, at the same moment too, how it grows, what falls out, what is not ours."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import msgpack
import pytest
import redis
from rig import Rig, hosts_in, url_key

from crawlweb.frontier import near
from crawlweb.frontier.accounts import Accounts
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.keys import KEYS, is_key_of, near_shard_key, near_shards
from crawlweb.frontier.near import NearIndex, parts_of, simhash_tables
from crawlweb.records import Copy, Fingerprint, Match, PageRecord

VOTES_LEAST = 5
BANDS = 16
TAG = "{t:near:0}:"


class Records(dict[tuple[int, bytes], PageRecord]):
    """Page records as the frontier would read them."""

    async def read(self, places: Sequence[tuple[int, bytes]]) -> list[PageRecord | None]:
        return [self.get(place) for place in places]


def prints(seed: int, **more: Any) -> Fingerprint:
    rng = random.Random(seed)
    values: dict[str, Any] = {
        "body_hash": rng.randbytes(8),
        "text_hash": rng.randbytes(8),
        "simhash": rng.getrandbits(64),
        "bands": tuple(rng.getrandbits(64) for _ in range(BANDS)),
    }
    return Fingerprint(**{**values, **more})


def page(name: str, fingerprint: Fingerprint, host: str = "") -> Copy:
    host = host or f"{name}.org"
    url = f"https://{host}/{name}"
    return Copy(url, url_key(url), host, 1000.0, fingerprint)


def near_bands(of: Fingerprint, shared: int, seed: int) -> tuple[int, ...]:
    return of.bands[:shared] + prints(seed).bands[shared:]


def index_of(rig: Rig, records: Records | None = None, frontier: Frontier | None = None, **more: Any) -> NearIndex:
    options = {"pages": 10_000, "votes_least": VOTES_LEAST, **more}
    return NearIndex(frontier or rig.f, (Records() if records is None else records).read, **options)


def names(matches: Sequence[Match]) -> list[tuple[str, str]]:
    return [(match.copy.url.rpartition("/")[2], match.kind) for match in matches]


def look_up(rig: Rig, index: NearIndex, *pages: Copy) -> list[list[tuple[str, str]]]:
    return [names(some) for some in rig.run(index.look_up(pages))]


OLD = prints(1)
assert OLD.simhash is not None
BITS_3, BITS_4 = 0b1001 | 1 << 40, 0b1001 | 1 << 40 | 1 << 63


@pytest.mark.parametrize(
    ("kinds", "new", "met"),
    [
        (("minhash", "simhash"), prints(2), []),
        (("minhash", "simhash"), prints(2, body_hash=OLD.body_hash, simhash=None), [("old", "exact")]),
        (("minhash", "simhash"), prints(2, body_hash=OLD.body_hash, simhash=OLD.simhash ^ BITS_3), [("old", "near")]),
        (("minhash", "simhash"), Fingerprint(OLD.body_hash), [("old", "exact")]),
        ((), prints(2, text_hash=OLD.text_hash, simhash=OLD.simhash), [("old", "exact")]),
        ((), prints(2, simhash=OLD.simhash, bands=OLD.bands), []),
        (("simhash",), prints(2, bands=OLD.bands), []),
        (("simhash",), prints(2, simhash=OLD.simhash), [("old", "near")]),
        (("simhash",), prints(2, simhash=OLD.simhash ^ BITS_3), [("old", "near")]),
        (("simhash",), prints(2, simhash=OLD.simhash ^ BITS_4), []),
        (("minhash",), prints(2, bands=near_bands(OLD, 5, 2), simhash=None), [("old", "near")]),
        (("minhash",), prints(2, bands=near_bands(OLD, 4, 2), simhash=None), []),
        (("minhash",), prints(2, simhash=OLD.simhash), []),
        (("minhash", "simhash"), Fingerprint(b""), []),
    ],
)
def test_a_page_meets_the_known_page_that_has_its_content(rig: Rig, kinds: Any, new: Fingerprint, met: list[Any]) -> None:
    index = index_of(rig, kinds=kinds)
    assert look_up(rig, index, page("stranger", prints(3)), page("old", OLD)) == [[], []]
    assert look_up(rig, index, page("new", new)) == [met]


def test_pages_of_one_call_meet_the_earlier_ones(rig: Rig) -> None:
    pages = [page(name, OLD) for name in "abc"]
    met = look_up(rig, index_of(rig), *pages)
    assert [sorted(names) for names in met] == [[], [("a", "exact")], [("a", "exact"), ("b", "exact")]]


@pytest.mark.parametrize("partitions", [1, 1024])
def test_a_repeated_call_answers_the_same_and_puts_in_nothing(redis_url: str, partitions: int) -> None:
    rig = Rig(redis_url, partitions)
    try:
        index = index_of(rig)
        look_up(rig, index, *(page(name, OLD) for name in "abcdef"))
        first = look_up(rig, index, page("new", OLD))
        before = rig.dump()
        assert look_up(rig, index, page("new", OLD)) == first
        assert rig.dump() == before
    finally:
        rig.close()


def test_a_call_whose_answer_was_lost_is_repeated(rig: Rig) -> None:
    class Losing:
        lost = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(rig.client, name)

        async def execute_command(self, *args: Any) -> Any:
            answer = await rig.client.execute_command(*args)
            if args[0] == "EVALSHA" and not self.lost:
                self.lost += 1
                raise redis.exceptions.ConnectionError("lost on the way")
            return answer

    look_up(rig, index_of(rig), page("a", OLD))
    losing = Losing()
    index = index_of(rig, frontier=Frontier(losing, "t", 1, "w"))  # type: ignore[arg-type]
    assert look_up(rig, index, page("b", OLD)) == [[("a", "exact")]]
    assert losing.lost == 1


def test_a_page_that_is_fetched_again_does_not_meet_itself_and_is_young_again(rig: Rig) -> None:
    index = index_of(rig, kinds=())
    body = Fingerprint(OLD.body_hash)
    look_up(rig, index, page("again", body), *(page(f"p{n}", body) for n in range(6)))
    assert ("again", "exact") not in look_up(rig, index, page("again", body))[0]
    for n in range(6):
        look_up(rig, index, page(f"q{n}", body))
    names_in_set = {entry[4:] for entry in entries(rig, "exact:body", 14)}
    assert index.doc_of(page("again", body)) in names_in_set
    assert index.doc_of(page("p0", body)) not in names_in_set  # eight ways: the six new ones, `again` and the youngest of the others


def entries(rig: Rig, table: str, width: int) -> list[bytes]:
    found = []
    for key in rig.sync.scan_iter(f"{TAG}{table}:*"):
        data: Any = rig.sync.get(key)
        found += [data[at : at + width] for at in range(0, len(data) - width + 1, width) if any(data[at : at + width])]
    return found


# -- names ---------------------------------------------------------------------------------------------------------------


def test_a_page_of_a_moment_ago_is_named_before_its_record_is_written(rig: Rig) -> None:
    index = index_of(rig)
    old = page("old", OLD)
    rig.run(index.look_up([old]))
    ((match,),) = rig.run(index.look_up([page("new", OLD)]))
    assert (match.copy.url, match.copy.seen_at, match.copy.fingerprint.simhash) == (old.url, old.seen_at, OLD.simhash)


def test_a_page_is_named_by_its_record_rather_than_by_the_index(rig: Rig) -> None:
    records = Records()
    index = index_of(rig, records)
    old = page("old", OLD)
    record = PageRecord(old.url, 5.0, 200, first_seen=3.0, canonical="https://first.org/", flags=frozenset({"noindex"}))
    records[rig.f.partition_of(old.host), old.key[:8]] = record
    for delete in (False, True):
        rig.run(index.look_up([old]))
        if delete:
            delete_names(rig)
        ((match,),) = rig.run(index.look_up([page("new", OLD)]))
        copy = match.copy
        assert (copy.url, copy.seen_at, copy.alias_of, copy.flags) == (old.url, 3.0, "https://first.org/", frozenset({"noindex"}))


def delete_names(rig: Rig) -> None:
    for key in rig.sync.keys(f"{TAG}names:*"):
        rig.sync.delete(key)


def test_a_page_that_nothing_names_is_met_by_nobody(rig: Rig) -> None:
    index = index_of(rig)
    rig.run(index.look_up([page("old", OLD)]))
    delete_names(rig)
    assert look_up(rig, index, page("new", OLD)) == [[]]


@pytest.mark.parametrize(
    "copy",
    [
        page("old", OLD),
        Copy("http://x.org/é\udc80?a=%00", b"\1" * 16, "x.org", 7.0, Fingerprint(b"", simhash=0), "", b"key\0\0\0\0\0"),
        Copy("https://x.org/", b"\2" * 16, "x.org", -1.0, Fingerprint(b""), alias_of="http://y.org/alias"),
        Copy("https://x.org/" + "l" * 900, b"\3" * 16, "x.org", 1e12, Fingerprint(b"")),
    ],
    ids=["usual", "odd", "alias", "long"],
)
def test_what_names_a_page_comes_back(rig: Rig, copy: Copy) -> None:
    index = index_of(rig)
    place = rig.f.partition_of(copy.host), copy.key[:8]
    rig.run(index.tell([copy]))
    found = rig.run(index.known([place, (0, b"stranger")]))
    assert set(found) == {place}
    known = found[place]
    assert (known.url, known.declared_key, known.alias_of) == (copy.url, copy.declared_key, copy.alias_of)
    assert (known.seen_at, known.fingerprint.simhash) == (max(0, min(2**32 - 1, int(copy.seen_at))), copy.fingerprint.simhash)


def test_a_url_that_is_too_long_is_not_kept(rig: Rig) -> None:
    index = index_of(rig)
    long = page("l" * 1_000, OLD, "x.org")
    assert look_up(rig, index, page("a", OLD), long, page("b", OLD)) == [[], [("a", "exact")], [("a", "exact")]]


def test_what_a_page_is_an_alias_of_is_told_once_it_is_known(rig: Rig) -> None:
    index = index_of(rig)
    old = page("old", OLD)
    rig.run(index.look_up([old]))
    rig.run(index.tell([replace(old, alias_of="https://first.org/")]))
    ((match,),) = rig.run(index.look_up([page("new", OLD)]))
    assert (match.copy.url, match.copy.alias_of) == (old.url, "https://first.org/")


@pytest.mark.parametrize(("bits", "met"), [(0, [("old", "near")]), (near.CHANGED_BITS, [("old", "near")]), (near.CHANGED_BITS + 1, [])])
def test_a_page_that_shows_something_else_by_now_is_not_met(rig: Rig, bits: int, met: list[Any]) -> None:
    records = Records()
    index = index_of(rig, records)
    old = page("old", OLD)
    rig.run(index.look_up([old]))
    delete_names(rig)
    now = OLD.simhash ^ ((1 << bits) - 1)
    records[rig.f.partition_of(old.host), old.key[:8]] = PageRecord(old.url, 5.0, 200, fingerprint=now)
    assert look_up(rig, index, page("new", prints(2, bands=OLD.bands, simhash=OLD.simhash))) == [met]


# -- size ------------------------------------------------------------------------------------------------------------------


def test_the_tables_grow_with_the_pages_up_to_the_window(rig: Rig) -> None:
    window, made = 6_000, 12_000
    with mock.patch.object(near, "_SEGMENT_BYTES", 8_192):
        index = index_of(rig, pages=window, kinds=("minhash",))
        sizes = []
        for first in range(0, made, 500):
            rig.run(index.look_up([page(f"p{n}", prints(n, simhash=None)) for n in range(first, first + 500)]))
            sizes.append(sum(rig.sync.strlen(key) for key in rig.sync.scan_iter(f"{TAG}minhash:*")) / BANDS)
        found = {
            age: sum(bool(names) for names in look_up(rig, index, *twins(made - 1 - age, 100))) for age in (0, window // 2, made - 100)
        }
    assert sizes[0] <= 2 * 8_192
    assert sizes == sorted(sizes)
    assert max(sizes) <= window * 10 + 8_192
    assert found[0] == 100
    assert found[window // 2] >= 95
    assert found[made - 100] <= 5


def twins(newest: int, count: int) -> list[Copy]:
    """Of pages put in lately; 12 of 16 bands are theirs."""
    return [page(f"twin{n}", Fingerprint(b"", bands=near_bands(prints(n), 12, -n - 1))) for n in range(newest - count + 1, newest + 1)]


@pytest.mark.parametrize(("pages", "tables"), [(1_000, 4), (2**20, 4), (2**20 + 1, 10)])
def test_three_bits_that_differ_leave_a_part_of_a_simhash_equal(pages: int, tables: int) -> None:
    blocks, _, chosen = simhash_tables(pages)
    rng = random.Random(3)
    assert len(chosen) == tables
    for _ in range(2_000):
        one = rng.getrandbits(64)
        other = one
        for bit in rng.sample(range(64), 3):
            other ^= 1 << bit
        assert any(a == b for a, b in zip(parts_of(one, blocks, chosen), parts_of(other, blocks, chosen), strict=True))


def test_a_large_window_finds_by_simhash_too(rig: Rig) -> None:
    index = index_of(rig, pages=2**21, kinds=("simhash",))
    look_up(rig, index, page("old", OLD))
    assert look_up(rig, index, page("new", prints(2, simhash=OLD.simhash ^ BITS_3))) == [[("old", "near")]]


@pytest.mark.parametrize(("partitions", "samples"), [(1, 0), (1, 3), (1024, 3)])
def test_its_memory_is_accounted_for(redis_url: str, partitions: int, samples: int) -> None:
    rig = Rig(redis_url, partitions)
    try:
        with mock.patch.object(near, "_SEGMENT_BYTES", 8_192):
            index = index_of(rig)
            rig.run(index.look_up([page(f"p{n}", prints(n)) for n in range(3_000)]))
        accounts = Accounts(rig.f)
        for _ in range(samples):
            rig.run(accounts.sample())
        account = rig.run(accounts.estimate() if samples else accounts.walk())
        for row in (row for row in KEYS if row.name.endswith(":<segment>") and row.scope == "fingerprints"):
            keys = rig.sync.keys(f"{{t:near:*}}:{row.name.partition('<')[0]}*")
            assert account.kinds[row.name].keys == pytest.approx(len(keys), rel=0.2)
            assert account.kinds[row.name].size_bytes == pytest.approx(sum(rig.sync.memory_usage(key) for key in keys), rel=0.2)
    finally:
        rig.close()


# -- shards ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("partitions", "shards"), [(1, 1), (64, 1), (127, 1), (128, 2), (1024, 16), (65_536, 16)])
def test_there_are_as_many_shards_as_servers_may_need(partitions: int, shards: int) -> None:
    assert near_shards(partitions) == shards


class Gate:
    """A client whose calls of some shards wait until they are let through."""

    def __init__(self, client: Any, held: set[str]) -> None:
        self._client, self._held, self.open = client, held, asyncio.Event()
        self.waits = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def execute_command(self, *args: Any) -> Any:
        if args[0] in ("EVALSHA", "EVAL") and args[3] in self._held and not self.open.is_set() and msgpack.unpackb(args[4], raw=True):
            self.waits.set()
            await self.open.wait()
        return await self._client.execute_command(*args)


@pytest.mark.parametrize("split", range(17))
def test_of_two_twins_stored_at_one_moment_one_at_least_sees_the_other(redis_url: str, split: int) -> None:
    """One worker's call has reached only the first shards when the other's look-up runs as a whole."""
    rig = Rig(redis_url, 1024)
    try:
        shared = prints(1)
        bands = [near_bands(shared, VOTES_LEAST + 1, seed) for seed in (2, 3)]
        pages = [page(name, Fingerprint(b"", bands=some)) for name, some in zip("ab", bands, strict=True)]
        held = {near_shard_key("t", shard) for shard in range(split, 16)}

        async def both() -> list[list[tuple[str, str]]]:
            gate = Gate(rig.client, held)
            slow = index_of(rig, frontier=Frontier(gate, "t", 1024, "slow"))  # type: ignore[arg-type]
            fast = index_of(rig, frontier=Frontier(rig.client, "t", 1024, "fast"))
            first = asyncio.ensure_future(slow.look_up(pages[:1]))
            if held:
                await gate.waits.wait()
                while len(rig.sync.keys("*minhash*")) < split:
                    await asyncio.sleep(0)
            else:
                await first
            second = await fast.look_up(pages[1:])
            gate.open.set()
            return [names(some) for some in (*await first, *second)]

        a, b = rig.run(both())
        assert a == [("b", "near")] or b == [("a", "near")]
    finally:
        rig.close()


def test_copies_meet_across_partitions_and_shards(redis_url: str) -> None:
    rig = Rig(redis_url, 1024)
    try:
        index = index_of(rig)
        one, other = (page(name, prints(1), hosts_in(p, 1024, 1)[0]) for name, p in (("one", 3), ("other", 900)))
        assert look_up(rig, index, one) == [[]]
        assert look_up(rig, index, other) == [[("one", "exact")]]
        keys = [key.decode() for key in rig.sync.keys("*near*")]
        assert len({key.partition("}")[0] for key in keys}) == 16
        assert all(is_key_of("t", key) for key in keys)
        assert not any(is_key_of("near", key) for key in keys)
    finally:
        rig.close()


# -- what is not ours ------------------------------------------------------------------------------------------------------


def test_keys_of_another_type_are_moved_aside(rig: Rig) -> None:
    index = index_of(rig)
    look_up(rig, index, page("old", OLD))
    for key in rig.sync.keys(f"{TAG}*"):
        rig.sync.delete(key)
        (rig.sync.rpush if key.decode() != f"{TAG}quarantine" else rig.sync.set)(key, "mine")
    assert look_up(rig, index, page("old", OLD)) == [[]]
    assert look_up(rig, index, page("new", OLD)) == [[("old", "exact")]]
    assert b"near" in b"".join(rig.sync.lrange(f"{TAG}quarantine", 0, -1))


@pytest.mark.parametrize("damage", ["cut", "noise", "state", "gone"])
def test_damaged_tables_lose_what_was_damaged_and_go_on(rig: Rig, damage: str) -> None:
    index, rng = index_of(rig), random.Random(5)
    look_up(rig, index, page("old", OLD))
    for key in rig.sync.keys(f"{TAG}*:*"):
        if damage == "cut":
            rig.sync.set(key, rig.sync.getrange(key, 0, rng.randrange(1000)))
        elif damage == "noise":
            rig.sync.set(key, rng.randbytes(rig.sync.strlen(key)))
        elif damage == "gone":
            rig.sync.delete(key)
    if damage == "state":
        for field in rig.sync.hkeys(f"{TAG}near"):
            rig.sync.hset(f"{TAG}near", field, rng.choice(["-1", "nan", "1e300", "x", "0.5"]))
    look_up(rig, index, page("old", OLD))
    assert look_up(rig, index, page("new", OLD)) == [[("old", "exact")]]


def test_a_full_redis_takes_pages(rig: Rig) -> None:
    index = index_of(rig)
    look_up(rig, index, page("old", OLD))
    rig.sync.config_set("maxmemory", 1)
    try:
        assert look_up(rig, index, page("new", OLD)) == [[("old", "exact")]]
    finally:
        rig.sync.config_set("maxmemory", 0)
