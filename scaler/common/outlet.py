"""Writing to a descriptor whose reader may have stopped: a terminal at Ctrl-S, `less`, the other end of a pipe.

Others write by the same open file, so that can't be made non-blocking. Linux gives a process an open file of its own
for a pipe or a terminal that it has, which can be. For sockets, elsewhere, and for a pipe of another user it is asked
whether there is room; a pipe that has some takes PIPE_BUF bytes at once, unless somebody else fills it in that moment.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys

_FLAGS = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def may_block(descriptor: int) -> bool:
    """Whether who writes there may have to wait for somebody who reads it. Raises OSError."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and os.isatty(descriptor))


def put(descriptor: int, data: bytes) -> int:
    """Write as much of this as is taken at once; how many bytes that are. Does not block. Raises OSError."""
    if not may_block(descriptor):
        return os.write(descriptor, data)
    own = Outlet(descriptor)
    try:
        return own.put(data)
    finally:
        own.close()


def complain(text: str) -> None:
    """Say on standard error, if there is one, as much of this as it takes at once. Does not block, nor raise."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            put(sys.stderr.fileno(), text.encode(errors="backslashreplace"))


class Outlet:
    """`put` for who writes often to a descriptor that may block. The open file is one more descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        #: the same, opened anew; None: it can't be
        self._own: int | None = None
        with contextlib.suppress(OSError):
            self._own = os.open(f"/proc/self/fd/{descriptor}", _FLAGS)

    def put(self, data: bytes) -> int:
        """See `put`."""
        if self._own is None:
            return _put_if_ready(self._descriptor, data)
        try:
            return os.write(self._own, data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Let go of what was opened; `put` goes on."""
        own, self._own = self._own, None
        if own is not None:
            os.close(own)


def _put_if_ready(descriptor: int, data: bytes) -> int:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    taken = 0
    while taken < len(data) and poll.poll(0):
        taken += os.write(descriptor, data[taken : taken + select.PIPE_BUF])
    return taken
