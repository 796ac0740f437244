"""The life of rows and objects: admitted, made ready, ended, given back, lost.

Every change of a row's place goes through this file, so that `TRANSITIONS` can be checked against it. A row that ends
is said to its client once; values that other rows need become objects, counted by the rows that need them.
"""

from collections.abc import Callable, Iterable, Iterator

from scaler.protocol.failures import dependency_cancelled, never_sent, worker_lost
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    LOST,
    STORED,
    VALUES_EACH,
    VALUES_LIST,
    Frame,
    Spans,
    Task,
    u32,
)
from scaler.protocol.results import NO_SIZES, SpanResult, rows_of, stored_sizes, values_of
from scaler.scheduler.core.objects import Objects
from scaler.scheduler.core.outbox import Outbox
from scaler.scheduler.core.placement import Placement
from scaler.scheduler.core.queues import ReadyQueues
from scaler.scheduler.core.reach import Reach
from scaler.scheduler.core.recovery import Recovery
from scaler.scheduler.core.state import AGENT, DONE, QUEUED, WAITING, Agent, Batch, Client, Object

#: ids of list objects, made here, have this bit; clients' ids never do
LIST_OBJECT = 1 << 63


def _still_waiting(rows: Iterable[tuple[Batch, int]]) -> list[tuple[Batch, int]]:
    return [(batch, row) for batch, row in rows if batch.place[row] == WAITING]


