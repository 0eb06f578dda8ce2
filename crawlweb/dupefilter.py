"""Our URL keys and our seen-set for Scrapy's scheduler and for scrapy-redis': DUPEFILTER_CLASS = "crawlweb.dupefilter.DupeFilter".

For people who keep their scheduler: docs/migrating.md. With crawlweb's own there is none, its frontier marks and places in one step.
"""

from __future__ import annotations

import itertools
import logging
import re
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from redis import Redis
from redis.exceptions import NoScriptError
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.job import job_dir
from scrapy.utils.misc import load_object
from scrapy.utils.request import fingerprint as scrapy_fingerprint

from .default_settings import Config, load
from .errors import ConfigError
from .frontier import scripts
from .policy.canonical import url_key
from .requests import fingerprint

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings
    from typing_extensions import Self

logger = logging.getLogger(__name__)

KEY = "%(spider)s:dupefilter"
_CLIENT_SETTINGS = {"REDIS_URL": "url", "REDIS_HOST": "host", "REDIS_PORT": "port", "REDIS_DB": "db", "REDIS_ENCODING": "encoding"}
_UNLINKED_AT_ONCE = 1000


def _client(settings: BaseSettings) -> Redis:
    """By the settings that scrapy-redis reads."""
    params: dict[str, Any] = {"socket_timeout": 30, "socket_connect_timeout": 30, **settings.getdict("REDIS_PARAMS")}
    params |= {name: settings.get(setting) for setting, name in _CLIENT_SETTINGS.items() if settings.get(setting)}
    kind = params.pop("redis_cls", Redis)
    kind = load_object(kind) if isinstance(kind, str) else kind
    url = params.pop("url", None)
    client: Redis = kind.from_url(url, **params) if url else kind(**params)
    return client


class DupeFilter(BaseDupeFilter):
    """`key`: all that it stores stands in Redis under `{key}:`. One blocking call a request, as with scrapy-redis' own; a call whose answer
    was lost is repeated by the client and answered as the first time."""

    def __init__(self, server: Redis, key: str, config: Config, *, debug: bool = False, keep: bool = True) -> None:
        self.server, self.key, self._config, self._debug, self._keep = server, key, config, debug, keep
        self._prefix = f"{{{key}}}:"
        self._worker = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._logs_duplicates = True
        other, its_key = ("bloom", "bloom") if config.seen == "exact" else ("exact", "seen")
        if server.exists(self._prefix + its_key):
            raise ConfigError(f"CRAWLWEB_SEEN={config.seen}: the filter {key!r} was begun with {other}")

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        """For scrapy-redis' scheduler, which says when the filter is to be cleared."""
        settings = spider.settings
        key = (settings.get("SCHEDULER_DUPEFILTER_KEY") or KEY) % {"spider": spider.name}
        return cls(_client(settings), key, load(settings), debug=settings.getbool("DUPEFILTER_DEBUG"))

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """For Scrapy's scheduler: with JOBDIR the filter is kept for the next run, else it is this run's own and ends with it."""
        settings = crawler.settings
        keep = job_dir(settings) is not None or settings.getbool("SCHEDULER_PERSIST")
        assert crawler.spider is not None
        key = (settings.get("SCHEDULER_DUPEFILTER_KEY") or KEY) % {"spider": crawler.spider.name}
        if not keep:
            key = f"{key}:{time.time_ns()}"
        return cls(_client(settings), key, load(settings), debug=settings.getbool("DUPEFILTER_DEBUG"), keep=keep)

    def request_seen(self, request: Request) -> bool:
        key = _key(request.url, request)
        # A redirect to another spelling of the same page has the key of the request that led to it.
        if any(_key(url, request) == key for url in request.meta.get("redirect_urls", ())):
            return False
        args = (self._worker, next(self._numbers), key, self._config.expected_urls, self._config.false_positives, self._config.seen)
        run = partial(self.server.execute_command, "EVALSHA", scripts.digest("dupefilter"), 1, f"{self._prefix}ctr", *args)
        try:
            answer = run()
        except NoScriptError:
            self.server.script_load(scripts.source("dupefilter"))
            answer = run()
        return answer in (b"s", "s")

    def close(self, reason: str = "") -> None:  # noqa: ARG002
        if not self._keep:
            self.clear()

    def clear(self) -> None:
        """Forgets all. Looks through the names of all keys of the server."""
        pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", self._prefix) + "*"
        names = self.server.scan_iter(match=pattern, count=_UNLINKED_AT_ONCE)
        while some := list(itertools.islice(names, _UNLINKED_AT_ONCE)):
            self.server.unlink(*some)

    def log(self, request: Request, spider: Spider) -> None:
        if self._debug:
            logger.debug("Filtered duplicate request: %s", request, extra={"spider": spider})
        elif self._logs_duplicates:
            text = "Filtered duplicate request: %s - no more duplicates will be shown (see DUPEFILTER_DEBUG to show all duplicates)"
            logger.debug(text, request, extra={"spider": spider})
            self._logs_duplicates = False
        if spider.crawler.stats is not None:
            spider.crawler.stats.inc_value("dupefilter/filtered")


def _key(url: str, request: Request) -> bytes:
    """16 bytes."""
    try:
        return fingerprint(url_key(url), request)
    except ValueError:  # file:, data: and the like
        return scrapy_fingerprint(request.replace(url=url))[:16]
