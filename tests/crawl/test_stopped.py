"""A worker that is stopped (SIGSTOP) for longer than its leases last does not fetch under them when it wakes."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import redis

from tests.crawl.crawler import PARTITIONS, Crawl, at_once
from tests.crawl.test_limits import a_redis
from tests.web import Slow, Tree, Web
from tests.web.names import question
from tests.web.report import Visit

DELAY_S = 0.3
FETCHES = 3  # at a time, of the one that is stopped
ONE = "one.example"
LATE = "late.org"  # its name server answers while the worker is stopped


def leased(client: Any) -> dict[str, str]:
    """URLs by token."""
    rows = [row for p in range(PARTITIONS) for row in client.hgetall(f"{{web:{p}}}:leased").items()]
    return {token.decode(): text.split(b"\t")[4].decode() for token, text in rows}


def hold_name(web: Web, name: str) -> list[Any]:
    """Queries for a name are kept, and not answered."""
    held: list[Any] = []
    answer = web.names.datagram_received

    def datagram_received(data: bytes, addr: Any) -> None:
        if question(data)[0] == name:
            held.append((data, addr))
        else:
            answer(data, addr)

    web.names.datagram_received = datagram_received  # type: ignore[method-assign]
    return held


def free_name(web: Web, held: list[Any]) -> None:
    del web.names.datagram_received
    assert web._loop
    for data, addr in held:
        web._loop.call_soon_threadsafe(web.names.datagram_received, data, addr)


@at_once
def test_a_worker_that_was_stopped_fetches_nothing_under_leases_that_ran_out(folder: Path) -> None:
    sites = [*(Slow(f"slow{i}.org", pages=4) for i in range(40)), Tree(LATE, pages=3)]
    with a_redis() as url, Web(sites=sites) as web, redis.Redis.from_url(url) as client:
        settings = {"DOWNLOAD_TIMEOUT": 1, "CRAWLWEB_LEASE_S": 3, "CRAWLWEB_MIN_DELAY_S": DELAY_S, "CRAWLWEB_SPILL_URL": folder / "cold"}
        one = Crawl(
            folder / "one", web.dns_server, REDIS_URL=url, CONCURRENT_REQUESTS=FETCHES, CRAWLWEB_CONTACT=f"https://{ONE}/", **settings
        )
        two = Crawl(folder / "two", web.dns_server, REDIS_URL=url, **settings)
        with one, two:
            queries = hold_name(web, LATE)
            stopped = one.start(web.seeds())
            stopped.wait_until(lambda: queries and web.served >= FETCHES and len(leased(client)) > 20)
            stopped.process.send_signal(signal.SIGSTOP)
            stopped_at = time.monotonic()
            free_name(web, queries)
            held = leased(client)
            held_urls = set(held.values())
            assert any(LATE in url for url in held_urls)

            def of_held() -> dict[str, Visit]:
                """The last visit of each URL that the stopped worker had leased."""
                return {url: v for v in web.visits() if (url := f"http://{v.host}:{web.http_port}{v.target}") in held_urls}

            taker = two.start()
            taker.wait_until(lambda: not held.keys() & leased(client).keys() and of_held().keys() == held_urls)
            woken_at = time.monotonic()
            stopped.process.send_signal(signal.SIGCONT)
            assert stopped.succeeds().summary[0] == taker.succeeds().summary[0] == "finished"

            assert [v for v in of_held().values() if v.start_s > woken_at and ONE in v.agent] == []
            report = web.report(min_delay_s=DELAY_S, tolerance_s=0.02)
            assert (report.found, report.violations, report.overlaps) == (report.expected, (), ())
            unsent = sum(ONE in v.agent and stopped_at - 0.2 < v.end_s < stopped_at for v in web.visits())
            assert report.refetched <= FETCHES + unsent
            assert sum(int(client.hget(f"{{web:{p}}}:ctr", "expired") or 0) for p in range(PARTITIONS)) == len(held)
            assert one.audit()["lost"] == 0
