"""What each step does, one sentence a test."""

from __future__ import annotations

import pytest
import redis
from rig import Rig, link, url_key

from crawlweb.errors import FrontierError
from crawlweb.frontier import codec
from crawlweb.frontier.frontier import GUARD_MS
from crawlweb.frontier.rows import (
    EXACT,
    NORMAL,
    UNCHECKED,
    KeptNow,
    Lease,
    Limits,
    Link,
    OriginFailed,
    Outcome,
    Override,
    PageSeen,
    PushedBack,
    Refused,
)
from crawlweb.records import Entry


def links(host: str, count: int, priority: int = 5, start: int = 0) -> list[Link]:
    return [link(host, f"/{i:05}", priority) for i in range(start, start + count)]


def test_a_url_is_leased_completed_and_gone(rig: Rig) -> None:
    assert rig.enqueue(link("a.org")) == "n"
    assert rig.enqueue(link("a.org")) == "s"
    (lease,) = rig.lease()
    assert lease.entry.url == "https://a.org/"
    rig.check()
    assert rig.complete(lease) == "k"
    assert rig.run(rig.f.lease(0, 10)) == (None, [])
    assert rig.state("a.org") is None
    rig.check()


def test_a_seed_is_checked_exactly_even_if_it_was_seen_as_a_link(rig: Rig) -> None:
    assert rig.enqueue(link("a.org")) == "n"
    assert rig.enqueue(link("a.org", how=EXACT)) == "n"
    assert rig.enqueue(link("a.org", how=EXACT)) == "s"
    assert rig.enqueue(link("a.org", how=UNCHECKED)) == "n"


def test_a_key_of_another_length_stops_the_batch_before_anything_is_written(rig: Rig) -> None:
    rig.lease()
    before = rig.dump()
    with pytest.raises(FrontierError, match="16 bytes"):
        rig.enqueue(link("a.org"), Link("a.org", b"short", Entry("https://a.org/x")))
    assert rig.dump() == before


def test_the_best_priority_goes_first_then_the_oldest(rig: Rig) -> None:
    rig.enqueue(link("a.org", "/first", 5), link("a.org", "/low", 9), link("a.org", "/high", 2), link("a.org", "/second", 5))
    order = []
    for _ in range(4):
        (lease,) = rig.lease()
        order.append(lease.entry.url[14:])
        rig.complete(lease)
        rig.later(1_000)
    assert order == ["high", "first", "second", "low"]


def test_a_host_has_one_lease_at_a_time_and_none_before_its_delay_is_over(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 3))
    (lease,) = rig.lease()
    assert rig.lease() == []
    rig.complete(lease)
    rig.later(400)
    assert rig.lease() == []
    rig.later(150)  # within the look-ahead of 500 ms
    (lease,) = rig.lease()
    assert rig.server_ms(lease.not_before) == rig.t + 450


def test_the_delay_counts_from_the_end_of_the_request_and_follows_latency(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 3))
    (lease,) = rig.lease()
    rig.later(5_000)
    rig.complete(lease, ago_ms=700 + GUARD_MS, latency_s=0.4)  # 10 x 0.4 s
    assert round(1000 * (rig.run(rig.f.lease(0, 5))[0] or 0)) == 3_300
    rig.later(3_300)
    (lease,) = rig.lease()
    rig.complete(lease, latency_s=0.8)  # average 0.5 s
    assert round(1000 * (rig.run(rig.f.lease(0, 5))[0] or 0)) == 5_000


def test_a_server_that_learns_late_of_the_end_gets_its_delay_from_then_on(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 2))
    (lease,) = rig.lease()
    rig.later(5_000)
    rig.complete(lease, ago_ms=700 + GUARD_MS, cut_s=0.25)
    assert round(1000 * (rig.run(rig.f.lease(0, 5))[0] or 0)) == 1_000 - 700 + 250


def test_a_crawl_delay_is_in_force_from_the_next_lease_and_robots_is_kept(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 3))
    (lease,) = rig.lease()
    rig.complete(lease, "l", robots=KeptNow("https://a.org", b"as fetched", 60_000, 7_000))
    kept, unknown = rig.run(rig.f.robots("a.org", ["https://a.org", "http://a.org"]))
    assert kept is not None
    assert (kept.value, kept.holds, unknown) == (b"as fetched", False, None)
    assert 59 < kept.left_s <= 60
    assert 0 < rig.sync.pttl(rig.key("robots:https://a.org")) <= 60_000
    rig.later(6_400)
    assert rig.lease() == []
    rig.later(600)
    assert len(rig.lease()) == 1


def test_a_completion_of_a_gone_lease_only_moves_the_clock_and_keeps_the_crawl_delay(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 2))
    (late,) = rig.lease()
    rig.later(60_000)
    assert rig.lease() == []  # reclaimed
    rig.later(5_000)
    assert rig.complete(late, "x", ago_ms=0, arg="refused", robots=KeptNow("https://a.org", b"x", 1000, 30_000)) == "g"
    assert rig.check()["back"] == 2
    assert rig.counters()["late"] == 1
    assert "dead" not in rig.counters()
    rig.later(29_400)
    assert rig.lease() == []  # though `ready` said it was due
    rig.later(600)
    (lease,) = rig.lease()
    rig.complete(lease)
    assert round(1000 * (rig.run(rig.f.lease(0, 5))[0] or 0)) == 30_000


