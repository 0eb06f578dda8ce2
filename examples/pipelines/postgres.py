"""Pages in PostgreSQL (pip install crawlweb[postgres]): a row a page, the latest fetch.

    ITEM_PIPELINES = {"examples.pipelines.postgres.PostgresPipeline": 300}
    POSTGRES_DSN = "postgresql://crawl@db.internal/crawl"  # better: a service file or PGPASSFILE, so that no password is in the settings
    POSTGRES_TABLE = "pages"

A page is complete only when its row is committed. Items that come while a batch is on its way are the next batch: one transaction each,
no timer. The row of a page is replaced by that of a later fetch, never by an earlier one: repetitions and their order do not matter.

A database that is away, is started again, or refuses (no such table, no right) makes items wait, and so the crawl; it is asked again.
A row that the database cannot hold fails alone, as an error of its item.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import psycopg
from itemadapter import ItemAdapter
from psycopg import sql
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from typing_extensions import Self

logger = logging.getLogger(__name__)

BATCH = 200
RETRY_S, RETRY_MOST_S = 0.2, 10.0
CONNECT_S = 10
COLUMNS = {
    "url_key": "text PRIMARY KEY",
    "url": "text NOT NULL",
    "final_url": "text NOT NULL",
    "canonical_url": "text",
    "status": "smallint",
    "fetched_at": "timestamptz NOT NULL",
    "content_type": "text",
    "language": "text",
    "title": "text",
    "main_text": "text",
    "links": "jsonb",
    "content_hash": "text",
    "fingerprint": "text",
    "duplicate_of": "text",
    "soft_404": "boolean",
    "noindex": "boolean",
    "changed": "boolean",
    "warc_file": "text",
    "warc_offset": "bigint",
    "warc_length": "bigint",
}
ITS_OWN_FAULT = psycopg.DataError, psycopg.IntegrityError  # of a row


class PostgresPipeline:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler.settings.get("POSTGRES_DSN") or "", crawler.settings.get("POSTGRES_TABLE") or "pages")

    def __init__(self, dsn: str, table: str = "pages") -> None:
        self._dsn = dsn
        columns = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in COLUMNS.items()]
        names = [sql.Identifier(name) for name in COLUMNS]
        self._create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(sql.Identifier(table), sql.SQL(", ").join(columns))
        self._upsert = sql.SQL(
            "INSERT INTO {table} AS old ({names}) VALUES ({values}) ON CONFLICT (url_key) DO UPDATE SET ({names}) = ROW({new})"
            " WHERE old.fetched_at <= EXCLUDED.fetched_at"
        ).format(
            table=sql.Identifier(table),
            names=sql.SQL(", ").join(names),
            values=sql.SQL(", ").join(sql.Placeholder() * len(COLUMNS)),
            new=sql.SQL(", ").join(sql.SQL("EXCLUDED.{}").format(name) for name in names),
        )
        self._waiting: list[tuple[tuple[Any, ...], asyncio.Future[None]]] = []
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._task: asyncio.Task[None] | None = None

    async def process_item(self, item: Any) -> Any:
        row = _row(ItemAdapter(item))
        stored = asyncio.get_running_loop().create_future()
        self._waiting.append((row, stored))
        if self._task is None:
            self._task = asyncio.ensure_future(self._store_all())
        await stored
        return item

    async def close_spider(self) -> None:
        if self._task:
            await self._task
        if self._connection:
            await self._connection.close()

    async def _store_all(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            some.sort(key=lambda each: each[0][0])  # workers that take the same rows take them in the same order: no deadlock
            try:
                await self._store([row for row, _ in some])
            except ITS_OWN_FAULT:
                for row, stored in some:
                    try:
                        await self._store([row])
                    except ITS_OWN_FAULT as e:
                        _end(stored, e)
            for _, stored in some:
                _end(stored)
        self._task = None

    async def _store(self, rows: list[tuple[Any, ...]]) -> None:
        """Waits for the database. ITS_OWN_FAULT: nothing of it is stored."""
        pause_s = RETRY_S
        while True:
            try:
                connection = await self._connected()
                async with connection.transaction(), connection.cursor() as cursor:
                    await cursor.executemany(self._upsert, rows)
                return
            except ITS_OWN_FAULT:
                raise
            except (psycopg.Error, OSError) as e:
                logger.error("PostgreSQL: %s; items wait, again in %.1f s", str(e).strip(), pause_s)
                if self._connection:
                    await self._connection.close()
                    self._connection = None
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MOST_S)

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True, connect_timeout=CONNECT_S)
            self._connection = connection
            try:
                await connection.execute(self._create)
            except psycopg.errors.UniqueViolation:  # another worker made it in the same moment
                logger.debug("the table is there")
        return self._connection


def _row(item: ItemAdapter) -> tuple[Any, ...]:
    values = {name: _clean(item.get(name)) for name in COLUMNS}
    values["links"] = Jsonb([_clean(link) for link in item.get("links") or ()])
    return tuple(values.values())


def _clean(value: Any) -> Any:
    """PostgreSQL's text holds neither NUL nor half a surrogate pair."""
    return value.replace("\0", "").encode(errors="replace").decode() if isinstance(value, str) else value


def _end(stored: asyncio.Future[None], error: Exception | None = None) -> None:
    if not stored.done():
        stored.set_exception(error) if error else stored.set_result(None)
