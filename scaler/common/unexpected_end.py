"""The last line of a daemon's log, should a failure or a defect of the engine end it: why. Whoever looks finds it."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

from scaler.common.process_limits import words_of

logger = logging.getLogger("scaler")


@contextlib.contextmanager
def told_in_log(who: str, *expected: type[Exception]) -> Iterator[None]:
    """Say in the log what has ended a block, with its traceback, and end the process by SystemExit.

    What is `expected` is passed on: others tell the user. A log on standard error has told him;
    otherwise the line is there, too.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, expected):
            raise
        said = f"{who} ends by a defect: {type(error).__name__}: {words_of(error)}"
        logger.error("%s", said, exc_info=error)
        if not _is_on_standard_stream() and sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"{said}; its log says more\n")
        raise SystemExit(1) from error


def tell_end(why: str) -> None:
    """Say in the log why this program ends with a failure; and on standard error, if the log is elsewhere."""
    logger.error("%s", why)
    if not _is_on_standard_stream() and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{why}\n")


def _is_on_standard_stream() -> bool:
    """What was logged just now is seen where the program's output is."""
    handlers = logging.getLogger().handlers
    for handler in handlers:
        stream = getattr(handler, "stream", None)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if stream.fileno() in (1, 2):  # type: ignore[union-attr]
                return True
    return not handlers  # then Python itself shows it
