"""A proxy between a client and Redis that loses answers: the server has done what was asked, the client's connection breaks."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import tempfile
import threading
from pathlib import Path

SET_UP = (b"HELLO", b"CLIENT", b"INFO", b"AUTH", b"SELECT")  # what a client says as it connects


class Lossy:
    """Redis at `server` (a unix:// address), reached by `url`, with every `every`th answer lost. `lost`: how their requests began."""

    def __init__(self, server: str, every: int) -> None:
        self.lost: list[bytes] = []
        self._server, self._every, self._answers = server.removeprefix("unix://"), every, 0
        self._folder = Path(tempfile.mkdtemp(prefix="crawlweb-lossy-"))
        self.url = f"unix://{self._folder / 'redis.sock'}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / "redis.sock"))
        self._listener.listen()
        self._woken, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def __enter__(self) -> Lossy:
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._waker, b"x")
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
            stack.callback(os.close, self._woken)
            stack.callback(os.close, self._waker)
            selector.register(stack.enter_context(self._listener), selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            others: dict[socket.socket, socket.socket] = {}
            asked: dict[socket.socket, bytes] = {}  # servers whose next answer counts
            while True:
                for key, _ in selector.select():
                    if key.fileobj == self._woken:
                        return
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    if sock is self._listener:
                        client, server = stack.enter_context(sock.accept()[0]), stack.enter_context(socket.socket(socket.AF_UNIX))
                        server.connect(self._server)
                        for one, other in ((client, server), (server, client)):
                            others[one] = other
                            selector.register(one, selectors.EVENT_READ, one is client)
                        continue
                    other = others.get(sock)
                    if other is None:  # closed a moment ago
                        continue
                    with contextlib.suppress(ConnectionError):
                        data = sock.recv(1 << 20)
                        if data and key.data:
                            if not any(word in data[:64].upper() for word in SET_UP):
                                asked[other] = data[:200]
                            other.sendall(data)
                            continue
                        if data and not self._loses(asked.pop(sock, b"")):
                            other.sendall(data)
                            continue
                    for end in (sock, other):
                        asked.pop(end, None)
                        others.pop(end, None)
                        selector.unregister(end)
                        end.close()

    def _loses(self, request: bytes) -> bool:
        self._answers += bool(request)
        if not request or self._answers % self._every:
            return False
        self.lost.append(request)
        return True
