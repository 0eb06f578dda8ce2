"""The client of a crawl's Redis, and which run of a server answers: one that was started again, or stepped in, may lack the last second.

REDIS_URL, beside what redis-py reads (redis://, rediss:// for TLS, unix://):

- `redis://host:port,host:port`: nodes of a Redis Cluster to begin with. A cluster is known as such from any of its nodes.
- `redis+sentinel://host:port,host:port/service/db`: the master that these Sentinels name; `rediss+sentinel://` with TLS. User and password
  are those of the servers; the Sentinels' own go into REDIS_PARAMS["sentinel_kwargs"].
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool, Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..errors import ConfigError
from ..records import boottime
from .cluster import Address, Cluster, Server, nodes_of
from .server import CLIENT_NAME

CONNECTIONS = 32  # to a server: what is more waits for one; redis-py refuses what goes beyond 100 with an error (8.1)
CONNECTIONS_OF_SENTINELS = 10_000
AGAIN_S = 0.5
SENTINEL_S = 2.0  # a Sentinel answers so soon, or the next is asked


class _Place(NamedTuple):
    """`service`: that Sentinels watch, else ''. `addresses`: none for a socket. `options`: of redis-py's connections."""

    service: str
    addresses: list[Address]
    options: dict[str, Any]


class Servers:
    """`redis`: the client. `on_change` is called when a server answers that is not the run that answered before."""

    redis: Redis

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._server: Server | None = None  # None: a cluster
        self._sentinel: Sentinel | None = None

    @classmethod
    async def connect(cls, url: str, params: Mapping[str, Any], cluster: bool = False, patience_s: float = 0.0) -> Servers:
        """ConfigError, one line, if no Redis answers there. `params`: keyword arguments of redis-py's client; `cluster`: it is one, though
        it may not tell; `patience_s`: it may be about to be started again."""
        give_up = boottime() + patience_s
        while True:
            servers = cls()
            try:
                await servers._connect(_read(url), params, cluster)
                return servers
            except (RedisError, OSError, ValueError, TypeError) as e:
                await servers.close()
                is_away = isinstance(e, (RedisConnectionError, RedisTimeoutError, OSError)) and not isinstance(e, AuthenticationError)
                if not is_away or boottime() >= give_up:
                    raise ConfigError(f"REDIS_URL={shown(url)}: {e}") from None
            await asyncio.sleep(AGAIN_S)

    async def _connect(self, place: _Place, params: Mapping[str, Any], cluster: bool) -> None:
        clients = _Clients(place, params, lambda: self.on_change())
        self._sentinel = clients.sentinel
        self._server = await clients.first()
        self.redis = self._server.redis
        if self._server.mode == "sentinel":
            raise ValueError("that is a Sentinel: redis+sentinel://host:port/service asks it for the master")
        if cluster or self._server.mode == "cluster":
            if place.service or not place.addresses:
                raise ValueError("a node of a Redis Cluster: name it by host and port")
            await self._server.redis.aclose()
            self._server = None
            self.redis = found = Cluster(clients.of, place.addresses)
            await found.open()
        elif len(place.addresses) > 1 and not place.service:
            raise ValueError("several addresses, and no Redis Cluster answers there")

    def run_of(self, key: str) -> str:
        """The run id of the server that a key lies on, as of its latest connection; '': it does not tell."""
        return (self._server or cast(Cluster, self.redis).server_of(key)).run

    @property
    def runs(self) -> str:
        """The run ids of all servers."""
        return " ".join(server.run for server in ([self._server] if self._server else cast(Cluster, self.redis).masters()))

    def nodes(self) -> Sequence[Redis]:
        """A client for each server that holds keys now: for what is asked of a server, not of a key."""
        return nodes_of(self.redis)

    async def close(self) -> None:
        if hasattr(self, "redis"):
            await self.redis.aclose()
        for client in self._sentinel.sentinels if self._sentinel else ():
            await client.aclose()


