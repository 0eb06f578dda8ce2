"""One server as a client sees it, and a Redis Cluster as one client: a command goes to the node that holds the slot of its key.

Each node has a client of its own, and the map of slots is asked for beside the calls, of whoever answers. In redis-py's own client all
calls wait for the map after an error of any node, so that one which is silent holds back the calls to all others
(docs/decisions/redis-availability.md). A call to a node that is away fails; Frontier.patiently repeats it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import ClusterDownError, MovedError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

logger = logging.getLogger(__name__)

Address = tuple[str, int]
LOOK_S = 2.0  # a node tells the map of slots so soon, or the next is asked
LOOK_PAUSE_S = 0.5  # between two looks
REDIRECTS = 3
_ANY_NODE = ("TIME", "PING")
_ONE_NODE = ("INFO", "DBSIZE", "KEYS", "FLUSHALL", "FLUSHDB", "CONFIG", "CLIENT", "CLUSTER", "SCRIPT")
_NO_MAP = (RedisError, OSError, asyncio.TimeoutError, ValueError, TypeError)
_AWAY = (RedisConnectionError, RedisTimeoutError, ClusterDownError)


class Server:
    """`redis`: its client, made by `make` of a connect hook. `run`, `mode`: as of the latest connection, '' where it does not tell; asked
    for as each connection is made, before anything else goes over it. `changed` is called when another run answers than before."""

    def __init__(self, make: Callable[[Callable[[Any], Awaitable[None]]], Redis], changed: Callable[[], None] = lambda: None) -> None:
        self.run = self.mode = ""
        self._tells, self._changed = True, changed
        self.redis = make(self._connected)

    async def _connected(self, connection: Any) -> None:
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        try:
            text = (await connection.read_response(disable_decoding=True)).decode(errors="replace")
        except ResponseError as e:
            if self._tells:
                self._tells = False
                logger.warning("Redis does not tell its run id: what it lost in a restart will not be noticed: %s", e)
            return
        told = dict(line.strip().partition(":")[::2] for line in text.splitlines())
        before, self.run, self.mode = self.run, told.get("run_id", ""), told.get("redis_mode", "")
        if before and self.run != before:
            self._changed()


class Cluster(Redis):
    """`make`: of a node; `seen`: nodes to begin with. All keys of a command, a script or a pipeline are of one slot."""

    def __init__(self, make: Callable[[Address], Server], seen: Iterable[Address]) -> None:
        self._make = make
        self._servers = {address: make(address) for address in seen}
        self._owners: list[Server] = []  # by slot
        self._any = next(iter(self._servers.values()))
        self._looking: asyncio.Task[None] | None = None
        super().__init__(connection_pool=self._any.redis.connection_pool)

    async def open(self) -> None:
        """Reads the map of slots. The last error if no node tells it."""
        error: Exception = RedisConnectionError("no node")
        for server in [*self._servers.values()]:
            try:
                await self._ask(server)
                break
            except _NO_MAP as e:
                error = e
        else:
            raise error
        masters = [cast(Any, server.redis).ping() for server in self.masters()]
        await asyncio.gather(*masters, return_exceptions=True)  # each tells its run id

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: ARG002
        if self._looking:
            self._looking.cancel()
        for server in self._servers.values():
            await server.redis.aclose()

    def server_of(self, key: str | bytes) -> Server:
        return self._owners[key_slot(key.encode() if isinstance(key, str) else key)]

    def masters(self) -> list[Server]:
        return list(dict.fromkeys(self._owners))

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        server = self.server_for(args)
        for left in reversed(range(REDIRECTS)):
            try:
                return await cast(Any, server.redis).execute_command(*args, **options)
            except MovedError as e:
                if not left:
                    raise
                server = self.moved(e, server)
            except _AWAY:
                self.look_again(server)
                raise
        raise AssertionError

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        return _OneSlot(self, transaction, shard_hint)

    def server_for(self, args: tuple[Any, ...]) -> Server:
        """The one that takes a command. ValueError: its answer depends on the server, which has to be named."""
        name, key = str(args[0]).upper(), None
        if name in _ANY_NODE:
            return self._any
        if name in ("EVAL", "EVALSHA"):
            key = args[3] if int(args[2]) else None
        elif name == "SCAN":
            key = _tagged(args[args.index(b"MATCH") + 1]) if b"MATCH" in args else None
        elif name.split()[0] not in _ONE_NODE:
            key = args[1]
        if key is None:
            raise ValueError(f"{name} in a cluster is for a node (nodes_of)")
        return self.server_of(key)

    def moved(self, e: MovedError, teller: Server) -> Server:
        """A slot has another owner."""
        server = self._server_at(e.host or self._host_of(teller), e.port)
        self._owners[e.slot_id % REDIS_CLUSTER_HASH_SLOTS] = server
        self.look_again()
        return server

    def look_again(self, away: Server | None = None) -> None:
        """The map of slots may have changed."""
        if self._any is away:
            others = [server for server in self.masters() if server is not away]
            self._any = others[0] if others else away
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look(away))

    async def _look(self, away: Server | None) -> None:
        for server in sorted(self._servers.values(), key=lambda server: (server is away, server is not self._any)):
            with contextlib.suppress(*_NO_MAP):
                await self._ask(server)
                break
        await asyncio.sleep(LOOK_PAUSE_S)

    async def _ask(self, server: Server) -> None:
        """Takes the map that a node tells. A slot that nobody has now stays with whom it was: he may come back."""
        rows = await asyncio.wait_for(cast(Any, server.redis).execute_command("CLUSTER SLOTS"), LOOK_S)
        owners = self._owners or [server] * REDIS_CLUSTER_HASH_SLOTS
        for first, last, (host, port, *_), *_ in rows:
            owner = self._server_at(host.decode() if host else self._host_of(server), port)
            owners[first : last + 1] = [owner] * (last + 1 - first)
        self._owners = owners[:REDIS_CLUSTER_HASH_SLOTS]

    def _host_of(self, server: Server) -> str:
        return next(host for (host, _), known in self._servers.items() if known is server)

    def _server_at(self, host: str, port: int) -> Server:
        if (host, port) not in self._servers:
            self._servers[host, port] = self._make((host, port))
        return self._servers[host, port]


class _OneSlot(Pipeline):
    """Sent to the node of its first command."""

    def __init__(self, cluster: Cluster, transaction: bool, shard_hint: str | None) -> None:
        super().__init__(cluster.connection_pool, cluster.response_callbacks, transaction, shard_hint)
        self._cluster = cluster

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        if not self.command_stack:
            return []
        server = self._cluster.server_for(self.command_stack[0][0])
        self.connection_pool = server.redis.connection_pool
        try:
            answers = await super().execute(raise_on_error)
        except MovedError as e:
            self._cluster.moved(e, server)
            raise
        except _AWAY:
            self._cluster.look_again(server)
            raise
        for answer in answers:
            if isinstance(answer, MovedError):
                self._cluster.moved(answer, server)
        return answers


def nodes_of(redis: Redis) -> Sequence[Redis]:
    """A client for each server that holds keys now: for what is asked of a server, not of a key."""
    return [server.redis for server in redis.masters()] if isinstance(redis, Cluster) else (redis,)


def _tagged(pattern: str | bytes) -> str | None:
    """A pattern all of whose keys have one hash tag."""
    text = pattern.decode() if isinstance(pattern, bytes) else pattern
    tag = text.partition("}")[0]
    return text if tag.startswith("{") and not set("*?[\\") & set(tag) else None
