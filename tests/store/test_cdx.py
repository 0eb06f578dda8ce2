"""The CDXJ index beside a WARC file is the one that cdxj-indexer makes of it, whoever finished the file."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from exchanges import HTML, exchange, finished, unfinished, writer_in

from crawlweb.records import About, Earlier, Fetch
from crawlweb.store import cdx
from crawlweb.store.cdx import Index, entry_of, surt_key
from crawlweb.store.files import index_path
from crawlweb.store.repair import repair, write_index

pytest.importorskip("cdxj_indexer")
surt = pytest.importorskip("surt")

PAGE = HTML * 3
NOT_MODIFIED = b"HTTP/1.1 304 Not Modified\r\n\r\n"
OPTIONS = b"OPTIONS / HTTP/1.1\r\n\r\n"
KINDS: list[tuple[Fetch, About | None]] = [
    (exchange("http://www.stones.test/b/../Moss/?z=1&a=2&A=%7e", PAGE), About(outlinks=[("http://a.test/", "a", "", "")])),
    (exchange("https://stones.test:8443/moss", PAGE), None),
    (exchange("http://stones.test/é \u2028", b"x", b"HTTP/1.0 404 Not\r\nCONTENT-TYPE:  Text/HTML ;charset=x\r\n\r\n", status=404), None),
    (exchange("http://stones.test/none", b"x", b"HTTP/1.1 200\r\n\r\n"), None),
    (exchange("http://stones.test/empty", b"x", b"HTTP/1.1 200 OK\r\nContent-Type:\r\n\r\n"), None),
    (exchange("http://stones.test/two", b"x", b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Type: c/d\r\n\r\n"), None),
    (exchange("http://stones.test/folded", b"x", b"HTTP/1.1 200 OK\r\nContent-Type:\r\n\ta/b\r\n\r\n"), None),
    (exchange("http://stones.test/latin", b"x", b"HTTP/1.1 200 OK\r\nContent-Type: \xe9\xa0b;\r\n\r\n"), None),
    (exchange("http://stones.test/icy", b"x", b"ICY 200 OK\r\nContent-Type: audio/mpeg\r\n\r\n"), None),
    (
        exchange("http://stones.test/a", b"", b"HTTP/1.1 304 Not Modified\r\n\r\n", status=304),
        About(earlier=Earlier("http://stones.test/a", 9)),
    ),
    (exchange("http://stones.test/twin", PAGE[9:]), About(near_duplicate_of=Earlier("http://stones.test/a"))),
    (exchange("http://stones.test/", b"", request_head=OPTIONS), None),
    (exchange("http://stones.test/dav", b"", request_head=b"PROPFIND / HTTP/1.1\r\n\r\n"), None),
]


def garbage(rng: random.Random, count: int) -> list[tuple[Fetch, About | None]]:
    shreds = [b"HTTP/1.1 200 OK", b"HTTP/1.0", b"Content-Type:", b"text/html;", b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"\x00", b"\xff"]
    shreds += [b"\xa0", b"\x1c", b"\x85", "\u2028é".encode(), b"WARC/1.1", b"A: b", b"HTTP/1.1 999999999999", b"\x0b\x0c", b"\r\n\r\n"]
    heads = [rng.choice([b"", b"HTTP/1.1 200 OK\r\n"]) + b"".join(rng.choices(shreds, k=rng.randint(0, 12))) for _ in range(count)]
    return [(exchange(f"http://stones.test/{n}", rng.choice([b"", PAGE, b"x"]), head), None) for n, head in enumerate(heads)]


def write(folder: Path, exchanges: list[tuple[Fetch, About | None]], close: bool = True) -> Path:
    async def run() -> None:
        writer = writer_in(folder)
        await asyncio.gather(*(writer.append(*each) for each in exchanges))
        if close:
            await writer.close()
        elif writer._fd is not None:
            os.close(writer._fd)  # and with it the lock

    asyncio.run(run())
    return (finished(folder) or unfinished(folder))[-1]


def indexed(warc: Path, tmp_path: Path) -> str:
    """What cdxj-indexer makes of it."""
    out = tmp_path / "theirs.cdxj"
    command = [sys.executable, "-c", "from cdxj_indexer.main import main; main()", str(warc), "--sort", "--output", str(out)]
    subprocess.run(command, check=True, timeout=60)  # a process of its own: it leaves files open, which pytest takes for an error
    return out.read_text()


@pytest.mark.parametrize("exchanges", [KINDS, garbage(random.Random(5), 300)], ids=["kinds", "garbage"])
def test_the_index_of_a_finished_file_is_what_cdxj_indexer_makes(tmp_path: Path, exchanges: list[tuple[Fetch, About | None]]) -> None:
    warc = write(tmp_path, exchanges)
    lines = index_path(warc).read_text()
    assert lines == indexed(warc, tmp_path)
    assert lines.count("\n") >= len(exchanges)


def test_the_index_of_a_repaired_file_is_what_cdxj_indexer_makes(tmp_path: Path) -> None:
    left = write(tmp_path, [*KINDS, *garbage(random.Random(6), 100)], close=False)
    with left.open("r+b") as file:
        file.truncate(left.stat().st_size - 10)
    (repaired,) = repair(tmp_path)
    warc = tmp_path / repaired.file
    assert index_path(warc).read_text() == indexed(warc, tmp_path)


def test_an_index_that_is_missing_can_be_made_again(tmp_path: Path) -> None:
    warc = write(tmp_path, KINDS)
    lines = index_path(warc).read_bytes()
    index_path(warc).unlink()
    with warc.open("rb") as file:
        write_index(file.fileno(), warc)
    assert index_path(warc).read_bytes() == lines


def test_lines_are_sorted_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdx, "_RUN_LINES", 10)
    monkeypatch.setattr(cdx, "_READ_BYTES", 7)
    rng = random.Random(2)
    lines = [b"%d %d\n" % (rng.randrange(10**9), n) for n in range(107)]
    index = Index(tmp_path)
    for line in lines:
        index.add(line)
    assert len(index._lines) == 7
    index.write(tmp_path / "a.cdxj")
    index.close()
    assert (tmp_path / "a.cdxj").read_bytes() == b"".join(sorted(lines))
    assert [path.name for path in tmp_path.iterdir()] == ["a.cdxj"]


def test_an_index_that_cannot_be_kept_does_not_cost_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Index, "write", refuse)
    warc = write(tmp_path, KINDS)
    assert warc.name.endswith(".warc.gz")
    assert not index_path(warc).exists()


@pytest.mark.parametrize(
    "start", [b"", b"WARC/1.1\r\n\r\n", b"WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.test/\r\n\r\n", b"\xff"]
)
def test_what_is_no_record_has_no_entry(start: bytes) -> None:
    assert entry_of(start) is None


# Keys


@pytest.mark.parametrize(
    "url",
    [
        "http://stones.test",
        "http://stones.test/?",
        "http://WWW2.Stones.test.:80/A/./b//c/../d/",
        "https://www.stones.test:443/a%2541%20b/%7Euser/%2e%2e/x?Q=%3D%26&b&a=&a",
        "http://www.www.stones.test/%E9%80%80/é",
        "http://user:word@stones.test:8080/",
        "http://127.0.0.1:8000/../../a",
        "http://[::1]:8000/a",
        "http://stones.test/a?jsessionid=0123456789abcdef0123456789ABCDEF&b=1",
        "http://stones.test/a?b=1&PHPSESSID=0123456789abcdef0123456789abcdef",
        "http://stones.test/a?cfid=12&cftoken=34&z=1",
        "http://stones.test/a?x=1&ASPSESSIONIDABCDEFGH=ABCDEFGHIJKLMNOPQRSTUVWX",
        "http://stones.test/(a(4hqa0555fwsecu455xqckv45)S(4hqa0555fwsecu455xqckv45)f(4hqa0555fwsecu455xqckv45))/mileg.aspx",
        "http://stones.test/x/(4hqa0555fwsecu455xqckv45)/MileG.aspx?a",
        "http://stones.test/a#fragment?b",
        "http://stones.test//",
        "http://stones.test/a/..",
        "http://stones.test/a?b=2&a=1&b=1&B=0",
        "http://xn--stssenseer-fcb.test/",
        "http://stones.test/%",
        "http://stones.test/a?%25%32%35",
    ],
)
def test_keys_are_those_of_the_surt_package(url: str) -> None:
    assert surt_key(url) == surt.surt(url)


def test_keys_of_random_urls_are_those_of_the_surt_package() -> None:
    rng = random.Random(11)
    shreds = [*"aZ09/.?&=;:@!$'()*+,~_-|^`{}[]<>\"\\", "%41", "%2F", "%25", "%2525", "%C3%A9", "/../", "/./", "www.", "sid=", ".aspx", "&&"]
    for _ in range(3_000):
        url = "http://a.test/" + quote("".join(rng.choices(shreds, k=rng.randint(0, 15))), safe="".join(map(chr, range(0x21, 0x7F))))
        assert surt_key(url) == surt.surt(url), url


@pytest.mark.parametrize("url", ["", "x", "http://", "http://[", "http://a.test:99999/", "urn:x", "dns:a.test"])
def test_what_is_no_url_is_its_own_key(url: str) -> None:
    assert surt_key(url) == url
