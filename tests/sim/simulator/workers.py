"""A simulated worker: obeys its agent as `scaler.worker` does, and runs rows in virtual time."""

import pickle
from array import array
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from scaler.protocol import failures
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import (
    APART,
    ERROR,
    FILED,
    GRAPH,
    INLINE_VALUES,
    KEEP,
    LACKING,
    LIVE,
    SIZE,
    STORED,
    TOGETHER,
    VALUES_EACH,
    VALUES_LIST,
)
from scaler.worker.row_runner import FLUSH_NS
from scaler.worker_protocol import messages as wm
from scaler.worker_protocol.encoding import from_worker, read_by_agent, read_by_worker, to_worker
from simulator.checks import Wrong, require
from simulator.jobs import Job, mix

if TYPE_CHECKING:
    from simulator.hosts import Host

#: seconds for which results wait for company while further rows are there
FLUSH_SECONDS = FLUSH_NS * 1e-9
#: outcomes of one row each, which are told of by themselves
FAILURES = (ERROR, LACKING)
#: share of tasks that keep the interpreter to themselves
DEAF = 0.1
#: seconds by which a word on the control socket may be heard late
MOST_LATE = 0.05
#: chance that a row is told of before the worker knows whether it was the last one of its dispatch
EARLY_FLUSH = 0.05
#: up to this chance of a bad disk there is always room in memory
USUAL = 0.02


class Stayed(NamedTuple):
    """A value that stays in its worker."""

    #: value and size, as in a file
    file: tuple[int, int]
    dispatch: int


class Assigned:
    """Rows of one dispatch that have not been given back."""

    def __init__(self, run: wm.Run) -> None:
        self.run = run
        self.rows = deque(range(run.lo, run.hi))
        self.is_open = False
        self.offsets = list(accumulate(array("I", run.sizes), initial=0)) if run.sizes is not None else []


