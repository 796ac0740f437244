"""`map`: many rows in few blocks, and what collects their results."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scaler.client import events as ev
from scaler.client import nesting
from scaler.client.future import CancelledError
from scaler.client.outbox import Recipe, check_size
from scaler.errors import SerializationError
from scaler.protocol.messages import CANCELLED, ERROR, INLINE_LIMIT, SPREAD, STORED, TOGETHER, VALUES_LIST, Task, u64
from scaler.protocol.results import SpanResult, stored_sizes, values_of
from scaler.serialize import payload as pickling
from scaler.serialize.outofband import Packed, joined, pack, pack_large
from scaler.serialize.record import decode_error

if TYPE_CHECKING:
    from scaler.client.client import Client
    from scaler.client.hold import Hold
    from scaler.client.link import Link
    from scaler.client.resolve import Reactor

#: blocks for each worker, so that the fast ones can take more
BLOCKS_PER_WORKER = 4
#: rows in a block, at most
BLOCK_ROWS = 100_000


def argument_rows(iterables: Sequence[Iterable[Any]]) -> tuple[list[Any], bool]:
    """The items that `Client.map` sends, and whether they are the arguments themselves (else tuples of arguments)."""
    if not iterables:
        raise TypeError("map() needs at least one iterable")
    if len(iterables) > 1:
        return list(zip(*iterables, strict=False)), False
    items = list(iterables[0])
    if not any(issubclass(kind, tuple) for kind in set(map(type, items))):
        return items, True
    return [tuple(item) if isinstance(item, tuple) else (item,) for item in items], False


class Block:
    """Consecutive rows of a map that travel as one task; a token of the session."""

    __slots__ = ("arguments", "id", "job", "left", "size", "start")

    def __init__(self, job: MapJob, start: int, size: int, arguments: int = 0) -> None:
        #: id of the object with its arguments if they are stored, until it is released
        self.arguments = arguments
        self.job = job
        self.start = start
        self.size = size
        #: rows that have not ended
        self.left = size
        #: set by the session
        self.id = 0

    def deliver(self, span: SpanResult, task: Task) -> None:
        """Rows [lo, hi) of this block ended."""
        self.job.deliver(self, span, task.name)

    def begun(self) -> None:
        """Rows of it run: they can't be cancelled, which nobody minds."""

    def fail(self, error: BaseException) -> None:
        """No row that has not ended will."""
        self.job.fail(self, error)


