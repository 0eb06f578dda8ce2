"""Other spellings of a URL: which is tried, and that it is the same page."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlweb.policy.canonical import Canonicalizer
from crawlweb.policy.siblings import origin_sibling, slash_sibling

CANONICALIZER = Canonicalizer()


@pytest.mark.parametrize(
    ("url", "other"),
    [
        ("https://example.com/a", "https://example.com/a/"),
        ("https://example.com/a/", "https://example.com/a"),
        ("http://www.example.com:8080/a/b/c", "http://www.example.com:8080/a/b/c/"),
        ("https://example.com/a/b/", "https://example.com/a/b"),
        ("https://example.com/v1.2/a", "https://example.com/v1.2/a/"),
        ("https://example.com/caf%C3%A9", "https://example.com/caf%C3%A9/"),
        ("https://[2001:db8::1]/a", "https://[2001:db8::1]/a/"),
        # the root has one spelling
        ("https://example.com/", None),
        ("https://example.com", None),
        # the name of a file
        ("https://example.com/a.html", None),
        ("https://example.com/a/b.php", None),
        ("https://example.com/a/b.html/", None),
        # what a form asked for
        ("https://example.com/a?b=c", None),
        ("https://example.com/a/?b", None),
        ("https://example.com/?b", None),
    ],
)
def test_a_path_has_a_spelling_with_a_slash_and_one_without(url: str, other: str | None) -> None:
    assert slash_sibling(url) == other


@pytest.mark.parametrize(
    ("url", "other"),
    [
        ("http://example.com/a?b=c", "https://example.com/a?b=c"),
        ("http://www.example.com/", "https://www.example.com/"),
        ("http://shop.example.com/a", "https://shop.example.com/a"),
        ("https://example.com/a/?b", "https://www.example.com/a/?b"),
        ("https://www.example.com/a", "https://example.com/a"),
        ("https://example.co.uk/", "https://www.example.co.uk/"),
        ("https://anna.github.io/x", "https://www.anna.github.io/x"),
        # only the host's own name has a `www.`
        ("https://shop.example.com/a", None),
        ("https://www.shop.example.com/a", None),
        ("https://www.com/", None),  # com is nobody's
        ("https://www.github.io/", None),
        ("https://localhost/", None),
        # another scheme need not have the port
        ("http://example.com:8080/a", "http://www.example.com:8080/a"),
        ("https://www.example.com:8443/a?b", "https://example.com:8443/a?b"),
        ("http://shop.example.com:8080/a", None),
        ("http://192.0.2.7:8080/a", None),
        ("http://[2001:db8::1]/a", "https://[2001:db8::1]/a"),
        ("https://[2001:db8::1]/a", None),
        ("http://[2001:db8::1]:8080/a", None),
    ],
)
def test_an_origin_has_a_spelling_with_another_scheme_or_www(url: str, other: str | None) -> None:
    assert origin_sibling(url) == other


LABEL = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
NAMES = st.lists(LABEL, min_size=0, max_size=2).map(lambda labels: ".".join([*labels, "example", "org"]))
PATHS = st.text(st.sampled_from("ab/.%2F;=~()é"), max_size=12)
QUERIES = st.just("") | st.text(st.sampled_from("ab=&?/.%2F"), max_size=8).map("?{}".format)


@given(st.sampled_from(("http", "https")), NAMES, st.sampled_from(("", ":8080")), PATHS, QUERIES)
@settings(deadline=None, derandomize=True)
def test_a_sibling_is_another_url_with_the_same_key_and_leads_back_or_on(scheme: str, name: str, port: str, path: str, query: str) -> None:
    target = CANONICALIZER.target(f"{scheme}://{name}{port}/{path}{query}")
    assert target
    for other in filter(None, (slash_sibling(target.url), origin_sibling(target.url))):
        sibling = CANONICALIZER.target(other)
        assert sibling
        assert sibling.url != target.url
        assert (sibling.key, sibling.host) == (target.key, target.host)


@given(PATHS)
@settings(deadline=None, derandomize=True)
def test_the_sibling_of_a_slash_is_the_url_itself(path: str) -> None:
    target = CANONICALIZER.target("https://example.org/" + path)
    assert target
    other = slash_sibling(target.url)
    assert other is None or slash_sibling(other) in (target.url, None)


def test_an_address_has_no_www() -> None:
    """192.0.2.7 is its own host, but www.192.0.2.7 is no name."""
    assert origin_sibling("https://192.0.2.7/a") is None
    assert origin_sibling("http://192.0.2.7/a") == "https://192.0.2.7/a"
