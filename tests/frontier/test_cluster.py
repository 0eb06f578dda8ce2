"""The frontier on a Redis Cluster of three nodes: every call finds its node, and one that is away holds back none but its own."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from rig import hosts_in, link

from crawlweb.errors import ConfigError
from crawlweb.frontier.accounts import Accounts
from crawlweb.frontier.cluster import Cluster as Client
from crawlweb.frontier.cold import ColdQueues
from crawlweb.frontier.connect import Servers
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.inspect import begun, host_view, newest_dead_letters
from crawlweb.frontier.kinds import refuse_foreign_crawl, refuse_foreign_partitions
from crawlweb.frontier.memory import MemoryWatch
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.near import NearIndex
from crawlweb.frontier.rows import KeptNow, Limits, Outcome, Override
from crawlweb.frontier.starts import Batch, StartKey
from crawlweb.records import Copy, Fingerprint, PageRecord
from tests.cluster import Cluster, Node, a_cluster, free_ports

PARTITIONS = 16


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with a_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    running.clear()
    return running


def frontier_of(servers: Servers, worker: str = "w") -> Frontier:
    return Frontier(servers.redis, "t", PARTITIONS, worker, Limits(min_delay_s=0, expected_urls=100_000), servers.run_of)


def run(url: str, work: Callable[[Servers], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        servers = await Servers.connect(url, {}, **options)
        try:
            return await work(servers)
        finally:
            await servers.close()

    return asyncio.run(main())


def hosts() -> dict[int, str]:
    """One of each partition."""
    return {p: hosts_in(p, PARTITIONS, 1)[0] for p in range(PARTITIONS)}


def key(p: int) -> str:
    return f"{{t:{p}}}:ctr"


# -- every call finds its node ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("put", ["rpush", "sadd"])
def test_start_urls_are_taken_wherever_their_key_lies(cluster: Cluster, put: str) -> None:
    async def work(servers: Servers) -> None:
        frontier = frontier_of(servers)
        await refuse_foreign_crawl(frontier)
        await refuse_foreign_partitions(frontier, PARTITIONS)
        for name in ("web:start_urls", "{shop}:start_urls", *(f"spider{n}:start_urls" for n in range(6))):
            start_key = StartKey(frontier, name)
            await getattr(servers.redis, put)(name, b"http://a.org/", b"none")
            assert await start_key.holds()
            batch = await start_key.take(10, 60.0)
            assert isinstance(batch, Batch)
            await start_key.keep(batch, 60.0)
            assert await start_key.drop(batch, {batch.entries.index(b"none"): "no URL"}) == 1
            assert not await start_key.holds()
            assert await servers.redis.lrange(start_key.quarantine, 0, -1) == [b"no URL\tnone"]  # type: ignore[misc]

    run(cluster.url, work)


def test_a_url_goes_its_way_in_every_partition(cluster: Cluster) -> None:
    async def work(servers: Servers) -> None:
        assert isinstance(servers.redis, Client), "nobody said that it is one"
        f = frontier_of(servers)
        await f.read_clock()
        assert abs(f.unix_now() - time.time()) < 5
        for p, host in hosts().items():
            assert await f.enqueue(p, [link(host, "/a"), link(host, "/b"), link(host, "/a")]) == "nns"
            _, leases = await f.lease(p, 1)
            assert [lease.host for lease in leases] == [host]
            assert await f.renew(leases) == []
            assert await f.robots(host, [f"https://{host}", f"http://{host}"]) == [None, None]
            rules = KeptNow(f"https://{host}", b"rules", 60_000, -1)
            assert await f.complete(p, [Outcome(leases[0], "d", robots=rules)]) == "k"
            assert (await f.robots(host, [f"https://{host}"]))[0] is not None
            await f.override(host, Override(delay_s=3.0))
        assert await f.ip_turns(0, [], [("192.0.2.1", "a.org", "t1")]) == [0.0]
        assert set(await f.overrides()) == set(hosts().values())
        counts = await f.counts()
        assert (counts.enqueued, counts.done) == (2 * PARTITIONS, PARTITIONS)
        audit = await f.audit()
        assert (audit["pending"], audit["lost"]) == (PARTITIONS, 0)

    run(cluster.url, work)
    held = [int(node.call("DBSIZE")) for node in cluster.members]
    assert min(held) > 0, "each node has a share"


def test_copies_are_found_whichever_nodes_hold_their_fingerprints(cluster: Cluster) -> None:
    async def no_records(places: Sequence[tuple[int, bytes]]) -> list[PageRecord | None]:
        return [None for _ in places]

    def page(n: int, fingerprint: Fingerprint) -> Copy:
        return Copy(f"https://h{n}.org/", random.Random(n).randbytes(16), f"h{n}.org", 1.0, fingerprint)

    async def work(servers: Servers) -> None:
        frontier = Frontier(servers.redis, "t", 1024, "w", run_of=servers.run_of)
        index = NearIndex(frontier, no_records, pages=10_000, votes_least=5)
        bits = random.Random(1).getrandbits
        prints = [Fingerprint(b"", simhash=bits(64), bands=tuple(bits(64) for _ in range(16))) for _ in range(40)]
        assert await index.look_up([page(n, one) for n, one in enumerate(prints)]) == [()] * 40
        twins = [page(100 + n, Fingerprint(b"", bands=one.bands[:6])) for n, one in enumerate(prints)]
        found = await index.look_up(twins)
        assert [[match.copy.url for match in some] for some in found] == [[f"https://h{n}.org/"] for n in range(40)]

    run(cluster.url, work)
    held = [len([key for key in node.call("KEYS", "*near*") if b":names:" in key]) for node in cluster.members]
    assert min(held) > 0, "each node has a share"


def test_what_is_the_whole_crawl_s_is_agreed_on_at_one_node(cluster: Cluster) -> None:
    async def work(servers: Servers) -> None:
        first, second = Meta(frontier_of(servers)), Meta(frontier_of(servers, "v"))
        mine = {"partitions": "16"}
        assert await first.agree(mine, {}) == await second.agree({"partitions": "32"}, {})
        with pytest.raises(ConfigError):
            await second.agree({"partitions": "32"}, {"partitions": "CRAWLWEB_PARTITIONS"})
        await first.say_seeding(True)
        assert await second.anyone_seeding()
        await first.say_seeding(False)
        assert not await second.anyone_seeding()
        await first.widen_scope(["a.org", "b.org"])
        await second.refresh_scope()
        assert second.scope == {"a.org", "b.org"}
        pages = [n.to_bytes(16, "big") for n in range(3 << 64, (3 << 64) + 3)]
        assert (await first.permits(1, pages[:1])).allowed == [True]
        assert (await first.spend(1, pages[:1])).allowed == [True]
        room = await second.permits(1, [(9 << 64).to_bytes(16, "big")])
        assert (room.allowed, room.stored) == ([False], 1)

    run(cluster.url, work)


def test_what_is_asked_of_servers_is_asked_of_each(cluster: Cluster) -> None:
    async def work(servers: Servers) -> None:
        f = frontier_of(servers)
        for p, host in hosts().items():
            await f.enqueue(p, [link(host, f"/{n}") for n in range(100)])
            await f.lease(p, 1)
        keys = sum(int(node.call("DBSIZE")) for node in cluster.members)
        assert len(servers.nodes()) == 3
        watch = MemoryWatch(f)
        await watch.look()
        assert len(watch.servers) == 3
        account = await Accounts(f).walk()
        assert (account.keys, len(account.servers)) == (keys, 3)
        assert account.kinds["park:<host>"].keys == PARTITIONS
        accounts = Accounts(f)
        while not all([await accounts.sample() for _ in range(3)]):
            pass
        assert (await accounts.estimate()).keys == keys

    run(cluster.url, work)


def test_long_queues_are_found_and_cut_where_they_are(cluster: Cluster) -> None:
    async def work(servers: Servers) -> None:
        f = frontier_of(servers)
        cold, named = ColdQueues(f), Counter[int]()
        f.see_to = lambda p, queues: named.update({p: len(queues)})
        for p, host in hosts().items():
            for first in range(0, 600, 200):
                await f.enqueue(p, [link(host, f"/{n}") for n in range(first, first + 200)])
            await f.lease(p, 1)
            await cold.tune(p, 300)
            cursor = await cold.look_for_long(p, 0, 300)
            while cursor:
                cursor = await cold.look_for_long(p, cursor, 300)
            assert await cold.chores(p) == [f"park:{host}"]
            assert await cold.cut(p, f"park:{host}", 100) > 0
            serial, entries = await cold.start_of_tail(p, f"park:{host}", 50)
            assert (serial != b"", len(entries)) == (True, 50)
            assert await cold.out(p, f"park:{host}", f"{time.time_ns() // 10**6}-w-1", entries, serial)
            assert (await cold.parts(p, f"park:{host}")).chunks == 1
        assert await cold.my_turn(60.0)
        assert not await cold.my_turn(60.0)

    run(cluster.url, work)


def test_an_operator_looks_into_every_partition(cluster: Cluster) -> None:
    async def work(servers: Servers) -> None:
        f = frontier_of(servers)
        await Meta(f).agree(
            {"partitions": str(PARTITIONS), "min_delay_s": "1", "latency_factor": "10", "ip_delay_s": "0", "suffixes": "s"}, {}
        )
        for p, host in hosts().items():
            await f.enqueue(p, [link(host, "/a"), link(host, "/b")])
            _, leases = await f.lease(p, 1)
            await f.complete(p, [Outcome(leases[0], "x", arg="tls")])
        looker = await begun(servers.redis, "t", "cli", "s")
        for host in hosts().values():
            view = await host_view(looker, host)
            assert view is not None
            assert view.back + view.park == 1
        assert len(await newest_dead_letters(looker, 100)) == PARTITIONS
        assert await looker.requeue() == PARTITIONS
        assert (await looker.audit())["lost"] == 0

    run(cluster.url, work)


@pytest.mark.parametrize("command", [("INFO",), ("DBSIZE",), ("SCAN", 0), ("SCAN", 0, b"MATCH", "{t:*}:*"), ("EVAL", "return 1", 0)])
def test_what_would_ask_some_node_is_refused(cluster: Cluster, command: tuple[Any, ...]) -> None:
    async def work(servers: Servers) -> None:
        with pytest.raises(ValueError, match=f"^{command[0]} "):
            await cast(Any, servers.redis).execute_command(*command)

    run(cluster.url, work)


# -- finding the cluster ---------------------------------------------------------------------------------------------------


def test_a_worker_starts_from_any_node_that_answers(cluster: Cluster) -> None:
    (nobody,) = free_ports(1)
    url = f"redis://127.0.0.1:{nobody},{cluster.members[1].address}"

    async def work(servers: Servers) -> None:
        assert len(servers.nodes()) == 3
        assert {servers.run_of(key(p)) for p in range(PARTITIONS)} == {node.run for node in cluster.members}

    run(url, work)


def test_a_cluster_whose_nodes_do_not_tell_has_to_be_said(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    for node in cluster.members:
        node.call("ACL SETUSER", "quiet", "on", ">pw", "~*", "+@all", "-info")
    url = f"redis://quiet:pw@{cluster.members[0].address}"

    async def work(servers: Servers) -> None:
        f = frontier_of(servers)
        assert servers.run_of(key(3)) == ""
        assert [await f.enqueue(p, [link(host)]) for p, host in hosts().items()] == ["n"] * PARTITIONS

    run(url, work, cluster=True)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings
    assert all("does not tell its run id" in text and "pw" not in text for text in warnings)
    for node in cluster.members:
        node.call("ACL DELUSER", "quiet")


def test_a_single_server_is_no_cluster(redis_url: str) -> None:
    with pytest.raises(ConfigError, match="host and port"):
        run(redis_url, lambda _: asyncio.sleep(0), cluster=True)


# -- slots that move -------------------------------------------------------------------------------------------------------


def hand_over(cluster: Cluster, slot: int, to: Node) -> None:
    """An empty slot."""
    node_id = to.call("CLUSTER MYID").decode()
    for node in (to, *cluster.members):
        node.call("CLUSTER SETSLOT", slot, "NODE", node_id)


def test_a_partition_that_another_node_took_over_is_found_there(cluster: Cluster) -> None:
    p = 5
    slot = int(cluster.members[0].call("CLUSTER KEYSLOT", key(p)))
    old = cluster.node_of(key(p))
    new = next(node for node in cluster.members if node is not old)
    host = hosts()[p]

    async def work(servers: Servers) -> None:
        f = frontier_of(servers)
        await f.counts()
        assert servers.run_of(key(p)) == old.run
        hand_over(cluster, slot, new)
        try:
            assert await f.enqueue(p, [link(host)]) == "n"
            assert servers.run_of(key(p)) == new.run
            hand_over(cluster, slot, new)
            assert await f.robots(host, [f"https://{host}"]) == [None]
            assert f.calls < PARTITIONS + 4
        finally:
            new.call("FLUSHALL")
            hand_over(cluster, slot, old)
        # A pipeline is told, too.
        assert await f.robots(host, [f"https://{host}"]) == [None]
        assert servers.run_of(key(p)) == old.run

    run(cluster.url, work)


# -- a node is away --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "silent"])
def test_a_node_that_is_away_holds_back_none_but_its_own_partitions(cluster: Cluster, how: str) -> None:
    away = cluster.members[2]
    its = {p for p in range(PARTITIONS) if cluster.node_of(key(p)) is away}
    assert 0 < len(its) < PARTITIONS
    done: Counter[int] = Counter()
    pages = 30

    async def one(f: Frontier, p: int, host: str) -> None:
        """A worker's calls for a partition, one after the other."""
        n = 0
        while not over:
            n += 1
            assert await f.enqueue(p, [link(host, f"/{n}")]) == "n"
            leases = []
            while not leases:
                _, leases = await f.lease(p, 1)
            assert await f.complete(p, [Outcome(leases[0], "d")]) == "k"
            done[p] += 1

    async def until(partitions: set[int]) -> None:
        """So many more pages of each are done."""
        before = Counter(done)
        while any(done[p] - before[p] < pages for p in partitions):
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)

    tasks: list[asyncio.Task[None]] = []
    over: list[bool] = []

    async def work(servers: Servers) -> None:
        f = frontier_of(servers)
        tasks.extend(asyncio.create_task(one(f, p, host)) for p, host in hosts().items())
        try:
            await until(set(range(PARTITIONS)))
            runs = {p: servers.run_of(key(p)) for p in range(PARTITIONS)}
            away.kill() if how == "killed" else away.stop()
            await asyncio.sleep(0.1)  # answers that are on their way
            before = Counter(done)
            await until(set(range(PARTITIONS)) - its)
            assert all(done[p] == before[p] for p in its)
            away.start() if how == "killed" else away.go_on()
            await until(set(range(PARTITIONS)))
            changed = {p for p in range(PARTITIONS) if servers.run_of(key(p)) != runs[p]}
            assert changed == (its if how == "killed" else set())
        finally:
            over.append(True)
            away.go_on()
            f.closing = True  # no call is waited for
            await asyncio.gather(*tasks, return_exceptions=True)
        f.closing = False
        assert (await f.audit())["lost"] == 0

    try:
        run(cluster.url, work)
    finally:
        away.go_on()
        if not away.is_up:
            away.start()
        cluster.wait_until_well()


