"""Scrapy requests through Redis: what comes back is what went in, and nothing that stands there is imported or called unseen."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy import Request, Spider
from scrapy.http import FormRequest, HtmlResponse, JsonRequest, Response, XmlRpcRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from crawlweb.frontier import codec
from crawlweb.outcome import redirected
from crawlweb.policy.canonical import url_key
from crawlweb.records import Entry
from crawlweb.requests import MAX_CHARS, LocalRequests, NotSerialisable, fingerprint, from_fields, to_fields

URL = "https://example.com/a?b=c"


class Shop(Spider):
    name = "shop"
    started = 0
    not_a_method = Request

    def parse(self, response: Response) -> None: ...

    def parse_item(self, response: Response, page: int = 0) -> None: ...

    def failed(self, failure: object) -> None: ...

    def _secret(self, response: Response) -> None: ...

    @property
    def dangerous(self) -> object:
        type(self).started += 1
        raise RuntimeError("looked at")


class Subclass(Request):
    pass


SHOP = Shop()


def through_redis(request: Request, spider: Spider = SHOP) -> Request:
    """As the scheduler does it: fields, the entry's bytes, fields, request."""
    fields = to_fields(request, spider)
    entry = codec.decode(codec.encode(Entry(request.url, request=fields), "example.com"), "example.com")
    assert entry.request == fields
    return from_fields(entry.url, entry.request, spider)


# -- there and back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL),
        Request(URL, dont_filter=True, priority=7),
        Request(URL, meta={"depth": 3, "download_slot": "x", "redirect_times": 1, "crawlweb_deadline": 9.5, "retry_times": 2}),
        Request(URL, meta={"is_start_request": True, "verbatim_url": True, "playwright_page": object(), "download_latency": 0.1}),
    ],
)
def test_a_plain_get_needs_no_fields(request_: Request) -> None:
    assert to_fields(request_, SHOP) == {}


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL, method="POST", body=b"\x00\xff\n binary"),
        Request(URL, method="PUT", body="käse"),
        Request(URL, method="DELETE"),
        Request(URL, method="HEAD"),
        Request(URL, body=b"a GET with a body"),
        FormRequest(URL, formdata={"name": "Ä & Ö", "many": ["1", "2"]}),
        FormRequest(URL, method="GET", formdata={"q": "x"}),
        JsonRequest(URL, data={"a": [1, None, "é"]}),
        JsonRequest(URL),
        Request(URL, headers={"X-One": "1", "X-Many": ["a", "b"], "Empty": ""}),
        Request(URL, headers={b"X-Bytes": b"\xe9\xff\x80", b"X-Utf8": "é"}),
        Request(URL, meta={"page": 1, "deep": {"list": [1.5, None, True, "é\ud800"]}}, cb_kwargs={"page": 2}),
        Request(URL, callback=SHOP.parse_item, errback=SHOP.failed, cb_kwargs={"page": 3}),
        Request(URL, callback=SHOP.parse),
    ],
    ids=repr,
)
def test_a_request_comes_back_as_it_was(request_: Request) -> None:
    back = through_redis(request_)
    assert type(back) is type(request_)
    for name in ("url", "method", "body", "cb_kwargs", "callback", "errback"):
        assert getattr(back, name) == getattr(request_, name), name
    assert back.headers.items() == request_.headers.items() or dict(back.headers) == dict(request_.headers)
    assert back.meta == {**request_.meta, "verbatim_url": True}
    assert back.dont_filter  # it has been tested
    assert fingerprint(b"key", back) == fingerprint(b"key", request_)


def test_what_belonged_to_the_fetch_before_stays_behind() -> None:
    """`Request(url, meta=response.meta)` is common."""
    meta = {
        "mine": 1,
        "depth": 3,
        "download_latency": 0.5,
        "download_slot": "crawlweb",
        "download_timeout": 10.0,
        "redirect_urls": ["x"],
        "redirect_reasons": [301],
        "retry_times": 2,
        "crawlweb_deadline": 1.5,
        "crawlweb_warc": object(),
        "is_start_request": True,
        "playwright_page": object(),
    }
    assert through_redis(Request(URL, meta=meta)).meta == {"mine": 1, "verbatim_url": True}


def test_a_crawl_spider_s_requests_pass() -> None:
    class Rules(CrawlSpider):
        name = "rules"
        rules = (Rule(LinkExtractor(), callback="parse_item"),)

        def parse_item(self, response: Response) -> None: ...

    spider = Rules()
    spider._compile_rules()
    page = HtmlResponse("https://example.com/", body=b'<a href="/next">Next one</a>', encoding="utf-8")
    request = next(iter(spider._requests_to_follow(page)))
    assert request
    back = through_redis(request, spider)
    assert (back.callback, back.errback) == (spider._callback, spider._errback)
    assert back.meta == {"rule": 0, "link_text": "Next one", "verbatim_url": True}