class Rows:
    """All batches and objects of all clients."""

    def __init__(self, queues: ReadyQueues, placement: Placement, outbox: Outbox, retries_on_loss: int) -> None:
        self.clients: dict[int, Client] = {}
        self.agents = placement.agents
        self.retries_on_loss = retries_on_loss
        self._queues = queues
        self._placement = placement
        self._outbox = outbox
        self.objects = Objects(self.agents, outbox)
        self.recovery = Recovery(self)
        self.reach = Reach(self, placement)
        #: told when a value that was lost is there again, or never will be
        self.reread: Callable[[Client, int], None] = lambda client, value: None

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
            record = never_sent(task.name, missing[0]).encode()
            self._account(client, batch, 0, batch.rows, WAITING)
            self._fail_rows(client, [(batch, row, record) for row in range(batch.rows)])
            return
        if batch.keeps:
            client.kept.update(dict.fromkeys(range(batch.id, batch.id + batch.rows), batch))
        if task.dependencies:
            self._admit_dependent(client, batch)
        elif client.gone or not self._placement.place_at_once(batch):
            self.make_ready(client, batch, 0, batch.rows)

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
                self.make_ready(client, batch, lo, row)
                lo = None
        if failures:
            self._fail_rows(client, failures)

    def _await_value(self, client: Client, batch: Batch, row: int, value: int) -> Frame | None:
        """Let a row wait for a value unless it is there; the error record if it never will be."""
        assert batch.missing is not None
        place = client.located.get(value)
        item = client.objects.get(place[0] if place else value)
        if item is not None:
            item.references += not (item.counted and batch.counts(value))
            if item.is_lost:
                self.recovery.await_value(client, batch, row, value)
            return None
        failure = client.failed.get(value)
        if failure is not None:
            record, others = failure
            if batch.counts(value) and others > 1:
                client.failed[value] = record, others - 1
            elif batch.counts(value):
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
            self.ask_client(client, value)
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

    def ask_client(self, client: Client, value: int) -> None:
        """Ask a client for an object that it made, or for the value of a row that ended at it."""
        client.asked.add(value)
        self._outbox.send(client.number, self.recovery.request(client, value))

    def announce(self, client: Client, value: int, payload: Frame, size: int = 0, agent: Agent | None = None) -> None:
        """The client sent an object, or the value of a row that was asked of it; of a stored one its size and place."""
        asked = value in client.asked
        client.asked.discard(value)
        waiting = client.requested.pop(value, None)
        item = client.objects.get(value)
        if item is None:
            again = client.lost.get(value, ())
            if asked and not waiting and not again:  # nobody needs it any more
                client.lost.pop(value, None)
                if agent is not None:
                    self.objects.release(agent, client.number, value, size)
                return
            item = client.objects[value] = Object(payload, len(_still_waiting(again)), size=size)
        elif item.is_lost and size:
            item.size = size
        elif item.is_lost:
            self.objects.is_small_now(client, value, item, payload)
        if item.size and agent is not None:
            self.objects.has(client, agent, value, item)
        elif item.is_lost:
            client.gone.add(value)
        else:
            client.gone.discard(value)
        if value in client.lost:
            self.recovery.announced(client, value, item)
        elif not (asked or item.held):
            item.held = True
            item.references += 1
        waiting = _still_waiting(waiting or ())
        item.references += len(waiting)
        self.one_less_missing(waiting)
        if not item.references and value in client.objects:
            self.objects.drop(client, value, item)

    def announce_failed(self, client: Client, value: int, record: Frame) -> None:
        """The client can't send what it was asked for."""
        client.asked.discard(value)
        waiting = client.requested.pop(value, None) or []
        failures = [(batch, row, record) for batch, row in waiting]
        self._fail_rows(client, failures + self.recovery.refused(client, value, record))

    def release(self, client: Client, object_id: int) -> None:
        """The client doesn't hold an object any more."""
        item = client.objects.get(object_id)
        if item is not None and item.held:
            item.held = False
            self.objects.unreference(client, object_id)

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
            self._finish(client, batch, span, agent)

    def _lost_row(self, client: Client, batch: Batch, row: int, span: SpanResult) -> None:
        losses = batch.losses[row] = batch.losses.get(row, 0) + 1
        if losses <= self.retries_on_loss:
            self._requeue(batch, row, row + 1)
            return
        what = bytes(span.body).decode(errors="replace")
        record = worker_lost(batch.task.name, batch.id + row, what, losses).encode()
        self._finish(
            client,
            batch,
            SpanResult(batch.id, row, row + 1, ERROR, span.duration, 0, u32([len(record)]), record),
            None,
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
        self.recovery.copies_lost(agent.number, sorted(agent.holds))

    def returned_for(self, agent: Agent, client: Client, batch: Batch, lo: int, hi: int, news: bool) -> None:
        """Rows come back from an agent that could not get objects they need; with `news` nobody knew that it can't."""
        for row in range(lo, hi):
            self._leave(agent, batch, row, row + 1)
            self.reach.came_back(client, batch, row, agent, news)

    def await_or_queue(self, client: Client, batch: Batch, row: int, beyond: list[int], home: Agent | None) -> None:
        """Let a row that is nowhere wait until what is beyond reach of its home is made again within; else queue it."""
        if batch.place[row] >= AGENT:
            batch.move(row, row + 1, QUEUED)
        if beyond and home is not None:
            client.near.update(dict.fromkeys(beyond, home.number))
            self.recovery.wait(client, batch, row, beyond)
            return
        if batch.place[row] == WAITING:
            batch.move(row, row + 1, QUEUED)
        self._queues.prepend(batch, row, row + 1)

    def finish(self, client: Client, batch: Batch, span: SpanResult) -> None:
        """Rows that are nowhere end for good."""
        self._finish(client, batch, span, None)

    def theirs(self, agent: Agent, spans: Spans) -> Iterator[tuple[Client, Batch, int, int]]:
        """The parts of these spans that are with this agent."""
        for number, batch_id, lo, hi in spans:
            client = self.clients.get(number)
            batch = client.batches.get(batch_id) if client is not None else None
            if client is None or batch is None or hi > batch.rows:
                continue
            if batch.are(lo, hi, AGENT + agent.number):
                yield client, batch, lo, hi
            else:
                for row in range(lo, hi):
                    if batch.place[row] == AGENT + agent.number:
                        yield client, batch, row, row + 1

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
            self.ask_client(client, value)
        self._after(client, batch, lo, hi)

    def leave(self, agent: Agent, batch: Batch, lo: int, hi: int) -> None:
        """Rows are not at this agent any more; the caller puts them somewhere."""
        self._leave(agent, batch, lo, hi)

    # ---- the moves -------------------------------------------------------------------------------------------------
    def make_ready(self, client: Client, batch: Batch, lo: int, hi: int, front: bool = False) -> None:
        """Rows have all they need: they run where that is, or are queued; those whose objects are lost wait."""
        if client.gone:
            for row in range(lo, hi):
                lacking = self.objects.lacking(client, batch, row)
                if lacking:
                    self.recovery.wait(client, batch, row, lacking)
                elif not self._place_by_data(client, batch, row):
                    self._queue(batch, row, row + 1, front)
        elif not (batch.near or batch.returns) and (batch.needs is None or not client.has_stored):
            self._queue(batch, lo, hi, front)
        else:
            for row in range(lo, hi):
                if not self._place_by_data(client, batch, row):
                    self._queue(batch, row, row + 1, front)

    def _queue(self, batch: Batch, lo: int, hi: int, front: bool = False) -> None:
        batch.move(lo, hi, QUEUED)
        if front:
            self._queues.prepend(batch, lo, hi)
        else:
            self._queues.append(batch, lo, hi)

    def _requeue(self, batch: Batch, lo: int, hi: int) -> None:
        client = self.clients[batch.client]
        batch.move(lo, hi, QUEUED)
        if not (client.gone or batch.returns):
            self._queues.prepend(batch, lo, hi)
            return
        for row in range(hi - 1, lo - 1, -1):
            lacking = self.objects.lacking(client, batch, row) if client.gone else []
            if lacking:
                self.recovery.wait(client, batch, row, lacking)
            elif row in batch.returns:
                self.reach.settle(client, batch, row)
            else:
                self._queues.prepend(batch, row, row + 1)

    def unqueue(self, batch: Batch, row: int) -> None:
        """Take a row out of its queue."""
        self._queues.remove(batch, row, row + 1)

    def _place_by_data(self, client: Client, batch: Batch, row: int) -> bool:
        """Give a row to the agent that has most of its stored input, unless waiting there costs more than moving it.

        However many rows that agent has: it runs this one before those that make new values, so that few are there.
        """
        if row in batch.returns:
            self.reach.settle(client, batch, row)
            return True
        if row in batch.near and self.reach.place_near(batch, row, batch.near[row]):
            return True
        if batch.needs is None or not client.has_stored:
            return False
        have: dict[int, int] = {}
        for value in batch.needs[row]:
            item = client.objects.get(value)
            if item is not None and item.size:
                for number in item.copies:
                    have[number] = have.get(number, 0) + item.size
        if not have:
            return False
        number = max(have, key=have.__getitem__)
        return self._placement.place_at(batch, row, [number], have[number] if len(self.agents) > 1 else 0)

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

    def _finish(self, client: Client, batch: Batch, span: SpanResult, agent: Agent | None, said: bool = False) -> None:
        """Rows end for good: say so to the client, keep what others need, let go of what they needed."""
        if batch.again and not batch.again.isdisjoint(range(span.lo, span.hi)):
            self._finish_again(client, batch, span, agent)
            return
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
        elif outcome == STORED:
            if agent is not None:
                for row, size in zip(range(lo, hi), stored_sizes(span), strict=True):
                    self._supply_stored(client, batch, row, size, agent)
        elif batch.keeps or batch.waiters:
            record = span.body if outcome == ERROR else dependency_cancelled(batch.task.name).encode()
            failures: list[tuple[Batch, int, Frame]] = []
            for row in range(lo, hi):
                failures += self._row_failed(client, batch, row, record)
            self._fail_rows(client, failures)
        self._after(client, batch, lo, hi)

    def _finish_again(self, client: Client, batch: Batch, span: SpanResult, agent: Agent | None) -> None:
        """Some of these rows had ended before: nothing is said of those."""
        for row, part in enumerate(rows_of(span), span.lo):
            if row not in batch.again:
                self._finish(client, batch, part, agent)
                continue
            self._account(client, batch, row, row + 1, DONE)
            self._fail_rows(client, self.recovery.ended(client, agent, batch, row, part))

    def finished_as_said(self, agent: Agent, client: Client, batch: Batch, span: SpanResult) -> None:
        """Like `ended`, for plain values whose message is passed on to the client as it came."""
        self._leave(agent, batch, span.lo, span.hi)
        self._finish(client, batch, span, agent, said=True)

    def _tell(self, client: Client, batch: Batch, span: SpanResult) -> None:
        wanted = batch.task.wanted
        if not wanted or (span.hi - span.lo == 1 and wanted[span.lo]):
            self._outbox.result(client.number, span)
            return
        each = span.outcome in (VALUES_EACH, STORED)
        values = list(values_of(span)) if each else []
        for row in range(span.lo, span.hi):
            if not wanted[row]:
                continue
            if each:
                body = values[row - span.lo]
                self._outbox.result(
                    client.number, SpanResult(batch.id, row, row + 1, span.outcome, 0, 0, u32([len(body)]), body)
                )
            else:
                self._outbox.result(client.number, span._replace(lo=row, hi=row + 1))

    def _supply(self, client: Client, batch: Batch, row: int, payload: Frame) -> None:
        """A row's value becomes an object if other rows need it."""
        uses = batch.task.uses
        waiting = _still_waiting(batch.waiters.pop(row, ()))
        value = batch.id + row
        references = uses[row] + sum(not b.counts(value) for b, _ in waiting) if uses else len(waiting)
        if references:
            client.objects[value] = Object(bytes(payload), references, counted=bool(uses))
        self.one_less_missing(waiting)

    def _supply_stored(self, client: Client, batch: Batch, row: int, size: int, agent: Agent) -> None:
        """A row's value is in an agent's store: an object, unless nobody wants it."""
        task = batch.task
        waiting = _still_waiting(batch.waiters.pop(row, ()))
        value = batch.id + row
        references = task.uses[row] + sum(not b.counts(value) for b, _ in waiting) if task.uses else len(waiting)
        told = not task.wanted or bool(task.wanted[row])
        if not references + told:
            self.objects.release(agent, client.number, value, size)
            return
        self.objects.remember(client, batch, row)
        item = self.objects.stored_by_row(client, agent, batch, row, size, references + told)
        item.held = told
        self.one_less_missing(waiting)

    def _supply_element(self, client: Client, batch: Batch, row: int, span: SpanResult) -> None:
        waiting = _still_waiting(batch.waiters.pop(row))
        if not waiting:
            return
        list_id = LIST_OBJECT | (batch.id + span.lo)
        client.located[batch.id + row] = (list_id, row - span.lo)
        item = client.objects.get(list_id)
        if item is None:
            item = client.objects[list_id] = Object(bytes(span.body), elements=[])
        item.references += len(waiting)
        assert item.elements is not None
        item.elements.append(batch.id + row)
        self.one_less_missing(waiting)

    def one_less_missing(self, waiting: list[tuple[Batch, int]]) -> None:
        """A value is there that these rows waited for. Those that can run go before others: depth first."""
        for batch, row in reversed(waiting):
            assert batch.missing is not None
            batch.missing[row] -= 1
            if not batch.missing[row] and batch.place[row] == WAITING:
                self.make_ready(self.clients[batch.client], batch, row, row + 1, batch.keeps)

    def _fail_rows(self, client: Client, failures: list[tuple[Batch, int, Frame]]) -> None:
        """End rows that can't run because of an error, and with them what depends on them in turn."""
        stack = failures
        while stack:
            batch, row, record = stack.pop()
            if batch.place[row] == DONE:
                continue
            self._account(client, batch, row, row + 1, DONE)
            if row in batch.again:
                stack += self.recovery.failed(client, batch, row, record)
                continue
            self._tell(client, batch, SpanResult(batch.id, row, row + 1, ERROR, 0, 0, u32([len(record)]), record))
            stack += self._row_failed(client, batch, row, record)
            self._after(client, batch, row, row + 1)

    def _row_failed(self, client: Client, batch: Batch, row: int, record: Frame) -> list[tuple[Batch, int, Frame]]:
        """The rows that fail with this one; dependents that have not come yet will find the record."""
        waiting = _still_waiting(batch.waiters.pop(row, ()))
        uses = batch.task.uses
        if uses:
            value = batch.id + row
            others = uses[row] - sum(b.counts(value) for b, _ in waiting)
            if others:
                client.failed[value] = record, others
        return [(b, r, record) for b, r in waiting]

    def _after(self, client: Client, batch: Batch, lo: int, hi: int) -> None:
        """Rows have ended: let go of what they needed."""
        if batch.needs is not None:
            for row in range(lo, hi):
                for value in batch.needs[row]:
                    place = client.located.get(value)
                    self.objects.unreference(client, place[0] if place else value, batch.counts(value))
        if not batch.left:
            self.objects.end(client, batch)

    # ---- departure -------------------------------------------------------------------------------------------------
    def drop_client_work(self, client: Client) -> set[int]:
        """Forget all batches and objects of a client; the agents that have something of it."""
        self._outbox.ask_no_more(client.number)
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
        for table in (
            client.batches, client.objects, client.kept, client.located, client.requested, client.failed,
            client.lineage, client.gone, client.lost, client.asked, client.reading, client.rereads,
            client.near,
        ):  # fmt: skip
            table.clear()
        client.outstanding = 0
        return agents
