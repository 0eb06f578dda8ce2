"""Workers and Redis under blows: every few seconds a worker is killed with `kill -9`, stopped with SIGSTOP or added; Redis is restarted.

    python bench/chaos.py                             2,000 hosts, four workers; Redis restarted, then killed
    python bench/chaos.py --lose-last-second          and Redis comes back without its last second
    python bench/chaos.py --shards 2                  a cluster; one of two shards is killed and comes back without its last second, twice
    python bench/chaos.py --cluster 3                 a cluster of three; a node is restarted, another killed
    python bench/chaos.py --max-pages 5000            the limit is exact

The verdict is the web's own log: which pages were served, what was fetched again beside what was in flight at each blow, gaps of hosts; and
the audit. A page counts as in flight at a blow if the struck worker had asked for it and it was still leased in Redis at that moment. Each
line says whether it holds, the last whether all do; so does the exit status.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.crawl.chaos import Account, Chaos, Plan, RedisBlow, account, sites, verdict  # noqa: E402
from tests.crawl.servers import Loser, one_server, shards  # noqa: E402
from tests.web import Web  # noqa: E402

FEW = 0.0001  # share of the slots of a third node: two shards alone could not agree that one is gone


def plan(options: argparse.Namespace) -> Plan:
    away_s = options.away_s
    if options.shards:
        blows = (RedisBlow(0.3, "lose", 0, away_s), RedisBlow(0.65, "lose", 1, away_s))
    elif options.cluster:
        blows = (RedisBlow(0.3, "stop", 1, away_s), RedisBlow(0.65, "kill", 0, away_s))
    else:
        blows = (RedisBlow(0.3, "stop", 0, away_s), RedisBlow(0.65, "lose" if options.lose_last_second else "kill", 0, away_s))
    return Plan(
        seed=options.seed,
        workers=options.workers,
        every_s=(0.6 * options.every_s, 1.4 * options.every_s),
        redis=blows,
        delay_s=options.delay_s,
        timeout_s=options.timeout_s,
        lease_s=3 * options.timeout_s,
        max_pages=options.max_pages,
        wait_s=options.wait_s,
    )


def servers(options: argparse.Namespace, folder: Path, stack: ExitStack) -> list[Loser]:
    if options.shards:
        return stack.enter_context(shards(folder, (1.0, 1.0, FEW)))
    if options.cluster:
        return stack.enter_context(shards(folder, (1.0,) * options.cluster))
    return stack.enter_context(one_server(folder))


def table(chaos: Chaos, found: Account) -> None:
    report = found.report
    kinds = Counter(blow.what for blow in chaos.blows)
    shortest_s = report.shortest_gap_s
    rows = {
        "hosts, pages": f"{len(report.sites)}, {report.expected}",
        "requests": f"{report.requests} in {report.seconds:.0f} s, {found.pages_per_s:.0f} pages/s",
        "workers": f"{len(chaos.workers)}, of which {sum(worker.struck for worker in chaos.workers)} were killed",
        "blows": ", ".join(f"{number} {what}" for what, number in sorted(kinds.items())),
        "in flight at blows": f"{sum(found.in_flight)}: {' '.join(map(str, found.in_flight))}",
        "leases at blows": f"{sum(len(blow.leased) for blow in chaos.blows)}",
        "fetched again": f"{len(found.again)} pages, {len(found.robots_again)} robots.txt",
        "shortest gap": "none" if shortest_s is None else f"{shortest_s:.3f} s (delay {chaos.plan.delay_s:g} s)",
        "seconds lost by Redis": ", ".join(f"{blow.lost_s:.2f}" for blow in chaos.blows if blow.lost_s) or "0",
    }
    for name, value in rows.items():
        print(f"{name:<22} {value}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, choices=[2], help="a cluster of two shards, and a third node with few slots")
    parser.add_argument("--cluster", type=int, metavar="NODES", help="a cluster of so many")
    parser.add_argument("--lose-last-second", action="store_true", help="the killed server's file is cut to what it was a second before")
    parser.add_argument("--max-pages", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=1, help="of the web and of the blows")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--hosts", type=int, default=2000)
    parser.add_argument("--pages", type=int, default=16, help="of a host")
    parser.add_argument("--delay-s", type=float, default=10.0)
    parser.add_argument("--timeout-s", type=float, default=2.0, help="DOWNLOAD_TIMEOUT; a lease is three times as long")
    parser.add_argument("--every-s", type=float, default=5.0, help="between two blows at workers")
    parser.add_argument("--away-s", type=float, default=1.0, help="how long a Redis server stays away")
    parser.add_argument("--wait-s", type=float, default=900.0, help="for the end")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="logs and data go here, the web's log as well, and stay")
    options = parser.parse_args()
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"--keep {options.keep}: is not empty")

    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        folder.mkdir(parents=True, exist_ok=True)
        web = stack.enter_context(Web(seed=options.seed, sites=sites(options.hosts, options.pages)))
        nodes = servers(options, folder, stack)
        chaos = stack.enter_context(Chaos(folder, web, nodes, plan(options), lambda text: print(text, flush=True)))
        chaos.run()
        found = account(chaos)
        proofs = verdict(chaos, found)
        if options.keep:
            (folder / "web.jsonl").write_text("".join(json.dumps(visit) + "\n" for visit in sorted(web.visits())))
    print()
    table(chaos, found)
    print()
    for proof in proofs:
        print("holds " if proof.holds else "FAILS ", proof.text)
    for text in (*found.report.violations[:5], *(again for again in found.again if not again.excused), *found.report.robots_late[:5]):
        print("       ", text)
    failed = [proof.text for proof in proofs if not proof.holds]
    print(f"failed: {len(failed)} of {len(proofs)}" if failed else "ok")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
