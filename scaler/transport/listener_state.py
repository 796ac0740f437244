"""What the sockets of one listener have in common: its rules, its peers' numbers, how many fit into this process."""

from __future__ import annotations

import itertools
import logging
import math
import resource

from scaler.common.process_limits import limit_of_descriptors, open_descriptors, usable
from scaler.transport.notices import Notices

#: Bytes that wait to be sent to a peer, after which whoever has the listener is told with each message.
MOST_UNSENT = 1 << 27
#: The same where all peers together have a bound, at least.
LEAST_UNSENT = 1 << 20
#: Bytes of small messages that one call of `receive` takes, of each local peer and of all others together, before
#: others have their turn: to deal with these takes longer than their size says.
PASS_BYTES = 1 << 16
#: Seconds between two looks at how many descriptors the rest of the process has.
_LOOK_SECONDS = 1.0


class ListenerState:
    """The rules of one listener."""

    __slots__ = (
        "_looked", "_others", "awaits_welcome", "connections", "gone", "has_strangers", "limit", "most_unsent",
        "new_peer", "notices", "pass_bytes", "swamped",
    )  # fmt: skip

    def __init__(self, limit: int, awaits_welcome: bool, log: logging.Logger, first_peer: int = 1) -> None:
        #: Bytes of a message, at most.
        self.limit = limit
        #: A peer's first message is a greeting, and nothing else may be long before it is welcomed.
        self.awaits_welcome = awaits_welcome
        #: Gives each peer its number.
        self.new_peer = itertools.count(first_peer).__next__
        self.notices = Notices(log)
        #: As `PASS_BYTES`; the shell takes less while that takes it long.
        self.pass_bytes = PASS_BYTES
        #: As `MOST_UNSENT`.
        self.most_unsent = MOST_UNSENT
        #: How many are open, by all its sockets.
        self.connections = 0
        #: Peers that left by themselves, or had to, since the shell last asked; their last messages were received
        #: before. True: of this machine, so its process has ended or wanted that; False: perhaps its way there has.
        self.gone: dict[int, bool] = {}
        #: Peers to whom much waits to be sent, and how many bytes, since the shell last asked.
        self.swamped: dict[int, int] = {}
        #: Somebody came who was not welcomed yet, or waits to be let in, since nobody did when the sockets were tended.
        self.has_strangers = False
        #: Descriptors that are no connections, and when they were counted, seconds.
        self._others = 0
        self._looked = -math.inf

    def share_unsent(self, together: int) -> None:
        """Somebody came: tell of those for whom more waits than the share of each in so many bytes."""
        share = together // max(1, self.connections)
        self.most_unsent = min(MOST_UNSENT, max(LEAST_UNSENT, share))

    def take_gone(self) -> dict[int, bool]:
        """Those, once."""
        gone, self.gone = self.gone, {}
        return gone

    def take_swamped(self) -> dict[int, int]:
        """Those, once."""
        swamped, self.swamped = self.swamped, {}
        return swamped

    def is_full(self, now: float) -> bool:
        """There are as many connections as this process may have descriptors for, without what others need.

        The log says so.
        """
        if self.has_room(now):
            return False
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.notices.warn(
            "no new connections for now: %d are open, beside %d other descriptors, and %d are kept free: %s",
            self.connections, self._others, most - usable(most), limit_of_descriptors(),
        )  # fmt: skip
        return True

    def has_room(self, now: float, more: int = 1) -> bool:
        """So many more connections fit in."""
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most == resource.RLIM_INFINITY:
            return True
        if now - self._looked >= _LOOK_SECONDS:
            try:
                self._others = open_descriptors() - self.connections
            except OSError:  # not even one for the look
                self._others = most - self.connections
                return False
            self._looked = now
        return self.connections + self._others + more <= usable(most)
