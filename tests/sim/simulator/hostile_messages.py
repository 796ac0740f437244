"""Messages that are well-formed and mean harm: ids of what is there and of what can't be, rows named twice.

Unlike the strategies of `random_messages`, which draw from all that the schema allows, these are about the peers,
batches and objects of one cluster, so that most of them reach the tables; and many can be drawn in a second.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Protocol, TypeVar

from scaler.protocol import messages as m
from scaler.protocol.codec import MESSAGE_CLASSES, encode
from simulator.scripted import root_of

T = TypeVar("T")

EDGES_32 = (0, 1, 2**31 - 1, 2**31, 2**32 - 1)
EDGES_64 = (0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
#: fields of 64 bits
LONG_FIELDS = frozenset({"memory", "stored", "spilled", "fetched", "taken", "row", "epoch", "received", "session"})
#: a message that ends the scheduler if that is allowed is left out
CLASSES = tuple(cls for cls in MESSAGE_CLASSES if cls is not m.ClientShutdown)


class Lot(Protocol):
    """What makes the choices: a `Random`, or bytes."""

    def choice(self, seq: Sequence[T], /) -> T:
        """One of these."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 up to this one."""

    def random(self) -> float:
        """From 0 up to 1."""

    def randbytes(self, n: int, /) -> bytes:
        """So many bytes."""


