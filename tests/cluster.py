"""Real Redis servers on loopback ports: a cluster, replicas, Sentinels, TLS. Each in a folder of its own, ended with its block."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.conftest import _default_binary, _no_server

START_S = 30.0
SERVICE = "frontier"
PASSWORD = "s3cret/pass@word"
DEPLOYING = Path(__file__).resolve().parents[1] / "docs" / "deploying.md"
FAST_AOF = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "")


def tool(name: str) -> str:
    """A program that comes with Redis; skips the test if it is missing, fails it in CI."""
    found = shutil.which(name)
    if not found:
        _no_server(f"{name} is not on the PATH")
    return str(found)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def answers(client: redis.Redis) -> bool:
    """Whether it lets us in or not."""
    try:
        return bool(client.ping())
    except redis.AuthenticationError:
        return True


class Node:
    """A server, or a Sentinel if there is a `configuration`, that can be killed and started again with what it had on disk."""

    def __init__(self, folder: Path, port: int, *options: str, bus: int = 0, tls: Papers | None = None, configuration: str = "") -> None:
        self.folder, self.port, self.bus = folder, port, bus
        self.process: subprocess.Popen[bytes] | None = None
        self._client = {"ssl": True, "ssl_ca_certs": str(tls.ca)} if tls else {}
        folder.mkdir(parents=True, exist_ok=True)
        ports = ("--port", "0", "--tls-port", str(port), *tls.options) if tls else ("--port", str(port))
        place = ("--bind", "127.0.0.1", "--dir", str(folder), "--logfile", str(folder / "redis.log"))
        if configuration:
            (folder / "sentinel.conf").write_text(configuration)
        kind = (str(folder / "sentinel.conf"), "--sentinel") if configuration else ("--repl-diskless-sync-delay", "0")
        self._command = [_default_binary(), *kind, *ports, *place, *options]

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_until(answers)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, **more: Any) -> redis.Redis:
        options = {"socket_timeout": 10, "retry": Retry(NoBackoff(), 0), **self._client, **more}
        return redis.Redis("127.0.0.1", self.port, **options)

    @property
    def run(self) -> str:
        """The run id of the process that runs."""
        with self.client() as client:
            return str(client.info("server")["run_id"])

    def call(self, *command: Any) -> Any:
        with self.client() as client:
            return client.execute_command(*command)

    def wait_until(self, is_so: Callable[[redis.Redis], Any], timeout_s: float = START_S) -> Any:
        """What `is_so` returns once it is true; errors of Redis are taken for no."""
        deadline = time.monotonic() + timeout_s
        with self.client() as client:
            while True:
                with contextlib.suppress(redis.RedisError):
                    if answer := is_so(client):
                        return answer
                assert self.is_up, f"port {self.port}: it ended\n{self.log}"
                assert time.monotonic() < deadline, f"port {self.port}: not so after {timeout_s} s\n{self.log}"
                time.sleep(0.02)

    @property
    def log(self) -> str:
        file = self.folder / "redis.log"
        return file.read_text(errors="replace")[-3000:] if file.exists() else ""

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="crawlweb-test-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


class Nodes:
    """Starts nodes on free ports; all are killed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[Node] = []

    def start(self, *options: str, port: int = 0, **more: Any) -> Node:
        port = port or free_ports(1)[0]
        node = Node(self.folder / f"{port}", port, *options, **more)
        self.all.append(node)
        node.start()
        return node

    def replica(self, master: Node, *options: str) -> Node:
        """In step with its master."""
        node = self.start("--replicaof", f"127.0.0.1 {master.port}", *options)
        node.wait_until(lambda client: client.info("replication")["master_link_status"] == "up")
        return node

    def sentinel(self, master: Node, *lines: str) -> Node:
        """One alone: its word is enough."""
        monitor = f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} 1"
        times = f"sentinel down-after-milliseconds {SERVICE} 300", f"sentinel failover-timeout {SERVICE} 3000"
        node = self.start(configuration="\n".join((monitor, *times, *lines)) + "\n")
        if not any(line.startswith("requirepass") for line in lines):
            node.wait_until(lambda client: client.execute_command("SENTINEL", "REPLICAS", SERVICE))
        return node


