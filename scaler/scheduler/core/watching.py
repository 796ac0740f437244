"""Monitors: who gets a snapshot when, and what agents are told of it.

Nobody watches: agents report nothing, and nothing is made. A monitor has one snapshot under way at most: it gets the
next when it has said that it has taken the last, and not before its interval is over.
"""

from __future__ import annotations

import math

from scaler.protocol.messages import HostReport, Watch
from scaler.scheduler.core.events import Publish
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.monitor_records import MonitorRecord

#: seconds between two snapshots for one monitor, at least, whatever it asks for
SHORTEST = 0.1
#: seconds that the first snapshot waits for the reports of agents
PATIENCE = 1.0
#: milliseconds between two reports of an agent, at least
REPORTS = 1000


def take_watch(state: ClusterState, out: Outgoing, monitor: MonitorRecord, watch: Watch) -> None:
    """A monitor says how often it wants to see the cluster, and which snapshot it has taken."""
    begins = not monitor.interval
    monitor.interval = max(watch.interval / 1000, SHORTEST) if watch.interval else 0.0
    monitor.is_ready = bool(watch.interval) and (begins or watch.taken == monitor.sent)
    if begins:
        monitor.due = state.now
    ask_agents(state, out)


def ask_agents(state: ClusterState, out: Outgoing) -> None:
    """Have agents report as often as monitors want, if that has changed."""
    shortest = min((monitor.interval for monitor in state.monitors.values() if monitor.interval), default=0.0)
    interval = max(round(1000 * shortest), REPORTS) if shortest else 0
    watching = state.watching
    if interval == watching.interval:
        return
    if interval and (not watching.interval or interval < watching.interval):  # they have told nothing, or that is old
        watching.awaited = set(state.agents)
        watching.waits_until = state.now + PATIENCE
    watching.interval = interval
    for agent in state.agents.values():
        out.send(agent.number, Watch(interval))
        if not interval:
            agent.report = None


def take_agent(state: ClusterState, out: Outgoing, agent: AgentRecord) -> None:
    """An agent has joined, and knows nothing of who watches."""
    if state.watching.interval:
        out.send(agent.number, Watch(state.watching.interval))


def take_report(state: ClusterState, agent: AgentRecord, report: HostReport) -> None:
    """An agent tells what its host is busy with."""
    if state.watching.interval:  # otherwise it was on the way when the watch ended
        agent.report, agent.reported = report, state.now
        state.watching.awaited.discard(agent.number)


def publish(state: ClusterState, out: Outgoing) -> None:
    """Make a snapshot for those monitors that are due."""
    now, watching = state.now, state.watching
    due = [monitor for monitor in state.monitors.values() if monitor.is_ready and now >= _due(state, monitor)]
    if not due:
        return
    from scaler.scheduler.views.cluster_view import cluster_view  # here, as a cluster should start without it

    watching.made += 1
    for monitor in due:
        monitor.sent, monitor.is_ready = watching.made, False
        # at the same moments for all of one interval, so that one snapshot does for them
        monitor.due = monitor.interval * math.ceil(now / monitor.interval + 0.5)
    out.effects.append(Publish([monitor.number for monitor in due], watching.made, *cluster_view(state)))


def next_due(state: ClusterState) -> float:
    """When a snapshot is to be made, seconds; infinite if none is wanted."""
    return min((_due(state, monitor) for monitor in state.monitors.values() if monitor.is_ready), default=math.inf)


def _due(state: ClusterState, monitor: MonitorRecord) -> float:
    awaited = state.watching.awaited
    if awaited and not awaited.isdisjoint(state.agents):
        return max(monitor.due, state.watching.waits_until)
    return monitor.due
