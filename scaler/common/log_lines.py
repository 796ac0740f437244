"""What a line of the log looks like: people read it and scripts grep it, as `[INFO]2023-03-19 12:16:10-0400: text`."""

from __future__ import annotations

import logging
import sys

from scaler.common.log_handlers import to_stream

#: for `logging.Formatter`
LINE = "[%(levelname)s]%(asctime)s: %(message)s"
TIME = "%Y-%m-%d %H:%M:%S%z"


class LineFormatter(logging.Formatter):
    """Writes messages so that no name, and nothing that a task prints, makes a line that nobody has logged.

    What a terminal would obey is escaped. Further lines of a message are indented.
    """

    def __init__(self) -> None:
        super().__init__(LINE, TIME)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, without a traceback."""
        record.message = in_line(record.message)
        return super().formatMessage(record)


def set_up(level: str, *handlers: logging.Handler) -> None:
    """The log of this process goes to these; to standard error if there are none."""
    handlers = handlers or (to_stream(sys.stderr),)
    for handler in handlers:
        handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level, handlers=handlers)


def in_line(text: str) -> str:
    r"""A message without what a terminal would obey, or what looks like another message.

    >>> print(in_line("f\x1b[2J\r\u202e: 1\n[INFO]: 2"))
    f\x1b[2J\r\u202e: 1
        [INFO]: 2
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _WRITTEN.get(c) or ascii(c)[1:-1] for c in text)


_WRITTEN = {"\t": "\t", "\n": "\n    "}
