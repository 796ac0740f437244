"""Runs the rows that the agent hands out, and gives back those it has not begun.

    agent ──task socket──► pull() ──► assignments ──front──► main thread: user code ──► ledger ──► flush() ──► agent
                                          ▲
    agent ──control socket──► control thread: recall() takes from the end, also while user code runs;
                                              publish(), drop() see to values that stayed here

The assignment that runs stays at the front until it is finished. `lock` guards all but the rows themselves (see
assignment.py) and the values being collected (see ledger.py).
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import NoReturn

from scaler.protocol.codes import STREAM, WARN
from scaler.store.layout import Key
from scaler.worker import context
from scaler.worker.assignment import Assignment
from scaler.worker.context import TaskContext
from scaler.worker.forwarded_warnings import passed_on
from scaler.worker.inputs import Inputs
from scaler.worker.ledger import Clock, Ledger
from scaler.worker.live_values import LiveValues
from scaler.worker.loops import Loops
from scaler.worker.result_writer import ResultWriter
from scaler.worker_protocol.messages import (
    Drop,
    FromWorker,
    Published,
    PublishedValue,
    Quit,
    Recall,
    Results,
    Returned,
    ReturnedSpan,
    Run,
    Surroundings,
    ToWorker,
)
from scaler.worker_protocol.progress import CLAIMED_CELL, REVOKED_CELL, ROW_CELL

#: Results wait for company at most this long while further rows are there, ns.
FLUSH_NS = 6_000_000
#: What rows of graphs were given is kept for others at most this long while there are none, ms.
SHARED_MS = 1_000
#: A worker that has had nothing to do for so long is in a pause, ms.
PAUSE_MS = 1_000

Read = Callable[[], list[ToWorker]]


class RowRunner:
    """The rows of one worker. `run` belongs to the main thread; all else may be called by any."""

    def __init__(
        self,
        send: Callable[[FromWorker], None],
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
        self._inputs = Inputs(self._live)
        self._results = ResultWriter(self._live, send, self._inputs.give_room)
        #: those that are not finished; the first one runs
        self._assignments: deque[Assignment] = deque()
        self._loops = Loops(self._ledger, self._results, page, clock, self._tell)
        #: the main thread waits for the socket, and reads it itself
        self._idle = False
        #: the dispatch that was read last
        self._last = 0
        #: rows were recalled that have not been read yet
        self._recalls: list[Recall] = []
        #: the row that runs, (dispatch, row), if the agent was told that it waits for others: nothing comes behind it
        self._waiting: tuple[int, int] | None = None
        #: the agent wants this worker to end after what it has
        self._quitting = False
        #: called before results are sent
        self.before_flush: Callable[[], None] = lambda: None
        #: puts back what rows have changed in this process; told whether one has failed just now
        self.tidy_up: Callable[[bool], None] = lambda has_failed: None
        #: rows have run since
        self._is_untidy = False
        #: this is a process that a task has forked
        self._is_forked = False
        #: of the assignment that runs, or ran last
        self._root = 0
        #: called when the first assignment is done
        self.after_first: Callable[[], None] = lambda: None
        #: called in the first pause; None when it was
        self.in_pause: Callable[[], None] | None = None

    def await_surroundings(self, wait: Callable[..., object]) -> None:
        """Wait for what the agent says before anything else. Raises EOFError."""
        while context.surroundings() is None:
            wait()
            with self._lock:
                self._pull()

    def run(self, wait: Callable[..., object]) -> None:
        """Run rows until the agent says quit. Raises EOFError.

        `wait` blocks until there is something to read; with milliseconds it returns something false after them.
        """
        if self._next(wait):
            self._run_assignment(self._assignments[0])
            self.after_first()
        while self._next(wait):
            self._run_assignment(self._assignments[0])

    @property
    def is_fresh(self) -> bool:
        """Nothing has run before the row that is being loaded; to be asked within the first assignment."""
        return bool(self._assignments) and self._assignments[0].next_row() <= self._assignments[0].lo + 1

    def recall(self, message: Recall) -> None:
        """Send what is finished, and give back rows that have not begun, also those that have not been read yet."""
        with self._lock:
            if not self._idle:
                self._pull()
            elif message.last > self._last:  # the main thread is about to read it
                self._recalls.append(message)
                return
            self._give_back(message.token, message.keep)

    def give_back(self) -> None:
        """The row that runs is going to wait: give back those behind it."""
        self.recall(Recall(0, 0))

    def _give_back(self, token: int, keep: int) -> None:
        self.flush()
        running = self._ledger.running()
        excess = sum([len(assignment.rows) for assignment in self._assignments])
        excess -= max(keep - (running is not None), 0)
        returned = []
        for assignment in reversed(self._assignments):
            if excess <= 0:
                break
            lo, hi = assignment.take_back(max(assignment.lo, assignment.end - excess))
            if lo < hi:
                run = assignment.run
                returned.append(ReturnedSpan(run.dispatch, run.client, run.batch, lo, hi))
                excess -= hi - lo
        if not token:
            if not returned and running == self._waiting:
                return
            self._waiting = running
        self._send(Returned(token, returned, running))

    def _hand_back(self, assignment: Assignment) -> None:
        """Begin nothing of an assignment that is revoked: its rows are others' now, or soon."""
        with self._lock:
            self.flush()
            lo, hi = assignment.take_back(assignment.lo)
            if lo < hi:
                run = assignment.run
                self._send(Returned(0, [ReturnedSpan(run.dispatch, run.client, run.batch, lo, hi)], None))

    def publish(self, keys: list[Key]) -> None:
        """Write values that stayed here to the store, and say so for each; blocks as long as that takes."""
        store = context.store()
        for key in keys:
            nowhere = PublishedValue(key, 0, "there is no store")
            self._send(Published([nowhere if store is None else self._live.publish(store, key)]))

    def drop(self, message: Drop) -> None:
        """Forget values that rows have made at once; those of later dispatches stay."""
        self._inputs.drop_values(message.keys, message.last)

    def _published(self, value: PublishedValue) -> None:
        """Report a value that was published unasked, after the result that says it was here."""
        self.flush()
        self._send(Published([value]))

    def flush(self) -> None:
        """Send the results of all finished rows, if there are any."""
        with self._lock:
            self.before_flush()
            results, done = self._ledger.take()
            if results or done:
                self._send(Results(results, done))
                self._loops.flush_at = self._clock() + FLUSH_NS

    def task(self) -> TaskContext | None:
        """Return the row that the main thread runs, or ran last in the assignment it is in."""
        try:
            assignment = self._assignments[0]
        except IndexError:
            return None
        row, run = self._page[ROW_CELL] - 1, assignment.run
        if row < 0:
            return None
        stream, serializer = bool(run.flags & STREAM), assignment.serializer
        row_id, name, priority = run.batch + row, run.name, run.priority
        return TaskContext(
            run.client, row_id, name, priority, 0, stream, serializer, run.root, run.nesting, run.claims_below
        )

    def root(self) -> int:
        """Return the root of the row that the main thread runs, or ran last; 0 before the first one."""
        return self._root

    def note_claimed(self, cell: int) -> None:
        """Let the agent know which row runs inside the wait of the one it has handed out."""
        self._page[CLAIMED_CELL] = cell

    def abandon(self) -> None:
        """Have nothing to run any more, and end with the row: this is a process that a task forked."""
        self._is_forked = True
        self._results.abandon()
        for assignment in self._assignments:
            assignment.rows.clear()
        self._assignments.clear()

    def _next(self, wait: Callable[..., object]) -> bool:
        """Wait for an assignment; say False when there will be none."""
        while True:
            with self._lock:
                if not self._assignments:
                    self.flush()
                    if self._quitting:
                        return False
                    self._idle = True
            if self._is_untidy:  # after the results are on their way, so that nobody waits for it
                self._is_untidy = False
                self.tidy_up(False)
            if not self._idle:
                return True
            try:
                if not self._inputs.shares or not wait(SHARED_MS):
                    self._inputs.settle()
                    if self.in_pause is None or not wait(PAUSE_MS):
                        in_pause, self.in_pause = self.in_pause, None
                        if in_pause is not None:
                            in_pause()
                        wait()
            except BaseException:  # by a signal handler of the user's
                traceback.print_exc()
            with self._lock:
                self._idle = False
                self._pull()
                if self._recalls:
                    self._answer_recalls()
                self._loops.flush_at = self._clock() + FLUSH_NS

    def _answer_recalls(self) -> None:
        """Give back what was recalled before it was read, unless all of that is still to come."""
        recalls, self._recalls = self._recalls, []
        for message in recalls:
            if message.last > self._last and not self._assignments:
                self._recalls.append(message)
            else:
                self._give_back(message.token, message.keep)

    def _pull(self) -> None:
        """Take in the messages that have come."""
        for message in self._read():
            if isinstance(message, Run):
                self._last = message.dispatch
                if message.stale:
                    self._inputs.drop(message.stale)
                if message.objects:
                    self._inputs.add(message.objects)
                self._assignments.append(Assignment(message))
            elif isinstance(message, Drop):
                self._inputs.drop(message.keys)
            elif isinstance(message, Surroundings):
                context.set_surroundings(message.about)
            elif isinstance(message, Quit):
                self._quitting = True

    def _work(self, assignment: Assignment, loop: Callable[[], None]) -> bool:
        """Run the rows of an assignment; whether one has failed."""
        failed = False
        while True:
            try:
                loop()
            except BaseException as error:  # of the user's row, or IndexError since there are no more
                if self._is_forked:
                    _end_of_fork(error)
                context.end_waits()
                if self._ledger.settle(error):
                    failed = True
                    self._results.take_back()
                    self._tidy_between_rows(True)
                    continue
                self._results.reported()
                if not assignment.rows:
                    return failed
                traceback.print_exc()  # by a signal handler of the user's, between two rows

    def _tell(self) -> None:
        """Between two rows, every now and then."""
        self._tidy_between_rows(False)
        self.flush()

    def _tidy_between_rows(self, has_failed: bool) -> None:
        if self._assignments[0].run.threads <= 1:  # else its variables of native threads are others for now
            self.tidy_up(has_failed)

    def _run_assignment(self, assignment: Assignment, is_raised: bool = False) -> None:
        if assignment.run.threads > 1 and not is_raised:
            from scaler.worker.native_threads import raised  # few rows need it, and what it loads takes time

            with raised(assignment.run.threads):
                self._run_assignment(assignment, True)
            return
        ledger, failed, self._root = self._ledger, False, assignment.run.root
        self._is_untidy = True
        if assignment.rows and not self._inputs.knows(assignment.run):
            self.flush()  # importing the function's modules may take long
        ledger.open(assignment)
        if self._page[REVOKED_CELL] >= assignment.run.dispatch:
            self._hand_back(assignment)
        if assignment.rows:
            loop = self._loops.of(assignment, self._inputs)
            if assignment.run.flags & WARN:
                with passed_on(self._send, self.task):
                    failed = self._work(assignment, loop)
            else:
                failed = self._work(assignment, loop)
        if failed:
            self._inputs.decode_anew(assignment.run)
        with self._lock:
            ledger.close()
            self._assignments.popleft()


def _end_of_fork(error: BaseException) -> NoReturn:
    from scaler.worker.task_fork import end_as_a_program, is_for_want_of_rows  # few tasks fork

    end_as_a_program(None if is_for_want_of_rows(error) else error)
