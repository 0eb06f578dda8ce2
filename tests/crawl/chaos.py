"""A crawl under blows: workers are killed, stopped and added, Redis servers are killed and come back; and what the web's log says of it.

bench/chaos.py runs it long, test_chaos.py short."""

from __future__ import annotations

import itertools
import json
import random
import re
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import redis

from crawlweb.frontier import codec
from crawlweb.frontier.keys import crawl_key, partition_prefix
from tests.cluster import Cluster
from tests.crawl.crawler import PARTITIONS, ROOT, Crawl, Run
from tests.crawl.servers import Loser
from tests.web import Report, Site, Slow, Tree, Visit, Web
from tests.web.report import report as report_of

TICK_S = 0.05
KINDS = ("kill", "stop", "stop long", "add")
WORDS = 30  # of a page
SLACK_S = 0.2  # so much of the crawl may be fetched again at a blow, beside what was in flight
REPLAY_S = 5.0  # a worker sends again what it had acknowledged so long before a server came back
TOLERANCE_S = 0.02
LAG_S = 0.1  # a connection that its worker ends has ended earlier than this web may notice
_WORKER = re.compile(r"/worker/(\d+)")

Place: TypeAlias = "tuple[str, str]"  # host name, path


@dataclass
class Ring(Tree):
    """One of `rings` hosts: page k leads only to page k + 1 of another. A link that is lost between two shards loses the page."""

    index: int = 0
    rings: int = 1

    def links(self, number: int) -> list[str]:
        to = f"ring{(self.index + 17 * number + 1) % self.rings}.org"
        return [self.url(self.path(number + 1), to)] if number + 1 < self.pages else []


def sites(hosts: int, pages: int) -> list[Site]:
    """Half of them ring, a tenth is slow, the rest are trees."""
    slow, rings = hosts // 10, hosts // 2
    return [
        *(Ring(f"ring{i}.org", pages=pages, words=WORDS, index=i, rings=rings) for i in range(rings)),
        *(Slow(f"slow{i}.org", pages=pages, words=WORDS, low_s=0.1, high_s=0.6) for i in range(slow)),
        *(Tree(f"tree{i}.org", pages=pages, words=WORDS) for i in range(hosts - slow - rings)),
    ]


@dataclass(frozen=True)
class RedisBlow:
    """`at`: share of the pages that are served by then; `node`: which server; `away_s`: how long it stays away."""

    at: float
    how: Literal["stop", "kill", "lose"]
    """lose: it is killed and comes back without its last second."""
    node: int = 0
    away_s: float = 0.5


@dataclass(frozen=True)
class Plan:
    seed: int = 1
    workers: int = 4
    """So many live, or one more or less."""
    every_s: tuple[float, float] = (3.0, 6.0)
    """Between two blows at workers that chance brings."""
    until: float = 0.9
    """Share of the pages that are served by the last blow."""
    script: tuple[tuple[float, str], ...] | None = None
    """Instead of what chance brings: at which share of the pages a worker is struck, and how."""
    redis: tuple[RedisBlow, ...] = ()
    delay_s: float = 1.0
    timeout_s: float = 2.0
    lease_s: float = 6.0
    max_pages: int | None = None
    wait_s: float = 300.0
    """For the end."""
    settings: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Blow:
    """`workers`: who is struck; `leased`: pages that were leased at that moment, by anyone; `lost_s`: what a server that is struck lost."""

    at_s: float
    what: str
    workers: frozenset[int]
    leased: frozenset[Place]
    lost_s: float = 0.0
    until_s: float = 0.0
    """When a worker that is stopped goes on, when a server is back."""

    @property
    def unsettled_s(self) -> float:
        """What was asked for until then under a lease of that moment may have to be asked for again: a server that lost its last second
        may have lost the lease, and nobody can know before it is back."""
        return self.until_s if self.lost_s else self.at_s


@dataclass
class Worker:
    number: int
    crawl: Crawl
    run: Run
    wakes_s: float | None = None
    """It is stopped until then."""
    struck: bool = False
    """It was killed by us."""

    @property
    def lives(self) -> bool:
        return self.run.process.poll() is None

    @property
    def connected(self) -> bool:
        """Redis was there when it began; without, it would have ended at once."""
        return self.crawl.warc_folder.exists()


