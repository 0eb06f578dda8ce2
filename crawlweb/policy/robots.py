"""robots.txt (RFC 9309): what an answer means, what it allows, and how it is kept in Redis.

Rules are read as Google's matcher reads them; where that and the RFC differ about escapes, the stricter reading holds. Why the
matcher is ours, and how every class of doubtful files is decided: docs/decisions/robots.md.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urljoin

from ..errors import CrawlwebError
from .canonical import Canonicalizer

PRODUCT_TOKEN = "crawlweb"
MAX_BYTES = 500 * 1024
MAX_HOPS = 5
TTL_S = 86_400.0
HOP_TTL_S = 300.0
KEPT_S = 30 * 86_400.0  # an old copy is obeyed so long while a new one cannot be had (RFC 9309 §2.3.1.4)
CRAWL_DELAY_CAP_S = 60.0
MAX_SITEMAPS = 1_000
MAX_SITEMAP_CHARS = 2_083
RULES_BYTES, PATTERN_BYTES, WILDCARD_BYTES = 1000, 110, 200  # of memory, without their characters
MAX_WILDCARD_CHARS = 32 * 1024

REDIRECTS = frozenset((301, 302, 303, 307, 308))
_URLS = Canonicalizer()
_ORIGIN = re.compile(r"https?://[^/?#]*")


class NotRobots(CrawlwebError):
    """A value in Redis that is not a robots.txt of ours."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of an origin's robots.txt.

    `decision`: rules · allow · redirect (to be fetched next at `to`) · defer (429: the host is asked later) · unreachable. The last two
    are never kept. `why`, not kept either: what was wrong with a redirect that counts as no rules: too_many · loop · invalid.
    """

    decision: str
    body: bytes = b""
    to: str = ""
    hops: int = 0
    why: str = field(default="", compare=False)

    @property
    def ttl_s(self) -> float:
        return HOP_TTL_S if self.decision == "redirect" else TTL_S

    def pack(self) -> bytes:
        """Of a robots.txt only what concerns us (the rest is in the WARC file), compressed."""
        head = json.dumps({"v": 2, "d": self.decision, "to": self.to, "hops": self.hops}, separators=(",", ":"))
        return head.encode() + b"\n" + (zlib.compress(_essence(self.body)) if self.decision == "rules" else b"")

    @classmethod
    def unpack(cls, value: bytes) -> Answer:
        """NotRobots for anything that `pack` did not make."""
        head, _, body = value.partition(b"\n")
        try:
            fields = json.loads(head)
            version, decision, to, hops = (fields[name] for name in ("v", "d", "to", "hops"))
            undo = zlib.decompressobj()
            text = undo.decompress(body, 2 * MAX_BYTES) if body else b""
        except (ValueError, TypeError, KeyError, RecursionError, zlib.error) as e:
            raise NotRobots(str(e)) from None
        if body and not undo.eof:
            raise NotRobots("not whole")
        if version != 2 or decision not in ("rules", "allow", "redirect") or not isinstance(to, str):
            raise NotRobots("another version or decision")
        if type(hops) is not int or not 0 <= hops <= MAX_HOPS:
            raise NotRobots("hops")
        if decision == "redirect" and not to.startswith(("http://", "https://")):
            raise NotRobots("a redirect to nowhere")
        return cls(decision, text, to, hops)


def origin_of(url: str) -> str:
    """scheme://host[:port] of an http(s) URL; "" for what is none. As lua/host.lua has it."""
    found = _ORIGIN.match(url)
    return found[0] if found else ""


def robots_url(origin: str) -> str:
    return origin + "/robots.txt"


def judge(status: int, body: bytes, location: str | None, asked: str, hops: int) -> Answer:
    """What a response means. `asked`: the URL that was requested; `hops`: redirects before it.

    RFC 9309 §2.3.1. A 3xx that is no redirect (300, 304, 305 …) holds no rules: allow, as Google does. What is no final status of
    HTTP (1xx, 600 and above) is an answer as good as none: unreachable.
    """
    if 200 <= status < 300:
        return Answer("rules", body[:MAX_BYTES])
    if status in REDIRECTS:
        return _redirect(location, asked, hops)
    if status == 429:
        return Answer("defer")
    return Answer("allow" if 300 <= status < 500 else "unreachable")


def _redirect(location: str | None, asked: str, hops: int) -> Answer:
    if hops >= MAX_HOPS:
        return Answer("allow", why="too_many")
    target = _URLS.target(location.strip(), asked) if location and location.strip() else None
    if target is None:
        return Answer("allow", why="invalid")
    if target.url == asked.partition("#")[0]:
        return Answer("allow", why="loop")
    return Answer("redirect", to=target.url, hops=hops + 1)


# -- the rules -----------------------------------------------------------------------------------------------------------

