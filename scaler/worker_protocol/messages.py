"""The messages between an agent and its workers, one class each.

    agent ──task socket──────► worker     Run, Drop, Surroundings, Quit              read between two rows
    agent ──control socket───► worker     Recall, Flush, Yield, Publish, Drop,       read while user code runs
                                         TailRequest
    worker ──task socket─────► agent      Ready, Results, Returned, Published, Output, Blocked, Unblocked,
                                         Leaving, Unfit, TailResponse, Unfiled, Preloading,
                                         Crowded

They are plain tuples with names: made and taken apart at the price of a tuple. `encoding.py` says how they travel.
"""

from array import array
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from scaler.protocol.codes import NESTINGS, Frame
from scaler.store.layout import Key

#: a value that a row needs: an object, and which element of its list, -1 for all of it
Need: TypeAlias = tuple[Key, int]


# ---- agent to worker -------------------------------------------------------------------------------------------------
class Run(NamedTuple):
    """Run the rows [lo, hi) of a batch, in order, after those that were sent before."""

    #: names these rows in all that is said of them; unique in the agent's life
    dispatch: int
    #: their client's number, and the id of its first row: row `n` is object `batch + n` of the client
    client: int
    batch: int
    lo: int
    hi: int
    #: EACH, TOGETHER or GRAPH: what a row's arguments are
    form: int
    #: the function, or the list of a graph's entries
    function: Key
    #: form TOGETHER: the list of arguments
    arguments: Key | None
    #: PROFILE, STREAM, KEEP, SPREAD and WARN, as in the protocol
    flags: int
    #: tasks made by these rows inherit it
    priority: int
    #: of the function, for messages
    name: str
    #: form EACH: the size of each row's payload, u32; and the payloads
    sizes: bytes | None
    body: bytes | None
    #: what each row needs, in the order of its arguments; None: no row needs anything
    needs: list[list[Need]] | None
    #: objects that the worker has not been sent yet, and keeps until they are dropped
    objects: list[tuple[Key, Frame]]
    #: objects to drop before anything else is done
    stale: list[Key]
    #: for each row 1 or WANTED_ALONE if its client wants the value, 0 if only other rows need it; None: it wants all
    wanted: bytes | None
    #: how many workers it stands for, whose share of native threads it may have
    threads: int = 1
    #: of durable jobs: what the paths of files begin with that large results go to; empty: into messages
    results: str = ""
    #: as in the protocol: tasks made by these rows have it, too
    root: int = 0
    #: as in the protocol: tasks made by these rows are one deeper
    nesting: int = 0
    #: it may run in its own stack what is submitted in fewer tasks, one inside the other, than so many; 0: nothing
    claims_below: int = NESTINGS


class Drop(NamedTuple):
    """Forget these objects and values; names that mean nothing to the worker do not matter."""

    keys: list[Key]
    #: on the control socket: dispatch of the last `Run` that was sent before this. What a later one has made by these
    #: names is something else, and stays: that may have run before this is read.
    last: int | None = None


class Surroundings(NamedTuple):
    """What tasks and clients inside of them can know of the cluster; sent before anything else."""

    about: Mapping[str, Any]


class Quit(NamedTuple):
    """End as a program does, after what was sent before."""


class Recall(NamedTuple):
    """Give back rows that have not begun, and tell of those that have ended. Answered by `Returned`."""

    #: comes back in the answer; not 0
    token: int
    #: rows that may stay, the one that runs included
    keep: int
    #: dispatch of the last `Run` that was sent before this, on the other socket: a worker without rows reads that first
    last: int = 0


class Flush(NamedTuple):
    """Tell now of the rows that have ended."""


class Yield(NamedTuple):
    """Others' rows are kept waiting by what the task runs that waits: it is to leave that to them, or need not."""

    is_wanted: bool


class Publish(NamedTuple):
    """Write these values into the store. Each is answered by `Published`."""

    keys: list[Key]


class TailRequest(NamedTuple):
    """Say the last lines that tasks have printed. Answered by `TailResponse`, also while a row runs."""

    #: comes back in the answer
    number: int


# ---- worker to agent -------------------------------------------------------------------------------------------------
class Ready(NamedTuple):
    """A worker can be sent rows; its first word, but for `Preloading`."""

    pid: int


class Preloading(NamedTuple):
    """A worker makes the call that has to succeed before it is `Ready`; or that has failed, and it is about to end."""

    #: as the option `--preload` has it
    call: str
    #: what it has raised, in one line; empty while it is under way
    error: str = ""


class EndedSpan(NamedTuple):
    """How the rows [lo, hi) of a batch have ended."""

    dispatch: int
    client: int
    batch: int
    lo: int
    hi: int
    #: VALUES_LIST, VALUES_EACH, ERROR (of one row), STORED, LIVE: stored in the worker itself, LACKING, FILED, DOUBTFUL
    outcome: int
    #: microseconds, all rows together
    duration: int
    #: bytes of memory; 0 when not profiled
    peak: int
    #: of the parts of the body, u32, as many as the outcome has
    sizes: "array[int]"
    body: bytes
    #: microseconds of processor, all rows together; 0 when not profiled
    processor_time: int = 0


class Results(NamedTuple):
    """Rows have ended."""

    ended: list[EndedSpan]
    #: dispatches of which the worker has no rows any more
    done: list[int]


class ReturnedSpan(NamedTuple):
    """The rows [lo, hi) of a batch have not begun and are the agent's again."""

    dispatch: int
    client: int
    batch: int
    lo: int
    hi: int


class Returned(NamedTuple):
    """Rows come back: as they were recalled, or since the task that runs is going to wait."""

    #: of the `Recall` that this answers; 0: it was not asked for
    token: int
    rows: list[ReturnedSpan]
    #: (dispatch, row) that runs; None while nothing does
    running: tuple[int, int] | None


class PublishedValue(NamedTuple):
    """A value that was in the worker alone is a file in the store now; or it is not, and why."""

    key: Key
    #: bytes
    size: int
    error: str | None


class Published(NamedTuple):
    """Values were written into the store, asked for or not."""

    values: list[PublishedValue]


class Output(NamedTuple):
    """A task has printed or warned."""

    client: int
    row: int
    #: STDOUT, STDERR or WARNINGS
    stream: int
    #: of the function
    name: str
    text: str


class TailResponse(NamedTuple):
    """The last lines that tasks have printed, each behind the digit of its stream."""

    #: of the `TailRequest` that this answers
    number: int
    text: str


class Unfiled(NamedTuple):
    """A large result of this dispatch could not be written to a file, and comes as others do."""

    dispatch: int
    #: what the system said: errno
    error: int


class Crowded(NamedTuple):
    """The store has no room for a result, which waits for that."""

    #: bytes
    size: int


class Blocked(NamedTuple):
    """The task that runs waits for other tasks: another worker may take this one's place."""


class Unblocked(NamedTuple):
    """The task that runs goes on."""


class Leaving(NamedTuple):
    """The last word of a worker that has begun none of its rows: one that has loaded what they need does better."""


class Unfit(NamedTuple):
    """What a task has done to the worker's process can't be undone: another one is to take its place."""

    #: what is wrong with it, in a few words
    why: str


ToWorker: TypeAlias = Run | Drop | Surroundings | Quit | Recall | Flush | Publish | TailRequest | Yield
FromWorker: TypeAlias = (
    Ready
    | Results
    | Returned
    | Published
    | Output
    | Blocked
    | Unblocked
    | Leaving
    | TailResponse
    | Unfiled
    | Preloading
    | Unfit
    | Crowded
)
