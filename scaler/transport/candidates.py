"""Where a scheduler is looked for that may be at several addresses: in turn, and less often where nobody answers."""

from __future__ import annotations

import time
from collections.abc import Callable

from scaler.common.attempts import LONGEST_PAUSE
from scaler.errors import AddressError, ConnectionFailed, ConnectionTimeout, HandshakeRefused, SchedulerStandsBy
from scaler.transport.address import Address

#: seconds for which somebody is given to answer who may not be there, while others may be
PROBE = 1.0
#: seconds for which one that was reached is given to say whether it leads, while there are others
ANSWER = 3.0
#: seconds for which an address is passed over where nobody answered, while there are others
REST = 3.0
#: seconds between rounds, at most
LONGEST_ROUND = 0.2


class Candidates:
    """The addresses of a scheduler and of those that stand by for it. One thread at a time.

    >>> candidates = Candidates(Address.parse("tcp://a:1,tcp://b:1"))
    >>> candidates.turn(0.0, is_silent=True)
    >>> candidates.current.url
    'tcp://b:1'
    """

    def __init__(self, address: Address) -> None:
        """Raises `AddressError` where nobody can be found."""
        self._each = address.for_client().each
        for each in self._each:
            if not each.port:
                raise AddressError(f"address {each.url!r} has port 0: the scheduler's log says which one it took")
        self._at = 0
        #: until when each is passed over, seconds
        self._rests = [float("-inf")] * len(self._each)
        #: one stood by when all were tried last: it may be about to lead
        self.one_stands_by = False

    @property
    def others(self) -> int:
        """How many there are besides one."""
        return len(self._each) - 1

    @property
    def current(self) -> Address:
        """Where to try next."""
        return self._each[self._at]

    @property
    def longest_pause(self) -> float:
        """Seconds between two rounds, at most."""
        return LONGEST_ROUND if self.others else LONGEST_PAUSE

    def find(self, attempt: Callable[[Address, float, float], None], deadline: float) -> None:
        """Try each in turn until one serves: `attempt(address, reached_by, answered_by)` raises for one that does not.

        A single one has until the `deadline` for both. Raises `ConnectionFailed` when all were tried; at once
        `HandshakeRefused`, but for one that stands by.
        """
        if not self.others:
            attempt(self.current, deadline, deadline)
            return
        troubles = []
        self.one_stands_by = False
        for _ in self._each:
            now = time.monotonic()
            try:
                attempt(self.current, min(deadline, now + PROBE), min(deadline, now + ANSWER))
                return
            except ConnectionFailed as error:
                if isinstance(error, HandshakeRefused) and not isinstance(error, SchedulerStandsBy):
                    raise
                troubles.append(str(error))
                self.one_stands_by |= isinstance(error, SchedulerStandsBy)
                self.turn(time.monotonic(), isinstance(error, ConnectionTimeout))
        raise ConnectionFailed("; ".join(dict.fromkeys(troubles)))

    def turn(self, now: float, is_silent: bool = False) -> None:
        """The current one did not serve: go on with the next. A silent one is passed over for a while."""
        if is_silent:
            self._rests[self._at] = now + REST
        awake = [i for i, until in enumerate(self._rests) if until <= now and i != self._at]
        following = [i for i in awake if i > self._at]
        if awake:
            self._at = (following or awake)[0]
        elif is_silent:
            self._at = (self._at + 1) % len(self._each)
