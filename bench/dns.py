"""The resolver under load: names at a steady rate through name servers on loopback, in another process, that take their time.
Prints look-ups, failures by kind, percentiles of a look-up, and the longest stall of the event loop (a ticker of 5 ms), without
the time in which the loop could have run and the machine ran others, which is told beside it.

    silent     one server; --bad of the names are never answered
    rescued    the same, and a second server that answers all
    lossy      one server that loses --bad of the queries, whatever the name
    burst      all names at once, one server
    full       no load: 50,000 names are looked up, 500 at once; what they cost in memory and in a run of the garbage collector

    python bench/dns.py [--names 5000] [--rate 200] [--latency-ms 50] [--bad 0.01] [--cases silent rescued lossy burst full]

Status 1 if the loop stalled more than --stalls times for longer than --stall-ms, once for ten times as long, or a case had
failures that it must not have.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import random
import resource
import socket
import statistics
import struct
import sys
import time
from collections import Counter
from functools import partial

import aiodns
import pycares
import uvloop

from crawlweb.dns import Resolver
from crawlweb.errors import FetchError

CASES = {"silent": ["deaf"], "rescued": ["deaf", "good"], "lossy": ["lossy"], "burst": ["good"], "full": ["good"]}
TICK_S = 0.005
ADDRESS = struct.pack(">HHHIH", 0xC00C, 1, 1, 300, 4) + socket.inet_aton("127.0.0.1")


class Server(asyncio.DatagramProtocol):
    """Answers any name after a while. `kind`: `deaf` to names of silent.example, `lossy`, or `good`."""

    def __init__(self, kind: str, latency_s: float, bad: float, seed: int) -> None:
        self.kind, self.latency_s, self.bad, self.rng = kind, latency_s, bad, random.Random(seed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: object) -> None:
        if (self.kind == "deaf" and b"\6silent" in data.lower()) or (self.kind == "lossy" and self.rng.random() < self.bad):
            return
        end = data.index(b"\0", 12) + 5
        answer = data[:2] + struct.pack(">HHHHH", 0x8180, 1, 1, 0, 0) + data[12:end] + ADDRESS
        asyncio.get_running_loop().call_later(self.latency_s, self.transport.sendto, answer, addr)  # type: ignore[attr-defined]


def serve(ports: multiprocessing.SimpleQueue[dict[str, int]], latency_s: float, bad: float, seed: int) -> None:
    async def main() -> None:
        listening = {}
        for kind in ("deaf", "lossy", "good"):
            made = partial(Server, kind, latency_s, bad, seed)
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(made, local_addr=("127.0.0.1", 0))
            listening[kind] = transport.get_extra_info("sockname")[1]
        ports.put(listening)
        await asyncio.Event().wait()

    asyncio.run(main())


def waited_s() -> float:
    """Seconds that this thread was ready to run while the machine ran others; 0 where the kernel does not say."""
    try:
        with open("/proc/thread-self/schedstat") as schedstat:
            return int(schedstat.read().split()[1]) / 1e9
    except OSError:
        return 0.0


async def tick(stalls: list[tuple[float, float]]) -> None:
    """Adds how much longer than its 5 ms each tick took, without and with the time that the machine ran others; seconds."""
    while True:
        began, waited = time.perf_counter(), waited_s()
        await asyncio.sleep(TICK_S)
        late_s = time.perf_counter() - began - TICK_S
        stalls.append((late_s - (waited_s() - waited), late_s))


async def look_up_all(resolver: Resolver, names: list[str], rate: float) -> tuple[list[float], Counter[str], list[tuple[float, float]]]:
    took_s: list[float] = []
    failures: Counter[str] = Counter()

    async def one(name: str) -> None:
        began = time.perf_counter()
        try:
            await resolver.resolve(name)
        except FetchError as error:
            failures[error.kind] += 1
        took_s.append(time.perf_counter() - began)

    stalls: list[tuple[float, float]] = []
    ticking = asyncio.ensure_future(tick(stalls))
    under_way: set[asyncio.Future[None]] = set()
    began = time.perf_counter()
    for number, name in enumerate(names):
        await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()) if rate else 0)
        task = asyncio.ensure_future(one(name))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    ticking.cancel()
    return took_s, failures, stalls


async def fill(resolver: Resolver, names: int) -> None:
    """Prints what a full cache costs."""

    async def some(first: int) -> None:
        for number in range(first, names, 500):
            await resolver.resolve(f"n{number}.good.example")

    def gc_ms() -> float:
        gc.collect()
        began = time.perf_counter()
        gc.collect()
        return (time.perf_counter() - began) * 1000

    def rss_mb() -> float:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize() / 1e6

    ms, mb = gc_ms(), rss_mb()
    await asyncio.gather(*(some(first) for first in range(500)))
    print(f"full     {names} names: {rss_mb() - mb:+.0f} MB; a full garbage collection took {ms:.1f} ms before, {gc_ms():.1f} ms after")


async def main(ports: dict[str, int], options: argparse.Namespace) -> bool:
    rng, all_well = random.Random(options.seed), True
    for case in options.cases:
        bad = set(rng.sample(range(options.names), round(options.names * options.bad)))
        names = [f"n{number}.{'silent' if number in bad else 'good'}.example" for number in range(options.names)]
        addresses = [f"127.0.0.1:{ports[kind]}" for kind in CASES[case]]
        resolver = Resolver(addresses, allow_private=True, timeout_s=options.timeout_s)
        if case == "full":
            await fill(resolver, 50_000)
            await resolver.close()
            continue
        began, cpu = time.perf_counter(), time.process_time()
        took_s, failures, stalls = await look_up_all(resolver, names, 0 if case == "burst" else options.rate)
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        await resolver.close()
        cuts_ms = [cut * 1000 for cut in statistics.quantiles(took_s, n=1000)]
        stall_s, long = max(stalls)[0], sum(stall_s * 1000 > options.stall_ms for stall_s, _ in stalls)
        print(
            f"{case:8} {len(took_s)} look-ups in {wall_s:.1f} s, failures {dict(failures) or 'none'}; "
            f"p50 {cuts_ms[499]:.0f}, p99 {cuts_ms[989]:.0f}, p99.9 {cuts_ms[998]:.0f} ms; "
            f"CPU {cpu_s / len(took_s) * 1e6:.0f} us a look-up; "
            f"longest stall {stall_s * 1000:.1f} ms, {long} over {options.stall_ms:g} ms "
            f"(with the machine's: {max(late_s for _, late_s in stalls) * 1000:.1f} ms)",
            flush=True,
        )
        expected = {"dns_timeout": len(bad)} if case == "silent" and bad else {}
        all_well &= failures == expected and long <= options.stalls and stall_s * 100 <= options.stall_ms
    return all_well


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=200, help="look-ups a second")
    parser.add_argument("--latency-ms", type=float, default=50)
    parser.add_argument("--bad", type=float, default=0.01, help="part of the names, or queries, that get no answer")
    parser.add_argument("--timeout-s", type=float, default=5)
    parser.add_argument("--stall-ms", type=float, default=50)
    parser.add_argument("--stalls", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    options = parser.parse_args()
    queue: multiprocessing.SimpleQueue[dict[str, int]] = multiprocessing.SimpleQueue()
    server = multiprocessing.Process(target=serve, args=(queue, options.latency_ms / 1000, options.bad, options.seed), daemon=True)
    server.start()
    ports = queue.get()
    print(f"aiodns {aiodns.__version__}, c-ares {pycares.ARES_VERSION}, {options.loop}, {options.latency_ms:g} ms a query")
    well = (uvloop.run if options.loop == "uvloop" else asyncio.run)(main(ports, options))
    server.terminate()
    sys.exit(not well)
