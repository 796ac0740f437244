"""A mapping that forgets what was not used lately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


def _nothing(_: object) -> int:
    """Weighs nothing."""
    return 0


class Recent(Generic[_K, _V]):
    """At most two generations of `limit` entries, and of so many bytes, as `weigh` says, but for a single entry."""

    def __init__(self, limit: int, most: float = float("inf"), weigh: Callable[[_V], int] = _nothing) -> None:
        self._limit = limit
        #: bytes of a generation
        self._most = most
        self._weigh = weigh
        #: bytes that came into the fresh one
        self._weight = 0
        #: entries used since the last turn of generations
        self.fresh: dict[_K, _V] = {}
        self._stale: dict[_K, _V] = {}

    def get(self, key: _K) -> _V | None:
        """The value, which is used just now; None if there is none."""
        value = self.fresh.get(key)
        if value is None:
            value = self._stale.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def forget(self, key: _K) -> None:
        """There is no such entry any more. Takes no lock: the collector may call this."""
        gone = self.fresh.pop(key, None)
        if gone is not None:
            self._weight -= self._weigh(gone)
        self._stale.pop(key, None)

    def put(self, key: _K, value: _V) -> None:
        """Add or replace an entry."""
        weight = self._weigh(value)
        if self.fresh and (len(self.fresh) >= self._limit or self._weight + weight > self._most):
            self._stale = self.fresh
            self.fresh = {}
            self._weight = 0
        self.fresh[key] = value
        self._weight += weight
