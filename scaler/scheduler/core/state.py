"""What the scheduler knows: clients and their batches and objects, agents, and in which place each row is.

A row's place is one number in its batch's `place` column, so that every accepted row is in exactly one place by
construction: waiting for dependencies, queued, done, or at the agent with that number.
"""

from array import array
from dataclasses import dataclass, field
from itertools import accumulate

from scaler.protocol.messages import KEEP, Frame, Task, u32, u64

WAITING, QUEUED, DONE = 0, 1, 2
NOBODY: frozenset[int] = frozenset()
#: the place of a row at an agent is the agent's number + this
AGENT = 16

#: which moves between places are legal, with what causes them; anything else is a defect of the scheduler
TRANSITIONS: dict[tuple[str, str], str] = {
    ("waiting", "queued"): "its last dependency is ready",
    ("waiting", "done"): "cancelled, claimed, or a dependency failed",
    ("queued", "agent"): "placed",
    ("queued", "done"): "cancelled or claimed",
    ("agent", "queued"): "given back, or lost with its worker or agent, or retried after an error",
    ("agent", "done"): "its result came, or it was cancelled or claimed before it began, or lost once too often",
    ("queued", "waiting"): "an object that it needs is lost",
    ("done", "waiting"): "its stored value is lost and needed: it will be computed again",
}


def place_name(place: int) -> str:
    """The word for a place in `TRANSITIONS`."""
    return ("waiting", "queued", "done")[place] if place < AGENT else "agent"


@dataclass(slots=True)
class Object:
    """An immutable value that rows or a client need: its bytes, or in which stores it is."""

    #: empty if it is stored
    payload: Frame
    #: batches and waiting rows that need it, plus one while the client holds it
    references: int = 0
    #: the client holds it until it says ObjectRelease
    held: bool = False
    #: rows of its graph that depend on it are counted in `references` beforehand, even if they have not come yet
    counted: bool = False
    #: ids of rows whose values are elements of this list
    elements: "list[int] | None" = None
    #: numbers of the agents that were given it or are about to fetch it: they are told when nobody needs it
    holders: set[int] = field(default_factory=set)
    #: bytes of a stored object; 0 if it is in `payload`
    size: int = 0
    #: numbers of the agents whose stores have it, of a stored object; none: it is lost until it is made again
    copies: "set[int] | frozenset[int]" = NOBODY
    #: the batch and row that made it; None if a client did
    source: "tuple[Batch, int] | None" = None

    @property
    def is_lost(self) -> bool:
        """No store has it any more."""
        return bool(self.size) and not self.copies


@dataclass(slots=True, eq=False)
class Batch:
    """The rows of one `Task` message, until all of them have ended."""

    client: int
    id: int
    rows: int
    task: Task
    #: place of each row
    place: "array[int]"
    #: rows that have not ended
    left: int
    #: number of rows at each agent; no zeros
    at: dict[int, int] = field(default_factory=dict)
    #: start of each row's payload in the body (form EACH), one more for the end
    offsets: "array[int] | None" = None
    #: per row: ids of the values it needs (None: no row needs any)
    needs: list[tuple[int, ...]] | None = None
    #: per row: how many needed values are not there yet
    missing: "array[int] | None" = None
    #: rows of other batches that wait for a row of this: row -> [(batch, row)]
    waiters: dict[int, "list[tuple[Batch, int]]"] = field(default_factory=dict)
    #: how often a row was lost with its worker, or ended in an error that is retried
    losses: dict[int, int] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    #: how often a row came back since its agent could not get what it needs
    returns: dict[int, int] = field(default_factory=dict)
    #: rows that are computed again within reach of an agent: its number
    near: dict[int, int] = field(default_factory=dict)
    #: why it is remembered after all its rows have ended: objects that its rows made, batches that need values of it
    pins: int = 0
    #: the batches that made stored values which its rows needed; a dict serves as an ordered set
    upstream: "dict[Batch, None]" = field(default_factory=dict)
    #: rows whose values were stored -> ids of the small objects they needed, kept for computing them again
    retained: dict[int, tuple[int, ...]] = field(default_factory=dict)
    #: rows that have ended before and are computed again since their values were lost
    again: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, client: int, task: Task) -> "Batch":
        """A batch whose rows all wait."""
        batch = cls(client, task.batch, task.rows, task, u32([WAITING]) * task.rows, task.rows)
        if task.sizes:
            batch.offsets = u64(accumulate(task.sizes, initial=0))
        return batch

    @property
    def keeps(self) -> bool:
        """Values of its rows may be needed by other rows."""
        return bool(self.task.flags & KEEP)

    def counts(self, value: int) -> bool:
        """That its rows need this value is counted beforehand, in the `uses` of their graph."""
        return bool(self.task.flags & KEEP) and value >= self.task.graph

    def are(self, lo: int, hi: int, place: int) -> bool:
        """All rows [lo, hi) are in this place."""
        if hi - lo == 1:
            return self.place[lo] == place
        return self.place[lo:hi] == u32([place]) * (hi - lo)

    def move(self, lo: int, hi: int, place: int) -> None:
        """Put all rows [lo, hi) in this place."""
        if hi - lo == 1:
            self.place[lo] = place
        else:
            self.place[lo:hi] = u32([place]) * (hi - lo)

    def spans_in(self, place: int) -> list[tuple[int, int]]:
        """The rows that are in this place, as spans."""
        spans: list[tuple[int, int]] = []
        column, lo = self.place, 0
        while True:
            try:
                lo = column.index(place, lo)
            except ValueError:
                return spans
            hi = lo + 1
            while hi < self.rows and column[hi] == place:
                hi += 1
            spans.append((lo, hi))
            lo = hi


