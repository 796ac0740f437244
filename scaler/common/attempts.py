"""When something that failed is tried again: soon at first, then less often; connections until patience is over."""

import math

#: seconds between the first attempts, and how much longer each pause is than the one before: what begins to listen is
#: found after a fifth of the time that it has taken by then, where a doubled pause may take all of that again
FIRST_PAUSE, GROWTH = 0.02, 1.25
#: seconds between later ones of all who connect, at most; clients and agents of a pair: `transport/candidates.py`
LONGEST_PAUSE = 0.5
#: bytes a second of a message that have to come for it to count as under way. Heartbeats alone are fewer: they go on in
#: a stream that was damaged, where all that comes is taken for a part of a message that never ends
UNDER_WAY = 4096


def is_under_way(moved: int, seconds: float) -> bool:
    """Whether so many bytes, in as many seconds, are a message that has not come to its end: no silence."""
    return 0 < moved >= UNDER_WAY * seconds


def growing_pause(failures: int, first: float, longest: float) -> float:
    """Seconds until something is tried again that has failed so often in a row: doubled each time, up to a bound.

    >>> [growing_pause(failures, 1.0, 60.0) for failures in (1, 2, 3, 10_000)]
    [1.0, 2.0, 4.0, 60.0]
    """
    return min(first * 2.0 ** min(failures - 1, 60), longest)


class Attempts:
    """The attempts to connect after one failure."""

    def __init__(self, now: float, patience: float = math.inf, longest: float = LONGEST_PAUSE) -> None:
        """`longest`: seconds between two, at most."""
        #: when the last one has to have succeeded
        self.deadline = now + patience
        self._pause = FIRST_PAUSE
        self._longest = longest

    def next_pause(self, now: float) -> float:
        """One has failed now, and they are not over: seconds until the next. The last one is at the deadline."""
        pause = self._pause
        self._pause = min(GROWTH * pause, self._longest)
        return max(0.0, min(pause, self.deadline - now))

    def are_over(self, now: float) -> bool:
        """One has failed now: it was the last."""
        return now >= self.deadline
