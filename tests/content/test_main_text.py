"""Which of a page's text is its main text, whatever the template around it."""

from __future__ import annotations

import itertools
import time

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawlweb.content.main_text import main_text
from crawlweb.content.page import parse_page

TITLE = "The ferry that waits for nobody"
PARAGRAPHS = (
    "The last ferry leaves the harbour at twenty past nine, and it does not wait, whatever the train from the city does.",
    "Islanders have complained for years; the company answers that <a href=/tide>the tide</a> does not wait either.",
    "This spring a third of all connections were missed, says a count that the council published on Monday.",
    "A later boat would cost four hundred thousand a year, which nobody on either side of the water wants to pay.",
)
LIST = "<ul><li>twelve minutes are missing in the evening,</li><li>five on Sundays,</li><li>none in winter.</li></ul>"
ARTICLE = "".join(f"<p>{paragraph}</p>" for paragraph in PARAGRAPHS[:2]) + LIST + "".join(f"<p>{p}</p>" for p in PARAGRAPHS[2:])
COMMENT = "<p>I have taken this boat for thirty years and it has never once been on time, so who are they kidding?</p>"
TEASER = "<a href=/other>A bridge was promised in 1974, and what became of it: read the story of the longest plan</a>"

NEWS = f"""<!doctype html><html lang=en><head><title>{TITLE} - The Harbour Post</title><style>p {{}}</style></head><body>
<header class=site-header><a href=/>The Harbour Post</a><nav><ul><li><a href=/news>News</a><li><a href=/sport>Sport</a></ul></nav>
</header><div class="cookie-consent"><p>We and our 112 partners store and read information on your device, and ask for leave.</p>
<button>Agree</button></div><main><article><h1>{TITLE}</h1><div class="byline">By Ada Lind, Monday</div>
<div class="article-body">{ARTICLE}</div><div class="share-bar"><a href=/fb>Share this with all of your friends</a></div>
<section id=comments><h2>Comments</h2>{COMMENT * 9}</section></article>
<aside><h3>More to read</h3>{TEASER}<p>Our newsletter brings you the harbour, the boats and the weather, each morning.</p></aside></main>
<script>var words = "The last ferry leaves the harbour at twenty past nine.";</script>
<footer><p>The Harbour Post is published by Harbour Media, which is registered in the town. All rights are reserved.</p></footer>"""

BLOG = f"""<html><body class="sidebar-right"><div id=wrapper><div class=menu><a href=/1>Home</a> | <a href=/2>Boats</a></div>
<div id=sidebar><p>I write about boats, ferries, and the people who miss them; this blog is as old as my first coat.</p></div>
<div class=post><h2>{TITLE}</h2>{ARTICLE}</div><div class="related-posts"><h4>Related</h4><ul><li>{TEASER}</ul></div>
<div id=footer>Powered by paper, pens and patience. Every word on this page may be copied by whoever asks me.</div></div>"""

CHINESE = "末班渡轮在九点二十分离开港口，无论城里来的火车晚点多久，它都不会等待任何人。岛上的居民抱怨了多年，公司却说潮水也不等人。"
THAI = "เรือเฟอร์รี่เที่ยวสุดท้ายออกจากท่าเรือเวลาเก้าโมงยี่สิบนาทีและไม่เคยรอใครแม้ว่ารถไฟจากในเมืองจะล่าช้าเพียงใดก็ตาม"
ARABIC = "تغادر العبارة الأخيرة الميناء في التاسعة والثلث، ولا تنتظر أحدا مهما تأخر القطار القادم من المدينة، كما يقول الناس."


def text_of(html: str) -> str:
    return main_text(LexborHTMLParser(html))


@pytest.mark.parametrize("html", [NEWS, BLOG])
def test_an_article_is_its_paragraphs_with_links_and_lists_in_order(html: str) -> None:
    text = text_of(html)
    lines = [line for line in text.split("\n") if line != TITLE]
    plain = [paragraph.replace("<a href=/tide>", "").replace("</a>", "") for paragraph in PARAGRAPHS]
    items = ["twelve minutes are missing in the evening,", "five on Sundays,", "none in winter."]
    assert lines == [*plain[:2], *items, *plain[2:]]


def test_two_templates_of_one_article_give_the_same_text_but_for_the_heading() -> None:
    assert text_of(NEWS).replace(TITLE, "").strip() == text_of(BLOG).replace(TITLE, "").strip()


def test_a_small_edit_of_the_page_moves_no_other_block() -> None:
    before = text_of(NEWS)
    assert text_of(NEWS.replace("Monday</div>", "Monday, updated</div>").replace("112 partners", "113 partners")) == before
    longer = text_of(NEWS.replace("</p><ul>", "</p><p>The mayor, who takes the boat each day, has no comment on any of this.</p><ul>"))
    assert set(before.split("\n")) < set(longer.split("\n"))


@pytest.mark.parametrize("sentence", [CHINESE, THAI, ARABIC])
def test_scripts_without_spaces_or_latin_letters_are_measured_by_characters(sentence: str) -> None:
    links = "".join(f"<li><a href=/{n}>{sentence[:6]}</a>" for n in range(20))
    paragraphs = (sentence, sentence[::-1], sentence[9:] + sentence, sentence + sentence[9:])
    text = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    page = f"<div class=list><ul>{links}</ul></div><div>{text}</div><div class=footer>{sentence}</div>"
    assert text_of(page) == "\n".join(paragraphs)


