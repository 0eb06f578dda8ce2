"""Test vectors of other people's libraries against ours: how many agree, and each case that does not, in a class with its reason.

    python bench/url_vectors.py VECTORS [SUFFIXES]    e.g. ../shared/data/b_url_vectors ../shared/data/k_psl
    python bench/url_vectors.py VECTORS --show purell      the single cases that differ

A library's canonical forms are not ours: its claim is that input and output are one page, and ours has to be that they have one key.
WHATWG's claim is the URL itself. A case that differs is tried again after both sides went through the rules of CLASSES, alone and
together, until they agree; one that never does is unclassified, and the status is 1.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from crawlweb.policy.canonical import Canonicalizer, canonical_url
from crawlweb.policy.hosts import HTTP, host_of, parse, parse_base

Row = dict[str, Any]
_PATH = re.compile(r"\.{0,2}/(?!/)|\w+/")
_IPV4 = re.compile(r"(?:https?://)?[\d.]+/?")


@dataclass(frozen=True)
class Case:
    """`kind`: parse (`is_` is the href, None: to be refused) · same (one page; None: to be refused) · none (no claim on http URLs: why)."""

    kind: str
    of: str
    is_: str | None
    base: str = ""


# -- what the files say ------------------------------------------------------------------------------------------------


def whatwg(row: Row) -> Case:
    return Case("parse", row["input"], None if row.get("failure") else row["href"], row.get("base") or "")


def to_ascii(row: Row) -> Case:
    if not row["input"]:
        return Case("none", "", "", "an empty name")
    return Case("parse", f"http://{row['input']}/", row["output"] and f"http://{row['output']}/")


def percent_encoding(row: Row) -> Case:
    """Of a query, in the page's encoding."""
    canonicalizer = Canonicalizer()
    found = {name: canonicalizer.targets([f"/?{row['input']}#"], "http://a.com", name)[0].url for name in row["output"]}
    is_right = found == {name: f"http://a.com/?{query}" for name, query in row["output"].items()}
    return Case("parse", "/?" + row["input"], found["utf-8"] if is_right else None, "http://a.com")


def resolved(row: Row) -> Case:
    return Case("parse", row["input"], parse(row["expected"]), row["base"])


def pair(row: Row) -> Case:
    return same(row["input"], row["expected"])


def same(one: str, other: str | None) -> Case:
    if other is not None and _PATH.match(one) and _PATH.match(other):
        return Case("same", f"http://a.com/{one}", f"http://a.com/{other}")  # paths
    one, is_ = url_of(one), other and url_of(other)
    for url in (one, is_):
        scheme = re.match(r"\s*([a-z][a-z0-9+.-]*):(?!\d+(?:/|$))", url or "", re.I)
        if scheme and scheme[1].lower() not in ("http", "https"):
            return Case("none", one, is_, "another scheme")
    return Case("same", one, is_)


def url_of(text: str) -> str:
    """Of a path, a query, a SURT, a string literal of Java."""
    text = re.sub(r"(?:\\u[0-9a-f]{4})+|\\[ntr\\]", lambda m: json.loads(f'"{m[0]}"'), text, flags=re.I)
    if surt := re.fullmatch(r"(?:(https?)://\()?([^()/]*),?\)(.*)", text):
        names, _, port = surt[2].strip(",").partition(":")
        labels = names.strip(",").split(",")
        name = f"[{surt[2]}]" if port.count(":") > 1 else ".".join(reversed(labels)) + (f":{port}" if port else "")
        return f"{surt[1] or 'http'}://{name}{surt[3]}"
    return text


