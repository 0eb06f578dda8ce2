"""Fingerprints: the same for the same text however it is written down, close for close texts, none for short ones."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
import unicodedata

import datasketch
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlweb.content.fingerprint import (
    BANDS,
    HAMMING_MOST,
    LEAST_SHINGLES,
    MAX_COMMENT_BYTES,
    ROWS,
    SHINGLE_TOKENS,
    SIMHASH_SAMPLE,
    TITLED_CHARS,
    VOTES_LEAST,
    bands_of,
    fingerprint,
    hamming,
    is_near,
    minima_of,
    shingles,
    simhash_of,
    votes,
)
from crawlweb.records import Fingerprint

RNG = random.Random(6)
WORDS = ["".join(RNG.choices("abcdefghijklmnopqrstuvwxyz", k=RNG.randrange(2, 11))) for _ in range(3_000)]


def words(count: int, seed: int = 1) -> list[str]:
    return random.Random(seed).choices(WORDS, k=count)


def of(text: str) -> Fingerprint:
    return fingerprint(b"", text)


def two_sets(size: int, jaccard: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted sets of hashes, each of `size`."""
    shared = round(2 * size * jaccard / (1 + jaccard))
    values = np.random.default_rng(seed).integers(0, 2**64, size=2 * size - shared, dtype=np.uint64)
    return np.sort(values[:size]), np.sort(values[size - shared :])


TEXT = "The quick brown fox, it is said, jumps over the lazy dog at 10:45. "
NUMBERED = " ".join(f"{TEXT}{n}" for n in range(20))
HAN = "".join(chr(0x4E00 + n * 7919 % 3_000) for n in range(200))
THAI = "".join(random.Random(2).choices([chr(0x0E01 + n) for n in range(46)], k=200))


@pytest.mark.parametrize(
    ("text", "text_hash", "simhash", "band"),
    [
        (NUMBERED, "8804d8f8161a592d", 0xC2C86EA9CAD95360, 0x2762A8177D599F75),
        (HAN, "5eb67a9b514deddb", 0xFA8451D8E4870BA7, 0xED1C1DD6DABD14A2),
    ],
    ids=["English", "Han"],
)
def test_values_are_those_that_lie_in_redis_already(text: str, text_hash: str, simhash: int, band: int) -> None:
    """Other ones part the pages that were fetched before an update from those that are fetched after it."""
    prints = fingerprint(b"<p>One two</p>", text, "Title")
    assert prints.body_hash.hex() == "44d17f863419a866"
    assert (prints.text_hash.hex(), prints.simhash, prints.bands[0]) == (text_hash, simhash, band)


