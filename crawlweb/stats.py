"""The one table of stats: docs/stats.md is generated from it. Names are Scrapy stats of one worker."""

from __future__ import annotations

STATS = {
    "crawlweb/requests": "requests sent, robots.txt, redirects and retries included",
    "crawlweb/pages": "pages stored (status 200 to 299, whole or truncated)",
    "crawlweb/bytes": "bytes of bodies received, as transferred",
    "crawlweb/hosts": "hosts that at least one request was sent to",
    "crawlweb/status/<code>": "responses by status",
    "crawlweb/links/found": "links of pages, after canonicalisation, each key once a page",
    "crawlweb/links/enqueued": "links that were new",
    "crawlweb/links/seen": "links that the seen-set knew",
    "crawlweb/links/cached": "links that this worker had seen a moment ago",
    "crawlweb/links/out_of_scope": "links outside the scope",
    "crawlweb/links/too_deep": "links beyond max_depth",
    "crawlweb/links/invalid": "links that are no http or https URL",
    "crawlweb/redirects": "redirects put into the frontier",
    "crawlweb/redirects/<why>": "redirects not followed: too_many, loop, invalid, out_of_scope",
    "crawlweb/seeds": "seeds read",
    "crawlweb/seeds/new": "seeds that the exact set did not know",
    "crawlweb/leases": "leases received",
    "crawlweb/leases/returned": "leases given back unfetched",
    "crawlweb/leases/late": "leases that had run out when their page was finished",
    "crawlweb/robots/fetched": "robots.txt answers by decision: rules, allow, redirect, unreachable",
    "crawlweb/robots/disallowed": "URLs that robots.txt disallows",
    "crawlweb/errors/<kind>": "failures by kind (policy/retry.py)",
    "crawlweb/dead": "URLs that became dead letters here",
    "crawlweb/truncated/<why>": "bodies cut: length, time, disconnect",
    "crawlweb/wrong_type": "responses whose type is not wanted",
    "crawlweb/quarantined": "entries in Redis that are not ours",
    "crawlweb/redis/calls": "calls to Redis",
    "crawlweb/max_callback_ms": "longest time that a callback of ours held the event loop",
}
