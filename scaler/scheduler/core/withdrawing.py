"""Rows are taken back by their client: cancelled, or claimed by a task that waits for them.

Rows that no agent has are taken at once. For the others their agents are asked, and what they were asked for is noted
until they have answered: rows that come back for another reason meanwhile are taken here.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

from scaler.common.span_lists import joined, within, without
from scaler.errors import ProtocolError
from scaler.protocol.codes import MOST_SPANS, WithdrawalKind
from scaler.protocol.messages import Spans, TaskBegun, TaskCancel, TaskClaim, TaskClaimResponse, TaskHold, TaskRunning
from scaler.scheduler.core import finishing, late_rows
from scaler.scheduler.core.moves import Move
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.asked_rows import AskedRows, Withdrawal
from scaler.scheduler.state.batch_records import AGENT, DONE, Batch, attempts_of, lineage_of
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState

K = TypeVar("K")

#: the spans of a batch that each of some agents has
Elsewhere = dict[int, list[tuple[int, int]]]
#: (client, batch, lo, hi)
Span = tuple[int, int, int, int]
#: the rows of each batch, as spans that are ascending and apart
Named = dict[Batch, list[tuple[int, int]]]
#: by client and batch the spans that an agent has answered for
Answered = dict[tuple[int, int], list[tuple[int, int]]]


def _named(client: ClientRecord, spans: Iterable[Span]) -> tuple[Named, list[Span]]:
    """The rows of a client that a message names, and the spans of it that mean nothing.

    It may name the same rows in each of many spans: what follows is done once for each row.
    """
    named: Named = {}
    unknown: list[Span] = []
    for span in spans:
        _, batch_id, lo, hi = span
        batch = client.batches.get(batch_id)
        if batch is None or hi > batch.rows:
            unknown.append(span)
        elif batch in named:
            named[batch].append((lo, hi))
        else:
            named[batch] = [(lo, hi)]
    return _each_joined(named), unknown


def _each_joined(found: dict[K, list[tuple[int, int]]]) -> dict[K, list[tuple[int, int]]]:
    return {key: joined(each) if len(each) > 1 else each for key, each in found.items()}


def spans_at(state: ClusterState, agent: AgentRecord, spans: Spans) -> Iterator[tuple[ClientRecord, Batch, int, int]]:
    """The parts of these spans that are with this agent, one by one: of what has gone by then nothing is said."""
    place = AGENT + agent.number
    by_client: dict[int, list[Span]] = {}
    for span in spans:
        by_client.setdefault(span[0], []).append(span)
    for number, theirs in by_client.items():
        client = state.clients.get(number)
        if client is None:
            continue
        for batch, named in _named(client, theirs)[0].items():
            for lo, hi in named:
                for a, b in batch.spans_in(place, lo, hi):
                    yield client, batch, a, b


def _sort_by_place(batch: Batch, spans: Iterable[tuple[int, int]]) -> tuple[list[tuple[int, int]], Elsewhere]:
    """The spans of rows that no agent has and that have not ended, and by agent the spans that are there."""
    column = batch.place
    here: list[tuple[int, int]] = []
    elsewhere: Elsewhere = {}
    for lo, hi in spans:
        for place, a, b in ((column[lo], lo, hi),) if hi - lo == 1 else batch.runs(lo, hi):
            if place >= AGENT:
                elsewhere.setdefault(place - AGENT, []).append((a, b))
            elif place != DONE:
                here.append((a, b))
    return here, elsewhere


def _note_asked(
    state: ClusterState, batch: Batch, elsewhere: Elsewhere, questions: dict[int, Spans], kind: WithdrawalKind
) -> None:
    for number, spans in elsewhere.items():
        asked = state.agents[number].withdrawals.setdefault(batch.client, AskedRows())
        if batch.asked_of is None:
            batch.asked_of = set()
        batch.asked_of.add(number)
        for lo, hi in spans:
            if kind is WithdrawalKind.CLAIM:
                attempts_of(batch).claimed.update(range(lo, hi))
            asked.add(Withdrawal(kind, batch, lo, hi))
            questions.setdefault(number, Spans()).add(batch.client, batch.id, lo, hi)


# ---- what clients ask ------------------------------------------------------------------------------------------------
def cancel(state: ClusterState, out: Outgoing, client: ClientRecord, message: TaskCancel) -> list[Move]:
    """Rows are to be cancelled: those that no agent has end now, the agents that have the others are asked."""
    moves: list[Move] = []
    questions: dict[int, Spans] = {}
    kind = WithdrawalKind.FORCE if message.force else WithdrawalKind.CANCEL
    named, unknown = _named(client, message.spans)
    state.ended.not_found += sum(hi - lo for _, _, lo, hi in unknown)
    for batch, spans in named.items():
        here, elsewhere = _sort_by_place(batch, _not_again(batch, spans))
        moves += finishing.cancel(state, out, batch, here)
        _note_asked(state, batch, elsewhere, questions, kind)
    for number, question in questions.items():
        out.ask(number, client.number, TaskCancel(question, message.force))
    return moves


def hold(state: ClusterState, out: Outgoing, client: ClientRecord, message: TaskHold) -> None:
    """A client cancels row after row: none of its rows goes to an agent until it says so, by naming none.

    It is told which of these wait here, as far as a message names them: it need not ask about each of them. Of rows in
    many places some are looked at. Rows that have come back, or are computed again, may have to go to some agent at any
    time.
    """
    if message and not client.is_held:
        state.queues.hold(client.number)
    client.is_cancelling = bool(message)
    if not client.is_held:
        state.queues.release(client.number)
    if not message:
        return
    named = _named(client, message)[0]
    runs = (
        (batch, *run)
        for batch, spans in named.items()
        if batch.attempts is None or not batch.attempts.returns
        for lo, hi in _not_again(batch, spans)
        for run in batch.runs(lo, hi)
    )
    held = TaskHold()
    for batch, place, lo, hi in islice(runs, 2 * MOST_SPANS):  # it asks about others one by one
        if place < AGENT and place != DONE:
            held.add(0, batch.id, lo, hi)
    out.send(client.number, held.parts()[0])


def claim(state: ClusterState, out: Outgoing, client: ClientRecord, message: TaskClaim) -> list[Move]:
    """A task waits for rows and offers to run them: it gets those that no agent has, agents are asked for others."""
    granted, refused = Spans(), Spans()
    moves: list[Move] = []
    questions: dict[int, Spans] = {}
    named, unknown = _named(client, message)
    for _, batch_id, lo, hi in unknown:
        refused.add(client.number, batch_id, lo, hi)
    for batch, spans in named.items():
        here, elsewhere = _sort_by_place(batch, _not_again(batch, spans) if batch.task.may_be_claimed else [])
        for a, b in without(spans, chain(here, *elsewhere.values())):  # results of some are on the way
            refused.add(client.number, batch.id, a, b)
        for a, b in here:
            granted.add(client.number, batch.id, a, b)
            moves += finishing.hand_over(state, batch, a, b)
        _note_asked(state, batch, elsewhere, questions, WithdrawalKind.CLAIM)
    if granted or refused:
        out.send(client.number, TaskClaimResponse(granted, refused))
    for number, question in questions.items():
        out.ask(number, client.number, TaskClaim(question.clients, question.batches, question.spans))
    return moves


# ---- what agents answer ----------------------------------------------------------------------------------------------
def _by_batch(spans: Iterable[Span]) -> Answered:
    """Spans of (client, batch, lo, hi) by their batches: each's rows once, ascending."""
    found: Answered = {}
    for number, batch_id, lo, hi in spans:
        found.setdefault((number, batch_id), []).append((lo, hi))
    return _each_joined(found)


