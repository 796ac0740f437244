"""Rows to be run."""

from array import array
from dataclasses import field
from typing import ClassVar

from scaler.common.records import record
from scaler.protocol.codes import (
    EACH,
    FRESH,
    GRAPH,
    LONGEST_NAME,
    MAX_PATH,
    MAX_ROWS,
    MAX_WORKERS,
    MOST_SECONDS,
    NO_ROOT,
    TOGETHER,
    Encoding,
    Frame,
)
from scaler.protocol.messages.columns import column, i32, seldom, u8, u32, u64
from scaler.protocol.messages.message import (
    MESSAGE_BYTES,
    Malformed,
    Message,
    check_capabilities,
    check_holders,
    require,
    rows_in,
)


@record
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
    dependency_counts: "array[int]" = seldom(u32)
    dependencies: "array[int]" = seldom(u64)
    indexes: "array[int]" = seldom(i32)
    uses: "array[int]" = seldom(u32)
    wanted: "array[int]" = seldom(u8)
    #: of graphs: the id of the first row; `uses` counts the rows of the graph alone
    graph: int = 0
    objects: "array[int]" = column(u64)
    #: to agents: the stored objects that these rows need, and which agents have each
    stored: "array[int]" = seldom(u64)
    stored_sizes: "array[int]" = seldom(u64)
    holder_counts: "array[int]" = seldom(u32)
    holders: "array[int]" = seldom(u32)
    bodies: list[Frame] = field(default_factory=list)
    #: of its function, arguments and values
    encoding: int = Encoding.PICKLE.value
    #: slots of a host that a row takes; 0 for one
    threads: int = 0
    #: of durable jobs: what the paths of files begin with that large results go to; empty: into messages
    results: str = ""
    #: of clients that return: bounds of the rows that have ended for them, ascending
    ended: "array[int]" = seldom(u32)
    #: to agents: bounds of those of these rows that were lost with a worker before: each runs alone, and claims nothing
    lost: "array[int]" = seldom(u32)
    #: the client whose leaving ends these rows, as that of the sender does: what a task of it was told; 0: the sender
    #: itself, `NO_ROOT`: nobody
    root: int = 0
    #: tasks, one inside the other, that these rows are submitted in: of one root, deeper ones go first
    nesting: int = 0
    has_bodies: ClassVar[bool] = True
    #: fields that are rarely set travel in structs of their own, which are then absent
    groups: ClassVar[dict[str, tuple[str, ...]]] = {
        "options": ("priority", "retries", "timeout", "capabilities", "encoding", "threads", "results", "nesting"),
        "needs": ("dependency_counts", "dependencies", "indexes", "uses", "wanted", "graph"),
        "places": ("stored", "stored_sizes", "holder_counts", "holders"),
        "again": ("ended", "lost"),
    }

    @property
    def weight(self) -> int:
        # of its columns those that have a number for each row, or need
        return MESSAGE_BYTES + sum(map(len, self.bodies)) + 4 * len(self.sizes) + 12 * len(self.dependencies)

    def share_of(self, client: int) -> int:
        """Whose these rows of a client are, among those that share workers: a root, or the client if there is none."""
        return client if self.root in (0, NO_ROOT) else self.root

    @property
    def urgency(self) -> int:
        """What is larger runs earlier, of rows of one root: by priority, then nesting."""
        return self.priority << 16 | self.nesting

    @property
    def may_be_claimed(self) -> bool:
        """A task that waits for its rows may run them itself: once, on its own slot, for as long as they take.

        Not those that need a process that can be ended with them, that run again if they fail, or that choose their
        host.
        """
        has_demands = self.flags & FRESH or self.retries or self.timeout or self.capabilities or self.threads > 1
        return self.form != GRAPH and not has_demands

    def validate(self) -> None:
        if self.encoding != Encoding.PICKLE:
            raise Malformed(f"unknown encoding {self.encoding}")
        if self.form not in (EACH, TOGETHER, GRAPH):
            raise Malformed(f"unknown form {self.form}")
        if not 0 < self.rows <= MAX_ROWS:
            raise Malformed(f"a batch has 1 to {MAX_ROWS} rows")
        if not 0.0 <= self.timeout < MOST_SECONDS:
            raise Malformed("a timeout is a positive number of seconds")
        if len(self.name) > LONGEST_NAME:
            raise Malformed(f"a function's name of more than {LONGEST_NAME:,} characters")
        if self.capabilities:
            check_capabilities(self.capabilities)
        if self.threads > MAX_WORKERS:
            raise Malformed(f"a row takes at most {MAX_WORKERS:,} threads")
        if self.results:
            require(self.results.startswith("/") and len(self.results) <= MAX_PATH, "a path begins with a /")
            require(self.results.isprintable(), "a path is printable")
        meant = rows_in(self.spans, self.rows)
        bodies = len(self.objects)
        if self.form == EACH:
            bodies += 1
            if len(self.sizes) != meant:
                raise Malformed("a size for each row")
            if not self.bodies or sum(self.sizes) != len(self.bodies[0]):
                raise Malformed("the sizes add up to the payload")
        else:
            require(len(self.sizes) == 0, "only rows with own payloads have sizes")
        if len(self.bodies) != bodies:
            raise Malformed("a frame for each object, and one for the payloads")
        if self.dependency_counts or self.dependencies or self.indexes:
            require(len(self.dependency_counts) == meant, "a dependency count for each row")
            require(sum(self.dependency_counts) == len(self.dependencies), "the dependency counts add up")
            require(len(self.indexes) in (0, len(self.dependencies)), "an index for each dependency")
        if self.ended:
            rows_in(self.ended, self.rows)
            require(list(self.ended) == sorted(self.ended), "ended rows ascend")
        if self.lost:
            require(rows_in(self.lost, self.rows) <= self.rows, "each row is lost once")
        if self.stored:
            check_holders(self.stored, self.stored_sizes, self.holder_counts, self.holders)
        if self.form == GRAPH:
            require(
                len(self.uses) in (0, self.rows) and len(self.wanted) in (0, self.rows),
                "graph columns have a value for each row",
            )
