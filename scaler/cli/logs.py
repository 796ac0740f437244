"""Where the log of a program goes; what its lines look like is said in `scaler.common.log_lines`."""

from __future__ import annotations

import logging
import sys
import time

from scaler import defaults
from scaler.common import log_lines
from scaler.common.log_handlers import NotFollowed, to_file, to_stream
from scaler.common.outlet import complain
from scaler.errors import ScalerError

#: seconds between two complaints that the log can't be written
INTERVAL = 60.0


def set_up(level: str, path: str) -> None:
    """Begins the log of a program, which says first where it goes. Raises `ScalerError` as `direct`."""
    direct(level, path)
    logging.getLogger(__name__).info("logging to %r", (path,))


def direct(level: str, path: str) -> None:
    """Sends the log of this process to a file, or to standard output for /dev/stdout (which may be a socket).

    Raises `ScalerError` when the file cannot be written.
    """
    try:
        handler = to_stream(sys.stdout) if path == defaults.LOG_PATH else to_file(path)
    except OSError as error:
        raise ScalerError(f"cannot write the log to {path}: {error.strerror or error}") from error
    handler.handleError = _Complaints(handler).handle  # type: ignore[method-assign]
    handler.setFormatter(log_lines.LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


class _Complaints:
    """What is said where a line can't be logged: logging shows its own stack and the line, for each, without an end."""

    def __init__(self, handler: logging.Handler) -> None:
        self._handler = handler
        self._said = float("-inf")

    def handle(self, record: logging.LogRecord) -> None:
        error, now = sys.exc_info()[1], time.monotonic()
        if not isinstance(error, OSError):
            type(self._handler).handleError(self._handler, record)
        elif sys.stderr is not None:
            said = ""
            if now - self._said >= INTERVAL:
                self._said = now
                what = f"the log can't be written: {error.strerror or error}; lines are missing until it can"
                said = f"{error if isinstance(error, NotFollowed) else what}\n"
            are_lost = not isinstance(error, NotFollowed) or error.are_lost
            if are_lost and record.levelno >= logging.ERROR:  # it may be why the program ends
                said += f"{self._handler.format(record)}\n"
            complain(said)