class MapJob:
    """The results of one map, as they come in. One thread waits for them."""

    def __init__(
        self,
        client: Client,
        link: Link,
        reactor: Reactor,
        recipe: Recipe,
        items: list[Any],
        spread: bool,
        block_rows: int = 1,
    ) -> None:
        self._link = link
        self._reactor = reactor
        self._values: list[Any] = [None] * len(items)
        #: 1 for rows of blocks that have ended
        self._done = bytearray(len(items))
        #: the row that somebody waits for
        self._awaited = 0
        self._errors: dict[int, BaseException] = {}
        #: values that are in a store, until they are collected
        self._held: dict[int, Hold] = {}
        self._changed = threading.Condition()
        #: the first row of each piece, and the block or, for a row by itself, the future that brings its results
        self._pieces: list[tuple[int, Any]] = []
        workers = max(1, link.session.workers)
        size = max(block_rows, min(BLOCK_ROWS, -(-len(items) // (BLOCKS_PER_WORKER * workers))))
        try:
            self._send_all(client, recipe, items, spread, size)
        except BaseException:
            self.cancel()
            raise

    def _send_all(self, client: Client, recipe: Recipe, items: list[Any], spread: bool, size: int) -> None:
        start = 0
        if self._reactor.serializer is None:
            for start in range(0, len(items), size):
                block = items[start : start + size]
                try:
                    payload = pack_large(block, INLINE_LIMIT)
                except SerializationError:
                    break
                if isinstance(payload, bytes):
                    self._send(recipe, start, len(block), payload, spread)
                else:
                    self._send_large(recipe, start, block, payload, spread)
            else:
                return
        # Row by row: a custom serializer wants that, references among the items need it, and what can't be pickled is
        # named.
        for row, item in enumerate(items[start:], start):
            self._pieces.append((row, client._submit(recipe, (item,) if spread else item, None)))

    def _send_large(self, recipe: Recipe, start: int, items: list[Any], packed: Packed, spread: bool) -> None:
        what = f"a block of {len(items):,} arguments of {recipe.captured.name}"
        arguments = self._reactor.calls.store(items, packed, pack, what)
        if arguments is None:
            self._send(recipe, start, len(items), joined(packed, items), spread)
        else:
            self._send(recipe, start, len(items), None, spread, arguments)

    def _send(
        self, recipe: Recipe, start: int, rows: int, payload: bytes | None, spread: bool, arguments: int = 0
    ) -> None:
        """Send a block with its arguments, or with the id of the object that they are stored in."""
        link = self._link
        if payload is not None:
            check_size(len(payload), link.welcome.limit, f"a block of arguments of {recipe.captured.name}")
        block = Block(self, start, rows, arguments)
        with link.lock:
            events: list[ev.Event] = [] if recipe.object_id else [link.packer.announce(recipe)]
            task = recipe.task(link.session.take_ids(rows), rows, TOGETHER)
            task.flags |= SPREAD if spread else 0
            task.arguments = arguments or link.session.take_ids(1)
            if payload is not None:
                task.objects = u64([task.arguments])
                task.bodies = [payload]
            self._pieces.append((start, block))
            link.tell(*events, ev.Submit(task, [block], whole=True, recipe=recipe))

    def deliver(self, block: Block, span: SpanResult, name: str) -> None:
        """Rows of a block ended. Called by the I/O thread, or by a task that ran them while it waited."""
        lo, hi = block.start + span.lo, block.start + span.hi
        try:
            if span.outcome == VALUES_LIST:
                self._values[lo:hi] = pickling.loads_list(span.body, hi - lo)
            elif span.outcome == ERROR:
                self._errors[lo] = decode_error(bytes(span.body))
            elif span.outcome == CANCELLED:
                self._errors.update(dict.fromkeys(range(lo, hi), CancelledError()))
            elif span.outcome == STORED:
                for row, size in enumerate(stored_sizes(span), span.lo):
                    self._held[block.start + row] = self._reactor.holds.add(span.batch + row, size, name)
            else:
                load = self._reactor.load
                for row, body in enumerate(values_of(span), lo):
                    try:
                        self._values[row] = load(body)
                    except BaseException as error:  # the user's classes may do anything while they are unpickled
                        self._errors[row] = error
        except BaseException as error:
            self._errors[lo] = error
        with self._changed:
            block.left -= hi - lo
            self._done[lo:hi] = b"\x01" * (hi - lo)
            if not block.left or self._errors or lo <= self._awaited < hi:
                self._changed.notify_all()
        self._let_go(block)

    def fail(self, block: Block, error: BaseException) -> None:
        """The rows of a block that have not ended never will."""
        with self._changed:
            rows = range(block.start, block.start + block.size)
            self._errors.update((row, error) for row in rows if not self._done[row])
            block.left = 0
            self._changed.notify_all()
        self._let_go(block)

    def _let_go(self, block: Block) -> None:
        """A block's arguments are released when all its rows have ended: a task that claims one reads them itself."""
        if block.arguments and not block.left:
            self._link.release(block.arguments)
            block.arguments = 0

    def results(self, timeout: float | None = None) -> list[Any]:
        """All values in order; blocks. Raises the error of the first row that failed, and TimeoutError."""
        for _ in self._in_order(timeout):
            pass
        return self._values

    def iterate(self, timeout: float | None = None) -> Iterator[Any]:
        """The values in order, each as soon as it and those before it are there. Raises like `results`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            for start, piece in self._pieces:
                if not isinstance(piece, Block):
                    yield piece.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
                    continue
                for row in range(start, start + piece.size):
                    if not self._done[row]:
                        self._await(piece, deadline, row)
                    if row in self._held:
                        self._load(row, row + 1, deadline)
                    if row in self._errors:
                        raise self._errors[row]
                    yield self._take(row)
        finally:
            self.cancel()

    def _take(self, row: int) -> Any:
        """A value, which nobody else keeps."""
        value, self._values[row] = self._values[row], None
        return value

    def wait(self) -> None:
        """Block until all rows have ended, however they did."""
        for _, piece in self._pieces:
            if isinstance(piece, Block):
                self._await(piece, None)
            else:
                concurrent.futures.wait([piece])

    def _in_order(self, timeout: float | None) -> Iterator[tuple[int, int]]:
        """The bounds of each piece when it is complete."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            for start, piece in self._pieces:
                if not isinstance(piece, Block):
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    self._values[start] = piece.result(left)
                    yield start, start + 1
                    continue
                self._await(piece, deadline)
                if self._held:
                    self._load(start, start + piece.size, deadline)
                for row in range(start, start + piece.size) if self._errors else ():
                    if row in self._errors:
                        raise self._errors[row]
                yield start, start + piece.size
        finally:
            self.cancel()

    def _load(self, start: int, end: int, deadline: float | None) -> None:
        """Get the values of these rows from the stores that they are in."""
        for row in range(start, end):
            hold = self._held.get(row)
            if hold is None:
                continue
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                self._values[row] = hold.load(left)
            except Exception as error:
                if left is not None and isinstance(error, TimeoutError):
                    raise
                self._errors[row] = error
            del self._held[row], hold

    def _await(self, block: Block, deadline: float | None, row: int | None = None) -> None:
        """Wait for all rows of a block, or for one."""

        def ended() -> bool:
            return not block.left or (row is not None and self._done[row] == 1)

        left = None if deadline is None else deadline - time.monotonic()
        if not ended() and nesting.current() is not None:
            left = nesting.wait(self._link, self._reactor, block, ended, left)
        with self._changed:
            if row is not None:
                self._awaited = row
            while not ended():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"a map did not end in time: {self._missing()} rows are missing")
                self._changed.wait(left)

    def _missing(self) -> int:
        return sum(piece.left if isinstance(piece, Block) else not piece.done() for _, piece in self._pieces)

    def cancel(self) -> None:
        """Rows that have not begun are not wanted any more."""
        pending = [p for _, p in self._pieces if (p.left if isinstance(p, Block) else not p.done())]
        if pending:
            self._link.tell(ev.Cancel(pending, False))
