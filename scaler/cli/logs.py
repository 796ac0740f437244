"""Where the log of a program goes; what its lines look like is said in `scaler.common.log_lines`."""

from __future__ import annotations

import logging
import sys

from scaler import defaults
from scaler.common import log_lines
from scaler.errors import ScalerError


def set_up(level: str, path: str) -> None:
    """Sends the log of this process to a file, or to standard output for /dev/stdout (which may be a socket).

    Raises `ScalerError` when the file cannot be written.
    """
    try:
        handler = logging.StreamHandler(sys.stdout) if path == defaults.LOG_PATH else logging.FileHandler(path)
    except OSError as error:
        raise ScalerError(f"cannot write the log to {path}: {error.strerror or error}") from error
    handler.setFormatter(log_lines.LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger(__name__).info("logging to %r", (path,))
