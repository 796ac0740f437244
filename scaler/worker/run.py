"""Runs the rows that the agent hands out, and gives back those it has not begun.

    agent ──task socket──► pull() ──► parts ──front──► main thread: user code ──► ledger ──► flush() ──► agent
                                       │  ▲
    agent ──control socket──► control thread: recall(), forget() take from the end, also while user code runs;
                                              publish(), drop() see to values that stayed here

The part that runs stays at the front of `parts` until it is finished. `lock` guards all but the rows themselves (see
handout.py) and the values being collected (see ledger.py).
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from scaler.protocol.messages import ERROR, STREAM, VALUES_EACH, WARN
from scaler.serialize.call import AnySerializer
from scaler.serialize.record import exception_record
from scaler.worker import context
from scaler.worker.constants import ROW_CELL
from scaler.worker.context import TaskContext
from scaler.worker.handout import Handout, Key, Part
from scaler.worker.ledger import Clock, Ledger
from scaler.worker.live import LiveValues, Published
from scaler.worker.loops import Loops
from scaler.worker.objects import Failed, Objects
from scaler.worker.results import Results, in_message
from scaler.worker.warned import passed_on
from scaler.worker.wire import Message

#: Results wait for company at most this long while further rows are there, ns.
FLUSH_INTERVAL = 4_000_000
#: What rows of graphs were given is kept for others at most this long while there are none, ms.
SHARED_MS = 1_000

Read = Callable[[], list[Message]]


class Runner:
    """The rows of one worker. `run` belongs to the main thread; all else may be called by any."""

    def __init__(
        self,
        send: Callable[[Message], None],
        read: Read,
        page: memoryview,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._send = send
        #: returns the messages that have come, without blocking
        self._read = read
        self._page = page
        self._clock = clock
        self._ledger = Ledger(page, clock)
        self._lock = self._ledger.lock
        self._live = LiveValues(self._published)
        self._objects = Objects(self._live)
        self._results = Results(self._live)
        #: parts that are not finished; the first one runs
        self._parts: deque[Part] = deque()
        self._loops = Loops(self._ledger, self._results, page, clock, self.flush)
        #: the main thread waits for the socket, and reads it itself
        self._idle = False
        #: the agent wants this worker to end after what it has
        self._quitting = False
        #: called before results are sent
        self.before_flush: Callable[[], None] = lambda: None

    def run(self, wait: Callable[..., object]) -> None:
        """Run rows until the agent says quit. Raises EOFError.

        `wait` blocks until there is something to read; with milliseconds it returns something false after them.
        """
        while self._next(wait):
            self._run_part(self._parts[0])

    def recall(self, token: int, keep: int) -> None:
        """Send what is finished, and give back rows that have not begun. `keep` rows stay, with the one that runs."""
        with self._lock:
            if not self._idle:
                self._pull()
            self.flush()
            running = self._ledger.running()
            excess = sum([len(part.rows) for part in self._parts]) - max(keep - (running is not None), 0)
            spans = []
            for part in reversed(self._parts):
                if excess <= 0:
                    break
                lo, hi = part.take_back(max(part.lo, part.end - excess))
                if lo < hi:
                    handout = part.handout
                    spans.append((handout.number, handout.client, handout.batch, lo, hi))
                    excess -= hi - lo
            self._send(("returned", token, spans, running))

    def forget(self, spans: list[tuple[int, int, int, int]]) -> None:
        """Report those rows of (client, batch, lo, hi) as cancelled that are here and have not begun."""
        with self._lock:
            if not self._idle:
                self._pull()
            for client, batch, lo, hi in spans:
                for part in list(self._parts):
                    if part.handout.client == client and part.handout.batch == batch:
                        self._forget(part, lo, hi)
            self.flush()

    def publish(self, keys: list[Key]) -> None:
        """Write values that stayed here to the store, and say so for each; blocks as long as that takes."""
        store = context.store()
        for key in keys:
            told = (key, 0, "there is no store") if store is None else self._live.publish(store, key)
            self._send(("published", [told]))

    def drop(self, keys: list[Key]) -> None:
        """Forget objects and values at once."""
        self._objects.drop(keys)

    def _published(self, told: Published) -> None:
        """Report a value that was published unasked, after the result that says it was here."""
        self.flush()
        self._send(("published", [told]))

    def _forget(self, part: Part, lo: int, hi: int) -> None:
        if lo >= part.end or hi <= part.next_row():
            return
        kept, end = part.take_back(hi)
        if kept < end:
            part.handout.parts += 1
            self._parts.append(Part(part.handout, kept, end))
        if kept <= hi:
            lo, hi = part.take_back(max(lo, part.lo))
            if lo < hi:
                self._ledger.cancelled(part, lo, hi)

    def flush(self) -> None:
        """Send the results of all finished rows, if there are any."""
        with self._lock:
            self.before_flush()
            results, done = self._ledger.take()
            if results or done:
                self._send(("results", results, done))
                self._loops.flush_at = self._clock() + FLUSH_INTERVAL

    def task(self) -> TaskContext | None:
        """Return the row that the main thread runs, or ran last in the part it is in."""
        try:
            handout = self._parts[0].handout
        except IndexError:
            return None
        row = self._page[ROW_CELL] - 1
        if row < 0:
            return None
        stream = bool(handout.flags & STREAM)
        return TaskContext(handout.client, handout.batch + row, handout.name, handout.priority, 0, stream)

    def abandon(self) -> None:
        """Have nothing to run any more: this is a process that a task forked."""
        for part in self._parts:
            part.rows.clear()
        self._parts.clear()

    def _next(self, wait: Callable[..., object]) -> bool:
        """Wait for a part; say False when there will be none."""
        while True:
            with self._lock:
                if not self._parts:
                    self.flush()
                    if self._quitting:
                        return False
                    self._idle = True
            if not self._idle:
                return True
            try:
                if not self._objects.shares or not wait(SHARED_MS):
                    self._objects.settle()
                    wait()
            except BaseException:  # by a signal handler of the user's
                traceback.print_exc()
            with self._lock:
                self._idle = False
                self._pull()
                self._loops.flush_at = self._clock() + FLUSH_INTERVAL

    def _pull(self) -> None:
        """Take in the messages that have come."""
        for message in self._read():
            kind = message[0]
            if kind == "run":
                handout = Handout(message)
                self._objects.drop(message[15])
                self._objects.add(message[14])
                self._parts.append(Part(handout, message[4], message[5]))
            elif kind == "drop":
                self._objects.drop(message[1])
            elif kind == "context":
                context.set_surroundings(message[1])
            elif kind == "quit":
                self._quitting = True

    def _work(self, part: Part, loop: Callable[[], None]) -> bool:
        """Run the rows of a part; whether one has failed."""
        failed = False
        while True:
            try:
                loop()
            except BaseException as error:  # of the user's row, or IndexError since there are no more
                if self._ledger.settle(error):
                    failed = True
                    self._results.take_back()
                    continue
                self._results.reported()
                if not part.rows:
                    return failed
                traceback.print_exc()  # by a signal handler of the user's, between two rows

    def _run_part(self, part: Part) -> None:
        ledger, failed = self._ledger, False
        if part.rows:
            if not self._objects.knows(part.handout):
                self.flush()  # importing the function's modules may take long
            ledger.open(part)
            loop = self._loops.of(part, self._objects)
            if part.handout.flags & WARN:
                with passed_on(self._send, self.task):
                    failed = self._work(part, loop)
            else:
                failed = self._work(part, loop)
        else:
            ledger.open(part)
        if failed:
            self._objects.touched(part.handout)
        with self._lock:
            ledger.close()
            self._parts.popleft()


def run_inline(
    task: TaskContext,
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    serializer: AnySerializer | None = None,
) -> tuple[int, bytes]:
    """Run one row inside the calling thread, for a task that waits for it; return (outcome, payload).

    The outcome is VALUES_EACH with the pickled value, or ERROR with the error record. For a graph row the function is
    `entry.run` and the only argument its list of values. Meanwhile `context.current()` is `task`, one level deeper.
    Raises nothing, whatever the function raises; blocks as long as it runs.
    """
    with context.entered(task):
        try:
            return VALUES_EACH, in_message(task.name, serializer)(function(*args, **(kwargs or {})))
        except Failed as failed:
            return ERROR, failed.record
        except BaseException as error:
            return ERROR, exception_record(error, task.name)


#: the runner of this process, when it is a worker
_runner: Runner | None = None


def install(runner: Runner | None) -> None:
    """Make `runner` the one of this process."""
    global _runner
    _runner = runner


def give_back_unbegun() -> None:
    """Give back all rows this worker was handed and has not begun, since the task that runs is going to wait.

    The agent gets ("returned", 0, spans, running). Does nothing outside of workers.
    """
    if _runner is not None:
        _runner.recall(0, 0)
