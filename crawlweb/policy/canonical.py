"""Canonical URL and URL key: which spellings are one page.

A URL has two strings. What is *fetched* is the link as found, made valid as a browser does (WHATWG URL), without fragment
and credentials. What is *remembered* is the hash of the canonical URL, which is never fetched: scheme https, no `www.`,
no default port, no session, no tracking, sorted query, no trailing slash. Percent-encodings are undone for unreserved
characters only (RFC 3986 §2.3, §6.2.2), so that no reserved character changes its meaning and nothing is ever encoded
twice. Where other libraries differ, and why: docs/decisions/canonical-url.md.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from operator import itemgetter

from ..errors import ConfigError
from ..records import Target
from .hosts import HTTP, NO_BASE, Base, bare_name, host_of_name, parse_base, parse_link, split_port

TRACKING_PARAMETERS: tuple[str, ...] = (
    # campaigns: name, medium and source of the link, written for the site's statistics
    "utm_*", "mtm_*", "matomo_*", "pk_*", "piwik_*", "hsa_*", "ga_*", "itm_*", "otm_*", "ns_*", "hmb_*",
    "at_campaign", "at_medium", "at_platform", "wt_mc", "wt_zmc", "wtrid", "cmpid", "s_cid", "ref",
    # clicks: one value a click, put there by the advertiser's or the network's server
    "fbclid", "gclid", "gclsrc", "gbraid", "wbraid", "gad_source", "gad_campaignid", "dclid", "msclkid",
    "yclid", "ysclid", "twclid", "ttclid", "igshid", "igsh", "li_fat_id", "epik", "rdt_cid", "sccid", "irclickid",
    "rb_clickid", "srsltid", "wickedid", "_openstat",
    # readers and mails
    "mc_cid", "mc_eid", "mc_tc", "mkt_tok", "_hsenc", "_hsmi", "__hsfp", "__hssc", "__hstc", "hsctatracking",
    "vero_id", "vero_conv", "ml_subscriber", "ml_subscriber_hash", "oly_anon_id", "oly_enc_id", "__s", "_ga", "_gl",
    # social networks and shops
    "fb_action_ids", "fb_action_types", "fb_ref", "fb_source", "action_object_map", "action_ref_map", "action_type_map",
    "__twitter_impression", "tracking_source", "ceneo_spo", "os_ehash", "gs_l", "spm",
)  # fmt: skip
"""Query parameters that say where a reader came from, not what is shown. Case is ignored; a final `*` is any ending."""

DEFAULT = "default"  # in the setting: all of these

SESSION_PARAMETERS: tuple[str, ...] = (
    "phpsessid", "jsessionid", "aspsessionid*", "asp.net_sessionid", "sessionid", "session_id", "sessid",
    "cfid", "cftoken", "oscsid", "zenid",
)  # fmt: skip

_SESSION_VALUES: dict[str, re.Pattern[str]] = {
    # `sid` is as often the number of an article: only what looks drawn at random is a session
    "sid": re.compile(r"[0-9a-f]{16,}|(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])[0-9a-z,_-]{6,}", re.I),
    "s": re.compile(r"[0-9a-f]{32}", re.I),
}
_SESSION_IN_PATH = re.compile(r"(?<!&amp);(?:jsessionid|phpsessid|session_?id|aspsessionid[a-z]*)=[^/;?&]*", re.I)
_COOKIELESS = re.compile(r"/\((?:(?:[a-z]\([0-9a-z]{24}\))+|[0-9a-z]{24})\)(?=/)", re.I)  # ASP.NET: /(S(…))/page.aspx
_DOT_SEGMENT = re.compile(r"/\.\.?(?:/|$)")
_SLASHES = re.compile("//+")

_UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_NOT_NORMAL = re.compile(  # the set first: it is searched for ten times as fast as alternatives are tried
    r"[%\[\]|^\\`{}](?:(?<!%)|(?<=%)(?:"
    r"[0-9A-Fa-f][a-f]|[a-f][0-9A-F]"  # lower-case digits
    r"|2[DE]|3[0-9]|[46][1-9A-F]|5[0-9AF]|7[0-9AE]"  # unreserved characters
    r"|(?![0-9A-Fa-f]{2})))"
)
_NORMAL: dict[str, str] = {
    # left as they are by WHATWG, not allowed in path and query by RFC 3986: two spellings of one character
    **{mark: f"%{ord(mark):02X}" for mark in "%[]|^\\`{}"},
    **{
        f"%{a}{b}": chr(code) if (code := int(a + b, 16)) in _UNRESERVED else f"%{a}{b}".upper()
        for a, b in product("0123456789abcdefABCDEF", repeat=2)
    },
}

_UNUSUAL = re.compile(r"[;(|\[\]]").search

# Origin, path, query of a link that parser and rules leave as it is, but for the origin, slashes at the path's end, and the order of
# parameters. Unless it goes on, but with a fragment; the path has `//` or `/.` in it, or a colon and no slash before it.
_PLAIN = re.compile(r"([Hh][Tt][Tt][Pp][Ss]?://[A-Za-z0-9.:-]{1,300})?([A-Za-z0-9_~,!$&*+=:@/.-]+)(?:\?([A-Za-z0-9_~,!$*=:@/.&-]+))?").match
_ANY_VALUE = re.compile(".*", re.DOTALL)

_PROFILE_VERSION = 2
_BASES_KEPT = 64
_ORIGINS_KEPT = 4_096
_NAMES_KEPT = 1_024  # of parameters


def parameter_names(entries: Iterable[str]) -> tuple[str, ...]:
    """Of the setting, read in order: `default` stands for TRACKING_PARAMETERS, `-name` takes one away. ConfigError names what would
    drop too much, or is not there to be taken away."""
    names: dict[str, None] = {}
    for entry in map(str.lower, entries):
        if entry == DEFAULT:
            names.update(dict.fromkeys(TRACKING_PARAMETERS))
        elif entry[:1] == "-":
            if entry[1:] not in names:
                raise ConfigError(f"CRAWLWEB_TRACKING_PARAMETERS: {entry!r}: {entry[1:]!r} is not in the list before it")
            del names[entry[1:]]
        elif not entry.rstrip("*") or "*" in entry[:-1] or set(entry) & set("=&?#"):
            raise ConfigError(f"CRAWLWEB_TRACKING_PARAMETERS: {entry!r}: a name, or the beginning of one and a single *, expected")
        else:
            names[entry] = None
    return tuple(names)


def profile_id(names: Iterable[str]) -> str:
    """Of everything that the key depends on, except the suffix list: version of the rules, and what `parameter_names` gave. Workers of
    one crawl compare it."""
    return f"{_PROFILE_VERSION}-{blake2b(repr(sorted(set(names))).encode(), digest_size=6).hexdigest()}"


class Canonicalizer:
    """URLs to targets under one list of parameters.

    Every href leaves by one door: returned, or counted in `invalid` (no http(s) URL, or longer than `max_url_chars`) or,
    by `targets`, in `repeated`.
    """

    def __init__(
        self,
        tracking_parameters: Iterable[str] = (DEFAULT,),
        *,
        max_url_chars: int = 2_083,
        known_hosts: int = 32_768,
    ) -> None:
        names = parameter_names(tracking_parameters)
        dropped = names + SESSION_PARAMETERS
        self.profile_id = profile_id(names)
        self.invalid = 0
        self.repeated = 0
        self._max_url_chars = max_url_chars
        self._max_href_chars = 4 * max_url_chars  # data: URLs of megabytes are not worth the parser's time
        self._dropped_names = frozenset(name for name in dropped if name[-1] != "*")
        self._dropped_prefixes = tuple(name[:-1] for name in dropped if name[-1] == "*")
        self._hosts = lru_cache(known_hosts)(_hosts_of_origin)
        self._origins = lru_cache(_ORIGINS_KEPT)(_origin_of)
        self._dropped = lru_cache(_NAMES_KEPT)(self._values_dropped)
        self._form = lru_cache(_BASES_KEPT)(self._form_of)  # of a page it is asked for beside the key
        self._base = lru_cache(_BASES_KEPT)(_parse_base)

    def target(self, href: str, base: str | None = None) -> Target | None:
        """None, and counted, for what is no http(s) URL."""
        try:
            return self._target(href, NO_BASE if base is None else self._base(base))
        except ValueError:
            self.invalid += 1
            return None

    def targets(self, hrefs: Iterable[str], base: str, encoding: str = "utf-8") -> list[Target]:
        """The links of a page, each key once, in document order. `encoding`: the page's, a codec of Python's."""
        return [target for _, target in self.links(hrefs, base, encoding)]

    def links(self, hrefs: Iterable[str], base: str, encoding: str = "utf-8") -> list[tuple[str, Target]]:
        """As `targets`, each with the first href that leads there."""
        parsed_base, hrefs = self._base(base), list(hrefs)
        spelt = hrefs
        if encoding != "utf-8" and not encoding.startswith(("utf-16", "utf-32")):
            spelt = [_in_encoding(href, encoding) for href in hrefs]
        found: dict[bytes, tuple[str, Target]] = {}
        for href, spelling in zip(hrefs, spelt, strict=True):
            try:
                link = href, self._target(spelling, parsed_base)
            except ValueError:
                self.invalid += 1
                continue
            if found.setdefault(link[1].key, link) is not link:
                self.repeated += 1
        return list(found.values())

    def canonical_url(self, url: str) -> str:
        """`https://host[:port]/path[?query]`. Raises ValueError for what is no http(s) URL; length is not judged."""
        return self._form(url)

    def url_key(self, url: str) -> bytes:
        """16 bytes. Raises ValueError for what is no http(s) URL; length is not judged."""
        return _key(self.canonical_url(url))

    def _form_of(self, url: str) -> str:
        return self._canonical(_fetched(parse_link(url)))[1]

    def _target(self, href: str, base: Base) -> Target:
        if len(href) > self._max_href_chars:
            raise ValueError("too long to be parsed")
        plain = _PLAIN(href)
        if plain and ((end := plain.end()) == len(href) or href[end] == "#"):
            written, path, query = plain.groups()
            if path[0] != "/":
                path = base.plain_folder + path if base.plain_folder and not written and ":" not in path else ""
            is_plain = path and "//" not in path and "/." not in path
            if is_plain and (origin := self._origins(written) if written else base.plain_origin):
                url = f"{origin}{path}?{query}" if query else origin + path
                if len(url) > self._max_url_chars:
                    raise ValueError("too long")
                host, canonical_origin = self._hosts(origin)
                canonical = canonical_origin + (path.rstrip("/") or "/")
                if query and (kept := self._query(query)):
                    canonical = f"{canonical}?{kept}"
                return Target(url, _key(canonical), host)
        url = _fetched(parse_link(href, base))
        if len(url) > self._max_url_chars:
            raise ValueError("too long")
        host, canonical = self._canonical(url)
        return Target(url, _key(canonical), host)

    def _canonical(self, url: str) -> tuple[str, str]:
        """A fetched URL → (host, canonical URL)."""
        path_at = url.index("/", 8)
        host, origin = self._hosts(url[:path_at])
        rest = url[path_at:]
        if "?" in rest or "%" in rest or "//" in rest or _UNUSUAL(rest):
            return host, origin + self._path_and_query(rest)
        return host, origin + (rest.rstrip("/") or "/")

    def _path_and_query(self, rest: str) -> str:
        rest = _NOT_NORMAL.sub(_normal, rest)
        if ";" in rest:
            rest = _SESSION_IN_PATH.sub("", rest)
        path, _, query = rest.partition("?")
        if "/(" in path:
            path = _COOKIELESS.sub("", path)
        if "/." in path and _DOT_SEGMENT.search(path):  # what a session hid: /a/..;jsessionid=1/b
            path = parse_link("https://a" + path)[len("https://a") :]
        if "//" in path:
            path = _SLASHES.sub("/", path)
        path = path.rstrip("/") or "/"
        query = self._query(query.replace("+", "%20")) if query else ""
        return f"{path}?{query}" if query else path

    def _query(self, query: str) -> str:
        kept = []
        for pair in query.split("&"):
            name, _, value = pair.partition("=")
            if (dropped := self._dropped(name)) and dropped.fullmatch(value):
                continue
            if name or value:
                kept.append((name, pair if value else name))
        if len(kept) > 1:
            kept.sort(key=itemgetter(0))
        return "&".join([pair for _, pair in kept])

    def _values_dropped(self, name: str) -> re.Pattern[str] | None:
        """With which values a parameter is left out; None: with none."""
        lowered = name.lower().removeprefix("amp;")  # a link encoded twice: &amp;amp;
        if lowered in self._dropped_names or lowered.startswith(self._dropped_prefixes):
            return _ANY_VALUE
        return _SESSION_VALUES.get(lowered)


def request_key(key: bytes, method: str, body: str) -> bytes:
    """The key of a request that is more than a GET of a URL: method and body count."""
    if method == "GET" and not body:
        return key
    return blake2b(b"\0".join((key, method.encode(), body.encode())), digest_size=16).digest()


def _in_encoding(href: str, encoding: str) -> str:
    """Its query in the bytes of the page's encoding (WHATWG URL, "query state"; Encoding, "percent-encode after encoding")."""
    head, mark, rest = href.partition("?")
    if not mark or "#" in head:
        return href
    query, mark, fragment = rest.partition("#")
    if encoding.replace("-", "").startswith("iso2022"):
        query = query.translate(_SHIFTS)
    if query.isascii():
        return href
    encoded = "".join([chr(byte) if byte < 0x80 and byte != 0x23 else f"%{byte:02X}" for byte in query.encode(encoding, _REFERENCE)])
    return f"{head}?{encoded}{mark}{fragment}"


