"""The PostgreSQL pipeline on a real server: a row a page, the latest fetch, whatever happens to the server and in whatever order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

pytest.importorskip("psycopg")

from examples.pipelines import postgres as module
from examples.pipelines.postgres import COLUMNS, PostgresPipeline
from tests.examples.postgresql import PostgresServer


@pytest.fixture(scope="module")
def one_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def server(one_server: PostgresServer) -> PostgresServer:
    one_server.query("DROP TABLE IF EXISTS pages")
    return one_server


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr(module, "RETRY_MOST_S", 0.05)


def item(n: int, at: int = 0, **more: Any) -> dict[str, Any]:
    url = f"https://example.com/{n}"
    return {
        "url": url,
        "final_url": url,
        "canonical_url": url,
        "url_key": f"{n:032x}",
        "status": 200,
        "fetched_at": f"2027-01-15T08:00:{at:02}+00:00",
        "language": "en",
        "title": f"Page {n}",
        "main_text": "Text",
        "links": [url + "/a"],
        "soft_404": False,
        "noindex": False,
        "changed": None,
        "duplicate_of": None,
        **more,
    }


def store(server: PostgresServer, *items: dict[str, Any]) -> list[Any]:
    """What `process_item` gave or raised, for each."""

    async def work() -> list[Any]:
        pipeline = PostgresPipeline(server.dsn)
        results = await asyncio.wait_for(asyncio.gather(*map(pipeline.process_item, items), return_exceptions=True), 30)
        await pipeline.close_spider()
        return results

    return asyncio.run(work())


def test_an_item_is_a_row_when_its_page_may_be_complete(server: PostgresServer) -> None:
    given = item(1, duplicate_of="https://example.org/", changed=True, warc_offset=2**40)
    assert store(server, given) == [given]
    ((url, offset, changed, links, duplicate_of),) = server.query("SELECT url, warc_offset, changed, links, duplicate_of FROM pages")
    assert (url, offset, changed, links, duplicate_of) == (given["url"], 2**40, True, given["links"], "https://example.org/")


def test_a_later_fetch_replaces_an_earlier_one_whatever_the_order(server: PostgresServer) -> None:
    store(server, item(1, at=5, title="new"))
    store(server, item(1, at=3, title="old"))
    assert server.query("SELECT title FROM pages") == [("new",)]
    store(server, item(1, at=5, title="the same again"), item(1, at=9, title="newest"), item(1, at=7, title="between"))
    assert server.query("SELECT title FROM pages") == [("newest",)]


def test_many_items_go_in_few_transactions(server: PostgresServer) -> None:
    before = 1000
    results = store(server, *(item(n) for n in range(before)))
    assert len(results) == before
    assert server.query("SELECT count(*), count(DISTINCT xmin::text) FROM pages") in [[(before, n)] for n in range(1, 7)]


@pytest.mark.parametrize(
    ("bad", "error"), [({"status": 10**9}, "smallint"), ({"fetched_at": "some day"}, "some day"), ({"url": None}, "null value")]
)
def test_a_row_that_cannot_be_stored_fails_alone(server: PostgresServer, bad: dict[str, Any], error: str) -> None:
    results = store(server, item(1), item(2, **bad), item(3))
    assert (results[0], results[2]) == (item(1), item(3))
    assert error in str(results[1])
    assert server.query("SELECT title FROM pages ORDER BY 1") == [("Page 1",), ("Page 3",)]


def test_text_that_postgresql_does_not_hold_is_stored_as_far_as_it_can_be(server: PostgresServer) -> None:
    store(server, item(1, title="a\0b \ud800 ä", links=["https://x/\0"]))
    assert server.query("SELECT title, links FROM pages") == [("ab ? ä", ["https://x/"])]


def test_items_wait_for_a_server_that_is_started_again(server: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        pipeline = PostgresPipeline(server.dsn)
        await pipeline.process_item(item(1))
        await asyncio.to_thread(server.stop)
        waiting = [asyncio.ensure_future(pipeline.process_item(item(n))) for n in (2, 3)]
        while "items wait" not in caplog.text:
            await asyncio.sleep(0.01)
        assert not any(each.done() for each in waiting)
        await asyncio.to_thread(server.start)
        await asyncio.wait_for(asyncio.gather(*waiting), 30)
        await pipeline.close_spider()

    asyncio.run(work())
    assert server.query("SELECT title FROM pages ORDER BY 1") == [("Page 1",), ("Page 2",), ("Page 3",)]


def test_items_wait_for_an_operator_where_the_table_is_another(server: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    server.query("CREATE TABLE pages (something int)")

    async def work() -> None:
        pipeline = PostgresPipeline(server.dsn)
        waiting = asyncio.ensure_future(pipeline.process_item(item(1)))
        while "items wait" not in caplog.text:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(server.query, "DROP TABLE pages")
        await asyncio.wait_for(waiting, 30)
        await pipeline.close_spider()

    asyncio.run(work())
    assert server.query("SELECT count(*) FROM pages") == [(1,)]


def test_workers_share_a_table_that_none_has_made_and_the_same_pages(server: PostgresServer) -> None:
    async def work() -> None:
        workers = [PostgresPipeline(server.dsn) for _ in range(4)]
        items = [item(n, at=at) for at in range(5) for n in range(20)]
        given = [worker.process_item(each) for worker in workers for each in items]
        await asyncio.wait_for(asyncio.gather(*given), 30)
        for worker in workers:
            await worker.close_spider()

    asyncio.run(work())
    assert server.query("SELECT count(*), min(fetched_at) = max(fetched_at) FROM pages") == [(20, True)]


def test_settings_are_read_and_a_table_may_have_any_name(server: PostgresServer) -> None:
    name = 'web "pages"'
    settings = {"POSTGRES_DSN": server.dsn, "POSTGRES_TABLE": name}

    async def work() -> None:
        pipeline = PostgresPipeline.from_crawler(get_crawler(settings_dict=settings))
        await pipeline.process_item(item(1))
        await pipeline.close_spider()

    asyncio.run(work())
    columns = server.query("SELECT column_name FROM information_schema.columns WHERE table_name = 'web \"pages\"'")
    assert {column for (column,) in columns} == set(COLUMNS)
