"""From what a fetch brought to what the frontier is told: carries values between policy and frontier."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from urllib.parse import urljoin

from .content import soft_404
from .content.page import Wants, parse_page
from .errors import ConnectionWasClosed, FetchError, LeaseExpired, StoreError, without_credentials
from .frontier.rows import (
    GOOD_PAGE,
    NORMAL,
    UNCHECKED,
    KeptNow,
    Lease,
    Link,
    OriginFailed,
    Outcome,
    PageSeen,
    PushedBack,
    Refused,
    probed,
    real_error,
)
from .job import ROBOTS_FOR, Job, robots_request
from .policy import refusals, retry, robots
from .policy.canonical import Canonicalizer, request_key
from .policy.hosts import is_on_host
from .policy.siblings import origin_sibling, slash_sibling
from .records import Entry, Fetch

STORE_FULL_WAIT_S = 30.0
CUT_S = (
    0.25  # a server learns so much later that we have closed its connection: half a round trip, what is on the way, and what else it does
)
STALE_S = 600.0  # an old copy of a robots.txt that cannot be renewed holds so long, then it is asked for again
REDIRECTS = (301, 302, 303, 307, 308)
GONE = (404, 410)
ERROR_PAGE_BYTES = 131_072  # a larger one is not learnt: it would be parsed here, on the loop
ERROR_PAGES_PARSED = 1 / 16  # of a host with known ones
_TEXT_ONLY = Wants(main_text=False, language=False)
SITEMAPS_MOST = 200  # of a robots.txt, those that are kept


@dataclass(frozen=True, slots=True)
class Sent:
    """The request, as far as the host's clock is concerned. `ended`: boottime of its end, None if nothing was sent."""

    ended: float | None = None
    latency_s: float | None = None
    cut_s: float = 0.0  # the server saw the end so much later

    @classmethod
    def of(cls, fetch: Fetch) -> Sent:
        return cls(fetch.finished, fetch.latency_s, 0.0 if fetch.truncated in (None, "disconnect") else CUT_S)

    @classmethod
    def failed(cls, ended: float | None, error: BaseException) -> Sent:
        return cls(ended, cut_s=CUT_S if isinstance(error, FetchError) and error.kind == "timeout" else 0.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for the frontier; `stat`: what else to count; `link`: a redirect's target, another spelling, a robots.txt elsewhere.

    `is_last`: nothing follows for this URL, so the spider is shown the response or the error (as with Scrapy's own retries and redirects).
    `robots`: the answer that was found for the job's origin, or holds for it; `rules`: those in it. `news`: what the host that a robots.txt
    was fetched for must be told.
    """

    outcome: Outcome
    stat: str | None = None
    link: Link | None = None
    is_page: bool = False
    is_last: bool = True
    rules: robots.Rules | None = field(default=None, compare=False)
    robots: robots.Answer | None = None
    news: Callable[[Lease], Outcome] | None = None

    def seen_late(self, sent: Sent) -> Verdict:
        """A server learns a little later that we closed its connection before it was done."""
        return replace(self, outcome=replace(self.outcome, cut_s=sent.cut_s)) if sent.cut_s else self


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
    """`give_up_s`: an origin in trouble for so long is given up; None: in a crawl that goes on, after `retry.GIVE_UP_S`. `timeout_s`: the
    latency that a request without an answer counts as. `crawl_delay_cap_s`: of a robots.txt. `unix_now`: a clock that does not depend on
    this machine's."""

    def __init__(
        self,
        canonicalizer: Canonicalizer,
        *,
        max_redirects: int,
        give_up_s: float | None,
        timeout_s: float,
        rng: random.Random,
        crawl_delay_cap_s: float = robots.CRAWL_DELAY_CAP_S,
        unix_now: Callable[[], float] = time.time,
    ) -> None:
        self._unix_now = unix_now
        self._canonicalizer, self._max_redirects, self._give_up_s, self._rng = canonicalizer, max_redirects, give_up_s, rng
        self._timeout_s, self._crawl_delay_cap_s = timeout_s, crawl_delay_cap_s
        rest_s = refusals.BLOCKED_FIRST_S if give_up_s is None else min(refusals.BLOCKED_FIRST_S, max(give_up_s, 1.0))
        self._refused = PageSeen(Refused(rest_s, refusals.BLOCKED_MOST_S if give_up_s is None else rest_s, give_up_s, retry.DEAD_S))

    def response(
        self, job: Job, status: int, header: Callable[[str], str | None], body: bytes | None, sent: Sent, follow: bool = True
    ) -> Verdict:
        """Of an answer. `header`: the value of one; `body`: None where none was wanted; `follow`: redirects are not the spider's own
        business."""
        location, retry_after_s = header("Location"), None
        if retry_after := header("Retry-After"):  # a date is by the clock of who sent it
            retry_after_s = retry.retry_after_s(retry_after, retry.unix_time(header("Date")) or self._unix_now())
        kind = retry.status_kind(status)
        if job.robots_url:
            answer = robots.judge(status, body or b"", location, job.robots_url, job.robots_hops)
            return self._robots(job, answer, kind or "bad_response", f"status {status}", retry_after_s, sent)
        if kind:
            return self._failed(job, kind, sent, f"status {status}", retry_after_s)
        done = Outcome(job.lease, "d", sent.ended, sent.latency_s)
        if job.is_probe:
            shape = self._shape(job, header, body) if status in GONE or 200 <= status < 300 else b""
            return Verdict(replace(done, error_pages=probed(self._unix_now(), shape, status in GONE)), "probes", is_last=False)
        if status in GONE:
            done = self._learnt(done, job, header, body)
        if follow and status in REDIRECTS:
            stat, link = self._redirect(job, status, location)
            return Verdict(done, stat, link, is_last=link is None)
        if follow and status in GONE and (link := self._sibling(job)):
            return Verdict(done, "siblings", link, is_last=False)
        refused = None if body is None else refusals.is_refusal(status, body)
        if refused is not None:
            done = replace(done, page=self._refused if refused else GOOD_PAGE)
        return Verdict(done, "refusals" if refused else None, is_page=200 <= status < 300 and body is not None)

    def _shape(self, job: Job, header: Callable[[str], str | None], body: bytes | None) -> bytes:
        """Of an error page; b"": it has none."""
        content_type, url = header("Content-Type"), job.lease.entry.url
        if not body or len(body) > ERROR_PAGE_BYTES or "html" not in (content_type or "html").lower():
            return b""
        return soft_404.shape(parse_page(body, url, content_type, wants=_TEXT_ONLY), url)

    def _learnt(self, done: Outcome, job: Job, header: Callable[[str], str | None], body: bytes | None) -> Outcome:
        """A host's error pages are parsed while none is known, then now and then."""
        known = job.lease.error_shapes
        if known and self._rng.random() >= ERROR_PAGES_PARSED:
            return done
        shape = self._shape(job, header, body)
        return replace(done, error_pages=real_error(shape)) if shape and soft_404.likeness(shape, known) < soft_404.LIKE else done

    def failure(self, job: Job, error: BaseException | None, sent: Sent) -> Verdict:
        """Of an exception; None: a request that ended without a response and without one."""
        lease = job.lease
        if isinstance(error, LeaseExpired):
            return Verdict(Outcome(lease, "l"), "leases/returned", is_last=False)
        if isinstance(error, ConnectionWasClosed):
            return Verdict(Outcome(lease, "l", sent.ended), "keep_alive/lost", is_last=False)
        if isinstance(error, StoreError):
            return Verdict(Outcome(lease, "w", sent.ended, sent.latency_s, STORE_FULL_WAIT_S), "errors/store", is_last=False)
        kind = "no_outcome" if error is None else error.kind if isinstance(error, FetchError) else "error"
        if kind not in retry.FAILURES:
            kind = "error"
        if kind in ("timeout", "connect_timeout"):
            sent = replace(sent, latency_s=self._timeout_s)
        detail = without_credentials(str(error).removeprefix(f"{kind}: ")) if error else ""
        return self._failed(job, kind, sent, detail)

    def _failed(self, job: Job, kind: str, sent: Sent, error: str, retry_after_s: float | None = None) -> Verdict:
        lease, row, stat = job.lease, retry.FAILURES[kind], f"errors/{kind}"
        is_final = row.url is None and row.origin is None
        if job.robots_url and (job.robots_hops or (not is_final and row.origin_tries is None)):
            return replace(self._unreachable(job, kind, error, retry_after_s, sent), stat=stat)
        outcome = Outcome(lease, "o", sent.ended, sent.latency_s, origin=job.origin, error=error)
        if is_final and not job.is_probe:
            return Verdict(replace(outcome, way="x", arg=kind), stat, is_last=not job.robots_url)
        if row.origin:
            outcome = replace(outcome, failed=self._origin_failed(kind, row, retry_after_s))
        if row.host:
            outcome = replace(outcome, pushed_back=self._pushed_back(row.host, retry_after_s))
        if job.is_probe and (is_final or row.url is not None):
            return Verdict(replace(outcome, way="d"), stat, is_last=False)
        if row.url is None:
            return Verdict(outcome, stat, is_last=False)
        if self._give_up_s is not None and (retry_after_s or 0.0) > self._give_up_s:
            return Verdict(replace(outcome, way="x", arg=kind), stat)
        wait_s = max(row.url.after(lease.entry.failures, self._rng), retry_after_s or 0.0)
        is_last = lease.entry.failures + 1 >= row.url_tries
        return Verdict(replace(outcome, way="r", wait_s=wait_s, arg=(row.url_tries, kind)), stat, is_last=is_last)

    def _origin_failed(self, kind: str, row: retry.Failure, retry_after_s: float | None = None) -> OriginFailed:
        assert row.origin is not None
        return OriginFailed(
            kind,
            row.origin.first_s,
            row.origin.most_s,
            retry.jitter(self._rng),
            retry_after_s or 0.0,
            row.origin_tries,
            retry.DEAD_S if self._give_up_s is None else min(retry.DEAD_S, max(self._give_up_s, 1.0)),
            retry.GIVE_UP_S if self._give_up_s is None else self._give_up_s,
            row.struggling,
            kind == retry.WAITS_WITHOUT_SIBLING,
        )

    def _pushed_back(self, wait: retry.Wait, retry_after_s: float | None) -> PushedBack:
        return PushedBack(wait.first_s, wait.most_s, retry.jitter(self._rng), retry_after_s or 0.0, self._give_up_s, "http_429")

    # -- robots.txt ----------------------------------------------------------------------------------------------------

    def _robots(self, job: Job, answer: robots.Answer, kind: str, error: str, retry_after_s: float | None, sent: Sent) -> Verdict:
        """An answer to a request for robots.txt, whosever turn it took. `kind`, `error`: the failure that it is, if it is none."""
        if answer.decision in ("unreachable", "defer"):
            return self._unreachable(job, kind, error, retry_after_s, sent)
        if answer.decision != "redirect":
            return self._known(job, answer, f"robots/fetched/{answer.why or answer.decision}", sent)
        released = Outcome(job.lease, "l", sent.ended, sent.latency_s, origin=job.origin)
        if not job.is_robots_link and is_on_host(answer.to, job.lease.host):
            hop = (job.origin, answer.pack(), round(answer.ttl_s * 1000))
            return Verdict(replace(released, robots_hop=hop), "robots/fetched/redirect", is_last=False, robots=answer)
        link = self._robots_link(job, answer)
        if link is None:
            return self._known(job, robots.Answer("allow"), "robots/fetched/invalid", sent)
        if job.is_robots_link:
            return Verdict(replace(released, way="d", origin=""), "robots/fetched/redirect", link, is_last=False)
        stat = "robots/fetched/redirect_other_host"
        if job.stale_robots is not None:
            return self._obey_stale(job, released, stat, link)
        if self._is_hopeless(job):
            return self._known(job, robots.Answer("allow"), "robots/fetched/unreachable_allow", sent)
        waits = self._robots_failed("robots_elsewhere", retry.ROBOTS_ELSEWHERE)
        return Verdict(replace(released, way="o", failed=waits), stat, link, is_last=False)

    def _known(self, job: Job, answer: robots.Answer, stat: str, sent: Sent) -> Verdict:
        """What is known now of an origin's robots.txt is kept for all workers."""
        rules = robots.Rules(answer, delay_cap_s=self._crawl_delay_cap_s, base=job.robots_url)
        delay_ms = -1 if rules.crawl_delay_s is None else round(rules.crawl_delay_s * 1000)
        kept = KeptNow(job.origin, answer.pack(), round(robots.KEPT_S * 1000), delay_ms, tuple(rules.sitemaps[:SITEMAPS_MOST]))
        if job.is_robots_link:
            done = Outcome(job.lease, "d", sent.ended, sent.latency_s)
            return Verdict(done, stat, is_last=False, robots=answer, rules=rules, news=lambda lease: Outcome(lease, "l", robots=kept))
        return Verdict(Outcome(job.lease, "l", sent.ended, sent.latency_s, robots=kept), stat, is_last=False, robots=answer, rules=rules)

    def _unreachable(self, job: Job, kind: str, error: str, retry_after_s: float | None, sent: Sent) -> Verdict:
        """An older copy is obeyed; else the origin's URLs wait. In a crawl that goes on, 30 days of it mean that there are no rules."""
        lease, row = job.lease, retry.FAILURES[kind]
        stat = "robots/fetched/defer" if kind == "http_429" else "robots/fetched/unreachable"
        released = Outcome(lease, "l", sent.ended, sent.latency_s, origin=job.origin, error=f"{kind}, {error}" if error else kind)
        if row.host:
            released = replace(released, pushed_back=self._pushed_back(row.host, retry_after_s))
        failed = self._robots_failed("robots_unreachable", retry.UNREACHABLE_ROBOTS, retry_after_s)
        if job.is_robots_link:
            trouble = self._origin_failed(kind, row, retry_after_s) if row.origin else None
            told = replace(released, way="d", origin="", failed=trouble)
            news = None if job.has_stale else lambda lease: Outcome(lease, "l", origin=job.origin, failed=failed, error=released.error)
            return Verdict(told, stat, is_last=False, news=news)
        if job.stale_robots is not None:
            is_too_long = self._give_up_s is not None and (retry_after_s or 0.0) > self._give_up_s
            waits_s = 0.0 if row.host or retry_after_s is None or is_too_long else retry_after_s
            if waits_s:
                released = replace(released, way="o", failed=replace(failed, give_up_s=None))
            return self._obey_stale(job, released, "robots/fetched/stale", hold_s=STALE_S + waits_s)
        if self._is_hopeless(job):
            return self._known(job, robots.Answer("allow"), "robots/fetched/unreachable_allow", sent)
        return Verdict(replace(released, way="o", failed=failed), stat, is_last=False)

    def _robots_failed(self, kind: str, row: retry.Failure, retry_after_s: float | None = None) -> OriginFailed:
        """In a crawl that goes on, an origin is not given up for its robots.txt: after 30 days it counts as having none."""
        failed = self._origin_failed(kind, row, retry_after_s)
        return replace(failed, give_up_s=None) if self._give_up_s is None else failed

    def _is_hopeless(self, job: Job) -> bool:
        return self._give_up_s is None and (job.lease.trouble_s or 0.0) >= retry.GIVE_UP_S - 2 * retry.DEAD_S

    def _obey_stale(self, job: Job, released: Outcome, stat: str, link: Link | None = None, hold_s: float = STALE_S) -> Verdict:
        """The old copy of robots.txt holds for a while."""
        assert job.stale_robots is not None
        held = replace(released, stale_robots=(job.origin, hold_s))
        rules = robots.Rules(job.stale_robots, delay_cap_s=self._crawl_delay_cap_s)
        return Verdict(held, stat, link, is_last=False, robots=job.stale_robots, rules=rules)

    def _robots_link(self, job: Job, answer: robots.Answer) -> Link | None:
        """The robots.txt of an origin, to be fetched from another host when that host's clock allows."""
        target = self._canonicalizer.target(answer.to)
        if target is None:
            return None
        fields = robots_request(job.robots_host, job.origin, answer.hops, job.has_stale)
        key = request_key(target.key, ROBOTS_FOR, job.origin)
        return Link(target.host, key, Entry(target.url, 0, request=fields), UNCHECKED)

    # -- other URLs that follow ------------------------------------------------------------------------------------------

    def _sibling(self, job: Job) -> Link | None:
        """Another spelling of a URL that is not there, under the same key: with or without slash if its origin has other pages, then, or
        if it has none, at another origin of the host."""
        lease, entry = job.lease, job.lease.entry
        key = self._canonicalizer.url_key(entry.url)
        if entry.sibling == 2 or entry.request or key in entry.chain:
            return None
        other: str | None
        slash = slash_sibling(entry.url)
        if slash and not entry.sibling and lease.origin_has_pages:
            other, sibling = slash, 1
        elif lease.others_have_pages or not lease.origin_has_pages:
            other, sibling = origin_sibling(slash if slash and entry.sibling else entry.url), 2
        else:
            return None
        target = self._canonicalizer.target(other) if other else None
        if target is None or target.key != key:
            return None
        return Link(target.host, key, replace(entry, url=target.url, failures=0, expiries=0, sibling=sibling), UNCHECKED)

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
            sibling=entry.sibling if target.key == chain[-1] else 0,
            request=redirected(entry.request, status, robots.origin_of(target.url) == job.origin),
        )
        carried = follow.request
        key = request_key(target.key, str(carried.get("method", "GET")), str(carried.get("body", "")))
        return "redirects", Link(target.host, key, follow, UNCHECKED if target.key in chain else NORMAL)
