"""Which moves of the tables a run has met: of rows at schedulers, of workers and objects at agents."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scaler.agent.state import object_moves, worker_moves
from scaler.agent.state.object_moves import OBJECT_TRANSITIONS
from scaler.agent.state.object_records import ObjectRecord
from scaler.agent.state.worker_moves import WORKER_TRANSITIONS
from scaler.agent.state.worker_records import WorkerRecord
from scaler.scheduler.state.batch_records import AGENT, DONE, QUEUED, WAITING
from scaler.scheduler.state.cluster_facts import RowsMoved, named
from scaler.scheduler.state.transitions import TRANSITIONS, Cause

#: a move in words: "row agent -> queued: its worker died", "worker idle -> busy", "object live -> stored"
Move = str

_PLACES = {WAITING: "waiting", QUEUED: "queued", DONE: "done"}

#: every move of the tables
ALL: frozenset[Move] = frozenset(
    [f"row {before} -> {after}: {cause.words}" for (before, after), causes in TRANSITIONS.items() for cause in causes]
    + [f"worker {before} -> {after}" for before, after in WORKER_TRANSITIONS]
    + [f"object {before} -> {after}" for before, after in OBJECT_TRANSITIONS]
)


class Moves:
    """How often each move was made, by everybody in a run."""

    def __init__(self) -> None:
        global _latest
        _latest = self
        self._rows: Counter[tuple[int, int, int]] = Counter()
        self._others: Counter[Move] = Counter()

    def note_scheduler(self, now: float, facts: Sequence[Any]) -> None:
        """A scheduler has told facts."""
        for fact in named(facts):
            if isinstance(fact, RowsMoved):
                self._rows[min(fact.before, AGENT), min(fact.after, AGENT), fact.cause] += 1

    def note(self, move: Move) -> None:
        """An agent has moved a worker or an object."""
        self._others[move] += 1

    def met(self) -> Counter[Move]:
        """How often each move was made."""
        rows = {
            f"row {_PLACES.get(before, 'agent')} -> {_PLACES.get(after, 'agent')}: {Cause(cause).words}": times
            for (before, after, cause), times in self._rows.items()
        }
        return self._others + Counter(rows)


#: of the run that is under way
_latest: Moves | None = None


def _noted(kind: str, move: Callable[..., None]) -> Callable[..., None]:
    """What moves a worker or an object of an agent, and notes that: agents tell nobody of their moves."""

    def moved(*args: Any, **kwargs: Any) -> None:
        record = next(each for each in args if isinstance(each, (WorkerRecord, ObjectRecord)))
        before = record.state
        move(*args, **kwargs)
        if _latest is not None:
            _latest.note(f"{kind} {before} -> {record.state}")

    return moved


worker_moves.move, object_moves.move = _noted("worker", worker_moves.move), _noted("object", object_moves.move)


def never_met(met: Iterable[Move]) -> list[Move]:
    """The moves of the tables that are not among these."""
    return sorted(ALL - set(met))


_BACK = (
    "given back before it began",
    "its agent said of its batch more than it had",
    "it raised, and has retries left",
)

#: moves for which so much has to come together that `test_rare_moves` brings them about step by step
SCRIPTED: frozenset[Move] = frozenset(
    [f"row agent -> {to}: {cause}" for to in ("agent", "waiting") for cause in (*_BACK, "its worker died")]
    + [
        "row agent -> agent: its agent could not get what it needs",
        "row agent -> queued: its agent could not get what it needs",
        "row agent -> queued: its agent said of its batch more than it had",
        "row agent -> waiting: its agent was lost",
    ]
)

#: moves that the few seeds of the fast suite need not meet; those of `make sim-long` have to, but for scripted ones
RARE: frozenset[Move] = SCRIPTED | {
    "row agent -> agent: its agent was lost",
    "row queued -> waiting: an object that it needs is lost",
    "object publishing -> backing off",
    "object backing off -> publishing",
    "object backing off -> stored",
    "object backing off -> absent",
    "object backing off -> open",
    "object open -> stored",
    "object on disk -> stored",
    "object restoring -> absent",
}
