"""What tells twins from strangers: hashes of body and main text, SimHash and MinHash bands over the main text's shingles.

A token is a word, or one character of a script that puts no spaces between words; a shingle is `SHINGLE_TOKENS` tokens in
a row, hashed to 64 bits. Both sketches are read off the sorted set of these hashes:

- MinHash with one permutation (Li, Owen, Zhang 2012): the hash space is cut into `BANDS * ROWS` bins, a bin's minimum is
  one sketch value. Empty bins borrow from another one (Shrivastava 2017). Each `ROWS` values are hashed into a band.
  Two texts agree in about `BANDS * jaccard ** ROWS` bands: that number, the votes, is all that is compared.
- SimHash (Charikar 2002): bit i says whether most shingle hashes have bit i.

Everything is integer arithmetic modulo 2 ** 64 on code points, hence alike on every machine and in every process: the
values lie in Redis for weeks. Why these numbers: docs/decisions/near-duplicates.md.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from ..records import Fingerprint

SHINGLE_TOKENS = 4
BANDS = 16
ROWS = 4
LEAST_SHINGLES = 40  # different ones; a shorter text has no sketches
TITLED_CHARS = 800  # shorter texts count together with the title
VOTES_LEAST = 6
HAMMING_MOST = 3
MAX_SHINGLED_CHARS = 200_000  # what follows takes no part in the sketches
SIMHASH_SAMPLE = 2_048  # lowest shingle hashes that vote in a SimHash
MAX_COMMENT_BYTES = 512  # longer ones are content that scripts unpack

_Hashes = npt.NDArray[np.uint64]

_BINS = BANDS * ROWS
_BIN_STARTS: _Hashes = np.arange(_BINS, dtype=np.uint64) << np.uint64(64 - _BINS.bit_length() + 1)
_PROBES = 32  # bins that an empty bin asks, in turn

_SEPARATOR, _LETTER, _LONE = range(3)
_SEPARATORS = (
    *((0x00, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0xA9), (0xAB, 0xB4), (0xB6, 0xB9), (0xBB, 0xBF), (0xD7, 0xD7), (0xF7, 0xF7)),
    *((0x060C, 0x060C), (0x061B, 0x061F), (0x066A, 0x066D), (0x06D4, 0x06D4), (0x0964, 0x0965), (0x055A, 0x055F), (0x0589, 0x058A)),
    *((0x2000, 0x206F), (0x20A0, 0x20CF), (0x2190, 0x2BFF), (0x2E00, 0x2E7F), (0x3000, 0x3004), (0x3008, 0x3020), (0x3030, 0x3030)),
    *((0x30FB, 0x30FB), (0xD800, 0xF8FF), (0xFE00, 0xFE6F), (0xFEFF, 0xFF0F), (0xFF1A, 0xFF20), (0xFF3B, 0xFF40), (0xFF5B, 0xFF65)),
    *((0xFFF0, 0xFFFF), (0x1F000, 0x1FAFF)),
)
_LONES = (  # Thai, Lao, Tibetan, Burmese; Khmer; Kana, Bopomofo; Kana, Han; Han beyond the first plane
    *((0x0E01, 0x109F), (0x1780, 0x17D3), (0x3005, 0x3007), (0x3031, 0x30FA), (0x30FC, 0x312F), (0x31A0, 0x31FF)),
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x1B000, 0x1B16F), (0x20000, 0x3FFFE)),
)
_KINDS = np.full(0x40000, _LETTER, np.uint8)  # by code point; those beyond are read as the last
for _kind, _ranges in ((_LONE, _LONES), (_SEPARATOR, _SEPARATORS)):
    for _first, _last in _ranges:
        _KINDS[_first : _last + 1] = _kind

_NOT_NARROW, _SHARP_S = b"\0", b"\xdf"
_NOT_ONE = "\0\xa8\xaf\xb4\xb5\xb8\xbc\xbd\xbe"  # of Latin-1, what becomes several characters, or one beyond it
_NARROW = b"".join(
    _NOT_NARROW if char in _NOT_ONE else b" " if char.isspace() else unicodedata.normalize("NFKC", char).lower().encode("latin-1")
    for char in map(chr, range(256))
)
_PIECE = re.compile(r".{0,255}\s|.{1,256}", re.DOTALL)
_WHITE = b" \t\n\r\f\v"


_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _mixed(hashes: _Hashes) -> _Hashes:
    """Every bit of the input moves every bit of the output (finaliser of SplitMix64)."""
    mixed: _Hashes = hashes >> _SHIFTS[0]
    mixed ^= hashes
    mixed *= _FACTORS[0]
    mixed ^= mixed >> _SHIFTS[1]
    mixed *= _FACTORS[1]
    mixed ^= mixed >> _SHIFTS[2]
    return mixed


_BASE = 0x9E3779B97F4A7C15  # odd: it has an inverse modulo 2 ** 64
_POWERS: _Hashes = np.cumprod(np.full(MAX_SHINGLED_CHARS, _BASE, np.uint64), dtype=np.uint64)
_INVERSE_POWERS: _Hashes = np.cumprod(np.full(MAX_SHINGLED_CHARS, pow(_BASE, -1, 2**64), np.uint64), dtype=np.uint64)
_STEP = np.uint64(0xD6E8FEB86659FD93)
_PROBED = (_mixed(np.arange(1, _BINS * _PROBES + 1, dtype=np.uint64) * np.uint64(_BASE)) % np.uint64(_BINS)).reshape(_BINS, _PROBES)
_BAND_SEEDS: _Hashes = _mixed(np.arange(1, BANDS + 1, dtype=np.uint64))


def fingerprint(body: bytes, main_text: str, title: str = "", *, minhash: bool = True, simhash: bool = True) -> Fingerprint:
    """Of a page. Raises nothing, whatever it is; takes time in proportion to the lengths.

    The body is compared without white space and without comments of up to `MAX_COMMENT_BYTES` (they tell when a page was
    made, and by whom); the text as NFKC, in one case, white space folded. What is found as the main text of a page without
    any is a notice that other pages of the site have too: texts of less than `TITLED_CHARS` are alike only under one title.
    """
    text = _normalised(main_text)
    heading = _normalised(title) if len(text) < TITLED_CHARS else ""
    body_hash = _hash(_without_comments(body).translate(None, _WHITE))
    text_hash = _hash(f"{heading}\0{text}".encode("utf-8", "surrogatepass")) if text else b""
    if not (minhash or simhash):
        return Fingerprint(body_hash, text_hash)
    hashes = shingles(text, heading)
    if hashes.size < LEAST_SHINGLES:
        return Fingerprint(body_hash, text_hash)
    return Fingerprint(
        body_hash,
        text_hash,
        simhash_of(hashes) if simhash else None,
        bands_of(hashes) if minhash else (),
    )


def votes(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Bands in which two texts agree."""
    return sum(map(int.__eq__, a, b))


