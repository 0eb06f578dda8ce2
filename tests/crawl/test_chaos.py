"""Workers and Redis under blows: nothing is missing, nothing too soon; what is fetched again was in flight. bench/chaos.py is longer."""

from __future__ import annotations

from pathlib import Path

from tests.crawl.chaos import Chaos, Plan, RedisBlow, account, sites, verdict
from tests.crawl.crawler import at_once
from tests.crawl.servers import one_server
from tests.web import Web

HOSTS, PAGES = 60, 5
BLOWS = ((0.1, "stop long"), (0.15, "kill"), (0.15, "add"))


@at_once
def test_a_crawl_under_blows_is_whole_and_polite(folder: Path) -> None:
    plan = Plan(workers=3, script=BLOWS, redis=(RedisBlow(0.5, "kill"),))
    with (
        Web(seed=7, sites=sites(HOSTS, PAGES)) as web,
        one_server(folder) as nodes,
        Chaos(folder, web, nodes, plan) as chaos,
    ):
        chaos.run()
        found = account(chaos)
        assert [blow.what for blow in chaos.blows] == [*(what for _, what in BLOWS), "Redis kill 0"]
        assert [proof.text for proof in verdict(chaos, found) if not proof.holds] == [], chaos.workers[0].run.log[-3000:]
