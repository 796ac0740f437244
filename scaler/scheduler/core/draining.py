"""Agents that are about to go: they get no new rows, others copy what only they have, then they are told to end.

An agent goes because somebody said so, because its end was announced to it, or because its walltime is nearly over; it
gives back by itself what has not begun. What it has in its store and nobody else has is fetched by other agents, a few
objects at a time. When it has no rows and nothing that anybody would miss, it is told that nothing is left to do. An
agent with nobody to take its values over stays until somebody comes, or until it is ended.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from scaler.protocol.codes import Leaving, Wish
from scaler.protocol.messages import Drain, ObjectFetch, u32, u64
from scaler.scheduler.core import lifetimes, reachability
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.departures import Departure, ObjectKey

#: objects of an agent that are copied at once
AT_ONCE = 8
#: seconds after which all that an agent has is looked at again, while it can't go
LOOK_AGAIN = 1.0

WORDS = {
    Leaving.TOLD: "it was told to drain",
    Leaving.ANNOUNCED: "its end was announced",
    Leaving.WALLTIME: "its walltime is nearly over",
}


# ---- who goes --------------------------------------------------------------------------------------------------------
def begin(state: ClusterState, out: Outgoing, agent: AgentRecord, reason: Leaving) -> None:
    """An agent is about to go; told so by somebody, it is told in turn."""
    departure = state.leaving.get(agent.number)
    if departure is not None:
        if reason is not Leaving.TOLD:
            departure.reason = reason
        return
    if not state.leaving:
        state.takers.next_look = state.now
    state.leaving[agent.number] = Departure(agent, reason)
    agent.load.is_leaving = True
    state.unsorted[agent] = None
    if reason is Leaving.TOLD:
        out.send(agent.number, Drain(Wish.DRAIN.value))
    rows, held = agent.load.rows, len(agent.holdings.keys)
    out.log("INFO", f"agent {agent.number} ({agent.name}) drains, {WORDS[reason]}: it has {rows} rows, {held} objects")


def stay(state: ClusterState, out: Outgoing, agent: AgentRecord) -> bool:
    """An agent that somebody told to go shall stay; False if it does not, or goes for another reason."""
    departure = state.leaving.get(agent.number)
    if departure is None or departure.is_over or departure.reason is not Leaving.TOLD:
        return False
    del state.leaving[agent.number]
    agent.load.is_leaving = False
    state.unsorted[agent] = None
    _offer(state, agent)
    out.send(agent.number, Drain(Wish.STAY.value))
    out.log("INFO", f"agent {agent.number} ({agent.name}) stays")
    return True


def take_word(state: ClusterState, out: Outgoing, agent: AgentRecord, leaving: int) -> None:
    """An agent says whether it is about to go. What it was told itself, and may not have heard yet, is no news."""
    if leaving not in (Leaving.NOT, Leaving.TOLD):
        begin(state, out, agent, Leaving(leaving))


def join(state: ClusterState, out: Outgoing, agent: AgentRecord, leaving: int) -> None:
    """An agent has joined that says whether it is about to go: another scheduler may have told it."""
    _offer(state, agent)
    if leaving:
        begin(state, out, agent, Leaving(leaving))


def lose_agent(state: ClusterState, agent: AgentRecord) -> None:
    """An agent is gone: nobody copies from it, and it fetches nothing."""
    state.leaving.pop(agent.number, None)
    state.takers.agents.pop(agent, None)
    for departure in state.leaving.values():
        for key in [key for key, number in departure.moving.items() if number == agent.number]:
            _fail(departure, key)


# ---- what they have --------------------------------------------------------------------------------------------------
def take_response(state: ClusterState, agent: AgentRecord, key: ObjectKey, has_failed: bool) -> None:
    """An agent has fetched an object, or could not; if it was for one that goes, others are tried."""
    for departure in state.leaving.values():
        if departure.moving.get(key) != agent.number:
            continue
        departure.is_stuck = False
        if has_failed:
            _fail(departure, key)
            continue
        client = state.clients.get(key[0])
        item = client.values.objects.get(key[1]) if client is not None else None
        if client is not None and item is not None and item.is_stored:
            lifetimes.add_copy(state, client, agent, key[1], item)


def _fail(departure: Departure, key: ObjectKey) -> None:
    departure.failed.setdefault(key, set()).add(departure.moving.pop(key))
    departure.to_do.append(key)
    departure.is_stuck = False


def _offer(state: ClusterState, agent: AgentRecord) -> None:
    """An agent may take values over, from now on."""
    if state.leaving and (agent.host.data or agent.host.store):
        state.takers.agents[agent] = None
        for departure in state.leaving.values():
            departure.is_stuck = False


def attend(state: ClusterState, out: Outgoing) -> None:
    """Have more copied of what only those have that go, and let those go that have nothing left.

    What clients need whose work is not together yet is not known: agents that have something of these stay until it is.
    """
    for departure in state.leaving.values():
        agent = departure.agent
        if departure.is_over:
            continue
        for key in [key for key in departure.moving if not _is_needed(state, key)]:
            del departure.moving[key]
        _copy_some(state, out, departure)
        may_have_more = state.returning.may_have_more(agent.number)
        if (_has_no_more(departure) and not may_have_more) or state.now >= departure.next_look:
            _look(state, departure)
            _copy_some(state, out, departure)
        if _has_no_more(departure) and not (departure.left or may_have_more):
            departure.is_over = True
            out.send(agent.number, Drain(Wish.END.value))
            out.log("INFO", f"agent {agent.number} ({agent.name}) has nothing left to do: it is told to end")


def _has_no_more(departure: Departure) -> bool:
    """An agent has no rows, and nothing that was to be copied as of the last look."""
    return not (departure.agent.load.outstanding or departure.moving or departure.to_do)


def _is_needed(state: ClusterState, key: ObjectKey) -> bool:
    """Only agents have an object that are about to go, and somebody needs it."""
    client = state.clients.get(key[0])
    item = client.values.objects.get(key[1]) if client is not None else None
    return item is not None and bool(item.copies) and all(number in state.leaving for number in item.copies)


def _look(state: ClusterState, departure: Departure) -> None:
    """Look at all that an agent has: what is to be copied."""
    agent = departure.agent
    departure.next_look = state.now + LOOK_AGAIN
    found = [key for key in agent.holdings.keys if _only_at(state, key, agent.number)]
    departure.left = len(found)
    departure.to_do = [key for key in found if key not in departure.moving]
    if not departure.moving and all(key in departure.failed for key in departure.to_do):
        departure.failed.clear()  # hosts may be within reach by now
    departure.is_stuck = False


def _only_at(state: ClusterState, key: ObjectKey, number: int) -> bool:
    if not _is_needed(state, key):
        return False
    return number in state.clients[key[0]].values.objects[key[1]].copies


def _takers(state: ClusterState) -> dict[AgentRecord, None]:
    """Who could take values over, in turn: those that have least begin, a store without workers is the last."""
    takers = state.takers
    if state.now < takers.next_look:
        return takers.agents
    takers.next_look = state.now + LOOK_AGAIN
    agents = [agent for agent in state.agents.values() if not (agent.load.is_leaving or agent.load.is_full)]
    agents = [agent for agent in agents if agent.host.data or agent.host.store]
    agents.sort(key=lambda agent: (agent.is_standalone, agent.holdings.stored_bytes))
    takers.agents = dict.fromkeys(agents)
    return takers.agents


def _taker_of(
    state: ClusterState, takers: dict[AgentRecord, None], failed: Collection[int], copies: Collection[int]
) -> AgentRecord | None:
    """The first agent that can get an object, one with workers if there is any; mostly that is the first of all."""
    best, best_rank = None, math.inf
    for agent in takers:
        if agent.number in failed or agent.load.is_leaving or agent.load.is_full:
            continue
        # Who could not reach it a while ago tries again if all others can't: it may have been busy for a moment.
        rank = agent.is_standalone + 2 * (not reachability.can_get(state, agent, copies))
        if rank < best_rank:
            best, best_rank = agent, rank
            if not rank:
                break
    return best


def _copy_some(state: ClusterState, out: Outgoing, departure: Departure) -> None:
    if departure.is_stuck or not departure.to_do or len(departure.moving) >= AT_ONCE:
        return
    takers, waits = _takers(state), list[ObjectKey]()
    while departure.to_do and len(departure.moving) < AT_ONCE:
        key = departure.to_do.pop()
        if not _is_needed(state, key):
            continue
        client = state.clients[key[0]]
        item = client.values.objects[key[1]]
        target = _taker_of(state, takers, departure.failed.get(key, ()), item.copies)
        if target is None:
            waits.append(key)
            if len(waits) >= AT_ONCE:
                break  # for the others it is the same, or nearly
            continue
        takers[target] = takers.pop(target)
        departure.moving[key] = target.number
        target.holdings.keys.add(key)
        item.give_to(target.number)
        out.meet(client, target)
        out.introduce(state, target, item.copies)
        holders = u32(sorted(item.copies))
        out.send(
            target.number, ObjectFetch(u32([key[0]]), u64([key[1]]), u64([item.size]), u32([len(holders)]), holders)
        )
    departure.to_do += waits
    departure.is_stuck = bool(waits)
    if waits and not departure.moving and not departure.has_said:
        departure.has_said = True
        out.log("WARNING", _stays(departure, len(departure.to_do)))


def _stays(departure: Departure, objects: int) -> str:
    agent = departure.agent
    return (
        f"agent {agent.number} ({agent.name}) drains, and no other agent can take over the {objects} objects that only "
        "it has: it stays until one can, or until it is ended"
    )
