"""What a fail-over to a replica loses, and what it costs to lose less: min-replicas-to-write, WAIT.

    python bench/failover.py                      costs in alternating rounds, then losses
    python bench/failover.py --rounds 5 --seconds 10 --kills 3

A master and a replica on loopback (append-only, everysec), eight callers that enqueue 100 links, lease 32 URLs and complete them. Loss: the
master is killed with `kill -9` and the replica promoted, `dies` while the link is well, `silent` after the link has said nothing for some
seconds (a process in between is stopped, and killed with what it holds). Of what callers had been told, an enqueue is lost if the promoted
server does not know the URL (it is gone), a completion if the URL is still leased (it is fetched again); counted once as it is, and once
after the worker, which lives, has told the server its last five seconds again (docs/decisions/recovery.md).

    python bench/failover.py --cluster            a cluster node falls silent: what redis-py's cluster client does to calls to the others
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import redis  # noqa: E402
from redis.asyncio import Redis  # noqa: E402
from redis.asyncio.cluster import RedisCluster  # noqa: E402
from redis.asyncio.retry import Retry  # noqa: E402
from redis.backoff import NoBackoff  # noqa: E402
from redis.exceptions import TimeoutError as RedisTimeoutError  # noqa: E402

from crawlweb.errors import FrontierError  # noqa: E402
from crawlweb.frontier.connect import Servers  # noqa: E402
from crawlweb.frontier.frontier import Frontier  # noqa: E402
from crawlweb.frontier.rows import NORMAL, Limits, Link, Outcome  # noqa: E402
from crawlweb.records import Entry  # noqa: E402
from tests.cluster import FAST_AOF, Node, Nodes, a_cluster, free_ports, nodes  # noqa: E402

CALLERS = 8
LINKS, LEASES = 100, 32
WAIT_MS = 500
PROXY = """
import select, socket, sys
here = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    a, _ = here.accept()
    b = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    other = {a: b, b: a}
    while other:
        for one in select.select(list(other), [], [])[0]:
            data = one.recv(65536)
            if not data:
                a.close(), b.close(), other.clear()
                break
            other[one].sendall(data)
"""


@dataclass(frozen=True)
class Way:
    """`lag_s`: min-replicas-max-lag, with min-replicas-to-write 1."""

    name: str
    lag_s: int | None = None
    waits: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        return () if self.lag_s is None else ("--min-replicas-to-write", "1", "--min-replicas-max-lag", str(self.lag_s))


WAYS = (Way("nothing"), Way("min-replicas 1, max-lag 10 s", 10), Way("min-replicas 1, max-lag 3 s", 3), Way("WAIT 1", waits=True))


class Waiting:
    """A client that takes no answer before a replica has what was written."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def execute_command(self, *args: Any) -> Any:
        pipe = self._client.pipeline(transaction=False)
        pipe.execute_command(*args)
        pipe.execute_command("WAIT", 1, WAIT_MS)
        answer, replicas = await pipe.execute(raise_on_error=False)
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(replicas, int) or replicas < 1:
            raise RedisTimeoutError("no replica has it yet")
        return answer


@dataclass
class Told:
    """What callers were told, and when (`time.monotonic`)."""

    enqueued: dict[str, tuple[Link, float]] = field(default_factory=dict)
    completed: dict[str, float] = field(default_factory=dict)
    """By token."""
    calls_ms: list[float] = field(default_factory=list)
    as_it_is: Loss | None = None
    told_again: Loss | None = None


def frontier_of(client: Any, run_of: Callable[[str], str] = lambda _: "") -> Frontier:
    limits = Limits(min_delay_s=0, seen="exact", lease_s=600, active_hosts=CALLERS * 1000)
    return Frontier(client, "b", CALLERS, "caller", limits, run_of)


def link(caller: int, n: int, i: int) -> Link:
    host = f"c{caller}n{n}i{i % 4}.example"
    url = f"https://{host}/articles/2024/{i:08}/a-title.html"
    return Link(host, hashlib.blake2b(url.encode(), digest_size=16).digest(), Entry(url, 5), NORMAL)


async def calls(frontier: Frontier, caller: int, told: Told, is_over: Callable[[], bool]) -> None:
    async def timed(call: Awaitable[Any]) -> Any:
        began = time.monotonic()
        answer = await call
        told.calls_ms.append((time.monotonic() - began) * 1000)
        return answer

    n = 0
    with suppress(FrontierError):  # closing
        while not is_over():
            n += 1
            links = [link(caller, n, i) for i in range(LINKS)]
            await timed(frontier.enqueue(caller, links))
            at = time.monotonic()
            told.enqueued.update((one.entry.url, (one, at)) for one in links)
            _, leases = await timed(frontier.lease(caller, LEASES))
            if leases:
                await timed(frontier.complete(caller, [Outcome(lease, "d") for lease in leases]))
                at = time.monotonic()
                told.completed.update((lease.token, at) for lease in leases)