def test_a_sleeper_whose_clock_a_late_completion_moved_sleeps_on(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 2))
    (late,) = rig.lease()
    rig.later(60_000)
    rig.lease()
    rig.later(1_000)
    (lease,) = rig.lease()
    rig.complete(lease, "l", ago_ms=None, wait_s=100)
    rig.complete(late, robots=KeptNow("https://a.org", b"", 1000, 300_000))
    rig.later(100_000)
    assert rig.lease() == []
    rig.check()
    rig.later(200_000)
    assert len(rig.lease()) == 1


def test_a_release_gives_the_exact_place_back_and_counts_nothing(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 4))
    (lease,) = rig.lease()
    before = rig.back("a.org")
    assert rig.complete(lease, "l", ago_ms=None, wait_s=3) == "k"
    assert rig.back("a.org") == [lease.entry.url, *before]
    assert rig.lease() == []
    rig.later(3_000)
    (again,) = rig.lease()
    assert again.entry == lease.entry
    assert "requests" not in rig.counters()


def test_a_released_url_keeps_its_place_when_the_same_url_came_again_meanwhile(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 4))
    (lease,) = rig.lease()
    assert rig.enqueue(link("a.org", "/00000", how=UNCHECKED)) == "n"
    rig.complete(lease, "l", ago_ms=None)
    assert rig.back("a.org")[0] == lease.entry.url
    assert rig.counters()["merged"] == 1
    rig.check()


def test_a_back_queue_holds_64_and_the_rest_is_parked_in_order(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 1))
    (lease,) = rig.lease()
    rig.enqueue(*links("a.org", 100, start=1))
    found = rig.check()
    assert (found["back"], found["park"], found["leased"]) == (64, 36, 1)
    order = [lease.entry.url]
    rig.complete(lease)
    while len(order) < 101:
        rig.later(1_000)
        (lease,) = rig.lease()
        order.append(lease.entry.url)
        rig.complete(lease)
        assert rig.check()["back"] <= 64
    assert order == sorted(order)


def test_a_better_url_displaces_the_worst_of_a_full_back_queue(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 1))
    rig.lease()
    rig.enqueue(*links("a.org", 64, priority=7, start=1))
    rig.enqueue(link("a.org", "/better", 3))
    assert rig.back("a.org")[0].endswith("/better")
    (parked,) = rig.sync.lrange(rig.key("park:a.org"), 0, -1)
    assert codec.decode(parked, "a.org").url.endswith("/00064")
    rig.enqueue(link("a.org", "/worse", 8))
    assert len(rig.back("a.org")) == 64
    rig.check()


def test_a_back_queue_is_filled_up_to_its_cap_however_often_its_host_waits(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 400))
    for _ in range(4):
        (lease,) = rig.lease()
        rig.complete(lease)
        rig.later(61_000)
        (lease,) = rig.lease()
        rig.enqueue(link(f"new{rig.t}.org"))
        rig.complete(lease)  # its time is up and others wait
        assert rig.state("a.org") == "w"
        rig.later(1_000)
        for got in rig.lease():
            rig.complete(got, "d" if got.host != "a.org" else "l", ago_ms=None)
        assert rig.state("a.org") == "r"
        assert rig.check()["back"] <= 64


def test_a_better_url_behind_a_drained_back_queue_does_not_wait_for_the_parked_ones(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 1))
    (lease,) = rig.lease()
    rig.enqueue(*links("a.org", 200, priority=7, start=1))
    for _ in range(64):
        rig.complete(lease, ago_ms=None)
        (lease,) = rig.lease()
    assert rig.check()["back"] == 0
    rig.enqueue(link("a.org", "/better", 1))
    rig.complete(lease, ago_ms=None)
    (lease,) = rig.lease()
    assert lease.entry.url.endswith("/better")


def test_a_host_gives_up_its_place_after_64_requests_if_others_wait(redis_url: str) -> None:
    rig = Rig(redis_url, active_hosts=1, limits=Limits(min_delay_s=0.5))
    rig.enqueue(*links("a.org", 200))
    rig.lease(0)
    rig.enqueue(link("b.org"))
    order = []
    while "b.org" not in order:
        for lease in rig.lease(1):
            order.append(lease.host)
            rig.complete(lease)
        rig.later(100)
    assert order == ["a.org"] * 64 + ["b.org"]
    rig.close()


def test_a_host_gives_up_its_place_after_60_s_if_others_wait(redis_url: str) -> None:
    rig = Rig(redis_url, active_hosts=1)
    rig.enqueue(*links("a.org", 200))
    rig.lease(0)
    rig.enqueue(link("b.org"))
    begun = rig.t
    while True:
        for lease in rig.lease(1):
            if lease.host == "b.org":
                break
            rig.complete(lease, latency_s=0.5)
        else:
            rig.later(500)
            continue
        break
    assert 60_000 <= rig.t - begun <= 66_000
    rig.close()


def test_a_host_keeps_its_place_if_nobody_waits(redis_url: str) -> None:
    rig = Rig(redis_url, active_hosts=1)
    rig.enqueue(*links("a.org", 200))
    for _ in range(150):
        (lease,) = rig.lease()
        rig.complete(lease)
        assert rig.state("a.org") == "r"
        rig.later(1_000)
    rig.close()


def test_a_host_whose_time_is_far_away_sleeps_and_takes_no_place(redis_url: str) -> None:
    rig = Rig(redis_url, active_hosts=1)
    rig.enqueue(*links("a.org", 2))
    (lease,) = rig.lease()
    rig.complete(lease, "l", ago_ms=None, wait_s=300)
    assert rig.state("a.org") == "a"
    rig.enqueue(link("b.org"))
    (other,) = rig.lease()
    assert other.host == "b.org"
    rig.complete(other)
    pause, _ = rig.run(rig.f.lease(0, 5))
    assert pause == 300
    rig.later(300_000)
    assert [lease.host for lease in rig.lease()] == ["a.org"]
    rig.close()


