"""The scheduler's core and monitors: who is shown what, when, and what agents are told."""

import math
from dataclasses import replace
from typing import Any

import pytest
from simulator.scripted import FakeScheduler, task

from bench.synthetic import SyntheticCluster
from scaler.errors import ProtocolError
from scaler.protocol.codes import AgentFlag
from scaler.protocol.messages import (
    VALUES_EACH,
    ClientClear,
    DisconnectRequest,
    HostReport,
    ObjectAnnounce,
    Snapshot,
    TaskResult,
    Watch,
    WorkerColumns,
    u8,
    u32,
    u64,
)
from scaler.protocol.messages.cluster_view import ClusterView
from scaler.protocol.views import decode_view, encode_view
from scaler.scheduler.core import events as se
from scaler.scheduler.core import watching
from scaler.scheduler.state.validate import validate
from scaler.scheduler.views.cluster_view import FUNCTIONS, cluster_view


def published(fake: FakeScheduler) -> list[se.Publish]:
    """What was published in the last step."""
    return [effect for effect in fake.effects if isinstance(effect, se.Publish)]


def report(*functions: int, names: tuple[str, ...] = ("f",), **figures: int) -> HostReport:
    """What an agent tells whose workers run these functions."""
    n = len(functions)
    columns = WorkerColumns(
        u64([1 << 20] * n), u64([5] * n), u64([12] * n), u32([2] * n), u32(functions), u32([30] * n), u32(range(n)),
        u32(range(n)), u32([500] * n), u32([1] * n), u32([0] * n), u8([7] * n),
    )  # fmt: skip
    known = {"cpu": 1, "memory": 2, "host_cpu": 3, "free": 4, "queued": 5, "running": n, "lag": 7, "stored": 8}
    return HostReport(
        **{**known, "spilled": 9, "fetched": 10, **figures}, workers=n, names=names[:n], bodies=[columns.pack()]
    )


def test_while_nobody_watches_nothing_is_made_and_no_agent_is_asked() -> None:
    fake = FakeScheduler(2)
    fake.monitor()
    client = fake.client()
    fake.say(client, task(10, 4))
    fake.wait(5)
    assert not published(fake)
    assert not fake.heard(fake.agents[0], Watch)
    fake.say(fake.agents[0], report(1))  # it was on the way when a watch ended
    assert fake.core.state.agents[fake.agents[0]].report is None


def test_a_monitor_is_shown_the_cluster_once_its_agents_have_reported() -> None:
    fake = FakeScheduler(2, 1)
    monitor = fake.monitor()
    fake.say(monitor, Watch(1000))
    first, second = fake.agents
    assert fake.heard(first, Watch) == fake.heard(second, Watch) == [Watch(1000)]
    assert not published(fake)
    fake.say(first, report(1, 0))
    assert not published(fake)
    fake.say(second, report(1))
    (wish,) = published(fake)
    assert wish.monitors == [monitor]
    assert wish.number == 1
    assert list(wish.view.agents.worker_counts) == [2, 1]
    assert list(wish.view.agents.flags) == [AgentFlag.REPORTED] * 2
    assert wish.view.worker_names == ("f", "f")
    assert wish.workers == report(1, 0).bodies[0] + report(1).bodies[0]


def test_an_agent_that_does_not_report_delays_the_first_snapshot_for_a_bounded_time() -> None:
    fake = FakeScheduler(1)
    fake.say(fake.monitor(), Watch(1000))
    fake.wait(watching.PATIENCE / 2)
    assert not published(fake)
    fake.wait(watching.PATIENCE / 2)
    (wish,) = published(fake)
    assert list(wish.view.agents.worker_counts) == [0]
    assert list(wish.view.agents.flags) == [0]


