"""What monitors are shown of the scheduler's state: columns of agents, workers, clients and functions, never of rows.

The columns of workers stay as agents sent them, and are put one behind the other: no worker is looked at. What the core
can't know (the scheduler's process, what it has sent and received) its shell adds.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from itertools import islice
from operator import attrgetter

from scaler.protocol.codes import MAX_NAME, AgentFlag
from scaler.protocol.messages import (
    AgentColumns,
    ClientColumns,
    ClusterView,
    FunctionColumns,
    HostReport,
    ObjectColumns,
    RowCounts,
    SchedulerView,
    u8,
    u32,
    u64,
)
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.function_records import FunctionRecord
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
_OF_AGENT = attrgetter(
    "number", "name", "capabilities", "load", "host", "seen", "report", "reported", "is_standalone", "job", "ends"
)
_OF_REPORT = attrgetter(
    "cpu", "memory", "host_cpu", "free", "queued", "lag", "spilled", "fetched", "stored", "workers", "names"
)


def cluster_view(state: ClusterState) -> tuple[ClusterView, bytes]:
    """The cluster as it is now, and its workers in columns."""
    agents = list(state.agents.values())
    reports = [agent.report or NOTHING for agent in agents]
    functions = [function for client in state.clients.values() for function in client.functions.values()]
    bandwidth = min(max(state.bandwidth, 0.0), 1e18)
    view = ClusterView(
        SchedulerView(monitors=len(state.monitors), bandwidth=int(bandwidth) if bandwidth == bandwidth else 0),
        _rows(state, agents, reports, functions),
        _agents(state.now, agents, reports),
        _clients(state.now, list(state.clients.values())),
        _functions(functions),
        _objects(state, agents, reports),
        tuple([name for report in reports if report.names for name in report.names]),
        demand_columns(state),
        fleet_columns(state),
    )
    return view, b"".join([report.bodies[0] for report in reports])


def _rows(
    state: ClusterState, agents: list[AgentRecord], reports: list[HostReport], functions: list[FunctionRecord]
) -> RowCounts:
    ended = state.ended
    left = sum(client.outstanding for client in state.clients.values())
    queued, at_agents = state.queues.rows, sum(agent.load.rows for agent in agents)
    running = sum(report.running for report in reports)
    return RowCounts(
        max(0, left - queued - at_agents), queued, at_agents, min(running, at_agents),
        ended.finished + sum(function.finished for function in functions),
        ended.failed + sum(function.failed for function in functions),
        ended.cancelled + sum(function.cancelled for function in functions),
        ended.claimed + sum(function.claimed for function in functions),
        ended.not_found,
    )  # fmt: skip


def _agents(now: float, agents: list[AgentRecord], reports: list[HostReport]) -> AgentColumns:
    if not agents:
        return AgentColumns()
    columns = zip(*map(_OF_AGENT, agents), strict=True)
    numbers, names, capabilities, loads, hosts, seen, told, reported, alone, jobs, ends = columns
    cpus, memory, host_cpus, free, queued, lags, spilled, fetched, stored, workers, named = zip(
        *map(_OF_REPORT, reports), strict=True
    )
    flags = [
        (REPORTED if report is not None else 0)
        | (FULL if load.is_full else 0)
        | (STORE_ONLY if is_store else 0)
        | (DRAINING if load.is_leaving else 0)
        for report, load, is_store in zip(told, loads, alone, strict=True)
    ]
    return AgentColumns(
        u32(numbers),
        tuple([name[:MAX_NAME] for name in names]),
        tuple([",".join(sorted(each))[:MAX_NAME] if each else "" for each in capabilities]),
        u32([host.pid for host in hosts]),
        u8(flags),
        u32([load.workers for load in loads]),
        u32(cpus), u64(memory), u32(host_cpus), u32(free), u32(queued), u32(lags), u64(spilled), u64(fetched),
        u64(stored),
        u32([load.rows if load.wide else load.outstanding for load in loads]),
        u32([_milliseconds(now - each) for each in seen]),
        u32([_milliseconds(now - at) if report is not None else 0 for at, report in zip(reported, told, strict=True)]),
        u32(workers),
        u32([len(each) for each in named]),
        jobs,
        u32([_milliseconds(at - now) for at in ends]),
        u32([0 if load.outstanding else max(1, _milliseconds(now - load.idle_since)) for load in loads]),
    )  # fmt: skip


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
        u32([_milliseconds(now - client.seen) for client in clients]),
    )


def _activity(function: FunctionRecord) -> tuple[int, int]:
    return function.outstanding, function.admitted


def _functions(functions: list[FunctionRecord]) -> FunctionColumns:
    columns = FunctionColumns()
    shown = functions if len(functions) <= FUNCTIONS else nlargest(FUNCTIONS - 1, functions, key=_activity)
    for function in shown:
        _add_function(columns, function.client, function.name[:MAX_NAME], [function])
        columns.p50_us[-1], columns.p95_us[-1] = function.durations.quantiles()
    if len(shown) < len(functions):
        chosen = set(map(id, shown))
        _add_function(columns, 0, "other", [function for function in functions if id(function) not in chosen])
    columns.names = tuple(columns.names)
    return columns


def _add_function(columns: FunctionColumns, client: int, name: str, functions: list[FunctionRecord]) -> None:
    columns.clients.append(client)
    columns.names += (name,)
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
        min(U64, sum(agent.holdings.stored_bytes for agent in agents)),
        min(U64, sum(report.spilled for report in reports)),
        min(U64, sum(report.fetched for report in reports)),
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
        columns.references.append(min(U32, max(0, each.references)))
        columns.copies.append(len(each.copies))
    return columns


def _milliseconds(seconds: float) -> int:
    return int(1000 * seconds) if 0 <= seconds < LONG else 0 if seconds < 0 else U32
