"""Scrapy requests as entries of the frontier, and back: JSON and a whitelist, nothing that Redis names is imported or called unseen."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
from collections.abc import Callable
from typing import Any

from scrapy import Request, Spider
from scrapy.http import FormRequest, JsonRequest

from .errors import CrawlwebError

CLASSES: dict[str, type[Request]] = {"Request": Request, "FormRequest": FormRequest, "JsonRequest": JsonRequest}
SPIDER_METHODS = {"_callback", "_errback"}  # CrawlSpider's own, not public by name
# Carried along by `meta=response.meta`, retry and redirect; meaningless or harmful in another request.
_META_LEFT_OUT = {
    "depth",
    "download_latency",
    "download_slot",
    "download_timeout",
    "is_start_request",
    "playwright_page",
    "retry_times",
    "verbatim_url",
}
_META_PREFIXES_LEFT_OUT = ("crawlweb_", "redirect_")
_LOCAL = "local"
MAX_CHARS = 50_000  # of a request as JSON; larger ones stay in the process


class NotSerialisable(CrawlwebError):
    """A request that only this process can make."""


def _method_name(spider: Spider, function: Callable[..., Any] | None) -> str | None:
    if function is None:
        return None
    name = getattr(function, "__name__", "")
    if getattr(function, "__self__", None) is not spider or not _may_be_called(spider, name):
        raise NotSerialisable(f"{function!r} is no public method of the spider")
    return name


def _may_be_called(spider: Spider, name: str) -> bool:
    return (not name.startswith("_") or name in SPIDER_METHODS) and inspect.ismethod(getattr(spider, name, None))


def to_fields(request: Request, spider: Spider) -> dict[str, object]:
    """What a request is more than a plain GET; empty for one. NotSerialisable if it cannot leave this process."""
    fields: dict[str, object] = {}
    kind = type(request)
    if CLASSES.get(kind.__name__) is not kind:
        raise NotSerialisable(f"requests of class {kind.__module__}.{kind.__qualname__}")
    if kind is not Request:
        fields["class"] = kind.__name__
    if request.method != "GET":
        fields["method"] = request.method
    if request.body:
        fields["body"] = base64.b64encode(request.body).decode()
    if request.headers:
        fields["headers"] = [[k.decode("latin-1"), [v.decode("latin-1") for v in values]] for k, values in request.headers.items()]
    for name, function in (("callback", request.callback), ("errback", request.errback)):
        if function is not None and not isinstance(function, str):
            fields[name] = _method_name(spider, function)
    meta = {k: v for k, v in request.meta.items() if k not in _META_LEFT_OUT and not str(k).startswith(_META_PREFIXES_LEFT_OUT)}
    for name, value in (("meta", meta), ("cb_kwargs", request.cb_kwargs)):
        if value:
            fields[name] = value
    try:
        text = json.dumps(fields)
        if fields != json.loads(text):
            raise NotSerialisable("meta or cb_kwargs that JSON changes")
        if len(text) > MAX_CHARS:
            raise NotSerialisable(f"{len(text)} characters as JSON")
    except (TypeError, ValueError) as e:
        raise NotSerialisable(f"meta or cb_kwargs: {e}") from None
    return fields


def from_fields(url: str, fields: dict[str, object], spider: Spider) -> Request:
    """ValueError for fields that `to_fields` did not make, or that name what may not be called."""
    try:
        kind = CLASSES[str(fields.get("class", "Request"))]
        functions: dict[str, Any] = {}
        for name in ("callback", "errback"):
            method = fields.get(name)
            if method is not None:
                if not isinstance(method, str) or not _may_be_called(spider, method):
                    raise ValueError(f"{name} {method!r}")
                functions[name] = getattr(spider, method)
        headers: Any = fields.get("headers", [])
        meta: Any = fields.get("meta", {})
        kwargs: Any = fields.get("cb_kwargs", {})
        return kind(
            url,
            method=str(fields.get("method", "GET")),
            body=base64.b64decode(str(fields.get("body", "")), validate=True),
            headers={str(k): [str(v) for v in values] for k, values in headers},
            meta={**{str(k): v for k, v in meta.items()}, "verbatim_url": True},
            cb_kwargs={str(k): v for k, v in kwargs.items()},
            dont_filter=True,
            **functions,
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(str(e)) from None


def fingerprint(key: bytes, request: Request) -> bytes:
    """URL key of a request: method and body count where there are some."""
    if request.method == "GET" and not request.body:
        return key
    return hashlib.blake2b(b"\0".join((key, request.method.encode(), request.body)), digest_size=16).digest()


class LocalRequests:
    """Requests that cannot leave this process, by the number that stands for them in the frontier."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._kept: dict[str, Request] = {}
        self._last = 0

    def keep(self, request: Request) -> dict[str, object]:
        self._last += 1
        name = f"{self._worker}:{self._last}"
        self._kept[name] = request
        return {_LOCAL: name}

    def take(self, fields: dict[str, object]) -> Request | None:
        """The request that fields stand for; None if it is another worker's. It is kept until `drop`."""
        return self._kept.get(str(fields.get(_LOCAL)))

    def drop(self, fields: dict[str, object]) -> None:
        self._kept.pop(str(fields.get(_LOCAL)), None)

    @staticmethod
    def is_local(fields: dict[str, object]) -> bool:
        return _LOCAL in fields
