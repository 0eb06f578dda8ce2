"""Scrapy's downloader without queues of its own: the frontier has said when a host may be asked, so a leased request goes straight to the
download handler. Middlewares, signals and the bound of CONCURRENT_REQUESTS are Scrapy's."""

from __future__ import annotations

import asyncio
from time import monotonic
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from pydispatch import dispatcher  # type: ignore[import-untyped]
from scrapy import signals
from scrapy.core.downloader import Downloader as ScrapyDownloader
from scrapy.exceptions import _InvalidOutput
from scrapy.http import Request, Response
from scrapy.utils.defer import _process_pending_io, ensure_awaitable
from scrapy.utils.python import global_object_name
from twisted.internet.defer import Deferred

from .scheduler import DOWNLOAD_SLOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider

_ANYBODY = id(dispatcher.Any)


class Downloader(ScrapyDownloader):
    def fetch(self, request: Request, spider: Spider | None = None) -> Deferred[Response | Request]:  # noqa: ARG002
        self.active.add(request)
        return Deferred.fromFuture(asyncio.get_running_loop().create_task(self._fetch(request)))

    async def _fetch(self, request: Request) -> Response | Request:
        """As `DownloaderMiddlewareManager.download_async`: a middleware that answers at once is not waited for."""
        middleware = self.middleware
        try:
            if middleware._mw_methods_requiring_spider:  # outdated ones
                return await middleware.download_async(self._enqueue_request, request)
            try:
                answer: Response | Request = await self._ask(request)
            except Exception as error:
                await _process_pending_io()
                answer = await middleware._process_exception(error, request)
            if isinstance(answer, Request):
                return answer
            for method in middleware.methods["process_response"]:
                assert method is not None
                given = method(request=request, response=answer)
                answer = given if isinstance(given, Response) else await _checked(method, given, "Response or Request")
                if isinstance(answer, Request):
                    return answer
            return answer
        finally:
            self.active.remove(request)

    async def _ask(self, request: Request) -> Response | Request:
        for method in self.middleware.methods["process_request"]:
            assert method is not None
            answer = method(request=request)
            if answer is not None:
                answer = await _checked(method, answer, "None, Response or Request", may_be_none=True)
                if answer is not None:
                    return answer  # type: ignore[no-any-return]
        return await self._enqueue_request(request)

    async def _enqueue_request(self, request: Request) -> Response:
        if self.get_slot_key(request) != DOWNLOAD_SLOT:
            return await super()._enqueue_request(request)
        _, slot = self._get_slot(request)
        slot.active.add(request)
        self._tell(signals.request_reached_downloader, request)
        slot.transferring.add(request)
        slot.lastseen = monotonic()
        try:
            response = await self.handlers.download_request_async(request)
            self._tell(signals.response_downloaded, request, response=response)
            return response
        except Exception:
            await _process_pending_io()
            raise
        finally:
            slot.transferring.remove(request)
            self._tell(signals.request_left_downloader, request)
            slot.active.remove(request)

    def _tell(self, signal: object, request: Request, **more: Any) -> None:
        """Finding out that nobody listens takes Scrapy longer than all else that is done here."""
        for sender in (id(self.signals.sender), _ANYBODY):
            listeners = dispatcher.connections.get(sender)
            if listeners and (listeners.get(signal) or listeners.get(dispatcher.Any)):
                self.signals.send_catch_log(signal=signal, request=request, spider=self.crawler.spider, **more)
                return


async def _checked(method: Callable[..., Any], answer: Any, expected: str, may_be_none: bool = False) -> Any:
    """What a middleware has answered, waited for where it has to be."""
    if isinstance(answer, CoroutineType):
        answer = await answer
    elif not isinstance(answer, (Response, Request)):
        answer = await ensure_awaitable(answer, _warn=global_object_name(method))
    if not (isinstance(answer, (Response, Request)) or (may_be_none and answer is None)):
        raise _InvalidOutput(f"Middleware {method.__qualname__} must return {expected}, got {answer.__class__.__name__}")
    return answer
