"""The turns of addresses on a real Redis: what is asked for together and when, who is refused, and when a hold ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from crawlweb import turns as module
from crawlweb.errors import FrontierError
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.keys import ip_shard_of
from crawlweb.frontier.rows import Lease, Limits
from crawlweb.job import Job
from crawlweb.records import Entry, boottime
from crawlweb.turns import AHEAD_S, BATCH, IpTurns, tick_s

PARTITIONS = 32  # two shards of addresses
DELAY_S = 0.4
LEASE_S = 30.0


async def until(state: Callable[[], object], seconds: float = 10) -> None:
    """Looks again and again; a state that does not come is a failure, not a wait."""
    deadline = boottime() + seconds
    while not state():
        assert boottime() < deadline, "this state never came"
        await asyncio.sleep(0.001)


def addresses(shard: int, count: int) -> list[str]:
    """Addresses of one shard."""
    names = (f"192.0.{n >> 8}.{n & 255}" for n in range(65_536))
    return [name for name in names if ip_shard_of(name, PARTITIONS) == shard][:count]


class Watched(Frontier):
    """A real frontier whose calls for addresses are written down, and can be held back."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked: list[tuple[float, int, list[Any], list[Any]]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def ip_turns(
        self, shard: int, ends: Sequence[tuple[str, str, float | None]], wishes: Sequence[tuple[str, str, str]]
    ) -> list[float]:
        self.asked.append((boottime(), shard, list(ends), list(wishes)))
        await self.gate.wait()
        return await super().ip_turns(shard, ends, wishes)

    def wished(self) -> list[str]:
        """Tokens in the order in which they were asked for."""
        return [token for _, _, _, wishes in self.asked for _, _, token in wishes]


class Desk:
    """Turns, and what was told of them."""

    def __init__(self, url: str) -> None:
        self.client = Redis.from_url(url)
        limits = Limits(ip_delay_s=DELAY_S, lease_s=LEASE_S, look_ahead_s=0.05)
        self.frontier = Watched(self.client, "t", PARTITIONS, "w1", limits)
        self.came: dict[str, tuple[float, float]] = {}
        self.refused: dict[str, float] = {}
        self.turns = IpTurns(self.frontier, self._came, self._refused)

    def _came(self, job: Job, not_before: float, until_: float) -> None:
        self.came[job.lease.token] = (not_before, until_)

    def _refused(self, job: Job, wait_s: float) -> None:
        self.refused[job.lease.token] = wait_s

    def job(self, token: str, ip: str, in_s: float = 0.0) -> Job:
        host = f"{token}.org"
        job = Job(Lease(token, 0, host, Entry(f"https://{host}/"), 0.0, 0.0), f"https://{host}", ip=ip)
        self.turns.wish(job, boottime() + in_s)
        return job

    async def holder(self, ip: str) -> str | None:
        key = f"{{t:ip:{ip_shard_of(ip, PARTITIONS)}}}:ip:{ip}"
        found = await self.client.hget(key, "h")
        return found.decode() if isinstance(found, bytes) else None


def run(url: str, work: Callable[[Desk], Awaitable[None]]) -> None:
    async def main() -> None:
        desk = Desk(url)
        asking = asyncio.ensure_future(desk.turns.ask_forever())
        try:
            await asyncio.wait_for(work(desk), 30)
            assert not asking.done()
        finally:
            desk.frontier.gate.set()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await desk.client.aclose()

    asyncio.run(main())


# -- turns ---------------------------------------------------------------------------------------------------------------