@contextmanager
def a_pair(started: Nodes, way: Way, is_linked_by_proxy: bool) -> Iterator[tuple[Node, Node, subprocess.Popen[bytes] | None]]:
    master = started.start(*FAST_AOF, *way.options)
    proxy, port = None, master.port
    if is_linked_by_proxy:
        (port,) = free_ports(1)
        proxy = subprocess.Popen(
            [sys.executable, "-c", PROXY, str(port), str(master.port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert proxy.stdout
        proxy.stdout.readline()  # it listens
    replica = started.start(*FAST_AOF, "--replicaof", f"127.0.0.1 {port}")
    replica.wait_until(lambda client: client.info("replication")["master_link_status"] == "up")
    master.wait_until(lambda client: client.info("replication")["connected_slaves"] == 1)
    time.sleep(1.5)  # its first acknowledgement counts for min-replicas-max-lag
    try:
        yield master, replica, proxy
    finally:
        for node in (master, replica):
            node.kill()
        if proxy:
            proxy.kill()
            proxy.wait()
            assert proxy.stdout
            proxy.stdout.close()


async def drive(
    way: Way, master: Node, told: Told, work: Callable[[Frontier], Awaitable[None]], promoted: Callable[[], Node] | None = None
) -> None:
    """Callers call while `work` goes on; what they were told is told `promoted` again."""
    client = Redis(port=master.port, retry=Retry(NoBackoff(), 0), socket_timeout=5)
    runs = ["master"]
    frontier = frontier_of(Waiting(client) if way.waits else client, run_of=lambda _: runs[-1])
    over: list[bool] = []
    callers = [asyncio.ensure_future(calls(frontier, caller, told, lambda: bool(over))) for caller in range(CALLERS)]
    await work(frontier)
    over.append(True)
    await asyncio.gather(*callers)
    await client.aclose()
    if promoted:
        frontier.redis, frontier.closing = Redis(port=promoted().port), False
        told.as_it_is = await lost(told, promoted())
        runs.append("promoted")
        await frontier.tell_again(frontier.take_changed())
        told.told_again = await lost(told, promoted())
        await frontier.redis.aclose()


@dataclass(frozen=True)
class Cost:
    calls_per_s: float
    p50_ms: float
    p99_ms: float
    server_us: float
    client_us: float


def cost(way: Way, seconds: float) -> Cost:
    with nodes() as started, a_pair(started, way, False) as (master, _, _):
        told = Told()

        def server_s() -> float:
            cpu = cast(dict[str, float], master.client().info("cpu"))
            return cpu["used_cpu_user"] + cpu["used_cpu_sys"]

        def client_s() -> float:
            used = resource.getrusage(resource.RUSAGE_SELF)
            return used.ru_utime + used.ru_stime

        before_s = server_s(), client_s()
        asyncio.run(drive(way, master, told, lambda _: asyncio.sleep(seconds)))
        n = len(told.calls_ms)
        per_call = [(after - before) / n * 1e6 for before, after in zip(before_s, (server_s(), client_s()), strict=True)]
        cuts = statistics.quantiles(told.calls_ms, n=100)
        return Cost(n / seconds, cuts[49], cuts[98], *per_call)


@dataclass(frozen=True)
class Loss:
    """`oldest_s`: how long before the last answer the first of the lost was told."""

    enqueued: int
    lost_enqueued: int
    completed: int
    lost_completed: int
    oldest_s: float


def loss(way: Way, silent_s: float, seconds: float) -> Told:
    told = Told()
    with nodes() as started, a_pair(started, way, True) as (master, replica, proxy):
        assert proxy

        async def until_it_dies(frontier: Frontier) -> None:
            await asyncio.sleep(seconds)
            if silent_s:
                proxy.send_signal(signal.SIGSTOP)
                await asyncio.sleep(silent_s)
            master.kill()
            frontier.closing = True

        def promoted() -> Node:
            if silent_s:
                proxy.kill()
            replica.call("REPLICAOF", "NO", "ONE")
            return replica

        asyncio.run(drive(way, master, told, until_it_dies, promoted))
        return told


async def lost(told: Told, promoted: Node) -> Loss:
    """Reads only."""
    client = Redis(port=promoted.port)
    frontier = frontier_of(client)
    seen: set[int] = set()
    leased: set[bytes] = set()
    for p in range(CALLERS):
        leased.update(await cast(Any, client.hkeys(frontier.key(p, "leased"))))
        async for key in client.scan_iter(match=frontier.key(p, "seen:*"), count=1000):
            seen.update(map(int, await cast(Any, client.smembers(key))))
    await client.aclose()
    unknown = [at for one, at in told.enqueued.values() if int.from_bytes(one.key[:8], "big") % 2**63 not in seen]  # lua/exact.lua
    unfinished = [at for token, at in told.completed.items() if token.encode() in leased]
    last = max(at for at in (*(at for _, at in told.enqueued.values()), *told.completed.values()))
    oldest_s = last - min([*unknown, *unfinished], default=last)
    return Loss(len(told.enqueued), len(unknown), len(told.completed), len(unfinished), oldest_s)


# -- a cluster node falls silent -------------------------------------------------------------------------------------------


async def silence(make: Callable[[], Awaitable[Any]], close: Callable[[Any], Awaitable[None]], silent: Node, others: list[str]) -> None:
    """Calls to the other nodes, a second at a time."""
    client = await make()
    redis_of = getattr(client, "redis", client)
    done = 0
    over: list[bool] = []

    async def one(key: str, counts: bool) -> None:
        nonlocal done
        while not over:
            try:
                await redis_of.eval("return redis.call('INCR', KEYS[1])", 1, key)
                done += counts
            except redis.RedisError:
                await asyncio.sleep(0.5)
            await asyncio.sleep(0.02)

    keys = [f"{{web:{p}}}:ctr" for p in range(64)]
    tasks = [asyncio.ensure_future(one(key, key in others)) for key in keys]
    await asyncio.sleep(2)
    silent.stop()
    rates = []
    for _ in range(60):
        before = done
        await asyncio.sleep(1)
        rates.append(done - before)
    silent.go_on()
    over.append(True)
    await asyncio.gather(*tasks)
    await close(client)
    standing = sum(rate == 0 for rate in rates)
    print(f"    median {statistics.median(rates):.0f} calls a second to the other nodes, {standing} of 60 seconds without any")


def cluster() -> None:
    options: dict[str, Any] = {"socket_timeout": 10.0, "socket_connect_timeout": 5.0}
    with a_cluster() as running:
        silent = running.members[2]
        others = [key for p in range(64) if running.node_of(key := f"{{web:{p}}}:ctr") is not silent]

        async def theirs() -> Any:
            client = RedisCluster.from_url(running.url, **options, retry=Retry(NoBackoff(), 0), require_full_coverage=False)
            return await client.initialize()

        print("redis-py's RedisCluster")
        asyncio.run(silence(theirs, lambda client: cast(Any, client.aclose()), silent, others))
        running.wait_until_well()
        print("crawlweb.frontier.cluster")
        asyncio.run(silence(lambda: Servers.connect(running.url, {}), lambda servers: servers.close(), silent, others))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--silent", type=float, default=8.0, metavar="S", help="seconds that the link is silent before the master dies")
    parser.add_argument("--cluster", action="store_true")
    options = parser.parse_args()
    logging.disable()  # callers that wait say so
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {os.cpu_count()} cores; redis-py {redis.__version__}; Python {platform.python_version()}")
    if options.cluster:
        cluster()
        return
    costs: dict[str, list[Cost]] = {way.name: [] for way in WAYS}
    for n in range(options.rounds):
        for way in WAYS if n % 2 == 0 else reversed(WAYS):
            costs[way.name].append(cost(way, options.seconds))
    print("| | calls/s | p50 ms | p99 ms | CPU of the master, µs a call | of the client |\n| --- | --- | --- | --- | --- | --- |")
    for name, rows in costs.items() if options.rounds else ():
        cells = [
            statistics.median(getattr(row, cell) for row in rows) for cell in ("calls_per_s", "p50_ms", "p99_ms", "server_us", "client_us")
        ]
        print(f"| {name} | {cells[0]:,.0f} | {cells[1]:.1f} | {cells[2]:.1f} | {cells[3]:.0f} | {cells[4]:.0f} |", flush=True)
    print("\n| | the master | links told | lost | completions told | lost | the oldest, s | told again: links lost | completions |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for how, silent_s in (("dies", 0.0), (f"dies after {options.silent:g} s of silence", options.silent)):
        for way in WAYS:
            for _ in range(options.kills):
                told = loss(way, silent_s, options.seconds)
                first, then = told.as_it_is, told.told_again
                assert first
                assert then
                links, completions = f"{first.enqueued:,} | {first.lost_enqueued:,}", f"{first.completed:,} | {first.lost_completed:,}"
                again = f"{then.lost_enqueued:,} | {then.lost_completed:,}"
                print(f"| {way.name} | {how} | {links} | {completions} | {first.oldest_s:.2f} | {again} |", flush=True)


if __name__ == "__main__":
    main()