def test_values_are_the_same_in_every_process() -> None:
    script = "import sys; from crawlweb.content.fingerprint import fingerprint; print(fingerprint(b'<p>', sys.argv[1]))"
    for seed in ("0", "1"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"}
        child = subprocess.run([sys.executable, "-c", script, NUMBERED], env=environment, stdout=subprocess.PIPE, check=True, text=True)
        assert child.stdout.strip() == str(fingerprint(b"<p>", NUMBERED))


@pytest.mark.parametrize(
    "other",
    [
        NUMBERED.upper(),
        NUMBERED.replace(" ", "\n\t "),
        f"  {NUMBERED}\n",
        NUMBERED.replace(" ", "\xa0"),
        NUMBERED.replace("fi", "ﬁ"),
        "".join(chr(ord(c) + 0xFEE0) if c.isalnum() else c for c in NUMBERED),
    ],
    ids=["capitals", "lines", "margins", "no-break spaces", "ligatures", "full width"],
)
def test_case_space_and_form_of_characters_do_not_matter(other: str) -> None:
    assert of(other) == of(NUMBERED)


def test_composed_and_decomposed_accents_are_the_same_text() -> None:
    assert of("un café crème " * 40) == of("un cafe\u0301 cre\u0300me " * 40)


def test_every_character_of_latin_1_is_spelt_as_nfkc_and_case_folding_have_it() -> None:
    """They have a way of their own."""
    for char in map(chr, range(256)):
        text = f"Un {char}mot{char}{char} de {char} plus "
        spelt = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        assert of(text).text_hash == of(spelt).text_hash == of(f"{text}\u2003").text_hash, repr(char)


def test_punctuation_matters_to_the_hash_only() -> None:
    a, b = of(NUMBERED), of(NUMBERED.replace(",", " –"))
    assert a.text_hash != b.text_hash
    assert (a.simhash, a.bands) == (b.simhash, b.bands)


def test_order_of_words_matters_and_order_of_passages_hardly() -> None:
    passages = [" ".join(words(100, seed)) for seed in range(8)]
    text, turned = " ".join(passages), " ".join(reversed(passages))
    assert votes(of(text).bands, of(turned).bands) >= VOTES_LEAST
    shuffled = text.split()
    random.Random(1).shuffle(shuffled)
    assert not is_near(of(text), of(" ".join(shuffled)))


def test_different_bodies_with_one_text_have_one_text_hash() -> None:
    a, b = fingerprint(b"<p>a", NUMBERED), fingerprint(b"<div>a", NUMBERED)
    assert a.body_hash != b.body_hash
    assert is_near(a, b)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (b"<p>One\r\n\t two </p>", True),
        (b"<p>One two</p><!-- made in 0.2 s -->", True),
        (b"<!----><p>One<!-- a --><!-- b --> two</p>", True),
        (b"<p>One two</p><!--" + b"x" * (MAX_COMMENT_BYTES - 7) + b"-->", True),
        (b"<p>One two</p><!--" + b"x" * (MAX_COMMENT_BYTES - 6) + b"-->", False),
        (b"<p>One two</p><!-- open", False),
        (b"<p>One two</p><!-->-->", True),
        (b"!<p>One two</p><!---->", False),
        (b"<p>one two</p>", False),
        (b"<P>One two</P>", False),
        (b"", False),
    ],
)
def test_bodies_are_compared_without_white_space_and_short_comments(other: bytes, same: bool) -> None:
    assert (fingerprint(other, "").body_hash == fingerprint(b"<p>One two</p>", "").body_hash) is same


def test_hashes_are_of_eight_bytes_and_no_text_has_none() -> None:
    assert len(fingerprint(b"", "a").body_hash) == len(fingerprint(b"", "a").text_hash) == 8
    assert fingerprint(b"x", " \n").text_hash == b""
    assert not is_near(fingerprint(b"x", ""), fingerprint(b"y", ""))


def test_each_sketch_can_be_left_out() -> None:
    both = of(NUMBERED)
    assert both.simhash is not None
    assert len(both.bands) == BANDS
    assert fingerprint(b"", NUMBERED, minhash=False) == Fingerprint(both.body_hash, both.text_hash, both.simhash)
    assert fingerprint(b"", NUMBERED, simhash=False) == Fingerprint(both.body_hash, both.text_hash, None, both.bands)
    assert fingerprint(b"", NUMBERED, minhash=False, simhash=False) == Fingerprint(both.body_hash, both.text_hash)


def test_short_pages_have_no_sketches() -> None:
    enough = words(LEAST_SHINGLES + SHINGLE_TOKENS - 1)
    assert of(" ".join(enough)).bands
    short = of(" ".join(enough[:-1]))
    assert short.bands == ()
    assert short.simhash is None


def test_pages_of_twenty_words_that_share_nineteen_are_no_twins() -> None:
    page = words(20)
    prints = [of(" ".join([*page[:n], f"other{n}", *page[n + 1 :]])) for n in range(20)]
    assert not any(is_near(a, b) for n, a in enumerate(prints) for b in prints[:n])


def test_short_texts_are_twins_under_one_title_only() -> None:
    notice = " ".join(words(60))
    assert len(notice) < TITLED_CHARS
    log_in, again, contact = (fingerprint(b"", notice, title) for title in ("Log in", "LOG  IN", "Contact"))
    assert log_in == again
    assert log_in.bands
    assert not is_near(log_in, contact)
    assert votes(log_in.bands, contact.bands) == 0


