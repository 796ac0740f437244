"""What the numbers and words in messages stand for.

Columns hold plain integers, and most code compares those: each member of an enumeration below is there as a plain
number under its own name, too. Workers, which speak to their agent only, need no more of the protocol than this.
"""

from enum import IntEnum, IntFlag, StrEnum
from struct import Struct

#: a payload, as it came
Frame = bytes | memoryview

#: rows in a batch, at most: each takes a few bytes at the scheduler
MAX_ROWS = 1 << 24
#: spans in one message that asks for rows to be taken back, at most: others are served in between
MOST_SPANS = 2_000
#: objects that one message asks for, at most, for the same reason; our clients ask for one, a scheduler for many
MOST_ASKED = 1_000
#: ids that clients make are below this: a scheduler makes those from here on
MOST_IDS = 1 << 63
#: the root of rows that no client's leaving ends but their own's
NO_ROOT = (1 << 64) - 1
#: tasks, one inside the other, that rows are submitted in are fewer: as many for all that is deeper
NESTINGS = 1 << 16
#: workers of an agent, and so slots that a row may take, at most
MAX_WORKERS = 100_000
#: numbers of clients and agents are below this
MAX_NUMBER = 1 << 31
#: where a task can be, and how it can have ended, as people read it
TASK_STATES = ("waiting", "queued", "agent", "done", "failed", "cancelled")
#: characters of a function's name, as a monitor is shown it, at most
MAX_NAME = 200
#: characters that a function, a client or an agent is called by, at most: they are in each line that is said of it
LONGEST_NAME = 1_000
#: characters of all capabilities together that a task asks for, or an agent has, at most
MOST_CAPABILITIES = 10_000
#: characters of the id of a batch system's job, at most
MAX_JOB = 200
#: lines of a batch system that a report has, and characters of each, at most
MAX_LINES, MAX_LINE = 20, 200
#: agents or jobs that one command names, at most
MAX_NAMED = 10_000
#: a time-out has fewer seconds
MOST_SECONDS = 1e9
#: a moment, and any other time, has fewer seconds: it is in the year 5138
NEVER = 1e11
#: bytes a second that are measured are fewer
MOST_BANDWIDTH = 1e18
#: a value whose pickle takes this many bytes is stored at a host instead of travelling inside messages
INLINE_LIMIT = 1 << 17
#: bytes that a stored value may take, at most; more is no size but a mistake, as is none: its file begins with a header
LARGEST_VALUE = 1 << 48
#: what stands for a stored object: how many bytes it takes, and the number of the agent that has it
PLACE = Struct("<QI")
#: what stands for the value of a stored result: how many bytes it takes
SIZE = Struct("<Q")
#: what stands for a result that is a file: its row's id, the tag of the attempt that wrote it, its bytes, their crc32
FILE = Struct("<QQQI")
#: a result of a durable job whose pickle takes this many bytes is a file, where scheduler and agents share a directory
FILE_LIMIT = 1 << 20
#: characters of what the paths of a job's files begin with, at most
MAX_PATH = 4096
#: in the column `wanted`: the client wants the value, and no other row of the graph needs it
WANTED_ALONE = 2


class Role(StrEnum):
    """What a process is to the scheduler."""

    #: submits tasks and gets their results
    CLIENT = "client"
    #: has workers and a store of a host
    AGENT = "agent"
    #: an agent without workers beside the scheduler, whose store clients use that share memory with no other
    STORE = "store"
    #: looks at the cluster, and has no part in it
    MONITOR = "monitor"
    #: the other one of a pair: one leads, the other stands by
    SCHEDULER = "scheduler"


class Encoding(IntEnum):
    """What payloads are to those who read them: functions, arguments, values, exceptions."""

    #: pickles of Python's, as cloudpickle makes them: to be read by the same Python and the same packages
    PICKLE = 0


class Form(IntEnum):
    """What a row calls, and where its arguments are."""

    #: the function, with the arguments that it has for itself
    EACH = 0
    #: the function, with an element of the arguments object, a list
    TOGETHER = 1
    #: an element of the function object, a list of graph entries, with the values of what it depends on
    GRAPH = 2


class Flag(IntFlag):
    """What else is wanted of all rows of a batch."""

    #: a span of its own for each row, with its duration and peak memory
    PROFILE = 1
    #: what a row prints comes as `TaskOutput`
    STREAM = 2
    #: values are needed by other rows: each is reported with a payload of its own, not in a list
    KEEP = 4
    #: in form TOGETHER: an element of the list is the only argument, not a tuple of arguments
    SPREAD = 8
    #: warnings that a row issues come as `TaskOutput`
    WARN = 16
    #: each row runs in a worker that has run none before, and that runs no other one after it
    FRESH = 32
    #: values that are wanted travel inside messages, however large they are
    INLINE_VALUES = 64
    #: each value is reported with a payload of its own, as with `KEEP`: a scheduler says so of rows that run again
    APART = 128


