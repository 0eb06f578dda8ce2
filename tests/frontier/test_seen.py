"""The seen-set: the Bloom filter's false positives, measured in Redis while layers grow, its memory, its segments; the exact set."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import msgpack
import pytest
import redis
from rig import Rig, hosts_in, link

from crawlweb.frontier.rows import EXACT, NORMAL, UNCHECKED, Limits

RATE, FIRST, MOST = 0.001, 4_096, 2**17
PROBES = 30_000
HARNESS = """
local keys, expected, rate = cmsgpack.unpack(ARGV[3]), num(ARGV[4]), num(ARGV[5])
seen_open(expected, rate)
local known = 0
for _, key in ipairs(keys) do
  if is_seen(key) then
    known = known + 1
  elseif ARGV[6] == 'mark' then
    mark_seen(key, expected, rate)
  end
end
seen_close(expected, rate)
return known
"""


EXACT_HARNESS = """
local out = {}
for i, key in ipairs(cmsgpack.unpack(ARGV[3])) do out[i] = exact_add(key) and 'n' or 's' end
exact_close()
return table.concat(out)
"""


def script(rig: Rig, parts: tuple[str, ...], harness: str) -> Any:
    folder = files("crawlweb.frontier") / "lua"
    return rig.sync.register_script("".join((folder / f"{part}.lua").read_text() for part in parts) + harness)


def text_of(script: Any) -> str:
    return script.script.decode() if isinstance(script.script, bytes) else str(script.script)


class SeenSet:
    """lua/seen.lua by itself. Keys are those of URLs: bytes of a hash."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig, self.script = rig, script(rig, ("time", "common", "seen"), HARNESS)
        self.random = random.Random(seed)

    def fresh(self, count: int) -> list[bytes]:
        data = self.random.randbytes(16 * count)
        return [data[i : i + 16] for i in range(0, len(data), 16)]

    def call(self, keys: list[bytes], what: str) -> int:
        """How many were known."""
        known = 0
        for i in range(0, len(keys), 1000):
            packed = msgpack.packb(keys[i : i + 1000], use_bin_type=False)
            known += int(self.script(keys=[self.rig.key("ctr")], args=["w", 1, packed, FIRST, RATE, what]))
        return known


def test_false_positives_stay_under_the_rate_while_layers_grow(rig: Rig) -> None:
    seen = SeenSet(rig, seed=7)
    allowed = PROBES * RATE + 4 * math.sqrt(PROBES * RATE)  # exceeded once in 10,000 runs if the rate were just met
    marked: list[bytes] = []
    hidden = 0
    size = 1_024
    while size <= MOST:
        new = seen.fresh(size - len(marked))
        hidden += seen.call(new, "mark")
        marked += new
        assert seen.call(seen.fresh(PROBES), "test") <= allowed, f"at {size} keys"
        size *= 2
    assert hidden <= MOST * RATE + 4 * math.sqrt(MOST * RATE)
    assert seen.call(marked, "test") == len(marked), "a key that was marked is not known"

    layers = rig.sync.hgetall(rig.key("bloom"))
    assert int(layers[b"n"]) == 6  # 4,096 x (1 + 1 + 2 + 4 + 8 + 16) >= 2^17
    assert sum(int(layers[b"u%d" % i]) for i in range(6)) == len(marked) - hidden
    blocks = [int(layers[b"b%d" % i]) for i in range(6)]
    for i, count in enumerate(blocks):
        assert rig.sync.strlen(rig.key(f"bloom:{i}:0")) == 64 * count
    assert 512 * blocks[0] / FIRST <= 17.6, "2.2 bytes a key in one layer at capacity"
    capacity = FIRST * 2**5
    assert 64 * sum(blocks) / capacity <= 4.5


LONGEST = 65_535 * 64  # bytes of a segment


def segments(rig: Rig, layer: int) -> list[int]:
    """Bytes of those that are there."""
    names = sorted(rig.sync.scan_iter(match=f"*bloom:{layer}:*"), key=lambda name: int(name.rpartition(b":")[2]))
    return [int(rig.sync.strlen(name)) for name in names]


