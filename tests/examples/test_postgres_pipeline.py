"""The PostgreSQL pipeline on a real server: a row a page, the latest fetch, whatever happens to the server and in whatever order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from tests.conftest import _no_server

psycopg = pytest.importorskip("psycopg")

from examples.pipelines import postgres as module  # noqa: E402
from examples.pipelines.postgres import COLUMNS, PostgresPipeline  # noqa: E402

START_S = 30.0
FAST = ("-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_wal_senders=0", "-c", "wal_level=minimal")


def binary(name: str) -> str:
    """Debian keeps the server's programs off the PATH."""
    found = shutil.which(name) or next((str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    if not found:
        _no_server(f"PostgreSQL is not installed: no {name}")
    return str(found)


class Server:
    """On a socket in a folder of its own, no port; not as root, who may not."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="crawlweb-pg-"))
        self.dsn = f"host={self.folder} dbname=postgres user=crawl"
        self._user = "postgres" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        if self._user:
            try:
                account = pwd.getpwnam(self._user)
            except KeyError:
                _no_server("PostgreSQL does not run as root, and there is no user postgres")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        initdb = [binary("initdb"), "-D", str(self.folder / "data"), "-A", "trust", "-U", "crawl", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, user=self._user, cwd=self.folder)

    def start(self) -> None:
        command = [binary("postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), "-c", "listen_addresses=", *FAST]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, user=self._user, cwd=self.folder)
        deadline = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(self.dsn).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.02)

    def stop(self) -> None:
        """At once; what was committed is there at the next start."""
        assert self._process
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def query(self, text: str) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        with contextlib.suppress(AssertionError):
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def one_server() -> Iterator[Server]:
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def server(one_server: Server) -> Server:
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


def store(server: Server, *items: dict[str, Any]) -> list[Any]:
    """What `process_item` gave or raised, for each."""

    async def work() -> list[Any]:
        pipeline = PostgresPipeline(server.dsn)
        results = await asyncio.wait_for(asyncio.gather(*map(pipeline.process_item, items), return_exceptions=True), 30)
        await pipeline.close_spider()
        return results

    return asyncio.run(work())


def test_an_item_is_a_row_when_its_page_may_be_complete(server: Server) -> None:
    given = item(1, duplicate_of="https://example.org/", changed=True, warc_offset=2**40)
    assert store(server, given) == [given]
    ((url, offset, changed, links, duplicate_of),) = server.query("SELECT url, warc_offset, changed, links, duplicate_of FROM pages")
    assert (url, offset, changed, links, duplicate_of) == (given["url"], 2**40, True, given["links"], "https://example.org/")


def test_a_later_fetch_replaces_an_earlier_one_whatever_the_order(server: Server) -> None:
    store(server, item(1, at=5, title="new"))
    store(server, item(1, at=3, title="old"))
    assert server.query("SELECT title FROM pages") == [("new",)]
    store(server, item(1, at=5, title="the same again"), item(1, at=9, title="newest"), item(1, at=7, title="between"))
    assert server.query("SELECT title FROM pages") == [("newest",)]


def test_many_items_go_in_few_transactions(server: Server) -> None:
    before = 1000
    results = store(server, *(item(n) for n in range(before)))
    assert len(results) == before
    assert server.query("SELECT count(*), count(DISTINCT xmin::text) FROM pages") in [[(before, n)] for n in range(1, 7)]


@pytest.mark.parametrize(
    ("bad", "error"), [({"status": 10**9}, "smallint"), ({"fetched_at": "some day"}, "some day"), ({"url": None}, "null value")]
)
def test_a_row_that_cannot_be_stored_fails_alone(server: Server, bad: dict[str, Any], error: str) -> None:
    results = store(server, item(1), item(2, **bad), item(3))
    assert (results[0], results[2]) == (item(1), item(3))
    assert error in str(results[1])
    assert server.query("SELECT title FROM pages ORDER BY 1") == [("Page 1",), ("Page 3",)]


def test_text_that_postgresql_does_not_hold_is_stored_as_far_as_it_can_be(server: Server) -> None:
    store(server, item(1, title="a\0b \ud800 ä", links=["https://x/\0"]))
    assert server.query("SELECT title, links FROM pages") == [("ab ? ä", ["https://x/"])]


def test_items_wait_for_a_server_that_is_started_again(server: Server, caplog: pytest.LogCaptureFixture) -> None:
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


def test_items_wait_for_an_operator_where_the_table_is_another(server: Server, caplog: pytest.LogCaptureFixture) -> None:
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


def test_workers_share_a_table_that_none_has_made_and_the_same_pages(server: Server) -> None:
    async def work() -> None:
        workers = [PostgresPipeline(server.dsn) for _ in range(4)]
        items = [item(n, at=at) for at in range(5) for n in range(20)]
        given = [worker.process_item(each) for worker in workers for each in items]
        await asyncio.wait_for(asyncio.gather(*given), 30)
        for worker in workers:
            await worker.close_spider()

    asyncio.run(work())
    assert server.query("SELECT count(*), min(fetched_at) = max(fetched_at) FROM pages") == [(20, True)]


def test_settings_are_read_and_a_table_may_have_any_name(server: Server) -> None:
    name = 'web "pages"'
    settings = {"POSTGRES_DSN": server.dsn, "POSTGRES_TABLE": name}

    async def work() -> None:
        pipeline = PostgresPipeline.from_crawler(get_crawler(settings_dict=settings))
        await pipeline.process_item(item(1))
        await pipeline.close_spider()

    asyncio.run(work())
    columns = server.query("SELECT column_name FROM information_schema.columns WHERE table_name = 'web \"pages\"'")
    assert {column for (column,) in columns} == set(COLUMNS)
