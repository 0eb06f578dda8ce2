"""`crawlweb purge`: one crawl goes, whole, and nothing else does; only when it is meant."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import redis
from click.testing import CliRunner, Result
from redis.asyncio import Redis

from crawlweb.cli import main
from crawlweb.frontier import keys
from crawlweb.frontier.connect import Servers
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.keys import KEYS, SCHEMA, is_key_of
from crawlweb.frontier.members import Members
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import EXACT, Limits, Link
from crawlweb.frontier.starts import beside
from crawlweb.frontier.totals import Totals
from crawlweb.policy.canonical import url_key
from crawlweb.policy.hosts import SUFFIX_LIST_ID, host_of
from crawlweb.records import Entry
from crawlweb.store.chunks import ChunkStore
from tests.cluster import a_cluster

OTHERS = (
    "{web2}:meta",
    "{web2:0}:ctr",
    "{web-2:1}:front:3",
    "{web.x}:meta",
    "{web:dupefilter}:bloom",
    "web:start_urls",
    "{web:start_urls}:web2:taken",
    "web",
    "{web",
    "{we}:meta",
)
AGREED = {"partitions": "4", "min_delay_s": "1", "latency_factor": "10", "ip_delay_s": "0.5", "suffixes": SUFFIX_LIST_ID}


class Crawl:
    """A crawl of 30 URLs, one of them exact, 7 pages stored, with WARC files and a store of chunks; and keys of others."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.data_dir = url, folder / "data"
        self.store = ChunkStore(str(self.data_dir / "web" / "cold"), ChunkStore.new_id())
        self.store.create()
        self.store.write(0, "0000000000001-w-1", "park:a.org", [b"entry"])
        (self.data_dir / "web" / "warc").mkdir()
        (self.data_dir / "web" / "warc" / "a.warc.gz").write_text("a page")
        asyncio.run(self._begin())
        self.client = redis.Redis.from_url(url)
        for key in OTHERS:
            self.client.set(key, "another's")

    async def _begin(self) -> None:
        async with Redis.from_url(self.url) as client:
            frontier = Frontier(client, "web", 4, "tester", Limits(expected_urls=4096))
            await Meta(frontier).agree({**AGREED, "spill": self.store.id}, {})
            for i in range(30):
                url = f"https://h{i % 10}.org/{i}"
                link = Link(host_of(url), url_key(url), Entry(url), *((EXACT,) if i == 0 else ()))
                await frontier.enqueue(frontier.partition_of(link.host), [link])
            await Totals(frontier, lambda: {"crawlweb/pages": 7}).close()
            for name in ("batch:w:1", "quarantine"):
                await client.rpush(f"{beside('shop:start_urls', 'web')}{name}", "https://h.org/")  # type: ignore[misc]

    def names(self) -> set[str]:
        return {key.decode() for key in self.client.scan_iter(count=1000)}

    def purge(self, *words: str, crawl: str = "web") -> Result:
        settings = {"REDIS_URL": self.url, "CRAWLWEB_DATA_DIR": self.data_dir}
        options = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
        return CliRunner().invoke(main, ["purge", crawl, *words, *options])


@pytest.fixture
def crawl(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crawl]:
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "settings.local")
    crawl = Crawl(redis_url, tmp_path)
    yield crawl
    crawl.client.close()


def test_all_keys_of_the_crawl_go_and_no_other(crawl: Crawl) -> None:
    assert len(crawl.names()) > len(OTHERS) + 20
    result = crawl.purge("--yes")
    assert result.exit_code == 0, result.output
    assert "30 URLs pending, 30 seen, 7 pages stored" in result.stdout
    assert crawl.names() == set(OTHERS)
    assert not crawl.store.is_there()
    assert (crawl.data_dir / "web" / "warc" / "a.warc.gz").exists()


def test_files_go_where_that_is_said(crawl: Crawl) -> None:
    (crawl.data_dir / "redis").mkdir()
    assert crawl.purge("--yes", "--files").exit_code == 0
    assert list(crawl.data_dir.iterdir()) == [crawl.data_dir / "redis"]


def test_the_name_is_free_afterwards(crawl: Crawl) -> None:
    crawl.purge("--yes")
    result = crawl.purge("--yes")
    assert (result.exit_code, result.output) == (1, "crawlweb: web: there is no such crawl\n")
    asyncio.run(crawl._begin())
    assert "30 URLs pending, 30 seen, 7 pages stored" in crawl.purge("--yes").stdout


def test_without_a_terminal_it_does_not_delete_unasked(crawl: Crawl) -> None:
    before = crawl.names()
    result = crawl.purge()
    assert result.exit_code == 2
    assert "30 URLs pending" in result.stdout
    assert "--yes" in result.stderr
    assert crawl.names() == before


