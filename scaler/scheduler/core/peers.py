"""Clients, agents and monitors come and go."""

import math

from scaler.protocol.codes import Role
from scaler.protocol.messages import AgentsInUse, ClientDeparture, u32
from scaler.scheduler.core import (
    draining,
    late_rows,
    lifetimes,
    placement,
    reading,
    retrying,
    returning,
    roots,
    settling,
    store_choice,
    unmet,
    watching,
    withdrawing,
)
from scaler.scheduler.core.events import Joined
from scaler.scheduler.core.moves import Move
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state import accounts, transitions
from scaler.scheduler.state.agent_records import AgentRecord, Host, Load
from scaler.scheduler.state.client_records import ClientRecord, ClientValues
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.cluster_facts import PeerLeft
from scaler.scheduler.state.monitor_records import MonitorRecord


def join(state: ClusterState, out: Outgoing, joined: Joined, read_tries: int, agent_timeout: float) -> list[Move]:
    """A client, an agent or a monitor was accepted, and has been given its number."""
    number, hello, is_resident = joined
    level = "DEBUG" if hello.role == Role.MONITOR else "INFO"  # each question from a command line is one
    out.log(level, f"{hello.role} {number} joined: {hello.name}")
    if hello.epoch or state.returning.settled == math.inf:
        state.returning.settled = state.now + agent_timeout
    if hello.role == Role.CLIENT:
        client = state.clients[number] = ClientRecord(number, hello.name, hello.boot_id, state.now, hello.session)
        client.root, client.store = roots.root_of(hello.session), hello.store
        client.is_resident = is_resident
        out.sent[number] = 0
        roots.join(state, client)
        returning.join_client(state, out, client, hello, agent_timeout, is_resident)
        return []
    if hello.role == Role.MONITOR:
        state.monitors[number] = MonitorRecord(number, hello.name, state.now)
        return []
    host = Host(hello.boot_id, hello.store, hello.token, hello.data, hello.pid)
    capabilities, is_store = frozenset(hello.capabilities), hello.role == Role.STORE
    load = Load(hello.workers, idle_since=state.now)
    agent = AgentRecord(number, hello.name, capabilities, host, is_store, state.now, load)
    state.agents[number] = agent
    state.roots.add_store(agent)
    agent.job = hello.job
    if hello.walltime:
        agent.ends = state.now + hello.walltime / 1000
        state.limited.add(number)
    returning.join_agent(state, agent, hello)
    placement.add(state, agent)
    draining.join(state, out, agent, hello.leaving)
    watching.take_agent(state, out, agent)
    moves: list[Move] = []
    for served in store_choice.take_agent(state, out, agent):
        moves += reading.read_what_waits(state, out, served, read_tries)
    return moves


def move(state: ClusterState, out: Outgoing, agent: AgentRecord, data: str) -> None:
    """An agent is found at another address: all hear of it that were told of the one before."""
    out.log("INFO", f"agent {agent.number} ({agent.name}) has another address: others fetch objects at {data} now")
    agent.host = agent.host._replace(data=data)
    agent.unreachable.clear()
    for other in state.agents.values():
        other.unreachable.pop(agent.number, None)
        if agent.number in other.introduced:
            other.introduced.discard(agent.number)
            out.introduce(state, other, [agent.number])
    for client in known_to(state, agent):
        if agent.number in client.agents and not agent.is_standalone:
            out.send(client.number, AgentsInUse(u32([agent.number]), whereabouts=(agent.host.whereabouts,)))


