"""Items as Parquet (pip install crawlweb[parquet]): a file an hour, or 256 MB of JSON, in row groups, zstd.

    ITEM_PIPELINES = {"examples.pipelines.parquet.ParquetPipeline": 300}
    PARQUET_DIR = "/data/pages"

    SELECT url, language, length(main_text) FROM '/data/pages/*.parquet' WHERE duplicate_of IS NULL AND NOT soft_404  -- duckdb

A field that SCHEMA does not name is left out. A row that does not fit it (a subclass of the spider gave a text for a number) goes to
`<name>.rejected.jsonl`, the others are written.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .spool import SpoolPipeline, whole_or_not_at_all

logger = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20  # of lines, made into columns at once: Python's other threads, the event loop among them, wait meanwhile
GROUP_BYTES = 64 << 20  # of a row group, in memory
SCHEMA = pa.schema(
    [
        ("url", pa.string()),
        ("final_url", pa.string()),
        ("canonical_url", pa.string()),
        ("url_key", pa.string()),
        ("status", pa.int16()),
        ("fetched_at", pa.timestamp("us", tz="UTC")),
        ("content_type", pa.string()),
        ("encoding", pa.string()),
        ("language", pa.string()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("main_text", pa.string()),
        ("links", pa.list_(pa.string())),
        ("depth", pa.int32()),
        ("referrer", pa.string()),
        ("content_hash", pa.string()),
        ("fingerprint", pa.string()),
        ("duplicate_of", pa.string()),
        ("supersedes", pa.list_(pa.string())),
        ("soft_404", pa.bool_()),
        ("noindex", pa.bool_()),
        ("changed", pa.bool_()),
        ("truncated", pa.string()),
        ("warc_file", pa.string()),
        ("warc_offset", pa.int64()),
        ("warc_length", pa.int64()),
    ]
)


class ParquetPipeline(SpoolPipeline):
    prefix, suffix = "PARQUET", ".parquet"
    file_items = 100_000

    def finish(self, spool: Path, finished: Path) -> None:
        with (
            spool.open("rb") as lines,
            whole_or_not_at_all(finished) as part,
            whole_or_not_at_all(finished.with_suffix(".rejected.jsonl")) as rejected_part,
            rejected_part.open("wb") as rejected,
        ):
            self._write(lines, part, rejected)
        _unlink_if_empty(finished.with_suffix(".rejected.jsonl"))
        spool.unlink()

    def _write(self, lines: Iterable[bytes], part: Path, rejected: Any) -> None:
        with pq.ParquetWriter(part, SCHEMA, compression="zstd") as writer:
            group: list[pa.RecordBatch] = []
            for batch in _batches(lines, rejected):
                group.append(batch)
                if sum(each.nbytes for each in group) >= GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(group))
                    group.clear()
            if group:
                writer.write_table(pa.Table.from_batches(group))


def _batches(lines: Iterable[bytes], rejected: Any) -> Iterator[pa.RecordBatch]:
    for some in _slices(lines):
        try:
            yield pa.RecordBatch.from_pylist([_row(line) for line in some], SCHEMA)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            for line in some:
                try:
                    batch = pa.RecordBatch.from_pylist([_row(line)], SCHEMA)
                except (pa.ArrowException, ValueError, TypeError, OverflowError) as e:
                    logger.error("a row that does not fit: %s: %.200r", e, line)
                    rejected.write(line)
                else:
                    yield batch


def _slices(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line)
        if size >= SLICE_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _row(line: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line)
    if row.get("fetched_at"):
        row["fetched_at"] = datetime.fromisoformat(row["fetched_at"])
    return row


def _unlink_if_empty(path: Path) -> None:
    if path.stat().st_size == 0:
        path.unlink()
