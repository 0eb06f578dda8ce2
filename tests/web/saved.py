"""Hosts that show real pages, saved in a folder, under every path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zlib import crc32

from .sites import Answer, Request, Site

_LEAST_BYTES, _MOST_BYTES = 500, 1_000_000
_NAMES_OF_FORMATS = rb"(?:www\.)?(?:w3\.org/(?:1999|2000|TR)/|schema\.org|ogp\.me/|purl\.org/)"
_ORIGIN = re.compile(rb"http(?:s?:(?:\\?/){2}(?!" + _NAMES_OF_FORMATS + rb")([A-Za-z0-9._-]+)(?::\d+)?)")
_ORIGIN_WITHOUT_SCHEME = re.compile(rb"(?<=[\"'=])//([A-Za-z0-9.-]+\.[A-Za-z]{2,})")
_LINK = re.compile(rb"<a\s[^>]*?href\s*=", re.I)


@dataclass
class Saved(Site):
    """A page of a folder's (.html and .htm files anywhere below it, of 500 B to 1 MB) under any path: which one follows from the URL. Bytes
    are kept as they are, their links too, but that every host they name is replaced by a host of this web, always the same. So relative
    links lead on within the host, absolute ones to others, and nowhere out of the web; and the web has no end."""

    folder: str = ""
    files: int = 2000
    """So many are taken, the same ones each time."""

    def join(self, seed: int, port: int, peers: tuple[str, ...]) -> None:
        super().join(seed, port, peers)
        origins = tuple(self.url("", name) for name in sorted((self.name, *self.peers)))
        self._bodies = _bodies(self.folder, self.files, origins)

    def respond(self, request: Request) -> Answer:
        body = self._bodies[crc32(f"{request.host}{request.target}".encode()) % len(self._bodies)]
        return Answer(body, content_type="text/html", page=request.target)

    def reachable(self) -> frozenset[str]:
        return frozenset()


def saved_pages(folder: str, most: int) -> Iterator[bytes]:
    """ValueError if there is none."""
    found = [
        (crc32(str(path.relative_to(folder)).encode(errors="replace")), path)
        for parent, _, names in os.walk(folder, followlinks=True)
        for path in (Path(parent, name) for name in names if name.lower().endswith((".html", ".htm")))
        if path.is_file() and _LEAST_BYTES <= path.stat().st_size <= _MOST_BYTES
    ]
    if not found:
        raise ValueError(f"no HTML file of {_LEAST_BYTES:,} to {_MOST_BYTES:,} B in {folder}")
    for _, path in sorted(found)[:most]:
        yield path.read_bytes()


def means(folder: str, most: int) -> tuple[int, float, float]:
    """How many pages, their mean size in bytes, and their mean number of links."""
    counted = [(len(body), len(_LINK.findall(body))) for body in saved_pages(folder, most)]
    return len(counted), sum(size for size, _ in counted) / len(counted), sum(links for _, links in counted) / len(counted)


@lru_cache(maxsize=1)
def _bodies(folder: str, most: int, origins: tuple[str, ...]) -> tuple[bytes, ...]:
    encoded = [origin.encode() for origin in origins]

    def ours(found: re.Match[bytes]) -> bytes:
        return encoded[crc32(found[1].lower()) % len(encoded)]

    return tuple(_ORIGIN_WITHOUT_SCHEME.sub(ours, _ORIGIN.sub(ours, body)) for body in saved_pages(folder, most))
