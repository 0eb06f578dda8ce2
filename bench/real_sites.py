"""A crawl of real sites: Debian's documentation packages, served on loopback under host names of their own.

    python bench/real_sites.py                              the packages that are installed (see PACKAGES)
    python bench/real_sites.py pydocs.org=/usr/share/doc/python3/html …

The web's own walk over the files says what can be reached; gaps are measured at its sockets, from the end of one request to the start
of the next. The exit status says whether every site was fetched whole, once, with no gap under the delay, and with one item and one WARC
response a page.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.crawl.crawler import Crawl  # noqa: E402
from tests.web import Files, Web  # noqa: E402

# Host name → packages that may hold the site (a dpkg pattern), and the front page in them.
PACKAGES = {
    "pydocs.org": ("python3*-doc", r"/html/index\.html"),
    "pgdocs.org": ("postgresql-doc-*", r"/html/index\.html"),
    "httpd.org": ("apache2-doc", r"/manual/en/index\.html"),
    "gitdocs.org": ("git-doc", r"/git-doc/index\.html"),
    "sqlitedocs.org": ("sqlite3-doc", r"/sqlite3/index\.html"),
    "djangodocs.org": ("python-django-doc", r"/python-django-doc/html/index\.html"),
}


def installed() -> dict[str, str]:
    """Host name → folder, of the packages that dpkg knows."""
    found: dict[str, str] = {}
    if not shutil.which("dpkg-query"):
        return found
    for host, (pattern, front) in PACKAGES.items():
        names = _lines("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package}\\n", pattern)
        for name in sorted(line.split()[-1] for line in names if line.startswith("ii")):
            pages = [line for line in _lines("dpkg-query", "-L", name) if re.search(front + "$", line)]
            if pages:
                found[host] = str(Path(min(pages, key=len)).parent)
    return found


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sites", nargs="*", metavar="HOST=FOLDER")
    parser.add_argument("--delay-s", type=float, default=0.1, help="CRAWLWEB_MIN_DELAY_S, and what is demanded")
    parser.add_argument("--latency-factor", type=float, default=0, help="CRAWLWEB_LATENCY_FACTOR")
    parser.add_argument("--wait-s", type=float, default=1800)
    options = parser.parse_args()
    folders = dict(site.split("=", 1) for site in options.sites) if all("=" in site for site in options.sites) else None
    if folders is None or not (folders := folders or installed()):
        parser.error("no sites: HOST=FOLDER expected, or one of the packages installed")
    if missing := [folder for folder in folders.values() if not Path(folder, "index.html").is_file()]:
        parser.error(f"no index.html in {', '.join(missing)}")

    sites = [Files(host, folder=folder) for host, folder in folders.items()]
    settings = {"CRAWLWEB_MIN_DELAY_S": options.delay_s, "CRAWLWEB_LATENCY_FACTOR": options.latency_factor}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        Web(sites=sites) as web,
        Crawl(Path(name), web.dns_server, **settings) as crawl,
    ):
        began = time.monotonic()
        run = crawl.start(web.seeds())
        status = run.wait(options.wait_s)
        elapsed_s = time.monotonic() - began
        report = web.report(min_delay_s=options.delay_s)
        items, warc = Counter(map(_page, (item["final_url"] for item in crawl.items()))), Counter(map(_page, crawl.pages()))
        shown = {(site.name, path) for site in sites for path in site.expected()}
        audit = crawl.audit()
        warc_mb = sum(file.stat().st_size for file in crawl.warc_folder.iterdir()) / 1e6
        print(f"{'site':<16}{'pages':>7}{'found':>7}{'again':>7}{'gaps':>6}{'least gap':>11}{'items':>7}{'WARC':>7}")
        for host, site in report.sites.items():
            ends = sorted((v.start_s, v.end_s) for v in web.visits() if v.host == host)
            least_ms = min((b[0] - a[1] for a, b in itertools.pairwise(ends)), default=0) * 1000
            counted = [sum(n for (name, path), n in c.items() if name == host and (name, path) in shown) for c in (items, warc)]
            short = sum(gap.key == host for gap in report.violations)
            print(
                f"{host:<16}{site.expected:>7}{site.found:>7}{site.refetched:>7}{short:>6}{least_ms:>8.0f} ms{counted[0]:>7}{counted[1]:>7}"
            )
            for page in site.missing:
                print(f"    missing: {page}")
        print(
            f"{'all':<16}{report.expected:>7}{report.found:>7}{report.refetched:>7}{len(report.violations):>6}"
            f"{(report.shortest_gap_s or 0) * 1000:>8.0f} ms{sum(items[p] for p in shown):>7}{sum(warc[p] for p in shown):>7}"
        )
        print(f"exit status {status}, {report.requests} requests in {elapsed_s:.0f} s, WARC {warc_mb:.1f} MB")
        for line in run.complaints:
            print(line)
        print(next((line for line in run.log.splitlines() if "INFO: crawl " in line), "no closing line"))
        wrong = [page for page in shown if items[page] != 1 or warc[page] != 1]
        holds = not (status or wrong or report.violations or report.refetched or report.forbidden or audit["pending"] or audit["lost"])
    for where in wrong[:20]:
        print(f"not one item and one WARC response: {where}")
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


def _page(url: str) -> tuple[str | None, str]:
    parts = urlsplit(url)
    return parts.hostname, unquote(parts.path) or "/"


if __name__ == "__main__":
    sys.exit(main())