@dataclass(frozen=True)
class Proof:
    """Something that should be so, and whether it is."""

    text: str
    holds: bool


class Chaos:
    """Workers of one crawl, each in a folder of its own and with a user agent that tells it from the others."""

    def __init__(self, folder: Path, web: Web, nodes: Sequence[Loser], plan: Plan, say: Callable[[str], None] = lambda _: None) -> None:
        self.web, self.nodes, self.plan, self._say, self._folder = web, nodes, plan, say, folder
        self.workers: list[Worker] = []
        self.blows: list[Blow] = []
        self.began_s = time.monotonic()
        self.total = sum(len(site.expected()) for site in web.sites.values())
        self._rng = random.Random(f"{plan.seed}/chaos")
        self._redis_left = sorted(plan.redis, key=lambda blow: blow.at)
        self._script_left = None if plan.script is None else sorted(plan.script, key=lambda blow: blow[0])
        self._back: tuple[float, int] | None = None  # when which node is started again
        self._seeds = folder / "seeds.txt"
        self._seeds.write_text("\n".join(web.seeds()) + "\n")
        self._settings = {
            "REDIS_URL": f"redis://{nodes[0].address}",
            "CRAWLWEB_MIN_DELAY_S": plan.delay_s,
            "DOWNLOAD_TIMEOUT": plan.timeout_s,
            "CRAWLWEB_LEASE_S": plan.lease_s,
            "CRAWLWEB_SPILL_URL": folder / "cold",
            "LOG_LEVEL": "INFO",
            **plan.settings,
        }

    def __enter__(self) -> Chaos:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.run.kill()

    # -- the blows ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """To the end of the crawl, or of `wait_s`."""
        plan, deadline_s = self.plan, time.monotonic() + self.plan.wait_s
        for _ in range(plan.workers):
            self._add()
        self._next_s = time.monotonic() + self._rng.uniform(*plan.every_s)
        while time.monotonic() < deadline_s and any(worker.lives for worker in self.workers):
            time.sleep(TICK_S)
            now = time.monotonic()
            self._wake_up(now)
            if self._back is not None:
                if now >= self._back[0]:
                    self._bring_back(self._back[1])
                continue
            if self._redis_left and self._progress >= self._redis_left[0].at:
                if self._may_strike_redis(now):
                    self._strike_redis(self._redis_left.pop(0))
            elif self._script_left is not None:
                if self._script_left and self._progress >= self._script_left[0][0] and self._strike_worker(self._script_left[0][1]):
                    self._script_left.pop(0)
            elif now >= self._next_s and self._progress < plan.until and self._strike_worker(self._by_chance()):
                self._next_s = time.monotonic() + self._rng.uniform(*plan.every_s)
        self._wake_up(float("inf"))

    @property
    def _progress(self) -> float:
        return self.web.served / min(self.total, self.plan.max_pages or self.total)

    def _add(self) -> None:
        number = len(self.workers)
        crawl = Crawl(self._folder / f"w{number}", self.web.dns_server, **self._settings)
        agent = f"https://example.com/worker/{number}"
        arguments = [] if self.plan.max_pages is None else ["-a", f"max_pages={self.plan.max_pages}"]
        self.workers.append(Worker(number, crawl, crawl.start(f"@{self._seeds}", arguments=arguments, CRAWLWEB_CONTACT=agent)))

    def _by_chance(self) -> str:
        live = sum(worker.lives for worker in self.workers)
        kinds = [kind for kind in KINDS if kind != "add" or live <= self.plan.workers]
        return "add" if live < self.plan.workers else self._rng.choice(kinds)

    def _strike_worker(self, what: str) -> bool:
        """False: not now. Within REPLAY_S of a server that lost its last second workers are left alone: only they could tell it again."""
        plan, rng = self.plan, self._rng
        if what == "add":
            self._add()
            self._note(what, frozenset())
            return True
        victims = [worker for worker in self.workers if worker.lives and worker.wakes_s is None and worker.connected]
        if len(victims) < 2 or any(b.lost_s and time.monotonic() - b.until_s < REPLAY_S for b in self.blows):
            return False
        victim = rng.choice(victims)
        if what == "kill":
            victim.struck = True
            victim.run.kill()
            self._note(what, frozenset({victim.number}))
        else:
            victim.run.process.send_signal(signal.SIGSTOP)
            seconds = rng.uniform(1.1, 1.5) * plan.lease_s if what == "stop long" else rng.uniform(0.2, 0.6) * plan.lease_s
            victim.wakes_s = time.monotonic() + seconds
            self._note(what, frozenset({victim.number}), until_s=victim.wakes_s)
        return True

    def _wake_up(self, now: float) -> None:
        for worker in self.workers:
            if worker.wakes_s is not None and worker.wakes_s <= now:
                worker.wakes_s = None
                worker.run.process.send_signal(signal.SIGCONT)

    def _may_strike_redis(self, now: float) -> bool:
        """Not while a worker begins. None that could tell again what is lost was killed just now, or is stopped."""
        if any(worker.lives and worker.wakes_s is None and not worker.connected for worker in self.workers):
            return False
        if self._redis_left[0].how != "lose":
            return True
        is_stopped = any(worker.lives and worker.wakes_s is not None for worker in self.workers)
        return not is_stopped and not any(blow.what == "kill" and now - blow.at_s < REPLAY_S + 1 for blow in self.blows)

    def _strike_redis(self, blow: RedisBlow) -> None:
        node, leased, now = self.nodes[blow.node], self._leased(), time.monotonic()
        everyone = frozenset(worker.number for worker in self.workers if worker.lives)
        lost_s = 0.0
        if blow.how == "stop":
            node.end()
        elif blow.how == "kill":
            node.kill()
        else:
            lost_s = node.lose()
        self._back = (time.monotonic() + blow.away_s, blow.node)
        self._note(f"Redis {blow.how} {blow.node}", everyone, leased=leased, at_s=now, lost_s=lost_s, until_s=self._back[0])

    def _bring_back(self, number: int) -> None:
        self.nodes[number].start()
        if len(self.nodes) > 1:
            Cluster(list(self.nodes)).wait_until_well()
        self._back = None

    def _note(
        self,
        what: str,
        workers: frozenset[int],
        *,
        leased: frozenset[Place] | None = None,
        at_s: float | None = None,
        lost_s: float = 0.0,
        until_s: float = 0.0,
    ) -> None:
        at_s = time.monotonic() if at_s is None else at_s
        leased = leased if leased is not None else self._leased() if workers else frozenset()
        self.blows.append(Blow(at_s, what, workers, leased, lost_s, until_s))
        who = f" worker {min(workers)}" if len(workers) == 1 else ""
        lost = f", {lost_s:.2f} s lost" if lost_s else ""
        self._say(f"{at_s - self.began_s:6.1f} s  {self.web.served:6} pages  {what}{who}, {len(leased)} leases{lost}")

    # -- what stands in Redis -------------------------------------------------------------------------------------------

    def _client(self) -> Any:
        if len(self.nodes) > 1:
            return redis.RedisCluster.from_url(f"redis://{self.nodes[0].address}")
        return self.nodes[0].client()

    def _leased(self) -> frozenset[Place]:
        with self._client() as client:
            pipe = client.pipeline(transaction=False)
            for p in range(PARTITIONS):
                pipe.hvals(partition_prefix("web", p) + "leased")
            found = set()
            for text in itertools.chain.from_iterable(pipe.execute()):
                host, _, entry = text.split(b"\t", 2)
                url = urlsplit(codec.decode(entry, host.decode()).url)
                found.add((url.hostname or "", url.path))
            return frozenset(found)

    def pages_counted(self) -> int:
        """Under max_pages."""
        with self._client() as client:
            return int(client.scard(crawl_key("web", "pages")))

    def ask(self, *words: str) -> list[dict[str, Any]]:
        """What a command of `crawlweb` prints as JSON."""
        command = [sys.executable, "-c", "import sys; from crawlweb.cli import main; sys.exit(main())", *words, "--json"]
        command += ["-s", f"REDIS_URL={self._settings['REDIS_URL']}", "-s", f"CRAWLWEB_PARTITIONS={PARTITIONS}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode == 2 or (done.returncode and not done.stdout and done.stderr):
            raise RuntimeError(f"crawlweb {' '.join(words)}: {done.stderr[-500:]}")
        return [json.loads(line) for line in done.stdout.splitlines()]


# -- the verdict ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Again:
    """A request for what had been asked for before. `excused`: the earlier one was in flight at a blow at its worker, or lost with its
    server's last second."""

    place: Place
    first: Visit
    second: Visit
    excused: bool

    def __str__(self) -> str:
        by = f"worker {worker_of(self.first)} then {worker_of(self.second)}"
        return f"{self.place[0]}{self.place[1]}, {by}, {self.second.start_s - self.first.end_s:.2f} s after"


@dataclass(frozen=True)
class Account:
    """What the log says, blow by blow."""

    report: Report
    pages: int
    """Different ones."""
    pages_per_s: float
    in_flight: tuple[int, ...]
    """At each blow: pages that the struck workers had asked for and that were still leased, and those of a lost second."""
    again: tuple[Again, ...]
    robots_again: tuple[Again, ...]


def worker_of(visit: Visit) -> int:
    found = _WORKER.search(visit.agent)
    return int(found[1]) if found else -1


def account(chaos: Chaos) -> Account:
    web, visits = chaos.web, sorted(chaos.web.visits())
    ended = [visit if visit.status else visit._replace(end_s=max(visit.start_s, visit.end_s - LAG_S)) for visit in visits]
    again, in_flight = find_again(visits, chaos.blows)
    pages = [(visit.host, visit.target) for visit in visits if visit.page is not None]
    seconds = visits[-1].end_s - visits[0].start_s if visits else 1.0
    return Account(
        report=report_of(ended, web.sites, web.site_of, min_delay_s=chaos.plan.delay_s, tolerance_s=TOLERANCE_S),
        pages=len(set(pages)),
        pages_per_s=len(pages) / seconds,
        in_flight=tuple(sum(place[1] != "/robots.txt" for place in places) for places in in_flight),
        again=tuple(a for a in again if a.place[1] != "/robots.txt"),
        robots_again=tuple(a for a in again if a.place[1] == "/robots.txt"),
    )


def find_again(visits: Sequence[Visit], blows: Sequence[Blow]) -> tuple[list[Again], list[frozenset[Place]]]:
    """Of visits in order, what was asked for again, and what was in flight at each blow."""
    by_worker: dict[int, list[Visit]] = defaultdict(list)
    for visit in visits:
        by_worker[worker_of(visit)].append(visit)
    in_flight = [frozenset(_in_flight(blow, by_worker)) for blow in blows]
    return list(_again(visits, blows, in_flight)), in_flight


def _in_flight(blow: Blow, by_worker: dict[int, list[Visit]]) -> Iterator[Place]:
    """What the struck workers had asked for and Redis still held as leased, the robots.txt of leased hosts included; and what they
    completed in a second that was lost."""
    hosts = {host for host, _ in blow.leased}
    for number in blow.workers:
        visits = by_worker.get(number, [])
        latest: dict[str, Visit] = {}
        for visit in visits[: bisect_left(visits, blow.unsettled_s, key=lambda v: v.start_s)]:
            latest[visit.host] = visit
            place = visit.host, visit.target
            if place in blow.leased or (blow.lost_s and visit.end_s >= blow.at_s - blow.lost_s - SLACK_S):
                yield place
        yield from ((host, "/robots.txt") for host, visit in latest.items() if visit.target == "/robots.txt" and host in hosts)


def _again(visits: Sequence[Visit], blows: Sequence[Blow], in_flight: Sequence[frozenset[Place]]) -> Iterator[Again]:
    """Of pages and robots.txt files that were shown already."""
    before: dict[Place, Visit] = {}
    for visit in visits:
        if visit.page is None and visit.target != "/robots.txt":
            continue
        place = visit.host, visit.target
        first = before.get(place)
        if first is not None:
            excused = any(
                worker_of(first) in blow.workers and place in places and first.start_s <= blow.unsettled_s and blow.at_s <= visit.start_s
                for blow, places in zip(blows, in_flight, strict=True)
            )
            yield Again(place, first, visit, excused)
        before[place] = visit


def verdict(chaos: Chaos, found: Account) -> list[Proof]:
    plan, report = chaos.plan, found.report
    blows = [blow for blow in chaos.blows if blow.workers]
    slack = SLACK_S * found.pages_per_s * len(blows)
    bound = sum(found.in_flight) + slack
    unexcused = sum(not again.excused for again in found.again)
    robots_unexcused = sum(not again.excused for again in found.robots_again)
    woken = [again for again in found.again + found.robots_again if by_a_woken_worker(again, chaos.blows)]
    statuses = [worker.run.process.poll() for worker in chaos.workers if not worker.struck]
    audit = chaos.ask("audit")[0]
    dead = chaos.ask("dead", "--limit", "1000")
    items, unreadable = _items(chaos)
    missing = {name: site.missing for name, site in report.sites.items() if site.missing}
    proofs = [
        Proof(
            f"{len(found.again)} pages fetched again, {unexcused} of them without a blow; {sum(found.in_flight)} were in flight at blows, "
            f"{slack:.0f} are {SLACK_S} s of pages",
            len(found.again) <= bound and unexcused <= slack,
        ),
        Proof(
            f"{len(found.robots_again)} robots.txt fetched again, {robots_unexcused} of them without a blow",
            robots_unexcused <= slack,
        ),
        Proof(f"{len(woken)} requests by workers that woke, for what another had fetched", not woken),
        Proof(f"{len(report.violations)} of {report.requests} came within {plan.delay_s:g} s of their host", not report.violations),
        Proof(f"{len(report.overlaps)} while another of the host was being answered", not report.overlaps),
        Proof(f"{len(report.robots_late)} hosts asked for something else before robots.txt", not report.robots_late),
        Proof(f"{len(report.forbidden)} requests were forbidden", not report.forbidden),
        Proof(f"audit: {audit['lost']} lost, {audit['leased']} leased", audit["lost"] == 0 and audit["leased"] == 0),
        Proof(f"{len(dead)} dead letters: {dict(Counter(letter['reason'] for letter in dead)) or 'none'}", not dead),
        Proof(f"exit statuses of workers that were not killed: {statuses}", not any(status != 0 for status in statuses)),
        Proof(
            f"{unreadable} broken lines in pages.jsonl of {sum(worker.struck for worker in chaos.workers)} killed workers",
            unreadable <= sum(worker.struck for worker in chaos.workers),
        ),
    ]
    if plan.max_pages is None:
        proofs += [
            Proof(f"{report.found} of {report.expected} pages found; missing: {dict(list(missing.items())[:5]) or 'none'}", not missing),
            Proof(f"{len(items)} pages have an item", len(items) >= report.expected),
            Proof(f"nothing is pending: {audit['pending']}", audit["pending"] == 0),
        ]
    else:
        counted = chaos.pages_counted()
        proofs += [
            Proof(f"max_pages={plan.max_pages}: {counted} pages counted", counted == plan.max_pages),
            Proof(
                f"{found.pages} different pages served, {len(items)} with an item; at most {bound:.0f} more than were counted",
                plan.max_pages <= found.pages <= plan.max_pages + bound and len(items) >= plan.max_pages,
            ),
        ]
    return proofs


def by_a_woken_worker(again: Again, blows: Sequence[Blow]) -> bool:
    """It fetched, within a second of its waking, what another had fetched while it was stopped."""
    number = worker_of(again.second)
    return worker_of(again.first) != number and any(
        blow.what.startswith("stop")
        and number in blow.workers
        and blow.at_s < again.first.start_s < blow.until_s <= again.second.start_s < blow.until_s + 1.0
        for blow in blows
    )


def _items(chaos: Chaos) -> tuple[set[str], int]:
    """URLs that have an item, and the number of broken lines."""
    urls: set[str] = set()
    broken = 0
    for worker in chaos.workers:
        items, unreadable = worker.crawl.readable_items()
        urls.update(item["final_url"] for item in items)
        broken += unreadable
    return urls, broken