def test_a_worker_that_starts_while_a_node_is_away_works_with_the_others(cluster: Cluster) -> None:
    away = cluster.members[0]
    others = [(p, host) for p, host in hosts().items() if cluster.node_of(key(p)) is not away]
    away.kill()

    async def work(servers: Servers) -> None:
        f = frontier_of(servers)
        assert [await f.enqueue(p, [link(host)]) for p, host in others] == ["n"] * len(others)
        await f.read_clock()

    try:
        run(f"redis://{away.address},{cluster.members[1].address}", work)
    finally:
        away.start()
        cluster.wait_until_well()


def test_a_replica_that_steps_in_is_found_and_is_another_run(cluster: Cluster) -> None:
    p = 7
    master, host = cluster.node_of(key(p)), hosts()[p]
    others = [node for node in cluster.members if node is not master]
    replica = cluster.replica(master)

    async def work(servers: Servers) -> None:
        f = frontier_of(servers)
        assert await f.enqueue(p, [link(host, "/a")]) == "n"
        assert servers.run_of(key(p)) == master.run
        assert len(servers.nodes()) == 3
        master.kill()
        assert await f.enqueue(p, [link(host, "/b")]) == "n"
        assert servers.run_of(key(p)) == replica.run
        assert len(servers.nodes()) == 3

    try:
        run(f"redis://{others[0].address}", work)
    finally:
        master.kill()
        master.start()
