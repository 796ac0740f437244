"""What the decisions of the core return: moves, to be made one after the other by the worklist."""

from collections.abc import Sequence
from typing import NamedTuple

from scaler.protocol.messages import Frame
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import Batch
from scaler.scheduler.state.client_records import ClientRecord


class Route(NamedTuple):
    """Rows that have all they ask for, or have come back: it is to be decided where they go."""

    batch: Batch
    lo: int
    hi: int
    #: see `Cause`
    cause: int
    #: before other rows of their client, if they are queued
    front: bool


class Queue(NamedTuple):
    """Rows wait for an agent."""

    batch: Batch
    lo: int
    hi: int
    cause: int
    front: bool


class Place(NamedTuple):
    """Rows that are in no queue go to an agent."""

    batch: Batch
    lo: int
    hi: int
    agent: AgentRecord
    cause: int


class Hold(NamedTuple):
    """A row waits until lost objects that it needs are made again."""

    batch: Batch
    row: int
    values: list[int]
    cause: int


class Fail(NamedTuple):
    """A row can't run because of an error, and with it all rows that depend on it."""

    batch: Batch
    row: int
    record: Frame


class Remake(NamedTuple):
    """A lost value is needed: its row runs again, or its client is asked for it."""

    client: ClientRecord
    value: int
    #: its lineage may know who made the value; None if no row asks
    needed_by: Batch | None


class AskClient(NamedTuple):
    """A client is asked for values that it made or was given."""

    client: ClientRecord
    values: Sequence[int]


class Reread(NamedTuple):
    """A value that was lost is there again, or never will be: whoever wants to read it is told."""

    client: ClientRecord
    value: int


Move = Route | Queue | Place | Hold | Fail | Remake | AskClient | Reread
