"""The stores that a client can use: a directory of its own host, or one that it reaches by network."""

from __future__ import annotations

from scaler.client.core import events as ev
from scaler.common.records import frozen
from scaler.protocol.messages import PLACE
from scaler.serialize.outofband import Packed
from scaler.store import StoreFull
from scaler.store.layout import Key, StoredObject
from scaler.store.remote import RemoteStore
from scaler.store.room import RoomRequest
from scaler.store.segments import open_object
from scaler.store.segments import write as write_object
from scaler.store.warm import WarmSegments
from scaler.transport import Security


@frozen
class Written:
    """An object that was written to a store."""

    id: int
    #: bytes
    size: int
    #: number of the agent whose store it is
    agent: int
    #: of the session, when it was written
    generation: int

    def announce(self, source: object) -> ev.Announce:
        """What tells the scheduler; `source()` packs the value again."""
        place = PLACE.pack(self.size, self.agent)
        return ev.Announce(self.id, place, stored=True, source=source, generation=self.generation)


class LocalStore:
    """The store of an agent on this host: a directory."""

    def __init__(self, path: str, warm: WarmSegments) -> None:
        self.path = path
        self._warm = warm
        self._request = RoomRequest(path)

    def put(self, key: Key, packed: Packed) -> int:
        """Write a value; its size. Raises `scaler.store.StoreFull`, of which the store's owner is told, and OSError."""
        try:
            size = write_object(self.path, key, packed.inband, packed.buffers, self._warm.write)
        except StoreFull as full:
            self._request.ask(full)
            raise
        self._request.met()
        return size

    def get(self, key: Key) -> StoredObject:
        """A value, mapped and not copied. Raises `scaler.store.ObjectMissing`, OSError."""
        return open_object(self.path, key, sparing=True)

    def close(self) -> None:
        """Nothing is open."""


class NetworkStore:
    """A store that is reached by network."""

    def __init__(self, address: str, security: Security) -> None:
        self._store = RemoteStore(address, security)

    def put(self, key: Key, packed: Packed) -> int:
        """Send a value; its size. Blocks. Raises `scaler.store.StoreFull`, `scaler.store.TransferFailed`."""
        return self._store.put(key, packed.inband, packed.buffers)

    def get(self, key: Key) -> StoredObject:
        """Fetch a value. Blocks. Raises `scaler.store.ObjectMissing`, `scaler.store.TransferFailed`."""
        return self._store.get(key)

    def tidy(self) -> bool:
        """Close a connection that is of no use any more; whether this is in use. Blocks for a moment at most."""
        return self._store.tidy()

    def close(self) -> None:
        """Hang up; blocks until calls of other threads have ended."""
        self._store.close()


@frozen
class Place:
    """Where values are written at present."""

    #: number of the agent whose store it is
    agent: int
    store: LocalStore | NetworkStore
    #: of the client, in keys
    client: int
    #: of the session, when the place was found
    generation: int
