"""Requests of a host that takes several at a time are sent a delay apart, however long their names and connections take."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from itertools import pairwise

import pytest
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from crawlweb.dns import Address
from crawlweb.download import DownloadHandler
from crawlweb.errors import LeaseExpired
from crawlweb.records import boottime
from crawlweb.spacing import HOSTS, Spacing

APART_S = 0.1


async def starts_of(handler: DownloadHandler, metas: list[dict[str, object]], errors: list[BaseException]) -> list[float]:
    """When the requests with these metas that were answered were sent, in their order."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
            await writer.drain()
        writer.close()

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    url = f"http://several.example:{listener.sockets[0].getsockname()[1]}/"
    requests = [Request(url, meta=meta) for meta in metas]
    try:
        results = await asyncio.gather(*(handler.download_request(request) for request in requests), return_exceptions=True)
    finally:
        await handler.close()
        listener.close()
    errors += [result for result in results if isinstance(result, BaseException)]
    return sorted(request.meta["crawlweb_fetch"].started for request in requests if "crawlweb_fetch" in request.meta)


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> DownloadHandler:
    """Its resolver takes long for all that ask at the same time."""
    handler = DownloadHandler.from_crawler(get_crawler(Spider, {"CRAWLWEB_ALLOW_PRIVATE_IPS": True, "DOWNLOAD_TIMEOUT": 5}))

    async def resolve(_: str) -> Address:
        await asyncio.sleep(0.2)
        return Address("127.0.0.1", socket.AF_INET)

    monkeypatch.setattr(handler.resolver, "resolve", resolve)
    return handler


def test_a_slow_look_up_does_not_bring_them_together(handler: DownloadHandler) -> None:
    errors: list[BaseException] = []
    sent = asyncio.run(starts_of(handler, [{"crawlweb_spacing": ("several.example", APART_S)} for _ in range(4)], errors))
    assert errors == []
    assert len(sent) == 4
    assert min(after - before for before, after in pairwise(sent)) > APART_S - 0.001


def test_hosts_do_not_wait_for_one_another(handler: DownloadHandler) -> None:
    metas = [{"crawlweb_spacing": (f"h{i}.example", 60.0)} for i in range(4)]
    errors: list[BaseException] = []
    assert len(asyncio.run(starts_of(handler, metas, errors))) == 4
    assert errors == []


def test_a_turn_that_comes_too_late_gives_the_lease_back(handler: DownloadHandler) -> None:
    until = boottime() + 100
    metas = [{"crawlweb_spacing": ("several.example", 60.0), "crawlweb_deadline": until, "download_timeout": 0.5} for _ in range(2)]
    errors: list[BaseException] = []
    assert len(asyncio.run(starts_of(handler, metas, errors))) == 1
    assert [type(error) for error in errors] == [LeaseExpired]


def test_what_is_over_is_forgotten() -> None:
    async def main() -> int:
        spacing = Spacing()
        for i in range(3 * HOSTS):
            await spacing.turn(f"h{i}.example", 0.0)
        return len(spacing._next)

    assert asyncio.run(main()) <= HOSTS
