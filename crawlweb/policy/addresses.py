"""Addresses that many unrelated sites share: those of big content delivery networks, which the clock of addresses leaves alone.

The networks' own lists, as published (cloudflare.com/ips, api.fastly.com/public-ip-list, 2026); behind one of these addresses stands no
single server that would suffer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from ..errors import ConfigError

NETWORKS = {
    "cloudflare": (
        "173.245.48.0/20 103.21.244.0/22 103.22.200.0/22 103.31.4.0/22 141.101.64.0/18 108.162.192.0/18 190.93.240.0/20 188.114.96.0/20 "
        "197.234.240.0/22 198.41.128.0/17 162.158.0.0/15 104.16.0.0/13 104.24.0.0/14 172.64.0.0/13 131.0.72.0/22 "
        "2400:cb00::/32 2606:4700::/32 2803:f800::/32 2405:b500::/32 2405:8100::/32 2a06:98c0::/29 2c0f:f248::/32"
    ),
    "fastly": (
        "23.235.32.0/20 43.249.72.0/22 103.244.50.0/24 103.245.222.0/23 103.245.224.0/24 104.156.80.0/20 140.248.64.0/18 140.248.128.0/17 "
        "146.75.0.0/17 151.101.0.0/16 157.52.64.0/18 167.82.0.0/17 167.82.128.0/20 167.82.160.0/20 167.82.224.0/20 172.111.64.0/18 "
        "185.31.16.0/22 199.27.72.0/21 199.232.0.0/16 2a04:4e40::/32 2a04:4e42::/32"
    ),
}
_KNOWN_ADDRESSES = 32_768


class Exceptions:
    """Addresses without a clock of their own: CIDR blocks, and names in NETWORKS. ConfigError for what is neither."""

    def __init__(self, blocks: Iterable[str]) -> None:
        nets = [net for block in blocks for net in _networks(block)]
        self._nets = {version: [net for net in nets if net.version == version] for version in (4, 6)}
        self.contains = lru_cache(_KNOWN_ADDRESSES)(self._contains)

    def _contains(self, ip: str) -> bool:
        address = ipaddress.ip_address(ip)
        return any(address in net for net in self._nets[address.version])


def _networks(block: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    name = block.lower()
    try:
        return [ipaddress.ip_network(text) for text in (NETWORKS[name].split() if name in NETWORKS else [block])]
    except ValueError as e:
        raise ConfigError(f"CRAWLWEB_IP_DELAY_EXCEPT: {block!r} is no CIDR block nor one of {', '.join(NETWORKS)}: {e}") from None
