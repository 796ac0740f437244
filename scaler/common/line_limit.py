"""How many lines of one kind a log is told in a minute; the others are counted, and the next line says how many."""

from __future__ import annotations

#: that minute, in seconds
INTERVAL = 60.0


class LineLimit:
    """The lines of one kind."""

    __slots__ = ("_most", "_said", "_since", "_unsaid")

    def __init__(self, most: int = 1) -> None:
        """`most`: lines in a minute, which begins with the first of them."""
        self._most = most
        self._since = float("-inf")
        self._said = self._unsaid = 0

    def words(self, now: float) -> str | None:
        """What a line ends with that is said now, which may be nothing; None: it is not to be said."""
        if now - self._since >= INTERVAL:
            self._since, self._said = now, 0
        if self._said >= self._most:
            self._unsaid += 1
            return None
        self._said += 1
        unsaid, self._unsaid = self._unsaid, 0
        return f" (and {unsaid:,} times since the last such line)" if unsaid else ""
