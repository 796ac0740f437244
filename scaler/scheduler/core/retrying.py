"""Rows that an agent had and did not finish: run again, or given up."""

from scaler.common.span_lists import runs_of
from scaler.protocol.failures import no_worker_starts, out_of_reach, refused, worker_lost
from scaler.protocol.messages import ERROR, LOST
from scaler.protocol.results import SpanResult
from scaler.scheduler.core import finishing, reachability, recomputing
from scaler.scheduler.core.moves import Fail, Hold, Move, Place, Route
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import AGENT, Batch, attempts_of
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.cluster_facts import WorkerDied
from scaler.scheduler.state.transitions import Cause


def end_reported(
    state: ClusterState, out: Outgoing, agent: AgentRecord, batch: Batch, span: SpanResult, retries_on_loss: int
) -> list[Move]:
    """An agent says how rows that it had ended: they run again, or end for their client."""
    row = span.lo
    if span.outcome == LOST:
        return _lose_row(state, out, agent, batch, span, retries_on_loss)
    if span.outcome == ERROR and batch.task.retries:
        retries = attempts_of(batch).retries
        if retries.get(row, 0) < batch.task.retries:
            retries[row] = retries.get(row, 0) + 1
            state.ended.retried += 1
            return [Route(batch, row, span.hi, Cause.RETRIED, front=True)]
    return finishing.finish(state, out, batch, span, agent)


def _lose_row(
    state: ClusterState, out: Outgoing, agent: AgentRecord, batch: Batch, span: SpanResult, retries_on_loss: int
) -> list[Move]:
    row, how = span.lo, bytes(span.body).decode(errors="replace")
    is_announced = agent.load.is_leaving and retries_on_loss > 0
    _count_loss(batch, row, is_announced)
    losses = attempts_of(batch).losses
    if state.facts.wanted:
        state.facts.tell(WorkerDied(batch.client, batch.id, row, agent.number, how))
    if is_announced or losses[row] <= retries_on_loss:
        state.ended.lost += 1
        return [Route(batch, row, row + 1, Cause.WORKER_LOST, front=True)]
    record = worker_lost(batch.function.name, batch.id + row, how, losses[row]).encode()
    return finishing.finish(state, out, batch, finishing.error_span(batch, row, record, span.duration), None)


def _count_loss(batch: Batch, row: int, is_announced: bool = False) -> None:
    attempts = attempts_of(batch)
    if not is_announced:
        attempts.losses[row] = attempts.losses.get(row, 0) + 1
    attempts.begun.discard(row)


def lose_agent(
    state: ClusterState, agent: AgentRecord, reason: str, retries_on_loss: int, is_announced: bool = False
) -> list[Move]:
    """An agent is gone, and no longer among the agents: what only it had is lost, and its rows run elsewhere.

    Not those that were lost too often: it counts for rows that are known to have begun or that were lost before. If
    rows are not to run twice at all, any of its rows may have begun. A loss that was announced does not count.
    """
    moves = recomputing.lose_copies(state, agent.number, sorted(agent.holdings.keys))
    for client_number, object_id in agent.holdings.keys:
        client = state.clients.get(client_number)
        item = client.values.objects.get(object_id) if client is not None else None
        if item is not None:
            item.holders -= {agent.number}
    for batch in agent.batches:
        for lo, hi in batch.spans_in(AGENT + agent.number):
            lost = _lost_too_often(batch, lo, hi, retries_on_loss, is_announced)
            for row in lost:
                attempts = attempts_of(batch).losses.get(row, 1)
                how = f"its host {agent.name} was lost ({reason})"
                moves.append(Fail(batch, row, worker_lost(batch.function.name, batch.id + row, how, attempts).encode()))
            for first, end in runs_of([row for row in range(lo, hi) if row not in lost]) if lost else [(lo, hi)]:
                state.ended.lost += end - first
                moves.append(Route(batch, first, end, Cause.AGENT_LOST, front=True))
    return moves


def _lost_too_often(batch: Batch, lo: int, hi: int, retries_on_loss: int, is_announced: bool) -> set[int]:
    """Those of these rows, whose agent is lost, that may not run again."""
    if not retries_on_loss:
        return set(range(lo, hi))
    attempts = batch.attempts
    if attempts is None:
        return set()
    counted = [row for row in attempts.losses.keys() | attempts.begun if lo <= row < hi]
    for row in counted:
        _count_loss(batch, row, is_announced)
    if is_announced:
        return set()
    return {row for row in counted if attempts.losses[row] > retries_on_loss}


def return_for_want(
    state: ClusterState, out: Outgoing, agent: AgentRecord, batch: Batch, row: int, news: bool
) -> list[Move]:
    """A row comes back from an agent that could not get objects it needs; with `news` nobody knew that it can't."""
    if batch.lacks(row):
        return [Hold(batch, row, [], Cause.OUT_OF_REACH)]
    if not reachability.is_hopeless(state, batch, row, news):
        client = state.clients[batch.client]
        return [reachability.settle(state, client, batch, row, Cause.OUT_OF_REACH, agent)]
    beyond = reachability.hosts_beyond(state, batch, row, agent)
    record = out_of_reach(batch.function.name, batch.id + row, agent.name, beyond).encode()
    return finishing.finish(state, out, batch, finishing.error_span(batch, row, record), None)


def return_refused(
    state: ClusterState, out: Outgoing, agent: AgentRecord, batch: Batch, lo: int, hi: int, why: str, unfit: bool
) -> list[Move]:
    """Rows come back from an agent that can never run them, or any if that is `unfit`: another one may."""
    client, words = state.clients[batch.client], no_worker_starts if unfit else refused
    lacking = [row for row in range(lo, hi) if batch.lacks(row)]
    others = [row for row in range(lo, hi) if not batch.lacks(row)]
    moves: list[Move] = [Hold(batch, row, [], Cause.OUT_OF_REACH) for row in lacking]
    for row, target in reachability.choose_others(state, client, batch, others, agent):
        if target is not None:
            moves.append(Place(batch, row, row + 1, target, Cause.OUT_OF_REACH))
            continue
        record = words(batch.function.name, batch.id + row, agent.name, why).encode()
        moves += finishing.finish(state, out, batch, finishing.error_span(batch, row, record), None)
    return moves
