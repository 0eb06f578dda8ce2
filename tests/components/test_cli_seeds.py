"""`crawlweb seeds add`: into a crawl that runs, stands still, or was never begun."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis
from click.testing import CliRunner, Result
from redis.asyncio import Redis

from crawlweb import seeds as module
from crawlweb.cli import main
from crawlweb.errors import ConfigError
from crawlweb.frontier.frontier import Frontier
from crawlweb.frontier.meta import Meta
from crawlweb.frontier.rows import EXACT, Limits
from crawlweb.policy.canonical import Canonicalizer
from crawlweb.policy.hosts import SUFFIX_LIST_ID
from crawlweb.seeds import SeedBatch, SeedLines

T = TypeVar("T")
PARTITIONS = 4
AGREED = {"partitions": str(PARTITIONS), "min_delay_s": "2", "latency_factor": "10", "ip_delay_s": "0.5", "suffixes": SUFFIX_LIST_ID}
AGREED |= {"canonical": Canonicalizer().profile_id}


class Crawl:
    """Commands on the crawl `web`; `begin` begins it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = redis.Redis.from_url(url)

    def do(self, work: Callable[[Frontier], Awaitable[T]]) -> T:
        async def run() -> T:
            async with Redis.from_url(self.url) as client:
                return await work(Frontier(client, "web", PARTITIONS, "tester", Limits(expected_urls=4096)))

        return asyncio.run(run())

    def begin(self, **agreed: str) -> None:
        self.do(lambda frontier: Meta(frontier).agree({**AGREED, **agreed}, {}))

    def add(self, *words: str, stdin: str | bytes = "", **settings: str) -> Result:
        options = [word for name, value in {"REDIS_URL": self.url, **settings}.items() for word in ("-s", f"{name}={value}")]
        return CliRunner().invoke(main, ["seeds", "add", *words, *options], input=stdin)

    def leased(self) -> set[str]:
        async def work(frontier: Frontier) -> set[str]:
            rows = [await frontier.lease(p, 100) for p in range(PARTITIONS)]
            return {lease.entry.url for _, leases in rows for lease in leases}

        return self.do(work)

    def enqueued(self) -> int:
        return self.do(Frontier.counts).enqueued


@pytest.fixture
def crawl(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterable[Crawl]:
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "settings.local")
    crawl = Crawl(redis_url)
    yield crawl
    crawl.client.close()


def ends(result: Result, status: int, stdout: str, *lines: str) -> None:
    assert (result.exit_code, result.stdout) == (status, stdout), result.output
    assert result.stderr.splitlines() == list(lines)


# -- into a crawl --------------------------------------------------------------------------------------------------------


def test_seeds_come_from_the_command_line_a_file_and_standard_input(crawl: Crawl, tmp_path: Path) -> None:
    crawl.begin()
    file = tmp_path / "seeds.txt"
    file.write_text("\ufeffhttps://b.org/\n# a comment\n\n  https://c.org/x  \r\n", encoding="utf-8")
    result = crawl.add("https://a.org/", f"@{file}", "-", "https://a.org", stdin="https://d.org/\nhttps://b.org/")
    ends(result, 0, "4 new, 2 known, 0 bad\n")
    assert crawl.leased() == {"https://a.org/", "https://b.org/", "https://c.org/x", "https://d.org/"}
    ends(crawl.add("https://d.org/"), 0, "0 new, 1 known, 0 bad\n")
    assert crawl.client.zcard("{web}:seeding") == 0


def test_bad_lines_are_told_by_number_and_stop_nothing(crawl: Crawl, tmp_path: Path) -> None:
    crawl.begin()
    file = tmp_path / "seeds.txt"
    file.write_bytes(b"https://a.org/\nmailto:x@a.org\n\xff\xfe\n" + b"https://a.org/" + b"x" * 200_000 + b"\nhttps://b.org/\n\x1b[31m\n")
    ends(
        crawl.add(f"@{file}", "tea"),
        1,
        "2 new, 0 known, 5 bad\n",
        f"crawlweb: {file}, line 2: 'mailto:x@a.org' is not an http or https URL",
        f"crawlweb: {file}, line 3: longer than a URL may be, or not UTF-8",
        f"crawlweb: {file}, line 4: longer than a URL may be, or not UTF-8",
        f"crawlweb: {file}, line 6: '\\x1b[31m' is not an http or https URL",
        "crawlweb: 'tea' is not an http or https URL",
    )


def test_of_many_bad_lines_the_first_are_told(crawl: Crawl) -> None:
    crawl.begin()
    result = crawl.add("-", stdin="tea\n" * 50 + "https://a.org/\n")
    assert (result.exit_code, result.stdout) == (1, "1 new, 0 known, 50 bad\n")
    told = result.stderr.splitlines()
    assert [told[0], told[19], told[20:]] == [
        "crawlweb: standard input, line 1: 'tea' is not an http or https URL",
        "crawlweb: standard input, line 20: 'tea' is not an http or https URL",
        ["crawlweb: and 30 more lines that are no URLs"],
    ]


