"""The objects of an agent: one record for each that is stored, what is known of it elsewhere, and who waits for it.

Small objects are bytes that came in messages. Stored ones are files in the store or on disk, or live in the worker that
made them; the index says where, how large, and who has pinned them, the record what is going on with them.
"""

from dataclasses import field
from enum import StrEnum

from scaler.common.records import entity
from scaler.protocol.messages import Frame
from scaler.store.index import StoreIndex
from scaler.store.layout import Key


class ObjectState(StrEnum):
    """What is going on with a stored object."""

    #: it is not here
    ABSENT = "absent"
    #: a file in the store
    STORED = "stored"
    #: in the worker that made it, and nowhere else
    LIVE = "live"
    #: its worker was asked to write it into the store
    PUBLISHING = "publishing"
    #: on its way from the store to disk
    SPILLING = "spilling"
    #: a file on disk
    ON_DISK = "on disk"
    #: a file on disk that is read there
    OPEN = "open"
    #: on its way from disk to the store
    RESTORING = "restoring"
    #: on its way from another agent
    FETCHING = "fetching"
    #: live or on disk; making a file in the store of it failed, and will be tried again
    BACKING_OFF = "backing off"


#: states in which tasks and clients of this host can read it
READABLE = (ObjectState.STORED, ObjectState.OPEN)


@entity
class ObjectRecord:
    """A stored object that is here, or of which it is known who has it."""

    #: changed by `object_moves.move` alone
    state: ObjectState = ObjectState.ABSENT
    #: bytes, as those say who have it; 0 if nobody has said
    told_size: int = 0
    #: numbers of other agents that have it
    holders: list[int] = field(default_factory=list)
    #: it shall become a file that can be read; rows or workers that wait for that are told when it has come, or is lost
    wanted: bool = False
    #: the scheduler waits for an answer when it is a file
    scheduler_waits: bool = False
    #: other agents or clients wait to read it
    peers_wait: bool = False
    #: how often making a file of it has failed since it was wanted
    tries: int = 0
    #: while it backs off: when it is tried again, seconds
    retry_at: float = 0.0


@entity
class ObjectTable:
    """All objects of an agent."""

    #: where stored objects are, their sizes and pins; written by `object_moves` but for pins
    index: StoreIndex
    #: stored objects that are here or were told of
    records: dict[Key, ObjectRecord] = field(default_factory=dict)
    #: objects that came inside messages
    inline: dict[Key, Frame] = field(default_factory=dict)
    #: where other agents are asked for objects, by number; those that can't be are not in it
    addresses: dict[int, str] = field(default_factory=dict)
    #: those that back off; a dict serves as an ordered set
    backing_off: dict[Key, ObjectRecord] = field(default_factory=dict)
    #: bytes on their way to disk
    leaving: int = 0
    #: bytes that went to disk since objects began to back off, and that none of them was promised
    freed: int = 0

    @property
    def count(self) -> int:
        """Objects held."""
        return len(self.inline) + len(self.index)

    def record(self, key: Key) -> ObjectRecord:
        """The record of an object; a new one if nothing is known of it."""
        found = self.records.get(key)
        if found is None:
            found = self.records[key] = ObjectRecord()
        return found

    def forget_absent(self, key: Key, record: ObjectRecord) -> None:
        """Drop the record of an object that is not here, unless somebody is known to have it."""
        if record.state == ObjectState.ABSENT and not record.holders:
            self.records.pop(key, None)

    def size(self, key: Key) -> int:
        """Bytes; 0 if nothing is known of it."""
        entry = self.index.get(key)
        if entry is not None:
            return entry.size
        record = self.records.get(key)
        return 0 if record is None else record.told_size

    def addresses_of(self, key: Key) -> list[str]:
        """Where it can be had from."""
        record = self.records.get(key)
        if record is None:
            return []
        return [address for number in record.holders if (address := self.addresses.get(number))]

    def can_be_brought(self, key: Key) -> bool:
        """It is here, or somebody is known who has it."""
        return key in self.index or bool(self.addresses_of(key))

    def release_pins(self, keys: list[Key]) -> None:
        """Objects are not used any more; those that are gone do not matter."""
        for key in keys:
            entry = self.index.get(key)
            if entry is not None and entry.pins:
                self.index.unpin(key)
