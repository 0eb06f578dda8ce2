"""The names of all keys in Redis: one table; docs/redis-keys.md is generated from it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

SCHEMA = 2


@dataclass(frozen=True, slots=True)
class Key:
    """One row: `name` after the prefix; `scope` tells the prefix: a partition's `{crawl:p}:`, a shard of addresses' `{crawl:ip:s}:`, of
    fingerprints `{crawl:near:s}:`, the crawl's `{crawl}:`, or, beside a key of start URLs, `{key}:crawl:` (starts.py)."""

    name: str
    scope: str
    kind: str
    meaning: str


KEYS = (
    Key(
        "ctr",
        "partition",
        "hash",
        "last time, sequence number; tails: queues with a part on disk; long: entries of a long queue; hb, hs: buckets of hosts; "
        "rb: buckets of page records; duh, dud, dus: first hour, day, span whose pages have not been queued; "
        "run: run id of the server; calm: nobody leases before, ms; counters: "
        "enq, done, dead, merged, requests, expired, late, quarantined, foreign, siblings, blocked, unreadable, packed, recs",
    ),
    Key("front:<k>", "partition", "list", "front queue of priority k: host tokens `host \\t serial \\t entry or nothing`"),
    Key("host:<host>", "partition", "hash", "state, clock and quantum of a host that has an active place (fields: lua/host.lua)"),
    Key(
        "hosts:<bucket>",
        "partition",
        "hash",
        "records of hosts that wait or are idle (lua/pack.lua), forgotten 30 d after the last URL",
    ),
    Key("back:<host>", "partition", "zset", "back queue: the host's next URLs, at most 64, by priority and sequence number"),
    Key("park:<host>", "partition", "list", "the rest of the host's URLs, oldest first"),
    Key(
        "park:<host>:chunks",
        "partition",
        "list",
        "names of the list's chunks on disk, next to be read first; so `front:<k>:chunks`, `later:…`",
    ),
    Key(
        "park:<host>:tail",
        "partition",
        "list",
        "what was appended since a part of the list is on disk; so `front:<k>:tail`, `later:…`",
    ),
    Key("tails", "partition", "hash", "queues with a tail → serial of its left end"),
    Key("cold", "partition", "hash", "chunks in use → `queue \\t entries taken \\t entries \\t URLs left`"),
    Key("gone", "partition", "zset", "chunks used up, ms: their files are deleted an hour later"),
    Key("chores", "partition", "zset", "queues that need a worker to move entries to disk or back, by the ms from which one may"),
    Key("ready", "partition", "zset", "active hosts by next-allowed time, ms"),
    Key(
        "asleep",
        "partition",
        "zset",
        "hosts whose time is more than 60 s away, that rest (over 1 s), or all of whose URLs are of blocked origins, ms",
    ),
    Key("wait", "partition", "zset", "URLs with a time of their own, ms: `host \\t score \\t entry`"),
    Key("wait:<host> <origin>", "partition", "list", "URLs of a blocked origin, first to be tried first: `score \\t entry`"),
    Key("leases", "partition", "zset", "leases in flight by expiry, ms"),
    Key("leased", "partition", "hash", "what a lease holds: `host \\t score \\t entry`"),
    Key("exact", "partition", "set", "URL keys of seeds, 16 bytes each, as older releases kept them"),
    Key("seen", "partition", "hash", "the exact set: buckets, keys"),
    Key("seen:<bucket>", "partition", "set", "63 bits of URL keys: of seeds, or with `CRAWLWEB_SEEN=exact` of all"),
    Key("bloom", "partition", "hash", "layers of the seen-set: blocks, capacity, keys"),
    Key("bloom:<layer>:<segment>", "partition", "string", "a segment of the seen-set, at most 4 MiB - 64 B"),
    Key("alias:<3 hex digits>", "partition", "hash", "URL keys of redirects → URL key of the page that was known already, 16 bytes each"),
    Key("rec:<bucket>", "partition", "hash", "page records (pages.py) by the first 8 bytes of the URL key; `rec:long`: those over 1,000 B"),
    Key("due:<hour>", "partition", "list", "keys of pages that are due in an hour since 1970, of this day and the next (lua/records.lua)"),
    Key("soon:<span>", "partition", "list", "the same of the hour that has come, by span of 5 min"),
    Key(
        "later:<day>",
        "partition",
        "list",
        "the same of a day to come; long, its middle is on disk as that of `park:<host>`, with the records",
    ),
    Key("robots:<origin>", "partition", "string", "robots.txt as fetched, with its decision (policy/robots.py); expires after 30 d"),
    Key("sitemaps:<host>", "partition", "set", "URLs of `Sitemap` lines in the robots.txt files of the host's origins"),
    Key("hop:<origin>", "partition", "string", "where robots.txt of the origin redirects to; expires after 5 min"),
    Key("stale:<origin>", "partition", "string", "robots.txt could not be renewed: the copy holds until this expires"),
    Key("overrides", "partition", "hash", "what operators want of hosts: `delay-ms concurrency pause-until-ms below-minimum`"),
    Key("call:<worker>", "partition", "hash", "a worker's last call of each step and its answer; expires after 1 h"),
    Key("dead", "partition", "list", "dead letters: `ms \\t host \\t reason[: last error] \\t entry`"),
    Key("quarantine", "partition", "list", "what was found and is not ours: `where \\t what`"),
    Key("foreign:<n>:<key>", "partition", "any", "a key of another type that stood in the way of ours"),
    Key("ip:<address>", "addresses", "hash", "clock of an address: who holds it, until when, next-allowed ms (lua/ip.lua)"),
    Key("turns:<address>", "addresses", "zset", "hosts that wait for an address, by the ms of their turn"),
    Key("quarantine", "addresses", "list", "keys of another type that were moved aside: `key \\t name \\t type`, newest first"),
    Key("foreign:<ms>:<key>", "addresses", "any", "such a key"),
    Key("near", "fingerprints", "hash", "n<table>: segments of a table; u<table>: entries ever put in"),
    Key("minhash:<band>:<segment>", "fingerprints", "string", "pages by a MinHash band, 128 KiB: sets of 4 doc ids (lua/near.lua)"),
    Key("simhash:<table>:<segment>", "fingerprints", "string", "pages by a part of the SimHash: sets of SimHash and doc id, 8 + 10 bytes"),
    Key("exact:<hash>:<segment>", "fingerprints", "string", "pages by hash of body or text: sets of 4 bytes of the hash and doc id"),
    Key("names:<segment>", "fingerprints", "string", "doc id → URL, SimHash, time of the first fetch, what it declares (frontier/near.py)"),
    Key("quarantine", "fingerprints", "list", "keys of another type that were moved aside: `key \\t name \\t type`, newest first"),
    Key("foreign:<ms>:<key>", "fingerprints", "any", "such a key"),
    Key("left", "crawl", "string", "run ids of the servers when the last worker left with nothing under way"),
    Key("meta", "crawl", "hash", "what is equal for all workers of a crawl"),
    Key("scope", "crawl", "set", "hosts or domains of the seeds, where the scope is not `any`"),
    Key("sweep", "crawl", "string", "the worker that looked for unused chunks; expires when another may"),
    Key("seeding", "crawl", "zset", "workers that are reading seeds, by the time their word expires, ms"),
    Key("workers", "crawl", "zset", "live workers, by the ms at which they count as dead"),
    Key("busy", "crawl", "zset", "those of them that have something to do; the same"),
    Key(
        "members",
        "crawl",
        "hash",
        "worker → JSON of what it says of itself; `:changed`: when one joined or left; `:per_min`: leases a minute of all; `:over`: the "
        "crawl is drained, of so many URLs",
    ),
    Key("inbox", "crawl", "list", "seeds that were given before the crawl's first worker"),
    Key("inbox:<name>", "crawl", "any", "beside it: as beside a key of start URLs"),
    Key("stats", "crawl", "hash", "stats of all workers, summed"),
    Key("stats:<worker>", "crawl", "string", "number of a worker's last call that added to them; expires after 1 h"),
    Key("pages", "crawl", "set", "8-byte keys of the pages that count, where `max_pages` limits the crawl (lua/pages.lua)"),
    Key("permits", "crawl", "zset", "URL keys that may be fetched under `max_pages`, by expiry, ms"),
    Key("open", "crawl", "zset", "those of `pages` that are not complete yet, by the ms from which on nobody waits for them"),
    Key("events", "crawl", "stream", "what became of pages: `page.fetched`, newest last, bounded (docs/extending.md)"),
    Key("quarantine", "crawl", "list", "keys of another type that were moved aside: `key \\t name \\t type`, newest first"),
    Key("foreign:<ms>:<key>", "crawl", "any", "such a key"),
    Key("taken", "starts", "zset", "batches of start URLs in workers' hands, by the ms from which another worker takes them over"),
    Key("batch:<worker>:<n>", "starts", "list", "start URLs of a batch: out of the key, and not known to be in the frontier"),
    Key("quarantine", "starts", "list", "entries of the key that are no start URLs: `reason \\t entry`"),
    Key("foreign:<ms>", "starts", "any", "a key of another type that stood in the way of ours"),
)