def forward_begun(state: ClusterState, out: Outgoing, agent: AgentRecord, message: TaskBegun) -> None:
    """Tell clients of their rows that have run for a while."""
    for client, batch, lo, hi in spans_at(state, agent, message):
        attempts_of(batch).begun.update(range(lo, hi))
        begun = TaskBegun()
        begun.add(client.number, batch.id, lo, hi)
        out.send(client.number, begun)


def take_running(state: ClusterState, out: Outgoing, agent: AgentRecord, message: TaskRunning) -> list[Move]:
    """Rows that were to be cancelled run: nobody waits for them to come back any more."""
    found = [(client.number, batch.id, lo, hi) for client, batch, lo, hi in spans_at(state, agent, message)]
    for span in found:
        running = TaskRunning()
        running.add(*span)
        out.send(span[0], running)
    _settle(agent, _by_batch(found), WithdrawalKind.CANCEL)
    return []


def take_claim_response(
    state: ClusterState, out: Outgoing, agent: AgentRecord, message: TaskClaimResponse
) -> list[Move]:
    """Rows that had not begun are their claimer's; the others it has to wait for.

    Raises ProtocolError for rows that nobody has claimed: they are not the agent's to give.
    """
    late_rows.take_back(state, agent, message.granted)
    granted: dict[ClientRecord, Spans] = {}
    refused: dict[ClientRecord, Spans] = {}
    moves: list[Move] = []
    for _, batch, lo, hi in spans_at(state, agent, message.granted):
        if not (batch.attempts is not None and batch.attempts.claimed.issuperset(range(lo, hi))):
            raise ProtocolError(f"a TaskClaimResponse that grants rows of {batch.function.name} nobody claimed")
    for client, batch, lo, hi in spans_at(state, agent, message.granted):
        moves += finishing.hand_over(state, batch, lo, hi)
        granted.setdefault(client, Spans()).add(client.number, batch.id, lo, hi)
    for number, batch_id, lo, hi in message.refused:
        claimer = state.clients.get(number)
        if claimer is not None:
            refused.setdefault(claimer, Spans()).add(number, batch_id, lo, hi)
    _settle(agent, _by_batch([*message.granted, *message.refused]), WithdrawalKind.CLAIM)
    for client in {**granted, **refused}:
        out.send(client.number, TaskClaimResponse(granted.get(client, Spans()), refused.get(client, Spans())))
    return moves + answer_for(state, out, agent, message.granted)  # their clients may have cancelled them, too


