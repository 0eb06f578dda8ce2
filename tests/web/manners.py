"""Sites that show how a crawler behaves when it is told to wait, to go elsewhere or to stay away."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Literal

from .sites import NEVER, NOT_FOUND, Answer, Fate, How, Request, Rest, Robots, Tree


@dataclass
class Pushback(Tree):
    """A tree in which every `every`th page, from the `every // 2`th on, answers `status` with a Retry-After at first."""

    status: int = 429
    how: How = "seconds"
    rest_s: float = 2.0
    every: int = 7

    def respond(self, request: Request) -> Answer:
        number = self.number(request.path)
        if number is not None and number % self.every == self.every // 2 and request.times == 1:
            return Answer(b"<p>Slow down.", self.status, rest=Rest(self.rest_s, self.how))
        return super().respond(request)


@dataclass
class Flaky(Tree):
    """A tree in which of six pages one answers 500 at first, one nothing."""

    def respond(self, request: Request) -> Answer:
        number = self.number(request.path)
        if number is not None and request.times == 1 and number % 6 in (2, 5):
            return Answer(b"<p>Something broke.", 500) if number % 6 == 2 else NEVER
        return super().respond(request)


@dataclass
class Origins(Tree):
    """A tree under the bare name and one under each of `others`, which the front page leads to: origins with a robots.txt and a fate of
    their own. Pages of the others are called `//name/path`."""

    others: dict[str, Robots] = field(default_factory=dict)
    """By the label before the bare name."""
    fates: dict[str, Fate] = field(default_factory=dict)

    def _label(self, host: str) -> str:
        return host.removesuffix(self.name).rstrip(".")

    def fate_of(self, host: str) -> Fate:
        return self.fates.get(self._label(host), self.fate)

    def address_of(self, host: str) -> str:
        """A name that refuses has an address of its own, next to the site's."""
        if self.fate_of(host) != "refused" or self.fate == "refused":
            return self.address
        first, second, rest = self.address.split(".", 2)
        return f"{first}.{int(second) ^ 128}.{rest}"

    def refusing(self) -> set[str]:
        return super().refusing() | {self.address_of(f"{label}.{self.name}") for label, fate in self.fates.items() if fate == "refused"}

    def robots_of(self, host: str) -> Robots:
        return self.others.get(self._label(host), self.robots)

    def crawl_delay_s(self, known: Set[str]) -> float:
        return max((self.robots_of(host).crawl_delay_s or 0.0 for host in known), default=0.0)

    def links(self, number: int) -> list[str]:
        fronts = [self.url("/", f"{label}.{self.name}") for label in self.others] if number == 0 else []
        return [*fronts, *super().links(number)]

    def respond(self, request: Request) -> Answer:
        number, label = self.number(request.path), self._label(request.host)
        if number is None or (label and label not in self.others):
            return NOT_FOUND
        page = f"//{request.host}{request.path}" if label else request.path
        return Answer(self.document(f"{request.host}, page {number}", self.links(number), page), page=page)

    def reachable(self) -> frozenset[str]:
        paths = super().reachable()
        alive = [label for label, robots in self.others.items() if self.fates.get(label, "alive") == "alive" and robots.status < 500]
        return paths | {f"//{label}.{self.name}{path}" for label in alive for path in paths}


@dataclass
class Siblings(Tree):
    """A tree of which every page is a 404 as it is linked, and a page under the sibling spelling: with a slash at its end or without,
    with `www.` or without."""

    differ: Literal["slash", "www"] = "slash"

    def spelling(self, number: int, is_linked: bool) -> tuple[str, str]:
        """Host and path of a page, as it is linked or as it is answered."""
        other = (number % 2 == 0) != is_linked
        if self.differ == "www":
            return f"www.{self.name}" if other else self.name, self.path(number)
        return self.name, self.path(number) + ("/" if other and number else "")

    def hrefs(self, number: int) -> list[str]:
        host, path = self.spelling(number, is_linked=True)
        return [self.url(path, host)]

    def respond(self, request: Request) -> Answer:
        number = self.number(request.path.rstrip("/") or "/")
        if number is None or (request.host, request.path) != self.spelling(number, is_linked=False):
            return NOT_FOUND
        return super().respond(Request(self.path(number), request.host))


@dataclass
class Blocking(Tree):
    """A tree that shows `good` pages and then, whatever is asked of it, that it wants no more: with a 403, a riddle or an empty page.
    Which pages a crawler gets is its own choice, so none is expected."""

    good: int = 30
    how: Literal["forbidden", "captcha", "empty"] = "forbidden"
    shown: int = field(default=0, init=False)

    def respond(self, request: Request) -> Answer:
        if self.shown >= self.good:
            return _BLOCKS[self.how]
        answer = super().respond(request)
        self.shown += answer.page is not None
        return answer

    def expected(self) -> frozenset[str]:
        return frozenset()


