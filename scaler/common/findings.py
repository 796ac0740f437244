"""What a core finds out when it looks at its own state, and the end of a process whose state does not add up."""

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


def complain(events: Iterable[object], findings: Sequence[Finding]) -> None:
    """Raise `InvalidState` if there are findings after a step with these events."""
    if findings:
        said = ", ".join(type(event).__name__ for event in events) or "time"
        more = f" and {len(findings) - NAMED} more" if len(findings) > NAMED else ""
        raise InvalidState(f"after {said}: {'; '.join(finding.what for finding in findings[:NAMED])}{more}")
