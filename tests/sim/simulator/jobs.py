"""What a row does when it runs, what its value is, and which ends are right for it."""

import pickle
from dataclasses import dataclass, field
from typing import Any

from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import CANCELLED, ERROR, STORED, VALUES_LIST, Frame
from scaler.protocol.results import SpanResult, stored_sizes, values_of

#: what travels: (number of the job, microseconds, behaviour, parameter, needs a constant instead of a slot)
Spec = tuple[int, int, str, int, int]


@dataclass(eq=False, slots=True)
class Constant:
    """An object that a client announced; a `needs` of jobs."""

    id: int
    number: int
    #: bytes if it is stored
    stored: int = 0

    def value(self) -> int:
        """What every job that needs it sees."""
        return self.number


@dataclass(eq=False, slots=True)
class Job:
    """One row, as its user knows it; also the token that the session is given for it."""

    uid: int
    us: int
    behaviour: str = "value"
    parameter: int = 0
    #: jobs and constants whose values it takes
    needs: list[Any] = field(default_factory=list)
    #: values it takes that were there already
    extra: int = 0
    #: bytes of its value if it is stored, 0 if it travels in messages
    stored: int = 0
    retries: int = 0
    timeout: float = 0.0
    #: given by the session
    id: int = 0
    #: the user gave up on it
    cancelled: bool = False
    #: it was held back at the scheduler, and its client has ended it by itself
    ended_here: bool = False
    #: all rows of its graph: any of them may take it along
    group: "list[Job] | None" = field(default=None, repr=False)
    #: how it ended: ("value", v) or (kind of error,)
    end: tuple[Any, ...] | None = None
    #: answers that its user waits for: cancellations and claims
    asked: dict[str, float] = field(default_factory=dict)
    runs: int = 0
    #: the scheduler forgot its client before the value was read
    renewed: bool = False
    #: how often it ran in a worker that died, or was at an agent that was lost
    deaths: int = 0
    #: how often of these its worker ended with what it had claimed
    deaths_of_claimed: int = 0
    #: the client whose leaving ends it, if that is another one than has submitted it
    root: Any = None
    _value: int | None = None

    @property
    def is_here(self) -> bool:
        """Its value came to the client in a message."""
        return self.end is not None and self.end[0] == "value" and not self.stored

    @property
    def spec(self) -> Spec:
        """What travels."""
        return (self.uid, self.us, self.behaviour, self.parameter, self.extra)

    def value(self) -> int:
        """What it returns if all goes well."""
        if self._value is None:
            stack = [self]
            while stack:
                job = stack[-1]
                open_needs = [need for need in job.needs if isinstance(need, Job) and need._value is None]
                if open_needs:
                    stack += open_needs
                    continue
                job._value = mix(job.spec, [need.value() for need in job.needs])
                stack.pop()
            assert self._value is not None
        return self._value

    def errors(self, losses: int) -> set[str]:
        """The kinds of error that are right for it, if that many agents were lost."""
        needed = _with_needs([self])
        kinds = {kind for job in needed for kind in job._own_errors(losses)}
        others = [job for group in {id(job.group): job.group for job in needed if job.group}.values() for job in group]
        if any(job._own_errors(losses) for job in _with_needs(others)):
            kinds.add("cancelled")  # with another row of its graph, or of theirs
        return kinds

    def _own_errors(self, losses: int) -> set[str]:
        """Those that it brings about itself."""
        kinds: set[str] = set()
        if self.behaviour == "fail" or (
            self.behaviour == "flaky" and (self.parameter > self.retries or self.timeout)  # time-outs take retries, too
        ):
            kinds.add("raised")
        if self.deaths and self.deaths + losses > 3:
            kinds.add("lost")
        if self.timeout:
            kinds.add("timeout")
        if self.cancelled or (self.root is not None and self.root.may_be_given_up):
            kinds.add("cancelled")
        if self.renewed or ((self.stored or any(need.stored for need in self.needs)) and (losses or self.deaths)):
            kinds.add("object")
        return kinds

    def ended(self, end: tuple[Any, ...], losses: int) -> str | None:
        """It ended; what is wrong with that, None if nothing."""
        if self.end is not None:
            return f"job {self.uid} (row {self.id}) ended twice: {self.end}, then {end}"
        self.end = end
        if end[0] == "value":
            value = self.value()
            return None if end[1] == value else f"job {self.uid} (row {self.id}) returned {end[1]}, not {value}"
        right = self.errors(losses)
        if end[0] not in right:
            return f"job {self.uid} (row {self.id}) failed with {end}, but only {right or 'a value'} would be right"
        return None


def _with_needs(jobs: list[Job]) -> list[Job]:
    """These, what they need, what that needs, ..."""
    found, stack = {}, [*jobs]
    while stack:
        job = stack.pop()
        if isinstance(job, Job) and job.uid not in found:
            found[job.uid] = job
            stack += job.needs
    return [*found.values()]


@dataclass(eq=False, slots=True)
class Block:
    """The token of a whole batch: a map's."""

    jobs: list[Job]
    id: int = 0

    @property
    def end(self) -> Any:
        """All rows have ended."""
        return None if any(job.end is None for job in self.jobs) else ("block",)


def mix(spec: Spec, values: list[int]) -> int:
    """The function that all rows compute."""
    uid, _, _, _, extra = spec
    result = uid * 1_000_003 + extra * 7919
    for value in values:
        result = (result * 31 + value) % (1 << 61)
    return result


def ends_of(span: SpanResult) -> list[tuple[Any, ...]]:
    """How the rows of a span ended."""
    rows = span.hi - span.lo
    if span.outcome == CANCELLED:
        return [("cancelled",)] * rows
    if span.outcome == ERROR:
        return [kind_of(span.body)]
    if span.outcome == STORED:
        return [("stored", size) for size in stored_sizes(span)]
    if span.outcome == VALUES_LIST:
        values = pickle.loads(span.body)
    else:
        values = [pickle.loads(body) for body in values_of(span)]
    assert len(values) == rows, (span, values)
    return [("value", value) for value in values]


def kind_of(record: Frame) -> tuple[str, str]:
    """(kind, text) of an error record."""
    told = ErrorRecord.decode(record)
    return ErrorKind(told.kind).name.lower(), told.message