def test_who_watches_more_closely_than_others_is_shown_nothing_old() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    fake.say(fake.monitor(), Watch(60_000))
    fake.say(agent, report(1))
    fake.wait(30)
    closer = fake.monitor()
    fake.say(closer, Watch(1000))
    assert fake.heard(agent, Watch)[-1] == Watch(1000)
    assert not published(fake)  # the agent reports at once
    fake.say(agent, report(0))
    (wish,) = published(fake)
    assert wish.monitors == [closer]
    assert list(wish.view.agents.report_ages) == [0]
    fake.say(fake.monitor(), Watch(30_000))
    assert published(fake)  # and who does not need more than what is told anyway waits for nobody


def test_the_next_snapshot_comes_when_the_last_was_taken_and_its_time_has_come() -> None:
    fake = FakeScheduler()
    monitor = fake.monitor()
    fake.say(monitor, Watch(1000))
    assert [wish.number for wish in published(fake)] == [1]
    fake.wait(10)
    assert not published(fake)  # it has not said that it took the first
    fake.say(monitor, Watch(1000, 7))
    assert not published(fake)  # it was never sent that one
    fake.say(monitor, Watch(1000, 1))
    assert [wish.number for wish in published(fake)] == [2]
    fake.say(monitor, Watch(1000, 2))
    assert not published(fake)
    (wake,) = [effect.when for effect in fake.effects if isinstance(effect, se.WakeAt)]
    assert fake.now < wake <= fake.now + 1.5
    fake.wait(wake - fake.now)
    assert [wish.number for wish in published(fake)] == [3]


def test_monitors_of_one_interval_share_a_snapshot() -> None:
    fake = FakeScheduler()
    first = fake.monitor()
    fake.say(first, Watch(1000))
    fake.now += 0.3
    second = fake.monitor()
    fake.say(second, Watch(1000))
    fake.say(first, Watch(1000, 1))
    fake.say(second, Watch(1000, 2))
    fake.wait(1.2)
    assert [wish.monitors for wish in published(fake)] == [[first, second]]


@pytest.mark.parametrize("how", ["ends its watch", "leaves", "is lost", "falls silent"])
def test_when_the_last_monitor_goes_agents_are_told_to_stop(how: str) -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    monitor = fake.monitor()
    fake.say(monitor, Watch(500))
    assert fake.heard(agent, Watch) == [Watch(1000)]
    fake.say(agent, report(1))
    if how == "ends its watch":
        fake.say(monitor, Watch(0, 1))
    elif how == "leaves":
        fake.say(monitor, DisconnectRequest())
    elif how == "is lost":
        fake.lose(monitor)
    else:
        for _ in range(60):
            fake.say(agent, report(1))
            fake.wait(1.0)
    assert fake.heard(agent, Watch) == [Watch(0)]
    assert fake.core.state.agents[agent].report is None
    assert (monitor in fake.core.state.monitors) == (how == "ends its watch")


def test_an_agent_that_joins_while_somebody_watches_is_asked() -> None:
    fake = FakeScheduler()
    fake.say(fake.monitor(), Watch(2000))
    assert fake.heard(fake.agent(), Watch) == [Watch(2000)]


@pytest.mark.parametrize(
    "message", [task(10, 2), ObjectAnnounce(u64([1]), u8([0]), [b""]), ClientClear(), TaskResult(1), report(1)]
)
def test_a_monitor_that_says_what_is_not_its_to_say_loses_its_session(message: Any) -> None:
    fake = FakeScheduler(1)
    monitor, client = fake.monitor(), fake.client()
    fake.say(client, task(10, 2))
    fake.say(monitor, message)
    assert [effect.number for effect in fake.effects if isinstance(effect, se.Forget)] == [monitor]
    assert monitor not in fake.core.state.monitors
    assert sum(batch.rows for batch in fake.core.state.clients[client].batches.values()) == 2


@pytest.mark.parametrize("message", [Watch(1000), Snapshot(1, [b"", b""])])
def test_neither_clients_nor_agents_watch(message: Any) -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    for number in (client, fake.agents[0]):
        fake.say(number, message)
        assert [effect.number for effect in fake.effects if isinstance(effect, se.Forget)] == [number]


