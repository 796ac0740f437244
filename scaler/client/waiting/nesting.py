"""How tasks and callbacks wait for tasks of their own without holding up others.

A callback that the I/O thread calls hands that role to another thread first. A task keeps its worker useful: it gives
back the rows that the worker was handed and has not begun, claims the row it waits for, and runs it in its own stack if
nobody has begun it. If somebody has, or the stack is deep, or others' rows are kept waiting by that, the worker says
that it is blocked: its slot is given to another worker. So nested tasks end whatever their depth, on one worker too.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from scaler.client.core import events as ev
from scaler.client.future import Future
from scaler.client.io.driver import SessionDriver
from scaler.client.io.io_thread import IOThread
from scaler.client.liveness import Liveness
from scaler.client.values.claimed_rows import ClaimedRows
from scaler.client.values.value_codec import ValueCodec
from scaler.client.waiting.claims import Claim, Claims
from scaler.client.waiting.event_loops import note_event_loop, running_loop
from scaler.client.waiting.resolving import Resolver
from scaler.protocol.messages import ERROR, VALUES_EACH, u32
from scaler.protocol.results import SpanResult
from scaler.serialize import class_states, module_globals
from scaler.serialize.record import exception_record
from scaler.worker import context, inline
from scaler.worker.context import TaskContext

#: rows run inside each other's waits, at most; beyond, a waiting worker gives its slot away
MAX_DEPTH = 24
#: after so many waits of a task, each for a claim of a row that took less than so many seconds, it gives its slot away,
#: too, if there are more rows to wait for: others are handed many of them at once
FEW_CLAIMS, SHORT = 8, 0.001
#: rows of a map that a waiting task claims at first; if those took less than so many seconds each, and there are many
#: more, they are left to others for the same reason
FEW_ROWS, TINY = 64, 0.0002
#: seconds for which a task asks whether something is done before it counts as waiting
POLLING = 0.1


class _Wait:
    """A task's wait for a token: what it has done meanwhile."""

    def __init__(self, token: Any, task: TaskContext, claim: Claim) -> None:
        self.token = token
        self.task = task
        self.claim = claim
        #: how often it has claimed a row
        self.claims = 0
        #: rows that it has run, and the seconds that they took
        self.rows, self.ran = 0, 0.0
        #: its slot was given away
        self.is_blocked = False
        #: it was told to leave all rows to others
        self.yields = False