class Hostile:
    """Draws messages; `peers` are the numbers and `ids` the ids of what is there.

    `figures`: whatever is counted and shown may be as large as its field allows, and agents tell of their workers.
    """

    def __init__(self, random: Lot, peers: Sequence[int], ids: Sequence[int], figures: bool = False) -> None:
        self._random = random
        self._figures = figures
        self._peers = peers
        self._ids = ids
        self._special: dict[type[m.Message], Callable[[], m.Message]] = {
            m.Task: self._task,
            m.TaskResult: self._result,
            m.ObjectAnnounce: self._announcement,
            m.BalanceRequest: self._balance,
            m.ObjectFetch: self._fetch,
            m.ObjectResponse: self._response,
            m.Inventory: self._inventory,
            m.Settled: self._settled,
            m.Neighbours: lambda: m.Neighbours(m.u32([self._peer()]), ("tcp://h:1",)),
            m.Command: self._command,
            m.JobSubmit: self._submission,
            m.JobQuestion: self._job_question,
            m.JobAnswer: lambda: m.JobAnswer(self._id(), "no", bodies=[b""]),
            **({m.HostReport: self._report} if figures else {}),
            m.StoreOffers: lambda: m.StoreOffers(m.u32([self._peer()]), ("/s",), ("b",), ("t",)),
        }

    def message(self, cls: type[m.Message] | None = None) -> m.Message:
        """One of this class or any, as it comes out of a decoder: what is drawn is what would be decoded, if valid."""
        while True:
            try:
                drawn = self._draw(cls or self._random.choice(CLASSES))
                drawn.validate()
                return drawn
            except (m.Malformed, OverflowError):
                continue

    def _draw(self, cls: type[m.Message]) -> m.Message:
        if cls in self._special:
            return self._special[cls]()
        if issubclass(cls, m.Spans):
            return self._spans(cls)
        if issubclass(cls, m.Objects):
            return cls(*self._names())
        return cls(**{name: way(self) for name, way in _ways(cls)})

    # ---- what names something --------------------------------------------------------------------------------------
    def _id(self) -> int:
        return self._random.choice(self._ids if self._random.random() < 0.8 else EDGES_64)

    def _peer(self) -> int:
        return self._random.choice(self._peers if self._random.random() < 0.8 else EDGES_32)

    def _few(self) -> range:
        return range(self._random.choice((0, 1, 1, 2, 3)))

    def _ids_of(self, numbers: range) -> Any:
        return m.u64([self._id() for _ in numbers])

    def _peers_of(self, numbers: range) -> Any:
        return m.u32([self._peer() for _ in numbers])

    def _names(self) -> tuple[Any, Any]:
        few = self._few()
        return self._peers_of(few), self._ids_of(few)

    def _bounds(self) -> tuple[int, int]:
        lo = self._random.choice((0, 0, 1, 2, 3, 2**31, 2**32 - 2))
        return lo, min(2**32 - 1, lo + self._random.choice((1, 1, 2, 3, 100)))

    def _turns(self) -> Any:
        random = self._random
        return m.u64([random.choice(EDGES_64) for _ in range(m.TURN_NUMBERS * random.randrange(3))])

    def _bodies(self) -> list[bytes]:
        random = self._random
        return [random.randbytes(random.choice((0, 8, 57))) for _ in range(random.randrange(3))]

    def _spans(self, cls: type[m.Spans]) -> m.Spans:
        made = cls()
        for _ in self._few():
            peer, batch, (lo, hi) = self._peer(), self._id(), self._bounds()
            made.add(peer, batch, lo, hi)
            if self._random.random() < 0.3:
                made.add(peer, batch, *self._random.choice([(lo, hi), (lo, lo + 1), (hi - 1, hi)]))
        return made

    def _balance(self) -> m.BalanceRequest:
        rows, threads = self._random.choice(EDGES_32), self._random.choice(EDGES_32)
        return m.BalanceRequest(rows, threads, *(self._names() if threads == 1 else ()))

    def _holders(self) -> tuple[Any, Any, Any, Any]:
        few = self._few()
        counts = [len(self._few()) for _ in few]
        sizes = [self._random.choice([0, 100, 2**64 - 1]) for _ in few]
        return self._ids_of(few), m.u64(sizes), m.u32(counts), self._peers_of(range(sum(counts)))

    # ---- what monitors ask for -------------------------------------------------------------------------------------
    def _command(self) -> m.Command:
        random = self._random
        kind = random.choice(m.COMMANDS)
        return m.Command(
            self._id(), kind, self._peer(), self._id(), random.choice(["", "g"]), random.random() < 0.5,
            self._peers_of(self._few()), random.choice([(), ("job",)]), "batch", random.choice(EDGES_32),
            lines=("why",),
        )  # fmt: skip

    def _submission(self) -> m.JobSubmit:
        random, inner = self._random, [encode(self._task()) for _ in self._few()]
        name, key = random.choice(["a", "b"]), random.choice(["", "0", "1"])
        frames = [bytes(frame) for each in inner for frame in each]
        flags = random.random() < 0.5, random.random() < 0.5
        return m.JobSubmit(self._id(), name, "me", self._id(), key, *flags, m.u32(map(len, inner)), [b"", *frames])

    def _job_question(self) -> m.JobQuestion:
        random, kind = self._random, self._random.choice(m.JOB_QUESTIONS)
        position = random.choice([0, 1, 2, 2**64 - 1])
        name, wait, token = random.choice(["a", "b"]), random.choice([0.0, 1.0]), random.choice([0, self._id()])
        return m.JobQuestion(self._id(), kind, name, position, wait=wait, token=token)

    def _report(self) -> m.HostReport:
        workers, columns = len(self._few()), m.WorkerColumns()
        for name in m.COLUMNS:
            column = getattr(columns, name)
            most = workers if name == "functions" else (1 << 8 * column.itemsize) - 1
            column.extend([self._random.choice([0, most]) for _ in range(workers)])
        cpu, host_cpu, free, queued, running, lag = (self._random.choice(EDGES_32) for _ in range(6))
        memory, stored, spilled, fetched = (self._random.choice(EDGES_64) for _ in range(4))
        return m.HostReport(
            cpu, memory, host_cpu, free, queued, running, lag, stored, spilled, fetched, workers, ("f",) * workers,
            [columns.pack()],
        )  # fmt: skip

    # ---- messages with frames and columns --------------------------------------------------------------------------
    def _task(self) -> m.Task:
        random, rows = self._random, self._random.choice([1, 2, 3, 5])
        task = m.Task(
            self._peer(), self._id(), rows, random.choice([m.EACH, m.TOGETHER, m.GRAPH]), random.randrange(256),
            self._id(), self._id(), "g", random.choice([0, -(2**31), 2**31 - 1]), random.choice(EDGES_32),
            spans=m.u32([0, rows]), threads=random.choice([0, 1, 2, 100]),
        )  # fmt: skip
        if random.random() < 0.2:
            task.capabilities = ("gpu",)
        if task.form == m.EACH:
            task.sizes, task.bodies = m.u32([1] * rows), [b"x" * rows]
        if random.random() < 0.6:
            counts = [random.randrange(3) for _ in range(rows)]
            own = [task.batch + row for row in range(rows) if task.batch + row < 2**64]
            task.dependency_counts = m.u32(counts)
            task.dependencies = m.u64(
                [random.choice(own) if random.random() < 0.4 else self._id() for _ in range(sum(counts))]
            )
            if random.random() < 0.3:
                task.indexes = m.i32([random.choice([-1, 0, 1, 2**31 - 1]) for _ in task.dependencies])
        if task.form == m.GRAPH and random.random() < 0.6:
            task.uses = m.u32([random.choice([0, 1, 2, 2**32 - 1]) for _ in range(rows)])
            task.wanted = m.u8([random.randrange(2) for _ in range(rows)])
            task.graph = self._id()
        if random.random() < 0.2:
            task.ended = m.u32([0, random.choice([1, rows])])
        if random.random() < 0.2:
            task.stored, task.stored_sizes, task.holder_counts, task.holders = self._holders()
        objects = self._few()
        task.objects = self._ids_of(objects)
        task.bodies += [b"object"] * len(objects)
        if random.random() < 0.3:
            task.root = random.choice((root_of(self._peer()), *EDGES_64))
        return task

    def _result(self) -> m.TaskResult:
        random, made, body = self._random, m.TaskResult(self._peer()), b""
        for _ in self._few():
            again = len(made.batches) > 0 and random.random() < 0.3
            batch, lo = (made.batches[-1], made.spans[-2] + random.choice([0, 1])) if again else (self._id(), 0)
            outcome = random.choice([*range(m.STORED + 1), m.FILED])
            rows = 1 if outcome in (m.ERROR, m.LOST) else random.choice([1, 1, 2, 3, 4])
            payloads = [
                m.SIZE.pack(random.choice([0, 1 << 20, 2**64 - 1])) if outcome == m.STORED else random.randbytes(9)
                for _ in range(m.sizes_of(outcome, rows))
            ]
            if outcome == m.FILED:
                payloads = [m.FILE.pack((batch + row) % 2**64, 1, 2, 3) for row in range(lo, lo + rows)]
            made.batches.append(batch)
            made.spans.extend([lo, lo + rows])
            made.outcomes.append(outcome)
            made.durations.append(random.choice([0, 100, 2**32 - 1]))
            made.sizes.extend(map(len, payloads))
            body += b"".join(payloads)
        made.bodies = [body]
        return made

    def _announcement(self) -> m.ObjectAnnounce:
        kinds = [self._random.randrange(m.STORED_OBJECT + 1) for _ in self._few()]
        bodies = [m.PLACE.pack(self._id(), self._peer()) if kind == m.STORED_OBJECT else b"object" for kind in kinds]
        return m.ObjectAnnounce(self._ids_of(range(len(kinds))), m.u8(kinds), bodies, self._peer())

    def _inventory(self) -> m.Inventory:
        rows, things = self._spans(m.Spans), m.Objects(*self._names())
        clients = sorted({*rows.clients, *things.clients, self._peer()})
        sizes = [self._random.choice([0, 100, 2**64 - 1]) for _ in things.ids]
        return m.Inventory(m.u32(clients), m.u64([self._id() for _ in clients]), rows, things, m.u64(sizes))

    def _settled(self) -> m.Settled:
        clients, over = self._peers_of(self._few()), self._peers_of(self._few())
        return m.Settled(clients, self._ids_of(range(len(clients))), over, self._ids_of(range(len(over))))

    def _fetch(self) -> m.ObjectFetch:
        ids, *rest = self._holders()
        return m.ObjectFetch(self._peers_of(range(len(ids))), ids, *rest)

    def _response(self) -> m.ObjectResponse:
        clients, ids = self._names()
        return m.ObjectResponse(clients, ids, m.u8([self._random.randrange(2) for _ in ids]), self._peer(), "why")


