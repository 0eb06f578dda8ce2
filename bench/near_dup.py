"""How well fingerprints tell near-duplicate pages from others, and what they cost.

    python bench/near_dup.py DATA [--text main|visible|trafilatura|resiliparse] [--pages 400] [--tokens 4] [--chart FILE.svg]

DATA is a folder with `g_near_dup` and `e_html_pages` (../shared/data). Pairs:

- docs: page pairs of `pairs.jsonl`. Twins: same page *and* 0.8 of the visible text's shingles alike; the other versions of
  a page have changed content, and siblings of a site are other pages, however much boilerplate they share.
- wiki: pages with scripted changes, labelled.
- edits: real pages changed here as the web changes pages; twins or not by the kind of change.
- articles: 1,000 texts with planted pairs, all pairs looked at; pages: all pairs of `e_html_pages`.

Thresholds were chosen on the pairs of one half (hash of the group: a page or site with all its pairs), and hold on the other.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import re
import statistics
import sys
import tarfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import datasketch
import numpy as np
from backports import zstd
from selectolax.lexbor import LexborHTMLParser

from crawlweb.content import fingerprint as fp
from crawlweb.content.page import parse_page

WORDS = ["market", "weather", "today", "league", "update", "offer", "share", "member", "story", "video", "archive", "service", "travel"]
LEAST_PARAGRAPHS = 6  # of an article that is edited
MOST_LISTED = 40


@dataclass(frozen=True)
class Text:
    """A main text and what is computed from it."""

    fingerprint: fp.Fingerprint
    hashes: np.ndarray  # of the shingles, without the title

    @classmethod
    def of(cls, main_text: str, title: str = "") -> Text:
        return cls(fp.fingerprint(b"", main_text, title), fp.shingles(fp._normalised(main_text)))


@dataclass(frozen=True)
class Pair:
    set: str
    kind: str
    group: str  # pairs of one group lie in one half
    twins: bool
    a: Text
    b: Text

    @property
    def tuned_on(self) -> bool:
        return crc32(self.group.encode()) % 2 == 0

    @property
    def short(self) -> bool:
        return min(self.a.hashes.size, self.b.hashes.size) < fp.LEAST_SHINGLES

    @property
    def same_text(self) -> bool:
        return bool(self.a.fingerprint.text_hash) and self.a.fingerprint.text_hash == self.b.fingerprint.text_hash

    @property
    def votes(self) -> int:
        return fp.votes(self.a.fingerprint.bands, self.b.fingerprint.bands)

    @property
    def hamming(self) -> int:
        a, b = self.a.fingerprint.simhash, self.b.fingerprint.simhash
        return 64 if a is None or b is None else fp.hamming(a, b)


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    shared = np.intersect1d(a, b, assume_unique=True).size
    return shared / max(1, a.size + b.size - shared)


# Texts

Reader = Callable[[bytes], Text]


def reader_of(name: str) -> Reader:
    """Makes a Text of a page."""

    def title_of(html: bytes) -> str:
        return parse_page(html, "http://site.test/").title

    if name in ("main", "visible"):

        def read(html: bytes) -> Text:
            page = parse_page(html, "http://site.test/")
            return Text.of(page.main_text if name == "main" else page.text, page.title)

        return read
    if name == "trafilatura":
        import trafilatura

        return lambda html: Text.of(trafilatura.extract(html, include_comments=False) or "", title_of(html))
    from resiliparse.extract.html2text import extract_plain_text

    def plain(html: bytes) -> str:
        return extract_plain_text(html.decode("utf-8", "replace"), main_content=True, links=False, alt_texts=False)

    return lambda html: Text.of(plain(html), title_of(html))


def files_of(archive: Path) -> Iterator[tuple[str, bytes]]:
    with zstd.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            if member.isfile() and (file := tar.extractfile(member)):
                yield member.name, file.read()


def lines_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


# Pairs that are given


def docs_pairs(folder: Path, read: Reader) -> Iterator[Pair]:
    texts = {Path(name).stem: read(html) for name, html in files_of(folder / "docs.tar.zst")}
    for row in lines_of(folder / "pairs.jsonl"):
        twins = row["same_page"] and row["label"] == "near_dup"
        kind = f"{row['set']}, {'same page' if row['same_page'] else 'other page'}, {row['label']}"
        group = row["group"].rsplit("/", 1)[0] if row["set"] == "versioned_docs" else row["group"]
        yield Pair("docs", kind, group, twins, texts[row["a"]], texts[row["b"]])


def wiki_pairs(folder: Path, read: Reader) -> Iterator[Pair]:
    texts = {Path(name).name: read(html) for name, html in files_of(folder / "html.tar.zst")}
    for row in lines_of(folder / "pairs.jsonl"):
        yield Pair("wiki", row["variant"], row["article"], bool(row["label"]), texts[row["page_a"]], texts[row["page_b"]])


# Pairs made of real pages


def phrase(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def menu(rng: random.Random, links: int) -> str:
    return "<ul>" + "".join(f'<li><a href="/{n}">{phrase(rng, 2)}</a></li>' for n in range(links)) + "</ul>"


def timestamps(html: str, rng: random.Random) -> str:
    html = re.sub(r"\b\d{1,2}:\d\d\b", lambda _: f"{rng.randrange(24)}:{rng.randrange(10, 60)}", html)
    html = re.sub(r"\b20[012]\d\b(?![-/\w.])", lambda _: str(rng.randrange(2000, 2027)), html)
    return html.replace("</p>", f"</p><p>Updated {rng.randrange(1, 29)} May 2026, {rng.randrange(10, 24)}:{rng.randrange(10, 60)}</p>", 1)


def adverts(html: str, rng: random.Random) -> str:
    ends = itertools.count()

    def with_advert(match: re.Match[str]) -> str:
        advert = f'<div class="ad">Advertisement <a href="http://ads.test/{rng.random()}">{phrase(rng, 8)}</a></div>'
        return match[0] + (advert if next(ends) % 4 == 1 else "")

    return re.sub("</p>", with_advert, html)


def tokens(html: str, rng: random.Random) -> str:
    html = re.sub(r'(href="[^"#?]+)(?=")', lambda match: f"{match[1]}?sid={rng.getrandbits(64):016x}", html)
    hidden = f'<form><input type="hidden" name="csrf" value="{rng.getrandbits(128):032x}"></form>'
    return re.sub(r"(<body[^>]*>)", lambda match: match[1] + hidden, html, count=1)


def navigation(html: str, rng: random.Random) -> str:
    html = re.sub(r"(<body[^>]*>)", lambda match: f"{match[1]}<nav>{menu(rng, 40)}</nav>", html, count=1)
    return html.replace("</body>", f"<div class=related><h3>Read on</h3>{menu(rng, 15)}</div></body>", 1)


def corrected(html: str, rng: random.Random) -> str:
    paragraphs = list(re.finditer(r"<p\b[^>]*>[^<]{60,}", html))
    for match in sorted(rng.sample(paragraphs, min(2, len(paragraphs))), key=re.Match.start, reverse=True):
        words = match[0].split(" ")
        words[rng.randrange(len(words) // 2, len(words))] = rng.choice(WORDS)
        html = html[: match.start()] + " ".join(words) + html[match.end() :]
    return html


def printed(title: str, paragraphs: list[str]) -> str:
    return f"<html><head><title>{title}</title></head><body><h1>{title}</h1>{''.join(f'<p>{p}</p>' for p in paragraphs)}</body></html>"


def templated(title: str, paragraphs: list[str], template: int) -> str:
    """The same template for the same number."""
    rng = random.Random(template)
    return (
        f"<html><head><title>{title} | {phrase(rng, 2)}</title></head><body><header><nav>{menu(rng, 30)}</nav></header>"
        f"<div class=wrap><main><article><h1>{title}</h1>{''.join(f'<p>{p}</p>' for p in paragraphs)}</article></main>"
        f"<aside><h3>{phrase(rng, 2)}</h3>{menu(rng, 20)}<p>{phrase(rng, 25)}</p></aside></div>"
        f"<footer><p>{phrase(rng, 30)}</p>{menu(rng, 12)}</footer></body></html>"
    )


def in_page(html: str, paragraphs: list[str]) -> str:
    """A real page with other paragraphs in the place of its own."""
    tree = LexborHTMLParser(html)
    own = [node for node in tree.css("p") if len(" ".join(node.text().split())) >= 80]
    for node in own[1:]:
        node.decompose()
    own[0].replace_with("PARAGRAPHS-OF-THE-OTHER")
    return (tree.html or "").replace("PARAGRAPHS-OF-THE-OTHER", "".join(f"<p>{p}</p>" for p in paragraphs))


def translated(paragraphs: list[str]) -> list[str]:
    """Every word another one, the same for the same; numbers and names stay."""

    def other(match: re.Match[str]) -> str:
        word = match[0]
        return (
            word
            if word[0].isupper() or word[0].isdigit()
            else f"{crc32(word.encode()):x}".translate(str.maketrans("0123456789", "ghijklmnop"))
        )

    return [re.sub(r"\w+", other, paragraph) for paragraph in paragraphs]


def article_of(html: str) -> tuple[str, list[str]]:
    tree = LexborHTMLParser(html)
    title = tree.css_first("title")
    paragraphs = (" ".join(node.text().split()) for node in tree.css("p"))
    kept = list(dict.fromkeys(p.replace("<", "&lt;") for p in paragraphs if len(p) >= 80))
    return (title.text().strip() if title else "").replace("<", "&lt;"), kept


def edited_pairs(pages: list[tuple[str, str]], read: Reader, seed: int) -> Iterator[Pair]:
    """Kinds of change: those of the page itself, then those that make a page of its paragraphs."""

    def text(html: str) -> Text:
        return read(html.encode("utf-8", "replace"))

    articles = [(name, html, *article_of(html)) for name, html in pages]
    for (name, html, title, paragraphs), (_, other_html, other_title, other_paragraphs) in itertools.pairwise(articles):
        rng = random.Random(f"{seed} {name}")
        original = text(html)
        for change in (timestamps, adverts, tokens, navigation, corrected):
            yield Pair("edits", change.__name__, name, True, original, text(change(html, rng)))
        print_version = text(printed(title, paragraphs))
        template = rng.randrange(10**6)
        in_template = text(templated(title, paragraphs, template))
        made: list[tuple[str, bool, Text, Text]] = [
            ("print version", True, in_template, print_version),
            ("template change", True, text(templated(title, paragraphs, template + 1)), in_template),
            ("last paragraph cut", True, print_version, text(templated(title, paragraphs[:-1], template))),
            ("on another real page", True, print_version, text(in_page(other_html, paragraphs))),
            ("other article, same real page", False, original, text(in_page(html, other_paragraphs))),
            ("teaser: first third", False, in_template, text(templated(title, paragraphs[: len(paragraphs) // 3], template))),
            ("translated", False, in_template, text(templated(title, translated(paragraphs), template))),
            ("other article, same template", False, in_template, text(templated(other_title, other_paragraphs, template))),
        ]
        for kind, twins, a, b in made:
            yield Pair("edits", kind, name, twins, a, b)


# Figures


@dataclass(frozen=True)
class Score:
    right: int
    false: int
    missed: int

    @classmethod
    def of(cls, pairs: Iterable[Pair], decide: Callable[[Pair], bool]) -> Score:
        counts = Counter((pair.twins, decide(pair)) for pair in pairs)
        return cls(counts[True, True], counts[False, True], counts[True, False])

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + self.false)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)

    @property
    def f1(self) -> float:
        return 2 * self.right / max(1, 2 * self.right + self.false + self.missed)

    def __str__(self) -> str:
        return f"{self.precision:9.3f} {self.recall:6.3f} {self.f1:6.3f}  {self.false:5} false {self.missed:5} missed"


Decide = Callable[[Pair], bool]


def by_votes(least: int) -> Decide:
    return lambda pair: pair.same_text or pair.votes >= least


def by_hamming(most: int) -> Decide:
    return lambda pair: pair.same_text or pair.hamming <= most


DECISIONS: dict[str, Decide] = {
    "exact: hash of the main text": lambda pair: pair.same_text,
    f"MinHash: {fp.VOTES_LEAST} votes": by_votes(fp.VOTES_LEAST),
    f"SimHash: Hamming {fp.HAMMING_MOST}": by_hamming(fp.HAMMING_MOST),
    "either": lambda pair: fp.is_near(pair.a.fingerprint, pair.b.fingerprint),
    "both": lambda pair: pair.same_text or (pair.votes >= fp.VOTES_LEAST and pair.hamming <= fp.HAMMING_MOST),
}


def report_pairs(pairs: list[Pair]) -> None:
    halves = {"tuned on": [pair for pair in pairs if pair.tuned_on], "reported": [pair for pair in pairs if not pair.tuned_on]}
    for half, chosen in halves.items():
        twins = sum(pair.twins for pair in chosen)
        print(f"\n{half}: {len(chosen)} pairs, {twins} twins; {'precision recall F1':>27}")
        for name, decide in DECISIONS.items():
            print(f"  {name:34} {Score.of(chosen, decide)}")
            if name == "either":
                for part in sorted({pair.set for pair in chosen}):
                    print(f"    {part:32} {Score.of([pair for pair in chosen if pair.set == part], decide)}")
    print("\nby kind, both halves: pairs, of them short; found by votes, by Hamming, by either; median exact Jaccard")
    kinds: dict[tuple[str, str, bool], list[Pair]] = defaultdict(list)
    for pair in pairs:
        kinds[pair.set, pair.kind, pair.twins].append(pair)
    for (part, kind, twins), members in sorted(kinds.items(), key=lambda item: (item[0][0], not item[0][2], item[0][1])):
        found = [sum(map(decide, members)) for decide in list(DECISIONS.values())[1:4]]
        similarity = statistics.median(jaccard(pair.a.hashes, pair.b.hashes) for pair in members)
        print(
            f"  {part:6} {kind:44} {'twins' if twins else 'not':6}{len(members):5}{sum(pair.short for pair in members):5}"
            f"   {found[0]:5}{found[1]:5}{found[2]:5}   {similarity:.2f}"
        )
    print("\nfalse twins (either), with exact Jaccard of the main texts; *: differ by at most 1 %")
    for pair in [pair for pair in pairs if not pair.twins and DECISIONS["either"](pair)][:MOST_LISTED]:
        similarity = jaccard(pair.a.hashes, pair.b.hashes)
        mark = "*" if similarity >= 0.99 or pair.same_text else " "
        print(f" {mark}{pair.set:6} {pair.kind:44} {pair.group:34} {similarity:.3f} votes {pair.votes:2} Hamming {pair.hamming:2}", end="")
        print(f" shingles {pair.a.hashes.size}, {pair.b.hashes.size}")


def curves(pairs: list[Pair]) -> dict[str, list[tuple[int, Score]]]:
    return {
        "votes": [(least, Score.of(pairs, by_votes(least))) for least in range(1, fp.BANDS + 1)],
        "Hamming": [(most, Score.of(pairs, by_hamming(most))) for most in range(17)],
    }


def report_curves(pairs: list[Pair]) -> None:
    halves = [curves([pair for pair in pairs if pair.tuned_on is tuned]) for tuned in (True, False)]
    for sketch in halves[0]:
        print(f"\n{sketch:>8}   tuned on: precision recall F1          reported: precision recall F1")
        for (threshold, tuned), (_, other) in zip(halves[0][sketch], halves[1][sketch], strict=True):
            print(f"{threshold:8} {tuned}   {other}")


def draw_curves(pairs: list[Pair], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "crawlweb", "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3), sharey=True)
    titles = {"votes": "MinHash: least votes of 16", "Hamming": "SimHash: most bits that differ of 64"}
    chosen = {"votes": fp.VOTES_LEAST, "Hamming": fp.HAMMING_MOST}
    for (sketch, points), axis in zip(curves([pair for pair in pairs if not pair.tuned_on]).items(), axes, strict=True):
        for name in ("precision", "recall", "f1"):
            axis.plot([threshold for threshold, _ in points], [getattr(score, name) for _, score in points], label=name.replace("f1", "F1"))
        axis.axvline(chosen[sketch], color="grey", linewidth=0.7)
        axis.set(xlabel=titles[sketch], ylim=(0.4, 1.01))
        axis.grid(alpha=0.3)
    axes[0].legend(loc="lower left")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None, "Creator": None})


def report_numbers(pairs: list[Pair]) -> None:
    """What other rows a band would do, on the half that is tuned on: the votes with the best F1."""
    chosen = [pair for pair in pairs if pair.tuned_on and not pair.short]
    minima = {}
    for text in itertools.chain.from_iterable((pair.a, pair.b) for pair in chosen):
        if id(text) not in minima:
            again = np.sort(fp._mixed(text.hashes))
            minima[id(text)] = np.concatenate((fp.minima_of(text.hashes), fp.minima_of(again)))
    print(f"\nrows a band, {fp.SHINGLE_TOKENS} tokens a shingle: best votes, F1; bands of strangers that agree, a pair")
    for rows in (2, 3, 4, 5, 6, 8):
        counted = []
        for pair in chosen:
            alike = minima[id(pair.a)] == minima[id(pair.b)]
            counted.append((pair.twins, int(alike[: 16 * rows].reshape(16, rows).all(axis=1).sum())))
        scores = []
        for least in range(1, 17):
            counts = Counter((twins, found >= least) for twins, found in counted)
            scores.append((Score(counts[True, True], counts[False, True], counts[True, False]).f1, least))
        strangers = [found for twins, found in counted if not twins]
        print(f"  {rows}: {max(scores)[1]:3} {max(scores)[0]:.4f}  {statistics.mean(strangers):.2f}")


def report_estimates(folder: Path) -> None:
    """Against the exact Jaccard of word 5-grams of the visible text that the data give."""
    tokens, fp.SHINGLE_TOKENS = fp.SHINGLE_TOKENS, 5
    visible = reader_of("visible")
    texts, sketches = {}, {}
    for name, html in files_of(folder / "docs.tar.zst"):
        hashes = texts[Path(name).stem] = visible(html).hashes
        sketch = datasketch.MinHash(64, seed=1)
        sketch.update_batch([value.tobytes() for value in hashes])
        sketches[Path(name).stem] = sketch
    fp.SHINGLE_TOKENS = tokens
    errors = defaultdict(list)
    rows = [row for row in lines_of(folder / "pairs.jsonl") if min(texts[row["a"]].size, texts[row["b"]].size) >= fp.LEAST_SHINGLES]
    for row in rows:
        a, b, given = texts[row["a"]], texts[row["b"]], row["jaccard_w5"]
        agreeing = fp.votes(fp.bands_of(a), fp.bands_of(b)) / fp.BANDS
        errors["exact, our shingles"].append(jaccard(a, b) - given)
        errors["64 values of one permutation"].append(float((fp.minima_of(a) == fp.minima_of(b)).mean()) - given)
        errors["64 permutations, datasketch"].append(sketches[row["a"]].jaccard(sketches[row["b"]]) - given)
        errors["votes: (agreeing bands / 16) ^ 1/4"].append(agreeing ** (1 / fp.ROWS) - given)
    print(f"\nestimates against jaccard_w5, {len(rows)} pairs: mean error, mean absolute error, 95th percentile")
    for name, values in errors.items():
        absolute = np.abs(values)
        print(f"  {name:36} {np.mean(values):+.4f} {absolute.mean():.4f} {np.percentile(absolute, 95):.4f}")


def near_pairs(texts: dict[str, Text]) -> dict[tuple[str, str], tuple[int, int]]:
    """All pairs that `is_near` finds, as an index finds them for votes; Hamming by looking at all pairs."""
    buckets: dict[object, list[str]] = defaultdict(list)
    for name, text in texts.items():
        for band in (*text.fingerprint.bands, text.fingerprint.text_hash or name):
            buckets[band].append(name)
    candidates = {pair for names in buckets.values() for pair in itertools.combinations(names, 2)}
    names = [name for name, text in texts.items() if text.fingerprint.simhash is not None]
    simhashes = np.array([texts[name].fingerprint.simhash for name in names], np.uint64)
    for index, name in enumerate(names):
        close = np.bitwise_count(simhashes[index + 1 :] ^ simhashes[index]) <= fp.HAMMING_MOST
        candidates |= {(name, names[index + 1 + other]) for other in np.flatnonzero(close)}
    found = {}
    for a, b in candidates:
        pair = Pair("", "", "", True, texts[a], texts[b])
        if DECISIONS["either"](pair):
            found[a, b] = (pair.votes, pair.hamming)
    return found


def report_articles(folder: Path) -> None:
    rows = gzip.decompress((folder / "articles_1000.train.gz").read_bytes()).decode().splitlines()
    texts = {name: Text.of(text) for name, _, text in (row.partition(" ") for row in rows)}
    truth = {tuple(sorted(line.split())) for line in (folder / "articles_1000.truth").read_text().splitlines()}
    found = {tuple(sorted(pair)) for pair in near_pairs(texts)}
    print(f"\narticles: {len(texts)} texts, {len(truth)} planted pairs: {len(found & truth)} found, {len(found - truth)} false")


def report_all_pages(texts: dict[str, Text], urls: dict[str, str]) -> None:
    found = near_pairs(texts)
    bare = {name: re.sub(r"^https?://(www\.)?|[?#].*$|/$", "", url) for name, url in urls.items()}
    other = {pair: seen for pair, seen in found.items() if bare[pair[0]] != bare[pair[1]]}
    print(f"\nall pairs of {len(texts)} pages: {len(found)} found, {len(found) - len(other)} of one URL")
    print("the others: Jaccard, votes and Hamming")
    for (a, b), seen in sorted(other.items())[:MOST_LISTED]:
        print(f"  {jaccard(texts[a].hashes, texts[b].hashes):.2f} {seen}  {urls[a][:90]}  {urls[b][:90]}")


def report_cpu(rounds: int = 15) -> None:
    rng = random.Random(6)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 11))) for _ in range(5_000)]
    text = " ".join(rng.choices(words, k=800))
    accented = text.replace("e", "é")
    han = "".join(chr(0x4E00 + rng.randrange(3_000)) for _ in range(1_600))
    long = " ".join(rng.choices(words, k=30_000))
    page = (b"<p>" + text.encode() + b"</p>\n<!-- made in 0.1 s -->\n") * 18
    hashes = fp.shingles(text)
    shingle_bytes = [" ".join(shingle).encode() for shingle in zip(*(words[n : 796 + n] for n in range(4)), strict=True)]

    def with_datasketch() -> None:
        datasketch.MinHash(64, seed=1).update_batch(shingle_bytes)

    candidates: dict[str, Callable[[], object]] = {
        "800 words: all": lambda: fp.fingerprint(b"", text),
        "800 words: text hash only": lambda: fp.fingerprint(b"", text, minhash=False, simhash=False),
        "800 words: shingles": lambda: fp.shingles(text),
        "800 words: MinHash bands": lambda: fp.bands_of(hashes),
        "800 words: SimHash": lambda: fp.simhash_of(hashes),
        "800 words, accents: all": lambda: fp.fingerprint(b"", accented),
        "1,600 Han characters: all": lambda: fp.fingerprint(b"", han),
        "30,000 words: all": lambda: fp.fingerprint(b"", long),
        f"body of {len(page) // 1000} kB: hash": lambda: fp.fingerprint(page, ""),
        "datasketch: MinHash(64) of 796 shingles": with_datasketch,
    }
    cpu_s = defaultdict(list)
    for _ in range(rounds):
        for name, candidate in candidates.items():
            candidate()
            started = time.thread_time()
            for _ in range(20):
                candidate()
            cpu_s[name].append((time.thread_time() - started) / 20)
    print("CPU, median:")
    for name, taken in cpu_s.items():
        print(f"  {name:42} {statistics.median(taken) * 1e6:8.0f} µs")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", type=Path, nargs="?", help="without it: CPU only")
    arguments.add_argument("--text", choices=("main", "visible", "trafilatura", "resiliparse"), default="main")
    arguments.add_argument("--pages", type=int, default=400, help="articles that are edited")
    arguments.add_argument("--seed", type=int, default=6)
    arguments.add_argument("--tokens", type=int, default=fp.SHINGLE_TOKENS, help="of a shingle")
    arguments.add_argument("--chart", type=Path, help="where the threshold curves are drawn (needs matplotlib)")
    options = arguments.parse_args()
    fp.SHINGLE_TOKENS = options.tokens
    report_cpu()
    if not options.data:
        return
    read = reader_of(options.text)
    near_dup = options.data / "g_near_dup"
    urls = {}
    with gzip.open(options.data / "e_html_pages" / "index.jsonl.gz", "rt") as index:
        for row in map(json.loads, index):
            urls[row["file"]] = row.get("url") or ""
    all_texts, articles = {}, []
    for archive in sorted((options.data / "e_html_pages").glob("*.tar.zst")):
        for name, html in files_of(archive):
            if urls.get(name):
                all_texts[name] = read(html)
            articles.append((name, html))
    random.Random(options.seed).shuffle(articles)
    readable = ((name, html.decode("utf-8", "replace")) for name, html in articles)
    chosen = list(itertools.islice((page for page in readable if len(article_of(page[1])[1]) >= LEAST_PARAGRAPHS), options.pages + 1))
    pairs = [
        *docs_pairs(near_dup, read),
        *wiki_pairs(near_dup / "wiki_variants", read),
        *edited_pairs(chosen, read, options.seed),
    ]
    print(f"text: {options.text}; {fp.SHINGLE_TOKENS} tokens a shingle, {fp.BANDS} bands of {fp.ROWS}")
    report_pairs(pairs)
    report_curves(pairs)
    report_numbers(pairs)
    report_estimates(near_dup)
    report_articles(near_dup / "minhash_articles")
    report_all_pages(all_texts, urls)
    if options.chart:
        draw_curves(pairs, options.chart)


if __name__ == "__main__":
    sys.exit(main())
