"""The log of a program whose reader may have stopped (see `scaler.common.outlet`): lines are left out, nobody waits.

One that is slow is waited for, or the first burst of lines would be lost. What may be waited in all is bounded, and
grows only while something is taken. A file whose disk is full takes nothing at once, and is not waited for.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import stat
import time
from collections.abc import Callable
from typing import TextIO

from scaler.common.outlet import Outlet, may_block, put

#: seconds that are waited for a reader in a row, at most; parts of the time that are waited for a slow one; seconds
#: that are waited for one at the end of the program; and between two looks
LONGEST_WAIT, WAITING_PARTS, LAST_WAIT, LOOK = 0.5, 0.25, 0.2, 0.002
#: seconds between two looks whether a log's file was moved away
FOLLOW = 1.0
#: why lines are missing in a file
UNWRITABLE = "the log could not be written"


class LineWriter:
    """Writes lines whole and in order, or counts them as missing. `put` takes what is taken of some bytes at once."""

    def __init__(
        self,
        put: Callable[[bytes], int],
        note: Callable[[int], bytes],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`note` is a line that says how many are missing at its place."""
        self._put = put
        self._note = note
        self._clock = clock
        self._sleep = sleep
        #: of a line whose beginning was taken
        self._rest = b""
        #: lines that were left out since the last note
        self._missing = 0
        #: seconds that may be waited
        self._patience = LONGEST_WAIT
        #: when something was taken last
        self._taken_at = clock()

    def write(self, line: bytes) -> None:
        """Write a line, or leave it out. Blocks for a moment. Raises OSError, and then it is left out as well."""
        note = self._note(self._missing) if self._missing else b""
        self._missing += 1
        self._end_line()
        if not self._rest:
            self._begin(note + line)

    def finish(self) -> None:
        """Write what is left to be said. Blocks for a moment. Raises OSError."""
        self._patience = LAST_WAIT
        self._end_line()
        if self._missing and not self._rest:
            self._begin(self._note(self._missing))

    def forget(self) -> None:
        """This is a fork of the process whose lines they are."""
        self._rest, self._missing = b"", 0

    def begin_anew(self) -> None:
        """What comes next is written elsewhere: a line whose beginning was taken is missing there."""
        self._missing += bool(self._rest)
        self._rest = b""

    def _end_line(self) -> None:
        if self._rest:
            taken, error = self._send(self._rest)
            self._rest = self._rest[taken:]
            if error is not None:
                raise error

    def _begin(self, lines: bytes) -> None:
        """Write that so many are missing, and another one; or nothing."""
        taken, error = self._send(lines)
        if taken:
            self._rest, self._missing = lines[taken:], 0
        if error is not None:
            raise error

    def _send(self, data: bytes) -> tuple[int, OSError | None]:
        """How much was taken, and why no more is: a disk may become full in the midst of a line."""
        began, taken, error = self._clock(), 0, None
        until = began + self._patience
        try:
            taken = self._put(data)
            while taken < len(data) and self._clock() < until:
                self._sleep(LOOK)
                taken += self._put(data[taken:])
        except OSError as problem:
            error = problem
        now = self._clock()
        self._patience = until - now
        if taken:
            self._patience = min(LONGEST_WAIT, self._patience + (now - self._taken_at) * WAITING_PARTS)
            self._taken_at = now
        return taken, error


