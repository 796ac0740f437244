"""The one place where rows move, and the table of moves that are legal.

Each function here moves the rows [lo, hi) of a batch, all of which are in one place, for one cause. It looks the move
up in the table, keeps what is counted along with places (rows at each agent, rows left of the batch and of its client,
the queues of ready rows) and tells a fact if anybody wants facts. A move that is not in the table is a defect of the
scheduler: `IllegalMove` says which, nothing has changed then, and the core ends the batch with an error.
"""

from __future__ import annotations

from enum import IntEnum

from scaler.common.spans import SpanQueue
from scaler.protocol.messages import u32
from scaler.scheduler.state.agent_records import AgentRecord, Load
from scaler.scheduler.state.batch_records import AGENT, DONE, QUEUED, WAITING, Batch, Ending, place_name
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.cluster_facts import ClientCleared


class Cause(IntEnum):
    """Why rows move."""

    READY = 0
    PLACED = 1
    INPUT_LOST = 2
    GIVEN_BACK = 3
    MISREPORTED = 4
    WORKER_LOST = 5
    AGENT_LOST = 6
    RETRIED = 7
    OUT_OF_REACH = 8
    FINISHED = 9
    FAILED = 10
    CANCELLED = 11
    CLAIMED = 12
    RECOMPUTED = 13
    RETURNED = 14

    @property
    def words(self) -> str:
        """For stories and the documentation."""
        return _WORDS[self]


_WORDS = {
    Cause.READY: "all that it needs is there",
    Cause.PLACED: "placed by how busy agents are",
    Cause.INPUT_LOST: "an object that it needs is lost",
    Cause.GIVEN_BACK: "given back before it began",
    Cause.MISREPORTED: "its agent said of its batch more than it had",
    Cause.WORKER_LOST: "its worker died",
    Cause.AGENT_LOST: "its agent was lost",
    Cause.RETRIED: "it raised, and has retries left",
    Cause.OUT_OF_REACH: "its agent could not get what it needs",
    Cause.FINISHED: "its value came",
    Cause.FAILED: "it raised, can't run, or was lost once too often",
    Cause.CANCELLED: "cancelled",
    Cause.CLAIMED: "the task that waits for it runs it",
    Cause.RECOMPUTED: "its stored value is lost and needed: it is computed again",
    Cause.RETURNED: "so it was at another scheduler",
}

#: what takes rows from an agent without ending them
_BACK = (Cause.GIVEN_BACK, Cause.MISREPORTED, Cause.WORKER_LOST, Cause.AGENT_LOST, Cause.RETRIED, Cause.OUT_OF_REACH)

#: (from, to) -> the causes for which rows may move so; anything else is a defect of the scheduler
TRANSITIONS: dict[tuple[str, str], tuple[Cause, ...]] = {
    ("waiting", "queued"): (Cause.READY,),
    ("waiting", "agent"): (Cause.READY, Cause.RETURNED),
    ("waiting", "done"): (Cause.FAILED, Cause.CANCELLED, Cause.CLAIMED, Cause.RETURNED),
    ("queued", "agent"): (Cause.PLACED,),
    ("queued", "waiting"): (Cause.INPUT_LOST,),
    ("queued", "done"): (Cause.CANCELLED, Cause.CLAIMED),
    ("agent", "queued"): _BACK,
    ("agent", "agent"): _BACK,
    ("agent", "waiting"): _BACK,
    ("agent", "done"): (Cause.FINISHED, Cause.FAILED, Cause.CANCELLED, Cause.CLAIMED),
    ("done", "waiting"): (Cause.RECOMPUTED,),
}

_PLACED, _FINISHED = int(Cause.PLACED), int(Cause.FINISHED)
#: of rows that have ended as they should
_FINISHING = (Cause.FINISHED, Cause.RETURNED)
#: how rows have ended that have not as they should
ENDINGS = {int(Cause.FAILED): Ending.FAILED, int(Cause.CANCELLED): Ending.CANCELLED}
_KINDS = ("waiting", "queued", "done", "agent")
_AT_AGENT = 3
#: more than the greatest cause
_CAUSES = max(Cause) + 1