def _settle(agent: AgentRecord, answered: Answered, kind: WithdrawalKind) -> None:
    """An agent has said what becomes of these rows; of others that it has it may still say so, or be lost before."""
    for (client, batch_id), spans in answered.items():
        asked = agent.withdrawals.get(client)
        if asked is None:
            continue
        for question in asked.take(batch_id, spans, kind):
            for left in _without(question, within(spans, question.lo, question.hi)):
                if kind is WithdrawalKind.CLAIM or left.batch.has_in(AGENT + agent.number, left.lo, left.hi):
                    asked.add(left)
        if not asked:
            del agent.withdrawals[client]


def answer_for(
    state: ClusterState, out: Outgoing, agent: AgentRecord, rows: Iterable[Span], back: Iterable[Span] = ()
) -> list[Move]:
    """Of these rows, which an agent has spoken of, those it was asked for may not be there any more.

    What is queued again can be taken here. A claim is answered by the agent in any case, unless it is lost. `back`: the
    rows that have just come back from it, as (client, batch, lo, hi); they may be with it once more, and it has not
    heard that it is to cancel those.
    """
    came = _by_batch(back)
    moves: list[Move] = []
    for (number, batch_id), spans in _by_batch(rows).items():
        asked = agent.withdrawals.get(number)
        if asked is None:
            continue
        client, questions = state.clients.get(number), asked.take(batch_id, spans)
        if client is not None:
            told = came.get((number, batch_id), [])
            moves += [move for each in questions for move in _answer(state, out, agent, client, each, told)]
        if not asked:
            agent.withdrawals.pop(number, None)
    return moves


def answer_for_lost(state: ClusterState, out: Outgoing, agent: AgentRecord) -> list[Move]:
    """An agent is gone, and answers nothing."""
    withdrawals, agent.withdrawals = agent.withdrawals, {}
    return [
        move
        for number, asked in withdrawals.items()
        if number in state.clients
        for each in asked
        for move in _answer(state, out, agent, state.clients[number], each, [])
    ]


def _answer(
    state: ClusterState,
    out: Outgoing,
    agent: AgentRecord,
    client: ClientRecord,
    asked: Withdrawal,
    back: list[tuple[int, int]],
) -> list[Move]:
    """Ask anew for those of these rows that are not there any more; for the others the question stays open."""
    kind, batch, lo, hi = asked
    spans = Spans()
    if not batch.left:
        return []
    if kind is WithdrawalKind.CLAIM:
        if agent.number in state.agents:
            _ask_on(agent, asked)
            return []
        spans.add(client.number, batch.id, lo, hi)
        return claim(state, out, client, TaskClaim(spans.clients, spans.batches, spans.spans))
    told = within(back, lo, hi)
    for part in _without(asked, told):
        trimmed = _trimmed(part)
        if batch.has_in(AGENT + agent.number, trimmed.lo, trimmed.hi):
            _ask_on(agent, trimmed)
        else:
            told.append((trimmed.lo, trimmed.hi))
    for a, b in told:
        for c, d in first_runs(batch, a, b):
            spans.add(client.number, batch.id, c, d)
    return cancel(state, out, client, TaskCancel(spans, kind is WithdrawalKind.FORCE)) if spans else []


def _ask_on(agent: AgentRecord, asked: Withdrawal) -> None:
    agent.withdrawals.setdefault(asked.batch.client, AskedRows()).add(asked)


def _without(asked: Withdrawal, spans: list[tuple[int, int]]) -> list[Withdrawal]:
    """What is left of a question once these rows of it are answered for."""
    return [asked._replace(lo=lo, hi=hi) for lo, hi in without([(asked.lo, asked.hi)], spans)]


def _trimmed(asked: Withdrawal) -> Withdrawal:
    """A question without the rows at its ends that have ended; those in between are not worth many questions."""
    column, lo, hi = asked.batch.place, asked.lo, asked.hi
    while lo < hi and column[lo] == DONE:
        lo += 1
    while lo < hi and column[hi - 1] == DONE:
        hi -= 1
    return asked if hi - lo == asked.hi - asked.lo else asked._replace(lo=lo, hi=hi)


def _not_again(batch: Batch, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [part for lo, hi in spans for part in first_runs(batch, lo, hi)]


def first_runs(batch: Batch, lo: int, hi: int) -> list[tuple[int, int]]:
    """The rows of [lo, hi) that are not computed again, as spans: nobody wants those cancelled who need their values.

    Whoever had them cancelled has heard of their first ends.
    """
    if not batch.is_recomputing(lo, hi):
        return [(lo, hi)] if lo < hi else []
    return without([(lo, hi)], ((row, row + 1) for row in lineage_of(batch).recomputing if lo <= row < hi))


def forget_client(agent: AgentRecord, client: int) -> None:
    """Nobody waits any more for rows of a client."""
    agent.withdrawals.pop(client, None)
