"""What an agent reports of rows: taken only for those that it has, and forwarded as it came if that may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from scaler.errors import ProtocolError
from scaler.protocol.failures import results_unreadable
from scaler.protocol.messages import ERROR, FILED, LOST, STORED, VALUES_EACH, VALUES_LIST, TaskResult, u32
from scaler.protocol.results import SpanResult, cut, each_of, misplaced, values_of
from scaler.scheduler.core import dependencies, finishing, late_rows, lifetimes, placement, retrying, stored_objects
from scaler.scheduler.core.moves import Move, Route
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import AGENT, DONE, Batch, not_ended
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.object_records import ObjectRecord
from scaler.scheduler.state.transitions import Cause


def still_to_run(client: ClientRecord, spans: list[SpanResult]) -> list[tuple[int, int, int, int]]:
    """Of results that were taken those whose rows have not ended and run once more, as (client, batch, lo, hi)."""
    left = []
    for span in spans:
        batch = client.batches.get(span.batch)
        if batch is not None and span.hi <= batch.rows and not batch.are_in(span.lo, span.hi, DONE):
            left.append((client.number, span.batch, span.lo, span.hi))
    return left


def take(
    state: ClusterState, out: Outgoing, agent: AgentRecord, client: ClientRecord, spans: list[SpanResult], tries: int
) -> Iterator[list[Move]]:
    """Take an agent's results; the moves of each span, to be made before the next is asked for.

    `tries`: how often a row may be lost with its worker and run again. Raises ProtocolError for a list of values that
    is none: for the rows that it was of this was an attempt, and the agent is not to be believed any more.
    """
    place = AGENT + agent.number
    took: dict[Batch, tuple[int, int]] = {}
    for told in spans:
        batch = client.batches.get(told.batch)
        if batch is None or told.hi > batch.rows:
            _release_unwanted(out, agent, client, told, ())
            continue
        if told.outcome in (STORED, FILED):
            problem = misplaced(batch.task, told.outcome, told.lo, told.hi)
            if problem:
                raise ProtocolError(problem)
        if batch.are_in(told.lo, told.hi, place):
            parts = [told]
        elif batch.has_come_back:  # another scheduler has heard of some of these
            spans_here = batch.spans_in(place, told.lo, told.hi)
            _release_unwanted(out, agent, client, told, spans_here)
            parts = cut(told, spans_here) if spans_here else []
        else:
            _release_unwanted(out, agent, client, told, ())
            yield _take_back(out, agent, batch, told.lo, told.hi)
            continue
        for span in parts:
            if span is not told and not batch.are_in(span.lo, span.hi, place):
                continue  # ended with a part before
            if span.outcome == VALUES_LIST and (batch.keeps or batch.is_recomputing(span.lo, span.hi)):
                try:
                    span = each_of(span)  # its values are needed one by one
                except ProtocolError as error:
                    yield _unreadable(state, out, agent, batch, span, str(error), tries)
                    raise
            if span.outcome <= ERROR or span.outcome in (STORED, FILED):
                rows, us = took.get(batch, (0, 0))
                took[batch] = rows + span.hi - span.lo, us + span.duration
                batch.function.durations.add(span.hi - span.lo, span.duration)
            if span.outcome == LOST:
                how = bytes(span.body).decode(errors="replace")
                out.log("WARNING", f"{batch.function.name}[{batch.id + span.lo}]: {how}")
            if span.outcome == LOST or (span.outcome == ERROR and batch.task.retries):
                yield retrying.end_reported(state, out, agent, batch, span, tries)
            else:
                yield finishing.finish(state, out, batch, span, agent)
    for batch, (rows, us) in took.items():
        placement.learn_duration(agent, batch.function.learn(rows, us), state.now)


def supply_awaited(state: ClusterState, client: ClientRecord, spans: list[SpanResult]) -> list[Move]:
    """Small values that an agent tells again, of rows that ended at another scheduler, and that a client is asked for.

    It has heard of them, and may have let go of them since. Raises ProtocolError for a list of values that is none.
    """
    values, moves = client.values, list[Move]()
    for told in spans:
        batch = client.batches.get(told.batch) or client.remembered.get(told.batch)
        if batch is None or not batch.has_come_back or told.outcome not in (VALUES_EACH, VALUES_LIST):
            continue
        rows = [row for row in range(told.lo, min(told.hi, batch.rows)) if batch.id + row in values.awaited]
        payloads = [*values_of(each_of(told))] if rows else []
        for row in rows:
            if batch.place[row] == DONE and batch.id + row not in values.objects:
                waiting = not_ended(values.awaited.pop(batch.id + row))
                values.refused.discard(batch.id + row)
                if waiting:
                    made = ObjectRecord(bytes(payloads[row - told.lo]), len(waiting))
                    lifetimes.put(state, client, batch.id + row, made)
                    moves += dependencies.fulfil(waiting)
    return moves


def without_late(
    state: ClusterState, out: Outgoing, agent: AgentRecord, client: ClientRecord, spans: list[SpanResult]
) -> list[SpanResult]:
    """What an agent reports of rows that it was given, without what became of those that it came with too late."""
    wanted: list[SpanResult] = []
    for told in spans:
        is_late = agent.number in state.returning.late
        others = late_rows.take_ended(state, agent, client.number, told.batch, told.lo, told.hi) if is_late else None
        if others is None:
            wanted.append(told)
            continue
        _release_unwanted(out, agent, client, told, others)
        wanted += cut(told, others) if others else []
    return wanted


def _unreadable(
    state: ClusterState, out: Outgoing, agent: AgentRecord, batch: Batch, span: SpanResult, problem: str, tries: int
) -> list[Move]:
    why = results_unreadable(agent.name, problem).encode()
    moves: list[Move] = []
    for row in range(span.lo, span.hi):
        lost = SpanResult(batch.id, row, row + 1, LOST, 0, 0, u32([len(why)]), why)
        moves += retrying.end_reported(state, out, agent, batch, lost, tries)
    return moves


def forward(state: ClusterState, out: Outgoing, agent: AgentRecord, client: ClientRecord, message: TaskResult) -> bool:
    """Send an agent's results to their client as they came, if that may be; False if it may not, and nothing is done.

    It may if all are values that nobody but the client needs, of rows that this agent has, and no more than a message
    to the client may have.
    """
    if message.bodies and len(message.bodies[0]) > out.limit:
        return False
    batches, pairs, outcomes, durations = message.batches, message.spans, message.outcomes, message.durations
    place, known = AGENT + agent.number, client.batches
    if len(batches) == 1:
        batch, (lo, hi), us = known.get(batches[0]), pairs, durations[0]
        if batch is None or not _is_plain(batch, lo, hi, outcomes[0], place):
            return False
        out.send(client.number, message)
        finishing.finish_forwarded(state, batch, lo, hi, agent)
        batch.function.durations.add(hi - lo, us)
        placement.learn_duration(agent, batch.function.learn(hi - lo, us), state.now)
        return True
    ended: list[tuple[Batch, int, int, int]] = []
    for number, lo, hi, outcome, us in zip(batches, pairs[::2], pairs[1::2], outcomes, durations, strict=True):
        batch = known.get(number)
        if batch is None or not _is_plain(batch, lo, hi, outcome, place):
            return False
        ended.append((batch, lo, hi, us))
    if _overlap(ended):
        return False
    out.send(client.number, message)
    learning, rows, together_us = ended[0][0] if ended else None, 0, 0
    for batch, lo, hi, us in ended:
        _end(state, agent, batch, lo, hi, us)
        if batch is not learning and learning is not None:
            _learn(state, agent, learning, rows, together_us)
            learning, rows, together_us = batch, 0, 0
        rows += hi - lo
        together_us += us
    if learning is not None:
        _learn(state, agent, learning, rows, together_us)
    return True


def _end(state: ClusterState, agent: AgentRecord, batch: Batch, lo: int, hi: int, us: int) -> None:
    """Rows that took so many microseconds together end with values that go to their client."""
    finishing.finish_forwarded(state, batch, lo, hi, agent)
    batch.function.durations.add(hi - lo, us)


def _learn(state: ClusterState, agent: AgentRecord, batch: Batch, rows: int, us: int) -> None:
    """Rows of a batch took an agent so many microseconds together."""
    placement.learn_duration(agent, batch.function.learn(rows, us), state.now)


def _overlap(ended: list[tuple[Batch, int, int, int]]) -> bool:
    """Some row is told of twice: whoever hears of that must be told of each row once."""
    ends: dict[int, int] = {}
    for batch, lo, hi, _ in ended:
        if lo < ends.get(batch.id, 0):  # not in order: this takes longer
            told = sorted((each.id, first, last) for each, first, last, _ in ended)
            return any(a[0] == b[0] and b[1] < a[2] for a, b in pairwise(told))
        ends[batch.id] = hi
    return False


def _is_plain(batch: Batch, lo: int, hi: int, outcome: int, place: int) -> bool:
    return (
        outcome <= VALUES_EACH
        and not (batch.keeps or batch.waiters)
        and hi <= batch.rows
        and (batch.place[lo] == place if hi - lo == 1 else batch.are_in(lo, hi, place))  # a call less
        and not (batch.lineage is not None and batch.is_recomputing(lo, hi))
    )


def _release_unwanted(
    out: Outgoing, agent: AgentRecord, client: ClientRecord, span: SpanResult, wanted: Sequence[tuple[int, int]]
) -> None:
    """Rows ended of which nobody wants to hear, but for some: what they stored goes, unless it is known already."""
    if span.outcome == STORED:
        objects, first = client.values.objects, span.batch
        unwanted = {first + row for row in range(span.lo, span.hi)}
        unwanted.difference_update(first + row for lo, hi in wanted for row in range(lo, hi))
        ids = sorted(value for value in unwanted if value not in objects)
        if ids:
            stored_objects.release_unknown(out, agent, client.number, ids)


def _take_back(out: Outgoing, agent: AgentRecord, batch: Batch, lo: int, hi: int) -> list[Move]:
    """A span is only in part this agent's: what is, runs again; what isn't, is not its to say."""
    moves: list[Move] = []
    for a, b in batch.spans_in(AGENT + agent.number, lo, hi):
        out.log(
            "WARNING", f"agent {agent.number} said of {batch.function.name} more than it had: {b - a} rows run again"
        )
        moves.append(Route(batch, a, b, Cause.MISREPORTED, front=True))
    return moves
