"""The WARC store: what readers find in it, and what a crash, a full disk and other processes leave of it."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import gzip
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from exchanges import (
    HTML,
    PLAIN_HEAD,
    abandoned,
    block_of,
    exchange,
    finished,
    records_of,
    store,
    unfinished,
    warcio_cli,
    writer_in,
)
from warcio.archiveiterator import ArchiveIterator

from crawlweb.errors import StoreError
from crawlweb.records import About, Fetch, WarcRef
from crawlweb.store import files, warc
from crawlweb.store import repair as repairs
from crawlweb.store.files import index_path
from crawlweb.store.repair import Repaired, repair
from crawlweb.store.warc import WarcWriter
from crawlweb.store.warc_records import Exchange, stored_response_head

# What a reader finds


def test_warcio_finds_warcinfo_response_and_request_with_digests(tmp_path: Path) -> None:
    (ref,) = store(tmp_path, exchange())
    info, response, request = records_of(tmp_path / ref.file)

    assert [info.type, response.type, request.type] == ["warcinfo", "response", "request"]
    assert info.warc["WARC-Filename"] == ref.file
    assert b"software: crawlweb/test\r\n" in info.payload
    assert b"robots: obey\r\n" in info.payload
    assert b"http-header-user-agent: test (+http://a.test/)\r\n" in info.payload

    assert response.payload == HTML
    assert response.warc["WARC-Target-URI"] == "http://stones.test/a"
    assert response.warc["WARC-Date"] == "2025-10-09T08:53:20.250000Z"
    assert response.warc["WARC-IP-Address"] == "127.0.0.1"
    assert response.warc["WARC-Record-ID"].startswith("<urn:uuid:")
    assert response.warc["WARC-Warcinfo-ID"] == info.warc["WARC-Record-ID"]
    assert response.warc["WARC-Payload-Digest"] == "sha1:" + base64.b32encode(hashlib.sha1(HTML).digest()).decode()
    assert response.warc["WARC-Block-Digest"].startswith("sha1:")
    assert "WARC-Truncated" not in response.warc
    assert response.content_type == "application/http; msgtype=response"

    assert request.warc["WARC-Concurrent-To"] == response.warc["WARC-Record-ID"]
    assert request.warc["WARC-Date"] == response.warc["WARC-Date"]
    assert request.http.get_header("Host") == "stones.test"
    with gzip.open(tmp_path / ref.file) as stream:
        assert stream.read(10) == b"WARC/1.1\r\n"


def test_warcio_check_and_index_accept_the_file_and_agree_on_the_place(tmp_path: Path) -> None:
    refs = store(tmp_path, *(exchange(f"http://stones.test/{n}", HTML * n) for n in range(4)))
    file = tmp_path / refs[0].file

    check = warcio_cli("check", "-v", str(file))
    assert (check.returncode, check.stdout.count("digest pass")) == (0, 9), check.stdout + check.stderr
    index = warcio_cli("index", "-f", "warc-type,offset,length", str(file))
    assert [line for line in index.stdout.splitlines() if '"response"' in line] == [
        f'{{"warc-type": "response", "offset": "{ref.offset}", "length": "{ref.length}"}}' for ref in refs
    ]


def test_one_record_can_be_read_by_offset_and_length(tmp_path: Path) -> None:
    heads = [b"HTTP/1.1 200 OK\r\nX-Number: %d\r\n\r\n" % n for n in range(5)]
    refs = store(tmp_path, *(exchange(response_head=head, payload=b"%d" % n) for n, head in enumerate(heads)))
    assert [block_of(tmp_path, ref) for ref in refs] == [head + b"%d" % n for n, head in enumerate(heads)]


def test_a_chunked_gzip_body_is_stored_dechunked_and_still_encoded(tmp_path: Path) -> None:
    encoded = gzip.compress(HTML)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\nVary: *\r\n\r\n"
    (ref,) = store(tmp_path, exchange(payload=encoded, response_head=head))

    assert block_of(tmp_path, ref) == (
        b"HTTP/1.1 200 OK\r\nX-Crawler-Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\nVary: *\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(encoded), encoded)
    )
    with (tmp_path / ref.file).open("rb") as stream:
        bodies = [record.content_stream().read() for record in ArchiveIterator(stream) if record.rec_type == "response"]
    assert bodies == [HTML]


def test_a_truncated_body_says_so_and_has_the_length_that_is_stored(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"
    (ref,) = store(tmp_path, exchange(payload=b"abc", response_head=head, truncated="length"))
    _, response, _ = records_of(tmp_path / ref.file)
    assert response.warc["WARC-Truncated"] == "length"
    assert response.http.get_header("Content-Length") == "3"
    assert response.http.get_header("X-Crawler-Content-Length") == "99999"


@pytest.mark.parametrize("status", [204, 301, 304, 404, 503])
def test_answers_without_a_body_are_stored(tmp_path: Path, status: int) -> None:
    head = b"HTTP/1.1 %d Some\r\nLocation: /b\r\n\r\n" % status
    (ref,) = store(tmp_path, exchange(payload=b"", response_head=head, status=status))
    _, response, _ = records_of(tmp_path / ref.file)
    assert (response.http.get_statuscode(), response.payload) == (str(status), b"")


# Heads


@pytest.mark.parametrize(
    ("received", "stored"),
    [
        ("Content-Length: 3", "Content-Length: 3"),
        ("content-length:3", "content-length:3"),
        ("Content-Length: 4", "X-Crawler-Content-Length: 4|Content-Length: 3"),
        ("Content-Length : 4", "X-Crawler-Content-Length : 4|Content-Length: 3"),
        ("Content-Length: 3|Content-Length: 3", "Content-Length: 3|X-Crawler-Content-Length: 3"),
        ("Content-Length: 9|Content-Length: 3", "X-Crawler-Content-Length: 9|Content-Length: 3"),
        ("Content-Length: 3, 3", "X-Crawler-Content-Length: 3, 3|Content-Length: 3"),
        ("Content-Length: 3| 4|A: b", "X-Crawler-Content-Length: 3| 4|A: b|Content-Length: 3"),
        ("Content-Length: -1", "X-Crawler-Content-Length: -1|Content-Length: 3"),
        ("Content-Length: " + "9" * 5000, "X-Crawler-Content-Length: " + "9" * 5000 + "|Content-Length: 3"),
        ("TRANSFER-encoding:|\tchunked", "X-Crawler-TRANSFER-encoding:|\tchunked|Content-Length: 3"),
        ("Transfer-Encoding: chunked|Content-Length: 3", "X-Crawler-Transfer-Encoding: chunked|Content-Length: 3"),
        ("X-Content-Length: 4", "X-Content-Length: 4"),
        ("A: Transfer-Encoding: chunked", "A: Transfer-Encoding: chunked"),
        ("A: b| Content-Length: 4", "A: b| Content-Length: 4"),
        ("Content-Encoding: gzip", "Content-Encoding: gzip"),
    ],
)
def test_the_stored_head_agrees_with_the_stored_payload(received: str, stored: str) -> None:
    lines = ["HTTP/1.1 200 OK\r\n" + block.replace("|", "\r\n") + "\r\n\r\n" for block in (received, stored)]
    fetch = exchange(payload=b"abc", response_head=lines[0].encode())
    assert stored_response_head(fetch) == lines[1].encode()


@pytest.mark.parametrize(
    "fetch",
    [
        exchange(payload=b"", status=304, response_head=b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"),
        exchange(payload=b"", request_head=b"HEAD / HTTP/1.1\r\n\r\n", response_head=PLAIN_HEAD),
        exchange(response_head=b"HTTP/1.0 200 OK\nServer: \xd0\xbc\xd0\xbe\xd1\x85\nX: \xff\xfe\x00\nno colon\n\n"),
        exchange(response_head=b"HTTP/1.1 200 OK\r\nX:\r\n  \xd0\xbc\xd0\xbe\xd1\x85\r\n\r\n"),
    ],
)
def test_what_readers_can_take_is_kept_byte_for_byte(fetch: Fetch) -> None:
    assert stored_response_head(fetch).rstrip(b"\r\n") == fetch.response_head.rstrip(b"\r\n")


@pytest.mark.parametrize(
    ("received", "stored"),
    [
        (b"", b"HTTP/1.1 200 \r\nX-Crawler-Status-Line: \r\n\r\n"),
        (b"\r\n", b"HTTP/1.1 200 \r\nX-Crawler-Status-Line: \r\n\r\n"),
        (b"ICY 200 OK\r\nA: b\r\n\r\n", b"HTTP/1.1 200 \r\nX-Crawler-Status-Line: ICY 200 OK\r\nA: b\r\n\r\n"),
        (b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 200 \r\nX-Crawler-Status-Line: HTTP/2 200\r\n\r\n"),
        (b"\xff\xfe\x00", b"HTTP/1.1 200 \r\nX-Crawler-Status-Line: \xff\xfe\x00\r\n\r\n"),
        (b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nA: b", b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n \t \r\nA: b\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n\xa0\x85\r\nA: b\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\n\u3000\r\nA: b\r\n\r\n".encode(), b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"),
    ],
)
def test_a_head_that_would_stop_a_reader_is_made_readable(received: bytes, stored: bytes) -> None:
    assert stored_response_head(exchange(response_head=received)) == stored


def test_a_file_of_garbage_heads_reads_to_its_end(tmp_path: Path) -> None:
    rng = random.Random(7)
    shreds = [
        *(b"HTTP/1.1 200 OK", b"HTTP/1.0", b"Content-Length: ", b"Transfer-Encoding: chunked", b"Content-Length:7"),
        *(b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"\x00", b"\xff", b"\xa0", b"\x1c", b"\x85", "\u2028é".encode()),
        *(b"WARC/1.1", b"A: b", b"HTTP/1.1 999999999999", b"\x0b\x0c", b"\r\n\r\n"),
    ]
    fetches = [
        exchange(
            f"http://stones.test/{n}",
            payload=rng.randbytes(rng.choice([0, 1, 7, 500])),
            response_head=rng.choice([b"", b"HTTP/1.1 200 OK\r\n"]) + b"".join(rng.choices(shreds, k=rng.randint(0, 12))),
        )
        for n in range(400)
    ]
    refs = store(tmp_path, *fetches)
    responses = [record for record in records_of(tmp_path / refs[0].file) if record.type == "response"]
    assert [(record.url, record.payload) for record in responses] == [(fetch.url, fetch.payload) for fetch in fetches]


def test_urls_and_methods_that_readers_cannot_take_do_not_break_the_file(tmp_path: Path) -> None:
    store(
        tmp_path,
        exchange("http://stones.test/é\r\nWARC-Type: warcinfo \ud800"),
        exchange(request_head=b"PROPFIND / HTTP/1.1\r\n\r\n"),
        exchange(),
    )
    _, *records = records_of(*finished(tmp_path))
    assert records[0].url == "http://stones.test/%C3%A9%0D%0AWARC-Type:%20warcinfo%20%ED%A0%80"
    assert [record.type for record in records] == ["response", "request", "response", "metadata", "response", "request"]
    assert records[3].payload == b"PROPFIND / HTTP/1.1\r\n\r\n"
    assert records[3].content_type == "application/http; msgtype=request"


# Files


def test_nothing_is_touched_before_the_first_append(tmp_path: Path) -> None:
    async def run() -> None:
        await writer_in(tmp_path / "warc").close()

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_finished_when_it_reaches_its_size(tmp_path: Path) -> None:
    rng = random.Random(1)
    fetches = [exchange(f"http://stones.test/{n}", rng.randbytes(3_000)) for n in range(12)]
    refs = store(tmp_path, *fetches, max_bytes=10_000)

    files = finished(tmp_path)
    assert len(files) == 4
    assert sorted({ref.file for ref in refs}) == [file.name for file in files]
    assert all(10_000 <= file.stat().st_size < 15_000 for file in files[:-1])
    assert unfinished(tmp_path) == []
    records = records_of(*files)
    assert [record.type for record in records].count("warcinfo") == 4
    assert [record.url for record in records if record.type == "response"] == [fetch.url for fetch in fetches]
    assert [block_of(tmp_path, ref) for ref in refs] == [PLAIN_HEAD + fetch.payload for fetch in fetches]


def test_appends_that_wait_keep_their_order_and_their_own_places(tmp_path: Path) -> None:
    fetches = [exchange(f"http://stones.test/{n}", b"%d" % n * n) for n in range(200)]

    async def run() -> list[WarcRef]:
        writer = writer_in(tmp_path)
        refs = asyncio.gather(*(writer.append(fetch) for fetch in fetches))
        await asyncio.sleep(0)
        await writer.close()
        return await refs

    refs = asyncio.run(run())
    assert [block_of(tmp_path, ref) for ref in refs] == [PLAIN_HEAD + fetch.payload for fetch in fetches]
    urls = [record.url for record in records_of(*finished(tmp_path)) if record.type == "response"]
    assert urls == [fetch.url for fetch in fetches]


def test_compression_and_writing_never_run_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    real_write, real_exchange = os.pwrite, WarcWriter._exchange

    def pwrite(*args: Any) -> int:
        threads.add(threading.current_thread())
        return real_write(*args)

    def exchange_members(writer: WarcWriter, fetch: Fetch, about: About | None) -> Exchange:
        threads.add(threading.current_thread())
        return real_exchange(writer, fetch, about)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(WarcWriter, "_exchange", exchange_members)
    store(tmp_path, exchange(), exchange())
    assert len(threads) == 1
    assert threading.main_thread() not in threads


def test_append_has_the_record_in_the_open_file_when_it_returns(tmp_path: Path) -> None:
    async def run() -> None:
        writer = writer_in(tmp_path)
        for n in range(3):
            ref = await writer.append(exchange(payload=b"%d" % n))
            (file,) = unfinished(tmp_path)
            assert file.name == ref.file + ".open"
            assert file.stat().st_size > ref.offset + ref.length
            assert records_of(file)[-2].payload == b"%d" % n
        await writer.close()

    asyncio.run(run())
    assert len(finished(tmp_path)) == 1


def test_an_append_that_is_cancelled_or_too_late_hurts_no_other(tmp_path: Path) -> None:
    async def run() -> None:
        writer = writer_in(tmp_path)
        given_up = asyncio.ensure_future(writer.append(exchange("http://stones.test/1")))
        kept = asyncio.ensure_future(writer.append(exchange("http://stones.test/2")))
        await asyncio.sleep(0)
        given_up.cancel()
        await kept
        await writer.close()
        await writer.close()
        with pytest.raises(StoreError, match="closed"):
            await writer.append(exchange())

    asyncio.run(run())
    assert records_of(*finished(tmp_path))[-1].url == "http://stones.test/2"


@pytest.mark.parametrize("start", ["append", "repair"])
def test_a_folder_that_cannot_be_written_is_named_in_one_line(tmp_path: Path, start: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    folder = tmp_path / "file" / "warc"
    with pytest.raises(StoreError) as caught:
        store(folder, exchange()) if start == "append" else repair(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


# Failing disks


@contextmanager
def largest_file(limit_bytes: int) -> Iterator[None]:
    """The kernel writes up to the limit, then refuses, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_fails_the_append_and_leaves_the_file_whole(tmp_path: Path) -> None:
    async def run() -> None:
        writer = writer_in(tmp_path)
        await writer.append(exchange("http://stones.test/1"))
        (file,) = unfinished(tmp_path)
        size_bytes = file.stat().st_size
        with largest_file(size_bytes + 1_000), pytest.raises(StoreError, match=file.stem):
            await writer.append(exchange("http://stones.test/2", random.Random(2).randbytes(50_000)))
        assert file.stat().st_size == size_bytes
        await writer.append(exchange("http://stones.test/3"))
        await writer.close()

    asyncio.run(run())
    urls = [record.url for record in records_of(*finished(tmp_path)) if record.type == "response"]
    assert urls == ["http://stones.test/1", "http://stones.test/3"]


