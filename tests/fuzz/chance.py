"""Choices that are made by bytes instead of by lot, so that a fuzzer that changes a byte changes a choice."""

from random import Random


class Over(Exception):
    """All bytes are used up."""


class Chosen(Random):
    """A `Random` that reads its choices from bytes. Raises Over after the last one."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if self._at + count > len(self._data):
            raise Over
        self._at += count
        return self._data[self._at - count : self._at]

    def random(self) -> float:
        """From 0 up to 1, by one byte."""
        return self.take(1)[0] / 256

    def getrandbits(self, k: int) -> int:
        """A number of that many bits."""
        return int.from_bytes(self.take((k + 7) // 8), "little") & ((1 << k) - 1)