def test_a_url_that_waits_by_itself_does_not_keep_its_host_waiting(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 2))
    (first,) = rig.lease()
    rig.complete(first, "r", wait_s=15, arg=[3, "server error"])
    rig.later(1_000)
    (second,) = rig.lease()
    rig.complete(second)
    assert rig.state("a.org") is None
    assert rig.run(rig.f.lease(0, 5)) == (14.0, [])
    rig.later(14_000)
    (again,) = rig.lease()
    assert (again.entry.url, again.entry.failures) == (first.entry.url, 1)
    rig.check()


def test_a_url_that_waits_leaves_a_host_that_was_promoted_meanwhile_alone(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 1))
    (lease,) = rig.lease()
    rig.complete(lease, "w", ago_ms=None, wait_s=10)
    rig.enqueue(*links("a.org", 3, start=1))
    (other,) = rig.lease()
    rig.later(10_000)
    assert rig.lease() == []
    assert rig.back("a.org")[0] == lease.entry.url
    rig.check()
    rig.complete(other)


def test_a_failed_url_is_a_dead_letter_at_its_last_try(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    for _ in range(3):
        (lease,) = rig.lease()
        rig.complete(lease, "r", wait_s=1, arg=[3, "server error"])
        rig.later(2_000)
    ((host, reason, entry),) = rig.run(rig.f.dead_letters())
    assert (host, reason) == ("a.org", "server error")
    assert entry is not None
    assert entry.failures == 3
    assert rig.check()["pending"] == 0


NO_NAME = OriginFailed("no such name", 20, 20, dead_after=3, dead_s=3_600)
NO_ROBOTS = OriginFailed("no robots.txt", 60, 60, give_up_s=100)
OVERLOAD = OriginFailed("http_503", 4, 600, struggling=True)


def fail(rig: Rig, lease: Lease, how: OriginFailed, way: str = "o") -> None:
    rig.complete(lease, way, failed=how, arg=[9, "failed"] if way == "r" else None)


def test_an_origin_that_failed_three_times_is_drained_to_dead_letters_until_its_time_is_over(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 150))
    for failures in range(3):
        (lease,) = rig.lease()
        assert (lease.entry.failures, lease.origin_failures) == (0, failures)
        fail(rig, lease, NO_NAME)
        rig.later(20_000)
    for _ in range(4):
        assert rig.lease() == []
    assert rig.check()["pending"] == 0
    assert {reason for _, reason, _ in rig.run(rig.f.dead_letters())} == {"no such name"}
    assert len(rig.run(rig.f.dead_letters())) == 150
    rig.enqueue(link("a.org", "/new"))
    assert rig.lease() == []
    assert rig.check()["dead"] == 151
    rig.later(3_600_000)
    rig.enqueue(link("a.org", "/newer"))
    (lease,) = rig.lease()
    assert lease.origin_failures == 3
    rig.complete(lease)
    rig.enqueue(link("a.org", "/newest"))
    rig.later(1_000)
    assert rig.lease()[0].origin_failures == 0


def test_a_dead_origin_is_tried_with_one_url_after_intervals_that_grow(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    for hours in (1, 2, 4, 8, 16, 24, 24):
        while leases := rig.lease():
            fail(rig, leases[0], NO_NAME)
            rig.later(20_000)
        rig.later(hours * 3_600_000 - 60_000)
        rig.enqueue(*links("a.org", 5, start=hours * 1000))
        assert rig.lease() == [], f"dead for {hours} hours"
        rig.later(60_000)
        rig.enqueue(link("a.org", f"/{rig.t}"))


def test_one_origin_in_trouble_does_not_stop_the_others_of_its_host(rig: Rig) -> None:
    """Its URLs are moved out of the way, 1,000 of them before the first of another origin, and none of them is leased meanwhile."""
    rig.enqueue(link("a.org", "/first", before="https://www."))
    rig.enqueue(*(link("a.org", f"/{n}", before="https://dev.") for n in range(1_000)))
    rig.enqueue(*(link("a.org", f"/{n}", before="https://www.") for n in range(20)))
    (lease,) = rig.lease()
    rig.complete(lease)
    rig.later(1_000)
    leased, begun = [], rig.t
    while rig.t < begun + 60_000:
        for lease in rig.lease():
            leased.append(lease.entry.url)
            is_down = "dev." in lease.entry.url
            rig.complete(lease, "o" if is_down else "d", failed=NO_ROBOTS if is_down else None)
        rig.later(250)
    assert sum("www." in url for url in leased) == 20
    assert sum("dev." in url for url in leased) <= 4
    assert rig.check()["wait"] == 1_000


def test_a_host_with_pages_elsewhere_does_not_rest_for_an_origin_though_it_has_nothing_else_to_do(rig: Rig) -> None:
    rig.enqueue(link("a.org", "/", before="https://www."), link("a.org", "/", before="https://dev."))
    for _ in range(2):
        (lease,) = rig.lease()
        if "dev." in lease.entry.url:
            rig.complete(lease, "o", failed=OriginFailed("dns_nxdomain", 8, 30, dead_after=3))
        else:
            rig.complete(lease, page=PageSeen())
        rig.later(1_000)
    rig.enqueue(link("a.org", "/new", before="https://www."))
    assert [lease.entry.url for lease in rig.lease()] == ["https://www.a.org/new"]


def test_urls_of_an_origin_that_is_given_up_are_dead_letters_and_those_of_others_are_not(rig: Rig) -> None:
    rig.enqueue(*(link("a.org", f"/{n}", before=before) for n in range(10) for before in ("https://dev.", "https://www.")))
    done = 0
    for _ in range(400):
        for lease in rig.lease():
            is_down = "dev." in lease.entry.url
            rig.complete(lease, "o" if is_down else "d", failed=NO_ROBOTS if is_down else None)
            done += not is_down
        rig.later(1_000)
    assert done == 10
    letters = rig.run(rig.f.dead_letters())
    assert [reason for _, reason, _ in letters] == ["no robots.txt"] * 10
    assert rig.check()["pending"] == 0


def test_trouble_counts_from_the_first_failure_and_an_answer_ends_it(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 5))
    for expected in (None, 60.0):
        (lease,) = rig.lease()
        assert lease.trouble_s == expected
        fail(rig, lease, NO_ROBOTS)
        rig.later(60_000)
    (lease,) = rig.lease()
    rig.complete(lease)
    rig.later(1_000)
    (lease,) = rig.lease()
    assert lease.trouble_s is None


