"""Does a response look like a refusal: 403, a captcha or challenge instead of the page, an empty page?

One of them says nothing; when nearly all pages of a host look so after good ones, the site has blocked us (lua/complete.lua keeps the
share).
"""

from __future__ import annotations

import re

BLOCKED_FIRST_S = 6 * 3600.0  # a site that has blocked us is left alone for so long, twice as long each time
BLOCKED_MOST_S = 7 * 86_400.0
CHALLENGE_BYTES = 16_384  # a larger page has content beside its captcha,
CHALLENGE_TEXT_BYTES = 1_000  # and so has one with more text
_SMALL_BYTES = 2_000
_BODILESS = (204, 205)  # RFC 9110 §15.3.5, §15.3.6
_CHALLENGES = (
    b"cf-chl",
    b"cf_chl",
    b"challenge-platform",
    b"_incapsula_resource",
    b"px-captcha",
    b"datadome",
    b"g-recaptcha",
    b"h-captcha",
    b"hcaptcha.com",
    b"recaptcha/api",
    b"aws-waf",
    b"awswaf",
    b"you are human",
    b"you are a human",
    b"are you a robot",
    b"unusual traffic",
)
_UNSEEN = re.compile(rb"<(?:script|style|head|title)\b.*?</(?:script|style|head|title)\s*>|<[^>]*>|&nbsp;|\s+", re.IGNORECASE | re.DOTALL)


def is_refusal(status: int, body: bytes) -> bool | None:
    """None: the response tells nothing of it (a redirect, a missing page, a failure)."""
    if status == 403:
        return True
    if not 200 <= status < 300 or status in _BODILESS:
        return None
    if len(body) <= _SMALL_BYTES and not _UNSEEN.sub(b"", body):
        return True
    if len(body) > CHALLENGE_BYTES:
        return False
    lower = body.lower()
    return any(word in lower for word in _CHALLENGES) and len(_UNSEEN.sub(b"", body)) <= CHALLENGE_TEXT_BYTES
