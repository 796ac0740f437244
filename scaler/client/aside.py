"""A thread for what must not be done on the I/O thread since it may block: one thing after the other."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Aside:
    """The thread is started when it is first needed. Any thread may call the methods."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._todo: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], object]) -> None:
        """Have this done; what it raises is logged. Does not block."""
        self._todo.put(work)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """End the thread after what it has to do; does not wait for that."""
        self._todo.put(None)

    def _run(self) -> None:
        while (work := self._todo.get()) is not None:
            try:
                work()
            except Exception:
                _log.exception("in %s", self._name)
            del work
