"""An agent's brain: the host's rows, workers and objects, as `handle(events, now) -> effects`.

    placement.py    where a row goes that no worker has: queue.py, or waiting.py until its objects are there
    handouts.py     which worker gets which rows, and what workers say of them
    withdraw.py     rows that are cancelled, claimed or wanted elsewhere
    slots.py        workers come and go
    data.py         which objects are here, and bringing those that are not; bandwidth.py: how fast
    memory.py       what goes to disk, and when there is no room for more
    crew.py, outbox.py   what they all use

This file is the door: it tells the others what happened, and then has each look once at what is to be done.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

from scaler.agent.core.crew import Crew
from scaler.agent.core.data import Data
from scaler.agent.core.events import (
    Effect,
    Event,
    Fetched,
    FromScheduler,
    FromWorker,
    Garbled,
    LookAt,
    Looked,
    Output,
    Put,
    Requested,
    Restored,
    Sampled,
    Spilled,
    Stop,
    WakeAt,
    Welcomed,
    WorkerExited,
)
from scaler.agent.core.handouts import Handouts, due
from scaler.agent.core.memory import Limits, Memory
from scaler.agent.core.outbox import Outbox
from scaler.agent.core.part import parts_of
from scaler.agent.core.placement import Placement
from scaler.agent.core.slots import Slots
from scaler.agent.core.state import Worker
from scaler.agent.core.withdraw import Withdrawals
from scaler.protocol.messages import (
    STREAM,
    WARN,
    WARNINGS,
    BalanceRequest,
    ClientDeparture,
    ClientShutdown,
    DisconnectRequest,
    Heartbeat,
    HeartbeatEcho,
    Message,
    Neighbours,
    ObjectAnnounce,
    ObjectFetch,
    ObjectRelease,
    Task,
    TaskCancel,
    TaskClaim,
    TaskOutput,
)
from scaler.worker_protocol import messages as worker_messages
from scaler.worker_protocol.messages import Blocked, Drop, Published, Ready, Results, Returned, Unblocked

UNLIMITED = Limits()

#: what is still of interest of a worker that is being ended
LAST_WORDS = frozenset({Results, Returned, Published})


class AgentCore:
    """See the module's text."""

    def __init__(self, workers: int, limits: Limits = UNLIMITED) -> None:
        self._limits = limits
        self._out = out = Outbox()
        self._crew = crew = Crew(out)
        self.data = data = Data(out, crew, limits.index())
        self.memory = memory = Memory(out, crew, data)
        self.placement = placement = Placement(out, crew, data, memory)
        self.withdrawals = withdrawals = Withdrawals(out, crew, placement)
        self.handouts = handouts = Handouts(out, crew, data, memory, placement, withdrawals)
        self.slots = slots = Slots(out, crew, data, placement, withdrawals, handouts)
        slots.target = workers
        self._heartbeat: float | None = None
        self._next_heartbeat = 0.0
        #: when the last `WakeAt` asked for a tick
        self._wake = math.inf
        self._started = False
        self._cpu = 0.0
        #: the last heartbeat said that there is no room
        self._said_full = False
        self._of_scheduler: dict[type[Message], Callable[[Any], None]] = {
            Task: self._task,
            TaskCancel: lambda message: withdrawals.withdraw(message.spans, "force" if message.force else "cancel"),
            TaskClaim: lambda message: withdrawals.withdraw(message, "claim"),
            BalanceRequest: withdrawals.balance,
            ObjectAnnounce: data.announced,
            ObjectFetch: data.asked,
            ObjectRelease: lambda message: data.release(list(message)),
            Neighbours: data.neighbours,
            ClientDeparture: self._client_departure,
            ClientShutdown: lambda message: out.add(Stop()),
            HeartbeatEcho: lambda message: None,
        }
        self._of_worker: dict[type[worker_messages.FromWorker], Callable[[Worker, Any], None]] = {
            Ready: lambda worker, message: slots.ready(worker),
            Results: self._results,
            Returned: self._returned,
            Published: self._published,
            worker_messages.Output: self._output,
            Blocked: lambda worker, message: self._blocked(worker),
            Unblocked: lambda worker, message: self._unblocked(worker),
        }
        self._of_host: dict[type[Event], Callable[[Any], None]] = {
            WorkerExited: slots.exited,
            Garbled: self._garbled,
            Welcomed: self._welcomed,
            Spilled: self._spilled,
            Restored: self._restored,
            Fetched: lambda event: data.fetched(event.key, event.error),
            Requested: lambda event: data.requested(event.key),
            Put: lambda event: data.stored(event.key, event.size),
            Looked: self._looked,
            Sampled: self._sampled,
        }

    # ---- the door --------------------------------------------------------------------------------------------------
    def handle(self, events: Iterable[Event], now: float) -> list[Effect]:
        """Take what happened, in order; what is to be done about it."""
        self._crew.now = now
        slots, placement, data, memory = self.slots, self.placement, self.data, self.memory
        if not self._started:
            self._started = True
            for slot in range(slots.target):
                slots.start(slot)
        for event in events:
            if isinstance(event, FromWorker):
                worker = self._crew.workers.get(event.slot)
                kind = type(event.message)
                if worker is not None and (worker.sentence is None or (kind in LAST_WORDS and not worker.is_rejected)):
                    self._of_worker[kind](worker, event.message)
            elif isinstance(event, FromScheduler):
                self._of_scheduler[type(event.message)](event.message)
            elif type(event) in self._of_host:
                self._of_host[type(event)](event)
        if slots.restart_at:
            slots.restart_due()
        if slots.unsettled:
            slots.settle()
        if len(data.index) or memory.full:
            self._look_after_data()
        if placement.waiting.rows or data.arrived or data.lost:
            placement.settle()
        queues = placement.queues
        if (queues.general.rows or queues.local) and not slots.ending:
            self.handouts.feed()
        if (memory.full or self._said_full) and memory.holds != self._said_full:
            self._next_heartbeat = now  # the scheduler sends no more rows, or may again
        if self._heartbeat is not None and now >= self._next_heartbeat:
            self._beat()
        self._attend()
        return self._out.flush()

    @property
    def target(self) -> int:
        """Workers the host should have at work."""
        return self.slots.target

    @property
    def workers(self) -> dict[int, Worker]:
        """By slot."""
        return self._crew.workers

    @property
    def queued(self) -> int:
        """Rows that no worker has."""
        return self.placement.rows

    @property
    def running(self) -> int:
        """Rows that workers have."""
        return sum(worker.rows for worker in self._crew.workers.values())

    @property
    def objects(self) -> int:
        """Objects held."""
        return self.data.count

    # ---- time ------------------------------------------------------------------------------------------------------
    def _welcomed(self, event: Welcomed) -> None:
        self._heartbeat = event.heartbeat
        self._next_heartbeat = self._crew.now
        self.data.number = event.number
        if not event.resumed:
            self._drop_everything()

    def _beat(self) -> None:
        assert self._heartbeat is not None
        self._next_heartbeat = self._crew.now + self._heartbeat
        workers = self._crew.workers.values()
        for worker in workers:
            if worker.stale:
                self._crew.tell(worker, Drop(worker.stale))
                worker.stale = []
        blocked = sum(worker.blocked for worker in workers)
        full = self._said_full = self.memory.holds
        beat = Heartbeat(
            self._crew.now, self.target + blocked, self.queued, self.running, self._cpu,
            sum(worker.memory for worker in workers), self.data.index.total, full, self.data.bandwidth.learnt,
        )  # fmt: skip
        self._out.say(beat)

    def _attend(self) -> None:
        """Look after rows that workers have: end those past their timeout, take back those that wait behind a long one.

        Rows are taken back from a worker that takes longer than expected, and when another worker has nothing to do.
        """
        now, idle = self._crew.now, 0
        wake = self._next_heartbeat if self._heartbeat is not None else math.inf
        crowded: list[Worker] = []
        for worker in self._crew.workers.values():
            if worker.state == "idle":
                idle += not worker.blocked
            elif worker.state == "busy" and worker.sentence is None:
                handout = next(iter(worker.handouts.values()))
                timeout = handout.part.task.timeout
                if timeout:
                    if now >= handout.at + timeout:
                        self._crew.kill(worker, "timeout", "")
                        continue
                    wake = min(wake, handout.at + timeout)
                if not worker.recalling and worker.is_crowded:
                    when = due(worker)
                    if now >= when:
                        self._crew.recall(worker)
                    else:
                        wake = min(wake, when, self._look(worker))
                        crowded.append(worker)
        queues = self.placement.queues
        if idle and (crowded or queues.local) and not queues.general.rows:
            wake = min(wake, self._help_idle(idle, crowded))
        if self.withdrawals.doomed:
            wake = min(wake, self.withdrawals.insist())
        if self.slots.restart_at:
            wake = min(wake, *self.slots.restart_at.values())
        if len(self.data.index):
            wake = min(wake, self.data.wake, self.memory.wake)
        if wake < self._wake or self._wake <= now:
            self._wake = wake
            if wake < math.inf:
                self._out.add(WakeAt(wake))

    def _look(self, worker: Worker) -> float:
        """See whether a worker keeps results back for a long row; when to do so, infinite if that has been done."""
        if self._crew.now >= worker.look_at:
            worker.look_at = math.inf
            self._out.add(LookAt(worker.slot))
        return worker.look_at

    def _looked(self, event: Looked) -> None:
        self.withdrawals.looked(event)
        self.handouts.looked(event)

    def _help_idle(self, idle: int, crowded: list[Worker]) -> float:
        """Idle workers may have rows that wait for busy ones; when to look again."""
        if idle <= self.placement.stolen or self.memory.full:
            return math.inf
        if crowded:
            self.handouts.recall_for_idle(crowded)
        return self._crew.now + 0.005 if self.placement.queues.local else math.inf

    def _look_after_data(self) -> None:
        if self.data.wake <= self._crew.now:
            self.data.retry()
        if self.memory.relieve() and self.memory.full:
            for worker in self._crew.workers.values():
                if worker.is_crowded and worker.sentence is None:
                    self._crew.recall(worker)

    def _restored(self, event: Restored) -> None:
        if event.error is not None:
            self.memory.found_no_room(self.data.size(event.key))
        self.data.restored(event.key, event.error)

    def _spilled(self, event: Spilled) -> None:
        self.data.spilled(event.key, event.error)
        self.memory.spilled(event.error)

    def _sampled(self, event: Sampled) -> None:
        self._cpu = event.cpu
        self.slots.sampled(event, self._limits.worker)
        self.memory.sampled(event.short)

    # ---- what workers say ------------------------------------------------------------------------------------------
    def _garbled(self, event: Garbled) -> None:
        worker = self._crew.workers.get(event.slot)
        if worker is not None:
            self._crew.reject(worker, f"sent what is no message ({event.reason})")

    def _results(self, worker: Worker, message: Results) -> None:
        self.handouts.results(worker, message)
        worker.hear(self._crew.now)
        if not worker.handouts and worker.state == "busy":
            self.slots.idled(worker)

    def _returned(self, worker: Worker, message: Returned) -> None:
        self.handouts.returned(worker, message)
        worker.hear(self._crew.now)
        if message.token:
            worker.recalling = False
            if any(handout.unwanted for handout in worker.handouts.values()):
                self._crew.kill(worker, "unwanted", "its client is gone")
            if self.withdrawals.doomed:
                self.withdrawals.refuse_running(worker)
        if not worker.handouts and worker.state == "busy":
            self.slots.idled(worker)
        self.withdrawals.pay_debt()

    def _published(self, worker: Worker, message: Published) -> None:
        self.handouts.published(worker, message)
        if worker.state == "parked":
            self.slots.unsettled = True  # it may end now

    def _output(self, worker: Worker, message: worker_messages.Output) -> None:
        client, row, name, stream, text = message
        if stream != WARNINGS:
            self._out.add(Output(name, row, stream, text))
        wanted = WARN if stream == WARNINGS else STREAM
        for handout in worker.handouts.values():
            if handout.part.client == client and handout.part.task.flags & wanted:
                self._out.say(TaskOutput(client, row, name, stream, text))
                break

    def _blocked(self, worker: Worker) -> None:
        self.slots.blocked(worker)
        self._next_heartbeat = self._crew.now  # the scheduler may send rows for the worker that takes its place

    def _unblocked(self, worker: Worker) -> None:
        self.slots.unblocked(worker)
        self._next_heartbeat = self._crew.now

    # ---- what the scheduler says -----------------------------------------------------------------------------------
    def _task(self, task: Task) -> None:
        self.data.task(task)
        for part in parts_of(task):
            self.placement.admit(part, part.lo, part.hi)

    def _client_departure(self, message: ClientDeparture) -> None:
        client = message.client
        self.placement.drop_client(client)
        self._out.drop_results(client)
        self.withdrawals.drop_client(client)
        self.handouts.drop_client(client)
        self.data.drop_client(client, message.stays)

    def _drop_everything(self) -> None:
        """The scheduler doesn't know what this agent holds: begin anew."""
        self.placement.drop_everything()
        self.data.drop_everything()
        self.handouts.durations.clear()
        self.handouts.sizes.clear()
        self._out.drop_results()
        self.withdrawals.drop_everything()
        for worker in self._crew.workers.values():
            if worker.handouts:
                self.handouts.close_all(worker)
                self._crew.kill(worker, "dropped", "the scheduler lost sight of this agent")
                self.slots.ending.add(worker.slot)
            elif worker.objects:
                self._crew.tell(worker, Drop(list(worker.objects)))
                worker.objects.clear()

    def leave(self) -> list[Effect]:
        """The last words of an agent that is told to end."""
        self._out.say(DisconnectRequest())
        return self._out.flush()
