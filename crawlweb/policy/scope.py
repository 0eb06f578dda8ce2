"""Scope: whether a URL belongs to this crawl."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal, get_args

from ..errors import ConfigError
from ..records import Target
from .hosts import bare_name, split_port

Kind = Literal["any", "domain", "host"]


@dataclass(frozen=True, slots=True)
class Scope:
    """`any`: the whole web; `domain`: hosts (registered domains) of seeds; `host`: exact names of seeds, `www.` ignored."""

    kind: Kind = "any"
    names: AbstractSet[str] = frozenset()  # what `scope_name` gives for the seeds

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ConfigError(f"scope={self.kind!r}: one of {', '.join(get_args(Kind))}")

    def contains(self, target: Target) -> bool:
        return self.kind == "any" or scope_name(self.kind, target) in self.names


def scope_name(kind: Kind, target: Target) -> str:
    """What a target is compared by, and what a seed adds to the scope's names: empty for `any`."""
    if kind == "domain":
        return target.host
    if kind == "host":
        return bare_name(split_port(target.url.split("/", 3)[2])[0])
    return ""


def in_depth(depth: int, max_depth: int | None) -> bool:
    """Links from the nearest seed, which has depth 0; None is no limit."""
    return max_depth is None or depth <= max_depth
