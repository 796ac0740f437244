"""Carries out what an agent's core wants: workers started, spoken to and ended, objects moved. Tells it what happened.

Used by the agent's daemon and, in the same process as the scheduler's core, by a local cluster.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol

from scaler.agent.core.agent_core import AgentCore
from scaler.agent.core.events import (
    Effect,
    Event,
    FileMissing,
    FromScheduler,
    FromWorker,
    Garbled,
    GiveUp,
    HungUp,
    KillWorker,
    Leave,
    Limited,
    Log,
    LookAt,
    Looked,
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
    WorkerExited,
)
from scaler.agent.host_store import HostStore
from scaler.agent.measuring import Measuring
from scaler.agent.overdue import Overdue
from scaler.agent.state.host import HostState
from scaler.agent.state.memory import AgentLimits
from scaler.agent.state.worker_records import STARTING
from scaler.agent.usage import Usage
from scaler.agent.worker_processes import Exited, WorkerProcess, Zygote
from scaler.agent.zygote_watch import has_hung_up, look
from scaler.common.exits import describe_exit
from scaler.common.long_lived import HeapTrim
from scaler.common.loop import Loop
from scaler.common.process_limits import words_of
from scaler.protocol.codes import STDOUT, Leaving
from scaler.protocol.messages import Message, ObjectFetch
from scaler.transport import Address
from scaler.worker_protocol.messages import Surroundings

logger = logging.getLogger("scaler.agent")

#: where objects are, for the log
PLACES: tuple[Literal["shm", "live", "disk", "moving"], ...] = ("shm", "live", "disk", "moving")


class Core(Protocol):
    """The agent's core."""

    @property
    def state(self) -> HostState:
        """All that the agent knows."""

    def handle(self, events: list[Event], now: float) -> list[Effect]:
        """Take what happened; what is to be done about it."""

    def leave(self) -> list[Effect]:
        """The last words of an agent that is told to end."""


def core_of(workers: int, limits: AgentLimits, validate: bool, may_return: bool = True) -> Core:
    """The core of an agent with so many workers; with `validate` it looks at its state after each step.

    `may_return`: it may outlive its scheduler.
    """
    core = AgentCore(workers, limits, may_return=may_return)
    if not validate:
        return core
    from scaler.agent.validating import ValidatingCore  # here, as few want it and all would load it

    return ValidatingCore(core)


