"""What follows a failure: one table, and the numbers.

After BUbiNG's failure policy: each kind has a number of tries, a wait and a verdict. Here the verdict names whom it concerns: the URL
(counted, waits by itself), its origin (waits with all its URLs; TLS, DNS and server errors belong to it) or the host (429: asked for less).
"""

from __future__ import annotations

import email.utils
import math
import random
from dataclasses import dataclass
from datetime import timezone

DEAD_S = 3600.0  # a dead origin's URLs become dead letters for so long, twice as long each time up to a day; then one URL tries it again
GIVE_UP_S = 30 * 86_400.0  # an origin in trouble for so long is dead, in a crawl that goes on
RETRY_AFTER_CAP_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Wait:
    """`first_s` at first, twice as long after each further failure in a row, `most_s` at the most; a quarter of jitter either way."""

    first_s: float
    most_s: float

    def after(self, failures_before: int, rng: random.Random) -> float:
        return min(self.most_s, self.first_s * 2.0 ** min(failures_before, 30)) * jitter(rng)


@dataclass(frozen=True, slots=True)
class Failure:
    """`url`: the URL waits so, a dead letter after `url_tries`; None: it is not the URL's fault. `origin`: all URLs of the origin wait so;
    dead after `origin_tries` in a row (None: only after a long time). `struggling`: the wait is halved by each answer, not ended. `host`:
    the whole host waits so. Neither url nor origin: final at once."""

    meaning: str
    url: Wait | None = None
    url_tries: int = 1
    origin: Wait | None = None
    origin_tries: int | None = None
    struggling: bool = False
    host: Wait | None = None


NAMELESS = Wait(8, 30)  # three tries within a minute
NAMES_FAIL = Wait(10, 21_600)
UNREACHED = Wait(15, 21_600)
HALF_AN_HOUR = Wait(10, 1800)

FAILURES = {
    "dns_nxdomain": Failure("the name does not exist", origin=NAMELESS, origin_tries=3),
    "connect_refused": Failure("nobody listens", origin=NAMELESS, origin_tries=3),
    "dns_servfail": Failure("the name servers of the host fail", origin=NAMES_FAIL),
    "dns_timeout": Failure("the name servers do not answer", origin=NAMES_FAIL),
    "connect_timeout": Failure("no connection in time", origin=UNREACHED),
    "connect_failed": Failure("no route, or the connection broke while it was made", origin=UNREACHED),
    "tls": Failure("no TLS connection", origin=Wait(5, 3600), origin_tries=2),
    "timeout": Failure("no answer in time", url=Wait(15, 3600), url_tries=3, origin=Wait(2, 600), struggling=True),
    "reset": Failure("the connection ended before the answer", url=HALF_AN_HOUR, url_tries=3),
    "bad_response": Failure("not HTTP, or headers over the cap", url=Wait(30, 3600), url_tries=2),
    "http_429": Failure("too many requests", url=HALF_AN_HOUR, url_tries=5, host=Wait(5, 3600)),
    "http_503": Failure("the server is overloaded or closed", url=HALF_AN_HOUR, url_tries=4, origin=Wait(5, 3600), struggling=True),
    "http_5xx": Failure("server error", url=HALF_AN_HOUR, url_tries=4, origin=Wait(2, 600), struggling=True),
    "private_address": Failure("the name leads to an address that is not public"),
    "parser_died": Failure("the page ended the process that analysed it", url=HALF_AN_HOUR, url_tries=2),
    "no_outcome": Failure("the request ended without a response or an error", url=Wait(5, 3600), url_tries=3),
    "error": Failure("an exception that is not in this table", url=HALF_AN_HOUR, url_tries=3),
}
UNREACHABLE_ROBOTS = Failure("robots.txt cannot be had", origin=Wait(5, 1800))
ROBOTS_ELSEWHERE = Failure("robots.txt is being fetched from another host", origin=Wait(30, 1800))
WAITS_WITHOUT_SIBLING = "tls"  # its URLs wait, if they have no other spelling, and are not dead before the origin is given up


def status_kind(status: int) -> str | None:
    """The failure that a status is; None: it is an answer."""
    if status == 429:
        return "http_429"
    if status == 503:
        return "http_503"
    return "http_5xx" if status >= 500 else None


def jitter(rng: random.Random) -> float:
    return rng.uniform(0.75, 1.25)


def unix_time(date: str | None) -> float | None:
    """Of an HTTP date; None for what is none."""
    try:
        at = email.utils.parsedate_to_datetime(date or "")
        found = (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return found if math.isfinite(found) else None


def retry_after_s(value: str | None, now: float) -> float | None:
    """Seconds of a Retry-After header (RFC 9110 §10.2.3): a number or a date; None for nonsense; capped at a day. `now`: Unix time by the
    clock of who sent it."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text.lstrip("0")[:12] or "0"), RETRY_AFTER_CAP_S)
    at = unix_time(text)
    return None if at is None else min(max(at - now, 0.0), RETRY_AFTER_CAP_S)