def test_a_struggling_server_is_asked_less_and_less_and_then_more_and_more(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 40))
    gaps = []
    for n in range(14):
        (lease,) = rig.lease()
        begun = rig.t
        if n < 5:
            fail(rig, lease, OVERLOAD, "r")
        else:
            rig.complete(lease)
        while not (leases := rig.lease()):
            rig.later(100)
        rig.complete(leases[0], "l", ago_ms=None)
        gaps.append(round((rig.server_ms(leases[0].not_before) - begun) / 1000))
        rig.later(500)
    assert gaps[:10] == [4, 8, 16, 32, 64, 32, 16, 8, 4, 2]
    assert gaps[10:] == [1] * 4


def test_push_back_rests_the_whole_host_and_retry_after_is_the_least(rig: Rig) -> None:
    rig.enqueue(*(link("a.org", f"/{n}", before=before) for n in range(9) for before in ("https://dev.", "https://www.")))
    waits = []
    for pushed_back in (PushedBack(5, 600), PushedBack(5, 600), PushedBack(5, 600, retry_after_s=90), None, None):
        (lease,) = rig.lease()
        rig.complete(lease, "r" if pushed_back else "d", pushed_back=pushed_back, arg=[9, "http_429"])
        waits.append(rig.run(rig.f.lease(0, 5))[0])
        rig.later(100_000)
    assert waits == [5, 10, 90, 10, 5]


def test_other_origins_of_a_host_that_is_known_have_pages_only_if_one_did(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 8), link("a.org", "/last", 9, before="https://www."))
    told = []
    for _ in range(9):
        (lease,) = rig.lease()
        told.append((lease.origin_has_pages, lease.others_have_pages))
        rig.complete(lease, page=PageSeen())
        rig.later(1_000)
    assert told == [(False, True), *[(True, True)] * 4, *[(True, False)] * 3, (False, True)]
    rig.enqueue(link("a.org", "/more"))
    (lease,) = rig.lease()
    assert (lease.origin_has_pages, lease.others_have_pages) == (True, True)


def test_a_retry_after_that_is_too_long_to_wait_for_makes_dead_letters(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 5))
    (lease,) = rig.lease()
    rig.complete(lease, "x", arg="http_429", pushed_back=PushedBack(5, 600, 1.0, 86_400, 3_600, "http_429"))
    rig.later(1_000)
    assert rig.lease() == []
    assert [reason for _, reason, _ in rig.run(rig.f.dead_letters())] == ["http_429"] * 5
    rig.enqueue(*links("a.org", 1, start=50))
    rig.later(86_000_000)
    assert rig.lease() == []
    rig.later(1_000_000)
    rig.enqueue(*links("a.org", 1, start=90))
    assert len(rig.lease()) == 1


def test_the_origins_that_had_pages_are_known_to_all_workers(rig: Rig) -> None:
    rig.enqueue(*(link("a.org", f"/{n}", before=before) for n in range(3) for before in ("https://", "https://www.")))
    found = []
    for _ in range(6):
        (lease,) = rig.lease()
        found.append((lease.entry.url, lease.origin_has_pages))
        rig.complete(lease, page=PageSeen() if "www." in lease.entry.url else None)
        rig.later(1_000)
    assert [has_pages for url, has_pages in found if "www." in url] == [False, True, True]
    assert [has_pages for url, has_pages in found if "www." not in url] == [False, False, False]


@pytest.mark.parametrize("ago_ms", [0, None])
def test_what_a_server_asked_for_holds_though_the_lease_was_gone(rig: Rig, ago_ms: int | None) -> None:
    rig.enqueue(*links("a.org", 3), *links("b.org", 3))
    leases = rig.lease()
    rig.later(60_000)
    rig.lease()
    for lease in leases:
        if lease.host == "a.org":
            assert rig.complete(lease, "r", ago_ms, arg=[9, "http_429"], pushed_back=PushedBack(5, 600, retry_after_s=90)) == "g"
        else:
            failed = OriginFailed("http_503", 5, 600, retry_after_s=90)
            assert rig.complete(lease, "r", ago_ms, arg=[9, "http_503"], origin="https://b.org", failed=failed) == "g"
    rig.later(89_000)
    assert rig.lease() == []
    rig.check()
    rig.later(1_000)
    assert {lease.host for lease in rig.lease()} == {"a.org", "b.org"}


