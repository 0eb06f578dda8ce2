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

from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_HINT_CHARS = 300  # of a class and an id
FLAT_MARK = "x"  # comments that stand for block elements where `taming` has flattened a page
MAX_PLAIN_NAMES = 20_000  # remembered by a process
MAX_PLAIN_HINTS, MAX_PLAIN_HINT_CHARS = 10_000, 60
MAX_EXCUSED = 8  # boilerplate words of one page

LONG = 160  # units of a block that is text for itself
MEDIUM = 50  # … that is text with the end of a sentence, or beside text
FEW = 400  # a page with less main text is filled up from the rest: a list, a form, a shop
MOST_FILLED = 10_000  # units, where there is no main text; the fewer the nearer to FEW it is, so that no edit fills a page at once
MAX_LINKED = 0.35  # of a block of text
MAX_LINKED_SHORT = 0.5  # of a short block between blocks of text
MAX_LINKED_PARAGRAPH, MIN_UNLINKED_PARAGRAPH = 0.75, 40
LEAST, LEAST_SHARE = 300, 0.3  # running text that must be left when boilerplate is gone: units, or share of the page's
LEAST_BESIDE_SURE = 150  # … beside sure boilerplate: an article may have any number of comments
LEAST_OF_SURE, LEAST_OF_NOTICE = 200, 2_000  # … and what that must have to be none: a forum of comments, a page in a div.cookie-bar-open
MOST_SHARE = 0.5  # of running text: a region that holds more is where the content is

_DROPPED, _BOUNDARY, _PARAGRAPH, _HEADING, _BLOCK, _ASIDE, _FOOTER, _MAIN, _ARTICLE, _LINK, _BREAK, _INLINE = range(12)
_TAGS_BY_KIND = {
    _DROPPED: "script style noscript template svg math select button iframe object embed canvas audio video map textarea input "
    "datalist dialog noembed noframes head title progress meter nav menu label rp rt",
    _BOUNDARY: "address caption center dd details dl dt fieldset figcaption figure hgroup hr legend li pre search summary table tbody td "
    "tfoot th thead tr",
    _BLOCK: "div section ul ol form header",
    _PARAGRAPH: "p blockquote",
    _HEADING: "h1 h2 h3 h4 h5 h6",
    _ASIDE: "aside",
    _FOOTER: "footer",
    _MAIN: "main",
    _ARTICLE: "article",
    _LINK: "a",
    _BREAK: "br",
}
_ANY_TREE = LexborHTMLParser("<p>x<!---->")
_KINDS = {_ANY_TREE.create_node(tag).tag_id: kind for kind, tags in _TAGS_BY_KIND.items() for tag in tags.split()}
_TEXT, _COMMENT = (node.tag_id for node in _ANY_TREE.css("p")[0].traverse(include_text=True) if not node.is_element_node)
_IN_LINK = (_LINK, 0)  # in place of a block's kind and region

_BODY_LEVEL, _MAIN_LEVEL, _ARTICLE_LEVEL, _TEXT_LEVEL = range(4)  # how narrowly a region names the content
_WORDS_BY_KIND = {_ASIDE: "aside", _FOOTER: "footer"}
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
    *("comment", "comments", "sidebar", "footer", "aside", "hidden", "cookie", "consent", "gdpr", "copyright", "related", "recommend")
}
_NOTICES = {"cookie", "consent", "gdpr", "footer", "contentinfo", "copyright"}
_OF, _WHAT = 1, 2  # content is what is named by both: post-content
_CONTENT = {
    **dict.fromkeys(("article", "entry", "post", "story"), _OF),
    **dict.fromkeys(("body", "content", "text", "copy"), _WHAT),
    **{
        of + what: _OF | _WHAT
        for of in ("article", "entry", "post", "story", "body", "full")
        for what in ("body", "content", "text", "copy")
    },
}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")  # of camelCase too
_plain_hints: set[str] = set()  # classes and ids that say nothing: most; the short ones
_plain_names: set[str] = set()  # parts of these

