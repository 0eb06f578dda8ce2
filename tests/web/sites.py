"""What a host of the synthetic web answers: one class a kind of site. Everything follows from (seed, host, path)."""

from __future__ import annotations

import email.utils
import gzip
import html
import math
import mimetypes
import posixpath
import re
import time
from array import array
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import shake_128
from pathlib import Path
from random import Random
from typing import Literal
from urllib.parse import quote, unquote, urljoin, urlsplit

from .text import label, prose, sentence

Fate = Literal["alive", "nxdomain", "servfail", "silent", "refused", "blackhole"]
"""silent: DNS never answers; refused: nobody listens at its address; blackhole: accepts connections, never answers."""

Manner = Literal["whole", "raw", "endless", "reset", "never"]

How = Literal["seconds", "date", "none", "nonsense", "negative", "absurd"]

HTML = "text/html; charset=utf-8"


class Request:
    """What a site is told of a request; headers are looked up in the raw head."""

    __slots__ = ("_head", "host", "path", "query", "target", "times")

    def __init__(self, target: str, host: str, head: bytes = b"", times: int = 1) -> None:
        self.target, self.host, self._head = target, host, head
        self.path, _, self.query = target.partition("?")
        self.times = times
        """How many requests of this target there were, this one included."""

    def header(self, name: str) -> str | None:
        found = re.search(rb"\r\n" + name.encode() + rb":[ \t]*([^\r\n]*)", self._head, re.I)
        return found[1].decode("latin-1").strip() if found else None


@dataclass(frozen=True, slots=True)
class Rest:
    """Retry-After of an answer (RFC 9110 §10.2.3), and until when the whole site is not to be asked again. Where the header says nothing
    that can be used, `rest_s` is what any back-off keeps; of an absurd one (30 years) `rest_s` is what its cap keeps at least."""

    rest_s: float = 2.0
    how: How = "seconds"

    def headers(self, now: float) -> tuple[tuple[str, str], ...]:
        """`now`: Unix time of the answer. The date has a Date beside it (RFC 9110 §6.6.1), by which it can be read with any clock."""
        value = {
            "seconds": f"{math.ceil(self.rest_s)}",
            "date": email.utils.formatdate(self.ends(now), usegmt=True),
            "nonsense": "soon, I hope",
            "negative": "-120",
            "absurd": "1000000000",
        }.get(self.how)
        date = (("Date", email.utils.formatdate(now, usegmt=True)),) if self.how == "date" else ()
        return (*date, ("Retry-After", value)) if value else ()

    def ends(self, now: float) -> float:
        """Unix time. Of a date as of any other, exactly what the header says: whole seconds."""
        if self.how == "date":
            return float(math.ceil(now + self.rest_s))
        return now + (math.ceil(self.rest_s) if self.how == "seconds" else self.rest_s)


@dataclass(frozen=True, slots=True)
class Answer:
    """`manner`: whole: head and body; raw: `body` holds the head too, then the connection is closed; endless: `body`
    again and again, every `pause_s`, without a length; reset: a TCP reset; never: nothing."""

    body: bytes = b""
    status: int = 200
    content_type: str | None = HTML
    headers: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    manner: Manner = "whole"
    pause_s: float = 0.0
    page: str | None = None
    """Which of `Site.expected` it is."""
    rest: Rest | None = None
    blocked: bool = False
    """It says that the visitor is not wanted, in whatever words."""


NOT_FOUND = Answer(b"<!doctype html><title>Not found</title><p>There is no such page.", 404)
BUSY = Answer(b"busy", 503, "text/plain")
NEVER = Answer(status=0, manner="never")
RESET = Answer(status=0, manner="reset")


