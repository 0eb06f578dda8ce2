"""A frontier under test: real Redis, its own event loop, time as a number that the test sets, calls that can be lost or repeated."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest import mock

import redis
from redis.asyncio import Redis

from crawlweb.frontier import codec, scripts
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.keys import partition_of
from crawlweb.frontier.rows import NORMAL, Lease, Limits, Link, Outcome
from crawlweb.records import Entry

T = TypeVar("T")
STEPS = ("enqueue", "lease", "complete", "renew", "override", "requeue", "spill")  # whose calls are kept
CLOCK = "test:now"  # ms: what the scripts read instead of the server's time
WORKER_AHEAD_S = 5_000.25  # a worker's clock has nothing to do with the server's
_SERVER_MS = re.compile(r"^local function server_ms\(\)\n.*?^end$", re.M | re.S)
_REAL_SOURCE, _REAL_SLEEP = scripts.source, asyncio.sleep


def patched_source(step: str, **constants: int) -> str:
    """A step whose clock is the key CLOCK; `constants` replaces some of the scripts' own, such as BACK_CAP."""
    text, n = _SERVER_MS.subn(f"local function server_ms()\n  return num(redis.call('GET', '{CLOCK}') or 0)\nend", _REAL_SOURCE(step))
    assert n == 1
    for name, value in constants.items():
        text = re.sub(rf"^local {name} = \S+", f"local {name} = {value}", text, flags=re.M)
    return text


async def _no_pause(_: float) -> None:
    await _REAL_SLEEP(0)


def url_key(url: str) -> bytes:
    return hashlib.blake2b(url.encode(), digest_size=16).digest()


def link(host: str, path: str = "/", priority: int = 5, how: int = NORMAL, before: str = "https://", **more: Any) -> Link:
    url = f"{before}{host}{path}"
    return Link(host, url_key(url), Entry(url, priority, **more), how)


def hosts_in(partition: int, partitions: int, count: int, start: int = 0) -> list[str]:
    """Host names of one partition."""
    names: list[str] = []
    while len(names) < count:
        name = f"h{start}.org"
        if partition_of(name, partitions) == partition:
            names.append(name)
        start += 1
    return names


class Wire:
    """Stands between a Frontier and its client: keeps the calls of steps as sent, and can lose the next answer."""

    def __init__(self, client: Redis, active_hosts: int | None) -> None:
        self.client, self.lose_next, self.active_hosts = client, False, active_hosts
        self.sent: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    async def execute_command(self, *args: Any) -> Any:
        if args[0] == "EVALSHA" and args[1] == scripts.digest("lease") and self.active_hosts is not None:
            args = (*args[:9], self.active_hosts, *args[10:])
        answer = await self.client.execute_command(*args)
        if args[0] == "EVALSHA" and args[1] in map(
            scripts.digest, ("enqueue", "lease", "complete", "renew", "override", "requeue", "spill")
        ):
            self.sent.append(args)
            if self.lose_next:
                self.lose_next = False
                raise redis.exceptions.ConnectionError("lost on the way")
        return answer


