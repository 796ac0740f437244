"""A mapping that forgets what was not used lately."""

from __future__ import annotations

from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class Recent(Generic[_K, _V]):
    """At most two generations of `limit` entries."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
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
        """There is no such entry any more."""
        self.fresh.pop(key, None)
        self._stale.pop(key, None)

    def put(self, key: _K, value: _V) -> None:
        """Add or replace an entry."""
        if len(self.fresh) >= self._limit:
            self._stale = self.fresh
            self.fresh = {}
        self.fresh[key] = value
