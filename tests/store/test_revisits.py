"""Revisits and metadata: what a WARC file has of a page that it knows, and of what was found in a page."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from exchanges import PLAIN_HEAD, Record, exchange, finished, records_of, writer_in
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from crawlweb.records import About, Earlier, Fetch, WarcRef
from crawlweb.store import warc_records
from crawlweb.store.revisits import LEAST_BYTES, Payloads
from crawlweb.store.warc_records import IDENTICAL, NEAR_DUPLICATE, NOT_MODIFIED, Original

PAGE = b"<html><title>Moss</title>" + b"<p>moss grows on the north side of a stone</p>" * 60
MODIFIED_HEAD = b'HTTP/1.1 304 Not Modified\r\nETag: "5f3a"\r\n\r\n'


def stored(folder: Path, *exchanges: tuple[Fetch, About | None], **options: Any) -> tuple[list[WarcRef], list[Record]]:
    async def run() -> list[WarcRef]:
        writer = writer_in(folder, **options)
        refs = [await writer.append(fetch, about) for fetch, about in exchanges]
        await writer.close()
        return refs

    refs = asyncio.run(run())
    records = [record for file in dict.fromkeys(ref.file for ref in refs) for record in records_of(folder / file)]
    assert Checker(Namespace(inputs=list(map(str, finished(folder))), verbose=False)).process_all() == 0
    return refs, [record for record in records if record.type != "warcinfo"]


def page(url: str, payload: bytes = PAGE, at: float = 1_760_000_000.25, **options: Any) -> Fetch:
    return replace(exchange(url, payload, **options), fetched_at=at)


def unmodified(url: str, at: float = 1_760_009_000.0) -> Fetch:
    return page(url, b"", at, status=304, response_head=MODIFIED_HEAD)


def types(records: Sequence[Record]) -> list[str]:
    return [record.type for record in records]


def sha1(payload: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(payload).digest()).decode()


# Metadata


def test_outlinks_stand_in_a_metadata_record_concurrent_to_the_response(tmp_path: Path) -> None:
    about = About(
        outlinks=[
            ("http://a.test/1", "a", "", ""),
            ("http://a.test/2", "a", "nofollow ugc", "Moss and\r\n\toutlink: lichen"),
            ("http://a.test/3", "img", "", ""),
            ("http://a.test/4", "meta", "", ""),
            ("http://a.test/é\r\nx", "iframe", "", ""),
            ("http://a.test/6", "header", "next", "\ud800"),
            ("http://a.test/7", "new tag", "", ""),
        ],
        fields=[("title", "Moss\r\nfake: field"), ("lan\r\nguage:", "en"), ("soft-404", "")],
    )
    _, (response, request, metadata) = stored(tmp_path, (page("http://stones.test/a"), about))
    assert (response.type, request.type, metadata.type) == ("response", "request", "metadata")
    assert metadata.content_type == "application/warc-fields"
    assert metadata.warc["WARC-Concurrent-To"] == response.warc["WARC-Record-ID"]
    for name in ("WARC-Target-URI", "WARC-Date", "WARC-IP-Address", "WARC-Warcinfo-ID"):
        assert metadata.warc[name] == response.warc[name]
    assert metadata.payload.decode().split("\r\n") == [
        "fetchTimeMs: 500",
        "title: Moss fake: field",
        "language: en",
        "outlink: http://a.test/1 L a/@href",
        "outlink: http://a.test/2 L a/@href rel=nofollow,ugc text=Moss and outlink: lichen",
        "outlink: http://a.test/3 E img/@src",
        "outlink: http://a.test/4 R meta/@content",
        "outlink: http://a.test/%C3%A9%0D%0Ax E iframe/@src",
        "outlink: http://a.test/6 R link: rel=next text=?",
        "outlink: http://a.test/7 L new tag",
        "",
    ]


def test_whatever_is_said_of_a_page_its_metadata_has_a_line_each(tmp_path: Path) -> None:
    rng = random.Random(3)
    shreds = ["\r", "\n", "\r\n", " ", "\t", ":", "é", "\ud800", "\x00", "\x85", "\u2028", "a", "outlink: ", "x" * 600, "", "WARC/1.1"]

    def text() -> str:
        return "".join(rng.choices(shreds, k=rng.randint(0, 6)))

    abouts = [
        About(
            outlinks=[("http://a.test/" + text(), text(), text(), text()) for _ in range(rng.randint(0, 5))],
            fields=[(text(), "v" + text()) for _ in range(rng.randint(0, 5))],
        )
        for _ in range(100)
    ]
    _, records = stored(tmp_path, *((page(f"http://stones.test/{n}", b""), about) for n, about in enumerate(abouts)))
    for about, record in zip(abouts, [record for record in records if record.type == "metadata"], strict=True):
        lines = record.payload.decode().split("\r\n")
        assert len(lines) == 1 + len(about.fields) + len(about.outlinks) + 1
        assert not any("\n" in line or "\r" in line for line in lines)
        assert sum(line.startswith("outlink: http://a.test/") for line in lines) >= len(about.outlinks)


def test_the_place_returned_is_that_of_the_response_whatever_follows_it(tmp_path: Path) -> None:
    about = About(outlinks=[(f"http://a.test/{n}", "a", "", "text") for n in range(100)])
    refs, records = stored(tmp_path, *((page(f"http://stones.test/{n}"), about) for n in range(4)))
    assert types(records) == ["response", "request", "metadata"] + ["revisit", "request", "metadata"] * 3
    with finished(tmp_path)[0].open("rb") as stream:
        archive = ArchiveIterator(stream)
        places = [(record.rec_type, archive.get_record_offset(), archive.get_record_length()) for record in archive]
    assert [place[1:] for place in places if place[0] in ("response", "revisit")] == [(ref.offset, ref.length) for ref in refs]


# Identical payloads


def test_an_identical_payload_is_stored_once_and_referred_to(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    _, records = stored(
        tmp_path, (page("http://stones.test/a"), None), (page("http://m.stones.test/é", at=1_760_000_100, response_head=head), None)
    )
    response, _, revisit, request = records
    assert revisit.type == "revisit"
    assert revisit.payload == b""
    assert revisit.http.get_header("ETag") == "2"
    assert revisit.http.get_header("Content-Length") == str(len(PAGE))
    assert revisit.content_type == "application/http; msgtype=response"
    assert {name: revisit.warc[name] for name in revisit.warc if "Refers" in name or name in ("WARC-Profile", "WARC-Payload-Digest")} == {
        "WARC-Profile": IDENTICAL,
        "WARC-Refers-To": response.warc["WARC-Record-ID"],
        "WARC-Refers-To-Target-URI": "http://stones.test/a",
        "WARC-Refers-To-Date": response.warc["WARC-Date"],
        "WARC-Payload-Digest": sha1(PAGE),
    }
    assert request.warc["WARC-Concurrent-To"] == revisit.warc["WARC-Record-ID"]


def test_two_chunkings_of_one_body_are_one_payload(tmp_path: Path) -> None:
    """The payload is de-chunked when it comes here; what is left of the chunking is the head's word of it."""
    heads = [PLAIN_HEAD, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
    _, records = stored(tmp_path, *((page(f"http://stones.test/{n}", response_head=head), None) for n, head in enumerate(heads)))
    assert types(records) == ["response", "request", "revisit", "request"]
    assert records[0].warc["WARC-Payload-Digest"] == records[2].warc["WARC-Payload-Digest"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (page("http://a.test/", b"x" * (LEAST_BYTES - 1)), page("http://b.test/", b"x" * (LEAST_BYTES - 1))),
        (page("http://a.test/", truncated="length"), page("http://b.test/")),
        (page("http://a.test/"), page("http://b.test/", truncated="time")),
        (page("http://a.test/"), page("http://b.test/", PAGE + b" ")),
    ],
)
def test_short_truncated_and_other_payloads_are_stored(tmp_path: Path, first: Fetch, second: Fetch) -> None:
    _, records = stored(tmp_path, (first, None), (second, None))
    assert types(records) == ["response", "request"] * 2


