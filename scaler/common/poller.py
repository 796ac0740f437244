"""Many descriptors behind one: an event loop watches `fileno`, whatever happens inside.

On Linux this is an epoll instance, which is itself a descriptor that can be watched; elsewhere a kqueue through
`selectors`, which can be too.
"""

from __future__ import annotations

import select
import selectors
import socket
import sys

#: Bits of the events that `poll` reports; errors and hang-ups count as readable.
READABLE = 1
WRITABLE = 4
#: Nobody is at the other end any more; 0 where `poll` does not say so.
_ENDED = select.EPOLLERR | select.EPOLLHUP if sys.platform == "linux" else 0


class SelectorPoller:
    """Level-triggered readiness of a set of descriptors, as any platform has it."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.close = self._selector.close

    def fileno(self) -> int:
        """Readable while any descriptor of the set is ready."""
        return int(self._selector.fileno())

    def add(self, fd: int) -> None:
        """Watch for readability."""
        self._selector.register(fd, selectors.EVENT_READ)

    def want_write(self, fd: int, wanted: bool) -> None:
        """Watch for writability too, or no longer. May be called from any thread."""
        self._selector.modify(fd, selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0))

    def pause(self, fd: int, paused: bool) -> None:
        """Look away from a descriptor, or look again; while another thread is in `poll` too, where that is epoll."""
        if paused:
            self._selector.unregister(fd)
        else:
            self._selector.register(fd, selectors.EVENT_READ)

    def remove(self, fd: int) -> None:
        """Forget a descriptor; to be called before it is closed."""
        self._selector.unregister(fd)

    def poll(self, timeout: float = 0.0) -> list[tuple[int, int]]:
        """(descriptor, READABLE | WRITABLE) of those that are ready, waiting at most `timeout` seconds for one."""
        return [
            (
                key.fd,
                (READABLE if mask & selectors.EVENT_READ else 0) | (WRITABLE if mask & selectors.EVENT_WRITE else 0),
            )
            for key, mask in self._selector.select(timeout)
        ]


if sys.platform == "linux":

    class Poller:
        """The same by epoll."""

        def __init__(self) -> None:
            self._epoll = select.epoll()
            self.fileno = self._epoll.fileno
            self.close = self._epoll.close

        def add(self, fd: int) -> None:
            self._epoll.register(fd, select.EPOLLIN)

        def want_write(self, fd: int, wanted: bool) -> None:
            self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

        def pause(self, fd: int, paused: bool) -> None:
            self._epoll.modify(fd, 0 if paused else select.EPOLLIN)

        def remove(self, fd: int) -> None:
            self._epoll.unregister(fd)

        def poll(self, timeout: float = 0.0) -> list[tuple[int, int]]:
            # EPOLLIN is 1 and EPOLLOUT is 4; EPOLLERR and EPOLLHUP are learnt by reading.
            ready: list[tuple[int, int]] = self._epoll.poll(timeout)
            for _, mask in ready:
                if mask & _ENDED:
                    return [(fd, mask | READABLE if mask & _ENDED else mask) for fd, mask in ready]
            return ready

else:
    Poller = SelectorPoller


class Waker:
    """A descriptor that its owner makes readable: "look again, though no socket says so". One thread at a time."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._raised = False
        self.fileno = self._reader.fileno

    def wake(self) -> None:
        """Make the descriptor readable."""
        if not self._raised:
            self._raised = True
            self._writer.send(b"\0")

    def clear(self) -> None:
        """Make it unreadable again."""
        if self._raised:
            self._raised = False
            self._reader.recv(1)

    def close(self) -> None:
        """Close both ends."""
        self._reader.close()
        self._writer.close()
