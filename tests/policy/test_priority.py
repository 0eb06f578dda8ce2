from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlweb.policy.priority import SEED_QUEUE, discovery_score, front_queue, path_depth

depths = st.integers(0, 100)
signals = st.fixed_dictionaries(
    {
        "authority": st.floats(0, 1),
        "in_links": st.integers(0, 10**9),
        "in_sitemap": st.booleans(),
        "referrer_changed": st.booleans(),
    }
)


@pytest.mark.parametrize(
    ("url", "depth"),
    [
        ("https://a.com/", 0),
        ("https://a.com/x", 1),
        ("https://a.com/x/", 1),
        ("https://a.com/x/y.html?q=/1/2/3", 2),
        ("https://a.com//x///y/", 2),
        ("http://[::1]:81/x/%2F/z", 3),
    ],
)
def test_path_depth_counts_segments_of_the_path(url: str, depth: int) -> None:
    assert path_depth(url) == depth


def test_the_score_is_the_seeds_formula() -> None:
    assert discovery_score(0) == 2.0
    assert discovery_score(3) == 0.5
    assert discovery_score(1, authority=0.5, in_links=2, in_sitemap=True, referrer_changed=True) == 1.5 + 1 + 3 + 2 + 1


@pytest.mark.parametrize(
    ("depth", "known", "queue"),
    [
        (0, {}, 5),
        (1, {}, 6),
        (2, {}, 7),
        (3, {}, 8),
        (4, {}, 8),
        (5, {}, 9),
        (1000, {}, 9),
        (3, {"in_sitemap": True}, 5),
        (1, {"in_sitemap": True}, 4),
        (3, {"referrer_changed": True}, 6),
        (1, {"in_links": 1}, 5),
        (1, {"in_links": 3}, 3),
        (1, {"in_links": 4}, 2),
        (0, {"authority": 1.0}, 3),
        (0, {"authority": 1.0, "in_links": 2, "in_sitemap": True}, 1),
    ],
)
def test_scores_spread_over_the_front_queues(depth: int, known: dict[str, float], queue: int) -> None:
    assert front_queue(depth, **known) == queue  # type: ignore[arg-type]


@settings(deadline=None, derandomize=True)
@given(depths, signals)
def test_a_discovered_url_never_takes_the_seeds_queue(depth: int, known: dict[str, float]) -> None:
    assert SEED_QUEUE < front_queue(depth, **known) <= 9  # type: ignore[arg-type]


@settings(deadline=None, derandomize=True)
@given(depths, signals, depths, signals)
def test_a_higher_score_never_waits_in_a_later_queue(
    depth_a: int, known_a: dict[str, float], depth_b: int, known_b: dict[str, float]
) -> None:
    pairs = [
        (discovery_score(depth, **known), -front_queue(depth, **known))  # type: ignore[arg-type]
        for depth, known in ((depth_a, known_a), (depth_b, known_b))
    ]
    low, high = sorted(pairs)
    assert low[1] <= high[1]
