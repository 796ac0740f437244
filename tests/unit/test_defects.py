"""A defect that a message meets costs its sender the session, or a worker its life, and nobody else anything."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from simulator.scripted import FakeAgent, FakeScheduler, result, task

from scaler.agent.core import worker_reports
from scaler.agent.state import validate as of_agent
from scaler.agent.state.host import HostState
from scaler.protocol.acceptor import Outgoing
from scaler.protocol.messages import LOST, VALUES_LIST, ClientReturn, HeartbeatEcho, TaskResult, Watch
from scaler.protocol.results import spans_of
from scaler.scheduler.core import admission, outgoing, rebuilding
from scaler.scheduler.core import events as ev
from scaler.scheduler.server import Server
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.validate import validate
from scaler.scheduler.views import cluster_view
from scaler.worker_protocol import messages as wm

#: a batch that nothing is wrong with, but that the scheduler can't deal with
UNLUCKY = 666


def met_by(monkeypatch: pytest.MonkeyPatch, what_is_left: Any = lambda state: None) -> FakeScheduler:
    """A scheduler, as users run it, with a defect that such a batch meets, which then leaves this in the state."""
    admit = admission.admit

    def fail(state: ClusterState, client: Any, task: Any) -> Any:
        if task.batch == UNLUCKY:
            what_is_left(state)
            return 1 // 0
        return admit(state, client, task)

    monkeypatch.setattr(admission, "admit", fail)
    fake = FakeScheduler(4)
    fake.core._strict = False
    return fake


def test_whoever_meets_a_defect_loses_its_session_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = met_by(monkeypatch)
    unlucky, other = fake.client(), fake.client()
    fake.say(unlucky, task(10, 2))
    fake.say(other, task(20, 2))
    fake.handle(ev.Received(unlucky, task(UNLUCKY, 1)), ev.Received(other, task(30, 1)))
    (lost,) = [effect for effect in fake.effects if isinstance(effect, ev.Forget)]
    assert (lost.number, lost.is_told) == (unlucky, True)
    assert "has a Task that met a defect of the scheduler (ZeroDivisionError: " in lost.reason
    told = "\n".join(fake.log)
    assert f"met by a Task of peer {unlucky}, whose session ends" in told
    assert "in fail\n" in told  # where
    assert set(fake.core.state.clients) == {other}
    fake.report(fake.agents[0], other, result(20, 0, 2), result(30, 0, 1))
    assert fake.ends(other) == [(20, 0, 2, VALUES_LIST), (30, 0, 1, VALUES_LIST)]
    assert validate(fake.core.state) == []


def test_a_defect_that_leaves_the_state_in_disorder_ends_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one begins anew, and clients and agents tell it all."""

    def spoil(state: ClusterState) -> None:
        state.clients[other].outstanding += 1

    fake = met_by(monkeypatch, spoil)
    unlucky, other = fake.client(), fake.client()
    with pytest.raises(ZeroDivisionError) as raised:
        fake.say(unlucky, task(UNLUCKY, 1))
    assert raised.value.__notes__[0] == f"while a Task of peer {unlucky} was dealt with"
    assert "it has left the state in disorder: " in raised.value.__notes__[1]


def test_tests_are_told_of_defects_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = met_by(monkeypatch)
    fake.core._strict = True
    with pytest.raises(ZeroDivisionError):
        fake.say(fake.client(), task(UNLUCKY, 1))


