"""What a crawl needs at 10⁶, 10⁹ and 5 × 10¹¹ URLs: keys, bytes, Bloom layers, calls, CPU, shards, workers, disk.

python bench/scale.py                        the tables of docs/decisions/scale.md, from the figures below
python bench/scale.py --measure              measures the figures that come from this repository's code, on a private Redis
python bench/scale.py --cached 0.8 --new 10  other assumptions; --help names them all

Arithmetic only, but for `--measure`. Constants of the code are taken from the code; assumptions have a switch each.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import platform
import random
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from redis.asyncio import Redis  # noqa: E402

from crawlweb import outbox, poller, rota  # noqa: E402
from crawlweb.default_settings import Config  # noqa: E402
from crawlweb.frontier.frontier import Frontier  # noqa: E402
from crawlweb.frontier.rows import Limits, Link, Outcome  # noqa: E402
from crawlweb.frontier.server import PrivateServer  # noqa: E402
from crawlweb.policy.owners import pollers  # noqa: E402
from crawlweb.policy.robots import KEPT_S as ROBOTS_KEPT_S  # noqa: E402
from crawlweb.records import Entry  # noqa: E402

LUA = ROOT / "crawlweb" / "frontier" / "lua"
DEFAULTS = Config()


@dataclass(frozen=True)
class Measured:
    """`--measure`, Redis 7.0.15 on one core, append-only everysec, one partition. CPU: the server's, user and system, per URL."""

    new_us: float = 11.38
    known_us: float = 3.71
    layer_us: float = 1.305
    """More for a known URL, per layer that is newer than its own: the newest is asked first."""
    turn_us: float = 31.17
    """A lease and its completion, 64 a call."""
    poll_us: float = 57.95
    """A lease call that finds nothing."""
    call_us: float = 46.41
    """A call with one URL, beyond what the URL costs in a batch."""
    new_aof_bytes: float = 264.7
    call_aof_bytes: float = 288
    """A call that changes nothing but the partition's clock and last answer."""
    turn_aof_bytes: float = 873.7
    poll_aof_bytes: float = 0.0
    client_link_us: float = 2.859
    """CPU of the worker's process, per link sent."""
    client_call_us: float = 61.89
    """The same, for a lease call that finds nothing."""
    pending_bytes: float = 62.1
    """Of one pending URL: its place in a list or back queue, host records not counted."""
    host_bytes: float = 476.9
    """Of a host with URLs: its record, and what its lists cost beyond their entries."""
    idle_host_bytes: float = 54.66
    """Of a host without URLs, kept for 30 days."""


@dataclass(frozen=True)
class Given:
    """Measured elsewhere, or assumed."""

    pages_per_s: float = 3900
    links: float = 100
    """A page, after canonicalisation."""
    cached: float = 0.5
    """Share of links that a worker's cache of recent keys answers."""
    new: float = 4
    """Links a page that are new to the crawl: 5e11 URLs out of 1.2e11 pages, a year at full rate."""
    hosts_linked: float = 10
    """Hosts that the links of a page belong to."""
    pending: float = 0.1
    """Share of the known URLs that wait."""
    delay_s: float = 1.0
    latency_s: float = 0.2
    worker_pages_per_s: float = 300
    """One worker on one core at 92 %: 2.56 ms of CPU (python bench/throughput.py), 0.51 for TLS (python bench/download.py)."""
    warc_bytes: float = 14_415
    """A page of 31 KB: python bench/warc.py."""
    item_bytes: float = 12_000
    """A line of pages.jsonl: text and links of such a page."""
    host_pages: float = 4
    """Pages that a host gives on a day when it gives any."""
    robots_bytes: float = 420
    """A robots.txt in Redis: what concerns us, compressed, 259 in the mean of 2,524 real files; its key and expiry."""
    chunk_bytes: float = 26
    """A pending URL in a chunk on disk: 13 to 26 (`bench/chunks.py --sizes`)."""
    shard_load: float = 0.6
    """Share of its core that a Redis server is run at."""
    server_bytes: float = 64e9
    """Memory of one Redis server: a fork for its append-only file stops it for about 1.3 s (20 ms a GB)."""


@dataclass(frozen=True)
class Size:
    urls: float
    hosts: float
    partitions: int


def sizes() -> list[Size]:
    """Hosts: 1 for 11 URLs at first, 200 M at the end; between them about the geometric mean."""
    return [Size(urls, hosts, p) for urls, hosts in ((1e6, 9e4), (1e9, 1e7), (5e11, 2e8)) for p in (64, 1024)]


# -- the seen-set, as lua/seen.lua makes it ------------------------------------------------------------------------------