def _move_key(before: int, after: int, cause: int) -> int:
    return (before * 4 + after) * _CAUSES + cause


_LEGAL = frozenset(
    _move_key(_KINDS.index(before), _KINDS.index(after), cause)
    for (before, after), causes in TRANSITIONS.items()
    for cause in causes
)
#: the move that most rows end with
_FINISHED_THERE = _move_key(_AT_AGENT, DONE, Cause.FINISHED)


class IllegalMove(Exception):
    """A move that is not in the table: a defect of the scheduler. Nothing was moved."""

    def __init__(self, batch: Batch, lo: int, hi: int, places: list[str], after: str, cause: int) -> None:
        super().__init__(
            f"rows [{lo}, {hi}) of batch {batch.id} of client {batch.client} ({batch.function.name}) can't move from "
            f"{' and '.join(places)} to {after}: {Cause(cause).words}"
        )
        self.batch = batch
        self.row = lo


def queue(state: ClusterState, batch: Batch, lo: int, hi: int, cause: int, front: bool) -> None:
    """Rows wait for an agent, before all others of their client (`front`) or behind them."""
    _take_out(state, batch, lo, hi, QUEUED, QUEUED, cause)
    batch.tally.queued += hi - lo
    if front:
        state.queues.prepend(batch, lo, hi)
    else:
        state.queues.append(batch, lo, hi)


def place(state: ClusterState, batch: Batch, lo: int, hi: int, agent: AgentRecord, cause: int) -> None:
    """Rows that are in no queue are given to an agent, which is to be sorted anew."""
    _take_out(state, batch, lo, hi, AGENT + agent.number, _AT_AGENT, cause)
    _put_at(state, batch, lo, hi, agent)


def take_up(state: ClusterState, batch: Batch, lo: int, hi: int, agent: AgentRecord) -> None:
    """Rows are at an agent already, since before this scheduler."""
    _take_out(state, batch, lo, hi, AGENT + agent.number, _AT_AGENT, Cause.RETURNED)
    _count_at(state, batch, lo, hi, agent)
    state.unsorted[agent] = None


def place_queued(
    state: ClusterState, ready: SpanQueue[Batch], rows: int, agent: AgentRecord, of: Batch | None = None
) -> tuple[Batch, int, int]:
    """The next rows of a queue, or of the share of a batch, at most so many and of one batch, are given to an agent."""
    batch, lo, hi = ready.take(rows, (of or ready.head).function.duration_us, of.share if of else None)
    column, after, facts = batch.place, AGENT + agent.number, state.facts
    if column[lo] != QUEUED or (hi - lo > 1 and not batch.are_in(lo, hi, QUEUED)):
        raise _illegal(batch, lo, hi, _AT_AGENT, Cause.PLACED)
    if hi - lo == 1:
        column[lo] = after
    else:
        column[lo:hi] = u32([after]) * (hi - lo)
    batch.tally.queued -= hi - lo
    _put_at(state, batch, lo, hi, agent)
    if facts.wanted:
        facts.tell((batch.client, batch.id, lo, hi, QUEUED, after, _PLACED))
    return batch, lo, hi


def hold(state: ClusterState, batch: Batch, lo: int, hi: int, cause: int) -> None:
    """Rows wait for something that they need."""
    _take_out(state, batch, lo, hi, WAITING, WAITING, cause)
    if cause == Cause.RECOMPUTED and batch.endings is not None:  # they have not ended, however they did before
        batch.end_as(lo, hi, Ending.DONE)


def end(state: ClusterState, batch: Batch, lo: int, hi: int, cause: int) -> None:
    """Rows have ended."""
    _take_out(state, batch, lo, hi, DONE, DONE, cause)
    if cause in ENDINGS:
        batch.end_as(lo, hi, ENDINGS[cause])
    _count_ended(state, batch, hi - lo, cause)


