"""A copy of what an agent's core says of workers, rows and objects, made from its facts alone."""

from collections import Counter
from collections.abc import Iterator, Sequence

from scaler.agent.state.agent_facts import (
    Fact,
    ObjectMoved,
    RowsDispatched,
    RowsEnded,
    RowsForgotten,
    RowsReturned,
    WorkerMoved,
    WorkerRejected,
)
from scaler.agent.state.host import HostState

Key = tuple[int, int]
#: a row may be handed out behind another one and taken back so often, and so often in all: more is met only where both
#: follow from one another, thousands of times
MOST_BEHIND, MOST_RETURNS = 10, 100


class AgentMirror:
    """Subscribed from a core's first step on."""

    def __init__(self, state: HostState) -> None:
        self._state = state
        #: by slot; those that start have said nothing yet, and are not here
        self.workers: dict[int, str] = {}
        #: (client, batch, row) that workers have, by slot and dispatch
        self.rows: dict[tuple[int, int], set[tuple[int, int, int]]] = {}
        #: how often each row was taken back
        self.returns: Counter[tuple[int, ...]] = Counter()
        #: state of an object, and the worker that alone has it
        self.objects: dict[Key, tuple[str, int | None]] = {}
        #: facts that contradict those before, or tell of what only a liar or a defect brings about
        self.wrong: list[str] = []
        state.facts.subscribe(self._note)

    def _note(self, now: float, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, WorkerMoved):
                self._move_worker(fact)
            elif isinstance(fact, RowsDispatched):
                rows = {(fact.client, fact.batch, row) for row in range(fact.lo, fact.hi)}
                if (fact.slot, fact.dispatch) in self.rows:
                    self.wrong.append(f"{fact}: the dispatch is there already")
                self.rows[fact.slot, fact.dispatch] = rows
            elif isinstance(fact, (RowsEnded, RowsReturned)):
                self._leave(fact)
            elif isinstance(fact, RowsForgotten):
                del self.rows[fact.slot, fact.dispatch]
            elif isinstance(fact, ObjectMoved):
                self._move_object(fact)
            elif isinstance(fact, WorkerRejected):
                self.wrong.append(f"{fact}: no worker here lies")

    def _move_worker(self, fact: WorkerMoved) -> None:
        if self.workers.get(fact.slot, "starting") != fact.before:
            self.wrong.append(f"{fact}: it was {self.workers.get(fact.slot)}")
        if fact.after == "gone":
            self.workers.pop(fact.slot, None)
        else:
            self.workers[fact.slot] = fact.after

    def _leave(self, fact: RowsEnded | RowsReturned) -> None:
        here = self.rows.get((fact.slot, fact.dispatch), set())
        rows = {(fact.client, fact.batch, row) for row in range(fact.lo, fact.hi)}
        if not rows <= here:
            self.wrong.append(f"{fact}: the worker has {here}")
        here -= rows
        if isinstance(fact, RowsReturned):
            oldest = min(number for slot, number in self.rows if slot == fact.slot)
            behind = {(fact.slot, oldest, *row) for row in rows}
            self.returns.update(rows | behind)
            if any(self.returns[row] == MOST_RETURNS for row in rows):
                self.wrong.append(f"{fact}: it was handed out and taken back {MOST_RETURNS} times")
            if any(self.returns[row] == MOST_BEHIND for row in behind):
                self.wrong.append(f"{fact}: it came behind dispatch {oldest} and was taken back {MOST_BEHIND} times")
        if not here:
            self.rows.pop((fact.slot, fact.dispatch), None)

    def _move_object(self, fact: ObjectMoved) -> None:
        before, _ = self.objects.get(fact.key, ("absent", None))
        if before != fact.before:
            self.wrong.append(f"{fact}: it was {before}")
        if fact.after == "absent":
            self.objects.pop(fact.key, None)
        else:
            self.objects[fact.key] = fact.after, fact.slot

    def differences(self) -> Iterator[str]:
        """What the facts say otherwise than the state."""
        yield from self.wrong
        state = self._state
        workers = {slot: str(w.state) for slot, w in state.workers.records.items() if w.state != "starting"}
        if workers != self.workers:
            yield f"facts say that workers are {self.workers}, the state {workers}"
        rows = {
            (slot, number): {(*dispatch.origin.key, row) for lo, hi in dispatch.left for row in range(lo, hi)}
            for slot, worker in state.workers.records.items()
            for number, dispatch in worker.dispatches.items()
            if dispatch.left and not dispatch.unwanted
        }
        if rows != self.rows:
            yield f"facts say that workers have {self.rows}, the state {rows}"
        index = state.objects.index
        objects = {
            key: (str(record.state), index[key].slot)
            for key, record in state.objects.records.items()
            if record.state != "absent"
        }
        if objects != self.objects:
            yield f"facts and state differ in objects {dict(objects.items() ^ self.objects.items())}"