_WIDE = re.compile("[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_SENTENCE_END = re.compile(r"""[.!?…:;。！？।۔։]["'”’»)\]」』）]*$""")


# Tuples, not classes: a page has some 140 blocks and 50 regions, and half a millisecond.
_Block = tuple[str, int, float, int, int]  # text, units, share of its characters in links, kind of the element, index of the region
_Region = tuple[int, str, int]  # index of the parent (which stands before), word that names it as boilerplate or "", level of content


def main_text(tree: LexborHTMLParser, max_chars: int = 1_000_000) -> str:
    """Blocks of the main text, one a line. Where little reads like running text, the rest but what is named boilerplate
    fills it up, up to MOST_FILLED.

    Linear in the nodes of the tree, which stays as it is.
    """
    if tree.body is None:
        return ""
    blocks, regions = _cut(tree.body)
    kept = _kept(blocks, *_content_of(blocks, regions))
    return "\n".join([text for text, *_ in compress(blocks, kept)])[:max_chars]


def _cut(body: LexborNode) -> tuple[list[_Block], list[_Region]]:
    regions: list[_Region] = [(0, "", _BODY_LEVEL)]
    cuts: list[tuple[list[str], int, int, int]] = []
    pieces: list[str] = []  # of the block; the first is not only space
    linked_chars = links = region = 0
    kind = _BLOCK
    outer: list[tuple[LexborNode | None, tuple[int, int] | None]] = []  # what comes after an element, and kind and region of a block's
    kind_of = _KINDS.get
    node = body.first_child
    while node is not None or outer:
        if node is None:
            node, block = outer.pop()
            if block is None:
                continue
            if block is _IN_LINK:
                links -= 1
                continue
            if pieces:
                cuts.append((pieces, linked_chars, kind, region))
                pieces, linked_chars = [], 0
            kind, region = block
            continue
        tag = node.tag_id
        if tag == _TEXT:
            text = node.text_content
            if text and not text.isspace():
                pieces.append(text)
                if links:
                    linked_chars += len(text.strip())
            elif pieces:
                pieces.append(" ")
            node = node.next
            continue
        of_tag = kind_of(tag, _INLINE)
        if of_tag == _DROPPED:
            node = node.next
            continue
        ends_block = of_tag < _LINK or (tag == _COMMENT and (node.comment_content or "").startswith(FLAT_MARK))
        if ends_block and pieces:
            cuts.append((pieces, linked_chars, kind, region))
            pieces, linked_chars = [], 0
        child = node.first_child
        if child is None:
            if of_tag == _BREAK and pieces:
                pieces.append(" ")
            node = node.next
            continue
        if of_tag == _INLINE:
            if (after := node.next) is not None:
                outer.append((after, None))
        elif of_tag == _LINK:
            outer.append((node.next, _IN_LINK))
            links += 1
        else:
            outer.append((node.next, (kind, region)))
            kind = of_tag
            if of_tag >= _BLOCK and (named := _region_of(node, of_tag, region, regions[region][2])):
                region = len(regions)
                regions.append(named)
        node = child
    if pieces:
        cuts.append((pieces, linked_chars, kind, region))
    return _blocks_of(cuts), regions


def _blocks_of(cuts: list[tuple[list[str], int, int, int]]) -> list[_Block]:
    blocks = []
    for pieces, linked_chars, kind, region in cuts:
        text = pieces[0] if len(pieces) == 1 else "".join(pieces)
        is_folded = "\n" not in text and "  " not in text and text.isprintable()  # as of all white space only the space is
        text = text.strip() if is_folded else " ".join(text.split())
        chars = len(text)
        units = chars if text.isascii() or len(text.encode("latin-1", "ignore")) == chars else chars + 2 * len(_WIDE.findall(text))
        blocks.append((text, units, linked_chars / chars, kind, region))
    return blocks


def _region_of(node: LexborNode, kind: int, parent: int, level: int) -> _Region | None:
    if word := _WORDS_BY_KIND.get(kind):
        return parent, word, level
    if kind != _BLOCK:
        return parent, "", max(level, _LEVELS_BY_KIND[kind])
    attributes = node.attributes
    if not attributes:
        return None
    get = attributes.get
    if (role := get("role")) and role in _BOILERPLATE_ROLES:
        return parent, role, level
    if "hidden" in attributes or ((style := get("style")) and _HIDDEN.search(style)):
        return parent, "hidden", level
    content = 0
    for hint in (get("class"), get("id")):
        if hint and hint not in _plain_hints:
            word, of_hint = _read_hint(hint[:MAX_HINT_CHARS])
            if word:
                return parent, word, level
            content |= of_hint
    if content == _OF | _WHAT or get("itemprop") == "articleBody":
        return parent, "", _TEXT_LEVEL
    return (parent, "", max(level, _MAIN_LEVEL)) if role == "main" else None


@lru_cache(maxsize=1_024)
def _read_hint(hint: str) -> tuple[str, int]:
    """The word that names boilerplate, or what of content is named."""
    names = hint.replace("-", " ").replace("_", " ").split()
    if _plain_names.issuperset(names):
        _remember_plain(hint)
        return "", 0
    if len(_plain_names) > MAX_PLAIN_NAMES:
        _plain_names.clear()
    content = 0
    for name in names:
        if name not in _plain_names:
            word, of_name = _read_name(name)
            if word:
                return word, 0
            if not of_name:
                _plain_names.add(name)
            content |= of_name
    if not content:
        _remember_plain(hint)
    return "", content


def _remember_plain(hint: str) -> None:
    if len(hint) <= MAX_PLAIN_HINT_CHARS:
        if len(_plain_hints) >= MAX_PLAIN_HINTS:
            _plain_hints.clear()
        _plain_hints.add(hint)


@lru_cache(maxsize=4_096)
def _read_name(name: str) -> tuple[str, int]:
    content = 0
    for word in map(str.lower, _WORDS.findall(name)):
        if match := _BOILERPLATE.match(word) or _BOILERPLATE_END.search(word):
            return match[0], 0
        content |= _CONTENT.get(word, 0)
    return "", content


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
        doubtful = [
            word
            for word, units in lost.items()
            if word not in _SURE or (left < LEAST_BESIDE_SURE and units >= (LEAST_OF_NOTICE if word in _NOTICES else LEAST_OF_SURE))
        ]
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
    classes = [_BAD if is_named[block[4]] or is_outside[block[4]] else _class_of(block) for block in blocks]
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
    for of_rung in (range(_SHORT, _GOOD), (_BAD,)):
        units = sum([units for _, units, *_ in compress(blocks, kept)])
        if units >= FEW:
            break
        left = MOST_FILLED * (1 - units / FEW) ** 2
        rung = [index for index, block in enumerate(blocks) if classes[index] in of_rung and not (kept[index] or is_named[block[4]])]
        for index in sorted(rung, key=lambda index: -blocks[index][1]):
            kept[index] = True
            left -= blocks[index][1]
            if left <= 0:
                break
    return kept


def _class_of(block: _Block) -> int:
    text, units, linked, kind, _ = block
    if kind == _HEADING:
        return _HEAD
    if linked > MAX_LINKED:
        if kind == _PARAGRAPH and linked <= MAX_LINKED_PARAGRAPH and units * (1 - linked) >= MIN_UNLINKED_PARAGRAPH:
            return _NEAR
        return _SHORT if linked <= MAX_LINKED_SHORT else _BAD
    if units >= LONG:
        return _GOOD
    if units >= MEDIUM:
        return _GOOD if kind == _PARAGRAPH or _SENTENCE_END.search(text) else _NEAR
    return _SHORT
