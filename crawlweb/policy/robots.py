"""robots.txt (RFC 9309): what an answer means, what it allows, and how it is kept in Redis.

What stands here: 2xx obey · 4xx but 429 allow · 429, 5xx and failures: the host waits · redirects within the host are
followed, one turn a hop, others count as no rules. The whole matrix of answers has an issue of its own.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from protego import Protego

from ..errors import CrawlwebError

PRODUCT_TOKEN = "crawlweb"
MAX_BYTES = 500 * 1024
MAX_HOPS = 5
TTL_S = 86_400.0
HOP_TTL_S = 300.0
CRAWL_DELAY_CAP_S = 60.0


class NotRobots(CrawlwebError):
    """A value in Redis that is not a robots.txt of ours."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of an origin's robots.txt. `decision`: rules · allow · redirect (to be fetched next at `to`) · unreachable."""

    decision: str
    body: bytes = b""
    to: str = ""
    hops: int = 0

    @property
    def ttl_s(self) -> float:
        return HOP_TTL_S if self.decision == "redirect" else TTL_S

    def pack(self) -> bytes:
        head = json.dumps({"v": 1, "d": self.decision, "to": self.to, "hops": self.hops}, separators=(",", ":"))
        return head.encode() + b"\n" + self.body

    @classmethod
    def unpack(cls, value: bytes) -> Answer:
        """NotRobots for anything that `pack` did not make."""
        head, _, body = value.partition(b"\n")
        try:
            fields = json.loads(head)
            version, decision, to, hops = (fields[name] for name in ("v", "d", "to", "hops"))
        except (ValueError, TypeError, KeyError, RecursionError) as e:
            raise NotRobots(str(e)) from None
        if version != 1 or decision not in ("rules", "allow", "redirect") or not isinstance(to, str):
            raise NotRobots("another version or decision")
        if type(hops) is not int or not 0 <= hops <= MAX_HOPS:
            raise NotRobots("hops")
        if decision == "redirect" and not to.startswith(("http://", "https://")):
            raise NotRobots("a redirect to nowhere")
        return cls(decision, body[:MAX_BYTES], to, hops)


def origin_of(url: str) -> str:
    """scheme://host[:port] of an http(s) URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def robots_url(origin: str) -> str:
    return origin + "/robots.txt"


def judge(status: int, body: bytes, location: str | None, asked: str, hops: int) -> Answer:
    """What a response means. `asked`: the URL that was requested; `hops`: redirects before it."""
    if 200 <= status < 300:
        return Answer("rules", body[:MAX_BYTES])
    if status in (301, 302, 303, 307, 308):
        if not location or hops >= MAX_HOPS:
            return Answer("allow")
        try:
            to = urljoin(asked, location.strip())
            netloc = urlsplit(to).netloc
        except ValueError:
            return Answer("allow")
        if not to.startswith(("http://", "https://")) or not netloc:
            return Answer("allow")
        return Answer("redirect", to=to, hops=hops + 1)
    if status == 429 or status >= 500:
        return Answer("unreachable")
    return Answer("allow")


_GROUP = re.compile(r"^([ \t]*user[- ]?agent[ \t]*(?::|[ \t])[ \t]*)([^\s#]+).*$", re.I | re.M)
_TOKEN = re.compile(r"[A-Za-z_-]*")


def _exactly(line: re.Match[str]) -> str:
    """RFC 9309 §2.2.1: the product token, exactly. Protego takes a group for ours if our token begins with its name, and no version
    may stand behind it."""
    name = line[2]
    if name != "*":
        token = _TOKEN.match(name)
        name = PRODUCT_TOKEN if token and token[0].lower() == PRODUCT_TOKEN else "-"
    return line[1] + name


class Rules:
    """The rules of an origin for our product token. Parsing never fails: what cannot be read is no rule."""

    __slots__ = ("_parsed", "crawl_delay_s")

    def __init__(self, answer: Answer) -> None:
        self._parsed: Any = None
        self.crawl_delay_s: float | None = None
        if answer.decision == "rules" and answer.body.strip():
            text = answer.body.decode("utf-8", errors="replace").lstrip("\ufeff").replace("\x00", "")
            self._parsed = Protego.parse(_GROUP.sub(_exactly, "\n".join(text.splitlines())))
            delay = self._parsed.crawl_delay(PRODUCT_TOKEN)
            if delay is not None and math.isfinite(delay) and delay >= 0:
                self.crawl_delay_s = min(float(delay), CRAWL_DELAY_CAP_S)

    def allows(self, url: str) -> bool:
        try:
            return self._parsed is None or bool(self._parsed.can_fetch(url, PRODUCT_TOKEN))
        except ValueError:  # no URL
            return False
