"""A file that says that this agent lives: for the probes of Kubernetes, and whoever else watches over processes.

It is written anew every few seconds, by the thread that does all of the agent's work: an old one means that it is
stuck. What is in it says whether the agent has a scheduler.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os

logger = logging.getLogger("scaler.agent")

#: seconds between two times that it is written
INTERVAL = 2.0
#: what is in it while the agent has a scheduler, and while it has none
CONNECTED, WAITING = "connected\n", "waiting\n"


class AliveFile:
    """See the module. For one thread."""

    def __init__(self, path: str) -> None:
        """Writes it. Raises OSError if that can't be."""
        self._path = path
        self._text = WAITING
        self._due = -math.inf
        self._has_complained = False
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
        """This agent ends."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _write(self) -> None:
        new = f"{self._path}.{os.getpid()}"
        try:
            with open(new, "w", encoding="utf-8") as file:
                file.write(self._text)
            os.replace(new, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise
