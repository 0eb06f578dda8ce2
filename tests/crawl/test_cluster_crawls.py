"""A crawl on a Redis Cluster of three nodes: over TLS as a user with few rights, and with a node that dies on the way."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.cluster import PASSWORD, a_cluster, acl_of_the_docs, papers
from tests.crawl.crawler import PARTITIONS, Crawl, at_once
from tests.web import Tree, Web

DELAY_S = 0.2
PAGES = 8


def is_whole(web: Web, crawl: Crawl) -> None:
    report = web.report(min_delay_s=DELAY_S, tolerance_s=0.02)
    assert (report.found, report.violations) == (report.expected, ())
    assert max(Counter(crawl.pages()).values()) == 1
    audit = crawl.audit()
    assert (audit["pending"], audit["leased"], audit["lost"]) == (0, 0, 0)


@at_once
def test_a_crawl_over_tls_as_a_user_with_few_rights(folder: Path) -> None:
    its_papers = papers(folder)
    sites = [Tree(f"t{i}.org", pages=PAGES) for i in range(6)]
    with a_cluster(tls=its_papers) as cluster, Web(seed=7, sites=sites) as web:
        for node in cluster.members:
            node.call(*acl_of_the_docs("web", PASSWORD))
            node.call("ACL", "SETUSER", "default", "-@all", "+ping")
        params = {"username": "crawlweb", "password": PASSWORD, "ssl_ca_certs": str(its_papers.ca)}
        settings = {"REDIS_URL": cluster.url.replace("redis:", "rediss:"), "REDIS_PARAMS": json.dumps(params)}
        with Crawl(folder, web.dns_server, CRAWLWEB_MIN_DELAY_S=DELAY_S, CRAWLWEB_IP_DELAY_S=0.001, **settings) as crawl:
            run = crawl.start(web.seeds(), arguments=["-a", "max_pages=1000", "-a", "scope=domain"]).succeeds()
            assert run.complaints == []
            assert "s3cret" not in run.log
            assert run.stats["crawlweb/memory/known_bytes"] > 0
            is_whole(web, crawl)


@at_once
def test_a_node_that_is_killed_stops_its_own_partitions_alone(folder: Path) -> None:
    with a_cluster() as cluster:
        shared = {id(cluster.node_of(key)) for key in ("{web}:events", "{web:near:0}:near")}
        away = next(node for node in cluster.members if id(node) not in shared)
        places = {p: cluster.node_of(f"{{web:{p}}}:ctr") for p in range(PARTITIONS)}
        sites = [Tree(f"t{i}.org", pages=4 * PAGES) for i in range(12)]
        with Web(seed=8, sites=sites) as web, Crawl(folder, web.dns_server, REDIS_URL=cluster.url, CRAWLWEB_MIN_DELAY_S=DELAY_S) as crawl:
            run = crawl.start(web.seeds())
            assert web.wait_until_served(30, 60)
            away.kill()
            run.wait_until(lambda: "Redis does not answer" in run.log)
            served = web.served
            assert web.wait_until_served(served + 60, 60), "the others' partitions go on"
            away.start()
            run.succeeds()
            assert len({id(node) for node in places.values()}) == 3
            is_whole(web, crawl)


@at_once
def test_without_the_node_that_has_the_events_pages_wait_and_none_is_lost(folder: Path) -> None:
    with a_cluster() as cluster:
        away = cluster.node_of("{web}:events")
        sites = [Tree(f"t{i}.org", pages=2 * PAGES) for i in range(12)]
        with Web(seed=8, sites=sites) as web, Crawl(folder, web.dns_server, REDIS_URL=cluster.url, CRAWLWEB_MIN_DELAY_S=DELAY_S) as crawl:
            run = crawl.start(web.seeds())
            assert web.wait_until_served(30, 60)
            away.kill()
            run.wait_until(lambda: "Redis does not answer" in run.log)
            away.start()
            run.succeeds()
            is_whole(web, crawl)
            rows = away.call("XRANGE", "{web}:events", "-", "+")
            assert len({fields[b"url"] for _, fields in rows}) == len(crawl.pages())
