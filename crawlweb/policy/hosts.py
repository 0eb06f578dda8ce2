"""The host: whom the politeness delay protects, and what a crawl is partitioned by. And the parser of URLs below it.

The registered domain by the Public Suffix List, its private section included: the blogs of one hosting service have
different owners and wait each for themselves. The list is the one inside the installed publicsuffixlist; it is never fetched,
so that all workers can be held to the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path

import ada_url
import can_ada
from publicsuffixlist import PSLFILE, PublicSuffixList

HTTP = ("http://", "https://")

_list = Path(PSLFILE).read_text("utf-8")
_suffixes = PublicSuffixList(_list)
_rules = sorted({line.split()[0] for line in _list.splitlines() if line.strip() and not line.startswith("//")})
_version = re.search(r"^// VERSION: (\d{4}-\d\d-\d\d)", _list, re.M)

SUFFIX_LIST_DATE: date = date.fromisoformat(_version[1]) if _version else date.min

SUFFIX_LIST_ID: str = f"{SUFFIX_LIST_DATE}-{hashlib.blake2b(chr(10).join(_rules).encode(), digest_size=6).hexdigest()}"
"""Date and hash of the rules, whatever their order; workers of one crawl compare it."""

SUFFIX_LIST_OLD_DAYS = 365

_KNOWN_NAMES = 32_768
_MAX_NAME_BYTES = 4 * 255  # before IDNA, whose time grows with the square; no longer name is in the DNS

_ODD_HOST = re.compile(  # a superset: `%` or more than ASCII between what may be the beginning of an authority, and its end
    r"[\0- ]*(?:[A-Za-z][A-Za-z0-9+.\t\n\r-]*:|[/\\][\t\n\r]*[/\\])[/\\\t\n\r]*(?![/\\\t\n\r])([^/\\?#]*[%\x80-\U0010ffff][^/\\?#]*)"
).match
_FOLDER = re.compile(r"/(?:[A-Za-z0-9_~,!$&*+=:@/.-]*/)?(?=[^/?#]*(?:[?#]|$))").match


@dataclass(frozen=True, slots=True)
class Base:
    """What links are relative to, parsed once."""

    href: str  # "": nothing
    origin: str  # with the slash
    join: Callable[[str], can_ada.URL]  # ValueError where ada-url is to be asked
    plain_origin: str = ""  # of http(s) without credentials, without the slash
    plain_folder: str = ""  # of a path of plain characters, with both slashes


def _refuse(url: str) -> can_ada.URL:
    raise ValueError(url)


NO_BASE = Base("", "", can_ada.parse)


def parse_link(url: str, base: Base = NO_BASE) -> str:
    """The WHATWG parser: an http(s) URL in its one spelling (`href`). A lone surrogate is read as U+FFFD, as browsers do. Raises
    ValueError. Of other schemes nothing but the scheme need be right.

    can_ada is quick and older than the standard: it answers where the two agree, else ada-url does (docs/decisions/canonical-url.md).
    """
    odd = None if "%" not in url and url.isascii() else _ODD_HOST(url)
    if odd and _name_bytes(odd[1]) > _MAX_NAME_BYTES:
        raise ValueError("the host's name is too long")
    try:
        href = "" if odd else base.join(url).href
    except (ValueError, TypeError):  # refused; a lone surrogate
        href = ""
    if not href or "^" in href or "/." in href or ("xn--" in href and not (base.origin and href.startswith(base.origin))):
        return _asked(url, base)
    return href


def parse(url: str, base: Base = NO_BASE) -> str:
    """As `parse_link`, of whatever scheme."""
    href = parse_link(url, base)
    return href if href.startswith(HTTP) else _asked(url, base)


def _name_bytes(authority: str) -> int:
    name = authority.rpartition("@")[2]
    return len(name.encode("utf-8", "surrogatepass")) - 2 * name.count("%")


def _asked(url: str, base: Base) -> str:
    if not url.isascii():
        url = url.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return ada_url.join_url(base.href, url) if base.href else ada_url.normalize_url(url)


def parse_base(url: str) -> Base:
    """Raises ValueError."""
    href = parse(url)
    origin = "/".join(href.split("/", 3)[:3]) + "/"
    join: Callable[[str], can_ada.URL] = _refuse
    plain_origin = origin[:-1] if href.startswith(HTTP) and "@" not in origin else ""
    folder = _FOLDER(href, len(plain_origin)) if plain_origin else None
    if href.startswith(HTTP) and not href.partition("#")[0].endswith("?"):  # can_ada loses an empty query
        with suppress(ValueError):
            join = can_ada.parse(href).__add__
    return Base(href, origin, join, plain_origin, folder[0] if folder else "")


def name_of(url: str) -> str:
    """The name that a request for an absolute http(s) URL connects to, IPv6 in brackets; ValueError for anything else."""
    href = parse_link(url)
    if not href.startswith(HTTP):
        raise ValueError(f"not an http(s) URL: {url[:80]!r}")
    return split_port(href.split("/", 3)[2].rpartition("@")[2])[0]


def host_of(url: str) -> str:
    """The host of an absolute http(s) URL in whatever spelling; ValueError for anything else."""
    return host_of_name(name_of(url))


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
    name = _parsed_name(hostname)
    if name[-1] == ".":  # 0x7f.1.. is a name by the standard, and an address to a resolver
        name = _parsed_name(name.rstrip("."))
    if name[0] == "[" or name.rpartition(".")[2].isdigit():
        return name
    return _suffixes.privatesuffix(name.rpartition("..")[2].lstrip(".")) or name


def _parsed_name(name: str) -> str:
    return parse_link(f"http://{name}/")[len("http://") : -1]


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
