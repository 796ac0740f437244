"""Modules that a daemon starts without, and may need later: it loads them when it has run for a second.

A module that is loaded when it is first needed is looked for at a bad moment: the package may have been upgraded since,
and the module of another version does not fit those that are loaded; or the process has no descriptor left to open it.
So it is loaded early, though not at the start, which would take longer by it; and one by one, in pauses, so that nobody
waits for long, and what begins meanwhile has its processors. Programs that end within a second, as many with a local
cluster do, never pay.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import sys
from collections.abc import Callable, Sequence

logger = logging.getLogger("scaler")

#: seconds of life before the first one, between two, and from when on those are loaded that no pause was found for
FIRST, PAUSE, OVERDUE = 1.0, 0.2, 10.0
#: seconds until another attempt where the system did not let one be read, and how many there are
AGAIN, ATTEMPTS = 10.0, 30


def load_all(names: Sequence[str]) -> None:
    """Load these now, as far as that is possible. Raises nothing."""
    for name in names:
        with contextlib.suppress(Exception):  # who needs it will say so
            importlib.import_module(name)


class LaterModules:
    """Loads modules in this order. One thread."""

    def __init__(
        self, names: Sequence[str], now: float, load: Callable[[str], object] = importlib.import_module
    ) -> None:
        """`now`: when the process begins to serve, seconds. Each name should come behind those that it imports."""
        self._names = [name for name in reversed(names) if name not in sys.modules]
        self._load = load
        self._overdue = now + OVERDUE
        self._attempts = 0
        #: when the next one is loaded, seconds; infinite: all are
        self.wake = now + FIRST if self._names else math.inf

    def attend(self, now: float, is_busy: bool) -> None:
        """Load one if it is time and nobody waits. Blocks for some ms at most; raises nothing."""
        if now < self.wake:
            return
        self.wake = now + PAUSE
        if is_busy and now < self._overdue:
            return
        name = self._names[-1]
        try:
            self._load(name)
        except OSError as error:
            self._attempts += 1
            if self._attempts == 1:
                logger.warning("modules can't be loaded that may be needed later: %s: %s; tried again", name, error)
            if self._attempts < ATTEMPTS:
                self.wake = now + AGAIN
                return
        except Exception as error:
            what = "modules can't be loaded that may be needed later: restart this program: %s: %s: %s"
            logger.warning(what, name, type(error).__name__, error)
            self._names = self._names[-1:]  # others hardly fit either
        self._names.pop()
        if not self._names:
            self.wake = math.inf