class _Clients:
    """Makes the clients of the servers of a place."""

    def __init__(self, place: _Place, params: Mapping[str, Any], changed: Callable[[], None]) -> None:
        self._place, self._changed = place, changed
        self.sentinel: Sentinel | None = None
        options: dict[str, Any] = {
            "client_name": CLIENT_NAME,
            "socket_timeout": 10.0,
            "socket_connect_timeout": 5.0,
            "retry": Retry(NoBackoff(), 0),  # calls are repeated by Frontier.patiently
            **params,
        }
        of_sentinels = {"socket_timeout": SENTINEL_S, "socket_connect_timeout": SENTINEL_S, "retry": options["retry"]}
        of_sentinels |= options.pop("sentinel_kwargs", None) or {}
        options |= place.options
        kind: type[Connection] = options.pop("connection_class", Connection)
        if options.pop("ssl", False):
            kind = SSLConnection
        if place.service:
            kind = SentinelManagedSSLConnection if kind is SSLConnection else SentinelManagedConnection
            self.sentinel = cast(Any, Sentinel)(place.addresses, sentinel_kwargs=of_sentinels)
            options.setdefault("max_connections", CONNECTIONS_OF_SENTINELS)  # redis-py has no pool of theirs that waits
        self._options = {**options, "connection_class": _leaving(kind)}

    def of(self, address: Address | None) -> Server:
        where = {} if address is None else {"host": address[0], "port": address[1]}
        pool = {"max_connections": CONNECTIONS, "timeout": None, **self._options, **where}
        return Server(lambda hook: Redis.from_pool(BlockingConnectionPool(**{"redis_connect_func": hook, **pool})), self._changed)

    async def first(self) -> Server:
        """The first that answers; the last error if none does."""
        if self.sentinel:
            sentinel = self.sentinel
            server = Server(
                lambda hook: sentinel.master_for(self._place.service, **{"redis_connect_func": hook, **self._options}), self._changed
            )
            await cast(Any, server.redis.ping())
            return server
        error: Exception = OSError("no address")
        for address in self._place.addresses or (None,):
            server = self.of(address)
            try:
                await cast(Any, server.redis.ping())
                return server
            except (RedisError, OSError) as e:
                error = e
                await server.redis.aclose()
        raise error


def shown(url: str) -> str:
    """A URL as it may be shown, even one that is not well formed: without user, password and query."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def _read(url: str) -> _Place:
    """ValueError, without what stands in the URL, if it is none."""
    found = re.fullmatch(r"(rediss?|unix)(\+sentinel)?://([^/?#]*)([^?#]*)(\?[^#]*)?", url)
    if not found or (found[1] == "unix" and found[2]):
        raise ValueError("redis://, rediss://, unix:// or redis+sentinel://host:port/service expected")
    kind, sentinel, authority, path, query = found.groups("")
    if kind == "unix":
        return _Place("", [], dict(parse_url(url)))
    user, at, hosts = authority.rpartition("@")
    try:
        split = [urlsplit(f"//{host}") for host in hosts.split(",")]
        addresses = [(one.hostname or "localhost", one.port or (26379 if sentinel else 6379)) for one in split]
    except ValueError:
        raise ValueError("host:port expected; / ? # @ in a password are written as %2F %3F %23 %40") from None
    service = ""
    if sentinel:
        service, _, path = path.strip("/").partition("/")
        if not service:
            raise ValueError("redis+sentinel://host:port/service expected: the name of the service is missing")
    options: dict[str, Any] = dict(parse_url(f"{kind}://{user}{at}host/{path.strip('/')}{query}"))
    del options["host"]
    return _Place(service, addresses, options)


def _leaving(kind: type) -> type:
    """A kind of connection that ends where it is told that the server is a replica now: the next one finds the new master."""

    async def read_response(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return await kind.read_response(self, *args, **options)  # type: ignore[attr-defined]
        except ResponseError as e:
            if isinstance(e, ReadOnlyError) or "READONLY" in str(e):
                await self.disconnect()
            raise

    return type(kind.__name__, (kind,), {"read_response": read_response})
