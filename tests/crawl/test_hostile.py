"""One crawl of a web of hostile servers, with well-behaved sites in between."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from warcio.archiveiterator import ArchiveIterator

from tests.crawl.crawler import Crawl, Run, at_once
from tests.web import Answer, Report, Site, Tree, Web
from tests.web.hostile import KINDS, LINKS, HostileWeb, Kind

CAP_BYTES = 5_000_000
MEMORY_BYTES = 700_000_000  # 290 to 520 MB measured: several large pages are parsed at once, at up to 80 times their bytes
GOOD = [f"good{number}.net" for number in range(5)]
CAPS = {
    "DOWNLOAD_TIMEOUT": 6,
    "CRAWLWEB_FIRST_BYTE_S": 2,
    "CRAWLWEB_LEASE_S": 20,
    "CRAWLWEB_MAX_BODY_BYTES": CAP_BYTES,
    "CRAWLWEB_MAX_HEADER_BYTES": 65_536,
    "CRAWLWEB_GIVE_UP_S": 1,
    "LOG_LEVEL": "INFO",
}
IMPATIENT = """
from dataclasses import replace
from crawlweb.policy import retry

ADDONS = {"crawlweb.Addon": 0}
SPIDER_MODULES = ["crawlweb.spider"]

def soon(row):
    waits = {name: wait for name in ("url", "origin", "host") if (wait := getattr(row, name))}
    return replace(row, **{name: replace(wait, first_s=wait.first_s / 30, most_s=wait.most_s / 30) for name, wait in waits.items()})

for kind, row in retry.FAILURES.items():
    retry.FAILURES[kind] = soon(row)
retry.UNREACHABLE_ROBOTS = soon(retry.UNREACHABLE_ROBOTS)
"""


def impatient(folder: Path) -> Path:
    """A project that retries 30 times as soon."""
    folder.mkdir(parents=True)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = impatient\n")
    (folder / "impatient.py").write_text(IMPATIENT)
    return folder


@dataclass(frozen=True)
class Seen:
    """What a crawl made of one site."""

    items: int
    statuses: frozenset[int]
    truncated: frozenset[str]  # reasons in its WARC records
    dead_letter: str | None

    @classmethod
    def expected(cls, kind: Kind, seen: Seen) -> Seen:
        """By the kind's row; what it does not say is taken from `seen`."""
        group, _, reason = kind.counts.partition("/")
        truncated = {"truncated": frozenset({reason}), "wrong_type": frozenset({"unspecified"})}.get(group, frozenset())
        return cls(int(kind.page), seen.statuses, truncated, kind.dead_letter)


@dataclass
class Done:
    run: Run
    report: Report
    sites: dict[str, Seen]
    peak_bytes: int


