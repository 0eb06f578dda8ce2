"""What follows a failure: one table, and the waits.

After BUbiNG's failure policy: each kind has a number of tries, a wait and a verdict on the host.
"""

from __future__ import annotations

import email.utils
import math
import random
import time
from dataclasses import dataclass
from datetime import timezone

DEAD_HOST_S = 3600.0  # a dead host's new URLs become dead letters for so long, then it is tried again
RETRY_AFTER_CAP_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Failure:
    """`blame`: url (it waits, counted; a dead letter after `tries`), host (it rests, uncounted for the URL; dead after `tries` in a row),
    none (final at once). The wait before try n + 1 is `wait_s` * 2^(n-1), capped, with jitter; `host_rests`: the host waits too."""

    blame: str
    tries: int
    wait_s: float
    meaning: str
    cap_s: float = 3600.0
    host_rests: bool = False


FAILURES = {
    "dns_nxdomain": Failure("host", 3, 8, "the name does not exist", cap_s=30),
    "connect_refused": Failure("host", 3, 8, "nobody listens", cap_s=30),
    "dns_servfail": Failure("host", 6, 10, "the name servers of the host fail"),
    "dns_timeout": Failure("host", 6, 10, "the name servers do not answer"),
    "connect_timeout": Failure("host", 4, 15, "no connection in time"),
    "connect_failed": Failure("host", 4, 15, "no route, or the connection broke while it was made"),
    "tls": Failure("url", 2, 30, "no TLS connection"),
    "timeout": Failure("url", 3, 15, "no answer in time", host_rests=True),
    "reset": Failure("url", 3, 10, "the connection ended before the answer"),
    "bad_response": Failure("url", 2, 30, "not HTTP, or headers over the cap"),
    "http_429": Failure("url", 5, 10, "too many requests", host_rests=True),
    "http_5xx": Failure("url", 4, 10, "server error", host_rests=True),
    "private_address": Failure("none", 1, 0, "the name leads to an address that is not public"),
    "no_outcome": Failure("url", 3, 5, "the request ended without a response or an error"),
    "error": Failure("url", 3, 10, "an exception that is not in this table"),
}
UNREACHABLE_ROBOTS = Failure("host", 0, 5, "robots.txt cannot be had", cap_s=1800)


def status_kind(status: int) -> str | None:
    """The failure that a status is; None: it is an answer."""
    if status == 429:
        return "http_429"
    return "http_5xx" if status >= 500 else None


def wait_s(failure: Failure, failures_before: int, rng: random.Random) -> float:
    """Exponential with jitter of a quarter either way."""
    return min(failure.cap_s, failure.wait_s * 2.0 ** min(failures_before, 30)) * rng.uniform(0.75, 1.25)


def retry_after_s(value: str | None, now: float | None = None) -> float | None:
    """Seconds of a Retry-After header (RFC 9110 §10.2.3): a number or a date; None for nonsense; capped at a day. `now`: Unix time."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text.lstrip("0")[:12] or "0"), RETRY_AFTER_CAP_S)
    try:
        date = email.utils.parsedate_to_datetime(text)
        at = (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    wait = at - (time.time() if now is None else now)
    return min(max(wait, 0.0), RETRY_AFTER_CAP_S) if math.isfinite(wait) else None