# What a line is, is told by the first letter of its name. The misspellings are those that Google's parser knows; the colon may be
# missing before a single word. Each part of the expression ends where the next begins: no line takes more than linear time.
_LINE = re.compile(
    r"^[ \t\f\v]*(user[- ]?agent|allow|disallow|dissallow|dissalow|disalow|diaslow|diasllow|disallaw|site-?map|crawl[- ]?delay)"
    r"(?:[^\s:#]*[ \t]*:|[ \t]+(?=[^\s#]+[ \t]*(?:#|$)))([^\n#]{0,16384})",
    re.IGNORECASE | re.MULTILINE | re.ASCII,
)
_BOM = re.compile(rb"(?:\xef\xbb\xbf)+|\xef\xbb?")  # Google's parser skips the beginning of one too
_HTML = re.compile(r"\s*<(?:!doctype|\?xml|html|head|body|title|meta|script)\b", re.IGNORECASE)
_TOKEN = re.compile(r"[A-Za-z_-]*")
_PATH = re.compile(r"(?:[^/?;#]*://|//)?[^/?;#]*([^#]*)")
_ABSOLUTE = re.compile(r"https?://[^/?#]", re.IGNORECASE)
_SPELLING = re.compile(r"(?:%[0-9A-Fa-f]{2})+|[^\w!#$%&'()*+,./:;=?@\[\]~-]+", re.ASCII)
_NEEDLESS_ESCAPE = re.compile(r"%(2[DE]|3[0-9]|[46][1-9A-F]|[57][0-9A]|5F|7E)")  # of unreserved characters, RFC 3986 §2.3


class Rules:
    """The rules of an origin for one product token. Parsing never fails: what cannot be read is no rule.

    `crawl_delay_s`: of our own group, at most `delay_cap_s`. `sitemaps`: absolute http(s) URLs as written, relative ones resolved
    against `base` (the URL that robots.txt came from), in order, none twice, whoever's group they stand in.
    """

    __slots__ = ("_allow", "_disallow", "crawl_delay_s", "sitemaps")

    def __init__(self, answer: Answer, delay_cap_s: float = CRAWL_DELAY_CAP_S, *, token: str = PRODUCT_TOKEN, base: str = "") -> None:
        everybody, ours, sitemaps = _read(answer.body if answer.decision == "rules" else b"", token.lower())
        group = ours if ours.named else everybody
        self._allow = _Patterns(map(_spelt, group.allow + _folders(group.allow)), broaden=False)
        self._disallow = _Patterns((_plain(_spelt(pattern)) for pattern in group.disallow), broaden=True)
        self.crawl_delay_s = None if group.delay_s is None else min(group.delay_s, delay_cap_s)
        self.sitemaps = _absolute(sitemaps, base)

    @property
    def size_bytes(self) -> int:
        """Of memory, about; without the sitemaps."""
        return RULES_BYTES + self._allow.size_bytes + self._disallow.size_bytes

    def allows(self, url: str) -> bool:
        """`url`: as it will be requested. RFC 9309 §2.2.2: the longest rule that matches decides; of two equals, allow."""
        if not self._disallow:
            return True
        found = _PATH.match(url)
        path = found[1] if found and found[1] else "/"
        path = (path if path[0] == "/" else "/" + path).replace("*", "%2A").replace("$", "%24")
        if not _SPELLING.search(path):
            forbidden = self._disallow.longest(path)
            return not forbidden or self._allow.longest(path) >= forbidden
        spelt = _spelt(path.encode("utf-8", "surrogatepass").decode("latin-1"))
        forbidden = self._disallow.longest(_plain(spelt))
        # What should have been escaped before it is asked for is forbidden by escaped rules, but not allowed by them.
        return not forbidden or self._allow.longest(spelt if path.isascii() else path) >= forbidden


@dataclass(slots=True, eq=False)
class _Group:
    named: bool = False
    allow: list[str] = field(default_factory=list)
    disallow: list[str] = field(default_factory=list)
    delay_s: float | None = None


def _read(body: bytes, token: str) -> tuple[_Group, _Group, list[str]]:
    """(the group of all, ours, values of Sitemap lines). Values are octets, one character each.

    RFC 9309 §2.2.1: groups of one name are one group. §2.2.4: other records do not end a group, so a Crawl-delay between two
    User-agent lines does not keep the rules that follow from the first; the delay itself is only for those who stand above it.
    """
    everybody, ours, sitemaps = _Group(), _Group(), []
    ruled: list[_Group] = []
    delayed: list[_Group] = []
    after_rule = after_delay = False
    for name, written in _LINE.findall(_text(body)):
        kind, value = name[0], written.strip()
        if kind in "uU":
            if after_rule:
                ruled = []
            if after_rule or after_delay:
                delayed = []
            after_rule = after_delay = False
            if value[:1] == "*" and not value[1:2].strip():
                group = everybody
            elif _token(value) == token:
                group = ours
            else:
                continue
            group.named = True
            if group not in ruled:
                ruled.append(group)
            if group not in delayed:
                delayed.append(group)
        elif kind in "sS":
            sitemaps.append(value)
        elif kind in "cC":
            after_delay = True
            seconds = _seconds(value) if delayed else None
            for group in delayed:
                group.delay_s = seconds if group.delay_s is None else max(group.delay_s, seconds or 0.0)
        else:
            after_rule = True
            if value[:1] in ("/", "*"):
                for group in ruled:
                    if kind in "dD":
                        group.disallow.append(value)
                    else:
                        group.allow.append(value)
    return everybody, ours, sitemaps


