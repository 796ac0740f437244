"""Results that stay in a store until somebody looks at them.

The client is told the size of such a result only. A `StoredResult` stands for it: as long as it lives the scheduler
keeps the object. The value is read where `Future.result` is called: mapped from the store of this host without being
copied, or fetched. It lies in private memory, so it can be changed like any other, and is gone when the user lets go of
it.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from scaler.client.io.driver import SessionDriver
from scaler.client.io.io_thread import IOThread
from scaler.client.values.stores import Stores
from scaler.client.values.value_codec import ValueCodec
from scaler.common.callback_thread import CallbackThread
from scaler.errors import ScalerError
from scaler.serialize.record import note_unpickling
from scaler.store.layout import StoredObject

#: seconds for which results are waited for that nobody is left to make again
ALONE_TIMEOUT = 1.0


class StoredResult:
    """One result in a store. Any thread."""

    __slots__ = ("__weakref__", "_bytes", "_lock", "_results", "id", "is_loaded", "name", "size")

    def __init__(self, results: StoredResults, row_id: int, size: int, name: str) -> None:
        self._results = results
        self.id = row_id
        #: bytes
        self.size = size
        #: of the task
        self.name = name
        self._lock = threading.RLock()
        #: somebody has had the value
        self.is_loaded = False
        #: what was fetched and not loaded
        self._bytes: StoredObject | None = None

    @contextlib.contextmanager
    def held(self, timeout: float | None) -> Iterator[float | None]:
        """Nobody else loads the value meanwhile; what is left of a limit in seconds. Raises TimeoutError."""
        begun = time.monotonic()
        if not self._lock.acquire(timeout=-1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)):
            raise TimeoutError
        try:
            yield None if timeout is None else max(0.0, begun + timeout - time.monotonic())
        finally:
            self._lock.release()

    def fetch(self, timeout: float | None = None) -> None:
        """Get the bytes here: the scheduler may be gone when the value is loaded. Blocks; raises like `load`."""
        if self._bytes is None:
            self._bytes = self._results.read(self.id, f"the result of task {self.name} ({self.id})", timeout)

    def load(self, timeout: float | None = None) -> Any:
        """The value, a new one each time. Blocks for as long as it takes to get it here.

        Raises `ObjectLost`, `ConnectionFailed`, TimeoutError, and what the value raises while it is unpickled.
        """
        self.fetch(timeout)
        found, self._bytes = self._bytes, None
        assert found is not None
        self.is_loaded = True
        try:
            return self._results.unpack(found)
        except Exception as error:
            note_unpickling(error, self.name)
            raise

    def defer(self, callback: Callable[[], object]) -> None:
        """Have another thread than the I/O thread call this: it may want the value. Does not block."""
        self._results.defer(callback)

    def __del__(self) -> None:
        self._results.forget(self.id)


class StoredResults:
    """All results of one client that are in stores. Any thread."""

    def __init__(
        self, driver: SessionDriver, stores: Stores, codec: ValueCodec, io_thread: IOThread, callbacks: CallbackThread
    ) -> None:
        self._driver = driver
        self._stores = stores
        self._io_thread = io_thread
        #: makes the value of an object
        self.unpack = codec.unpack
        self._callbacks = callbacks
        #: has callbacks called of futures whose values are in a store
        self.defer = callbacks.run
        #: by row id
        self._alive: dict[int, weakref.ref[StoredResult]] = {}

    def add(self, row_id: int, size: int, name: str) -> StoredResult:
        """A result came."""
        stored = StoredResult(self, row_id, size, name)
        self._alive[row_id] = weakref.ref(stored)
        return stored

    def forget(self, row_id: int) -> None:
        """A `StoredResult` is gone. Called by the garbage collector, on any thread at any point: takes no lock."""
        self._alive.pop(row_id, None)
        self._driver.release(row_id)

    def read(self, object_id: int, what: str, timeout: float | None = None) -> StoredObject:
        """The bytes of an object of this client; blocks. Raises `ObjectLost`, `ConnectionFailed`, TimeoutError."""
        found = self._stores.look_up(object_id)
        if found is not None:
            return found
        self._io_thread.step_aside()
        return self._stores.read(object_id, what, timeout)

    def value_of(self, object_id: int, what: str) -> Any:
        """The value of an object of this client, a copy; blocks. Raises like `read`."""
        return self.unpack(self.read(object_id, what))

    def close(self) -> None:
        """Nothing will come any more; callbacks that are due are still called."""
        self._callbacks.close()

    def fetch_all(self, timeout: float) -> None:
        """Get the bytes of all results that nobody has looked at: the scheduler is going to forget them. Blocks.

        Results that take longer than `timeout` seconds are lost; where there are no workers, those that are not here.
        """
        deadline = time.monotonic() + timeout
        for reference in list(self._alive.values()):
            stored = reference()
            if stored is not None and not stored.is_loaded:
                if not self._driver.session.workers:
                    deadline = min(deadline, time.monotonic() + ALONE_TIMEOUT)
                try:
                    stored.fetch(max(0.0, deadline - time.monotonic()))
                except (ScalerError, TimeoutError, OSError):  # it is said to whoever looks at it
                    continue