def of_function(row: Row) -> Case:
    """surt, urlcanon and Safe Browsing: tests of whole forms, and of steps on the way there."""
    function, text, expected = row["func"].rpartition("/")[2].rpartition(":")[2], row["input"], row["expected"]
    if function in ("getPublicSuffix", "getPublicPrefix", "getDefaultPort", "reverseHost", "GenerateLookupHosts", "nonspecial"):
        return Case("none", text, "", "another scheme" if function == "nonspecial" else "a step that makes no URL")
    if row.get("fail"):
        return Case("same", text, None)
    if function in ("alphaReorderQuery", "alphaRorderQuery"):
        return same(f"http://a.com/?{text}", f"http://a.com/?{expected}")
    if function in ("massageHost", "attemptIPFormats", "funky_ipv4", "ParseIPAddress"):
        url = f"http://{text}/"
        if not expected:  # no address: refused, or a name
            return Case("same", url, None if canonical(url) is None or _IPV4.fullmatch(canonical(url) or "") else url)
        return same(url, f"http://{expected}/")
    if function in ("stripPathSessionID", "stripPathSessionId", "unescapeRepeatedly", "special"):
        slash = "" if text[:1] == "/" else "/"
        return same(f"http://a.com{slash}{text}", f"http://a.com{slash}{expected}")
    if function == "CanonicalHost":
        return same(re.sub(r"(//[^/:]*)(:\d+)?(/.*)?", r"\1/", text), f"http://{expected}/")
    if function == "CanonicalPath":
        return same(text, re.sub(r"(//[^/]*).*", r"\1", text) + expected)
    if function == "GeneratePatterns":
        return same(text, f"http://{expected[0]}")
    if function == "ssurt" and "//" in expected and (found := re.fullmatch(r"(.*?),//(?:(\d+):)?(https?)(?:@.*?)?:(/.*)", expected)):
        return same(text, f"{found[3]}://{'.'.join(reversed(found[1].split(',')))}{':' + found[2] if found[2] else ''}{found[4]}")
    return same(text, None if expected in ("", "-", None) else expected)


def of_java(row: Row) -> Case:
    one, other = row["arg1"], row["arg2"]
    if row["test"] == "UrlOperationsTest.java" and not one.startswith(HTTP):
        return Case("none", one, other, "a step that makes no URL")
    if row["test"] == "WaybackURLKeyMakerTest.java":
        return same(other, one) if ")" in one and "," in one else Case("none", one, other, "a step that makes no URL")
    if row["test"] in ("URLRegexTransformerTest.java", "URLParserTest.java", "UsableURIFactoryTest.java") and not one.startswith(HTTP):
        return Case("none", one, other, "a step that makes no URL")
    if row["test"] in ("BasicURLCanonicalizerTest.java", "IAURLCanonicalizerTest.java") and row["call"] == "assertEquals":
        if row["test"][0] == "I":
            return same(*(f"http://a.com/?{text}" if "=" in text or not text else f"http://{text}/" for text in (one, other)))
        if _IPV4.fullmatch(one):
            return same(f"http://{one}/", f"http://{other}/")
        if one.isascii() and other.isascii() and "://" not in one:
            return same(f"http://a.com/x{one}", f"http://a.com/x{other}")
    return same(one, other)


# -- why we differ -----------------------------------------------------------------------------------------------------


def _decoded(url: str) -> str:
    while (once := unquote(url, errors="surrogateescape")) != url:
        url = once
    return quote(url.encode(errors="surrogateescape"), safe=":/?=&;,+@()[]!$'*~")


def _sorted(url: str) -> str:
    head, mark, query = url.partition("#")[0].partition("?")
    return head + mark + "&".join(sorted(query.split("&")))


def _latin1(url: str) -> str:
    try:
        return url.encode("latin-1").decode()
    except UnicodeError:
        return re.sub(r"[\x80-\xff]+", lambda octets: quote(octets[0].encode("latin-1")), url)


def _without_dots(url: str) -> str:
    return re.sub(r"(//)\.*([^/:?#]*?)\.*(?=[:/?#]|$)", lambda m: m[1] + re.sub(r"\.+", ".", m[2]), url, count=1)


@dataclass(frozen=True)
class Rule:
    name: str
    why: str
    of: Callable[[str], str]


