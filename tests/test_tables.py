"""What the tables say is what the code does: settings, stats, Redis keys, failures, and the pages made from them."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from crawlweb.default_settings import NAMES, Config, setting_name
from crawlweb.frontier.keys import KEYS
from crawlweb.policy import retry
from crawlweb.policy.retry import FAILURES
from crawlweb.stats import NOT_SUMMED, STATS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "crawlweb"
MODULES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
LUA = {path.name: path.read_text() for path in sorted((PACKAGE / "frontier" / "lua").glob("*.lua"))}
HOLE = "<>"  # what a name is not known of before it is used


def nodes(*but: str) -> Iterator[ast.AST]:
    for name, tree in MODULES.items():
        if name not in but:
            yield from ast.walk(tree)


def texts(node: ast.AST | None) -> Iterator[str]:
    """The strings that an expression may be; an f-string's values are holes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)


def called(node: ast.AST) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def matches(name: str, row: str) -> bool:
    """`row` may hold a <placeholder>, a name a hole: one part of a path each."""
    name_parts, row_parts = name.split("/"), row.split("/")
    return len(name_parts) == len(row_parts) and all(r[0] == "<" or n == r for n, r in zip(name_parts, row_parts, strict=True))


def unmatched(names: Iterable[str], rows: Iterable[str]) -> tuple[list[str], list[str]]:
    """Names without a row, rows without a name."""
    names, rows = sorted(set(names)), sorted(set(rows))
    return (
        [name for name in names if not any(matches(name, row) for row in rows)],
        [row for row in rows if not any(matches(name, row) for name in names)],
    )


# -- pages ---------------------------------------------------------------------------------------------------------------


def test_the_generated_pages_are_up_to_date() -> None:
    check = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")


LINK = re.compile(r"\[[^]]*\]\(([^)#:\s]+)(?:#[^)]*)?\)")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "bench").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()] == []


def test_every_page_of_the_documentation_is_in_an_index() -> None:
    linked = {
        (index.parent / target).resolve()
        for index in (ROOT / "README.md", ROOT / "docs" / "README.md", ROOT / "docs" / "decisions" / "README.md")
        for target in LINK.findall(index.read_text())
    }
    pages = sorted((ROOT / "docs").rglob("*.md"))
    assert [page.relative_to(ROOT).as_posix() for page in pages if page.resolve() not in linked] == []


# -- settings ------------------------------------------------------------------------------------------------------------


def reads() -> set[str]:
    """Fields of Config and names of settings that code outside the table reads."""
    found: set[str] = set()
    for node in nodes("crawlweb/default_settings.py"):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = node.value
            if (owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else "") == "config":
                found.add(node.attr)
        elif isinstance(node, ast.Call) and called(node).startswith("get"):
            for text in (text for argument in node.args for text in texts(argument)):
                found.update(row.name for name, row in NAMES.items() if name == text)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "getattr(config, name)" in ast.unparse(node):
            found.update(text for inner in ast.walk(node) for text in texts(inner))
    return found


@pytest.mark.parametrize("row", fields(Config), ids=setting_name)
def test_a_setting_is_read(row: object) -> None:
    assert row.name in reads()  # type: ignore[attr-defined]


@pytest.mark.parametrize("folder", ["crawlweb", "settings", "spiders", "docs", "bench", "README.md", "CHANGELOG.md", "Makefile"])
def test_settings_that_are_named_exist(folder: str) -> None:
    at = ROOT / folder
    files = [at] if at.is_file() else [path for kind in ("*.py", "*.md", "*.lua") for path in at.rglob(kind)]
    named = {name for path in files for name in re.findall(r"\bCRAWLWEB_[A-Z][A-Z_]*[A-Z]\b", path.read_text())}
    assert named - NAMES.keys() == set()


# -- stats ---------------------------------------------------------------------------------------------------------------

FAMILIES = {name.split("/")[1] for name in STATS}


def is_counter(function: ast.expr) -> bool:
    """`count(…)`, `self._count(…)`, `self._inc(…)`, `self._gauge(…)`, `….hooks.count(…)`, `….scheduler.count(…)`, not `text.count(…)`."""
    if isinstance(function, ast.Attribute):
        owner = ast.unparse(function.value)
        ours = owner.endswith(("hooks", "scheduler")) or (owner == "self" and function.attr == "count")
        return function.attr in ("_count", "_inc", "_gauge") or (function.attr == "count" and ours)
    return isinstance(function, ast.Name) and function.id == "count"


