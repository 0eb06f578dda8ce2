"""pywb replays the WARC files of a crawl by their CDXJ indexes: every capture is fetched from it and compared with what warcio reads.

    python -m venv replay && replay/bin/pip install pywb setuptools
    python bench/replay.py --wayback replay/bin/wayback [--folder data/web/warc] [--most 2000]

Without --folder, on files made here that have every kind of record. pywb has versions of its own of much that we use: hence the other
environment. Exits with 1 if a capture differs.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import http.client
import json
import random
import socket
import subprocess
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator

from crawlweb.records import About, Earlier, Fetch
from crawlweb.store.warc import WarcWriter

START_S = 60.0
PAGE = b"<html><title>Moss</title>" + b"<p>moss grows on the north side of a stone, &eacute;</p>" * 60
HEAD = b"HTTP/1.1 %d Some\r\nContent-Type: text/html; charset=utf-8\r\n%b\r\n"


async def made(folder: Path) -> None:
    """Files with every kind of record; a second apart, as a page is never fetched twice in one."""
    clock = iter(range(1_760_000_000, 1_770_000_000))

    def fetch(path: str, payload: bytes, status: int = 200, head: bytes = b"") -> Fetch:
        return Fetch(
            url=f"http://stones.test/{path}",
            ip="127.0.0.1",
            started=0.0,
            finished=0.1,
            latency_s=0.1,
            fetched_at=float(next(clock)),
            request_head=b"GET / HTTP/1.1\r\nHost: stones.test\r\n\r\n",
            status=status,
            response_head=HEAD % (status, head),
            payload=payload,
            body=payload,
        )

    rng = random.Random(1)
    writer = WarcWriter(folder, "replay", software="bench", max_bytes=60_000)
    links = About(outlinks=[(f"http://stones.test/{n}", "a", "", "moss") for n in range(100)])
    packed = gzip.compress(PAGE + b"packed")
    for n in range(100):
        page = PAGE + rng.randbytes(30).hex().encode()
        first = fetch(f"Page/{n}?b=2&a=1", page)
        ref = await writer.append(first, links)
        known = About(earlier=Earlier(first.url, first.fetched_at, ref))
        await writer.append(fetch(f"mirror/{n}", page), links)
        await writer.append(fetch(f"Page/{n}?b=2&a=1", page), known)
        await writer.append(fetch(f"Page/{n}?b=2&a=1", b"", 304, b"ETag: 1\r\n"), known)
        await writer.append(fetch(f"packed/{n}", packed, head=b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), links)
        await writer.append(fetch(f"missing/{n}", PAGE + b"not found", 404))
        await writer.append(fetch(f"moved/{n}", b"", 301, b"Location: /Page/1\r\n"))
        twin = About(near_duplicate_of=Earlier(first.url, first.fetched_at, ref))
        await writer.append(fetch(f"print/{n}", page + b"printed", head=b"Content-Encoding: br\r\n"), twin)
    await writer.close()


def captures(folder: Path) -> Iterator[tuple[str, str, str, str, bytes]]:
    """Kind, URL, timestamp, status and decoded body of what a reader of the index is to get; warcio's word, not the index's."""
    bodies: dict[str, bytes] = {}
    pages: dict[str, dict[str, bytes]] = defaultdict(dict)
    for file in sorted(folder.glob("*.warc.gz")):
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                if record.rec_type not in ("response", "revisit"):
                    continue
                warc, status = record.rec_headers, record.http_headers.get_statuscode()
                url, date = warc.get_header("WARC-Target-URI"), warc.get_header("WARC-Date")
                digest, profile = warc.get_header("WARC-Payload-Digest"), (warc.get_header("WARC-Profile") or "").rpartition("/")[2]
                if record.rec_type == "response":
                    body = bodies[digest] = pages[url][date] = record.content_stream().read()
                elif status == "304":
                    body = b""
                elif digest:
                    body = bodies[digest]
                else:
                    body = pages[warc.get_header("WARC-Refers-To-Target-URI")][warc.get_header("WARC-Refers-To-Date")]
                timestamp = "".join(filter(str.isdigit, date))[:14]
                yield (profile.rpartition(":")[2] if profile else f"response {status}"), url, timestamp, status, body


def replayed(connection: http.client.HTTPConnection, url: str, timestamp: str) -> tuple[str, bytes]:
    """Status and decoded body that pywb has for it, as it came from the site (`id_`)."""
    connection.request("GET", f"/crawl/{timestamp}id_/{url}")
    response = connection.getresponse()
    body = response.read()
    if response.headers.get("Content-Encoding") == "gzip":
        body = zlib.decompress(body, 31)
    when = "".join(filter(str.isdigit, response.headers.get("Memento-Datetime", "")))
    return f"{response.status}" if when or response.status == 304 else f"{response.status}, no capture", body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wayback", type=Path, required=True, help="pywb's program")
    parser.add_argument("--folder", type=Path, help="WARC folder of a crawl that has ended")
    parser.add_argument("--most", type=int, default=2_000, help="captures that are compared")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        folder = options.folder.resolve() if options.folder else Path(name, "warc")
        if not options.folder:
            asyncio.run(made(folder))
        collections = {"collections": {"crawl": {"index_paths": str(folder), "archive_paths": str(folder) + "/"}}}
        Path(name, "config.yaml").write_text(json.dumps(collections))
        free.close()
        command = [str(options.wayback.absolute()), "-b", "127.0.0.1", "-p", str(port), "-d", name]
        with Path(name, "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
            try:
                compare(folder, port, options.most)
            except BaseException:
                print(Path(name, "log").read_text()[-3000:])
                raise
            finally:
                server.terminate()


def compare(folder: Path, port: int, most: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            if time.monotonic() > deadline:
                raise SystemExit("pywb does not answer") from None
            time.sleep(0.2)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    wanted = list(captures(folder))
    random.Random(1).shuffle(wanted)
    same, differ = Counter[str](), Counter[str]()
    for kind, url, timestamp, status, body in wanted[:most]:
        found_status, found_body = replayed(connection, url, timestamp)
        if (found_status, found_body) == (status, body):
            same[kind] += 1
        else:
            differ[kind] += 1
            if differ[kind] <= 3:
                print(f"differs: {kind} {timestamp} {url}: {status}, {len(body)} B; pywb: {found_status}, {len(found_body)} B")
    for kind in sorted(same | differ):
        print(f"{kind:30} {same[kind]:6} as stored {differ[kind]:6} differ")
    if differ:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
