"""Rows that failed before their functions began, or with their results, for what may be wrong with their worker.

Such a row goes to another worker, and its own one ends, as somebody else's task may have spoilt it: left no descriptors
or memory, say. What fails in a worker that has ended no row before is the row's own failure. So is what fails often:
a function has `TRIES` in `SECONDS`, so that a map of rows that can't be decoded anywhere costs so many workers and not
one for each row.
"""

from dataclasses import field

from scaler.agent.state.estimates import Function
from scaler.common.records import entity

#: workers that end for the rows of one function in so many seconds, at most
TRIES, SECONDS = 3, 60.0
#: functions among which those of long ago are looked for
MANY = 1000


@entity
class Doubts:
    """How often a failure was put down to the worker, by client and name of the function."""

    #: since when, seconds, and how often since; only functions of which rows have failed that way
    tries: dict[Function, tuple[float, int]] = field(default_factory=dict)
    #: when there are so many, those of long ago are left out
    many: int = MANY

    def is_of_worker(self, function: Function, now: float) -> bool:
        """Whether one more failure is put down to a worker that others may have spoilt."""
        since, count = self.tries.get(function, (now, 0))
        if now - since >= SECONDS:
            since, count = now, 0
        if count >= TRIES:
            return False
        self._note(function, since, count + 1, now)
        return True

    def confirm(self, function: Function, now: float) -> None:
        """A row of it has failed in a worker that nobody can have spoilt: so do others, for a while."""
        self._note(function, now, TRIES, now)

    def _note(self, function: Function, since: float, count: int, now: float) -> None:
        self.tries[function] = since, count
        if len(self.tries) > self.many:
            self.tries = {each: told for each, told in self.tries.items() if now - told[0] < SECONDS}
            self.many = max(MANY, 2 * len(self.tries))

    def drop_client(self, client: int) -> None:
        """Forget the functions of a client."""
        for function in [function for function in self.tries if function[0] == client]:
            del self.tries[function]
