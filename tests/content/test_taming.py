"""What is rewritten in a page before its tree is built, and what is not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlweb.content.taming import CUT_BYTES, tamed

# No tag of HTML but these begins so: b big code em font i s small strike strong tt u.
FORMATTING = re.compile(rb"<[bcefistu](?:ig|t|m|ode|ont|mall|trike|trong)?(?=[ \t\n\r\f\v/])", re.IGNORECASE)
PIECES = st.sampled_from(
    [b"<", b"</", b"<<", b"< ", b"b", b"BIG", b"code", b"co", b"em", b"fOnt", b"i", b"I", b"s", b"S", b"small", b"sm", b"strike",
     b"strong", b"st", b"tt", b"TT", b"u", b"br", b"c", b"e", b"f", b"t", b"o", b"span",
     b"a", b" ", b"\t", b"\n", b"\r", b"\f", b"\v", b"/", b">", b"\0", b"\xa0", b"\xff"]
)  # fmt: skip


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.lists(PIECES, max_size=30).map(b"".join))
def test_formatting_tags_with_attributes_become_span_and_nothing_else_changes(html: bytes) -> None:
    assert tamed(html) == FORMATTING.sub(b"<span", html)


@pytest.mark.parametrize("html", [b"", b"<", b"<b", b"<b ", b"<b>", b"<tt", b"<tt/"])
def test_pages_of_a_few_bytes_are_looked_at_to_their_end(html: bytes) -> None:
    assert tamed(html) == FORMATTING.sub(b"<span", html)


@pytest.mark.parametrize("lines", [0, 1, 15, 16, 17, 100])
def test_a_page_is_cut_behind_a_line_that_ends_a_tag_however_many_do_not(lines: int) -> None:
    before = b"x" * CUT_BYTES + b"<p>" + b"</p>y\n" * lines + b"</p>\n"
    html = before + b"w" * 4 * CUT_BYTES
    assert tamed(html).startswith(before[:-1] + b"<!\"'>")
