"""The files of a WARC folder: `<name>.warc.gz.open` while its writer has it locked (flock), `<name>.warc.gz` when finished, and its index
`<name>.cdxj`, which is there first.

The lock belongs to the open file description, so a forked child would keep it alive: process pools beside a writer must spawn, not fork.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ..errors import StoreError

OPEN = ".open"
WARC = ".warc.gz"


def index_path(final: Path) -> Path:
    """Of the index beside a WARC file, given in its final form."""
    return final.with_name(final.name[: -len(WARC)] + ".cdxj")


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"WARC folder {folder} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(f"WARC folder {folder} is not writable")


def create_locked(final: Path) -> int:
    """Descriptor of the new, locked open file; -1 if the name is taken or a repairer was faster.

    Between creation and lock the file looks abandoned. A repairer that comes in between finds it empty and removes it: then the lock fails,
    or it succeeds on a file that has no name any more.
    """
    path = final.with_name(final.name + OPEN)
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    except FileExistsError:
        return -1
    try:
        if lock(fd, path):
            if not final.exists():
                return fd
            os.unlink(path)
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return -1


def lock(fd: int, path: Path) -> bool:
    """Whether the lock is ours and the path still means this file: whoever had the lock before may have moved it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def pwrite(fd: int, data: bytes, offset: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, offset)
        left, offset = left[written:], offset + written
