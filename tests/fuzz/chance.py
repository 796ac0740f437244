"""Choices that are made by bytes instead of by lot, so that a fuzzer that changes a byte changes a choice."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Over(Exception):
    """All bytes are used up."""


class Chosen:
    """What is used here of a `Random`, with each choice read from one byte. Raises Over after the last one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _byte(self) -> int:
        at = self._at
        self._at = at + 1
        try:
            return self._data[at]
        except IndexError:
            raise Over from None

    def choice(self, seq: Sequence[T]) -> T:
        """One of up to 256."""
        return seq[self._byte() % len(seq)]

    def randrange(self, stop: int) -> int:
        """A number from 0 up to `stop`, which is at most 256."""
        return self._byte() % stop

    def random(self) -> float:
        """From 0 up to 1."""
        return self._byte() / 256

    def randbytes(self, n: int) -> bytes:
        """The next bytes as they are."""
        at = self._at
        self._at = at + n
        if self._at > len(self._data):
            raise Over
        return self._data[at : self._at]