def constant(file: str, name: str) -> int:
    """`local NAME = 123` of a script."""
    found = re.search(rf"^local {name} = (\d+)", (LUA / file).read_text(), re.M)
    if not found:
        raise SystemExit(f"{file} has no {name}")
    return int(found[1])


SEGMENT_BLOCKS = constant("seen.lua", "SEGMENT_BLOCKS")
FEW = constant("seen.lua", "FEW")
BACK_CAP = constant("common.lua", "BACK_CAP")
LEAST_CAPACITY = 1024
EXPECTED_MARGIN = 1.2  # hosts differ in size, so partitions do; one that is over gets a second layer, as large
LEASE_WINDOW_S = (1 - rota.EARLY_SHARED) * Limits().look_ahead_s  # a worker asks so much later than it could (rota.py)


def block_rate(bits_per_key: float) -> float:
    """False positives of a full filter: eight 64-bit sections a block, Poisson-filled."""
    mean, rate = 512 / bits_per_key, 0.0
    p = math.exp(-mean)
    for j in range(1, math.ceil(mean + 12 * math.sqrt(mean) + 12) + 1):
        p *= mean / j
        rate += p * (1 - (63 / 64) ** j) ** 8
    return rate


def bits_for(rate: float) -> float:
    low, high = 4.0, 256.0
    for _ in range(30):
        mid = (low + high) / 2
        low, high = (mid, high) if block_rate(mid) > rate else (low, mid)
    return high


@dataclass(frozen=True)
class Layer:
    capacity: float
    keys: float
    bits: float

    @property
    def allocated_bytes(self) -> float:
        """Segments are allocated at their first write: hashes spread over all of them at once."""
        return math.ceil(self.capacity * self.bits / 512) * 64

    @property
    def rate(self) -> float:
        return block_rate(self.bits * self.capacity / self.keys) if self.keys else 0.0


def layers(keys: float, expected: float, rate: float) -> list[Layer]:
    expected = max(expected, LEAST_CAPACITY)
    planned = [(expected, 0.64)]
    left = 0.36
    if expected > FEW:
        planned, left = [(max(FEW / 2, min(expected / 32, 2**20)), 0.02), *planned], 0.34
    made: list[Layer] = []
    while keys > 0 or not made:
        if len(made) == len(planned):
            planned.append((planned[-1][0] * (1 if left > 0.33 else 2), left * 0.2))  # each doubles the whole
            left *= 0.8
        capacity, share = planned[len(made)]
        made.append(Layer(capacity, min(keys, capacity), bits_for(rate * share)))
        keys -= capacity
    return made


# -- the tables ----------------------------------------------------------------------------------------------------------


