"""What an operator reads of a crawl: a host's place and clock, dead letters. Reads only; field by field as lua/host.lua has them."""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgpack  # type: ignore[import-untyped]
from redis.asyncio import Redis

from ..errors import ConfigError, FrontierError
from ..records import Entry
from . import codec, scripts
from .frontier import Frontier
from .keys import crawl_key
from .meta import Agreed
from .rows import Limits, Override

STATES = {
    "w": "waiting",
    "r": "ready",
    "f": "in flight",
    "a": "asleep",
    "b": "asleep, its origins are blocked",
    "": "no URLs but those that wait by themselves",
}
HOST_FIELDS = ("s", "k", "n", "f", "l", "c", "cd", "p", "b", "h", "x", "xr", "o")
_PAGE = 1000  # members of a list or zset read at a time


@dataclass(frozen=True, slots=True)
class OriginTrouble:
    """`failures`: in a row, the first `since_s` ago; `blocked_s`, `dead_s`: until it is tried again; `urls`: that wait for it."""

    origin: str
    reason: str
    failures: int
    since_s: float
    blocked_s: float
    dead_s: float
    urls: int


@dataclass(frozen=True, slots=True)
class HostView:
    """`front_queue`: where its token stands; a first URL that travels with it is in neither `back` nor `park`. `next_s`: until its next
    request may begin, pauses included. `delay_from`: minimum, crawl-delay, latency, override. `push_back_s`: gap after 429, halved by every
    answer. `cold`: of the park list, on disk. `wait`: URLs that wait by themselves or for their origin. `dead_s`: left of being dead.
    `rests`: times in a row that it rested because its pages look like refusals, since `refused_s`."""

    host: str
    state: str
    front_queue: int | None
    next_s: float
    delay_s: float
    delay_from: str
    latency_s: float | None
    crawl_delays_s: dict[str, float]
    push_back_s: float
    in_flight: int
    back: int
    park: int
    cold: int
    wait: int
    origins: tuple[OriginTrouble, ...]
    dead_s: float
    dead_reason: str
    rests: int
    refused_s: float
    override: Override | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`at`: Unix time; `entry`: None if it cannot be read."""

    at: float
    host: str
    reason: str
    entry: Entry | None
    error: str = ""  # the last one, in words


async def begun(redis: Redis, crawl: str, worker: str, suffixes: str) -> Frontier:
    """The frontier of a crawl, with what its workers agreed on; `suffixes`: our public suffix list. FrontierError if Redis does not answer,
    now or later; ConfigError if there is no such crawl, or if it names keys or hosts otherwise than this release."""
    frontier = Frontier(redis, crawl, 1, worker)
    frontier.closing = True
    raw = await frontier.patiently(lambda: cast(Any, redis.hgetall(crawl_key(crawl, "meta"))))
    meta = {_text(name): _text(value) for name, value in raw.items()}
    if not meta:
        raise ConfigError(f"CRAWLWEB_CRAWL={crawl}: no such crawl was begun here")
    agreed = Agreed.read(crawl, meta)
    if meta.get("suffixes") != suffixes:
        raise ConfigError(f"suffixes={suffixes}: the crawl {crawl!r} was begun with {meta.get('suffixes')}")
    frontier.partitions = agreed.partitions
    frontier.limits = Limits(
        min_delay_s=agreed.min_delay_s,
        latency_factor=agreed.latency_factor,
        ip_delay_s=agreed.ip_delay_s,
        seen=agreed.seen,
        false_positives=agreed.false_positives,
    )
    return frontier


async def server_time(frontier: Frontier) -> float:
    """Unix time, as pauses end by it."""
    seconds, micros = await frontier.patiently(lambda: cast(Any, frontier.redis.time()))
    return int(seconds) + int(micros) / 1e6


async def host_view(frontier: Frontier, host: str) -> HostView | None:
    """None: nothing is known of the host."""
    p = frontier.partition_of(host)
    ctr, park_key = frontier.key(p, "ctr"), frontier.key(p, f"park:{host}")
    pairs = await frontier.patiently(lambda: scripts.run(frontier.redis, "peek", ctr, frontier.worker, 0, host))
    last_now, back, head, tail, chunks = await _read(
        frontier,
        ("HGET", ctr, "now"),
        ("ZCARD", frontier.key(p, f"back:{host}")),
        ("LLEN", park_key),
        ("LLEN", f"{park_key}:tail"),
        ("LRANGE", f"{park_key}:chunks", 0, -1),
    )
    park = (head or 0) + (tail or 0)
    infos = [
        _text(info).split("\t") for info in await _read(frontier, *(("HGET", frontier.key(p, "cold"), chunk) for chunk in chunks or ()))
    ]
    found = dict(zip(*[iter(pairs or ())] * 2, strict=True))
    h = {name: found[name.encode()] for name in HOST_FIELDS if name.encode() in found}
    if not (h or back or park):
        return None
    now_ms = max(await server_time(frontier) * 1000, _number(last_now))

    def left_s(until: object) -> float:
        return max(0.0, _number(until) - now_ms) / 1000

    def since_s(start: object) -> float:
        return max(0.0, now_ms - _number(start)) / 1000 if start else 0.0

    troubles = {origin: o if isinstance(o, dict) else {} for origin, o in _map(h.get("b")).items()}
    lengths = [n or 0 for n in await _read(frontier, *(("LLEN", frontier.key(p, f"wait:{host} {origin}")) for origin in troubles))]
    override = None
    with contextlib.suppress(ValueError):
        override = Override.unpack(_text(h.get("o")))
    state = _text(h.get("s"))
    latency_s, crawl_delay_s = (_number(h.get(name)) / 1000 for name in "lc")
    _, _, refused, rests = ([_number(text) for text in _text(h.get("h")).split()] + [0.0] * 4)[:4]
    delay_s, delay_from = _delay(frontier.limits, latency_s, crawl_delay_s, override)
    return HostView(
        host=host,
        state=STATES.get(state, state),
        front_queue=int(_number(h.get("k"))) if state == "w" else None,
        next_s=max(left_s(h.get("n")), left_s(override.pause_until * 1000) if override and override.pause_until else 0.0),
        delay_s=delay_s,
        delay_from=delay_from,
        latency_s=latency_s if "l" in h else None,
        crawl_delays_s={o: _number(row[0]) / 1000 for o, row in _map(h.get("cd")).items() if isinstance(row, list) and row},
        push_back_s=_number(h.get("p")) / 1000,
        in_flight=int(_number(h["f"])) if "f" in h else int(state == "f"),
        back=back or 0,
        park=park,
        cold=sum(int(_number(info[2]) - _number(info[1])) for info in infos if len(info) == 4),
        wait=sum(lengths) + await _waiting(frontier, p, host),
        origins=tuple(
            OriginTrouble(
                origin,
                reason=_text(o.get("r")),
                failures=int(_number(o.get("f"))),
                since_s=since_s(o.get("s")),
                blocked_s=left_s(o.get("u")),
                dead_s=left_s(o.get("d")),
                urls=urls,
            )
            for (origin, o), urls in zip(troubles.items(), lengths, strict=True)
        ),
        dead_s=left_s(h.get("x")),
        dead_reason=_text(h.get("xr")) if left_s(h.get("x")) else "",
        rests=int(rests),
        refused_s=since_s(refused) if rests else 0.0,
        override=override,
    )


async def newest_dead_letters(frontier: Frontier, most: int, reason: str = "", host: str = "") -> list[DeadLetter]:
    """Newest first; only those with a reason, of a host."""
    newest: list[DeadLetter] = []
    for p in _partitions(frontier, host):
        found = 0
        async for letter in _letters(frontier, p, reason, host):
            newest.append(letter)
            found += 1
            if found == most:
                break
        newest = sorted(newest, key=lambda letter: -letter.at)[:most]
    return newest


async def count_dead_letters(frontier: Frontier, reason: str = "", host: str = "") -> Counter[str]:
    """By reason."""
    return Counter([letter.reason for p in _partitions(frontier, host) async for letter in _letters(frontier, p, reason, host)])


def _partitions(frontier: Frontier, host: str) -> Sequence[int]:
    return [frontier.partition_of(host)] if host else range(frontier.partitions)


async def _letters(frontier: Frontier, partition: int, reason: str, host: str) -> AsyncIterator[DeadLetter]:
    """A partition's, newest first. Counted from the oldest: new ones shift no place."""
    key = frontier.key(partition, "dead")
    (left,) = await _read(frontier, ("LLEN", key))
    while left:
        (rows,) = await _read(frontier, ("LRANGE", key, -left, -left + _PAGE - 1 if left > _PAGE else -1))
        for row in rows or ():
            letter = _letter(row)
            if letter and reason in ("", letter.reason) and host in ("", letter.host):
                yield letter
        left = max(0, left - _PAGE)


