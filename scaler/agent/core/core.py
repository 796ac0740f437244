"""An agent's brain: the host's queue of rows and its workers, as `handle(events, now) -> effects`.

Rows go to workers by what they should take: one while a function is unknown, about `HANDOUT_US` worth once it is known,
and a second handout before the first is done, so that a worker never waits for its agent. Rows handed out and not begun
are taken back when another worker idles, when they are cancelled or claimed, or when the scheduler wants them
elsewhere. A worker whose task waits for other tasks is *blocked*; another one takes its place until it goes on.
"""

import math
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from scaler.agent.core.events import (
    Effect,
    Event,
    FromScheduler,
    FromWorker,
    KillWorker,
    Log,
    Output,
    StartWorker,
    Stop,
    ToScheduler,
    ToWorker,
    WakeAt,
    Welcomed,
    WorkerExited,
)
from scaler.agent.core.queue import RowQueue
from scaler.agent.core.state import Handout, Key, Part, Worker, parts_of, run_message
from scaler.agent.exits import describe_exit
from scaler.protocol.messages import (
    CANCELLED,
    EACH,
    ERROR,
    LOST,
    STREAM,
    BalanceRequest,
    BalanceResponse,
    ClientDeparture,
    ClientShutdown,
    DisconnectRequest,
    Frame,
    Heartbeat,
    HeartbeatEcho,
    Message,
    ObjectRelease,
    Spans,
    Task,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskOutput,
    TaskRunning,
    u32,
)
from scaler.results import FULL, NO_SIZES, ResultBuilder, SpanResult
from scaler.serialize.record import encode_error

#: work handed to a worker at once, microseconds
HANDOUT_US = 8_000.0
#: rows handed to a worker at once, at most
HANDOUT_ROWS = 16_384
#: rows behind a running one are taken back when that would save an idle worker this much, microseconds
WORTH_RECALLING_US = 1_000.0
#: workers kept for the next time a worker blocks
PARKED = 4
#: workers for blocked ones, at most
MAX_EXTRA = 512


