"""How rows ended, and what they said meanwhile."""

from array import array
from dataclasses import field
from typing import ClassVar

from scaler.common.records import record
from scaler.protocol.codes import ERROR, FILE, FILED, LONGEST_NAME, LOST, SIZE, STORED, Frame, sizes_of
from scaler.protocol.messages.columns import column, u8, u32, u64
from scaler.protocol.messages.message import MESSAGE_BYTES, Malformed, Message, check_stored, require, rows_in

#: about what the columns of a `TaskResult` take for a span, bytes
SPAN_BYTES = 48


@record
class TaskResult(Message):
    """How spans of one client's rows ended, agent to scheduler to client."""

    client: int
    batches: "array[int]" = column(u64)
    spans: "array[int]" = column(u32)
    outcomes: "array[int]" = column(u8)
    durations: "array[int]" = column(u32)
    sizes: "array[int]" = column(u32)
    bodies: list[Frame] = field(default_factory=list)
    #: of profiled spans, 0 for others; empty if none is: bytes of memory, microseconds of processor
    peaks: "array[int]" = column(u64)
    processor_times: "array[int]" = column(u64)
    has_bodies: ClassVar[bool] = True
    groups: ClassVar[dict[str, tuple[str, ...]]] = {"profile": ("peaks", "processor_times")}

    @property
    def weight(self) -> int:
        return MESSAGE_BYTES + sum(map(len, self.bodies)) + SPAN_BYTES * len(self.batches) + 4 * len(self.sizes)

    def validate(self) -> None:
        n = len(self.batches)
        rows_in(self.spans)
        if not 2 * n == len(self.spans) == 2 * len(self.outcomes) == 2 * len(self.durations):
            raise Malformed("bounds, an outcome and a duration for each span")
        if self.peaks or self.processor_times:
            require(n == len(self.peaks) == len(self.processor_times), "a profile for each span")
        sizes = 0
        for i, outcome in enumerate(self.outcomes):
            if outcome > STORED and outcome != FILED:
                raise Malformed(f"unknown outcome {outcome}")
            rows = self.spans[2 * i + 1] - self.spans[2 * i]
            if rows != 1 and outcome in (ERROR, LOST):
                raise Malformed("an error is of one row")
            if outcome == STORED:
                require(self.batches[i] + self.spans[2 * i + 1] <= 2**64, "an id of 64 bits for each stored value")
                require(set(self.sizes[sizes : sizes + rows]) <= {SIZE.size}, "eight bytes for each stored value")
            elif outcome == FILED:
                require(set(self.sizes[sizes : sizes + rows]) <= {FILE.size}, "28 bytes for each value that is a file")
            sizes += sizes_of(outcome, rows)
        if sizes != len(self.sizes):
            raise Malformed("sizes as the outcomes have payloads")
        if len(self.bodies) != 1 or sum(self.sizes) != len(self.bodies[0]):
            raise Malformed("the sizes add up to the payload")
        if STORED in self.outcomes or FILED in self.outcomes:
            self._check_places()

    def _check_places(self) -> None:
        """Raise `Malformed` unless stored values can be that large, and those that are files are of their rows."""
        at = index = 0
        for i, outcome in enumerate(self.outcomes):
            lo, hi = self.spans[2 * i], self.spans[2 * i + 1]
            count = sizes_of(outcome, hi - lo)
            end = at + sum(self.sizes[index : index + count])
            if outcome == STORED:
                check_stored(size for (size,) in SIZE.iter_unpack(self.bodies[0][at:end]))
            elif outcome == FILED:
                rows = [file[0] for file in FILE.iter_unpack(self.bodies[0][at:end])]
                require(rows == list(range(self.batches[i] + lo, self.batches[i] + hi)), "a file is of another row")
            at, index = end, index + count


@record
class TaskOutput(Message):
    """Text that a row printed, or a warning that it issued: [module, class, text, file, line] as JSON."""

    client: int
    row: int
    name: str
    stream: int
    text: str

    @property
    def weight(self) -> int:
        return MESSAGE_BYTES + len(self.text)

    def validate(self) -> None:
        require(len(self.name) <= LONGEST_NAME, f"a function's name has at most {LONGEST_NAME:,} characters")