CLASSES = (
    Rule("no scheme", "a link without one is relative to its page",
         lambda u: u if "://" in u.partition("?")[0] else "http://" + u.lstrip("/")),
    Rule("www and a number", "www2 and the like are servers of their own on some sites", lambda u: re.sub(r"//www\d+\.", "//", u)),
    Rule("www alone", "below a public suffix www is the registered name", lambda u: re.sub(r"//www\.", "//", u, flags=re.I)),
    Rule("reserved characters decoded", "RFC 3986 §2.2: may change the meaning",
         lambda u: re.sub(r"%(?:2[1-46-9A-C]|3[ABDE]|40)", lambda m: unquote(m[0]), u, flags=re.I)),
    Rule("case of path and query", "other pages on most servers", str.lower),
    Rule("name of an index page", "another page on some servers", lambda u: re.sub(r"/(?:index|default|remove)\.\w+(?=$|\?)", "/", u)),
    Rule("port", "another server", lambda u: re.sub(r"(//[^/?#]*?):\d+(?=[/?#]|$)", r"\1", u)),
    Rule("default port of the other scheme", "443 is https, whatever is written before it", lambda u: u.replace(":443/", "/")),
    Rule("equal names sorted by value", "their order can mean something", _sorted),
    Rule("empty labels of the host", "no such name exists; nothing is fetched but a DNS error", _without_dots),
    Rule("a dot as host", "0.0.0.0 is not what a dot means", lambda u: re.sub(r"^http:/*(?:%2e)+/", "http://0.0.0.0/", u)),
    Rule("IPv4 with dots after it", "by the standard a name, by ours too", lambda u: re.sub(r"(//(?:\w+:\w+@)?[\dx.]+?)\.\.+/", r"\1/", u)),
    Rule("octets read as Latin-1", "the test file's strings are bytes", _latin1),
    Rule("hash-bang", "Google's _escaped_fragment_ is gone since 2015", lambda u: re.sub(r"\?_escaped_fragment_=.*|#!.*", "", u)),
    Rule("broken UTF-8 replaced", "pages in older encodings have such names",
         lambda u: re.sub(r"%[89A-F][0-9A-F]", "%EF%BF%BD", u) if "%EF%BF%BD" not in u else u),
    Rule("line ends of Unicode dropped", "browsers encode them", lambda u: re.sub("[\u2028\u2029]", "", u)),
    Rule("plus for a blank in a path", "there it is a plus", lambda u: u.replace("+", "%20")),
    Rule("decoded until nothing changes", "%2525 is another page than %25; made for lists of threats", _decoded),
)  # fmt: skip
BLUNT = (Rule("query dropped", "another page on most servers", lambda u: u.partition("?")[0]),)
REFUSED = Rule("no http URL by the standard", "browsers refuse it, and so do we", str)
READ_ON = Rule("slashes too many", "browsers read on", str)
TEN = 10


def canonical(url: str | None) -> str | None:
    try:
        return None if url is None else canonical_url(url)
    except ValueError:
        return None


def found(case: Case) -> str:
    """agrees · a class · `unclassified`."""
    if case.kind == "none":
        return f"no claim: {case.base}"
    if case.kind == "parse":
        try:
            href = parse(case.of, parse_base(case.base)) if case.base else parse(case.of)
        except ValueError:
            href = None
        return "agrees" if href == case.is_ else "unclassified"
    one, other = canonical(case.of), canonical(case.is_)
    if one == other and (one is not None or case.is_ is None):
        return "agrees"
    for allowed in (CLASSES, CLASSES + BLUNT):
        for count in (1, 2, 3):
            for rules in combinations(allowed, count):
                texts = [case.of, case.is_ or ""]
                for rule in rules:
                    texts = [rule.of(text) for text in texts]
                one, other = map(canonical, texts)
                if one is not None and one == other:
                    return " + ".join(rule.name for rule in rules)
    if case.is_ is None:
        return READ_ON.name if "///" in case.of else "unclassified"
    return REFUSED.name if canonical(case.of) is None else "unclassified"


SETS: tuple[tuple[str, str, Callable[[Row], Case]], ...] = (
    ("WHATWG parse and join", "wpt_urltestdata", whatwg),
    ("ada, of its own", "ada_extra_urltestdata", whatwg),
    ("IDNA (UTS 46)", "wpt_IdnaTestV2", to_ascii),
    ("ToASCII", "wpt_toascii", to_ascii),
    ("percent-encoding", "wpt_percent_encoding", percent_encoding),
    ("crawler-commons, join", "crawler_commons_resolve", resolved),
    ("crawler-commons", "crawler_commons_normalizer", pair),
    ("normalize-url", "normalize_url_js", pair),
    ("purell", "purell", pair),
    ("url-normalize", "url_normalize_py", pair),
    ("Safe Browsing", "safebrowsing_go", of_function),
    ("SURT", "surt_tests", of_function),
    ("urlcanon", "urlcanon", of_function),
    ("Heritrix, webarchive-commons", "ia_java_pairs", of_java),
)


def rows(file: Path) -> Iterator[Row]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def unstable(urls: Iterator[str]) -> list[str]:
    """URLs whose canonical form is not its own canonical form ten times over."""
    out = []
    for url in urls:
        form = first = canonical(url)
        for _ in range(TEN):
            form = canonical(form)
        if form != first:
            out.append(url)
    return out


def suffix_differences(folder: Path) -> tuple[int, list[Row]]:
    cases = [row for row in rows(folder / "test_psl.jsonl") if row["input"]]

    def wanted(row: Row) -> str | None:
        own = row["registrable_domain"] or row["input"].lower().lstrip(".")  # without one, a name is its own host
        return host_of(f"http://{own}/")

    return len(cases), [row for row in cases if host_of(f"http://{row['input'].lstrip('.')}/") != wanted(row)]


