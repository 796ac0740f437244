"""Why a row has not run, or where it runs: from the tables that placement looks at, when it has given what it can."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from scaler.scheduler.core import draining, placement
from scaler.scheduler.state.agent_records import LEAST_LEFT, AgentRecord
from scaler.scheduler.state.batch_records import AGENT, ANYTHING, DONE, QUEUED, WAITING, Batch, demand_words
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.views.demand import fleets

#: values that are named, at most
NAMED = 5


class Reason(StrEnum):
    """All reasons there are."""

    #: it has ended
    ENDED = "ended"
    #: an agent has it
    AT_AGENT = "at agent"
    #: it needs values that are not there
    WAITS_FOR_VALUES = "waits for values"
    #: its client does not read its results
    CLIENT_DOES_NOT_READ = "client does not read"
    #: its client cancels others, one by one
    CLIENT_CANCELS = "client cancels"
    #: its scheduler is one of a pair, and does not hear more than half of the agents
    NO_MAJORITY = "no majority"
    #: no agent has what it asks for
    NO_SUCH_AGENT = "no such agent"
    #: no agent has what it asks for, or all are busy, and hosts that were asked for are to come
    WAITS_FOR_HOSTS = "waits for hosts"
    #: those that have it are about to go
    AGENTS_LEAVE = "agents leave"
    #: those that have it end before it would
    TOO_LITTLE_TIME = "too little time"
    #: those that have it have no room for more
    AGENTS_ARE_BUSY = "agents are busy"


class Explanation(NamedTuple):
    """The reason, and all that is to be said of it, a line each."""

    reason: Reason
    lines: list[str]


def explain(state: ClusterState, client: ClientRecord, batch: Batch, row: int) -> Explanation:
    """Why a row is where it is. Costs a look at what it needs, and at groups of agents."""
    place = batch.place[row]
    lines = []
    lineage = batch.lineage
    if place != DONE and lineage is not None and row in lineage.recomputing:
        lines.append("it had ended, and is computed again because its stored value is lost and needed")
    if place == DONE:
        ways = {"failed": "it has failed", "cancelled": "it was cancelled"}
        return Explanation(Reason.ENDED, [ways.get(batch.state_of(row), "it has ended")])
    if place == WAITING:
        return Explanation(Reason.WAITS_FOR_VALUES, [*lines, *_missing(client, batch, row)])
    if place != QUEUED:
        return Explanation(Reason.AT_AGENT, [*lines, _at_agent(state, batch, row, place - AGENT)])
    return _queued(state, client, batch, row, lines)


def _missing(client: ClientRecord, batch: Batch, row: int) -> list[str]:
    values = client.values
    needs = list(dict.fromkeys(batch.needs[row])) if batch.needs is not None else []
    needs += [number for number in (batch.task.function, batch.task.arguments) if number in values.lost]
    words = [(value, word) for value in needs if (word := _lacks(client, value))]
    told = [f"it waits for {len(words)} of {max(len(needs), len(words))} values that it needs"]
    told += [f"  {client.number}:{value} {word}" for value, word in words[:NAMED]]
    if len(words) > NAMED:
        told.append(f"  and {len(words) - NAMED} more")
    return told


def _lacks(client: ClientRecord, value: int) -> str:
    """Why a value is not there; empty if it is."""
    values = client.values
    item = values.objects.get(values.object_id_of(value))
    if item is not None and not item.is_lost:
        return ""
    if value in values.remaking or item is not None:
        return "was lost with its host and is made again"
    source = values.batch_of_row.get(value)
    if source is None:
        source = next((b for b in client.batches.values() if b.id <= value < b.id + b.rows), None)
    if source is None or source.place[value - source.id] == DONE:
        return "is asked of its client"
    place = source.place[value - source.id]
    where = {WAITING: "waits itself", QUEUED: "is queued"}.get(place, f"is at agent {place - AGENT}")
    return f"({source.function.name}) {where}"


def _at_agent(state: ClusterState, batch: Batch, row: int, number: int) -> str:
    agent = state.agents[number]
    begun = batch.attempts is not None and row in batch.attempts.begun
    load = agent.load
    if begun:
        how = "it has run for a while"
    elif load.outstanding <= load.workers:
        how = "it runs, or is about to"
    else:
        how = "it is queued behind others, or has begun a moment ago,"
    busy = f"rows for {load.outstanding} slots, and {load.workers} workers"
    return f"{how} at agent {number} ({agent.name}), which has {busy}"


def _queued(state: ClusterState, client: ClientRecord, batch: Batch, row: int, lines: list[str]) -> Explanation:
    queue_class = batch.queue_class
    demand = queue_class[1]
    if client.unread is not None:
        waits = f"its client has not read {client.unread.bytes / 1e6:,.0f} MB of results: its rows wait until it does"
        return Explanation(Reason.CLIENT_DOES_NOT_READ, [*lines, waits])
    if client.is_cancelling:
        return Explanation(Reason.CLIENT_CANCELS, [*lines, "its client cancels rows one by one: others wait meanwhile"])
    if not state.hands_out:
        return Explanation(Reason.NO_MAJORITY, [*lines, f"nothing is handed out for now: {state.why_not}"])
    if not placement.can_ever_run(state, demand):
        who = "no agent has joined" if not state.workers else f"it needs {demand_words(demand)}, which no agent has"
        hosts = _hosts_to_come(state)
        return Explanation(Reason.WAITS_FOR_HOSTS if hosts else Reason.NO_SUCH_AGENT, [*lines, who, *hosts])
    able = [agent for agent in state.agents.values() if placement.may_run(state, batch, agent.number)]
    if not able:
        return Explanation(Reason.AGENTS_LEAVE, [*lines, *_leaving(state, batch), *_hosts_to_come(state)])
    each = batch.function.duration_us
    if not any(agent.has_time_for(each, state.now) for agent in able):
        return Explanation(Reason.TOO_LITTLE_TIME, [*lines, *_too_short(state, each, able), *_hosts_to_come(state)])
    rows = sum(queue.rows for key, queue in state.queues.items() if key[:2] == queue_class)
    urgent = sum(queue.rows for key, queue in state.queues.items() if key[0] < queue_class[0])
    asking = "" if demand == ANYTHING else f" that ask for {demand_words(demand)}"
    lines.append(f"it is one of {rows:,} queued rows of its priority{asking}")
    if urgent:
        lines.append(f"{urgent:,} rows of higher priority go before")
    full = sum(agent.load.is_full for agent in able)
    room = f", {full} of them without room for more objects" if full else ""
    lines.append(f"agents that may run it: {len(able)}, all busy{room}")
    hosts = _hosts_to_come(state)
    return Explanation(Reason.WAITS_FOR_HOSTS if hosts else Reason.AGENTS_ARE_BUSY, [*lines, *hosts])


def _hosts_to_come(state: ClusterState) -> list[str]:
    """The hosts that somebody has asked for and that are not there, or can't be had for now, and why."""
    lines = []
    for report, waited in fleets(state):
        why = f", reason {'; '.join(report.lines[:NAMED])}" if report.lines else ""
        if report.pending:
            lines.append(
                f"waits for hosts: {report.pending} pending since {_time(waited / 1000)} ({report.provider}){why}"
            )
        elif why and report.desired > report.running:
            missing = report.desired - report.running
            lines.append(f"waits for hosts: {missing} are wanted and have not come ({report.provider}){why}")
    return lines


def _leaving(state: ClusterState, batch: Batch) -> list[str]:
    """The agents that would do and are about to go."""
    told = []
    for number, departure in state.leaving.items():
        agent = state.agents[number]
        if agent.load.slots >= batch.slots and agent.capabilities.issuperset(batch.task.capabilities):
            told.append(f"agent {number} ({agent.name}) gets nothing new: {draining.WORDS[departure.reason]}")
    return _some(told, "agents that are about to go")


def _too_short(state: ClusterState, each_us: float | None, agents: list[AgentRecord]) -> list[str]:
    needs = (
        f"at least {LEAST_LEFT:g} s, as nothing is known of its function"
        if each_us is None
        else "~" + _time(each_us / 1e6)
    )
    left = [f"agent {a.number} ({a.name}) has {_time(max(0.0, a.ends - state.now))} left" for a in agents]
    return [f"it needs {needs}", *_some(left, "agents")]


def _some(lines: list[str], what: str) -> list[str]:
    more = [f"and {len(lines) - NAMED} more {what}"] if len(lines) > NAMED else []
    return [*lines[:NAMED], *more]


def _time(seconds: float) -> str:
    """A time for people.

    >>> _time(40.2), _time(185), _time(7300)
    ('40 s', '3 min', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
