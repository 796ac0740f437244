"""Notes of when tasks were submitted and when their ends were heard of."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from typing import Any

from scaler_dask.future_state import FutureState

#: tasks that are remembered, as many as distributed does unless it is told otherwise
MOST_RECORDS = 100_000


class TaskStream:
    """The tasks that it was shown since it was made, the last `MOST_RECORDS` of them. Any thread."""

    def __init__(self) -> None:
        self._records: deque[dict[str, Any]] = deque(maxlen=MOST_RECORDS)
        self._lock = threading.Lock()

    def watch(self, state: FutureState) -> None:
        """A task was submitted."""
        record = {"key": state.key, "status": "pending", "begun": time.time(), "ended": None, "error": ""}
        with self._lock:
            self._records.append(record)

        def ended() -> None:
            record.update(status=state.status, ended=time.time(), error=_error_of(state))

        state.watch(ended)

    def records(self) -> list[dict[str, Any]]:
        """Dicts with key, status, when it was submitted and ended (seconds since the epoch; None: not yet), and error:
        type and text of what it raised, else empty.
        """
        with self._lock:
            return [dict(record) for record in self._records]

    @property
    def data(self) -> list[dict[str, Any]]:
        """The same."""
        return self.records()


def _error_of(state: FutureState) -> str:
    error = state.error() if state.status == "error" else None
    return "" if error is None else traceback.format_exception_only(error)[0].strip()
