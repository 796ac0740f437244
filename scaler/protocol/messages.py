"""The messages of the protocol as plain data; `scaler.capnp` says the same for other languages.

Columns are `array.array`s: "Q" u64, "I" u32, "i" i32, "B" u8. `bodies` are payload frames, never copied into the
header. `validate` says what a well-formed message is; the codec calls it on everything that comes from outside.
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import ClassVar

PROTOCOL_VERSION = 1

Frame = bytes | memoryview

#: a value whose pickle takes this many bytes is stored at a host instead of travelling inside messages
INLINE_LIMIT = 1 << 17
#: what stands for a stored value: in a `TaskResult` its size, in an `ObjectAnnounce` also the agent that has it
SIZE = Struct("<Q")
PLACE = Struct("<QI")

#: rows in a batch, at most: each takes a few bytes at the scheduler
MAX_ROWS = 1 << 24

# forms of a batch
EACH, TOGETHER, GRAPH = 0, 1, 2
# outcomes of a span; LIVE is said by workers to their agent only
VALUES_LIST, VALUES_EACH, ERROR, CANCELLED, LOST, STORED, LIVE = 0, 1, 2, 3, 4, 5, 6
# kinds of announced objects
INLINE, FAILED, STORED_OBJECT = 0, 1, 2
# flags of a batch
PROFILE, STREAM, KEEP, SPREAD, WARN = 1, 2, 4, 8, 16
# streams of an output
STDOUT, STDERR, WARNINGS = 1, 2, 3


def u64(values: object = ()) -> "array[int]":
    """A u64 column."""
    return array("Q", values)  # type: ignore[call-overload, no-any-return]


def u32(values: object = ()) -> "array[int]":
    """A u32 column."""
    return array("I", values)  # type: ignore[call-overload, no-any-return]


def i32(values: object = ()) -> "array[int]":
    """An i32 column."""
    return array("i", values)  # type: ignore[call-overload, no-any-return]


def u8(values: object = ()) -> "array[int]":
    """A u8 column."""
    return array("B", values)  # type: ignore[call-overload, no-any-return]


def column(make: Callable[[], "array[int]"]) -> "array[int]":
    """A dataclass field that is an empty column."""
    return field(default_factory=make)


class Malformed(Exception):
    """A message contradicts itself; the codec turns it into a ProtocolError."""


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise Malformed(what)


def _pairs_ok(pairs: "array[int]", rows: int | None = None) -> int:
    if len(pairs) == 2:
        lo, hi = pairs
        _require(lo < hi and (rows is None or hi <= rows), "a span is empty or outside its batch")
        return hi - lo
    _require(len(pairs) % 2 == 0, "span bounds come in pairs")
    total = 0
    for lo, hi in zip(pairs[::2], pairs[1::2], strict=True):
        _require(lo < hi and (rows is None or hi <= rows), "a span is empty or outside its batch")
        total += hi - lo
    return total


def _holders_ok(ids: "array[int]", sizes: "array[int]", holder_counts: "array[int]", holders: "array[int]") -> None:
    _require(len(ids) == len(sizes) == len(holder_counts), "a size and a number of holders for each stored object")
    _require(sum(holder_counts) == len(holders), "the holder counts add up")


@dataclass(slots=True)
class Message:
    """Base of all messages."""

    #: a message with payload frames has a field `bodies`
    has_bodies: ClassVar[bool] = False
    #: struct on the wire -> the fields of this class that are in it
    groups: ClassVar[dict[str, tuple[str, ...]]] = {}

    def validate(self) -> None:
        """Raise `Malformed` when the columns contradict each other."""


@dataclass(slots=True)
class Hello(Message):
    """The first message on every connection."""

    role: str
    name: str
    session: int
    protocol: int
    python: str
    packages: str
    boot_id: str
    pid: int
    epoch: int = 0
    received: int = 0
    workers: int = 0
    capabilities: tuple[str, ...] = ()
    #: of an agent: the directory of its store and the proof of being on its host; where other hosts fetch objects
    store: str = ""
    token: str = ""
    data: str = ""

    def validate(self) -> None:
        _require(self.role in ("client", "agent", "store"), f"unknown role {self.role!r}")
        _require(self.workers <= 100_000, "more than 100,000 workers in an agent")


@dataclass(slots=True)
class Welcome(Message):
    """The scheduler's answer to `Hello`."""

    epoch: int
    number: int
    resumed: bool
    received: int
    workers: int
    protected: bool
    heartbeat: float
    timeout: float
    limit: int


