"""Rows that are named: those that run, are taken out, claimed or given back.

What anybody may ask a scheduler for costs it some microseconds for each span, whoever has the rows. So what asks for
rows names `MOST_SPANS` at most, and has to be said in parts if there are more: between two messages others are served,
and whoever asks for too much at once waits where all wait, in its connection. What agents say of rows that they have
is not limited: they were given these.
"""

from array import array
from collections.abc import Iterator
from typing import ClassVar, Self

from scaler.common.records import record
from scaler.protocol.codes import MOST_SPANS
from scaler.protocol.messages.columns import column, u32, u64
from scaler.protocol.messages.message import Malformed, Message, require, rows_in


@record
class Spans(Message):
    """A list of spans of any clients' batches."""

    clients: "array[int]" = column(u32)
    batches: "array[int]" = column(u64)
    spans: "array[int]" = column(u32)

    def add(self, client: int, batch: int, lo: int, hi: int) -> None:
        """Append one span."""
        self.clients.append(client)
        self.batches.append(batch)
        self.spans.append(lo)
        self.spans.append(hi)

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        return zip(self.clients, self.batches, self.spans[::2], self.spans[1::2], strict=True)

    def __bool__(self) -> bool:
        return len(self.batches) > 0

    def parts(self) -> list[Self]:
        """The same spans in their order, as many in each part as one message may ask for."""
        if len(self.batches) <= MOST_SPANS:
            return [self]
        return [
            type(self)(self.clients[at:end], self.batches[at:end], self.spans[2 * at : 2 * end])
            for at, end in ((at, at + MOST_SPANS) for at in range(0, len(self.batches), MOST_SPANS))
        ]

    def validate(self) -> None:
        rows_in(self.spans)
        require(len(self.clients) == len(self.batches) == len(self.spans) // 2, "columns of one length")


def _check_number(spans: Spans) -> None:
    """Raise `Malformed` for more spans than one message may ask for."""
    if len(spans.batches) > MOST_SPANS:
        raise Malformed(f"{len(spans.batches):,} spans, of which it may name {MOST_SPANS:,}")


class TaskBegun(Spans):
    """These rows have run for a while; told once for each, of those that take long."""

    __slots__ = ()


class TaskRunning(Spans):
    """These rows can't be cancelled: they have begun."""

    __slots__ = ()


@record
class TaskCancel(Message):
    """Take these rows out; with `force` even if they run."""

    spans: Spans
    force: bool = False

    def parts(self) -> "list[TaskCancel]":
        """As `Spans.parts`."""
        return [TaskCancel(part, self.force) for part in self.spans.parts()]

    def validate(self) -> None:
        _check_number(self.spans)
        self.spans.validate()


class TaskHold(Spans):
    """A client's rows are to wait until it names none, while it cancels these one by one. Back: those that do wait."""

    is_answer: ClassVar[bool] = True

    __slots__ = ()

    def validate(self) -> None:
        _check_number(self)
        Spans.validate(self)


class TaskClaim(Spans):
    """A client inside a task waits for these rows of its own and offers to run those that have not begun."""

    __slots__ = ()

    def validate(self) -> None:
        _check_number(self)
        Spans.validate(self)


@record
class TaskClaimResponse(Message):
    """Granted rows are the claimer's to run, refused ones have begun or ended elsewhere."""

    is_answer: ClassVar[bool] = True

    granted: Spans
    refused: Spans

    def validate(self) -> None:
        self.granted.validate()
        self.refused.validate()


@record
class BalanceRequest(Message):
    """Give back this many rows that have not begun and take so many threads each, of these batches or of any."""

    rows: int
    #: as in `Task`: 0 for rows that take one slot
    threads: int = 0
    #: the batches from which rows are wanted; none are named: any
    clients: "array[int]" = column(u32)
    batches: "array[int]" = column(u64)

    def validate(self) -> None:
        require(len(self.clients) == len(self.batches), "columns of one length")


class BalanceResponse(Spans):
    """These rows, not begun, came back from an agent."""

    __slots__ = ()
