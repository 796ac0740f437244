"""The results of a map in blocks, in order: of `Client.map`, and of `Executor.map` with many items or chunks."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

from scaler.client.core import events as ev
from scaler.client.future import Future, StoredValue
from scaler.client.io.driver import SessionDriver
from scaler.client.values.stored_results import StoredResults
from scaler.client.values.value_codec import ValueCodec
from scaler.client.waiting.nesting import NestedWaits
from scaler.common.gate import Gate
from scaler.common.item_note import note_item
from scaler.protocol.messages import CANCELLED, ERROR, STORED, VALUES_LIST, Task
from scaler.protocol.results import SpanResult, stored_sizes, values_of
from scaler.serialize import payload as pickling
from scaler.serialize.record import decode_error, note_unpickling


class MapBlock:
    """Consecutive rows of a map that travel as one task; a token of the session."""

    __slots__ = ("_job", "arguments", "id", "left", "moved", "size", "start")

    def __init__(self, job: MapJob, start: int, size: int, arguments: int) -> None:
        self._job = job
        #: its first row, counted in the map
        self.start = start
        #: rows
        self.size = size
        #: rows that have not ended
        self.left = size
        #: id of the object with its arguments if they are stored, until it is released; else 0
        self.arguments = arguments
        #: tokens of rows that were taken out of it, and sent again by themselves
        self.moved: list[Any] = []
        #: set by the session
        self.id = 0

    def deliver(self, span: SpanResult, task: Task) -> None:
        """Rows [lo, hi) of this block ended."""
        self._job.deliver(self, span, task.name)

    def mark_running(self) -> None:
        """Rows of it run: they can't be cancelled, which nobody minds."""

    def fail(self, error: BaseException) -> None:
        """No row that has not ended will."""
        self._job.fail(self, error)


