"""The rules of origins, as far as this worker needs them: in memory for a while, in Redis for a month."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .frontier.frontier import Frontier
from .frontier.rows import Lease
from .policy import robots
from .records import boottime

CACHED = 20_000
CACHED_BYTES = 64 << 20  # of rules: a file of 500 KiB may have 4 MB of them
RULES_S = 3600.0
STALE_S = 60.0  # of a robots.txt that could not be renewed


class Kept(NamedTuple):
    """What Redis has for an origin whose rules are not in memory: an old copy of its robots.txt, where it redirects to."""

    old: robots.Answer | None = None
    hop: robots.Answer | None = None


class Rulebook:
    """`count`: see Worker; `delay_cap_s`: of crawl-delays."""

    def __init__(self, frontier: Frontier, count: Callable[..., None], delay_cap_s: float) -> None:
        self._frontier, self._count, self._delay_cap_s = frontier, count, delay_cap_s
        self._rules: OrderedDict[str, tuple[float, robots.Rules]] = OrderedDict()
        self._bytes = 0  # of them

    def of(self, origin: str) -> robots.Rules | None:
        found = self._rules.get(origin)
        if found is None or found[0] < boottime():
            return None
        self._rules.move_to_end(origin)
        return found[1]

    def learn(self, origin: str, rules: robots.Rules, hold_s: float = RULES_S) -> None:
        rules.sitemaps = []  # they are in Redis
        known = self._rules.pop(origin, None)
        self._rules[origin] = boottime() + min(hold_s, RULES_S), rules
        self._bytes += rules.size_bytes - (known[1].size_bytes if known else 0)
        while len(self._rules) > CACHED or (self._bytes > CACHED_BYTES and len(self._rules) > 1):
            self._bytes -= self._rules.popitem(last=False)[1][1].size_bytes

    async def look_up(self, leases: Iterable[Lease]) -> dict[str, Kept]:
        """Learns what Redis has fresh, or what holds, for the origins of leases; the rest it returns."""
        unknown: dict[str, set[str]] = defaultdict(set)
        for lease in leases:
            origin = robots.origin_of(lease.entry.url)
            if self.of(origin) is None:
                unknown[lease.host].add(origin)
        kept: dict[str, Kept] = {}
        asked = [(host, sorted(origins)) for host, origins in unknown.items()]
        for (_, origins), rows in zip(asked, await asyncio.gather(*(self._frontier.robots(h, o) for h, o in asked)), strict=True):
            for origin, row in zip(origins, rows, strict=True):
                if row is None:
                    continue
                answer, hop = self._unpacked(row.value), self._unpacked(row.hop)
                answer = answer if answer and answer.decision != "redirect" else None
                kept[origin] = Kept(answer, hop if hop and hop.decision == "redirect" else None)
                if answer is not None:
                    fresh_s = answer.ttl_s - (robots.KEPT_S - row.left_s)
                    if fresh_s > 0 or row.holds:
                        self.learn(origin, robots.Rules(answer, self._delay_cap_s), fresh_s if fresh_s > 0 else STALE_S)
        return kept

    def _unpacked(self, value: bytes | None) -> robots.Answer | None:
        try:
            return None if value is None else robots.Answer.unpack(value)
        except robots.NotRobots:
            self._count("quarantined")
            return None
