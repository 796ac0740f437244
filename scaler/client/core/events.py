"""What a client's session core is told, and what it wants done."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from scaler.common.records import entity, record
from scaler.protocol.messages import (
    FAILED,
    INLINE,
    NESTINGS,
    STORED_OBJECT,
    ClientClear,
    ClientShutdown,
    DisconnectRequest,
    DisconnectResponse,
    Frame,
    Message,
    ObjectRequest,
    ObjectResponse,
    ShutdownResponse,
    StoreOffers,
    StoreRequest,
    Task,
)
from scaler.protocol.results import SpanResult


# ---- events --------------------------------------------------------------------------------------------------------
@record
class Submit:
    """Send this batch; its id and the ids in `objects` were made by `SessionCore.take_ids`.

    A token stands for a row and is given the row's id as its `id`; None: nobody wants the row. With `whole` there is
    one token, for all rows of the batch.
    """

    task: Task
    tokens: Sequence[Any]
    whole: bool = False
    #: per row: the tokens and references that it needs; kept until the batch ends
    needs: Sequence[Sequence[Any]] = ()
    #: what the shell knows of the function, given back with `ClaimGranted`
    template: Any = None
    #: of a graph: shared by all its batches
    group: "BatchGroup | None" = None


@entity
class BatchGroup:
    """The batches of one graph, or a batch by itself: they end together."""

    #: wanted rows that have not ended
    left: int
    #: their ids
    batches: list[int] = field(default_factory=list)
    #: a row of theirs ended without a value
    failed: bool = False
    #: the value of a row of theirs is in a store
    stored: bool = False
    #: a row of theirs was to be cancelled even if it ran: what runs for it alone goes with it
    is_forced: bool = False
    #: by id, what rows of theirs need that is not of the graph
    keep: dict[int, Any] = field(default_factory=dict)


@record
class Announce:
    """Send an object, which is kept by the scheduler until released; or answer `ProvideObject`."""

    id: int
    #: of a stored object where it is; of a failed one its error record
    payload: Frame
    #: its payload is an error record: there is no such value
    failed: bool = False
    #: its payload says in which store it is
    stored: bool = False
    #: of a stored object: what the shell writes it from again
    source: Any = None
    #: of a stored object: `SessionCore.generation` when it was written
    generation: int = 0

    @property
    def kind(self) -> int:
        """As the message says it."""
        return STORED_OBJECT if self.stored else FAILED if self.failed else INLINE


@record
class Restored:
    """The answer to `RestoreObjects`: an object as it was stored again; None if that can't be."""

    id: int
    announce: Announce | None


@record
class Release:
    """Objects that nothing here refers to any more."""

    ids: Sequence[int]


@record
class Cancel:
    """Cancel the rows of these tokens."""

    tokens: Sequence[Any]
    #: also those that run, by ending their workers
    force: bool
    #: how many cancellations of one token each came right before this one, which is of one, too
    streak: int = 0


@record
class Claim:
    """The caller waits for this token inside a task: offer to run its rows here, half of them if there are many."""

    token: Any
    #: so many at most; 0: never mind
    most: int = 0
    #: not those submitted in so many tasks or more, one inside the other: they run elsewhere
    below: int = NESTINGS


@record
class Request:
    """Send a goodbye, a shutdown, a clear, a question about stores. Only the first two are said to a next scheduler."""

    message: DisconnectRequest | ClientShutdown | ClientClear | StoreRequest | ObjectRequest


@record
class ShutdownWithdrawn:
    """Nobody waits for the answer to a shutdown any more: a next scheduler is not asked for it."""


@record
class Arrived:
    """A message of the scheduler."""

    message: Message


@record
class Welcomed:
    """The scheduler accepted this client; unless `resumed`, it knows nothing of it."""

    resumed: bool
    #: seconds between those that are expected of this client
    heartbeat: float
    #: in the cluster
    workers: int
    #: it is another scheduler, at which this client has kept its number: what it has in stores is still there
    returned: bool = False


Event = Submit | Announce | Restored | Release | Cancel | Claim | Request | ShutdownWithdrawn | Arrived | Welcomed


# ---- effects -------------------------------------------------------------------------------------------------------
@record
class Transmit:
    """Send this to the scheduler."""

    message: Message


@record
class Resolve:
    """The rows of these tokens ended."""

    tokens: Sequence[Any]
    span: SpanResult
    task: Task


@record
class RowsBegun:
    """The rows of these tokens have run for a while; a token of None is nobody's."""

    tokens: Sequence[Any]


@record
class CancelRefused:
    """A cancellation was refused: the rows of these tokens run; a token of None is nobody's."""

    tokens: Sequence[Any]


@record
class ClaimGranted:
    """This row is the claimer's to run; nothing more will come for it."""

    task: Task
    row: int
    token: Any
    needs: Sequence[Any]
    #: as it was submitted
    template: Any


@record
class ClaimRefused:
    """The rows of these tokens run elsewhere, or have ended."""

    tokens: Sequence[Any]


@record
class ProvideObject:
    """The scheduler needs the value of a row that ended here, or an object: answer with `Announce`."""

    id: int


@record
class RestoreObjects:
    """The stores are new ones: write these objects again, from their sources, and answer each with `Restored`."""

    objects: Sequence[Announce]


@record
class StoresRenewed:
    """Another scheduler came: what was asked about stores is asked again. Its stores are others, unless `kept`."""

    kept: bool = False


@record
class StoreAnswered:
    """An answer about stores came."""

    message: StoreOffers | ObjectResponse


@record
class Printed:
    """A task of this client printed something."""

    #: 1 for stdout, 2 for stderr, `WARNINGS` for a warning as JSON
    stream: int
    text: str


@record
class RequestAnswered:
    """The answer to a goodbye or a shutdown came."""

    message: DisconnectResponse | ShutdownResponse


Effect = (
    Transmit
    | Resolve
    | CancelRefused
    | RowsBegun
    | ClaimGranted
    | ClaimRefused
    | ProvideObject
    | RestoreObjects
    | StoresRenewed
    | StoreAnswered
    | Printed
    | RequestAnswered
)
