"""What strangers make a listener say in the log: the first time at once, then one line a minute that counts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from scaler.common.line_limit import LineLimit


class Notices:
    """The lines of one listener."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._limits: dict[str, LineLimit] = {}

    def warn(self, kind: str, *details: object) -> None:
        """Something happened: `kind` is the line's format, `details` are for its places. Not said too often."""
        limit = self._limits.get(kind)
        if limit is None:
            limit = self._limits[kind] = LineLimit()
        more = limit.words(self._clock())
        if more is not None:
            self._log.warning(kind + "%s", *details, more)
