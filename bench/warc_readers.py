"""The readers that we rely on, on WARC and ARC files of others, whole and broken, against a table of what is in them.

    python bench/warc_readers.py ../shared/data/h_warc

warcio must find each record of the table: type, URI, status, length and sha1 of its body. `repair` gets each file as if a writer had left
it open: it must not raise, what it keeps must be what stood there and read the same, and its index must say what warcio says. Exits with 1
if something differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from warcio.archiveiterator import ArchiveIterator
from warcio.timeutils import iso_date_to_timestamp

from crawlweb.store.repair import repair

GZIP = b"\x1f\x8b"


def read(path: Path) -> tuple[list[list[Any]], list[tuple[int, int]], list[bool], str]:
    """Records in the table's form, their places, whether their date is one, and the error that ended the reading."""
    records: list[list[Any]] = []
    places: list[tuple[int, int]] = []
    dates: list[bool] = []
    error = ""
    with path.open("rb") as stream, redirect_stderr(StringIO()):  # warcio says what it finds odd
        try:
            archive = ArchiveIterator(stream)
            for record in archive:
                http = record.http_headers
                status = http.get_statuscode() if http else None
                body = record.content_stream().read()
                url = record.rec_headers.get_header("WARC-Target-URI") or record.rec_headers.get_header("uri")
                records.append([record.rec_type, url, status, len(body), hashlib.sha1(body).hexdigest()[:12]])
                dates.append(is_date(record.rec_headers.get_header("WARC-Date")))
                places.append((archive.get_record_offset(), archive.get_record_length()))
        except Exception as failure:  # that it does not raise is not what is asked of warcio
            error = f"{type(failure).__name__}: {failure}"
    return records, places, dates, error


def is_date(text: str | None) -> bool:
    """ClueWeb09 has days such as the 294th of October."""
    try:
        return bool(iso_date_to_timestamp(text))
    except (TypeError, ValueError):
        return False


def repaired(path: Path) -> Iterator[str]:
    """Faults of what `repair` makes of the file; prints what that is."""
    whole, places, dates, _ = read(path)
    with tempfile.TemporaryDirectory() as name:
        left = Path(name, "left.warc.gz.open")
        shutil.copyfile(path, left)
        left.chmod(0o644)
        found_bytes = path.read_bytes()
        (done,) = repair(Path(name))
        kept = Path(name, "left.warc.gz")
        print(f"  repair: {done.kept_bytes:,} B kept, {done.cut_bytes:,} B cut")
        if done.kept_bytes + done.cut_bytes != len(found_bytes):
            yield "bytes are missing"
        if not done.kept_bytes:
            if kept.exists() or left.exists():
                yield "a file without records stays"
            return
        if kept.read_bytes() != found_bytes[: done.kept_bytes]:
            yield "what is kept is not what stood there"
        records, kept_places, _, error = read(kept)
        if error or records != whole[: len(records)]:
            yield f"what is kept reads otherwise: {error}"
        lines = [json.loads(line.split(" ", 2)[2]) for line in kept.with_name("left.cdxj").read_text().splitlines()]
        urls = dict(zip(places, whole, strict=True))
        for line in lines:
            place = int(line["offset"]), int(line["length"])
            if place not in kept_places or urls[place][1] != line["url"].strip("<>"):
                yield f"the index has a line for no record: {line}"
        indexed = sum(record[0] in ("response", "revisit") and dated for record, dated in zip(records, dates, strict=False))
        if sum(line["mime"] != "application/http" if "mime" in line else True for line in lines) < indexed:
            yield f"{indexed} records with a date, {len(lines)} lines in the index"
        print(f"  {len(records)} records, {len(lines)} lines in the index")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with index.jsonl and files/, e.g. ../shared/data/h_warc")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ResourceWarning)
    table = [json.loads(line) for line in (options.folder / "index.jsonl").read_text().splitlines()]
    sums, faults = Counter[str](), []
    for row in table:
        path = options.folder / "files" / row["file"]
        print(row["file"])
        if row.get("records") is not None:
            records, _, _, error = read(path)
            sums["files read by warcio"] += 1
            sums["records of the table"] += len(row["records"])
            sums["records as the table says"] += sum(a == b for a, b in zip(records, row["records"], strict=False))
            if records[: len(row["records"])] != row["records"] or len(records) != row["n_records"]:
                faults.append(f"{row['file']}: reads otherwise")
                print(f"  differs: {len(records)} records, {error}")
        try:
            found = list(repaired(path))
        except Exception as failure:
            found = [f"repair raised {failure!r}"]
        sums["files given to repair"] += 1
        sums["of them gzip"] += path.read_bytes()[:2] == GZIP
        faults += [f"{row['file']}: {fault}" for fault in found]
    for name, number in sums.items():
        print(f"{name:30} {number}")
    for fault in faults:
        print("FAULT", fault)
    if faults:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