_SHIFTS = dict.fromkeys((0x0E, 0x0F, 0x1B), 0xFFFD)
_REFERENCE = "crawlweb.reference"


def _reference(error: UnicodeError) -> tuple[str, int]:
    """`&#…;`, percent-encoded, for what the encoding does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(f"%26%23{0xFFFD if 0xD800 <= ord(character) < 0xE000 else ord(character)}%3B" for character in lacking), error.end


codecs.register_error(_REFERENCE, _reference)


def _normal(match: re.Match[str]) -> str:
    return _NORMAL[match[0]]


def _key(canonical: str) -> bytes:
    digest = _EMPTY.copy()  # in half the time that a new one takes
    digest.update(canonical.encode())
    return digest.digest()


_EMPTY = blake2b(digest_size=16)


def _fetched(href: str) -> str:
    """A parsed URL without credentials and fragment."""
    if "@" in href:
        scheme, _, rest = href.partition("//")
        authority, slash, path = rest.partition("/")
        href = f"{scheme}//{authority.rpartition('@')[2]}{slash}{path}"
    return href[: href.index("#")] if "#" in href else href


def _origin_of(written: str) -> str:
    """Of an http(s) URL, without slash: as the parser reads it, whatever follows. ValueError."""
    return parse_link(written + "/")[:-1]


def _hosts_of_origin(origin: str) -> tuple[str, str]:
    """Of a parsed URL → (host, origin of the canonical URL). Raises ValueError for another scheme than http and https."""
    if not origin.startswith(HTTP):
        raise ValueError(f"not an http(s) URL: {origin[:80]!r}")
    name, port = split_port(origin.partition("//")[2])
    suffix = f":{port}" if port not in ("", "80", "443") else ""
    return host_of_name(name), f"https://{bare_name(name)}{suffix}"


def _parse_base(base: str) -> Base:
    """Absolute links count where the base is no URL."""
    try:
        return parse_base(base)
    except ValueError:
        return NO_BASE


_default = Canonicalizer()


def canonical_url(url: str) -> str:
    """`https://host[:port]/path[?query]` under the default list. Raises ValueError for what is no http(s) URL."""
    return _default.canonical_url(url)


def url_key(url: str) -> bytes:
    """16 bytes, under the default list. Raises ValueError for what is no http(s) URL."""
    return _default.url_key(url)
