"""The client of a crawl's Redis, and which run of a server answers: a server that was started again may lack its last second."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from ..errors import ConfigError
from .server import CLIENT_NAME

logger = logging.getLogger(__name__)


class Servers:
    """`redis`: the client. A server is asked for its run id as each connection to it is made, before anything else goes over it;
    `on_change` is called if that is not the one it was."""

    redis: Redis

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._run = ""

    @classmethod
    async def connect(cls, url: str, params: Mapping[str, Any]) -> Servers:
        """ConfigError, one line, if no Redis answers there. `params`: keyword arguments of redis-py's client."""
        servers = cls()
        options: dict[str, Any] = {
            "client_name": CLIENT_NAME,
            "socket_timeout": 10.0,
            "socket_connect_timeout": 5.0,
            "retry": Retry(NoBackoff(), 0),  # calls are repeated by Frontier.patiently
            "redis_connect_func": servers._connected,
            **params,
        }
        try:
            servers.redis = Redis.from_url(url, **options)
            await cast(Any, servers.redis.ping())
        except (RedisError, OSError, ValueError, TypeError) as e:
            raise ConfigError(f"REDIS_URL={url}: {e}") from None
        return servers

    def run_of(self, key: str) -> str:  # noqa: ARG002
        """The run id of the server that a key lies on, as of its latest connection; '': it does not tell."""
        return self._run

    @property
    def runs(self) -> str:
        """The run ids of all servers."""
        return self._run

    async def close(self) -> None:
        await self.redis.aclose()

    async def _connected(self, connection: Any) -> None:
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        try:
            text = (await connection.read_response(disable_decoding=True)).decode(errors="replace")
        except ResponseError as e:
            logger.warning("Redis does not tell its run id: what it lost in a restart will not be noticed: %s", e)
            return
        before, self._run = (
            self._run,
            next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("run_id:")), ""),
        )
        if before and self._run != before:
            self.on_change()
