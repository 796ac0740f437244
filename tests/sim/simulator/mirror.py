"""A copy of what a scheduler's core says of its rows, made from its facts alone: an observer needs nothing else."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

from scaler.scheduler.state.batch_records import DONE, WAITING
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.cluster_facts import BatchAdmitted, BatchEnded, ClientCleared, Fact, RowsMoved, named
from scaler.scheduler.state.transitions import Cause

#: a row may be placed so often: ten times are met, many more where it is placed because it was given back
MOST_PLACED = 100


class Mirror:
    """Where each row is, by (client, batch). Subscribed from a core's first step on."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.places: dict[tuple[int, int], array[int]] = {}
        self._remembered: dict[tuple[int, int], array[int]] = {}
        #: how often each row was placed
        self.placed: Counter[tuple[int, int, int]] = Counter()
        #: facts that contradict those before
        self.wrong: list[str] = []
        state.facts.subscribe(self._note)

    def _note(self, now: float, facts: Sequence[Fact]) -> None:
        for fact in named(facts):
            if isinstance(fact, RowsMoved):
                self._move(fact)
            elif isinstance(fact, BatchAdmitted):
                self.places[fact.client, fact.batch] = array("I", [WAITING]) * fact.rows
            elif isinstance(fact, BatchEnded):
                places = self.places.pop((fact.client, fact.batch))
                if fact.remembered:
                    self._remembered[fact.client, fact.batch] = places
            elif isinstance(fact, ClientCleared):
                for table in (self.places, self._remembered):
                    for key in [key for key in table if key[0] == fact.client]:
                        del table[key]

    def _move(self, fact: RowsMoved) -> None:
        key = fact.client, fact.batch
        if key not in self.places and key in self._remembered:
            self.places[key] = self._remembered.pop(key)
        places = self.places[key]
        if set(places[fact.lo : fact.hi]) != {fact.before}:
            self.wrong.append(f"{fact} moves rows that are at {places[fact.lo : fact.hi]}")
        places[fact.lo : fact.hi] = array("I", [fact.after]) * (fact.hi - fact.lo)
        if fact.cause == Cause.PLACED:
            rows = [(*key, row) for row in range(fact.lo, fact.hi)]
            self.placed.update(rows)
            if any(self.placed[row] == MOST_PLACED for row in rows):
                self.wrong.append(f"{fact}: it was placed {MOST_PLACED} times")

    def differences(self) -> Iterator[tuple[str, int]]:
        """What the facts say otherwise than the state, and of which batch."""
        for text in self.wrong:
            yield text, 0
        real = {(c.number, b.id): b.place for c in self._state.clients.values() for b in c.batches.values()}
        for key in real.keys() | self.places.keys():
            if real.get(key) != self.places.get(key):
                yield f"batch {key}: facts say {self.places.get(key)}, the state {real.get(key)}", key[1]
        for key, places in self._remembered.items():
            if set(places) != {DONE}:
                yield f"batch {key} is remembered, and facts say {places}", key[1]