def counted() -> Iterator[str]:
    """Names of stats in the code, without the prefix: those given to a counter, and those that a verdict carries."""
    for node in nodes("crawlweb/stats.py"):
        if isinstance(node, ast.Call) and node.args and is_counter(node.func):
            yield from texts(node.args[0])
        elif called(node) in ("inc_value", "set_value", "max_value") and isinstance(node, ast.Call):
            yield from (text.removeprefix("crawlweb/") for text in texts(node.args[0]) if text.startswith("crawlweb/"))
        elif called(node) == "Verdict" and isinstance(node, ast.Call) and len(node.args) > 1:
            yield from texts(node.args[1])
    for node in ast.walk(MODULES["crawlweb/outcome.py"]):
        yield from (text for text in texts(node) if text.split("/")[0] in FAMILIES and text != HOLE and " " not in text)


def test_every_stat_that_is_counted_is_in_the_table_and_the_other_way_round() -> None:
    names = {name for name in counted() if re.fullmatch(r"[a-z0-9_]+(/([a-z0-9_]+|<>))*", name)}
    rows = {name.removeprefix("crawlweb/") for name in STATS}
    assert unmatched(names, rows) == ([], [])


def test_a_state_is_not_summed_over_workers() -> None:
    calls = [node for node in nodes() if isinstance(node, ast.Call) and called(node).lstrip("_") == "gauge" and node.args]
    names = {text for node in calls for text in texts(node.args[0])}
    assert unmatched(names, {name.removeprefix("crawlweb/") for name in NOT_SUMMED})[0] == []


def test_every_counter_of_the_scripts_is_in_the_table_and_the_other_way_round() -> None:
    names = {name for text in LUA.values() for name in re.findall(r"\bcount\('(\w+)'", text)}
    names |= {name for text in LUA.values() for name in re.findall(r"add_to\(CTR, '(\w+)'", text)}
    (ctr,) = (key for key in KEYS if key.name == "ctr")
    assert set(ctr.meaning.partition("counters: ")[2].split(", ")) == names


# -- Redis keys ----------------------------------------------------------------------------------------------------------


def stem(name: str) -> str:
    """`front:<k>` and `front:` are `front`."""
    return name.partition("<")[0].rstrip(":")


def key_names(scope: str) -> set[str]:
    return {stem(key.name) for key in KEYS if key.scope == scope}


CRAWL_WIDE = ("pages.lua", "events.lua", "aside.lua")  # scripts of keys outside the partitions


def lua_keys(*files: str) -> set[str]:
    names = set() if files else {"ctr"}  # KEYS[1]
    for text in [text for name, text in LUA.items() if (name in files if files else name not in CRAWL_WIDE)]:
        code = re.sub(r"--.*", "", text)
        names.update(re.findall(r"TAG \.\. '([^']+)'", code))
        for choice in re.findall(r"TAG \.\. \(([^)]*)\)", code):
            names.update(re.findall(r"\b(?:and|or) '([^']+)'", choice))
    return {stem(name) for name in names}


def test_every_key_of_the_scripts_is_in_the_table() -> None:
    assert lua_keys() - key_names("partition") - key_names("addresses") - key_names("starts") - key_names("fingerprints") == set()


def test_every_key_of_a_partition_in_the_table_is_used_by_a_script() -> None:
    assert (key_names("partition") | key_names("addresses") | key_names("starts")) - lua_keys() == set()


def python_keys() -> tuple[set[str], set[str]]:
    """Names given to `Frontier.key(partition, name)`, and to `Meta._key(name)` or `crawl_key(crawl, name)`."""
    partition: set[str] = set()
    crawl: set[str] = set()
    for node in nodes():
        if not isinstance(node, ast.Call):
            continue
        if called(node) == "key" and len(node.args) == 2:
            starts = (text.partition(HOLE)[0] for text in texts(node.args[1]))
            partition.update(stem(start) for start in starts if start)  # else: a queue that the frontier named
        elif called(node) in ("_key", "crawl_key") and node.args:
            crawl.update(stem(text) for text in texts(node.args[-1]))
    loop_names = {  # `for name in ("ready", …)` around a call of key
        text
        for node in ast.walk(MODULES["crawlweb/frontier/frontier.py"])
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple)
        for element in node.iter.elts
        for text in texts(element)
    }
    return partition | loop_names, crawl


