"""Does a response look like a refusal: 403, a captcha or challenge instead of the page, an empty page?

One of them says nothing; when nearly all pages of a host look so after good ones, the site has blocked us (lua/complete.lua keeps the
share).
"""

from __future__ import annotations

import re

BLOCKED_FIRST_S = 6 * 3600.0  # a site that has blocked us is left alone for so long, twice as long each time
BLOCKED_MOST_S = 7 * 86_400.0
CHALLENGE_BYTES = 50_000  # a larger page has content beside its captcha
_SMALL_BYTES = 2_000
_BODILESS = (204, 205)  # RFC 9110 §15.3.5, §15.3.6
_CHALLENGE = re.compile(
    rb"cf-chl|cf_chl|challenge-platform|_Incapsula_Resource|px-captcha|datadome|g-recaptcha|h-captcha|hcaptcha\.com|recaptcha/api|"
    rb"aws-waf|awswaf|verify (?:that )?you are (?:a )?human|are you a robot|unusual traffic",
    re.IGNORECASE,
)
_TAGS = re.compile(rb"<(?:script|style|head|title)\b.*?</(?:script|style|head|title)\s*>|<[^>]*>|&nbsp;|\s+", re.IGNORECASE | re.DOTALL)


def is_refusal(status: int, body: bytes) -> bool | None:
    """None: the response tells nothing of it (a redirect, a missing page, a failure)."""
    if status in (401, 403, 407, 451):
        return status == 403
    if not 200 <= status < 300 or status in _BODILESS:
        return None
    if len(body) <= _SMALL_BYTES and not _TAGS.sub(b"", body):
        return True
    return len(body) <= CHALLENGE_BYTES and _CHALLENGE.search(body) is not None