class LikelyWords:
    """What a client may say, most of which is taken: new batches of a function that is there, and words about them."""

    #: what a client may say but for `Task`
    ABOUT = (
        m.TaskCancel,
        m.TaskHold,
        m.TaskClaim,
        m.ObjectAnnounce,
        m.ObjectRelease,
        m.ObjectRequest,
        m.StoreRequest,
        m.ClientClear,
    )

    def __init__(self, random: Lot, ids: Sequence[int], threads: int) -> None:
        """`ids` are those of what is there from the beginning; hosts have so many `threads`."""
        self._random = random
        self._ids = ids
        self._threads = threads
        #: an id that was not used yet
        self._fresh = 1_000

    def draw(self, client: int, peers: Sequence[int]) -> m.Message:
        """One message of a client, about its own things as a rule, or of these peers."""
        random = self._random
        said = self.draw_one(random.choice(self.ABOUT) if random.random() < 0.5 else m.Task, (client, client, *peers))
        if isinstance(said, m.ObjectAnnounce) and random.random() < 0.9:
            said.ids = m.u64(range(self._fresh, self._fresh + len(said.ids)))
            self._fresh += len(said.ids)
        return said

    def draw_one(self, kind: type[m.Message], peers: Sequence[int]) -> m.Message:
        """One message of this kind."""
        random, fresh = self._random, range(self._fresh, self._fresh + 10)
        said = Hostile(random, peers, (*self._ids, *fresh[:2])).message(kind)
        if isinstance(said, m.Task) and random.random() < 0.9:
            own = said.batch
            said.batch, said.function = fresh[0], 1
            said.arguments = 1 if said.form == m.TOGETHER else 0
            near = range(own, own + said.rows)
            said.dependencies = m.u64([fresh[0] + need - own if need in near else need for need in said.dependencies])
            if random.random() < 0.8:
                said.objects, said.bodies = m.u64(), said.bodies[: said.form == m.EACH]
            if random.random() < 0.8:
                said.capabilities, said.threads = (), min(said.threads, self._threads)
            if random.random() < 0.8:
                said.graph = fresh[0]
            self._fresh += len(fresh)
        return said