# -- what cannot leave the process ---------------------------------------------------------------------------------------


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL, callback=lambda *_: None),
        Request(URL, callback=NO_CALLBACK),
        Request(URL, callback=partial(SHOP.parse_item, page=2)),
        Request(URL, callback=Shop().parse_item),
        Request(URL, callback=SHOP._secret),
        Request(URL, callback=print),
        Request(URL, callback=Shop.update_settings),  # type: ignore[arg-type]
        Request(URL, errback=lambda _: None),
        Request(URL, errback=Shop().failed),
        Subclass(URL),
        XmlRpcRequest(URL, params=(1,), methodname="m"),
        Request(URL, meta={"an object": object()}),
        Request(URL, meta={"a set": {1}}),
        Request(URL, meta={"bytes": b"x"}),
        Request(URL, meta={"a tuple": (1, 2)}),
        Request(URL, meta={"deep": [{"a tuple": ()}]}),
        Request(URL, meta={"keys": {1: 2}}),
        Request(URL, meta={1: 2}),  # type: ignore[dict-item]
        Request(URL, meta={"no number": float("nan")}),
        Request(URL, meta={"circular": circular()}),
        Request(URL, meta={"deep": deep(100_000)}),
        Request(URL, cb_kwargs={"page": object()}),
        Request(URL, body=b"x" * MAX_CHARS),
        Request(URL, meta={"much": "é" * (MAX_CHARS // 6)}),
        Request(URL, headers={"X": "x" * MAX_CHARS}),
    ],
    ids=range(25),
)
def test_what_cannot_leave_the_process_is_refused(request_: Request) -> None:
    with pytest.raises(NotSerialisable):
        to_fields(request_, SHOP)


def test_the_largest_request_still_fits_an_entry() -> None:
    size = MAX_CHARS - len(json.dumps({"method": "POST", "body": ""}))
    request = Request("https://example.com/" + "x" * 2000, method="POST", body=b"x" * (size // 4 * 3))
    assert MAX_CHARS - 4 < len(json.dumps(to_fields(request, SHOP))) <= MAX_CHARS
    assert through_redis(request).body == request.body


def test_local_requests_are_this_worker_s_and_kept_until_dropped() -> None:
    ours, theirs = LocalRequests("w1"), LocalRequests("w2")
    first, second = Request(URL, callback=print), Request(URL, callback=print)
    fields = [ours.keep(first), ours.keep(second)]
    assert all(LocalRequests.is_local(f) for f in fields)
    assert not LocalRequests.is_local(to_fields(Request(URL, method="POST"), SHOP))
    assert json.loads(json.dumps(fields)) == fields
    assert [ours.take(URL, f) for f in fields] == [first, second]
    assert ours.take(URL, fields[0]) is first
    ours.drop(fields[0])
    ours.drop(fields[0])
    assert [ours.take(URL, f) for f in fields] == [None, second]
    theirs.keep(Request(URL))
    assert theirs.take(URL, fields[1]) is None


@pytest.mark.parametrize(("status", "method", "body"), [(303, "GET", b""), (302, "GET", b""), (307, "POST", b"x")])
def test_a_local_request_is_redirected_as_any_other(status: int, method: str, body: bytes) -> None:
    local = LocalRequests("w1")
    request = Request(URL, method="POST", body=b"x", callback=print, meta={"own": object()})
    found = local.take("https://example.com/y", redirected(local.keep(request), status))
    assert found
    assert (found.url, found.method, found.body, found.callback) == ("https://example.com/y", method, body, print)
    assert found.meta["own"] is request.meta["own"]
    assert request.url == URL  # a copy


@pytest.mark.parametrize(
    "fields", [{"local": 5}, {"local": None}, {"local": ["w1:1"]}, {"local": {"a": 1}}, {"local": "w1:1", "method": 5}]
)
def test_a_local_request_that_is_not_ours_is_none(fields: dict[str, object]) -> None:
    assert LocalRequests("w1").take(URL, fields) is None
    LocalRequests("w1").drop(fields)


# -- from a Redis that is not trusted ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"class": "os.system"},
        {"class": "scrapy.http.FormRequest"},
        {"class": "XmlRpcRequest"},
        {"class": "Spider"},
        {"class": ""},
        {"class": None},
        {"class": ["Request"]},
        *(
            {which: name}
            for which in ("callback", "errback")
            for name in (
                "__init__",
                "__class__",
                "__reduce__",
                "_secret",
                "_set_crawler",
                "crawler",
                "settings",
                "name",
                "not_a_method",
                "nothing",
                "",
                "parse.__globals__",
                "close",
                "from_crawler",
                "update_settings",
                "handles_request",
                5,
                ["parse"],
                {"parse": 1},
                True,
            )
        ),
        {"method": 5},
        {"method": ""},
        {"method": None},
        {"method": ["GET"]},
        {"method": "GET / HTTP/1.1\r\nX-Evil: 1\r\n\r\n"},
        {"body": "not base64!"},
        {"body": "abc"},
        {"body": 5},
        {"body": True},
        {"body": ["YQ=="]},
        {"body": "é"},
        {"headers": 5},
        {"headers": "X: 1"},
        {"headers": {"X": ["1"]}},
        {"headers": [["X"]]},
        {"headers": [["X", 5]]},
        {"headers": [["X", "1"]]},
        {"headers": [["X", [5]]]},
        {"headers": [[5, ["1"]]]},
        {"headers": [["X", ["\U0001f600"]]]},
        {"headers": [["X\r\nX-Evil", ["1"]]]},
        {"meta": []},
        {"meta": "x"},
        {"meta": 5},
        {"cb_kwargs": []},
        {"cb_kwargs": [["a", 1]]},
    ],
    ids=repr,
)
def test_fields_that_are_not_ours_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        from_fields(URL, fields, SHOP)


@pytest.mark.parametrize("which", ["callback", "errback"])
def test_naming_a_property_does_not_run_it(which: str) -> None:
    Shop.started = 0
    with pytest.raises(ValueError):
        from_fields(URL, {which: "dangerous"}, SHOP)
    assert Shop.started == 0


@pytest.mark.parametrize(
    "name",
    [
        "crawlweb_fetch",
        "crawlweb_sent",
        "crawlweb_deadline",
        "crawlweb_any_type",
        "crawlweb_warc",
        "download_slot",
        "retry_times",
        "redirect_urls",
        "depth",
    ],
)
def test_meta_cannot_speak_for_us(name: str) -> None:
    """What the handler and the middlewares leave for each other in meta would be believed: an end of the request, a file."""
    try:
        request = from_fields(URL, {"meta": {name: "hostile", "mine": 1}}, SHOP)
    except ValueError:
        return
    assert request.meta == {"mine": 1, "verbatim_url": True}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["parse", "POST", "YQ==", "__init__", "dangerous"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("class", "method", "body", "headers", "callback", "errback", "meta", "cb_kwargs", "local", "url", "cookies", "_class")
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.lists(st.text(max_size=5), max_size=2)).map(list), max_size=3)


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4), st.none() | HEADERS)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_no_fields_raise_anything_but_value_error(fields: dict[str, object], headers: list[Any] | None) -> None:
    if headers is not None:
        fields["headers"] = headers
    try:
        request = from_fields(URL, json.loads(json.dumps(fields)), SHOP)
    except ValueError:
        return
    assert type(request) in (Request, FormRequest, JsonRequest)
    assert request.url == URL
    assert request.callback in (None, SHOP.parse)


