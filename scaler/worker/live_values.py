"""Values that stay in the worker that made them, as Python objects: only other rows of their graph need them.

Rows that run here get the object itself. When somebody else needs it, it is *published*: written to the store as a
file, from the parts it was packed to when it was made, so no code of the user runs for that. All values together are
bounded; those that were not used for longest are published and let go.

The main thread adds and uses values. The control thread publishes and drops them, also while user code runs.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from scaler.common.records import entity
from scaler.serialize.outofband import Packed
from scaler.store import segments
from scaler.store.layout import Key, file_name, size_of
from scaler.worker_protocol.messages import PublishedValue


@entity
class LiveValue:
    """A value that stayed."""

    value: Any
    packed: Packed
    #: bytes of its file
    size: int
    #: the dispatch that made it
    dispatch: int
    #: bytes in this process: the buffers are the value's own memory, the pickle is a second copy of the rest
    memory: int
    #: it has been written to the store
    published: bool = False


def live_value(value: Any, packed: Packed, dispatch: int) -> LiveValue:
    """Return a value as it can stay, which this dispatch has made."""
    size = size_of(len(packed.inband), [buffer.nbytes for buffer in packed.buffers])
    return LiveValue(value, packed, size, dispatch, size + len(packed.inband))


class LiveValues:
    """The values that stayed in this worker, least recently used first. Thread-safe."""

    def __init__(self, tell: Callable[[PublishedValue], None]) -> None:
        #: is called after a value was published that nobody had asked for, and let go
        self._tell = tell
        #: held for moments only
        self._lock = threading.Lock()
        #: held by whoever writes a value to the store
        self._writing = threading.Lock()
        self._values: OrderedDict[Key, LiveValue] = OrderedDict()
        #: bytes that all values take
        self.memory = 0

    def get(self, key: Key) -> LiveValue | None:
        """Return a value to be used now, or None if it is not here."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def add(self, key: Key, value: LiveValue) -> None:
        """Let a value stay; another one of the same key goes."""
        with self._lock:
            old = self._values.pop(key, None)
            self._values[key] = value
            self.memory += value.memory - (0 if old is None else old.memory)

    def drop(self, keys: Iterable[Key], last: int | None = None) -> None:
        """Let values go, but for those of dispatches after `last`; keys that are not here do not matter."""
        gone = []  # what the values' destructors do happens outside of the lock
        with self._lock:
            for key in keys:
                found = self._values.get(key)
                if found is not None and (last is None or found.dispatch <= last):
                    del self._values[key]
                    self.memory -= found.memory
                    gone.append(found)

    def publish(self, store: str, key: Key) -> PublishedValue:
        """Have a value in the store; it stays here too. Blocks while it is written, raises nothing."""
        with self._writing:
            with self._lock:
                found = self._values.get(key)
            try:
                if found is None or found.published:
                    if os.path.exists(os.path.join(store, file_name(key))):
                        return PublishedValue(key, segments.open_object(store, key).size, None)
                    if found is None:
                        return PublishedValue(key, 0, "the worker that made it does not have it any more")
                if not self._write(store, key, found):
                    return PublishedValue(key, 0, "it was dropped while it was written")
            except Exception as error:  # mostly StoreFull; whatever it is, the value is still here
                return PublishedValue(key, 0 if found is None else found.size, str(error) or type(error).__name__)
            return PublishedValue(key, found.size, None)

    def make_room(self, store: str, needed: int, limit: int) -> None:
        """Publish values and let them go until `needed` bytes more are at most `limit`.

        Blocks while they are written. Raises StoreFull, OSError; then the values that could not be written stay.
        """
        while True:
            with self._lock:
                if not self._values or self.memory + needed <= limit:
                    return
                key = next(iter(self._values))
            with self._writing:
                with self._lock:
                    found = self._values.get(key)
                if found is None or not (found.published or self._write(store, key, found)):
                    continue
                self.drop([key])
            self._tell(PublishedValue(key, found.size, None))
            del found

    def _write(self, store: str, key: Key, value: LiveValue) -> bool:
        """Write a value to the store; say False, and leave nothing, if it was dropped meanwhile."""
        segments.write(store, key, value.packed.inband, value.packed.buffers)
        with self._lock:
            if key in self._values:
                value.published = True
                return True
        segments.free(store, key)
        return False
