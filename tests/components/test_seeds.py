"""What a crawl is started with: arguments of the spider, and seeds from the command line or a file."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlweb.errors import ConfigError
from crawlweb.frontier.rows import EXACT
from crawlweb.policy.canonical import Canonicalizer, url_key
from crawlweb.records import Entry
from crawlweb.seeds import BATCH, SeedSource, SpiderArguments


def source(seeds: str | None) -> SeedSource:
    return SeedSource(seeds, Canonicalizer())


def urls(seeds: str | None) -> list[str]:
    return [target.url for target in source(seeds).targets()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "seeds.txt"


# -- arguments -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "arguments"),
    [
        ({}, SpiderArguments()),
        ({"seeds": "https://a.org", "scope": "domain"}, SpiderArguments("https://a.org", "domain")),
        ({"max_pages": "1", "max_depth": "0"}, SpiderArguments(max_pages=1, max_depth=0)),
        ({"max_pages": 500, "max_depth": 3}, SpiderArguments(max_pages=500, max_depth=3)),
        ({"max_pages": " 7 ", "scope": "any"}, SpiderArguments(scope="any", max_pages=7)),
        ({"max_pages": "", "max_depth": None}, SpiderArguments()),
        ({"scope": "host"}, SpiderArguments(scope="host")),
    ],
)
def test_arguments_are_read_from_text(given_: dict[str, Any], arguments: SpiderArguments) -> None:
    assert SpiderArguments.parse(**given_) == arguments


WRONG: dict[str, list[Any]] = {
    "max_pages": ["0", "-1", "many", "1.5", "1e3", "1_0x", [5], {}, 0, -5, float("inf"), float("nan"), 1.5],
    "max_depth": ["-1", "deep", "0.5", -1, [0]],
    "scope": ["", "Domain", "site", "domains", "any ", 5],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_an_argument_that_is_wrong_is_named_with_its_value(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        SpiderArguments.parse(**{name: value})
    assert f"{name}={value!r}" in str(refused.value)
    assert "\n" not in str(refused.value)


# -- the command line ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        (None, []),
        ("", []),
        (" , ,", []),
        ("https://example.com", ["https://example.com/"]),
        ("https://a.org,http://b.org/x , https://c.org/?q=1", ["https://a.org/", "http://b.org/x", "https://c.org/?q=1"]),
        ("HTTPS://A.ORG/x#part,", ["https://a.org/x"]),
        ("https://bücher.example/ä", ["https://xn--bcher-kva.example/%C3%A4"]),
    ],
)
def test_seeds_of_the_command_line_have_commas_between_them(seeds: str | None, expected: list[str]) -> None:
    assert urls(seeds) == expected
    source(seeds).check()


@pytest.mark.parametrize(
    "bad", ["example.com", "ftp://example.com/", "//example.com", "https://", "javascript:1", "https://[", "http://a b/", "/x", "x" * 3000]
)
def test_a_seed_that_is_no_url_is_named(bad: str) -> None:
    with pytest.raises(ConfigError) as refused:
        source(f"https://good.org,{bad}").check()
    assert repr(bad) in str(refused.value)


# -- a file --------------------------------------------------------------------------------------------------------------


def test_a_file_has_a_seed_a_line(file: Path) -> None:
    file.write_bytes(b"# the first ones\nhttps://a.org\r\n\r\n   https://b.org/x  \n#https://c.org\nhttps://d.org/a,b\nhttps://last.org")
    assert urls(f"@{file}") == ["https://a.org/", "https://b.org/x", "https://d.org/a,b", "https://last.org/"]


def test_a_file_of_windows_with_a_byte_order_mark_is_read(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfhttps://a.org\r\nhttps://b.org\r\n")
    assert urls(f"@{file}") == ["https://a.org/", "https://b.org/"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n"])
def test_a_file_without_seeds_has_none(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert urls(f"@{file}") == []


@pytest.mark.parametrize("bad", [b"not a url", b"\xff\xfe\x00binary", b"https://", b"ftp://a.org/", b"x" * 100_000])
def test_a_line_that_is_no_url_is_named_with_its_number(file: Path, bad: bytes) -> None:
    file.write_bytes(b"https://a.org\n# comment\n\n" + bad + b"\nhttps://b.org\n")
    with pytest.raises(ConfigError, match=r"seeds\.txt, line 4: "):
        source(f"@{file}").check()


@pytest.mark.parametrize("name", ["missing.txt", "", "folder", "missing/seeds.txt", "a\x00b"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="seeds=@") as refused:
        source(f"@{tmp_path}/{name}" if name else "@").check()
    assert "\n" not in str(refused.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(file: Path) -> None:
    file.touch(mode=0)
    with pytest.raises(ConfigError, match="seeds=@"):
        source(f"@{file}").check()


# -- batches -------------------------------------------------------------------------------------------------------------


def test_seeds_are_sent_in_batches_into_the_first_queue_and_tested_exactly(file: Path) -> None:
    file.write_text("".join(f"https://h{n}.org/{n}\n" for n in range(2 * BATCH + 1)))
    batches = list(source(f"@{file}").batches())
    assert [len(batch) for batch in batches] == [BATCH, BATCH, 1]
    first = batches[0][0]
    assert (first.host, first.key, first.how) == ("h0.org", url_key("https://h0.org/0"), EXACT)
    assert first.entry == Entry("https://h0.org/0", priority=0)
    assert list(source(None).batches()) == []


def test_a_file_is_streamed(file: Path) -> None:
    with file.open("w") as lines:
        lines.writelines(f"https://h{n % 50}.org/a/path/of/some/length/{n}\n" for n in range(40_000))
    assert file.stat().st_size > 1_500_000
    seeds = source(f"@{file}")
    seeds.check()
    tracemalloc.start()
    try:
        sent = sum(len(batch) for batch in seeds.batches())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent == 40_000
    assert most < 2_000_000


@given(st.text(max_size=60))
@settings(deadline=None, derandomize=True)
def test_no_text_raises_anything_but_config_error(text: str) -> None:
    if text.startswith("@"):
        text = "@/nowhere/" + text
    try:
        found = urls(text)
    except ConfigError:
        return
    assert all(url.startswith(("http://", "https://")) for url in found)