class SimWorker:
    """See the module's text. `send` and `exited` of its host hear of it."""

    def __init__(self, host: "Host", slot: int, pid: int) -> None:
        self.host = host
        self.world = host.world
        self.name = f"{host.name}/{slot}"
        self.slot = slot
        self.pid = pid
        self.alive = True
        self._assigned: deque[Assigned] = deque()
        #: (its dispatch, row, spec) that runs
        self.current: tuple[Assigned, int, Job] | None = None
        #: (dispatch, row) in the progress page, and the last dispatch that the agent has revoked there
        self.begun = (0, -1)
        self.revoked = 0
        #: something stops it: what would have happened meanwhile, as calls
        self._missed: list[Callable[[], None]] | None = None
        self._objects: dict[Any, bytes] = {}
        #: values that stayed here, the least recently used first
        self._live: dict[Any, Stayed] = {}
        self._results: list[tuple[Assigned, int, int, int, int, list[Any]]] = []
        self._done: list[int] = []
        #: the dispatch that was heard of last, and what was recalled before it was
        self._last = 0
        self._recalls: list[wm.Recall] = []
        self._quitting = False
        self._flush_at = 0.0
        self._arrival = [0.0, 0.0]
        #: the task that runs keeps the interpreter to itself: what was said meanwhile on the control socket
        self._unheard: list[bytes] | None = None
        #: the task that runs has waited for others, or does: others may have its slots
        self._has_waited = False
        #: it was asked to leave to others what it waits for
        self._is_to_yield = False
        #: a client inside the task that runs
        self.nested: Any = None
        #: in how many tasks the row was submitted that has ended it in the stack of that which runs; -1: none has
        self.claimed = -1
        #: the client of this process, once a task has used it
        self.lasting: Any = None

    @property
    def claims_below(self) -> int:
        """What its row may claim is less deep than this."""
        assert self.current is not None
        return self.current[0].run.claims_below

    @property
    def slots(self) -> int:
        """Slots of its host that its row takes for certain."""
        return 0 if self.current is None or self._has_waited else self.current[0].run.threads

    # ---- something stops it ----------------------------------------------------------------------------------------
    def stop(self, seconds: float) -> None:
        """A task that has ended, or the one that runs, stops the process, or keeps the interpreter to itself."""
        self.world.note(self.host.name, f"worker {self.slot} is stopped for {seconds:.3f} s")
        self._missed = []
        self.world.after(seconds, self.go_on)

    @property
    def may_be_stopped(self) -> bool:
        """It is not, and no client is inside of its task."""
        return self.alive and not self.is_stopped and self.nested is None

    @property
    def is_stopped(self) -> bool:
        """Something stops it."""
        return self._missed is not None

    def go_on(self) -> None:
        """It goes on: the thread that listens on the control socket comes first, or last."""
        missed, self._missed = self._missed, None
        if not self.alive or missed is None:
            return
        self.world.note(self.host.name, f"worker {self.slot} goes on")
        control_first = self.world.hearing.random() < 0.5
        missed.sort(key=lambda call: call.func == self._hear and call.args[1] is control_first, reverse=True)
        for call in missed:
            call()

    def _misses(self, call: Callable[..., None], *args: Any) -> bool:
        """Whether it is stopped; then this is done when it goes on."""
        if self._missed is None:
            return False
        self._missed.append(partial(call, *args))
        return True

    # ---- the sockets -----------------------------------------------------------------------------------------------
    def tell(self, message: wm.ToWorker, control: bool) -> None:
        """The agent sends something."""
        data = to_worker(message)
        at = max(self.world.now + self.world.random.uniform(5e-6, 80e-6), self._arrival[control] + 1e-9)
        late = self.host.cluster.mix.late_control
        if control and late and self.world.hearing.random() < late:  # on a busy host its thread gets no processor
            at += self.world.hearing.uniform(0, MOST_LATE)
        self._arrival[control] = at
        self.world.after(at - self.world.now, self._hear, data, control)

    def _hear(self, data: bytes, control: bool) -> None:
        if not self.alive or self._misses(self._hear, data, control):
            return
        if control and self._unheard is not None:
            self._unheard.append(data)
            return
        message = read_by_worker(data)
        if isinstance(message, wm.Run):
            if self.current is None and not self._assigned:
                self._flush_at = self.world.now + FLUSH_SECONDS
            self._forget(message.stale)
            for key, payload in message.objects:
                self._objects[key] = bytes(payload)
            self._assigned.append(Assigned(message))
            self._last = message.dispatch
            recalls, self._recalls = self._recalls, []
            for recall in recalls:
                self._recall(recall.token, recall.keep)
            self._next()
        elif isinstance(message, wm.Drop):
            if control:
                self._drop_values(message.keys, message.last)
            else:
                self._forget(message.keys)
        elif isinstance(message, wm.Publish):
            for key in message.keys:
                self.world.after(self.world.random.uniform(1e-4, 5e-3), self._publish, key)
        elif isinstance(message, wm.Flush):
            self._flush()
        elif isinstance(message, wm.Yield):
            self._is_to_yield = message.is_wanted
        elif isinstance(message, wm.Quit):
            self._quitting = True
            self._next()
        elif isinstance(message, wm.Recall):
            if message.last > self._last:
                self._recalls.append(message)
            else:
                self._recall(message.token, message.keep)

    def _forget(self, keys: Any) -> None:
        for key in keys:
            self._objects.pop(key, None)
        self._drop_values(keys, None)

    def _drop_values(self, keys: Any, last: int | None) -> None:
        for key in keys:
            if key in self._live and (last is None or self._live[key].dispatch <= last):
                del self._live[key]

    def _publish(self, key: Any) -> None:
        if not self.alive or self._misses(self._publish, key):
            return
        error = None
        full = self.host.cluster.mix.full
        if key in self._live and full > USUAL and self.world.random.random() < full:
            error = "there is no room"
        elif key in self._live:
            self.host.store.files[key] = self._live[key].file
        found = self.host.store.files.get(key)
        if error is None and found is None:
            error = "it is not here"
        told = wm.PublishedValue(key, 0 if found is None else found[1], error)
        self._say(wm.Published([told]))

    def _keep(self, key: Any, stays: Stayed) -> bool:
        """Let a value stay, if there is room; older ones are published for that."""
        limit, size = self.host.live_limit, stays.file[1]
        if size > limit:
            return False
        while self._live and sum(other.file[1] for other in self._live.values()) + size > limit:
            oldest = next(iter(self._live))
            self.host.store.files[oldest] = found = self._live.pop(oldest).file
            self._flush()
            self._say(wm.Published([wm.PublishedValue(oldest, found[1], None)]))
        self._live[key] = stays
        return True

    def _say(self, message: wm.FromWorker) -> None:
        self.world.boundary("worker", self)
        self.host.from_worker(self, read_by_agent(from_worker(message)))

    # ---- rows ------------------------------------------------------------------------------------------------------
    def _recall(self, token: int, keep: int) -> None:
        self._flush()
        excess = sum(len(assigned.rows) for assigned in self._assigned) - max(keep - (self.current is not None), 0)
        spans = []
        for assigned in reversed(self._assigned):
            if excess <= 0:
                break
            n = min(excess, len(assigned.rows))
            if n:
                hi = assigned.rows[-1] + 1
                for _ in range(n):
                    assigned.rows.pop()
                run = assigned.run
                spans.append(wm.ReturnedSpan(run.dispatch, run.client, run.batch, hi - n, hi))
                excess -= n
        running = (self.current[0].run.dispatch, self.current[1]) if self.current else None
        self._say(wm.Returned(token, spans, running))

    def _next(self) -> None:
        while self.current is None and self.alive:
            if not self._assigned:
                self._flush()
                if self._quitting:
                    self.die(0)
                return
            assigned = self._assigned[0]
            number = assigned.run.dispatch
            if not assigned.is_open:
                self._open(assigned)
            if not assigned.rows:
                self._assigned.popleft()
                self._done.append(number)
                self.begun = (number, -1)
                continue
            row = assigned.rows.popleft()
            self.begun = (number, row)
            if self.world.now > self._flush_at:
                self._flush()
            self._begin(assigned, row)

    def _open(self, assigned: Assigned) -> None:
        assigned.is_open, run = True, assigned.run
        self.begun = (run.dispatch, run.lo)
        if run.dispatch <= self.revoked and assigned.rows:
            self._flush()
            lo, hi = assigned.rows[0], assigned.rows[-1] + 1
            assigned.rows.clear()
            self.world.revoked["found"] += 1
            self._say(wm.Returned(0, [wm.ReturnedSpan(run.dispatch, run.client, run.batch, lo, hi)], None))

    def _begin(self, assigned: Assigned, row: int) -> None:
        self.host.begun.add((assigned.run.client, assigned.run.batch, row))
        try:
            spec, values = self._call(assigned, row)
        except KeyError as error:
            lacking = error.args[0]
            record = failures.not_there(assigned.run.name, lacking[1], "here").encode()
            self._report(assigned, row, LACKING, SIZE.pack(lacking[1]) + record, 0)
            return
        job = self.host.cluster.jobs[spec[0]]
        if job.ended_here and not self.world.lost_agents:
            raise Wrong(f"{job} was cancelled, and begins", f"job-{job.uid}.", str(job.id))
        job.runs += 1
        self.current = (assigned, row, job)
        self._has_waited = False
        self.host.check_slots()
        self.world.note(
            self.host.name,
            f"worker {self.slot} begins job-{job.uid}. row {assigned.run.batch + row} of client {assigned.run.client}",
        )
        delay = spec[1] * 1e-6
        behaviour = spec[2]
        if behaviour == "nest":
            self._recall(0, 0)
            self.nested = self.host.cluster.nested_client(
                self, job, lambda: self._ends(assigned, row, job, spec, values)
            )
        elif behaviour == "block":
            self._recall(0, 0)
            self._has_waited = True
            self._say(wm.Blocked())
            self.world.after(delay, self._unblocked, assigned, row, job, spec, values)
        else:
            if behaviour == "unwaited":
                self.lasting = self.lasting or self.host.cluster.lasting_client(self)
                self.lasting.go_on_with(job, assigned.run.root)
            if self.world.random.random() < DEAF:
                self._unheard = []
            self.world.after(delay, self._ends, assigned, row, job, spec, values)
            if self.world.stops and (self._results or self._done) and self.may_be_stopped:
                self.stop(self.world.stops.pop())

    def _unblocked(self, assigned: Assigned, row: int, job: Job, *rest: Any) -> None:
        if self.alive and not self._misses(self._unblocked, assigned, row, job, *rest):
            self._say(wm.Unblocked())
            self.world.after(100e-6, self._ends, assigned, row, job, *rest)

    def take_yield(self) -> bool:
        """The client inside the task is to leave to others what it waits for; one wait that does so is enough."""
        is_to_yield, self._is_to_yield = self._is_to_yield, False
        if is_to_yield:
            self.world.note(self.host.name, f"worker {self.slot} yields")
        return is_to_yield

    def blocked(self, is_blocked: bool) -> None:
        """The client inside the task waits, or goes on."""
        if self.alive:
            self._has_waited = True
            self._say(wm.Blocked() if is_blocked else wm.Unblocked())

    def _call(self, assigned: Assigned, row: int) -> tuple[Any, list[int]]:
        function = self._objects[assigned.run.function]
        if assigned.run.form == GRAPH:
            spec = pickle.loads(function)[row]
        elif assigned.run.form == TOGETHER:
            spec = pickle.loads(self._objects[assigned.run.arguments])[row]
        else:
            at = row - assigned.run.lo
            spec = pickle.loads(assigned.run.body[assigned.offsets[at] : assigned.offsets[at + 1]])
        values = []
        for key, index in assigned.run.needs[row - assigned.run.lo] if assigned.run.needs else ():
            if key in self._objects:
                value = pickle.loads(self._objects[key])
            elif key in self._live:
                self._live[key] = self._live.pop(key)
                value = self._live[key].file[0]
            else:
                found = self.host.store.find(key)
                if found is None:
                    raise KeyError(key)
                value = found[0]
            values.append(value if index < 0 else value[index])
        return spec, values

    def _ends(self, assigned: Assigned, row: int, job: Job, spec: Any, values: list[int]) -> None:
        if not self.alive or self.current is None or self.current[:2] != (assigned, row):
            return
        if self._misses(self._ends, assigned, row, job, spec, values):
            return
        behaviour, parameter = spec[2], spec[3]
        if behaviour == "poison" or (behaviour == "deadly" and job.runs <= parameter):
            self.die(9)
            return
        if behaviour == "print":
            self._say(
                wm.Output(assigned.run.client, assigned.run.batch + row, 1, assigned.run.name, f"job {job.uid}\n")
            )
        if behaviour == "fail" or (behaviour == "flaky" and job.runs <= parameter):
            record = ErrorRecord(ErrorKind.RAISED, f"job {job.uid}", assigned.run.name, "ValueError").encode()
            self._report(assigned, row, ERROR, record, spec[1])
        else:
            self._report(assigned, row, -1, mix(spec, values), spec[1])
        self.nested = None
        self.current = None
        if self.world.random.random() < EARLY_FLUSH:
            self._flush()
        unheard, self._unheard = self._unheard, None
        for data in unheard or ():
            self._hear(data, True)
        self._next()

    def _job(self, assigned: Assigned, row: int) -> Job:
        assert self.current is not None
        assert self.current[:2] == (assigned, row)
        return self.current[2]

    def _report(self, assigned: Assigned, row: int, outcome: int, what: Any, us: int) -> None:
        each = assigned.run.flags & (KEEP | APART) or assigned.run.name.endswith("each")
        travels = self._travels(assigned.run, row)
        size = 0 if outcome in FAILURES or travels else self._job(assigned, row).stored
        if outcome < 0 and travels and self._job(assigned, row).stored:
            file = self.host.cluster.shared.write(self.world, assigned.run, row, what)
            outcome, what = (outcome, what) if file is None else (FILED, file)
        if size:
            key = assigned.run.client, assigned.run.batch + row
            stays = Stayed((what, size), assigned.run.dispatch)
            may_live = assigned.run.form == GRAPH and assigned.run.flags & KEEP and assigned.run.wanted is not None
            if may_live and not assigned.run.wanted[row - assigned.run.lo] and self._keep(key, stays):
                outcome = LIVE
            else:
                outcome = STORED
                self.host.store.files[key] = what, size
                self.host.store.written[key] = self.world.now
            what = SIZE.pack(size)
        elif outcome < 0:
            outcome = VALUES_EACH if each else VALUES_LIST
            what = pickle.dumps(what) if each else what
        last = self._results[-1] if self._results else None
        if outcome not in FAILURES and last and last[0] is assigned and last[3] == outcome and last[2] == row:
            self._results[-1] = (assigned, last[1], row + 1, outcome, last[4] + us, [*last[5], what])
        else:
            self._results.append((assigned, row, row + 1, outcome, us, [what]))

    def _travels(self, run: wm.Run, row: int) -> bool:
        """The value of a row is wanted in a message."""
        return bool(run.flags & INLINE_VALUES) and (run.wanted is None or bool(run.wanted[row - run.lo]))

    def _flush(self) -> None:
        if not self._results and not self._done:
            return
        self._flush_at = self.world.now + FLUSH_SECONDS
        results = []
        for assigned, lo, hi, outcome, us, payloads in self._results:
            bodies = [pickle.dumps(payloads)] if outcome == VALUES_LIST else payloads
            run, sizes = assigned.run, array("I", map(len, bodies))
            results.append(
                wm.EndedSpan(run.dispatch, run.client, run.batch, lo, hi, outcome, us, 0, sizes, b"".join(bodies))
            )
        self._results, done, self._done = [], self._done, []
        self._say(wm.Results(results, done))

    # ---- the end ---------------------------------------------------------------------------------------------------
    def die_of_claimed(self, job: Job) -> None:
        """The process ends with what the row that runs has claimed."""
        if self.alive and self.current is not None:
            job.deaths += 1
            outer = self.current[2]
            outer.deaths_of_claimed += 1
            forgotten = max(0, self.host.cluster.restarts) + self.world.lost_agents + self.world.forgotten_clients
            require(outer.deaths_of_claimed <= 1 + forgotten, f"{outer} dies of what it has claimed once more")
            self.claimed = 0
            self.die(9)

    def die(self, status: int) -> None:
        """The process ends."""
        if not self.alive:
            return
        self.alive = False
        if self.nested is not None:
            self.nested.die()
        if self.lasting is not None:
            self.lasting.die()
        if self.current is not None:
            self.current[2].deaths += 1
            self.world.note(self.host.name, f"worker {self.slot} dies ({status}) with job-{self.current[2].uid}.")
        self.host.worker_ended(self, status)
