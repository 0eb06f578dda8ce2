"""The frontier on a real server, with a clock that tests set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig import Rig


@pytest.fixture
def rig(redis_url: str) -> Iterator[Rig]:
    rig = Rig(redis_url)
    yield rig
    rig.close()
