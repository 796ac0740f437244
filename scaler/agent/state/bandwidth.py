"""How fast objects come from other hosts: the bytes that came while any were on their way, by the time that took."""

#: less than this many bytes tell more of the trips than of the way
ENOUGH = 1 << 20
#: a busy time that goes on is taken note of from so many bytes on
MUCH = 64 << 20
#: what a new figure counts for
_WEIGHT = 0.3


class Bandwidth:
    """Learns from what comes. One that nothing has come to knows nothing."""

    __slots__ = ("_bytes", "_since", "_under_way", "learnt")

    def __init__(self) -> None:
        #: bytes a second, an average that follows the last figures; 0 while unknown
        self.learnt = 0.0
        self._under_way = 0
        self._since = 0.0
        self._bytes = 0

    def begin(self, now: float) -> None:
        """An object is on its way."""
        if not self._under_way:
            self._since, self._bytes = now, 0
        self._under_way += 1

    def end(self, now: float, size: int) -> None:
        """It is here, with so many bytes; 0: it is not wanted any more, or could not be had."""
        self._under_way -= 1
        self._bytes += size
        if now <= self._since or self._bytes < (MUCH if self._under_way else ENOUGH):
            return
        seen = self._bytes / (now - self._since)
        self.learnt += (seen - self.learnt) * (_WEIGHT if self.learnt else 1.0)
        self._since, self._bytes = now, 0
