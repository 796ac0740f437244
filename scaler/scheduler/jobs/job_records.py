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
    #: a part as it was submitted: JSON of its key and batches, then the frames of the messages in it
    PART = 2
    #: no more parts come
    COMPLETE = 3
    #: how rows ended: the frames of a `TaskResult`
    RESULTS = 4
    #: rows that have not begun are not to be run: JSON, whether those that run are ended
    CANCELLED = 5
    #: its last row has ended, or it could not go on: JSON, when and why
    ENDED = 6
    #: it is forgotten, and nothing of it is needed
    DELETED = 7
    #: the scheduler's number of it, and those of the agents that may have something of it: JSON
    AGENTS = 8
    #: a frame that its client left for those who attach; nobody else looks into it
    NOTE = 9
    #: more parts come after all
    REOPENED = 10


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
