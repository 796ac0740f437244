"""A simulated worker: obeys its agent as `scaler.worker` does, and runs rows in virtual time."""

import marshal
import pickle
from array import array
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from scaler.protocol import failures
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import ERROR, GRAPH, KEEP, LIVE, SIZE, STORED, TOGETHER, VALUES_EACH, VALUES_LIST
from simulator.jobs import Job, mix

if TYPE_CHECKING:
    from simulator.hosts import Host

FLUSH_INTERVAL = 0.002
#: share of tasks that keep the interpreter to themselves
DEAF = 0.1


class Part:
    """Rows of one hand-out that have not been given back."""

    def __init__(self, message: tuple[Any, ...]) -> None:
        (
            _, self.number, self.client, self.batch, lo, hi, self.form, self.function, self.arguments, flags,
            self.name, sizes, self.body, self.needs, self.news, self.stale, self.wanted,
        ) = message  # fmt: skip
        self.first = lo
        self.flags = flags & 0xFF
        self.rows = deque(range(lo, hi))
        self.offsets = list(accumulate(array("I", sizes), initial=0)) if sizes is not None else []


class SimWorker:
    """See the module's text. `send` and `exited` of its host hear of it."""

    def __init__(self, host: "Host", slot: int, pid: int) -> None:
        self.host = host
        self.world = host.world
        self.slot = slot
        self.pid = pid
        self.alive = True
        self._parts: deque[Part] = deque()
        #: (part, row, spec) that runs
        self.current: tuple[Part, int, Job] | None = None
        #: (handout, row) in the progress page
        self.begun = (0, -1)
        self._objects: dict[Any, bytes] = {}
        #: values that stayed here, the least recently used first, and their sizes
        self._live: dict[Any, tuple[int, int]] = {}
        self._results: list[tuple[Any, ...]] = []
        self._done: list[int] = []
        self._quitting = False
        self._flush_at = 0.0
        self._arrival = [0.0, 0.0]
        #: the task that runs keeps the interpreter to itself: what was said meanwhile on the control socket
        self._unheard: list[bytes] | None = None
        #: a client inside the task that runs
        self.nested: Any = None

    # ---- the sockets -----------------------------------------------------------------------------------------------
    def tell(self, message: tuple[Any, ...], control: bool) -> None:
        """The agent sends something."""
        data = marshal.dumps(message)
        at = max(self.world.now + self.world.random.uniform(5e-6, 80e-6), self._arrival[control] + 1e-9)
        self._arrival[control] = at
        self.world.after(at - self.world.now, self._hear, data, control)

    def _hear(self, data: bytes, control: bool) -> None:
        if not self.alive:
            return
        if control and self._unheard is not None:
            self._unheard.append(data)
            return
        kind, *rest = message = marshal.loads(data)
        if kind == "run":
            part = Part(message)
            if self.current is None and not self._parts:
                self._flush_at = self.world.now + FLUSH_INTERVAL
            self._drop(part.stale)
            for key, payload in part.news:
                self._objects[key] = payload
            self._parts.append(part)
            self._next()
        elif kind == "drop":
            self._drop(rest[0])
        elif kind == "publish":
            for key in rest[0]:
                self.world.after(self.world.random.uniform(1e-4, 5e-3), self._publish, key)
        elif kind == "flush":
            self._flush()
        elif kind == "quit":
            self._quitting = True
            self._next()
        elif kind == "recall":
            self._recall(rest[0], rest[1])

    def _drop(self, keys: Any) -> None:
        for key in keys:
            self._objects.pop(key, None)
            self._live.pop(key, None)

    def _publish(self, key: Any) -> None:
        if not self.alive:
            return
        if key in self._live:
            self.host.store.files[key] = self._live[key]
        found = self.host.store.files.get(key)
        self._say(("published", [(key, 0 if found is None else found[1], None if found else "it is not here")]))

    def _keep(self, key: Any, value: int, size: int) -> bool:
        """Let a value stay, if there is room; older ones are published for that."""
        limit = self.host.live_limit
        if size > limit:
            return False
        while self._live and sum(other for _, other in self._live.values()) + size > limit:
            oldest = next(iter(self._live))
            self.host.store.files[oldest] = found = self._live.pop(oldest)
            self._flush()
            self._say(("published", [(oldest, found[1], None)]))
        self._live[key] = value, size
        return True

    def _say(self, message: tuple[Any, ...]) -> None:
        self.host.from_worker(self, marshal.loads(marshal.dumps(message)))

    # ---- rows ------------------------------------------------------------------------------------------------------
    def _recall(self, token: int, keep: int) -> None:
        self._flush()
        excess = sum(len(part.rows) for part in self._parts) - max(keep - (self.current is not None), 0)
        spans = []
        for part in reversed(self._parts):
            if excess <= 0:
                break
            n = min(excess, len(part.rows))
            if n:
                hi = part.rows[-1] + 1
                for _ in range(n):
                    part.rows.pop()
                spans.append((part.number, part.client, part.batch, hi - n, hi))
                excess -= n
        running = (self.current[0].number, self.current[1]) if self.current else None
        self._say(("returned", token, spans, running))

    def _next(self) -> None:
        while self.current is None and self.alive:
            if not self._parts:
                self._flush()
                if self._quitting:
                    self.die(0)
                return
            part = self._parts[0]
            if not part.rows:
                self._parts.popleft()
                self._done.append(part.number)
                self.begun = (part.number, -1)
                continue
            row = part.rows.popleft()
            self.begun = (part.number, row)
            if self.world.now > self._flush_at:
                self._flush()
            self._begin(part, row)

    def _begin(self, part: Part, row: int) -> None:
        try:
            spec, values = self._call(part, row)
        except KeyError as error:
            record = failures.not_there(part.name, error, "here").encode()
            self._report(part, row, ERROR, record, 0)
            return
        job = self.host.cluster.jobs[spec[0]]
        job.runs += 1
        self.current = (part, row, job)
        self.world.note(
            self.host.name, f"worker {self.slot} begins job-{job.uid}. row {part.batch + row} of client {part.client}"
        )
        delay = spec[1] * 1e-6
        behaviour = spec[2]
        if behaviour == "nest":
            self._recall(0, 0)
            self.nested = self.host.cluster.nested_client(self, job, lambda: self._ends(part, row, job, spec, values))
        elif behaviour == "block":
            self._recall(0, 0)
            self._say(("blocked",))
            self.world.after(delay, self._unblocked, part, row, job, spec, values)
        else:
            if self.world.random.random() < DEAF:
                self._unheard = []
            self.world.after(delay, self._ends, part, row, job, spec, values)

    def _unblocked(self, part: Part, row: int, job: Job, *rest: Any) -> None:
        if self.alive:
            self._say(("unblocked",))
            self.world.after(100e-6, self._ends, part, row, job, *rest)

    def blocked(self, is_blocked: bool) -> None:
        """The client inside the task waits, or goes on."""
        if self.alive:
            self._say(("blocked",) if is_blocked else ("unblocked",))

    def _call(self, part: Part, row: int) -> tuple[Any, list[int]]:
        function = self._objects[part.function]
        if part.form == GRAPH:
            spec = pickle.loads(function)[row]
        elif part.form == TOGETHER:
            spec = pickle.loads(self._objects[part.arguments])[row]
        else:
            at = row - part.first
            spec = pickle.loads(part.body[part.offsets[at] : part.offsets[at + 1]])
        values = []
        for key, index in part.needs[row - part.first] if part.needs else ():
            if key in self._objects:
                value = pickle.loads(self._objects[key])
            elif key in self._live:
                value = self._live[key] = self._live.pop(key)
                value = value[0]
            else:
                value = self.host.store.files[key][0]
            values.append(value if index < 0 else value[index])
        return spec, values

    def _ends(self, part: Part, row: int, job: Job, spec: Any, values: list[int]) -> None:
        if not self.alive or self.current is None or self.current[:2] != (part, row):
            return
        behaviour, parameter = spec[2], spec[3]
        if behaviour == "poison" or (behaviour == "deadly" and job.runs <= parameter):
            self.die(9)
            return
        if behaviour == "print":
            self._say(("output", part.client, part.batch + row, part.name, 1, f"job {job.uid}\n"))
        if behaviour == "fail" or (behaviour == "flaky" and job.runs <= parameter):
            record = ErrorRecord(ErrorKind.RAISED, f"job {job.uid}", part.name, "ValueError").encode()
            self._report(part, row, ERROR, record, spec[1])
        else:
            self._report(part, row, -1, mix(spec, values), spec[1])
        self.nested = None
        self.current = None
        unheard, self._unheard = self._unheard, None
        for data in unheard or ():
            self._hear(data, True)
        self._next()

    def _job(self, part: Part, row: int) -> Job:
        assert self.current is not None
        assert self.current[:2] == (part, row)
        return self.current[2]

    def _report(self, part: Part, row: int, outcome: int, what: Any, us: int) -> None:
        each = part.flags & KEEP or part.name.endswith("each")
        size = 0 if outcome == ERROR else self._job(part, row).stored
        if size:
            key = part.client, part.batch + row
            may_live = part.form == GRAPH and part.flags & KEEP and part.wanted is not None
            if may_live and not part.wanted[row - part.first] and self._keep(key, what, size):
                outcome = LIVE
            else:
                outcome = STORED
                self.host.store.files[key] = what, size
            what = SIZE.pack(size)
        elif outcome < 0:
            outcome = VALUES_EACH if each else VALUES_LIST
            what = pickle.dumps(what) if each else what
        last = self._results[-1] if self._results else None
        if outcome != ERROR and last and last[0] is part and last[3] == outcome and last[2] == row:
            self._results[-1] = (part, last[1], row + 1, outcome, last[4] + us, [*last[5], what])
        else:
            self._results.append((part, row, row + 1, outcome, us, [what]))

    def _flush(self) -> None:
        if not self._results and not self._done:
            return
        self._flush_at = self.world.now + FLUSH_INTERVAL
        results = []
        for part, lo, hi, outcome, us, payloads in self._results:
            bodies = [pickle.dumps(payloads)] if outcome == VALUES_LIST else payloads
            sizes = array("I", map(len, bodies)).tobytes()
            results.append((part.number, part.client, part.batch, lo, hi, outcome, us, 0, sizes, b"".join(bodies)))
        self._results, done, self._done = [], self._done, []
        self._say(("results", results, done))

    # ---- the end ---------------------------------------------------------------------------------------------------
    def die(self, status: int) -> None:
        """The process ends."""
        if not self.alive:
            return
        self.alive = False
        if self.nested is not None:
            self.nested.die()
        if self.current is not None:
            self.current[2].deaths += 1
            self.world.note(self.host.name, f"worker {self.slot} dies ({status}) with job-{self.current[2].uid}.")
        self.host.worker_ended(self, status)
