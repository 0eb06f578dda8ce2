"""The JSON lines feed after a kill: at most the page in the making is missing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from crawlweb.exporters import FlushingJsonLines

ITEMS = [{"url": f"https://example.com/{n}", "title": "Ä\n\u2028", "links": ["x"] * n} for n in range(3)]


def export(file: BinaryIO, *items: dict[str, Any], **options: Any) -> None:
    exporter = FlushingJsonLines(cast(io.BytesIO, file), **options)
    exporter.start_exporting()
    for item in items:
        exporter.export_item(item)
    exporter.finish_exporting()


def readable(path: Path) -> list[Any]:
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append(None)
    return found


def test_an_item_is_in_the_file_when_it_was_exported(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    with path.open("ab") as file:
        exporter = FlushingJsonLines(cast(io.BytesIO, file))
        exporter.start_exporting()
        for n, item in enumerate(ITEMS, 1):
            exporter.export_item(item)
            assert readable(path) == ITEMS[:n]  # read while the file is open: not in a buffer


@pytest.mark.parametrize("before", [b"", b'{"a": 1}\n', b'{"a": 1}\n{"b": 2}\n'])
def test_a_whole_file_goes_on_where_it_ends(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "pages.jsonl"
    path.write_bytes(before)
    with path.open("ab") as file:
        export(file, *ITEMS)
    assert path.read_bytes().startswith(before)
    assert readable(path) == [json.loads(line) for line in before.splitlines()] + ITEMS


@pytest.mark.parametrize("torn", [b'{"url": "https://exa', b"{", b'{"a": 1}', b"\xc3"])
def test_an_unfinished_last_line_is_closed_and_alone_unreadable(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "pages.jsonl"
    path.write_bytes(b'{"a": 1}\n' + torn)
    with path.open("ab") as file:
        export(file, *ITEMS)
    found = readable(path)
    assert found[0] == {"a": 1}
    assert found[1] in (None, {"a": 1})
    assert found[2:] == ITEMS


def test_an_unfinished_line_is_closed_once_and_before_any_item(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    path.write_bytes(b"{")
    for _ in range(3):
        with path.open("ab") as file:
            export(file)
    assert path.read_bytes() == b"{\n"


def test_a_file_that_is_begun_anew_has_no_line_of_before(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    path.write_bytes(b"{")
    with path.open("wb") as file:  # -O
        export(file, *ITEMS)
    assert readable(path) == ITEMS


def test_a_stream_without_a_name_is_written_too() -> None:
    file = io.BytesIO()
    export(file, *ITEMS)
    assert [json.loads(line) for line in file.getvalue().splitlines()] == ITEMS


def test_scrapy_s_options_of_a_feed_still_hold(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    with path.open("ab") as file:
        export(file, *ITEMS, fields_to_export=["title"], encoding="utf-8")
    assert readable(path) == [{"title": item["title"]} for item in ITEMS]
    assert "Ä" in path.read_text(encoding="utf-8")