def test_strict_stops_at_the_first_bad_line(crawl: Crawl) -> None:
    crawl.begin()
    result = crawl.add("--strict", "-", stdin="https://a.org/\nhttps://b.org/\ntea\nhttps://c.org/\n")
    ends(result, 2, "", "crawlweb: standard input, line 3: 'tea' is not an http or https URL (2 new, 0 known, 0 bad)")
    assert crawl.leased() == {"https://a.org/", "https://b.org/"}


def test_figures_as_json(crawl: Crawl) -> None:
    crawl.begin()
    assert json.loads(crawl.add("https://a.org/", "--json").stdout) == {"new": 1, "known": 0, "waiting": 0, "bad": 0}


@pytest.mark.parametrize(("scope", "names"), [("domain", {b"a.org", b"b.org"}), ("host", {b"shop.a.org", b"b.org"}), ("any", set())])
def test_seeds_widen_the_scope(crawl: Crawl, scope: str, names: set[bytes]) -> None:
    crawl.begin(scope=scope)
    assert crawl.add("https://shop.a.org/x", "https://www.b.org/").exit_code == 0
    assert crawl.client.smembers("{web}:scope") == names


def test_a_crawl_does_not_end_while_seeds_are_read(crawl: Crawl) -> None:
    """The command waits for its standard input; meanwhile it says so in the crawl."""
    crawl.begin()
    command = [sys.executable, "-m", "crawlweb.cli", "seeds", "add", "-", "-s", f"REDIS_URL={crawl.url}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            while not crawl.client.zcard("{web}:seeding"):
                assert process.poll() is None
            assert crawl.do(lambda frontier: Meta(frontier).anyone_seeding())
            process.stdin.write("https://a.org/\n")
            process.stdin.close()
            assert process.stdout.read() == "1 new, 0 known, 0 bad\n"
        finally:
            process.kill()
    assert not crawl.do(lambda frontier: Meta(frontier).anyone_seeding())


# -- before a crawl ------------------------------------------------------------------------------------------------------


def test_before_the_first_worker_seeds_wait(crawl: Crawl) -> None:
    ends(
        crawl.add("https://a.org/", "tea", "https://b.org/x"),
        1,
        "2 wait for the crawl's first worker, 1 bad\n",
        "crawlweb: 'tea' is not an http or https URL",
    )
    assert (crawl.client.keys(), crawl.client.lrange("{web}:inbox", 0, -1)) == ([b"{web}:inbox"], [b"https://a.org/", b"https://b.org/x"])


# -- what cannot be ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("@no/such/file",), "seeds @no/such/file: No such file or directory"),
        (("@.",), "seeds @.: Is a directory"),
        (("https://a.org/", "@no/such/file"), "No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(crawl: Crawl, words: tuple[str, ...], says: str) -> None:
    crawl.begin()
    result = crawl.add(*words)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert says in result.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("schema", "1"), ("partitions", "abc"), ("seen", "cuckoo"), ("suffixes", "other"), ("canonical", "other")]
)
def test_a_crawl_of_another_kind_gets_no_seeds(crawl: Crawl, name: str, value: str) -> None:
    crawl.begin()
    crawl.client.hset("{web}:meta", name, value)
    before = sorted(crawl.client.keys())
    result = crawl.add("https://a.org/")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert sorted(crawl.client.keys()) == before


def test_a_full_redis_is_told(crawl: Crawl) -> None:
    crawl.begin()
    crawl.client.config_set("maxmemory", 1)
    try:
        result = crawl.add("https://a.org/")
    finally:
        crawl.client.config_set("maxmemory", 0)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert crawl.enqueued() == 0


# -- lines ---------------------------------------------------------------------------------------------------------------


class Endless:
    """A stream of so many lines that never is in memory."""

    def __init__(self, lines: int) -> None:
        self.left = lines

    def readline(self, _: int) -> bytes:
        self.left -= 1
        return b"https://h%d.org/%d\n" % (self.left % 100, self.left) if self.left >= 0 else b""


def test_a_long_file_takes_no_more_memory_than_a_short_one() -> None:
    canonicalizer = Canonicalizer()

    def peak(lines: int) -> int:
        tracemalloc.start()
        found = sum(len(batch.links) for batch in SeedLines(["-"], canonicalizer, Endless(lines)).batches())  # type: ignore[arg-type]
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found == lines
        return size

    peak(module.LINES_AT_ONCE)  # caches fill
    assert peak(8 * module.LINES_AT_ONCE) < 1.5 * peak(2 * module.LINES_AT_ONCE)


def test_links_before_a_bad_line_are_told_apart_across_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINES_AT_ONCE", 2)
    words = ["https://a.org/", "x", "y", "https://b.org/", "https://c.org/"]
    batches: list[SeedBatch] = list(SeedLines(words, Canonicalizer(), None).batches())  # type: ignore[arg-type]
    assert [[link.entry.url for link in batch.links] for batch in batches] == [["https://a.org/"], ["https://b.org/"], ["https://c.org/"]]
    assert [[(bad.text[:3], bad.links_before) for bad in batch.bad] for batch in batches] == [[("'x'", 1)], [("'y'", 0)], []]
    assert {link.how for batch in batches for link in batch.links} == {EXACT}


def test_a_file_that_is_gone_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="No such file"):
        list(SeedLines(["@gone"], Canonicalizer(), Any).batches())  # type: ignore[arg-type]