class Rig:
    """`t`: ms on the server's clock. `active_hosts`: of a partition, below the least that a Frontier asks for. `through`: an address that
    frontiers have of the server (lossy.py)."""

    def __init__(
        self,
        url: str,
        partitions: int = 1,
        workers: int = 1,
        limits: Limits | None = None,
        constants: dict[str, int] | None = None,
        active_hosts: int | None = None,
        through: str = "",
    ) -> None:
        self.t = self.latest = 0
        self.loop = asyncio.new_event_loop()
        self.partitions = partitions
        texts = {step: patched_source(step, **(constants or {})) for step in scripts.STEPS}
        digests = {step: hashlib.sha1(text.encode()).hexdigest() for step, text in texts.items()}
        self._patches = [
            mock.patch.object(scripts, "source", texts.__getitem__),
            mock.patch.object(scripts, "digest", digests.__getitem__),
            mock.patch("crawlweb.frontier.frontier.boottime", self.worker_s),
            mock.patch("asyncio.sleep", _no_pause),
        ]
        for patch in self._patches:
            patch.start()
        self.sync = redis.Redis.from_url(url)
        self.client = Redis.from_url(through or url, single_connection_client=True)
        self.limits = limits or Limits(expected_urls=2048 * partitions)
        self.wires = [Wire(self.client, active_hosts) for _ in range(workers)]
        self.frontiers = [Frontier(w, "t", partitions, f"w{i}", self.limits) for i, w in enumerate(self.wires)]  # type: ignore[arg-type]
        self.f = self.frontiers[0]
        for text in texts.values():
            self.sync.script_load(text)
        self.at(1_000_000_000)

    def close(self) -> None:
        self.run(self.client.aclose())
        self.sync.close()
        self.loop.close()
        for patch in self._patches:
            patch.stop()

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    def worker_s(self) -> float:
        return self.t / 1000 + WORKER_AHEAD_S

    def server_ms(self, worker_s: float) -> int:
        return round((worker_s - WORKER_AHEAD_S) * 1000)

    def at(self, t: int) -> None:
        self.t, self.latest = t, max(self.latest, t)
        self.sync.set(CLOCK, t)

    def later(self, ms: int) -> None:
        self.at(self.t + ms)

    def enqueue(self, *links: Link, partition: int = 0) -> str:
        return "".join(self.run(self.f.enqueue(partition, links[i : i + 200])) for i in range(0, len(links), 200))

    def lease(self, most: int = 100, partition: int = 0, reclaim: bool = True) -> list[Lease]:
        return self.run(self.f.lease(partition, most, reclaim))[1]

    def complete(self, lease: Lease, way: str = "d", ago_ms: int | None = 0, **more: Any) -> str:
        ended = None if ago_ms is None else self.worker_s() - ago_ms / 1000
        return self.run(self.f.complete(lease.partition, [Outcome(lease, way, ended, **more)]))

    def key(self, name: str, partition: int = 0) -> str:
        return self.f.key(partition, name)

    def counters(self, partition: int = 0) -> dict[str, int]:
        return {k.decode(): int(v) for k, v in self.sync.hgetall(self.key("ctr", partition)).items()}

    def back(self, host: str, partition: int = 0) -> list[str]:
        """URLs of a back queue, best first."""
        return [codec.decode(e, host).url for e in self.sync.zrange(self.key(f"back:{host}", partition), 0, -1)]

    def state(self, host: str, partition: int = 0) -> str | None:
        s = self.fields(host, partition).get(b"s")
        return s.decode() if s else None

    def fields(self, host: str, partition: int = 0) -> dict[bytes, bytes]:
        """What is kept of a host, packed or not."""
        pairs: Any = self.sync.eval(scripts.source("peek"), 1, self.key("ctr", partition), "peek", 0, host)
        return dict(zip(pairs[::2], pairs[1::2], strict=True))

    def check(self) -> dict[str, Any]:
        """Nothing is in no place."""
        found = self.run(self.f.audit())
        assert found["lost"] == 0, found
        return found

    def dump(self) -> dict[bytes, Any]:
        """Everything in the database but the clock and the times that keys expire at."""
        keys = sorted(k for k in self.sync.scan_iter(count=1000) if k != CLOCK.encode())
        pipe = self.sync.pipeline(transaction=False)
        for key in keys:
            pipe.type(key)
        kinds = pipe.execute()
        for key, kind in zip(keys, kinds, strict=True):
            READERS[kind](pipe, key)
        return dict(zip(keys, pipe.execute(), strict=True))


READERS: dict[bytes, Any] = {
    b"string": lambda p, k: p.get(k),
    b"list": lambda p, k: p.lrange(k, 0, -1),
    b"hash": lambda p, k: p.hgetall(k),
    b"set": lambda p, k: p.smembers(k),
    b"zset": lambda p, k: p.zrange(k, 0, -1, withscores=True),
}
