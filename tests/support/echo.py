"""A listener that sends back what it gets."""

import select
import socket
import threading

from scaler.transport import Connection, Listener, Security, listen
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
