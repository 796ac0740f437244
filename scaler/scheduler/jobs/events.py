"""What the jobs of a scheduler hear, and what they answer; their entry point is `handle(events, now) -> effects`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scaler.common.effects import Log as Log
from scaler.common.records import record
from scaler.journal.layout import Place
from scaler.journal.records import Frame
from scaler.protocol.messages import JobAnswer, JobQuestion, JobSubmit, Message
from scaler.results.reference import Reference
from scaler.scheduler.jobs.result_index import SpanPlace
from scaler.scheduler.residents import Hold as Hold
from scaler.scheduler.residents import Join as Join
from scaler.scheduler.residents import Say as Say


@record
class Submitted:
    """Somebody submits a part of a job; `inner` are the messages in it."""

    monitor: int
    message: JobSubmit
    inner: Sequence[Message]
    #: why it can't be read; empty: it can
    trouble: str = ""


@record
class Asked:
    """Somebody asks about jobs."""

    monitor: int
    message: JobQuestion


@record
class Gone:
    """Whoever asked does not wait for an answer any more."""

    monitor: int


@record
class Welcomed:
    """A job is a client of the core, and has this number there."""

    job: int
    number: int


@record
class Heard:
    """The core says something to a job."""

    number: int
    message: Message


@record
class Forgotten:
    """The core has given up a job."""

    number: int
    reason: str


@record
class Doubted:
    """Another scheduler may lead meanwhile, for this reason, and know of other jobs; empty: none does."""

    reason: str


@record
class OnDisk:
    """So many records, counted from the opening of the journal, can't be lost any more; what keeps the rest from it."""

    records: int
    trouble: str | None
    #: bytes that the disk takes, but for a reserve
    room: float = math.inf


@record
class MayBeRead:
    """What was submitted of a job could not be read a while ago; perhaps by now, and from elsewhere."""

    job: int


@record
class NotCopied:
    """A record could not be read, so nothing is at the place that it was to be copied to; it stays where it is."""

    place: Place


@record
class MayBeCopied:
    """What could not be read of a segment can be by now."""

    segment: int


@record
class Loaded:
    """What was submitted of a job, as it asked for it: the messages of each part."""

    job: int
    parts: Sequence[Sequence[Message]]


@record
class Fetched:
    """How a row ended, as the core is told of it: INLINE and its value, or FAILED and an error record."""

    number: int
    row: int
    kind: int
    payload: bytes


@record
class FileRead:
    """Bytes of a file, as `ReadFile` wanted; or what is the matter with it, if that is not empty."""

    number: int
    data: bytes
    trouble: str = ""


@record
class Listed:
    """Files are in this part of the directory for results."""

    identity: str
    names: Sequence[str]


Event = (
    Submitted | Asked | Gone | Welcomed | Heard | Forgotten | Doubted | OnDisk | MayBeRead | NotCopied | MayBeCopied
    | Loaded | Fetched | FileRead | Listed
)  # fmt: skip


@record
class Write:
    """Write a record."""

    place: Place
    kind: int
    owner: int
    frames: list[Frame]


@record
class Copy:
    """Write a record again, at another place; `NotCopied` follows if it can't be read."""

    source: Place
    place: Place
    #: bytes
    size: int


@record
class Remove:
    """Nothing needs this segment any more."""

    segment: int


@record
class MeasureRoom:
    """Find out whether the disk has room by now."""


@record
class Load:
    """A job needs the messages of its parts, which were written here."""

    job: int
    places: list[Place]


@record
class Fetch:
    """A job needs the value of one of its rows, `at` in this span; `number` and `row` are for the answer."""

    number: int
    row: int
    span: SpanPlace
    at: int


@record
class Answer:
    """Tell whoever asked; the payload is these bytes of segments: segment, offset, length."""

    monitor: int
    message: JobAnswer
    pieces: Sequence[tuple[int, int, int]] = ()


@record
class ReadFile:
    """Read so many bytes of a job's file; of a whole one the checksum is looked at. `FileRead` follows."""

    number: int
    identity: str
    job: int
    file: Reference
    offset: int
    size: int
    is_whole: bool


@record
class RemoveFiles:
    """Nobody needs these files of results."""

    identity: str
    names: Sequence[str]


@record
class ListFiles:
    """Say which files are there; `Listed` follows, in parts."""

    identity: str


Effect = (
    Write | Copy | Remove | MeasureRoom | Load | Fetch | Answer | ReadFile | RemoveFiles | ListFiles
    | Join | Say | Hold | Log
)  # fmt: skip
