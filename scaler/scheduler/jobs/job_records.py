"""What the records of a journal say of jobs. Their owner is the job's number."""

from __future__ import annotations

import json
from enum import IntEnum
from itertools import pairwise
from typing import Any

from scaler.journal.records import Damaged, Frame
from scaler.protocol.codes import MAX_ROWS


class Kind(IntEnum):
    """What a record of a job's is."""

    #: JSON of its name, its owner and when it began
    OPENED = 1
    #: a frame that its client left for those who attach; nobody else looks into it
    NOTE = 2
    #: a part as it was submitted: JSON of its key, its first row and its batches, JSON of how many frames each of its
    #: messages has, and those frames
    PART = 3
    #: how rows ended: the frames of a `TaskResult`
    RESULTS = 4
    #: JSON: whether all is there, whether it was cancelled, when and why it ended. That of the highest turn counts
    STATE = 5
    #: JSON: the scheduler's number of it, and those of agents that may have something of it. As STATE
    AGENTS = 6
    #: it is forgotten, and nothing of it is needed
    DELETED = 7
    #: nothing: a record was to be copied here, and could not be read
    GAP = 8


#: numbers of jobs, turns and the like are below this: there are as many again for what comes after
MANY = 1 << 62
#: of these a job needs the last one only
LAST_ONLY = frozenset({Kind.STATE, Kind.AGENTS})


def to_json(**fields: Any) -> bytes:
    """A frame of JSON."""
    return json.dumps(fields, separators=(",", ":")).encode()


class Said:
    """What a record says in JSON. Each of these raises `Damaged` for what can't be there.

    A checksum tells that bytes are as they were written, not who has written them: the copy of a journal has what
    another scheduler has sent.
    """

    def __init__(self, frame: Frame) -> None:
        """Raises `Damaged` for what `to_json` does not make."""
        try:
            found = json.loads(bytes(frame))
        except (ValueError, RecursionError):
            raise _not_what_it_should_be() from None
        if type(found) is not dict:
            raise _not_what_it_should_be()
        self._found = found

    def _of(self, name: str, *kinds: type, default: Any = None) -> Any:
        value = self._found.get(name, default)
        if type(value) not in kinds:
            raise _not_what_it_should_be(name)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        found: str = self._of(name, str, default=default)
        return found

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Whether it is so."""
        found: bool = self._of(name, bool, default=default)
        return found

    def number(self, name: str, below: int = MANY) -> int:
        """A number from 0 up to this one."""
        return _number(self._of(name, int), name, below)

    def moment(self, name: str) -> float:
        """Seconds since 1970."""
        found: float = self._of(name, int, float)
        if not 0 <= found < MANY:
            raise _not_what_it_should_be(name)
        return found

    def moment_or_none(self, name: str) -> float | None:
        """Seconds since 1970; None if there is no such moment."""
        return None if self._found.get(name) is None else self.moment(name)

    def numbers(self, name: str, below: int) -> list[int]:
        """Numbers below this one."""
        return [_number(each, name, below) for each in self._of(name, list)]

    def batches(self) -> list[tuple[int, int, list[int] | None]]:
        """Batches: their id, how many rows they have, and which of these are wanted; None for all. None overlap."""
        found = [_batch(each) for each in self._of("batches", list)]
        ids = sorted((number, number + rows) for number, rows, _ in found)
        if any(begin < end for (_, end), (begin, _) in pairwise(ids)):
            raise _not_what_it_should_be("batches")
        return found


def _not_what_it_should_be(name: str = "") -> Damaged:
    where = f" ({name})" if name else ""
    return Damaged(f"a record of a job is not what it should be{where}")


def _number(value: Any, name: str, below: int) -> int:
    if type(value) is not int or not 0 <= value < below:
        raise _not_what_it_should_be(name)
    return value


def _batch(said: Any) -> tuple[int, int, list[int] | None]:
    if type(said) is not list or len(said) != 3:
        raise _not_what_it_should_be("batches")
    number, rows, wanted = said
    _number(number, "batches", (1 << 64) - _number(rows, "batches", MAX_ROWS + 1))
    if wanted is not None:
        if type(wanted) is not list:
            raise _not_what_it_should_be("batches")
        last = -1
        for row in wanted:
            if _number(row, "batches", rows) <= last:
                raise _not_what_it_should_be("batches")
            last = row
    return number, rows, wanted