def test_a_revisit_never_refers_to_a_revisit_and_may_refer_to_an_earlier_file(tmp_path: Path) -> None:
    filler = [(page(f"http://stones.test/filler/{n}", random.Random(n).randbytes(3_000)), None) for n in range(4)]
    once = (page("http://stones.test/1"), None)
    _, records = stored(
        tmp_path, once, (page("http://stones.test/2"), None), *filler, (page("http://stones.test/3"), None), max_bytes=9_000
    )
    assert len(finished(tmp_path)) == 2
    original, *revisits = [record for record in records if record.warc.get("WARC-Payload-Digest") == sha1(PAGE)]
    assert types(revisits) == ["revisit", "revisit"]
    assert [revisit.warc["WARC-Refers-To"] for revisit in revisits] == [original.warc["WARC-Record-ID"]] * 2


def test_what_could_not_be_written_is_not_referred_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        writer = writer_in(tmp_path)
        await writer.append(page("http://stones.test/0", b""))
        with monkeypatch.context() as patch:
            patch.setattr("crawlweb.store.warc.pwrite", refuse)
            results = await asyncio.gather(*(writer.append(page(f"http://stones.test/{n}")) for n in (1, 2)), return_exceptions=True)
        assert all(isinstance(result, Exception) for result in results)
        await writer.append(page("http://stones.test/3"))
        await writer.close()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    asyncio.run(run())
    assert types(records_of(*finished(tmp_path))) == ["warcinfo", "response", "request", "response", "request"]