def test_a_tls_failure_has_urls_spelt_with_http_and_others_wait(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 3), link("a.org", "/spider", request={"method": "POST"}))
    how = OriginFailed("tls", 5, 3_600, dead_after=2, dead_s=600, give_up_s=900, urls_wait=True)
    for _ in range(2):
        (lease,) = rig.lease()
        fail(rig, lease, how)
        rig.later(10_000)
    spelt = []
    for _ in range(20):
        for lease in rig.lease():
            spelt.append(lease.entry.url)
            assert lease.entry.sibling
            rig.complete(lease)
        rig.later(1_000)
    assert sorted(spelt) == [f"http://a.org/{n:05}" for n in range(3)]
    assert (rig.check()["wait"], rig.check()["dead"]) == (1, 0)
    rig.later(600_000)
    for _ in range(3):
        for lease in rig.lease():
            fail(rig, lease, how)
        rig.later(700_000)
    rig.lease()
    assert (rig.check()["wait"], rig.check()["dead"], rig.check()["pending"]) == (0, 1, 0)


def test_the_largest_crawl_delay_of_a_hosts_origins_is_in_force(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 9))

    def told(origin: str, delay_ms: int) -> float:
        (lease,) = rig.lease()
        rig.complete(lease, "l", robots=KeptNow(origin, b"x", 1_000, delay_ms))
        wait_s = rig.run(rig.f.lease(0, 5))[0] or 0
        rig.later(round(wait_s * 1000))
        return wait_s

    assert told("https://a.org", 3_000) == 3
    assert told("https://shop.a.org", 8_000) == 8
    assert told("https://a.org", 2_000) == 8
    assert told("https://shop.a.org", -1) == 2
    assert told("https://a.org", 0) == 1


def test_a_site_that_refuses_after_good_pages_rests_and_one_page_is_enough_to_go_on(rig: Rig) -> None:
    refused = PageSeen(Refused(3_600, 36_000, None, 3_600))
    rig.enqueue(*links("a.org", 60))

    def fetch(page: PageSeen) -> float:
        (lease,) = rig.lease()
        rig.complete(lease, page=page)
        wait_s = rig.run(rig.f.lease(0, 5))[0] or 0
        rig.later(round(wait_s * 1000))
        return wait_s

    assert [fetch(PageSeen()) for _ in range(5)] == [1] * 5
    waits = [fetch(refused) for _ in range(18)]
    assert waits[:15] == [1] * 15
    assert waits[-3:] == [3_600, 7_200, 14_400]
    assert fetch(PageSeen()) == 1
    assert rig.counters()["blocked"] == 1


def test_refusals_from_the_beginning_are_not_a_block(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 60))
    for _ in range(40):
        (lease,) = rig.lease()
        rig.complete(lease, page=PageSeen(Refused(3_600, 36_000, None, 3_600)))
        rig.later(1_000)
    assert len(rig.lease()) == 1


def test_disallowed_urls_cost_no_wait_and_few_calls(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 300), link("a.org", "/good"))
    calls = 0
    while True:
        (lease,) = rig.lease()
        calls += 1
        if lease.entry.url.endswith("/good"):
            break
        others = [data for data, url in lease.shown if not url.endswith("/good")]
        rig.complete(lease, "n", ago_ms=None, arg=others)
    assert calls <= 8
    assert rig.check()["pending"] == 1
    rig.complete(lease)
    rig.enqueue(*links("a.org", 3, start=1_000))
    rig.later(1_000)
    (lease,) = rig.lease()
    assert lease.shown == ()


def test_an_override_wins_and_stays(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 20))

    def wait_s() -> float:
        (lease,) = rig.lease()
        rig.complete(lease, latency_s=0.5, robots=KeptNow("https://a.org", b"x", 1_000, 7_000))
        wait_s = rig.run(rig.f.lease(0, 0))[0] or 0
        rig.later(round(wait_s * 1000))
        return wait_s

    assert wait_s() == 7
    for override, expected in ((Override(3), 3), (Override(0.2), 1), (Override(0.2, below_minimum=True), 0.2), (None, 7)):
        rig.run(rig.f.override("a.org", override))
        assert wait_s() == expected
    rig.run(rig.f.override("a.org", Override(pause_until=(rig.t + 50_000) / 1000)))
    assert rig.lease() == []
    assert rig.check()["asleep"] == 1
    rig.later(49_500)
    assert rig.server_ms(rig.lease()[0].not_before) == rig.t + 500
    rig.run(rig.f.override("b.org", Override(3)))
    assert rig.run(rig.f.overrides()) == {"a.org": Override(pause_until=(rig.t + 500) / 1000), "b.org": Override(3)}


@pytest.mark.parametrize("pauses_s", [(5_000,), (5_000, 20), (20,), (20, 5_000)])
def test_a_pause_that_is_taken_back_ends_at_once(rig: Rig, pauses_s: tuple[int, ...]) -> None:
    rig.enqueue(*links("a.org", 2))
    for pause_s in pauses_s:
        rig.run(rig.f.override("a.org", Override(pause_until=rig.t / 1000 + pause_s)))
        assert rig.lease() == []
    rig.run(rig.f.override("a.org", None))
    assert len(rig.lease()) == 1
    rig.check()