def test_a_file_that_cannot_be_cut_back_is_left_to_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    async def run() -> None:
        writer = writer_in(tmp_path)
        await writer.append(exchange("http://stones.test/1"))
        (file,) = unfinished(tmp_path)
        with monkeypatch.context() as patch, largest_file(file.stat().st_size + 1_000):
            patch.setattr(os, "ftruncate", refuse)
            with pytest.raises(StoreError):
                await writer.append(exchange("http://stones.test/2", random.Random(2).randbytes(50_000)))
        await writer.append(exchange("http://stones.test/3"))
        await writer.close()

    asyncio.run(run())
    (repaired,) = repair(tmp_path)
    assert repaired.cut_bytes == 1_000
    urls = [record.url for record in records_of(*finished(tmp_path)) if record.type == "response"]
    assert urls == ["http://stones.test/1", "http://stones.test/3"]


def test_a_disk_too_full_for_a_new_file_leaves_none(tmp_path: Path) -> None:
    async def run() -> None:
        writer = writer_in(tmp_path)
        with largest_file(100), pytest.raises(StoreError, match=str(tmp_path)):
            await writer.append(exchange())
        assert (finished(tmp_path), unfinished(tmp_path)) == ([], [])
        await writer.append(exchange())
        await writer.close()

    asyncio.run(run())
    assert len(records_of(*finished(tmp_path))) == 3


