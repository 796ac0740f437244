"""What tasks say with `logging` goes where they print, so that it has their name there.

Warnings, and what is worse, go to standard error, as which they are warnings in the agent's log; other lines to
standard output. Levels between and beyond are said in the line.
"""

from __future__ import annotations

import logging
import sys

from scaler.worker.output import OutputStream

#: what the two streams say by themselves
_UNSAID = (logging.INFO, logging.WARNING)


class TaskLog(logging.Handler):
    """A handler in front of another one, which gets what no task has said, or what nobody takes from a task."""

    def __init__(self, otherwise: logging.Handler) -> None:
        super().__init__()
        self._otherwise = otherwise

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        stream = sys.stderr if record.levelno >= logging.WARNING else sys.stdout
        if isinstance(stream, OutputStream) and stream.streams():
            stream.write(f"{self.format(record)}\n")
        elif record.levelno >= self._otherwise.level:
            self._otherwise.handle(record)

    def format(self, record: logging.LogRecord) -> str:
        """The message, with its level where the stream does not say it."""
        text = super().format(record)
        return text if record.levelno in _UNSAID else f"{record.levelname}: {text}"
