"""Waiting for a file system that may hang, as long as what it has to do can take, and not for ever."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import TypeVar

#: seconds that are waited for anything; and bytes a second that are read or written at least
PATIENCE, SLOWEST = 60.0, 10e6

Value = TypeVar("Value")


class Patience:
    """With one directory: while something there hangs, nothing else is tried. Any thread."""

    def __init__(self) -> None:
        #: what was not waited for any more
        self._hanging: threading.Thread | None = None

    def call(self, do: Callable[[], Value], size: int) -> Value:
        """Do something to files, with so many bytes; in a thread that is left alone if it does not come back. Blocks.

        Raises what that does, and OSError if it takes too long, or something else still hangs.
        """
        if self._hanging is not None and self._hanging.is_alive():
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        found: list[Value] = []
        failures: list[BaseException] = []

        def run() -> None:
            try:
                found.append(do())
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, name="scaler-files", daemon=True)
        thread.start()
        thread.join(PATIENCE + size / SLOWEST)
        if thread.is_alive():
            self._hanging = thread
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        if failures:
            raise failures.pop()
        return found.pop()
