"""What each step does, one sentence a test."""

from __future__ import annotations

import pytest
import redis
from rig import Rig, link

from crawlweb.errors import FrontierError
from crawlweb.frontier import codec
from crawlweb.frontier.frontier import EXACT, GUARD_MS, UNCHECKED, Limits, Link, Outcome
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


def test_a_crawl_delay_is_in_force_from_the_next_lease_and_robots_is_kept(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 3))
    (lease,) = rig.lease()
    rig.complete(lease, "l", robots=("https://a.org", b"as fetched", 60_000, 7_000))
    assert rig.run(rig.f.robots("a.org", ["https://a.org", "http://a.org"])) == [b"as fetched", None]
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
    assert rig.complete(late, "x", ago_ms=0, arg="refused", robots=("https://a.org", b"x", 1000, 30_000)) == "g"
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
    rig.complete(late, robots=("https://a.org", b"", 1000, 300_000))
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
    rig.complete(first, "r", wait_s=15, arg=[3, "server error", 0])
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
        rig.complete(lease, "r", wait_s=1, arg=[3, "server error", 0])
        rig.later(2_000)
    ((host, reason, entry),) = rig.run(rig.f.dead_letters())
    assert (host, reason) == ("a.org", "server error")
    assert entry is not None
    assert entry.failures == 3
    assert rig.check()["pending"] == 0


def test_a_host_that_failed_three_times_is_drained_to_dead_letters_until_its_time_is_over(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 150))
    for _ in range(3):
        (lease,) = rig.lease()
        assert lease.entry.failures == 0
        rig.complete(lease, "h", wait_s=20, arg=[3, 3_600_000, "no such host"])
        rig.later(20_000)
    for _ in range(4):
        assert rig.lease() == []
    assert rig.check()["pending"] == 0
    assert {reason for _, reason, _ in rig.run(rig.f.dead_letters())} == {"no such host"}
    assert len(rig.run(rig.f.dead_letters())) == 150
    rig.enqueue(link("a.org", "/new"))
    assert rig.lease() == []
    assert rig.check()["dead"] == 151
    rig.later(3_600_000)
    rig.enqueue(link("a.org", "/newer"))
    (lease,) = rig.lease()
    assert lease.host_failures == 3
    rig.complete(lease)
    rig.enqueue(link("a.org", "/newest"))
    rig.later(1_000)
    assert rig.lease()[0].host_failures == 0


def test_unreachable_robots_counts_from_the_first_time_and_a_page_ends_it(rig: Rig) -> None:
    rig.enqueue(*links("a.org", 5))
    for expected in (-1, 60_000):
        (lease,) = rig.lease()
        assert lease.unreachable_ms == expected
        rig.complete(lease, "u", wait_s=60, arg=[100_000, 1, "no robots.txt"])
        rig.later(60_000)
    (lease,) = rig.lease()
    rig.complete(lease)
    rig.later(1_000)
    (lease,) = rig.lease()
    assert lease.unreachable_ms == -1


def test_three_expiries_make_a_dead_letter_and_move_the_clock_each_time(rig: Rig) -> None:
    rig.enqueue(link("a.org"))
    for expiries in range(3):
        (lease,) = rig.lease()
        assert lease.entry.expiries == expiries
        rig.later(60_000)
        assert rig.lease() == []
        rig.later(1_000)
    ((_, reason, _),) = rig.run(rig.f.dead_letters())
    assert reason == "expired"
    assert rig.counters()["expired"] == 3
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
