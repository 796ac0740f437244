"""Who else has what of a large object: pure.

When several stores fetch one large object, its source need not send all of it to each: they can have most of it from
each other. The source notes who was sent which chunk. Who asks for a chunk next is told the address of a store that was
sent it, unless the source itself has been asked for less than that store. So every chunk leaves the source about once,
however many want the object, and all who have received something send about as much as they receive. A store is named
only for what was sent to it from here, or when it has said that it has all: so nobody waits for one who waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from scaler.store.layout import Key

#: seconds for which it is remembered who was sent what
_KEEP = 60.0


class _Spread:
    __slots__ = ("complete", "holders", "load", "sent", "used")

    def __init__(self) -> None:
        #: peers that each chunk was sent to, each once however often that was
        self.holders: dict[int, dict[int, None]] = {}
        #: peers that have all
        self.complete: dict[int, None] = {}
        #: how many chunks each peer was named for
        self.load: dict[int, int] = {}
        #: chunks that were sent from here
        self.sent = 0
        #: when somebody asked for a chunk last
        self.used = 0.0


class Spreading:
    """See the module's text. Chunks and peers are numbers."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        #: where each peer that is connected can be asked; "" if it can't
        self._addresses = addresses
        self._spreads: dict[Key, _Spread] = {}

    def __len__(self) -> int:
        return len(self._spreads)

    def place(self, key: Key, chunk: int, asking: int, others: Collection[str], only: bool, now: float) -> str | None:
        """The address of the store that should be asked for a chunk instead of this one; None if it is sent from here.

        One of the `others` is named if, and only if, that is said by `only`.
        """
        spread = self._spreads.setdefault(key, _Spread())
        spread.used = now
        best, least = None, spread.sent
        for number in (*spread.holders.get(chunk, ()), *spread.complete):
            address = self._addresses.get(number)
            if not address or number == asking or (address in others) != only:
                continue
            load = spread.load.get(number, 0)
            if load <= least and address != self._addresses.get(asking):
                best, least = number, load
        if best is None:
            self.sent(key, chunk, asking)
            return None
        spread.load[best] = least + 1
        return self._addresses[best]

    def sent(self, key: Key, chunk: int, to: int) -> None:
        """A chunk is sent to a peer."""
        spread = self._spreads.get(key)
        if spread is not None:
            spread.sent += 1
            if self._addresses.get(to):
                spread.holders.setdefault(chunk, {})[to] = None

    def has_all(self, key: Key, number: int) -> None:
        """A peer has the whole object."""
        spread = self._spreads.get(key)
        if spread is not None and self._addresses.get(number):
            spread.complete[number] = None

    def gone(self, number: int) -> None:
        """A peer is gone."""
        for spread in self._spreads.values():
            spread.complete.pop(number, None)
            spread.load.pop(number, None)

    def tick(self, now: float) -> None:
        """Look at the time."""
        for key, spread in list(self._spreads.items()):
            if now - spread.used >= _KEEP:
                del self._spreads[key]