def _letter(row: bytes) -> DeadLetter | None:
    ms, host, reason, data = (*row.split(b"\t", 3), b"", b"", b"")[:4]
    if not ms.isdigit():
        return None
    entry = None
    with contextlib.suppress(ValueError):
        entry = codec.decode(data, _text(host))
    kind, _, error = _text(reason).partition(": ")
    return DeadLetter(_number(ms) / 1000, _text(host), kind, entry, error)


async def _waiting(frontier: Frontier, partition: int, host: str) -> int:
    """URLs of the host in the partition's `wait`, which is looked through."""
    pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", host) + "\t*"
    found: set[bytes] = set()
    cursor = 0
    while True:
        (answer,) = await _read(frontier, ("ZSCAN", frontier.key(partition, "wait"), cursor, "MATCH", pattern, "COUNT", _PAGE))
        cursor, rows = answer or (0, [])
        found.update(rows[::2])
        if not int(cursor):
            return len(found)


async def _read(frontier: Frontier, *commands: tuple[Any, ...]) -> list[Any]:
    """The answers, read in one moment; None where a key is of another type. FrontierError for any other answer that is an error."""
    answers = await frontier.at_once(*commands) if commands else []
    for answer in answers:
        if isinstance(answer, Exception) and not str(answer).startswith("WRONGTYPE"):
            raise FrontierError(str(answer)) from answer
    return [None if isinstance(answer, Exception) else answer for answer in answers]


def _delay(limits: Limits, latency_s: float, crawl_delay_s: float, override: Override | None) -> tuple[float, str]:
    """The delay, and the largest of what it is made of (lua/host.lua, delay_of)."""
    least_s = limits.min_delay_s
    if override and override.delay_s is not None:
        parts = {"override": override.delay_s, "minimum": 0.0 if override.below_minimum else least_s}
    else:
        by_latency_s = min(limits.latency_factor * latency_s, limits.latency_cap_s)
        parts = {"minimum": least_s, "crawl-delay": crawl_delay_s, "latency": by_latency_s}
    largest = max(parts, key=lambda name: parts[name])
    return parts[largest], largest


def _map(packed: bytes | None) -> dict[str, Any]:
    """A map packed by a script: {} for anything else. An empty table in it is a list."""
    if packed is None:
        return {}
    try:
        found = msgpack.unpackb(packed, raw=False, unicode_errors="replace", strict_map_key=False)
    except Exception:  # msgpack has many for what is no msgpack
        return {}
    return {str(name): row for name, row in found.items()} if isinstance(found, dict) else {}


def _number(value: object) -> float:
    """0 for what is none."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
