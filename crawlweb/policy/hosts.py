"""The host: whom the politeness delay protects, and what a crawl is partitioned by.

The registered domain by the Public Suffix List, its private section included: the blogs of one hosting service have
different owners and wait each for themselves. The list is the one inside the installed tldextract; it is never fetched,
so that all workers can be held to the same.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import can_ada
import tldextract

_extract = tldextract.TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)

SUFFIX_LIST_ID: str = hashlib.blake2b("\n".join(sorted(_extract.tlds)).encode(), digest_size=6).hexdigest()
"""Of the rules, whatever their order; workers of one crawl compare it."""

_KNOWN_NAMES = 32_768


def parse(url: str, base: can_ada.URL | None = None) -> can_ada.URL:
    """The WHATWG parser, of whatever scheme. A lone surrogate is read as U+FFFD, as browsers do. Raises ValueError."""
    try:
        return can_ada.parse(url) if base is None else base + url
    except TypeError:  # can_ada takes no surrogates
        url = url.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return can_ada.parse(url) if base is None else base + url


def host_of(url: str) -> str:
    """The host of an absolute http(s) URL in whatever spelling; ValueError for anything else."""
    parsed = parse(url)
    if parsed.protocol not in ("http:", "https:"):
        raise ValueError(f"not an http(s) URL: {url!r}")
    return host_of_name(parsed.hostname)


def is_on_host(url: str, host: str) -> bool:
    """Is it this host's clock that a request for the URL must move? False for what is no URL."""
    try:
        return host_of(url) == host
    except ValueError:
        return False


@lru_cache(maxsize=_KNOWN_NAMES)
def host_of_name(hostname: str) -> str:
    """The registered domain in its ASCII form.

    A public suffix, a name of one label and an address (IPv6 in brackets) are their own host; under a top-level domain
    that is not in the list, the last two labels are (the list's rule `*`). Raises ValueError for what cannot be the host
    of a URL.
    """
    if hostname.count(":") > 1 and hostname[0] != "[":
        hostname = f"[{hostname}]"
    if any(mark in hostname for mark in "/\\?#@") or (":" in hostname and hostname[0] != "["):
        raise ValueError(f"not a host name: {hostname!r}")
    name = parse(f"http://{hostname}/").hostname
    name = name.rstrip(".") or name
    if name[0] == "[" or name.rpartition(".")[2].isdigit():
        return name
    found = _extract.extract_str(name)
    if found.suffix:
        return found.top_domain_under_public_suffix or name
    return ".".join(name.split(".")[-2:])


def bare_name(hostname: str) -> str:
    """The name in a parsed URL without the dot after it, and without `www.` unless that is what is registered (www.com)."""
    if hostname.endswith(".") and not hostname.endswith("..") and hostname != ".":
        hostname = hostname[:-1]  # of two dots, one stays: 0x7f.1.. is a name, 0x7f.1. an address
    while hostname.startswith("www.") and hostname != host_of_name(hostname):
        hostname = hostname[4:]
    return hostname


def split_port(netloc: str) -> tuple[str, str]:
    """`name:port` or `[v6]:port` of a parsed URL → (name, port or "")."""
    name, colon, port = netloc.rpartition(":")
    return (name, port) if colon and netloc[-1] != "]" else (netloc, "")
