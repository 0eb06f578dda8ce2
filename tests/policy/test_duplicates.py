"""Which of several copies counts, and which declared canonical URLs are believed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlweb.errors import ConfigError
from crawlweb.policy.duplicates import NO_RANK, OTHER_BITS, DomainRanks, Verdict, belief, judge, order
from crawlweb.records import Copy, Fingerprint, Match

SIMHASH = 0x0F0F_3C3C_5A5A_9999


def key(url: str) -> bytes:
    return hashlib.blake2b(url.partition("://")[2].encode(), digest_size=16).digest()


def copy(url: str, seen_at: float = 1000.0, simhash: int | None = SIMHASH, names: str = "", **more: Any) -> Copy:
    host = ".".join(url.split("/")[2].split(".")[-2:])
    prints = Fingerprint(more.pop("body_hash", key(url)[:8]), simhash=simhash)
    return Copy(url, key(url), host, seen_at, prints, names, key(names)[:8] if names else b"", **more)


def far(bits: int) -> int:
    return SIMHASH ^ ((1 << bits) - 1)


# -- the rule ----------------------------------------------------------------------------------------------------------------


def ranks(**rank: int) -> Callable[[str], int]:
    return lambda host: rank.get(host.partition(".")[0], NO_RANK)


IN_ORDER = (
    copy("https://known.org/a/long/way/to/it"),
    copy("https://x.org/b"),
    copy("https://x.org/c?print=1", 5.0),
    copy("https://x.org/d?print=1", 6.0),
    copy("https://x.org/rather/long", 1.0),
    copy("http://x.org/a", 1.0),
)


@pytest.mark.parametrize("given", list(itertools.permutations(range(6), 3)))
def test_whoever_asks_the_same_copy_counts(given: tuple[int, ...]) -> None:
    copies = [IN_ORDER[i] for i in given]
    first = IN_ORDER[min(given)]
    for page in copies:
        others = [Match(other, "near") for other in copies if other is not page]
        verdict = judge(page, others, authority=ranks(known=7))
        if page is first:
            assert (verdict.duplicate_of, set(verdict.supersedes)) == ("", {match.copy.url for match in others})
        else:
            assert (verdict.duplicate_of, verdict.kind, verdict.supersedes) == (first.url, "near", ())


def test_two_copies_that_are_alike_in_all_are_told_apart_by_their_keys() -> None:
    one, other = copy("https://x.org/1"), copy("https://x.org/2")
    assert order(one) != order(other)
    assert (order(one) < order(other)) == (one.key < other.key)


PAGE, OLD, ALIAS = copy("https://x.org/page"), copy("https://x.org/old"), copy("https://x.org/old?a=1", alias_of="https://x.org/old")


@pytest.mark.parametrize(
    ("page", "matches", "heads", "expected"),
    [
        (PAGE, [], {}, Verdict()),
        (PAGE, [Match(OLD, "exact")], {}, Verdict(OLD.url, "exact")),
        (PAGE, [Match(OLD, "near")], {}, Verdict(OLD.url, "near")),
        # of an alias, the page that it is an alias of counts
        (PAGE, [Match(ALIAS, "exact")], {ALIAS.key[:8]: OLD}, Verdict(OLD.url, "exact")),
        (PAGE, [Match(OLD, "near"), Match(ALIAS, "exact")], {ALIAS.key[:8]: OLD}, Verdict(OLD.url, "exact")),
        # that page is no copy of itself by way of its alias
        (OLD, [Match(ALIAS, "exact")], {ALIAS.key[:8]: OLD}, Verdict()),
        # it is not known any more, or an error by now
        (PAGE, [Match(copy("https://x.org/o", alias_of="https://x.org/gone"), "exact")], {}, Verdict("https://x.org/o", "exact")),
        (PAGE, [Match(ALIAS, "exact")], {ALIAS.key[:8]: copy("https://x.org/old", status=404)}, Verdict(supersedes=(ALIAS.url,))),
        # errors have no copies
        (PAGE, [Match(copy("https://x.org/o", status=404), "exact")], {}, Verdict()),
        (PAGE, [Match(copy("https://x.org/o", flags=frozenset({"soft_404"})), "exact")], {}, Verdict()),
        # a copy that names the page leaves it the place
        (PAGE, [Match(copy("https://x.org/o", names=PAGE.url), "near")], {}, Verdict(supersedes=("https://x.org/o",))),
        (
            PAGE,
            [Match(copy("https://x.org/o", names=PAGE.url), "near"), Match(copy("https://x.org/p"), "near")],
            {},
            Verdict("https://x.org/p", "near"),
        ),
    ],
)
def test_what_known_copies_make_of_a_page(page: Copy, matches: list[Match], heads: dict[bytes, Copy], expected: Verdict) -> None:
    assert judge(page, matches, (), heads) == expected


# -- declared canonicals -------------------------------------------------------------------------------------------------------

TARGET, ELSEWHERE = "https://x.org/t", "https://y.org/t"


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        ([copy(TARGET)], "believed"),
        ([copy(TARGET, simhash=None)], "believed"),
        ([copy(TARGET, simhash=far(OTHER_BITS))], "believed"),
        ([copy(TARGET, simhash=far(OTHER_BITS + 1))], "other_content"),
        ([copy(TARGET, simhash=far(40), body_hash=b"the same")], "believed"),
        ([], "unknown"),
        ([None], "unknown"),
        ([copy("https://x.org/page")], "self"),
        ([copy("http://x.org/page")], "self"),
        ([copy(TARGET, status=404)], "error"),
        ([copy(TARGET, status=500)], "error"),
        ([copy(TARGET, status=301)], "error"),
        ([copy(TARGET, flags=frozenset({"soft_404"}))], "error"),
        ([copy(TARGET, flags=frozenset({"noindex"}))], "believed"),
        # another host
        ([copy(ELSEWHERE)], "believed"),
        ([copy(ELSEWHERE, simhash=None)], "unconfirmed"),
        ([copy(ELSEWHERE, simhash=None, body_hash=b"the same")], "believed"),
        ([copy(ELSEWHERE, simhash=far(30))], "other_content"),
        ([copy("https://www.x.org/t", simhash=None)], "believed"),
        # where it leads on
        ([copy(TARGET, alias_of="https://x.org/u"), copy("https://x.org/u")], "believed"),
        ([copy(TARGET, alias_of="https://x.org/u"), copy("https://x.org/u", status=404)], "error"),
        ([copy(TARGET, alias_of="https://x.org/u"), None], "unknown"),
        ([copy(TARGET, alias_of="https://x.org/page"), copy("https://x.org/page")], "loop"),
        ([copy(TARGET, alias_of="https://x.org/u"), copy("https://x.org/u", alias_of=TARGET), copy(TARGET)], "loop"),
        ([copy(TARGET, alias_of="https://x.org/u")], "loop"),  # longer than is followed
        ([copy(TARGET, names="https://x.org/page")], "loop"),
        ([copy(TARGET, names=TARGET)], "believed"),
    ],
)
def test_a_declared_canonical_is_believed_or_not(chain: list[Copy | None], said: str) -> None:
    page = copy("https://x.org/page", names=chain[0].url if chain and chain[0] else TARGET, body_hash=b"the same")
    assert belief(page, chain) == said
    believed = Verdict(chain[-1].url if chain and chain[-1] else "", "declared", said)
    assert judge(page, [], chain) == (believed if said == "believed" else Verdict(declaration=said))


def test_the_index_vouches_for_a_page_of_another_host() -> None:
    target = copy(ELSEWHERE, simhash=None)
    page = copy("https://x.org/page", names=ELSEWHERE)
    assert judge(page, [Match(target, "near")], [target]) == Verdict(ELSEWHERE, "declared", "believed")


def test_what_is_believed_comes_before_the_rule_and_what_is_not_does_not() -> None:
    target = copy("https://x.org/a/longer/path", 2000.0)
    page = copy("https://x.org/p", names=target.url)
    assert judge(page, [Match(target, "exact")], [target]) == Verdict(target.url, "declared", "believed")
    gone = copy("https://x.org/gone", status=410)
    page = copy("https://x.org/p", names=gone.url)
    assert judge(page, [Match(target, "exact")], [gone]) == Verdict(declaration="error", supersedes=(target.url,))


def test_two_copies_that_name_each_other_are_judged_by_the_rule() -> None:
    one, other = copy("https://x.org/1", names="https://x.org/22"), copy("https://x.org/22", names="https://x.org/1")
    assert judge(one, [Match(other, "near")], [other]) == Verdict(declaration="loop", supersedes=(other.url,))
    assert judge(other, [Match(one, "near")], [one]) == Verdict(one.url, "near", "loop")


# -- ranks ---------------------------------------------------------------------------------------------------------------------


def test_ranks_are_read_from_lines_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "ranks.csv"
    file.write_bytes(
        b"GlobalRank,Domain\n1,First.org\r\n3,third.org,more\n\n9,first.org\n0,zero.org\n-1,minus.org\n5\n"
        b"2,\xff\xfe.org\n99999999999999,far.org\n" + b"7," + b"x" * 10_000 + b"\n8,last.org"
    )
    ranks = DomainRanks.read(str(file))
    assert [ranks(host) for host in ("first.org", "third.org", "last.org")] == [1, 3, 8]
    assert {ranks(host) for host in ("zero.org", "minus.org", "far.org", "other.org", "")} == {NO_RANK}
    assert len(ranks) == 4


def test_a_file_of_ranks_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"CRAWLWEB_DOMAIN_RANKS=.*none\.csv"):
        DomainRanks.read(str(tmp_path / "none.csv"))