@lru_cache(16_384)
def partition_of(host: str, partitions: int) -> int:
    """The partition that a host's keys stand in; the same on every machine and release."""
    return int.from_bytes(hashlib.blake2b(host.encode(), digest_size=4).digest(), "big") % partitions


def partition_prefix(crawl: str, partition: int) -> str:
    return f"{{{crawl}:{partition}}}:"


def crawl_key(crawl: str, name: str) -> str:
    return f"{{{crawl}}}:{name}"


def is_key_of(crawl: str, key: str) -> bool:
    """Of this crawl, and not of one whose name begins alike, nor of the drop-in filter `{<spider>:dupefilter}:`; what it has beside keys of
    start URLs is of it, those keys are not."""
    name = re.escape(crawl)
    beside = rf".*\{{.+\}}.*:{name}:(taken|quarantine|batch:[^:]+:\d+|foreign:\d+)$"
    return re.match(rf"\{{{name}(:((ip|near):)?\d+)?\}}:|{beside}", key, re.S) is not None


def ip_shards(partitions: int) -> int:
    """Shards of the addresses: few, so that many addresses go into one call; more with more partitions, so that a cluster shares them."""
    return max(1, partitions // 16)


def ip_shard_of(address: str, partitions: int) -> int:
    return partition_of(address, ip_shards(partitions))


def ip_shard_key(crawl: str, shard: int) -> str:
    return f"{{{crawl}:ip:{shard}}}:ip"


def near_shards(partitions: int) -> int:
    """Shards of the index of fingerprints: one for a server, so that a page's look-up is one step; at most one a band of a MinHash."""
    return min(16, max(1, partitions // 64))


def near_shard_key(crawl: str, shard: int) -> str:
    return f"{{{crawl}:near:{shard}}}:near"
