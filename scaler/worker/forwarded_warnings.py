"""Warnings of tasks whose client wants to see them: sent to it, where they are issued again.

What a worker's own filters let through does not count: they let a place in the code warn once in a worker's life.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from scaler.protocol.codes import WARNINGS
from scaler.protocol.error_record import cut
from scaler.worker.context import TaskContext
from scaler.worker_protocol.messages import FromWorker, Output

#: different warnings that the rows of an assignment may send; the rest is left out
MOST = 100


@contextlib.contextmanager
def passed_on(send: Callable[[FromWorker], None], task: Callable[[], TaskContext | None]) -> Iterator[None]:
    """Send each warning once for each row, before its result."""
    told: set[tuple[int, str]] = set()

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        row = task()
        text = json.dumps([category.__module__, category.__qualname__, cut(str(message)), filename, lineno])
        if row is not None and (row.row, text) not in told and len(told) < MOST:
            told.add((row.row, text))
            send(Output(row.client, row.row, WARNINGS, row.name, text))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield
