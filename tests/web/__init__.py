"""A seeded synthetic web on loopback: what the repository's tests and benchmarks crawl.

    with Web(seed=1, sites=[Tree("alpha.org", pages=30), Tree("dead.org", fate="nxdomain")]) as web:
        ...crawl(web.seeds(), dns=web.dns_server)...
        report = web.report(min_delay_s=1.0)

`Web` answers from a thread of the calling process; `WebProcess` (or `python -m tests.web --site tree:count=3`) from a
process of its own, with uvloop, so that a benchmark does not count the server's CPU as the crawler's. Every name of the
web resolves through its own name server to an address in 127.0.0.0/8; pages follow from (seed, host, path) alone.

sites.py: what a host answers · manners.py: hosts that try a crawler's manners ·
missing.py: hosts that differ where there is nothing · saved.py: real pages · names.py: DNS · server.py: HTTP and the log ·
report.py: what the log says of a visitor · kinds.py: sites from text.
"""

from __future__ import annotations

from .manners import Blocking, Flaky, Nofollow, Origins, Pushback, Siblings, Walled
from .missing import Missing
from .process import WebProcess
from .report import Report, Visit
from .saved import Saved
from .server import Web
from .sites import Answer, Broken, Errors, Fate, Files, Links, Redirects, Request, Rest, Robots, Site, Slow, Spellings, Tree

__all__ = [
    "Answer",
    "Blocking",
    "Broken",
    "Errors",
    "Fate",
    "Files",
    "Flaky",
    "Links",
    "Missing",
    "Nofollow",
    "Origins",
    "Pushback",
    "Redirects",
    "Report",
    "Request",
    "Rest",
    "Robots",
    "Saved",
    "Siblings",
    "Site",
    "Slow",
    "Spellings",
    "Tree",
    "Visit",
    "Walled",
    "Web",
    "WebProcess",
]
