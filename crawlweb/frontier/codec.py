"""Entries as bytes.

    pfe \\t depth \\t url \\t referrer \\t more

`p`: priority, `f`, `e`: failures and expiries in base 36, which the scripts read and count; `depth` in base 36. A URL on its host or on
`www.` there leaves them out: `/…` https, `-/…` http, `+/…` https with `www.`, `*/…` http with `www.`. `more`: JSON, empty for a plain
link: `h` redirects behind it, `c` their URL keys in hexadecimal, `u` the URL that began them, `s` 1 or 2 for
the other spelling of a URL that failed, `r` a Scrapy request that is more than a plain GET, `a` 1 for a page that was due
(lua/due.lua).
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from ..records import Entry

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SHORT = {"": "https://{}", "-": "http://{}", "+": "https://www.{}", "*": "http://www.{}"}
MAX_ENTRY_BYTES = 65_536
_MAX_DEPTH_DIGITS = 6
_HEAD = re.compile(rf"[0-9][0-9a-z]{{2}}\t[0-9a-z]{{1,{_MAX_DEPTH_DIGITS}}}\t")


def _dumps(more: dict[str, object]) -> str:
    try:
        return json.dumps(more, separators=(",", ":"))
    except (TypeError, RecursionError) as e:
        raise ValueError(f"not JSON: {e}") from e


@lru_cache(1024)
def _base36(n: int) -> str:
    text = ""
    while True:
        n, digit = divmod(n, 36)
        text = _DIGITS[digit] + text
        if not n:
            return text


def _shorten(url: str, host: str) -> str:
    scheme, sep, rest = url.partition("://")
    if not sep or scheme not in ("http", "https"):
        sign, slash, _ = url.partition("/")
        if slash and sign in _SHORT:
            raise ValueError(f"would read as a URL of {host}: {url[:200]!r}")
        return url
    size = len(host)
    if rest[size : size + 1] == "/" and rest.startswith(host):
        return rest[size:] if scheme == "https" else "-" + rest[size:]
    if rest[size + 4 : size + 5] == "/" and rest.startswith("www." + host):
        return ("+" if scheme == "https" else "*") + rest[size + 4 :]
    return url


def _lengthen(text: str, host: str) -> str:
    sign, slash, rest = text.partition("/")
    if slash and sign in _SHORT:
        return _SHORT[sign].format(host) + "/" + rest
    return text


def _more(entry: Entry) -> str:
    more: dict[str, object] = {}
    if entry.hops:
        more["h"] = entry.hops
    if entry.chain:
        more["c"] = [key.hex() for key in entry.chain]
    if entry.found_as:
        more["u"] = entry.found_as
    if entry.sibling:
        more["s"] = entry.sibling
    if entry.request:
        more["r"] = entry.request
    if entry.again:
        more["a"] = 1
    return _dumps(more) if more else ""


def encode(entry: Entry, host: str) -> bytes:
    """`host`: the politeness key under whose name the entry is queued. ValueError for what would not come back as it was."""
    if not 0 <= entry.priority <= 9 or not 0 <= entry.depth < 36**_MAX_DEPTH_DIGITS or not host or "\t" in host:
        raise ValueError(f"priority {entry.priority}, depth {entry.depth}, host {host!r}")
    if not entry.url.startswith(("http://", "https://")):
        raise ValueError(f"not a URL: {entry.url[:200]!r}")
    url, referrer = _shorten(entry.url, host), entry.referrer and _shorten(entry.referrer, host)
    failures, expiries = _DIGITS[min(entry.failures, 35)], _DIGITS[min(entry.expiries, 35)]
    text = f"{entry.priority}{failures}{expiries}\t{_base36(entry.depth)}\t{url}\t{referrer}\t{_more(entry)}"
    data = text.encode()
    if text.count("\t") != 4 or len(data) > MAX_ENTRY_BYTES:
        raise ValueError(f"an entry of {len(data)} bytes with {text.count(chr(9))} tabs: {entry.url[:200]!r}")
    return data


def decode(data: bytes, host: str) -> Entry:
    """ValueError for anything that `encode` did not make."""
    text = data.decode()
    if not _HEAD.match(text) or text.count("\t") != 4 or len(data) > MAX_ENTRY_BYTES:
        raise ValueError("not an entry")
    head, depth, url, referrer, more_text = text.split("\t")
    url = _lengthen(url, host)
    if not url.startswith(("http://", "https://")):
        raise ValueError("not a URL")
    try:
        more = json.loads(more_text) if more_text else {}
    except RecursionError as e:
        raise ValueError("not an entry") from e
    if not isinstance(more, dict):
        raise ValueError("not an entry")
    request, chain, hops, found_as = more.get("r", {}), more.get("c", []), more.get("h", 0), more.get("u", "")
    sibling, again = more.get("s", 0), more.get("a", 0)
    if not (isinstance(request, dict) and isinstance(chain, list) and isinstance(hops, int) and isinstance(found_as, str)):
        raise ValueError("not an entry")
    if sibling not in (0, 1, 2) or again not in (0, 1) or not all(isinstance(key, str) for key in chain):
        raise ValueError("not an entry")
    return Entry(
        url=url,
        priority=int(head[0]),
        depth=int(depth, 36),
        referrer=_lengthen(referrer, host),
        hops=hops,
        found_as=found_as,
        chain=tuple(bytes.fromhex(key) for key in chain),
        sibling=sibling,
        failures=int(head[1], 36),
        expiries=int(head[2], 36),
        request=request,
        again=again == 1,
    )