def test_an_override_lets_a_host_have_several_in_flight(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 9))
    rig.run(rig.f.override("a.org", Override(0.5, 3, None, True)))
    held = []
    for at in (0, 500, 1_000, 1_500):
        leases = rig.lease()
        held += leases
        assert len(held) == min(3, at // 500 + 1)
        rig.check()
        rig.later(500)
    rig.complete(held[1])
    (fourth,) = rig.lease()
    rig.check()
    rig.run(rig.f.override("a.org", None))
    for lease in (held[0], fourth):
        rig.complete(lease)
        assert rig.lease() == []
        rig.check()
    rig.complete(held[2])
    rig.later(1_000)
    assert len(rig.lease()) == 1
    rig.check()


def test_a_url_whose_own_wait_is_over_wakes_a_host_that_waits_for_another_origin(rig: Rig) -> None:
    rig.enqueue(link("a.org", "/1", before="https://www."), link("a.org", "/2", before="https://dev."))
    for lease in rig.lease():
        rig.complete(lease, "r", wait_s=10, arg=[9, "failed"])
    rig.later(1_000)
    (lease,) = rig.lease()
    rig.complete(lease, "o", failed=OriginFailed("robots_unreachable", 500, 1_800))
    assert rig.state("a.org") == "b"
    rig.later(9_000)
    (lease,) = rig.lease()
    assert lease.entry.url == "https://www.a.org/1"
    rig.check()


def test_a_release_wakes_a_host_that_waits_for_another_origin(rig: Rig) -> None:
    rig.enqueue(link("a.org", "/1", before="https://www."), link("a.org", "/2", before="https://dev."))
    rig.run(rig.f.override("a.org", Override(0.1, 2, None, True)))
    (www,) = rig.lease()
    rig.later(100)
    (dev,) = rig.lease()
    rig.complete(dev, "o", failed=OriginFailed("robots_unreachable", 500, 1_800))
    rig.lease()
    rig.complete(www, "l", ago_ms=None)
    rig.later(100)
    assert [lease.entry.url for lease in rig.lease()] == ["https://www.a.org/1"]
    rig.check()


def test_a_host_with_as_many_in_flight_as_it_may_gets_no_lease_when_one_ends(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 9))
    rig.run(rig.f.override("a.org", Override(0.0, 3, None, True)))
    first, second, _ = (rig.lease()[0] for _ in range(3))
    rig.run(rig.f.override("a.org", Override(0.0, 2, None, True)))
    for lease, free in ((first, 0), (second, 1)):
        rig.complete(lease)
        assert len(rig.lease()) == free
        rig.check()


def test_a_host_without_urls_is_in_flight_until_its_last_lease_ends(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 2))
    rig.run(rig.f.override("a.org", Override(0.0, 2, None, True)))
    (first,), (second,) = rig.lease(), rig.lease()
    rig.complete(first)
    assert rig.state("a.org") == "f"
    rig.check()
    rig.complete(second)
    assert rig.state("a.org") is None
    assert rig.check()["pending"] == 0


def test_a_token_of_a_host_whose_last_urls_were_disallowed_meanwhile_is_skipped(redis_url: str) -> None:
    rig = Rig(redis_url, constants={"QUANTUM_URLS": 1}, active_hosts=1)
    rig.enqueue(*links("a.org", 4))
    rig.run(rig.f.override("a.org", Override(0.0, 2, None, True)))
    (disallowed,) = rig.lease()
    rig.complete(disallowed, "n", ago_ms=None, arg=[])
    (first,) = rig.lease()
    (second,) = rig.lease()
    assert len(second.shown) == 1
    rig.enqueue(*(link(f"other{n}.org") for n in range(3)))
    rig.complete(first)
    assert rig.state("a.org") == "w"
    rig.complete(second, "n", ago_ms=None, arg=[data for data, _ in second.shown])
    hosts = set()
    for _ in range(8):
        for lease in rig.lease():
            hosts.add(lease.host)
            rig.complete(lease)
        rig.later(1_000)
    assert hosts == {f"other{n}.org" for n in range(3)}
    assert rig.check()["pending"] == 0
    rig.close()


def test_a_crawl_delay_is_forgotten_after_a_month_without_its_robots_txt(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 9))
    (lease,) = rig.lease()
    rig.complete(lease, "l", robots=KeptNow("https://shop.a.org", b"x", 1_000, 8_000))
    rig.later(29 * 86_400_000)
    (lease,) = rig.lease()
    rig.complete(lease, "l", robots=KeptNow("https://a.org", b"x", 1_000, 2_000))
    assert rig.run(rig.f.lease(0, 0))[0] == 8
    rig.later(2 * 86_400_000)
    (lease,) = rig.lease()
    rig.complete(lease, "l", robots=KeptNow("https://a.org", b"x", 1_000, 3_000, ("https://a.org/map.xml", "https://a.org/news.xml")))
    assert rig.run(rig.f.lease(0, 0))[0] == 3
    assert rig.sync.smembers(rig.key("sitemaps:a.org")) == {b"https://a.org/map.xml", b"https://a.org/news.xml"}


def test_a_success_brings_a_dead_host_back(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 9))
    (lease,) = rig.lease()
    rig.complete(lease, "x", arg="http_429", pushed_back=PushedBack(5, 600, 1.0, 86_400, 3_600, "http_429"))
    rig.complete(lease)
    rig.later(2_500)
    assert len(rig.lease()) == 1