def test_payloads_are_remembered_in_bounded_memory_the_last_met_longest() -> None:
    rng = random.Random(1)
    payloads = Payloads(most_bytes=100_000)
    digests = [rng.randbytes(20) for _ in range(2_000)]
    for digest in digests:
        payloads.add(Original("http://a.test/", "2025-06-15T15:06:40.500000Z", warc_records.StatusAndHeadersParser.make_warc_id(), digest))
        assert payloads.get(digests[0]) is not None
    assert len(payloads._originals) == 100_000 // 308
    assert payloads._bytes <= 100_000
    assert payloads.get(digests[1]) is None
    found = payloads.get(digests[-1])
    assert found is not None
    assert (found.url, found.date, found.payload_sha1) == ("http://a.test/", "2025-06-15T15:06:40.500000Z", digests[-1])


# What the caller knows


def first_fetch(folder: Path, payload: bytes = PAGE, times: int = 1) -> Earlier:
    refs, _ = stored(folder, *((page("http://stones.test/a", payload, at=1_750_000_000.5 + n), None) for n in range(times)))
    return Earlier("http://stones.test/a", 1_750_000_000.5 + times - 1, refs[-1])


@pytest.mark.parametrize("times", [1, 2])
def test_a_304_refers_to_the_record_that_has_the_payload(tmp_path: Path, times: int) -> None:
    earlier = first_fetch(tmp_path, times=times)
    original = next(record for record in records_of(*finished(tmp_path)) if record.type == "response")
    _, (revisit, *_) = stored(tmp_path, (unmodified("http://stones.test/a"), About(earlier=earlier)))
    assert (revisit.type, revisit.payload, revisit.http.get_statuscode()) == ("revisit", b"", "304")
    assert revisit.http.get_header("ETag") == '"5f3a"'
    assert revisit.warc["WARC-Profile"] == NOT_MODIFIED
    assert revisit.warc["WARC-Refers-To"] == original.warc["WARC-Record-ID"]
    assert revisit.warc["WARC-Refers-To-Date"] == original.warc["WARC-Date"] == "2025-06-15T15:06:40.500000Z"
    assert revisit.warc["WARC-Payload-Digest"] == sha1(PAGE)


def test_a_304_may_refer_to_the_file_that_is_being_written(tmp_path: Path) -> None:
    async def run() -> None:
        writer = writer_in(tmp_path)
        first = page("http://stones.test/a")
        earlier = Earlier(first.url, first.fetched_at, await writer.append(first))
        await writer.append(unmodified("http://stones.test/a"), About(earlier=earlier))
        await writer.close()

    asyncio.run(run())
    revisit = next(record for record in records_of(*finished(tmp_path)) if record.type == "revisit")
    assert revisit.warc["WARC-Payload-Digest"] == sha1(PAGE)


