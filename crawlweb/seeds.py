"""What the user starts a crawl with: the spider's arguments, and seeds from the command line or a file that is streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, BinaryIO

from .default_settings import MOST_PAGES
from .errors import ConfigError
from .frontier.rows import EXACT, Link
from .policy.canonical import Canonicalizer
from .policy.priority import SEED_QUEUE
from .policy.scope import Scope
from .records import Entry, Target

BATCH = 1000
LINES_AT_ONCE = 5000
MAX_LINE_BYTES = 65_536


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
    if not least <= number <= MOST_PAGES:
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


@dataclass(frozen=True, slots=True)
class BadLine:
    """Where it stands, and what is wrong. `links_before`: links of its batch that stand before it."""

    text: str
    links_before: int


@dataclass(frozen=True, slots=True)
class SeedBatch:
    links: list[Link]
    bad: list[BadLine]


class SeedLines:
    """Seeds that are read once and may be bad: URLs, `@file`, or `-` for `stdin`."""

    def __init__(self, words: Sequence[str], canonicalizer: Canonicalizer, stdin: BinaryIO) -> None:
        self._words, self._canonicalizer, self._stdin = words, canonicalizer, stdin

    def batches(self) -> Iterator[SeedBatch]:
        """Blocks while it reads. ConfigError for a file that cannot be read."""
        lines = self._lines()
        while some := list(islice(lines, LINES_AT_ONCE)):
            batch = SeedBatch([], [])
            for where, line in some:
                text = _text(line)
                target = self._canonicalizer.target(text) if text is not None else None
                if target is not None:
                    batch.links.append(Link(target.host, target.key, Entry(target.url, priority=SEED_QUEUE), EXACT))
                else:
                    why = "longer than a URL may be, or not UTF-8" if text is None else f"{text[:200]!r} is not an http or https URL"
                    batch.bad.append(BadLine(f"{where}{why}", len(batch.links)))
            yield batch

    def _lines(self) -> Iterator[tuple[str, bytes | None]]:
        for word in self._words:
            if word == "-":
                yield from _numbered(self._stdin, "standard input")
            elif word.startswith("@"):
                try:
                    with open(word[1:], "rb") as file:
                        yield from _numbered(file, word[1:])
                except (OSError, ValueError) as e:
                    raise ConfigError(f"seeds {word}: {getattr(e, 'strerror', None) or e}") from None
            else:
                yield "", word.encode(errors="surrogateescape")


def _text(line: bytes | None) -> str | None:
    try:
        return None if line is None else line.decode().strip()
    except UnicodeDecodeError:
        return None


def _numbered(stream: BinaryIO, name: str) -> Iterator[tuple[str, bytes | None]]:
    """Lines with something in them that is no comment; None for one that is too long."""
    for number in count(1):
        line = part = stream.readline(MAX_LINE_BYTES)
        if not line:
            return
        while len(part) == MAX_LINE_BYTES and not part.endswith(b"\n"):
            part = stream.readline(MAX_LINE_BYTES)
        is_whole = line is part or not part
        text = line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").strip()
        if text and not text.startswith(b"#"):
            yield f"{name}, line {number}: ", text if is_whole else None