@pytest.mark.parametrize("expected", [1_000, 32_768, 1_000_000, 100_000_000])
def test_a_crawl_that_stays_small_does_not_pay_for_what_it_expected(rig: Rig, expected: int) -> None:
    rig.f.limits = type(rig.limits)(expected_urls=expected)
    assert rig.enqueue(*(link(f"h{i}.org") for i in range(200))) == "n" * 200
    assert int(rig.sync.hget(rig.key("bloom"), "n") or 0) == 1
    assert sum(segments(rig, 0)) == 64 * int(rig.sync.hget(rig.key("bloom"), "b0") or 0)
    assert sum(segments(rig, 0)) <= max(2.2 * 32_768, 4 * expected / 32)
    assert not segments(rig, 1)


def test_segments_of_the_next_layer_are_made_one_a_call_ahead_of_need(rig: Rig) -> None:
    assert LONGEST == 4 * 2**20 - 64
    mark, expected = script(rig, ("time", "common", "seen"), HARNESS), 5_000_000
    keys, held = SeenSet(rig, seed=9).fresh(160_000), [0]
    for i in range(0, len(keys), 1000):
        packed = msgpack.packb(keys[i : i + 1000], use_bin_type=False)
        mark(keys=[rig.key("ctr")], args=["w", 1, packed, expected, RATE, "mark"])
        held.append(len(segments(rig, 1)))
    assert {after - before for before, after in itertools.pairwise(held)} == {0, 1}
    blocks = int(rig.sync.hget(rig.key("bloom"), "b1") or 0)
    assert int(rig.sync.hget(rig.key("bloom"), "c1") or 0) == expected
    assert held.index(1) > 140, "not before the small layer is nearly full"
    assert segments(rig, 1) == [LONGEST, LONGEST, 64 * (blocks - 2 * 65_535)]
    assert int(rig.sync.hget(rig.key("bloom"), "n") or 0) == 2
    assert SeenSet(rig, seed=9).call(keys, "test") == len(keys)


def test_a_filter_that_an_older_release_began_grows_within_its_rate(rig: Rig) -> None:
    """It has no small layer: what is expected later does not matter."""
    rig.sync.hset(rig.key("bloom"), mapping={"n": 1, "b0": 34_000, "c0": 1_000, "u0": 1_000})
    seen = SeenSet(rig, seed=10)
    packed = msgpack.packb(seen.fresh(10), use_bin_type=False)
    seen.script(keys=[rig.key("ctr")], args=["w", 1, packed, 1_000_000, RATE, "mark"])
    capacity, blocks = (int(rig.sync.hget(rig.key("bloom"), name) or 0) for name in ("c1", "b1"))
    assert capacity == 1_000_000
    assert 512 * blocks / capacity > 24, "bits a key for 0.072 of the rate"


def test_a_segment_of_another_type_is_moved_aside(rig: Rig) -> None:
    rig.sync.rpush(rig.key("bloom:0:0"), "mine")
    assert rig.enqueue(link("a.org")) == "n"
    assert rig.enqueue(link("a.org")) == "s"
    assert rig.sync.lrange(rig.key("foreign:1:bloom:0:0"), 0, -1) == [b"mine"]


def test_a_url_that_was_refused_is_not_marked(rig: Rig) -> None:
    bad = link("a.org", "/\t")
    assert rig.enqueue(bad, link("a.org", "/x")) == "qn"
    assert rig.sync.hget(rig.key("bloom"), "u0") == b"1"


def test_partitions_do_not_share_what_they_have_seen(redis_url: str) -> None:
    rig = Rig(redis_url, partitions=2)
    for p in range(2):
        (host,) = hosts_in(p, 2, 1)
        assert rig.enqueue(link(host), partition=p) == "n"
        assert rig.enqueue(link(host), partition=p) == "s"
    rig.close()


# -- the exact set -------------------------------------------------------------------------------------------------------


