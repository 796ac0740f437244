"""An agent's brain: the host's rows, workers and objects, as `handle(events, now) -> effects`.

This file is the entry point: it says who deals with what has happened. Then the phases of `phases.py` look, one after
the other, at what is to be done about it. All that the agent knows is in `scaler/agent/state/`.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from scaler.agent.core import (
    forgetting,
    heartbeat,
    leaving,
    phases,
    preloads,
    releasing,
    reporting,
    returning,
    sharing,
    silence,
    spilling,
    staging,
    storing,
    withdrawing,
    worker_commands,
    worker_endings,
    worker_lifecycle,
    worker_reports,
)
from scaler.agent.core.events import (
    Effect,
    Event,
    Fetched,
    FileMissing,
    FromScheduler,
    FromWorker,
    Garbled,
    HungUp,
    Leave,
    Limited,
    Looked,
    Measured,
    Put,
    Requested,
    Restored,
    Sampled,
    Spilled,
    Stop,
    Tick,
    WakeAt,
    Welcomed,
    WorkerExited,
)
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState, new_host
from scaler.agent.state.memory import AgentLimits
from scaler.agent.state.rows import row_ranges_of
from scaler.agent.state.worker_records import WorkerRecord
from scaler.common import findings
from scaler.protocol.codes import WithdrawalKind
from scaler.protocol.messages import (
    BalanceRequest,
    ClientDeparture,
    ClientIntroduction,
    ClientShutdown,
    DisconnectRequest,
    Drain,
    HeartbeatEcho,
    Message,
    Neighbours,
    ObjectAnnounce,
    ObjectFetch,
    ObjectRelease,
    Query,
    Settled,
    Task,
    TaskCancel,
    TaskClaim,
    Watch,
)
from scaler.worker_protocol import messages as worker_messages
from scaler.worker_protocol.messages import (
    Blocked,
    Crowded,
    Leaving,
    Preloading,
    Published,
    Ready,
    Results,
    Returned,
    TailResponse,
    Unblocked,
    Unfiled,
    Unfit,
)

UNLIMITED = AgentLimits()

#: what is still of interest of a worker that is being ended
LAST_WORDS = frozenset({Results, Returned, Published})


class AgentCore:
    """Decides for one host. `state` is for looking at; nobody else changes it.

    With `strict` a move that no table has is raised, for tests. Otherwise the agent goes on: a worker that made one is
    replaced, and the log has its last moves. Any other exception that a worker's message leads to ends that worker, and
    is raised only if it has left the state in disorder.
    """

    def __init__(
        self, workers: int, limits: AgentLimits = UNLIMITED, strict: bool = False, may_return: bool = True
    ) -> None:
        """`may_return`: it may outlive its scheduler, and then tells the next one what is here."""
        self._state = state = new_host(workers, limits, strict)
        self._may_return = state.may_end = may_return
        self._limit = limits.message
        self.out = out = Outgoing(state.unsettled if may_return else None, limits.message)
        #: when the last `WakeAt` asked for a tick
        self._wake = math.inf
        #: what was raised in this step while a worker's message was dealt with: the state may be in disorder
        self._doubt: Exception | None = None
        self._of_event: dict[type[Event], Callable[[Any], None]] = {
            FromWorker: self._from_worker,
            FromScheduler: self._from_scheduler,
            Tick: lambda event: None,
            WorkerExited: partial(worker_endings.take_exit, state, out),
            Garbled: self._garbled,
            HungUp: self._hung_up,
            Welcomed: self._welcomed,
            Looked: self._looked,
            Sampled: self._sampled,
            Measured: partial(reporting.report, state, out),
            Spilled: partial(storing.take_spilled, state, out),
            Restored: partial(storing.take_restored, state, out),
            Fetched: partial(storing.take_fetched, state, out),
            Requested: lambda event: sharing.answer_peer(state, out, event.key),
            FileMissing: lambda event: releasing.find_missing(state, out, event.key),
            Leave: partial(leaving.take_notice, state, out),
            Limited: partial(leaving.take_limit, state),
            Put: lambda event: storing.take_file(state, out, event.key, event.size),
        }
        self._of_scheduler: dict[type[Message], Callable[[Any], None]] = {
            Task: self._task,
            TaskCancel: self._cancel,
            TaskClaim: lambda message: withdrawing.withdraw(state, out, message, WithdrawalKind.CLAIM),
            BalanceRequest: partial(withdrawing.balance, state, out),
            ObjectAnnounce: partial(storing.take_announced, state, out),
            ObjectFetch: partial(sharing.answer_scheduler, state, out),
            ObjectRelease: lambda message: releasing.release(state, out, list(message)),
            Neighbours: partial(sharing.learn_neighbours, state),
            ClientDeparture: partial(forgetting.forget_client, state, out),
            ClientShutdown: lambda message: out.add(Stop()),
            ClientIntroduction: self._introduced,
            Settled: partial(returning.settle, state),
            HeartbeatEcho: partial(heartbeat.take_echo, state),
            Watch: partial(reporting.take_watch, state, out),
            Drain: partial(leaving.take_drain, state, out),
            Query: partial(reporting.take_question, state, out),
        }
        self._of_worker: dict[type[worker_messages.FromWorker], Callable[[WorkerRecord, Any], None]] = {
            Ready: lambda worker, message: worker_lifecycle.take_ready(state, out, worker),
            Results: partial(worker_reports.take_results, state, out),
            Returned: partial(worker_reports.take_returned, state, out),
            Published: partial(worker_reports.take_published, state, out),
            worker_messages.Output: partial(worker_reports.take_output, out),
            Blocked: lambda worker, message: worker_lifecycle.take_blocked(state, out, worker),
            Unblocked: lambda worker, message: worker_lifecycle.take_unblocked(state, worker),
            Leaving: lambda worker, message: worker_lifecycle.take_leaving(out, worker),
            Unfit: lambda worker, message: worker_lifecycle.replace(state, out, worker, message.why),
            TailResponse: lambda worker, message: reporting.take_tail(out, message),
            Unfiled: partial(worker_reports.take_unfiled, state, out),
            Preloading: partial(preloads.take_word, state, out),
            Crowded: lambda worker, message: spilling.note_crowded(state, message.size),
        }

    @property
    def state(self) -> HostState:
        """All that the agent knows."""
        return self._state

    # ---- the entry point -------------------------------------------------------------------------------------------
    def handle(self, events: Iterable[Event], now: float) -> list[Effect]:
        """Take what happened, in order; what is to be done about it."""
        state, out, of_event = self._state, self.out, self._of_event
        state.now = now
        for event in events:
            of_event[type(event)](event)
        phases.run(state, out)
        wake = phases.next_wake(state)
        if wake < self._wake or self._wake <= now:
            self._wake = wake
            if wake < math.inf:
                out.add(WakeAt(wake))
        if self._doubt is not None:
            self._check()
        return out.flush()

    def leave(self) -> list[Effect]:
        """The last words of an agent that is told to end."""
        self.out.say(DisconnectRequest())
        return self.out.flush()

    # ---- what happens on the host ----------------------------------------------------------------------------------
    def _welcomed(self, event: Welcomed) -> None:
        state = self._state
        state.pulse.interval = event.heartbeat
        state.pulse.next = state.now
        leaving.greet(state)
        state.number = event.number
        self.out.heed(min(self._limit, event.limit))
        if not event.resumed:
            reporting.end(state, self.out)
        if event.returned:
            returning.introduce_again(state, self.out)
        elif not event.resumed:
            forgetting.forget_everything(state, self.out)

    def _garbled(self, event: Garbled) -> None:
        worker = self._state.workers.records.get(event.slot)
        if worker is not None:
            worker_commands.reject(self.out, worker, f"sent what is no message ({event.reason})")

    def _hung_up(self, event: HungUp) -> None:
        worker = self._state.workers.records.get(event.slot)
        if worker is not None:
            worker_commands.give_up(self.out, worker, "closed its connection (has it called exec?)")

    def _looked(self, event: Looked) -> None:
        withdrawing.take_look(self._state, self.out, event)
        silence.take_look(self._state, self.out, event)
        worker_reports.take_look(self._state, self.out, event)

    def _sampled(self, event: Sampled) -> None:
        self._state.pulse.cpu = event.cpu
        worker_lifecycle.take_sample(self._state, self.out, event)
        silence.take_sample(self._state, self.out, event)
        spilling.note_short(self._state, event.short)

    # ---- what workers and the scheduler say ------------------------------------------------------------------------
    def _from_worker(self, event: FromWorker) -> None:
        worker = self._state.workers.records.get(event.slot)
        kind = type(event.message)
        if worker is not None and (worker.kill_reason is None or (kind in LAST_WORDS and not worker.is_rejected)):
            try:
                self._of_worker[kind](worker, event.message)
            except Exception as error:
                self._blame(worker, kind.__name__, error)

    def _blame(self, worker: WorkerRecord, kind: str, error: Exception) -> None:
        """A worker's message has met a defect of ours: in tests that is raised, otherwise it costs us the worker."""
        if self._state.strict:
            raise error
        self._doubt = error
        what = f"the {kind} of worker {worker.slot}"
        self.out.log("ERROR", f"a defect of the agent, met by {what}:\n{findings.told(error, what)}")
        words = f"met a defect of the agent with its {kind} ({type(error).__name__}: {error})"
        worker_commands.reject(self.out, worker, words)

    def _check(self) -> None:
        """Raise what was raised in this step if it has left the state in disorder: another agent is to begin anew."""
        from scaler.agent.state.validate import validate  # here, as hardly anybody needs it

        doubt, self._doubt = self._doubt, None
        assert doubt is not None
        findings.check(validate(self._state), doubt)

    def _from_scheduler(self, event: FromScheduler) -> None:
        self._of_scheduler[type(event.message)](event.message)

    def _task(self, task: Task) -> None:
        sharing.learn_from_task(self._state, task)
        if self._may_return:
            self._state.unsettled.expect(task)
        self._state.arrivals += 1
        for lo, hi in zip(task.lost[::2], task.lost[1::2], strict=True):
            self._state.suspects.expect((task.client, task.batch), lo, hi)
        for origin in row_ranges_of(task, self._state.arrivals):
            staging.admit(self._state, self.out, origin, origin.lo, origin.hi)

    def _introduced(self, message: ClientIntroduction) -> None:
        self._state.unsettled.sessions[message.client] = message.session

    def _cancel(self, message: TaskCancel) -> None:
        what = WithdrawalKind.FORCE if message.force else WithdrawalKind.CANCEL
        withdrawing.withdraw(self._state, self.out, message.spans, what)