class Outcome(IntEnum):
    """How the rows of a span ended."""

    #: with plain values, in one list of values
    VALUES_LIST = 0
    #: with values, a payload for each row
    VALUES_EACH = 1
    #: with an error: an error record, of one row
    ERROR = 2
    #: cancelled before they began
    CANCELLED = 3
    #: with its worker's end, from agents only: UTF-8 text of how it ended, of one row
    LOST = 4
    #: with values that are in the agent's store: the size of each, u64
    STORED = 5
    #: with values that stayed in the worker, said by workers to their agent only: the size of each, u64
    LIVE = 6
    #: not: a file that one row needs is not in the store, said by workers to their agent only: the object's id, u64,
    #: and the error record that the row ends with if nothing can be done about it
    LACKING = 7
    #: with values that are files in the directory for results of durable jobs: what stands for each (`FILE`)
    FILED = 8
    #: not: what the worker does before the function begins has failed, perhaps for what earlier rows have done to it,
    #: said by workers to their agent only: the error record that the row ends with if that is its own failure
    DOUBTFUL = 9


class Stream(IntEnum):
    """Where the text of a `TaskOutput` was written."""

    #: to standard output
    STDOUT = 1
    #: to standard error
    STDERR = 2
    #: nowhere: it is a warning, [module, class, text, file, line] as JSON
    WARNINGS = 3


class WorkerFlag(IntFlag):
    """What a worker does, as a monitor sees it."""

    #: it has started, and may be given rows
    INITIALISED = 1
    #: it has a row, or rows
    HAS_TASK = 2
    #: its row runs, and does not wait for other rows
    HOLDS_LOCK = 4
    #: its row waits for other rows: another worker works in its place
    SUSPENDED = 8
    #: it is being ended
    ENDING = 16
    #: its process is stopped, by SIGSTOP or a debugger: what it has waits until that goes on
    STOPPED = 32


class AgentFlag(IntFlag):
    """What an agent is, as a monitor sees it."""

    #: it has told of its host since somebody watches
    REPORTED = 1
    #: it has no room for more objects: it gets no new work
    FULL = 2
    #: it is a store without workers beside the scheduler
    STORE_ONLY = 4
    #: it is about to go: it gets no new work
    DRAINING = 8


class Leaving(IntEnum):
    """Whether an agent is about to go, and why."""

    #: it stays
    NOT = 0
    #: somebody told the scheduler
    TOLD = 1
    #: whoever started it has announced its end, by a signal or otherwise
    ANNOUNCED = 2
    #: the time for which its batch system lets it run is nearly over
    WALLTIME = 3


class Wish(IntEnum):
    """What the scheduler wants of an agent in `Drain`."""

    #: go on as if nothing had been said
    STAY = 0
    #: begin nothing new, give back what has not begun, and stay until `END`
    DRAIN = 1
    #: nothing is left to do, and others have what it had: end
    END = 2
    #: go on, but the scheduler ends in order: an agent whose own end was announced need not wait for it
    FAREWELL = 3


class WithdrawalKind(StrEnum):
    """What becomes of a row that an agent gives back because its client has asked for that."""

    #: its client runs it itself
    CLAIM = "claim"
    #: it is reported as cancelled
    CANCEL = "cancel"
    #: the same, and its worker is ended if it runs already
    FORCE = "force"


class ObjectKind(IntEnum):
    """What is said of an object in an `ObjectAnnounce`."""

    #: its payload
    INLINE = 0
    #: it can't be had: an error record
    FAILED = 1
    #: where it is stored: its size, u64, and the number of the agent that has it, u32
    STORED_OBJECT = 2


EACH, TOGETHER, GRAPH = (member.value for member in Form)
VALUES_LIST, VALUES_EACH, ERROR, CANCELLED, LOST, STORED, LIVE, LACKING, FILED, DOUBTFUL = (
    member.value for member in Outcome
)
PROFILE, STREAM, KEEP, SPREAD, WARN, FRESH, INLINE_VALUES, APART = (member.value for member in Flag)
INLINE, FAILED, STORED_OBJECT = (member.value for member in ObjectKind)
STDOUT, STDERR, WARNINGS = (member.value for member in Stream)


def sizes_of(outcome: int, rows: int) -> int:
    """How many entries of `TaskResult.sizes` a span has."""
    if outcome in (VALUES_EACH, STORED, LIVE, FILED):
        return rows
    return 0 if outcome == CANCELLED else 1
