"""What a crawl cannot start with: exit status 1, one line that names the thing, no traceback, nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlweb.frontier.server import find_binary
from tests.conftest import Server, serving
from tests.crawl.crawler import Crawl, Run
from tests.web import Tree, Web

Background = Callable[[Callable[[Path], Any]], Any]
SEED = "http://a.org/"
RETRY = '{"scrapy.downloadermiddlewares.retry.RetryMiddleware": 550}'


@dataclass(frozen=True)
class Case:
    """`says`: words of the line. FOLDER stands for the case's folder in all of them."""

    says: Sequence[str]
    seeds: str = SEED
    arguments: Sequence[str] = ()
    settings: dict[str, Any] = field(default_factory=dict)


def setting(name: str, value: object, *says: str) -> Case:
    return Case((name, *(says or (str(value),))), settings={name: value})


CASES = {
    "a seed that is no URL": Case(["seeds", "'no url'"], "no url"),
    "a seed that is no URL, among others": Case(["seeds", "'ftp://b.org/'"], f"{SEED},ftp://b.org/,http://c.org/"),
    "a seed in a file that is no URL": Case(["seeds", "seeds.txt", "line 4", "'mailto:x@b.org'"], "@FOLDER/seeds.txt"),
    "a file of seeds that is not there": Case(["seeds", "FOLDER/none.txt", "No such file"], "@FOLDER/none.txt"),
    "an unknown scope": Case(["scope", "'galaxy'"], arguments=["-a", "scope=galaxy"]),
    "max_pages that is no number": Case(["max_pages", "'many'"], arguments=["-a", "max_pages=many"]),
    "an unknown argument": Case(["seed='http://b.org/'", "seeds"], arguments=["-a", "seed=http://b.org/"]),
    "an unknown setting": setting("CRAWLWEB_MIN_DELAY", 2, "CRAWLWEB_MIN_DELAY_S"),
    "a setting that is no number": setting("CRAWLWEB_MIN_DELAY_S", "slow"),
    "a name of the crawl that leaves the data directory": setting("CRAWLWEB_CRAWL", "../elsewhere"),
    "a name server that is no address": setting("CRAWLWEB_DNS_SERVERS", "nonsense:port"),
    "a Redis program that is not there": setting("CRAWLWEB_REDIS_BINARY", "/nowhere/redis-server"),
    "a Redis program that is none": setting("CRAWLWEB_REDIS_BINARY", "/bin/false"),
    "Redis that nobody answers for": setting("REDIS_URL", "redis://127.0.0.1:1/0"),
    "a Redis address that is none": setting("REDIS_URL", "nonsense"),
    "Redis parameters that are no JSON": setting("REDIS_PARAMS", "nonsense"),
    "Redis parameters that do not exist": Case(
        ["REDIS", "nonsense"], settings={"REDIS_URL": "redis://127.0.0.1:1/0", "REDIS_PARAMS": '{"nonsense": 1}'}
    ),
    "a file in the way of the data directory": setting("CRAWLWEB_DATA_DIR", "FOLDER/seeds.txt"),
    "a data directory that cannot be made": setting("CRAWLWEB_DATA_DIR", "/proc/nothing/data"),
    "a tracking parameter that is everything": setting("CRAWLWEB_TRACKING_PARAMETERS", "default,*", "'*'"),
    "a tracking parameter to be taken away that is not there": setting("CRAWLWEB_TRACKING_PARAMETERS", "default,-refs", "'-refs'"),
    "a lease shorter than three time-outs": setting("CRAWLWEB_LEASE_S", 29, "29", "DOWNLOAD_TIMEOUT=10"),
    "a time-out that is no number": setting("DOWNLOAD_TIMEOUT", "soon"),
    "robots.txt disobeyed": setting("ROBOTSTXT_OBEY", False),
    "retries in the process": setting("RETRY_ENABLED", True),
    "Scrapy's retry middleware": setting("DOWNLOADER_MIDDLEWARES", RETRY, "RetryMiddleware"),
}

BEGUN: dict[str, object] = {"CRAWLWEB_PARTITIONS": 8, "CRAWLWEB_MIN_DELAY_S": 0.05}
BEGUN_WITH = ["-a", "scope=host", "-a", "max_pages=3", "-a", "max_depth=4"]
CONTRADICTIONS = {
    "other partitions": Case(["CRAWLWEB_PARTITIONS=16", "8"], settings={"CRAWLWEB_PARTITIONS": 16}),
    "another delay": Case(["CRAWLWEB_MIN_DELAY_S=1.5", "0.05"], settings={"CRAWLWEB_MIN_DELAY_S": 1.5}),
    "other tracking parameters": Case(["CRAWLWEB_TRACKING_PARAMETERS"], settings={"CRAWLWEB_TRACKING_PARAMETERS": "default,from"}),
    "another factor": Case(["CRAWLWEB_LATENCY_FACTOR=3", "0"], settings={"CRAWLWEB_LATENCY_FACTOR": 3}),
    "another scope": Case(["scope=domain", "host"], arguments=["-a", "scope=domain"]),
    "other max_pages": Case(["max_pages=7", "3"], arguments=["-a", "max_pages=7"]),
    "another max_depth": Case(["max_depth=2", "4"], arguments=["-a", "max_depth=2"]),
}


