"""Carries out what an agent's core wants, with the workers and the store of its host, and tells it what happened.

Used by the agent's daemon and, in the same process as the scheduler's core, by a local cluster.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, cast

from scaler.agent.core import leaving
from scaler.agent.core.agent_core import AgentCore
from scaler.agent.core.events import (
    Effect,
    Event,
    FileMissing,
    FromScheduler,
    GiveUp,
    KillWorker,
    Leave,
    Limited,
    Log,
    LookAt,
    Measure,
    Measured,
    Revoke,
    ShowOutput,
    StartWorker,
    Stop,
    Tick,
    ToScheduler,
    ToWorker,
    WakeAt,
)
from scaler.agent.host_store import HostStore
from scaler.agent.host_workers import HostWorkers
from scaler.agent.measuring import Measuring
from scaler.agent.state.memory import AgentLimits
from scaler.agent.state.worker_records import STARTING
from scaler.agent.usage import Usage
from scaler.agent.worker_processes import Zygote
from scaler.common.long_lived import HeapTrim
from scaler.common.loop import Loop
from scaler.protocol.codes import MAX_NAME, STDOUT, Leaving
from scaler.protocol.messages import Message, ObjectFetch
from scaler.store.index import Place

logger = logging.getLogger("scaler.agent")

#: where objects are, for the log
PLACES: tuple[Place, ...] = ("shm", "live", "disk", "open", "moving")


def core_of(workers: int, limits: AgentLimits, validate: bool, may_return: bool = True) -> AgentCore:
    """The core of an agent with so many workers; with `validate` it looks at its state after each step.

    `may_return`: it may outlive its scheduler.
    """
    core = AgentCore(workers, limits, may_return=may_return)
    if not validate:
        return core
    from scaler.agent.state.validate import validate as findings_in  # here, as few want it and all would load it
    from scaler.common.validating import ValidatingCore

    return cast(AgentCore, ValidatingCore(core, findings_in))


class AgentShell:
    """The hands of an agent's core: worker processes, the store, the log. Used by one thread."""

    def __init__(
        self,
        core: AgentCore,
        zygote: Zygote | None,
        store: HostStore,
        loop: Loop,
        context: dict[str, Any],
        print_output: Callable[[ShowOutput], None],
    ) -> None:
        """Without a zygote there are no workers."""
        self.core = core
        self._state = core.state
        self._store = store
        self._workers = HostWorkers(zygote, loop, context, store.worker_ended)
        self._loop = loop
        self._print_output = print_output
        self._usage = Usage()
        self._heap = HeapTrim()
        self._measuring = Measuring()
        #: for the core, besides what comes from elsewhere
        self._seen: list[Event] = []
        #: when the core wants to be woken
        self._core_wake: float | None = None
        self.stopped = False
        #: why no worker of this host can start
        self.failure: str | None = None
        store.watch(loop)

    def log_holdings(self) -> None:
        """Say in one line what is here; asked for with `kill -USR1`."""
        state, index = self._state, self._state.objects.index
        places = ", ".join(f"{index.bytes_in(place):,} {place}" for place in PLACES)
        logger.info(
            "Agent: holds %d workers, %d queued, %d running, %d objects; bytes of objects: %s; of workers: %s%s",
            len(state.workers.records), state.queued, state.running, state.objects.count, places,
            f"{sum(worker.memory for worker in state.workers.records.values()):,}",
            "; full" if state.memory.is_full else "",
        )  # fmt: skip

    def announce_end(self, grace: float) -> None:
        """The end of this host was announced; it may take so many seconds."""
        self._seen.append(Leave(grace))
        self._loop.soon()

    def limit(self, ends: float, grace: float) -> None:
        """The batch system ends this host at a time (of `time.monotonic`); it begins to go so many seconds before."""
        self._seen.append(Limited(ends, grace))
        self._loop.soon()

    @property
    def may_be_missed(self) -> bool:
        """Something is here that somebody may still want."""
        return leaving.may_be_missed(self._state)

    @property
    def is_nearly_idle(self) -> bool:
        """One row runs at most, as when a client waits for each task before it submits the next."""
        return self._state.workers.open_dispatches <= 1

    @property
    def leaving(self) -> Leaving:
        """Whether this host is about to go."""
        return self._state.departure.reason

    @property
    def has_workers(self) -> bool:
        """A worker has started, and is there."""
        return any(record.state is not STARTING for record in self._state.workers.records.values())

    @property
    def wake(self) -> float | None:
        """When `gather` and the core should be called again though nothing happened."""
        wake = self._core_wake
        usage = self._usage.due if self._usage.is_wanted else None
        for other in (self._store.wake, usage, self._measuring.due, self._workers.due):
            if other is not None and (wake is None or other < wake):
                wake = other
        return wake

    def heard(self, message: Message) -> list[Event]:
        """What the core is told when the scheduler has said something.

        Before somebody reads objects it is looked whether their files are there: others may remove files, too.
        """
        if type(message) is not ObjectFetch:
            return [FromScheduler(message)]
        keys = zip(message.clients, message.ids, strict=True)
        return [*map(FileMissing, filter(self._store.lacks, keys)), FromScheduler(message)]

    def gather(self) -> list[Event]:
        """What workers said and did since the last time; never blocks."""
        events, self._seen = self._seen, []
        ready, now = self._loop.ready, time.monotonic()
        events += self._workers.gather(now, self._state.workers.target)
        if self._store in ready:
            del ready[self._store]
            events += self._store.gather()
        if now >= self._usage.due:
            events += self._store.mend(self._state.objects.index)
            self._heap.look(self._usage.is_busy, now)
            pids = self._workers.pids
            begun, reached = self._workers.begun(pids), self._workers.reached(pids)
            events.append(self._usage.sample(pids, begun, reached, now, self._store.path))
        if self._measuring.due is not None and now >= self._measuring.due:
            events.append(self._measure(now))
        if now >= self._store.tidy_at:
            self._store.tidy(self._state.objects.index, now)
        return events

    def _measure(self, now: float) -> Measured:
        pids = self._workers.pids
        measured, clock = self._measuring.measure(pids, self._workers.begun(pids), now), time.monotonic_ns()
        for slot, worker in measured.workers.items():
            if worker.begun[1] >= 0:
                worker.elapsed = (clock - self._workers.began(slot)) // 1_000_000
        return measured

    def handle(self, events: list[Event], now: float) -> list[Message]:
        """Let the core decide, and do what it wants; what it says to the scheduler. Without events: time has passed."""
        said = self._carry_out(self.core.handle(events or [Tick()], now))
        have_rows = self._state.workers.open_dispatches > 0
        if have_rows is not self._usage.is_busy:
            self._usage.note(have_rows, now)
        return said

    def leave(self) -> list[Message]:
        """An orderly end of this agent; what it says to the scheduler."""
        return self._carry_out(self.core.leave())

    def _carry_out(self, effects: list[Effect]) -> list[Message]:
        said: list[Message] = []
        for number, effect in enumerate(effects, 1):
            if isinstance(effect, ToWorker):
                self._workers.send(effect, effects[number] if number < len(effects) else None)
            elif isinstance(effect, ToScheduler):
                said.append(effect.message)
            elif isinstance(effect, WakeAt):
                self._core_wake = effect.when
            elif isinstance(effect, StartWorker):
                self._workers.start(effect.slot, effect.nests)
            elif isinstance(effect, KillWorker):
                self._workers.kill(effect.slot)
            elif isinstance(effect, LookAt):
                self._workers.look_at(effect.slot)
            elif isinstance(effect, Revoke):
                self._workers.revoke(effect.slot, effect.dispatch)
            elif isinstance(effect, Measure):
                self._measuring.every(effect.interval, self._workers.pids, time.monotonic())
            elif isinstance(effect, ShowOutput):
                self._print_output(effect)
            elif isinstance(effect, Log):
                logger.log(getattr(logging, effect.level), "%s", effect.text)
            elif isinstance(effect, GiveUp):
                self.failure = effect.reason
            elif isinstance(effect, Stop):
                self.stopped = self._workers.are_ending = True
            else:
                self._store.carry_out(effect, time.monotonic())
        return said

    def close(self) -> None:
        """End all workers, and remove the store; blocks until they are gone.

        Workers without a task end as programs do, and so clean up after tasks that they ran; others are killed.
        """
        self.stopped = True
        try:
            records = self._state.workers.records
            self._workers.close([slot for slot, record in records.items() if record.is_without_task])
        finally:
            self._store.close()


def log_output(output: ShowOutput) -> None:
    """Put what a task printed into the log, with the task's name."""
    level = logging.INFO if output.stream == STDOUT else logging.WARNING
    name = output.name[:MAX_NAME]
    for line in output.text.splitlines():
        logger.log(level, "%s[%d]: %s", name, output.row, line)
