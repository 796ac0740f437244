"""An object at the scheduler: who needs it, who has it, and what made it."""

from __future__ import annotations

from scaler.common.records import record
from scaler.protocol.messages import Frame
from scaler.scheduler.state.batch_records import Batch

NOBODY: frozenset[int] = frozenset()


@record
class ObjectRecord:
    """An immutable value that rows or a client need: its bytes, or in which stores it is."""

    #: empty if it is stored
    payload: Frame
    #: batches and unfinished rows that have come and need it, plus one while the client holds it
    references: int = 0
    #: the client holds it until it says ObjectRelease
    held_by_client: bool = False
    #: rows of its graph that need it and have not come yet, as its client has said beforehand
    expected: int = 0
    #: of a list object: ids of the rows whose values are elements of it
    elements: list[int] | None = None
    #: numbers of the agents that were given it or are about to fetch it: they are told when nobody needs it
    holders: set[int] | frozenset[int] = NOBODY
    #: bytes of a stored object; 0 if it is in `payload`
    size: int = 0
    #: numbers of the agents whose stores have it, if it is stored; none: it is lost until it is made again
    copies: set[int] | frozenset[int] = NOBODY
    #: it was lost since the worker that alone had it has ended, which was the fault of a row that this worker ran
    ended_with_worker: bool = False
    #: the batch and row that made it; None if a client did
    source: tuple[Batch, int] | None = None

    def give_to(self, agent: int) -> None:
        """The agent of this number holds it, too. Most objects have no holders, and no set for them."""
        if not self.holders:
            self.holders = {agent}
        else:
            self.holders |= {agent}

    @property
    def is_needed(self) -> bool:
        """There is a reason to keep it."""
        return self.references > 0 or self.expected > 0

    @property
    def is_stored(self) -> bool:
        """Its bytes are in stores of hosts, or were before those were lost."""
        return bool(self.size)

    @property
    def is_lost(self) -> bool:
        """It was stored, and no store has it any more."""
        return bool(self.size) and not self.copies
