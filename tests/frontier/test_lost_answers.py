"""Calls whose answer was lost are repeated, and what they do is done once: the same steps with and without losses leave the same state."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from lossy import Lossy
from rig import Rig, link, url_key

from crawlweb.frontier import scripts
from crawlweb.frontier.cold import ColdQueues
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.near import NearIndex
from crawlweb.frontier.rows import EXACT, KeptNow, Lease, Limits, OriginFailed, Outcome, Override
from crawlweb.records import Copy, Fingerprint, PageRecord

HOSTS = [f"h{n}.org" for n in range(12)]


def outcome(lease: Lease, n: int, now: float) -> Outcome:
    """One of every way, in turn."""
    failed = OriginFailed("http_5xx", 1.0, 60.0)
    record = PageRecord(lease.entry.url, 1_000_000.0, 200, next_at=1_000_001.0)
    return (
        Outcome(lease, "d", now, 0.05, record=record, record_key=url_key(lease.entry.url)[:8]),
        Outcome(lease, "r", now, wait_s=2.0, arg=(5, "error")),
        Outcome(lease, "l"),
        Outcome(lease, "w", now, wait_s=3.0),
        Outcome(lease, "x", now, arg="http_4xx"),
        Outcome(lease, "o", now, origin=f"https://{lease.host}", failed=failed),
        Outcome(lease, "l", now, robots=KeptNow(f"https://{lease.host}", b"x", 60_000, 2000, ("https://a.org/map",))),
        Outcome(lease, "n", now, arg=[]),
        Outcome(lease, "q", arg="entry"),
    )[n % 9]


async def steps(rig: Rig) -> list[Any]:
    """Every step, some of them several times; what they answered."""
    f, meta, cold = rig.f, Meta(rig.f), ColdQueues(rig.f)
    answers: list[Any] = []
    links = [link(host, f"/{n}", n % 10) for host in HOSTS for n in range(8)]
    for first in range(0, len(links), 30):
        answers.append(await f.enqueue(0, links[first : first + 30]))
    answers.append(await f.enqueue(0, [link("seed.org", f"/{n}", 0, EXACT) for n in range(5)] + links[:5]))
    await f.override("h3.org", Override(delay_s=2.0, concurrency=2, below_minimum=True))
    await f.override("h4.org", Override(pause_until=2_000_000.0))
    for turn in range(6):
        _, leases = await f.lease(0, 10)
        answers.append([(lease.token, lease.entry) for lease in leases])
        answers.append([lease.token for lease in await f.renew(leases[::2])])
        answers.append([lease.token for lease in await f.hold(0, [(lease, 1.0) for lease in leases[:2]])])
        turns = await f.ip_turns(0, [], [("10.0.0.1", lease.host, lease.token) for lease in leases])
        answers.append(turns)
        held = [lease for lease, wait_s in zip(leases, turns, strict=True) if wait_s >= 0]
        answers.append(await f.ip_turns(0, [("10.0.0.1", lease.token, rig.worker_s()) for lease in held], []))
        keys = [url_key(lease.entry.url) for lease in leases]
        answers.append((await meta.permits(20, keys)).allowed)
        answers.append((await meta.spend(20, keys[:3])).allowed)
        await meta.end_pages(20, keys[:2], keys[3:])
        now = rig.worker_s()
        answers.append(await f.complete(0, [outcome(lease, n + turn, now) for n, lease in enumerate(leases) if n % 5]))
        rig.later(4_000 if turn < 5 else 70_000)
        answers.append(await f.records(0, [key[:8] for key in keys]))
        answers.append(await f.due(0))
    rig.later(300_000)
    due = await f.due(0)
    assert due.queued
    answers.append(due)
    kept = [url_key(one.entry.url)[:8] for one in links]
    rows = [(key, data) for key, data in zip(kept, await f.packed_records(0, kept), strict=True) if data]
    assert len(rows) > 1
    answers.append(await f.drop_records(0, rows[1:]))
    host = next(one.host for one in links if url_key(one.entry.url)[:8] == rows[0][0])
    answers.append(await f.make_alias(host, rows[0][0], "https://a.org/original", "duplicate"))
    near = NearIndex(f, f.records_of, pages=10_000, votes_least=2)
    for n in range(6):
        prints = Fingerprint(bytes([n]) * 8, bytes([n % 3]) * 8, n, tuple(range(n, n + 16)))
        answers.append(await near.look_up([Copy(f"https://h{n}.org/", url_key(f"https://h{n}.org/"), f"h{n}.org", 1.0, prints)]))
    answers.append(await f.requeue())
    await f.override("h4.org", None)
    park = "park:big.org"
    for first in range(0, 300, 100):
        await f.enqueue(0, [link("big.org", f"/{n}", 7) for n in range(first, first + 100)])
    answers.append(await cold.tune(0, 60))
    while n := await cold.cut(0, park, 20):
        answers.append(n)
    serial, some = await cold.start_of_tail(0, park, 50)
    chunk = f"{rig.t:013d}-w0-1"
    answers.append(await cold.out(0, park, chunk, some, serial))
    answers.append(await cold.bring_in(0, park, chunk, some, 0))
    await cold.done(0, park)
    await meta.agree({"partitions": "1"}, {})
    await meta.widen_scope(HOSTS)
    await meta.refresh_scope()
    answers.append(await meta.replay(20))
    answers.append(sorted(meta.scope))
    answers.append(await f.counts())
    return answers


def played(url: str, every: int) -> tuple[list[Any], dict[bytes, Any], list[bytes], set[str]]:
    """Answers, what is in Redis after, requests whose answer was lost, steps among them."""
    with ExitStack() as stack:
        lossy = stack.enter_context(Lossy(url, every)) if every else None
        rig = Rig(url, limits=Limits(expected_urls=2048, lease_s=30.0), through=lossy.url if lossy else "")
        stack.callback(rig.close)
        rig.sync.flushdb()
        rig.at(rig.t)
        answers, state = rig.run(steps(rig)), rig.dump()
        rig.check()
        lost = lossy.lost if lossy else []
        return answers, state, lost, {step for step in scripts.STEPS if any(scripts.digest(step).encode() in request for request in lost)}


def test_what_is_done_is_done_once_though_answers_are_lost(redis_url: str) -> None:
    answers, state, _, _ = played(redis_url, 0)
    hit = set[str]()
    for every in (2, 3, 5, 7):
        again, its_state, lost, lost_steps = played(redis_url, every)
        assert len(lost) >= 80 // every
        assert again == answers
        assert its_state == state
        hit |= lost_steps
    assert hit >= {*scripts.STEPS} - {"audit", "peek", "typed", "starts", "events"}  # events: at least once