def finish_at(state: ClusterState, batch: Batch, lo: int, hi: int, agent: AgentRecord) -> None:
    """Rows that an agent has are finished: what `end` does, at less cost, as most rows end so."""
    column, rows, place = batch.place, hi - lo, AGENT + agent.number
    if column[lo] != place or (rows > 1 and not batch.are_in(lo, hi, place)) or _FINISHED_THERE not in _LEGAL:
        raise _illegal(batch, lo, hi, DONE, Cause.FINISHED)
    if rows == 1:
        column[lo] = DONE
    else:
        column[lo:hi] = u32([DONE]) * rows
    _leave_agent(state, batch, lo, hi, agent.number, agent)
    batch.left -= rows
    state.clients[batch.client].outstanding -= rows
    batch.function.finished += rows
    if state.facts.wanted:
        state.facts.tell((batch.client, batch.id, lo, hi, place, DONE, _FINISHED))


def end_queued(state: ClusterState, batch: Batch, spans: list[tuple[int, int]], cause: int) -> None:
    """Many spans of queued rows of a batch, which ascend, have ended: what `end` does with each, at less cost."""
    column, facts, total = batch.place, state.facts, 0
    for lo, hi in spans:
        if not (column[lo] == QUEUED if hi - lo == 1 else batch.are_in(lo, hi, QUEUED)):
            raise _illegal(batch, lo, hi, DONE, cause)
    if _move_key(QUEUED, DONE, cause) not in _LEGAL:
        raise _illegal(batch, *spans[0], DONE, cause)
    for lo, hi in spans:
        rows = hi - lo
        total += rows
        if rows == 1:
            column[lo] = DONE
        else:
            column[lo:hi] = u32([DONE]) * rows
        if cause in ENDINGS:
            batch.end_as(lo, hi, ENDINGS[cause])
        if facts.wanted:
            facts.tell((batch.client, batch.id, lo, hi, QUEUED, DONE, cause))
    batch.tally.queued -= total
    state.queues.remove_all(batch, spans)
    _count_ended(state, batch, total, cause)


def _count_ended(state: ClusterState, batch: Batch, rows: int, cause: int) -> None:
    function = batch.function
    batch.left -= rows
    state.clients[batch.client].outstanding -= rows
    if cause in _FINISHING:
        function.finished += rows
    elif cause == Cause.FAILED:
        function.failed += rows
    elif cause == Cause.CANCELLED:
        function.cancelled += rows
    else:
        function.claimed += rows


def forget_client(state: ClusterState, client: ClientRecord) -> None:
    """All rows of a client are gone with it, without an end of their own."""
    state.queues.drop_client(client.number)
    for batch in client.batches.values():
        state.roots.end(client, batch)
        _leave_agents(state, batch)
        batch.waiters.clear()  # rows of a graph wait for rows of the same one
    client.batches.clear()
    client.batch_ids.clear()
    client.outstanding = 0
    for function in client.functions.values():
        function.cancelled += function.outstanding
        for tally in function.tallies.values():
            tally.queued = tally.batches = 0
    if state.facts.wanted:
        state.facts.tell(ClientCleared(client.number))


def abandon(state: ClusterState, batch: Batch) -> list[tuple[int, int]]:
    """All rows of a batch end wherever they are, whatever the table says; the spans that had not ended.

    For a batch that an illegal move has shown to be in disorder.
    """
    state.queues.remove(batch, 0, batch.rows)
    _leave_agents(state, batch)
    unended: list[tuple[int, int]] = []
    for before, lo, hi in batch.runs():
        if before != DONE:
            unended.append((lo, hi))
            batch.end_as(lo, hi, Ending.CANCELLED)
            if before == QUEUED:
                batch.tally.queued -= hi - lo
            if state.facts.wanted:
                state.facts.tell((batch.client, batch.id, lo, hi, before, DONE, int(Cause.CANCELLED)))
    batch.place[:] = u32([DONE]) * batch.rows
    state.clients[batch.client].outstanding -= batch.left
    batch.function.cancelled += batch.left
    batch.left = 0
    return unended


