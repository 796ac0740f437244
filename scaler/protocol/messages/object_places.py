"""Objects: which there are, where each is stored, and who needs them."""

from array import array
from collections.abc import Iterator
from dataclasses import field
from typing import ClassVar

from scaler.common.records import record
from scaler.protocol.codes import MOST_ASKED, PLACE, STORED_OBJECT, Frame
from scaler.protocol.messages.columns import column, u8, u32, u64
from scaler.protocol.messages.message import Malformed, Message, check_holders, check_stored, require
from scaler.protocol.messages.row_control import Spans


@record
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
        require(len(self.ids) == len(self.kinds) == len(self.bodies), "a frame for each object")
        for kind, body in zip(self.kinds, self.bodies, strict=True):
            require(kind <= STORED_OBJECT, f"unknown kind of object {kind}")
            require(kind != STORED_OBJECT or len(body) == PLACE.size, "a size and an agent for a stored object")
            if kind == STORED_OBJECT:
                check_stored((PLACE.unpack(body)[0],))


@record
class Objects(Message):
    """Names of objects."""

    clients: "array[int]" = column(u32)
    ids: "array[int]" = column(u64)

    def add(self, client: int, object_id: int) -> None:
        """Append one name."""
        self.clients.append(client)
        self.ids.append(object_id)

    def validate(self) -> None:
        require(len(self.clients) == len(self.ids), "columns of one length")

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

    def validate(self) -> None:
        super().validate()
        if len(self.ids) > MOST_ASKED:  # each has an answer of its own, as large as dozens of them
            raise Malformed(f"{len(self.ids):,} objects, of which it may ask for {MOST_ASKED:,}")


@record
class ObjectGone(Objects):
    """An agent does not have these any more; `with_worker` if they ended with the worker that alone had them."""

    with_worker: bool = False


@record
class ObjectMissing(Message):
    """An agent could not get these objects from those that have them; the rows that need them come back.

    With a `refusal` it never runs these rows, and this is why.
    """

    objects: Objects = field(default_factory=Objects)
    rows: Spans = field(default_factory=Spans)
    refusal: str = ""
    #: it runs none at all for now, since no worker of it can start; otherwise it has no room for these
    unfit: bool = False

    def validate(self) -> None:
        self.objects.validate()
        self.rows.validate()


@record
class ObjectFetch(Message):
    """An agent is to have these as files in its store, from wherever they are; it answers with `ObjectResponse`."""

    clients: "array[int]" = column(u32)
    ids: "array[int]" = column(u64)
    sizes: "array[int]" = column(u64)
    holder_counts: "array[int]" = column(u32)
    holders: "array[int]" = column(u32)

    def validate(self) -> None:
        require(len(self.clients) == len(self.ids), "columns of one length")
        check_holders(self.ids, self.sizes, self.holder_counts, self.holders)


@record
class ObjectResponse(Message):
    """Whether objects that were asked for are files in this agent's store now: 0 yes, 1 no, and then why."""

    is_answer: ClassVar[bool] = True

    clients: "array[int]" = column(u32)
    ids: "array[int]" = column(u64)
    outcomes: "array[int]" = column(u8)
    agent: int = 0
    reason: str = ""

    def add(self, client: int, object_id: int, outcome: int) -> None:
        """Append one answer."""
        self.clients.append(client)
        self.ids.append(object_id)
        self.outcomes.append(outcome)

    def validate(self) -> None:
        require(len(self.clients) == len(self.ids) == len(self.outcomes), "columns of one length")

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.clients, self.ids, self.outcomes, strict=True)


@record
class Neighbours(Message):
    """Where agents can be asked for objects; "" for one that can't be, or is gone."""

    numbers: "array[int]" = column(u32)
    addresses: tuple[str, ...] = ()

    def validate(self) -> None:
        require(len(self.numbers) == len(self.addresses), "columns of one length")


@record
class StoreRequest(Message):
    """A client looks for a store that it can use; `standalone`: it can't use the directory of any agent."""

    standalone: bool = False


@record
class StoreOffers(Message):
    """Stores, to be tried in this order: a directory with the proof that it is the same, or an address."""

    is_answer: ClassVar[bool] = True

    agents: "array[int]" = column(u32)
    paths: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def validate(self) -> None:
        n = len(self.agents)
        require(n == len(self.paths) == len(self.tokens) == len(self.addresses), "columns of one length")