@given(
    st.sampled_from(["GET", "POST", "PATCH"]),
    st.binary(max_size=20),
    st.dictionaries(st.from_regex(r"\A[A-Za-z-]{1,8}\Z"), st.lists(st.binary(max_size=6), max_size=2), max_size=3),
    st.dictionaries(st.text(max_size=5), JSON, max_size=3),
)
@settings(deadline=None, derandomize=True)
def test_whatever_may_leave_comes_back(method: str, body: bytes, headers: dict[str, list[bytes]], meta: dict[str, Any]) -> None:
    request = Request(URL, method=method, body=body, headers=headers, meta=meta)
    try:
        back = through_redis(request)
    except NotSerialisable:
        return
    assert (back.method, back.body, dict(back.headers)) == (method, body, dict(request.headers))
    assert back.meta == {**meta, "verbatim_url": True}


# -- the key -------------------------------------------------------------------------------------------------------------


def test_only_method_and_body_make_two_requests_of_one_url() -> None:
    key = url_key(URL)
    same: list[Callable[[], Request]] = [
        lambda: Request(URL),
        lambda: Request(URL, headers={"X": "1"}, meta={"a": 1}, dont_filter=True, priority=5, callback=SHOP.parse_item),
        lambda: FormRequest(URL, method="GET"),
    ]
    assert {fingerprint(key, make()) for make in same} == {key}
    others = [
        Request(URL, method="POST"),
        Request(URL, method="POST", body=b"1"),
        Request(URL, method="POST", body=b"2"),
        Request(URL, method="PUT", body=b"1"),
        Request(URL, method="HEAD"),
        Request(URL, body=b"1"),
    ]
    keys = [fingerprint(key, request) for request in others]
    assert len({key, *keys}) == len(others) + 1
    assert {len(k) for k in keys} == {16}
    assert fingerprint(key, Request(URL, method="POST", body=b"1")) == keys[1]
    assert fingerprint(url_key("https://example.com/other"), others[0]) != keys[0]


def test_base64_is_what_the_wire_form_of_a_body_is() -> None:
    assert to_fields(Request(URL, method="POST", body=b"\xff"), SHOP) == {"method": "POST", "body": base64.b64encode(b"\xff").decode()}
