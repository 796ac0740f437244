"""Who watches the connection: the I/O thread, or for a while a thread that waits for a result."""

from __future__ import annotations

import contextlib
import threading

from scaler.client.io.wakeup import Wakeup
from scaler.common.poller import Poller

#: raised for a descriptor that is not watched any more
_CLOSED = (OSError, ValueError, KeyError)


class ConnectionPoller:
    """Watches a connection, and the descriptor that wakes the I/O thread."""

    def __init__(self, wakeup: Wakeup) -> None:
        #: wakes the I/O thread
        self._wakeup = wakeup
        self._poller = Poller()
        self._poller.add(wakeup.fileno())
        #: held by the thread that has borrowed the connection; it can ask whether it does
        self._borrowing = threading.RLock()
        #: some thread watches the connection itself
        self.is_borrowed = False
        #: wakes that thread
        self.nudge = Wakeup()

    def add(self, fd: int) -> None:
        """Watch a connection that was made."""
        self._poller.add(fd)

    def remove(self, fd: int) -> None:
        """Forget a connection that is lost and going to be closed; waits until who has borrowed it has noticed."""
        self.nudge.wake()
        with self._borrowing, contextlib.suppress(*_CLOSED):
            self._poller.remove(fd)

    def poll(self, timeout: float) -> tuple[bool, bool]:
        """Wait for at most so many seconds; whether the thread was woken, and whether something has come."""
        is_woken = is_readable = False
        for fd, _ in self._poller.poll(timeout):
            if fd == self._wakeup.fileno():
                self._wakeup.clear()
                is_woken = True
            else:
                is_readable = True
        return is_woken, is_readable

    def borrow(self, fd: int) -> bool:
        """Look away from a connection that the calling thread is going to watch; False if another one does already.

        Raises OSError, ValueError or KeyError if it is not watched any more. Who is interrupted has to `recover` it.
        """
        if self.is_borrowed or not self._borrowing.acquire(False):
            return False
        try:
            self.is_borrowed = True
            self._poller.pause(fd, True)
        except _CLOSED:
            self._let_go()
            raise
        return True

    def give_back(self, fd: int) -> None:
        """Look at a borrowed connection again. Raises like `borrow`; who is interrupted has to `recover` it, too."""
        try:
            self._poller.pause(fd, False)
        except _CLOSED:
            self._let_go()
            raise
        self._let_go()

    def _let_go(self) -> None:
        self.is_borrowed = False
        self._borrowing.release()

    def recover(self, fd: int) -> None:
        """The calling thread was interrupted: `give_back` what it may not have given back; -1 if that is closed."""
        while self._borrowing._is_owned():  # type: ignore[attr-defined]  # as `threading.Condition` asks
            with contextlib.suppress(*_CLOSED):
                self.give_back(fd)

    def close(self) -> None:
        """Forget all, and close what belongs to this."""
        self._poller.close()
        self._wakeup.close()
        self.nudge.close()