@dataclass(slots=True)
class Refused(Message):
    """The scheduler's other answer to `Hello`, or its last word to a peer that broke the protocol."""

    reason: str


@dataclass(slots=True)
class Ack(Message):
    """Nothing but the header's `ack`."""


@dataclass(slots=True)
class Task(Message):
    """Rows of one batch to be run, client to scheduler or scheduler to agent."""

    client: int
    batch: int
    rows: int
    form: int
    flags: int
    function: int
    arguments: int
    name: str
    priority: int = 0
    retries: int = 0
    timeout: float = 0.0
    capabilities: tuple[str, ...] = ()
    spans: "array[int]" = column(u32)
    sizes: "array[int]" = column(u32)
    dependency_counts: "array[int]" = column(u32)
    dependencies: "array[int]" = column(u64)
    indexes: "array[int]" = column(i32)
    uses: "array[int]" = column(u32)
    wanted: "array[int]" = column(u8)
    #: of graphs: the id of the first row; `uses` counts the rows of the graph alone
    graph: int = 0
    objects: "array[int]" = column(u64)
    #: to agents: the stored objects that these rows need, and which agents have each
    stored: "array[int]" = column(u64)
    stored_sizes: "array[int]" = column(u64)
    holder_counts: "array[int]" = column(u32)
    holders: "array[int]" = column(u32)
    bodies: list[Frame] = field(default_factory=list)
    has_bodies: ClassVar[bool] = True
    #: fields that are rarely set travel in structs of their own, which are then absent
    groups: ClassVar[dict[str, tuple[str, ...]]] = {
        "options": ("priority", "retries", "timeout", "capabilities"),
        "needs": ("dependency_counts", "dependencies", "indexes", "uses", "wanted", "graph"),
        "places": ("stored", "stored_sizes", "holder_counts", "holders"),
    }

    def validate(self) -> None:
        _require(self.form in (EACH, TOGETHER, GRAPH), f"unknown form {self.form}")
        _require(0 < self.rows <= MAX_ROWS, f"a batch has 1 to {MAX_ROWS} rows")
        _require(0.0 <= self.timeout < 1e9, "a timeout is a positive number of seconds")
        meant = _pairs_ok(self.spans, self.rows)
        bodies = len(self.objects)
        if self.form == EACH:
            bodies += 1
            _require(len(self.sizes) == meant, "a size for each row")
            _require(len(self.bodies) > 0 and sum(self.sizes) == len(self.bodies[0]), "the sizes add up to the payload")
        else:
            _require(len(self.sizes) == 0, "only rows with own payloads have sizes")
        _require(len(self.bodies) == bodies, "a frame for each object, and one for the payloads")
        if self.dependency_counts or self.dependencies or self.indexes:
            _require(len(self.dependency_counts) == meant, "a dependency count for each row")
            _require(sum(self.dependency_counts) == len(self.dependencies), "the dependency counts add up")
            _require(len(self.indexes) in (0, len(self.dependencies)), "an index for each dependency")
        if self.stored:
            _holders_ok(self.stored, self.stored_sizes, self.holder_counts, self.holders)
        if self.form == GRAPH:
            _require(
                len(self.uses) in (0, self.rows) and len(self.wanted) in (0, self.rows),
                "graph columns have a value for each row",
            )


