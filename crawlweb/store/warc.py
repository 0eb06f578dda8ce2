"""WARC 1.1 files: every exchange as it went over the wire, readable at every moment, whatever happens to the writer.

The members of an exchange (warc_records.py) go to the kernel in one write, the response or revisit first: a file that is cut between them
holds a whole page. Names, locks and what a finished file is: files.py; what is left of a writer that died: repair.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from ..errors import StoreError
from ..records import About, Fetch, WarcRef
from .cdx import Index
from .files import OPEN, WARC, create_locked, index_path, make_folder, pwrite
from .revisits import LEAST_BYTES, Payloads, revisited
from .warc_records import Exchange, RecordMaker

_BATCH_BYTES = 8 << 20  # payload compressed and written in one go
_OUTLINK_BYTES = 100

logger = logging.getLogger(__name__)


class WarcWriter:
    """Appends exchanges to one WARC file at a time, in the order of the calls, on a thread of its own.

    Nothing is opened before the first append, so the writer may be built before a loop runs. `gzip_level` is ISA-L's,
    0 to 3. A file is full when a write took it to `max_bytes` or over that (by one batch: 8 MiB and a page at most).
    `revisit_bytes`: memory for the payloads that it knows again, about 350 B each. `on_finished` is called on the thread.
    """

    def __init__(
        self,
        folder: Path,
        writer_id: str,
        *,
        software: str,
        user_agent: str = "",
        robots: str = "obey",
        operator: str = "",
        max_bytes: int = 1_000_000_000,
        gzip_level: int = 2,
        revisit_bytes: int = 16 << 20,
        on_finished: Callable[[], None] = lambda: None,
    ) -> None:
        info = {
            "software": software,
            "format": "WARC File Format 1.1",
            "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
            "hostname": socket.gethostname(),
            "robots": robots,
            "operator": operator,
            "http-header-user-agent": user_agent,
        }
        self._info = {name: " ".join(value.split()) for name, value in info.items()}
        self._folder = folder
        self._writer_id = re.sub(r"[^A-Za-z0-9._-]", "_", writer_id)
        self._max_bytes = max_bytes
        self._on_finished = on_finished
        self._waiting: deque[tuple[Fetch, About | None, asyncio.Future[WarcRef]]] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._closed = False
        # What follows belongs to the thread.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="warc")
        self._maker = RecordMaker(gzip_level)
        self._payloads = Payloads(revisit_bytes)
        self._serial = 0
        self._fd: int | None = None
        self._name = ""
        self._index: Index | None = None  # None: there is no file, or its index could not be kept
        self._end = 0  # offset behind the last whole record
        self._empty_bytes = 0  # size of a file that holds only its warcinfo

    async def append(self, fetch: Fetch, about: About | None = None) -> WarcRef:
        """Store the exchange; it is with the kernel when this returns, so the death of the process cannot lose it. Returns where its
        response, or revisit, stands. With `about` there is a metadata record.

        StoreError when it could not be written; the file then ends as it did before. Cancelling does not take an
        exchange back.
        """
        if self._closed:
            raise StoreError(f"WARC writer of {self._folder} is closed")
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[WarcRef] = loop.create_future()
        self._waiting.append((fetch, about, stored))
        if self._flushing is None or self._flushing.done():
            self._flushing = loop.create_task(self._flush())
        return await stored

    async def close(self) -> None:
        """Write what waits and name the file finally. StoreError when that fails: the open file is left to `repair`."""
        if self._closed:
            return
        self._closed = True
        if self._flushing is not None and not self._flushing.done():
            await asyncio.wait({self._flushing})
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._finish_file)
        finally:
            self._thread.shutdown(wait=False)

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch: list[tuple[Fetch, About | None, asyncio.Future[WarcRef]]] = []
            batch_bytes = 0
            while self._waiting and batch_bytes < _BATCH_BYTES:
                fetch, about, _ = self._waiting[0]
                batch.append(self._waiting.popleft())
                batch_bytes += len(fetch.payload) + (_OUTLINK_BYTES * len(about.outlinks) if about else 0)
            results: list[WarcRef | StoreError]
            try:
                results = await loop.run_in_executor(self._thread, self._write, [(fetch, about) for fetch, about, _ in batch])
            except Exception as error:  # no append may wait for ever, whatever broke
                results = [StoreError(f"{self._folder}: {error!r}")] * len(batch)
            for (_, _, stored), result in zip(batch, results, strict=True):
                if stored.done():  # cancelled
                    continue
                if isinstance(result, StoreError):
                    stored.set_exception(result)
                else:
                    stored.set_result(result)

    # On the thread

    def _write(self, batch: list[tuple[Fetch, About | None]]) -> list[WarcRef | StoreError]:
        try:
            if self._end >= self._max_bytes:
                self._finish_file()
            fd = self._open_file() if self._fd is None else self._fd
        except StoreError as error:
            return [error] * len(batch)
        results: list[WarcRef | StoreError] = []
        exchanges: list[Exchange] = []
        end = self._end
        for fetch, about in batch:
            try:
                exchange = self._exchange(fetch, about)
            except Exception as error:  # one exchange that warcio cannot take must not fail its neighbours
                results.append(StoreError(f"{fetch.url!r} cannot be a WARC record: {error!r}"))
                continue
            results.append(WarcRef(self._name, end, len(exchange.members[0].data)))
            exchanges.append(exchange)
            end += sum(len(member.data) for member in exchange.members)
            if exchange.original is not None and len(fetch.payload) >= LEAST_BYTES and not fetch.truncated:
                self._payloads.add(exchange.original)
        try:
            pwrite(fd, b"".join(member.data for exchange in exchanges for member in exchange.members), self._end)
        except OSError as error:
            for exchange in exchanges:
                if exchange.original is not None:
                    self._payloads.forget(exchange.original)
            self._cut_back(fd)
            failed = StoreError(f"{self._folder / self._name}: {error.strerror}")
            return [result if isinstance(result, StoreError) else failed for result in results]
        begin, self._end = self._end, end
        self._add_to_index(exchanges, begin)
        return results

    def _exchange(self, fetch: Fetch, about: About | None) -> Exchange:
        payload_sha1 = hashlib.sha1(fetch.payload).digest()
        profile, original = revisited(self._folder, self._payloads, fetch, about, payload_sha1)
        return self._maker.exchange(fetch, about, payload_sha1, profile, original)

    def _add_to_index(self, exchanges: list[Exchange], offset: int) -> None:
        """Of what stands from `offset` on. An index that cannot be kept is given up, not its file."""
        if self._index is None:
            return
        try:
            for exchange in exchanges:
                for member in exchange.members:
                    if member.entry is not None:
                        self._index.add(member.entry.line(offset, len(member.data), self._name))
                    offset += len(member.data)
        except OSError as error:
            self._drop_index(error)

    def _drop_index(self, error: OSError) -> None:
        logger.warning("%s has no index: %s", self._folder / self._name, error.strerror)
        if self._index is not None:
            self._index.close()
            self._index = None

    def _open_file(self) -> int:
        make_folder(self._folder)
        fd = -1
        try:
            while fd < 0:
                self._serial += 1
                stamp = datetime.now(timezone.utc).strftime("%Y%m%d%H%M%S%f")[:17]
                self._name = f"crawlweb-{stamp}-{self._writer_id}-{self._serial:05d}{WARC}"
                fd = create_locked(self._folder / self._name)
            warcinfo = self._maker.warcinfo(self._name, self._info)
            pwrite(fd, warcinfo, 0)
        except OSError as error:
            if fd >= 0:
                with suppress(OSError):
                    os.unlink(self._open_path)
                os.close(fd)
            raise StoreError(f"WARC folder {self._folder}: {error.strerror}") from error
        self._fd, self._end, self._empty_bytes = fd, len(warcinfo), len(warcinfo)
        self._index = Index(self._folder)
        return fd

    def _finish_file(self) -> None:
        if self._fd is None:
            return
        fd, self._fd, end, self._end = self._fd, None, self._end, 0
        final = self._folder / self._name
        try:
            if end > self._empty_bytes:
                self._write_index(final)
                os.fsync(fd)  # `repair` does not look into a file with its final name
                os.rename(self._open_path, final)
            else:
                os.unlink(self._open_path)
        except OSError as error:
            raise StoreError(f"{self._open_path}: {error.strerror}") from error
        finally:
            os.close(fd)  # after the rename: a repairer must not find the name open and free
        self._on_finished()

    def _write_index(self, final: Path) -> None:
        index, self._index = self._index, None
        if index is None:
            return
        try:
            index.write(index_path(final))
        except OSError as error:
            self._drop_index(error)
        finally:
            index.close()

    def _cut_back(self, fd: int) -> None:
        try:
            os.ftruncate(fd, self._end)
        except OSError as error:  # the next append starts a new file, `repair` cuts this one
            os.close(fd)
            self._fd = None
            self._end = 0
            self._drop_index(error)

    @property
    def _open_path(self) -> Path:
        return self._folder / (self._name + OPEN)