def test_longer_texts_are_twins_under_any_title() -> None:
    story = " ".join(words(300))
    assert len(story) >= TITLED_CHARS
    assert fingerprint(b"", story, "A story") == fingerprint(b"", story, "A story | Other site")


def test_a_word_said_again_and_again_makes_no_long_page() -> None:
    assert of("buy " * 1_000).bands == ()


@pytest.mark.parametrize("text", [HAN, THAI], ids=["Han", "Thai"])
def test_scripts_without_spaces_are_compared_by_character(text: str) -> None:
    assert shingles(text).size > 100
    edited = text[:100] + "一" + text[101:]
    assert is_near(of(text), of(edited))
    assert not is_near(of(text), of(text[::-1]))


def test_hangul_and_devanagari_are_compared_by_word() -> None:
    assert shingles("한국어 문서 하나 입니다").size == 1
    assert shingles("यह हिन्दी का पाठ").size == 1


def test_mixed_scripts_count_words_and_characters() -> None:
    assert shingles("python 入門書 basics").size == 5 - SHINGLE_TOKENS + 1


@pytest.mark.parametrize("changed", [1, 2, 3])
def test_few_changed_words_of_a_page_leave_twins(changed: int) -> None:
    page = words(400)
    edited = list(page)
    for n in range(changed):
        edited[50 + n * 100] = "changed"
    assert is_near(of(" ".join(page)), of(" ".join(edited)))


def test_strangers_are_no_twins() -> None:
    prints = [of(" ".join(words(200, seed))) for seed in range(60)]
    assert not any(is_near(a, b) for n, a in enumerate(prints) for b in prints[:n])


def test_half_of_another_page_makes_no_twin() -> None:
    page, other = words(600, 1), words(600, 2)
    assert not is_near(of(" ".join(page)), of(" ".join(page[:300] + other[:300])))


def test_very_long_pages_that_begin_alike_are_twins_and_others_are_not() -> None:
    page, other = words(60_000, 1), words(60_000, 2)
    assert is_near(of(" ".join(page)), of(" ".join([*page[:59_000], *other[:1_000]])))
    assert not is_near(of(" ".join(page)), of(" ".join(other)))


