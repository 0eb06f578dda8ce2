"""The seen-set: its false positives, measured in Redis while layers grow, its memory, its segments."""

from __future__ import annotations

import math
import random
from importlib.resources import files

import msgpack
import pytest
from rig import Rig, hosts_in, link

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
seen_close()
return known
"""


class SeenSet:
    """lua/seen.lua by itself. Keys are those of URLs: bytes of a hash."""

    def __init__(self, rig: Rig, seed: int) -> None:
        folder = files("crawlweb.frontier") / "lua"
        text = "".join((folder / f"{part}.lua").read_text() for part in ("time", "common", "seen"))
        self.rig, self.script = rig, rig.sync.register_script(text + HARNESS)
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
    assert int(layers[b"n"]) == 6  # 4,096 x (1 + 2 + ... + 32) >= 2^17
    assert sum(int(layers[b"u%d" % i]) for i in range(6)) == len(marked) - hidden
    blocks = [int(layers[b"b%d" % i]) for i in range(6)]
    for i, count in enumerate(blocks):
        assert rig.sync.strlen(rig.key(f"bloom:{i}:0")) == 64 * count
    assert 512 * blocks[0] / FIRST <= 17.6, "2.2 bytes a key in one layer at capacity"
    capacity = FIRST * (2**6 - 1)
    assert 64 * sum(blocks) / capacity <= 4.5


@pytest.mark.parametrize("expected", [1_000_000, 2_200_000])
def test_segments_are_made_at_first_touch_and_are_never_longer_than_4_mib(rig: Rig, expected: int) -> None:
    rig.f.limits = type(rig.limits)(expected_urls=expected)
    assert rig.enqueue(*(link(f"h{i}.org") for i in range(200))) == "n" * 200
    blocks = int(rig.sync.hget(rig.key("bloom"), "b0") or 0)
    longest = 65_535 * 64
    assert longest == 4 * 2**20 - 64
    names = sorted(k.decode() for k in rig.sync.scan_iter(match="*bloom:0:*"))
    assert len(names) == math.ceil(blocks / 65_535)
    sizes = [int(rig.sync.strlen(name)) for name in names]
    assert all(size == longest for size in sizes[:-1])
    assert sum(sizes) == 64 * blocks
    assert sizes[-1] <= longest


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
