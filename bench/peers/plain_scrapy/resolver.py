"""Every name is this machine."""

from __future__ import annotations

from typing import Any

from scrapy.resolver import CachingThreadedResolver
from twisted.internet.defer import Deferred, succeed


class LoopbackResolver(CachingThreadedResolver):
    def getHostByName(self, name: str, timeout: Any = ()) -> Deferred[str]:  # noqa: ARG002
        return succeed("127.0.0.1")
