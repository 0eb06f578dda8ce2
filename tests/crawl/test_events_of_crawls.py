"""Events of whole crawls: one of every page, which leads to its response and its item; none is missing after blows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis
from warcio.archiveiterator import ArchiveIterator

from tests.crawl.crawler import Crawl, at_once
from tests.crawl.servers import one_server
from tests.crawl.test_limits import a_redis
from tests.web import Errors, Redirects, Tree, Web

STREAM = "{web}:events"


def events(client: redis.Redis) -> list[dict[str, Any]]:
    return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in client.xrange(STREAM)]


def record_at(crawl: Crawl, event: dict[str, Any]) -> tuple[str, str]:
    """Type and URL of the record that an event points to: a page that was fetched again as it was is a revisit."""
    (path,) = crawl.warc_folder.glob(event["warc_file"] + "*")
    with path.open("rb") as stream:
        stream.seek(int(event["warc_offset"]))
        record = next(iter(ArchiveIterator(stream)))
        return record.rec_type, record.rec_headers.get_header("WARC-Target-URI")


@at_once
def test_every_page_has_an_event_that_leads_to_its_response_and_its_item(folder: Path) -> None:
    web = Web(seed=3, sites=[Tree("t.org", pages=25), Redirects("r.org", pages=10), Errors("e.org", pages=10)])
    with a_redis() as url, web, Crawl(folder, web.dns_server, REDIS_URL=url) as crawl:
        run = crawl.start(web.seeds()).succeeds()
        with redis.Redis.from_url(url) as client:
            found = events(client)
        assert len({event["id"] for event in found}) == len(found) == run.stats["crawlweb/events"]
        assert sorted(event["url"] for event in found) == sorted(crawl.pages())
        items = {(item["url_key"], item["fetched_at"]): item for item in crawl.items()}
        for event in found:
            assert record_at(crawl, event) == ("response", event["url"])
            item = items.get((event["url_key"], event["fetched_at"]))  # there is none of a page that is a copy
            assert item is None or item["final_url"] == event["url"]
            assert (event["type"], event["status"]) == ("page.fetched", "200")
        assert set(items) <= {(event["url_key"], event["fetched_at"]) for event in found}


@at_once
def test_a_crawl_without_events_has_none(folder: Path) -> None:
    web = Web(seed=3, sites=[Tree("t.org", pages=5)])
    with a_redis() as url, web, Crawl(folder, web.dns_server, REDIS_URL=url) as crawl:
        crawl.start(web.seeds(), CRAWLWEB_EVENTS=False).succeeds()
        with redis.Redis.from_url(url) as client:
            assert not client.exists(STREAM)
        assert len(crawl.pages()) == 5


@at_once
def test_no_event_is_missing_after_a_worker_was_killed_and_redis_lost_its_last_second(folder: Path) -> None:
    lease = {"DOWNLOAD_TIMEOUT": 2, "CRAWLWEB_LEASE_S": 6, "CRAWLWEB_MIN_DELAY_S": 0.2}
    web = Web(seed=6, sites=[Tree(f"t{i}.org", pages=25) for i in range(4)])
    with (
        one_server(folder) as (server,),
        web,
        Crawl(folder, web.dns_server, REDIS_URL=f"redis://{server.address}", **lease) as crawl,
    ):
        first, second = crawl.start(web.seeds()), crawl.start(web.seeds())
        assert web.wait_until_served(30, 60)
        first.kill()
        assert web.wait_until_served(60, 60)
        server.lose(1.0)
        server.start()
        second.succeeds()
        with server.client() as client:
            found = events(client)
        pages = set(crawl.pages())
        assert len(pages) == 100
        assert {event["url"] for event in found} == pages
        assert [event for event in found if record_at(crawl, event) not in (("response", event["url"]), ("revisit", event["url"]))] == []