@dataclass(slots=True)
class TaskResult(Message):
    """How spans of one client's rows ended, agent to scheduler to client."""

    client: int
    batches: "array[int]" = column(u64)
    spans: "array[int]" = column(u32)
    outcomes: "array[int]" = column(u8)
    durations: "array[int]" = column(u32)
    peaks: "array[int]" = column(u64)
    sizes: "array[int]" = column(u32)
    bodies: list[Frame] = field(default_factory=list)
    has_bodies: ClassVar[bool] = True

    def validate(self) -> None:
        n = len(self.batches)
        _pairs_ok(self.spans)
        _require(len(self.spans) == 2 * n, "bounds for each span")
        _require(n == len(self.outcomes) == len(self.durations) == len(self.peaks), "columns of one length")
        sizes = 0
        for i, outcome in enumerate(self.outcomes):
            _require(outcome <= STORED, f"unknown outcome {outcome}")
            rows = self.spans[2 * i + 1] - self.spans[2 * i]
            _require(outcome not in (ERROR, LOST) or rows == 1, "an error is of one row")
            if outcome == STORED:
                _require(set(self.sizes[sizes : sizes + rows]) <= {SIZE.size}, "eight bytes for each stored value")
            sizes += sizes_of(outcome, rows)
        _require(sizes == len(self.sizes), "sizes as the outcomes have payloads")
        _require(len(self.bodies) == 1 and sum(self.sizes) == len(self.bodies[0]), "the sizes add up to the payload")


def sizes_of(outcome: int, rows: int) -> int:
    """How many entries of `TaskResult.sizes` a span has."""
    if outcome == VALUES_EACH or outcome >= STORED:
        return rows
    return 0 if outcome == CANCELLED else 1


@dataclass(slots=True)
class Spans(Message):
    """A list of spans of any clients' batches."""

    clients: "array[int]" = column(u32)
    batches: "array[int]" = column(u64)
    spans: "array[int]" = column(u32)

    def add(self, client: int, batch: int, lo: int, hi: int) -> None:
        """Append one span."""
        self.clients.append(client)
        self.batches.append(batch)
        self.spans.append(lo)
        self.spans.append(hi)

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        return zip(self.clients, self.batches, self.spans[::2], self.spans[1::2], strict=True)

    def __bool__(self) -> bool:
        return len(self.batches) > 0

    def validate(self) -> None:
        _pairs_ok(self.spans)
        _require(len(self.clients) == len(self.batches) == len(self.spans) // 2, "columns of one length")


class TaskRunning(Spans):
    """These rows can't be cancelled: they have begun."""

    __slots__ = ()


class TaskClaim(Spans):
    """A client inside a task waits for these rows of its own and offers to run those that have not begun."""

    __slots__ = ()


class BalanceResponse(Spans):
    """These rows, not begun, came back from an agent."""

    __slots__ = ()


@dataclass(slots=True)
class TaskCancel(Message):
    """Take these rows out; with `force` even if they run."""

    spans: Spans
    force: bool = False

    def validate(self) -> None:
        self.spans.validate()


@dataclass(slots=True)
class TaskClaimResponse(Message):
    """Granted rows are the claimer's to run, refused ones have begun or ended elsewhere."""

    granted: Spans
    refused: Spans

    def validate(self) -> None:
        self.granted.validate()
        self.refused.validate()


@dataclass(slots=True)
class TaskOutput(Message):
    """Text that a row printed, or a warning that it issued: [module, class, text, file, line] as JSON."""

    client: int
    row: int
    name: str
    stream: int
    text: str


@dataclass(slots=True)
class BalanceRequest(Message):
    """Give back this many rows that have not begun."""

    rows: int


@dataclass(slots=True)
class ObjectAnnounce(Message):
    """Objects of a client, a frame each: the payload, the error record it failed with, or where it is stored.

    Client to scheduler; scheduler to agent: a client wrote these into your store; agent to scheduler: I have these too.
    """

    ids: "array[int]" = column(u64)
    kinds: "array[int]" = column(u8)
    bodies: list[Frame] = field(default_factory=list)
    client: int = 0
    has_bodies: ClassVar[bool] = True

    def validate(self) -> None:
        _require(len(self.ids) == len(self.kinds) == len(self.bodies), "a frame for each object")
        for kind, body in zip(self.kinds, self.bodies, strict=True):
            _require(kind <= STORED_OBJECT, f"unknown kind of object {kind}")
            _require(kind != STORED_OBJECT or len(body) == PLACE.size, "a size and an agent for a stored object")


@dataclass(slots=True)
class Objects(Message):
    """Names of objects."""

    clients: "array[int]" = column(u32)
    ids: "array[int]" = column(u64)

    def add(self, client: int, object_id: int) -> None:
        """Append one name."""
        self.clients.append(client)
        self.ids.append(object_id)

    def validate(self) -> None:
        _require(len(self.clients) == len(self.ids), "columns of one length")

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.clients, self.ids, strict=True)

    def __bool__(self) -> bool:
        return len(self.ids) > 0


