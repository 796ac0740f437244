"""What the records of a journal say of jobs. Their owner is the job's number."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

from scaler.journal.records import Damaged, Frame


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


#: of these a job needs the last one only
LAST_ONLY = frozenset({Kind.STATE, Kind.AGENTS})


def to_json(**fields: Any) -> bytes:
    """A frame of JSON."""
    return json.dumps(fields, separators=(",", ":")).encode()


def from_json(frame: Frame) -> dict[str, Any]:
    """What `to_json` was given. Raises `Damaged` for anything else."""
    try:
        found = json.loads(bytes(frame))
    except ValueError:
        raise Damaged("a record of a job is not what it should be") from None
    if type(found) is not dict:
        raise Damaged("a record of a job is not what it should be")
    return found
