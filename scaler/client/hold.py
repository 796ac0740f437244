"""Results that stay in a store until somebody looks at them.

The client is told the size of such a result only. A `Hold` stands for it: as long as it lives the scheduler keeps the
object. The value is read where `Future.result` is called: mapped from the store of this host without being copied, or
fetched. It lies in private memory, so it can be changed like any other, and is gone when the user lets go of it.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from scaler.errors import ScalerError
from scaler.serialize.call import AnySerializer
from scaler.serialize.outofband import unpack
from scaler.store.layout import StoredObject

if TYPE_CHECKING:
    from scaler.client.link import Link
    from scaler.client.stores import Stores


#: seconds for which results are waited for that nobody is left to make again
ALONE_TIMEOUT = 1.0


class Hold:
    """A result in a store. Any thread."""

    __slots__ = ("__weakref__", "_found", "_holds", "id", "is_loaded", "lock", "name", "size")

    def __init__(self, holds: Holds, row_id: int, size: int, name: str) -> None:
        self._holds = holds
        self.id = row_id
        #: bytes
        self.size = size
        #: of the task
        self.name = name
        #: held while the value is loaded
        self.lock = threading.RLock()
        #: somebody has had the value
        self.is_loaded = False
        #: what was fetched and not loaded
        self._found: StoredObject | None = None

    def fetch(self, timeout: float | None = None) -> None:
        """Get hold of the bytes: the scheduler may be gone when the value is loaded. Blocks; raises like `load`."""
        if self._found is None:
            self._found = self._holds.read(self.id, f"the result of task {self.name} ({self.id})", timeout)

    def load(self, timeout: float | None = None) -> Any:
        """The value, a new one each time. Blocks for as long as it takes to get it here.

        Raises `ObjectLost`, `ConnectionFailed`, TimeoutError, and what the value raises while it is unpickled.
        """
        self.fetch(timeout)
        found, self._found = self._found, None
        assert found is not None
        self.is_loaded = True
        try:
            return self._holds.unpack(found)
        except Exception as error:
            error.add_note("(raised on the client, while a task's result was unpickled)")
            raise

    def __del__(self) -> None:
        self._holds.forget(self.id)


class Holds:
    """All results of one client that are in stores."""

    def __init__(self, link: Link, stores: Stores, serializer: AnySerializer | None) -> None:
        self._link = link
        self._stores = stores
        self._serializer = serializer
        self._alive: dict[int, weakref.ref[Hold]] = {}

    def add(self, row_id: int, size: int, name: str) -> Hold:
        """A result came."""
        hold = Hold(self, row_id, size, name)
        self._alive[row_id] = weakref.ref(hold)
        return hold

    def forget(self, row_id: int) -> None:
        """A `Hold` is gone. Called by the garbage collector, on any thread at any point: must not take a lock."""
        self._alive.pop(row_id, None)
        self._link.release(row_id)

    def read(self, object_id: int, what: str, timeout: float | None = None) -> StoredObject:
        """The bytes of an object of this client; see `Stores.read`."""
        found = self._stores.look_up(object_id)
        if found is not None:
            return found
        return self._link.apart(lambda: self._stores.read(object_id, what, timeout))

    def unpack(self, found: StoredObject) -> Any:
        """The value of an object."""
        if self._serializer is not None:
            return self._serializer.deserialize(bytes(found.inband))
        return unpack(found.inband, found.buffers)

    def value_of(self, object_id: int, what: str) -> Any:
        """The value of an object of this client, a copy; blocks. Raises like `Hold.load`."""
        return self.unpack(self.read(object_id, what))

    def fetch_all(self, timeout: float) -> None:
        """Get hold of all results that nobody has looked at: the scheduler is going to forget them. Blocks.

        Results that take longer than `timeout` seconds are lost; where there are no workers, those that are not here.
        """
        deadline = time.monotonic() + timeout
        for reference in list(self._alive.values()):
            hold = reference()
            if hold is not None and not hold.is_loaded:
                if not self._link.session.workers:
                    deadline = min(deadline, time.monotonic() + ALONE_TIMEOUT)
                try:
                    hold.fetch(max(0.0, deadline - time.monotonic()))
                except (ScalerError, TimeoutError, OSError):  # it is said to whoever looks at it
                    continue
