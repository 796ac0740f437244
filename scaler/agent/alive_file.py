"""A file that says that this agent lives: for the probes of Kubernetes, and whoever else watches over processes.

It is written anew every few seconds, by the thread that does all of the agent's work: an old one means that it is
stuck. What is in it says whether the agent has a scheduler.

Whoever reads it sees a whole file, as each takes the place of the one before. Nothing but a file is replaced so: not a
device, not a link to something else. Where there is no room for another one, on a full disk, the last one is written
over: an agent that lives is not to be ended for that.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import stat

from scaler.config import OptionError

logger = logging.getLogger("scaler.agent")

#: seconds between two times that it is written
INTERVAL = 2.0
#: what is in it while the agent has a scheduler, and while it has none
CONNECTED, WAITING = "connected\n", "waiting\n"
#: what may be at a path that is no file, as people call it
_KINDS = {
    stat.S_IFDIR: "a directory", stat.S_IFLNK: "a link", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
}  # fmt: skip


class AliveFile:
    """See the module. For one thread."""

    def __init__(self, path: str) -> None:
        """Writes it. Raises OSError if that can't be, and `OptionError` where something is that is no file."""
        self._path = path
        self._text = WAITING
        self._due = -math.inf
        self._has_complained = False
        #: what tells the file that was written last from any other
        self._written: tuple[int, int, int] | None = None
        kind = _kind_of(path)
        if kind:
            raise OptionError("alive_file", f"names {kind}, which would be replaced: name a file, or none yet: {path}")
        self._write()

    def renew(self, is_connected: bool, now: float) -> float:
        """Write it if that is due, or has changed; when it is due next, seconds."""
        text = CONNECTED if is_connected else WAITING
        if text == self._text and now < self._due:
            return self._due
        self._text, self._due = text, now + INTERVAL
        try:
            self._write()
            self._has_complained = False
        except OSError as error:
            if not self._has_complained:
                self._has_complained = True
                logger.warning("who watches this agent may think that it hangs: %s cannot be written: %s",
                               self._path, error.strerror or error)  # fmt: skip
        return self._due

    def remove(self) -> None:
        """This agent ends. What others have put in the file's place stays."""
        with contextlib.suppress(OSError):
            if self._written == _identity(os.lstat(self._path)):
                os.unlink(self._path)

    def _write(self) -> None:
        kind = _kind_of(self._path)
        if kind:
            raise FileExistsError(errno.EEXIST, f"it is {kind} now", self._path)
        new = f"{self._path}.{os.getpid()}"
        try:
            with open(new, "w", encoding="utf-8", opener=_open_no_link) as file:
                file.write(self._text)
                file.flush()
                written = _identity(os.fstat(file.fileno()))
            os.replace(new, self._path)
            self._written = written
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(new)
            if self._written is None or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._write_over()

    def _write_over(self) -> None:
        """Have the last file say it, which takes no room. Raises OSError, also if that is not there any more."""
        fd = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            if _identity(os.fstat(fd)) != self._written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            os.pwrite(fd, self._text.encode(), 0)
            os.ftruncate(fd, len(self._text))
            self._written = _identity(os.fstat(fd))
        finally:
            os.close(fd)


def _kind_of(path: str) -> str:
    """What is there; empty for a file or nothing."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # whoever writes there is told
        return ""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no file")


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _open_no_link(path: str, flags: int) -> int:
    """As `open` does, but not through a link that somebody else has put there."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)
