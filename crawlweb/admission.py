"""From a lease to a job: what must be known first. Is it of the host's own URLs, may its page count under max_pages, what does the
robots.txt of its origin say (or is it to be fetched instead), and is its address held for it (turns.py)?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from .frontier.frontier import Frontier
from .frontier.rows import Lease, Outcome
from .job import ROBOTS_FOR, Job, check_probe, robots_requested
from .jobs import Jobs
from .limit import PageLimit
from .policy import robots
from .policy.hosts import is_on_host, name_of
from .records import boottime
from .rulebook import Kept, Rulebook
from .turns import IpTurns

SHOWN_S = 0.005  # the time to look at what comes next on a host that disallows much


class Admission:
    """Leases become `jobs`, or go back: `finish(job, outcome)`, `give_back(job)`. `address_of`: see Worker. `turns`: of addresses."""

    def __init__(
        self,
        frontier: Frontier,
        limit: PageLimit | None,
        rulebook: Rulebook,
        jobs: Jobs,
        *,
        address_of: Callable[[str], Awaitable[str]] | None,
        finish: Callable[[Job, Outcome], None],
        give_back: Callable[[Job], None],
        run: Callable[[Coroutine[Any, Any, None]], None],
        count: Callable[..., None],
    ) -> None:
        self.closing = False
        self.turns = IpTurns(frontier, self._turn_came, self._turn_refused)
        self._limit, self._rulebook, self._jobs, self._address_of = limit, rulebook, jobs, address_of
        self._finish, self._give_back, self._run, self._count = finish, give_back, run, count
        self._resolving: dict[str, Job] = {}  # whose address is being looked up, by token

    async def admit(self, leases: list[Lease]) -> None:
        """Makes jobs of leases: of the host's own URLs, with a permit under max_pages, robots.txt of the origin known or to be fetched."""
        foreign = [lease for lease in leases if not is_on_host(lease.entry.url, lease.host)]
        for lease in foreign:
            self._count("quarantined")
            self._finish(Job(lease, ""), Outcome(lease, "q", arg="host"))
        leases = [lease for lease in leases if lease not in foreign] if foreign else leases
        if self._limit is not None and leases:
            refused = await self._limit.admit(leases)
            for outcome in refused:
                self._finish(Job(outcome.lease, ""), outcome)
            tokens = {outcome.lease.token for outcome in refused}
            leases = [lease for lease in leases if lease.token not in tokens]
        kept = await self._rulebook.look_up(lease for lease in leases if ROBOTS_FOR not in lease.entry.request)
        for lease in leases:
            self._make_job(lease, kept.get(robots.origin_of(lease.entry.url), Kept()))
        if leases:
            self._jobs.wake()

    def close(self) -> None:
        """No lease becomes a job any more; those that wait for their addresses go back."""
        self.closing = True
        for job in (*self.turns.take_back(), *self._resolving.values()):
            job.ip = ""
            self._give_back(job)
        self._resolving.clear()

    def _make_job(self, lease: Lease, kept: Kept) -> None:
        origin = robots.origin_of(lease.entry.url)
        job = Job(lease, origin, robots_host=lease.host)
        try:
            check_probe(lease.entry.request)
            elsewhere = robots_requested(lease.entry.request)
        except ValueError:
            self._count("quarantined")
            self._finish(job, Outcome(lease, "q", arg="request"))
            return
        if elsewhere is not None:
            job.robots_host, job.origin, job.robots_hops, job.has_stale = elsewhere
            job.robots_url = lease.entry.url
        elif (rules := self._rulebook.of(origin)) is None:
            job.robots_url = robots.robots_url(origin)
            job.stale_robots, job.has_stale = kept.old, kept.old is not None
            if kept.hop is not None and is_on_host(kept.hop.to, lease.host):
                job.robots_url, job.robots_hops = kept.hop.to, kept.hop.hops
        elif not rules.allows(lease.entry.url):
            others = list(_disallowed(lease, origin, rules))
            self._count("robots/disallowed", 1 + len(others))
            self._finish(job, Outcome(lease, "n", arg=others))
            return
        if self.closing:
            self._give_back(job)
        elif self._address_of is None or lease.has_permission:
            self._jobs.push(job, lease.not_before)
        else:
            self._resolving[lease.token] = job
            self._run(self._resolve(job))

    async def _resolve(self, job: Job) -> None:
        """The name is looked up when the lease arrives; where that fails, the request will find the failure in the resolver's cache."""
        assert self._address_of is not None
        ip = await self._address_of(name_of(job.robots_url or job.lease.entry.url))
        if self._resolving.pop(job.lease.token, None) is None:  # given back meanwhile
            return
        job.ip = ip
        if ip:
            self.turns.wish(job, job.lease.not_before)
        else:
            self._jobs.push(job, job.lease.not_before)
            self._jobs.wake()

    def _turn_came(self, job: Job, not_before: float, until: float) -> None:
        job.ip_until = until
        if self.closing:
            self._give_back(job)
            return
        self._jobs.push(job, max(not_before, job.lease.not_before))
        self._jobs.wake()

    def _turn_refused(self, job: Job, wait_s: float) -> None:
        self._count("ip/refused")
        job.ip = ""
        self._finish(job, Outcome(job.lease, "l", wait_s=wait_s))


def _disallowed(lease: Lease, origin: str, rules: robots.Rules) -> Iterator[bytes]:
    """What comes next on the host of a disallowed URL and is disallowed too; hostile rules take long to apply."""
    until = boottime() + SHOWN_S
    for data, url in lease.shown:
        if robots.origin_of(url) == origin and not rules.allows(url):
            yield data
        if boottime() > until:
            return
