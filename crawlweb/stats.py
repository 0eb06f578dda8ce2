"""The one table of stats: docs/stats.md is generated from it. Names are Scrapy stats of one worker; counters are summed over the workers
of a crawl, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STATS = {
    "crawlweb/requests": "requests sent, robots.txt, redirects and retries included",
    "crawlweb/pages": "pages stored (status 200 to 299, whole or truncated)",
    "crawlweb/bytes": "bytes of bodies received, as transferred",
    "crawlweb/hosts": "hosts that at least one request was sent to; of over some thousands, to a thousandth",
    "crawlweb/status/<code>": "responses by status",
    "crawlweb/events": "events published: pages that a `page.fetched` tells of, in the order of their completion",
    "crawlweb/links/found": "links of pages, after canonicalisation, each key once a page",
    "crawlweb/links/enqueued": "links that were new",
    "crawlweb/links/seen": "links that the seen-set knew",
    "crawlweb/links/cached": "links that this worker's cache knew: Redis was not asked",
    "crawlweb/links/cache_rate": "share of the links in scope that this worker's cache knew, of one (`CRAWLWEB_SEEN_CACHE_KEYS`)",
    "crawlweb/links/out_of_scope": "links outside the scope",
    "crawlweb/links/too_deep": "links beyond max_depth",
    "crawlweb/links/nofollow": "links that must not be followed: rel, meta robots, X-Robots-Tag",
    "crawlweb/soft_404": "pages of status 200 that are error pages",
    "crawlweb/duplicates/<kind>": (
        "pages whose content another one has: exact, near; or that say so, and are believed: declared. Which of them counts: "
        "policy/duplicates.py"
    ),
    "crawlweb/duplicates/unchecked": "pages that could not be compared: Redis was away for over 10 s",
    "crawlweb/duplicates/superseded": "pages that were handed on, and left their place to a better copy",
    "crawlweb/duplicates/skipped": "pages that gave no item because they are copies",
    "crawlweb/noindex": "pages that gave no item because they say noindex",
    "crawlweb/links/invalid": "links that are no http or https URL, or too long",
    "crawlweb/links/repeated": "links whose key the page had before",
    "crawlweb/redirects": "redirects put into the frontier",
    "crawlweb/redirects/known": "redirects to a page that was known: an alias of it now",
    "crawlweb/siblings": "URLs that were not found, whose other spelling is tried",
    "crawlweb/probes": "requests for a path that cannot be there, to know the host's error page (`CRAWLWEB_PROBE_DAYS`)",
    "crawlweb/refusals": "pages that look like a refusal: 403, a captcha, nothing (policy/refusals.py)",
    "crawlweb/ip/refused": "leases given back because their address had no turn free",
    "crawlweb/redirects/<why>": "redirects not followed: too_many, loop, invalid, out_of_scope",
    "crawlweb/seeds": "seeds read",
    "crawlweb/seeds/new": "seeds that the exact set did not know",
    "crawlweb/start_urls/taken": "entries taken out of keys of start URLs (`REDIS_START_URLS_KEY`)",
    "crawlweb/start_urls/malformed": "those that are no start URLs, and were moved to `quarantine` beside the key",
    "crawlweb/start_urls/foreign": "times that such a key was of a type that holds none",
    "crawlweb/leases": "leases received",
    "crawlweb/leases/returned": "leases given back unfetched",
    "crawlweb/leases/lost": "leases that a Redis server lost when it was started again, or another took its place",
    "crawlweb/leases/late": "leases that had run out when their page was finished: another worker has the URL",
    "crawlweb/leases/stuck": "pages that were in callbacks and pipelines for 10 minutes",
    "crawlweb/leases/abandoned": "such pages after `CRAWLWEB_STUCK_S`: another worker gets the URL",
    "crawlweb/pages/over_limit": "pages that were fetched and not stored, since `max_pages` was reached meanwhile",
    "crawlweb/robots/fetched/<decision>": (
        "robots.txt answers: rules, allow, redirect, redirect_other_host, unreachable, unreachable_allow (after 30 days), "
        "stale (an old copy holds), defer (429); no rules because of a redirect that is too_many, loop, invalid"
    ),
    "crawlweb/robots/disallowed": "URLs that robots.txt disallows",
    "crawlweb/errors/<kind>": "failures by kind (policy/retry.py)",
    "crawlweb/dead": "URLs that became dead letters when this worker completed them (not: of dead hosts, of expired leases)",
    "crawlweb/truncated/<why>": "bodies cut: length, time, disconnect",
    "crawlweb/wrong_type": "responses whose type is not wanted",
    "crawlweb/quarantined": "entries in Redis that are not ours",
    "crawlweb/replaced": "requests that a middleware answered with another request",
    "crawlweb/local/elsewhere": "requests that only another process can make",
    "crawlweb/errors/enqueue": "requests of a spider that could not be put into the frontier",
    "crawlweb/keep_alive/reused": "requests sent on a connection that was kept (`CRAWLWEB_KEEP_ALIVE_S`)",
    "crawlweb/keep_alive/lost": "of those, requests that met the server's close: their URLs went back unfetched",
    "crawlweb/dns/hits": "names whose address was known",
    "crawlweb/dns/misses": "names that were looked up, or that waited for another's look-up",
    "crawlweb/dns/failures/<kind>": "names without an address that can be used, by kind of failure, known ones included",
    "crawlweb/dns/stale": "look-ups that failed on the servers, answered with an address whose time was over",
    "crawlweb/spill/chunks_out": "files written for the middle of long queues",
    "crawlweb/spill/entries_out": "entries of queues in them",
    "crawlweb/spill/bytes_out": "bytes of them, compressed",
    "crawlweb/spill/chunks_in": "such files read back whole",
    "crawlweb/spill/failed": "tries to write or read such a file that failed and will be repeated",
    "crawlweb/spill/unreadable": "entries lost with such a file that is missing or corrupt",
    "crawlweb/spill/deleted": "such files deleted an hour after their last use",
    "crawlweb/recrawls/queued": "pages that were due and are in their hosts' queues again",
    "crawlweb/recrawls/stale": "keys in lists of due pages whose page was fetched again meanwhile, or had been queued",
    "crawlweb/redis/calls": "calls to Redis",
    "crawlweb/redis/restarts": "times that a Redis server was found to be started again, or replaced, and was told the last seconds again",
    "crawlweb/redis/calls_per_s": "calls a second, of the last 5 s (`CRAWLWEB_REDIS_CALLS_PER_S`)",
    "crawlweb/redis/calls_per_s_most": "the most that this was",
    "crawlweb/workers": "live workers of the crawl",
    "crawlweb/partitions": "partitions that this worker asks for URLs, others perhaps with it",
    "crawlweb/memory/used_bytes": "memory that the Redis servers use, all of it (used_memory)",
    "crawlweb/memory/rss_bytes": "memory that they hold of the machine",
    "crawlweb/memory/fragmentation": "the second to the first, of the worst server",
    "crawlweb/memory/known_bytes": "what an empty server uses, and all keys by samples; the rest is buffers, scripts, statistics of Redis",
    "crawlweb/memory/pending_url": "bytes a pending URL, in its queue (front, back, park, wait); by samples, as what follows",
    "crawlweb/memory/seen_url": "bytes a URL of the seen-set",
    "crawlweb/memory/active_host": "bytes a host with a hash of its own, and its place among the ready or the sleeping",
    "crawlweb/memory/packed_host": "bytes a host that is packed with others",
    "crawlweb/memory/page_record": "bytes a page record; not there while there are none",
    "crawlweb/memory/pauses": "times that leasing paused since Redis was full",
    "crawlweb/memory/paused_s": "seconds of it",
}

# States, not counters; or what several workers may count.
NOT_SUMMED = {name for name in STATS if name.startswith("crawlweb/memory/")} - {"crawlweb/memory/pauses", "crawlweb/memory/paused_s"}
NOT_SUMMED |= {f"crawlweb/{name}" for name in ("hosts", "links/cache_rate", "workers", "partitions")}
NOT_SUMMED |= {"crawlweb/redis/calls_per_s", "crawlweb/redis/calls_per_s_most"}


def summed(values: Mapping[str, Any]) -> dict[str, int]:
    """Of a worker's stats, those that count for the whole crawl."""
    return {name: n for name, n in values.items() if name.startswith("crawlweb/") and name not in NOT_SUMMED and type(n) is int}
