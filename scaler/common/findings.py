"""What a core finds out when it looks at its own state, and the end of a process whose state does not add up.

An exception that somebody's message leads to is a defect of ours, and costs that peer its session: `told` has the words
for the log, and `check` decides whether all else may go on.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: findings that are named
NAMED = 10


class Finding(NamedTuple):
    """Something that does not hold."""

    what: str
    #: id of the batch or object it is about; 0 if it is about neither
    id: int = 0


class InvalidState(Exception):
    """The state of a core does not add up: a defect of its own."""


def told(error: Exception, what: str) -> str:
    """What was raised while something of a peer was dealt with, with where that was."""
    import traceback  # here, as hardly anybody needs it

    error.add_note(f"while {what} was dealt with")
    return "".join(traceback.format_exception(error)).rstrip()


def check(findings: Sequence[Finding], error: Exception) -> None:
    """Raise what was raised in this step if it has left the state in disorder: another process is to begin anew."""
    if findings:
        error.add_note(f"it has left the state in disorder: {'; '.join(each.what for each in findings[:NAMED])}")
        raise error


def complain(events: Iterable[object], findings: Sequence[Finding]) -> None:
    """Raise `InvalidState` if there are findings after a step with these events."""
    if findings:
        said = ", ".join(type(event).__name__ for event in events) or "time"
        more = f" and {len(findings) - NAMED} more" if len(findings) > NAMED else ""
        raise InvalidState(f"after {said}: {'; '.join(finding.what for finding in findings[:NAMED])}{more}")
