"""What became of the rows that were begun: the exact account behind "every row is reported once".

Rows of an assignment are begun in order, and each leaves one value in `values` or one error, so the account needs no
mark per row: rows before `start` are reported, rows from there are in `values`, and if fewer values are there than rows
begun, the last row begun is the one that runs. The main thread appends to `values` without a lock. Everything else
happens under `lock`: the control thread may come at any moment and carry away what is finished, `values[:n]` at a time.
"""

from __future__ import annotations

import pickle
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

from scaler.protocol import failures
from scaler.protocol.codes import APART, DOUBTFUL, ERROR, KEEP, LACKING, PROFILE, SIZE, VALUES_EACH, VALUES_LIST
from scaler.serialize.payload import PROTOCOL
from scaler.serialize.record import exception_record
from scaler.worker import context, profiling
from scaler.worker.assignment import Assignment
from scaler.worker.inputs import Failed, failure_of
from scaler.worker.profiling import NOT_PROFILED, Used
from scaler.worker_protocol.messages import EndedSpan
from scaler.worker_protocol.progress import BEGUN_CELL, DISPATCH_CELL, ROW_CELL

Clock = Callable[[], int]


class Ledger:
    """The account of the assignment that runs, and the results that were not sent yet."""

    def __init__(self, page: memoryview, clock: Clock = time.monotonic_ns) -> None:
        self.lock = threading.RLock()
        self._page = page
        self._clock = clock
        self._assignment: Assignment | None = None
        #: rows of the assignment before this one are reported
        self._start = 0
        #: when the row `_start` began, ns
        self._since = 0
        #: the outcome of rows from `_start` on
        self.kind = VALUES_LIST
        #: their values: builtin scalars of a VALUES_LIST, otherwise the payload of each
        self.values: list[Any] = []
        self._results: list[EndedSpan] = []
        self._done: list[int] = []

    def open(self, assignment: Assignment) -> None:
        """Begin the account of an assignment, before its first row begins."""
        with self.lock:
            self._assignment = assignment
            self._start = assignment.lo
            self.kind = VALUES_EACH if assignment.run.flags & (KEEP | APART) else VALUES_LIST
            self._page[DISPATCH_CELL] = assignment.run.dispatch
            # While the function is decoded, its first row is at risk, but has not begun.
            self._page[BEGUN_CELL] = 0
            self._page[ROW_CELL] = assignment.lo + 1
            self._since = self._clock()

    def close(self) -> None:
        """End the account of the assignment: all its rows are finished or were taken back."""
        with self.lock:
            assignment = self._assignment
            assert assignment is not None
            assert not assignment.rows
            self.cut()
            self._assignment = None
            self._page[ROW_CELL] = 0
            self._done.append(assignment.run.dispatch)

    def collect(self, kind: int) -> None:
        """From the next value on, rows have the outcome `kind`, and `values` takes what belongs to that."""
        with self.lock:
            self.cut()
            self.kind = kind

    def begin_span(self) -> None:
        """Count the time of the next span from now."""
        with self.lock:
            self.cut()
            self._since = self._page[BEGUN_CELL] = self._clock()

    def cut(self, used: Used = NOT_PROFILED) -> None:
        """Make results of all finished rows, which have used this."""
        with self.lock:
            count = len(self.values)
            if not count:
                return
            values = self.values[:count]
            del self.values[:count]
            lo = self._start
            self._start = hi = lo + count
            # The row that runs, if one does, began when these ended.
            begun = self._page[ROW_CELL] - 1
            now: int = self._page[BEGUN_CELL] if begun >= hi else self._clock()
            if self.kind != VALUES_LIST:
                sizes, body = array("I", map(len, values)), b"".join(values)
                self._add(lo, hi, self.kind, now, used, sizes, body)
            else:
                self._add_list(lo, values, now, used)

    def _add_list(self, lo: int, values: list[Any], now: int, used: Used) -> None:
        """Make results of the rows from `lo` on, in as few lists as fit into messages."""
        body = pickle.dumps(values, PROTOCOL)  # of scalars: the form that protocol/value_list.py can cut
        count = len(values)
        if len(body) <= context.largest_result():
            self._add(lo, lo + count, VALUES_LIST, now, used, array("I", [len(body)]), body)
        elif count > 1:
            half = count // 2
            self._add_list(lo, values[:half], now, used)
            self._add_list(lo + half, values[half:], now, used)
        else:
            record = too_large(len(body)).record
            self._add(lo, lo + 1, ERROR, now, used, array("I", [len(record)]), record)

    def settle(self, error: BaseException) -> bool:
        """Account for the row that was running when `error` came up; say whether there was one."""
        with self.lock:
            assignment = self._assignment
            assert assignment is not None
            if self._start + len(self.values) >= assignment.next_row():
                return False
            profiled = bool(assignment.run.flags & PROFILE)
            self.cut()
            outcome = ERROR
            failed = failure_of(error, assignment.run.name)
            if failed is None:
                record = exception_record(error, assignment.run.name, context.largest_exception())
            elif failed.lacking is None:
                outcome, record = DOUBTFUL if failed.is_doubtful else ERROR, failed.record
            else:
                outcome, record = LACKING, SIZE.pack(failed.lacking) + failed.record
            row = self._start
            self._start = row + 1
            size = array("I", [len(record)])
            used = profiling.read() if profiled else NOT_PROFILED
            self._add(row, row + 1, outcome, self._clock(), used, size, record)
            return True

    def running(self) -> tuple[int, int] | None:
        """Return (dispatch, row) of the row that runs."""
        with self.lock:
            assignment = self._assignment
            if assignment is None:
                return None
            begun = assignment.next_row()
            return (assignment.run.dispatch, begun - 1) if self._start + len(self.values) < begun else None

    def take(self) -> tuple[list[EndedSpan], list[int]]:
        """Return the results not sent yet, and the dispatches that are finished since the last call."""
        with self.lock:
            self.cut()
            results, self._results = self._results, []
            done, self._done = self._done, []
            return results, done

    def _add(self, lo: int, hi: int, outcome: int, now: int, used: Used, sizes: array[int], body: bytes) -> None:
        assert self._assignment is not None
        run = self._assignment.run
        microseconds = max(0, now - self._since) // 1000
        self._since = now
        peak, processor_time = used
        fields = run.dispatch, run.client, run.batch, lo, hi, outcome, microseconds, peak, sizes, body, processor_time
        self._results.append(tuple.__new__(EndedSpan, fields))  # half the price of a call of the class


def too_large(size: int) -> Failed:
    """Return the failure of a row whose result is larger than a message to the agent can be."""
    limit = context.largest_result()
    return Failed(failures.result_too_large(size, limit).encode())