class NestedWaits:
    """What a thread does that is going to wait for tokens of one client. Any thread."""

    def __init__(
        self,
        driver: SessionDriver,
        liveness: Liveness,
        codec: ValueCodec,
        claims: Claims,
        claimed_rows: ClaimedRows,
        resolver: Resolver,
        io_thread: IOThread,
    ) -> None:
        self._driver = driver
        self._liveness = liveness
        self._codec = codec
        self._claims = claims
        self._claimed_rows = claimed_rows
        self._resolver = resolver
        #: by depth: the task that has last waited there, and how many claims of short rows it has waited for in a row
        self._short_claims: dict[int, tuple[int, int]] = {}
        #: by depth: the task that has asked last whether a future is done, and when it did so first
        self._polls: dict[int, tuple[int, float]] = {}
        #: futures for which tasks count as waiting, as they ask again and again
        self._polled = weakref.WeakSet[Future]()
        #: the calling thread may be going to block: it is not the I/O thread any more, if it was
        self.step_aside = io_thread.step_aside

    def wait(self, token: Any, is_done: Callable[[], bool], timeout: float | None) -> float | None:
        """Inside a task: wait until `is_done()`; elsewhere return at once. Returns what is left of `timeout`."""
        self.step_aside()
        task = context.current()
        if task is None:
            return timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        context.give_back_unbegun()
        wait = _Wait(token, task, self._claims.open(token))
        claim = wait.claim
        claim.is_refused = not _has_room_for_another(task) or self._claims_cost_more(task)
        try:
            while not is_done() and self._liveness.failure is None:
                claim.changed.close()  # what comes after the looks below opens it
                if self._run_one(wait):
                    continue
                self._claim_or_block(wait)
                if not claim.granted and not is_done():
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        break
                    claim.changed.wait(1.0 if left is None else min(left, 1.0))
        finally:
            self._claims.close(token)
            self._leave_to_others(claim)
            if wait.is_blocked:
                context.unblocked(wait)
            elif wait.claims:
                self._note_short_claims(wait)
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _run_one(self, wait: _Wait) -> bool:
        """Run a row that was granted, if there is one; a task that is to yield leaves them to others."""
        claim = wait.claim
        if not wait.yields and context.take_yield():
            wait.yields = claim.is_refused = True
        if wait.yields:
            self._leave_to_others(claim)
            return False
        if not claim.granted:
            return False
        begun = time.monotonic()
        self._run_claimed(claim.granted.popleft(), wait.task)
        wait.ran += time.monotonic() - begun
        wait.rows += 1
        return True

    def _claim_or_block(self, wait: _Wait) -> None:
        """Ask for a row to run meanwhile; if all run elsewhere, or it doesn't pay, give the slot away."""
        claim = wait.claim
        if wait.rows >= FEW_ROWS and wait.ran < wait.rows * TINY and self._driver.session.pending.are_many:
            claim.is_refused = True
        if not claim.is_asked and not claim.is_refused:
            claim.is_asked = True
            self._driver.tell(ev.Claim(wait.token, 0 if wait.claims else FEW_ROWS, wait.task.claims_below))
            wait.claims += 1
        if claim.is_refused and not claim.is_asked and not wait.is_blocked:
            wait.is_blocked = True
            context.blocked(wait)

    def _leave_to_others(self, claim: Claim) -> None:
        while claim.granted:
            self._claimed_rows.resubmit(claim.granted.popleft())

    def _claims_cost_more(self, task: TaskContext) -> bool:
        """Claiming row after row takes longer than running them, and there are many."""
        return self._short_claims_of(task)[1] >= FEW_CLAIMS and self._driver.session.pending.are_many

    def _note_short_claims(self, wait: _Wait) -> None:
        """It ends without having given its slot away."""
        task = wait.task
        _, before = self._short_claims_of(task)
        self._short_claims[task.depth] = task.row, before + wait.claims if wait.ran < wait.claims * SHORT else 0

    def _short_claims_of(self, task: TaskContext) -> tuple[int, int]:
        known = self._short_claims.get(task.depth)
        return known if known is not None and known[0] == task.row else (task.row, 0)

    def lend_slot(self) -> Callable[[], None]:
        """A thread that a task has started is going to wait: its worker's slot is another worker's until what this
        returns is called, since the task may wait for the thread. Elsewhere nothing.
        """
        if not context.is_beside_task():
            return _nothing
        wait = object()
        context.blocked(wait)
        return partial(context.unblocked, wait)

    def prepare_to_block(self, future: Future) -> None:
        """Somebody is going to wait in a way that can't be helped, as `concurrent.futures.wait` does."""
        self.step_aside()
        note_event_loop()
        if context.innermost() is not None:
            wait = object()
            context.blocked(wait)
            future.add_done_callback(lambda _: context.unblocked(wait))

    def note_poll(self, future: Future) -> None:
        """A task has asked whether a future is done. Who has begun to ask a while ago, and still does, waits for it."""
        task = context.innermost()  # also of a thread which that has started
        if task is None:
            return
        now = time.monotonic()
        row, since = self._polls.get(task.depth, (-1, 0.0))
        if row != task.row:
            self._polls[task.depth] = task.row, now
        elif now - since >= POLLING and future not in self._polled:
            self._polled.add(future)
            context.give_back_unbegun()
            self.prepare_to_block(future)

    def _run_claimed(self, claimed: ev.ClaimGranted, outer: TaskContext) -> None:
        """Run a row that was claimed, in this thread, and resolve its token."""
        task, row = claimed.task, claimed.row
        serializer, row_id = self._codec.serializer, task.batch + row
        name, priority = task.name, task.priority
        self._resolver.begin_here(claimed.token)
        inner = TaskContext(
            outer.client, row_id, name, priority, 0, outer.stream, serializer, task.root, task.nesting,
            outer.claims_below,
        )  # fmt: skip
        try:
            with class_states.here.inside(), module_globals.inside():
                with context.entered(inner):  # clients among the arguments ask which task they are in
                    args, kwargs = self._claimed_rows.call_of(claimed)
                    function = claimed.template.function()
                outcome, body = inline.run_inline(inner, function, args, kwargs, serializer)
        except BaseException as error:
            outcome, body = ERROR, exception_record(error, task.name, context.largest_exception())
        if outcome != ERROR:
            outcome = VALUES_EACH
        span = SpanResult(task.batch, row, row + 1, outcome, 0, 0, u32([len(body)]), body)
        try:
            self._resolver.resolve([claimed.token], span, task)
        finally:
            self._resolver.end_here(claimed.token)


def _has_room_for_another(task: TaskContext) -> bool:
    """Its thread may run another task in its stack; in an event loop not, as that may run a loop of its own."""
    return task.depth < MAX_DEPTH and running_loop() is None


def _nothing() -> None:
    """There is no slot to take back."""