@pytest.mark.parametrize("jaccard", [0.3, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("size", [LEAST_SHINGLES, 300, 5_000])
def test_sketches_estimate_the_jaccard_similarity(size: int, jaccard: float) -> None:
    pairs = [two_sets(size, jaccard, seed) for seed in range(100)]
    estimates = [(minima_of(a) == minima_of(b)).mean() for a, b in pairs]
    exact = statistics.mean(np.intersect1d(a, b).size / np.union1d(a, b).size for a, b in pairs)
    one_sd = (exact * (1 - exact) / (BANDS * ROWS)) ** 0.5
    assert abs(statistics.mean(estimates) - exact) < 0.025
    assert statistics.stdev(estimates) < 1.3 * one_sd
    agreeing = statistics.mean(votes(bands_of(a), bands_of(b)) for a, b in pairs)
    assert abs(agreeing - BANDS * exact**ROWS) < 1


@pytest.mark.parametrize("jaccard", [0.5, 0.8, 0.95])
def test_estimates_are_as_close_as_those_of_datasketch(jaccard: float) -> None:
    ours, theirs = [], []
    for seed in range(60):
        sets = two_sets(400, jaccard, seed)
        sketches = [datasketch.MinHash(BANDS * ROWS, seed=1) for _ in sets]
        for sketch, hashes in zip(sketches, sets, strict=True):
            sketch.update_batch([value.tobytes() for value in hashes])
        ours.append(float((minima_of(sets[0]) == minima_of(sets[1])).mean()) - jaccard)
        theirs.append(sketches[0].jaccard(sketches[1]) - jaccard)
    assert statistics.mean(map(abs, ours)) < statistics.mean(map(abs, theirs)) * 1.3
    assert abs(statistics.mean(ours) - statistics.mean(theirs)) < 0.03


@pytest.mark.parametrize("size", [LEAST_SHINGLES, 800, SIMHASH_SAMPLE - 1, 20_000])
def test_simhash_of_close_sets_is_close_and_of_strangers_is_not(size: int) -> None:
    close = [hamming(*map(simhash_of, two_sets(size, 0.99, seed))) for seed in range(40)]
    strangers = [hamming(*map(simhash_of, two_sets(size, 0.0, seed))) for seed in range(40)]
    assert statistics.median(close) <= HAMMING_MOST
    assert 29 < statistics.mean(strangers) < 35
    assert min(strangers) > 3 * HAMMING_MOST


def test_simhash_is_the_majority_of_each_bit() -> None:
    hashes = np.sort(np.random.default_rng(1).integers(0, 2**64, size=999, dtype=np.uint64))
    mixed = [mixed_one(int(value)) for value in hashes]
    majority = sum(1 << bit for bit in range(64) if sum(value >> bit & 1 for value in mixed) * 2 > len(mixed))
    assert simhash_of(hashes) == majority


def mixed_one(value: int) -> int:
    """SplitMix64's finaliser, as published."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def test_bands_of_one_page_differ_from_one_another() -> None:
    assert len(set(bands_of(np.array([1], np.uint64)))) == BANDS


def test_a_sketch_of_few_hashes_is_filled_from_them() -> None:
    for seed in range(50):
        hashes = np.sort(np.random.default_rng(seed).integers(0, 2**64, size=1 + seed % 5, dtype=np.uint64))
        assert set(minima_of(hashes).tolist()) <= set(hashes.tolist())


def test_votes_of_pages_without_bands_are_none() -> None:
    assert votes((), ()) == votes(of(NUMBERED).bands, ()) == 0


def test_thresholds_can_be_set() -> None:
    a, b = of(" ".join(words(400))), of(" ".join([*words(380), *words(20, 2)]))
    assert VOTES_LEAST <= votes(a.bands, b.bands) < BANDS
    assert is_near(a, b)
    assert not is_near(a, b, votes_least=BANDS, hamming_most=-1)
    assert is_near(a, b, votes_least=BANDS, hamming_most=64)


@pytest.mark.parametrize(
    "text",
    [
        "\ud800" * 100,
        "a \udfff b " * 100,
        "\0" * 1_000,
        "a\0b " * 1_000,
        "\U0010ffff word " * 100,
        "\u0301" * 1_000,
        "ﷺ" * 1_000,
        "İ" * 1_000,
        "\u202e\u200b\ufeff" * 100,
        "🙂" * 1_000,
    ],
    ids=lambda text: ascii(text[:3]),
)
def test_odd_characters_are_taken(text: str) -> None:
    assert len(of(text).body_hash) == 8
    assert of(text) == of(text)


@given(st.binary(max_size=300), st.text(st.characters(codec=None), max_size=300))
def test_nothing_is_raised(body: bytes, text: str) -> None:
    prints = fingerprint(body, text * 3)
    assert (prints.simhash is None) is (prints.bands == ())
    assert all(0 <= band < 2**64 for band in prints.bands)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", " ".join(words(1_000_000))),
        (b"", "\u0316\u0300"[::-1] * 500_000),
        (b"", "é" * 3_000_000),
        (b"", "a" * 10_000_000),
        (b"", "漢字" * 1_000_000),
        (b"<!--" * 2_500_000, ""),
        (b"<!---->" * 500_000, ""),
        (b"<!--" * 1_000_000 + b"-->", ""),
        (b" " * 10_000_000, ""),
    ],
    ids=["words", "marks", "one accented word", "one word", "han", "open comments", "comments", "one comment", "space"],
)
def test_time_is_bounded_by_the_size(body: bytes, text: str) -> None:
    started = time.thread_time()
    fingerprint(body, text)
    assert time.thread_time() - started < 3
