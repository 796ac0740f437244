"""Rows as they come from the scheduler: ranges of a batch, with what their rows need."""

from array import array
from dataclasses import field
from itertools import accumulate

from scaler.common.records import entity
from scaler.protocol.messages import EACH, FRESH, GRAPH, Frame, Task, u64
from scaler.store.layout import Key

NOTHING: frozenset[int] = frozenset()


@entity
class RowRange:
    """Consecutive rows of one batch, as one message of the scheduler brought them. Never changes."""

    client: int
    task: Task
    #: the rows [lo, hi) of the batch
    lo: int
    hi: int
    #: form EACH: size of each row's payload, where it starts in the body (one more for the end), and the body
    sizes: "array[int] | None" = None
    offsets: "array[int] | None" = None
    body: Frame = b""
    #: per row: (object id, index) of each value it needs
    needs: list[list[tuple[int, int]]] | None = None
    #: the ordinal of the message of rows that brought it
    arrival: int = 0
    #: ids of the stored objects among what its rows need; empty for most
    stored: frozenset[int] = NOTHING
    #: slots of the host that each row takes while it runs: so many workers have one row together
    slots: int = field(init=False)
    #: they are handed out one at a time, whatever they take
    is_alone: bool = field(init=False)
    #: of the batch
    id: int = field(init=False)
    #: whose they are among those that share the workers, and which of those go first
    share: int = field(init=False)
    urgency: int = field(init=False)
    nesting: int = field(init=False)
    #: (client, batch), and (client, name of the function): what estimates are made for
    key: Key = field(init=False)
    function: tuple[int, str] = field(init=False)

    def __post_init__(self) -> None:
        task = self.task
        self.slots = task.threads or 1
        self.is_alone = bool(self.slots > 1 or task.timeout or task.flags & FRESH)
        self.id = task.batch
        self.key = self.client, self.id
        self.function = self.client, task.name
        self.share, self.urgency, self.nesting = task.share_of(self.client), task.urgency, task.nesting

    def goes_before(self, other: "RowRange") -> bool:
        """These rows are to begin before those of another range: they have a higher priority, or are deeper in a tree.

        Neither of two does if they are equal in this, or of different roots: those share the workers.
        """
        if self.urgency <= other.urgency:
            return False
        return self.share == other.share or self.task.priority > other.task.priority

    @property
    def stored_common(self) -> list[Key]:
        """The stored objects that all rows need."""
        task = self.task
        return [(self.client, number) for number in (task.function, task.arguments) if number in self.stored]

    def stored_for(self, row: int) -> list[Key]:
        """The stored objects that a row needs, each once; first those that all need."""
        keys = self.stored_common
        if self.needs is not None:
            stored, client = self.stored, self.client
            keys += [(client, object_id) for object_id, _ in self.needs[row - self.lo] if object_id in stored]
        return keys if len(keys) < 2 else list(dict.fromkeys(keys))

    def wanted(self, lo: int, hi: int) -> bytes | None:
        """For each of these rows more than 0 if its client wants the value, 0 if only others do; None: it wants all."""
        task = self.task
        return task.wanted[lo:hi].tobytes() if task.form == GRAPH and task.wanted else None


def row_ranges_of(task: Task, arrival: int = 0) -> list[RowRange]:
    """What a Task message brings, one for each of its spans."""
    bounds = task.spans
    stored = frozenset(task.stored) if task.stored else NOTHING
    if len(bounds) == 2 and not task.dependency_counts:
        rows = RowRange(task.client, task, bounds[0], bounds[1], arrival=arrival, stored=stored)
        if task.form == EACH:
            rows.sizes, rows.body = task.sizes, task.bodies[0]
            rows.offsets = u64(accumulate(task.sizes, initial=0))
        return [rows]
    ranges = []
    at = dependency = offset = 0
    view = memoryview(task.bodies[0]) if task.form == EACH else memoryview(b"")
    for lo, hi in zip(bounds[::2], bounds[1::2], strict=True):
        rows = RowRange(task.client, task, lo, hi, arrival=arrival, stored=stored)
        n = hi - lo
        if task.form == EACH:
            rows.sizes = task.sizes[at : at + n]
            rows.offsets = u64(accumulate(rows.sizes, initial=0))
            rows.body = bytes(view[offset : offset + rows.offsets[-1]])
            offset += rows.offsets[-1]
        if task.dependency_counts:
            rows.needs = []
            for count in task.dependency_counts[at : at + n]:
                end = dependency + count
                rows.needs.append(
                    list(zip(task.dependencies[dependency:end], task.indexes[dependency:end], strict=True))
                )
                dependency = end
        at += n
        ranges.append(rows)
    return ranges
