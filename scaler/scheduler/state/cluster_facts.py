"""What the scheduler's core tells of changes: rows that moved, peers that came and went, objects that were stored.

Facts name things by numbers, and hold no records: whoever keeps them keeps nothing else alive. Rows that moved are told
as plain tuples with the fields of `RowsMoved`, since they are many, and a plain tuple costs a third and is nothing that
the garbage collector looks at; `named` gives them their names.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class RowsMoved(NamedTuple):
    """The rows [lo, hi) of a batch went from one place to another."""

    client: int
    batch: int
    lo: int
    hi: int
    #: places: see `Place`; of an agent AGENT plus its number
    before: int
    after: int
    #: see `Cause`
    cause: int


class BatchAdmitted(NamedTuple):
    """A batch came; all its rows are waiting."""

    client: int
    batch: int
    rows: int
    #: of the function
    name: str


class BatchEnded(NamedTuple):
    """All rows of a batch have ended; `remembered`: it is kept, since what its rows made may be lost."""

    client: int
    batch: int
    remembered: bool


class PeerLeft(NamedTuple):
    """A client or an agent is gone."""

    number: int
    role: str
    name: str


class ObjectStored(NamedTuple):
    """An agent's store has an object."""

    client: int
    id: int
    #: bytes
    size: int
    agent: int


class CopyLost(NamedTuple):
    """An agent's store has an object no more; `last`: no other has it either."""

    client: int
    id: int
    agent: int
    last: bool


class ClientCleared(NamedTuple):
    """All batches and objects of a client are forgotten: it left, or began anew."""

    client: int


class WorkerDied(NamedTuple):
    """An agent said that a row was lost with its worker."""

    client: int
    batch: int
    row: int
    agent: int
    #: in the agent's words: signal or exit code
    how: str


#: a `RowsMoved` as it is told
Moved = tuple[int, int, int, int, int, int, int]

Fact = Moved | BatchAdmitted | BatchEnded | PeerLeft | ObjectStored | CopyLost | ClientCleared | WorkerDied


def named(facts: Iterable[Fact]) -> Iterator[RowsMoved | Fact]:
    """The facts of a step, those of rows with their names."""
    for fact in facts:
        yield RowsMoved._make(fact) if type(fact) is tuple else fact