class ExactSet:
    """lua/exact.lua by itself."""

    def __init__(self, rig: Rig, load: int | None = None) -> None:
        self.rig, self.script = rig, script(rig, ("time", "common", "exact"), EXACT_HARNESS)
        if load is not None:
            text = text_of(self.script)
            assert text.count("local LOAD = 192") == 1
            self.script = rig.sync.register_script(text.replace("local LOAD = 192", f"local LOAD = {load}"))

    def add(self, keys: list[bytes], batch: int = 200) -> str:
        """A letter for each: n new, s seen."""
        out = b""
        for i in range(0, len(keys), batch):
            packed = msgpack.packb(keys[i : i + batch], use_bin_type=False)
            out += self.script(keys=[self.rig.key("ctr")], args=["w", 1, packed])
        return out.decode()

    def buckets(self) -> list[set[int]]:
        count = int(self.rig.sync.hget(self.rig.key("seen"), "n") or 1)
        return [{int(member) for member in self.rig.sync.smembers(self.rig.key(f"seen:{b}"))} for b in range(count)]


def member(key: bytes) -> int:
    return int.from_bytes(key[:8], "big") % 2**63


def bucket_of(number: int, count: int) -> int:
    """Litwin's address."""
    top = 1 << (count - 1).bit_length()
    bucket = number % top
    return bucket if bucket < count else bucket - top // 2


def some_keys(seed: int, count: int) -> list[bytes]:
    data = random.Random(seed).randbytes(16 * count)
    return [data[i : i + 16] for i in range(0, len(data), 16)]


def test_no_key_is_known_before_it_came_and_none_is_new_twice(rig: Rig) -> None:
    exact, keys = ExactSet(rig), some_keys(3, 60_000)
    assert exact.add(keys) == "n" * len(keys)
    assert exact.add(keys) == "s" * len(keys)
    found = exact.buckets()
    assert [{bucket_of(number, len(found)) for number in bucket} for bucket in found] == [{b} for b in range(len(found))]
    assert {number for bucket in found for number in bucket} == set(map(member, keys))
    assert sum(map(len, found)) == int(rig.sync.hget(rig.key("seen"), "u") or 0) == len(keys)
    assert max(map(len, found)) <= 512, "what a default server keeps as an intset"
    assert {rig.sync.object("encoding", rig.key(f"seen:{b}")) for b in range(len(found))} == {b"intset"}


def test_a_load_keeps_buckets_under_the_limit_of_a_default_server(rig: Rig) -> None:
    """At every number of keys on the way, buckets that wait for their split included."""
    exact, keys, fullest = ExactSet(rig), some_keys(4, 40_000), 0
    for i in range(0, len(keys), 1000):
        exact.add(keys[i : i + 1000], 300)
        count = int(rig.sync.hget(rig.key("seen"), "n") or 1)
        assert (i + 1000) / count <= 192 * 1.1
        fullest = max(fullest, *(int(rig.sync.scard(rig.key(f"seen:{b}"))) for b in range(count)))
    assert fullest <= 480


EDGES = [bytes(8), b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7)]
EDGES += [number.to_bytes(8, "big") for power in range(63) for number in (2**power - 1, 2**power, 2**power + 1)]
EDGES += [(10**power + d).to_bytes(8, "big") for power in range(19) for d in (-1, 0, 1)]


@pytest.mark.parametrize("load", [192, 2])
def test_numbers_beyond_what_a_double_holds_are_kept_to_the_digit(rig: Rig, load: int) -> None:
    exact = ExactSet(rig, load)
    keys = [edge + bytes(8) for edge in EDGES] + some_keys(5, 500)
    known: set[int] = set()
    expected = "".join("s" if member(key) in known or known.add(member(key)) else "n" for key in keys)  # type: ignore[func-returns-value]
    assert exact.add(keys) == expected
    for _ in range(200):  # splits go on with every new key
        exact.add([random.Random(_).randbytes(16)])
    assert exact.add(keys) == "s" * len(keys)
    found = exact.buckets()
    assert all(bucket_of(number, len(found)) == b for b, bucket in enumerate(found) for number in bucket)
    assert known <= {number for bucket in found for number in bucket}


