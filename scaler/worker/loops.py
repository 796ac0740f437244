"""The loops that every task of the product goes through.

A row of a TOGETHER batch costs 0.2 us around the user's function. No exception is caught here: a row that raises
ends the loop, the ledger knows which row it was, and the loop is entered again. So does the IndexError of a deque
without rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaler.protocol.codes import PROFILE, SPREAD, TOGETHER, VALUES_EACH, VALUES_LIST
from scaler.serialize.payload import SCALARS
from scaler.serialize.record import exception_record
from scaler.worker import elsewhere, fitness, profiling
from scaler.worker.assignment import Assignment
from scaler.worker.inputs import Failed, Inputs
from scaler.worker.ledger import Clock, Ledger
from scaler.worker.result_writer import Encode, ResultWriter
from scaler.worker.row_calls import caller, failing
from scaler.worker_protocol.progress import BEGUN_CELL, ROW_CELL

#: Results are sent when they take this many bytes.
FLUSH_BYTES = 1 << 20

#: Texts up to this length are collected as they are.
SHORT = 4096

_NOTHING: frozenset[object] = frozenset()
_TEXTS = frozenset({str, bytes})
_PLAIN = SCALARS - _TEXTS


class Loops:
    """Makes the loop for an assignment."""

    def __init__(
        self,
        ledger: Ledger,
        results: ResultWriter,
        page: memoryview,
        clock: Clock,
        flush: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._results = results
        self._page = page
        self._clock = clock
        self._flush = flush
        #: a row that begins after this time sends the results before it, ns
        self.flush_at = 0

    def of(self, assignment: Assignment, inputs: Inputs) -> Callable[[], None]:
        """Return what runs the rows of an assignment until it raises."""
        run = assignment.run
        try:
            function, serializer = inputs.function(run)
            function = elsewhere.bound(function)
            assignment.serializer = serializer
            encode = self._results.encoder(assignment, serializer)
            if serializer is not None:
                self._ledger.collect(VALUES_EACH)
            if run.form == TOGETHER:
                items = inputs.arguments(run)
                if not run.flags & PROFILE:
                    spread = bool(run.flags & SPREAD)
                    return lambda: self._together(assignment, function, items, spread, encode)
            call = caller(assignment, inputs, function, serializer)
        except BaseException as error:
            if type(error) is Failed:
                failure = error
            else:
                failure = Failed(exception_record(error, run.name), is_doubtful=fitness.is_doubtful(error))
            call, encode = failing(failure), self._results.encoder(assignment, None)
        if run.flags & PROFILE:
            return lambda: self._profiled(assignment, call, encode)
        return lambda: self._each(assignment, call, encode)

    def _together(self, assignment: Assignment, function: Any, items: list[Any], spread: bool, encode: Encode) -> None:
        pop, page, clock = assignment.rows.popleft, self._page, self._clock
        append = self._ledger.values.append
        plain = self._plain()
        size, due = 0, self.flush_at
        while True:
            row = pop()
            page[ROW_CELL] = row + 1
            page[BEGUN_CELL] = now = clock()
            if now > due:
                self._flush()
                due = self.flush_at
            value = function(items[row]) if spread else function(*items[row])
            if type(value) in plain:
                append(value)
            else:
                size, plain = self._append(row, value, encode, size, plain)
                value = None  # it may be large, and the next row may take long

    def _each(self, assignment: Assignment, call: Callable[[int], Any], encode: Encode) -> None:
        pop, page, clock = assignment.rows.popleft, self._page, self._clock
        append = self._ledger.values.append
        plain = self._plain()
        size, due = 0, self.flush_at
        while True:
            row = pop()
            page[ROW_CELL] = row + 1
            page[BEGUN_CELL] = now = clock()
            if now > due:
                self._flush()
                due = self.flush_at
            value = call(row)
            if type(value) in plain:
                append(value)
            else:
                size, plain = self._append(row, value, encode, size, plain)
                value = None  # it may be large, and the next row may take long

    def _profiled(self, assignment: Assignment, call: Callable[[int], Any], encode: Encode) -> None:
        pop, page, clock, ledger = assignment.rows.popleft, self._page, self._clock, self._ledger
        while True:
            row = pop()
            page[ROW_CELL] = row + 1
            profiling.begin()
            page[BEGUN_CELL] = now = clock()
            if now > self.flush_at:
                self._flush()
            ledger.begin_span()
            kind, data = encode(row, call(row))
            with ledger.lock:
                ledger.collect(kind)
                ledger.values.append(data)
                self._results.reported()
                ledger.cut(profiling.read())

    def _plain(self) -> frozenset[object]:
        """Return the types whose values are collected as they are, whatever their size."""
        return _PLAIN if self._ledger.kind == VALUES_LIST else _NOTHING

    def _append(
        self, row: int, value: Any, encode: Encode, size: int, plain: frozenset[object]
    ) -> tuple[int, frozenset[object]]:
        """Collect a value of another type, as it is if it is a short text, encoded otherwise.

        Returns the new size of what is collected, and the types that are collected as they are from now on.
        """
        if plain and type(value) in _TEXTS and len(value) <= SHORT:
            self._ledger.values.append(value)
        else:
            kind, value = encode(row, value)
            if kind != self._ledger.kind:
                self._ledger.collect(kind)
                plain = _NOTHING
            self._ledger.values.append(value)
            if kind != VALUES_EACH:
                self._results.reported()
        size += len(value)
        if size > FLUSH_BYTES:
            self._flush()
            size = 0
        return size, plain
