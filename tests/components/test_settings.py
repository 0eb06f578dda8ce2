"""The table of settings: what is read, and what stops the start."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings

from crawlweb.default_settings import MODES, NAMES, PREFIX, Config, load, setting_name
from crawlweb.errors import ConfigError

ROWS = [pytest.param(row, id=setting_name(row)) for row in fields(Config)]
WRONG: dict[str, list[Any]] = {
    "bool": ["yes", "no", "on", "", "2", "None", 5, 1.5, [], {}],
    "int": ["", "many", "1.5", "1e3", "0x10", "nan", [], {}, 1.5, float("inf"), float("nan"), object()],
    "float": ["", "fast", "1,5", "nan", "inf", "-inf", float("nan"), float("inf"), [], {}, object(), "10s", 10**400],
    "tuple[str, ...]": [5, 1.5, True, object()],
}


def config(**given_: Any) -> Config:
    return load({setting_name(row): given_[row.name] for row in fields(Config) if row.name in given_})


def test_nothing_set_is_the_defaults() -> None:
    assert load({}) == Config()
    assert load(Settings()) == Config()


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_complete_and_its_default_is_a_value_it_takes(row: Any) -> None:
    assert row.metadata["meaning"]
    assert setting_name(row) in NAMES
    assert load({setting_name(row): row.default}) == Config()
    if row.metadata["low"] is not None:
        assert row.default >= row.metadata["low"]
    assert row.type in ("str", "bool", "int", "float", "tuple[str, ...]")


@pytest.mark.parametrize("row", ROWS)
def test_none_is_the_default(row: Any) -> None:
    assert load({setting_name(row): None}) == Config()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(setting_name(row), value, id=f"{setting_name(row)}={value!r:.20}")
        for row in fields(Config)
        for value in WRONG.get(str(row.type), [])
    ],
)
def test_a_value_of_a_wrong_type_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        load({name: value})
    assert str(refused.value).startswith(f"{name}={value!r}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("row", [p for p in ROWS if fields(Config)[ROWS.index(p)].metadata["low"] is not None])
def test_a_bound_is_a_value_and_below_it_is_none(row: Any) -> None:
    name, low = setting_name(row), row.metadata["low"]
    assert getattr(load({name: str(low)}), row.name) == low
    for below in (low - 1, str(low - 1)):
        with pytest.raises(ConfigError, match=f"{name}=.*at least {low} expected"):
            load({name: below})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("partitions", "128", 128),
        ("partitions", 128, 128),
        ("expected_urls", 1e9, 10**9),
        ("min_delay_s", "0.25", 0.25),
        ("min_delay_s", "0", 0.0),
        ("min_delay_s", 2, 2.0),
        ("latency_factor", "1e1", 10.0),
        *(("referrer", value, False) for value in (False, 0, "0", "False", "false", "FALSE")),
        *(("allow_private_ips", value, True) for value in (True, 1, "1", "True", "true", "TRUE")),
        ("mode", "continuous", "continuous"),
        ("redis_url", "unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("contact", "", ""),
        ("dns_servers", "127.0.0.1:53", ("127.0.0.1:53",)),
        ("dns_servers", " 10.0.0.1:53 ,, [::1]:53, ", ("10.0.0.1:53", "[::1]:53")),
        ("dns_servers", ["10.0.0.1:53", " 10.0.0.2:53 "], ("10.0.0.1:53", "10.0.0.2:53")),
        ("dns_servers", "", ()),
        ("content_types", "text/html, image/png", ("text/html", "image/png")),
        ("content_types", ("text/html",), ("text/html",)),
    ],
)
def test_values_come_from_text_and_from_python(name: str, value: Any, expected: Any) -> None:
    assert getattr(config(**{name: value}), name) == expected
    assert isinstance(getattr(config(**{name: value}), name), type(expected))


def test_values_come_from_scrapy_s_settings_by_their_own_rules() -> None:
    settings_ = Settings({"CRAWLWEB_PARTITIONS": 8, "REDIS_URL": "redis://localhost"})
    settings_.set("CRAWLWEB_PARTITIONS", "16", priority="cmdline")
    assert (load(settings_).partitions, load(settings_).redis_url) == (16, "redis://localhost")


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("CRAWLWEB_PARTITION", "CRAWLWEB_PARTITIONS"),
        ("CRAWLWEB_MIN_DELAY", "CRAWLWEB_MIN_DELAY_S"),
        ("CRAWLWEB_MINDELAY_S", "CRAWLWEB_MIN_DELAY_S"),
        ("CRAWLWEB_DELAY_S", "CRAWLWEB_IP_DELAY_S"),
        ("CRAWLWEB_MAX_REDIRECT", "CRAWLWEB_MAX_REDIRECTS"),
        ("CRAWLWEB_DATADIR", "CRAWLWEB_DATA_DIR"),
        ("CRAWLWEB_ALLOW_PRIVATE_IP", "CRAWLWEB_ALLOW_PRIVATE_IPS"),
        ("CRAWLWEB_", None),
        ("CRAWLWEB_XYZZY", None),
    ],
)
@pytest.mark.parametrize("value", ["1", None, ""])
def test_an_unknown_name_gives_the_nearest(wrong: str, nearest: str | None, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        load({wrong: value})
    name, _, near = str(refused.value).partition(": there is no such setting; the nearest is ")
    assert name == wrong
    assert near == nearest or (nearest is None and near in NAMES)


@pytest.mark.parametrize("name", ["CRAWLWEBX", "crawlweb_partitions", "CRAWL_DELAY", "REDIS_URLS", "DOWNLOAD_DELAY"])
def test_other_people_s_names_are_not_ours_to_refuse(name: str) -> None:
    assert load({name: "anything"}) == Config()


@pytest.mark.parametrize("mode", [*MODES, "Once", "forever", "", 5, True, ["once"]])
def test_the_mode_is_one_of_two(mode: Any) -> None:
    if mode in MODES:
        assert config(mode=mode).mode == mode
        return
    with pytest.raises(ConfigError, match=r"CRAWLWEB_MODE=.*once or continuous expected"):
        config(mode=mode)


@pytest.mark.parametrize("crawl", ["web", "news-2026", "a.b_c", "7", "é"])
def test_a_crawl_s_name_fits_a_key_and_a_folder(crawl: str) -> None:
    assert config(crawl=crawl).crawl == crawl


@pytest.mark.parametrize("crawl", ["", " ", "a b", "../up", "a/b", "..", ".hidden", "a:b", "{a}", "a}b", "a\n", "a\0", "*", "~", "a\\b"])
def test_a_crawl_s_name_does_not_lead_elsewhere(crawl: str) -> None:
    with pytest.raises(ConfigError, match="CRAWLWEB_CRAWL="):
        config(crawl=crawl)


@given(
    st.sampled_from(sorted(NAMES)),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.lists(st.text(max_size=5), max_size=3),
)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_no_value_raises_anything_else(name: str, value: Any) -> None:
    try:
        loaded = load({name: value})
    except ConfigError as e:
        message = str(e)
    else:
        message = name
        assert isinstance(loaded, Config)
    assert name in message


def test_names_begin_alike_but_for_those_of_redis() -> None:
    start_urls = {f"REDIS_START_URLS_{name}" for name in ("KEY", "AS_SET", "AS_ZSET", "BATCH_SIZE")}
    assert {name for name in NAMES if not name.startswith(PREFIX)} == {"REDIS_URL", "REDIS_CLUSTER", "REDIS_ENCODING", *start_urls}
