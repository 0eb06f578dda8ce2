"""Exchanges to be stored, and what readers find of them."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

from warcio.archiveiterator import ArchiveIterator

from crawlweb.records import Fetch, WarcRef
from crawlweb.store.files import index_path
from crawlweb.store.warc import WarcWriter

HTML = b"<html><title>Stones</title>" + b"<p>moss on a stone</p>" * 40
REQUEST_HEAD = b"GET /a HTTP/1.1\r\nHost: stones.test\r\nUser-Agent: test\r\n\r\n"
PLAIN_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"


def exchange(
    url: str = "http://stones.test/a",
    payload: bytes = HTML,
    response_head: bytes = PLAIN_HEAD,
    request_head: bytes = REQUEST_HEAD,
    status: int = 200,
    truncated: str | None = None,
) -> Fetch:
    return Fetch(
        url=url,
        ip="127.0.0.1",
        started=10.0,
        finished=10.5,
        latency_s=0.1,
        fetched_at=1_760_000_000.25,
        request_head=request_head,
        status=status,
        response_head=response_head,
        payload=payload,
        body=payload,
        truncated=truncated,
    )


def writer_in(folder: Path, **options: Any) -> WarcWriter:
    return WarcWriter(folder, "w1", software="crawlweb/test", user_agent="test (+http://a.test/)", **options)


def store(folder: Path, *fetches: Fetch, **options: Any) -> list[WarcRef]:
    async def run() -> list[WarcRef]:
        writer = writer_in(folder, **options)
        refs = [await writer.append(fetch) for fetch in fetches]
        await writer.close()
        return refs

    return asyncio.run(run())


class Record:
    def __init__(self, record: Any) -> None:
        self.type: str = record.rec_type
        self.warc = dict(record.rec_headers.headers)
        self.url: str = self.warc.get("WARC-Target-URI", "")
        self.http = record.http_headers
        self.payload: bytes = record.raw_stream.read()
        self.content_type: str = record.content_type
        assert record.digest_checker.passed is not False, record.digest_checker.problems


def records_of(*files: Path) -> list[Record]:
    """Every record to the last byte, digests checked; a reader that stops early or complains fails the test."""
    records = []
    for file in files:
        with file.open("rb") as stream:
            archive = ArchiveIterator(stream, check_digests="raise")
            records += [Record(record) for record in archive]
            assert archive.err_count == 0
    return records


def finished(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.warc.gz"))


def unfinished(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.open"))


def block_of(folder: Path, ref: WarcRef) -> bytes:
    """The HTTP message of a record, read by its place alone."""
    with (folder / ref.file).open("rb") as stream:
        stream.seek(ref.offset)
        record = gzip.decompress(stream.read(ref.length))
    assert record.endswith(b"\r\n\r\n")
    return record.partition(b"\r\n\r\n")[2][:-4]


def warcio_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from warcio.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def abandoned(folder: Path, *fetches: Fetch) -> Path:
    """A file whose writer died."""
    (ref, *_) = store(folder, *fetches)
    index_path(folder / ref.file).unlink()
    return (folder / ref.file).rename(folder / (ref.file + ".open"))
