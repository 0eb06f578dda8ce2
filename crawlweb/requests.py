"""Scrapy requests as entries of the frontier, and back: JSON and a whitelist, nothing that Redis names is imported or called unseen."""

from __future__ import annotations

import base64
import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from scrapy import Request, Spider
from scrapy.http import FormRequest, JsonRequest

from .errors import CrawlwebError
from .policy.canonical import request_key

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
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
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
    """Methods only; looked up without running properties."""
    is_public = not name.startswith("_") or name in SPIDER_METHODS
    return is_public and inspect.isfunction(inspect.getattr_static(spider, name, None))


def _own_meta(meta: Mapping[Any, object]) -> dict[Any, object]:
    return {k: v for k, v in meta.items() if k not in _META_LEFT_OUT and not str(k).startswith(_META_PREFIXES_LEFT_OUT)}


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
    for name, value in (("meta", _own_meta(request.meta)), ("cb_kwargs", request.cb_kwargs)):
        if value:
            fields[name] = value
    try:
        text = json.dumps(fields)
        if fields != json.loads(text):
            raise NotSerialisable("meta or cb_kwargs that JSON changes")
        if len(text) > MAX_CHARS:
            raise NotSerialisable(f"{len(text)} characters as JSON")
    except (TypeError, ValueError, RecursionError) as e:
        raise NotSerialisable(f"meta or cb_kwargs: {e}") from None
    return fields


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} where text stands")
    return value


def _token(value: object) -> str:
    """A method or a header name (RFC 9110 §5.6.2): anything else could split the request."""
    if not _TOKEN.fullmatch(_text(value)):
        raise ValueError(f"{value!r} is no token")
    return _text(value)


def _headers(fields: Mapping[str, object]) -> dict[str, list[bytes]]:
    rows = fields.get("headers", [])
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 and isinstance(row[1], list) for row in rows):
        raise ValueError("headers")
    return {_token(name): [_text(value).encode("latin-1") for value in values] for name, values in rows}


def from_fields(url: str, fields: Mapping[str, object], spider: Spider) -> Request:
    """ValueError for fields that `to_fields` did not make, or that name what may not be called."""
    try:
        kind = CLASSES[_text(fields.get("class", "Request"))]
        functions: dict[str, Any] = {}
        for name in ("callback", "errback"):
            if fields.get(name) is not None:
                method = _text(fields[name])
                if not _may_be_called(spider, method):
                    raise ValueError(f"{name} {method!r}")
                functions[name] = getattr(spider, method)
        meta, kwargs = fields.get("meta", {}), fields.get("cb_kwargs", {})
        if not isinstance(meta, dict) or not isinstance(kwargs, dict):
            raise ValueError("meta or cb_kwargs")
        return kind(
            url,
            method=_token(fields.get("method", "GET")),
            body=base64.b64decode(_text(fields.get("body", "")), validate=True),
            headers=_headers(fields),
            meta={**_own_meta(meta), "verbatim_url": True},
            cb_kwargs={str(k): v for k, v in kwargs.items()},
            dont_filter=True,
            **functions,
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(str(e)) from None


def fingerprint(key: bytes, request: Request) -> bytes:
    """URL key of a request: method and body count where there are some."""
    return request_key(key, request.method, base64.b64encode(request.body).decode())


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
        return {_LOCAL: name, "method": request.method, "headers": [[k.decode("latin-1"), []] for k in request.headers]}

    def take(self, url: str, fields: dict[str, object]) -> Request | None:
        """The request that fields stand for, redirected to `url`; None if it is another worker's. It is kept until `drop`."""
        request = self._kept.get(str(fields.get(_LOCAL)))
        if request is None or request.url == url:
            return request
        target = request.replace(url=url, meta={**request.meta, "verbatim_url": True})
        if "method" not in fields:
            target = target.replace(method="GET", body=b"")
        kept = _headers(fields)
        for name in [name for name in target.headers if name.decode("latin-1") not in kept]:
            del target.headers[name]
        return target

    def drop(self, fields: dict[str, object]) -> None:
        self._kept.pop(str(fields.get(_LOCAL)), None)

    @staticmethod
    def is_local(fields: dict[str, object]) -> bool:
        return _LOCAL in fields
