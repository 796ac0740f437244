"""Questions that an agent answers: the scheduler passes them on, and the answers back to who asked."""

from __future__ import annotations

from scaler.protocol.messages import Query, QueryResult
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.monitor_records import Asked

#: questions of one monitor that wait for agents; of more the oldest are not answered any more
MOST = 16
#: bytes of an answer
LARGEST = 1 << 18


def ask(state: ClusterState, out: Outgoing, monitor: int, query: Query) -> None:
    """Ask an agent for a monitor."""
    if query.agent not in state.agents:
        out.send(monitor, QueryResult(query.number, error=f"agent {query.agent} is not there", bodies=[b""]))
        return
    watching = state.watching
    waiting = [number for number, asked in watching.asked.items() if asked.monitor == monitor]
    for number in waiting[: max(0, len(waiting) + 1 - MOST)]:
        del watching.asked[number]
    watching.asked_last += 1
    watching.asked[watching.asked_last] = Asked(monitor, query.agent, query.number)
    out.send(query.agent, Query(watching.asked_last, query.kind, agent=query.agent, slot=query.slot))


def take_answer(state: ClusterState, out: Outgoing, agent: AgentRecord, result: QueryResult) -> None:
    """An agent has answered; what it was not asked, or not any more, nobody hears."""
    asked = state.watching.asked.get(result.number)
    if asked is None or asked.agent != agent.number:
        return
    del state.watching.asked[result.number]
    bodies = [body if len(body) <= LARGEST else b"" for body in result.bodies]
    out.send(asked.monitor, QueryResult(asked.number, error=result.error[:200], bodies=bodies))


def forget_monitor(state: ClusterState, monitor: int) -> None:
    """A monitor is gone."""
    for number in [number for number, asked in state.watching.asked.items() if asked.monitor == monitor]:
        del state.watching.asked[number]


def forget_agent(state: ClusterState, out: Outgoing, agent: int) -> None:
    """An agent is gone, and answers nothing any more."""
    for number in [number for number, asked in state.watching.asked.items() if asked.agent == agent]:
        asked = state.watching.asked.pop(number)
        out.send(asked.monitor, QueryResult(asked.number, error=f"agent {agent} is gone", bodies=[b""]))
