"""WARC 1.1 files: every exchange as it went over the wire, readable at every moment, whatever happens to the writer.

A file in the making is called `<name>.warc.gz.open` and locked (flock) by its writer; finished, it is `<name>.warc.gz`.
Whoever finds an open file that nobody has locked may finish it: its writer is dead. The lock belongs to the open file
description, so a forked child would keep it alive: process pools beside a writer must spawn, not fork.

Each record is a gzip member of its own. The response comes first, then the request, which is concurrent to it: a file
cut between the two holds a whole page.

The stored head agrees with the stored payload (de-chunked, still content-encoded). What no longer fits is renamed, as
Common Crawl does it: `Transfer-Encoding` to `X-Crawler-Transfer-Encoding`, a `Content-Length` that differs to
`X-Crawler-Content-Length`. Every other byte of a head stays, unless a reader would stop at it
(`stored_response_head`).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import socket
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

from isal import isal_zlib
from warcio.recordloader import ArcWarcRecordLoader
from warcio.statusandheaders import StatusAndHeaders, StatusAndHeadersParser
from warcio.warcwriter import WARCWriter

from crawlweb.errors import StoreError
from crawlweb.records import Fetch, WarcRef

_OPEN = ".open"
_GZIP_WBITS = 31
_BATCH_BYTES = 8 << 20  # payload compressed and written in one go
_SCAN_BYTES = 64 << 10  # about six records: what is left of a piece is copied at each member's end
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_VERBS = tuple(verb.encode() for verb in ArcWarcRecordLoader.HTTP_VERBS)

_STATUS_LINE = re.compile(rb"HTTP/1\.[01]", re.IGNORECASE)
_FRAMING = re.compile(
    rb"^(Transfer-Encoding|Content-Length)([ \t]*:)([^\n]*\n(?:[ \t][^\n]*\n)*)",  # with continuation lines
    re.IGNORECASE | re.MULTILINE,
)
_INVISIBLE_LINE = re.compile(rb"^[^!-~\n]*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Repaired:
    """A file that its writer left open."""

    file: str  # name in its final form
    kept_bytes: int  # 0: it held no exchange and was removed
    cut_bytes: int  # behind the last whole record


class WarcWriter:
    """Appends exchanges to one WARC file at a time, in the order of the calls, on a thread of its own.

    Nothing is opened before the first append, so the writer may be built before a loop runs. `gzip_level` is ISA-L's,
    0 to 3. A file is full when a write took it to `max_bytes` or over that (by one batch: 8 MiB and a page at most).
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
        self._gzip_level = gzip_level
        self._waiting: deque[tuple[Fetch, asyncio.Future[WarcRef]]] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._closed = False
        # What follows belongs to the thread.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="warc")
        self._warcio = WARCWriter(BytesIO(), gzip=False, warc_version="1.1")
        self._serial = 0
        self._fd: int | None = None
        self._name = ""
        self._warcinfo_id = ""
        self._end = 0  # offset behind the last whole record
        self._empty_bytes = 0  # size of a file that holds only its warcinfo

    async def append(self, fetch: Fetch) -> WarcRef:
        """Store the exchange; it is with the kernel when this returns, so the death of the process cannot lose it.

        StoreError when it could not be written; the file then ends as it did before. Cancelling does not take an
        exchange back.
        """
        if self._closed:
            raise StoreError(f"WARC writer of {self._folder} is closed")
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[WarcRef] = loop.create_future()
        self._waiting.append((fetch, stored))
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
            batch: list[tuple[Fetch, asyncio.Future[WarcRef]]] = []
            batch_bytes = 0
            while self._waiting and batch_bytes < _BATCH_BYTES:
                batch.append(self._waiting.popleft())
                batch_bytes += len(batch[-1][0].payload)
            results: list[WarcRef | StoreError]
            try:
                results = await loop.run_in_executor(self._thread, self._write, [fetch for fetch, _ in batch])
            except Exception as error:  # no append may wait for ever, whatever broke
                results = [StoreError(f"{self._folder}: {error!r}")] * len(batch)
            for (_, stored), result in zip(batch, results, strict=True):
                if stored.done():  # cancelled
                    continue
                if isinstance(result, StoreError):
                    stored.set_exception(result)
                else:
                    stored.set_result(result)

    # On the thread

    def _write(self, fetches: list[Fetch]) -> list[WarcRef | StoreError]:
        try:
            if self._end >= self._max_bytes:
                self._finish_file()
            fd = self._open_file() if self._fd is None else self._fd
        except StoreError as error:
            return [error] * len(fetches)
        results: list[WarcRef | StoreError] = []
        members: list[bytes] = []
        end = self._end
        for fetch in fetches:
            try:
                response, request = self._exchange(fetch)
            except Exception as error:  # one exchange that warcio cannot take must not fail its neighbours
                results.append(StoreError(f"{fetch.url!r} cannot be a WARC record: {error!r}"))
                continue
            results.append(WarcRef(self._name, end, len(response)))
            members += (response, request)
            end += len(response) + len(request)
        try:
            _pwrite(fd, b"".join(members), self._end)
        except OSError as error:
            self._cut_back(fd)
            failed = StoreError(f"{self._folder / self._name}: {error.strerror}")
            return [result if isinstance(result, StoreError) else failed for result in results]
        self._end = end
        return results

    def _exchange(self, fetch: Fetch) -> tuple[bytes, bytes]:
        """The two gzip members of an exchange: response, request."""
        uri = quote(fetch.url, safe=_PRINTABLE, errors="surrogatepass")
        shared = {
            "WARC-Date": datetime.fromtimestamp(fetch.fetched_at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "WARC-Warcinfo-ID": self._warcinfo_id,
        }
        if fetch.ip:
            shared["WARC-IP-Address"] = fetch.ip
        response_id = StatusAndHeadersParser.make_warc_id()
        response = self._warcio.create_warc_record(
            uri,
            "response",
            payload=BytesIO(fetch.payload),
            length=len(fetch.payload),
            http_headers=_RawHead(stored_response_head(fetch)),
            warc_headers_dict=shared | {"WARC-Record-ID": response_id} | ({"WARC-Truncated": fetch.truncated} if fetch.truncated else {}),
        )
        head = fetch.request_head
        # A request whose method warcio does not know makes it give up the file.
        known = head[:8].upper().startswith(_VERBS)
        request = self._warcio.create_warc_record(
            uri,
            "request" if known else "metadata",
            payload=None if known else BytesIO(head),
            length=0 if known else len(head),
            http_headers=_RawHead(head) if known else None,
            warc_content_type="application/http; msgtype=request",
            warc_headers_dict=shared | {"WARC-Concurrent-To": response_id},
        )
        return self._member(response), self._member(request)

    def _member(self, record: object) -> bytes:
        self._warcio.out = out = BytesIO()
        self._warcio.write_record(record)
        return isal_zlib.compress(out.getbuffer(), self._gzip_level, _GZIP_WBITS)

    def _open_file(self) -> int:
        _make_folder(self._folder)
        fd = -1
        try:
            while fd < 0:
                self._serial += 1
                stamp = datetime.now(timezone.utc).strftime("%Y%m%d%H%M%S%f")[:17]
                self._name = f"crawlweb-{stamp}-{self._writer_id}-{self._serial:05d}.warc.gz"
                fd = _create_locked(self._folder / self._name)
            record = self._warcio.create_warcinfo_record(self._name, self._info)
            self._warcinfo_id = record.rec_headers.get_header("WARC-Record-ID")
            warcinfo = self._member(record)
            _pwrite(fd, warcinfo, 0)
        except OSError as error:
            if fd >= 0:
                with suppress(OSError):
                    os.unlink(self._open_path)
                os.close(fd)
            raise StoreError(f"WARC folder {self._folder}: {error.strerror}") from error
        self._fd, self._end, self._empty_bytes = fd, len(warcinfo), len(warcinfo)
        return fd

    def _finish_file(self) -> None:
        if self._fd is None:
            return
        fd, self._fd, end, self._end = self._fd, None, self._end, 0
        try:
            if end > self._empty_bytes:
                os.rename(self._open_path, self._folder / self._name)
            else:
                os.unlink(self._open_path)
        except OSError as error:
            raise StoreError(f"{self._open_path}: {error.strerror}") from error
        finally:
            os.close(fd)  # after the rename: a repairer must not find the name open and free

    def _cut_back(self, fd: int) -> None:
        try:
            os.ftruncate(fd, self._end)
        except OSError:  # the next append starts a new file, `repair` cuts this one
            os.close(fd)
            self._fd = None
            self._end = 0

    @property
    def _open_path(self) -> Path:
        return self._folder / (self._name + _OPEN)


def stored_response_head(fetch: Fetch) -> bytes:
    """The response head as the WARC has it: in agreement with `fetch.payload`, and such that readers find its end.

    Lines that look blank would end the head and are left out; a status line that is not HTTP/1.x makes warcio give up
    the file and moves to `X-Crawler-Status-Line`. A length is not touched where the body is absent by definition: in
    answers to HEAD and in 304 (RFC 9110, 8.6).
    """
    head = fetch.response_head
    if not head.endswith(b"\n"):
        head += b"\r\n"
    head = _INVISIBLE_LINE.sub(_visible, head)
    if not _STATUS_LINE.match(head):
        head = b"HTTP/1.1 %d \r\nX-Crawler-Status-Line: %b" % (fetch.status, head or b"\r\n")
    length = str(len(fetch.payload)).encode()
    bodiless = fetch.status == 304 or fetch.request_head.startswith(b"HEAD ")
    stated = renamed = False

    def agree(match: re.Match[bytes]) -> bytes:
        nonlocal stated, renamed
        name, colon, value = match.groups()
        is_length = name.lower() == b"content-length"
        if is_length and (bodiless or value.strip() == length) and not stated:
            stated = True
            return match[0]
        renamed = True
        return b"X-Crawler-%b%b%b" % (name, colon, value)

    head = _FRAMING.sub(agree, head)
    if renamed and not stated and not bodiless:
        head += b"Content-Length: %b\r\n" % length
    return head + b"\r\n"


def repair(folder: Path) -> list[Repaired]:
    """Finish what dead writers left open: cut after the last whole record, give the final name. Blocks; for a thread.

    A record whose partner was cut stays. Files without an exchange are removed. Safe beside live writers and other
    repairers. Makes the folder if there is none. StoreError when the folder or a file in it cannot be written.
    """
    _make_folder(folder)
    repaired = []
    for path in sorted(folder.glob("*.warc.gz" + _OPEN)):
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:  # finished since the listing
            continue
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        try:
            if _lock(fd, path):
                repaired.append(_repair_locked(fd, path))
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        finally:
            os.close(fd)
    return repaired


def _repair_locked(fd: int, path: Path) -> Repaired:
    found_bytes = os.fstat(fd).st_size
    whole_bytes, records = _whole_records(fd)
    final = path.with_name(path.name[: -len(_OPEN)])
    if records < 2:  # no more than a warcinfo
        os.unlink(path)
        return Repaired(final.name, 0, found_bytes)
    os.ftruncate(fd, whole_bytes)
    os.rename(path, final)
    return Repaired(final.name, whole_bytes, found_bytes - whole_bytes)


def _whole_records(fd: int) -> tuple[int, int]:
    """Bytes and number of the gzip members at the file's start that are whole, checksum included."""
    whole_bytes = records = read_bytes = 0
    piece = b""
    while True:
        member = isal_zlib.decompressobj(_GZIP_WBITS)
        while not member.eof:
            if not piece:
                piece = os.pread(fd, _SCAN_BYTES, read_bytes)
                read_bytes += len(piece)
                if not piece:
                    return whole_bytes, records
            try:
                member.decompress(piece)
            except isal_zlib.error:  # type: ignore[misc]  # the stub declares a value
                return whole_bytes, records
            piece = member.unused_data
        whole_bytes = read_bytes - len(piece)
        records += 1


def _create_locked(final: Path) -> int:
    """Descriptor of the new, locked open file; -1 if the name is taken or a repairer was faster.

    Between creation and lock the file looks abandoned. A repairer that comes in between finds it empty and removes it:
    then the lock fails, or it succeeds on a file that has no name any more.
    """
    path = final.with_name(final.name + _OPEN)
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    except FileExistsError:
        return -1
    try:
        if _lock(fd, path):
            if not final.exists():
                return fd
            os.unlink(path)
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return -1


def _lock(fd: int, path: Path) -> bool:
    """Whether the lock is ours and the path still means this file: whoever had the lock before may have moved it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"WARC folder {folder} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(f"WARC folder {folder} is not writable")


def _pwrite(fd: int, data: bytes, offset: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, offset)
        left, offset = left[written:], offset + written


def _visible(line: re.Match[bytes]) -> bytes:
    """The line, unless warcio takes it for blank: it decodes UTF-8, else Latin-1, and strips every Unicode space."""
    return line[0] if StatusAndHeadersParser.decode_header(line[0]).strip() else b""


class _RawHead(StatusAndHeaders):  # type: ignore[misc]
    """A head that warcio writes as it is; its own class re-encodes what is not ASCII."""

    def __init__(self, head: bytes) -> None:
        super().__init__("raw", [])
        self.head = head

    def compute_headers_buffer(self, _header_filter: object = None) -> None:
        self.headers_buff = self.head
