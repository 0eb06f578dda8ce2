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
    "crawlweb/links/invalid": "links that are no http or https URL, or too long",
    "crawlweb/links/repeated": "links whose key the page had before",
    "crawlweb/redirects": "redirects put into the frontier",
    "crawlweb/redirects/known": "redirects to a page that was known: an alias of it now",
    "crawlweb/siblings": "URLs that were not found, whose other spelling is tried",
    "crawlweb/refusals": "pages that look like a refusal: 403, a captcha, nothing (policy/refusals.py)",
    "crawlweb/ip/refused": "leases given back because their address had no turn free",
    "crawlweb/redirects/<why>": "redirects not followed: too_many, loop, invalid, out_of_scope",
    "crawlweb/seeds": "seeds read",
    "crawlweb/seeds/new": "seeds that the exact set did not know",
    "crawlweb/leases": "leases received",
    "crawlweb/leases/returned": "leases given back unfetched",
    "crawlweb/leases/late": "leases that had run out when their page was finished",
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
    "crawlweb/dns/hits": "names whose address was known",
    "crawlweb/dns/misses": "names that were looked up, or that waited for another's look-up",
    "crawlweb/dns/failures/<kind>": "names without an address that can be used, by kind of failure, known ones included",
    "crawlweb/dns/stale": "look-ups that failed on the servers, answered with an address whose time was over",
    "crawlweb/redis/calls": "calls to Redis",
}