def clearurls(file: Path) -> None:
    """Its rules for all sites: which names we drop too."""
    providers = json.loads(file.read_text("utf-8"))["providers"]
    rules = [re.sub(r"^\(\?:%3F\)\?", "", rule) for key in ("rules", "referralMarketing") for rule in providers["globalRules"][key]]
    canonicalizer = Canonicalizer()
    kept = Counter[str]()
    for rule in rules:
        names = {example(rule, fill) for fill in range(4)}
        drops = {name: canonicalizer.canonical_url(f"http://a.com/?{name}=1") == "https://a.com/" for name in names}
        if not all(drops.values()):
            kept[f"{rule} ({', '.join(sorted(name for name, dropped in drops.items() if not dropped))})"] += 1
    others = sum(len(provider.get("rules", ())) for name, provider in providers.items() if name != "globalRules")
    print(f"\nClearURLs: {len(rules)} rules for all sites, {len(rules) - len(kept)} dropped by us too. Kept, wholly or in part:")
    for rule in kept:
        print(f"    {rule}")
    print(f"  {others} rules for single sites: not ours; a name that one site tracks by names a page on another")


def example(rule: str, fill: int) -> str:
    """A name that the rule means: alternatives in turn, optional parts now there, now not."""
    name = re.sub(r"\(\?:\[a-z_?\]\*\)\+|\(\?:_\[a-z\]\*\)\+", "_x", rule)
    name = re.sub(r"\[a-z_?\][*+]", "x", name)
    name = re.sub(r"\[a-z\]\?", "a" * (fill % 2), name)
    while (choice := re.search(r"\(\?:([^()]*)\)(\?)?", name)) is not None:
        options = choice[1].split("|")
        chosen = "" if choice[2] and fill % 2 else options[fill % len(options)]
        name = name[: choice.start()] + chosen + name[choice.end() :]
    return re.sub(r"(.)\?", lambda m: m[1] * (fill % 2), name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path, help="folder with the .jsonl files")
    parser.add_argument("suffixes", type=Path, nargs="?", help="folder with test_psl.jsonl")
    parser.add_argument("--show", metavar="FILE", help="print the cases of this file that do not agree")
    options = parser.parse_args()

    print(f"{'':30} {'cases':>6} {'no claim':>9} {'agree':>6} {'differ':>7}")
    why: dict[str, list[str]] = {}
    wrong = 0
    inputs: list[str] = []
    for title, name, read in SETS:
        cases = [read(row) for row in rows(options.vectors / f"{name}.jsonl")]
        inputs += [case.of for case in cases]
        results = [found(case) for case in cases]
        if options.show == name:
            for case, result in zip(cases, results, strict=True):
                if result != "agrees":
                    print(f"    {result}: {case.of!a} | {case.is_!a} | {canonical(case.of)!a} | {canonical(case.is_)!a}")
        counts = Counter(results)
        claims = sum(n for result, n in counts.items() if not result.startswith("no claim"))
        print(f"{title:30} {len(cases):6,} {len(cases) - claims:9,} {counts['agrees']:6,} {claims - counts['agrees']:7,}")
        wrong += counts["unclassified"]
        for result, count in counts.most_common():
            if result != "agrees":
                print(f"      {count:4}  {result}")
                for part in result.split(" + "):
                    why.setdefault(part, []).append(title)
    print("\nWhere we differ:")
    for rule in (*CLASSES, *BLUNT, REFUSED, READ_ON):
        if rule.name in why:
            print(f"  {rule.name}: {rule.why} ({', '.join(dict.fromkeys(why[rule.name]))})")
    inputs += [row["input"] for row in rows(options.vectors / "urlcanon_idempotence.jsonl")]
    failed = unstable(iter(inputs))
    print(f"\nIdempotent over {TEN} rounds: {len(inputs) - len(failed):,} of {len(inputs):,} inputs {failed[:3] or ''}")
    clearurls(options.vectors / "clearurls_rules_data.min.json")
    if options.suffixes:
        count, differ = suffix_differences(options.suffixes)
        print(f"\nPublic suffix list: {count} cases, {count - len(differ)} agree {differ or ''}")
        wrong += len(differ)
    if wrong or failed:
        sys.exit(f"{wrong} unclassified, {len(failed)} not idempotent")


if __name__ == "__main__":
    main()
