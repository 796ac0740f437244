"""How whoever writes to a store tells its owner that there is no room, so that it moves objects to disk.

A client on the store's host shares nothing with the owner but the directory. So it leaves a file there that is as long
as what it could not write, and takes no memory itself. The owner looks now and then, and takes the file away.
"""

import contextlib
import os

from scaler.store import StoreFull

_WANTED = "wanted"


class RoomRequest:
    """What one writer asks of the owner of a store. Any thread; never raises."""

    def __init__(self, path: str) -> None:
        """`path` of the store's directory."""
        self._path = path
        self._is_open = False

    def ask(self, full: StoreFull) -> None:
        """Something had no room. To be said again with each attempt."""
        if full.is_for_good:
            return
        self._is_open = True
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            fd = os.open(os.path.join(self._path, _WANTED), flags, 0o600)
            try:
                os.ftruncate(fd, full.wanted)
            finally:
                os.close(fd)

    def met(self) -> None:
        """There was room: nothing has to go for this one. Who still asks says it again."""
        if self._is_open:
            self._is_open = False
            take_asked(self._path)


def take_asked(path: str) -> int:
    """For the owner: bytes for which room was asked since the last call, 0 for none. Never raises."""
    wanted = os.path.join(path, _WANTED)
    try:
        size = os.lstat(wanted).st_size
        os.unlink(wanted)
    except OSError:
        return 0
    return size