class LineHandler(logging.Handler):
    """Logs to an open pipe, terminal, socket or file. A fork may log there too, as long as it has the descriptor."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        stream.flush()
        self.stream = stream
        has_reader = may_block(stream.fileno())
        #: None: there is no need for one, or this is a fork, whose tasks may close what they have not opened
        self._outlet: Outlet | None = Outlet(stream.fileno()) if has_reader else None
        self._why = "nobody has read the log" if has_reader else UNWRITABLE
        self._writer = LineWriter(self._put, self._note)
        os.register_at_fork(after_in_child=self._leave)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.write(self._line(record))
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """See `logging.Handler`. Blocks for a moment."""
        with contextlib.suppress(OSError):
            self._writer.finish()
        super().close()

    def _put(self, data: bytes) -> int:
        return put(self.stream.fileno(), data) if self._outlet is None else self._outlet.put(data)

    def _leave(self) -> None:
        self._writer.forget()
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            outlet.close()

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(self.stream.encoding, "backslashreplace")

    def _note(self, missing: int) -> bytes:
        return self._line(_note(self._why, missing))


class NotFollowed(OSError):
    """There can be no new file for the log, in words that say what becomes of its lines."""

    def __init__(self, error: OSError | None, are_lost: bool) -> None:
        why = "something else has its name" if error is None else error.strerror or str(error)
        #: lines that are logged now are nowhere
        self.are_lost = are_lost
        what = (
            "its file was removed, and lines are missing until it can"
            if are_lost
            else "it goes on in the one that was moved"
        )
        super().__init__(f"the log can't go on in a new file: {why}; {what}")


class FileFollower(logging.FileHandler):
    """Logs to a file; to a new one of its name once that was moved away or removed, as those do who rotate logs.

    Where no new one can be made, lines go on into one that was moved; if it was removed they are counted.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises OSError."""
        super().__init__(path, encoding="utf-8")
        assert self.stream is not None
        self._clock = clock
        self._identity = _identity(os.fstat(self.stream.fileno()))
        self._next_look = clock() + FOLLOW
        #: lines that went into a file which nobody can open any more
        self._missing = 0
        #: counts those for which the disk has no room
        self._writer = LineWriter(self._put, self._note)
        os.register_at_fork(after_in_child=self._writer.forget)

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None:
            self._look(self.stream, record)
        try:
            self._writer.write(self._line(record))
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        if self.stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._writer.finish()
        super().close()

    def _put(self, data: bytes) -> int:
        assert self.stream is not None
        return os.write(self.stream.fileno(), data)

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def _note(self, missing: int) -> bytes:
        return self._line(_note(UNWRITABLE, missing))

    def _look(self, before: TextIO, record: logging.LogRecord) -> None:
        """See to it that there is a file for this, now and then, and as soon as there is none."""
        try:
            are_lost = not os.fstat(before.fileno()).st_nlink
            if self._clock() >= self._next_look or (are_lost and not self._missing):
                self._next_look = self._clock() + FOLLOW
                if self._follow(before, are_lost):
                    are_lost = False
            self._missing += are_lost
        except NotFollowed as error:  # it goes on with what it has
            self._missing += error.are_lost
            self.handleError(record)
        except (OSError, ValueError):
            self.handleError(record)

    def _follow(self, before: TextIO, are_lost: bool) -> bool:
        """Go on in a new file, if the one that it has is there no more; whether it does."""
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(self.baseFilename)
            if _identity(there) == self._identity:
                return False
            if not stat.S_ISREG(there.st_mode):
                raise NotFollowed(None, are_lost)
        try:
            self.stream = stream = self._open()
        except OSError as error:
            raise NotFollowed(error, are_lost) from None
        self._identity = _identity(os.fstat(stream.fileno()))
        before.close()
        self._writer.begin_anew()
        missing, self._missing = self._missing, 0
        if missing:
            self._writer.write(self._line(_note("the log's file was removed", missing)))
        return True


def _note(why: str, missing: int) -> logging.LogRecord:
    text = f"lines are missing here, as {why}: %d"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (missing,), None)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def to_stream(stream: TextIO) -> logging.Handler:
    """Logs to a standard stream of this process."""
    with contextlib.suppress(OSError, ValueError):  # what somebody has put in its place has no descriptor
        if type(stream) is io.TextIOWrapper:
            return LineHandler(stream)
    return logging.StreamHandler(stream)


def to_file(path: str) -> logging.Handler:
    """Logs to a file, which may be a pipe or a terminal; nobody has to read that. Does not block. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISFIFO(os.stat(path).st_mode):  # to be read by this process, too: else it takes a reader to open it
            return LineHandler(open(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC), "w", encoding="utf-8"))
    handler = FileFollower(path)
    assert handler.stream is not None
    return LineHandler(handler.stream) if may_block(handler.stream.fileno()) else handler
