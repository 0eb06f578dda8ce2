"""What scrapy-redis takes for a start URL, as an entry of the frontier: plain URLs, JSON, a spider's own reading."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request, Spider

from crawlweb.default_settings import load
from crawlweb.errors import ConfigError
from crawlweb.frontier.rows import EXACT, UNCHECKED, Link
from crawlweb.policy.canonical import Canonicalizer, url_key
from crawlweb.requests import from_fields
from crawlweb.start_urls import Reader, start_urls_of
from crawlweb.starts import StartUrls

URL = "https://a.org/x"


class Shop(Spider):
    name = "shop"

    def item(self, response: Any) -> None: ...

    def _private(self, response: Any) -> None: ...


def links(data: bytes | str | dict[str, Any], spider: Spider | None = None, encoding: str = "utf-8") -> list[Link]:
    text = json.dumps(data) if isinstance(data, dict) else data
    return Reader(spider or Shop(), Canonicalizer(), encoding)(text.encode(encoding) if isinstance(text, str) else text)


def link(data: bytes | str | dict[str, Any], **more: Any) -> Link:
    (found,) = links(data, **more)
    return found


def request(found: Link) -> Request:
    return from_fields(found.entry.url, found.entry.request, Shop())


# -- plain URLs and JSON -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [URL, f" {URL}\n", {"url": URL}, {"url": URL, "meta": {}}, {"url": URL, "method": "get"}])
def test_a_plain_get_is_a_seed_and_nothing_more(data: Any) -> None:
    found = link(data)
    assert (found.entry.url, found.entry.request, found.entry.priority) == (URL, {}, 0)
    assert (found.key, found.host, found.how) == (url_key(URL), "a.org", EXACT)


def test_what_is_more_than_a_plain_get_travels_along() -> None:
    data = {
        "url": URL,
        "method": "post",
        "body": "tea",
        "headers": {"X-Job": "7", "Accept": ["a", "b"]},
        "meta": {"job-id": "123xsd", "deep": {"list": [1, None]}},
        "cb_kwargs": {"n": 1},
        "callback": "item",
    }
    found = link(data)
    made = request(found)
    assert (made.method, made.body, made.headers.getlist("Accept"), made.headers["X-Job"]) == ("POST", b"tea", [b"a", b"b"], b"7")
    assert (made.meta["job-id"], made.meta["deep"], made.cb_kwargs) == ("123xsd", {"list": [1, None]}, {"n": 1})
    assert made.callback is not None
    assert made.callback.__name__ == "item"
    assert found.key != url_key(URL), "another body is another request"


@pytest.mark.parametrize(
    ("data", "url", "body"),
    [
        ({"url_cookie_key": "fertxsas"}, f"{URL}?url_cookie_key=fertxsas", b""),
        ({"method": "POST", "q": "tea", "more": ["1", "2"]}, URL, b"q=tea&more=1&more=2"),
    ],
)
def test_unknown_fields_are_form_data_as_in_scrapy_redis(data: dict[str, Any], url: str, body: bytes) -> None:
    found = link({"url": URL, **data})
    assert (found.entry.url, request(found).body) == (url, body)
    if body:
        assert request(found).headers["Content-Type"] == b"application/x-www-form-urlencoded"


def test_dont_filter_skips_the_seen_set_and_priority_moves_back() -> None:
    assert link({"url": URL, "dont_filter": True}).how == UNCHECKED
    assert [link({"url": URL, "priority": n}).entry.priority for n in (5, 0, -2, -50)] == [0, 0, 2, 9]


def test_other_encodings_are_read() -> None:
    assert link("https://a.org/é", encoding="latin-1").entry.url == "https://a.org/%C3%A9"
    with pytest.raises(ValueError, match="not utf-8"):
        links("https://a.org/é".encode("latin-1"))


BAD: dict[str, Any] = {
    "nothing": "",
    "no URL": "tea",
    "another scheme": "ftp://a.org/",
    "a script": "javascript:alert(1)",
    "not UTF-8": b"\x80\x81",
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00]\x94.",
    "too long a URL": "https://a.org/" + "x" * 5000,
    "half of JSON": '{"url": "https://a.org/"',
    "a list": '["https://a.org/"]',
    "text as JSON": '"https://a.org/"',
    "deep JSON": '{"url": "https://a.org/", "meta": ' + "[" * 30_000 + "]" * 30_000 + "}",
    "a number of many digits": '{"url": "https://a.org/", "priority": ' + "9" * 10_000 + "}",
    "no url": {"meta": {}},
    "a url of another type": {"url": ["https://a.org/"]},
    "a url that is none": {"url": "tea"},
    "meta of another type": {"url": URL, "meta": [1]},
    "a callback of the system": {"url": URL, "callback": "os.system"},
    "a private callback": {"url": URL, "callback": "_private"},
    "a callback that is no method": {"url": URL, "callback": "name"},
    "a method that splits the request": {"url": URL, "method": "GET / HTTP/1.1\r\nX: y"},
    "a header that splits the request": {"url": URL, "headers": {"X: y\r\nZ": "1"}},
    "headers of another type": {"url": URL, "headers": 5},
    "a body of another type": {"url": URL, "body": 5},
    "form data of another type": {"url": URL, "number": 5},
    "form data and a body": {"url": URL, "method": "POST", "body": "x", "q": "tea"},
    "a dont_filter of another type": {"url": URL, "dont_filter": "yes"},
    "a priority of another type": {"url": URL, "priority": "1"},
    "cb_kwargs of another type": {"url": URL, "cb_kwargs": "x"},
    "too much": {"url": URL, "meta": {"x": "y" * 60_000}},
}


@pytest.mark.parametrize("name", BAD)
def test_no_start_url_is(name: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        links(BAD[name])


@given(
    st.one_of(
        st.binary(max_size=200),
        st.dictionaries(
            st.sampled_from(
                ["url", "meta", "method", "headers", "body", "callback", "errback", "cb_kwargs", "dont_filter", "priority", "x"]
            ),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.just(URL) | st.just("item"),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
                max_leaves=5,
            ),
        ).map(lambda fields: json.dumps({"url": URL, **fields}).encode()),
    )
)
def test_whatever_comes_is_a_link_or_a_value_error(data: bytes) -> None:
    try:
        found = links(data)
    except ValueError:
        return
    for one in found:
        assert one.entry.url.startswith(("http://", "https://"))
        from_fields(one.entry.url, one.entry.request, Shop())


# -- the spider's own reading --------------------------------------------------------------------------------------------


def reading(make: Callable[[Any, bytes], Any]) -> Spider:
    return type("Own", (Shop,), {"make_request_from_data": make})()


def several(_: Any, data: bytes) -> Iterator[Request]:
    for n in range(int(data)):
        yield Request(f"https://a.org/{n}", dont_filter=n == 1)


def test_a_spiders_own_reading_is_asked() -> None:
    assert [(found.entry.url, found.how) for found in links(b"2", reading(several))] == [
        ("https://a.org/0", EXACT),
        ("https://a.org/1", UNCHECKED),
    ]
    assert links(b"", reading(lambda _, data: None)) == []  # noqa: ARG005
    assert links(b"", reading(lambda _, data: [])) == []  # noqa: ARG005
    spider = reading(lambda self, data: Request(data.decode(), callback=self.item, meta={"a": 1}))
    found = link(URL, spider=spider)
    assert found.entry.request == {"callback": "item", "meta": {"a": 1}}


@pytest.mark.parametrize(
    "make",
    [
        several,  # int("x")
        lambda _, data: [1],  # noqa: ARG005
        lambda _, data: Request("ftp://a.org/"),  # noqa: ARG005
        lambda _, data: Request(URL, callback=lambda response: None),  # noqa: ARG005
        lambda _, data: Request(URL, meta={"set": {1}}),  # noqa: ARG005
        lambda _: None,
    ],
)
def test_what_it_cannot_read_is_no_start_url(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        links(b"x", reading(make))


# -- which key -----------------------------------------------------------------------------------------------------------


def start_urls(spider: Spider | None = None, **settings: Any) -> StartUrls:
    return start_urls_of(spider or Shop(), load(settings), Canonicalizer())


def test_the_key_is_that_of_scrapy_redis() -> None:
    assert (start_urls().key, start_urls().kind) == ("shop:start_urls", "")
    assert start_urls(REDIS_START_URLS_KEY="%(name)s_urls").key == "shop_urls"
    assert start_urls(REDIS_START_URLS_KEY="all").key == "all"
    assert start_urls(REDIS_START_URLS_KEY="").key == ""
    assert start_urls(REDIS_START_URLS_AS_SET=True).kind == "set"
    assert start_urls(REDIS_START_URLS_AS_ZSET="1").kind == "zset"
    assert start_urls(REDIS_START_URLS_BATCH_SIZE="7").most == 7


def test_a_spiders_attributes_go_first() -> None:
    spider = type("Own", (Shop,), {"redis_key": "own:%(name)s", "redis_batch_size": 3, "redis_encoding": "latin-1"})()
    found = start_urls(spider, REDIS_START_URLS_KEY="all", REDIS_START_URLS_BATCH_SIZE=5, REDIS_ENCODING="ascii")
    assert (found.key, found.most) == ("own:shop", 3)
    assert found.read("https://a.org/é".encode("latin-1"))[0].entry.url == "https://a.org/%C3%A9"


@pytest.mark.parametrize(
    ("attributes", "settings", "says"),
    [
        ({}, {"REDIS_START_URLS_KEY": "%(spider)s:start_urls"}, "REDIS_START_URLS_KEY='%(spider)s:start_urls'"),
        ({}, {"REDIS_START_URLS_KEY": "%d"}, "REDIS_START_URLS_KEY='%d'"),
        ({"redis_key": "50%"}, {}, "REDIS_START_URLS_KEY='50%'"),
        ({}, {"REDIS_ENCODING": "klingon"}, "REDIS_ENCODING='klingon'"),
        ({}, {"REDIS_ENCODING": "base64"}, "REDIS_ENCODING='base64'"),
        ({}, {"REDIS_START_URLS_BATCH_SIZE": "0"}, "REDIS_START_URLS_BATCH_SIZE='0'"),
        ({}, {"REDIS_START_URLS_AS_SET": "maybe"}, "REDIS_START_URLS_AS_SET='maybe'"),
        ({"redis_batch_size": "many"}, {}, "redis_batch_size='many'"),
        ({"redis_batch_size": -1}, {}, "redis_batch_size=-1"),
        ({"setup_redis": lambda self, crawler=None: None}, {}, "derive it from scrapy.Spider"),  # noqa: ARG005
    ],
)
def test_what_cannot_be_is_one_line(attributes: dict[str, Any], settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        start_urls(type("Own", (Shop,), attributes)(), **settings)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
