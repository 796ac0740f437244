"""A proxy between a program and what it connects to, that cuts connections, falls silent, or is slow."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor


class Proxy:
    """Forwards connections to an address, until it is told to stop."""

    def __init__(self, target: str, limit: int | None) -> None:
        self._target = ("127.0.0.1", int(target.rpartition(":")[2]))
        #: bytes after which a connection is cut, one number a connection; None: never
        self.limits: list[int | None] = [limit]
        #: the limits are for what goes to the target
        self.upwards = False
        #: bytes a second each way, and no more than a few are on their way; None: as many as come
        self.pace: float | None = None
        self.stalled = False
        #: what is replaced in what goes to the target, by what; both of one length
        self.altered: dict[bytes, bytes] = {}
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen()
        self.url = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self._pool = ThreadPoolExecutor(40)
        self._open: list[socket.socket] = [self._listening]
        self._far: set[socket.socket] = set()
        self._pool.submit(self._accept)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            self.connections += 1
            self._open += [near, far]
            self._far.add(far)
            limit = self.limits[min(self.connections, len(self.limits)) - 1]
            self._pool.submit(self._forward, near, far, limit if self.upwards else None)
            self._pool.submit(self._forward, far, near, None if self.upwards else limit)

    def _forward(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        count = 0
        try:
            while data := source.recv(1 << 16):
                count += len(data)
                if self.pace is not None:
                    time.sleep(len(data) / self.pace)
                if sink in self._far:
                    for old, new in self.altered.items():
                        data = data.replace(old, new)
                if limit is not None and count > limit:
                    if limit % 2:
                        self.stalled = True
                        continue  # silence
                    break
                sink.sendall(data)
        except OSError:
            pass
        _shut(source, sink)

    def cut(self) -> None:
        """End all connections that there are; others may come."""
        _shut(*self._open[1:])

    def close(self) -> None:
        _shut(*self._open)
        for each in self._open:
            each.close()
        self._pool.shutdown(cancel_futures=True)


def _shut(*connections: socket.socket) -> None:
    for each in connections:
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