def test_dead_letters_come_back_as_if_they_were_new(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 150), *links("b.org", 2))
    for _ in range(3):
        for lease in rig.lease():
            if lease.host == "b.org":
                rig.complete(lease, "x", arg="refused")
            else:
                fail(rig, lease, NO_NAME)
        rig.later(20_000)
    for _ in range(4):
        assert rig.lease() == []
    assert rig.check()["dead"] == 152
    assert rig.run(rig.f.requeue("refused", "a.org")) == 0
    assert rig.run(rig.f.requeue("refused")) == 2
    assert rig.run(rig.f.requeue(host="a.org")) == 150
    found = rig.check()
    assert (found["dead"], found["pending"]) == (0, 152)
    assert {lease.host for lease in rig.lease()} == {"a.org", "b.org"}


def test_the_source_of_a_redirect_to_a_known_page_is_its_alias(rig: Rig) -> None:
    page = link("a.org", "/page")
    source = url_key("https://b.org/old")
    redirect = Link("a.org", page.key, Entry("https://a.org/page", 5, hops=1, chain=(source,)), NORMAL)
    assert rig.enqueue(page) == "n"
    assert rig.enqueue(redirect) == "s"
    assert rig.sync.hgetall(rig.key(f"alias:{source.hex()[:3]}")) == {source: page.key}
    assert rig.check()["pending"] == 1


def test_news_about_robots_txt_wakes_the_urls_that_wait_for_it(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 3))
    (lease,) = rig.lease()
    rig.complete(lease, "o", failed=OriginFailed("robots_elsewhere", 30, 1_800))
    rig.later(1_000)
    assert rig.lease() == []
    kept = KeptNow("https://a.org", b"rules", 60_000, 2_000)
    rig.run(rig.f.tell("a.org", lambda lease: Outcome(lease, "l", robots=kept)))
    (lease,) = rig.lease()
    rig.check()
    rig.complete(lease)
    assert rig.run(rig.f.lease(0, 5))[0] == 2


def test_a_late_answer_of_a_blocked_origin_wakes_its_urls(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 3))
    (late,) = rig.lease()
    rig.later(60_000)
    rig.lease()
    rig.later(1_000)
    (lease,) = rig.lease()
    rig.complete(lease, "o", failed=OriginFailed("http_503", 900, 1_800))
    rig.later(1_000)
    assert rig.lease() == []
    assert rig.state("a.org") == "b"
    assert rig.complete(late, robots=KeptNow("https://a.org", b"x", 1_000, -1)) == "g"
    rig.later(1_000)
    assert len(rig.lease()) == 1
    rig.check()


def test_an_old_robots_txt_holds_for_a_while(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 3))
    (lease,) = rig.lease()
    rig.complete(lease, "l", robots=KeptNow("https://a.org", b"rules", 60_000, -1))
    rig.later(1_000)
    (lease,) = rig.lease()
    rig.complete(lease, "l", stale_robots=("https://a.org", 50.0))
    (kept,) = rig.run(rig.f.robots("a.org", ["https://a.org"]))
    assert kept is not None
    assert kept.holds
    assert 0 < rig.sync.pttl(rig.key("stale:https://a.org")) <= 50_000


def test_nine_expiries_make_a_dead_letter_and_move_the_clock_each_time(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    for expiries in range(9):
        (lease,) = rig.lease()
        assert lease.entry.expiries == expiries
        rig.later(60_000)
        assert rig.lease() == []
        rig.later(1_000)
    ((_, reason, _),) = rig.run(rig.f.dead_letters())
    assert reason == "expired"
    assert rig.counters()["expired"] == 9
    assert rig.check()["pending"] == 0


def test_a_reclaimed_host_waits_for_the_delay_that_its_latency_asks_for(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 3))
    (lease,) = rig.lease()
    rig.complete(lease, latency_s=2.0)
    rig.later(20_000)
    rig.lease()
    rig.later(60_000)
    pause, _ = rig.run(rig.f.lease(0, 5))
    assert pause == 20


def test_a_renewed_lease_does_not_run_out(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 2))
    (lease,) = rig.lease()
    rig.later(50_000)
    assert rig.run(rig.f.renew([lease])) == []
    assert lease.expires == rig.worker_s() + 60
    rig.later(50_000)
    assert rig.lease() == []
    assert rig.complete(lease) == "k"
    assert rig.run(rig.f.renew([lease])) == [lease]


def test_nobody_reclaims_when_told_not_to(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    (lease,) = rig.lease()
    rig.later(60_000)
    rig.lease(reclaim=False)
    assert rig.complete(lease) == "k"


def test_time_stands_still_when_the_servers_clock_is_set_back(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 3))
    (lease,) = rig.lease()
    rig.complete(lease)
    rig.later(-3_600_000)
    assert rig.run(rig.f.lease(0, 5)) == (1.0, [])
    rig.later(3_600_000 + 1_000)
    assert len(rig.lease()) == 1


def test_a_call_that_is_repeated_gives_the_same_answer_and_does_nothing(rig: Rig) -> None:
    rig.wires[0].lose_next = True
    assert rig.enqueue(*links("a.org", 3), link("b.org")) == "nnnn"
    rig.wires[0].lose_next = True
    leases = rig.lease()
    assert [lease.token for lease in leases] == ["w0:2:1", "w0:2:2"]
    rig.wires[0].lose_next = True
    assert rig.complete(leases[0]) == "k"
    found = rig.check()
    assert (found["pending"], found["leased"]) == (3, 1)
    assert {k: v for k, v in rig.counters().items() if k in ("enq", "done", "requests", "late")} == {"enq": 4, "done": 1, "requests": 1}


