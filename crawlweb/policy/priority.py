"""Discovery priority: which front queue a new URL waits in."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache

SEED_QUEUE = 0
"""Kept for seeds; discovered URLs get 1 (first) to 9."""

_FLOORS: tuple[float, ...] = (0.35, 0.6, 1.0, 2.0, 3.0, 4.5, 6.0, 8.0)
"""Least scores of the front queues 8, 7, … 1.

The lower half separates by path depth alone, all that is known of most URLs: queue 5 is a home page, 6 one segment,
7 two, 8 three or four, 9 more. The upper half is reached only by what somebody vouches for: a sitemap, in-links, an
authority.
"""


def path_depth(url: str) -> int:
    """Segments in the path of a fetched URL: 2 in https://a/b/c/. Crawl depth is another thing: links from the seed."""
    path = url.partition("?")[0]
    if "//" in path[8:]:
        return len([part for part in path.split("/") if part]) - 2
    return path.count("/") - 2 - path.endswith("/")


def discovery_score(
    path_depth: int,
    *,
    authority: float = 0.0,
    in_links: int = 0,
    in_sitemap: bool = False,
    referrer_changed: bool = False,
) -> float:
    """Authority is that of the host, 0 to 1; `in_links` are known pages besides the referrer. What is unknown counts 0."""
    return 3.0 * authority + 2.0 / (1 + path_depth) + 1.5 * in_links + 2.0 * in_sitemap + 1.0 * referrer_changed


@lru_cache(maxsize=256)  # of most URLs nothing but the depth is known
def front_queue(
    path_depth: int,
    *,
    authority: float = 0.0,
    in_links: int = 0,
    in_sitemap: bool = False,
    referrer_changed: bool = False,
) -> int:
    """1 for the highest scores to 9 for the lowest; never the seeds' queue."""
    score = discovery_score(
        path_depth,
        authority=authority,
        in_links=in_links,
        in_sitemap=in_sitemap,
        referrer_changed=referrer_changed,
    )
    return 9 - bisect_right(_FLOORS, score)