def _essence(body: bytes) -> bytes:
    """A robots.txt with the rules that `body` has for us, and no more; not longer, so the shortest of the names that are understood."""
    everybody, ours, _ = _read(body, PRODUCT_TOKEN)
    group = ours if ours.named else everybody
    delay = [] if group.delay_s is None else [f"crawl-delay:{group.delay_s:.3f}"]
    allow, disallow = dict.fromkeys(group.allow), dict.fromkeys(group.disallow)
    rules = [*delay, *("allow:" + value for value in allow), *("disalow:" + value for value in disallow)]
    return "\n".join(["user-agent:*", *rules]).encode("latin-1") if rules else b""


def _text(body: bytes) -> str:
    """Octets as characters: rules are compared by octet, whatever the encoding. "" for HTML."""
    if body.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        body = body.decode("utf-16", "replace").encode()
    start = _BOM.match(body)
    text = body[start.end() if start else 0 : MAX_BYTES].translate(None, b"\0").replace(b"\r", b"\n").decode("latin-1")
    return "" if _HTML.match(text) else text


def _token(value: str) -> str:
    found = _TOKEN.match(value)
    return found[0].lower() if found else ""


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _folders(allowed: list[str]) -> list[str]:
    """Whoever allows /a/index.html allows /a/, as Google has it."""
    ends = ((pattern, pattern.rfind("/") + 1) for pattern in allowed if "/index.htm" in pattern)
    return [pattern[:end] + "$" for pattern, end in ends if pattern.startswith("index.htm", end)]


def _absolute(written: list[str], base: str) -> list[str]:
    found: dict[str, None] = {}
    for octets in written[:MAX_SITEMAPS]:
        try:
            value = octets.encode("latin-1").decode("utf-8", "replace").strip()
            url = urljoin(base, value) if value else ""
        except ValueError:
            continue
        if url != base and _ABSOLUTE.match(url) and len(url) <= MAX_SITEMAP_CHARS:
            found[url] = None
    return list(found)


def _spelt(text: str) -> str:
    """Of octets, one character each: escapes in capitals; what may not stand in a URL, escaped."""
    return _SPELLING.sub(_spell, text)


def _spell(found: re.Match[str]) -> str:
    run = found[0]
    return run.upper() if run[0] == "%" else "%" + run.encode("latin-1").hex("%").upper()


def _plain(text: str) -> str:
    """Of `_spelt` text: without needless escapes (RFC 9309 §2.2.2)."""
    return _NEEDLESS_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


class _Patterns:
    """Rules of one kind, kept by their head, which is what stands before the first wildcard.

    Looking a path up costs a look-up for each different length of heads, and one search for each wildcard pattern with its head.
    At most MAX_WILDCARD_CHARS of those are kept (real files: 26 KB at most); of more, the head alone forbids (`broaden`), nothing allows.
    """

    __slots__ = ("_heads", "_lengths", "_wild", "size_bytes")

    def __init__(self, patterns: Iterable[str], *, broaden: bool) -> None:
        self._heads: set[str] = set()
        self._wild: dict[str, list[tuple[int, list[str], str | None, bool]]] = {}
        self.size_bytes = wildcard_chars = 0
        for pattern in dict.fromkeys(patterns):
            self.size_bytes += len(pattern) + PATTERN_BYTES
            end = pattern.endswith("$")
            head, *parts = (pattern[:-1] if end else pattern).replace("$", "%24").split("*")
            if not parts and not end:
                self._heads.add(head)
                continue
            wildcard_chars += len(pattern)
            if wildcard_chars <= MAX_WILDCARD_CHARS:
                self.size_bytes += WILDCARD_BYTES
                last = parts.pop() if parts else None
                self._wild.setdefault(head, []).append((len(pattern), [part for part in parts if part], last, end))
            elif broaden:
                self._heads.add(head or "/")
        for wild in self._wild.values():
            wild.sort(key=lambda one: -one[0])
        self._lengths = sorted({len(head) for head in (*self._heads, *self._wild)})

    def __bool__(self) -> bool:
        return bool(self._lengths)

    def longest(self, path: str) -> int:
        """Characters of the longest pattern that matches; 0: none does."""
        longest = 0
        for length in self._lengths:
            if length > len(path):
                break
            head = path[:length]
            if head in self._heads:
                longest = max(longest, length)
            for chars, parts, last, end in self._wild.get(head, ()):
                if chars <= longest:
                    break
                if _fits(path, length, parts, last, end):
                    longest = chars
                    break
        return longest


def _fits(path: str, at: int, parts: list[str], last: str | None, end: bool) -> bool:
    """Whether the wildcards of a pattern fit what follows its head, which ends at `at`. Leftmost first is enough: no backtracking."""
    if last is None:
        return len(path) == at
    for part in parts:
        at = path.find(part, at) + len(part)
        if at < len(part):
            return False
    if end:
        return path.endswith(last) and len(path) - len(last) >= at
    return path.find(last, at) >= 0
