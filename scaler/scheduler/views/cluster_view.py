"""What monitors are shown of the scheduler's state: columns of agents, workers, clients and functions, never of rows.

The columns of workers stay as agents sent them, and are put one behind the other: no worker is looked at. What the core
can't know (the scheduler's process, what it has sent and received) its shell adds.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import islice

from scaler.protocol.codes import MAX_NAME, AgentFlag
from scaler.protocol.messages import HostReport, u8, u32, u64
from scaler.protocol.messages.cluster_view import (
    AgentColumns,
    ClientColumns,
    ClusterView,
    FunctionColumns,
    ObjectColumns,
    RowCounts,
    SchedulerView,
)
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.function_records import OTHERS, FunctionRecord
from scaler.scheduler.views.demand import demand_columns, fleet_columns

#: functions that are shown on their own; the others together are one
FUNCTIONS = 256
#: objects that are shown, and how many of the newest are looked at for them
OBJECTS, LOOKED_AT = 50, 2000
#: what fits in u32 and u64
U32, U64 = 2**32 - 1, 2**64 - 1
#: seconds that are not told apart from longer ones
LONG = 4e6

REPORTED, FULL, STORE_ONLY, DRAINING = (flag.value for flag in AgentFlag)
NOTHING = HostReport(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, bodies=[b""])


def cluster_view(state: ClusterState) -> tuple[ClusterView, bytes]:
    """The cluster as it is now, and its workers in columns."""
    agents = list(state.agents.values())
    reports = [agent.report or NOTHING for agent in agents]
    functions = [function for client in state.clients.values() for function in client.functions.values()]
    view = ClusterView(
        SchedulerView(
            monitors=len(state.monitors), bandwidth=int(state.bandwidth), awaited=state.returning.words(state.now),
        ),
        _rows(state, agents, reports, functions),
        _agents(state.now, agents, reports),
        _clients(state.now, list(state.clients.values())),
        _functions(functions),
        _objects(state, agents, reports),
        tuple([name for report in reports if report.names for name in report.names]),
        demand_columns(state),
        fleet_columns(state),
    )  # fmt: skip
    return view, b"".join([report.bodies[0] for report in reports])


def _rows(
    state: ClusterState, agents: list[AgentRecord], reports: list[HostReport], functions: list[FunctionRecord]
) -> RowCounts:
    ended = state.ended
    left = sum(client.outstanding for client in state.clients.values())
    queued = state.queues.rows
    at_agents = sum([agent.load.rows if agent.load.wide else agent.load.outstanding for agent in agents])
    running = sum([report.running for report in reports])
    return RowCounts(
        max(0, left - queued - at_agents), queued, at_agents, min(running, at_agents),
        ended.finished + sum(function.finished for function in functions),
        ended.failed + sum(function.failed for function in functions),
        ended.cancelled + sum(function.cancelled for function in functions),
        ended.claimed + sum(function.claimed for function in functions),
        ended.not_found, ended.lost, ended.retried,
    )  # fmt: skip


def _agents(now: float, agents: list[AgentRecord], reports: list[HostReport]) -> AgentColumns:
    """Column by column: no tuple for each agent, which takes longer and is work for the garbage collector."""
    flags = [
        (REPORTED if agent.report is not None else 0)
        | (FULL if agent.load.is_full else 0)
        | (STORE_ONLY if agent.is_standalone else 0)
        | (DRAINING if agent.load.is_leaving else 0)
        for agent in agents
    ]
    loads = [agent.load for agent in agents]
    idle = _ages(now, [load.idle_since for load in loads])
    return AgentColumns(
        u32([agent.number for agent in agents]),
        tuple([agent.name[:MAX_NAME] for agent in agents]),
        tuple([",".join(sorted(agent.capabilities))[:MAX_NAME] if agent.capabilities else "" for agent in agents]),
        u32([agent.host.pid for agent in agents]),
        u8(flags),
        u32([load.workers for load in loads]),
        u32([report.cpu for report in reports]),
        u64([report.memory for report in reports]),
        u32([report.host_cpu for report in reports]),
        u32([report.free for report in reports]),
        u32([report.queued for report in reports]),
        u32([report.lag for report in reports]),
        u64([report.spilled for report in reports]),
        u64([report.fetched for report in reports]),
        u64([report.stored for report in reports]),
        u32([load.rows if load.wide else load.outstanding for load in loads]),
        _ages(now, [agent.seen for agent in agents]),
        _ages(now, [agent.reported if agent.report is not None else now for agent in agents]),
        u32([report.workers for report in reports]),
        u32([len(report.names) for report in reports]),
        tuple([agent.job for agent in agents]),
        _times_left(now, [agent.ends for agent in agents]),
        u32([0 if load.outstanding else age or 1 for load, age in zip(loads, idle, strict=True)]),
    )


def _clients(now: float, clients: list[ClientRecord]) -> ClientColumns:
    running = [sum(function.at_agents for function in client.functions.values()) for client in clients]
    admitted = [sum(function.admitted for function in client.functions.values()) for client in clients]
    return ClientColumns(
        u32([client.number for client in clients]),
        tuple([client.name[:MAX_NAME] for client in clients]),
        u64([client.outstanding - at for client, at in zip(clients, running, strict=True)]),
        u64(running),
        u64([rows - client.outstanding for client, rows in zip(clients, admitted, strict=True)]),
        u32([len(client.batches) for client in clients]),
        u32([len(client.values.objects) for client in clients]),
        _ages(now, [client.seen for client in clients]),
    )


def _activity(function: FunctionRecord) -> tuple[int, int]:
    return function.outstanding, function.admitted


def _functions(functions: list[FunctionRecord]) -> FunctionColumns:
    single = [each for each in functions if each.name != OTHERS]
    is_all = len(functions) == len(single) <= FUNCTIONS
    shown = functions if is_all else nlargest(FUNCTIONS - 1, single, key=_activity)
    at_agents, durations = [each.at_agents for each in shown], [each.durations for each in shown]
    quantiles = [each.quantiles() for each in durations]
    columns = FunctionColumns(
        u32([each.client for each in shown]),
        tuple([each.name[:MAX_NAME] for each in shown]),
        u64([each.outstanding - at for each, at in zip(shown, at_agents, strict=True)]),
        u64(at_agents),
        u64([each.finished for each in shown]),
        u64([each.failed for each in shown]),
        u64([each.cancelled + each.claimed for each in shown]),
        u64([min(U64, each.total_us) for each in durations]),
        u64([each[0] for each in quantiles]),
        u64([each[1] for each in quantiles]),
    )
    if len(shown) < len(functions):
        chosen = set(map(id, shown))
        _add_others(columns, [function for function in functions if id(function) not in chosen])
    return columns


def _add_others(columns: FunctionColumns, functions: list[FunctionRecord]) -> None:
    """Those that are not shown on their own, as one of client 0."""
    columns.clients.append(0)
    columns.names += ("other",)
    running = sum(function.at_agents for function in functions)
    columns.waiting.append(sum(function.outstanding for function in functions) - running)
    columns.running.append(running)
    columns.done.append(sum(function.finished for function in functions))
    columns.failed.append(sum(function.failed for function in functions))
    columns.cancelled.append(sum(function.cancelled + function.claimed for function in functions))
    columns.total_us.append(min(U64, sum(function.durations.total_us for function in functions)))
    columns.p50_us.append(0)
    columns.p95_us.append(0)


def _objects(state: ClusterState, agents: list[AgentRecord], reports: Iterable[HostReport]) -> ObjectColumns:
    clients = [client for client in state.clients.values() if client.values.objects]
    columns = ObjectColumns(
        sum(len(client.values.objects) for client in clients),
        0,
        min(U64, sum([agent.holdings.stored_bytes for agent in agents])),
        min(U64, sum([report.spilled for report in reports])),
        min(U64, sum([report.fetched for report in reports])),
    )
    found = []
    for client in clients:
        newest = islice(reversed(client.values.objects.items()), max(1, LOOKED_AT // len(clients)))
        found += [(each.size or len(each.payload), client.number, number, each) for number, each in newest]
    columns.looked_at = len(found)
    for size, number, object_id, each in nlargest(OBJECTS, found, key=lambda item: item[:3]):
        columns.clients.append(number)
        columns.ids.append(object_id)
        columns.sizes.append(size)
        columns.references.append(min(U32, max(0, each.references + each.expected)))
        columns.copies.append(len(each.copies))
    return columns


def _ages(now: float, times: Sequence[float]) -> array[int]:
    """Milliseconds since each of these."""
    if not times or now - min(times) < LONG:
        return u32([int(1000 * (now - each)) if each < now else 0 for each in times])
    return u32([_milliseconds(now - each) for each in times])


def _times_left(now: float, ends: Sequence[float]) -> array[int]:
    """Milliseconds until each of these."""
    if min(ends, default=now) - now >= LONG:  # as where no host has a walltime
        return array("I", [U32]) * len(ends)
    return u32([_milliseconds(each - now) for each in ends])


def _milliseconds(seconds: float) -> int:
    return int(1000 * seconds) if 0 <= seconds < LONG else 0 if seconds < 0 else U32
