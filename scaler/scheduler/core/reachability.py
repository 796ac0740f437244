"""Where the objects that a row needs are within reach: hosts can't always fetch from each other.

An agent that could not get an object from others gives back the rows that need it, and those others are noted as
unreachable for it. A row that came back goes where all it needs is within reach, its *home*; if there is no such place,
what is unreachable from its home is made again in that agent's zone, the agents it can fetch from, while the row waits;
what can't be made in any home's zone is fetched by an agent that reaches all of it.
It never goes back into the common queue as long as an agent has something of what it needs, since any idle one takes
rows from there.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from scaler.scheduler.core import lineage, placement
from scaler.scheduler.core.moves import Hold, Move, Place, Queue
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import Batch, attempts_of
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.transitions import Cause

#: how often a row comes back since what it needs is out of reach, before it is given up
MAX_RETURNS = 8
#: the same if it first came back so many seconds ago: what can't be reached is only known after a silence each time
MAX_LATE_RETURNS, LATE_SECONDS = 1, 12.0
#: how often what it needs is made again for it, and is beyond its reach all the same
MAX_IN_VAIN = 3
#: agents that are looked at for one that reaches what it needs, or that could make it, at most
MOST_LOOKED = 64
#: seconds for which it is remembered that an agent could not fetch from another one
MEMORY_SECONDS = 60.0


def note_unreachable(state: ClusterState, agent: AgentRecord, holders: Iterable[int]) -> bool:
    """An agent could not fetch from these; True if that is news."""
    failed = set(holders) - {agent.number}
    news = not failed <= agent.unreachable.keys()
    agent.unreachable.update(dict.fromkeys(failed, state.now))
    return news


def forget_unreachable(state: ClusterState, agent: AgentRecord) -> None:
    """What could not be reached a while ago may be reachable again."""
    agent.unreachable = {number: at for number, at in agent.unreachable.items() if state.now - at < MEMORY_SECONDS}


def can_get(state: ClusterState, agent: AgentRecord, copies: Iterable[int]) -> bool:
    """An agent has an object, or can fetch it from one of these, as far as is known."""
    return agent.number in copies or any(
        _are_in_reach(agent, state.agents[number]) for number in copies if number in state.agents
    )


def is_hopeless(state: ClusterState, batch: Batch, row: int, news: bool) -> bool:
    """A row came back for want of objects: that was often or long enough.

    With `news` nobody could have known that it would: it isn't counted.
    """
    attempts = attempts_of(batch)
    attempts.returns[row] = returns = attempts.returns.get(row, 0) + (not news)
    first = attempts.first_returns.setdefault(row, state.now)
    return returns > (MAX_LATE_RETURNS if state.now - first >= LATE_SECONDS else MAX_RETURNS)


def hosts_beyond(state: ClusterState, batch: Batch, row: int, agent: AgentRecord) -> str:
    """The names of the hosts that have what a row needs and that an agent can't fetch from; empty if none is known."""
    objects = state.clients[batch.client].values.objects
    names = {
        state.agents[number].name
        for value in _stored_needs(state.clients[batch.client], batch, row)
        if agent.number not in objects[value].copies
        for number in objects[value].copies
        if number in state.agents and number in agent.unreachable
    }
    return ", ".join(sorted(names))


def settle(
    state: ClusterState, client: ClientRecord, batch: Batch, row: int, cause: int, agent: AgentRecord | None
) -> Move:
    """Where a row that came back goes to have what it needs, or what is made again first; `agent` gave it back.

    If not all is within reach of a home, what is not is made again there, where that can be. If it can't, or was again
    and again and is beyond reach all the same, the row goes to any that seems to reach all; if there is none, to its
    homes in turn, as it may be that one of two reaches the other: it comes back from there, and is given up in the end.
    """
    values = _stored_needs(client, batch, row)
    homes = _homes(state, client, batch, row, values)
    within = [number for number in homes if not _unreachable(state, client, state.agents[number], values)]
    target = placement.choose(state, batch, within, even_if_full=True)
    if target is not None:
        return Place(batch, row, row + 1, target, cause)
    hosts = [state.agents[number] for number in homes] or ([] if agent is None else [agent])
    beyond = {host: missing for host in hosts if (missing := _unreachable(state, client, host, values))}
    if not beyond and (hosts or not values):
        return Queue(batch, row, row + 1, cause, True)
    was_remade = cause == Cause.READY
    if not was_remade or not _is_in_vain(batch, row):
        for host, missing in beyond.items():
            if all(_can_be_made_for(state, client, batch, value, host) for value in missing):
                return _remade_for(client, batch, row, host, missing, cause)
    target = _choose_within_reach(state, client, batch, values)
    if target is None and beyond:
        host, missing = list(beyond.items())[attempts_of(batch).returns.get(row, 0) % len(beyond)]
        if not was_remade and not all(_is_made_elsewhere(client, batch, value) for value in missing):
            return _remade_for(client, batch, row, host, missing, cause)  # perhaps its client sends it from elsewhere
        target = placement.choose(state, batch, [host.number], even_if_full=True)
    return Queue(batch, row, row + 1, cause, True) if target is None else Place(batch, row, row + 1, target, cause)


