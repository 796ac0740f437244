"""The calls of rows that a task may run itself while it waits for them, taken out of the batches they were sent in."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from scaler.client.core import events as ev
from scaler.client.core.batching import QueuedCall
from scaler.client.future import Future
from scaler.client.io.driver import SessionDriver
from scaler.client.values.arguments import Arguments
from scaler.client.values.stored_results import StoredResults
from scaler.client.values.value_codec import ValueCodec
from scaler.protocol.messages import SPREAD, TOGETHER, Task
from scaler.protocol.results import SpanResult
from scaler.serialize import payload as pickling
from scaler.serialize.call import decode_call


class ClaimedRows:
    """Any thread but the I/O thread: all methods may block."""

    def __init__(
        self, driver: SessionDriver, codec: ValueCodec, arguments: Arguments, stored_results: StoredResults
    ) -> None:
        self._driver = driver
        self._codec = codec
        self._arguments = arguments
        self._stored_results = stored_results
        #: the batch that a row was claimed of last, and what it has for its other rows
        self._last: tuple[int, list[Any]] = 0, []

    def call_of(self, claimed: ev.ClaimGranted) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a row, its dependencies among them. Raises what keeps it from them."""
        args, payload = self._parts_of(claimed)
        if not payload:
            return args, {}
        return decode_call(payload, [self._value_of(need) for need in claimed.needs], self._codec.serializer)

    def resubmit(self, claimed: ev.ClaimGranted) -> None:
        """Have a row run by the cluster after all."""
        token = claimed.token if isinstance(claimed.token, Future) else _moved(claimed.token, claimed.row)
        needs = list(claimed.needs)
        try:
            args, payload = self._parts_of(claimed)
            if not payload:
                payload = self._arguments.encode(args, {}, claimed.task.name, needs, self._driver.welcome.limit)
            self._driver.submit(QueuedCall(claimed.template, payload, needs, token))
            self._driver.check_sent()
        except BaseException as error:
            token.fail(error)

    def _parts_of(self, claimed: ev.ClaimGranted) -> tuple[tuple[Any, ...], bytes]:
        """The argument tuple (form TOGETHER) or payload (form EACH) of a row."""
        task, row = claimed.task, claimed.row
        if task.form == TOGETHER:
            items = self._opened(task, lambda: list(self._items_of(task)))
            item, items[row] = items[row], None  # it is claimed once
            return ((item,) if task.flags & SPREAD else item), b""
        ends = self._opened(task, lambda: list(accumulate(task.sizes)))
        return (), bytes(memoryview(task.bodies[0])[ends[row] - task.sizes[row] : ends[row]])

    def _items_of(self, task: Task) -> Any:
        if task.objects:
            return pickling.loads(task.bodies[-1])
        return self._stored_results.value_of(task.arguments, f"the arguments of {task.name}")

    def _opened(self, task: Task, open_: Callable[[], list[Any]]) -> list[Any]:
        """What a batch has for each of its rows; opened once, as a task claims one after the other."""
        batch, opened = self._last
        if batch != task.batch:
            opened = open_()
            self._last = task.batch, opened
        return opened

    def _value_of(self, need: Any) -> Any:
        """The value of what a row needs."""
        if isinstance(need, Future):
            return need.fresh_result()
        payload = self._driver.session.objects.payload_of(need.id)
        if payload is not None:
            return self._codec.load(payload)
        return self._stored_results.value_of(need.id, "an argument")


def _moved(token: Any, row: int) -> RowRelay:
    """The token of a row of a map that is sent by itself, for the first time or once more."""
    relay = RowRelay(token.block, token.row) if isinstance(token, RowRelay) else RowRelay(token, row)
    relay.block.moved.append(relay)
    return relay


class RowRelay:
    """A token for a row that was taken out of a larger batch: passes on what it hears as if it were still there."""

    __slots__ = ("block", "id", "row")

    def __init__(self, block: Any, row: int) -> None:
        self.block = block
        self.row = row
        #: set by the session
        self.id = 0

    def deliver(self, span: SpanResult, task: Task) -> None:
        """The row ended."""
        # its id stays what it is: batch + lo
        span = span._replace(batch=span.batch + span.lo - self.row, lo=self.row, hi=self.row + 1)
        self.block.deliver(span, task)

    def mark_running(self) -> None:
        """The row runs, which nobody minds."""

    def fail(self, error: BaseException) -> None:
        """The row never will end."""
        self.block.fail(error)