def test_an_address_that_is_free_is_held_at_once_and_as_long_as_a_lease(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        began = boottime()
        desk.job("a", "192.0.2.1")
        await until(lambda: desk.came)
        not_before, until_ = desk.came["a"]
        assert began <= not_before <= boottime()
        assert began + LEASE_S <= until_ <= not_before + LEASE_S  # counted from sending, so never longer than Redis holds it
        assert await desk.holder("192.0.2.1") == "a"
        assert desk.refused == {}

    run(redis_url, work)


def test_who_finds_an_address_held_is_refused_with_a_wait_and_comes_a_delay_after_the_end(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        ip = "192.0.2.1"
        desk.job("a", ip)
        await until(lambda: desk.came)
        desk.job("b", ip)
        await until(lambda: desk.refused)
        assert set(desk.came) == {"a"}
        assert 0 < desk.refused["b"] < 5
        ended = boottime()
        desk.turns.end(ip, "a", ended)
        await until(lambda: not desk.turns.unsent)
        desk.job("b", ip, DELAY_S)  # asked a little earlier, and held for its time
        await until(lambda: "b" in desk.came)
        assert desk.came["b"][0] - ended >= DELAY_S
        assert await desk.holder(ip) == "b"

    run(redis_url, work)


def test_several_at_once_are_refused_with_waits_in_a_row(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        for token in "abcd":
            desk.job(token, "192.0.2.1")
        await until(lambda: len(desk.came) + len(desk.refused) == 4)
        assert set(desk.came) == {"a"}
        waits = [desk.refused[token] for token in "bcd"]
        assert all(after - before >= DELAY_S for before, after in itertools.pairwise(waits))

    run(redis_url, work)


def test_a_hold_that_ends_before_anything_was_sent_costs_nobody_a_delay(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        ip = "192.0.2.1"
        desk.job("a", ip)
        await until(lambda: desk.came)
        desk.turns.end(ip, "a", None)
        await until(lambda: not desk.turns.unsent)
        assert await desk.holder(ip) is None
        began = boottime()
        desk.job("b", ip)
        await until(lambda: "b" in desk.came)
        assert desk.came["b"][0] < began + DELAY_S / 2

    run(redis_url, work)


def test_another_s_end_does_not_end_a_hold(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        ip = "192.0.2.1"
        desk.job("a", ip)
        await until(lambda: desk.came)
        desk.turns.end(ip, "b", None)
        await until(lambda: not desk.turns.unsent)
        assert await desk.holder(ip) == "a"

    run(redis_url, work)


def test_addresses_do_not_wait_for_each_other(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        for n in range(20):
            desk.job(f"t{n}", f"192.0.2.{n}")
        await until(lambda: len(desk.came) == 20)
        assert desk.refused == {}

    run(redis_url, work)


# -- calls ---------------------------------------------------------------------------------------------------------------


def test_wishes_and_ends_of_a_moment_share_a_call_for_each_shard(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        ips = [addresses(shard, 6) for shard in (0, 1)]
        for n in range(4):
            for shard in (0, 1):
                desk.job(f"t{shard}{n}", ips[shard][n])
        for shard in (0, 1):
            desk.turns.end(ips[shard][5], "old", None)
        await until(lambda: len(desk.came) == 8)
        assert sorted(shard for _, shard, _, _ in desk.frontier.asked) == [0, 1]
        for _, shard, ends, wishes in desk.frontier.asked:
            assert [ip for ip, _, _ in ends] == [ips[shard][5]]
            assert [ip for ip, _, _ in wishes] == ips[shard][:4]

    run(redis_url, work)


def test_a_hold_that_ends_makes_room_for_a_wish_of_the_same_call(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        ip = "192.0.2.1"
        desk.job("a", ip)
        await until(lambda: desk.came)
        desk.turns.end(ip, "a", None)
        desk.job("b", ip)
        await until(lambda: "b" in desk.came)
        assert desk.refused == {}
        assert len(desk.frontier.asked) == 2

    run(redis_url, work)


@pytest.mark.parametrize(("wishes", "ends"), [(2 * BATCH + 50, 3), (3, 2 * BATCH + 50), (BATCH, BATCH), (BATCH + 1, 0)])
def test_a_call_has_no_more_than_a_batch(redis_url: str, wishes: int, ends: int) -> None:
    async def work(desk: Desk) -> None:
        ips = addresses(0, wishes + ends)
        for n, ip in enumerate(ips[:wishes]):
            desk.job(f"t{n}", ip)
        for n, ip in enumerate(ips[wishes:]):
            desk.turns.end(ip, f"old{n}", boottime())
        await until(lambda: len(desk.came) == wishes and not desk.turns.unsent)
        asked = desk.frontier.asked
        assert len(asked) == -(-max(wishes, ends) // BATCH)
        assert all(len(some) <= BATCH and len(others) <= BATCH for _, _, some, others in asked)
        assert desk.frontier.wished() == [f"t{n}" for n in range(wishes)]
        assert [token for _, _, some, _ in asked for _, token, _ in some] == [f"old{n}" for n in range(ends)]

    run(redis_url, work)


def test_an_address_is_asked_for_shortly_before_it_is_needed(redis_url: str) -> None:
    """A hold that begins earlier than its request would keep others from the address."""

    async def work(desk: Desk) -> None:
        due = boottime() + 0.2
        desk.job("a", "192.0.2.1", 0.2)
        await until(lambda: desk.came)
        ((asked, _, _, _),) = desk.frontier.asked
        assert due - AHEAD_S - tick_s(DELAY_S) <= asked < due + 0.1

    run(redis_url, work)


def test_a_wish_that_is_due_earlier_overtakes(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        desk.job("late", "192.0.2.1", 60)
        desk.job("soon", "192.0.2.2", 0.3)
        await asyncio.sleep(0)
        desk.job("now", "192.0.2.3")
        await until(lambda: len(desk.came) == 2)
        assert desk.frontier.wished() == ["now", "soon"]
        assert desk.turns.unsent

    run(redis_url, work)


def test_an_end_does_not_wait_for_wishes_that_are_not_due(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        desk.job("a", "192.0.2.1")
        await until(lambda: desk.came)
        desk.job("late", "192.0.2.2", 60)
        desk.turns.end("192.0.2.1", "a", None)
        await until(lambda: len(desk.frontier.asked) == 2)
        await until(lambda: not desk.turns._calls)
        assert await desk.holder("192.0.2.1") is None
        assert desk.frontier.wished() == ["a"]

    run(redis_url, work)


def test_nothing_is_asked_where_nothing_is_wished(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        assert not desk.turns.unsent
        assert desk.frontier.asked == []

    run(redis_url, work)


# -- closing -------------------------------------------------------------------------------------------------------------


def test_wishes_that_were_not_asked_for_are_taken_back_and_never_asked(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        later = [desk.job(f"t{n}", f"192.0.2.{n}", 0.1) for n in range(3)]
        assert desk.turns.take_back() == later
        assert desk.turns.take_back() == []
        assert not desk.turns.unsent
        desk.job("b", "192.0.2.9", 0.12)
        await until(lambda: desk.came)
        assert desk.frontier.wished() == ["b"]

    run(redis_url, work)


def test_what_is_being_asked_for_is_not_taken_back_but_still_unsent(redis_url: str) -> None:
    """Its answer comes, so that its hold can be ended."""

    async def work(desk: Desk) -> None:
        desk.frontier.gate.clear()
        desk.job("a", "192.0.2.1")
        await until(lambda: desk.frontier.asked)
        assert desk.turns.take_back() == []
        assert desk.turns.unsent
        desk.frontier.gate.set()
        await until(lambda: not desk.turns.unsent)
        assert set(desk.came) == {"a"}

    run(redis_url, work)


def test_an_end_is_unsent_until_redis_has_it(redis_url: str) -> None:
    async def work(desk: Desk) -> None:
        desk.frontier.gate.clear()
        desk.turns.end("192.0.2.1", "a", boottime())
        assert desk.turns.unsent
        await until(lambda: desk.frontier.asked)
        assert desk.turns.unsent
        desk.frontier.gate.set()
        await until(lambda: not desk.turns.unsent)

    run(redis_url, work)


def test_an_error_of_redis_ends_the_loop_and_is_not_hidden(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> Any:
        raise ResponseError("ERR no")

    async def main() -> None:
        desk = Desk(redis_url)
        monkeypatch.setattr("crawlweb.frontier.scripts.run", broken)
        desk.job("a", "192.0.2.1")
        with pytest.raises(FrontierError, match="ERR no"):
            await asyncio.wait_for(desk.turns.ask_forever(), 5)
        assert not desk.turns.unsent  # nothing that a close would wait for
        await desk.client.aclose()

    asyncio.run(main())


def test_wishes_wait_a_moment_for_company_and_no_longer(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.2)

    async def work(desk: Desk) -> None:
        began = boottime()
        desk.job("a", "192.0.2.1")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        desk.job("b", "192.0.2.2")
        await until(lambda: len(desk.came) == 2)
        assert 0.2 <= desk.frontier.asked[0][0] - began < 0.4
        assert len(desk.frontier.asked) == len({ip_shard_of(ip, PARTITIONS) for ip in ("192.0.2.1", "192.0.2.2")})

    run(redis_url, work)
