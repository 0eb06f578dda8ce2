"""What the user starts a crawl with: the spider's arguments, and seeds from the command line or a file that is streamed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .frontier.rows import EXACT, Link
from .policy.canonical import Canonicalizer
from .policy.priority import SEED_QUEUE
from .policy.scope import Scope
from .records import Entry, Target

BATCH = 1000


@dataclass(frozen=True, slots=True)
class SpiderArguments:
    """`seeds`: URLs with commas between them, or `@file`. None: not given."""

    seeds: str | None = None
    scope: str | None = None
    max_pages: int | None = None
    max_depth: int | None = None

    @classmethod
    def parse(cls, seeds: str | None = None, scope: str | None = None, max_pages: Any = None, max_depth: Any = None) -> SpiderArguments:
        """From the text of `-a name=value`; ConfigError names the argument and its value."""
        if scope is not None:
            Scope(scope)  # type: ignore[arg-type]
        return cls(seeds, scope, _natural("max_pages", max_pages, 1), _natural("max_depth", max_depth, 0))


def _natural(name: str, value: Any, least: int) -> int | None:
    if value is None or value == "":
        return None
    try:
        number = int(str(value))
    except (TypeError, ValueError):
        number = least - 1
    if number < least:
        raise ConfigError(f"{name}={value!r}: a whole number of at least {least} expected")
    return number


class SeedSource:
    """Reads the seeds twice: once to check them all before anything is changed, once to send them."""

    def __init__(self, seeds: str | None, canonicalizer: Canonicalizer) -> None:
        self._seeds = seeds or ""
        self._canonicalizer = canonicalizer

    def check(self) -> None:
        """ConfigError for the first seed that is no http or https URL, or a file that cannot be read. Reads a file: call it in a thread."""
        for _ in self.targets():
            pass

    def targets(self) -> Iterator[Target]:
        for where, text in self._texts():
            target = self._canonicalizer.target(text)
            if target is None:
                raise ConfigError(f"seeds: {where}{text!r} is not an http or https URL")
            yield target

    def batches(self) -> Iterator[list[Link]]:
        links = (Link(t.host, t.key, Entry(t.url, priority=SEED_QUEUE), EXACT) for t in self.targets())
        while batch := list(islice(links, BATCH)):
            yield batch

    def _texts(self) -> Iterator[tuple[str, str]]:
        if not self._seeds.startswith("@"):
            yield from (("", text.strip()) for text in self._seeds.split(",") if text.strip())
            return
        path = Path(self._seeds[1:])
        try:
            with path.open(encoding="utf-8-sig", errors="replace") as lines:
                for number, line in enumerate(lines, 1):
                    text = line.strip()
                    if text and not text.startswith("#"):
                        yield f"{path}, line {number}: ", text
        except (OSError, ValueError) as e:
            raise ConfigError(f"seeds=@{path}: {getattr(e, 'strerror', None) or e}") from None