@pytest.mark.parametrize("stop", ["SADD", "HSET", "SDIFFSTORE"])
def test_a_key_is_found_after_an_error_in_the_middle_of_a_split(rig: Rig, stop: str) -> None:
    exact, keys = ExactSet(rig), some_keys(6, 2_000)
    whole = exact.script
    at = {"SADD": "on(to, 'SADD'", "HSET": "redis.call('HSET', TAG .. 'seen', 'n'", "SDIFFSTORE": "redis.call('SDIFFSTORE', from"}[stop]
    text = text_of(whole)
    assert text.count(at) == 1
    exact.script = rig.sync.register_script(text.replace(at, f"if true then error('stopped') end {at}"))
    failed = 0
    for i in range(0, len(keys), 100):
        try:
            exact.add(keys[i : i + 100])
        except redis.ResponseError as e:
            failed += "stopped" in str(e)
    assert failed > 5
    exact.script = whole
    assert exact.add(keys) == "s" * len(keys)
    assert exact.add(some_keys(7, 5_000)) == "n" * 5_000
    assert exact.add(keys) == "s" * len(keys)


def test_members_and_keys_that_are_not_ours_harm_nothing(rig: Rig) -> None:
    exact, keys = ExactSet(rig), some_keys(8, 3_000)
    rig.sync.rpush(rig.key("seen:0"), "mine")
    rig.sync.set(rig.key("seen"), "mine")
    assert exact.add(keys[:100]) == "n" * 100
    rig.sync.sadd(rig.key("seen:0"), "text", "-5", "1.5", "1e9", "9" * 30, "")
    rig.sync.hset(rig.key("seen"), "u", "many")
    assert exact.add(keys) == "s" * 100 + "n" * 2_900
    assert exact.add(keys) == "s" * 3_000
    assert sorted(rig.sync.scan_iter(match="*foreign:*")) == [rig.key("foreign:1:seen").encode(), rig.key("foreign:2:seen:0").encode()]


@pytest.fixture
def exact_rig(redis_url: str) -> Iterator[Rig]:
    rig = Rig(redis_url, limits=Limits(seen="exact"))
    yield rig
    rig.close()


def test_in_exact_mode_there_is_no_filter_and_each_way_to_ask_marks(exact_rig: Rig) -> None:
    rig = exact_rig
    for first, how in enumerate((NORMAL, EXACT, UNCHECKED)):
        path = f"/{first}"
        assert rig.enqueue(link("a.org", path, how=how)) == "n"
        assert rig.enqueue(link("a.org", path)) == "s"
        assert rig.enqueue(link("a.org", path, how=EXACT)) == "s", "a seed that was a link before is not fetched again"
        assert rig.enqueue(link("a.org", path, how=UNCHECKED)) == "n"
    assert not rig.sync.exists(rig.key("bloom"))
    assert rig.sync.scard(rig.key("seen:0")) == 3
    rig.check()


def test_in_exact_mode_a_url_is_marked_if_and_only_if_it_was_placed(exact_rig: Rig) -> None:
    rig = exact_rig
    links = [link(f"h{n % 50}.org", f"/{n}") for n in range(2_000)]
    for i, one in enumerate(links):
        if i % 10 == 0:
            links[i] = link(one.host, "/\t")  # cannot be an entry
    answer = rig.enqueue(*links)
    assert Counter(answer) == {"n": 1_800, "q": 200}
    marked = sum(int(rig.sync.scard(key)) for key in rig.sync.scan_iter(match="*:seen:*"))
    assert marked == rig.counters()["enq"] == 1_800
    assert Counter(rig.enqueue(*links)) == {"s": 1_800, "q": 200}
    rig.check()


def test_seeds_are_exact_beside_the_filter_and_cost_an_intset(rig: Rig) -> None:
    seeds = [link("a.org", f"/{n}", how=EXACT) for n in range(600)]
    assert rig.enqueue(*(link("a.org", f"/{n}") for n in range(5))) == "n" * 5
    assert rig.enqueue(*seeds) == "n" * 600, "known as a link is not certain"
    assert rig.enqueue(*seeds) == "s" * 600
    assert rig.enqueue(*(link("a.org", f"/{n}") for n in range(600))) == "s" * 600
    names = list(rig.sync.scan_iter(match="*:seen:*"))
    assert sum(int(rig.sync.scard(name)) for name in names) == 600
    assert {rig.sync.object("encoding", name) for name in names} == {b"intset"}


def test_seeds_that_an_older_release_kept_are_known(rig: Rig) -> None:
    seed = link("a.org", how=EXACT)
    rig.sync.sadd(rig.key("exact"), seed.key)
    assert rig.enqueue(seed, link("a.org", "/2", how=EXACT)) == "sn"
