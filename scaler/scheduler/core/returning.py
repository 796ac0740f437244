"""Clients and agents come back from a scheduler that is gone: whom to wait for, and what is put aside meanwhile.

An agent says first what it has. A client says all again that it said to the last scheduler, of which it knows what
agents may have something of it. When those have come, or were waited for long enough, its work is put together
(`rebuilding.py`). What it says until then, and what agents say of it (`mail.py`), is put aside; nobody else has to
wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from scaler.errors import ProtocolError
from scaler.protocol.messages import (
    ClientDeparture,
    ClientReturn,
    ClientShutdown,
    DisconnectRequest,
    Heartbeat,
    Hello,
    Inventory,
    Message,
    Spans,
    StoreRequest,
    TaskCancel,
)
from scaler.scheduler.core import late_rows, lifetimes, placement
from scaler.scheduler.core.events import LookFor, Vanished
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state import accounts
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.returning_records import Holding, ReturningClient

#: seconds for which agents are waited for that may have something of a client; less if they are given up sooner
PATIENCE = 10.0
#: seconds after which the log says that they are waited for
BRIEF = 1.0
#: seconds after which it is looked whether they still listen where they did; and looked again
LOOK = 1.0
#: seconds in which all come that look for a scheduler since the first of them has come: they try twice a second
TOGETHER = 1.0
#: seconds of silence after which a client is given up that has not said all again; it may be writing objects again
REPEATING = 60.0
#: what a client is answered at once
AT_ONCE = frozenset({Heartbeat, StoreRequest, ClientShutdown, DisconnectRequest})


# ---- who comes -------------------------------------------------------------------------------------------------------
def join_client(
    state: ClusterState, out: Outgoing, client: ClientRecord, hello: Hello, patience: float, is_resident: bool
) -> None:
    """A client has joined; with the number that it had before it comes back.

    A resident may have to wait for its disk before it says anything.
    """
    returning, number = state.returning, client.number
    returning.absent.pop(number, None)
    for agent, holding in list(returning.holdings.get(number, {}).items()):
        if holding.session != client.session:
            _drop(state, out, number, agent)
    if hello.number != number:
        return
    _note_first(state)
    returning.workers = max(returning.workers, hello.workers)
    expected = {n for n in hello.agents if n in returning.agents or n not in state.agents}
    named = dict(zip(hello.agents, hello.whereabouts or [""] * len(hello.agents), strict=True))
    returning.clients[number] = ReturningClient(
        expected, state.now + min(PATIENCE, patience), state.now + BRIEF, named, state.now + LOOK,
        math.inf if is_resident else state.now,
    )  # fmt: skip


def join_agent(state: ClusterState, agent: AgentRecord, hello: Hello) -> None:
    """An agent has joined; with the number that it had before it is to say what it has, and gets no rows until then.

    Clients that don't know that it may have something of them don't wait for it.
    """
    if hello.number == agent.number:
        _note_first(state)
        state.returning.agents.add(agent.number)
        agent.load.is_full = True


def _note_first(state: ClusterState) -> None:
    """Somebody has come back."""
    if state.returning.coming_until == -math.inf:
        state.returning.coming_until = state.now + TOGETHER


def coming_until(state: ClusterState, agent_timeout: float) -> float:
    """Until when all may come, seconds: for longer while the cluster has fewer workers than clients knew of."""
    returning = state.returning
    longer = state.workers < returning.workers
    return returning.coming_until + (max(0.0, min(PATIENCE, agent_timeout) - TOGETHER) if longer else 0.0)


def check_first(state: ClusterState, agent: AgentRecord, message: Message) -> None:
    """Raise ProtocolError if an agent that came back says anything before it has said what it has."""
    if agent.number in state.returning.agents and type(message) is not Inventory:
        raise ProtocolError(f"a {type(message).__name__} before its Inventory")


def take_inventory(state: ClusterState, out: Outgoing, agent: AgentRecord, message: Inventory, patience: float) -> None:
    """An agent that came back says what it has. Raises ProtocolError if it did not come back, or has said so."""
    returning = state.returning
    if agent.number not in returning.agents:
        raise ProtocolError("an Inventory, which was not due")
    returning.agents.discard(agent.number)
    placement.resize(state, agent, agent.load.workers, is_full=False)
    found = {n: Holding(session, [], []) for n, session in zip(message.clients, message.sessions, strict=True)}
    for number, batch, lo, hi in message.rows:
        found[number].rows.append((batch, lo, hi))
    for (number, object_id), size in zip(message.objects, message.sizes, strict=True):
        found[number].objects.append((object_id, size))
    for number, holding in found.items():
        client = state.clients.get(number)
        if client is not None and client.session != holding.session:
            if agent.number not in client.agents:  # it holds nothing of the client that has this number now
                out.send(agent.number, ClientDeparture(number))
        elif client is None or number in returning.clients:
            returning.holdings.setdefault(number, {})[agent.number] = holding
            if client is None:
                returning.absent.setdefault(number, state.now + patience)
        else:
            _come_late(state, out, client, agent, holding)
    for client_record in returning.clients.values():
        client_record.expected.discard(agent.number)


def _come_late(state: ClusterState, out: Outgoing, client: ClientRecord, agent: AgentRecord, holding: Holding) -> None:
    """The work of a client goes on without this agent: what it has to run runs elsewhere, what it stores is welcome."""
    out.meet(client, agent)
    for object_id, size in holding.objects:
        item = client.values.objects.get(object_id)
        if item is not None and item.is_stored and size and object_id not in client.values.remaking:
            lifetimes.add_copy(state, client, agent, object_id, item)
        else:
            lifetimes.release_at(state, agent, client.number, object_id, size)
    spans = Spans()
    for batch, lo, hi in holding.rows:
        spans.add(client.number, batch, lo, hi)
    for batch in {batch for batch, _, _ in holding.rows}:
        known = client.batches.get(batch)
        if known is not None:
            known.keep_at(agent.number)
        else:
            agent.over.append((client.number, batch))
    if spans:
        for part in TaskCancel(spans, force=True).parts():
            out.send(agent.number, part)
        late_rows.await_ends(state, agent, client.number, holding.rows)


# ---- what is put aside -----------------------------------------------------------------------------------------------
def put_aside(state: ClusterState, client: int, message: Message) -> bool:
    """Put aside what a client says whose work is not together yet; False if it is to be dealt with at once."""
    record = state.returning.clients.get(client)
    if record is None or type(message) in AT_ONCE:
        return False
    record.messages.append(message)
    kept = accounts.price_of_message(message)
    record.kept += kept
    accounts.charge(state, state.clients[client], kept)
    record.stir(state.now)
    record.has_repeated = record.has_repeated or type(message) is ClientReturn
    return True


def complete(state: ClusterState) -> list[int]:
    """The clients of which all is known that will be."""
    now, clients = state.now, state.returning.clients
    return [
        n for n, client in clients.items() if client.has_repeated and (not client.expected or now >= client.deadline)
    ]


def tell_of_waiting(state: ClusterState, out: Outgoing) -> None:
    """Say in the log who is waited for, once that has lasted."""
    due = [client for client in state.returning.clients.values() if client.expected and state.now >= client.told]
    if due:
        out.log("WARNING", state.returning.words(state.now))
    for client in due:
        client.told = math.inf


def look_for_missing(state: ClusterState, out: Outgoing) -> None:
    """Have it looked whether agents that have not come listen where they did: one whose process has ended does not."""
    wanted: dict[tuple[int, str], None] = {}
    for client in state.returning.clients.values():
        if state.now >= client.look:
            client.look = state.now + LOOK if client.expected else math.inf
            missing = sorted(client.expected - state.agents.keys())
            wanted.update(((number, client.named[number]), None) for number in missing if client.named[number])
    if wanted:
        out.effects.append(LookFor([*wanted]))


def take_vanished(state: ClusterState, out: Outgoing, event: Vanished) -> None:
    """Nothing listens where an agent did: clients that have said that it was there wait for it no longer."""
    number, whereabouts = event.number, event.whereabouts
    clients = [client for client in state.returning.clients.values() if client.named.get(number) == whereabouts]
    waiting = [client for client in clients if number in client.expected and number not in state.agents]
    for client in waiting:
        client.expected.discard(number)
    if waiting:
        address = whereabouts.partition(" ")[0]
        out.log("WARNING", f"agent {number} of the last scheduler has ended: nothing listens at {address} any more")


def overdue(state: ClusterState, client_timeout: float) -> Iterator[tuple[int, str]]:
    """The clients that have said nothing again for too long, and the words for that."""
    patience = max(REPEATING, client_timeout)
    for number, client in list(state.returning.clients.items()):
        if not client.has_repeated and state.now - client.heard > patience:
            yield number, f"said nothing for {patience:g} s of what it has said to the last scheduler"


# ---- who goes --------------------------------------------------------------------------------------------------------
def lose_agent(state: ClusterState, agent: AgentRecord) -> None:
    """An agent is gone: nobody waits for it, and what it had is not there."""
    returning = state.returning
    returning.agents.discard(agent.number)
    returning.late.pop(agent.number, None)
    for number in [number for number, holdings in returning.holdings.items() if agent.number in holdings]:
        del returning.holdings[number][agent.number]
        if not returning.holdings[number]:
            del returning.holdings[number]
    for number, letters in returning.mail.items():
        returning.mail[number] = [letter for letter in letters if letter[0] != agent.number]
    for client in returning.clients.values():
        client.expected.discard(agent.number)


def lose_client(state: ClusterState, out: Outgoing, number: int) -> None:
    """A client is gone, or does not come: nobody wants what agents have of it."""
    returning = state.returning
    returning.clients.pop(number, None)  # what is on its account for that goes with the rest
    returning.absent.pop(number, None)
    returning.mail.pop(number, None)
    for agent in list(returning.holdings.get(number, ())):
        _drop(state, out, number, agent)


def may_be_elsewhere(state: ClusterState) -> bool:
    """Who does not come back can't come yet, or may be at the other one of a pair, which leads: nobody is given up."""
    return state.returning.residents_due or not state.hands_out