@dataclass(frozen=True, slots=True)
class Robots:
    """robots.txt of an origin, and what it forbids by RFC 9309."""

    disallow: tuple[str, ...] = ()
    """Path prefixes."""
    allow: tuple[str, ...] = ()
    crawl_delay_s: float | None = None
    status: int = 200
    content_type: str = "text/plain"
    text: str | None = None
    """Replaces what would be written from the fields above."""
    first: tuple[Answer, ...] = ()
    """What the first fetches get instead."""
    down_s: float = 0.0
    """Fetches get a 503 until so long after the first."""
    hops: int | None = 0
    """Redirects before the rules, all within the origin; None: a loop."""
    to: str = ""
    """Another site, whose robots.txt this one redirects to; the fields above say what it forbids."""

    @property
    def last_path(self) -> str:
        """Where the rules are, if a crawler gets there."""
        return f"/robots/{self.hops}" if self.hops and self.hops <= HOPS_FOLLOWED else "/robots.txt"

    def forbids(self, path: str) -> bool:
        if is_robots_txt(path) or 400 <= self.status < 500 or self.hops is None or self.hops > HOPS_FOLLOWED:
            return False
        if self.status >= 500:
            return True
        longest = max((len(p) for p in self.disallow if path.startswith(p)), default=-1)
        return longest > max((len(p) for p in self.allow if path.startswith(p)), default=-1)

    def rules(self) -> Answer:
        text = self.text
        if text is None:
            lines = [
                "User-agent: *",
                *(f"Allow: {p}" for p in self.allow),
                *(f"Disallow: {p}" for p in self.disallow or ("",)),
            ]
            if self.crawl_delay_s is not None:
                lines.append(f"Crawl-delay: {self.crawl_delay_s:g}")
            text = "\n".join(lines) + "\n"
        return Answer(text.encode(), self.status, self.content_type)

    def hop(self, path: str) -> str | None:
        """Where a path of robots.txt redirects to."""
        number = int(path.rpartition("/")[2]) if path != "/robots.txt" else 0
        if self.hops is None:
            return "/robots.txt" if number else "/robots/1"
        return f"/robots/{number + 1}" if number < self.hops else None


HOPS_FOLLOWED = 5
"""A crawler should follow at least so many (RFC 9309 §2.3.1.2), and may take more as no rules at all."""


def is_robots_txt(path: str) -> bool:
    """robots.txt itself, or a hop on the way to its rules."""
    return path == "/robots.txt" or re.fullmatch(r"/robots/\d{1,3}", path) is not None


_PRIVATE = Robots(disallow=("/private/",), allow=("/private/open/",))
_LONG_RULES = (
    "User-agent: *\n" + "".join(f"Disallow: /attic/{k:06}/\n" for k in range(20_000)) + "Disallow: /private/\n" + "# more\n" * 20_000
)
"""640 KB; the rule that matters ends before 500 KiB, the least that is to be read (RFC 9309 §2.5)."""

ROBOTS = {
    "open": Robots(),
    "private": _PRIVATE,
    "delay": Robots(crawl_delay_s=2.0),
    "half": replace(_PRIVATE, crawl_delay_s=0.5),
    "missing": Robots(status=404, text="<p>User-agent: *\nDisallow: /\n", content_type=HTML),
    "late": Robots(first=(BUSY,) * 2),
    "failing": Robots(status=500, text="<p>Something broke.", content_type=HTML),
    "html": Robots(text="<!doctype html><title>Welcome</title><p>This is no robots.txt.", content_type=HTML),
    "named": Robots(text="User-agent: *\nDisallow: /\n\nUser-agent: crawlweb\nDisallow: /private/\n", disallow=("/private/",)),
    "long": Robots(text=_LONG_RULES, disallow=("/private/",)),
    "busy": replace(_PRIVATE, first=(Answer(b"slow down", 429, "text/plain", rest=Rest(8.0)),)),
    "busy-date": replace(_PRIVATE, first=(Answer(b"slow down", 429, "text/plain", rest=Rest(8.0, "date")),)),
    "down": replace(_PRIVATE, down_s=3.0),
    "mute": replace(_PRIVATE, first=(NEVER,)),
    "reset": replace(_PRIVATE, first=(RESET,)),
    "hop": replace(_PRIVATE, hops=1),
    "hops": replace(_PRIVATE, hops=HOPS_FOLLOWED),
    "far": replace(_PRIVATE, hops=HOPS_FOLLOWED + 1),
    "loop": replace(_PRIVATE, hops=None),
    **{str(status): Robots(status=status, text="User-agent: *\nDisallow: /\n") for status in (401, 403, 410, 451)},
}