@contextmanager
def nodes() -> Iterator[Nodes]:
    with folder() as made:
        started = Nodes(made)
        try:
            yield started
        finally:
            for node in started.all:
                node.kill()


class Cluster:
    def __init__(self, members: list[Node], start: Callable[[], Node] | None = None) -> None:
        self.members, self._start = members, start

    @property
    def url(self) -> str:
        return f"redis://{self.members[0].address}"

    def node_of(self, key: str) -> Node:
        slot = int(self.members[0].call("CLUSTER KEYSLOT", key))
        for first, last, (_, port, *_), *_ in self.members[0].call("CLUSTER SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.members if node.port == port)
        raise AssertionError(f"slot {slot} is nobody's")

    def replica(self, master: Node) -> Node:
        """A new one, in step with its master."""
        assert self._start
        node, master_id = self._start(), master.call("CLUSTER MYID")
        node.call("CLUSTER MEET", "127.0.0.1", master.port, master.bus)
        node.wait_until(lambda client: client.execute_command("CLUSTER REPLICATE", master_id))
        node.wait_until(lambda client: client.info("replication").get("master_link_status") == "up")
        for member in self.members:  # without their votes it is not promoted: they must know it, and it them
            member.wait_until(lambda client: node.address in str(client.execute_command("CLUSTER NODES")))
            node.wait_until(lambda client, address=member.address: address in str(client.execute_command("CLUSTER NODES")))
        return node

    def wait_until_well(self) -> None:
        for node in self.members:
            node.wait_until(lambda client: client.execute_command("CLUSTER INFO").get("cluster_state") == "ok")

    def clear(self) -> None:
        for node in self.members:
            node.call("FLUSHALL")


def acl_of_the_docs(crawl: str, password: str) -> list[str]:
    """The words of the ACL command in docs/deploying.md."""
    (line,) = re.findall(r"^ACL SETUSER crawlweb .*$", DEPLOYING.read_text(), re.M)
    return str(line).replace(">PASSWORD", f">{password}").replace("web}", f"{crawl}}}").replace("{web:", f"{{{crawl}:").split()


class Papers(NamedTuple):
    """Of a private certificate authority, and of a server on 127.0.0.1 that it signed."""

    ca: Path
    certificate: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """Of a server that speaks TLS only."""
        files = ("--tls-ca-cert-file", str(self.ca), "--tls-cert-file", str(self.certificate), "--tls-key-file", str(self.key))
        return ("--tls-auth-clients", "no", *files)


def papers(folder: Path) -> Papers:
    now = datetime.now(timezone.utc)

    def signed(name: str, of: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey, is_ca: bool) -> x509.Certificate:
        builder = x509.CertificateBuilder(
            issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")]),
            subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            public_key=of.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(days=1),
            not_valid_after=now + timedelta(days=1),
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        return builder.sign(by, hashes.SHA256())

    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    made = Papers(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    made.ca.write_bytes(signed("test CA", ca_key, ca_key, True).public_bytes(serialization.Encoding.PEM))
    made.certificate.write_bytes(signed("server", key, ca_key, False).public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    made.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return made


@contextmanager
def a_cluster(*options: str, members: int = 3, tls: Papers | None = None) -> Iterator[Cluster]:
    """Masters without replicas, which serve their slots whatever the others do."""
    cli = tool("redis-cli")
    with nodes() as started:
        of_cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"]
        of_cluster += ["--tls-cluster", "yes"] if tls else []

        def start() -> Node:
            port, bus = free_ports(2)
            return started.start(*of_cluster, "--cluster-port", str(bus), *FAST_AOF, *options, port=port, bus=bus, tls=tls)

        for _ in range(members):
            start()
        with_tls = ["--tls", "--cacert", str(tls.ca)] if tls else []
        create = [cli, *with_tls, "--cluster", "create", *(node.address for node in started.all), "--cluster-yes"]
        done = subprocess.run(create, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        cluster = Cluster([*started.all], start)
        cluster.wait_until_well()
        yield cluster