def await_residents(state: ClusterState, are_due: bool, patience: float) -> None:
    """Durable jobs can't come yet, or are about to: they and all others have the whole time then."""
    state.returning.residents_due = are_due
    postpone(state, patience)


def postpone(state: ClusterState, patience: float) -> None:
    """Whoever has not come back has all of `patience` from now on; of clients that others submit for, too."""
    until = state.now + patience
    state.returning.absent = dict.fromkeys(state.returning.absent, until)
    for root in state.roots.awaited.values():
        root.deadline = max(until, state.returning.settled)


def hand_out(state: ClusterState, may: bool, reason: str, patience: float, agent_timeout: float) -> None:
    """Rows may be handed out, or may not. Who was at the other scheduler, or on the way to it, comes from now on."""
    if may and not state.hands_out:
        state.returning.settled = max(state.returning.settled, state.now + agent_timeout)
        postpone(state, patience)
    state.hands_out, state.why_not = may, reason


def next_deadline(state: ClusterState) -> float:
    """When somebody is waited for no longer, or is to be looked for, seconds; infinite if nobody is waited for."""
    returning, dates = state.returning, [math.inf]
    for client in returning.clients.values():
        if client.expected:
            dates += [client.told, client.look]
            if client.has_repeated or client.deadline > state.now:
                dates.append(client.deadline)
    if not may_be_elsewhere(state):
        dates += [*returning.absent.values(), state.roots.first_deadline]
    return min(dates)


