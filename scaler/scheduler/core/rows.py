"""The life of rows and objects: admitted, made ready, ended, given back, lost.

Every change of a row's place goes through this file, so that `TRANSITIONS` can be checked against it. A row that ends
is said to its client once; values that other rows need become objects, counted by the rows that need them.
"""

from collections.abc import Iterable

from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    LOST,
    VALUES_EACH,
    VALUES_LIST,
    Frame,
    ObjectRequest,
    Task,
    u32,
    u64,
)
from scaler.results import NO_SIZES, SpanResult, values_of
from scaler.scheduler.core.outbox import Outbox
from scaler.scheduler.core.placement import Placement
from scaler.scheduler.core.queues import ReadyQueues
from scaler.scheduler.core.state import AGENT, DONE, QUEUED, WAITING, Agent, Batch, Client, Object
from scaler.serialize.record import encode_error

#: ids of list objects, made here, have this bit; clients' ids never do
LIST_OBJECT = 1 << 63


def _still_waiting(rows: Iterable[tuple[Batch, int]]) -> list[tuple[Batch, int]]:
    return [(batch, row) for batch, row in rows if batch.place[row] == WAITING]


class Rows:
    """All batches and objects of all clients."""

    def __init__(self, queues: ReadyQueues, placement: Placement, outbox: Outbox, retries_on_loss: int) -> None:
        self.clients: dict[int, Client] = {}
        self.agents: dict[int, Agent] = {}
        self._queues = queues
        self._placement = placement
        self._outbox = outbox
        self._retries_on_loss = retries_on_loss

    # ---- coming in -------------------------------------------------------------------------------------------------
    def admit(self, client: Client, task: Task) -> None:
        """Take a client's batch; one that is known already is ignored. Rows whose values are all there are queued."""
        if task.batch in client.batches:
            return
        payloads = task.bodies[1:] if task.sizes else task.bodies
        for object_id, payload in zip(task.objects, payloads, strict=True):
            client.objects.setdefault(object_id, Object(payload))
        batch = Batch.of(client.number, task)
        missing = []
        for object_id in (task.function, task.arguments) if task.arguments else (task.function,):
            if object_id in client.objects:
                client.objects[object_id].references += 1
            else:
                missing.append(object_id)
        client.batches[batch.id] = batch
        client.outstanding += batch.rows
        if missing:
            record = encode_error(
                "object", message=f"object {missing[0]} of {task.name} was never sent, or is released already"
            )
            self._account(client, batch, 0, batch.rows, WAITING)
            self._fail_rows(client, [(batch, row, record) for row in range(batch.rows)])
            return
        if batch.keeps:
            client.kept.update(dict.fromkeys(range(batch.id, batch.id + batch.rows), batch))
        if task.dependencies:
            self._admit_dependent(client, batch)
        elif not self._placement.place_at_once(batch):
            self._queue(batch, 0, batch.rows)

    def _admit_dependent(self, client: Client, batch: Batch) -> None:
        task, at = batch.task, 0
        counts = task.dependency_counts
        batch.needs = needs = []
        batch.missing = missing = u32([0]) * batch.rows
        values = task.dependencies.tolist()
        failures: list[tuple[Batch, int, Frame]] = []
        for row, count in enumerate(counts):
            wanted = tuple(values[at : at + count])
            at += count
            needs.append(wanted)
            record = None
            for value in wanted:
                record = self._await_value(client, batch, row, value) or record
            if record is not None:
                failures.append((batch, row, record))
        lo = None
        failed = {row for _, row, _ in failures}
        for row in range(batch.rows + 1):
            ready = row < batch.rows and not missing[row] and row not in failed
            if ready and lo is None:
                lo = row
            elif not ready and lo is not None:
                self._queue(batch, lo, row)
                lo = None
        if failures:
            self._fail_rows(client, failures)

    def _await_value(self, client: Client, batch: Batch, row: int, value: int) -> Frame | None:
        """Let a row wait for a value unless it is there; the error record if it never will be."""
        assert batch.missing is not None
        place = client.located.get(value)
        item = client.objects.get(place[0] if place else value)
        if item is not None:
            item.references += not (item.counted and batch.keeps)
            return None
        failure = client.failed.get(value)
        if failure is not None:
            record, others = failure
            if batch.keeps and others > 1:
                client.failed[value] = record, others - 1
            elif batch.keeps:
                del client.failed[value]
            return record
        source = client.kept.get(value) or self._batch_of(client, value)
        if source is not None and source.place[value - source.id] != DONE:
            source.waiters.setdefault(value - source.id, []).append((batch, row))
            batch.missing[row] += 1
            return None
        waiting = client.requested.get(value)
        if waiting is None:
            waiting = client.requested[value] = []
            self._outbox.send(client.number, ObjectRequest(u32([client.number]), u64([value])))
        waiting.append((batch, row))
        batch.missing[row] += 1
        return None

    def _batch_of(self, client: Client, row_id: int) -> Batch | None:
        """The live batch that a row id belongs to. Rare: a future used as an argument while it is pending."""
        best = max((first for first in client.batches if first <= row_id), default=None)
        if best is None:
            return None
        batch = client.batches[best]
        return batch if row_id < batch.id + batch.rows else None

    def announce(self, client: Client, value: int, payload: Frame, failed: bool) -> None:
        """The client sent an object, or the value of a row that was asked of it."""
        waiting = client.requested.pop(value, None)
        if failed:
            self._fail_rows(client, [(batch, row, payload) for batch, row in waiting or ()])
            return
        item = client.objects.get(value)
        if item is None:
            item = client.objects[value] = Object(payload)
        if waiting is None:
            if not item.held:
                item.held = True
                item.references += 1
            return
        waiting = _still_waiting(waiting)
        item.references += len(waiting)
        self._one_less_missing(waiting)
        if not waiting and not item.references:
            del client.objects[value]

    def release(self, client: Client, object_id: int) -> None:
        """The client doesn't hold an object any more."""
        item = client.objects.get(object_id)
        if item is not None and item.held:
            item.held = False
            self._unreference(client, object_id)

    # ---- results ---------------------------------------------------------------------------------------------------
    def ended(self, agent: Agent, client: Client, batch: Batch, span: SpanResult) -> None:
        """An agent says how rows that it had ended."""
        lo, hi = span.lo, span.hi
        self._leave(agent, batch, lo, hi)
        if span.outcome == LOST:
            self._lost_row(client, batch, lo, span)
        elif span.outcome == ERROR and batch.tries.get(lo, 0) < batch.task.retries:
            batch.tries[lo] = batch.tries.get(lo, 0) + 1
            self._requeue(batch, lo, hi)
        else:
            self._finish(client, batch, span, AGENT)

    def _lost_row(self, client: Client, batch: Batch, row: int, span: SpanResult) -> None:
        losses = batch.losses[row] = batch.losses.get(row, 0) + 1
        if losses <= self._retries_on_loss:
            self._requeue(batch, row, row + 1)
            return
        what = bytes(span.body).decode(errors="replace")
        name = batch.task.name
        words = f"task {name} ({batch.id + row}): {what}; attempt {losses} of {losses}, given up"
        record = encode_error("lost", "scaler.errors.WorkerLost", words, function=name)
        self._finish(
            client,
            batch,
            SpanResult(batch.id, row, row + 1, ERROR, span.duration, 0, u32([len(record)]), record),
            AGENT,
        )

    def given_back(self, agent: Agent, batch: Batch, lo: int, hi: int) -> None:
        """Rows come back from an agent without having begun."""
        self._leave(agent, batch, lo, hi)
        self._requeue(batch, lo, hi)

    def agent_lost(self, agent: Agent, reason: str) -> None:
        """An agent is gone: its rows run elsewhere, and what only it held is forgotten."""
        del self.agents[agent.number]
        self._placement.remove(agent)
        self._outbox.agents.pop(agent, None)
        for batch in agent.batches:
            if not batch.at.pop(agent.number, 0):
                continue
            for lo, hi in batch.spans_in(AGENT + agent.number):
                for row in range(lo, hi):
                    losses = batch.losses.get(row, 0)
                    if losses:  # was lost with a worker before: hosts that die with it count too
                        batch.losses[row] = losses + 1
                self._requeue(batch, lo, hi)
        for client_number, object_id in agent.holds:
            owner = self.clients.get(client_number)
            if owner is not None and object_id in owner.objects:
                owner.objects[object_id].holders.discard(agent.number)

    def withdraw(
        self, client: Client, batch: Batch, lo: int, hi: int
    ) -> tuple[list[tuple[int, int]], dict[int, list[tuple[int, int]]]]:
        """Take rows that no agent has out of their places; the spans taken, and by agent those that are not here."""
        taken: list[tuple[int, int]] = []
        elsewhere: dict[int, list[tuple[int, int]]] = {}
        column, row = batch.place, lo
        while row < hi:
            place, end = column[row], row + 1
            while end < hi and column[end] == place:
                end += 1
            if place >= AGENT:
                elsewhere.setdefault(place - AGENT, []).append((row, end))
            elif place != DONE:
                if place == QUEUED:
                    self._queues.remove(batch, row, end)
                taken.append((row, end))
            row = end
        return taken, elsewhere

    def cancel(self, client: Client, batch: Batch, lo: int, hi: int) -> None:
        """End rows that were withdrawn as cancelled, but for those that have ended with a row that they depend on."""
        row = lo
        while row < hi:
            end = row + 1
            if batch.place[row] != DONE:
                while end < hi and not batch.keeps and batch.place[end] != DONE:
                    end += 1
                self._finish(client, batch, SpanResult(batch.id, row, end, CANCELLED, 0, 0, NO_SIZES, b""), None)
            row = end

    def hand_over(self, client: Client, batch: Batch, lo: int, hi: int) -> None:
        """Rows were claimed: their client runs them itself, and nothing is sent about them."""
        self._account(client, batch, lo, hi, DONE)
        for row in [row for row in batch.waiters if lo <= row < hi]:
            value = batch.id + row
            client.requested.setdefault(value, []).extend(batch.waiters.pop(row))
            self._outbox.send(client.number, ObjectRequest(u32([client.number]), u64([value])))
        self._after(client, batch, lo, hi)

    def leave(self, agent: Agent, batch: Batch, lo: int, hi: int) -> None:
        """Rows are not at this agent any more; the caller puts them somewhere."""
        self._leave(agent, batch, lo, hi)

    # ---- the moves -------------------------------------------------------------------------------------------------
    def _queue(self, batch: Batch, lo: int, hi: int) -> None:
        batch.move(lo, hi, QUEUED)
        self._queues.append(batch, lo, hi)

    def _requeue(self, batch: Batch, lo: int, hi: int) -> None:
        batch.move(lo, hi, QUEUED)
        self._queues.prepend(batch, lo, hi)

    def _leave(self, agent: Agent, batch: Batch, lo: int, hi: int) -> None:
        n = hi - lo
        agent.outstanding -= n
        left = batch.at[agent.number] - n
        if left:
            batch.at[agent.number] = left
        else:
            del batch.at[agent.number]
            agent.batches.pop(batch, None)

    def _account(self, client: Client, batch: Batch, lo: int, hi: int, place: int) -> None:
        batch.move(lo, hi, place)
        if place == DONE:
            batch.left -= hi - lo
            client.outstanding -= hi - lo

    def _finish(self, client: Client, batch: Batch, span: SpanResult, was: int | None, said: bool = False) -> None:
        """Rows end for good: say so to the client, keep what others need, let go of what they needed."""
        lo, hi, outcome = span.lo, span.hi, span.outcome
        self._account(client, batch, lo, hi, DONE)
        if not said:
            self._tell(client, batch, span)
        if outcome == VALUES_LIST:
            for row in [row for row in batch.waiters if lo <= row < hi]:
                self._supply_element(client, batch, row, span)
        elif outcome == VALUES_EACH:
            if batch.keeps or batch.waiters:
                for row, payload in zip(range(lo, hi), values_of(span), strict=True):
                    self._supply(client, batch, row, payload)
        elif batch.keeps or batch.waiters:
            record = (
                span.body
                if outcome == ERROR
                else encode_error("cancelled", message=f"{batch.task.name}, which this needs, was cancelled")
            )
            failures: list[tuple[Batch, int, Frame]] = []
            for row in range(lo, hi):
                failures += self._row_failed(client, batch, row, record)
            self._fail_rows(client, failures)
        self._after(client, batch, lo, hi)

    def finished_as_said(self, agent: Agent, client: Client, batch: Batch, span: SpanResult) -> None:
        """Like `ended`, for plain values whose message is passed on to the client as it came."""
        self._leave(agent, batch, span.lo, span.hi)
        self._finish(client, batch, span, AGENT, said=True)

    def _tell(self, client: Client, batch: Batch, span: SpanResult) -> None:
        wanted = batch.task.wanted
        if not wanted or (span.hi - span.lo == 1 and wanted[span.lo]):
            self._outbox.result(client.number, span)
            return
        values = list(values_of(span)) if span.outcome == VALUES_EACH else []
        for row in range(span.lo, span.hi):
            if not wanted[row]:
                continue
            if span.outcome == VALUES_EACH:
                body = values[row - span.lo]
                self._outbox.result(
                    client.number, SpanResult(batch.id, row, row + 1, VALUES_EACH, 0, 0, u32([len(body)]), body)
                )
            else:
                self._outbox.result(client.number, span._replace(lo=row, hi=row + 1))

    def _supply(self, client: Client, batch: Batch, row: int, payload: Frame) -> None:
        """A row's value becomes an object if other rows need it."""
        uses = batch.task.uses
        waiting = _still_waiting(batch.waiters.pop(row, ()))
        references = uses[row] + sum(not b.keeps for b, _ in waiting) if uses else len(waiting)
        if references:
            client.objects[batch.id + row] = Object(bytes(payload), references, counted=bool(uses))
        self._one_less_missing(waiting)

    def _supply_element(self, client: Client, batch: Batch, row: int, span: SpanResult) -> None:
        waiting = _still_waiting(batch.waiters.pop(row))
        if not waiting:
            return
        list_id = LIST_OBJECT | (batch.id + span.lo)
        client.located[batch.id + row] = (list_id, row - span.lo)
        item = client.objects.get(list_id)
        if item is None:
            item = client.objects[list_id] = Object(bytes(span.body))
        item.references += len(waiting)
        item.elements.append(batch.id + row)
        self._one_less_missing(waiting)

    def _one_less_missing(self, waiting: list[tuple[Batch, int]]) -> None:
        for batch, row in waiting:
            assert batch.missing is not None
            batch.missing[row] -= 1
            if not batch.missing[row] and batch.place[row] == WAITING:
                self._queue(batch, row, row + 1)

    def _fail_rows(self, client: Client, failures: list[tuple[Batch, int, Frame]]) -> None:
        """End rows that can't run because of an error, and with them what depends on them in turn."""
        stack = failures
        while stack:
            batch, row, record = stack.pop()
            if batch.place[row] == DONE:
                continue
            self._account(client, batch, row, row + 1, DONE)
            self._tell(client, batch, SpanResult(batch.id, row, row + 1, ERROR, 0, 0, u32([len(record)]), record))
            stack += self._row_failed(client, batch, row, record)
            self._after(client, batch, row, row + 1)

    def _row_failed(self, client: Client, batch: Batch, row: int, record: Frame) -> list[tuple[Batch, int, Frame]]:
        """The rows that fail with this one; dependents that have not come yet will find the record."""
        waiting = _still_waiting(batch.waiters.pop(row, ()))
        uses = batch.task.uses
        if uses:
            others = uses[row] - sum(b.keeps for b, _ in waiting)
            if others:
                client.failed[batch.id + row] = record, others
        return [(b, r, record) for b, r in waiting]

    def _after(self, client: Client, batch: Batch, lo: int, hi: int) -> None:
        """Rows have ended: let go of what they needed."""
        if batch.needs is not None:
            for row in range(lo, hi):
                for value in batch.needs[row]:
                    place = client.located.get(value)
                    self._unreference(client, place[0] if place else value, counted=batch.keeps)
        if not batch.left:
            self._end_batch(client, batch)

    def _end_batch(self, client: Client, batch: Batch) -> None:
        if client.batches.pop(batch.id, None) is None:
            return  # it ended with rows that depended on one of its own
        task = batch.task
        self._unreference(client, task.function)
        if task.arguments:
            self._unreference(client, task.arguments)
        if batch.keeps:
            for row_id in range(batch.id, batch.id + batch.rows):
                client.kept.pop(row_id, None)

    def _unreference(self, client: Client, object_id: int, counted: bool = False) -> None:
        item = client.objects.get(object_id)
        if item is None:  # not made yet, or never: it will be made for one less
            source = client.kept.get(object_id) if counted else None
            if source is not None and source.task.uses and source.task.uses[object_id - source.id]:
                source.task.uses[object_id - source.id] -= 1
            return
        item.references -= 1
        if item.references > 0:
            return
        del client.objects[object_id]
        for row_id in item.elements:
            client.located.pop(row_id, None)
        for number in item.holders:
            agent = self.agents.get(number)
            if agent is not None:
                agent.holds.discard((client.number, object_id))
                agent.released.append((client.number, object_id))
                agent.released_bytes += len(item.payload)
                self._outbox.agents.setdefault(agent)

    # ---- departure -------------------------------------------------------------------------------------------------
    def drop_client_work(self, client: Client) -> set[int]:
        """Forget all batches and objects of a client; the agents that have something of it."""
        self._queues.drop_client(client.number)
        for batch in client.batches.values():
            for number, rows in batch.at.items():
                agent = self.agents[number]
                agent.outstanding -= rows
                agent.batches.pop(batch, None)
                agent.outbox.pop(batch, None)
                self._placement.changed(agent)
        agents = {number for number in client.agents if number in self.agents}
        for number in agents:
            self.agents[number].asked = [ask for ask in self.agents[number].asked if ask[1].client != client.number]
            self.agents[number].holds = {key for key in self.agents[number].holds if key[0] != client.number}
        for table in (client.batches, client.objects, client.kept, client.located, client.requested, client.failed):
            table.clear()
        client.outstanding = 0
        return agents
