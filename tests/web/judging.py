"""A web that judges politeness: one site or more of every kind that tells a crawler to wait, to go elsewhere or to stay away."""

from __future__ import annotations

from dataclasses import replace

from .manners import Flaky, Nofollow, Origins, Pushback, Siblings, Walled
from .sites import ROBOTS, Fate, How, Redirects, Robots, Site, Slow, Tree

SHARED = "127.14.0.1"
DEAD: tuple[Fate, ...] = ("nxdomain", "refused", "blackhole")
RESTS_S: dict[How, float] = {"seconds": 14.0, "date": 14.0, "none": 1.0, "nonsense": 1.0, "negative": 1.0}
"""What is said is longer than the first back-off of a crawler, so that it shows whether it was heard."""


def judging(pages: int = 6, shared: int = 8, rounds: int = 1) -> list[Site]:
    """`pages`: of a site; `shared`: hosts on one address; `rounds`: how often the whole of it. A site's name says what it is."""
    return [site for number in range(1, rounds + 1) for site in _round(pages, shared, "" if number == 1 else f"-{number}")]


def _round(pages: int, shared: int, more: str) -> list[Site]:
    private = ROBOTS["private"]
    slow = {"shop": Robots(crawl_delay_s=0.9), "docs": Robots(crawl_delay_s=0.6)}
    pushing = [
        Pushback(f"push-{status}-{how}{more}.org", pages=pages, status=status, how=how, rest_s=rest_s)
        for status in (429, 503)
        for how, rest_s in RESTS_S.items()
    ]
    return [
        *(Tree(f"robots-{name}{more}.org", pages=pages, robots=robots) for name, robots in ROBOTS.items()),
        Tree(f"robots-elsewhere{more}.org", pages=pages, robots=replace(private, to=f"robots-private{more}.org")),
        *pushing,
        *(Tree(f"shared-{k}{more}.org", pages=pages, address=SHARED) for k in range(shared - 2)),
        Pushback(f"shared-push{more}.org", pages=pages, address=SHARED, rest_s=RESTS_S["seconds"]),
        Slow(f"shared-slow{more}.org", pages=pages, address=SHARED),
        Flaky(f"flaky{more}.org", pages=pages),
        Slow(f"slow{more}.org", pages=pages, high_s=0.6),
        Redirects(f"moved{more}.org", pages=pages),
        Siblings(f"sibling-slash{more}.org", pages=pages),
        Siblings(f"sibling-www{more}.org", pages=pages, differ="www"),
        Nofollow(f"nofollow{more}.org", pages=pages),
        Walled(f"walled{more}.org", pages=20),
        Origins(f"origins{more}.org", pages=pages, others=slow),
        Origins(f"half-down{more}.org", pages=2 * pages, others={"dev": ROBOTS["failing"]}),
        *(Origins(f"half-{fate}{more}.org", pages=2 * pages, others={"dev": Robots()}, fates={"dev": fate}) for fate in DEAD),
        *(Tree(f"dead-{fate}{more}.org", fate=fate) for fate in DEAD),
    ]
