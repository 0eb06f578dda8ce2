"""From what a fetch brought to what the frontier is told: carries values between policy and frontier."""

from __future__ import annotations

import random
from dataclasses import dataclass
from urllib.parse import urljoin

from .errors import FetchError, LeaseExpired, StoreError
from .frontier.frontier import NORMAL, UNCHECKED, Link, Outcome
from .policy import retry, robots
from .policy.canonical import Canonicalizer, request_key
from .policy.hosts import is_on_host
from .records import Entry
from .worker import Job

STORE_FULL_WAIT_S = 30.0
REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class Sent:
    """The request, as far as the host's clock is concerned. `ended`: boottime of its end, None if nothing was sent."""

    ended: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for the frontier; `stat`: what else to count; `link`: a redirect's target.

    `is_last`: nothing follows for this URL, so the spider is shown the response or the error (as with Scrapy's own retries and redirects).
    """

    outcome: Outcome
    stat: str | None = None
    link: Link | None = None
    is_page: bool = False
    is_last: bool = True
    robots: robots.Answer | None = None


def redirected(request: dict[str, object], status: int, same_origin: bool = True) -> dict[str, object]:
    """What a Scrapy request carries to a redirect's target: all of it, but a POST becomes a GET as in browsers (RFC 9110 §15.4), and what
    is meant for one origin stays there."""
    method, left_out = request.get("method", "GET"), set[str]()
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        request = {name: value for name, value in request.items() if name not in ("method", "body")}
        left_out |= {"content-type", "content-length", "content-encoding"}
    if not same_origin:
        left_out |= {"authorization", "cookie", "proxy-authorization"}
    rows = request.get("headers")
    if not left_out or not isinstance(rows, list):
        return request
    return {**request, "headers": [row for row in rows if isinstance(row, list) and row and str(row[0]).lower() not in left_out]}


class Judge:
    """`give_up_s`: a host whose robots.txt cannot be had for so long is given up; None: never."""

    def __init__(self, canonicalizer: Canonicalizer, *, max_redirects: int, give_up_s: float | None, rng: random.Random) -> None:
        self._canonicalizer, self._max_redirects, self._give_up_s, self._rng = canonicalizer, max_redirects, give_up_s, rng

    def response(
        self, job: Job, status: int, location: str | None, retry_after: str | None, body: bytes, sent: Sent, follow: bool = True
    ) -> Verdict:
        """Of an answer: `location` and `retry_after` are the header values; `follow`: redirects are not the spider's own business."""
        if job.robots_url:
            return self._robots(job, status, location, retry_after, body, sent)
        kind = retry.status_kind(status)
        if kind:
            return self._failed(job, kind, sent, retry.retry_after_s(retry_after))
        done = Outcome(job.lease, "d", sent.ended, sent.latency_s)
        if status in REDIRECTS and follow:
            stat, link = self._redirect(job, status, location)
            return Verdict(done, stat, link, is_last=link is None)
        return Verdict(done, is_page=200 <= status < 300)

    def failure(self, job: Job, error: BaseException | None, sent: Sent) -> Verdict:
        """Of an exception; None: a request that ended without a response and without one."""
        lease = job.lease
        if isinstance(error, LeaseExpired):
            return Verdict(Outcome(lease, "l"), "leases/returned", is_last=False)
        if isinstance(error, StoreError):
            return Verdict(Outcome(lease, "w", sent.ended, sent.latency_s, STORE_FULL_WAIT_S), "errors/store", is_last=False)
        if error is None:
            return self._failed(job, "no_outcome", sent)
        kind = error.kind if isinstance(error, FetchError) and error.kind in retry.FAILURES else "error"
        return self._failed(job, kind, sent)

    def _failed(self, job: Job, kind: str, sent: Sent, retry_after_s: float | None = None) -> Verdict:
        lease, failure, stat = job.lease, retry.FAILURES[kind], f"errors/{kind}"
        dead_ms = round(retry.DEAD_HOST_S * 1000)
        if failure.blame == "host":
            wait_s = retry.wait_s(failure, lease.host_failures, self._rng)
            host_failed = Outcome(lease, "h", sent.ended, sent.latency_s, wait_s, (failure.tries, dead_ms, kind))
            return Verdict(host_failed, stat, is_last=False)
        if failure.blame == "none":
            return Verdict(Outcome(lease, "x", sent.ended, sent.latency_s, arg=kind), stat, is_last=not job.robots_url)
        if job.robots_url:
            return Verdict(self._unreachable(job, sent, retry_after_s), stat, is_last=False)
        wait_s = max(retry.wait_s(failure, lease.entry.failures, self._rng), retry_after_s or 0.0)
        rest_ms = round(wait_s * 1000) if failure.host_rests else 0
        failed = Outcome(lease, "r", sent.ended, sent.latency_s, wait_s, (failure.tries, kind, rest_ms))
        return Verdict(failed, stat, is_last=lease.entry.failures + 1 >= failure.tries)

    def _unreachable(self, job: Job, sent: Sent, retry_after_s: float | None) -> Outcome:
        """The host waits: about as long again as robots.txt could not be had so far."""
        row = retry.UNREACHABLE_ROBOTS
        wait_s = min(row.cap_s, max(row.wait_s, job.lease.unreachable_ms / 1000)) * self._rng.uniform(0.75, 1.25)
        give_up_ms = -1 if self._give_up_s is None else round(self._give_up_s * 1000)
        arg = (give_up_ms, round(retry.DEAD_HOST_S * 1000), "robots_unreachable")
        return Outcome(job.lease, "u", sent.ended, sent.latency_s, max(wait_s, retry_after_s or 0.0), arg)

    def _robots(self, job: Job, status: int, location: str | None, retry_after: str | None, body: bytes, sent: Sent) -> Verdict:
        answer = robots.judge(status, body, location, job.robots_url, job.robots_hops)
        stat = f"robots/fetched/{answer.decision}"
        if answer.decision == "unreachable":
            return Verdict(self._unreachable(job, sent, retry.retry_after_s(retry_after)), stat, is_last=False)
        if answer.decision == "redirect" and not is_on_host(answer.to, job.lease.host):
            answer, stat = robots.Answer("allow"), "robots/fetched/redirect_other_host"
        crawl_delay_s = robots.Rules(answer).crawl_delay_s
        kept = (job.origin, answer.pack(), round(answer.ttl_s * 1000), -1 if crawl_delay_s is None else round(crawl_delay_s * 1000))
        return Verdict(Outcome(job.lease, "l", sent.ended, sent.latency_s, robots=kept), stat, is_last=False, robots=answer)

    def _redirect(self, job: Job, status: int, location: str | None) -> tuple[str, Link | None]:
        """A target in the chain is followed while hops remain, whatever the seen-set says: http → https, slash, a detour and back."""
        entry = job.lease.entry
        if entry.hops >= self._max_redirects:
            return "redirects/too_many", None
        target = None
        if location:
            try:
                target = self._canonicalizer.target(urljoin(entry.url, location.strip()))
            except ValueError:
                target = None
        if target is None:
            return "redirects/invalid", None
        if target.url == entry.url:
            return "redirects/loop", None
        chain = (*entry.chain, self._canonicalizer.url_key(entry.url))
        follow = Entry(
            url=target.url,
            priority=entry.priority,
            depth=entry.depth,
            referrer=entry.referrer,
            hops=entry.hops + 1,
            chain=chain,
            found_as=entry.found_as or entry.url,
            request=redirected(entry.request, status, robots.origin_of(target.url) == job.origin),
        )
        carried = follow.request
        key = request_key(target.key, str(carried.get("method", "GET")), str(carried.get("body", "")))
        return "redirects", Link(target.host, key, follow, UNCHECKED if target.key in chain else NORMAL)