def test_a_view_counts_rows_of_clients_and_functions_by_where_they_are() -> None:
    fake = FakeScheduler(2)
    client = fake.client()
    fake.say(client, task(10, 50))
    fake.end_all(fake.agents[0], client, VALUES_EACH)
    view, _ = cluster_view(fake.core.state)
    rows, functions, clients = view.rows, view.functions, view.clients
    assert rows.finished > 0
    assert rows.waiting + rows.queued + rows.at_agents + rows.finished == 50
    assert (sum(functions.waiting), sum(functions.running), sum(functions.done)) == (
        rows.queued + rows.waiting, rows.at_agents, rows.finished
    )  # fmt: skip
    assert (list(clients.queued), list(clients.running), list(clients.done)) == (
        list(functions.waiting), list(functions.running), list(functions.done)
    )  # fmt: skip
    assert not list(validate(fake.core.state))
    assert decode_view(encode_view(view)) == view


def test_functions_beyond_a_few_hundred_are_shown_together() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    for number in range(FUNCTIONS + 5):
        made = task(1000 * (1 + number), 1 + number)
        made.name = f"function_{number}"
        fake.say(client, made)
    view, _ = cluster_view(fake.core.state)
    assert len(view.functions) == FUNCTIONS
    assert view.functions.names[-1] == "other"
    rows = sum(range(1, FUNCTIONS + 6))
    assert sum(view.functions.waiting) + sum(view.functions.running) == rows


def test_figures_that_no_column_can_hold_harm_nobody() -> None:
    fake = FakeScheduler(1, 1)
    fake.say(fake.monitor(), Watch(1000))
    most = 2**64 - 1
    for agent in fake.agents:
        fake.say(agent, report(1, stored=most, spilled=most, fetched=most, memory=most, running=2**32 - 1))
    (wish,) = published(fake)
    assert wish.view.objects.fetched == most
    assert wish.view.rows.running <= wish.view.rows.at_agents
    assert decode_view(encode_view(wish.view)) == wish.view


def test_a_view_does_not_grow_with_rows() -> None:
    sizes = []
    for rows in (10, 10_000):
        fake = FakeScheduler(2)
        fake.say(fake.client(), task(10, rows))
        sizes.append(len(encode_view(cluster_view(fake.core.state)[0])))
    assert sizes[0] == sizes[1]


def test_a_synthetic_cluster_is_a_cluster() -> None:
    cluster = SyntheticCluster(agents=5, workers=3, functions=2)
    first, second = cluster.snapshot(), cluster.snapshot()
    view: ClusterView = decode_view(encode_view(first.view))
    assert view == first.view
    assert len(first.workers) == 15
    assert second.rows.finished > first.rows.finished
    running = [worker for worker in range(15) if first.workers.functions[worker]]
    assert {first.function_of(worker) for worker in running} <= set(first.functions.names)
    assert all(first.is_free(worker) != (worker in running) for worker in range(15))
    assert first.host_of(14) == first.agents.names[4]


def test_monitors_that_come_and_go_are_no_lines_that_others_are_lost_among() -> None:
    fake = FakeScheduler(1)
    monitor = fake.monitor()
    fake.say(monitor, DisconnectRequest())
    levels = {effect.level for effect in fake.effects if isinstance(effect, se.Log)}
    assert levels == {"DEBUG"}
    assert [text.split()[0] for text in fake.log] == ["agent", "monitor", "monitor"]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, 1e20])
def test_a_view_whose_times_no_calendar_has_is_refused(wrong: float) -> None:
    view = SyntheticCluster(1, 1).snapshot().view
    for name in ("time", "uptime"):
        frame = encode_view(replace(view, scheduler=replace(view.scheduler, **{name: wrong})))
        with pytest.raises(ProtocolError, match="times that a calendar has"):
            decode_view(frame)
