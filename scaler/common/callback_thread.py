"""A thread for callbacks that may block, so that the thread that has news for them never does: one after the other."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class CallbackThread:
    """Runs what it is given, in that order, on a daemon thread of its own, which the first call of `run` starts.

    Any thread may call the methods; none of them blocks.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        #: None ends the thread
        self._todo: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        #: held by who starts the thread
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, callback: Callable[[], object]) -> None:
        """Have this called; what it raises is logged. Raises RuntimeError if no thread can be started."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    thread.start()
                    self._thread = thread
        self._todo.put(callback)

    def close(self) -> None:
        """End the thread after what it has been given; does not wait for that."""
        self._todo.put(None)

    def _run(self) -> None:
        while (callback := self._todo.get()) is not None:
            try:
                callback()
            except BaseException:  # whatever it is, others want to be called
                _log.exception("in %s", self._name)
            del callback