class AgentShell:
    """The hands of an agent's core: worker processes, the store, the log. Used by one thread."""

    def __init__(
        self,
        core: Core,
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
        self._zygote = zygote
        self._loop = loop
        self._context = context
        self._print_output = print_output
        self._workers: dict[int, WorkerProcess] = {}
        self._usage = Usage()
        self._heap = HeapTrim()
        self._measuring = Measuring()
        self._overdue = Overdue()
        self._announced: set[int] = set()
        #: for the core, besides what comes from elsewhere
        self._seen: list[Event] = []
        #: when the core wants to be woken
        self._core_wake: float | None = None
        self.stopped = False
        #: why no worker of this host can start
        self.failure: str | None = None
        if zygote is not None:
            loop.watch(zygote.fileno(), zygote)
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
    def has_nothing(self) -> bool:
        """Nobody would miss this host: it has no rows, no objects, and no results that may have to be said again."""
        state = self._state
        return not (self.has_rows or state.objects.count) and state.unsettled.is_empty

    @property
    def has_rows(self) -> bool:
        """Rows run here, or are to."""
        return bool(self._state.queued or self._state.running)

    @property
    def leaving(self) -> Leaving:
        """Whether this host is about to go."""
        return self._state.departure.reason

    @property
    def target(self) -> int:
        """Workers that the host should have at work."""
        return self._state.workers.target

    @property
    def has_workers(self) -> bool:
        """A worker has started, and is there."""
        return any(record.state is not STARTING for record in self._state.workers.records.values())

    @property
    def store(self) -> tuple[str, str, str]:
        """What `Hello` says of the store: directory, token, address."""
        return self._store.hello

    def introduced(self) -> None:
        """The scheduler is told of this agent now."""
        self._store.introduced()

    def widen_store(self, scheduler: Address) -> bool:
        """See `HostStore.widen`."""
        return self._store.widen(scheduler, self._loop)

    @property
    def wake(self) -> float | None:
        """When `gather` and the core should be called again though nothing happened."""
        wake = self._core_wake
        usage = self._usage.due if self._usage.is_busy else None
        for other in (self._store.wake, usage, self._measuring.due, self._overdue.due):
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
        for source in list(ready):
            if type(source) is WorkerProcess:
                del ready[source]
                events += self._heard(source)
                if source.ended:
                    events += self._hung_up(source, now)
        if self._zygote in ready:
            del ready[self._zygote]
            events += self._reports()
        if self._overdue.due is not None and now >= self._overdue.due:
            assert self._zygote is not None
            events += map(HungUp, look(self._overdue, self._zygote, self._workers, now))
        if self._store in ready:
            del ready[self._store]
            events += self._store.gather()
        if now >= self._usage.due and self._workers:
            events += self._store.mend(self._state.objects.index)
            self._heap.look(self._usage.is_busy, now)
            pids = self._pids
            begun, reached = self._begun(pids), self._reached(pids)
            events.append(self._usage.sample(pids, begun, reached, now, self._store.directory.path))
        if self._measuring.due is not None and now >= self._measuring.due:
            events.append(self._measure(now))
        if now >= self._store.tidy_at:
            self._store.tidy(self._state.objects.index, now)
        return events

    @property
    def _pids(self) -> dict[int, int]:
        """Of the workers' processes, by slot."""
        return {slot: worker.pid for slot, worker in self._workers.items() if worker.pid is not None}

    def _begun(self, pids: Iterable[int]) -> dict[int, tuple[int, int]]:
        """What the workers of these slots have begun last, of those that have."""
        zygote = self._zygote
        return {} if zygote is None else {slot: zygote.progress(slot) for slot in pids if zygote.begun(slot)}

    def _reached(self, pids: Iterable[int]) -> dict[int, int]:
        """The dispatches that the workers of these slots are at, or were at last."""
        zygote = self._zygote
        return {} if zygote is None else {slot: zygote.progress(slot)[0] for slot in pids}

    def _measure(self, now: float) -> Measured:
        pids = self._pids
        measured, clock = self._measuring.measure(pids, self._begun(pids), now), time.monotonic_ns()
        for slot, worker in measured.workers.items():
            if self._zygote is not None and worker.begun[1] >= 0:
                worker.elapsed = (clock - self._zygote.begun(slot)) // 1_000_000
        return measured

    def _heard(self, worker: WorkerProcess) -> list[Event]:
        events: list[Event] = [FromWorker(worker.slot, message) for message in worker.receive()]
        if worker.broken is not None:
            self._loop.forget(worker.fileno())
            events.append(Garbled(worker.slot, worker.broken))
        return events

    def _hung_up(self, worker: WorkerProcess, now: float) -> list[Event]:
        """Its connection has ended. So has its process, as a rule, or is about to: that is awaited."""
        for fd in worker.descriptors:
            self._loop.forget(fd)
        self._overdue.await_end(worker.slot, now)
        return [HungUp(worker.slot)] if has_hung_up(worker) else []

    def _reports(self) -> list[Event]:
        events: list[Event] = []
        assert self._zygote is not None
        for report in self._zygote.receive():
            self._overdue.note(report.slot, isinstance(report, Exited))
            if isinstance(report, Exited):
                events += self._exited(report)
            elif report.slot not in self._announced and report.slot < self._state.workers.target:
                self._announced.add(report.slot)
                logger.info("Worker[%d] started", report.slot)
        if self._zygote.ended and not self.stopped:
            self._loop.forget(self._zygote.fileno())
            self._zygote.close()
            how = "ended" if self._zygote.status is None else describe_exit(self._zygote.status)
            logger.error(
                "the process that workers are forked from (pid %d) %s, and %d workers with it: their tasks run again; "
                "another one is started", self._zygote.pid, how, sum(type(event) is WorkerExited for event in events),
            )  # fmt: skip
        return events

    def _exited(self, report: Exited) -> list[Event]:
        worker = self._workers.pop(report.slot, None)
        events: list[Event] = []
        if worker is not None:
            events += self._heard(worker)
            for fd in worker.descriptors:
                self._loop.forget(fd)
            self._loop.ready.pop(worker, None)
            worker.close()
        assert self._zygote is not None
        events.append(WorkerExited(report.slot, report.pid, report.status, self._zygote.progress(report.slot)))
        self._store.worker_ended(report.pid)
        return events

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
                self._send(effect, effects[number] if number < len(effects) else None)
            elif isinstance(effect, ToScheduler):
                said.append(effect.message)
            elif isinstance(effect, WakeAt):
                self._core_wake = effect.when
            elif isinstance(effect, StartWorker):
                self._start(effect.slot)
            elif isinstance(effect, KillWorker):
                worker = self._workers.get(effect.slot)
                if worker is not None:
                    worker.kill()
                    self._overdue.await_end(effect.slot, time.monotonic())
            elif isinstance(effect, LookAt):
                if self._zygote is not None:
                    self._seen.append(Looked(effect.slot, self._zygote.progress(effect.slot)))
                    self._loop.soon()
            elif isinstance(effect, Revoke):
                if self._zygote is not None:
                    self._zygote.revoke(effect.slot, effect.dispatch)
            elif isinstance(effect, Measure):
                self._measuring.every(effect.interval, self._pids, time.monotonic())
            elif isinstance(effect, ShowOutput):
                self._print_output(effect)
            elif isinstance(effect, Log):
                logger.log(getattr(logging, effect.level), "%s", effect.text)
            elif isinstance(effect, GiveUp):
                self.failure = effect.reason
            elif isinstance(effect, Stop):
                self.stopped = True
            else:
                self._store.carry_out(effect, time.monotonic())
        return said

    def _send(self, effect: ToWorker, following: Effect | None) -> None:
        worker = self._workers.get(effect.slot)
        if worker is None or worker.ended:
            return
        if effect.control:
            is_sent = worker.control(effect.message)
        else:
            more = isinstance(following, ToWorker) and following.slot == effect.slot and not following.control
            is_sent = worker.send(effect.message, more)
        if not is_sent:
            self._watch_writable(worker)

    def _start(self, slot: int) -> None:
        assert self._zygote is not None
        if self._zygote.ended and not self._start_zygote(slot):
            return
        try:
            worker = self._zygote.fork_worker(slot)
        except OSError as error:
            logger.error("cannot start a worker: %s; it is tried again", words_of(error))
            self._end_before_it_began(slot)
            return
        self._workers[slot] = worker
        self._overdue.await_start(slot, time.monotonic())
        worker.send(Surroundings(self._context))
        self._loop.watch(worker.fileno(), worker)

    def _start_zygote(self, slot: int) -> bool:
        """Another one, as the last was killed; if none can be, the worker of this slot ends before it begins."""
        assert self._zygote is not None
        try:
            self._zygote = self._zygote.start_another()
        except OSError as error:
            logger.error("cannot start a process that workers are forked from: %s; it is tried again", error)
            self._end_before_it_began(slot)
            return False
        self._loop.watch(self._zygote.fileno(), self._zygote)
        return True

    def _end_before_it_began(self, slot: int) -> None:
        """How often it is tried again is the core's to decide, as with workers that end while they start."""
        self._seen.append(WorkerExited(slot, 0, 1 << 8, (0, -1)))
        self._loop.soon()

    def _watch_writable(self, worker: WorkerProcess) -> None:
        for fd in worker.want_write():
            self._loop.watch_writable(fd, lambda: self._flush(worker))

    def _flush(self, worker: WorkerProcess) -> None:
        if self._workers.get(worker.slot) is worker:
            worker.flush()
            self._watch_writable(worker)

    def close(self) -> None:
        """End all workers, and remove the store; blocks until they are gone.

        Workers without a task end as programs do, and so clean up after tasks that they ran; others are killed.
        """
        self.stopped = True
        try:
            if self._zygote is not None:
                records = self._state.workers.records
                idle = [slot for slot, record in records.items() if record.is_without_task]
                self._zygote.close([self._workers[slot] for slot in idle if slot in self._workers])
            for worker in self._workers.values():
                worker.close()
        finally:
            self._store.close()


def log_output(output: ShowOutput) -> None:
    """Put what a task printed into the log, with the task's name."""
    level = logging.INFO if output.stream == STDOUT else logging.WARNING
    for line in output.text.splitlines():
        logger.log(level, "%s[%d]: %s", output.name, output.row, line)