@pytest.mark.parametrize(("answer", "goes"), [("y", True), ("n", False), ("", False)])
def test_at_a_terminal_it_asks(crawl: Crawl, answer: str, goes: bool) -> None:
    ours, theirs = pty.openpty()
    options = ["-s", f"REDIS_URL={crawl.url}", "-s", f"CRAWLWEB_DATA_DIR={crawl.data_dir}"]
    command = [sys.executable, "-m", "crawlweb.cli", "purge", "web", *options]
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60, check=False)
    os.close(ours)
    os.close(theirs)
    assert "Delete it? [y/N]" in done.stdout
    assert (done.returncode, crawl.names() == set(OTHERS)) == ((0, True) if goes else (1, False))


def test_it_refuses_while_workers_live(crawl: Crawl) -> None:
    async def live() -> None:
        async with Redis.from_url(crawl.url) as client:
            await Members(Frontier(client, "web", 4, "living")).beat(busy=False, leases=0, per_min=0)
            await Members(Frontier(client, "web", 4, "gone")).beat(busy=False, leases=0, per_min=0)
            await Members(Frontier(client, "web", 4, "gone")).leave()

    asyncio.run(live())
    before = crawl.names()
    result = crawl.purge("--yes")
    assert result.exit_code == 2
    assert f"living (process {os.getpid()} on " in result.stderr
    assert "gone" not in result.stderr
    assert crawl.names() == before


def test_what_was_interrupted_can_be_run_again(crawl: Crawl) -> None:
    with mock.patch("crawlweb.cli.purge.delete_meta", side_effect=KeyboardInterrupt):
        assert crawl.purge("--yes").exit_code == 1
    assert crawl.names() == {*OTHERS, "{web}:meta"}
    result = crawl.purge("--yes")
    assert result.exit_code == 0, result.output
    assert crawl.names() == set(OTHERS)


def test_a_crawl_of_another_release_can_be_purged(crawl: Crawl) -> None:
    crawl.client.hset("{web}:meta", mapping={"schema": SCHEMA + 1, "partitions": "some", "suffixes": "other"})
    assert crawl.purge("--yes").exit_code == 0
    assert crawl.names() == set(OTHERS)


def test_chunks_that_are_elsewhere_are_named(crawl: Crawl) -> None:
    crawl.store.discard()
    result = crawl.purge("--yes")
    assert result.exit_code == 0
    assert crawl.store.id in result.stderr


@pytest.mark.parametrize("name", ["web:1", "we*", "../web", "", "{web}"])
def test_what_cannot_be_a_crawls_name_is_refused(crawl: Crawl, name: str) -> None:
    before = crawl.names()
    assert crawl.purge("--yes", crawl=name).exit_code != 0
    assert crawl.names() == before


def test_every_kind_of_key_is_known_as_the_crawls() -> None:
    prefixes = {"partition": keys.partition_prefix("a.b", 63), "crawl": keys.crawl_key("a.b", ""), "addresses": keys.ip_shard_key("a.b", 3)}
    prefixes["fingerprints"] = keys.near_shard_key("a.b", 3)
    prefixes["starts"] = f"{beside('a:start_urls', 'a.b')}batch:w:1"
    assert {key.scope for key in KEYS} == set(prefixes)
    assert all(is_key_of("a.b", prefix) and not is_key_of("axb", prefix) and not is_key_of("a", prefix) for prefix in prefixes.values())


def test_every_server_of_a_cluster_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "settings.local")
    with a_cluster() as cluster:

        def names() -> list[int]:
            return [sum(key.startswith(b"{web") for key in node.call("KEYS", "*")) for node in cluster.members]

        async def begin() -> None:
            servers = await Servers.connect(cluster.url, {})
            frontier = Frontier(servers.redis, "web", 16, "tester", Limits(expected_urls=4096))
            await Meta(frontier).agree({**AGREED, "partitions": "16"}, {})
            for i in range(60):
                url = f"https://h{i}.org/"
                await frontier.enqueue(frontier.partition_of(host_of(url)), [Link(host_of(url), url_key(url), Entry(url))])
            await servers.close()

        asyncio.run(begin())
        assert min(names()) > 0
        settings = ["-s", f"REDIS_URL={cluster.url}", "-s", f"CRAWLWEB_DATA_DIR={tmp_path}"]
        result = CliRunner().invoke(main, ["purge", "web", "--yes", *settings])
        assert result.exit_code == 0, result.output
        assert "60 URLs pending" in result.stdout
        assert names() == [0, 0, 0]
