"""Pipelines that write files: every item is in a file that its reader can read, whenever the process was killed."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from examples.pipelines import spool
from examples.pipelines.corpus import CorpusPipeline, zstd
from examples.pipelines.jsonlines import JsonLinesPipeline
from examples.pipelines.spool import SpoolPipeline

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"jsonlines": JsonLinesPipeline, "corpus": CorpusPipeline}


def item(n: int, **more: Any) -> dict[str, Any]:
    url = f"https://example.com/{n}"
    return {
        "url": url,
        "final_url": url,
        "canonical_url": url,
        "url_key": f"{n:032x}",
        "status": 200,
        "fetched_at": f"2027-01-15T08:00:{n % 60:02}.000001+00:00",
        "content_type": "text/html",
        "encoding": "utf-8",
        "title": f"Page {n}",
        "text": "Ä\n\u2028 menu " + "word " * 10,
        "main_text": f"{n} " + "word " * 100,
        "language": "en",
        "links": [url + "/a", url + "/b"],
        "depth": 1,
        "referrer": "",
        "content_hash": "ab" * 32,
        "fingerprint": f"{n:016x}",
        "duplicate_of": None,
        "supersedes": [],
        "soft_404": False,
        "noindex": False,
        "changed": None,
        "truncated": None,
        "warc_file": "a.warc.gz",
        "warc_offset": 2**40 + n,
        "warc_length": 100,
        **more,
    }


async def with_pipeline(pipeline: SpoolPipeline, work: Callable[[SpoolPipeline], Awaitable[None]]) -> None:
    await pipeline.open_spider()
    await work(pipeline)
    await pipeline.close_spider()


def write(pipeline: SpoolPipeline, *items: dict[str, Any]) -> None:
    async def work(pipeline: SpoolPipeline) -> None:
        assert await asyncio.gather(*map(pipeline.process_item, items)) == list(items)

    asyncio.run(with_pipeline(pipeline, work))


def json_lines(folder: Path, pattern: str = "*.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob(pattern)) for line in path.read_bytes().splitlines()]


def documents(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.zst")) for line in zstd.decompress(path.read_bytes()).split(b"\n")[:-1]]


def names(folder: Path) -> set[str]:
    return {"".join(path.suffixes) for path in folder.iterdir()}


# -- what all share ------------------------------------------------------------------------------------------------------


def test_an_item_is_in_a_file_when_its_page_may_be_complete(tmp_path: Path) -> None:
    async def work(pipeline: SpoolPipeline) -> None:
        for n in range(3):
            await pipeline.process_item(item(n))
            assert json_lines(tmp_path, "*.open") == [item(i) for i in range(n + 1)]

    asyncio.run(with_pipeline(JsonLinesPipeline(tmp_path), work))
    assert (json_lines(tmp_path), names(tmp_path)) == ([item(0), item(1), item(2)], {".jsonl"})


@pytest.mark.parametrize("limit", [{"file_items": 10}, {"file_bytes": 10_000}])
def test_a_file_that_is_large_or_long_enough_is_finished(tmp_path: Path, limit: dict[str, int]) -> None:
    async def work(pipeline: SpoolPipeline) -> None:
        for n in range(35):
            await pipeline.process_item(item(n))

    asyncio.run(with_pipeline(JsonLinesPipeline(tmp_path, **limit), work))
    assert len(list(tmp_path.glob("*.jsonl"))) > 2
    assert sorted(row["url"] for row in json_lines(tmp_path)) == sorted(item(n)["url"] for n in range(35))


def test_a_file_that_is_old_enough_is_finished_without_another_item(tmp_path: Path) -> None:
    async def work(pipeline: SpoolPipeline) -> None:
        await pipeline.process_item(item(1))
        while not json_lines(tmp_path):
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(with_pipeline(JsonLinesPipeline(tmp_path, file_s=0.01), work), 20))
    assert json_lines(tmp_path) == [item(1)]


def test_many_items_at_once_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    append = SpoolPipeline._append
    monkeypatch.setattr(SpoolPipeline, "_append", lambda self, lines: (writes.append(lines), append(self, lines))[1])
    write(JsonLinesPipeline(tmp_path), *map(item, range(100)))
    assert len(writes) == 1
    assert len(json_lines(tmp_path)) == 100


def test_large_items_are_written_whole(tmp_path: Path) -> None:
    large = [item(n, text="ä" * 2_000_000 + str(n)) for n in range(3)]
    write(JsonLinesPipeline(tmp_path), *large, item(3))
    assert sorted(json_lines(tmp_path), key=lambda row: row["url"]) == [*large, item(3)]


def test_what_a_killed_process_left_is_finished_by_the_next_and_a_torn_line_cut(tmp_path: Path) -> None:
    script = """
        import asyncio, os, signal, sys
        from pathlib import Path
        from examples.pipelines.jsonlines import JsonLinesPipeline

        async def main():
            pipeline = JsonLinesPipeline(Path(sys.argv[1]))
            await pipeline.open_spider()
            await asyncio.gather(*(pipeline.process_item({"n": n}) for n in range(5)))
            pipeline._file.write(b'{"n": ')
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], cwd=ROOT, check=False)
    assert (run.returncode, names(tmp_path)) == (-9, {".open"})
    write(JsonLinesPipeline(tmp_path))
    assert (json_lines(tmp_path), names(tmp_path)) == ([{"n": n} for n in range(5)], {".jsonl"})


