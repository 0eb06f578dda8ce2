"""Which of several pages with the same content is the one that counts, and whether a declared canonical URL is believed.

What the pages say of each other comes first (RFC 6596; `Link` headers and `og:url` say the same), then a rule that is the same whichever of
them asks: authority of the domain, https before http, the shorter URL, the one seen earlier, the URL key. So two workers that hold two
copies at the same moment choose the same one.

A declaration is a hint, and often wrong: a template that names the home page on every page, page 1 named by page 2, a test server's name.
It is believed if what it leads to is there, has the content, and does not lead elsewhere:

    error         the page that it names, or one that leads on from there, answers with an error or is a soft 404
    loop          aliases lead back, or the two pages name each other
    other_content the page that it names shows something else
    unconfirmed   another host is named, and nothing but the declaration says so: that page has to show the same content (what another site
                  says of itself, anybody can write there; its content is what it vouches with)
    unknown       the page that it names was not fetched yet: this page counts until it is, since nobody knows whether it is there
"""

from __future__ import annotations

import csv
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from ..errors import ConfigError
from ..records import Copy, Match

NO_RANK = 2**31 - 1
OTHER_BITS = 16  # of two SimHashes: more differ only where most of the text does
CHAIN_MOST = 4  # aliases of aliases that are followed
_RANKS_MOST = 5_000_000
_LINE_MOST_CHARS = 300

Authority = Callable[[str], int]
"""Host → rank of its domain, 1 first; NO_RANK: not known."""


def no_authority(_: str) -> int:
    return NO_RANK


class DomainRanks:
    """Ranks of domains, 12 bytes each: hashes in order, and the rank of each."""

    def __init__(self, rows: Iterable[tuple[int, str]]) -> None:
        best: dict[int, int] = {}
        for rank, domain in rows:
            key = _domain_key(domain)
            best[key] = min(rank, best.get(key, NO_RANK))
        self._keys = array("Q", sorted(best))
        self._ranks = array("i", (best[key] for key in self._keys))

    @classmethod
    def read(cls, path: str) -> DomainRanks:
        """A file of `rank,domain` lines, as Tranco and Majestic write them; a line that is none (a heading) is left out. ConfigError."""
        try:
            with Path(path).open(encoding="utf-8", errors="replace", newline="") as file:
                return cls(_rows(line for line in file if len(line) <= _LINE_MOST_CHARS))
        except (OSError, csv.Error) as e:
            raise ConfigError(f"CRAWLWEB_DOMAIN_RANKS={path}: {e}") from None

    def __len__(self) -> int:
        return len(self._keys)

    def __call__(self, host: str) -> int:
        key = _domain_key(host)
        at = bisect_left(self._keys, key)
        return self._ranks[at] if at < len(self._keys) and self._keys[at] == key else NO_RANK


def _rows(lines: Iterable[str]) -> Iterable[tuple[int, str]]:
    for n, row in enumerate(csv.reader(lines)):
        if n >= _RANKS_MOST:
            return
        if len(row) >= 2 and row[0].isascii() and row[0].isdecimal() and 0 < int(row[0][:12]) < NO_RANK:
            yield int(row[0][:12]), row[1]


def _domain_key(domain: str) -> int:
    return int.from_bytes(blake2b(domain.strip().lower().encode("utf-8", "replace"), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`duplicate_of`: URL of the page that this one is an alias of, "": it counts itself. `kind`: why it is one: declared, exact, near; "":
    it is none. `declaration`: what became of the declared canonical: believed, self, or why not; "": there was none.
    `supersedes`: URLs of known pages whose place this one takes: they were handed on, and become its aliases."""

    duplicate_of: str = ""
    kind: str = ""
    declaration: str = ""
    supersedes: tuple[str, ...] = ()


def order(copy: Copy, authority: Authority = no_authority) -> tuple[int, bool, int, float, bytes]:
    """The copy that comes first is the canonical one."""
    scheme, _, rest = copy.url.partition("://")
    return authority(copy.host), scheme != "https", len(rest), copy.seen_at, copy.key[:8]


def is_error(copy: Copy) -> bool:
    return not 200 <= copy.status < 300 or "soft_404" in copy.flags


def has_same_content(one: Copy, other: Copy) -> bool | None:
    """None: not to be told."""
    mine, others = one.fingerprint, other.fingerprint
    if {mine.body_hash, mine.text_hash} & {others.body_hash, others.text_hash} - {b""}:
        return True
    if mine.simhash is None or others.simhash is None:
        return None
    return (mine.simhash ^ others.simhash).bit_count() <= OTHER_BITS


def belief(page: Copy, chain: Sequence[Copy | None], same_content: Iterable[bytes] = ()) -> str:
    """What becomes of the declaration of a page: `believed`, `self`, or why not. `chain`: the page that it names, the page that that one is
    an alias of, and so on to the last; None: not known, which ends it. `same_content`: the first 8 bytes of the URL keys of pages that the
    index matched."""
    keys = [page.key[:8]]
    for n, copy in enumerate(chain):
        if copy is None:
            return "unknown"
        if copy.key[:8] in keys:
            return "loop" if n else "self"
        if is_error(copy):
            return "error"
        keys.append(copy.key[:8])
    last = chain[-1] if chain else None
    if last is None:
        return "unknown"
    if last.alias_of or last.declared_key == page.key[:8]:
        return "loop"
    same = True if last.key[:8] in set(same_content) else has_same_content(page, last)
    if same is False:
        return "other_content"
    return "believed" if last.host == page.host or same else "unconfirmed"


def judge(
    page: Copy,
    matches: Sequence[Match],
    chain: Sequence[Copy | None] = (),
    heads: Mapping[bytes, Copy] | None = None,
    authority: Authority = no_authority,
) -> Verdict:
    """`matches`: known pages with its content; `chain`: see `belief`; `heads`: first 8 bytes of the URL key of a match that is an alias →
    the page that it is an alias of, where that is known."""
    groups: dict[bytes, tuple[Copy, str]] = {}  # the pages that count, and how surely they match
    for match in matches:
        copy = (heads or {}).get(match.copy.key[:8], match.copy)
        if is_error(copy):
            copy = match.copy
        if is_error(copy) or copy.key[:8] == page.key[:8]:
            continue
        if groups.get(copy.key[:8], (copy, ""))[1] != "exact":
            groups[copy.key[:8]] = copy, match.kind
    said = belief(page, chain, (*groups, *(match.copy.key[:8] for match in matches))) if page.declared else ""
    if said == "believed" and (target := chain[-1]) is not None:
        return Verdict(duplicate_of=target.url, kind="declared", declaration=said)
    copies = [copy for copy, _ in groups.values()]
    rivals = [copy for copy in copies if copy.declared_key != page.key[:8] or said == "loop"]  # the others leave the place to this page
    best = min((page, *rivals), key=lambda copy: order(copy, authority))
    if best is page:
        return Verdict(declaration=said, supersedes=tuple(sorted(copy.url for copy in copies)))
    return Verdict(duplicate_of=best.url, kind=groups[best.key[:8]][1], declaration=said)
