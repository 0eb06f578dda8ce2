"""Pages that were fetched: what is kept of them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..default_settings import Config
from ..errors import StoreError
from ..frontier.cold import ColdQueues
from ..frontier.connect import Servers
from ..frontier.frontier import Frontier
from ..frontier.inspect import begun
from ..frontier.meta import Meta
from ..frontier.pages import decode, record_key
from ..policy.canonical import Canonicalizer
from ..policy.hosts import SUFFIX_LIST_ID, host_of
from ..records import PageRecord, WarcRef
from ..spill import record_in_chunks
from ..store.chunks import ChunkStore
from . import main
from .common import Failure, NothingFound, Settings, json_option, on_servers, settings_option
from .shown import moment, print_json, print_table, span


@main.command()
@click.argument("url")
@json_option
@settings_option
def page(url: str, as_json: bool, settings: Settings) -> None:
    """Shows what is kept of a page: when it was fetched and is due, its hashes, where it stands in the WARC files.

    Of pages that are due in days the record may be on disk: then all of it that is of the host's partition is read.
    """

    async def work(servers: Servers, config: Config) -> tuple[str, PageRecord] | None:
        canonicalizer = Canonicalizer(config.tracking_parameters, max_url_chars=config.max_url_chars)
        try:
            key, host = record_key(canonicalizer.url_key(url)), host_of(url)
        except ValueError:
            raise click.BadParameter(f"{url!r} is no http or https URL") from None
        frontier = await begun(servers.redis, config.crawl, f"cli-{secrets.token_hex(4)}", SUFFIX_LIST_ID)
        return await frontier.find_record(key) or await _on_disk(frontier, config, host, key)

    found = on_servers(settings, work)
    if found is None:
        raise NothingFound(f"{url}: no page of this URL was fetched, or its record is on another machine's disk")
    host, record = found
    if as_json:
        print_json([{"host": host, **_plain(record)}])
    else:
        print_table([("host", host), *_described(record)])


async def _on_disk(frontier: Frontier, config: Config, host: str, key: bytes) -> tuple[str, PageRecord] | None:
    store_id = await Meta(frontier).value("spill")
    if not store_id:
        return None
    url = config.spill_url or str(Path(config.data_dir, config.crawl, "cold"))
    try:
        data = await record_in_chunks(ColdQueues(frontier), ChunkStore(url, store_id), frontier.partition_of(host), key)
    except StoreError as e:
        raise Failure(f"CRAWLWEB_SPILL_URL={url}: {e}") from e
    with contextlib.suppress(ValueError):
        return decode(data) if data else None
    return None


def _plain(record: PageRecord) -> dict[str, Any]:
    """For JSON: hashes in hexadecimal."""
    fields = asdict(record)
    fields.update(
        content_hash=record.content_hash.hex(),
        fingerprint=f"{record.fingerprint:016x}" if record.fingerprint else "",
        flags=sorted(record.flags),
        versions=[{**asdict(version), "content_hash": version.content_hash.hex()} for version in record.versions],
    )
    return fields


def _described(record: PageRecord) -> Iterator[Sequence[str]]:
    def at(unix_s: float) -> str:
        return moment(unix_s) if unix_s else "-"

    def place(ref: WarcRef | None) -> str:
        return f"{ref.file}, {ref.length} B at {ref.offset}" if ref else "-"

    fields = _plain(record)
    yield "url", record.url
    yield "status", str(record.status)
    yield "fetched", f"{at(record.fetched_at)}, {record.fetches} times since {at(record.first_seen)}"
    yield "changed", f"{bin(record.changes).count('1')} of the last {min(record.fetches - 1, 32)} times"
    yield "next", f"{at(record.next_at)}; interval {span(record.interval_s)}"
    for name in ("content_hash", "fingerprint", "etag", "last_modified", "canonical"):
        if fields[name]:
            yield name.replace("_", " "), fields[name]
    if record.flags:
        yield "flags", ", ".join(fields["flags"])
    yield "stored", place(record.warc)
    for version in record.versions:
        yield "before", f"{at(version.fetched_at)}, {version.content_hash.hex()}, {place(version.warc)}"