@pytest.mark.parametrize("left", [b"", b"{", b"x" * 200_000])
def test_a_file_without_a_whole_line_is_removed(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "20270115080000-00000000.open").write_bytes(left)
    write(JsonLinesPipeline(tmp_path))
    assert names(tmp_path) == set()


def test_a_file_of_a_process_that_lives_is_left_alone(tmp_path: Path) -> None:
    async def work(first: SpoolPipeline) -> None:
        await first.process_item(item(1))
        second = JsonLinesPipeline(tmp_path)
        await second.open_spider()
        await second.process_item(item(2))
        await second.close_spider()
        assert [row["url"] for row in json_lines(tmp_path)] == [item(2)["url"]]
        await first.process_item(item(3))

    asyncio.run(with_pipeline(JsonLinesPipeline(tmp_path), work))
    assert {row["url"] for row in json_lines(tmp_path)} == {item(n)["url"] for n in (1, 2, 3)}


class Full(io.RawIOBase):
    """A file on a disk that has room for a part of a line, and then is full for a while."""

    def __init__(self, file: Any, refusals: int) -> None:
        self._file, self._refusals = file, refusals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        if self._refusals:
            self._refusals -= 1
            self._file.write(bytes(data)[:7])
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self._file.write(data))

    def truncate(self, size: int | None = None) -> int:
        return int(self._file.truncate(size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def fileno(self) -> int:
        return int(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    @property
    def name(self) -> str:
        return str(self._file.name)


def test_a_full_disk_makes_items_wait_and_tears_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spool, "RETRY_S", 0.001)

    async def work(pipeline: SpoolPipeline) -> None:
        await pipeline.process_item(item(1))
        pipeline._file = Full(pipeline._file, 2)  # type: ignore[assignment]
        await pipeline.process_item(item(2))

    asyncio.run(with_pipeline(JsonLinesPipeline(tmp_path), work))
    assert json_lines(tmp_path) == [item(1), item(2)]
    assert caplog.text.count("items wait") == 2


def test_what_could_not_be_finished_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(CorpusPipeline, "finish", lambda *_: 1 / 0)
        write(CorpusPipeline(tmp_path), item(1))
    assert "could not be finished" in caplog.text
    assert names(tmp_path) == {".open"}
    write(CorpusPipeline(tmp_path), item(2))
    assert sorted(row["url"] for row in documents(tmp_path)) == [item(1)["url"], item(2)["url"]]
    assert names(tmp_path) == {".jsonl.zst"}


def test_text_that_is_no_unicode_is_written_as_far_as_it_can_be(tmp_path: Path) -> None:
    write(JsonLinesPipeline(tmp_path), {"title": "\ud800 \x00 \n ä"})
    assert json_lines(tmp_path) == [{"title": "? \x00 \n ä"}]


@pytest.mark.parametrize("text", ["", "x" * 300_000])
def test_an_item_that_is_no_json_fails_alone(tmp_path: Path, text: str) -> None:
    async def work(pipeline: SpoolPipeline) -> None:
        with pytest.raises(TypeError):
            await pipeline.process_item({"x": object(), "text": text})
        await pipeline.process_item(item(1))

    asyncio.run(with_pipeline(JsonLinesPipeline(tmp_path), work))
    assert json_lines(tmp_path) == [item(1)]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_settings_are_read(tmp_path: Path, kind: type[SpoolPipeline]) -> None:
    prefix = kind.prefix
    settings = {f"{prefix}_DIR": str(tmp_path), f"{prefix}_FILE_BYTES": "5", f"{prefix}_FILE_ITEMS": "6", f"{prefix}_FILE_S": "7.5"}
    pipeline = kind.from_crawler(get_crawler(settings_dict=settings))
    assert (pipeline.folder, pipeline.file_bytes, pipeline.file_items, pipeline.file_s) == (tmp_path, 5, 6, 7.5)
    assert kind.from_crawler(get_crawler()).folder == Path(prefix.lower())


# -- a corpus ------------------------------------------------------------------------------------------------------------


def test_a_shard_has_text_and_where_it_is_from(tmp_path: Path) -> None:
    write(CorpusPipeline(tmp_path), item(1))
    kept = ("url", "title", "language", "fetched_at", "url_key", "fingerprint")
    assert documents(tmp_path) == [{"text": item(1)["main_text"], **{name: item(1)[name] for name in kept}}]


SKIPPED = [
    ({"duplicate_of": "https://example.org/"}, "duplicate"),
    ({"soft_404": True}, "soft_404"),
    ({"noindex": True}, "noindex"),
    ({"truncated": "length"}, "truncated"),
    ({"changed": False}, "unchanged"),
    ({"main_text": "too short"}, "short"),
    ({"main_text": None}, "short"),
    ({"language": "fr"}, "language"),
    ({"language": ""}, "language"),
]


@pytest.mark.parametrize(("what", "why"), SKIPPED)
def test_what_is_no_document_is_left_out_and_counted(tmp_path: Path, what: dict[str, Any], why: str) -> None:
    crawler = get_crawler(settings_dict={"CORPUS_DIR": str(tmp_path), "CORPUS_LANGUAGES": "en,de", "CORPUS_MIN_CHARS": "100"})
    crawler.stats = crawler.stats or crawler.settings["STATS_CLASS"]
    pipeline = CorpusPipeline.from_crawler(crawler)
    counts: dict[str, int] = {}
    pipeline.stats = type("Stats", (), {"inc_value": lambda _, name: counts.update({name: counts.get(name, 0) + 1})})()
    write(pipeline, item(1, **what), item(2), item(3, changed=True, language="de"))
    assert [row["url"] for row in documents(tmp_path)] == [item(2)["url"], item(3)["url"]]
    assert counts == {f"corpus/skipped/{why}": 1, "corpus/documents": 2}


def test_equal_texts_of_a_shard_are_in_it_once_and_shards_are_of_so_many_documents(tmp_path: Path) -> None:
    async def work(pipeline: SpoolPipeline) -> None:
        for n in (1, 1, 2, 3, 4, 5):
            await pipeline.process_item(item(n))

    asyncio.run(with_pipeline(CorpusPipeline(tmp_path, file_items=3), work))
    assert len(list(tmp_path.glob("*.zst"))) == 2
    assert sorted(row["url"] for row in documents(tmp_path)) == [item(n)["url"] for n in range(1, 6)]


# -- Parquet -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def parquet() -> Any:
    return pytest.importorskip("pyarrow.parquet")


def rows(folder: Path, parquet: Any) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in parquet.read_table(path).to_pylist()]


def test_a_parquet_file_has_the_items_with_types(tmp_path: Path, parquet: Any) -> None:
    from examples.pipelines.parquet import SCHEMA, ParquetPipeline

    write(ParquetPipeline(tmp_path), item(1, changed=True, duplicate_of="https://example.org/"), item(2, extra="left out", links=[]))
    first, second = rows(tmp_path, parquet)
    at = datetime(2027, 1, 15, 8, 0, 1, 1, timezone.utc)
    assert first == {**item(1), "fetched_at": at, "changed": True, "duplicate_of": "https://example.org/"}
    assert (second["links"], second["changed"], "extra" in second) == ([], None, False)
    assert parquet.read_schema(next(tmp_path.glob("*.parquet"))).equals(SCHEMA)
    assert set(item(1)) == set(SCHEMA.names)
    assert names(tmp_path) == {".parquet"}


def test_large_files_have_several_row_groups(tmp_path: Path, parquet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.pipelines import parquet as module

    monkeypatch.setattr(module, "SLICE_BYTES", 10_000)
    monkeypatch.setattr(module, "GROUP_BYTES", 50_000)
    write(module.ParquetPipeline(tmp_path), *map(item, range(1000)))
    (path,) = tmp_path.glob("*.parquet")
    assert parquet.ParquetFile(path).num_row_groups > 3
    assert [row["url"] for row in rows(tmp_path, parquet)] == [item(n)["url"] for n in range(1000)]


@pytest.mark.parametrize(
    "bad", [{"status": "two hundred"}, {"fetched_at": "yesterday"}, {"links": 5}, {"warc_offset": 2**70}, {"fetched_at": 5}]
)
def test_a_row_that_does_not_fit_is_set_aside_alone(
    tmp_path: Path, parquet: Any, bad: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    from examples.pipelines.parquet import ParquetPipeline

    write(ParquetPipeline(tmp_path), item(1), item(2, **bad), item(3))
    assert [row["url"] for row in rows(tmp_path, parquet)] == [item(1)["url"], item(3)["url"]]
    (rejected,) = tmp_path.glob("*.rejected.jsonl")
    assert [json.loads(line)["url"] for line in rejected.read_bytes().splitlines()] == [item(2)["url"]]
    assert "does not fit" in caplog.text


def test_a_conversion_that_was_killed_is_begun_again(tmp_path: Path, parquet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.pipelines import parquet as module

    with monkeypatch.context() as patch:
        patch.setattr(module.pq, "ParquetWriter", lambda *_, **__: 1 / 0)
        write(module.ParquetPipeline(tmp_path), item(1))
    (spooled,) = tmp_path.glob("*.open")
    spooled.with_suffix(".parquet.part").write_bytes(b"half a file")
    write(module.ParquetPipeline(tmp_path))
    assert [row["url"] for row in rows(tmp_path, parquet)] == [item(1)["url"]]
    assert names(tmp_path) == {".parquet"}


def test_a_file_that_was_converted_and_not_removed_gives_the_same_file_again(tmp_path: Path, parquet: Any) -> None:
    from examples.pipelines.parquet import ParquetPipeline

    spooled = tmp_path / "20270115080000-00000000.open"
    for _ in range(2):
        spooled.write_bytes(json.dumps(item(1)).encode() + b"\n")
        write(ParquetPipeline(tmp_path))
    assert [row["url"] for row in rows(tmp_path, parquet)] == [item(1)["url"]]