def test_every_key_of_the_client_is_in_the_table() -> None:
    partition, crawl = python_keys()
    crawl |= lua_keys(*CRAWL_WIDE)
    assert (partition - key_names("partition"), crawl ^ key_names("crawl")) == (set(), set())


# -- failures ------------------------------------------------------------------------------------------------------------


def raised() -> set[str]:
    """Kinds given to FetchError, directly or by the resolver's record of a failure and its tables."""
    kinds: set[str] = set()
    for node in nodes():
        if called(node) in ("FetchError", "_Failure") and isinstance(node, ast.Call) and node.args:
            kinds.update(texts(node.args[0]))
    for node in ast.walk(MODULES["crawlweb/dns.py"]):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("dns_"):
            kinds.add(node.value)
    return kinds


def test_every_kind_of_failure_that_a_fetch_raises_has_a_row() -> None:
    assert raised() - FAILURES.keys() == set()


def test_every_row_of_failures_is_used() -> None:
    dicts = (node for node in ast.walk(MODULES["crawlweb/policy/retry.py"]) if isinstance(node, ast.Dict))
    table = next(node for node in dicts if len(node.keys) == len(FAILURES))
    keys = {id(key) for key in table.keys}
    named = {text for node in nodes() if id(node) not in keys for text in texts(node)} | {retry.status_kind(n) for n in range(100, 600)}
    assert FAILURES.keys() - named == set()


# -- dependencies --------------------------------------------------------------------------------------------------------


def dependencies() -> set[str]:
    """Names in install_requires of setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].split("\n")
    return {found[0].replace("_", "-") for line in lines if (found := re.match(r"[A-Za-z0-9_.-]+", line.strip()))}


BROUGHT_ALONG = {"twisted": "scrapy", "pydispatch": "scrapy", "pycares": "aiodns", "typing-extensions": "nothing at run time"}
AS_TEXT = {"uvloop"}  # named in a setting, not imported


def imported() -> set[str]:
    """Third-party modules, dotted with what is taken from them, as names of distributions are spelt: `backports-zstd`."""
    names: set[str] = set()
    for node in nodes():
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    inside = {*sys.stdlib_module_names, "compression", "crawlweb"}  # compression: since Python 3.14
    outside = {name for name in names if name.partition(".")[0] not in inside}
    return {name.replace("_", "-").replace(".", "-") for name in outside}


def is_of(name: str, distribution: str) -> bool:
    return f"{name}-".startswith(f"{distribution}-")


def test_every_dependency_is_imported() -> None:
    names = imported() | AS_TEXT
    assert {found for found in dependencies() if not any(is_of(name, found) for name in names)} == set()


def test_everything_imported_is_a_dependency() -> None:
    known = dependencies() | BROUGHT_ALONG.keys()
    assert {name for name in imported() if not any(is_of(name, other) for other in known)} == set()


def test_every_dependency_has_its_reason_in_the_documentation() -> None:
    table = (ROOT / "docs" / "decisions" / "dependencies.md").read_text()
    assert set(re.findall(r"^\| ([a-z][a-z0-9-]*) \d", table, re.M)) == dependencies()


# -- the guards themselves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "row", "same"),
    [
        ("status/<>", "status/<code>", True),
        ("redirects/too_many", "redirects/<why>", True),
        ("redirects", "redirects/<why>", False),
        ("robots/fetched/<>", "robots/fetched", False),
        ("links/new", "links/seen", False),
    ],
)
def test_a_placeholder_stands_for_one_part(name: str, row: str, same: bool) -> None:
    assert matches(name, row) is same


def test_what_stands_on_one_side_only_is_named() -> None:
    assert unmatched(["pages", "errors/<>", "new"], ["pages", "errors/<kind>", "old"]) == (["new"], ["old"])