@dataclass(slots=True, eq=False)
class Client:
    """A client and all that is scheduled for it."""

    number: int
    name: str
    #: time of its last message, seconds
    seen: float
    batches: dict[int, Batch] = field(default_factory=dict)
    objects: dict[int, Object] = field(default_factory=dict)
    #: row id -> batch, for rows of KEEP batches
    kept: dict[int, Batch] = field(default_factory=dict)
    #: row id -> (object id, index), for values that are an element of a list object
    located: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: value id -> rows that wait for the client to send it
    requested: dict[int, list[tuple[Batch, int]]] = field(default_factory=dict)
    #: row id -> [error record, dependents that have not come yet], for failed rows of KEEP batches
    failed: dict[int, tuple[Frame, int]] = field(default_factory=dict)
    #: rows that have not ended
    outstanding: int = 0
    #: numbers of the agents that were ever sent something of it
    agents: set[int] = field(default_factory=set)
    #: the host it runs on
    boot_id: str = ""
    #: batches that have ended, kept since what their rows made may be lost
    lineage: dict[int, Batch] = field(default_factory=dict)
    #: ids of its stored objects that no store has any more
    gone: set[int] = field(default_factory=set)
    #: value id -> rows that wait for it to be made or sent again
    lost: dict[int, list[tuple[Batch, int]]] = field(default_factory=dict)
    #: ids of values that it was asked for and has not answered
    asked: set[int] = field(default_factory=set)
    #: ids of objects that it wants to read -> the agent that was asked to have it, 0: it is being made again
    reading: dict[int, int] = field(default_factory=dict)
    #: how often such a reading has failed
    rereads: dict[int, int] = field(default_factory=dict)
    #: lost value -> the agent that could not reach those that had it: it is to be made again within its reach
    near: dict[int, int] = field(default_factory=dict)
    #: it can't use the directory of any agent
    beside: bool = False
    #: when it looked for a store no agent with workers was on its host
    makes_do: bool = False
    #: some of its objects are or were in stores
    has_stored: bool = False


@dataclass(slots=True, eq=False)
class Agent:
    """A host's agent as the scheduler sees it."""

    number: int
    name: str
    workers: int
    capabilities: frozenset[str]
    seen: float
    #: rows sent to it that have not come back
    outstanding: int = 0
    #: batches with rows at it; a dict serves as an ordered set
    batches: dict[Batch, None] = field(default_factory=dict)
    #: objects it has, as (client, id)
    holds: set[tuple[int, int]] = field(default_factory=set)
    #: rows it may have outstanding, by what its last results took
    window: int = 0
    #: what its rows took lately, microseconds; None before the first result
    recent: float | None = None
    #: a BalanceRequest is under way
    recalling: bool = False
    #: it had nothing to give back when it was last asked, and was given no rows since
    barren: bool = False
    #: withdrawals it was asked for and has not answered: ("claim", "cancel" or "force", batch, lo, hi)
    asked: list[tuple[str, Batch, int, int]] = field(default_factory=list)
    #: spans placed by the current `handle`, to be sent at its end
    outbox: dict[Batch, list[tuple[int, int]]] = field(default_factory=dict)
    #: objects to be released, to be told with the next tasks, or at the next look at the time; and their size
    released: list[tuple[int, int]] = field(default_factory=list)
    released_bytes: int = 0
    #: its host, the directory of its store, the proof of being on that host, and where it gives objects away
    boot_id: str = ""
    store: str = ""
    token: str = ""
    data: str = ""
    #: it is the store beside the scheduler, without workers
    beside: bool = False
    #: it has no room for more objects: it gets no new work
    full: bool = False
    #: bytes of objects it has, and bytes a second by which others came to it, as last heard
    stored: int = 0
    bandwidth: float = 0.0
    #: agents whose data addresses it was told
    neighbours: set[int] = field(default_factory=set)
    #: agents that it could not fetch objects from -> when, seconds
    cut: dict[int, float] = field(default_factory=dict)