# ---- fields of messages that are drawn one by one --------------------------------------------------------------------
Way = Callable[[Hostile], Any]
#: as they are in a Hello that was decoded
_ROLES = tuple(map(str, m.Role))


def _one_of(*values: Any) -> Way:
    return lambda drawn: drawn._random.choice(values)


_BY_NAME: dict[str, Way] = {
    "role": _one_of(*_ROLES),
    "data": _one_of("", "tcp://any:1"),
    "encodings": lambda drawn: m.u8([0]),
    **dict.fromkeys(("agents", "added", "removed"), lambda drawn: drawn._peers_of(drawn._few())),
    "ids": lambda drawn: drawn._ids_of(drawn._few()),
    **dict.fromkeys(("turns", "segments"), lambda drawn: drawn._turns()),
    "copying": _one_of(*map(str, m.Copying)),
    "bodies": lambda drawn: drawn._bodies(),
    "kind": _one_of("tasks", "explain", "story"),
    "state": _one_of("", "waiting", "queued", "agent", "done", "failed", "cancelled"),
    "bandwidth": _one_of(0.0, 1.0, 1e17, 1e-300, 1e10),
}
#: by what is in a field's type; the first that is
_BY_KIND: dict[str, Way] = {
    "Spans": lambda drawn: drawn._spans(m.Spans),
    "Objects": lambda drawn: m.Objects(*drawn._names()),
    "tuple": lambda drawn: ("any",),
    "str": lambda drawn: "any",
    "bool": lambda drawn: drawn._random.random() < 0.5,
    "float": _one_of(0.0, 1.0, 0.5, 1e-300, 1e-9),
}
_FEW_VALUES, _EDGES = _one_of(0, 1, 3), _one_of(*EDGES_32)


def _way(name: str, kind: str) -> Way:
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name == "roster" and "array" in kind:
        return _BY_NAME["ids"]
    for part, way in _BY_KIND.items():
        if part in kind:
            return way
    if name in ("stream", "protocol", "wish", "leaving"):
        return _FEW_VALUES
    if name in LONG_FIELDS:
        return lambda drawn: drawn._random.choice(EDGES_64 if drawn._figures else EDGES_32)
    return _EDGES


@cache
def _ways(cls: type[m.Message]) -> list[tuple[str, Way]]:
    """The fields of a class, and what draws each."""
    return [(item.name, _way(item.name, str(item.type))) for item in fields(cls)]