def _is_in_vain(batch: Batch, row: int) -> bool:
    """What a row needs was made again, and is beyond reach once more: that may not go on without end."""
    in_vain = attempts_of(batch).in_vain
    in_vain[row] = in_vain.get(row, 0) + 1
    return in_vain[row] > MAX_IN_VAIN


def _remade_for(client: ClientRecord, batch: Batch, row: int, host: AgentRecord, values: list[int], cause: int) -> Move:
    client.values.required_zones.update(dict.fromkeys(values, host.number))
    return Hold(batch, row, values, cause)


def _can_be_made_for(state: ClusterState, client: ClientRecord, batch: Batch, value: int, host: AgentRecord) -> bool:
    """An agent, or one that it can fetch from, may run the row that made an object; what its client made can't be."""
    source = lineage.maker_of(client, value, batch)
    if source is None:
        return False
    maker, _ = source
    able = islice(placement.able(state, maker), MOST_LOOKED)
    return placement.may_run(state, maker, host.number) or any(_are_in_reach(host, other) for other in able)


def _is_made_elsewhere(client: ClientRecord, batch: Batch, value: int) -> bool:
    """Somebody has an object that rows make, and which can't be made where it is needed: once more is of no use."""
    return bool(client.values.objects[value].copies) and lineage.maker_of(client, value, batch) is not None


def _choose_within_reach(
    state: ClusterState, client: ClientRecord, batch: Batch, values: list[int]
) -> AgentRecord | None:
    """An agent for a row that has nothing of what it needs, and can get all of it as far as is known."""
    able = islice(placement.able(state, batch), MOST_LOOKED)
    return placement.choose(state, batch, (a.number for a in able if not _unreachable(state, client, a, values)))


def choose_others(
    state: ClusterState, client: ClientRecord, batch: Batch, rows: Iterable[int], agent: AgentRecord
) -> Iterator[tuple[int, AgentRecord | None]]:
    """Each of these rows, which this agent can never run, with another one; None if there is none.

    It is none of those that have said so of the row before; those that have something of what it needs come first.
    For rows that are alike it is looked for once.
    """
    refusals = attempts_of(batch).refused
    zones = batch.lineage.required_zones if batch.lineage is not None else {}
    found: dict[tuple[object, ...], AgentRecord | None] = {}
    for row in rows:
        refused = refusals.setdefault(row, set())
        refused.add(agent.number)
        kind = frozenset(refused), zones.get(row), batch.needs[row] if batch.needs is not None else ()
        if kind not in found:
            found[kind] = _choose_other(state, client, batch, row, refused)
        yield row, found[kind]


def _choose_other(
    state: ClusterState, client: ClientRecord, batch: Batch, row: int, refused: set[int]
) -> AgentRecord | None:
    """The first agent that will do: the others are not looked at."""
    values = _stored_needs(client, batch, row)
    homes = _homes(state, client, batch, row, values)
    others = (number for number in chain(homes, state.agents) if number not in refused)
    within = (number for number in others if not _unreachable(state, client, state.agents[number], values))
    return placement.choose(state, batch, within, even_if_full=True)


def choose_in_zone(state: ClusterState, batch: Batch, number: int) -> AgentRecord | None:
    """An agent for a row whose value has to be within reach of this agent: itself, or one that it can fetch from.

    Even if they have no room just now: made elsewhere, the value would be made again at once.
    """
    target = state.agents.get(number)
    if target is None:
        return None
    zone = (other.number for other in state.agents.values() if other is not target and _are_in_reach(target, other))
    return placement.choose(state, batch, chain((number,), zone), even_if_full=True)


def _homes(state: ClusterState, client: ClientRecord, batch: Batch, row: int, values: list[int]) -> list[int]:
    """The agents that have something of what a row needs and may run it, the one that has most first.

    By what the row needs alone, so that rows with the same needs go to the same place.
    """
    if batch.lineage is not None and row in batch.lineage.required_zones:
        agent = choose_in_zone(state, batch, batch.lineage.required_zones[row])
        return [] if agent is None else [agent.number]
    sizes: dict[int, int] = {}
    for value in values:
        item = client.values.objects[value]
        for number in item.copies:
            sizes[number] = sizes.get(number, 0) + item.size
    homes = sorted(sizes, key=lambda number: (-sizes[number], number))
    return [number for number in homes if placement.may_run(state, batch, number)]


def _are_in_reach(one: AgentRecord, other: AgentRecord) -> bool:
    """These can fetch from each other, as far as is known."""
    return other.number not in one.unreachable and one.number not in other.unreachable


def _unreachable(state: ClusterState, client: ClientRecord, agent: AgentRecord, values: list[int]) -> list[int]:
    """Those of these objects that an agent neither has nor can fetch, as far as is known."""
    return [value for value in values if not can_get(state, agent, client.values.objects[value].copies)]


def _stored_needs(client: ClientRecord, batch: Batch, row: int) -> list[int]:
    """The stored objects that a row needs."""
    task, objects = batch.task, client.values.objects
    needs = {task.function, task.arguments, *(batch.needs[row] if batch.needs is not None else ())}
    return sorted(value for value in needs if value in objects and objects[value].is_stored)
