"""A scheduler is gone and another has taken its place: what agents and clients say again, and what they need not."""

from array import array
from dataclasses import field

from scaler.common.records import record
from scaler.protocol.messages.columns import column, u32, u64
from scaler.protocol.messages.message import Message, check_stored, require
from scaler.protocol.messages.object_places import Objects
from scaler.protocol.messages.row_control import Spans


@record
class Inventory(Message):
    """What an agent has that returns to another scheduler: its first message. What it says of these rows follows."""

    #: numbers of clients at the last scheduler, and the session of each
    clients: "array[int]" = column(u32)
    sessions: "array[int]" = column(u64)
    #: it has them, or they have ended and it says again how
    rows: Spans = field(default_factory=Spans)
    #: in its store, and the bytes of each; 0 of one that came in a message
    objects: Objects = field(default_factory=Objects)
    sizes: "array[int]" = column(u64)

    def validate(self) -> None:
        self.rows.validate()
        self.objects.validate()
        require(len(self.clients) == len(self.sessions), "a session for each client")
        require(len(self.objects.ids) == len(self.sizes), "a size for each object")
        check_stored(size for size in self.sizes if size)
        known = set(self.clients)
        require(known.issuperset(self.rows.clients), "rows are of the clients that are named")
        require(known.issuperset(self.objects.clients), "objects are of the clients that are named")


@record
class ClientReturn(Message):
    """A client that returns has said all that it said to the last scheduler; the stored values that it refers to."""

    ids: "array[int]" = column(u64)


@record
class ClientIntroduction(Message):
    """An agent may have something of a client from now on: whose number that is."""

    client: int
    session: int


@record
class AgentsInUse(Message):
    """Agents that may have something of a client from now on, or have it no more."""

    added: "array[int]" = column(u32)
    removed: "array[int]" = column(u32)
    #: of those that are added, as in `Hello`
    whereabouts: tuple[str, ...] = ()

    def validate(self) -> None:
        require(len(self.whereabouts) in (0, len(self.added)), "the whereabouts of all agents, or of none")


@record
class Settled(Message):
    """An agent need not say these again, whichever scheduler comes."""

    #: how many `TaskResult`s of each of these clients, of those it has said, have reached it
    clients: "array[int]" = column(u32)
    results: "array[int]" = column(u64)
    #: batches that are over
    over_clients: "array[int]" = column(u32)
    over_batches: "array[int]" = column(u64)

    def validate(self) -> None:
        require(len(self.clients) == len(self.results), "a number of results for each client")
        require(len(self.over_clients) == len(self.over_batches), "a client for each batch")
