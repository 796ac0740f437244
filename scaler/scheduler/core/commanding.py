"""What somebody wants done who has the cluster's key: rows cancelled, agents drained; and a word on hosts to come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from scaler.protocol.codes import Leaving
from scaler.protocol.messages import Command, CommandResult, Spans, TaskCancel
from scaler.scheduler.core import draining, withdrawing
from scaler.scheduler.core.moves import Move
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.agent_records import LOCAL_AGENT, AgentRecord
from scaler.scheduler.state.batch_records import AGENT, DONE, Batch, is_called, row_name
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.fleet_records import PROVIDERS, FleetRecord

#: why a command about a pair of schedulers does nothing
NO_PAIR = "this scheduler is part of a local cluster, and ends with its program: it has no standby"


class Outcome(NamedTuple):
    """What is answered, and the moves that follow."""

    result: CommandResult
    moves: list[Move]


def obey(state: ClusterState, out: Outgoing, monitor: int, command: Command) -> Outcome:
    """Do what a monitor's session wants done."""
    if command.kind == "cancel":
        return _cancel(state, out, command)
    if command.kind == "fleet":
        return Outcome(_take_report(state, monitor, command), [])
    if command.kind in ("promote", "hand-over"):
        return Outcome(CommandResult(command.number, error=NO_PAIR), [])
    return Outcome(_drain(state, out, command), [])


# ---- rows ------------------------------------------------------------------------------------------------------------
def _cancel(state: ClusterState, out: Outgoing, command: Command) -> Outcome:
    found: dict[ClientRecord, Spans] = {}
    done = asked = 0
    for client, batch, lo, hi in _batches(state, command):
        found.setdefault(client, Spans()).add(0, batch.id, lo, hi)
        for place, a, b in batch.runs(lo, hi):
            done += b - a if place < AGENT and place != DONE else 0
            asked += b - a if place >= AGENT else 0
    if not found:
        return Outcome(CommandResult(command.number, error=_unknown(state, command)), [])
    if command.row and len(found) > 1:
        names = ", ".join(f"{number}:{command.row}" for number in sorted(client.number for client in found))
        return Outcome(
            CommandResult(command.number, error=f"several clients have such a task: say which of {names}"), []
        )
    moves: list[Move] = []
    for client, spans in found.items():
        moves += withdrawing.cancel(state, out, client, TaskCancel(spans, command.force))
    out.log("INFO", f"{done + asked} rows of {len(found)} clients are cancelled by command ({asked} of them at agents)")
    return Outcome(CommandResult(command.number, done, asked), moves)


def _batches(state: ClusterState, command: Command) -> Iterator[tuple[ClientRecord, Batch, int, int]]:
    """The rows that a command means, as spans of batches with rows that have not ended."""
    for client in state.clients.values():
        if command.client not in (0, client.number):
            continue
        for batch in client.batches.values():
            if not command.row:
                if command.name in ("", batch.function.name):
                    yield client, batch, 0, batch.rows
            elif is_called(batch.function.name, command.name) and batch.id <= command.row < batch.id + batch.rows:
                row = command.row - batch.id
                if batch.place[row] != DONE:
                    yield client, batch, row, row + 1


def _unknown(state: ClusterState, command: Command) -> str:
    awaited = state.returning.words(state.now, command.client)
    if awaited:
        return f"not all tasks are known yet: {awaited}; try again then"
    if command.client and command.client not in state.clients:
        return f"client {command.client} is not there"
    if command.row:
        name = row_name(command.client, command.row, command.name)
        return f"no task {name} is there that has not ended ('scaler tasks' lists those that are there)"
    whose = f" of client {command.client}" if command.client else ""
    what = f" of {command.name}" if command.name else ""
    return f"no tasks{what}{whose} are there that have not ended"


# ---- agents ----------------------------------------------------------------------------------------------------------
def _drain(state: ClusterState, out: Outgoing, command: Command) -> CommandResult:
    numbers, jobs = set(command.agents), set(command.jobs)
    agents = [
        agent
        for agent in state.agents.values()
        if not agent.is_standalone and (agent.number in numbers or (agent.job and agent.job in jobs))
    ]
    if any(agent.number == LOCAL_AGENT for agent in agents):
        error = f"agent {LOCAL_AGENT} is in the scheduler's own process, and ends with it"
        return CommandResult(command.number, error=error)
    if not agents:
        named = [*(f"agent {number}" for number in command.agents), *(f"job {job}" for job in command.jobs)]
        more = f" nor {len(named) - 3} others" if len(named) > 3 else ""
        return CommandResult(command.number, error=f"{', '.join(named[:3])}{more} is not there")
    if command.kind == "drain":
        for agent in agents:
            draining.begin(state, out, agent, Leaving.TOLD)
        return CommandResult(command.number, len(agents))
    stayed = sum(draining.stay(state, out, agent) for agent in agents)
    if not stayed:
        return CommandResult(command.number, error=_why_not(state, agents[0]))
    return CommandResult(command.number, stayed)


def _why_not(state: ClusterState, agent: AgentRecord) -> str:
    departure = state.leaving.get(agent.number)
    if departure is None:
        return f"agent {agent.number} ({agent.name}) is not draining"
    if departure.is_over:
        return f"agent {agent.number} ({agent.name}) has nothing left to do and is ending"
    return f"agent {agent.number} ({agent.name}) can't stay: {draining.WORDS[departure.reason]}"


# ---- hosts -----------------------------------------------------------------------------------------------------------
def _take_report(state: ClusterState, monitor: int, command: Command) -> CommandResult:
    key = monitor, command.provider
    if key not in state.fleets and sum(number == monitor for number, _ in state.fleets) >= PROVIDERS:
        return CommandResult(command.number, error=f"a session tells of at most {PROVIDERS} providers")
    state.fleets[key] = FleetRecord(command, state.now)
    return CommandResult(command.number, 1)