def _take_out(state: ClusterState, batch: Batch, lo: int, hi: int, after: int, kind: int, cause: int) -> None:
    """Move rows from wherever they are, and let go of what was counted for that place."""
    column, rows = batch.place, hi - lo
    before = column[lo]
    # `_move_key`, at less cost
    if ((before if before < AGENT else _AT_AGENT) * 4 + kind) * _CAUSES + cause not in _LEGAL:
        raise _illegal(batch, lo, hi, kind, cause)
    if rows == 1:
        column[lo] = after
    else:
        if not batch.are_in(lo, hi, before):
            raise _illegal(batch, lo, hi, kind, cause)
        column[lo:hi] = u32([after]) * rows
    if before >= AGENT:
        number = before - AGENT
        _leave_agent(state, batch, lo, hi, number, state.agents.get(number))  # None: it is lost, and they leave it now
    elif before == QUEUED:
        batch.tally.queued -= rows
        state.queues.remove(batch, lo, hi)
    elif before == DONE:
        batch.left += rows
        state.clients[batch.client].outstanding += rows
        batch.function.finished -= rows
    facts = state.facts
    if facts.wanted:
        facts.tell((batch.client, batch.id, lo, hi, before, after, cause))


def _leave_agent(state: ClusterState, batch: Batch, lo: int, hi: int, number: int, agent: AgentRecord | None) -> None:
    """Let go of what was counted for rows that were at an agent; None: that is gone."""
    rows = hi - lo
    left = batch.at[number] - rows
    if left:
        batch.at[number] = left
    else:
        del batch.at[number]
    batch.tally.at_agents -= rows
    if batch.attempts is not None and batch.attempts.begun:
        batch.attempts.begun.difference_update(range(lo, hi))
    if agent is not None:
        load = agent.load
        load.outstanding -= rows * batch.slots
        if batch.is_special:
            _count_special(load, batch, -rows)
        state.unsorted[agent] = None
        if not left:
            agent.batches.pop(batch, None)
            load.idle_since = state.now


def _put_at(state: ClusterState, batch: Batch, lo: int, hi: int, agent: AgentRecord) -> None:
    """Count rows at an agent, and have them sent at the end of the step."""
    _count_at(state, batch, lo, hi, agent)
    spans = agent.unsent.get(batch)
    if spans is None:
        agent.unsent[batch] = [(lo, hi)]
    else:
        spans.append((lo, hi))
    state.touched.setdefault(agent)


def _count_at(state: ClusterState, batch: Batch, lo: int, hi: int, agent: AgentRecord) -> None:
    load, number = agent.load, agent.number
    if not load.outstanding:
        load.quiet_since = state.now
    load.outstanding += (hi - lo) * batch.slots
    if batch.is_special:
        _count_special(load, batch, hi - lo)
    if load.exhausted:
        load.exhausted = set()
    batch.at[number] = batch.at.get(number, 0) + hi - lo
    batch.tally.at_agents += hi - lo
    agent.batches.setdefault(batch)


def _count_special(load: Load, batch: Batch, rows: int) -> None:
    """So many rows of a special batch came to an agent, or (below 0) left it."""
    if batch.slots > 1:
        _add(load.wide, batch.slots, rows)
    if batch.urgency:
        _add(load.by_urgency, batch.urgency, rows * batch.slots)
    if batch.is_shared:
        _add(load.by_share, batch.share, rows * batch.slots)


def count_by_share(state: ClusterState, batch: Batch) -> None:
    """Others have work, and had none when a batch came: from now on its rows count as those of a shared one."""
    batch.is_shared = batch.is_special = True
    for number, rows in batch.at.items():
        _add(state.agents[number].load.by_share, batch.share, rows * batch.slots)


def _add(counts: dict[int, int], key: int, more: int) -> None:
    """Count, and keep no zeros."""
    counts[key] = counts.get(key, 0) + more
    if not counts[key]:
        del counts[key]


def _leave_agents(state: ClusterState, batch: Batch) -> None:
    for number, rows in batch.at.items():
        agent = state.agents[number]
        agent.load.outstanding -= rows * batch.slots
        if batch.is_special:
            _count_special(agent.load, batch, -rows)
        agent.batches.pop(batch, None)
        agent.unsent.pop(batch, None)
        agent.load.idle_since = state.now
        state.unsorted[agent] = None
    batch.tally.at_agents -= sum(batch.at.values())
    batch.at.clear()


def _illegal(batch: Batch, lo: int, hi: int, kind: int, cause: int) -> IllegalMove:
    places = sorted({place_name(place) for place in batch.place[lo:hi]})
    return IllegalMove(batch, lo, hi, places, _KINDS[kind], cause)
