"""What the pipelines that write files share: no item is lost, whenever the process is killed.

An item goes as a line of JSON into `<name>.open`, and its page is complete only when the line is with the kernel. A file that is large,
long or old enough is finished in a thread: moved, or made into another format. One that a killed process left behind is finished by the
next process that starts with the same folder; a lock (flock) tells it from one that is written to.

Items are written at least once: a worker that dies between an item and the completion of its page gives the item again. Readers drop
rows of equal `url_key` and `fetched_at`, and keep the last `fetched_at` of a `url_key` if they want pages, not fetches.

A disk that is full, or gone, makes items wait, and so the crawl; nothing is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from itemadapter import ItemAdapter
from scrapy.utils.serialize import ScrapyJSONEncoder

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from scrapy.crawler import Crawler
    from typing_extensions import Self

logger = logging.getLogger(__name__)

RETRY_S = 5.0
LARGE_CHARS = 1 << 18  # an item of so much text is made into JSON in a thread, so that the event loop has a turn between two
_encode = ScrapyJSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class SpoolPipeline(ABC):
    """Settings: `<prefix>_DIR`, `<prefix>_FILE_BYTES` and `_FILE_ITEMS` (of a file before it is finished), `<prefix>_FILE_S` (its age)."""

    prefix: str
    suffix: str
    file_bytes = 256_000_000
    file_items = 1_000_000
    file_s = 3600.0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        settings, prefix = crawler.settings, cls.prefix
        return cls(
            Path(settings.get(f"{prefix}_DIR") or cls.prefix.lower()),
            file_bytes=settings.getint(f"{prefix}_FILE_BYTES", cls.file_bytes),
            file_items=settings.getint(f"{prefix}_FILE_ITEMS", cls.file_items),
            file_s=settings.getfloat(f"{prefix}_FILE_S", cls.file_s),
        )

    def __init__(self, folder: Path, *, file_bytes: int = 256_000_000, file_items: int = 1_000_000, file_s: float = 3600.0) -> None:
        self.folder, self.file_bytes, self.file_items, self.file_s = folder, file_bytes, file_items, file_s
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._file: BinaryIO | None = None
        self._bytes = self._items = 0
        self._file_lock, self._finish_lock = asyncio.Lock(), asyncio.Lock()
        self._writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def row(self, item: ItemAdapter) -> dict[str, Any] | None:
        """What is written of an item; None: nothing."""
        return item.asdict()

    @abstractmethod
    def finish(self, spool: Path, finished: Path) -> None:
        """Makes the finished file of one of lines, and removes the latter: in this order, so that it can be repeated. In a thread."""

    # -- Scrapy's hooks ------------------------------------------------------------------------------------------------

    async def open_spider(self) -> None:
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True)
        self._spawn(self._finish_left())

    async def process_item(self, item: Any) -> Any:
        row = self.row(ItemAdapter(item))
        if row is not None:
            is_large = sum(len(value) for value in row.values() if isinstance(value, str)) > LARGE_CHARS
            line = await asyncio.to_thread(_line, row) if is_large else _line(row)
            written = asyncio.get_running_loop().create_future()
            self._waiting.append((line, written))
            if not self._writing:
                self._writing = True
                self._spawn(self._write_all())
            await written
        return item

    async def close_spider(self) -> None:
        await self._rotate()
        while self._tasks:
            await asyncio.gather(*self._tasks)

    # -- writing: all that came meanwhile at once, in a thread -----------------------------------------------------------

    async def _write_all(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting, []
            lines = b"".join(line for line, _ in some)
            async with self._file_lock:
                while True:
                    try:
                        await asyncio.to_thread(self._append, lines)
                        break
                    except OSError as e:
                        logger.error("%s: %s; items wait, again in %.0f s", self.folder, e, RETRY_S)
                        await asyncio.sleep(RETRY_S)
            self._items += len(some)
            for _, written in some:
                if not written.done():
                    written.set_result(None)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self.file_s, lambda: self._spawn(self._rotate()))
            if self._bytes >= self.file_bytes or self._items >= self.file_items:
                await self._rotate()
        self._writing = False

    def _append(self, lines: bytes) -> None:
        while self._file is None:
            path = self.folder / f"{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(4)}.open"
            file = path.open("xb", buffering=0)
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_there(file, path):  # else a process that started meanwhile took it for one left behind
                self._file, self._bytes, self._items = file, 0, 0
        view = memoryview(lines)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError:
            self._file.truncate(self._bytes)
            self._file.seek(self._bytes)
            raise
        self._bytes += len(lines)

    # -- finishing -----------------------------------------------------------------------------------------------------

    async def _rotate(self) -> None:
        async with self._file_lock:
            file, self._file = self._file, None
            if self._timer:
                self._timer.cancel()
                self._timer = None
        if file:
            self._spawn(self._finish(file))

    async def _finish(self, file: BinaryIO) -> None:
        try:
            async with self._finish_lock:  # one at a time: each takes memory
                await asyncio.to_thread(self._finish_now, file)
        except Exception:  # whatever it is, the lines are still there
            logger.exception("%s could not be finished; the next start tries again", file.name)
        finally:
            file.close()

    async def _finish_left(self) -> None:
        for path in await asyncio.to_thread(lambda: sorted(self.folder.glob("*.open"))):
            file = await asyncio.to_thread(_open_left, path)
            if file:
                await self._finish(file)

    def _finish_now(self, file: BinaryIO) -> None:
        spool = Path(file.name)
        if os.fstat(file.fileno()).st_size == 0:
            spool.unlink()
            return
        os.fsync(file.fileno())
        self.finish(spool, spool.with_suffix(self.suffix))
        _sync_folder(self.folder)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@contextlib.contextmanager
def whole_or_not_at_all(path: Path) -> Iterator[Path]:
    """Where a file is written before it takes its name."""
    part = path.with_name(path.name + ".part")
    yield part
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)


def _line(row: dict[str, Any]) -> bytes:
    return _encode(row).encode(errors="replace") + b"\n"


def _open_left(path: Path) -> BinaryIO | None:
    """The file of a process that is dead, cut after its last whole line; None: it is alive, or another was first."""
    try:
        file = path.open("r+b", buffering=0)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = _is_there(file, path)
    except BlockingIOError:
        is_ours = False
    if not is_ours:
        file.close()
        return None
    end = size = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 65_536)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        file.truncate(end)
    return file


def _is_there(file: BinaryIO, path: Path) -> bool:
    """Does the path still mean this file?"""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