@dataclass
class Site:
    """A registered domain: its name and every name below it. It belongs to one `Web`."""

    name: str = ""
    """Empty: the web gives it one."""
    pages: int = 20
    fate: Fate = "alive"
    """May be changed while the web runs, but not from or to `refused`."""
    address: str = ""
    """Empty: the web gives it one of its own."""
    robots: Robots = ROBOTS["open"]
    seed: int = field(default=0, init=False)
    scheme: str = field(default="http", init=False)
    port: int = field(default=80, init=False)
    peers: tuple[str, ...] = field(default=(), init=False, repr=False)
    """Names of the other sites of the web, in an order of this site's own."""
    hits: Counter[tuple[str, str]] = field(default_factory=Counter, init=False, repr=False)
    """Requests by host name and target."""
    not_before_s: float = field(default=0.0, init=False)
    """`time.monotonic` until which it said that it is not to be asked."""
    _asked_s: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def join(self, seed: int, port: int, peers: tuple[str, ...]) -> None:
        self.seed, self.port = seed, port
        start = self.rng("peers").randrange(len(peers)) if peers else 0
        self.peers = peers[start:] + peers[:start]

    def rng(self, *key: object) -> Random:
        return Random("/".join(map(str, (self.seed, self.name, *key))))

    def url(self, path: str = "/", host: str | None = None) -> str:
        default = 443 if self.scheme == "https" else 80
        return f"{self.scheme}://{host or self.name}{'' if self.port == default else f':{self.port}'}{path}"

    def fate_of(self, host: str) -> Fate:  # noqa: ARG002
        """Of a name of the site."""
        return self.fate

    def address_of(self, host: str) -> str:  # noqa: ARG002
        return self.address

    def robots_of(self, host: str) -> Robots:  # noqa: ARG002
        return self.robots

    def crawl_delay_s(self, known: Set[str]) -> float:  # noqa: ARG002
        """The largest that any of its origins asks for. `known`: names whose robots.txt was answered."""
        return self.robots.crawl_delay_s or 0.0

    def refusing(self) -> set[str]:
        """Addresses at which nobody listens."""
        return {self.address} if self.fate == "refused" else set()

    def listening(self) -> set[str]:
        return set() if self.fate == "refused" else {self.address}

    def answer(self, target: str, host: str, head: bytes = b"") -> Answer:
        self.hits[host, target] += 1
        if self.fate_of(host) == "blackhole":
            return NEVER
        request = Request(target, host, head, self.hits[host, target])
        return self._robots_txt(request) if is_robots_txt(request.path) else self.respond(request)

    def _robots_txt(self, request: Request) -> Answer:
        robots = self.robots_of(request.host)
        since_s = self._asked_s.setdefault(request.host, time.monotonic())
        if request.path == "/robots.txt":
            if request.times <= len(robots.first):
                return robots.first[request.times - 1]
            if time.monotonic() < since_s + robots.down_s:
                return BUSY
            if robots.to:
                return redirect(self.url("/robots.txt", robots.to), 302)
        hop = robots.hop(request.path)
        return redirect(hop, 302) if hop else robots.rules()

    def forbids(self, target: str, host: str = "") -> bool:
        """Whether robots.txt, as far as it could be fetched until now, forbids the target."""
        host = host or self.name
        robots = self.robots_of(host)
        if is_robots_txt(target):
            return False
        times, since_s = self.hits[host, "/robots.txt"], self._asked_s.get(host)
        if times and times <= len(robots.first):
            return True
        if since_s is not None and time.monotonic() < since_s + robots.down_s:
            return True
        if times and robots.last_path != "/robots.txt" and not self.hits[host, robots.last_path]:
            return True
        return robots.forbids(target)

    def expected(self) -> frozenset[str]:
        """The pages that a polite and complete crawl fetches, once each."""
        return frozenset() if self.fate != "alive" or self.robots.status >= 500 else self.reachable()

    def respond(self, request: Request) -> Answer:
        raise NotImplementedError

    def reachable(self) -> frozenset[str]:
        raise NotImplementedError


