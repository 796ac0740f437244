"""A worker's runner in the process of the test, and what stands for its agent."""

import pickle
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

from scaler.protocol.messages import (
    DOUBTFUL,
    ERROR,
    FILE,
    FILED,
    LACKING,
    SIZE,
    STORED,
    TOGETHER,
    VALUES_EACH,
    VALUES_LIST,
)
from scaler.serialize import payload
from scaler.serialize.call import encode_function
from scaler.serialize.record import decode_error
from scaler.store.layout import Key
from scaler.worker import context
from scaler.worker.row_runner import RowRunner
from scaler.worker_protocol import messages as wm
from scaler.worker_protocol.progress import PAGE_CELLS

CLIENT, BATCH = 7, 1000
FUNCTION, ARGUMENTS = (CLIENT, 1), (CLIENT, 2)


class Kept(NamedTuple):
    """What is reported of a value that is not in the message."""

    outcome: int
    size: int


class Filed(NamedTuple):
    """What is reported of a value that is a file."""

    row: int
    tag: int
    size: int
    checksum: int


class Agent:
    """The other end of a runner: what it would have written is read, what it sends is kept."""

    def __init__(self) -> None:
        self.sent: list[wm.FromWorker] = []
        self.inbox: list[wm.ToWorker] = []
        self.page = memoryview(bytearray(PAGE_CELLS * 8)).cast("Q")
        self.runner = RowRunner(self.sent.append, self._read, self.page)
        #: what to do when the runner has nothing to do
        self.when_idle: Callable[[], None] = self.quit
        runner = self.runner
        context.install(runner.task, runner.root, self.sent.append, runner.give_back, runner.note_claimed)

    def _read(self) -> list[wm.ToWorker]:
        messages, self.inbox = self.inbox, []
        return messages

    def quit(self) -> None:
        self.inbox.append(wm.Quit())

    def run(self) -> None:
        self.runner.run(lambda *_: self.when_idle())

    def hand_out(
        self,
        number: int,
        function: Any,
        rows: range,
        *,
        form: int = TOGETHER,
        arguments: list[Any] | None = None,
        calls: list[bytes] | None = None,
        deps: list[list[tuple[Key, int]]] | None = None,
        flags: int = 0,
        priority: int = 0,
        objects: tuple[tuple[Key, bytes], ...] = (),
        wanted: bytes | None = None,
        stale: tuple[Key, ...] = (),
        results: str = "",
        root: int = 0,
        function_key: Key = FUNCTION,
        arguments_key: Key | None = None,
    ) -> None:
        """Write a dispatch of rows; the function is its payload or something to make one of, None: it is there."""
        there = list(objects)
        if function is not None:
            there.append((function_key, function if isinstance(function, bytes) else encode_function(function)))
        if arguments is not None:
            there.append((ARGUMENTS, payload.dumps(arguments)))
        sizes = body = None
        if calls is not None:
            sizes, body = array("I", map(len, calls)).tobytes(), b"".join(calls)
        key = arguments_key if arguments is None else ARGUMENTS
        self.inbox.append(
            wm.Run(number, CLIENT, BATCH, rows.start, rows.stop, form, function_key, key, flags, priority,
                   "mod.fn", sizes, body, deps, there, list(stale), wanted, 1, results, root)
        )  # fmt: skip

    def spans(self) -> list[wm.EndedSpan]:
        return [ended for message in self.sent if isinstance(message, wm.Results) for ended in message.ended]

    def done(self) -> list[int]:
        return [number for message in self.sent if isinstance(message, wm.Results) for number in message.done]

    def returned(self) -> list[wm.Returned]:
        return [message for message in self.sent if isinstance(message, wm.Returned)]

    def published(self) -> list[wm.PublishedValue]:
        return [told for message in self.sent if isinstance(message, wm.Published) for told in message.values]

    def outcomes(self) -> dict[int, Any]:
        """Return value, exception or `Kept` by row; fails when a row is reported twice."""
        rows: dict[int, Any] = {}
        for _, client, batch, lo, hi, outcome, _, _, sizes, body, _ in self.spans():
            assert (client, batch) == (CLIENT, BATCH)
            if outcome == VALUES_LIST:
                values = pickle.loads(body)
                assert sizes.tolist() == [len(body)]
            elif outcome == VALUES_EACH:
                values, at = [], 0
                for size in sizes:
                    values.append(pickle.loads(body[at : at + size]))
                    at += size
            elif outcome == LACKING:
                values = [decode_error(body[SIZE.size :], "a task")]
            elif outcome == FILED:
                values = [Filed(*each) for each in FILE.iter_unpack(body)]
            elif outcome >= STORED and outcome != DOUBTFUL:
                assert sizes.tolist() == [8] * (hi - lo)
                values = [Kept(outcome, size) for (size,) in SIZE.iter_unpack(body)]
            else:
                assert outcome in (ERROR, DOUBTFUL)
                values = [decode_error(body, "a task")]
            assert len(values) == hi - lo
            for row, value in zip(range(lo, hi), values, strict=True):
                assert row not in rows
                rows[row] = value
        return rows
