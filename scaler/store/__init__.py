"""Large values as files: the store of a host, and bytes between stores.

A store is a directory in memory (/dev/shm) with one file an object. Whoever makes a value writes it once; readers map
it privately, so that they may change their copy and nobody can change the object. `segments` has the rules that make
it safe to use the memory of a freed object again.
"""


class StoreFull(Exception):
    """There is no room for an object where the store is."""

    def __init__(self, path: str, wanted: int, free: int, largest: int | None = None) -> None:
        super().__init__(_reason(path, f"{wanted:,} bytes", free, largest))
        self.path = path
        #: bytes
        self.wanted = wanted
        #: bytes
        self.free = free
        #: bytes that the process may write to a file, if that is what is too little: there will be no room later either
        self.largest = largest

    @property
    def reason(self) -> str:
        """Why there is no room for it, said behind what it takes."""
        return _reason(self.path, "it", self.free, self.largest)

    def __reduce__(self) -> tuple[type["StoreFull"], tuple[str, int, int, int | None]]:
        return StoreFull, (self.path, self.wanted, self.free, self.largest)


def _reason(path: str, what: str, free: int, largest: int | None) -> str:
    if largest is not None:
        return f"{path} can't take {what}: this process may write no file of more than {largest:,} (`ulimit -f`)"
    return f"{path} has no room for {what}: {free:,} are free{_advice(path)}"


def _advice(path: str) -> str:
    """What whoever runs a host can do where memory is full, or the container has little of it."""
    if not path.startswith("/dev/shm/"):
        return ""
    return " (give /dev/shm more: docker or podman run --shm-size=SIZE, mount -o remount,size=SIZE /dev/shm)"


class ObjectMissing(Exception):
    """The store has no such object, or no longer."""


class TransferFailed(Exception):
    """Another store could not be reached, or went silent."""
