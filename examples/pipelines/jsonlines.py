"""Items as JSON lines: a file an hour, or a gigabyte.

    ITEM_PIPELINES = {"examples.pipelines.jsonlines.JsonLinesPipeline": 300}
    JSONLINES_DIR = "/data/pages"

What is read while it is written to ends in `.open`, and is JSON lines as well. `-o pages.jsonl`, one file without end, does the same.
"""

from __future__ import annotations

from pathlib import Path

from .spool import SpoolPipeline


class JsonLinesPipeline(SpoolPipeline):
    prefix, suffix = "JSONLINES", ".jsonl"
    file_bytes = 1_000_000_000

    def finish(self, spool: Path, finished: Path) -> None:
        spool.replace(finished)
