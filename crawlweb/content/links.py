"""What stands in the places of a page that hold links: hrefs, meta refresh, srcset, Link headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urljoin

MAX_CANDIDATES = 16  # of a srcset
MAX_HEADER_LINKS = 100
MAX_HEADER_CHARS = 65_536
MAX_PARAMETERS = 50  # of a link in a header

C0_AND_SPACE = "".join(map(chr, range(0x21)))
NO_LINK = re.compile(r"#|(?:javascript|mailto|tel|data|about|blob|sms):|$", re.IGNORECASE)
REL_LINKS = frozenset(("next", "prev", "alternate"))
PAGE_TYPES = re.compile(r"^$|html|rss|atom|\bxml$", re.IGNORECASE)

_ABSOLUTE = re.compile(r"https?://[A-Za-z0-9.:-]+/[A-Za-z0-9_~,!$%&*+=:@/.-]*(?:\?[A-Za-z0-9_~,!$%&*+=:@/.-]+)?").fullmatch
_REFRESH = re.compile(r"[\d.]*[\s;,]+(?:url\s*=\s*)?(.+)", re.IGNORECASE | re.DOTALL)
_CANDIDATE = re.compile(r"[\s,]*(\S+)")
_DESCRIPTORS = re.compile(r"(?:[^,(]|\([^)]*\)?)*")
_TARGET = re.compile(r"[\s,]*<([^>]*)>")
_PARAMETER = re.compile(r"""\s*;\s*([^\s;,="<>]*)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)(?:"|$)|([^\s;,"]*)))?""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HeaderLink:
    """A link whose context is the page itself."""

    url: str  # absolute, http or https
    rel: str
    type: str = ""
    hreflangs: tuple[str, ...] = ()


def http_url(base_url: str, href: str) -> str | None:
    """`href` made absolute; None where it leads out of the web."""
    if _ABSOLUTE(href):  # as most canonical URLs and alternates are: no need to take it apart
        return href
    try:
        url = urljoin(base_url, href.strip(C0_AND_SPACE))
    except ValueError:
        return None
    return url if url[:8].lower().startswith(("http://", "https://")) else None


def refresh_target(content: str) -> str:
    """URL of a meta refresh, `5; url='/next'`; "" without one."""
    match = _REFRESH.match(content.strip())
    if match is None:
        return ""
    target = match[1]
    return (target[1:].split(target[0], 1)[0] if target[0] in "\"'" else target).strip(C0_AND_SPACE)


def srcset_urls(srcset: str) -> Iterator[str]:
    """URLs of the candidates (HTML 4.8.4.2.2), as written."""
    position = 0
    for _ in range(MAX_CANDIDATES):
        found = _CANDIDATE.match(srcset, position)
        if found is None:
            return
        url = found[1].rstrip(",")
        if url:
            yield url
        position = found.end()
        if url == found[1] and (descriptors := _DESCRIPTORS.match(srcset, position)):
            position = descriptors.end()


def header_links(values: Iterable[str], url: str) -> list[HeaderLink]:
    """Links of all `Link` headers of the page at `url` (RFC 8288, section 3 and appendix B.2).

    Left out: links of another context (`anchor`), links without a relation, and those that lead out of the web. What is
    malformed ends at the next `<`.
    """
    found: list[HeaderLink] = []
    header = ",".join(values)[:MAX_HEADER_CHARS]
    position = 0
    while len(found) < MAX_HEADER_LINKS and (start := header.find("<", position)) >= 0:
        target = _TARGET.match(header, start)
        if target is None:
            break
        parameters, position = _parameters(header, target.end())
        absolute = http_url(url, target[1])
        rel = next((value for name, value in parameters if name == "rel"), "")
        anchor = next((value for name, value in parameters if name == "anchor"), None)
        if absolute and rel.strip() and (anchor is None or _same_page(url, anchor)):
            hreflangs = tuple(value for name, value in parameters if name == "hreflang" and value)
            found.append(HeaderLink(absolute, rel, next((value for name, value in parameters if name == "type"), ""), hreflangs))
    return found


def _parameters(header: str, position: int) -> tuple[list[tuple[str, str]], int]:
    """Names in lower case with values, and where they end."""
    found: list[tuple[str, str]] = []
    while len(found) < MAX_PARAMETERS and (match := _PARAMETER.match(header, position)):
        position = match.end()
        value = _ESCAPED.sub(r"\1", match[2]) if match[2] is not None else match[3] or ""
        found.append((match[1].lower(), value))
    return found, position


def _same_page(url: str, anchor: str) -> bool:
    return (http_url(url, anchor) or "").partition("#")[0] == url.partition("#")[0]
