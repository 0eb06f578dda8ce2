"""Prose that looks like English to a language detector and costs little."""

from __future__ import annotations

from random import Random


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ADJECTIVES = _words("""
    old new quiet bright narrow heavy public early common distant useful warm careful modern hidden green central famous
    simple broken local annual curious formal gentle official rapid silent wooden young
""")
_NOUNS = _words("""
    harbour river market teacher station garden letter engine winter doctor museum bridge village orchard signal window
    captain library valley kitchen painter island railway council farmer lantern journal forest student theatre border
    chapel mountain printer season archive tunnel festival sailor quarry meadow factory hospital parade surveyor canal
""")
_VERBS = _words("""
    opened described followed repaired crossed visited measured painted remembered replaced reached studied sold carried
    covered noticed watched rebuilt surrounded collected answered closed divided changed
""")
_LINKING = _words("""
    near behind under beside after before through without above around beyond against
""")


def sentence(rng: Random) -> str:
    """One sentence of 9 or 14 words."""
    pick = rng.choice
    text = f"The {pick(_ADJECTIVES)} {pick(_NOUNS)} {pick(_VERBS)} the {pick(_NOUNS)} {pick(_LINKING)} the {pick(_NOUNS)}"
    if rng.random() < 0.5:
        text += f" and {pick(_VERBS)} a {pick(_ADJECTIVES)} {pick(_NOUNS)}"
    return text + "."


def prose(rng: Random, words: int) -> str:
    """At least `words` words in whole sentences."""
    sentences: list[str] = []
    while words > 0:
        sentences.append(sentence(rng))
        words -= sentences[-1].count(" ") + 1
    return " ".join(sentences)


def label(number: int) -> str:
    """Two words for a link, the same for the same number."""
    return f"{_ADJECTIVES[number % len(_ADJECTIVES)]} {_NOUNS[number * 7 % len(_NOUNS)]}"


def host_name(rng: Random, number: int) -> str:
    """A host name that no other number has."""
    suffix = rng.choice(("com", "org", "net", "de", "fr", "io", "co.uk", "com.au"))
    return f"{rng.choice(_ADJECTIVES)}-{rng.choice(_NOUNS)}{number}.{suffix}"