def hamming(a: int, b: int) -> int:
    """Bits in which two SimHashes differ."""
    return (a ^ b).bit_count()


def is_near(a: Fingerprint, b: Fingerprint, votes_least: int = VOTES_LEAST, hamming_most: int = HAMMING_MOST) -> bool:
    """Are the main texts twins, by whichever sketch both have?"""
    if a.text_hash and a.text_hash == b.text_hash:
        return True
    if votes(a.bands, b.bands) >= votes_least:
        return True
    return a.simhash is not None and b.simhash is not None and hamming(a.simhash, b.simhash) <= hamming_most


def shingles(text: str, heading: str = "") -> _Hashes:
    """Hashes of the different shingles of a normalised text, ascending; others under another heading. A text of fewer tokens
    than a shingle has none."""
    text = text[:MAX_SHINGLED_CHARS]
    points: npt.NDArray[Any]
    try:
        points = np.frombuffer(text.encode("latin-1"), np.uint8)
    except UnicodeEncodeError:
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    kinds = _KINDS.take(points, mode="clip")
    in_token = kinds != _SEPARATOR
    begins = kinds == _LETTER
    begins[1:] &= ~begins[:-1]
    begins |= kinds == _LONE
    starts = np.flatnonzero(begins)
    if starts.size < SHINGLE_TOKENS:
        return np.empty(0, np.uint64)
    terms = points * in_token * _POWERS[: points.size]
    sums = np.cumsum(terms)
    firsts = sums[starts] - terms[starts]  # of what comes before each token
    tokens = np.append(firsts[1:], sums[-1:])
    tokens -= firsts
    tokens = _mixed(tokens * _INVERSE_POWERS[starts])
    last = tokens.size - SHINGLE_TOKENS + 1
    rows = tokens[:last]
    for offset in range(1, SHINGLE_TOKENS):
        rows = rows * _STEP + tokens[offset : last + offset]
    if heading:
        rows = rows ^ np.frombuffer(_hash(heading.encode("utf-8", "surrogatepass")), "<u8")
    hashes = _mixed(rows)
    hashes.sort()
    return hashes[np.concatenate(((True,), hashes[1:] != hashes[:-1]))]


