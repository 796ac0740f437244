"""What there is to do, by what rows ask of their host, and the hosts that somebody asks for: for who provides hosts.

Made of what is counted by function, and of agents: no row is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scaler.protocol.codes import MAX_NAME
from scaler.protocol.messages import Command, u32, u64
from scaler.protocol.messages.cluster_view import DemandColumns, FleetColumns
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.fleet_records import BELIEVED

#: what fits in u32 and u64
U32, U64 = 2**32 - 1, 2**64 - 1


@dataclass
class _Wanted:
    queued: int = 0
    work_us: float = 0.0
    unknown: int = 0
    hardly_known: int = 0
    at_agents: int = 0


def demand_columns(state: ClusterState) -> DemandColumns:
    """Rows by the capabilities that they ask for. Costs a look at each function and agent."""
    wanted: dict[frozenset[str], _Wanted] = {}
    for client in state.clients.values():
        for function in client.functions.values():
            for (asked, slots), tally in function.tallies.items():
                queued = 0 if client.unread is not None else tally.queued
                if not (queued or tally.at_agents):
                    continue
                found = wanted.setdefault(frozenset(asked), _Wanted())
                found.at_agents += tally.at_agents
                found.queued += queued
                if not function.steady_rows:
                    found.unknown += queued
                else:
                    found.work_us += queued * slots * function.steady_us
                if function.is_hardly_known:
                    found.hardly_known += queued
    free: dict[frozenset[str], int] = {}
    for agent in state.agents.values():
        load = agent.load
        if not (agent.is_standalone or load.is_leaving):
            slots = max(0, load.workers - load.outstanding)
            free[agent.capabilities] = free.get(agent.capabilities, 0) + slots
    for those in free:
        wanted.setdefault(those, _Wanted())
    rows = sorted(wanted.items(), key=lambda item: sorted(item[0]))
    return DemandColumns(
        tuple([",".join(sorted(capabilities))[:MAX_NAME] for capabilities, _ in rows]),
        u64([found.queued for _, found in rows]),
        u64([min(U64, int(found.work_us)) for _, found in rows]),
        u64([found.unknown for _, found in rows]),
        u64([found.at_agents for _, found in rows]),
        u64([sum(slots for others, slots in free.items() if capabilities <= others) for capabilities, _ in rows]),
        u64([found.hardly_known for _, found in rows]),
    )


def fleets(state: ClusterState) -> Iterator[tuple[Command, int]]:
    """What was told of hosts lately, and for how many milliseconds the oldest that is asked for has waited by now."""
    for record in state.fleets.values():
        age = state.now - record.told
        if age < BELIEVED:
            waited = min(U32, record.report.waited + int(1000 * age)) if record.report.pending else 0
            yield record.report, waited


def fleet_columns(state: ClusterState) -> FleetColumns:
    """What those tell who ask for hosts."""
    told = list(fleets(state))
    reports = [report for report, _ in told]
    return FleetColumns(
        tuple([report.provider for report in reports]),
        u32([report.desired for report in reports]),
        u32([report.pending for report in reports]),
        u32([report.running for report in reports]),
        u32([report.draining for report in reports]),
        u32([waited for _, waited in told]),
        u32([len(report.lines) for report in reports]),
        tuple([line for report in reports for line in report.lines]),
    )
