"""Main text of a page: what is left of its text without navigation, asides, comments and the like.

One walk over the tree cuts the page into blocks of text (a block ends wherever a block element begins or ends), each with
its length, how much of it stands in links, and the region that it is in: elements, roles, classes and ids that name
boilerplate or content begin a region. A block is kept or dropped for itself and its neighbours, as in jusText (Pomikálek,
Removing Boilerplate and Duplicate Content from Web Corpora, 2011), so that a small edit of a page moves a block and not the
page. Names are believed by the running text under them: a word that takes nearly all of it away is no boilerplate here, and
a region is the content only if it holds most of it. Chosen on labelled pages: docs/decisions/main-text.md.

Lengths are characters, those of wide scripts (Chinese, Japanese, Korean) times three; words and stop words play no part.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import compress
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_HINT_CHARS = 300  # of a class and an id
FLAT_MARK = "x"  # comments that stand for block elements where `page` has flattened a tree
MAX_EXCUSED = 8  # boilerplate words of one page

LONG = 160  # units of a block that is text for itself
MEDIUM = 50  # … that is text with the end of a sentence, or beside text
FEW = 200  # less main text than this is no main text: a list, a form, a shop
MAX_LINKED = 0.35  # of a block of text
MAX_LINKED_SHORT = 0.5  # of a short block between blocks of text
MAX_LINKED_PARAGRAPH, MIN_UNLINKED_PARAGRAPH = 0.6, 40
LEAST, LEAST_SHARE = 300, 0.3  # running text that must be left when boilerplate is gone: units, or share of the page's
LEAST_SURE = 150  # … when what is gone is surely boilerplate: an article may have any number of comments
MOST_SHARE = 0.5  # of running text: a region that holds more is where the content is

_DROPPED, _BOUNDARY, _PARAGRAPH, _HEADING, _BLOCK, _ASIDE, _MAIN, _ARTICLE, _LINK, _BREAK, _INLINE = range(11)
_TAGS_BY_KIND = {
    _DROPPED: "script style noscript template svg math select button iframe object embed canvas audio video map textarea input "
    "datalist dialog noembed noframes head title progress meter nav menu label rp rt",
    _BOUNDARY: "address dd dt figcaption hr li pre tr thead tfoot th caption summary legend hgroup search",
    _BLOCK: "div section ul ol dl table tbody td form fieldset header figure details center",
    _PARAGRAPH: "p blockquote",
    _HEADING: "h1 h2 h3 h4 h5 h6",
    _ASIDE: "footer aside",
    _MAIN: "main",
    _ARTICLE: "article",
    _LINK: "a",
    _BREAK: "br",
}
_ANY_TREE = LexborHTMLParser("<p>x<!---->")
_KINDS = {_ANY_TREE.create_node(tag).tag_id: kind for kind, tags in _TAGS_BY_KIND.items() for tag in tags.split()}
_TEXT, _COMMENT = (node.tag_id for node in _ANY_TREE.css("p")[0].traverse(include_text=True) if not node.is_element_node)

_BODY_LEVEL, _MAIN_LEVEL, _ARTICLE_LEVEL, _TEXT_LEVEL = range(4)  # how narrowly a region names the content
_LEVELS_BY_KIND = {_MAIN: _MAIN_LEVEL, _ARTICLE: _ARTICLE_LEVEL}
_BOILERPLATE_ROLES = frozenset(("navigation", "contentinfo", "banner", "complementary", "search", "dialog", "menu"))
_BOILERPLATE = re.compile(
    r"""(?:comments?$|disqus|respond$|reply|side$|rail$|ads?$|adv$|advert|shar(?:e|es|ing)$|tags?$|tagcloud|meta$|nav|toc$|tools?$
    |legal|breadcrumb|crumbs?$|paginat|pager|cookie|consent|gdpr|newsletter|subscri|signup|login|signin|register|related|recommend
    |trending|popular|more$|also$|teasers?$|promo|sponsor|outbrain|taboola|social|facebook|twitter|widget|byline|bio$|copyright
    |disclaimer|popup|modal|overlay|tooltip|masthead|skip|sr$|screenreader|visually|rating|timestamp|next$|prev$|stories$|carousel
    |slider|gallery|credits?$|infobox|reflist|catlinks|editsection|hatnote)
    """,
    re.VERBOSE,
)
_BOILERPLATE_END = re.compile("(?:foot|footer|sidebar|bar|nav|navbox|menu|banner)s?$")
_HIDDEN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_SURE = _BOILERPLATE_ROLES | {  # words that are excused last
    *("comment", "comments", "sidebar", "footer", "aside", "hidden", "cookie", "consent", "gdpr", "related", "recommend")
}
_CONTENT = re.compile(r"(?:article|entry|post|story)(?:body|content|text|copy)|bodytext|fulltext|bodycopy")
_OF, _WHAT = frozenset(("article", "entry", "post", "story")), frozenset(("body", "content", "text", "copy"))
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")  # of camelCase too

_WIDE = re.compile("[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_SENTENCE_END = re.compile(r"""[.!?…:;。！？।۔։]["'”’»)\]」』）]*$""")