def minima_of(hashes: _Hashes) -> _Hashes:
    """MinHash sketch of one or more ascending hashes: the lowest of each bin. Two texts share a value with the probability
    of their Jaccard similarity."""
    firsts = np.searchsorted(hashes, _BIN_STARTS)
    ends = np.append(firsts[1:], hashes.size)
    filled = ends > firsts
    if not filled.all():
        empty = np.flatnonzero(~filled)
        asked = _PROBED[empty]
        answers = filled[asked]
        donors = asked[np.arange(empty.size), answers.argmax(axis=1)]
        donors[~answers.any(axis=1)] = np.flatnonzero(filled)[0]
        firsts[empty] = firsts[donors]
    return hashes[firsts]


def bands_of(hashes: _Hashes) -> tuple[int, ...]:
    """LSH bands of one or more ascending hashes. Different bands have different values, whatever the text."""
    rows = minima_of(hashes).reshape(BANDS, ROWS)
    band = _BAND_SEEDS
    for row in range(ROWS):
        band = _mixed(band * _STEP + rows[:, row])
    return tuple(band.tolist())


def simhash_of(hashes: _Hashes) -> int:
    """SimHash of one or more ascending hashes; a long text's `SIMHASH_SAMPLE` lowest ones stand for it."""
    sample = _mixed(hashes[:SIMHASH_SAMPLE])  # the lowest of 2 ** 64 have no high bits
    bits = np.unpackbits(sample.astype("<u8").view(np.uint8), bitorder="little").view(np.uint64)
    sums = np.add.reduceat(bits.reshape(-1, 8), np.arange(0, sample.size, 255), axis=0)  # eight counters of a byte in a word
    counts = sums.view(np.uint8).reshape(-1, 64).sum(axis=0, dtype=np.uint32)
    return int.from_bytes(np.packbits(counts * 2 > sample.size, bitorder="little").tobytes(), "little")


def _normalised(text: str) -> str:
    """One spelling of a text. Piece by piece, since NFKC takes time with the square of a run of combining marks."""
    try:
        narrow = text.encode("latin-1").translate(_NARROW)
    except UnicodeEncodeError:
        narrow = _NOT_NARROW
    if _NOT_NARROW not in narrow:
        narrow = narrow.replace(_SHARP_S, b"ss").strip()
        return (narrow if b"  " not in narrow else b" ".join(narrow.split())).decode("latin-1")
    text = "".join([unicodedata.normalize("NFKC", piece) for piece in _PIECE.findall(text)]).casefold().replace("\n", " ")
    return text.strip() if "  " not in text and text.isprintable() else " ".join(text.split())


def _without_comments(body: bytes) -> bytes:
    pieces = []
    kept_from = mark = 0
    while (mark := body.find(b"!", mark)) >= 0:  # one byte is found four times as fast as four
        if not body.startswith(b"<!--", mark - 1):
            mark += 1
            continue
        if (end := body.find(b"-->", mark + 3)) < 0:
            break
        end += 3
        if end - mark < MAX_COMMENT_BYTES:
            pieces.append(body[kept_from : mark - 1])
            kept_from = end
        mark = end
    pieces.append(body[kept_from:])
    return b"".join(pieces)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()
