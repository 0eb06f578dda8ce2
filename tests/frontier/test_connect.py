"""From REDIS_URL and REDIS_PARAMS to a server: TLS, user and password, Sentinels, and a server that becomes a replica."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest
from perishable import Perishable, perishable
from redis import Redis
from redis.exceptions import ResponseError
from rig import link

from crawlweb.errors import ConfigError, FrontierError
from crawlweb.frontier.accounts import Accounts
from crawlweb.frontier.connect import Servers, _read, shown
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.memory import MemoryWatch
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import Limits, Outcome, Override
from tests.cluster import PASSWORD, SERVICE, Nodes, Papers, acl_of_the_docs, folder, free_ports, nodes, papers


def connected(url: str, work: Callable[[Servers], Awaitable[Any]], params: dict[str, Any] | None = None) -> Any:
    async def main() -> Any:
        servers = await Servers.connect(url, params or {})
        try:
            return await work(servers)
        finally:
            await servers.close()

    return asyncio.run(main())


async def writes(servers: Servers) -> None:
    assert await servers.redis.set("{t}:x", 1)


def refusal(url: str, params: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        connected(url, writes, params)
    return str(refused.value)


@pytest.fixture(scope="module")
def started() -> Iterator[Nodes]:
    with nodes() as all_nodes:
        yield all_nodes


@pytest.fixture(scope="module")
def its_papers() -> Iterator[Papers]:
    with folder() as made:
        yield papers(made)


# -- REDIS_URL -------------------------------------------------------------------------------------------------------------

URLS = [
    ("redis://h", "", [("h", 6379)], {}),
    ("redis://h:7/3", "", [("h", 7)], {"db": 3}),
    ("redis://u:p%2F%40@h:7", "", [("h", 7)], {"username": "u", "password": "p/@"}),
    ("redis://:p@h,[::1]:8,i:9", "", [("h", 6379), ("::1", 8), ("i", 9)], {"password": "p"}),
    ("redis+sentinel://a,b:7/main", "main", [("a", 26379), ("b", 7)], {}),
    (
        "redis+sentinel://u:p@a/main/2?socket_timeout=3",
        "main",
        [("a", 26379)],
        {"username": "u", "password": "p", "db": 2, "socket_timeout": 3.0},
    ),
    ("unix:///run/redis.sock?db=1", "", [], {"path": "/run/redis.sock", "db": 1}),
]


@pytest.mark.parametrize(("url", "service", "addresses", "options"), URLS, ids=[row[0] for row in URLS])
def test_a_url_names_servers_and_options(url: str, service: str, addresses: list[tuple[str, int]], options: dict[str, Any]) -> None:
    place = _read(url)
    assert (place.service, place.addresses) == (service, addresses)
    assert {name: value for name, value in place.options.items() if name != "connection_class"} == options


@pytest.mark.parametrize(
    "url",
    [
        "",
        "frontier.internal:6379",
        "http://h",
        "unix+sentinel:///x/main",
        "redis+sentinel://h",
        "redis+cluster://h",
        f"redis://user:{PASSWORD}@h:6379/0",
        f"redis://user:{PASSWORD}",
        f"redis+sentinel://user:{PASSWORD}@h",
        f"redis://h:99999999999/?password={PASSWORD}",
        f"unix:///nowhere/redis.sock?password={PASSWORD}",
    ],
)
def test_what_is_no_url_stops_the_start_and_its_password_is_not_shown(url: str) -> None:
    text = refusal(url)
    assert text.startswith("REDIS_URL=")
    assert "\n" not in text
    assert not re.search("s3cret|pass@|@word", text)


def test_a_url_is_shown_without_credentials() -> None:
    assert shown("rediss://user:p/a@ss@h:1/0?password=x") == "rediss://h:1/0"


# -- TLS -------------------------------------------------------------------------------------------------------------------


def test_tls_is_spoken_to_a_server_whose_certificate_is_known(started: Nodes, its_papers: Papers) -> None:
    server = started.start(tls=its_papers)
    ca = {"ssl_ca_certs": str(its_papers.ca)}
    connected(f"rediss://{server.address}", writes, ca)
    connected(f"rediss://{server.address}?ssl_ca_certs={its_papers.ca}", writes)
    connected(f"redis://{server.address}", writes, {"ssl": True, **ca})
    assert "certificate verify failed" in refusal(f"rediss://{server.address}")
    assert "REDIS_URL" in refusal(f"redis://{server.address}")
    plain = started.start()
    assert "REDIS_URL" in refusal(f"rediss://{plain.address}", {**ca, "socket_connect_timeout": 0.5})


# -- user and password -----------------------------------------------------------------------------------------------------


def test_a_user_with_the_rights_that_the_docs_name_can_do_all(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with Redis.from_url(redis_url) as admin:
        admin.execute_command(*acl_of_the_docs("t", PASSWORD))

        async def work(servers: Servers) -> None:
            assert servers.run_of("x")
            f = Frontier(servers.redis, "t", 2, "w", Limits(min_delay_s=0), servers.run_of)
            f.closing = True  # nothing is waited for
            meta = Meta(f)
            await meta.agree({"partitions": "2"}, {})
            await meta.say_seeding(True)
            assert await meta.anyone_seeding()
            await meta.say_seeding(False)
            await meta.widen_scope(["a.org"])
            await meta.refresh_scope()
            await meta.permits(3, [b"k" * 16, b"l" * 16])
            await meta.spend(3, [b"k" * 16])
            await meta.end_pages(3, [b"k" * 16], [b"l" * 16])
            await f.read_clock()
            p = f.partition_of("a.org")
            assert await f.enqueue(p, [link("a.org", f"/{n}") for n in range(80)]) == "n" * 80
            _, leases = await f.lease(p, 5)
            await f.renew(leases)
            await f.complete(p, [Outcome(leases[0], "x", arg="tls")])
            assert await f.requeue() == 1
            await f.robots("a.org", ["https://a.org"])
            await f.ip_turns(0, [], [("192.0.2.1", "a.org", "t")])
            await f.override("a.org", Override(delay_s=2.0))
            await f.counts()
            await f.audit()
            await MemoryWatch(f).look()
            assert (await Accounts(f).walk()).keys > 3
            for forbidden in (("SET", "another:key", 1), ("KEYS", "*"), ("FLUSHALL",), ("CONFIG", "GET", "*"), ("ACL", "LIST")):
                with pytest.raises(ResponseError, match=r"(?i)no permissions|NOPERM"):
                    await cast(Any, servers.redis).execute_command(*forbidden)

        params = {"username": "crawlweb", "password": PASSWORD}
        try:
            connected(redis_url, work, params)
            text = refusal(redis_url, {**params, "password": "wr0ng"})
            assert "wr0ng" not in text
            assert re.search("(?i)password|WRONGPASS", text)
        finally:
            admin.execute_command("ACL", "DELUSER", "crawlweb")
    assert caplog.records == []


def test_a_user_who_lacks_a_right_ends_the_call_and_is_told_which(redis_url: str) -> None:
    with Redis.from_url(redis_url) as admin:
        admin.execute_command("ACL", "SETUSER", "half", "on", f">{PASSWORD}", "~*", "+@all", "-evalsha")

        async def work(servers: Servers) -> None:
            with pytest.raises(FrontierError, match=r"(?i)no permissions.*evalsha"):
                await Frontier(servers.redis, "t", 1, "w").enqueue(0, [link("a.org")])

        try:
            connected(redis_url, work, {"username": "half", "password": PASSWORD})
        finally:
            admin.execute_command("ACL", "DELUSER", "half")


# -- a server that becomes a replica ---------------------------------------------------------------------------------------


def test_a_connection_is_left_when_its_server_becomes_a_replica(redis_url: str) -> None:
    with Redis.from_url(redis_url) as admin:

        async def work(servers: Servers) -> None:
            redis = cast(Any, servers.redis)
            write = ("EVAL", "return redis.call('SET', KEYS[1], 1)", 1, "{t}:x")
            for command in (("SET", "{t}:x", 1), write):
                before = await redis.client_id()
                assert await redis.client_id() == before
                admin.replicaof("127.0.0.1", 1)
                try:
                    with pytest.raises(ResponseError, match=r"(?i)read only replica"):
                        await redis.execute_command(*command)
                finally:
                    admin.replicaof("NO", "ONE")
                assert await redis.client_id() != before
                await redis.execute_command(*command)

        connected(redis_url, work)


def test_calls_wait_while_the_server_is_a_replica(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with Redis.from_url(redis_url) as admin:

        async def work(servers: Servers) -> None:
            f = Frontier(servers.redis, "t", 1, "w", Limits(min_delay_s=0), servers.run_of)
            admin.replicaof("127.0.0.1", 1)
            call = asyncio.ensure_future(f.enqueue(0, [link("a.org")]))
            while f.calls < 4:
                await asyncio.sleep(0.01)
            assert not call.done()
            admin.replicaof("NO", "ONE")
            assert await call == "n"
            assert (await f.audit())["pending"] == 1

        with caplog.at_level(logging.WARNING):
            connected(redis_url, work)
    assert "Redis answers again" in caplog.text


# -- Sentinels -------------------------------------------------------------------------------------------------------------


def test_sentinels_name_the_master_and_a_client_follows_it(started: Nodes) -> None:
    """The master is made a replica by hand and answers READONLY; then the Sentinel promotes the other; then that one dies."""
    one = started.start()
    two = started.replica(one)
    (nobody,) = free_ports(1)
    watch = started.sentinel(one)
    url = f"redis+sentinel://127.0.0.1:{nobody},{watch.address}/{SERVICE}"
    done: list[str] = []

    async def work(servers: Servers) -> None:
        f = Frontier(servers.redis, "t", 1, "w", Limits(min_delay_s=0), servers.run_of)

        async def write() -> None:
            while len(done) < 10_000:
                done.append(await f.enqueue(0, [link("a.org", f"/{len(done)}")]))
                await asyncio.sleep(0.005)

        async def until_more() -> None:
            before = len(done)
            while len(done) < before + 10:
                assert not writing.done(), writing.exception()
                await asyncio.sleep(0.01)

        writing = asyncio.ensure_future(write())
        try:
            await until_more()
            first = servers.run_of("{t:0}:ctr")
            assert first == one.run
            one.call("REPLICAOF", "127.0.0.1", two.port)
            calls = f.calls
            while f.calls < calls + 3:
                await asyncio.sleep(0.01)
            watch.call("SENTINEL", "FAILOVER", SERVICE)
            await until_more()
            assert servers.run_of("{t:0}:ctr") == two.run
            await asyncio.to_thread(one.wait_until, in_step)
            two.kill()
            await until_more()
            assert servers.run_of("{t:0}:ctr") == one.run
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    connected(url, work, {"socket_timeout": 2.0})


def in_step(client: Redis) -> bool:
    """A replica of a master that is there."""
    info = client.info("replication")
    return bool(info["role"] == "slave" and info["master_link_status"] == "up")


def test_a_service_that_sentinels_do_not_know_stops_the_start(started: Nodes) -> None:
    one = started.start()
    started.replica(one)
    watch = started.sentinel(one, "requirepass s3cret")
    its_own = {"sentinel_kwargs": {"password": "s3cret"}}
    connected(f"redis+sentinel://{watch.address}/{SERVICE}", writes, its_own)
    assert "No master found for 'other'" in refusal(f"redis+sentinel://{watch.address}/other", its_own)
    assert "s3cret" not in refusal(f"redis+sentinel://{watch.address}/{SERVICE}", {"sentinel_kwargs": {"password": "s3cret2"}})
    assert "redis+sentinel://host:port/service" in refusal(f"redis://:s3cret@{watch.address}")


def test_several_addresses_are_those_of_a_cluster(started: Nodes) -> None:
    one, two = started.start(), started.start()
    assert "no Redis Cluster answers" in refusal(f"redis://{one.address},{two.address}")


def test_calls_beyond_the_connections_wait_for_one(redis_url: str) -> None:
    async def main() -> tuple[int, int]:
        servers = await Servers.connect(redis_url, {})
        try:
            answers = await asyncio.gather(*(servers.redis.ping() for _ in range(300)))
            return sum(answers), len(await servers.redis.client_list())
        finally:
            await servers.close()

    answered, connections = asyncio.run(main())
    assert answered == 300
    assert connections <= 33


def test_a_server_that_is_about_to_start_is_waited_for(redis_server: Any) -> None:
    async def main(server: Perishable) -> None:
        connecting = asyncio.ensure_future(Servers.connect(server.url, {}, patience_s=30))
        await asyncio.sleep(0.1)
        assert not connecting.done()
        await asyncio.to_thread(server.start)
        await (await connecting).close()

    with perishable(redis_server.binary) as server:
        server.kill()
        with pytest.raises(ConfigError, match="REDIS_URL"):
            asyncio.run(Servers.connect(server.url, {}, patience_s=0.1))
        asyncio.run(main(server))
