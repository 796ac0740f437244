"""The work of a client that came from another scheduler is put together: from what it says again, and what agents have.

Its rows are admitted as if they were new, and then moved to where they are: those that have ended for their client are
done, those that agents have are there. What agents said since is taken as if it came now, so rows end whose results the
last scheduler did not pass on. The others run.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain

from scaler.common.span_lists import without
from scaler.errors import ProtocolError
from scaler.protocol.messages import (
    VALUES_EACH,
    VALUES_LIST,
    AgentsInUse,
    ClientReturn,
    Frame,
    Message,
    Spans,
    Task,
    TaskCancel,
    TaskResult,
    u32,
)  # fmt: skip
from scaler.protocol.results import SpanResult, each_of, spans_of, values_of
from scaler.scheduler.core import admission, dependencies, late_rows, lifetimes, lineage
from scaler.scheduler.core.moves import Move, Route
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state import accounts, transitions
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import AGENT, DONE, WAITING, Batch, lineage_of
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.object_records import ObjectRecord
from scaler.scheduler.state.returning_records import Holding
from scaler.scheduler.state.transitions import Cause

#: of a value that no store has: its size is not known here
LOST_SIZE = 1


class Rebuilding:
    """One client's work, while it is put together."""

    def __init__(self, state: ClusterState, out: Outgoing, client: ClientRecord) -> None:
        self._state = state
        self._out = out
        self._client = client
        returning = state.returning
        record = returning.clients.pop(client.number)
        accounts.charge(state, client, -record.kept)
        if record.expected:
            missing = ", ".join(map(str, sorted(record.expected)))
            out.log(
                "WARNING", f"client {client.number} goes on without what it has at agents that did not come: {missing}"
            )
        #: the agents that it will wait for when it comes to the next scheduler
        self._named = record.named
        #: what it has said, and what agents have said of it
        self.messages = record.messages
        self.mail: list[tuple[int, Message]] = returning.mail.pop(client.number, [])
        #: how rows have ended of which agents have told, in the order of their ids: what they need has ended before
        self.results: list[tuple[AgentRecord, SpanResult]] = []
        holdings: dict[int, Holding] = returning.holdings.pop(client.number, {})
        #: batch -> rows [lo, hi) and the agent that has them
        self._rows: dict[int, list[tuple[int, int, AgentRecord]]] = {}
        #: id -> the agents that have it, and its size
        self._objects: dict[int, tuple[list[AgentRecord], int]] = {}
        for number, holding in holdings.items():
            agent = state.agents[number]
            out.meet(client, agent)
            for batch, lo, hi in holding.rows:
                self._rows.setdefault(batch, []).append((lo, hi, agent))
            for object_id, size in holding.objects:
                self._objects.setdefault(object_id, ([], size))[0].append(agent)
        for number, message in self.mail:
            if type(message) is TaskResult:
                out.note_results(client, state.agents[number])
                self.results += [(state.agents[number], span) for span in spans_of(message)]
        self.mail = [letter for letter in self.mail if type(letter[1]) is not TaskResult]
        #: batch -> those of them that have small values
        self._small: dict[int, list[SpanResult]] = {}
        for _, span in self.results:
            if span.outcome in (VALUES_EACH, VALUES_LIST):
                self._small.setdefault(span.batch, []).append(span)
        #: (agent, batch) -> rows [lo, hi) that it has told the ends of
        self._told: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for agent, span in self.results:
            self._told.setdefault((agent.number, span.batch), []).append((span.lo, span.hi))
        self.results.sort(key=lambda result: result[1].batch + result[1].lo)
        at = next(i for i, message in enumerate(self.messages) if type(message) is ClientReturn)
        #: messages that the client says again; behind them are new ones
        self._repeated = at
        marker = self.messages[at]
        assert isinstance(marker, ClientReturn)
        #: the first message behind all that is said again: what agents have said comes before it
        self.first_new = 1 + max(
            i for i, task in enumerate(self.messages) if i == at or (type(task) is Task and self.is_said_again(i, task))
        )
        batches = [task for i, task in enumerate(self.messages) if type(task) is Task and self.is_said_again(i, task)]
        self._rows_of = {task.batch: task.rows for task in batches}
        self._starts = sorted(self._rows_of)
        #: stored values that it does not refer to and that rows may need; held until all is together
        self._found: list[int] = []
        #: batches that are admitted
        self._admitted: dict[int, Batch] = {}
        #: those that are remembered until all is together, though their rows may end: others may need their values
        self._kept: list[Batch] = []
        #: rows of the batch that is being admitted whose values are stored, or were
        self._restored: list[int] = []
        #: stored values of its rows that it refers to
        self._referenced = set(marker.ids)
        #: those and all that agents have, ascending
        self._stored = sorted(self._referenced | self._objects.keys())

    # ---- batches ---------------------------------------------------------------------------------------------------
    def is_said_again(self, at: int, task: Task) -> bool:
        """A batch was said to another scheduler, too.

        Maybe as a new one: a job whose part was not on disk yet is told of it anew, and agents have rows of it.
        """
        return at < self._repeated or task.batch in self._rows

    def admit(self, task: Task) -> list[Move]:
        """Take a batch that the client says again."""
        state, client = self._state, self._client
        if task.batch in client.batches:
            return []
        moves = admission.take_awaited(state, client, task)
        batch, failures = admission.enter(state, client, task)
        for lo, hi in zip(task.ended[::2], task.ended[1::2], strict=True):
            transitions.end(state, batch, lo, hi, Cause.RETURNED)
        if failures:  # it can't be run: it does not count as what made its values, nor does one of its id said before
            self._starts = [start for start in self._starts if start != batch.id]
        else:
            self._admitted[batch.id] = batch
            self._restore_values(batch)
        batch.has_come_back = True
        held = self._rows.pop(batch.id, [])
        if batch.keeps or task.retries:
            for _, _, agent in held:
                batch.keep_at(agent.number)
        if task.dependencies:
            there = bytearray(batch.rows)
            self._find_needs(task)
            for lo, hi, _ in held:
                there[lo:hi] = b"\x01" * (min(hi, batch.rows) - lo)
            asks, more = dependencies.await_needs(state, client, batch, there)
            moves += asks
            failures += more
            for row in self._restored:
                lineage.retain_needs(client, batch, row, self._maker_of)
            for row in chain.from_iterable(range(lo, hi) for lo, hi in batch.spans_in(WAITING)):
                lineage.remember_makers(client, batch, row, self._maker_of)
        admission.drop_unneeded(state, client, task)
        self._restored.clear()
        for lo, hi, agent in held:
            for a, b in batch.spans_in(WAITING, lo, min(hi, batch.rows)):
                transitions.take_up(state, batch, a, b, agent)
        for agent in dict.fromkeys(agent for _, _, agent in held):
            self._end_strays(batch, agent, [(lo, min(hi, batch.rows)) for lo, hi, whose in held if whose is agent])
        if batch.keeps or not batch.left:
            self._kept.append(batch)
            lineage_of(batch).references += 1
        if not batch.left:
            lifetimes.end_batch(state, client, batch)
            return moves
        moves += [Route(batch, lo, hi, Cause.READY, front=False) for lo, hi in dependencies.ready(batch, failures)]
        return moves + [failure for failure in failures if batch.place[failure.row] == WAITING]

    def _end_strays(self, batch: Batch, agent: AgentRecord, held: list[tuple[int, int]]) -> None:
        """Have an agent end rows that have ended for their client, or that another one has, too.

        One may wait there to be computed again, and what it needs is let go where nobody knows of that.
        """
        told = [(lo, hi) for lo, hi in self._told_of(agent, batch.id) if hi <= batch.rows]  # else nothing is believed
        there = [span for lo, hi in held for span in batch.spans_in(AGENT + agent.number, lo, hi)]
        self._end_rows(agent, batch.id, without(held, there + told))

    def end_unknown(self) -> None:
        """Have agents end rows of batches that the client does not say again: it wants to hear of them no more.

        They are what a graph had left over that failed or was cancelled, and may run.
        """
        for batch_id in [batch_id for batch_id in self._rows if batch_id not in self._rows_of]:
            held = self._rows.pop(batch_id)
            for agent in dict.fromkeys(agent for _, _, agent in held):
                rows = [(lo, hi) for lo, hi, whose in held if whose is agent]
                self._end_rows(agent, batch_id, without(rows, self._told_of(agent, batch_id)))
                agent.over.append((self._client.number, batch_id))

    def _told_of(self, agent: AgentRecord, batch_id: int) -> list[tuple[int, int]]:
        return self._told.get((agent.number, batch_id), [])

    def _end_rows(self, agent: AgentRecord, batch_id: int, rows: list[tuple[int, int]]) -> None:
        if not rows:
            return
        spans = Spans()
        for lo, hi in rows:
            spans.add(self._client.number, batch_id, lo, hi)
        for part in TaskCancel(spans, force=True).parts():
            self._out.send(agent.number, part)
        late_rows.await_ends(self._state, agent, self._client.number, [(batch_id, lo, hi) for lo, hi in rows])

    def _find_needs(self, task: Task) -> None:
        """Stored values that rows need, of batches that have ended: they need not be asked for."""
        objects = self._client.values.objects
        for value in set(task.dependencies):
            if value in objects or value not in self._objects or self._is_repeated(value):
                continue
            agents, size = self._objects[value]
            if size:
                del self._objects[value]
                self._store(value, size, agents)
                self._found.append(value)

    def _restore_values(self, batch: Batch) -> None:
        """Stored values of rows that have ended are objects, as far as the client or other rows need them."""
        task = batch.task
        first = bisect_left(self._stored, batch.id)
        for value in self._stored[first : bisect_left(self._stored, batch.id + batch.rows, first)]:
            row = value - batch.id
            if batch.place[row] != DONE:
                continue
            agents, size = self._objects.pop(value, ([], LOST_SIZE))
            held = value in self._referenced
            expected = task.uses[row] if task.uses else 0
            if not size or not (held or expected):
                self._objects[value] = agents, size
                continue
            self._store(value, size, agents, held, expected, (batch, row))
            lineage_of(batch).references += 1
            self._restored.append(row)
            self._referenced.discard(value)
        if task.uses:
            self._restore_small(batch, task.uses)

    def _restore_small(self, batch: Batch, uses: Sequence[int]) -> None:
        """Small values of rows that have ended for the client, too, as far as agents have told of them again."""
        state, client = self._state, self._client
        for told in self._small.get(batch.id, ()):
            values: list[Frame] = []
            with contextlib.suppress(ProtocolError):  # a list of values that is none: its agent has told of none
                values += values_of(each_of(told))
            for row, payload in enumerate(values[: batch.rows - told.lo], told.lo):
                value = batch.id + row
                if batch.place[row] == DONE and uses[row] and value not in client.values.objects:
                    lifetimes.put(state, client, value, ObjectRecord(bytes(payload), 0, expected=uses[row]))

    def _store(
        self,
        value: int,
        size: int,
        agents: list[AgentRecord],
        held: bool = True,
        expected: int = 0,
        source: tuple[Batch, int] | None = None,
    ) -> None:
        values = self._client.values
        made = ObjectRecord(b"", int(held), held, expected, size=size, source=source)
        item = lifetimes.put(self._state, self._client, value, made)
        values.lost.add(value)
        values.has_stored = True
        for agent in agents:
            lifetimes.add_copy(self._state, self._client, agent, value, item)

    # ---- objects ---------------------------------------------------------------------------------------------------
    def restore_ended(self) -> None:
        """Values that the client refers to, of batches that have ended: only their stores know of them.

        One that no store has is lost for good, and its client told so when it asks.
        """
        for value in sorted(self._referenced):
            agents, size = self._objects.get(value, ([], 0))
            if size and not self._is_repeated(value):
                del self._objects[value]
                self._store(value, size, agents)

    def find_copies(self, ids: Iterable[int]) -> None:
        """Objects that the client has told of are where agents have them."""
        objects = self._client.values.objects
        for object_id in [number for number in ids if number in self._objects and number in objects]:
            agents, size = self._objects.pop(object_id)
            item = objects[object_id]
            for agent in agents:
                if bool(size) != item.is_stored:
                    lifetimes.release_at(self._state, agent, self._client.number, object_id, size)
                elif size:
                    lifetimes.add_copy(self._state, self._client, agent, object_id, item)
                else:
                    item.give_to(agent.number)
                    agent.holdings.keys.add((self._client.number, object_id))

    def release_rest(self) -> None:
        """What agents have that nobody needs.

        Rows that agents have may need what is not known here: it goes when they have ended.
        """
        self.find_copies(self._stored)
        for batch in self._kept:
            lifetimes.unreference_batch(self._state, self._client, batch)
        for value in self._found:
            lifetimes.release_held(self._state, self._client, value)
        for object_id, (agents, size) in self._objects.items():
            for agent in agents:
                if agent.number in self._state.agents:
                    agent.leftovers.setdefault(self._client.number, []).append((object_id, size))

    def forget_agents(self, out: Outgoing) -> None:
        """Have the client wait no more, at the next scheduler, for agents that have nothing of it, or did not come."""
        gone = self._named.keys() - self._client.agents
        if gone:
            out.send(self._client.number, AgentsInUse(removed=u32(sorted(gone))))

    def _maker_of(self, value: int) -> Batch | None:
        """The batch that made a value, if it has been admitted."""
        at = bisect_right(self._starts, value)
        batch = self._admitted.get(self._starts[at - 1]) if at else None
        return batch if batch is not None and value < batch.id + batch.rows else None

    def _is_repeated(self, value: int) -> bool:
        """A value is of a row of a batch that the client says again."""
        at = bisect_right(self._starts, value)
        return bool(at) and value < self._starts[at - 1] + self._rows_of[self._starts[at - 1]]
