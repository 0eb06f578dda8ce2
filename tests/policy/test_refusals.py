"""Which responses look like a refusal. Pages of our own, in the manner of those that sites show."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawlweb.policy.refusals import CHALLENGE_BYTES, CHALLENGE_TEXT_BYTES, is_refusal

PAGE = b"<html><head><title>Tea</title></head><body><h1>Tea</h1><p>How to make it.</p></body></html>"
CHALLENGES = [
    b'<script src="/cdn-cgi/challenge-platform/h/b/orchestrate/chl_page/v1"></script>',
    b'<form id="challenge-form" action="/?__cf_chl_f_tk=x">',
    b'<iframe src="/_Incapsula_Resource?SWUDNSAI=31"></iframe>',
    b'<div id="px-captcha"></div>',
    b'<script src="https://ct.captcha-delivery.com/c.js" data-dd="DataDome"></script>',
    b'<div class="g-recaptcha" data-sitekey="x"></div>',
    b'<script src="https://www.google.com/recaptcha/api.js"></script>',
    b'<div class="h-captcha"></div><script src="https://js.hcaptcha.com/1/api.js"></script>',
    b'<script src="https://token.awswaf.com/challenge.js"></script>',
    b"<h1>Verify you are human</h1>",
    b"<p>Please VERIFY THAT YOU ARE A HUMAN.</p>",
    b"<h1>Are you a robot?</h1>",
    b"<p>We have detected unusual traffic from your network.</p>",
]


@pytest.mark.parametrize("status", [200, 203, 206])
def test_a_page_is_no_refusal(status: int) -> None:
    assert is_refusal(status, PAGE) is False


def test_403_is_a_refusal_whatever_it_says() -> None:
    assert is_refusal(403, PAGE) is True
    assert is_refusal(403, b"") is True


@pytest.mark.parametrize("status", [100, 204, 205, 301, 302, 304, 400, 401, 404, 405, 407, 410, 429, 451, 500, 503, 999])
@pytest.mark.parametrize("body", [b"", PAGE, CHALLENGES[0]])
def test_what_is_no_page_tells_nothing(status: int, body: bytes) -> None:
    assert is_refusal(status, body) is None


@pytest.mark.parametrize("markup", CHALLENGES)
@pytest.mark.parametrize("status", [200, 202])
def test_a_challenge_in_place_of_the_page_is_a_refusal(status: int, markup: bytes) -> None:
    assert is_refusal(status, b"<html><body>" + markup + b"<p>One moment ...</p></body></html>") is True


@pytest.mark.parametrize("markup", CHALLENGES)
def test_a_page_with_content_beside_its_captcha_is_none(markup: bytes) -> None:
    assert is_refusal(200, b"<p>words</p>" * (CHALLENGE_BYTES // 12 + 1) + markup) is False
    assert is_refusal(200, b"<p>words</p>" * (CHALLENGE_TEXT_BYTES // 5 + 1) + markup) is False, "a contact form of a small site"
    hidden = b"<script>" + b"x" * (CHALLENGE_BYTES - 200) + b"</script>"
    assert is_refusal(200, b"<p>words</p>" * 100 + hidden[: CHALLENGE_BYTES - 1_500] + b"</script>" + markup) is True


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \r\n\t",
        b"<html></html>",
        b"<!doctype html><html><head><title>Tea</title></head><body></body></html>",
        b"<html><head><script>location = '/'</script></head><body>&nbsp;\n<div></div></body></html>",
        b"<body><style>p {color: red}</style></body>",
    ],
)
def test_a_page_without_a_word_is_a_refusal(body: bytes) -> None:
    assert is_refusal(200, body) is True


@pytest.mark.parametrize("body", [b"ok", b"<p>.</p>", b"<title>Tea</title>x", b"\xff\xfe", b"1 < 2", b"<" * 1500 + b"x"])
def test_a_short_page_is_none(body: bytes) -> None:
    assert is_refusal(200, body) is False


def test_a_large_page_of_markup_alone_is_none() -> None:
    """An application that draws its page by script."""
    assert is_refusal(200, b"<html><body>" + b"<div></div>" * 500) is False


@pytest.mark.parametrize("piece", [b"<", b"<script", b"<script>", b"<title><style>", b"&nbsp", b"verify ", b"cf-ch", b"verify you are "])
def test_no_page_takes_long(piece: bytes) -> None:
    began = time.process_time()
    is_refusal(200, piece * (CHALLENGE_BYTES // len(piece)))
    is_refusal(200, (piece * 2000)[:2000])
    assert time.process_time() - began < 0.1


@given(st.integers(0, 1000), st.binary(max_size=300))
@settings(deadline=None, derandomize=True)
def test_no_body_raises(status: int, body: bytes) -> None:
    assert is_refusal(status, body) in (None, True, False)
