"""A JSON lines feed that loses at most the page in the making."""

from __future__ import annotations

import os
from typing import Any

from scrapy.exporters import JsonLinesItemExporter


class FlushingJsonLines(JsonLinesItemExporter):
    """Flushes after each item. A line that a killed run left unfinished is closed first, so that only that line is unreadable."""

    def start_exporting(self) -> None:
        name = getattr(self.file, "name", None)
        if isinstance(name, str) and os.path.exists(name):
            with open(name, "rb") as before:
                if before.seek(0, os.SEEK_END):
                    before.seek(-1, os.SEEK_END)
                    if before.read(1) != b"\n":
                        self.file.write(b"\n")

    def export_item(self, item: Any) -> None:
        super().export_item(item)
        self.file.flush()
