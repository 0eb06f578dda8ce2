"""CPU and size of one exchange (31 KB of HTML) in the WARC, by library and gzip level; speed of `repair`.

    python bench/warc.py [--pages ../shared/data/e_html_pages] [--rounds 5]

Medians of alternating rounds, process CPU time. Every candidate's output is read by warcio with its digests checked.
Candidates that are not installed are left out (the peers: `pip install fastwarc zlib-ng`).
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import random
import statistics
import tarfile
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from backports import zstd
from isal import isal_zlib
from warcio.archiveiterator import ArchiveIterator

from crawlweb.records import About, Fetch
from crawlweb.store.repair import repair
from crawlweb.store.warc import WarcWriter
from crawlweb.store.warc_records import RecordMaker, stored_response_head


def peer(name: str) -> Any:
    with suppress(ImportError):
        return import_module(name)
    return None


fastwarc_io, fastwarc_warc, zlib_ng = peer("fastwarc.stream_io"), peer("fastwarc.warc"), peer("zlib_ng.zlib_ng")

REQUEST_HEAD = (
    b"GET /stones/moss.html HTTP/1.1\r\nHost: stones.test\r\nUser-Agent: crawlweb/0.1 (+https://stones.test/bot)\r\n"
    b"Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.5\r\nAccept-Encoding: gzip, br\r\n\r\n"
)
RESPONSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nDate: Thu, 09 Oct 2025 08:53:20 GMT\r\nServer: nginx\r\nContent-Type: text/html; charset=utf-8"
    b'\r\nTransfer-Encoding: chunked\r\nETag: "5f3a-61c"\r\nCache-Control: max-age=60\r\nVary: Accept-Encoding\r\n%b\r\n'
)
IN_FLIGHT = 16

Store = Callable[[Fetch], bytes]  # an exchange to its gzip members


class Ours(RecordMaker):
    """Our records, compressed by something else."""

    def __init__(self, compress: Callable[[bytes], bytes]) -> None:
        super().__init__(2)
        self.compress = compress

    def compressed(self, record: bytes) -> bytes:
        return self.compress(record)

    def __call__(self, fetch: Fetch) -> bytes:
        exchange = self.exchange(fetch, None, hashlib.sha1(fetch.payload).digest(), "", None)
        return b"".join(member.data for member in exchange.members)


def fastwarc(level: int, fetch: Fetch) -> bytes:
    out = BytesIO()
    stream = fastwarc_io.GzipWriter(out, compression_level=level)
    response_id = ""
    for kind, head, payload in (
        (fastwarc_warc.WarcRecordType.response, stored_response_head(fetch), fetch.payload),
        (fastwarc_warc.WarcRecordType.request, fetch.request_head, b""),
    ):
        record = fastwarc_warc.WarcRecord()
        record.init_headers(kind)
        record.headers["WARC-Target-URI"] = fetch.url
        record.headers["WARC-IP-Address"] = fetch.ip
        if response_id:
            record.headers["WARC-Concurrent-To"] = response_id
        response_id = record.record_id
        record.is_http = True
        record.set_bytes_content(head + payload)
        record.write(stream, checksum_data=True, payload_digest=hashlib.sha1(payload).digest())
        stream.finish()
    return out.getvalue()


def zlib_gzip(module: Any, level: int, data: bytes) -> bytes:
    member = module.compressobj(level, zlib.DEFLATED, 31)
    return bytes(member.compress(data) + member.flush())


def candidates() -> dict[str, Store]:
    found: dict[str, Store] = {"ours, no compression": Ours(bytes)}
    found |= {f"ours + zlib {level}": Ours(partial(zlib_gzip, zlib, level)) for level in (1, 2, 3, 4, 5, 6, 7, 8, 9)}
    if zlib_ng:
        found |= {f"ours + zlib-ng {level}": Ours(partial(zlib_gzip, zlib_ng, level)) for level in (1, 2, 3, 6)}
    found |= {f"ours + ISA-L {level}": Ours(partial(isal_zlib.compress, level=level, wbits=31)) for level in (0, 1, 2, 3)}
    if fastwarc_io:
        found |= {f"FastWARC {level}": partial(fastwarc, level) for level in (1, 3, 6, 9)}
    return found


def whole(store: Store, fetches: list[Fetch]) -> None:
    """Raises unless warcio reads back every payload and both digests hold."""
    archive = ArchiveIterator(BytesIO(b"".join(map(store, fetches))), check_digests="raise")
    stored = [record.raw_stream.read() for record in archive if record.rec_type == "response"]
    if stored != [fetch.payload for fetch in fetches]:
        raise SystemExit(f"{store}: payloads differ")


def made_pages(count: int, page_bytes: int = 31_000) -> list[bytes]:
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlucmfwyp", k=rng.randint(2, 9))) for _ in range(4_000)]
    pages = []
    for _ in range(count):
        page = "<!doctype html><title>Stones</title>"
        while len(page) < page_bytes:
            text = " ".join(rng.choices(words, k=30))
            page += f'<p class="para"><a href="/{rng.choice(words)}/{rng.choice(words)}.html">{text[:20]}</a> {text}</p>\n'
        pages.append(page.encode())
    return pages


def real_pages(folder: Path, count: int) -> list[bytes]:
    """Pages of 15 to 60 KB out of the archives of the folder."""
    pages = []
    for archive in sorted(folder.glob("*.tar.zst")):
        with zstd.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as files:
            for member in files:
                if 15_000 <= member.size <= 60_000 and (file := files.extractfile(member)):
                    pages.append(file.read())
    return random.Random(1).sample(pages, count)


def exchanges(payloads: list[bytes], encoding: bytes = b"") -> list[Fetch]:
    return [
        Fetch(
            url=f"http://stones.test/stones/{number}.html",
            ip="127.0.0.1",
            started=0.0,
            finished=0.1,
            latency_s=0.1,
            fetched_at=1_760_000_000.25,
            request_head=REQUEST_HEAD,
            status=200,
            response_head=RESPONSE_HEAD % encoding,
            payload=payload,
            body=payload,
        )
        for number, payload in enumerate(payloads)
    ]


def outlinks(count: int = 100) -> About:
    """Of a page: addresses of 20 to 60 characters, anchor texts of three words; 30 are nofollow."""
    rng = random.Random(2)
    words = ["".join(rng.choices("etaoinshrdlucmfwyp", k=rng.randint(2, 9))) for _ in range(400)]
    links = [
        (
            f"http://stones.test/{'/'.join(rng.choices(words, k=rng.randint(1, 5)))}.html",
            "a",
            "nofollow" * (n % 10 < 3),
            " ".join(rng.choices(words, k=3)),
        )
        for n in range(count)
    ]
    return About(outlinks=links, fields=[("title", "Stones and moss"), ("language", "en")])


async def appended(folder: Path, fetches: list[Fetch], about: About | None = None, known: bool = False) -> float:
    """CPU seconds of the whole writer, loop and thread, with IN_FLIGHT appends waiting at a time. `known`: their payloads are stored."""
    writer = WarcWriter(folder, "bench", software="bench")
    todo = iter(fetches)

    async def crawl() -> None:
        for fetch in todo:
            await writer.append(fetch, about)

    await asyncio.gather(*(writer.append(fetch) for fetch in (fetches if known else fetches[:1])))
    started = time.process_time()
    await asyncio.gather(*(crawl() for _ in range(IN_FLIGHT)))
    cpu_s = time.process_time() - started
    await writer.close()
    return cpu_s


def compare(title: str, fetches: list[Fetch], rounds: int) -> None:
    stores = candidates()
    cpu_us: dict[str, list[float]] = {name: [] for name in stores}
    size_bytes = {}
    for store in stores.values():
        whole(store, fetches)
    ours: dict[str, list[float]] = defaultdict(list)
    ways: dict[str, dict[str, Any]] = {
        "append": {},
        "append, 100 outlinks": {"about": outlinks()},
        "append, payload known": {"known": True},
        "append, known, 100 outlinks": {"about": outlinks(), "known": True},
    }
    for _ in range(rounds):
        for name, store in stores.items():
            started = time.process_time()
            size_bytes[name] = sum(len(store(fetch)) for fetch in fetches) / len(fetches)
            cpu_us[name].append((time.process_time() - started) / len(fetches) * 1e6)
        for name, options in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                ours[name].append(asyncio.run(appended(Path(folder), fetches, **options)) / len(fetches) * 1e6)
    payload_bytes = sum(len(fetch.payload) for fetch in fetches) / len(fetches)
    print(f"\n{title}: {len(fetches)} exchanges, mean payload {payload_bytes:,.0f} B, medians of {rounds} rounds")
    for name in stores:
        print(f"  {name:26} {statistics.median(cpu_us[name]):7.0f} us {size_bytes[name]:8,.0f} B")
    for name, found in ours.items():
        print(f"  {name:28} {statistics.median(found):5.0f} us")


def time_repair(fetches: list[Fetch], file_bytes: int = 300_000_000) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        members = b"".join(map(Ours(partial(isal_zlib.compress, level=2, wbits=31)), fetches))
        with (folder / "bench.warc.gz.open").open("wb") as file:
            for _ in range(file_bytes // len(members)):
                file.write(members)
            file.write(members[:100])
        started = time.process_time()
        (repaired,) = repair(folder)
        cpu_s = time.process_time() - started
        print(f"\nrepair: {repaired.kept_bytes / 1e6:.0f} MB in {cpu_s:.2f} s CPU, {repaired.cut_bytes} B cut")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, help="folder of *.tar.zst with real pages, e.g. ../shared/data/e_html_pages")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    pages = real_pages(options.pages, options.count) if options.pages else made_pages(options.count)
    plain = exchanges(pages)
    compare("plain HTML", plain, options.rounds)
    encoded = [gzip.compress(page, 6) for page in pages]
    compare("the same, gzip-encoded by the server", exchanges(encoded, b"Content-Encoding: gzip\r\n"), options.rounds)
    time_repair(plain)


if __name__ == "__main__":
    main()
