"""Clients read stored objects: an agent whose store they can use is asked to have each, and they are told which."""

from collections.abc import Collection

from scaler.protocol.failures import ONLY_ONCE
from scaler.protocol.messages import ObjectFetch, u32, u64
from scaler.scheduler.core import lifetimes, reachability, store_choice
from scaler.scheduler.core.moves import Move, Remake
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState

#: instead of an agent's number: it is being made again, or a store is looked for
NOBODY_YET = 0


def read(state: ClusterState, out: Outgoing, client: ClientRecord, value: int, tries: int) -> list[Move]:
    """A client wants to read an object; one that is lost is made again, at most so many times."""
    reads, values = client.reads, client.values
    reads.under_way.pop(value, None)
    reads.named.pop(value, None)
    item = values.objects.get(value)
    if item is None or not item.is_stored:
        reason = (
            "the scheduler does not know it: it was released, or stored before the scheduler was started again, or had "
            "given this client up, as it was cut off"
        )
        _refuse(out, client, value, reason)
        return []
    if item.is_lost:
        if value not in values.remaking and reads.failures.get(value, 0) >= tries:
            how_often = "again and again" if tries or item.source is None else f"and {ONLY_ONCE}"
            trouble = reads.troubles.get(value)
            why = (
                f"it could not be made readable, {how_often}: at last {trouble}"
                if trouble
                else (f"it was lost with the hosts that had it, {how_often}")
            )
            _refuse(out, client, value, why)
            return []
        reads.under_way[value] = NOBODY_YET
        reads.failures[value] = reads.failures.get(value, 0) + 1
        return remake_for_reading(client, value)
    target = _target(state, client, item.copies)
    if target is None:
        reads.under_way[value] = NOBODY_YET
        store_choice.request(state, out, client, True)
        return []
    reads.under_way[value] = target.number
    out.meet(client, target)
    key = (client.number, value)
    if key not in target.holdings.keys:
        target.holdings.keys.add(key)
        item.give_to(target.number)
    out.introduce(state, target, item.copies)
    named = set(item.copies) - {target.number}
    reads.named[value] = named
    holders = u32(sorted(named))
    fetch = ObjectFetch(u32([client.number]), u64([value]), u64([item.size]), u32([len(holders)]), holders)
    out.send(target.number, fetch)
    return []


def read_again(state: ClusterState, out: Outgoing, client: ClientRecord, value: int, tries: int) -> list[Move]:
    """A value that was lost is there again, or can't be had any more: whoever wanted to read it is told."""
    return read(state, out, client, value, tries) if value in client.reads.under_way else []


def read_by_way_of(
    state: ClusterState, out: Outgoing, agent: AgentRecord, clients: list[ClientRecord], tries: int
) -> list[Move]:
    """An agent is gone: what these clients wanted to read by way of it is looked for again."""
    moves: list[Move] = []
    for client in clients:
        for value in [value for value, target in client.reads.under_way.items() if target == agent.number]:
            moves += read(state, out, client, value, tries)
    return moves


def read_what_waits(state: ClusterState, out: Outgoing, client: ClientRecord, tries: int) -> list[Move]:
    """A store has been found for a client: what waited for that is read."""
    moves: list[Move] = []
    for value, target in list(client.reads.under_way.items()):
        if target == NOBODY_YET and value not in client.values.remaking:
            moves += read(state, out, client, value, tries)
    return moves


def take_response(
    state: ClusterState,
    out: Outgoing,
    agent: AgentRecord,
    client: ClientRecord,
    value: int,
    reason: str | None,
    tries: int,
) -> list[Move]:
    """An agent has made an object readable, or could not, for this reason."""
    reads, item = client.reads, client.values.objects.get(value)
    if reads.under_way.get(value) != agent.number:
        return []
    named = reads.named.pop(value, set())
    if item is None or not item.is_stored:
        return read(state, out, client, value, tries)
    if reason is None:
        del reads.under_way[value]
        lifetimes.add_copy(state, client, agent, value, item)
        _answer(out, client, value, agent.number, "")
        return []
    reads.failures[value] = reads.failures.get(value, 0) + 1
    reads.troubles[value] = reason
    if reads.failures[value] > tries:
        del reads.under_way[value]
        _refuse(out, client, value, reason or "no store that has it could be reached")
        return []
    lifetimes.remove_copy(state, client, agent.number, value)
    reachability.note_unreachable(state, agent, named & item.copies)
    if item.copies and not reachability.can_get(state, agent, item.copies):
        client.values.required_zones[value] = agent.number
        reads.under_way[value] = NOBODY_YET
        return remake_for_reading(client, value)
    return read(state, out, client, value, tries)


def remake_for_reading(client: ClientRecord, value: int) -> list[Move]:
    """See that a value is made again for its client alone, unless it is under way."""
    if value in client.values.remaking:
        return []
    client.values.remaking[value] = []
    return [Remake(client, value, None)]


def _target(state: ClusterState, client: ClientRecord, copies: Collection[int]) -> AgentRecord | None:
    """The agent whose store the client can read, one that has the object already if possible."""
    standalone = state.agents.get(state.standalone.number)
    if client.reads.uses_standalone:
        return standalone
    near = state.roots.stores_on_host(client.boot_id)
    return min(near, key=lambda agent: (agent.number not in copies, agent.is_standalone), default=standalone)


def _refuse(out: Outgoing, client: ClientRecord, value: int, reason: str) -> None:
    _answer(out, client, value, NOBODY_YET, reason)


def _answer(out: Outgoing, client: ClientRecord, value: int, agent: int, reason: str) -> None:
    client.reads.failures.pop(value, None)
    client.reads.troubles.pop(value, None)
    out.answer_read(client.number, value, agent, reason)
