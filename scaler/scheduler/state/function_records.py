"""What is known of each function of each client: how many rows of it there were, how they ended, what they take."""

from collections.abc import Container
from dataclasses import field
from heapq import nlargest

from scaler.common.records import entity
from scaler.scheduler.state.durations import Durations

#: functions of a client of which each has a record of its own, at most, unless more of them have rows
MOST = 4096
#: kinds of rows of a function that are told apart, at most, unless more of them have rows
MOST_TALLIES = 16
#: the name of the record that has what is known of others together
OTHERS = "(others)"
#: how much of the average the newest measurement is
LEARNING = 0.3
#: a row takes that at least, microseconds
LEAST_US = 0.05
#: rows of which a steady average is made
STEADY_ROWS = 200
#: fewer than so many say little: a steady average of them is not relied on
FEW_ROWS = 50


@entity
class Tally:
    """Rows of a function that ask for the same; written by `transitions.py` alone."""

    #: rows that could run and have no agent
    queued: int = 0
    #: rows that agents have
    at_agents: int = 0
    #: batches of such rows that are known, those that are remembered among them; the tally goes when there are none
    batches: int = 0


@entity
class FunctionRecord:
    """One function of one client, by its name."""

    client: int
    name: str
    #: rows that came
    admitted: int = 0
    #: rows that ended with a value, with an error, cancelled, or claimed by their client
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    claimed: int = 0
    #: its rows by what they ask of an agent: (capabilities, slots)
    tallies: dict[tuple[tuple[str, ...], int], Tally] = field(default_factory=dict)
    #: how many of these there are to be before it is worth looking for some that are not needed
    most_tallies: int = MOST_TALLIES
    #: keys of `tallies` that no agent had all of when rows of them came last
    unmet: set[tuple[tuple[str, ...], int]] = field(default_factory=set)
    #: what its rows took that ended with a value or an error
    durations: Durations = field(default_factory=Durations)
    #: microseconds a row, an exponential average; None before the first result
    duration_us: float | None = None
    #: the same of about the last `STEADY_ROWS` rows: for what looks far ahead
    steady_us: float = 0.0
    #: rows in it
    steady_rows: int = 0
    #: id of its newest batch
    newest: int = 0

    @property
    def outstanding(self) -> int:
        """Rows that have not ended."""
        return self.admitted - self.finished - self.failed - self.cancelled - self.claimed

    @property
    def is_hardly_known(self) -> bool:
        """What its rows take is known of a few."""
        return 0 < self.steady_rows < FEW_ROWS

    @property
    def at_agents(self) -> int:
        """Rows that agents have."""
        return sum(tally.at_agents for tally in self.tallies.values())

    def learn(self, rows: int, duration_us: int) -> float:
        """Take note of what finished rows took together, microseconds; what they took each."""
        each, known, seen = duration_us / rows, self.duration_us, self.steady_rows + rows
        if each < LEAST_US:
            each = LEAST_US
        self.duration_us = each if known is None else known + LEARNING * (each - known)
        if seen > STEADY_ROWS:
            seen = STEADY_ROWS
        self.steady_rows = seen
        self.steady_us += (rows / seen if rows < seen else 1.0) * (each - self.steady_us)
        return each

    def forget_tallies(self) -> None:
        """Tell no more apart the kinds of rows that there are none of."""
        self.tallies = {demand: tally for demand, tally in self.tallies.items() if tally.batches}
        self.unmet.intersection_update(self.tallies)
        self.most_tallies = max(MOST_TALLIES, 2 * len(self.tallies))

    def take_in(self, other: "FunctionRecord") -> None:
        """Count the rows of another one, all of which have ended, too."""
        self.admitted += other.admitted
        self.finished += other.finished
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.claimed += other.claimed
        self.durations.take_in(other.durations)


def fold(functions: dict[str, FunctionRecord], needed: Container[FunctionRecord]) -> int:
    """Put those together in one record that had no rows for the longest time, but for those that are `needed`.

    Half of `MOST` are left, unless more have rows, among them those that took most time: whoever shows these goes on.
    Returns how many there are to be before it is worth doing that again.
    """
    idle = [
        function
        for name, function in functions.items()
        if name != OTHERS and not function.outstanding and function not in needed
    ]
    kept = set(nlargest(MOST // 8, idle, key=lambda function: function.durations.total_us))
    idle = sorted((function for function in idle if function not in kept), key=lambda function: function.newest)
    for function in idle[: max(0, len(functions) - MOST // 2)]:
        others = functions.get(OTHERS)
        if others is None:
            others = functions[OTHERS] = FunctionRecord(function.client, OTHERS)
        others.take_in(functions.pop(function.name))
    return max(MOST, 2 * len(functions))
