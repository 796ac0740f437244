"""What strangers make a listener say in the log: the first time at once, then one line a minute that counts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

#: Seconds between two lines of one kind.
INTERVAL = 60.0


class Notices:
    """The lines of one listener."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        #: Kind of line -> when it was said last, and how often it was not said since.
        self._said: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, *details: object) -> None:
        """Something happened: `kind` is the line's format, `details` are for its places. Not said too often."""
        now = self._clock()
        last, unsaid = self._said.get(kind, (None, 0))
        if last is not None and now - last < INTERVAL:
            self._said[kind] = last, unsaid + 1
            return
        self._said[kind] = now, 0
        more = f" (and {unsaid:,} times since the last such line)" if unsaid else ""
        self._log.warning(kind + "%s", *details, more)