class _Region(NamedTuple):
    parent: int  # index; a parent stands before its children
    word: str  # that names it as boilerplate, or ""
    level: int  # of content


class _Block(NamedTuple):
    text: str  # white space folded, not empty
    units: int
    linked: float  # share of its characters that stand in links
    kind: int  # of the element that began last
    region: int  # index


def main_text(tree: LexborHTMLParser, max_chars: int = 1_000_000) -> str:
    """Blocks of the main text, one a line. Where nothing reads like running text: all text but what is named boilerplate.

    Linear in the nodes of the tree, which stays as it is.
    """
    if tree.body is None:
        return ""
    blocks, regions = _cut(tree.body)
    kept = _kept(blocks, *_content_of(blocks, regions))
    return "\n".join(block.text for block in compress(blocks, kept))[:max_chars]


def _cut(body: LexborNode) -> tuple[list[_Block], list[_Region]]:
    blocks: list[_Block] = []
    regions = [_Region(0, "", _BODY_LEVEL)]
    pieces: list[str] = []
    linked_chars = 0
    kind, region, in_link = _BLOCK, 0, False

    def end_block() -> None:
        nonlocal linked_chars
        if text := " ".join("".join(pieces).split()):
            units = len(text) if text.isascii() else len(text) + 2 * len(_WIDE.findall(text))
            blocks.append(_Block(text, units, linked_chars / len(text), kind, region))
        pieces.clear()
        linked_chars = 0

    outer: list[tuple[LexborNode | None, int, int, bool, bool]] = []
    kind_of = _KINDS.get
    node = body.first_child
    while node is not None or outer:
        if node is None:
            node, outer_kind, outer_region, in_link, is_inline = outer.pop()
            if not is_inline:
                if pieces:
                    end_block()
                kind, region = outer_kind, outer_region
            continue
        tag = node.tag_id
        if tag == _TEXT:
            text = node.text_content or ""
            if not text.isspace():
                pieces.append(text)
                if in_link:
                    linked_chars += len(text.strip())
            elif pieces:
                pieces.append(" ")
            node = node.next
            continue
        of_tag = kind_of(tag, _INLINE)
        if of_tag == _DROPPED:
            node = node.next
        elif of_tag >= _LINK:
            if (child := node.first_child) is not None:
                outer.append((node.next, kind, region, in_link, True))
                in_link = in_link or of_tag == _LINK
                node = child
            else:
                if of_tag == _BREAK:
                    pieces.append(" ")
                elif pieces and tag == _COMMENT and (node.comment_content or "").startswith(FLAT_MARK):
                    end_block()
                node = node.next
        else:
            if pieces:
                end_block()
            if (child := node.first_child) is not None:
                outer.append((node.next, kind, region, in_link, False))
                if of_tag >= _BLOCK and (named := _region_of(node, of_tag, region, regions[region].level)):
                    region = len(regions)
                    regions.append(named)
                kind = of_tag
                node = child
            else:
                node = node.next
    end_block()
    return blocks, regions


def _region_of(node: LexborNode, kind: int, parent: int, level: int) -> _Region | None:
    if kind != _BLOCK:
        return _Region(parent, "aside", level) if kind == _ASIDE else _Region(parent, "", max(level, _LEVELS_BY_KIND[kind]))
    attributes = node.attributes
    if not attributes:
        return None
    if (role := attributes.get("role")) in _BOILERPLATE_ROLES:
        return _Region(parent, role or "", level)
    if "hidden" in attributes or _HIDDEN.search(attributes.get("style") or ""):
        return _Region(parent, "hidden", level)
    hint = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
    word, is_content = _read_hint(hint[:MAX_HINT_CHARS]) if len(hint) > 1 else ("", False)
    if word:
        return _Region(parent, word, level)
    if is_content or attributes.get("itemprop") == "articleBody":
        return _Region(parent, "", _TEXT_LEVEL)
    return _Region(parent, "", max(level, _MAIN_LEVEL)) if role == "main" else None


@lru_cache(maxsize=8_192)
def _read_hint(hint: str) -> tuple[str, bool]:
    """The word that names boilerplate, or whether the hint names content."""
    readings = set()
    for word in _WORDS.findall(hint):
        boilerplate, reading = _read_word(word)
        if boilerplate:
            return boilerplate, False
        readings.add(reading)
    return "", "content" in readings or {"of", "what"} <= readings


@lru_cache(maxsize=16_384)
def _read_word(word: str) -> tuple[str, str]:
    word = word.lower()
    if match := _BOILERPLATE.match(word) or _BOILERPLATE_END.search(word):
        return match[0], ""
    return "", "content" if _CONTENT.match(word) else "of" if word in _OF else "what" if word in _WHAT else ""


def _content_of(blocks: list[_Block], regions: list[_Region]) -> tuple[list[bool], list[bool]]:
    """Of each region: is it named as boilerplate (and believed), is it outside of where the content is?"""
    running = [0] * len(regions)  # a block counts with what it has more than MEDIUM: no jump where it becomes text
    for _, units, linked, _, index in blocks:
        if units > MEDIUM and linked <= MAX_LINKED:
            running[index] += units - MEDIUM
    total = sum(running)
    excused: set[str] = set()
    for _ in range(MAX_EXCUSED):
        words: list[str] = []
        lost: dict[str, int] = {}
        for (parent, word, _), units in zip(regions, running, strict=True):
            named = (words[parent] if words else "") or ("" if word in excused else word)
            words.append(named)
            if named:
                lost[named] = lost.get(named, 0) + units
        left = total - sum(lost.values())
        doubtful = lost.keys() - _SURE if left >= LEAST_SURE else lost.keys()
        if not doubtful or left >= min(LEAST, LEAST_SHARE * total):
            break
        excused.add(max(doubtful, key=lambda word: (word not in _SURE, lost[word], word)))
    by_level = [0] * (_TEXT_LEVEL + 1)
    for (_, _, level), word, units in zip(regions, words, running, strict=True):
        if not word:
            by_level[level] += units
    least_level = _BODY_LEVEL
    for level in range(_MAIN_LEVEL, _TEXT_LEVEL + 1):
        if sum(by_level[level:]) > MOST_SHARE * sum(by_level[least_level:]):
            least_level = level
    return [bool(word) for word in words], [level < least_level for _, _, level in regions]


_BAD, _SHORT, _HEAD, _NEAR, _GOOD = range(5)


def _kept(blocks: list[_Block], is_named: list[bool], is_outside: list[bool]) -> list[bool]:
    classes = [_BAD if is_named[block.region] or is_outside[block.region] else _class_of(block) for block in blocks]
    kept = [is_good == _GOOD for is_good in classes]
    before, last = [], _BAD  # the last block that is text, or surely none
    for of_block in classes:
        before.append(last)
        if of_block in (_GOOD, _BAD):
            last = of_block
    after = _BAD
    for index in range(len(blocks) - 1, -1, -1):
        of_block = classes[index]
        if of_block in (_GOOD, _BAD):
            after = of_block
        elif of_block == _NEAR:
            kept[index] = _GOOD in (before[index], after)
        else:
            kept[index] = after == _GOOD and (of_block == _HEAD or before[index] == _GOOD)
    if _units(blocks, kept) < FEW:
        kept = [of_block != _BAD for of_block in classes]
        if _units(blocks, kept) < FEW:
            kept = [not is_named[block.region] for block in blocks]
    return kept


def _class_of(block: _Block) -> int:
    _, units, linked, kind, _ = block
    if kind == _HEADING:
        return _HEAD
    if linked > MAX_LINKED:
        if kind == _PARAGRAPH and linked <= MAX_LINKED_PARAGRAPH and units * (1 - linked) >= MIN_UNLINKED_PARAGRAPH:
            return _NEAR
        return _SHORT if linked <= MAX_LINKED_SHORT else _BAD
    if units >= LONG:
        return _GOOD
    if units >= MEDIUM:
        return _GOOD if kind == _PARAGRAPH or _SENTENCE_END.search(block.text) else _NEAR
    return _SHORT


def _units(blocks: list[_Block], kept: list[bool]) -> int:
    return sum(block.units for block in compress(blocks, kept))
