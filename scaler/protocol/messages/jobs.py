"""Durable jobs: what outlives its client. Asked by monitors of a scheduler that keeps a journal, and answered."""

from array import array
from dataclasses import field
from typing import ClassVar

from scaler.common.records import record
from scaler.protocol.codes import FILE, FILED, STORED, Frame, sizes_of
from scaler.protocol.messages.columns import column, u8, u32, u64
from scaler.protocol.messages.message import MESSAGE_BYTES, Message, require

#: characters of a job's name
MAX_JOB_NAME = 200
#: bytes of results that one answer has, about
MAX_RESULT_BYTES = 4 << 20
#: seconds for which an answer may be waited for, at most
MAX_JOB_WAIT = 60.0
#: questions about jobs
JOB_QUESTIONS = ("list", "state", "note", "ordered", "finished", "file", "cancel", "delete")


@record
class JobSubmit(Message):
    """A part of a job: functions and rows. Said again it changes nothing; answered once it is on disk.

    The first frame is for whoever attaches, and nobody else looks into it. Then come the frames of messages that a
    client would send, `ObjectAnnounce` and `Task`, with ids that are the job's own.
    """

    has_bodies: ClassVar[bool] = True

    number: int
    name: str
    owner: str
    #: of the submission: a job of this name that has another one is somebody else's
    token: int
    #: names the part within the job
    key: str
    #: a job of this name may be there already: then this is added, unless it has a part of this key
    joins: bool = False
    #: no more parts come
    is_last: bool = False
    #: frames of each message
    counts: "array[int]" = column(u32)
    bodies: list[Frame] = field(default_factory=list)

    def validate(self) -> None:
        require(0 < len(self.name) <= MAX_JOB_NAME, f"a job's name has 1 to {MAX_JOB_NAME} characters")
        require(self.name.isprintable(), "a job's name is printable")
        require(len(self.owner) <= MAX_JOB_NAME and len(self.key) <= MAX_JOB_NAME, "owner and key are short")
        require(min(self.counts, default=1) > 0, "each message has a frame")
        require(len(self.bodies) == 1 + sum(self.counts), "frames as the messages have")


@record
class JobQuestion(Message):
    """About one job, or all (`list`); what can be changed about it is asked for in the same way."""

    number: int
    kind: str
    name: str = ""
    #: the first row that is asked for: in their order (`ordered`), or in that of their ends (`finished`); the row whose
    #: value is a `file`
    position: int = 0
    #: bytes of results, about
    limit: int = MAX_RESULT_BYTES
    #: seconds for which a row is waited for that has not ended; of `state`, until all have
    wait: float = 0.0
    #: rows that run are ended, too
    force: bool = False
    #: where in the file what is asked for begins
    offset: int = 0
    #: of the job that is meant: another one may have got its name since; 0: whichever has it
    token: int = 0

    def validate(self) -> None:
        require(self.kind in JOB_QUESTIONS, f"unknown question {self.kind!r} about jobs")
        require(len(self.name) <= MAX_JOB_NAME, f"a job's name has at most {MAX_JOB_NAME} characters")
        require(0.0 <= self.wait <= MAX_JOB_WAIT, f"an answer is waited for at most {MAX_JOB_WAIT:g} s")
        require(0 < self.limit <= MAX_RESULT_BYTES, f"an answer has at most {MAX_RESULT_BYTES:,} bytes of results")


@record
class JobAnswer(Message):
    """The answer: lines of JSON, how rows ended as in `TaskResult`, or why there is none."""

    has_bodies: ClassVar[bool] = True

    number: int
    error: str = ""
    #: UTF-8; a line for each job
    text: str = ""
    #: rows of the job, [lo, hi) of each span
    rows: "array[int]" = column(u64)
    outcomes: "array[int]" = column(u8)
    durations: "array[int]" = column(u32)
    sizes: "array[int]" = column(u32)
    #: what `position` has to be for what follows; of a file `offset`; without rows where to look on, in their order
    next: int = 0
    #: of the job that it is about; 0: of none, or of all
    token: int = 0
    #: the payloads of these rows, the note, or bytes of a file
    bodies: list[Frame] = field(default_factory=list)

    @property
    def weight(self) -> int:
        return MESSAGE_BYTES + len(self.text) + sum(map(len, self.bodies)) + 25 * len(self.outcomes)

    def validate(self) -> None:
        n = len(self.outcomes)
        require(len(self.rows) == 2 * n and len(self.durations) == n, "columns of one length")
        sizes = 0
        for i, outcome in enumerate(self.outcomes):
            require(outcome < STORED or outcome == FILED, f"a job has no rows of outcome {outcome}")
            require(self.rows[2 * i] < self.rows[2 * i + 1], "a span is empty")
            count = sizes_of(outcome, self.rows[2 * i + 1] - self.rows[2 * i])
            if outcome == FILED:
                require(set(self.sizes[sizes : sizes + count]) <= {FILE.size}, "28 bytes for each value that is a file")
            sizes += count
        require(sizes == len(self.sizes), "sizes as the outcomes have payloads")
        require(len(self.bodies) == 1, "an answer has one frame")
        require(not n or sum(self.sizes) == len(self.bodies[0]), "the sizes add up to the payload")