class MapJob:
    """One map of so many rows; blocks and futures that bring their results are added in order.

    One thread waits for the results.
    """

    def __init__(
        self,
        rows: int,
        driver: SessionDriver,
        codec: ValueCodec,
        stored_results: StoredResults,
        nested_waits: NestedWaits,
    ) -> None:
        self._driver = driver
        self._load_value = codec.load
        self._stored_results = stored_results
        self._nested_waits = nested_waits
        self._values: list[Any] = [None] * rows
        #: 1 for rows of blocks that have ended
        self._done = bytearray(rows)
        #: the row that somebody waits for
        self._awaited = 0
        self._errors: dict[int, BaseException] = {}
        #: values that are in a store, until they are collected
        self._stored: dict[int, StoredValue] = {}
        #: held while rows end
        self._lock = threading.RLock()
        #: opened when rows have ended that somebody may wait for
        self._changed = Gate()
        #: the first row of each piece, and the block or, for a row by itself, the future that brings its results
        self._pieces: list[tuple[int, MapBlock | Future]] = []

    # ---- while it is sent ------------------------------------------------------------------------------------------
    def add_block(self, start: int, size: int, arguments: int = 0) -> MapBlock:
        """Rows that are going to be sent together; `arguments` is the object that has theirs, if they are stored."""
        block = MapBlock(self, start, size, arguments)
        self._pieces.append((start, block))
        return block

    def add_row(self, row: int, future: Future) -> None:
        """A row that was sent by itself."""
        self._pieces.append((row, future))

    # ---- for the I/O thread ----------------------------------------------------------------------------------------
    def deliver(self, block: MapBlock, span: SpanResult, name: str) -> None:
        """Rows of a block ended. Called by the I/O thread, or by a task that ran them while it waited."""
        lo, hi = block.start + span.lo, block.start + span.hi
        try:
            if span.outcome == VALUES_LIST:
                self._values[lo:hi] = pickling.loads_list(span.body, hi - lo)
            elif span.outcome == ERROR:
                self._errors[lo] = decode_error(bytes(span.body), name)
            elif span.outcome == CANCELLED:
                self._errors.update(dict.fromkeys(range(lo, hi), CancelledError()))
            elif span.outcome == STORED:
                for row, size in enumerate(stored_sizes(span), span.lo):
                    self._stored[block.start + row] = self._stored_results.add(span.batch + row, size, name)
            else:
                load = self._load_value
                for row, body in enumerate(values_of(span), lo):
                    try:
                        self._values[row] = load(body)
                    except BaseException as error:  # the user's classes may do anything while they are unpickled
                        note_unpickling(error, name)
                        self._errors[row] = error
        except BaseException as error:
            self._errors[lo] = error
        with self._lock:
            block.left = max(0, block.left - (hi - lo))  # 0: it has failed meanwhile
            self._done[lo:hi] = b"\x01" * (hi - lo)
            if not block.left or self._errors or lo <= self._awaited < hi:
                self._changed.open()
        self._release_arguments(block)

    def fail(self, block: MapBlock, error: BaseException) -> None:
        """The rows of a block that have not ended never will."""
        with self._lock:
            rows = range(block.start, block.start + block.size)
            self._errors.update((row, error) for row in rows if not self._done[row])
            block.left = 0
            self._changed.open()
        self._release_arguments(block)

    def _release_arguments(self, block: MapBlock) -> None:
        """A block's arguments are released when all its rows have ended: a task that claims one reads them itself."""
        if block.arguments and not block.left:
            self._driver.release(block.arguments)
            block.arguments = 0

    # ---- for who waits ---------------------------------------------------------------------------------------------
    def results(self, timeout: float | None = None, items: Sequence[Any] = ()) -> list[Any]:
        """All values in order; blocks. Raises the error of the first row that failed, and TimeoutError.

        The error has a note of its item, if these are given.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        is_interrupted = False
        try:
            for start, piece in self._pieces:
                if isinstance(piece, Future):
                    self._values[start] = _result_of(piece, deadline, start, items)
                    continue
                self._await(piece, deadline)
                if self._stored:
                    self._load(start, start + piece.size, deadline)
                for row in range(start, start + piece.size) if self._errors else ():
                    if row in self._errors:
                        raise _noted(self._only_error(row), row, items)
        except KeyboardInterrupt:
            is_interrupted = True
            raise
        finally:
            self.cancel(is_interrupted)
        return self._values

    def iterate(self, timeout: float | None = None, items: list[Any] | None = None) -> Iterator[Any]:
        """The values in order, each as soon as it and those before it are there. Raises like `results`.

        `items` are forgotten, one by one, when they are not needed any more.
        """
        items = items or []
        deadline = None if timeout is None else time.monotonic() + timeout
        is_interrupted = False
        try:
            for start, piece in self._pieces:
                if isinstance(piece, Future):
                    yield _result_of(piece, deadline, start, items)
                    if items:
                        items[start] = None
                    continue
                for row in range(start, start + piece.size):
                    if not self._done[row]:
                        self._await(piece, deadline, row)
                    if row in self._stored:
                        self._load(row, row + 1, deadline)
                    if row in self._errors:
                        raise _noted(self._only_error(row), row, items)
                    if items:
                        items[row] = None
                    yield self._take(row)
        except KeyboardInterrupt:
            is_interrupted = True
            raise
        finally:
            self.cancel(is_interrupted)

    @property
    def has_ended(self) -> bool:
        """All rows have ended, however they did."""
        return not self._pending()

    def wait(self) -> None:
        """Block until all rows have ended, however they did."""
        for _, piece in self._pieces:
            if isinstance(piece, Future):
                concurrent.futures.wait([piece])
            else:
                self._await(piece, None)

    def cancel(self, force: bool = False) -> None:
        """Rows that have not begun are not wanted any more, with `force` also those that run."""
        pending = self._pending()
        if pending:
            self._driver.tell(ev.Cancel(pending, force))
        else:
            self._pieces = []  # they refer to this: the results would wait for the garbage collector

    def _pending(self) -> list[Any]:
        pending: list[Any] = []
        for _, piece in self._pieces:
            if isinstance(piece, Future):
                if not piece.done():
                    pending.append(piece)
            elif piece.left:
                pending += [piece, *piece.moved]
        return pending

    def _only_error(self, row: int) -> BaseException:
        """The error that is raised, kept no longer: it has the frames that it passes, and those have this."""
        error = self._errors[row]
        self._errors.clear()
        return error

    def _take(self, row: int) -> Any:
        """A value, which nobody else keeps."""
        value, self._values[row] = self._values[row], None
        return value

    def _load(self, start: int, end: int, deadline: float | None) -> None:
        """Get the values of these rows from the stores that they are in."""
        for row in range(start, end):
            stored = self._stored.get(row)
            if stored is None:
                continue
            left = _left(deadline)
            try:
                self._values[row] = stored.load(left)
            except Exception as error:
                if left is not None and isinstance(error, TimeoutError):
                    raise
                self._errors[row] = error
            del self._stored[row], stored

    def _await(self, block: MapBlock, deadline: float | None, row: int | None = None) -> None:
        """Wait for all rows of a block, or for one."""

        def has_ended() -> bool:
            return not block.left or (row is not None and self._done[row] == 1)

        if not has_ended():
            self._nested_waits.wait(block, has_ended, None if deadline is None else deadline - time.monotonic())
        if has_ended():
            return
        take_back_slot = self._nested_waits.lend_slot()
        try:
            if row is not None:
                self._awaited = row
            if not self._changed.wait_for(has_ended, _left(deadline)):
                raise TimeoutError(f"a map did not end in time: {self._missing()} rows are missing")
        finally:
            take_back_slot()

    def _missing(self) -> int:
        return sum(not piece.done() if isinstance(piece, Future) else piece.left for _, piece in self._pieces)


def _result_of(future: Future, deadline: float | None, row: int, items: Sequence[Any]) -> Any:
    try:
        return future.result(_left(deadline))
    except Exception as error:
        if future.done():  # else it is late
            _noted(error, row, items)
        raise


def _noted(error: BaseException, row: int, items: Sequence[Any]) -> BaseException:
    """An error, with a note of its item if that is known."""
    if row < len(items):
        note_item(error, row, items[row])
    return error


def _left(deadline: float | None) -> float | None:
    """Seconds that are left, not negative; None if there is no limit."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
