"""What a worker keeps of robots.txt in memory."""

from __future__ import annotations

import tracemalloc

import pytest
from redis.asyncio import Redis

from crawlweb import rulebook
from crawlweb.frontier.frontier import Frontier
from crawlweb.policy import robots


def rules(lines: list[str]) -> robots.Rules:
    return robots.Rules(robots.Answer("rules", "\n".join(["user-agent:*", *lines]).encode()))


def empty_book() -> rulebook.Rulebook:
    return rulebook.Rulebook(Frontier(Redis(), "web", 1, "w"), lambda *_: None, 60.0)


def test_large_files_push_out_what_was_not_used_for_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    large = [f"disallow:/{n}/" for n in range(1000)]
    monkeypatch.setattr(rulebook, "CACHED_BYTES", 3 * rules(large).size_bytes + 100)
    book = empty_book()
    for name in "abc":
        book.learn(f"http://{name}.test", rules(large))
    assert book.of("http://a.test") is not None
    book.learn("http://c.test", rules(large))  # again: no more than before
    assert len(book._rules) == 3
    book.learn("http://d.test", rules([]))
    assert book.of("http://b.test") is None
    assert all(book.of(f"http://{name}.test") is not None for name in "acd")
    assert book._bytes == sum(kept.size_bytes for _, kept in book._rules.values())


def test_one_that_is_larger_than_all_may_be_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rulebook, "CACHED_BYTES", 1000)
    book = empty_book()
    for name in "ab":
        book.learn(f"http://{name}.test", rules([f"disallow:/{n}/" for n in range(100)]))
    assert list(book._rules) == ["http://b.test"]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [f"disallow:/private/{n}/" for n in range(12)],
        [f"disallow:/{n:x}" for n in range(5000)],
        [f"disallow:/{n:x}*a*b*c" for n in range(1000)],
    ],
)
def test_what_rules_are_taken_to_need_is_near_what_they_need(lines: list[str]) -> None:
    rules(lines)
    tracemalloc.start()
    try:
        kept = [rules(lines) for _ in range(3)]
        used_bytes = tracemalloc.get_traced_memory()[0] / len(kept)
    finally:
        tracemalloc.stop()
    assert 0.5 * used_bytes < kept[0].size_bytes < 2 * used_bytes
