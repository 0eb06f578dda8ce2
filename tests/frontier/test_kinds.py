"""Keys under a crawl's names that are of another type: refused at the start, named when they stop a call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rig import Rig, link

from crawlweb.errors import ConfigError, FrontierError
from crawlweb.frontier.keys import KEYS
from crawlweb.frontier.kinds import refuse_foreign_crawl, refuse_foreign_partitions
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import EXACT, NORMAL, Lease, Override

CRAWL = {f"{{t}}:{key.name}": key.kind for key in KEYS if key.scope == "crawl" and "<" not in key.name}
PARTITION = {f"{{t:0}}:{key.name}": key.kind for key in KEYS if key.scope == "partition" and "<" not in key.name}
PARTITION |= {"{t:0}:front:0": "list", "{t:0}:front:9": "list"}


def check(rig: Rig, partitions: int = 1) -> None:
    rig.run(refuse_foreign_crawl(rig.f))
    rig.run(refuse_foreign_partitions(rig.f, partitions))


@pytest.mark.parametrize(("key", "kind"), [*CRAWL.items(), *PARTITION.items()])
def test_a_key_of_another_type_is_named_with_both_types(rig: Rig, key: str, kind: str) -> None:
    other = "list" if kind == "string" else "string"
    if other == "list":
        rig.sync.rpush(key, "x")
    else:
        rig.sync.set(key, "x")
    before = rig.dump()
    with pytest.raises(ConfigError) as refused:
        check(rig)
    assert f"the key {key} is of type {other}, wanted: {kind}" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert rig.dump() == before


def test_a_crawls_own_keys_are_of_the_types_of_the_table(rig: Rig) -> None:
    rig.enqueue(*(link(f"h{n}.org", f"/{i}") for n in range(20) for i in range(80)))
    for lease in rig.lease():
        rig.complete(lease)
    rig.run(Meta(rig.f).agree({"partitions": "1"}, {}))
    check(rig)


def test_all_partitions_are_looked_at_and_few_keys_named(rig: Rig) -> None:
    for p in range(0, 70, 10):
        rig.sync.set(f"{{t:{p}}}:ctr", "x")
    with pytest.raises(ConfigError) as refused:
        check(rig, 70)
    assert str(refused.value).count("wanted: hash") == 5
    assert "; and 2 more keys: not of this crawl" in str(refused.value)
    check(rig, 0)


def test_a_key_that_comes_into_the_way_of_a_call_is_moved_aside_and_named(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    meta = Meta(rig.f)
    rig.sync.set("{t}:seeding", "x")
    assert not rig.run(meta.anyone_seeding())
    assert "the key {t}:seeding is of type string, wanted: zset" in caplog.text
    rig.sync.set("{t:0}:ctr", "x")
    assert rig.enqueue(link("a.org")) == "n"
    aside = [text.decode() for text in [*rig.sync.lrange("{t}:quarantine", 0, -1), *rig.sync.lrange("{t:0}:quarantine", 0, -1)]]
    assert [text.split("\t")[:2] for text in aside] == [["key", aside[0].split("\t")[1]], ["key", "{t:0}:foreign:0:ctr"]]
    assert rig.sync.get(aside[0].split("\t")[1]) == rig.sync.get("{t:0}:foreign:0:ctr") == b"x"


def test_a_key_without_which_nobody_can_count_stops_the_call_by_name(rig: Rig) -> None:
    rig.sync.set("{t}:pages", "x")
    with pytest.raises(FrontierError, match=r"\{t\}:pages is of type string, wanted: set"):
        rig.run(Meta(rig.f).permits(1, []))


NEW = [link(f"h{n}.org", f"/new{i}", how=EXACT if i == 0 else NORMAL) for n in range(12) for i in range(3)]
STEPS: dict[str, Callable[[Rig, list[Lease]], object]] = {
    "enqueue": lambda rig, _: rig.enqueue(*NEW),
    "lease": lambda rig, _: (rig.later(5_000), rig.lease(10)),
    "reclaim": lambda rig, _: (rig.later(500_000), rig.lease(10)),
    "complete": lambda rig, leases: [rig.complete(lease) for lease in leases],
    "retry": lambda rig, leases: [rig.complete(lease, "r", wait_s=100.0, arg=(5, "x")) for lease in leases],
    "release": lambda rig, leases: [rig.complete(lease, "l", None, wait_s=200.0) for lease in leases],
    "bury": lambda rig, leases: [rig.complete(lease, "x", arg="bad") for lease in leases],
    "renew": lambda rig, leases: rig.run(rig.f.renew(leases)),
    "override": lambda rig, _: rig.run(rig.f.override("h1.org", Override(pause_until=2_000_000_000))),
    "count": lambda rig, _: rig.run(rig.f.counts()),
}


@pytest.mark.parametrize("step", STEPS)
def test_no_step_of_a_partition_is_stopped_by_a_key_that_comes_into_its_way(rig: Rig, step: str) -> None:
    for key in PARTITION:
        if key == "{t:0}:ctr":
            continue
        rig.sync.flushall()
        rig.at(1_000_000_000)
        rig.enqueue(*(link(f"h{n}.org", f"/{i}", how=EXACT if i == 0 else NORMAL) for n in range(6) for i in range(3)))
        leases = rig.lease(3)
        rig.sync.delete(key)
        rig.sync.set(key, "x")
        STEPS[step](rig, leases)
