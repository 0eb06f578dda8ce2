"""Chunks: what is written comes back as it was, or is an error that says what is wrong."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from crawlweb.errors import StoreError
from crawlweb.store.chunks import ChunkCorrupt, ChunkMissing, ChunkStore, chunk_name

NAME = chunk_name(1_700_000_000_000, "w1", 7)


@pytest.fixture(params=["folder", "file://", "memory://"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ChunkStore:
    url = {"folder": str(tmp_path / "cold"), "file://": f"file://{tmp_path}/cold", "memory://": f"memory://{tmp_path}"}[request.param]
    store = ChunkStore(url, ChunkStore.new_id())
    store.create()
    return store


@pytest.mark.parametrize(
    "entries",
    [
        [b"500\t0\t/\t\t"],
        [b""],
        [b"", b"", b"x"],
        [b"a\nb", b"\n", b"c"],
        [bytes(range(256)), b"\xff\xfe"],
        [b"x" * 100_000, b"y"],
        [b"%d\t/page/%d" % (i, i) for i in range(10_000)],
    ],
)
def test_entries_come_back_as_they_were(store: ChunkStore, entries: list[bytes]) -> None:
    assert store.write(3, NAME, "park:a.org", entries) > 0
    assert store.read(3, NAME, "park:a.org") == entries


def test_entries_of_a_crawl_take_a_fifth_of_their_bytes(store: ChunkStore) -> None:
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(500)]
    entries = [f"500\t3\t/{rng.choice(words)}/{rng.choice(words)}-{rng.choice(words)}-{i}.html\t\t".encode() for i in range(10_000)]
    assert store.write(0, NAME, "front:5", entries) < sum(map(len, entries)) / 4


def test_what_is_there_is_listed_with_its_time(store: ChunkStore) -> None:
    assert store.chunks(5) == []
    store.write(5, NAME, "park:a.org", [b"x"])
    assert store.chunks(5) == [(1_700_000_000_000, NAME)]
    assert store.chunks(6) == []


def test_files_of_others_are_not_listed(tmp_path: Path) -> None:
    store = ChunkStore(str(tmp_path), "id")
    store.create()
    store.write(5, NAME, "park:a.org", [b"x"])
    for other in ("notes.txt", "1-2-3.zst", ".hidden", f"{NAME}.zst.part"):
        (tmp_path / "id" / "5" / other).write_text("mine")
    assert store.chunks(5) == [(1_700_000_000_000, NAME)]


def test_a_deleted_chunk_is_missing_and_can_be_deleted_again(store: ChunkStore) -> None:
    store.write(0, NAME, "park:a.org", [b"x"])
    store.delete(0, NAME)
    store.delete(0, NAME)
    with pytest.raises(ChunkMissing, match=NAME):
        store.read(0, NAME, "park:a.org")


def test_a_chunk_of_another_queue_is_corrupt(store: ChunkStore) -> None:
    store.write(0, NAME, "park:a.org", [b"x"])
    with pytest.raises(ChunkCorrupt, match="not the chunk"):
        store.read(0, NAME, "park:b.org")


@pytest.mark.parametrize("name", ["../../../etc/passwd", "", "x", "1700000000000-W-1", "1700000000000-w-1/../y"])
def test_no_name_leads_out_of_the_store(store: ChunkStore, name: str) -> None:
    for call in (lambda: store.read(0, name, "park:a.org"), lambda: store.delete(0, name), lambda: store.write(0, name, "q", [b"x"])):
        with pytest.raises(StoreError):
            call()


def test_no_byte_can_differ_unnoticed(tmp_path: Path) -> None:
    store = ChunkStore(str(tmp_path), "id")
    store.create()
    entries = [b"500\t0\t/%d\t\t" % i for i in range(50)]
    store.write(0, NAME, "park:a.org", entries)
    path = tmp_path / "id" / "0" / f"{NAME}.zst"
    whole = path.read_bytes()
    harms = [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(len(whole))]
    noticed = 0
    for harm in harms + [whole[:size] for size in range(len(whole))]:
        path.write_bytes(harm)
        try:
            assert store.read(0, NAME, "park:a.org") == entries, "a bit that means nothing"
        except ChunkCorrupt:
            noticed += 1
    assert noticed >= 2 * len(whole) - 10, "all but some bits of the header"


def test_a_bomb_is_corrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ChunkStore(str(tmp_path), "id")
    store.create()
    store.write(0, NAME, "park:a.org", [b"\0" * 5_000_000])
    monkeypatch.setattr("crawlweb.store.chunks.MAX_BYTES", 1_000_000)
    with pytest.raises(ChunkCorrupt):
        store.read(0, NAME, "park:a.org")


def test_a_store_that_is_not_there_is_not_a_missing_chunk(tmp_path: Path) -> None:
    store = ChunkStore(str(tmp_path / "disk"), "id")
    assert not store.is_there()
    with pytest.raises(StoreError, match="not there") as e:
        store.read(0, NAME, "park:a.org")
    assert not isinstance(e.value, ChunkMissing)


def test_a_store_is_taken_back_whole(store: ChunkStore) -> None:
    store.discard()
    assert not store.is_there()


@pytest.mark.parametrize("url", ["nonsense://x", "s3-but-not:///x", "gcs-like://bucket"])
def test_a_url_of_no_file_system_is_an_error_with_its_name(url: str) -> None:
    with pytest.raises(StoreError, match=url.partition(":")[0]):
        ChunkStore(url, "id").create()


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_a_folder_that_is_not_writable_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match=str(tmp_path)):
        ChunkStore(str(tmp_path / "cold"), "id").create()


def test_a_file_where_the_folder_should_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cold").write_text("a file")
    with pytest.raises(StoreError, match="cold"):
        ChunkStore(str(tmp_path / "cold"), "id").create()