def test_a_304_without_its_earlier_record_still_says_which_page_it_was(tmp_path: Path) -> None:
    earlier = Earlier("http://stones.test/a", 1_750_000_000.5, WarcRef("gone.warc.gz", 0, 100))
    _, (revisit, *_) = stored(tmp_path, (unmodified("http://stones.test/a"), About(earlier=earlier)))
    assert (revisit.type, revisit.warc["WARC-Profile"]) == ("revisit", NOT_MODIFIED)
    assert revisit.warc["WARC-Refers-To-Target-URI"] == "http://stones.test/a"
    assert revisit.warc["WARC-Refers-To-Date"] == "2025-06-15T15:06:40.500000Z"
    assert "WARC-Payload-Digest" not in revisit.warc
    assert revisit.http.get_statuscode() == "304"


def test_a_304_of_a_page_that_nobody_knows_is_a_response(tmp_path: Path) -> None:
    _, records = stored(tmp_path, (unmodified("http://stones.test/a"), None), (unmodified("http://stones.test/a"), About()))
    assert types(records) == ["response", "request", "response", "request", "metadata"]


def test_a_page_that_is_as_it_was_in_an_earlier_crawl_is_a_revisit(tmp_path: Path) -> None:
    earlier = first_fetch(tmp_path)
    again = page("http://stones.test/a", at=1_760_000_000)
    changed = page("http://stones.test/a", PAGE[::-1], at=1_760_000_000)
    _, records = stored(tmp_path, (changed, About(earlier=earlier)), (again, About(earlier=earlier)))
    assert types(records) == ["response", "request", "metadata", "revisit", "request", "metadata"]
    assert records[3].warc["WARC-Refers-To-Date"] == "2025-06-15T15:06:40.500000Z"
    assert records[3].warc["WARC-Payload-Digest"] == sha1(PAGE)


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset": 1},
        {"offset": 0},
        {"offset": -1},
        {"offset": 10**30},
        {"file": "../../etc/passwd"},
        {"file": ""},
        {"file": "."},
        {"file": "other.warc.gz"},
        {"length": 0, "offset": 10**9},
    ],
)
def test_an_earlier_place_that_is_wrong_is_not_believed(tmp_path: Path, wrong: dict[str, Any]) -> None:
    earlier = first_fetch(tmp_path)
    assert earlier.warc is not None
    (tmp_path / "other.warc.gz").mkdir()
    about = About(earlier=replace(earlier, warc=replace(earlier.warc, **wrong)))

    async def run() -> None:
        writer = writer_in(tmp_path / "new")
        await writer.append(page("http://stones.test/a"), about)
        await writer.close()

    (tmp_path / "new").mkdir()
    for file in finished(tmp_path):
        if file.is_file():
            (tmp_path / "new" / file.name).hardlink_to(file)
    asyncio.run(run())
    assert types(records_of(finished(tmp_path / "new")[-1])) == ["warcinfo", "response", "request", "metadata"]


def test_an_earlier_record_of_another_page_is_not_believed(tmp_path: Path) -> None:
    earlier = first_fetch(tmp_path)
    other = page("http://stones.test/b")
    _, records = stored(tmp_path, (other, About(earlier=replace(earlier, url="http://stones.test/b"))))
    assert types(records) == ["response", "request", "metadata"]


# Near-duplicates


def test_of_a_near_duplicate_there_is_a_reference_and_what_its_head_said(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nETag: 7\r\n\r\n"
    twin = Earlier("http://stones.test/a", 1_750_000_000.5)
    fetch = page("http://stones.test/print/a", PAGE + b"printed", response_head=head)
    _, (revisit, request, metadata) = stored(tmp_path, (fetch, About(near_duplicate_of=twin, fields=[("title", "Moss")])))
    assert (revisit.type, request.type, metadata.type) == ("revisit", "request", "metadata")
    assert revisit.warc["WARC-Profile"] == NEAR_DUPLICATE
    assert revisit.warc["WARC-Refers-To-Target-URI"] == "http://stones.test/a"
    assert revisit.warc["WARC-Refers-To-Date"] == "2025-06-15T15:06:40.500000Z"
    assert "WARC-Payload-Digest" not in revisit.warc
    assert revisit.http.headers == []
    assert metadata.payload.decode().split("\r\n") == [
        "near-duplicate-of: http://stones.test/a",
        f"payload-digest: {sha1(fetch.payload)}",
        f"payload-length: {len(fetch.payload)}",
        "http-header: HTTP/1.1 200 OK",
        "http-header: Content-Encoding: br",
        "http-header: ETag: 7",
        "fetchTimeMs: 500",
        "title: Moss",
        "",
    ]
