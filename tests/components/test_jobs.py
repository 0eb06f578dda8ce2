"""Jobs wait for their not-before; at the end, and when it is too late for them, they are taken out."""

from __future__ import annotations

import asyncio

from crawlweb.frontier.rows import Lease
from crawlweb.job import Job
from crawlweb.jobs import Jobs
from crawlweb.records import Entry, boottime

FETCH_S = 10.0


def job(host: str, *, expires: float = 1e9) -> Job:
    entry = Entry(f"https://{host}/", 5)
    return Job(Lease(host=host, token=host, partition=0, entry=entry, not_before=0.0, expires=expires), f"https://{host}")


def test_a_job_is_given_at_its_not_before_and_the_earliest_comes_first() -> None:
    async def work() -> None:
        jobs, now = Jobs(lambda: None, FETCH_S), boottime()
        late, early, later = job("late.org"), job("early.org"), job("later.org")
        jobs.push(late, now - 1)
        jobs.push(early, now - 2)
        jobs.push(later, now + 1)
        assert [jobs.next_due(now), jobs.next_due(now), jobs.next_due(now)] == [early, late, None]
        assert jobs.next_due(now + 1) is later

    asyncio.run(work())


def test_whoever_asked_too_early_is_woken_when_it_is_time() -> None:
    async def work() -> None:
        woken = asyncio.Event()
        jobs, now = Jobs(woken.set, FETCH_S), boottime()
        jobs.push(job("a.org"), now + 0.02)
        assert jobs.next_due(now) is None
        await asyncio.wait_for(woken.wait(), 5)
        assert boottime() >= now + 0.02

    asyncio.run(work())


def test_jobs_that_were_put_aside_come_back_in_their_order() -> None:
    jobs = Jobs(lambda: None, FETCH_S)
    first, second = job("a.org"), job("b.org")
    jobs.push(second, 1.0)
    jobs.put_aside(first)
    jobs.put_back()
    assert [jobs.next_due(2.0), jobs.next_due(2.0), jobs.next_due(2.0)] == [first, second, None]


def test_those_whose_leases_end_before_a_request_could_are_taken_out() -> None:
    jobs = Jobs(lambda: None, FETCH_S)
    short, long = job("short.org", expires=100.0), job("long.org", expires=200.0)
    jobs.push(short, 0.0)
    jobs.push(long, 0.0)
    assert jobs.take_old(80.0) == []
    assert jobs.take_old(91.0) == [short]
    assert jobs.take_all() == [long]
    assert jobs.take_all() == []


def test_all_are_given_back_at_the_end_with_those_aside() -> None:
    jobs = Jobs(lambda: None, FETCH_S)
    aside, waiting = job("a.org"), job("b.org")
    jobs.push(waiting, 0.0)
    jobs.put_aside(aside)
    assert jobs.take_all() == [aside, waiting]
    jobs.put_back()
    assert jobs.next_due(1.0) is None
