"""Whatever stands in Redis: no step fails, what is not ours is counted and put aside, and the rest of the crawl goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from harm import HARMS, Harm, drained, kinds, lived, names_of
from rig import Rig

from crawlweb.errors import FrontierError
from crawlweb.frontier.keys import Key
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import Limits

# Whose URLs, or whose only trace, stand in a key of a kind.
HELD_IN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("front:<k>", "ready", "asleep", "wait", "leases", "leased", "hosts:<bucket>", "ctr"), ("all",)),
    **dict.fromkeys(("park:<host>:chunks", "park:<host>:tail", "tails", "cold", "chores"), ("cold.org",)),
}
UNREAD = ("robots:<origin>", "hop:<origin>", "stale:<origin>", "quarantine")  # of another type they are as if they were not there


class World(Rig):
    """Made once, put back before each harm."""

    def __init__(self, url: str) -> None:
        super().__init__(url, limits=Limits(expected_urls=2048, lease_s=30.0), constants={"BACK_CAP": 8})
        self.chunks: dict[str, list[bytes]] = {}
        self.open_urls = self.run(lived(self))
        self.began = self.t
        self.saved = {key: (self.sync.dump(key), max(0, self.sync.pttl(key))) for key in self.sync.scan_iter()}

    def again(self) -> None:
        self.sync.flushdb()
        with self.sync.pipeline(transaction=False) as pipe:
            for key, (value, ttl_ms) in self.saved.items():
                pipe.restore(key, ttl_ms, value)
            pipe.execute()
        self.at(self.began)


@pytest.fixture
def world(redis_url: str) -> Iterator[World]:
    world = World(redis_url)
    yield world
    world.close()


def test_the_world_has_every_kind_of_key_and_comes_to_its_end(world: World) -> None:
    there = {key.decode() for key in world.saved}
    missing = {kind.name for kind in kinds() if not there & set(names_of(world, kind))}
    assert missing == {"exact", "quarantine"}, "older releases made the one"
    assert world.check()["leased"] > 0
    done = world.run(drained(world))
    assert world.open_urls.keys() <= done
    assert world.check()["pending"] == 0


def applies(kind: Key, harm: Harm) -> bool:
    """Not to what stops a worker, with one line: of another type, `meta` cannot be agreed on, and without `pages` nobody can count."""
    return kind.name not in ("meta", "pages") or not harm.destroys(kind) or harm.name == "all values"


def suffer(world: World, kind: Key, harm: Harm, seed: int) -> None:
    rng = random.Random(f"{kind.scope} {kind.name} {harm.name} {seed}")
    world.again()
    name = rng.choice(names_of(world, kind))
    harm.do(world, name, kind, rng)
    done = world.run(drained(world))
    shown = (name, kind.name, harm.name, seed)
    lost_with_it = HELD_IN.get(kind.name, ()) if harm.destroys(kind) else ()
    hosts = set(world.open_urls.values())
    left = {host for url, host in world.open_urls.items() if url not in done}
    assert left <= {host for host in hosts if host in name or host in lost_with_it or "all" in lost_with_it}, shown
    audit = world.run(world.f.audit())
    if kind.name not in UNREAD and harm.name in ("another type", "a pickle"):
        assert world.sync.type(name).decode() in (kind.kind, "none"), shown
    if not harm.destroys(kind):  # a foreign URL that looks like ours is counted when it ends, and was not when it came
        assert [text for text in audit["what"] if any(host in text for host in hosts)] == [], (shown, audit)
        assert audit["pending"] <= 0, (shown, audit)
        assert world.run(world.f.counts()).pending == 0, shown


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: f"{kind.scope} {kind.name}")
def test_all_harms_to_all_kinds_of_keys(world: World, kind: Key) -> None:
    for harm in HARMS:
        for seed in range(12) if applies(kind, harm) else ():
            suffer(world, kind, harm, seed)


def test_harms_drawn_by_lot(world: World) -> None:
    """A part of the above; another seed looks elsewhere."""
    rng = random.Random(5)
    for kind in kinds():
        harm = rng.choice([harm for harm in HARMS if applies(kind, harm)])
        suffer(world, kind, harm, rng.randrange(100, 1000))


def test_without_the_count_of_pages_max_pages_stops_with_one_line(world: World) -> None:
    world.sync.set("{t}:pages", "mine")
    with pytest.raises(FrontierError, match=r"\{t\}:pages is of type string, wanted: set"):
        world.run(Meta(world.f).permits(5, []))
    assert world.sync.get("{t}:pages") == b"mine"
