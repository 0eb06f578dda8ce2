"""Encodings: how many files `decode` reads exactly as they were meant.

    python bench/charset.py FOLDER

FOLDER is ../shared/data/l_charset: `index.jsonl` names each file under `files/` with the encoding it declares, if any, and the SHA-1
of its text in UTF-8; `html5lib_encoding.jsonl` holds html5lib's cases of the prescan.
"""

from __future__ import annotations

import argparse
import codecs
import hashlib
import json
from collections import Counter
from pathlib import Path

from crawlweb.content.charset import codec_of, decode, encoding_of


def agrees(body: bytes, label: str) -> bool:
    """Where nothing is declared, html5lib falls back to windows-1252, and we to UTF-8 if the text is ASCII: the same characters."""
    found, expected = codecs.lookup(encoding_of(body, None)[0]).name, codecs.lookup(codec_of(label) or label).name
    return found == expected or (body.isascii() and (found, expected) == ("utf-8", "cp1252"))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    folder: Path = arguments.parse_args().folder
    files, right = Counter[str](), Counter[str]()
    for row in map(json.loads, (folder / "index.jsonl").open(encoding="utf-8")):
        if row["decoded_utf8_sha1"] is None:
            continue
        kind = "declared" if row["declared"] else "undeclared"
        text, codec = decode((folder / "files" / row["file"]).read_bytes(), None)
        files[kind] += 1
        if hashlib.sha1(text.removeprefix("\ufeff").encode("utf-8", "replace")).hexdigest() == row["decoded_utf8_sha1"]:
            right[kind] += 1
        else:
            print(f"  {kind}: {row['file']} is {row['encoding']} (declares {row['declared']}), read as {codec}")
    for kind, count in sorted(files.items()):
        print(f"{kind}: {right[kind]} of {count} texts exactly equal, {right[kind] / count:.3f}")
    cases = list(map(json.loads, (folder / "html5lib_encoding.jsonl").open(encoding="utf-8")))
    agreed = sum(agrees(case["data_latin1"].encode("latin-1"), case["encoding"]) for case in cases)
    print(f"html5lib's prescan: {agreed} of {len(cases)} cases")


if __name__ == "__main__":
    main()
