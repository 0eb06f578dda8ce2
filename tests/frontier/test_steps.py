"""What each step does, one sentence a test."""

from __future__ import annotations

from rig import Rig, link


def test_a_url_is_leased_completed_and_gone(rig: Rig) -> None:
    assert rig.enqueue(link("a.org")) == "n"
    assert rig.enqueue(link("a.org")) == "s"
    (lease,) = rig.lease()
    assert lease.entry.url == "https://a.org/"
    rig.check()
    assert rig.complete(lease) == "k"
    assert rig.run(rig.f.lease(0, 10)) == (None, [])
    rig.check()