@dataclass
class Tree(Site):
    """`pages` pages, all reachable from /: page k links to its `fanout` children, to `inside` more pages of the site and
    to the front page of `outside` other sites. / links to a page under each path that robots.txt forbids."""

    fanout: int = 3
    inside: int = 2
    outside: int = 1
    words: int = 120

    def path(self, number: int) -> str:
        return f"/leaf/{number}" if number else "/"

    def number(self, path: str) -> int | None:
        found = re.fullmatch(r"/(?:leaf/([1-9]\d*))?", path)
        number = int(found[1] or 0) if found else self.pages
        return number if number < self.pages else None

    def hrefs(self, number: int) -> list[str]:
        """Links to a page of this site, as they stand in other pages."""
        return [self.path(number)]

    def extra_hrefs(self) -> list[str]:
        """Further links of the front page."""
        return [f"{prefix.rstrip('/')}/{label(3)}".replace(" ", "-") for prefix in self.robots.disallow]

    def links(self, number: int) -> list[str]:
        rng = self.rng("links", number)
        children = range(self.fanout * number + 1, min(self.fanout * (number + 1) + 1, self.pages))
        inside = [*children, *(rng.randrange(self.pages) for _ in range(self.inside))]
        outside = [self.url("/", peer) for peer in _sample(rng, self.peers, self.outside)]
        return [href for k in inside for href in self.hrefs(k)] + outside + (self.extra_hrefs() if number == 0 else [])

    def document(self, title: str, hrefs: list[str], key: object) -> bytes:
        items = "".join(f'<li><a href="{html.escape(h)}">{label(i)}</a></li>' for i, h in enumerate(hrefs))
        text = prose(self.rng("text", key), self.words)
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
            f"<body><article><h1>{title}</h1>\n<p>{text}</p></article>\n<nav><ul>{items}</ul></nav></body></html>\n"
        ).encode()

    def respond(self, request: Request) -> Answer:
        number = self.number(request.path)
        if number is None:
            return NOT_FOUND
        return Answer(self.document(f"{self.name}, page {number}", self.links(number), number), page=self.path(number))

    def reachable(self) -> frozenset[str]:
        return frozenset(map(self.path, range(self.pages)))


def _sample(rng: Random, names: tuple[str, ...], count: int) -> list[str]:
    return rng.sample(names, min(count, len(names)))


@dataclass
class Slow(Tree):
    """A tree that takes its time, between `low_s` and `high_s` before the first byte."""

    low_s: float = 0.1
    high_s: float = 0.4

    def respond(self, request: Request) -> Answer:
        answer = super().respond(request)
        return Answer(
            answer.body,
            answer.status,
            page=answer.page,
            wait_s=self.rng("wait", request.path).uniform(self.low_s, self.high_s),
        )


@dataclass
class Spellings(Tree):
    """A tree in which every page is linked under six spellings that mean the same, and answers to all of them."""

    def hrefs(self, number: int) -> list[str]:
        path = self.path(number)
        slashed = path if path == "/" else f"{path}/"
        return [
            f"{path}?utm_source=feed&utm_medium=rss",
            slashed,
            f"{path}#section-{number}",
            f"/over/..{path}",
            f"/.{path}?fbclid=IwAR{number}",
            self.url(path, self.name.upper()),
        ]

    def number(self, path: str) -> int | None:
        return super().number("/" + posixpath.normpath(path).lstrip("/"))


@dataclass
class Redirects(Tree):
    """A tree whose pages are reached through chains of 1 to `hops` permanent redirects. The front page also leads to a
    folder without its slash, a loop of two, a loop of one, and a chain that never ends."""

    hops: int = 3

    def hrefs(self, number: int) -> list[str]:
        return [f"/hop/{1 + number % self.hops}/{number}" if number else "/"]

    def extra_hrefs(self) -> list[str]:
        return [*super().extra_hrefs(), "/folder", "/loop/a", "/loop/self", "/onwards/1"]

    def respond(self, request: Request) -> Answer:
        hop = re.fullmatch(r"/hop/(\d{1,3})/(\d{1,9})", request.path)
        onwards = re.fullmatch(r"/onwards/(\d{1,9})", request.path)
        fixed = {"/folder": "/folder/", "/loop/a": "/loop/b", "/loop/b": "/loop/a", "/loop/self": "/loop/self"}
        if hop:
            left, number = int(hop[1]), int(hop[2])
            return redirect(f"/hop/{left - 1}/{number}" if left > 1 else self.path(number), 301)
        if onwards:
            return redirect(f"/onwards/{int(onwards[1]) + 1}", 307)
        if request.path in fixed:
            return redirect(self.url(fixed[request.path], request.host), 301 if request.path == "/folder" else 302)
        if request.path == "/folder/":
            return Answer(self.document("A folder", ["/"], "folder"), page="/folder/")
        return super().respond(request)

    def reachable(self) -> frozenset[str]:
        return super().reachable() | {"/folder/"}


