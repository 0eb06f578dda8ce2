"""Entries of a key of start URLs as requests: plain URLs or JSON objects, as scrapy-redis takes them; and which key that is."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import FormRequest

from .default_settings import Config
from .errors import ConfigError
from .frontier.rows import EXACT, UNCHECKED, Link
from .policy.canonical import Canonicalizer
from .policy.priority import SEED_QUEUE
from .records import Entry
from .requests import NotSerialisable, fingerprint, from_fields, to_fields
from .starts import StartUrls

_SHOWN_CHARS = 80


def start_urls_of(spider: Spider, config: Config, canonicalizer: Canonicalizer) -> StartUrls:
    """The spider's `redis_key`, `redis_batch_size` and `redis_encoding` go before settings, as in scrapy-redis. ConfigError for what cannot
    be one of them."""
    if callable(getattr(spider, "setup_redis", None)):
        raise ConfigError(
            f"{type(spider).__name__} takes start URLs out of Redis by itself, and loses them in a crash: derive it from scrapy.Spider or "
            "CrawlSpider instead; redis_key, redis_batch_size, redis_encoding and make_request_from_data keep their meaning"
        )
    pattern = getattr(spider, "redis_key", None) or config.start_urls_key
    try:
        key = str(pattern) % {"name": spider.name}
    except (KeyError, TypeError, ValueError) as e:
        raise ConfigError(f"REDIS_START_URLS_KEY={pattern!r}: {e!r}") from None
    encoding = getattr(spider, "redis_encoding", None) or config.redis_encoding
    most = getattr(spider, "redis_batch_size", None) or config.start_urls_batch_size
    try:
        if not codecs.lookup(encoding)._is_text_encoding:
            raise LookupError("it is none of text")
    except (LookupError, TypeError, ValueError) as e:
        raise ConfigError(f"REDIS_ENCODING={encoding!r}: {e}") from None
    if not str(most).isdecimal():
        raise ConfigError(f"redis_batch_size={most!r}: a whole number of at least 1 expected")
    kind = "set" if config.start_urls_as_set else "zset" if config.start_urls_as_zset else ""
    return StartUrls(key.strip(), kind, int(most), Reader(spider, canonicalizer, encoding))


class Reader:
    """A spider that has `make_request_from_data` is asked; otherwise an entry is a URL, or a JSON object with `url`.
    In it, `meta`, `method`, `headers`, `body`, `callback`, `errback`, `cb_kwargs`, `dont_filter` and `priority` are the request's; what
    else it holds is form data, as in scrapy-redis."""

    def __init__(self, spider: Spider, canonicalizer: Canonicalizer, encoding: str = "utf-8") -> None:
        self._spider, self._canonicalizer, self._encoding = spider, canonicalizer, encoding
        self._make: Callable[[bytes], Any] | None = getattr(spider, "make_request_from_data", None)

    def __call__(self, data: bytes) -> list[Link]:
        if self._make is not None:
            return [self._link(request, checked=not request.dont_filter) for request in self._made(data)]
        try:
            text = data.decode(self._encoding).strip()
        except UnicodeError as e:
            raise ValueError(f"not {self._encoding}: {e}") from None
        if text.startswith("{"):
            return [self._from_json(text)]
        target = self._canonicalizer.target(text)
        if target is None:
            raise ValueError(f"not an http or https URL: {text[:_SHOWN_CHARS]!r}")
        return [Link(target.host, target.key, Entry(target.url, SEED_QUEUE), EXACT)]

    def _made(self, data: bytes) -> Iterator[Request]:
        assert self._make is not None
        try:
            made = self._make(data)
            requests = list(made) if isinstance(made, Iterable) else [made] if made else []
        except Exception as e:
            raise ValueError(f"make_request_from_data: {e!r}") from e
        for request in requests:
            if not isinstance(request, Request):
                raise ValueError(f"make_request_from_data gave {request!r}")
            yield request

    def _from_json(self, text: str) -> Link:
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise ValueError(f"not JSON: {e}") from None
        url = given.pop("url", None)
        if not isinstance(url, str) or self._canonicalizer.target(url) is None:
            raise ValueError(f"url: not an http or https URL: {str(url)[:_SHOWN_CHARS]!r}")
        dont_filter, priority = given.pop("dont_filter", False), given.pop("priority", 0)
        if not isinstance(dont_filter, bool) or not isinstance(priority, int):
            raise ValueError("dont_filter or priority")
        method = given.pop("method", "GET")
        fields = {name: given.pop(name) for name in ("meta", "callback", "errback", "cb_kwargs") if name in given}
        headers, body = given.pop("headers", {}), given.pop("body", "")
        try:
            plain = Request(url, method=str(method).upper(), headers=headers, body=body)
            made = FormRequest(url, method=plain.method, headers=headers, formdata=given) if given else plain
            if given and body:
                raise ValueError("body and form data")
            checked = to_fields(made, self._spider)  # no callback yet: only names come from outside
            request = from_fields(made.url, {**checked, **fields, "class": "Request"}, self._spider)
        except (NotSerialisable, TypeError, AttributeError, ValueError) as e:
            raise ValueError(str(e)) from None
        return self._link(request.replace(priority=priority), checked=not dont_filter)

    def _link(self, request: Request, *, checked: bool) -> Link:
        target = self._canonicalizer.target(request.url)
        if target is None:
            raise ValueError(f"not an http or https URL: {request.url[:_SHOWN_CHARS]!r}")
        try:
            fields = to_fields(request, self._spider)
            from_fields(target.url, fields, self._spider)
        except NotSerialisable as e:
            raise ValueError(str(e)) from None
        queue = min(9, max(SEED_QUEUE, SEED_QUEUE - request.priority))
        return Link(
            target.host, fingerprint(target.key, request), Entry(target.url, queue, request=fields), EXACT if checked else UNCHECKED
        )
