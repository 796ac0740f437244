"""What was lost with a host: computed again from the batch that made it, asked of the client again, or given up.

A row that needs a lost object waits until the object is there again. To compute a value again its row moves from
*done* back to *waiting*; when it ends again, nothing is said to the client, but those who wait for the value go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler.protocol.failures import result_lost
from scaler.protocol.messages import ERROR, STORED, VALUES_EACH, Frame, ObjectRequest, u32, u64
from scaler.protocol.results import SpanResult, stored_sizes
from scaler.scheduler.core.state import DONE, QUEUED, WAITING, Agent, Batch, Client, Object

if TYPE_CHECKING:
    from scaler.scheduler.core.rows import Rows

Failure = tuple[Batch, int, Frame]


class Recovery:
    """See the module's text. `failed` collects rows that have to fail, for whoever called."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._objects = rows.objects

    # ---- waiting ---------------------------------------------------------------------------------------------------
    def wait(self, client: Client, batch: Batch, row: int, lacking: list[int]) -> None:
        """Let a row that could run wait for lost objects."""
        if batch.missing is None:
            batch.missing = u32([0]) * batch.rows
        if batch.place[row] != WAITING:
            batch.move(row, row + 1, WAITING)
        for value in lacking:
            self.await_value(client, batch, row, value)

    def await_value(self, client: Client, batch: Batch, row: int, value: int) -> None:
        """Let a row wait for one lost value, and see that it is made again. The row keeps its reference to it."""
        assert batch.missing is not None
        batch.missing[row] += 1
        waiting = client.lost.get(value)
        if waiting is None:
            self.recover(client, value, batch)
            waiting = client.lost[value]
        waiting.append((batch, row))

    def recover(self, client: Client, value: int, needed_by: Batch | None = None) -> None:
        """See that a lost value is made again: by its row, or by the client."""
        if value in client.lost:
            return
        client.lost[value] = []
        source = self._source(client, value, needed_by)
        if source is None:
            self._rows.ask_client(client, value)
            return
        batch, row = source
        if batch.place[row] != DONE:
            return  # it is being made already
        client.lineage.pop(batch.id, None)
        client.batches[batch.id] = batch
        batch.again.add(row)
        if value in client.near:
            batch.near[row] = client.near.pop(value)
        batch.left += 1
        client.outstanding += 1
        batch.move(row, row + 1, WAITING)
        if batch.needs is not None:
            for need in batch.needs[row]:
                self._need_again(client, batch, row, need)
        if batch.missing is None or not batch.missing[row]:
            self._rows.make_ready(client, batch, row, row + 1)

    def _need_again(self, client: Client, batch: Batch, row: int, value: int) -> None:
        assert batch.missing is not None
        item = client.objects.get(self._objects.located(client, value))
        if item is not None:
            item.references += 1
            return  # if it is lost, `make_ready` notices
        self.await_value(client, batch, row, value)

    @staticmethod
    def _source(client: Client, value: int, needed_by: Batch | None) -> tuple[Batch, int] | None:
        item = client.objects.get(value)
        if item is not None:
            return item.source
        kept = client.kept.get(value)
        for batch in (kept,) if kept is not None else needed_by.upstream if needed_by is not None else ():
            if batch.id <= value < batch.id + batch.rows:
                return batch, value - batch.id
        return None

    # ---- made again ------------------------------------------------------------------------------------------------
    def ended(self, client: Client, agent: Agent | None, batch: Batch, row: int, span: SpanResult) -> list[Failure]:
        """A row that was computed again has ended, its value with a payload of its own; the rows that fail with it."""
        value, failures = batch.id + row, []
        waiting = [(b, r) for b, r in client.lost.pop(value, ()) if b.place[r] == WAITING]
        item = client.objects.get(value)
        late = [(b, r) for b, r in batch.waiters.pop(row, ()) if b.place[r] == WAITING]
        if item is not None:
            item.references += len(late)
        waiting += late
        if span.outcome == STORED and agent is not None:
            (size,) = stored_sizes(span)
            if item is not None:
                item.size = size
                self._objects.has(client, agent, value, item)
            elif waiting:
                self._objects.stored_by_row(client, agent, batch, row, size, len(waiting))
            else:
                self._objects.release(agent, client.number, value, size)
        elif span.outcome == VALUES_EACH:
            self._small(client, batch, value, item, span.body, len(waiting))
        else:
            record = span.body if span.outcome == ERROR else result_lost(batch.task.name, value).encode()
            failures = [(b, r, record) for b, r in waiting]
            waiting = []
        self._rows.reread(client, value)
        self.settle(client, batch, row)
        self._rows.one_less_missing(waiting)
        return failures

    def _small(
        self, client: Client, batch: Batch, value: int, item: Object | None, payload: Frame, waiting: int
    ) -> None:
        """This time the value is small: it travels inside messages."""
        if item is None:
            if waiting:
                client.objects[value] = Object(bytes(payload), waiting)
            return
        self._objects.is_small_now(client, value, item, bytes(payload))
        item.source = None
        self._objects.unpin(client, batch)

    def settle(self, client: Client, batch: Batch, row: int) -> None:
        """A row that was computed again is done with: let go of what it needed for that."""
        batch.again.discard(row)
        batch.near.pop(row, None)
        if batch.needs is not None:
            for need in batch.needs[row]:
                self._objects.unreference(client, self._objects.located(client, need))
        if not batch.left:
            self._objects.end(client, batch)

    def failed(self, client: Client, batch: Batch, row: int, record: Frame) -> list[Failure]:
        """A row that was to be computed again can't be; the rows that fail with it."""
        value = batch.id + row
        waiting = [*client.lost.pop(value, ()), *batch.waiters.pop(row, ())]
        self._rows.reread(client, value)
        self.settle(client, batch, row)
        return [(b, r, record) for b, r in waiting if b.place[r] == WAITING]

    def announced(self, client: Client, value: int, item: Object) -> None:
        """The client sent a lost object again."""
        waiting = client.lost.pop(value, None)
        self._rows.reread(client, value)
        if waiting:
            self._rows.one_less_missing([(b, r) for b, r in waiting if b.place[r] == WAITING])

    def refused(self, client: Client, value: int, record: Frame) -> list[Failure]:
        """The client can't send a lost object again; the rows that fail."""
        waiting = client.lost.pop(value, ())
        self._rows.reread(client, value)
        return [(batch, row, record) for batch, row in waiting if batch.place[row] == WAITING]

    # ---- hosts are lost --------------------------------------------------------------------------------------------
    def copies_lost(self, number: int, keys: list[tuple[int, int]]) -> None:
        """The store of an agent does not have these any more: rows that could run and need what is lost wait."""
        affected: dict[Client, None] = {}
        for client_number, object_id in keys:
            client = self._rows.clients.get(client_number)
            if client is not None and self._objects.has_not(client, number, object_id):
                affected[client] = None
        for client in affected:
            for batch in list(client.batches.values()):
                for lo, hi in batch.spans_in(QUEUED):
                    for row in range(lo, hi):
                        lacking = self._objects.lacking(client, batch, row)
                        if lacking:
                            self._rows.unqueue(batch, row)
                            self.wait(client, batch, row, lacking)

    @staticmethod
    def request(client: Client, value: int) -> ObjectRequest:
        """What asks a client for an object."""
        return ObjectRequest(u32([client.number]), u64([value]))
