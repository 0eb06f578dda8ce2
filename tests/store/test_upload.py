"""Finished WARC files are uploaded once, whole, by whoever works on the folder, however often the storage is away."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from exchanges import exchange, finished, store
from fsspec.implementations.memory import MemoryFileSystem

from crawlweb.errors import StoreError
from crawlweb.store.files import index_path
from crawlweb.store.upload import Uploader

WAIT_S = 60.0


class Flaky(MemoryFileSystem):
    """A storage that refuses, cuts, or waits, as `troubles` say, one a call; then it is well."""

    protocol = "flaky"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    troubles: list[Callable[[str], None] | str] = []  # noqa: RUF012
    puts: list[str] = []  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + str(path).removeprefix("flaky://").strip("/")

    def put_file(self, lpath: str, rpath: str, **options: Any) -> None:
        self.puts.append(rpath.rpartition("/")[2])
        trouble = self.troubles.pop(0) if self.troubles else None
        if callable(trouble):
            trouble(rpath)
        elif trouble == "cut":
            self.pipe_file(rpath, Path(lpath).read_bytes()[:10])
            return
        elif trouble is not None:
            raise ConnectionError(trouble)
        super().put_file(lpath, rpath, **options)


fsspec.register_implementation("flaky", Flaky, clobber=True)


@pytest.fixture(autouse=True)
def empty_storage() -> None:
    for each in (MemoryFileSystem, Flaky):
        each.store.clear()
        each.pseudo_dirs[:] = [""]
    Flaky.troubles.clear()
    Flaky.puts.clear()


def uploaded(folder: Path, url: str, **options: Any) -> list[str]:
    """Files that are left after an uploader's life."""
    uploader = Uploader(folder, url, **options)
    uploader.start()
    return uploader.close(WAIT_S)


def contents(url: str) -> dict[str, bytes]:
    fs, root = fsspec.core.url_to_fs(url)
    return {path.rpartition("/")[2]: fs.cat_file(path) for path in fs.ls(root, detail=False)} if fs.exists(root) else {}


def local(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".gz", ".cdxj")}


@pytest.mark.parametrize("form", ["{}/a/b", "file://{}/a/b", "memory://bucket/a/b"])
def test_a_finished_file_and_its_index_are_uploaded_once(tmp_path: Path, form: str) -> None:
    url, folder = form.format(tmp_path / "remote"), tmp_path / "warc"
    store(folder, exchange())
    assert uploaded(folder, url) == []
    assert contents(url) == local(folder)
    assert len(local(folder)) == 2
    fs, root = fsspec.core.url_to_fs(url)
    fs.rm(root, recursive=True)  # what was taken on from there is not sent again
    assert uploaded(folder, url) == []
    assert contents(url) == {}


def test_an_other_place_gets_all_files(tmp_path: Path) -> None:
    store(tmp_path, exchange())
    for url in ("memory://a", "memory://b"):
        assert uploaded(tmp_path, url) == []
        assert contents(url) == local(tmp_path)


def test_without_keep_what_was_uploaded_is_deleted(tmp_path: Path) -> None:
    store(tmp_path, exchange())
    files = local(tmp_path)
    assert uploaded(tmp_path, "memory://a", keep=False) == []
    assert contents("memory://a") == files
    assert list(tmp_path.iterdir()) == []


def test_what_was_uploaded_and_kept_is_deleted_once_it_need_not_be_kept(tmp_path: Path) -> None:
    store(tmp_path, exchange())
    uploaded(tmp_path, "memory://a")
    uploaded(tmp_path, "memory://a", keep=False)
    assert list(tmp_path.iterdir()) == []


def test_files_are_uploaded_as_they_are_finished(tmp_path: Path) -> None:
    here = threading.Event()
    Flaky.troubles = [lambda _: None, lambda _: here.set()]
    uploader = Uploader(tmp_path, "flaky://a", rescan_s=1e6)
    uploader.start()
    store(tmp_path, exchange(), on_finished=uploader.wake)
    assert here.wait(WAIT_S)
    assert uploader.close(WAIT_S) == []


