"""Long queues on disk: everything comes back, once and in its order, whatever dies in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from rig import WORKER_AHEAD_S, Rig, link

from crawlweb.errors import StoreError
from crawlweb.frontier import scripts
from crawlweb.frontier.rows import UNCHECKED, Limits, Link, Outcome
from crawlweb.spill import Spill
from crawlweb.store.chunks import ChunkStore, chunk_name

CHUNK = 8
HOUR_MS = 3_600_000


class Killed(BaseException):
    """The process ended here."""


class Disk:
    """A frontier with a store of chunks. `scarce`, `full`: what is said of memory."""

    def __init__(self, redis_url: str, folder: Path, workers: int = 1, active_hosts: int | None = None) -> None:
        self.rig = Rig(redis_url, workers=workers, active_hosts=active_hosts, limits=Limits(expected_urls=20_000))
        self.store = ChunkStore(str(folder), "ab12")
        self.store.create()
        self.folder = folder / "ab12" / "0"
        self.counts: dict[str, int] = {}
        self.scarce = self.full = False
        self.tasks: list[Coroutine[Any, Any, None]] = []
        self.spills = [
            Spill(
                f,
                self.store,
                chunk_entries=CHUNK,
                count=self._count,
                run=self.tasks.append,
                scarce=lambda: self.scarce,
                full=lambda: self.full,
            )
            for f in self.rig.frontiers
        ]
        for f in self.rig.frontiers:
            f._unix_offset_s = -WORKER_AHEAD_S
        self.rig.run(self.spills[0].cold.tune(0, 3 * CHUNK))

    def _count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by

    def close(self) -> None:
        for task in self.tasks:
            task.close()
        self.rig.close()

    def tend(self) -> None:
        """What the leases so far asked for."""
        while self.tasks:
            self.rig.run(self.tasks.pop(0))

    def tend_all(self, worker: int = 0) -> None:
        """All that is wanted, without a lease."""
        self.rig.later(30_001)
        see_to, most = self.rig.frontiers[worker], 0
        self.rig.run(see_to.lease(0, most))
        self.tend()

    def files(self) -> set[str]:
        return {path.name.removesuffix(".zst") for path in self.folder.iterdir()} if self.folder.exists() else set()

    def check(self) -> dict[str, Any]:
        async def tokens(p: int) -> dict[str, str]:
            found = {}
            for chunk, (queue, taken, _) in (await self.spills[0].cold.chunks(p)).items():
                if queue.startswith("front:"):
                    for token in self.store.read(p, chunk, queue)[taken:]:
                        host, serial, _ = token.decode().split("\t", 2)
                        found[host] = serial
            return found

        found = self.rig.run(self.rig.f.audit(tokens))
        assert found["lost"] == 0, found
        return found

    def fetch_all(self, most_ms: int = 10**9) -> list[str]:
        """Leases and completes until nothing is left; URLs in the order of their leases."""
        urls, begun, queued = [], self.rig.t, {}
        while self.rig.run(self.rig.f.counts()).pending:
            leases = self.rig.lease(64)
            self.tend()
            for lease in leases:
                urls.append(lease.entry.url)
            queued = {lease.token: lease for lease in leases}
            if queued:
                ended = self.rig.worker_s()
                self.rig.run(self.rig.f.complete(0, [Outcome(lease, "d", ended) for lease in queued.values()]))
            else:
                self.rig.later(500)
            assert self.rig.t - begun < most_ms, f"{len(urls)} URLs came, the rest does not"
        self.check()
        return urls


@pytest.fixture
def disk(redis_url: str, tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(redis_url, tmp_path / "cold")
    yield disk
    disk.close()


def pages(n: int, host: str = "huge.org", first: int = 0) -> list[Link]:
    return [link(host, f"/{i}", how=UNCHECKED) for i in range(first, first + n)]


def hosts(n: int) -> list[Link]:
    return [link(f"h{i}.org", how=UNCHECKED) for i in range(n)]


def urls(links: list[Link]) -> list[str]:
    return [link.entry.url for link in links]


def test_the_middle_of_a_long_park_list_goes_to_disk_and_comes_back_in_order(disk: Disk) -> None:
    links = pages(200)
    disk.rig.enqueue(*links)
    disk.tend_all()
    found = disk.check()
    assert found["cold"] >= 200 - 64 - 5 * CHUNK
    assert found["park"] <= 3 * CHUNK
    assert len(disk.files()) == found["cold"] / CHUNK
    assert disk.fetch_all() == urls(links)
    assert disk.counts["spill/entries_out"] == found["cold"]
    assert disk.counts["spill/chunks_in"] == disk.counts["spill/chunks_out"]


def test_the_middle_of_a_long_front_queue_goes_to_disk_and_comes_back_in_order(redis_url: str, tmp_path: Path) -> None:
    disk = Disk(redis_url, tmp_path / "cold", active_hosts=10)
    links = hosts(400)
    disk.rig.enqueue(*links)
    disk.tend_all()
    found = disk.check()
    assert found["cold"] >= 400 - 5 * CHUNK
    assert found["inline"] <= 3 * CHUNK
    got = disk.fetch_all()
    assert sorted(got) == sorted(urls(links))
    places = {url: i for i, url in enumerate(urls(links))}
    assert all(abs(places[url] - i) <= 10 for i, url in enumerate(got)), "those that are active at a time have no order"
    disk.close()


def test_what_is_added_meanwhile_comes_after_what_is_on_disk(disk: Disk) -> None:
    links = pages(600)
    disk.rig.enqueue(*links[:280])
    disk.tend_all()
    disk.rig.enqueue(*links[280:])
    disk.tend_all()
    assert disk.fetch_all() == urls(links)


def test_a_short_queue_stays_in_redis(disk: Disk) -> None:
    disk.rig.enqueue(*pages(3 * CHUNK))  # one of them in the host's token
    assert disk.rig.sync.zcard(disk.rig.key("chores")) == 0
    assert disk.rig.sync.exists(disk.rig.key("tails")) == 0


def test_a_host_whose_urls_are_all_on_disk_sleeps_until_they_are_here(disk: Disk) -> None:
    disk.rig.enqueue(*pages(200))
    disk.tend_all()
    disk.full = True  # nothing is brought in
    seen: list[str] = []
    while disk.rig.state("huge.org") != "a":
        for lease in disk.rig.lease():
            seen.append(lease.entry.url)
            disk.rig.complete(lease)
        disk.tend()
        disk.rig.later(1000)
    assert disk.check()["asleep"] == 1
    assert disk.rig.lease() == []
    disk.full = False
    disk.tend_all()
    disk.rig.later(1000)
    seen += [lease.entry.url for lease in disk.rig.lease()]
    assert seen == urls(pages(200))[: len(seen)], "it was woken by what came"


def test_a_host_that_waits_for_the_disk_takes_new_urls_meanwhile(disk: Disk) -> None:
    disk.rig.enqueue(*pages(200))
    disk.tend_all()
    disk.full = True
    while disk.rig.state("huge.org") != "a":
        for lease in disk.rig.lease():
            disk.rig.complete(lease)
        disk.tend()
        disk.rig.later(1000)
    disk.rig.enqueue(*pages(5, first=900))
    disk.rig.later(5000)
    assert disk.rig.lease()[0].entry.url == "https://huge.org/900"
    disk.check()


def test_of_two_workers_that_write_the_same_entries_one_is_refused(redis_url: str, tmp_path: Path) -> None:
    disk = Disk(redis_url, tmp_path / "cold", workers=2)
    disk.rig.enqueue(*pages(220))
    rig, colds = disk.rig, [spill.cold for spill in disk.spills]
    while rig.run(colds[0].cut(0, "park:huge.org", CHUNK)):
        pass
    read = [rig.run(cold.start_of_tail(0, "park:huge.org", CHUNK)) for cold in colds]
    names = [chunk_name(rig.t, f"{i}", 1) for i in range(2)]
    for name, (_, entries) in zip(names, read, strict=True):
        disk.store.write(0, name, "park:huge.org", entries)
    answers = [rig.run(cold.out(0, "park:huge.org", n, e, s)) for cold, n, (s, e) in zip(colds, names, read, strict=True)]
    assert answers == [True, False]
    disk.check()
    assert sorted(disk.fetch_all()) == sorted(urls(pages(220)))
    disk.close()


def test_a_serial_is_not_given_twice(disk: Disk) -> None:
    """A worker that slept through the whole life of a tail must not swap what it read of another."""
    rig, cold, q = disk.rig, disk.spills[0].cold, "park:huge.org"
    rig.enqueue(*pages(200))
    rig.run(cold.cut(0, q, CHUNK))
    serial, entries = rig.run(cold.start_of_tail(0, q, CHUNK))
    for _ in range(100):
        for lease in rig.lease():
            rig.complete(lease)
        rig.later(1000)
    assert rig.sync.hget(rig.key("tails"), q) is None
    rig.enqueue(*pages(200, first=1000))
    rig.run(cold.cut(0, q, CHUNK))
    assert rig.sync.hget(rig.key("tails"), q) != serial
    assert not rig.run(cold.out(0, q, chunk_name(rig.t, "x", 1), entries, serial))


def test_a_chunk_written_long_ago_is_not_swapped_in_any_more(disk: Disk) -> None:
    rig, cold, q = disk.rig, disk.spills[0].cold, "park:huge.org"
    rig.enqueue(*pages(220))
    rig.run(cold.cut(0, q, CHUNK))
    serial, entries = rig.run(cold.start_of_tail(0, q, CHUNK))
    name = chunk_name(rig.t, "x", 1)
    rig.later(601_000)
    assert not rig.run(cold.out(0, q, name, entries, serial))
    assert rig.run(cold.out(0, q, chunk_name(rig.t, "x", 2), entries, serial))


def test_calls_whose_answer_was_lost_are_repeated_without_harm(disk: Disk) -> None:
    rig, wire = disk.rig, disk.rig.wires[0]
    links = pages(220)
    rig.enqueue(*links)
    real = wire.execute_command

    lost = set()

    async def losing(*args: Any) -> Any:
        is_spill = args[0] == "EVALSHA" and args[1] == scripts.digest("spill")
        wire.lose_next = is_spill and args[5] not in lost
        lost.add(args[5] if is_spill else None)
        return await real(*args)

    wire.execute_command = losing  # type: ignore[method-assign]
    disk.tend_all()
    assert disk.check()["cold"] > 0
    assert disk.fetch_all() == urls(links)


CRASHES = [(step, after) for step in ("write", "read", "cut", "out", "in", "done") for after in (False, True)]


@pytest.mark.parametrize(("step", "after"), CRASHES)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_worker_killed_between_any_two_steps_loses_nothing(redis_url: str, tmp_path: Path, step: str, after: bool, nth: int) -> None:
    disk = Disk(redis_url, tmp_path / "cold", workers=2, active_hosts=10)
    rig, victim = disk.rig, disk.spills[0]
    links = pages(240) + hosts(80)
    rig.enqueue(*links)
    left = [nth]

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Killed
            result = real(*args)
            if left[0] == 0:
                raise Killed
            return result

        return call

    if step in ("write", "read"):
        victim.store = ChunkStore(str(tmp_path / "cold"), "ab12")
        setattr(victim.store, step, dying(getattr(victim.store, step)))
    else:
        real = rig.f.step

        async def step_or_die(name: str, partition: int, *args: Any, **more: Any) -> Any:
            if name != "spill" or args[0] != step:
                return await real(name, partition, *args, **more)
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Killed
            result = await real(name, partition, *args, **more)
            if left[0] == 0:
                raise Killed
            return result

        rig.f.step = step_or_die  # type: ignore[method-assign]

    def go_on() -> None:
        disk.tend_all()
        for _ in range(1000):
            for lease in rig.lease(64):
                rig.complete(lease)
            disk.tend()
            rig.later(1000)

    with pytest.raises(Killed):
        go_on()
    rig.f, disk.spills = rig.frontiers[1], disk.spills[1:]
    while disk.tasks:
        disk.tasks.pop().close()
    disk.check()
    rig.later(31_000)
    rest = disk.fetch_all()
    done = rig.counters()["done"]
    assert done == len(links)
    assert len(rest) == len(set(rest)), "nothing came twice"
    disk.close()


def test_a_missing_chunk_is_an_error_and_the_rest_goes_on(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    links = pages(240)
    disk.rig.enqueue(*links)
    disk.tend_all()
    first = min(disk.files(), key=lambda name: int(name.rpartition("-")[2]))
    (disk.folder / f"{first}.zst").unlink()
    with caplog.at_level(logging.ERROR):
        got = disk.fetch_all()
    assert len(got) == 240 - CHUNK
    assert got == [url for url in urls(links) if url in set(got)]
    assert [r.getMessage().split(":")[0] for r in caplog.records] == [f"{CHUNK} entries of park", f"{CHUNK} entries of park"][:1]
    assert disk.counts["spill/unreadable"] == disk.rig.counters()["unreadable"] == CHUNK
    assert first.encode() in disk.rig.sync.lindex(disk.rig.key("quarantine"), 0)


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "foreign", "long", "swapped"])
def test_a_corrupt_chunk_is_an_error_and_the_rest_goes_on(disk: Disk, harm: str) -> None:
    links = pages(240)
    disk.rig.enqueue(*links)
    disk.tend_all()
    path, other = sorted(disk.folder.iterdir())[3:5]
    data = path.read_bytes()
    if harm == "cut":
        path.write_bytes(data[:-5])
    elif harm == "flip":
        path.write_bytes(data[:60] + bytes([data[60] ^ 4]) + data[61:])
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "foreign":
        path.write_bytes(b"%PDF-1.4 and so on")
    elif harm == "long":
        path.write_bytes(data + b"more")
    else:
        disk.store.write(0, path.stem, "park:huge.org", [b"500\t1\t/x\t\t"] * (CHUNK - 1))
    assert len(disk.fetch_all()) == 240 - CHUNK
    assert disk.counts["spill/unreadable"] == CHUNK
    assert other.exists()


def test_a_store_that_is_away_for_a_while_loses_nothing(disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    links = pages(240)
    disk.rig.enqueue(*links)
    disk.tend_all()
    (tmp_path / "cold").rename(tmp_path / "away")
    got = []
    for _ in range(300):
        for lease in disk.rig.lease():
            got.append(lease.entry.url)
            disk.rig.complete(lease)
        disk.tend()
        disk.rig.later(1000)
    assert disk.counts["spill/failed"] > 0
    assert "spill/unreadable" not in disk.counts
    assert len(caplog.records) < disk.counts["spill/failed"] or disk.counts["spill/failed"] < 3
    (tmp_path / "away").rename(tmp_path / "cold")
    assert got + disk.fetch_all() == urls(links)


def test_what_cannot_be_written_stays_in_redis(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise StoreError("no space left")

    links = pages(240)
    disk.rig.enqueue(*links)
    monkeypatch.setattr(disk.store, "write", full)
    disk.tend_all()
    assert disk.check()["cold"] == 0
    assert disk.fetch_all() == urls(links)


def test_scarce_memory_sends_more_to_disk(disk: Disk) -> None:
    links = pages(3 * CHUNK)
    disk.rig.enqueue(*links)
    disk.scarce = True
    spill = disk.spills[0]
    disk.rig.run(spill.cold.tune(0, 3 * spill.chunk_entries))
    disk.rig.run(spill._look_for_long(0, 3 * spill.chunk_entries))
    disk.tend_all()
    assert disk.check()["park"] <= 3 * CHUNK // 5
    assert disk.fetch_all() == urls(links)


def test_files_are_deleted_an_hour_after_their_last_use_and_not_before(disk: Disk) -> None:
    rig, spill = disk.rig, disk.spills[0]
    rig.enqueue(*pages(240))
    disk.tend_all()
    begun = rig.t
    written = disk.files()
    orphan = chunk_name(rig.t, "dead", 1)
    disk.store.write(0, orphan, "park:huge.org", [b"x"])
    assert rig.run(spill.sweep(0)) == 0, "nothing is old enough"
    rig.later(10_000)
    while len(rig.run(spill.cold.chunks(0))) > len(written) - 3:
        for lease in rig.lease():
            rig.complete(lease)
        disk.tend()
        rig.later(1000)
    used_up = written - set(rig.run(spill.cold.chunks(0)))
    last = rig.t
    rig.at(begun + HOUR_MS + 1)
    assert rig.run(spill.sweep(0)) == 1
    assert disk.files() == written, "the orphan is gone; what was used a moment ago is not"
    rig.at(last + HOUR_MS + 1)
    assert rig.run(spill.sweep(0)) == len(used_up)
    assert disk.files() == written - used_up, "what is in use stays, however old"
    assert rig.sync.zcard(rig.key("gone")) == 0
    done = rig.counters()["done"]
    assert done + len(disk.fetch_all()) == 240


def test_an_older_state_of_redis_finds_its_chunks(disk: Disk) -> None:
    rig = disk.rig
    links = pages(240)
    rig.enqueue(*links)
    disk.tend_all()
    before = {key: rig.sync.dump(key) for key in rig.sync.scan_iter() if key != b"test:now"}
    some = []
    for _ in range(300):
        for lease in rig.lease():
            some.append(lease.entry.url)
            rig.complete(lease)
        disk.tend()
        rig.later(1000)
    rig.run(disk.spills[0].sweep(0))
    for key in list(rig.sync.scan_iter()):
        if key != b"test:now":
            rig.sync.delete(key)
    for key, value in before.items():
        rig.sync.restore(key, 0, value)
    assert disk.fetch_all() == urls(links)


def test_queues_that_are_not_ours_to_read_are_no_error(disk: Disk) -> None:
    rig = disk.rig
    links = pages(240)
    rig.enqueue(*links)
    disk.tend_all()
    rig.sync.hset(rig.key("cold"), "nonsense", b"\xff")
    rig.sync.zadd(rig.key("chores"), {"park:nobody.org": 0, b"\xff\xfe": 0, "front:7": 0, "": 0})
    disk.tend_all()
    rig.sync.hdel(rig.key("cold"), "nonsense")
    assert disk.fetch_all() == urls(links)


def test_a_worker_without_a_store_is_asked_nothing(disk: Disk) -> None:
    disk.rig.f.see_to = None
    disk.rig.enqueue(*pages(240))
    assert len(disk.rig.lease()) == 1
    assert disk.tasks == []
    assert disk.rig.sync.zscore(disk.rig.key("chores"), "park:huge.org") <= disk.rig.t


def test_a_chore_is_given_to_one_worker_at_a_time(redis_url: str, tmp_path: Path) -> None:
    disk = Disk(redis_url, tmp_path / "cold", workers=2)
    disk.rig.enqueue(*pages(240))
    for f in disk.rig.frontiers:
        disk.rig.run(f.lease(0, 1))
    assert len(disk.tasks) == 1
    disk.tasks.pop().close()  # that worker died
    disk.rig.later(30_001)
    disk.rig.run(disk.rig.frontiers[1].lease(0, 1))
    assert len(disk.tasks) == 1
    disk.tend()
    assert disk.check()["cold"] > 0
    disk.close()


def test_the_event_loop_is_not_held_up(disk: Disk) -> None:
    """Compressing and writing happen in threads."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def both() -> None:
        ticking = asyncio.ensure_future(tick())
        await disk.spills[0].balance(0, "park:huge.org")
        ticking.cancel()

    disk.rig.enqueue(*pages(240))
    disk.rig.run(both())
    assert ticks > disk.counts["spill/chunks_out"]
