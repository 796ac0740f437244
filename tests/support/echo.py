"""A listener that sends back what it gets, and a proxy in front of it that closes connections where the test says."""

import contextlib
import select
import socket
import threading

from scaler.transport import Address, Connection, Listener, Security, listen
from support.waiting import DEADLINE


class Echo:
    """A listener in a thread of its own that sends back what it gets."""

    def __init__(self, security: Security) -> None:
        self.listener: Listener = listen("tcp://127.0.0.1:0", security, max_message_bytes=1 << 20)
        self.address = self.listener.address
        self.heard: list[bytes] = []
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while self._stopped not in (ready := select.select([self.listener, self._stopped], [], [], DEADLINE)[0]):
            assert ready, "the test takes too long"
            for peer, message in self.listener.receive():
                self.heard.append(bytes(message[0]))
                self.listener.send(peer, message)

    def close(self) -> None:
        """End it."""
        self._stop.send(b"x")
        self._thread.join()
        self.listener.close(0)
        self._stop.close()
        self._stopped.close()


def works(client: Connection) -> None:
    """A message makes its way there and back."""
    client.send([b"ping"])
    answer: list[list[bytes | memoryview]] = []
    while not answer:
        assert select.select([client], [], [], DEADLINE)[0]
        answer = client.receive()
    assert answer == [[b"ping"]]


class Proxy:
    """Forwards connections to an address, so many bytes of what comes from there.

    Who connects looks first whether anybody listens, which is a connection as well; so does each further try.
    """

    def __init__(self, target: Address, *limits: int | None, dies: bool = False) -> None:
        """`limits`: bytes after which each connection is closed, the last for all that follow; None: it is not.

        With `dies` nobody listens any more as soon as one was.
        """
        self._target = (target.host, target.port)
        self._limits = list(limits)
        self._dies = dies
        #: connections so far
        self.visitors = 0
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._door.getsockname()[1])
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            limit = self._limits[min(self.visitors, len(self._limits) - 1)]
            self.visitors += 1
            self._open.append(near)
            thread = threading.Thread(target=self._serve, args=(near, limit))
            self._threads.append(thread)
            thread.start()

    def _serve(self, near: socket.socket, limit: int | None) -> None:
        with near, contextlib.suppress(OSError):
            if limit == 0 or self._forward(near, limit):
                if self._dies:
                    self._shut(self._door)
                near.shutdown(socket.SHUT_RDWR)

    def _forward(self, near: socket.socket, limit: int | None) -> bool:
        """Whether it went on to the limit."""
        with socket.create_connection(self._target) as far:
            self._open.append(far)
            while True:
                ready = select.select([near, far], [], [])[0]
                if near in ready:
                    said = near.recv(1 << 16)
                    if not said:
                        return False
                    far.sendall(said)
                if far in ready:
                    answered = far.recv(1 << 16 if limit is None else min(limit, 1 << 16))
                    if not answered:
                        return False
                    near.sendall(answered)
                    if limit is not None:
                        limit -= len(answered)
                        if limit == 0:
                            return True

    @staticmethod
    def _shut(each: socket.socket) -> None:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it, with all connections."""
        self._shut(self._door)
        self._threads[0].join()
        for each in self._open:
            self._shut(each)
        for thread in self._threads[1:]:
            thread.join()
        self._door.close()
