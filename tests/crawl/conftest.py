"""Crawls that mostly wait run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

AT_ONCE = 8


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "background(function, …): what a test waits for; started before the first such test of the session")


@pytest.fixture(scope="session")
def background(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Callable[[Path], Any]], Any]]:
    """What a function of a `background` mark returned or raised. Functions take a folder of their own.

    The last begin first: they take longest."""
    marks = [mark for item in request.session.items for mark in item.iter_markers("background")]
    functions = list(dict.fromkeys(function for mark in marks for function in mark.args))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures: dict[Callable[[Path], Any], Future[Any]] = {
            f: pool.submit(f, tmp_path_factory.mktemp("crawl")) for f in reversed(functions)
        }
        yield lambda function: futures[function].result()
        for future in futures.values():
            future.cancel()


@pytest.fixture(scope="session", autouse=True)
def _begin(request: pytest.FixtureRequest) -> None:
    """Starts them before the first test of this folder, even if that one waits for none."""
    if any(item.get_closest_marker("background") for item in request.session.items):
        request.getfixturevalue("background")
