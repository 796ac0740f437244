"""Rows that are handed to workers and taken back in a loop: a defect, as both follow from one another."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from scaler.agent.core.events import FromWorker
from scaler.agent.state.host import HostState
from scaler.worker_protocol.messages import Returned

#: a row may be handed out behind another one and taken back so often, and so often in all: more is met only where both
#: follow from one another, thousands of times
MOST_BEHIND, MOST_RETURNS = 10, 100

#: client, batch, row
Row = tuple[int, int, int]


def rows_at_workers(state: HostState) -> list[set[Row]]:
    """The rows of each dispatch that somebody wants."""
    return [
        {(*dispatch.origin.key, row) for lo, hi in dispatch.left for row in range(lo, hi)}
        for worker in state.workers.records.values()
        for dispatch in worker.dispatches.values()
        if not dispatch.unwanted
    ]


class Returns:
    """Counts how often workers of one agent have given rows back."""

    def __init__(self) -> None:
        self._returns: Counter[tuple[int, ...]] = Counter()
        #: rows that came back too often
        self.wrong: list[str] = []

    def note(self, state: HostState, events: Iterable[Any]) -> None:
        """The core is about to hear this."""
        for event in events:
            if type(event) is FromWorker and type(event.message) is Returned:
                worker = state.workers.records.get(event.slot)
                oldest = next(iter(worker.dispatches), 0) if worker is not None else 0
                for span in event.message.rows:
                    for row in range(span.lo, span.hi):
                        self.wrong += self._returned((span.client, span.batch, row), (event.slot, oldest))

    def _returned(self, row: Row, dispatch: tuple[int, int]) -> Iterator[str]:
        self._returns.update([row, (*dispatch, *row)])
        if self._returns[row] == MOST_RETURNS:
            yield f"row {row} was handed out and taken back {MOST_RETURNS} times"
        if self._returns[*dispatch, *row] == MOST_BEHIND:
            yield f"row {row} came behind dispatch {dispatch} and was taken back {MOST_BEHIND} times"
