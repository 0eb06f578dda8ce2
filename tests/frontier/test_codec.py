"""Entries as bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlweb.frontier import codec
from crawlweb.records import Entry

TEXT = st.text(st.characters(blacklist_characters="\t", blacklist_categories=["Cs"]), max_size=20)
STARTS = [scheme + host for scheme in ("http://", "https://", "https://www.") for host in ("a.org", "b.org", "a.org:81")]
URLS = st.builds(str.__add__, st.sampled_from(STARTS), TEXT)
ENTRIES = st.builds(
    Entry,
    url=URLS,
    priority=st.integers(0, 9),
    depth=st.integers(0, 36**6 - 1),
    referrer=st.one_of(st.just(""), URLS),
    hops=st.integers(0, 5),
    chain=st.lists(st.binary(min_size=16, max_size=16), max_size=3).map(tuple),
    found_as=st.one_of(st.just(""), URLS),
    failures=st.integers(0, 35),
    expiries=st.integers(0, 35),
    sibling=st.sampled_from((0, 1, 2)),
    request=st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.lists(TEXT, max_size=2)), max_size=2),
)


@given(ENTRIES)
def test_an_entry_comes_back_as_it_was(entry: Entry) -> None:
    assert codec.decode(codec.encode(entry, "a.org"), "a.org") == entry


@pytest.mark.parametrize(
    ("url", "short"),
    [
        ("https://a.org/x?y=1", "/x?y=1"),
        ("http://a.org/", "-/"),
        ("https://www.a.org/x", "+/x"),
        ("http://www.a.org/x", "*/x"),
        ("https://a.org", "https://a.org"),
        ("https://a.org.evil/x", "https://a.org.evil/x"),
        ("https://sub.a.org/x", "https://sub.a.org/x"),
        ("https://a.org:444/x", "https://a.org:444/x"),
    ],
)
def test_a_url_on_its_host_leaves_scheme_and_host_out(url: str, short: str) -> None:
    data = codec.encode(Entry(url, 3, 37), "a.org")
    assert data == f"300\t11\t{short}\t\t".encode()
    assert codec.decode(data, "a.org").url == url


@pytest.mark.parametrize(("sibling", "more"), [(0, ""), (1, '{"s":1}'), (2, '{"s":2}')])
def test_another_spelling_says_how_many_were_tried(sibling: int, more: str) -> None:
    entry = Entry("https://a.org/x", 3, sibling=sibling)
    data = codec.encode(entry, "a.org")
    assert data == f"300\t0\t/x\t\t{more}".encode()
    assert codec.decode(data, "a.org").sibling == sibling


@pytest.mark.parametrize(
    "entry",
    [
        Entry("https://a.org/\t"),
        Entry("https://a.org/" + "x" * codec.MAX_ENTRY_BYTES),
        Entry("https://a.org/\ud800"),
        Entry("mailto:a@a.org"),
        Entry(""),
        Entry("https://a.org/", priority=10),
        Entry("https://a.org/", priority=-1),
        Entry("https://a.org/", depth=-1),
        Entry("https://a.org/", depth=36**6),
        Entry("https://a.org/", referrer="/relative"),
        Entry("https://a.org/", request={"body": b"bytes"}),
    ],
)
def test_what_would_not_come_back_is_refused(entry: Entry) -> None:
    with pytest.raises(ValueError, match=r"."):
        codec.encode(entry, "a.org")


@pytest.mark.parametrize("host", ["", "a\tb"])
def test_a_host_that_would_break_the_lists_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="host"):
        codec.encode(Entry("https://a.org/"), host)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"junk",
        b"500\t0\t/x\t",
        b"500\t0\t/x\t\t\t",
        b"50\t0\t/x\t\t",
        b"5000\t0\t/x\t\t",
        b"\xd9\xa300\t0\t/x\t\t",
        b"5A0\t0\t/x\t\t",
        b"500\t-1\t/x\t\t",
        b"500\t1_0\t/x\t\t",
        b"500\t\t/x\t\t",
        b"500\tzzzzzzz\t/x\t\t",
        b"500\t0\tfile:///etc/passwd\t\t",
        b"500\t0\t/x\t\t{",
        b"500\t0\t/x\t\t[]",
        b'500\t0\t/x\t\t{"c":[1]}',
        b'500\t0\t/x\t\t{"c":["zz"]}',
        b'500\t0\t/x\t\t{"h":"1"}',
        b'500\t0\t/x\t\t{"u":1}',
        b'500\t0\t/x\t\t{"r":[]}',
        b'500\t0\t/x\t\t{"s":3}',
        b'500\t0\t/x\t\t{"s":-1}',
        b'500\t0\t/x\t\t{"s":"1"}',
        b'500\t0\t/x\t\t{"s":null}',
        b'500\t0\t/x\t\t{"s":[1]}',
        b"500\t0\t/x\t\t" + b"[" * 60_000,
        b"500\t0\t/x\t\t" + b"9" * 60_000,
        b"500\t0\t/" + b"x" * codec.MAX_ENTRY_BYTES + b"\t\t",
    ],
)
def test_what_is_not_an_entry_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        codec.decode(data, "a.org")


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        codec.decode(data, "a.org")


@given(st.binary(max_size=60))
def test_no_json_raises_anything_else(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        codec.decode(b"500\t0\t/x\t\t{" + data + b"}", "a.org")