def test_comments_are_the_main_text_of_a_page_that_has_nothing_else() -> None:
    posts = "".join(f"<div class=comment><b>user {n}</b><p>Post {n}: {PARAGRAPHS[n % 4]}</p></div>" for n in range(8))
    text = text_of(f"<nav><a href=/>Forum</a></nav><div id=comments>{posts}</div><footer>Run by volunteers since 1999.</footer>")
    assert [line for line in text.split("\n") if line.startswith("Post")] != []
    assert all(f"Post {n}: " in text for n in range(8))
    assert "volunteers" not in text


def test_a_word_that_names_most_of_the_text_is_no_boilerplate() -> None:
    slides = "".join(f"<div class=gallery-slide><h2>Boat {n}</h2><p>{PARAGRAPHS[n % 4]}</p></div>" for n in range(5))
    text = text_of(f"<main>{slides}</main><div class=footer><p>{PARAGRAPHS[0]}</p></div>")
    assert text.count("\n") == 9
    assert text.endswith(PARAGRAPHS[0])


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("", ""),
        ("<body>", ""),
        ("<nav>Home</nav><footer>End</footer>", ""),
        ("<script>x</script><p> \n ", ""),
        ("<p>Just this.", "Just this."),
        ("plain <b>inline</b> text<br>and a line", "plain inline text and a line"),
        ("<ul><li><a href=/1>One</a><li><a href=/2>Two</a></ul><footer>F</footer>", "One\nTwo"),
        ("<div class=product><h2>Lamp</h2><span>19.90</span></div><div class=footer>Imprint</div>", "Lamp\n19.90"),
        ("<frameset><frame src=/a></frameset>", ""),
    ],
)
def test_a_page_without_running_text_gives_its_text_without_navigation_and_footer(html: str, text: str) -> None:
    assert text_of(html) == text


def test_a_page_is_filled_up_less_and_less_the_nearer_it_is_to_having_text() -> None:
    links = "".join(f"<li><a href=/{n}>Link {n} of the harbour office</a>" for n in range(200))
    lengths = [len(text_of(f"<ul>{links}</ul><div><p>{'Ferry! ' * (words - 1)}End.</p></div>")) for words in range(1, 80)]
    assert lengths[0] > 5_000
    assert lengths[-1] == 78 * 7 + 4
    assert max(abs(one - other) for one, other in itertools.pairwise(lengths)) < 500


def test_the_text_of_a_cookie_banner_is_never_the_page() -> None:
    banner = f"<div class=cookie-banner><p>{PARAGRAPHS[0]}</p><p>{PARAGRAPHS[2]}</p><p>{PARAGRAPHS[3]}</p></div>"
    assert text_of(f"{banner}<form><h2>Log in</h2><span>Name</span></form>") == "Log in\nName"


def test_a_page_inside_of_a_container_with_an_unlucky_name_is_not_lost() -> None:
    text = "".join(f"<p>{n}. {PARAGRAPHS[n % 4]}</p>" for n in range(40))
    for name in ("cookie-bar-open", "no-sidebar", "with-footer", "has-banner"):
        assert text_of(f"<div class={name}><ul><li><a href=/>Home</a></ul>{text}</div>").count("\n") == 39


def test_hidden_text_is_left_out() -> None:
    hidden = "".join(f"<div {attribute}><p>{PARAGRAPHS[0]}</p></div>" for attribute in ("hidden", 'style="color:red;DISPLAY : none"'))
    assert text_of(f"<div>{ARTICLE}</div>{hidden}").count("The last ferry") == 1


def test_text_is_cut_at_the_most_characters() -> None:
    assert main_text(LexborHTMLParser(NEWS), 100) == text_of(NEWS)[:100]


def test_the_tree_stays_as_it_is_for_the_visible_text() -> None:
    page = parse_page(NEWS.encode(), "https://site.test/")
    assert "All rights are reserved." in page.text
    assert "All rights are reserved." not in page.main_text
    assert PARAGRAPHS[0] in page.main_text


def test_a_page_that_is_parsed_flat_still_has_its_paragraphs_apart() -> None:
    rows = "".join(f"<div><div><p>Row {n}: {PARAGRAPHS[0]}</p></div></div>" for n in range(1_500))
    page = parse_page(f"<div>{rows}</div>".encode(), "https://site.test/")
    assert page.main_text.split("\n")[1_499] == f"Row 1499: {PARAGRAPHS[0]}"


@pytest.mark.parametrize(
    "html",
    [
        "<div class=sidebar>" * 2_500 + PARAGRAPHS[0] * 5,
        "".join(f"<div class='x{n}footer ad{n} {'y' * 999}'><p>{PARAGRAPHS[0]}</p></div>" for n in range(1_900)),
        "<p>a<br>" * 2_900,
        "<a>" + "<b>b" * 2_900,
        "<p>" + "。" * 2_000_000,
        "<p>" + " \u3000" * 1_000_000 + "x",
    ],
    ids=["deep", "names", "breaks", "open", "wide", "space"],
)
def test_hostile_pages_take_time_in_proportion_to_their_size(html: str) -> None:
    tree = LexborHTMLParser(html)
    began = time.process_time()
    main_text(tree)
    assert time.process_time() - began < 1.0
