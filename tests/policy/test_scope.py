from __future__ import annotations

import pytest

from crawlweb.errors import ConfigError
from crawlweb.policy.canonical import Canonicalizer
from crawlweb.policy.scope import Kind, Scope, in_depth, scope_name
from crawlweb.records import Target


def target(url: str) -> Target:
    found = Canonicalizer().target(url)
    assert found
    return found


def scope(kind: Kind, *seeds: str) -> Scope:
    return Scope(kind, frozenset(scope_name(kind, target(seed)) for seed in seeds))


def test_any_is_the_whole_web() -> None:
    assert scope("any").contains(target("https://example.org/"))


@pytest.mark.parametrize(
    ("url", "domain", "host"),
    [
        ("https://docs.example.com/x", True, True),
        ("http://docs.example.com:8080/", True, True),
        ("https://www.docs.example.com/", True, True),
        ("https://DOCS.example.com./", True, True),
        ("https://example.com/", True, False),
        ("https://www.example.com/", True, False),
        ("https://other.example.com/", True, False),
        ("https://a.docs.example.com/", True, False),
        ("https://example.org/docs.example.com/", False, False),
        ("https://docs.example.com.evil.org/", False, False),
        ("https://notexample.com/", False, False),
        ("https://docs.example.com@evil.org/", False, False),
    ],
)
def test_domain_is_wider_than_host(url: str, domain: bool, host: bool) -> None:
    seed = "http://www.docs.example.com/start"
    assert scope("domain", seed).contains(target(url)) is domain
    assert scope("host", seed).contains(target(url)) is host


def test_customers_of_one_hosting_service_are_different_domains() -> None:
    assert not scope("domain", "https://anna.github.io/").contains(target("https://bob.github.io/"))


def test_an_address_is_compared_without_its_port() -> None:
    assert scope("host", "http://[::1]:81/").contains(target("http://[0:0::1]/x"))
    assert not scope("host", "http://127.0.0.1/").contains(target("http://127.0.0.2/"))


def test_every_seed_adds_its_name() -> None:
    both = scope("host", "https://a.com/", "https://b.com/x")
    assert both.contains(target("https://a.com/1"))
    assert both.contains(target("https://b.com/1"))
    assert not both.contains(target("https://c.com/1"))


def test_an_unknown_kind_names_its_value() -> None:
    with pytest.raises(ConfigError, match="'site'"):
        Scope("site")  # type: ignore[arg-type]


def test_the_seeds_are_at_depth_zero() -> None:
    assert in_depth(0, 0)
    assert not in_depth(1, 0)
    assert in_depth(3, 3)
    assert in_depth(10**6, None)