def test_an_overtaken_call_is_refused(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    old = rig.wires[0].sent[-1]
    rig.enqueue(link("b.org"))
    with pytest.raises(redis.ResponseError, match="STALE"):
        rig.sync.execute_command(*old)


def test_an_unknown_way_to_end_a_lease_changes_nothing(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 2))
    (lease,) = rig.lease()
    before = rig.dump()
    for way, arg in (("z", None), ("x", None), ("r", None), ("h", "text")):
        with pytest.raises(FrontierError, match="no such way"):
            rig.run(rig.f.complete(0, [Outcome(lease, "d"), Outcome(lease, way, arg=arg)]))
    assert rig.dump() == before


def test_counters_say_what_happened(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 3), link("b.org"))
    for lease in rig.lease():
        rig.complete(lease)
    counters = rig.counters()
    assert {k: counters[k] for k in ("enq", "done", "requests")} == {"enq": 4, "done": 2, "requests": 2}
    counts = rig.run(rig.f.counts())
    assert (counts.enqueued, counts.done, counts.pending) == (4, 2, 1)  # one host


def test_an_entry_that_cannot_be_read_is_quarantined_by_the_worker_and_its_host_goes_on(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 2))
    rig.lease(0)
    rig.sync.zadd(rig.key("back:a.org"), {b"000\tnot an entry": 1})
    assert rig.lease() == []
    assert rig.f.quarantined == 1
    assert rig.sync.lrange(rig.key("quarantine"), 0, -1) == [b"entry\t000\tnot an entry"]
    assert len(rig.lease()) == 1


@pytest.mark.parametrize("where", ["front:3", "park:a.org", "back:a.org", "wait", "leases"])
def test_a_member_that_is_not_ours_goes_to_the_quarantine(rig: Rig, where: str) -> None:
    rig.enqueue(*links("a.org", 3))
    key = rig.key(where)
    if where.startswith(("front", "park")):
        rig.sync.lpush(key, b"\xff junk")
    else:
        rig.lease(0)
        rig.sync.zadd(key, {b"\xff junk": 1})
    urls = []
    for _ in range(6):
        for lease in rig.lease():
            urls.append(lease.entry.url)
            rig.complete(lease)
        rig.later(1_000)
    assert len(urls) == 3
    assert any(b"\xff junk" in text for text in rig.sync.lrange(rig.key("quarantine"), 0, -1))
    assert rig.counters()["quarantined"] == 1
    assert rig.check()["foreign"] == 0
    assert rig.run(rig.f.counts()).pending == 0


def test_a_lease_record_that_is_not_ours_does_not_stop_the_partition(rig: Rig) -> None:
    rig.sync.zadd(rig.key("leases"), {"t": 1})
    rig.sync.hset(rig.key("leased"), "t", b"a.org\t5\tnot an entry")
    rig.enqueue(link("a.org"))
    assert len(rig.lease()) == 1
    assert rig.counters()["quarantined"] == 1


def test_more_junk_than_a_back_queue_holds_does_not_hide_the_urls_behind_it(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 2))
    for _ in range(200):
        rig.sync.lpush(rig.key("park:a.org"), "junk")
    for _ in range(2):
        (lease,) = rig.lease()
        rig.complete(lease)
        rig.later(1_000)
    assert rig.check()["pending"] == 0


@pytest.mark.parametrize("name", ["front:5", "park:a.org", "back:a.org", "host:a.org", "ready", "leased", "quarantine", "bloom", "call:w0"])
def test_a_key_of_another_type_is_moved_aside_with_its_content(rig: Rig, name: str) -> None:
    rig.sync.set(rig.key(name), "mine")
    rig.enqueue(*links("a.org", 3))
    rig.sync.set(rig.key("quarantine"), "mine") if name == "quarantine" else None
    rig.sync.rpush(rig.key("front:9"), "junk")
    for _ in range(3):
        (lease,) = rig.lease()
        rig.complete(lease, "l", ago_ms=None)
        (lease,) = rig.lease()
        rig.complete(lease)
        rig.later(1_000)
    rig.lease()
    assert rig.sync.get(rig.key(f"foreign:1:{name}")) == b"mine"
    assert rig.counters()["foreign"] == 1
    assert rig.check()["pending"] == 0


def test_a_key_of_another_type_does_not_look_like_the_end_of_a_crawl(rig: Rig) -> None:
    rig.sync.set(rig.key("front:4"), "mine")
    assert rig.run(rig.f.counts()).pending == 1
    rig.lease()
    assert rig.run(rig.f.counts()).pending == 0


def test_entries_of_64_kb_pass_through_every_place(rig: Rig) -> None:
    size = codec.MAX_ENTRY_BYTES - 100
    assert rig.enqueue(*(link("a.org", f"/{i}/" + "x" * size) for i in range(80))) == "n" * 80
    urls = set()
    for _ in range(80):
        (lease,) = rig.lease()
        urls.add(lease.entry.url)
        rig.complete(lease, "w", ago_ms=None, wait_s=0.001)
        rig.later(2)
        (lease,) = rig.lease()
        rig.complete(lease, ago_ms=None)
    assert rig.check()["pending"] == 0


def test_a_thousand_leases_and_outcomes_fit_into_a_call(redis_url: str) -> None:
    rig = Rig(redis_url, limits=Limits(expected_urls=10_000, active_hosts=10_000))
    rig.enqueue(*(link(f"h{i}.org") for i in range(1000)))
    for _ in range(4):
        rig.lease(0)  # 256 tokens a call
    leases = rig.lease(1000)
    assert len(leases) == 1000
    assert rig.run(rig.f.renew(leases)) == []
    assert rig.run(rig.f.complete(0, [Outcome(x, "d") for x in leases])) == "k" * 1000
    rig.check()
    rig.close()
