"""What an agent's core tells of changes: workers and objects that moved, rows that went to a worker and came from it.

They stay in the agent: the scheduler knows what messages say. Facts name things by numbers, and hold no records:
whoever keeps them keeps nothing else alive.
"""

from typing import NamedTuple

from scaler.store.layout import Key


class WorkerMoved(NamedTuple):
    """A worker is in another state."""

    slot: int
    #: see `WorkerState`
    before: str
    after: str
    cause: str


class WorkerRejected(NamedTuple):
    """A worker said what can't be, and is ended."""

    slot: int
    what: str


class RowsDispatched(NamedTuple):
    """The rows [lo, hi) of a batch were handed to a worker."""

    slot: int
    dispatch: int
    client: int
    batch: int
    lo: int
    hi: int


class RowsEnded(NamedTuple):
    """Rows that a worker had have ended: it said how, or ended with them."""

    slot: int
    dispatch: int
    client: int
    batch: int
    lo: int
    hi: int
    #: as in the protocol: VALUES_LIST, ERROR, LOST, ...
    outcome: int


class RowsReturned(NamedTuple):
    """Rows that a worker had are without one: it gave them back, or ended before it began them."""

    slot: int
    dispatch: int
    client: int
    batch: int
    lo: int
    hi: int


class RowsForgotten(NamedTuple):
    """What a worker still has of a dispatch is of no interest to anybody any more."""

    slot: int
    dispatch: int


class ObjectMoved(NamedTuple):
    """An object is in another state."""

    key: Key
    #: see `ObjectState`
    before: str
    after: str
    #: of the worker that has it, while one has it alone
    slot: int | None
    cause: str


Fact = WorkerMoved | WorkerRejected | RowsDispatched | RowsEnded | RowsReturned | RowsForgotten | ObjectMoved
