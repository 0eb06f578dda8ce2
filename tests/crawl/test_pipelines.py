"""The example pipelines in whole crawls: every page is in every output, workers that are killed included."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.crawl.crawler import ROOT, Crawl, at_once
from tests.crawl.test_limits import a_redis
from tests.examples.postgresql import PostgresServer
from tests.web import Tree, Web

PAGES, SITES = 25, 4
PIPELINES = {
    "examples.pipelines.jsonlines.JsonLinesPipeline": 300,
    "examples.pipelines.parquet.ParquetPipeline": 310,
    "examples.pipelines.postgres.PostgresPipeline": 320,
    "examples.pipelines.corpus.CorpusPipeline": 330,
}


@contextmanager
def a_database() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What Python's readers find, by kind of file."""
    from pyarrow import parquet

    from examples.pipelines.corpus import zstd

    return {
        "jsonlines": [json.loads(line) for path in folder.glob("jsonlines/*.jsonl") for line in path.read_bytes().splitlines()],
        "parquet": [row for path in folder.glob("parquet/*.parquet") for row in parquet.read_table(path).to_pylist()],
        "corpus": [
            json.loads(line) for path in folder.glob("corpus/*.zst") for line in zstd.decompress(path.read_bytes()).split(b"\n")[:-1]
        ],
    }


@at_once
def test_every_page_is_in_every_output_of_a_crawl_that_was_killed_and_went_on(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    lease = {"DOWNLOAD_TIMEOUT": 2, "CRAWLWEB_LEASE_S": 6}
    web = Web(seed=6, sites=[Tree(f"t{i}.org", pages=PAGES) for i in range(SITES)])
    with a_database() as database, a_redis() as url, web, Crawl(folder, web.dns_server, REDIS_URL=url, **lease) as crawl:
        settings = {
            "ITEM_PIPELINES": json.dumps(PIPELINES),
            "JSONLINES_DIR": folder / "jsonlines",
            "PARQUET_DIR": folder / "parquet",
            "PARQUET_FILE_ITEMS": 20,
            "POSTGRES_DSN": database.dsn,
            "CORPUS_DIR": folder / "corpus",
            "CORPUS_MIN_CHARS": 0,
        }
        run = crawl.start(web.seeds(), **settings)
        assert web.wait_until_served(40, 60)
        run.kill()
        crawl.start(web.seeds(), **settings).succeeds()
        pages = set(crawl.pages())
        assert len(pages) == PAGES * SITES
        found = rows(folder)
        assert {row["final_url"] for row in found["jsonlines"]} == pages
        assert {row["final_url"] for row in found["parquet"]} == pages
        assert {url for (url,) in database.query("SELECT final_url FROM pages")} == pages
        assert not list(folder.glob("*/*.open"))
        assert not list(folder.glob("*/*.part"))
        extending = (ROOT / "docs" / "extending.md").read_text().partition("\n## The item\n")[2].partition("\n## ")[0]
        names = [line.split("|")[1] for line in extending.splitlines() if line.startswith("| `")]
        documented = set(re.findall(r"`(\w+)`", "".join(names)))
        assert [row.keys() for row in found["jsonlines"] if row.keys() != documented] == []
        assert [row.keys() for row in found["parquet"] if row.keys() != documented] == []
        fetches = [(row["url_key"], row["fetched_at"]) for row in found["jsonlines"]]
        assert len(set(fetches)) <= len(crawl.pages())
        texts = {row["url"]: row["main_text"] for row in found["jsonlines"]}
        assert {row["url"]: row["text"] for row in found["corpus"]} == texts
        assert "" not in texts.values()
