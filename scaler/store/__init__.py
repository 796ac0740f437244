"""Large values as files: the store of a host, and bytes between stores.

A store is a directory in memory (/dev/shm) with one file an object. Whoever makes a value writes it once; readers map
it privately, so that they may change their copy and nobody can change the object. `segments` has the rules that make
it safe to use the memory of a freed object again.
"""


class StoreFull(Exception):
    """There is no room for an object where the store is."""

    def __init__(self, path: str, wanted: int, free: int) -> None:
        super().__init__(f"{path} has no room for {wanted:,} bytes: {free:,} are free")
        self.path = path
        #: bytes
        self.wanted = wanted
        #: bytes
        self.free = free

    def __reduce__(self) -> tuple[type["StoreFull"], tuple[str, int, int]]:
        return StoreFull, (self.path, self.wanted, self.free)


class ObjectMissing(Exception):
    """The store has no such object, or no longer."""


class TransferFailed(Exception):
    """Another store could not be reached, or went silent."""
