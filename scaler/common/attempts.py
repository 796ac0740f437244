"""When a connection that failed or was lost is tried again: soon at first, then less often, until patience is over."""

import math

#: seconds between the first attempts
FIRST_PAUSE = 0.02
#: seconds between later ones of all who connect, at most; clients and agents of a pair: `transport/candidates.py`
LONGEST_PAUSE = 0.5


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
        self._pause = min(2 * pause, self._longest)
        return max(0.0, min(pause, self.deadline - now))

    def are_over(self, now: float) -> bool:
        """One has failed now: it was the last."""
        return now >= self.deadline
