"""A real PostgreSQL for tests."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import _no_server

psycopg = pytest.importorskip("psycopg")

START_S = 30.0
FAST = ("-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_wal_senders=0", "-c", "wal_level=minimal")


def binary(name: str) -> str:
    """Debian keeps the server's programs off the PATH."""
    found = shutil.which(name) or next((str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    if not found:
        _no_server(f"PostgreSQL is not installed: no {name}")
    return str(found)


class PostgresServer:
    """On a socket in a folder of its own, no port; not as root, who may not."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="crawlweb-pg-"))
        self.dsn = f"host={self.folder} dbname=postgres user=crawl"
        self._user = "postgres" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        if self._user:
            try:
                account = pwd.getpwnam(self._user)
            except KeyError:
                _no_server("PostgreSQL does not run as root, and there is no user postgres")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        initdb = [binary("initdb"), "-D", str(self.folder / "data"), "-A", "trust", "-U", "crawl", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, user=self._user, cwd=self.folder)

    def start(self) -> None:
        command = [binary("postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), "-c", "listen_addresses=", *FAST]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, user=self._user, cwd=self.folder)
        deadline = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(self.dsn).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.02)

    def stop(self) -> None:
        """At once; what was committed is there at the next start."""
        assert self._process
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def query(self, text: str) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        with contextlib.suppress(AssertionError):
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
