"""crawlweb: a polite, distributed crawler of the open web, on Scrapy and Redis.

The rooms, in the order in which a URL walks through them:

    seeds          what the user types, checked and streamed
    policy/        decides: canonical form and URL key, host, scope, priority, robots.txt and other directives, retries,
                   other spellings, refusals, addresses without a clock — pure functions
    frontier/      enforces: front queues, back queues, leases, clocks of hosts and addresses, the seen-set — Redis and Lua
    worker         one process of a crawl: holds together what follows, from the lease to the outcome
    share, rota    which partitions are this worker's, and when each is asked; pace: how many calls a second
    poller         leases come in, ahead of their time
    admission      what must be known before a lease is a job; rulebook: what robots.txt says; limit: max_pages, does a page count?
    turns          a request waits for its address
    jobs           a job waits for its not-before
    renewals       leases last while their pages are worked on
    outbox         links, events and outcomes out in batches: a page is complete after the others are acknowledged
    spill          the middle of long queues to disk and back
    starts         start URLs from outside
    recovery       what follows when Redis lost its last seconds
    end            the end of the crawl, found together
    crawl          the above, opened and closed together
    scheduler      Scrapy's engine on the one side, the crawl on the other
    dns, download  one request, one address, one connection; caps and deadlines
    middlewares/   next to the downloader: store, then judge
    outcome        from what a fetch brought to what the frontier is told
    store/         WARC files
    content/       one parse: links, title, text
    spider         links in bulk, one item a page
    addon          switches it all on in a Scrapy project
    cli/           the command crawlweb: workers, seeds, hosts and their overrides, dead letters, stats, audit, purge

docs/life-of-a-url.md walks one URL through all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Addon", "__version__"]

if TYPE_CHECKING:
    from .addon import Addon


def __getattr__(name: str) -> Any:
    """`crawlweb.Addon` without importing Scrapy for those who want a URL key."""
    if name == "Addon":
        from .addon import Addon

        return Addon
    raise AttributeError(name)
