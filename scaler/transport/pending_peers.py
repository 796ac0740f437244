"""Who has come in and was not welcomed: for how long, how many from one address, and who goes to make room.

Pure. Whoever has the connections tells it who enters and leaves, and shows out those that it names. Nobody is named
before it had `GRACE` to say who it is, unless there is no room for those who have been here for long.
"""

from collections.abc import Iterator
from typing import NamedTuple

#: Seconds after which whoever was not welcomed goes.
PATIENCE = 5.0
#: Seconds after which it may have to go earlier, to make room for others.
GRACE = 0.1
#: Connections of one address that may wait for their welcome at once; all local ones count as one address.
MOST_WAITING = 256


class _Pending(NamedTuple):
    address: str
    #: When it entered, seconds.
    since: float


class PendingPeers:
    """The connections of one transport that were not welcomed; each is a number of that transport's own."""

    def __init__(self) -> None:
        #: In the order in which they entered.
        self.peers: dict[int, _Pending] = {}
        #: How many there are of each address.
        self._waiting: dict[str, int] = {}

    def __iter__(self) -> Iterator[int]:
        """All, the oldest first; they may leave meanwhile."""
        return iter(list(self.peers))

    def add(self, number: int, address: str, now: float) -> None:
        """Somebody came, or is not welcome any more."""
        self.remove(number)
        self.peers[number] = _Pending(address, now)
        self._waiting[address] = self._waiting.get(address, 0) + 1

    def remove(self, number: int) -> str | None:
        """Somebody was welcomed, or is gone; its address, None if it wasn't here."""
        peer = self.peers.pop(number, None)
        if peer is None:
            return None
        left = self._waiting[peer.address] - 1
        if left:
            self._waiting[peer.address] = left
        else:
            del self._waiting[peer.address]
        return peer.address

    def is_crowded(self, address: str) -> bool:
        """As many of this address wait as may."""
        return self._waiting.get(address, 0) >= MOST_WAITING

    def oldest(self, now: float, grace: float = GRACE) -> int | None:
        """Who may go to make room: the one that has waited longest, and for `grace` seconds; None if nobody has."""
        for number, peer in self.peers.items():
            return number if now - peer.since >= grace else None
        return None

    def overdue(self, now: float) -> list[int]:
        """Those who have to go: they had time, or had grace and are too many of their address."""
        surplus = {address: waiting - MOST_WAITING for address, waiting in self._waiting.items()}
        found = []
        for number, peer in self.peers.items():
            waited = now - peer.since
            if waited < GRACE:
                break
            if waited >= PATIENCE or surplus[peer.address] > 0:
                found.append(number)
                surplus[peer.address] -= 1
        return found

    def wake(self, now: float) -> float | None:
        """When the next may have to go; None while nobody is here."""
        if not self.peers:
            return None
        if any(waiting > MOST_WAITING for waiting in self._waiting.values()):
            return now + GRACE
        return next(iter(self.peers.values())).since + PATIENCE
