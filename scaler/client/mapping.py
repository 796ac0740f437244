"""`map`: many rows in few blocks, and what collects their results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scaler.client import nesting
from scaler.client import session as s
from scaler.client.future import CancelledError
from scaler.client.outbox import Recipe, check_size
from scaler.errors import SerializationError
from scaler.protocol.messages import CANCELLED, ERROR, TOGETHER, VALUES_LIST, u64
from scaler.results import SpanResult, values_of
from scaler.serialize import payload as pickling
from scaler.serialize.record import decode_error

if TYPE_CHECKING:
    from scaler.client.client import Client
    from scaler.client.link import Link
    from scaler.client.resolve import Reactor

#: blocks for each worker, so that the fast ones can take more
BLOCKS_PER_WORKER = 4
#: rows in a block, at most
BLOCK_ROWS = 100_000


def argument_rows(iterables: Sequence[Iterable[Any]]) -> list[tuple[Any, ...]]:
    """The argument tuples that `Client.map` means."""
    if not iterables:
        raise TypeError("map() needs at least one iterable")
    if len(iterables) > 1:
        return list(zip(*iterables, strict=False))
    items = list(iterables[0])
    kinds = set(map(type, items))
    if tuple not in kinds and not any(issubclass(kind, tuple) for kind in kinds):
        return list(zip(items, strict=True))
    return [tuple(item) if isinstance(item, tuple) else (item,) for item in items]


class Block:
    """Consecutive rows of a map that travel as one task; a token of the session."""

    __slots__ = ("id", "job", "left", "size", "start")

    def __init__(self, job: MapJob, start: int, size: int) -> None:
        self.job = job
        self.start = start
        self.size = size
        #: rows that have not ended
        self.left = size
        #: set by the session
        self.id = 0

    def deliver(self, span: SpanResult, load: Callable[[Any], Any]) -> None:
        """Rows [lo, hi) of this block ended."""
        self.job.deliver(self, span, load)

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
        rows: list[tuple[Any, ...]],
        serializer: Any,
        block_rows: int = 0,
    ) -> None:
        self._link = link
        self._reactor = reactor
        self._values: list[Any] = [None] * len(rows)
        self._errors: dict[int, BaseException] = {}
        self._changed = threading.Condition()
        self._blocks: list[Block] = []
        self._futures: list[Any] | None = None
        if serializer is None:
            workers = max(1, link.session.workers)
            size = block_rows or max(1, min(BLOCK_ROWS, -(-len(rows) // (BLOCKS_PER_WORKER * workers))))
            try:
                payloads = [pickling.dumps(rows[at : at + size]) for at in range(0, len(rows), size)]
            except SerializationError:
                payloads = []
            else:
                self._send(recipe, rows, size, payloads)
                return
        # Row by row: a custom serializer wants that, references among the items need it, and what can't be pickled is
        # named.
        self._futures = [client._submit(recipe, row, None) for row in rows]

    def _send(self, recipe: Recipe, rows: list[tuple[Any, ...]], size: int, payloads: list[bytes]) -> None:
        link = self._link
        for payload in payloads:
            check_size(len(payload), link.welcome.limit, f"a block of arguments of {recipe.captured.name}")
        with link.lock:
            events: list[s.Event] = []
            if not recipe.object_id:
                events.append(link.packer.announce(recipe))
            take_ids = link.session.take_ids
            for i, payload in enumerate(payloads):
                start = i * size
                n = min(size, len(rows) - start)
                block = Block(self, start, n)
                self._blocks.append(block)
                arguments = take_ids(1)
                task = recipe.task(take_ids(n), n, TOGETHER)
                task.arguments = arguments
                task.objects = u64([arguments])
                task.bodies = [payload]
                events.append(s.Submit(task, [block], whole=True, recipe=recipe))
            link.tell(*events)

    def deliver(self, block: Block, span: SpanResult, load: Callable[[Any], Any]) -> None:
        """Rows of a block ended. Called by the I/O thread, or by a task that ran them while it waited."""
        lo, hi = block.start + span.lo, block.start + span.hi
        try:
            if span.outcome == VALUES_LIST:
                self._values[lo:hi] = pickling.loads(span.body)
            elif span.outcome == ERROR:
                self._errors[lo] = decode_error(bytes(span.body))
            elif span.outcome == CANCELLED:
                self._errors.update(dict.fromkeys(range(lo, hi), CancelledError()))
            else:
                for row, body in enumerate(values_of(span), lo):
                    try:
                        self._values[row] = load(body)
                    except BaseException as error:  # the user's classes may do anything while they are unpickled
                        self._errors[row] = error
        except BaseException as error:
            self._errors[lo] = error
        with self._changed:
            block.left -= hi - lo
            if not block.left or self._errors:
                self._changed.notify_all()

    def fail(self, block: Block, error: BaseException) -> None:
        """The rows of a block that have not ended never will."""
        with self._changed:
            self._errors.setdefault(block.start + block.size - block.left, error)
            block.left = 0
            self._changed.notify_all()

    def results(self, timeout: float | None = None) -> list[Any]:
        """All values in order; blocks. Raises the error of the first row that failed, and TimeoutError."""
        for _ in self._in_order(timeout):
            pass
        return self._values

    def iterate(self, timeout: float | None = None) -> Iterator[Any]:
        """The values in order, each as soon as it and those before it are there. Raises like `results`."""
        for start, end in self._in_order(timeout):
            for row in range(start, end):
                value, self._values[row] = self._values[row], None
                yield value

    def _in_order(self, timeout: float | None) -> Iterator[tuple[int, int]]:
        """The bounds of each block when it is complete."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._futures is not None:
            try:
                for row, future in enumerate(self._futures):
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    self._values[row] = future.result(left)
                    yield row, row + 1
            finally:
                self.cancel()
            return
        try:
            for block in self._blocks:
                self._await(block, deadline)
                for row in range(block.start, block.start + block.size) if self._errors else ():
                    if row in self._errors:
                        raise self._errors[row]
                yield block.start, block.start + block.size
        finally:
            self.cancel()

    def _await(self, block: Block, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if block.left and nesting.current() is not None:
            left = nesting.wait(self._link, self._reactor, block, lambda: not block.left, left)
        with self._changed:
            while block.left:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(
                        f"a map did not end in time: {sum(b.left for b in self._blocks)} rows are missing"
                    )
                self._changed.wait(left)

    def cancel(self) -> None:
        """Rows that have not begun are not wanted any more."""
        if self._futures is not None:
            pending: list[Any] = [future for future in self._futures if not future.done()]
        else:
            pending = [block for block in self._blocks if block.left]
        if pending:
            self._link.tell(s.Cancel(pending, False))
