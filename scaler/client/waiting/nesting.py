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
from scaler.client.io.watching import Watcher
from scaler.client.liveness import Liveness
from scaler.client.values.claimed_rows import ClaimedRows
from scaler.client.waiting.claims import Claim, Claims, Stage
from scaler.client.waiting.event_loops import note_event_loop
from scaler.client.waiting.resolving import Resolver
from scaler.worker import context
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
#: seconds between looks whether there is still a scheduler
LOOK = 1.0


class NestedWaits:
    """What a thread does that is going to wait for tokens of one client. Any thread."""

    def __init__(
        self,
        driver: SessionDriver,
        liveness: Liveness,
        claims: Claims,
        claimed_rows: ClaimedRows,
        resolver: Resolver,
        io_thread: IOThread,
        watcher: Watcher,
    ) -> None:
        self._driver = driver
        self._liveness = liveness
        self._claims = claims
        self._claimed_rows = claimed_rows
        self._resolver = resolver
        self._watcher = watcher
        #: by depth: the task that has last waited there, and how many claims of short rows it has waited for in a row
        self._short_claims: dict[int, tuple[int, int]] = {}
        #: what returns the template of what tasks have run last while they waited, if somebody has it, and about how
        #: many seconds a row of it takes
        self._pace: tuple[Callable[[], Any], float] = _nothing, SHORT
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
        claim = self._claims.open(token)
        try:
            while self._liveness.failure is None and (claim.granted or not is_done()):
                claim.changed.close()  # what comes after the looks below opens it
                if self._run_one(claim, task):
                    continue
                self._claim_or_block(claim, task)
                if claim.granted or is_done():
                    continue
                left = LOOK if deadline is None else min(LOOK, deadline - time.monotonic())
                if left <= 0:
                    break
                self._sleep(claim, left)
        except BaseException:  # whatever a signal's handler raises
            self._watcher.recover()
            raise
        finally:
            self._claims.close(claim)
            self._leave_to_others(claim)
            if claim.stage in (Stage.REFUSED, Stage.BLOCKED):
                context.unblocked(claim)
            elif claim.questions:
                self._note_short_claims(claim, task)
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _run_one(self, claim: Claim, task: TaskContext) -> bool:
        """Run a row that was granted, if there is one; a task that is to yield leaves them to others."""
        claim.yields = claim.yields or context.take_yield()
        if claim.yields:
            self._leave_to_others(claim)
        if not claim.granted:
            return False
        claimed = claim.granted.popleft()
        took = self._run_claimed(claimed, task)
        claim.rows, claim.ran = claim.rows + 1, claim.ran + took
        last, before = self._pace
        pace = max(took, before / 2) if last() is claimed.template else took
        self._pace = weakref.ref(claimed.template), pace
        if took >= SHORT:  # they are not as short as they were
            self._leave_to_others(claim, besides=claim.token)
        return True

    def _claim_or_block(self, claim: Claim, task: TaskContext) -> None:
        """Ask for rows to run meanwhile; if all run elsewhere, or it doesn't pay, give the slot away."""
        if claim.stage is Stage.FREE:
            if claim.yields or not self._pays(claim, task):
                claim.stage = Stage.REFUSED
            else:
                claim.stage = Stage.ASKED
                self._driver.tell(self._question(claim, task))
                claim.questions += 1
        if claim.stage is Stage.REFUSED:
            context.blocked(claim)
            claim.stage = Stage.BLOCKED

    def _question(self, claim: Claim, task: TaskContext) -> ev.Claim:
        """As many as are done in the time that it takes to ask for one, where few are under way."""
        last, seconds = self._pace
        are_few_and_short = seconds < SHORT and not self._driver.session.pending.are_many
        least = int(SHORT / max(seconds, SHORT / FEW_ROWS)) if are_few_and_short else 0
        return ev.Claim(claim.token, 0 if claim.questions else FEW_ROWS, last(), least, task.claims_below)

    def _pays(self, claim: Claim, task: TaskContext) -> bool:
        """Whether running rows here is better than another worker in the place of this one."""
        if context.depth() >= MAX_DEPTH:
            return False
        are_tiny = claim.rows >= FEW_ROWS and claim.ran < claim.rows * TINY
        are_short = self._short_claims_of(task) >= FEW_CLAIMS
        return not ((are_tiny or are_short) and self._driver.session.pending.are_many)

    def _sleep(self, claim: Claim, seconds: float) -> None:
        """Wait for something to look at: by watching the connection here, where an answer is on its way."""
        is_answer_due = claim.stage is Stage.ASKED
        watch = self._watcher.watch_for_answer if is_answer_due else self._watcher.watch_while_waiting
        watch(lambda: claim.changed.is_open, seconds)
        claim.changed.wait(seconds)

    def _leave_to_others(self, claim: Claim, besides: Any = None) -> None:
        """Have the cluster run what was granted, besides rows of this token."""
        for each in claim.take(lambda token: token is not besides):
            self._claimed_rows.resubmit(each)

    def _note_short_claims(self, claim: Claim, task: TaskContext) -> None:
        """It ends without having given its slot away."""
        are_short = claim.ran < claim.questions * SHORT
        claims = self._short_claims_of(task) + claim.questions if are_short else 0
        self._short_claims[context.depth()] = task.row, claims

    def _short_claims_of(self, task: TaskContext) -> int:
        row, claims = self._short_claims.get(context.depth(), (task.row, 0))
        return claims if row == task.row else 0

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
        row, since = self._polls.get(context.depth(), (-1, 0.0))
        if row != task.row:
            self._polls[context.depth()] = task.row, now
        elif now - since >= POLLING and future not in self._polled:
            self._polled.add(future)
            context.give_back_unbegun()
            self.prepare_to_block(future)

    def _run_claimed(self, claimed: ev.ClaimGranted, outer: TaskContext) -> float:
        """Run a row that was claimed, in this thread, and resolve its token; how many seconds it took."""
        self._resolver.begin_here(claimed.token)
        try:
            ended = self._claimed_rows.run(claimed, outer)
            self._resolver.resolve([claimed.token], ended, claimed.task)
        finally:
            self._resolver.end_here(claimed.token)
        return ended.duration / 1e6


def _nothing() -> None:
    """There is no slot to take back, or no template."""