def peak_bytes(pid: int) -> int:
    """Of the process's resident memory until now; 0 once it is gone."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def truncations(crawl: Crawl) -> Iterator[tuple[str, int, str | None]]:
    """(host, status, WARC-Truncated) of each response."""
    for file in sorted(crawl.warc_folder.glob("*.warc.gz")):
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream):
                if record.rec_type in ("response", "revisit"):
                    host = urlsplit(record.rec_headers.get_header("WARC-Target-URI")).hostname or ""
                    yield host, int(record.http_headers.get_statuscode()), record.rec_headers.get_header("WARC-Truncated")


def crawl_hostile(folder: Path) -> Done:
    with HostileWeb() as hostile:
        good: list[Site] = [Tree(name, pages=12) for name in GOOD]
        with Web(sites=[*good, *hostile.sites]) as web, Crawl(folder / "crawl", web.dns_server, **CAPS) as crawl:
            crawl.folder.mkdir(parents=True)
            seeds = crawl.folder / "seeds.txt"
            seeds.write_text("\n".join(web.seeds()))
            run = crawl.start(f"@{seeds}", cwd=impatient(folder / "project"), arguments=["-a", "scope=domain"])
            peaks = [0]
            with pytest.raises(AssertionError, match="ended with 0"):  # looks at the memory as long as it runs
                run.wait_until(lambda: peaks.append(max(peaks.pop(), peak_bytes(run.process.pid))))
            run.succeeds()
            items = Counter(urlsplit(item["final_url"]).hostname for item in crawl.items())
            dead = {host: reason for host, reason, _ in crawl.dead_letters()}
            statuses, truncated = defaultdict[str, set[int]](set), defaultdict[str, set[str]](set)
            for host, status, why in truncations(crawl):
                statuses[host].add(status)
                truncated[host].update({why} if why else ())
            sites = {
                name: Seen(
                    items[f"{name}.org"], frozenset(statuses[f"{name}.org"]), frozenset(truncated[f"{name}.org"]), dead.get(f"{name}.org")
                )
                for name in KINDS
            }
            return Done(run, web.report(min_delay_s=0.05, tolerance_s=0.02), sites, peaks[0])


Background = Callable[[Callable[[Path], Any]], Any]


@pytest.fixture
def done(background: Background) -> Done:
    found: Done = background(crawl_hostile)
    return found


hostile = pytest.mark.background.with_args(crawl_hostile)


@hostile
def test_the_crawl_of_a_hostile_web_ends_by_itself(done: Done) -> None:
    assert done.run.summary[0] == "finished"
    assert "Traceback" not in done.run.log
    assert done.run.complaints == []


@hostile
def test_its_memory_stays_under_the_cap(done: Done) -> None:
    assert 0 < done.peak_bytes < MEMORY_BYTES, f"{done.peak_bytes / 1e6:.0f} MB"


@hostile
def test_the_sites_beside_are_crawled_wholly(done: Done) -> None:
    assert {name: done.report.sites[name].missing for name in GOOD} == dict.fromkeys(GOOD, ())
    assert done.report.refetched == 0


@hostile
@pytest.mark.parametrize("name", KINDS)
def test_a_hostile_site_ends_as_its_kind_says(name: str, done: Done) -> None:
    seen = done.sites[name]
    assert seen == Seen.expected(KINDS[name], seen)


@hostile
def test_each_is_counted_by_its_kind(done: Done) -> None:
    at_least = Counter(kind.counts for kind in KINDS.values())
    counted = {name: done.run.stats.get(f"crawlweb/{name}", 0) for name in at_least}
    assert {name: n for name, n in at_least.items() if counted[name] < n} == {}
    for name in ("redirects/too_many", "redirects/loop", "redirects/invalid", "wrong_type"):
        assert counted[name] == at_least[name]
    assert done.run.stats["crawlweb/links/out_of_scope"] >= LINKS
    known = {f"crawlweb/{name}" for name in at_least}
    assert {name for name in done.run.stats if name.startswith(("crawlweb/errors/", "crawlweb/truncated/"))} <= known


@at_once
def test_names_that_lead_to_private_addresses_are_not_asked(folder: Path) -> None:
    with Web(sites=[Tree("inside.org", pages=3)]) as web, Crawl(folder, web.dns_server, CRAWLWEB_ALLOW_PRIVATE_IPS=0) as crawl:
        seeds = [*web.seeds(), "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://0x7f.1/", "http://10.0.0.1/"]
        run = crawl.start(seeds).succeeds(60)
        assert run.summary == ("finished", 0)
        assert web.visits() == []
        assert {reason for _, reason, _ in crawl.dead_letters()} == {"private_address"}
        assert run.stats["crawlweb/errors/private_address"] == len(seeds)


@at_once
def test_credentials_of_a_url_go_nowhere(folder: Path) -> None:
    class Listening(Tree):
        """Leads to itself with credentials, and keeps what it is sent."""

        def answer(self, target: str, host: str, head: bytes = b"") -> Answer:
            heads.append(head)
            return super().answer(target, host, head)

        def extra_hrefs(self) -> list[str]:
            return [self.url("/leaf/1").replace("://", "://me:secret@")]

    heads: list[bytes] = []
    with Web(sites=[Listening("a.org", pages=3)]) as web, Crawl(folder, web.dns_server, LOG_LEVEL="DEBUG") as crawl:
        (seed,) = web.seeds()
        run = crawl.start(seed.replace("://", "://me:secret@"), CRAWLWEB_FROM="ops@example.com").succeeds(60)
        assert run.summary == ("finished", 3)
        assert "Crawled (200) <GET http://a.org" in run.log
        kept = [run.log.encode(), crawl.items_file.read_bytes(), *heads, *(stored.url.encode() for stored in crawl.stored())]
        assert [text for text in kept if b"secret" in text or b"Authorization" in text or b"bWU6c2Vjcm" in text] == []
        assert all(b"\r\nFrom: ops@example.com\r\n" in head and b"(+https://example.com/bot)\r\n" in head for head in heads)
