"""The stores that a client can use: a directory of its own host, or (`RemoteStore`) one that it reaches by network."""

from __future__ import annotations

from collections.abc import Sequence

from scaler.client.core import events as ev
from scaler.common.records import frozen
from scaler.protocol.messages import PLACE
from scaler.store import StoreFull
from scaler.store.layout import Key, StoredObject
from scaler.store.remote import RemoteStore
from scaler.store.room import RoomRequest
from scaler.store.segments import open_object
from scaler.store.segments import write as write_object
from scaler.store.warm import WarmSegments


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

    def put(self, key: Key, inband: bytes | memoryview, buffers: Sequence[memoryview]) -> int:
        """Write a value; its size. Raises `scaler.store.StoreFull`, of which the store's owner is told, and OSError."""
        try:
            size = write_object(self.path, key, inband, buffers, self._warm.write)
        except StoreFull as full:
            self._request.ask(full)
            raise
        self._request.met()
        return size

    def get(self, key: Key) -> StoredObject:
        """A value, mapped and not copied. Raises `scaler.store.ObjectMissing`, OSError."""
        return open_object(self.path, key, sparing=True)


@frozen
class Place:
    """Where values are written at present."""

    #: number of the agent whose store it is
    agent: int
    store: LocalStore | RemoteStore
    #: of the client, in keys
    client: int
    #: of the session, when the place was found
    generation: int