def give_up_absent(state: ClusterState, out: Outgoing) -> list[int]:
    """Clients that did not come back in time will not; the sessions that they had."""
    overdue = [number for number, deadline in state.returning.absent.items() if state.now >= deadline]
    sessions = list(_sessions(state, overdue))
    for number in overdue:
        out.log("INFO", f"client {number} did not come back")
        lose_client(state, out, number)
    return sessions


def sessions_of_absent(state: ClusterState) -> dict[int, None]:
    """The sessions of clients that did not come yet and of which agents have something."""
    return _sessions(state, state.returning.absent)


def _sessions(state: ClusterState, numbers: Iterable[int]) -> dict[int, None]:
    holdings = state.returning.holdings
    return {held.session: None for number in numbers for held in holdings.get(number, {}).values()}


def _drop(state: ClusterState, out: Outgoing, number: int, agent: int) -> None:
    """An agent has something of a client that there is no more, and may have spoken of it."""
    returning = state.returning
    holdings = returning.holdings[number]
    del holdings[agent]
    if not holdings:
        del returning.holdings[number]
    letters = [letter for letter in returning.mail.pop(number, ()) if letter[0] != agent]
    if letters:
        returning.mail[number] = letters
    if agent in state.agents:
        out.send(agent, ClientDeparture(number))


def release_leftovers(state: ClusterState, agent: AgentRecord) -> None:
    """Let go of what only rows could need that were at an agent before this scheduler, if those have ended."""
    for number, objects in list(agent.leftovers.items()):
        if any(batch.client == number and batch.has_come_back for batch in agent.batches):
            continue
        del agent.leftovers[number]
        client = state.clients.get(number)
        if client is not None:
            for object_id, size in objects:
                if object_id not in client.values.objects:
                    lifetimes.release_at(state, agent, number, object_id, size)
