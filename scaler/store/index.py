"""What an agent has: a pure account of objects, where each is, who needs it, and which of them leave memory first.

    shm      a file in the store: in memory
    live     a Python object in the worker of a slot: in memory
    disk     a file in the spill directory
    open     the same, which is read there as memory has no room for it
    moving   on the way between store and disk, or from another host: in memory, or about to be

No method costs more than the entries it returns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Literal, TypeAlias

from scaler.store.layout import Key

Place: TypeAlias = Literal["shm", "live", "disk", "open", "moving"]
#: where it is a file that tasks and clients of this host can read
READABLE: tuple[Place, ...] = ("shm", "open")
#: where it takes no memory
ON_DISK: tuple[Place, ...] = ("disk", "open")


class Entry:
    """One object. Read it; only `StoreIndex` changes it."""

    __slots__ = ("leaving", "pins", "place", "size", "slot")

    def __init__(self, size: int, place: Place, slot: int | None, leaving: bool) -> None:
        #: bytes
        self.size = size
        self.place: Place = place
        #: the worker that has it, while it is live
        self.slot = slot
        #: while it is moving: true if it is on its way out of memory
        self.leaving = leaving
        #: how many use it now; it stays where it is for as long as somebody does
        self.pins = 0


class StoreIndex:
    """See the module's text. Unknown keys raise KeyError."""

    __slots__ = ("_arriving", "_bytes", "_clients", "_entries", "_idle", "_live", "_live_bytes", "hard_limit", "limit")

    def __init__(self, limit: int, hard_limit: int) -> None:
        #: bytes in memory from which on objects should go to disk
        self.limit = limit
        #: bytes in memory from which on there should be no new ones
        self.hard_limit = hard_limit
        self._entries: dict[Key, Entry] = {}
        #: bytes by place
        self._bytes: dict[Place, int] = {"shm": 0, "live": 0, "disk": 0, "open": 0, "moving": 0}
        #: bytes of those that move into memory
        self._arriving = 0
        #: exactly the entries in shm that nobody has pinned, the least recently used first
        self._idle: OrderedDict[Key, None] = OrderedDict()
        #: keys of each client, in the order in which they came
        self._clients: dict[int, dict[Key, None]] = {}
        #: keys that are live, by slot, and their bytes
        self._live: dict[int, dict[Key, None]] = {}
        self._live_bytes: dict[int, int] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __getitem__(self, key: Key) -> Entry:
        return self._entries[key]

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Entry | None:
        """The entry of an object, None if it isn't here."""
        return self._entries.get(key)

    # ---- changes ---------------------------------------------------------------------------------------------------
    def add(self, key: Key, size: int, place: Place = "shm", slot: int | None = None) -> Entry:
        """A new object; one that is "moving" comes from another host. Raises ValueError for one that is here."""
        if key in self._entries:
            raise ValueError(f"object {key} is here already")
        _check(place, slot)
        entry = self._entries[key] = Entry(size, place, slot, False)
        self._clients.setdefault(key[0], {})[key] = None
        self._enter(key, entry)
        return entry

    def remove(self, key: Key) -> Entry:
        """An object is gone, whoever has pinned it."""
        entry = self._entries.pop(key)
        self._leave(key, entry)
        keys = self._clients[key[0]]
        del keys[key]
        if not keys:
            del self._clients[key[0]]
        return entry

    def move(self, key: Key, place: Place, slot: int | None = None, size: int | None = None) -> Entry:
        """An object is in another place now, perhaps with another size. Pins stay.

        What is "moving" goes out of memory if it was there, and into it if it was on disk.
        """
        entry = self._entries[key]
        _check(place, slot)
        self._leave(key, entry)
        entry.leaving = place == "moving" and entry.place in ("shm", "live")
        entry.place, entry.slot = place, slot
        if size is not None:
            entry.size = size
        self._enter(key, entry)
        return entry

    def touch(self, key: Key) -> None:
        """It was used just now."""
        if key in self._idle:
            self._idle.move_to_end(key)

    def pin(self, key: Key) -> None:
        """Somebody begins to use it."""
        self._entries[key].pins += 1
        self._idle.pop(key, None)

    def unpin(self, key: Key) -> None:
        """Somebody has used it. Raises ValueError if nobody was."""
        entry = self._entries[key]
        if not entry.pins:
            raise ValueError(f"object {key} is not pinned")
        entry.pins -= 1
        if not entry.pins and entry.place == "shm":
            self._idle[key] = None

    # ---- questions -------------------------------------------------------------------------------------------------
    def bytes_in(self, place: Place) -> int:
        """Bytes of all objects there."""
        return self._bytes[place]

    def live_bytes(self, slot: int) -> int:
        """Bytes of the objects that are live in the worker of a slot."""
        return self._live_bytes.get(slot, 0)

    def live_in(self, slot: int) -> list[Key]:
        """The objects that are live in the worker of a slot, the oldest first."""
        return list(self._live.get(slot, ()))

    def of_client(self, client: int) -> list[Key]:
        """All objects of a client, the oldest first."""
        return list(self._clients.get(client, ()))

    def keys(self) -> Collection[Key]:
        """All objects, the oldest first."""
        return self._entries.keys()

    def victims(self, wanted: int) -> list[Key]:
        """Objects to spill: in shm, pinned by nobody, the least recently used first, until they cover so many bytes."""
        found = []
        for key in self._idle:
            if wanted <= 0:
                break
            found.append(key)
            wanted -= self._entries[key].size
        return found

    @property
    def total(self) -> int:
        """Bytes of all objects, on disk too."""
        return sum(self._bytes.values())

    @property
    def on_disk(self) -> int:
        """Bytes that are on disk."""
        return sum(self._bytes[place] for place in ON_DISK)

    @property
    def in_memory(self) -> int:
        """Bytes that are in memory, or on their way into it or out of it."""
        return self._bytes["shm"] + self._bytes["live"] + self._bytes["moving"]

    @property
    def over(self) -> int:
        """Bytes that should leave memory and are not on their way; 0 if all is well."""
        return max(0, self._bytes["shm"] + self._bytes["live"] + self._arriving - self.limit)

    @property
    def is_full(self) -> bool:
        """True if there should be no new work."""
        return self.in_memory > self.hard_limit

    def _enter(self, key: Key, entry: Entry) -> None:
        self._bytes[entry.place] += entry.size
        if entry.place == "shm":
            if not entry.pins:
                self._idle[key] = None
        elif entry.place == "live":
            assert entry.slot is not None
            self._live.setdefault(entry.slot, {})[key] = None
            self._live_bytes[entry.slot] = self._live_bytes.get(entry.slot, 0) + entry.size
        elif entry.place == "moving" and not entry.leaving:
            self._arriving += entry.size

    def _leave(self, key: Key, entry: Entry) -> None:
        self._bytes[entry.place] -= entry.size
        self._idle.pop(key, None)
        if entry.place == "live":
            assert entry.slot is not None
            keys = self._live[entry.slot]
            del keys[key]
            self._live_bytes[entry.slot] -= entry.size
            if not keys:
                del self._live[entry.slot], self._live_bytes[entry.slot]
        elif entry.place == "moving" and not entry.leaving:
            self._arriving -= entry.size


def _check(place: Place, slot: int | None) -> None:
    if (place == "live") != (slot is not None):
        raise ValueError("an object has a slot exactly if it is live")
