"""Large values as files: the store of a host, and bytes between stores.

A store is a directory in memory (/dev/shm) with one file an object. Whoever makes a value writes it once; readers map
it privately, so that they may change their copy and nobody can change the object. `segments` has the rules that make
it safe to use the memory of a freed object again.
"""

#: seconds for which room in a full store is waited for: its agent moves objects to disk, and others who fill the same
#: memory may be about to end
ROOM_PATIENCE = 5.0


class StoreFull(Exception):
    """There is no room for an object where the store is."""

    def __init__(self, path: str, wanted: int, free: int, largest: int | None = None, total: int | None = None) -> None:
        self.path = path
        #: bytes
        self.wanted = wanted
        #: bytes
        self.free = free
        #: bytes that the process that writes there may write to a file, if that is what is too little
        self.largest = largest
        #: bytes of the whole file system, free or not; None if it isn't known
        self.total = total
        super().__init__(self._reason(f"{wanted:,} bytes"))

    @property
    def is_for_good(self) -> bool:
        """There will be no room later either, whatever is moved or removed."""
        return self.largest is not None or self._is_too_large

    @property
    def reason(self) -> str:
        """Why there is no room for it, said behind what it takes."""
        return self._reason("it")

    @property
    def _is_too_large(self) -> bool:
        return self.total is not None and self.total < self.wanted

    def _reason(self, what: str) -> str:
        path = self.path
        if self.largest is not None:
            return (
                f"{path} can't take {what}: the process that writes there may write no file of more than "
                f"{self.largest:,} (`ulimit -f`)"
            )
        if self._is_too_large:
            return f"{path} can't take {what}: there are {self.total:,} in all{_advice(path)}"
        return f"{path} has no room for {what}: {self.free:,} are free{_advice(path)}"

    def __reduce__(self) -> tuple[type["StoreFull"], tuple[str, int, int, int | None, int | None]]:
        return StoreFull, (self.path, self.wanted, self.free, self.largest, self.total)


def _advice(path: str) -> str:
    """What whoever runs a host can do where memory is full, or the container has little of it."""
    if not path.startswith("/dev/shm/"):
        return ""
    return " (give /dev/shm more: docker or podman run --shm-size=SIZE, mount -o remount,size=SIZE /dev/shm)"


class ObjectMissing(Exception):
    """The store has no such object, or no longer."""


class TransferFailed(Exception):
    """Another store could not be reached, or went silent."""
