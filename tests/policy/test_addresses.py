"""Addresses without a clock of their own: by block, by the name of a network; settings that are neither."""

from __future__ import annotations

import ipaddress

import pytest

from crawlweb.default_settings import Config, load
from crawlweb.errors import ConfigError
from crawlweb.policy.addresses import NETWORKS, Exceptions


@pytest.mark.parametrize(
    ("blocks", "inside", "outside"),
    [
        ((), (), ("192.0.2.1", "2001:db8::1", "104.16.0.1")),
        (("192.0.2.0/24",), ("192.0.2.0", "192.0.2.7", "192.0.2.255"), ("192.0.1.255", "192.0.3.0", "::ffff:192.0.2.7", "2001:db8::1")),
        (("192.0.2.7",), ("192.0.2.7",), ("192.0.2.6", "192.0.2.8")),
        (("192.0.2.7/32", "198.51.100.0/31"), ("192.0.2.7", "198.51.100.1"), ("198.51.100.2",)),
        (("2001:db8::/32",), ("2001:db8::1", "2001:db8:ffff::1"), ("2001:db9::1", "192.0.2.7")),
        (("2001:DB8::7",), ("2001:db8::7", "2001:db8:0:0::7"), ("2001:db8::8",)),
        (("0.0.0.0/0",), ("1.2.3.4", "255.255.255.255"), ("::1",)),
        (("::/0",), ("::1",), ("1.2.3.4",)),
    ],
)
def test_a_block_leaves_out_its_addresses_and_no_other(blocks: tuple[str, ...], inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    exceptions = Exceptions(blocks)
    assert [ip for ip in inside if not exceptions.contains(ip)] == []
    assert [ip for ip in outside if exceptions.contains(ip)] == []


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("spell", [str, str.upper, str.title])
def test_a_network_is_known_by_name_in_any_case(name: str, spell: type[str]) -> None:
    exceptions = Exceptions((spell(name),))
    nets = [ipaddress.ip_network(text) for text in NETWORKS[name].split()]
    assert {net.version for net in nets} == {4, 6}
    for net in nets:
        assert exceptions.contains(str(net[0]))
        assert exceptions.contains(str(net[-1]))
    assert not exceptions.contains("192.0.2.7")
    assert not exceptions.contains("2001:db8::1")


def test_networks_are_apart_from_each_other_and_public() -> None:
    nets = [(name, ipaddress.ip_network(text)) for name, texts in NETWORKS.items() for text in texts.split()]
    assert [net for _, net in nets if not net.is_global] == []
    pairs = [(a, b) for i, (of_a, a) in enumerate(nets) for of_b, b in nets[:i] if of_a != of_b and a.version == b.version]
    assert [(a, b) for a, b in pairs if a.overlaps(b)] == []


def test_names_and_blocks_stand_beside_each_other() -> None:
    exceptions = Exceptions(("fastly", "192.0.2.0/24", "cloudflare"))
    assert all(exceptions.contains(ip) for ip in ("151.101.1.1", "192.0.2.7", "104.16.1.1", "2606:4700::1"))


def test_the_default_leaves_out_the_networks_that_are_known() -> None:
    exceptions = Exceptions(Config().ip_delay_except)
    assert set(Config().ip_delay_except) == NETWORKS.keys()
    assert exceptions.contains("104.16.0.1")


def test_the_same_address_is_the_same_answer_however_often_it_is_asked() -> None:
    exceptions = Exceptions(("192.0.2.0/24",))
    assert [exceptions.contains(ip) for ip in ("192.0.2.7", "192.0.3.7") * 3] == [True, False] * 3


@pytest.mark.parametrize(
    "block",
    [
        "akamai",
        "example.com",
        "",
        "192.0.2.0/33",
        "192.0.2.7/24",
        "192.0.2",
        "192.0.2.256",
        "2001:db8::/129",
        "2001:db8::1/32",
        "10.0.0.0-10.0.0.9",
        "10.0.0.0/8 192.168.0.0/16",
    ],
)
def test_what_is_neither_stops_the_start_and_is_named(block: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Exceptions(("192.0.2.0/24", block))
    told = str(raised.value)
    assert "CRAWLWEB_IP_DELAY_EXCEPT" in told
    assert repr(block) in told
    assert "cloudflare" in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("value", "blocks"),
    [
        ("", ()),
        ("cloudflare", ("cloudflare",)),
        (" 192.0.2.0/24 , fastly,", ("192.0.2.0/24", "fastly")),
        (["192.0.2.0/24"], ("192.0.2.0/24",)),
        ([], ()),
    ],
)
def test_the_setting_is_a_list_with_commas_or_one_of_python(value: object, blocks: tuple[str, ...]) -> None:
    assert load({"CRAWLWEB_IP_DELAY_EXCEPT": value}).ip_delay_except == blocks