def human(value: float, unit: str = "") -> str:
    """12,300,000 is 12.3 M."""
    for limit, letter in ((1e12, "T"), (1e9, "G" if unit else "bn"), (1e6, "M"), (1e3, "k" if not unit else "K")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {letter}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def rows(given: Given, measured: Measured, size: Size) -> Iterator[tuple[str, str, str]]:
    """Table, line, value."""
    p, limits = size.partitions, Limits()
    per_partition = size.urls / p
    seen = layers(per_partition, size.urls * EXPECTED_MARGIN // p, limits.false_positives)
    unset = layers(per_partition, DEFAULTS.expected_urls // p, limits.false_positives)
    pending, active = size.urls * given.pending, min(size.hosts, DEFAULTS.active_hosts)
    with_urls = min(size.hosts, pending)
    segments = sum(math.ceil(layer.allocated_bytes / (SEGMENT_BLOCKS * 64)) for layer in seen)

    memory = "Keys and memory"
    yield memory, "hosts", human(size.hosts)
    yield memory, "URLs a partition", human(per_partition)
    yield memory, "pending URLs", human(pending)
    yield memory, "keys", human(size.hosts + with_urls + p * (segments + 20))
    yield memory, "seen-set", human(p * sum(layer.allocated_bytes for layer in seen), "B")
    yield memory, "pending URLs in lists and back queues", human(pending * measured.pending_bytes, "B")
    yield memory, "hosts with URLs", human(with_urls * measured.host_bytes, "B")
    yield memory, "hosts without", human((size.hosts - with_urls) * measured.idle_host_bytes, "B")
    turn_s = max(given.delay_s, DEFAULTS.latency_factor * given.latency_s) + given.latency_s
    kept = min(size.hosts, given.pages_per_s * ROBOTS_KEPT_S / given.host_pages)
    robots = kept * given.robots_bytes
    yield memory, "robots.txt of 30 days", human(robots, "B")
    total = (
        p * sum(layer.allocated_bytes for layer in seen)
        + pending * measured.pending_bytes
        + with_urls * measured.host_bytes
        + (size.hosts - with_urls) * measured.idle_host_bytes
        + robots
    )
    yield memory, "**together**", f"**{human(total, 'B')}**"
    by_memory = math.ceil(total / given.server_bytes)
    yield memory, f"servers of {human(given.server_bytes, 'B')}", f"{by_memory:,}"
    with_chunks = total - (pending - active * BACK_CAP) * measured.pending_bytes if pending > active * BACK_CAP else total
    yield memory, "the same with all but the back queues on disk", human(with_chunks, "B")
    yield memory, "chunks on disk", human(max(0.0, pending - active * BACK_CAP) * given.chunk_bytes, "B")

    bloom = "Seen-set"
    for name, made in (("CRAWLWEB_EXPECTED_URLS 1.2 × the URLs", seen), ("CRAWLWEB_EXPECTED_URLS left at 1,000,000", unset)):
        yield bloom, f"{name}: layers", str(len(made))
        yield bloom, f"{name}: bytes a URL", f"{sum(layer.allocated_bytes for layer in made) / per_partition:.2f}"
        yield bloom, f"{name}: false positives", f"{sum(layer.rate for layer in made):.3%}"
        yield bloom, f"{name}: Redis CPU of an old known URL", f"{measured.known_us + (len(made) - 1) * measured.layer_us:.1f} µs"
    yield bloom, "strings of a partition, at most 4 MiB each", f"{segments:,}"

    load = load_of(given, measured, size, seen, given.pages_per_s)
    speed = f"At {given.pages_per_s:,.0f} pages a second"
    aof_a_s = given.pages_per_s * load.aof_bytes
    by_cpu = math.ceil(given.pages_per_s * load.redis_us / 1e6 / given.shard_load)
    disk = (human(given.pages_per_s * used * 86_400, "B") for used in (given.warc_bytes, given.item_bytes))
    yield speed, "hosts in use at a time (delay, latency factor)", human(given.pages_per_s * turn_s)
    yield speed, "workers of one core", f"{load.workers:,}"
    yield speed, "calls a page: links / outcomes / leases", f"{load.enqueues:.1f} / {load.completes:.1f} / {load.leases:.1f}"
    yield speed, "lease calls that find nothing, a second", human(load.polls)
    yield (
        speed,
        "Redis CPU a page: work / calls / empty calls",
        f"{load.work_us / 1000:.2f} / {load.calls_us / 1000:.2f} / {load.polls_us / 1000:.2f} ms",
    )
    yield speed, "worker CPU a page for Redis", f"{load.client_us / 1000:.2f} ms"
    yield speed, f"Redis servers by CPU, at {given.shard_load:.0%} of a core", f"{by_cpu:,}"
    yield speed, "**Redis servers by CPU and memory**", f"**{max(by_cpu, by_memory):,}**"
    yield speed, "one server is enough by CPU up to", f"{one_server(given, measured, size, seen):,.0f} pages/s"
    yield speed, "append-only files, before they are rewritten", f"{human(aof_a_s, 'B')}/s, {human(aof_a_s * 86_400, 'B')} a day"
    yield speed, "WARC, and pages.jsonl, a day", " and ".join(disk)
    yield speed, "days until every pending URL had its turn", f"{pending / given.pages_per_s / 86_400:.3g}"


@dataclass(frozen=True)
class Load:
    """A page, but for `workers` and `polls`, which are a second's."""

    workers: int
    enqueues: float
    completes: float
    leases: float
    polls: float
    work_us: float
    calls_us: float
    polls_us: float
    client_us: float
    aof_bytes: float

    @property
    def redis_us(self) -> float:
        return self.work_us + self.calls_us + self.polls_us


def load_of(given: Given, measured: Measured, size: Size, seen: list[Layer], pages_per_s: float) -> Load:
    p = size.partitions
    sent = given.links * (1 - given.cached)
    workers = math.ceil(pages_per_s / given.worker_pages_per_s)
    flushed = pages_per_s / workers * outbox.flush_s(given.delay_s)  # pages that a worker's flush has

    def calls(parts: float) -> float:
        """If each page has something for so many partitions: those that a flush finds something for."""
        return p * (1 - math.pow(1 - 1 / p, flushed * parts)) / flushed

    enqueues, completes = calls(given.hosts_linked), calls(1)
    leases = 1 / (1 + pages_per_s / p * LEASE_WINDOW_S)  # hosts that come due within a window are leased together
    idle_s = rota.IDLE_MOST * poller.POLL_MAX_S
    asked = p * pollers(workers, p) * max(1 / idle_s, min(pages_per_s / p, 1 / LEASE_WINDOW_S))
    polls = max(0.0, asked - leases * pages_per_s)
    calls_a_page, polls_a_page = enqueues + completes + leases, polls / pages_per_s
    keys = sum(layer.keys for layer in seen)
    newer = sum(n * layer.keys / keys for n, layer in enumerate(reversed(seen)))  # layers that are asked before a known key's own
    known_us = measured.known_us + newer * measured.layer_us
    new_us = measured.new_us + (len(seen) - 1) * measured.layer_us
    return Load(
        workers=workers,
        enqueues=enqueues,
        completes=completes,
        leases=leases,
        polls=polls,
        work_us=(sent - given.new) * known_us + given.new * new_us + measured.turn_us,
        calls_us=calls_a_page * measured.call_us,
        polls_us=polls_a_page * measured.poll_us,
        client_us=sent * measured.client_link_us + (calls_a_page + polls_a_page) * measured.client_call_us,
        aof_bytes=given.new * measured.new_aof_bytes
        + measured.turn_aof_bytes
        + calls_a_page * measured.call_aof_bytes
        + polls_a_page * measured.poll_aof_bytes,
    )


def one_server(given: Given, measured: Measured, size: Size, seen: list[Layer]) -> float:
    """Pages a second, in whole workers, that one Redis server has the CPU for."""
    workers = 0
    while True:
        pages_per_s = (workers + 1) * given.worker_pages_per_s
        if pages_per_s * load_of(given, measured, size, seen, pages_per_s).redis_us / 1e6 > given.shard_load:
            return workers * given.worker_pages_per_s
        workers += 1


def print_tables(given: Given, measured: Measured) -> None:
    columns = sizes()
    tables: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for size in columns:
        for title, line, value in rows(given, measured, size):
            tables[title][line].append(value)
    heads = [f"{human(size.urls)} URLs, P {size.partitions:,}" for size in columns]
    for title, lines in tables.items():
        print(f"### {title}\n")
        print(f"| | {' | '.join(heads)} |\n|{' --- |' * (len(heads) + 1)}")
        for line, values in lines.items():
            print(f"| {line} | {' | '.join(values)} |")
        print()
    print(f"### Measured on this code\n\n`python bench/scale.py --measure`, Redis 7.0.15: {named(measured)}.\n")
    print(f"### Given\n\nSwitches of the script: {named(given)}.")


def named(values: Measured | Given) -> str:
    return ", ".join(f"{field.name} {getattr(values, field.name):,.6g}" for field in fields(values))


# -- measuring -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    server_us: float
    client_us: float
    aof_bytes: float
    memory_bytes: float


async def cost(redis: Redis, work: Coroutine[Any, Any, Any]) -> Cost:
    before, client_s = await redis.info("all"), time.process_time()
    await work
    client_s = time.process_time() - client_s
    after = await redis.info("all")

    def more(*names: str) -> float:
        return float(sum(after[name] - before[name] for name in names))

    return Cost(more("used_cpu_user", "used_cpu_sys") * 1e6, client_s * 1e6, more("aof_current_size"), more("used_memory"))


def batches(rng: random.Random, urls: int, hosts: int) -> list[list[Link]]:
    """Batches as workers send them, ten URLs of a host in a row, hosts by Zipf's law; URLs of about 61 characters, referrers of 45."""
    names = [f"{rng.getrandbits(48):x}.example" for _ in range(hosts)]
    weights = list(itertools.accumulate(1 / (rank + 1) ** 0.9 for rank in range(hosts)))
    made = []
    for first in range(0, urls, outbox.LINK_BATCH):
        batch: list[Link] = []
        for host in rng.choices(names, cum_weights=weights, k=outbox.LINK_BATCH // 10):
            referrer = f"https://{host}/section/{rng.getrandbits(30)}"
            for _ in range(10):
                url = f"https://{host}/articles/{rng.getrandbits(64):016x}/{first + len(batch)}"
                batch.append(Link(host, rng.randbytes(16), Entry(url, rng.randint(4, 9), 3, referrer)))
        made.append(batch)
    return made


async def send(frontier: Frontier, links: list[list[Link]]) -> None:
    for batch in links:
        await frontier.enqueue(0, batch)


async def turns(frontier: Frontier, most: int) -> int:
    """Leases and completes until `most` URLs are done, or nothing is left."""
    done = 0
    while done < most:
        _, leases = await frontier.lease(0, rota.BATCH_MOST)
        if not leases:
            break
        await frontier.complete(0, [Outcome(lease, "d", lease.not_before, 0.1) for lease in leases])
        done += len(leases)
    return done


async def polls(frontier: Frontier, count: int) -> None:
    for _ in range(count):
        await frontier.lease(0, rota.BATCH_MOST)


async def measure_once(redis: Redis, urls: int, rng: random.Random) -> Measured:
    await redis.flushall()
    active = DEFAULTS.active_hosts // DEFAULTS.partitions

    def frontier(crawl: str, expected: int = urls) -> Frontier:
        limits = Limits(min_delay_s=0, latency_factor=0, expected_urls=expected, active_hosts=active)
        return Frontier(redis, crawl, 1, "worker", limits)

    async def beside_seen(crawl: str, used: Cost) -> float:
        names = [name async for name in redis.scan_iter(match=f"{{{crawl}:0}}:bloom*", count=10_000)]
        return used.memory_bytes - sum([await redis.memory_usage(name) or 0 for name in names])

    many, few = batches(rng, urls, urls // 11), batches(rng, urls, urls // 200)
    hosts_many, hosts_few = (len({link.host for batch in made for link in batch}) for made in (many, few))
    main = frontier("many")
    new = await cost(redis, send(main, many))
    known = await cost(redis, send(main, many))
    singles = [[link] for batch in many[:20] for link in batch]
    single = await cost(redis, send(main, singles))
    new_few = await cost(redis, send(frontier("few"), few))
    memory_many, memory_few = await beside_seen("many", new), await beside_seen("few", new_few)
    host_bytes = (memory_many - memory_few) / (hosts_many - hosts_few)

    layered = frontier("layers", 1)
    await send(layered, many)
    depth = int(await cast(Any, redis.hget("{layers:0}:bloom", "n")))
    oldest = many[: LEAST_CAPACITY // outbox.LINK_BATCH] * 40
    in_oldest = await cost(redis, send(layered, oldest))
    in_only = await cost(redis, send(main, oldest))

    done = 0

    async def work() -> None:
        nonlocal done
        done = await turns(main, urls // 8)

    turn = await cost(redis, work())
    poll = await cost(redis, polls(frontier("empty"), 3000))

    small = frontier("idle")
    one_each = [[Link(link.host, link.key, link.entry) for link in batch[::10]] for batch in many]
    idle = await cost(redis, send(small, one_each))
    idle_hosts = len({link.host for batch in one_each for link in batch})
    drained = await cost(redis, turns(small, urls))
    idle_bytes = await beside_seen("idle", replace(idle, memory_bytes=idle.memory_bytes + drained.memory_bytes)) / idle_hosts

    return Measured(
        new_us=new.server_us / urls,
        known_us=known.server_us / urls,
        layer_us=(in_oldest.server_us - in_only.server_us) / sum(map(len, oldest)) / (depth - 1),
        turn_us=turn.server_us / done,
        poll_us=poll.server_us / 3000,
        call_us=single.server_us / len(singles) - known.server_us / urls,
        new_aof_bytes=new.aof_bytes / urls,
        call_aof_bytes=single.aof_bytes / len(singles),
        turn_aof_bytes=turn.aof_bytes / done,
        poll_aof_bytes=poll.aof_bytes / 3000,
        client_link_us=known.client_us / urls,
        client_call_us=poll.client_us / 3000,
        pending_bytes=(memory_many - host_bytes * hosts_many) / urls,
        host_bytes=host_bytes,
        idle_host_bytes=idle_bytes,
    )


async def measure(urls: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        server = PrivateServer(Path(folder))
        server.start()
        try:
            async with Redis.from_url(server.url) as redis:
                info: dict[str, Any] = await redis.info("server")
                await redis.config_set("auto-aof-rewrite-percentage", 0)
                print(f"redis {info['redis_version']}, python {platform.python_version()}, {urls:,} URLs, medians of {rounds} rounds")
                runs = [await measure_once(redis, urls, random.Random(seed)) for seed in range(rounds)]
        finally:
            server.stop()
    for field in fields(Measured):
        print(f"    {field.name}: float = {statistics.median(getattr(run, field.name) for run in runs):.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--urls", type=int, default=220_000, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of a measurement")
    tables = (Given(), Measured())
    for values in tables:
        for field in fields(values):
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=float, default=getattr(values, field.name))
    options = parser.parse_args()
    if options.measure:
        asyncio.run(measure(options.urls, options.rounds))
        return
    given, measured = (type(values)(**{field.name: getattr(options, field.name) for field in fields(values)}) for values in tables)
    assert isinstance(given, Given)
    assert isinstance(measured, Measured)
    print_tables(given, measured)


if __name__ == "__main__":
    main()
