"""Workers in columns, as a payload frame: what agents tell of theirs goes on to monitors without being looked at.

For n workers the frame has the columns one behind the other, n values each, in the order of the fields below. Several
agents' are frames of theirs, one behind the other.
"""

from array import array
from collections.abc import Iterable
from dataclasses import fields

from scaler.common.records import record
from scaler.protocol.codes import Frame
from scaler.protocol.messages.columns import column, u8, u32, u64
from scaler.protocol.messages.message import require


@record
class WorkerColumns:
    """Workers, a column for each figure."""

    #: resident memory, bytes
    memory: "array[int]" = column(u64)
    #: all rows it was ever handed
    handed: "array[int]" = column(u64)
    #: the row that it runs: its id, its client, its function as an index of the agent's `names` plus 1, and for how
    #: long it has run, milliseconds; all 0 if it runs none
    ids: "array[int]" = column(u64)
    clients: "array[int]" = column(u32)
    functions: "array[int]" = column(u32)
    elapsed: "array[int]" = column(u32)
    #: process ids, and slots of their agent
    pids: "array[int]" = column(u32)
    slots: "array[int]" = column(u32)
    #: use of processors, thousandths of one
    cpus: "array[int]" = column(u32)
    #: rows it was handed and has not reported, and those of them that have not begun
    rows: "array[int]" = column(u32)
    queued: "array[int]" = column(u32)
    #: `WorkerFlag`
    flags: "array[int]" = column(u8)

    def __len__(self) -> int:
        return len(self.pids)

    def pack(self) -> bytes:
        """The frame of one agent's workers."""
        return b"".join([getattr(self, name) for name in COLUMNS])


COLUMNS = tuple(item.name for item in fields(WorkerColumns))
_TYPECODES = tuple(getattr(WorkerColumns(), name).typecode for name in COLUMNS)
_SIZES = tuple(array(typecode).itemsize for typecode in _TYPECODES)
#: of one worker in all columns
WORKER_BYTES = sum(_SIZES)
_FUNCTIONS = sum(_SIZES[: COLUMNS.index("functions")])


def functions_in(frame: Frame, workers: int) -> memoryview:
    """The column `functions` of one agent's frame, which has so many workers."""
    begin = _FUNCTIONS * workers
    return memoryview(frame)[begin : begin + 4 * workers].cast("I")


def unpack(frame: Frame, counts: Iterable[int]) -> WorkerColumns:
    """The workers of several agents, which have so many each. Raises `Malformed`."""
    counts, view = list(counts), memoryview(frame)
    require(len(view) == WORKER_BYTES * sum(counts), f"{WORKER_BYTES} bytes for each worker")
    parts: list[list[memoryview]] = [[] for _ in COLUMNS]
    at = 0
    for count in counts:
        for part, size in zip(parts, _SIZES, strict=True):
            end = at + size * count
            part.append(view[at:end])
            at = end
    made = zip(_TYPECODES, parts, strict=True)
    return WorkerColumns(*[array(typecode, b"".join(part)) for typecode, part in made])