_RIDDLE = b"""<!doctype html><html lang="en"><head><title>Just a moment...</title></head><body><h1>Are you human?</h1>
<p>Our systems have detected unusual traffic from your network. Solve the captcha to continue.</p>
<form method="post" action="/captcha"><div class="g-recaptcha" data-sitekey="x"></div><button>I am not a robot</button></form></body></html>
"""
_BLOCKS = {
    "forbidden": Answer(b"<!doctype html><title>403 Forbidden</title><h1>Forbidden</h1>", 403, blocked=True),
    "captcha": Answer(_RIDDLE, blocked=True),
    "empty": Answer(b"", blocked=True),
}


@dataclass
class Nofollow(Tree):
    """A tree whose front page also leads to pages with links that are not to be followed: by `rel`, by meta robots, by X-Robots-Tag. What
    only those lead to lies under /hidden/; what looks alike but is to be followed leads to /shown/."""

    def document(self, title: str, hrefs: list[str], key: object) -> bytes:
        more = _FRONT if key == 0 else b""
        return super().document(title, hrefs, key).replace(b"</body>", more + b"</body>")

    def respond(self, request: Request) -> Answer:
        path = request.path
        if path in _MARKED:
            head, headers, to = _MARKED[path]
            body = self.document(f"{self.name}{path}", [to], path).replace(b"</head>", head.encode() + b"</head>")
            return Answer(body, headers=headers, page=path)
        if path.startswith(("/shown/", "/hidden/")):
            return Answer(self.document(f"{self.name}{path}", [], path), page=path)
        return super().respond(request)

    def forbids(self, target: str, host: str = "") -> bool:
        return target.startswith("/hidden/") or super().forbids(target, host)

    def reachable(self) -> frozenset[str]:
        shown = {to for _, _, to in _MARKED.values() if to.startswith("/shown/")}
        return super().reachable() | _MARKED.keys() | shown | {"/shown/rel", "/shown/both"}


_TAG = "X-Robots-Tag"
_MARKED: dict[str, tuple[str, tuple[tuple[str, str], ...], str]] = {
    "/meta": ('<meta name="robots" content="index, nofollow">', (), "/hidden/meta"),
    "/meta-upper": ('<META CONTENT="NOFOLLOW" NAME="ROBOTS">', (), "/hidden/meta-upper"),
    "/meta-none": ('<meta name="robots" content="none">', (), "/hidden/meta-none"),
    "/meta-ours": ('<meta name="crawlweb" content="nofollow">', (), "/hidden/meta-ours"),
    "/meta-other": ('<meta name="otherbot" content="nofollow">', (), "/shown/meta-other"),
    "/meta-noindex": ('<meta name="robots" content="noindex">', (), "/shown/meta-noindex"),
    "/header": ("", ((_TAG, "nofollow"),), "/hidden/header"),
    "/header-none": ("", ((_TAG, "none"),), "/hidden/header-none"),
    "/header-ours": ("", ((_TAG, "otherbot: noindex"), (_TAG, "crawlweb: nofollow")), "/hidden/header-ours"),
    "/header-other": ("", ((_TAG, "otherbot: nofollow"),), "/shown/header-other"),
    "/header-noindex": ("", ((_TAG, "noindex"), (_TAG, "noarchive")), "/shown/header-noindex"),
}
"""Path → more of its head, headers, the only link of the page."""
_NOT_FOLLOWED = ("nofollow", "UGC", "noopener sponsored", "\nnoFollow\t")
_FRONT = (
    "".join(f'<a href="{path}">{path}</a>\n' for path in _MARKED)
    + "".join(
        f'<a rel="{rel}" href="/hidden/{i}">x</a>\n' for i, rel in enumerate(("nofollow", "UGC", "noopener sponsored", "\nnoFollow\t"))
    )
    + '<a rel="noopener external" href="/shown/rel">x</a><a rel="nofollow" href="/shown/both">x</a><a href="/shown/both">x</a>\n'
).encode()


_WALL = Robots(disallow=("/walled/",))


@dataclass
class Walled(Tree):
    """A tree whose front page leads to `walled` pages that robots.txt forbids, and after them to its own."""

    robots: Robots = _WALL
    walled: int = 2_000

    def links(self, number: int) -> list[str]:
        return [*(f"/walled/{k}" for k in range(self.walled if number == 0 else 0)), *super().links(number)]