def redirect(location: str, status: int = 301) -> Answer:
    return Answer(b"", status, headers=(("Location", location),))


@dataclass
class Errors(Tree):
    """A tree in which every third page answers 503 `failures` times before it answers, and every page links to a 404
    and a 410 of its own."""

    failures: int = 1

    def links(self, number: int) -> list[str]:
        return [*super().links(number), f"/lost/{number}", f"/gone/{number}"]

    def respond(self, request: Request) -> Answer:
        number = self.number(request.path)
        if number is not None and number % 3 == 1 and request.times <= self.failures:
            return Answer(b"<p>Come back later.", 503)
        if request.path.startswith("/gone/"):
            return Answer(b"<p>It was here once.", 410)
        return super().respond(request)


def _raw(head: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {head}\n\n".replace("\n", "\r\n").encode() + body


@lru_cache(maxsize=1)
def _broken() -> dict[str, Answer]:
    """Path → answer. Those with a `page` are pages that a crawler can use."""
    typed = "200 OK\nContent-Type: text/html"
    many = b"".join(b'<a href="/leaf/%d#%d">x</a>' % (k % 7, k) for k in range(100_000))
    odd = (
        "javascript:alert(1)",
        "mailto:a@b.c",
        "http://",
        "http://[bad/",
        "//",
        "http://a:b:c/",
        "http://%00/",
        "\\\\x",
    )
    return {
        "/nul": Answer(b'<html>\0<a href="/leaf/1">a</a>\0\0<a href="/leaf/2\0">b</a><p>te\0xt', page="/nul"),
        "/charset": Answer("<title>Café</title><p>Été à la plage".encode("latin-1"), page="/charset"),
        "/no-such-charset": Answer(b"<title>x</title><p>x", content_type="text/html; charset=klingon-8", page="/no-such-charset"),
        "/many-links": Answer(b"<!doctype html>" + many, page="/many-links"),
        "/odd-links": Answer("".join(f'<a href="{h}">x</a>' for h in odd).encode(), page="/odd-links"),
        "/unclosed": Answer(b'<div><p><b><table><tr><td><a href="/leaf/3">x<div>' * 300, page="/unclosed"),
        "/deep": Answer(b"<div>" * 5_000 + b"bottom", page="/deep"),
        "/empty": Answer(b"", page="/empty"),
        "/untyped": Answer(b"<p>What am I?", content_type=None),
        "/short": Answer(_raw(f"{typed}\nContent-Length: 5000", b"<p>This is all there is."), manner="raw"),
        "/long": Answer(_raw(f"{typed}\nContent-Length: 9", b"<p>Three and much more than was said."), manner="raw"),
        "/no-number": Answer(_raw(f"{typed}\nContent-Length: many", b"<p>x"), manner="raw"),
        "/two-lengths": Answer(_raw(f"{typed}\nContent-Length: 4\nContent-Length: 40", b"<p>x"), manner="raw"),
        "/bad-chunk": Answer(_raw(f"{typed}\nTransfer-Encoding: chunked", b"zz\r\n<p>x\r\n0\r\n\r\n"), manner="raw"),
        "/half-head": Answer(b"HTTP/1.1 200 OK\r\nContent-Ty", manner="raw"),
        "/no-http": Answer(b"220 mail.example ESMTP ready\r\n", manner="raw"),
        "/huge-head": Answer(_raw(f"{typed}\nX-Long: {'x' * 200_000}\nContent-Length: 0", b""), manner="raw"),
        "/not-gzip": Answer(b"<p>plain", headers=(("Content-Encoding", "gzip"),)),
        "/bomb": Answer(gzip.compress(b"<p>" + b"0" * 40_000_000, 6), headers=(("Content-Encoding", "gzip"),)),
        "/endless": Answer(b"<p>and on and on " * 4_000, manner="endless"),
        "/drip": Answer(b"x", manner="endless", pause_s=1.0),
        "/video": Answer(bytes(65_536), content_type="video/mp4", manner="endless"),
        "/picture": Answer(b"\x89PNG\r\n\x1a\n" + bytes(400), content_type="image/png"),
        "/liar": Answer(b"%PDF-1.7\n\x00\x01\x02" * 50, page="/liar"),
        "/reset": RESET,
        "/no-location": Answer(b"", 302),
        "/bad-location": redirect("http://[::bad/", 302),
        "/away-location": redirect("ftp://example.org/file", 302),
    }


@dataclass
class Broken(Tree):
    """A tree whose front page leads to everything a server can do wrong."""

    def extra_hrefs(self) -> list[str]:
        return [*super().extra_hrefs(), *_broken()]

    def respond(self, request: Request) -> Answer:
        return _broken().get(request.path) or super().respond(request)

    def reachable(self) -> frozenset[str]:
        return super().reachable() | {a.page for a in _broken().values() if a.page}


BLOCK_SENTENCES = 6


@lru_cache(maxsize=4)
def _sentences(seed: int) -> tuple[bytes, ...]:
    rng = Random(f"{seed}/sentences")
    return tuple(sentence(rng).encode() for _ in range(1 << 13))


_HEADINGS = tuple(
    f'<section class="block b{i % 9}" id="s{i}"><h3>{label(i).title()}</h3><p><em>{label(i * 3)}</em> '.encode() for i in range(256)
)
_BLOCK_END = b"</p></section>\n"

_DECORATION = (
    "<style>\n"
    + "".join(f".b{i} > p {{ margin: {i}px auto; color: #{i:03x}; padding: 0 {i % 5}em }}\n" for i in range(48))
    + "</style>\n<script>\nwindow.settings = {"
    + ", ".join(f'"option{i}": {i * i}' for i in range(80))
    + "};\n</script>\n"
).encode()


@dataclass
class Links(Site):
    """The kind for benchmarks: pages of about `page_bytes` with `links` links, made in some 70 µs. Of 100 links, 30
    are the same on all pages of the site, 50 lead to its other pages, 20 to pages of other sites. The text of a page is its own: of its
    sentences, any other page has a few."""

    pages: int = 100
    """A billion is as good as endless: then two thirds of all links are new."""
    links: int = 100
    page_bytes: int = 31_000
    low_s: float = 0.0
    high_s: float = 0.0
    """Before the first byte, at least and at most."""

    def join(self, seed: int, port: int, peers: tuple[str, ...]) -> None:
        super().join(seed, port, peers)
        self._salt = self.rng("salt").randrange(1 << 30)
        self._labels = [label(i).encode() for i in range(1024)]
        self._origins = [self.url("", peer).encode() for peer in self.peers]
        self._sentences = _sentences(seed)
        a_sentence, a_heading = (sum(map(len, some)) / len(some) for some in (self._sentences, _HEADINGS))
        self._block_bytes = BLOCK_SENTENCES * (a_sentence + 1) + a_heading + len(_BLOCK_END)

    def targets(self, number: int) -> list[tuple[bytes, int]]:
        """Origin (empty: this site's own) and page number of every link of a page."""
        pages, salt = self.pages, self._salt
        menu = min(self.links * 3 // 10, pages)
        outside = self.links // 5 if self._origins else 0
        start = number * 7_919 + salt
        inside = [(start + i * 104_729) % pages for i in range(self.links - menu - outside - 1)]
        found = [(b"", k) for k in (*range(menu), (number + 1) % pages, *inside)]
        origins = self._origins
        for i in range(outside):
            step = start + i * 15_485_863
            found.append((origins[(step >> 3) % len(origins)], step % pages))
        return found

    def respond(self, request: Request) -> Answer:
        path = request.path
        tail = path[6:]
        if path == "/":
            number = 0
        elif path.startswith("/page/") and tail.isdecimal() and tail[0] != "0" and int(tail) < self.pages:
            number = int(tail)
        else:
            return NOT_FOUND
        labels = self._labels
        anchors = b"".join(
            [
                b'<li class="item"><a href="%b/%b" title="%d">%b</a></li>\n' % (origin, b"page/%d" % k if k else b"", k, labels[k & 1023])
                for origin, k in self.targets(number)
            ]
        )
        head = b'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>%b, page %d</title>\n' % (
            self.name.encode(),
            number,
        )
        room = self.page_bytes - len(anchors) - len(head) - len(_DECORATION)
        count = max(0, int(room / self._block_bytes))
        picks = array("H", shake_128(b"%d/%d" % (self._salt, number)).digest(2 * BLOCK_SENTENCES * count))
        some, last = self._sentences, len(self._sentences) - 1
        texts = [some[pick & last] for pick in picks]
        text = b"".join(
            [_HEADINGS[i & 255] + b" ".join(texts[i * BLOCK_SENTENCES : (i + 1) * BLOCK_SENTENCES]) + _BLOCK_END for i in range(count)]
        )
        body = b"%b%b</head><body><nav><ul>\n%b</ul></nav><main>\n%b</main></body></html>\n" % (
            head,
            _DECORATION,
            anchors,
            text,
        )
        wait_s = self.low_s + (self.high_s - self.low_s) * ((number * 389 + self._salt) & 1023) / 1024
        return Answer(body, page=path, wait_s=wait_s)

    def reachable(self) -> frozenset[str]:
        return frozenset(f"/page/{k}" if k else "/" for k in range(self.pages))


_HREF = re.compile(r"""<a\s(?:[^>]*?\s)?href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.I)
_BASE = re.compile(r"""<base\s[^>]*?href\s*=\s*["']?([^"'\s>]+)""", re.I)
_HIDDEN = re.compile(r"<!--.*?-->|<script\b.*?</script>|<style\b.*?</style>", re.I | re.S)


@dataclass
class Files(Site):
    """A folder of real files: index.html for a folder, 301 for a folder without its slash, types by file name. The
    expected pages are the HTML files that links lead to from /, by a walk of our own over the files."""

    folder: str = ""

    def file(self, path: str) -> Path | None:
        """The file behind a path (percent-encoded), or None. `..` leads not out of the folder; symbolic links may."""
        name = posixpath.normpath("/" + unquote(path)).lstrip("/")
        if "\0" in name:
            return None
        file = Path(self.folder) / name
        if file.is_dir():
            file /= "index.html"
        return file if file.is_file() else None

    def respond(self, request: Request) -> Answer:
        file = self.file(request.path)
        if file is None:
            return NOT_FOUND
        if self._lacks_slash(request.path, file):
            return redirect(request.path + "/" + ("?" + request.query if request.query else ""))
        content_type = self._type(file)
        page = unquote(request.path) if content_type == "text/html" else None
        return Answer(file.read_bytes(), content_type=content_type, page=page)

    def reachable(self) -> frozenset[str]:
        if not hasattr(self, "_reachable"):
            self._reachable = self._walk()
        return self._reachable

    def _walk(self) -> frozenset[str]:
        found, left = {"/"}, ["/"]
        while left:
            path = left.pop()
            file = self.file(quote(path))
            text = _HIDDEN.sub("", file.read_bytes().decode("utf-8", "replace")) if file else ""
            base = _BASE.search(text)
            at = urljoin(self.url(quote(path)), base[1] if base else "")
            for target in {self._target(at, html.unescape("".join(groups)).strip()) for groups in _HREF.findall(text)}:
                if target and target not in found:
                    found.add(target)
                    left.append(target)
        return frozenset(found)

    def _target(self, base: str, href: str) -> str | None:
        """The page (decoded path) that a link ends at, redirects followed, or None."""
        try:
            url = urlsplit(urljoin(base, href))
        except ValueError:
            return None
        if url.scheme != self.scheme or url.netloc != urlsplit(self.url()).netloc:
            return None
        file = self.file(url.path)
        if file is None or self._type(file) != "text/html":
            return None
        path = unquote(url.path) or "/"
        slash = "/" if path.endswith("/") or self._lacks_slash(path, file) else ""
        path = posixpath.normpath("/" + path.lstrip("/"))
        return path if path == "/" else path + slash

    @staticmethod
    def _lacks_slash(path: str, file: Path) -> bool:
        return file.name == "index.html" and not path.endswith(("/", "/index.html"))

    @staticmethod
    def _type(file: Path) -> str:
        kind, encoding = mimetypes.guess_type(file.name)
        return "application/gzip" if encoding else kind or "application/octet-stream"
