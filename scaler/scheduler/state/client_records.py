"""A client at the scheduler: what it is, its batches, its values, and what it wants to read."""

from __future__ import annotations

from collections import deque
from dataclasses import field

from scaler.common.line_limit import LineLimit
from scaler.common.records import entity, record
from scaler.common.sorted_numbers import SortedNumbers
from scaler.protocol.messages import Frame
from scaler.scheduler.state.batch_records import Batch, Row, not_ended
from scaler.scheduler.state.function_records import MOST, FunctionRecord
from scaler.scheduler.state.object_records import ObjectRecord

#: functions of a client that the log names in a minute for what no agent has
UNMET_LINES = 20


@record
class ClientValues:
    """The objects of a client, and the values that are not there: not yet, or not any more."""

    objects: dict[int, ObjectRecord] = field(default_factory=dict)
    #: row id -> its batch, for rows whose values may be needed by other rows
    batch_of_row: dict[int, Batch] = field(default_factory=dict)
    #: row id -> (id of a list object, index): values that are elements of a list
    element_of: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: row id -> (error record, dependents that have not come yet), of rows that failed
    failed: dict[int, tuple[Frame, int]] = field(default_factory=dict)
    #: value id -> rows that wait for the client to send it
    awaited: dict[int, list[Row]] = field(default_factory=dict)
    #: ids of values that the client was asked for and has not answered
    asked: set[int] = field(default_factory=set)
    #: ids of values that the client could not send, and that only rows wait for which agents have: they have them, too
    refused: set[int] = field(default_factory=set)
    #: ids of stored objects that no store has any more
    lost: set[int] = field(default_factory=set)
    #: id of a lost value -> rows that wait until it is made or sent again
    remaking: dict[int, list[Row]] = field(default_factory=dict)
    #: id of a lost value -> number of the agent that has to be able to fetch it once it is made again
    required_zones: dict[int, int] = field(default_factory=dict)
    #: rows of the batches that are known whose arguments did not come with them
    rows_apart: int = 0
    #: some of its objects are or were in stores
    has_stored: bool = False

    def object_id_of(self, value: int) -> int:
        """The id of the object that a value is in: its own, or that of a list."""
        place = self.element_of.get(value)
        return place[0] if place else value

    def end_remaking(self, value: int) -> list[Row]:
        """A lost value is there again, or never will be: the rows that still wait for it."""
        self.required_zones.pop(value, None)
        return not_ended(self.remaking.pop(value, ()))


@record
class GraphBatches:
    """The batches of a graph, of whose rows agents keep how they ended until all are over."""

    known: int = 0
    #: of those: the id, and the numbers of the agents; none of batches of which no agent keeps anything
    over: list[tuple[int, set[int]]] = field(default_factory=list)


@record
class Settling:
    """Which results of agents have reached a client, with all that followed from them."""

    #: number of an agent -> messages of results that it has sent of the client's rows
    results: dict[int, int] = field(default_factory=dict)
    #: the same of this step alone
    fresh: dict[int, int] = field(default_factory=dict)
    #: (how many messages the client has to have received, number of the agent, how many of its are settled then)
    unsettled: deque[tuple[int, int, int]] = field(default_factory=deque)
    #: messages that the client has received
    received: int = 0


@record
class ClientReads:
    """Stored objects that a client wants to read."""

    #: id of the object -> number of the agent that was asked to have it; 0: it is being made again, or looked for
    under_way: dict[int, int] = field(default_factory=dict)
    #: id of an object under way -> the agents that were named to that one: it knows of no others
    named: dict[int, set[int]] = field(default_factory=dict)
    #: id of the object -> how often that has failed
    failures: dict[int, int] = field(default_factory=dict)
    #: id of the object -> why an agent could not have it readable, the last one that said so
    troubles: dict[int, str] = field(default_factory=dict)
    #: the client can't use the directory of any agent on its host: the standalone store has to do
    uses_standalone: bool = False
    #: when it looked for a store no agent with workers was on its host: it is told when one comes
    wants_local: bool = False


@record
class Unread:
    """What a client has not acknowledged, while that is more than it may leave unread."""

    #: when it was that much
    bytes: int
    #: when it has acknowledged something last, seconds; later if the next message is large
    since: float
    #: the log has told of it
    is_told: bool = False
    #: characters that its rows have printed and that it is not sent
    left_out: int = 0
    #: the row that printed the last of them, and its function's name
    printed_by: tuple[int, str] = (0, "")


@entity
class ClientRecord:
    """A client and all that is scheduled for it."""

    number: int
    name: str
    #: the host it runs on
    boot_id: str
    #: time of its last message, seconds
    seen: float
    #: its own number of its session
    session: int = 0
    #: what tasks made for its sake are known by: see `roots.py`
    root: int = 0
    #: of one in a worker: the directory of its agent's store
    store: str = ""
    #: id -> batch with rows that have not ended
    batches: dict[int, Batch] = field(default_factory=dict)
    #: the keys of `batches`
    batch_ids: SortedNumbers = field(default_factory=SortedNumbers)
    #: id -> batch whose rows have all ended, kept since what they made may be lost
    remembered: dict[int, Batch] = field(default_factory=dict)
    #: name -> what is known of the function
    functions: dict[str, FunctionRecord] = field(default_factory=dict)
    #: when there are so many of them, those that had no rows for the longest time are put together
    most_functions: int = MOST
    values: ClientValues = field(default_factory=ClientValues)
    reads: ClientReads = field(default_factory=ClientReads)
    #: rows that have not ended; written by `transitions.py` alone
    outstanding: int = 0
    #: id of a graph's first row -> how many of its batches are known, and those that are over
    graphs: dict[int, GraphBatches] = field(default_factory=dict)
    settling: Settling = field(default_factory=Settling)
    #: numbers of the agents that may have something of it; they and it know that
    agents: set[int] = field(default_factory=set)
    #: its rows are held back, as it does not read what it is sent; None: it does
    unread: Unread | None = None
    #: lines of the log that say what its functions need and no agent has
    unmet_lines: LineLimit = field(default_factory=lambda: LineLimit(UNMET_LINES))
    #: its rows are held back, as it cancels them one by one
    is_cancelling: bool = False
    #: bytes of memory that are kept here for it; see `accounts.py`
    kept: int = 0
    #: it is in the scheduler's process and may keep what it likes: its rows are in the journal
    is_resident: bool = False
    #: the log has told that it keeps the most
    is_told_to_keep: bool = False

    @property
    def is_held(self) -> bool:
        """None of its rows that is at no agent goes to one."""
        return self.is_cancelling or self.unread is not None