def lose_agent(state: ClusterState, out: Outgoing, agent: AgentRecord, reason: str, retries_on_loss: int) -> list[Move]:
    """An agent is gone: what becomes of its rows, and of what only it had."""
    rows = agent.load.rows
    fate = "go back to the queue" if retries_on_loss else "are lost"
    level = "INFO" if agent.load.is_leaving and not rows else "WARNING"
    out.log(level, f"agent {agent.number} ({agent.name}) is gone: {reason}; {rows} rows {fate}")
    del state.agents[agent.number]
    state.roots.remove_store(agent)
    if state.watching.asked:
        from scaler.scheduler.core import relaying  # loaded already, by whoever has asked

        relaying.forget_agent(state, out, agent.number)
    placement.remove(state, agent)
    state.touched.pop(agent, None)
    is_leaving = agent.load.is_leaving
    draining.lose_agent(state, agent)
    state.limited.discard(agent.number)
    returning.lose_agent(state, agent)
    for client in known_to(state, agent):
        settling.forget_agent(client, agent.number)
        if agent.number in client.agents:
            client.agents.discard(agent.number)
            out.send(client.number, AgentsInUse(removed=u32([agent.number])))
    if state.facts.wanted:
        role = Role.STORE if agent.is_standalone else Role.AGENT
        state.facts.tell(PeerLeft(agent.number, role, agent.name))
    return retrying.lose_agent(state, agent, reason, retries_on_loss, is_announced=is_leaving)


def known_to(state: ClusterState, agent: AgentRecord) -> list[ClientRecord]:
    """The clients that an agent may have something of, or has told of: there may be many others."""
    return [state.clients[number] for number in agent.clients if number in state.clients]


def settle_lost_agent(state: ClusterState, out: Outgoing, agent: AgentRecord, read_tries: int) -> list[Move]:
    """The rows of a lost agent have gone elsewhere: what it was asked for, and by way of whom values are read now."""
    store_choice.lose_agent(state, agent)
    if state.queues:
        unmet.name_stranded(state, out)
    moves = reading.read_by_way_of(state, out, agent, known_to(state, agent), read_tries)
    return moves + withdrawing.answer_for_lost(state, out, agent)


def forget_work(state: ClusterState, out: Outgoing, client: ClientRecord, stays: bool) -> None:
    """Forget all batches and objects of a client, here and at the agents that have something of it."""
    out.ask_no_more(client.number)
    transitions.forget_client(state, client)
    late_rows.forget_client(state, client.number)
    for given in state.touched:  # what it was given in this step it may have been asked for, and knows of neither
        withdrawing.forget_client(given, client.number)
    for number in client.agents:
        agent = state.agents.get(number)
        if agent is not None:
            withdrawing.forget_client(agent, client.number)
            out.send(number, ClientDeparture(client.number, stays=stays))
    lifetimes.forget_holders(state, client)
    accounts.charge(state, client, -client.kept)
    client.remembered.clear()
    client.graphs.clear()
    client.values = ClientValues()
    client.reads.under_way.clear()
    client.reads.named.clear()
    client.reads.failures.clear()
    client.reads.troubles.clear()


def drop_monitor(state: ClusterState, out: Outgoing, monitor: MonitorRecord, reason: str) -> None:
    """A monitor is gone; if nobody else watches, agents need not report any more."""
    out.log("DEBUG", f"monitor {monitor.number} ({monitor.name}) is gone: {reason}")
    del state.monitors[monitor.number]
    if state.watching.asked:
        from scaler.scheduler.core import relaying

        relaying.forget_monitor(state, monitor.number)
    for key in [key for key in state.fleets if key[0] == monitor.number]:
        del state.fleets[key]
    watching.ask_agents(state, out)
    if state.facts.wanted:
        state.facts.tell(PeerLeft(monitor.number, Role.MONITOR, monitor.name))


def drop_client(state: ClusterState, out: Outgoing, client: ClientRecord, reason: str) -> None:
    """A client is gone, and all of it with it, but for what its tasks have submitted as other clients (`roots`)."""
    dropped = f"; dropped {client.outstanding} rows" if client.outstanding else ""
    out.log("INFO", f"client {client.number} ({client.name}) is gone: {reason}{dropped}")
    returning.lose_client(state, out, client.number)
    forget_work(state, out, client, stays=False)
    state.queues.release(client.number)
    out.flush_results(client.number)
    for function in client.functions.values():
        state.ended.finished += function.finished
        state.ended.failed += function.failed
        state.ended.cancelled += function.cancelled
        state.ended.claimed += function.claimed
    for number in client.agents:
        if number in state.agents:
            state.agents[number].clients.pop(client.number, None)
    del state.clients[client.number]
    del out.sent[client.number]
    state.standalone.waiting.pop(client.number, None)
    if state.facts.wanted:
        state.facts.tell(PeerLeft(client.number, Role.CLIENT, client.name))
    roots.forget(state, client)
