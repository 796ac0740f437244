"""Which values were stored, so that they are recognised when they are given again; and when to let go of them.

    entry (by key) ──► SentObject ◄── StoredValue ◄── calls that need it
       ┊ weakly                         │
       └┄┄┄┄┄┄┄┄► value ◄───────────────┘

A `SentObject` stands for what was announced to the scheduler, and releases it when it goes. A `StoredValue` is what
calls have among their needs; it keeps the value too, so that it can be written again while they are under way.
Afterwards an entry stays for as long as the value could be given again: as somebody else has it, or shortly, if
somebody has the memory that it was made of, since functions are often wrapped anew for each call. `forget_unneeded`
sees to that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from scaler.client.values.content import Content, Key, reference_to

#: seconds for which an object is kept whose value is gone, while its memory is there
LINGER = 10.0
#: bytes of such objects, but for the last one used
LINGER_BYTES = 1 << 30


class SentObject:
    """An object of this client in a store."""

    __slots__ = ("_release", "content", "id", "size")

    def __init__(self, object_id: int, size: int, content: Content, release: Callable[[int], None]) -> None:
        self.id = object_id
        #: bytes
        self.size = size
        self.content = content
        #: must not take a lock: the garbage collector calls it
        self._release = release

    def __del__(self) -> None:
        self._release(self.id)


class StoredValue:
    """Stands for an object among the needs of a call, and keeps its value."""

    __slots__ = ("__weakref__", "_object", "id", "value")

    def __init__(self, sent: SentObject, value: Any) -> None:
        self._object = sent
        self.id = sent.id
        self.value = value


def _nothing() -> None:
    """Stands for a reference to a value that is gone."""


class Entry:
    """What is stored of the values of one key."""

    __slots__ = ("lock", "sent", "used", "value")

    def __init__(self) -> None:
        #: held while the value is compared or written
        self.lock = threading.RLock()
        self.sent: SentObject | None = None
        #: weakly, where that can be
        self.value: Callable[[], Any] = _nothing
        #: when it was last needed, seconds
        self.used = 0.0


class RememberedValues:
    """The entries of one client. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # the collector may run anybody's code, also while these are held
        self._lock = threading.RLock()
        self._entries: dict[Key, Entry] = {}
        #: by object id: what pending calls need
        self._needed: WeakValueDictionary[int, StoredValue] = WeakValueDictionary()

    def entry(self, key: Key) -> Entry:
        """The entry of a key, which may be new."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = Entry()
            return entry

    def use(self, entry: Entry, value: Any) -> StoredValue | None:
        """What a call needs that is given this value; None if the entry has no object. Needs the entry's lock."""
        entry.used = self._clock()
        sent = entry.sent
        if sent is None:
            return None
        if entry.value() is None:
            entry.value = reference_to(value)
        needed = self._needed.get(sent.id)
        if needed is None:
            needed = self._needed[sent.id] = StoredValue(sent, value)
        return needed

    def replace(self, entry: Entry, sent: SentObject | None, value: Any) -> None:
        """A value was stored for an entry, or could not be. Needs the entry's lock."""
        entry.sent = sent
        entry.value = reference_to(value)

    def value_of(self, object_id: int) -> Any:
        """The value of an object; None if it is gone."""
        needed = self._needed.get(object_id)
        if needed is not None:
            return needed.value
        with self._lock:
            entries = list(self._entries.values())
        for entry in entries:
            if entry.sent is not None and entry.sent.id == object_id:
                return entry.value()
        return None

    def forget_unneeded(self) -> None:
        """Let go of what cannot be given again; to be called about twice a second, and while much is sent.

        Takes about a microsecond for each buffer. Does not wait for entries that are in use.
        """
        if not self._entries:
            return
        now = self._clock()
        lingering: list[tuple[float, int, Key]] = []
        dropped: list[Entry] = []  # die without the lock
        values: list[Callable[[], Any]] = []  # and so do these
        with self._lock:
            for key, entry in list(self._entries.items()):
                if not entry.lock.acquire(False):
                    continue  # it is being used
                try:
                    sent = entry.sent
                    if sent is None:
                        dropped.append(self._entries.pop(key))
                    elif sent.id in self._needed:
                        entry.used = now
                    elif not sent.content.is_referenced(entry.value):
                        values.append(entry.value)
                        entry.value = _nothing  # it may be all that keeps the memory
                        if now - entry.used < LINGER and sent.content.has_owners:
                            lingering.append((entry.used, sent.size, key))
                        else:
                            dropped.append(self._entries.pop(key))
                finally:
                    entry.lock.release()
            lingering.sort(reverse=True)
            total = 0
            for _, size, key in lingering[1:]:
                total += size
                if total > LINGER_BYTES:
                    dropped.append(self._entries.pop(key))

    def clear(self) -> None:
        """The scheduler forgets all objects."""
        with self._lock:
            entries, self._entries = self._entries, {}
            self._needed = WeakValueDictionary()
        entries.clear()
