"""How much of what peers say one step takes: no more than others may wait for, whatever it costs.

What a message costs is known when it has been dealt with, and there are small ones that cost thousands of times as much
as others. So the next step takes less when one has taken long, and more again when one has not.

Pure: `scaler.scheduler.server` says how long steps took, and has its listeners take that much.
"""

from scaler.transport.listener_state import PASS_BYTES

#: seconds that a step may take with what was said, before it takes less of each peer
LONGEST = 0.02
#: bytes that it takes of each peer, at least: a small message or two
LEAST = 256


class Pace:
    """Begins with all."""

    def __init__(self) -> None:
        #: bytes of small messages to be taken at a time
        self.bytes = PASS_BYTES

    def note(self, taken: int, seconds: float) -> bool:
        """A step has dealt with so many bytes in this time; whether the next one takes more or less than that did."""
        before = self.bytes
        if seconds > LONGEST:
            self.bytes = min(PASS_BYTES, max(LEAST, int(taken * LONGEST / seconds)))
        elif before < PASS_BYTES:
            self.bytes = min(PASS_BYTES, 2 * before)
        return self.bytes != before