class AgentCore:
    """See the module's text."""

    def __init__(self, workers: int) -> None:
        #: workers the host should have at work
        self.target = workers
        self.workers: dict[int, Worker] = {}
        self._queue = RowQueue()
        self._objects: dict[Key, Frame] = {}
        self._durations: dict[tuple[int, str], float] = {}
        self._next_handout = 1
        self._next_token = 1
        #: rows withdrawn as soon as their worker gives them back: (client, batch, row) -> "claim", "cancel" or "force"
        self._doomed: dict[tuple[int, int, int], str] = {}
        #: rows that the scheduler wants back and that workers have been asked for
        self._owed = 0
        self._results: dict[int, ResultBuilder] = {}
        self._effects: list[Effect] = []
        self._now = 0.0
        self._heartbeat: float | None = None
        self._next_heartbeat = 0.0
        #: slots to start at a time, after workers died while starting
        self._restart_at: dict[int, float] = {}
        self._failed_starts = 0
        #: when the last `WakeAt` asked for a tick
        self._wake = math.inf
        #: the number of workers at work may not be what it should be
        self._unsettled = True
        self._started = False
        self._of_scheduler: dict[type[Message], Callable[[Any], None]] = {
            Task: self._task,
            TaskCancel: self._task_cancel,
            TaskClaim: self._task_claim,
            BalanceRequest: self._balance_request,
            ObjectRelease: self._object_release,
            ClientDeparture: self._client_departure,
            ClientShutdown: lambda message: self._effects.append(Stop()),
            HeartbeatEcho: lambda message: None,
        }
        self._of_worker: dict[str, Callable[..., None]] = {
            "ready": self._ready,
            "results": self._worker_results,
            "returned": self._returned,
            "output": self._output,
            "blocked": self._blocked,
            "unblocked": self._unblocked,
        }

    # ---- the door --------------------------------------------------------------------------------------------------
    def handle(self, events: Iterable[Event], now: float) -> list[Effect]:
        """Take what happened, in order; what is to be done about it."""
        self._now = now
        if not self._started:
            self._started = True
            for slot in range(self.target):
                self._start(slot)
        for event in events:
            if isinstance(event, FromWorker):
                worker = self.workers.get(event.slot)
                kind = event.message[0]
                if worker is not None and (worker.sentence is None or kind in ("results", "returned")):
                    self._of_worker[kind](worker, *event.message[1:])
            elif isinstance(event, FromScheduler):
                self._of_scheduler[type(event.message)](event.message)
            elif isinstance(event, WorkerExited):
                self._exited(event)
            elif isinstance(event, Welcomed):
                self._welcomed(event)
        if self._restart_at:
            self._restart_due()
        if self._unsettled:
            self._settle_slots()
        if self._queue.rows:
            self._feed()
        if self._heartbeat is not None and now >= self._next_heartbeat:
            self._beat()
        self._attend()
        if self._results:
            self._flush_results()
        effects, self._effects = self._effects, []
        return effects

    @property
    def queued(self) -> int:
        """Rows that no worker has."""
        return self._queue.rows

    @property
    def running(self) -> int:
        """Rows that workers have."""
        return sum(worker.rows for worker in self.workers.values())

    @property
    def objects(self) -> int:
        """Objects held."""
        return len(self._objects)

    def _flush_results(self) -> None:
        results, self._results = self._results, {}
        for builder in results.values():
            self._effects.append(ToScheduler(builder.build()))

    def _say(self, message: Message) -> None:
        """Tell the scheduler, after the results that came before."""
        self._flush_results()
        self._effects.append(ToScheduler(message))

    def _log(self, level: str, text: str) -> None:
        self._effects.append(Log(level, text))

    # ---- time ------------------------------------------------------------------------------------------------------
    def _welcomed(self, event: Welcomed) -> None:
        self._heartbeat = event.heartbeat
        self._next_heartbeat = self._now
        if not event.resumed:
            self._drop_everything()

    def _beat(self) -> None:
        assert self._heartbeat is not None
        self._next_heartbeat = self._now + self._heartbeat
        for worker in self.workers.values():
            if worker.stale:
                self._effects.append(ToWorker(worker.slot, ("drop", worker.stale)))
                worker.stale = []
        blocked = sum(worker.blocked for worker in self.workers.values())
        self._say(Heartbeat(self._now, self.target + blocked, self.queued, self.running))

    def _attend(self) -> None:
        """Look after rows that workers have: end those past their timeout, take back those that wait behind a long one.

        Rows are taken back from a worker that takes longer than expected, and when another worker has nothing to do.
        """
        now, idle = self._now, 0
        wake = self._next_heartbeat if self._heartbeat is not None else math.inf
        crowded: list[Worker] = []
        for worker in self.workers.values():
            if worker.state == "idle":
                idle += not worker.blocked
            elif worker.state == "busy" and worker.sentence is None:
                handout = next(iter(worker.handouts.values()))
                timeout = handout.part.task.timeout
                if timeout:
                    if now >= handout.at + timeout:
                        words = f"{handout.part.task.name} ran longer than its timeout of {timeout:g} s"
                        self._kill(worker, "timeout", words)
                        continue
                    wake = min(wake, handout.at + timeout)
                if not worker.recalling and worker.is_crowded:
                    due = self._due(worker)
                    if now >= due:
                        self._recall(worker, 0)
                    else:
                        wake = min(wake, due)
                        crowded.append(worker)
        if idle and crowded and not self._queue.rows:
            self._recall_for_idle(crowded)
        if self._restart_at:
            wake = min(wake, *self._restart_at.values())
        if wake < self._wake or self._wake <= now:
            self._wake = wake
            if wake < math.inf:
                self._effects.append(WakeAt(wake))

    def _recall_for_idle(self, crowded: list[Worker]) -> None:
        for worker in crowded:
            expected = worker.expected
            first = next(iter(worker.handouts.values()))
            if expected is not None and expected - 1e6 * (self._now - first.at) > 2 * WORTH_RECALLING_US:
                self._recall(worker, 0)

    @staticmethod
    def _due(worker: Worker) -> float:
        first = next(iter(worker.handouts.values()))
        expected = worker.expected
        return first.at + (0.005 if expected is None else 0.005 + 2e-6 * expected)

    # ---- workers come and go ---------------------------------------------------------------------------------------
    def _start(self, slot: int) -> None:
        self.workers[slot] = Worker(slot)
        self._effects.append(StartWorker(slot))

    def _restart_due(self) -> None:
        for slot in [slot for slot, at in self._restart_at.items() if at <= self._now]:
            del self._restart_at[slot]
            self._start(slot)

    def _free_slot(self) -> int:
        slot = 0
        while slot in self.workers or slot in self._restart_at:
            slot += 1
        return slot

    def _settle_slots(self) -> None:
        """Keep as many workers at work as the host should have, not counting blocked ones."""
        self._unsettled = False
        workers = self.workers.values()
        active = [w for w in workers if not w.blocked and w.state != "parked"]
        missing = self.target - len(active) - len(self._restart_at)
        if missing > 0:
            for worker in [w for w in workers if w.state == "parked" and w.sentence is None][:missing]:
                worker.move("idle")
                missing -= 1
            while missing > 0 and len(self.workers) < self.target + MAX_EXTRA:
                self._start(self._free_slot())
                missing -= 1
        elif missing < 0:
            parked = sum(w.state == "parked" for w in workers)
            for worker in [w for w in active if w.state == "idle"][:-missing]:
                worker.move("parked")
                parked += 1
                if parked > PARKED:
                    worker.sentence = "surplus", ""
                    self._effects.append(ToWorker(worker.slot, ("quit",)))

    def _ready(self, worker: Worker, pid: int) -> None:
        self._failed_starts = 0
        self._unsettled = True
        worker.move("idle")

    def _blocked(self, worker: Worker) -> None:
        worker.blocked = self._unsettled = True
        if worker.is_crowded:  # handed out when it was about to wait
            self._recall(worker, 0)
        self._next_heartbeat = self._now  # the scheduler may send rows for the worker that takes its place
        if worker.is_crowded:  # what was on its way when it gave back its rows
            self._recall(worker, 0)

    def _unblocked(self, worker: Worker) -> None:
        worker.blocked = False
        self._unsettled = True
        self._next_heartbeat = self._now

    def _exited(self, event: WorkerExited) -> None:
        worker = self.workers.pop(event.slot, None)
        if worker is None:
            return
        self._unsettled = True
        was, how = worker.state, describe_exit(event.status)
        worker.move("gone")
        number, begun = event.begun
        if number not in worker.handouts and worker.handouts:
            # It died between rows, or while it loaded the next function: that row is the one to suspect.
            number = next(iter(worker.handouts))
            begun = worker.handouts[number].left[0][0] if worker.handouts[number].left else -1
        for handout_number, handout in worker.handouts.items():
            if handout.unwanted:
                continue
            part = handout.part
            running = begun if handout_number == number else -1
            for lo, hi in reversed(handout.left):
                if lo <= running < hi:
                    self._requeue(part, running + 1, hi)
                    self._row_died(worker, part, running, event.pid, how)
                    self._requeue(part, lo, running)
                else:
                    self._requeue(part, lo, hi)
        self._forget_doomed_of(worker)
        if worker.recalling:
            self._pay_debt()
        if was == "starting":
            self._failed_starts += 1
            delay = min(0.05 * 2**self._failed_starts, 5.0)
            self._restart_at[event.slot] = self._now + delay
            self._log("ERROR", f"worker {event.slot} ended while starting: {how}; another try in {delay:.1f} s")

    def _row_died(self, worker: Worker, part: Part, row: int, pid: int, how: str) -> None:
        task = part.task
        kind, words = worker.sentence or ("lost", "")
        if self._doomed.get((*part.key, row), "claim") != "claim":
            self._requeue(part, row, row + 1)
        elif kind == "lost":
            body = f"its worker (pid {pid}) {how}".encode()
            self._result(part.client, SpanResult(task.batch, row, row + 1, LOST, 0, 0, u32([len(body)]), body))
        elif kind == "timeout":
            record = encode_error("timeout", "scaler.errors.TaskTimeout", words, function=task.name)
            self._result(part.client, SpanResult(task.batch, row, row + 1, ERROR, 0, 0, u32([len(record)]), record))
        else:  # its worker had to end for another row's sake
            self._requeue(part, row, row + 1)

    def _kill(self, worker: Worker, kind: str, words: str) -> None:
        if worker.sentence is None:
            worker.sentence = kind, words
            self._effects.append(KillWorker(worker.slot))

    def _drop_everything(self) -> None:
        """The scheduler doesn't know what this agent holds: begin anew."""
        self._queue = RowQueue()
        self._objects.clear()
        self._durations.clear()
        self._results.clear()
        self._doomed.clear()
        self._owed = 0
        for worker in self.workers.values():
            if worker.handouts:
                worker.handouts.clear()
                self._kill(worker, "dropped", "the scheduler lost sight of this agent")
            elif worker.objects:
                self._effects.append(ToWorker(worker.slot, ("drop", list(worker.objects))))
                worker.objects.clear()

    # ---- rows ------------------------------------------------------------------------------------------------------
    def _task(self, task: Task) -> None:
        payloads = task.bodies[1:] if task.form == EACH else task.bodies
        for object_id, payload in zip(task.objects, payloads, strict=True):
            self._objects[task.client, object_id] = payload
        for part in parts_of(task):
            self._queue.append(part, part.lo, part.hi)

    def _requeue(self, part: Part, lo: int, hi: int) -> None:
        """Rows come back from a worker: they are withdrawn if that was wanted, or wait for another worker."""
        if lo >= hi:
            return
        if not self._doomed:
            self._queue.prepend(part, lo, hi)
            return
        client, batch = part.key
        for row in range(hi - 1, lo - 1, -1):
            what = self._doomed.pop((client, batch, row), None)
            if what is None:
                self._queue.prepend(part, row, row + 1)
            else:
                self._withdrawn(what, client, batch, row, row + 1)

    def _withdrawn(self, what: str, client: int, batch: int, lo: int, hi: int) -> None:
        if what == "claim":
            granted = Spans()
            granted.add(client, batch, lo, hi)
            self._say(TaskClaimResponse(granted, Spans()))
        else:
            self._result(client, SpanResult(batch, lo, hi, CANCELLED, 0, 0, NO_SIZES, b""))

    def _result(self, client: int, span: SpanResult) -> None:
        builder = self._results.get(client)
        if builder is None:
            builder = self._results[client] = ResultBuilder(client)
        builder.add(span)
        if builder.size > FULL:
            self._flush_results()

    def _feed(self) -> None:
        """Hand rows to workers that have none, then to those that will run out soon."""
        queue = self._queue
        fed = [w for w in self.workers.values() if not (w.blocked or w.recalling) and w.sentence is None]
        for worker in fed:
            if worker.state == "idle":
                self._hand_out(worker, len(fed))
                if not queue.rows:
                    return
        for worker in fed:
            if worker.state == "busy" and len(worker.handouts) == 1 and self._now < self._due(worker):
                first = next(iter(worker.handouts.values()))
                if not queue.head.task.timeout and not first.part.task.timeout:
                    self._hand_out(worker, len(fed))
                    if not queue.rows:
                        return

    def _hand_out(self, worker: Worker, sharers: int) -> None:
        part = self._queue.head
        task = part.task
        each = self._durations.get((part.client, task.name))
        if each is None or task.timeout:
            rows = 1
        else:
            share = -(-self._queue.rows // sharers)
            rows = max(1, min(int(HANDOUT_US / each), share, HANDOUT_ROWS))
        part, lo, hi = self._queue.take(rows)
        number = self._next_handout
        self._next_handout += 1
        handout = Handout(part, [(lo, hi)], None if each is None else each * (hi - lo), self._now)
        worker.handouts[number] = handout
        worker.move("busy")
        self._effects.append(ToWorker(worker.slot, run_message(number, handout, self._objects, worker)))

    def _recall(self, worker: Worker, keep: int) -> None:
        if not worker.recalling:
            worker.recalling = True
            token = self._next_token
            self._next_token += 1
            self._effects.append(ToWorker(worker.slot, ("recall", token, keep), control=True))

    # ---- what workers say ------------------------------------------------------------------------------------------
    def _worker_results(self, worker: Worker, results: list[tuple[Any, ...]], done: list[int]) -> None:
        for number, client, batch, lo, hi, outcome, duration, peak, sizes, body in results:
            handout = worker.handouts.get(number)
            if handout is None or not handout.take(lo, hi) or handout.unwanted:
                continue
            if self._doomed:
                self._settle_doomed(client, batch, lo, hi)
            self._result(
                client, SpanResult(batch, lo, hi, outcome, min(duration, 0xFFFFFFFF), peak, array("I", sizes), body)
            )
            each = max(duration / (hi - lo), 0.05)
            key = client, handout.part.task.name
            known = self._durations.get(key)
            self._durations[key] = each if known is None else known + 0.3 * (each - known)
        for number in done:
            worker.handouts.pop(number, None)
        for handout in worker.handouts.values():
            handout.at = self._now
            if handout.expected is not None:
                handout.expected = (
                    self._durations.get((handout.part.client, handout.part.task.name), 0.0) * handout.rows
                )
            break
        if not worker.handouts and worker.state == "busy":
            worker.move("idle")
            self._unsettled |= len(self.workers) > self.target

    def _settle_doomed(self, client: int, batch: int, lo: int, hi: int) -> None:
        """Rows that were to be withdrawn have ended instead."""
        for row in range(lo, hi):
            if self._doomed.pop((client, batch, row), None) == "claim":
                refused = Spans()
                refused.add(client, batch, row, row + 1)
                self._say(TaskClaimResponse(Spans(), refused))

    def _returned(
        self, worker: Worker, token: int, spans: list[tuple[int, ...]], running: tuple[int, int] | None
    ) -> None:
        for number, _, _, lo, hi in reversed(spans):
            handout = worker.handouts.get(number)
            if handout is not None and handout.take(lo, hi) and not handout.unwanted:
                self._requeue(handout.part, lo, hi)
        for number in [number for number, handout in worker.handouts.items() if not handout.left]:
            del worker.handouts[number]
        if token:
            worker.recalling = False
            if any(handout.unwanted for handout in worker.handouts.values()):
                self._kill(worker, "unwanted", "its client is gone")
            if self._doomed:
                self._forget_doomed_of(worker)
        if not worker.handouts and worker.state == "busy":
            worker.move("idle")
            self._unsettled |= len(self.workers) > self.target
        self._pay_debt()

    def _forget_doomed_of(self, worker: Worker) -> None:
        """What a worker still has after it gave back all that had not begun is running: it can't be withdrawn."""
        running = TaskRunning()
        refused = Spans()
        for handout in worker.handouts.values():
            client, batch = handout.part.key
            for lo, hi in handout.left:
                for row in range(lo, hi):
                    what = self._doomed.get((client, batch, row))
                    if what == "force":
                        self._kill(worker, "cancelled", "cancelled by its client")
                    elif what is not None:
                        del self._doomed[client, batch, row]
                        (refused if what == "claim" else running).add(client, batch, row, row + 1)
        if running:
            self._say(running)
        if refused:
            self._say(TaskClaimResponse(Spans(), refused))

    def _output(self, worker: Worker, client: int, row: int, name: str, stream: int, text: str) -> None:
        self._effects.append(Output(name, row, stream, text))
        for handout in worker.handouts.values():
            if handout.part.client == client and handout.part.task.flags & STREAM:
                self._say(TaskOutput(client, row, name, stream, text))
                break

    # ---- what the scheduler says -----------------------------------------------------------------------------------
    def _task_cancel(self, message: TaskCancel) -> None:
        self._withdraw(message.spans, "force" if message.force else "cancel")

    def _task_claim(self, message: TaskClaim) -> None:
        self._withdraw(message, "claim")

    def _withdraw(self, spans: Spans, what: str) -> None:
        gone = Spans()
        for client, batch, lo, hi in spans:
            found = 0
            for a, b in self._queue.remove_rows(client, batch, lo, hi):
                self._withdrawn(what, client, batch, a, b)
                found += b - a
            if found == hi - lo:
                continue
            for worker in self.workers.values():
                for handout in worker.handouts.values():
                    if handout.part.key == (client, batch):
                        for a, b in handout.left:
                            rows = range(max(a, lo), min(b, hi))
                            found += len(rows)
                            self._doom(worker, client, batch, rows, what)
            if found < hi - lo and what == "claim":
                gone.add(client, batch, lo, hi)
        if gone:
            self._say(TaskClaimResponse(Spans(), gone))

    def _doom(self, worker: Worker, client: int, batch: int, rows: range, what: str) -> None:
        if not rows:
            return
        for row in rows:
            self._doomed[client, batch, row] = what
        first = next(iter(worker.handouts.values()))
        if what == "force" and first.part.key == (client, batch) and first.left and first.left[0][0] in rows:
            self._kill(worker, "cancelled", "cancelled by its client")
        else:
            self._recall(worker, 0)

    def _balance_request(self, message: BalanceRequest) -> None:
        response = BalanceResponse()
        wanted = message.rows
        while wanted and self._queue.rows:
            part, lo, hi = self._queue.take_last(wanted)
            response.add(*part.key, lo, hi)
            wanted -= hi - lo
        asked = False
        if wanted and not response:
            for worker in self.workers.values():
                if worker.rows > 1 and worker.sentence is None:
                    self._recall(worker, 0)
                    asked = True
        if asked:
            self._owed += wanted
        else:
            self._say(response)

    def _pay_debt(self) -> None:
        """Rows came back that the scheduler wanted."""
        if not self._owed or any(worker.recalling for worker in self.workers.values()):
            return
        response = BalanceResponse()
        idle = sum(w.state == "idle" and not w.blocked for w in self.workers.values())
        wanted, self._owed = min(self._owed, max(0, self._queue.rows - idle)), 0
        while wanted and self._queue.rows:
            part, lo, hi = self._queue.take_last(wanted)
            response.add(*part.key, lo, hi)
            wanted -= hi - lo
        self._say(response)

    def _object_release(self, message: ObjectRelease) -> None:
        self._drop_objects(list(message))

    def _drop_objects(self, keys: Iterable[Key]) -> None:
        gone = {key for key in keys if self._objects.pop(key, None) is not None}
        for worker in self.workers.values():
            known = gone & worker.objects
            if known:
                worker.objects -= known
                worker.stale += known

    def _client_departure(self, message: ClientDeparture) -> None:
        client = message.client
        self._queue.drop_client(client)
        self._results.pop(client, None)
        for row in [row for row in self._doomed if row[0] == client]:
            del self._doomed[row]
        for worker in self.workers.values():
            for i, handout in enumerate(worker.handouts.values()):
                if handout.part.client == client:
                    handout.unwanted = True
                    if i == 0:
                        self._kill(worker, "unwanted", "its client is gone")
                    else:
                        self._recall(worker, 0)
        self._drop_objects([key for key in self._objects if key[0] == client])
        for name in [key for key in self._durations if key[0] == client]:
            del self._durations[name]

    def leave(self) -> list[Effect]:
        """The last words of an agent that is told to end."""
        self._say(DisconnectRequest())
        effects, self._effects = self._effects, []
        return effects
