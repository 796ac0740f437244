"""How many chunks are under way on a connection: few on a short way, on a long one as many as keep it full.

All that is under way is lost with its connection, and whatever comes behind it waits. So the window grows only while
answers tell of a long way and not of many bytes ahead of them: none came fast, and none takes much longer than the
fastest. On a narrow way answers wait for each other, and it stays small.
"""

from __future__ import annotations

#: chunks under way at first, and at most
FEWEST, MOST = 8, 48
#: a way is long by which no answer ever came within so many seconds
LONG = 0.05
#: the window grows while answers take at most so many times as long as the fastest, and shrinks from so many times on
_SOON, _LATE = 1.5, 3.0


class Window:
    """That of one connection."""

    __slots__ = ("_fastest", "size")

    def __init__(self) -> None:
        self.size = FEWEST
        #: seconds that the fastest answer took
        self._fastest = float("inf")

    def note(self, took: float) -> None:
        """The answer to what was asked for, or sent, took so many seconds."""
        self._fastest = fastest = min(self._fastest, took)
        if fastest >= LONG and took <= _SOON * fastest:
            self.size = min(MOST, self.size + 1)
        elif took >= _LATE * fastest:
            self.size = max(FEWEST, self.size - 1)
