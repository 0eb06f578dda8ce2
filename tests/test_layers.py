"""The arrows between the layers: what a module may import. Read from the source, so that imports inside functions count too."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRAPY = ("scrapy", "twisted", "itemadapter", "parsel", "w3lib", "itemloaders")
BASE = ("crawlweb.records", "crawlweb.errors", "crawlweb.stats", "crawlweb.default_settings")
ROOMS = ("crawlweb.policy", "crawlweb.content", "crawlweb.store", "crawlweb.frontier")
WIRE = ("crawlweb.dns", "crawlweb.decode", "crawlweb.exchange", "crawlweb.in_flight")
MIDDLE = tuple(
    f"crawlweb.{name}"
    for name in (
        "worker",
        "poller",
        "admission",
        "jobs",
        "tasks",
        "outbox",
        "turns",
        "spacing",
        "job",
        "limit",
        "renewals",
        "end",
        "rulebook",
        "crawl",
        "outcome",
        "probes",
        "recovery",
        "recrawls",
        "seeds",
        "spill",
        "share",
        "rota",
        "pace",
        "starts",
        "duplicates",
        "analysis",
        "parsers",
        "contents",
    )
)
LIBRARIES = "libraries"  # whatever is installed, but not Scrapy and what belongs to it
ANYTHING = "anything"


@dataclass(frozen=True)
class Layer:
    """Modules, by name or the package they are in, and what they may import besides the standard library."""

    modules: tuple[str, ...]
    may_import: tuple[str, ...]


LAYERS = (
    Layer(BASE, ("crawlweb.errors",)),
    *(Layer((room,), (room, *BASE, LIBRARIES)) for room in ROOMS),
    Layer(WIRE, (*WIRE, *BASE, LIBRARIES)),
    Layer(MIDDLE, (*MIDDLE, *ROOMS, *BASE, "crawlweb.__version__", LIBRARIES)),
    Layer(("crawlweb",), ("crawlweb", ANYTHING)),  # addon, scheduler, spider, middlewares, …: everything below
    Layer(("spiders", "settings"), ("crawlweb", "scrapy", "spiders", "settings")),
)


def is_in(module: str, name: str) -> bool:
    return module == name or module.startswith(name + ".")


def layer_of(module: str) -> Layer:
    return next(layer for layer in LAYERS if any(is_in(module, name) for name in layer.modules))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for folder in ("crawlweb", "spiders", "settings") for path in sorted((ROOT / folder).rglob("*.py"))}
PACKAGES = {module for module, path in SOURCES.items() if path.name == "__init__.py"}


def imports(source: str, module: str) -> Iterator[str]:
    """Absolute names: of modules, and what is taken from them. `from .. import frontier` is `crawlweb.frontier`."""
    package = module if module in PACKAGES else module.rpartition(".")[0]

    def absolute(name: str, dots: int) -> str:
        if not dots:
            return name
        base = package.split(".")[: len(package.split(".")) - dots + 1]
        return ".".join([*base, *([name] if name else [])])

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node.module or "", node.level)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__"):
            name = node.args[0] if node.args else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield absolute(name.value.lstrip("."), len(name.value) - len(name.value.lstrip(".")))
            else:
                yield f"?.{ast.unparse(node)}"  # not to be known from the source: allowed nowhere below


def violations(source: str, module: str) -> list[str]:
    allowed = layer_of(module).may_import

    def is_allowed(name: str) -> bool:
        top = name.partition(".")[0]
        if any(is_in(name, other) for other in allowed) or ANYTHING in allowed:
            return True
        if top in sys.stdlib_module_names:
            return True
        return LIBRARIES in allowed and top not in (*SCRAPY, "crawlweb", "spiders", "settings", "?")

    return [name for name in imports(source, module) if not is_allowed(name)]


@pytest.mark.parametrize("module", SOURCES)
def test_a_module_imports_only_what_its_layer_may(module: str) -> None:
    assert violations(SOURCES[module].read_text(), module) == []


@pytest.mark.parametrize("module", [module for module in SOURCES if module.startswith("crawlweb.")])
def test_what_lies_below_the_project_does_not_import_it(module: str) -> None:
    found = imports(SOURCES[module].read_text(), module)
    assert [name for name in found if name.partition(".")[0] in ("spiders", "settings", "tests")] == []


@pytest.mark.parametrize("module", [module for module in SOURCES if not is_in(module, "crawlweb.cli")])
def test_nothing_imports_the_command_line(module: str) -> None:
    assert [name for name in imports(SOURCES[module].read_text(), module) if is_in(name, "crawlweb.cli")] == []


def test_importing_the_package_does_not_import_scrapy() -> None:
    tree = ast.parse((ROOT / "crawlweb" / "__init__.py").read_text())
    assert [ast.unparse(node) for node in tree.body if isinstance(node, ast.ImportFrom | ast.Import)] == [
        "from __future__ import annotations",
        "from typing import TYPE_CHECKING, Any",
    ]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("crawlweb.policy.scope", "from crawlweb.frontier import keys"),
        ("crawlweb.policy.scope", "import crawlweb.frontier.keys"),
        ("crawlweb.policy.scope", "from .. import frontier"),
        ("crawlweb.policy.scope", "from ..frontier.keys import KEYS"),
        ("crawlweb.policy", "from ..store import warc"),
        ("crawlweb.policy.scope", "from ..frontier import *"),
        ("crawlweb.policy.scope", "import crawlweb"),
        ("crawlweb.policy.scope", "from .. import __version__"),
        ("crawlweb.policy.scope", "from .. import worker"),
        ("crawlweb.policy.scope", "def late():\n    from ..content import page"),
        ("crawlweb.policy.scope", "class Late:\n    import scrapy.http"),
        ("crawlweb.policy.scope", "if TYPE_CHECKING:\n    from scrapy import Request"),
        ("crawlweb.policy.scope", "try:\n    import twisted\nexcept ImportError:\n    pass"),
        ("crawlweb.policy.scope", "import importlib\nimportlib.import_module('crawlweb.store.warc')"),
        ("crawlweb.policy.scope", "from importlib import import_module\nimport_module('..frontier.keys', __package__)"),
        ("crawlweb.policy.scope", "__import__('scrapy')"),
        ("crawlweb.policy.scope", "import importlib\nimportlib.import_module(name)"),
        ("crawlweb.frontier.frontier", "from ..policy.hosts import host_of"),
        ("crawlweb.frontier.frontier", "from ..worker import Worker"),
        ("crawlweb.content.page", "from w3lib.html import get_base_url"),
        ("crawlweb.store.warc", "import crawlweb.content.page as page"),
        ("crawlweb.records", "import msgpack"),
        ("crawlweb.errors", "from .records import Entry"),
        ("crawlweb.stats", "from . import default_settings"),
        ("crawlweb.worker", "from .scheduler import Scheduler"),
        ("crawlweb.worker", "from scrapy import Request"),
        ("crawlweb.crawl", "from . import addon"),
        ("crawlweb.seeds", "from .requests import to_fields"),
        ("crawlweb.exchange", "from .policy import retry"),
        ("crawlweb.dns", "from scrapy.resolver import CachingThreadedResolver"),
        ("spiders.web", "import redis"),
    ],
)
def test_the_guard_sees_an_arrow_that_points_the_wrong_way(module: str, source: str) -> None:
    assert violations(source, module) != []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("crawlweb.policy.scope", "from ..records import Target"),
        ("crawlweb.policy.scope", "from .. import errors"),
        ("crawlweb.policy.scope", "from . import hosts"),
        ("crawlweb.policy", "from .hosts import host_of"),
        ("crawlweb.policy.hosts", "import publicsuffixlist"),
        ("crawlweb.default_settings", "from .errors import ConfigError"),
        ("crawlweb.crawl", "from . import __version__"),
        ("crawlweb.crawl", "from .frontier.frontier import Frontier"),
        ("crawlweb.scheduler", "from scrapy import Request\nfrom .policy import retry\nfrom .crawl import Crawl"),
        ("spiders.web", "from crawlweb.spider import WebSpider"),
        ("settings.local", "from settings.base import *"),
    ],
)
def test_the_guard_lets_the_others_pass(module: str, source: str) -> None:
    assert violations(source, module) == []