def test_an_exchange_that_cannot_be_written_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_exchange = WarcWriter._exchange

    def poisoned(writer: WarcWriter, fetch: Fetch, about: About | None) -> Exchange:
        if fetch.url.endswith("/1"):
            raise ValueError("poison")
        return real_exchange(writer, fetch, about)

    monkeypatch.setattr(WarcWriter, "_exchange", poisoned)

    async def run() -> list[WarcRef | BaseException]:
        writer = writer_in(tmp_path)
        appends = (writer.append(exchange(f"http://stones.test/{n}")) for n in range(3))
        results = await asyncio.gather(*appends, return_exceptions=True)
        await writer.close()
        return results

    first, second, third = asyncio.run(run())
    assert isinstance(second, StoreError)
    assert isinstance(first, WarcRef)
    assert isinstance(third, WarcRef)
    assert block_of(tmp_path, third) == PLAIN_HEAD + HTML


# Crashes and other processes

CRASHING_WRITER = """
import asyncio, os, pathlib, random, sys
sys.path.insert(0, sys.argv[3])
from crawlweb.records import About
from exchanges import exchange, writer_in

links = About(outlinks=[("http://a.test/" + "x" * n, "a", "", "text") for n in range(20)])

async def crawl(writer, rng, slot):
    for n in range(10_000):
        payload = rng.randbytes(rng.choice([0, 50, 5_000, 300_000]))
        url = f"http://stones.test/{slot}/{n}"
        ref = await writer.append(exchange(url, payload), links)
        os.write(1, f"{url} {len(payload)} {ref.file} {ref.offset} {ref.length}\\n".encode())

async def main():
    writer = writer_in(pathlib.Path(sys.argv[1]), max_bytes=3_000_000)
    rng = random.Random(int(sys.argv[2]))
    await asyncio.gather(*(crawl(writer, rng, slot) for slot in range(8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("seed", range(5))
def test_kill_9_loses_nothing_that_was_returned(tmp_path: Path, seed: int) -> None:
    command = [sys.executable, "-c", CRASHING_WRITER, str(tmp_path), str(seed), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        returned = [process.stdout.readline() for _ in range(random.Random(seed).randint(1, 150))]
        process.send_signal(signal.SIGKILL)
        returned += process.stdout.readlines()
    assert returned[0]

    (left_open,) = unfinished(tmp_path)
    (repaired,) = repair(tmp_path)
    assert repaired.file == left_open.stem
    assert unfinished(tmp_path) == []
    stored = {record.url: len(record.payload) for record in records_of(*finished(tmp_path)) if record.type == "response"}
    for line in returned:
        url, payload_bytes, file, offset, length = line.decode().split()
        assert stored[url] == int(payload_bytes)
        assert len(block_of(tmp_path, WarcRef(file, int(offset), int(length)))) == len(PLAIN_HEAD) + int(payload_bytes)
        index = index_path(tmp_path / file).read_text()
        assert f'"length": "{length}", "offset": "{offset}"' in index
    assert repair(tmp_path) == []


@pytest.mark.parametrize("seed", range(3))
def test_repair_keeps_every_whole_record_wherever_the_file_is_cut(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    fetches = [exchange(f"http://stones.test/{n}", rng.randbytes(rng.choice([0, 10, 70_000]))) for n in range(20)]
    path = abandoned(tmp_path, *fetches)
    whole = path.read_bytes()
    ends = [match + 4 for match in _member_ends(whole)]
    for cut_at in [ends[1], ends[2] - 1, ends[-1] - 1, *(rng.randrange(ends[1], len(whole)) for _ in range(20))]:
        path.write_bytes(whole[:cut_at])
        kept_bytes = max(end for end in ends if end <= cut_at)
        assert repair(tmp_path) == [Repaired(path.stem, kept_bytes, cut_at - kept_bytes)]
        assert len(records_of(tmp_path / path.stem)) == ends.index(kept_bytes) + 1
        (tmp_path / path.stem).unlink()


def _member_ends(data: bytes) -> list[int]:
    """Where the length fields of the gzip members begin, found by warcio."""
    archive = ArchiveIterator(BytesIO(data))
    return [archive.get_record_offset() + archive.get_record_length() - 4 for _ in archive]


@pytest.mark.parametrize("tail", [b"\x1f", b"\x1f\x8b\x08", bytes(5_000), b"garbage", random.Random(3).randbytes(10)])
def test_repair_cuts_a_tail_that_is_no_record(tmp_path: Path, tail: bytes) -> None:
    path = abandoned(tmp_path, exchange())
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert repair(tmp_path) == [Repaired(path.stem, len(whole), len(tail))]
    assert (tmp_path / path.stem).read_bytes() == whole


def test_repair_cuts_at_a_damaged_checksum(tmp_path: Path) -> None:
    path = abandoned(tmp_path, exchange(), exchange())
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert repair(tmp_path)[0].cut_bytes > 0
    assert len(records_of(tmp_path / path.stem)) == 4


def test_repair_removes_files_without_an_exchange(tmp_path: Path) -> None:
    path = abandoned(tmp_path, exchange())
    info_bytes = _member_ends(path.read_bytes())[0] + 4
    path.write_bytes(path.read_bytes()[: info_bytes + 20])
    (tmp_path / "empty.warc.gz.open").write_bytes(b"")
    assert repair(tmp_path) == [Repaired(path.stem, 0, info_bytes + 20), Repaired("empty.warc.gz", 0, 0)]
    assert list(tmp_path.iterdir()) == []


def test_repair_makes_the_folder_and_leaves_finished_files_alone(tmp_path: Path) -> None:
    assert repair(tmp_path / "a" / "warc") == []
    store(tmp_path / "a" / "warc", exchange())
    assert repair(tmp_path / "a" / "warc") == []


def test_repair_leaves_the_file_of_a_live_writer_alone(tmp_path: Path) -> None:
    async def run() -> None:
        writer = writer_in(tmp_path)
        await writer.append(exchange("http://stones.test/1"))
        assert await asyncio.to_thread(repair, tmp_path) == []
        await writer.append(exchange("http://stones.test/2"))
        await writer.close()

    asyncio.run(run())
    assert len(records_of(*finished(tmp_path))) == 5


def test_repairers_at_work_together_finish_each_file_once(tmp_path: Path) -> None:
    names = []
    for n in range(30):
        path = abandoned(tmp_path, exchange(payload=b"%d" % n))
        path.write_bytes(path.read_bytes() + b"\x1f\x8b")
        names.append(path.stem)
    start = threading.Barrier(4)
    repaired: list[Repaired] = []

    def work() -> None:
        start.wait()
        repaired.extend(repair(tmp_path))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(each.file for each in repaired) == sorted(names)
    assert {each.cut_bytes for each in repaired} == {2}
    assert len(records_of(*finished(tmp_path))) == 90


def test_a_repairer_lets_go_of_a_file_that_another_finished_after_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = abandoned(tmp_path, exchange())
    real_lock, others = files.lock, []

    def other_is_faster(fd: int, file: Path) -> bool:
        monkeypatch.setattr(repairs, "lock", real_lock)
        others.extend(repair(tmp_path))
        return real_lock(fd, file)

    monkeypatch.setattr(repairs, "lock", other_is_faster)
    assert repair(tmp_path) == []
    assert [each.file for each in others] == [path.stem]
    assert len(records_of(tmp_path / path.stem)) == 3


@pytest.mark.parametrize("repairer", ["is done", "still holds the lock"])
def test_a_writer_takes_another_name_when_a_repairer_comes_before_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repairer: str
) -> None:
    real_lock = files.lock
    held = []

    def repairer_is_faster(fd: int, path: Path) -> bool:
        monkeypatch.setattr(files, "lock", real_lock)
        if repairer == "is done":
            assert repair(tmp_path) == [Repaired(path.stem, 0, 0)]
        else:
            held.append(os.open(path, os.O_RDWR))
            fcntl.flock(held[0], fcntl.LOCK_EX)
        return real_lock(fd, path)

    monkeypatch.setattr(files, "lock", repairer_is_faster)
    (ref,) = store(tmp_path, exchange())
    for fd in held:
        os.close(fd)
    assert ref.file.endswith("-w1-00002.warc.gz")
    assert len(records_of(tmp_path / ref.file)) == 3
    repair(tmp_path)
    assert finished(tmp_path) == [tmp_path / ref.file]
    assert unfinished(tmp_path) == []


def test_a_finished_file_is_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Noon(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Noon:
            return cls(2026, 1, 1, 12, tzinfo=tz)

    monkeypatch.setattr(warc, "datetime", Noon)
    names = [store(tmp_path, exchange())[0].file for _ in range(3)]
    assert names == [f"crawlweb-20260101120000000-w1-{n:05d}.warc.gz" for n in (1, 2, 3)]
    assert [file.name for file in finished(tmp_path)] == names
