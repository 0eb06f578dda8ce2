"""Soft 404s: pages of status 200 that are error pages, by what they say and by likeness to error pages of their host.

From the page alone: a small logistic model over what title, headings and text say (docs/decisions/soft-404.md), found by phrases in 41
languages. "404 not found" as a whole heading means it, the same words in an article's title do not: of a title or heading the share of
letters that such phrases cover counts, and little text must follow.

By likeness: the shape of a page is a hash of its title and first headings, and a SimHash of its text (Charikar, "Similarity estimation
techniques from rounding algorithms", 2002), all without what error pages echo: words of the URL, and numbers. Menus alone make the texts
of a site alike, so both must agree. A page with hardly any text has no shape: shells that a script fills are alike, whatever they are
filled with.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from urllib.parse import unquote, urlsplit

from ..records import Page
from .error_words import PHRASES, WORDS

THRESHOLD = 0.5  # of `score`
SHAPE_BYTES = 8
HEAD_BYTES = 3  # of them, for title and heading; the rest is the SimHash
LIKE = 0.8  # 8 of 40 bits may differ,
SURELY_LIKE = 0.97  # or 1, where title and headings are the site's name, which all its pages may have
HEADINGS = 2  # of a page that count
LEAST_TOKENS = 5  # of a text that has a shape
MAX_SHAPE_CHARS = 6_000
MAX_PLAIN_WORDS, MAX_PLAIN_CHARS = 10_000, 20  # remembered by a process: words that hold no phrase

_LEAD_CHARS = 250
_TEXT_CHARS = 1_500  # of longer texts only the lead is read
_SHORT_CHARS, _LONG_CHARS = 300, 4_000  # of text that follows
_TITLE_CHARS = 300

_STATUS = re.compile(r"(?<![\w.,/$€£-])(?:40[0134568]|410|429|451|50[0234]|52[0-6])(?![\w,/%€$£]|\.\d)")
_MAY_BE_STATUS = re.compile(r"[45]\d\d")
_ERROR = "(?:error|fehler|erreur|erro|errore|http|status|code|virhe|fel|fout|blad|chyba|hata|ошибка|エラー|错误|錯誤|오류)"
_SAID_STATUS = re.compile(rf"{_ERROR}\W{{0,3}}[45]\d\d\b|\b[45]\d\d\W{{0,3}}(?:{_ERROR}|page\b|not found)")
_DEFAULTS = re.compile(
    "apache2? (?:\\w+ )?default page|welcome to nginx|test page for the (?:apache|nginx|http)|web server's default page|iis windows server|"
    "default web site page|it works!$|placeholder page|website is hosted by|there isn't a github pages site here|no such app|nosuchkey|"
    "nosuchbucket|^cannot get /|just a moment\\.\\.\\.|attention required!|enable javascript and cookies to continue|"
    "sorry, you have been blocked|default page of this server|parked free|buy this domain"
)
_HELP = re.compile(
    r"home ?page|go (?:back|home)|go to the|back to|return to|spelling|check the (?:url|address)|mistyped|typed|webmaster"
    r"|contact (?:us|the|support)|startseite|accueil|inicio|pagina principal|hjem|etusivu|domu|fooldal|главную|ana sayfa|"
    r"ホーム|首页|首頁|홈|try again|later"
)
_ABOUT = re.compile(r"\b(?:how|why|what|fix|fixing|guide|tutorial|wie|warum|comment|pourquoi|como|come|perche|hoe|hur|jak|как|почему)\b")
_BREAKS = re.compile(r"\s[|·•–—»«:-]+\s|[|·•»«]|: ")
_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0900-\u0dff\u0e31-\u0e4e\u3099\u309a])*")  # with vowel signs, which are no letters
_NO_SPACES = "\u0e00"  # from Thai on, scripts may part no words
_PIECE = re.compile(r"[^\s.,;:!?()\"“”„«»¡¿|…]+")
_INDEX = re.compile(r"/(?:index|default|home)\.[a-z]{2,5}", re.IGNORECASE)
_FAR = re.compile("[\u0400-\u1fff\u3000-\uffff]")  # of the scripts of `_INSIDE`
_DIGIT = re.compile(r"\d")
_ACCENTS = re.compile("[\u0300-\u036f]")
_PLAIN = tuple(zip("łøđıßæœ’ʼ", "lodisao''", strict=True))


# Set by hand, near the fit on half of the data (bench/soft_404.py --fit). There most error pages are of one program and say it in title,
# heading and text; of others a title or a heading alone must do, while a status or a phrase in the text must not.
_WEIGHTS = {
    "bias": -4.5,
    "title": 4.0,
    "heading": 3.6,
    "lead": 1.5,
    "text": 2.0,
    "status": 1.5,
    "short": 1.2,
    "help": 0.6,
    "noindex": 0.3,
    "default": 5.0,
}


def signals(page: Page) -> dict[str, float]:
    """What speaks for an error page, each 0 to 1. Of the main text where there is one: menus stand before what an error page says."""
    size = len(page.text)
    main = page.main_text or page.text
    title, text = _plain(page.title[:_TITLE_CHARS]), _plain(main if len(main) <= _TEXT_CHARS else main[:_LEAD_CHARS])
    headings = [_plain(heading) for heading in page.headings]
    said = "\n".join((title, *headings, text))
    phrases = _phrases(said)
    may_have_status = _MAY_BE_STATUS.search(said) is not None

    of_title = 0.0
    for part in _BREAKS.split(title):
        is_most = len(title) - len(part) <= 3 * len(part)
        of_title = max(of_title, _says(part, phrases) * (1.0 if is_most else 0.5))
    of_headings = [_says(heading, phrases) for heading in headings]
    of_heading, follow = 0.0, size
    statuses = {match[0] for heading in headings if (match := _STATUS.search(heading))} if may_have_status else ()
    is_list = len(statuses) > 1 or sum(share > 0.3 for share in of_headings) > 4
    if headings and not is_list:
        at = max(range(len(headings)), key=of_headings.__getitem__)
        of_heading = of_headings[at] * min(1.0, 3 / (1 + at))
        if of_heading and (start := page.text.rfind(page.headings[at])) >= 0:
            follow = min(size - start, len(main))
    short = _share(follow, _LONG_CHARS, _SHORT_CHARS)
    not_long = _share(size, 8 * _LONG_CHARS, _LONG_CHARS) * (not is_list)
    is_short = len(main) <= _TEXT_CHARS and not is_list
    has_status = may_have_status and (
        any(map(_STATUS.search, (title, *headings))) or _SAID_STATUS.search(text) is not None or _STATUS.match(text) is not None
    )
    return {
        "title": of_title * not_long,
        "heading": of_heading * min(1.0, 2 * short),
        "lead": min(1.0, _hits(text[:_LEAD_CHARS], phrases) / 2) * not_long,
        "text": min(1.0, _hits(text, phrases) * 150 / max(len(main), 1)) * is_short,
        "status": float(has_status) * not_long,
        "short": short,
        "help": float(is_short and bool(_HELP.search(text))),
        "noindex": float(any(name.lower() == "robots" and "noindex" in content.lower() for name, content in page.robots)),
        "default": float(is_short and bool(_DEFAULTS.search(title) or _DEFAULTS.search(text))),
    }


def probability(given: Mapping[str, float], weights: Mapping[str, float] = _WEIGHTS) -> float:
    return 1.0 / (1.0 + math.exp(-weights["bias"] - sum(weights[name] * value for name, value in given.items())))


def score(page: Page, url: str = "", shapes: Iterable[bytes] = ()) -> float:
    """How likely it is that a page of status 200 is an error page, 0 to 1. `shapes`: of known error pages of its host. A home page is none
    for being like one: there are hosts that answer everything with it."""
    return 1.0 if is_like(page, url, shapes) else probability(signals(page))


def is_error(page: Page, url: str = "", shapes: Iterable[bytes] = ()) -> bool:
    return score(page, url, shapes) >= THRESHOLD


def is_home(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return not parts.query and (parts.path in ("", "/") or _INDEX.fullmatch(parts.path) is not None)


def shape(page: Page, url: str) -> bytes:
    """`SHAPE_BYTES` bytes; b"": there is too little text to tell it from others."""
    echo = _echo(url)
    tokens = _tokens(page.text[:MAX_SHAPE_CHARS], echo)
    if len(tokens) < LEAST_TOKENS:
        return b""
    return _head(page, echo) + _simhash(tokens)


def is_like(page: Page, url: str, shapes: Iterable[bytes]) -> bool:
    """Is it like one of these error pages? No home page is."""
    shapes = tuple(shapes)
    if not shapes or is_home(url):
        return False
    echo = _echo(url)
    head = _head(page, echo)
    if not any(other.startswith(head) for other in shapes):
        return False
    said = set().union(*(_tokens(line, echo) for line in (page.title, *page.headings[:HEADINGS])))
    host = (urlsplit(url).hostname or "").replace("-", "")
    return likeness(shape(page, url), shapes) >= (SURELY_LIKE if all(token in host for token in said) else LIKE)


def likeness(own: bytes, shapes: Iterable[bytes]) -> float:
    """Of a shape to the nearest of others, 0 to 1; 0 if title or headings are other ones, or there is none."""
    bits, most = int.from_bytes(own[HEAD_BYTES:], "big"), 8 * (SHAPE_BYTES - HEAD_BYTES)
    near = [int.from_bytes(other[HEAD_BYTES:], "big") for other in shapes if own and other.startswith(own[:HEAD_BYTES])]
    return max((1.0 - bin(bits ^ other).count("1") / most for other in near), default=0.0)


def _share(size: int, none: int, full: int) -> float:
    """1 for sizes up to `full`, 0 from `none` on, logarithmic between."""
    return min(1.0, max(0.0, math.log(none / max(size, 1)) / math.log(none / full)))


def _phrases(text: str) -> list[str]:
    """Those in `text`, the longest first. Phrases of several words are looked for by their first: a third of the time."""
    words = set(_PIECE.findall(text))
    found = {phrase for word in words & _BY_FIRST.keys() for phrase in _BY_FIRST[word] if phrase in text}
    if new := words - _plain_words:
        joined = " ".join(new)
        if inside := [phrase for phrase in _INSIDE_ASCII if phrase in joined]:
            found.update(inside)
        else:
            if len(_plain_words) > MAX_PLAIN_WORDS:
                _plain_words.clear()
            _plain_words.update(word for word in new if len(word) <= MAX_PLAIN_CHARS)
    if not text.isascii() and _FAR.search(text):
        found.update(phrase for phrase in _INSIDE if phrase in text)
    return sorted(found, key=lambda phrase: (-len(phrase), phrase))


def _says(part: str, phrases: Iterable[str]) -> float:
    """1 if all words of a title or heading say that it is an error, 0 if half of its letters do not."""
    rest, is_found = part, bool(_STATUS.search(part))
    for phrase in phrases:
        if phrase in rest:
            rest, is_found = rest.replace(phrase, " "), True
    if not is_found or _ABOUT.search(part):
        return 0.0
    letters = sum(map(len, _WORD.findall(part)))
    if not letters:
        return 1.0
    if not rest.isascii():
        for filler in _FILLERS_INSIDE:
            rest = rest.replace(filler, " ")
    return max(0.0, 1.0 - 2 * sum(len(word) for word in _WORD.findall(rest) if word not in _FILLERS) / letters)


def _hits(text: str, phrases: Iterable[str]) -> int:
    """Phrases in a text, each once, none within another."""
    hits = 0
    for phrase in phrases:
        if phrase in text:
            text, hits = text.replace(phrase, " "), hits + 1
    return hits


def _plain(text: str) -> str:
    """Without case, accents, and compatibility forms."""
    text = text.lower()
    if not text.isascii():
        for char, plain in _PLAIN:  # a tenth of what `translate` takes
            text = text.replace(char, plain)
        text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return " ".join(text.split())


def _echo(url: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_plain(unquote(url))))


def _tokens(text: str, echo: frozenset[str]) -> set[str]:
    """Words without those of the URL and those with digits; of scripts that part no words, pairs of letters."""
    tokens: set[str] = set()
    for piece in _plain(text).split():
        if _DIGIT.search(piece):
            continue
        for word in _WORD.findall(piece):
            if word in echo:
                continue
            if word[0] >= _NO_SPACES and len(word) > 2:
                tokens.update(word[i : i + 2] for i in range(len(word) - 1))
            else:
                tokens.add(word)
    return tokens


def _head(page: Page, echo: frozenset[str]) -> bytes:
    lines = [" ".join(sorted(_tokens(line, echo))) for line in (page.title, *page.headings[:HEADINGS])]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=HEAD_BYTES).digest()


def _simhash(tokens: set[str]) -> bytes:
    size = SHAPE_BYTES - HEAD_BYTES
    digests = b"".join(hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=size).digest() for token in tokens)
    out = bytearray()
    for at in range(size):
        column = digests[at::size]
        out.append(sum(bit for bit, table in _BITS if 2 * column.translate(table).count(1) > len(tokens)))
    return bytes(out)


_BITS = [(1 << n, bytes(byte >> n & 1 for byte in range(256))) for n in range(8)]
_SAYINGS = {_plain(phrase) for row in PHRASES.strip().split("\n") for phrase in row.partition(" ")[2].split("|")}
_BY_FIRST: dict[str, list[str]] = {}
for _phrase in sorted(_SAYINGS):
    if " " in _phrase and _phrase[0] < _NO_SPACES:
        _BY_FIRST.setdefault(_phrase.split(" ")[0], []).append(_phrase)
_INSIDE_ASCII, _INSIDE = (
    sorted(phrase for phrase in _SAYINGS if phrase.isascii() == is_ascii and (" " not in phrase or phrase[0] >= _NO_SPACES))
    for is_ascii in (True, False)
)
_plain_words: set[str] = set()
_FILLERS = frozenset(_plain(WORDS).split())
_FILLERS_INSIDE = sorted((word for word in _FILLERS if word[0] >= _NO_SPACES), key=len)[::-1]
