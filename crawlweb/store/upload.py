"""Finished WARC files and their indexes go to object storage, or any other fsspec URL, behind the crawl's back.

Which files are there yet is seen in the folder: a copy that stays has `<name>.uploaded` beside it, with the URL in it; the others are gone.
So whoever works on the folder next goes on where this one stopped. One uploader at a time has a file, by its lock.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from pathlib import Path

import fsspec  # type: ignore[import-untyped]

from ..errors import StoreError, without_credentials
from .files import WARC, index_path, lock
from .repair import write_index

logger = logging.getLogger(__name__)


class Uploader:
    """`keep`: the local copies stay. Looks at the folder when woken, and every `rescan_s`: another worker may have died. While the storage
    is away it tries again after `retry_s`, twice that, …, up to `rescan_s`. StoreError if there is no such storage."""

    def __init__(self, folder: Path, url: str, *, keep: bool = True, retry_s: float = 1.0, rescan_s: float = 300.0) -> None:
        try:
            self._fs, root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError, OSError) as error:
            raise StoreError(f"{url}: {error}") from None
        self._root = root.rstrip("/")
        self._url = without_credentials(url)
        self._folder, self._keep = folder, keep
        self._retry_s, self._rescan_s = retry_s, rescan_s
        self._failed: set[str] = set()
        self._woken = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="warc-upload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """A file was finished. From any thread."""
        self._woken.set()

    def close(self, wait_s: float = 10.0) -> list[str]:
        """One more look at the folder, for `wait_s` at most: an upload that takes longer ends with the process. Blocks; for a thread.
        Returns the files that are left for whoever starts next."""
        self._closing = True
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(wait_s)
        left = [path.name for path in self._finished() if not self._is_done(path)]
        if left:
            logger.warning("%d WARC files wait in %s until a worker is started again: not at %s yet", len(left), self._folder, self._url)
        return left

    # On the thread

    def _run(self) -> None:
        failures = 0
        while True:
            self._woken.clear()
            is_last = self._closing
            failures = 0 if self._round() else failures + 1
            if is_last:
                return
            self._woken.wait(min(self._rescan_s, self._retry_s * 2 ** min(failures - 1, 30)) if failures else self._rescan_s)

    def _round(self) -> bool:
        """Whether all went well. What failed before comes last, so that no file is in the way of the others."""
        for warc in sorted(self._finished(), key=lambda path: (path.name in self._failed, path.name)):
            try:
                if not self._is_done(warc):
                    self._upload(warc)
                self._failed.discard(warc.name)
            except FileNotFoundError:
                if warc.exists():
                    return self._failure(warc, "a file or folder is missing")
            except Exception as error:  # each file system has its own errors
                return self._failure(warc, f"{type(error).__name__}: {error}"[:200])
        return True

    def _failure(self, warc: Path, why: str) -> bool:
        self._failed.add(warc.name)
        logger.warning("%s could not be uploaded to %s and will be tried again: %s", warc.name, self._url, without_credentials(why))
        return False

    def _upload(self, warc: Path) -> None:
        fd = os.open(warc, os.O_RDWR)  # not only to read: NFS wants it for a lock
        try:
            if not lock(fd, warc) or self._is_done(warc):
                return  # another uploader has it, or had it
            index = index_path(warc)
            if not index.exists():
                write_index(fd, warc)
            for path in (warc, index):
                self._put(path)
            if self._keep:
                _marker(warc).write_text(self._url)
            else:  # in this order: a file without its index gets one, an index without its file would stay
                for path in (index, _marker(warc), warc):
                    path.unlink(missing_ok=True)
        finally:
            os.close(fd)
        logger.info("uploaded %s to %s", warc.name, self._url)

    def _put(self, path: Path) -> None:
        """To the storage, where it has the right size then. A WARC file's name is given once, so one of that size is that file."""
        target = f"{self._root}/{path.name}"
        size = path.stat().st_size
        if path.name.endswith(WARC) and self._size(target) == size:
            return
        try:
            self._fs.put_file(str(path), target)
        except FileNotFoundError:
            self._fs.makedirs(self._root, exist_ok=True)
            self._fs.put_file(str(path), target)
        found = self._size(target)
        if found != size:
            raise StoreError(f"{target} has {found} B there, {size} B here")

    def _size(self, target: str) -> int | None:
        self._fs.invalidate_cache()
        with suppress(FileNotFoundError):
            return int(self._fs.info(target)["size"])
        return None

    def _finished(self) -> list[Path]:
        return list(self._folder.glob("*" + WARC))

    def _is_done(self, warc: Path) -> bool:
        try:
            return self._keep and _marker(warc).read_text(errors="replace") == self._url
        except OSError:
            return False


def _marker(warc: Path) -> Path:
    return index_path(warc).with_suffix(".uploaded")
