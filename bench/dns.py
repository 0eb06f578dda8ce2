"""The resolver under load: names at a steady rate through name servers on loopback, in another process, that take their time.
Prints look-ups, failures by kind, percentiles of a look-up, and the longest stall of the event loop (a ticker of 5 ms; the CPU
that the process used meanwhile says whether it was ours: on a busy machine a stall with little CPU is the machine's).

    silent     one server; --bad of the names are never answered
    rescued    the same, and a second server that answers all
    lossy      one server that loses --bad of the queries, whatever the name
    burst      all names at once, one server

    python bench/dns.py [--names 5000] [--rate 200] [--latency-ms 50] [--bad 0.01] [--cases silent rescued lossy burst]

Status 1 if the loop stalled more than --stalls times for longer than --stall-ms, or a case had failures that it must not have.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
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


async def tick(stalls: list[tuple[float, float]]) -> None:
    """Adds how much longer than its 5 ms each tick took, and the process's CPU in it; seconds."""
    while True:
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(TICK_S)
        stalls.append((time.perf_counter() - began - TICK_S, time.process_time() - cpu))


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


async def main(ports: dict[str, int], options: argparse.Namespace) -> bool:
    rng, all_well = random.Random(options.seed), True
    servers = {"silent": ["deaf"], "rescued": ["deaf", "good"], "lossy": ["lossy"], "burst": ["good"]}
    for case in options.cases:
        bad = set(rng.sample(range(options.names), round(options.names * options.bad)))
        names = [f"n{number}.{'silent' if number in bad else 'good'}.example" for number in range(options.names)]
        addresses = [f"127.0.0.1:{ports[kind]}" for kind in servers[case]]
        resolver = Resolver(addresses, allow_private=True, timeout_s=options.timeout_s)
        began, cpu = time.perf_counter(), time.process_time()
        took_s, failures, stalls = await look_up_all(resolver, names, 0 if case == "burst" else options.rate)
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        await resolver.close()
        cuts_ms = [cut * 1000 for cut in statistics.quantiles(took_s, n=1000)]
        (stall_s, stall_cpu_s), long = max(stalls), sum(stall_s * 1000 > options.stall_ms for stall_s, _ in stalls)
        print(
            f"{case:8} {len(took_s)} look-ups in {wall_s:.1f} s, failures {dict(failures) or 'none'}; "
            f"p50 {cuts_ms[499]:.0f}, p99 {cuts_ms[989]:.0f}, p99.9 {cuts_ms[998]:.0f} ms; "
            f"CPU {cpu_s / len(took_s) * 1e6:.0f} us a look-up; "
            f"longest stall {stall_s * 1000:.1f} ms (CPU {stall_cpu_s * 1000:.1f} ms), {long} over {options.stall_ms:g} ms",
            flush=True,
        )
        expected = {"dns_timeout": len(bad)} if case == "silent" and bad else {}
        all_well &= failures == expected and long <= options.stalls
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
    parser.add_argument(
        "--cases", nargs="+", choices=["silent", "rescued", "lossy", "burst"], default=["silent", "rescued", "lossy", "burst"]
    )
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