def test_a_batch_that_can_not_be_sent_costs_its_client_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of others that wait behind it are sent in the same step, to where its own were to go."""
    made = outgoing.task_for

    def fail(agent: Any, client: Any, batch: Any, spans: Any) -> Any:
        return 1 // (batch.id != UNLUCKY) and made(agent, client, batch, spans)

    monkeypatch.setattr(outgoing, "task_for", fail)
    fake = FakeScheduler(1, 1)
    fake.core._strict = False
    unlucky, other = fake.client(), fake.client()
    fake.handle(ev.Received(unlucky, task(UNLUCKY, 20)), ev.Received(other, task(10, 4)))
    (lost,) = [effect for effect in fake.effects if isinstance(effect, ev.Forget)]
    assert (lost.number, lost.is_told) == (unlucky, True)
    assert f"has batch {UNLUCKY} that met a defect of the scheduler (ZeroDivisionError: " in lost.reason
    assert sum("a defect of the scheduler, met by" in line for line in fake.log) == 1  # not for each agent
    for _ in range(4):
        for agent in fake.agents:
            fake.end_all(agent, other)
    assert sum(hi - lo for batch, lo, hi, _ in fake.ends(other) if batch == 10) == 4
    assert validate(fake.core.state) == []


def test_a_snapshot_that_can_not_be_made_costs_monitors_their_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(state: ClusterState) -> Any:
        return 1 // 0

    monkeypatch.setattr(cluster_view, "cluster_view", fail)
    fake = FakeScheduler(1)
    fake.core._strict = False
    client, monitor = fake.client(), fake.monitor()
    fake.say(monitor, Watch(1000))
    fake.wait(2.0)
    assert monitor not in fake.core.state.monitors
    assert any("met by a snapshot of peer" in line for line in fake.log)
    fake.say(client, task(10, 1))
    fake.end_all(fake.agents[0], client)
    assert fake.ends(client) == [(10, 0, 1, VALUES_LIST)]


def test_work_that_can_not_be_put_together_again_costs_its_client_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any) -> Any:
        return 1 // 0

    monkeypatch.setattr(rebuilding.Rebuilding, "restore_ended", fail)
    fake = FakeScheduler(1)
    fake.core._strict = False
    other = fake.client()
    unlucky = fake.come_back("client", 9)
    fake.say(unlucky, ClientReturn())
    assert unlucky not in fake.core.state.clients
    assert any("met by work of another scheduler" in line for line in fake.log)
    fake.say(other, task(10, 1))
    fake.end_all(fake.agents[0], other)
    assert fake.ends(other) == [(10, 0, 1, VALUES_LIST)]


def unlucky_agent(monkeypatch: pytest.MonkeyPatch, what_is_left: Any = lambda state: None) -> FakeAgent:
    """An agent, as users run it, with a defect that whatever a worker prints meets, which then leaves this behind."""

    def fail(out: Any, worker: Any, message: Any) -> None:
        what_is_left(fake.core.state)
        return 1 // 0

    monkeypatch.setattr(worker_reports, "take_output", fail)
    fake = FakeAgent(2)
    fake.core.state.strict = False
    fake.give(10, 0, 2)
    return fake


def test_a_defect_that_a_workers_message_meets_ends_that_worker_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = unlucky_agent(monkeypatch)
    fake.worker(0, wm.Output(fake.CLIENT, 10, 1, "f", "text"))
    assert fake.killed == [0]
    assert any("met by the Output of worker 0" in line and "in fail\n" in line for line in fake.logged)
    fake.dies(0)
    fake.finish(1)
    ended = sorted((span.lo, span.hi, span.outcome) for said in fake.heard(TaskResult) for span in spans_of(said))
    assert ended == [(0, 1, LOST), (1, 2, VALUES_LIST)]
    assert of_agent.validate(fake.core.state) == []


def test_one_that_leaves_the_state_in_disorder_ends_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(state: HostState) -> None:
        state.workers.open_dispatches += 1

    fake = unlucky_agent(monkeypatch, spoil)
    with pytest.raises(ZeroDivisionError) as raised:
        fake.worker(0, wm.Output(fake.CLIENT, 10, 1, "f", "text"))
    assert "it has left the state in disorder: " in raised.value.__notes__[1]


def test_what_can_not_be_encoded_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    server, gone = Server.__new__(Server), []
    server._listeners = (SimpleNamespace(send=None),)  # type: ignore[assignment]
    server._composition = SimpleNamespace(  # type: ignore[assignment]
        disconnect=lambda connection, now, reason: gone.append(connection)
    )
    with caplog.at_level(logging.ERROR, "scaler.scheduler"):
        server._send(Outgoing(7, 1, 0, HeartbeatEcho(0.0, workers=1 << 40)))
    assert gone == [7]
    assert "a message for connection 7 can't be sent" in caplog.text
    assert "Traceback" in caplog.text