def fails(case: Case, folder: Path, run: Run) -> None:
    says = [word.replace("FOLDER", str(folder)) for word in case.says]
    lines = [line for line in run.log.splitlines() if line.startswith("crawlweb: ")]
    assert len(lines) == 1, run.log[-3000:]
    assert [word for word in says if word not in lines[0]] == [], lines[0]
    assert "Traceback" not in run.log, run.log[-3000:]
    assert run.complaints == []
    assert run.process.returncode == 1


def start_all(root: Path) -> dict[str, tuple[Crawl, Run]]:
    """Every case, two at a time."""

    def start(name: str) -> tuple[Crawl, Run]:
        case, folder = CASES[name], root / str(list(CASES).index(name))
        folder.mkdir()
        (folder / "seeds.txt").write_text("# good ones\nhttp://a.org/\n\nmailto:x@b.org\nhttp://c.org/\n")
        settings: dict[str, Any] = {k: str(v).replace("FOLDER", str(folder)) for k, v in case.settings.items()}
        with Crawl(folder, "127.0.0.1:9") as crawl:
            run = crawl.start(case.seeds.replace("FOLDER", str(folder)), arguments=case.arguments, **settings)
            with suppress(AssertionError):  # of a run that goes on: its own test shows it
                run.wait(60)
        return crawl, run

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(CASES, pool.map(start, CASES), strict=True))


@pytest.mark.background.with_args(start_all)
@pytest.mark.parametrize("name", CASES)
def test_a_crawl_does_not_start_with(name: str, background: Background) -> None:
    crawl, run = background(start_all)[name]
    fails(CASES[name], crawl.folder, run)
    left = {path.name for path in crawl.folder.iterdir()} - {"seeds.txt", run.log_file.name}
    assert left == set(), "nothing is made for a crawl that does not start"


@pytest.fixture(scope="module")
def redis_with_password() -> Iterator[Server]:
    with serving(find_binary()) as server:
        yield server


def test_a_bad_seed_writes_no_key(redis_with_password: Server, tmp_path: Path) -> None:
    server = redis_with_password
    with Crawl(tmp_path, "127.0.0.1:9", REDIS_URL=server.url) as crawl:
        run = crawl.start("no url")
        run.wait(30)
        fails(Case(["'no url'"]), tmp_path, run)
    with redis.Redis.from_url(server.url) as client:
        assert client.dbsize() == 0


def test_redis_that_wants_a_password_is_named(redis_with_password: Server, tmp_path: Path) -> None:
    server = redis_with_password
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "secret")
        with Crawl(tmp_path, "127.0.0.1:9", REDIS_URL=server.url) as crawl:
            run = crawl.start(SEED)
            run.wait(30)
            fails(Case(["REDIS_URL"]), tmp_path, run)
        client.config_set("requirepass", "")
        assert not crawl.data_dir.exists()


@dataclass
class Begun:
    """A crawl that was begun, then started again with each contradiction; what stood in its meta key before and after."""

    crawl: Crawl
    runs: dict[str, Run]
    before: Any
    after: Any


def begin_and_contradict(folder: Path) -> Begun:
    async def meta(frontier: Any) -> Any:
        return await frontier.redis.hgetall("{web}:meta")

    with Web(sites=[Tree("a.org", pages=5)]) as web, Crawl(folder, web.dns_server, **BEGUN) as crawl:
        crawl.start(web.seeds(), arguments=BEGUN_WITH).succeeds()
        before, pages, runs = crawl.look(meta), crawl.pages(), {}
        for name, case in CONTRADICTIONS.items():
            runs[name] = crawl.start(SEED, arguments=case.arguments, **case.settings)
            runs[name].wait(30)
        assert crawl.pages() == pages
        return Begun(crawl, runs, before, crawl.look(meta))


@pytest.mark.background.with_args(begin_and_contradict)
@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_begun_crawl_does_not_go_on_with(name: str, background: Background) -> None:
    begun = background(begin_and_contradict)
    fails(CONTRADICTIONS[name], begun.crawl.folder, begun.runs[name])


@pytest.mark.background.with_args(begin_and_contradict)
def test_a_contradiction_changes_nothing(background: Background) -> None:
    begun = background(begin_and_contradict)
    assert begun.before == begun.after
    assert not begun.crawl.server_answers()