def test_a_storage_that_is_away_is_tried_again(tmp_path: Path) -> None:
    store(tmp_path, exchange())
    here = threading.Event()
    Flaky.troubles = ["away", "cut", "away", lambda _: None, lambda _: here.set()]
    uploader = Uploader(tmp_path, "flaky://a", retry_s=0.001, rescan_s=0.01)
    uploader.start()
    assert here.wait(WAIT_S)
    assert uploader.close(WAIT_S) == []
    assert contents("flaky://a") == local(tmp_path)
    assert len(Flaky.puts) == 5


def test_a_file_that_the_storage_refuses_is_not_in_the_way_of_others(tmp_path: Path) -> None:
    first, second = (store(tmp_path, exchange())[0].file for _ in range(2))
    here = threading.Event()

    def refuse(path: str) -> None:
        if path.endswith(first):
            raise ConnectionError("refused")
        if path.endswith(index_path(tmp_path / second).name):
            here.set()

    Flaky.troubles = [refuse] * 1_000
    uploader = Uploader(tmp_path, "flaky://a", retry_s=0.001, rescan_s=0.01)
    uploader.start()
    assert here.wait(WAIT_S)
    assert uploader.close(WAIT_S) == [first]


def test_close_waits_no_longer_than_it_is_told_and_names_what_is_left(tmp_path: Path) -> None:
    (ref,) = store(tmp_path, exchange())
    begun, go_on = threading.Event(), threading.Event()

    def hang(_: str) -> None:
        begun.set()
        go_on.wait(WAIT_S)

    Flaky.troubles = [hang]
    uploader = Uploader(tmp_path, "flaky://a")
    uploader.start()
    assert begun.wait(WAIT_S)
    assert uploader.close(0.01) == [ref.file]
    go_on.set()
    assert uploader.close(WAIT_S) == []


def test_uploaders_of_one_folder_do_not_upload_a_file_twice(tmp_path: Path) -> None:
    for n in range(10):
        store(tmp_path, exchange(payload=b"%d" % n))
    uploaders = [Uploader(tmp_path, "flaky://a") for _ in range(4)]
    for each in uploaders:
        each.start()
    for each in uploaders:
        each.close(WAIT_S)
    assert uploaded(tmp_path, "flaky://a") == []
    assert len(Flaky.puts) == 20
    assert contents("flaky://a") == local(tmp_path)


def test_a_file_that_another_process_is_uploading_is_left_to_it(tmp_path: Path) -> None:
    (ref,) = store(tmp_path, exchange())
    other = os.open(tmp_path / ref.file, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert uploaded(tmp_path, "memory://a") == [ref.file]
    os.close(other)  # as when it dies
    assert uploaded(tmp_path, "memory://a") == []


def test_open_files_are_not_uploaded(tmp_path: Path) -> None:
    (ref,) = store(tmp_path, exchange())
    (tmp_path / ref.file).rename(tmp_path / (ref.file + ".open"))
    assert uploaded(tmp_path, "memory://a") == []
    assert contents("memory://a") == {}


def test_a_file_without_index_gets_one(tmp_path: Path) -> None:
    store(tmp_path, exchange())
    files = local(tmp_path)
    index_path(finished(tmp_path)[0]).unlink()
    assert uploaded(tmp_path, "memory://a") == []
    assert contents("memory://a") == files


@pytest.mark.parametrize("url", ["nothing://a", "s3 bucket://x/y", "gopher://a"])
def test_a_url_of_no_storage_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(StoreError, match=url):
        Uploader(tmp_path, url)


def test_passwords_are_neither_logged_nor_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store(tmp_path, exchange())
    Flaky.troubles = ["cannot reach ftp://user:secret@a"]
    uploaded(tmp_path, "flaky://user:secret@a")
    assert uploaded(tmp_path, "flaky://user:secret@a") == []
    assert "cannot reach" in caplog.text
    assert "secret" not in caplog.text
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())