class ObjectRelease(Objects):
    """Nobody needs these any more."""

    __slots__ = ()


class ObjectRequest(Objects):
    """To a client: the scheduler needs these values, which it made or received. From a client: it will read these."""

    __slots__ = ()


class ObjectGone(Objects):
    """An agent does not have these any more."""

    __slots__ = ()


@dataclass(slots=True)
class ObjectMissing(Message):
    """An agent could not get these objects from those that have them; the rows that need them come back."""

    objects: Objects = field(default_factory=Objects)
    rows: Spans = field(default_factory=Spans)

    def validate(self) -> None:
        self.objects.validate()
        self.rows.validate()


@dataclass(slots=True)
class ObjectFetch(Message):
    """An agent is to have these as files in its store, from wherever they are; it answers with `ObjectResponse`."""

    clients: "array[int]" = column(u32)
    ids: "array[int]" = column(u64)
    sizes: "array[int]" = column(u64)
    holder_counts: "array[int]" = column(u32)
    holders: "array[int]" = column(u32)

    def validate(self) -> None:
        _require(len(self.clients) == len(self.ids), "columns of one length")
        _holders_ok(self.ids, self.sizes, self.holder_counts, self.holders)


@dataclass(slots=True)
class ObjectResponse(Message):
    """Whether objects that were asked for are files in this agent's store now: 0 yes, 1 no, and then why."""

    clients: "array[int]" = column(u32)
    ids: "array[int]" = column(u64)
    outcomes: "array[int]" = column(u8)
    agent: int = 0
    reason: str = ""

    def validate(self) -> None:
        _require(len(self.clients) == len(self.ids) == len(self.outcomes), "columns of one length")


@dataclass(slots=True)
class Neighbours(Message):
    """Where agents can be asked for objects."""

    numbers: "array[int]" = column(u32)
    addresses: tuple[str, ...] = ()

    def validate(self) -> None:
        _require(len(self.numbers) == len(self.addresses), "columns of one length")


@dataclass(slots=True)
class StoreRequest(Message):
    """A client looks for a store that it can use; `beside`: it can't use the directory of any agent."""

    beside: bool = False


@dataclass(slots=True)
class StoreOffers(Message):
    """Stores, to be tried in this order: a directory with the proof that it is the same, or an address."""

    agents: "array[int]" = column(u32)
    paths: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def validate(self) -> None:
        n = len(self.agents)
        _require(n == len(self.paths) == len(self.tokens) == len(self.addresses), "columns of one length")


@dataclass(slots=True)
class Heartbeat(Message):
    """Alive, and how busy."""

    clock: float
    workers: int = 0
    queued: int = 0
    running: int = 0
    cpu: float = 0.0
    memory: int = 0
    #: bytes of objects that an agent holds; and whether it has no room for more
    stored: int = 0
    full: bool = False
    #: bytes a second by which objects came to it from other hosts; 0 while unknown
    bandwidth: float = 0.0


@dataclass(slots=True)
class HeartbeatEcho(Message):
    """The scheduler is alive too; `workers` is the whole cluster's."""

    clock: float
    workers: int


@dataclass(slots=True)
class ClientDeparture(Message):
    """A client is gone, or wants to begin anew and `stays`: agents drop what they hold of it."""

    client: int
    stays: bool = False


@dataclass(slots=True)
class DisconnectRequest(Message):
    """A client's orderly goodbye."""


@dataclass(slots=True)
class DisconnectResponse(Message):
    """Everything of the client is dropped."""


@dataclass(slots=True)
class ClientShutdown(Message):
    """A client asks the whole cluster to end; an agent is told so by the scheduler."""


@dataclass(slots=True)
class ShutdownResponse(Message):
    """Whether the scheduler will."""

    accepted: bool
    reason: str


@dataclass(slots=True)
class ClientClear(Message):
    """Drop all tasks and objects of this client."""
