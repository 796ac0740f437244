"""What an agent tells of its host while somebody watches, and what it measures for that."""

import os
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest
from simulator.scripted import FakeAgent, FakeScheduler

from scaler.agent.core import events as ae
from scaler.agent.core.events import Measure, Measured, MeasuredWorker
from scaler.agent.measuring import FIRST, Measuring
from scaler.common import process_use
from scaler.common.process_use import ProcessUse
from scaler.errors import ProtocolError
from scaler.monitor.totals import state_of
from scaler.protocol.codec import decode, encode
from scaler.protocol.codes import MAX_NAME, WorkerFlag
from scaler.protocol.messages import HeartbeatEcho, HostReport, Message, Watch, WorkerColumns, u8, u32, u64, unpack
from scaler.scheduler import publishing
from scaler.scheduler.core.events import Publish
from scaler.scheduler.publishing import Publisher
from scaler.scheduler.succession import Succession
from scaler.scheduler.views.cluster_view import cluster_view

BUSY = WorkerFlag.INITIALISED | WorkerFlag.HAS_TASK | WorkerFlag.HOLDS_LOCK


def hear(agent: FakeAgent, *messages: Message) -> None:
    agent.handle(*[ae.FromScheduler(message) for message in messages])


def asked_to_measure(agent: FakeAgent) -> list[float]:
    """How often the shell was told to, since the last time."""
    found = [effect.interval for effect in agent.store if isinstance(effect, Measure)]
    agent.store = [effect for effect in agent.store if not isinstance(effect, Measure)]
    return found


def reports_of(agent: FakeAgent) -> list[HostReport]:
    found = [message for message in agent.said if isinstance(message, HostReport)]
    agent.said = [message for message in agent.said if not isinstance(message, HostReport)]
    return found


def workers_in(report: HostReport) -> WorkerColumns:
    return unpack(report.bodies[0], [report.workers])


def test_an_agent_measures_when_somebody_watches_and_not_before_or_after() -> None:
    agent = FakeAgent(2)
    agent.handle(Measured(1, 2, {}))
    assert not reports_of(agent)
    hear(agent, Watch(100))
    assert asked_to_measure(agent) == [1.0]  # once a second at most
    hear(agent, Watch(5000))
    assert asked_to_measure(agent) == [5.0]
    agent.handle(Measured(1, 2, {}))
    assert len(reports_of(agent)) == 1
    hear(agent, Watch(0))
    assert asked_to_measure(agent) == [0.0]
    agent.handle(Measured(1, 2, {}))
    assert not reports_of(agent)


def test_a_scheduler_that_does_not_know_the_agent_is_not_told_of_its_host() -> None:
    agent = FakeAgent(1)
    hear(agent, Watch(1000))
    agent.handle(ae.Welcomed(True, 1.0, agent.NUMBER))
    agent.handle(Measured(1, 2, {}))
    assert len(reports_of(agent)) == 1  # the session went on, and so does the watch
    asked_to_measure(agent)
    agent.handle(ae.Welcomed(False, 1.0, agent.NUMBER))
    assert asked_to_measure(agent) == [0.0]


def test_a_report_says_what_each_worker_runs() -> None:
    agent = FakeAgent(2)
    hear(agent, Watch(1000))
    agent.give(10, 0, 3, name="f" * 300)
    number, dispatch = next(iter(agent.core.state.workers.records[0].dispatches.items()))
    (lo, _), *_ = dispatch.left
    begun = MeasuredWorker(100, 900, 1 << 20, (number, lo), 1500)
    stale = MeasuredWorker(101, 0, 2 << 20, (number + 50, 0), 9999)
    agent.handle(Measured(7, 8, {0: begun, 1: stale, 5: stale}))
    (report,) = reports_of(agent)
    workers = workers_in(report)
    assert (report.cpu, report.memory, report.workers) == (7, 8, 2)
    assert report.names == ("f" * MAX_NAME,)
    assert list(workers.functions) == [1, 0]
    assert list(workers.clients) == [agent.CLIENT, 0]
    assert list(workers.ids) == [10 + lo, 0]
    assert list(workers.elapsed) == [1500, 0]
    assert workers.flags[0] == BUSY
    assert workers.rows[0] == workers.queued[0] + 1
    assert workers.handed[0] == workers.rows[0]
    assert report.running == 1 + workers.rows[1] - workers.queued[1]
    report.validate()


def test_a_row_of_a_process_that_is_stopped_is_not_told_as_one_that_runs() -> None:
    agent = FakeAgent(2)
    hear(agent, Watch(1000))
    agent.give(10, 0, 1)
    agent.handle(Measured(1, 2, {slot: MeasuredWorker(100 + slot, 0, 0, is_stopped=True) for slot in range(2)}))
    busy, free = workers_in(reports_of(agent)[0]).flags
    assert busy == WorkerFlag.INITIALISED | WorkerFlag.HAS_TASK | WorkerFlag.STOPPED
    assert free == WorkerFlag.INITIALISED | WorkerFlag.STOPPED
    assert state_of(busy) == state_of(free) == "stopped"


def test_what_a_worker_writes_into_the_progress_page_is_not_believed() -> None:
    agent = FakeAgent(1)
    hear(agent, Watch(1000))
    agent.handle(Measured(1, 1, {0: MeasuredWorker(100, 2**40, 1, (2**63, 2**62), -(10**12))}))
    (report,) = reports_of(agent)
    decode(encode(report))


def test_the_lag_is_from_a_heartbeat_to_its_echo() -> None:
    agent = FakeAgent(1)
    hear(agent, Watch(1000))
    agent.now += 0.0025
    hear(agent, HeartbeatEcho(agent.now - 0.0025, 1))
    agent.handle(Measured(1, 1, {}))
    assert reports_of(agent)[0].lag == 2500


def broken(**changes: object) -> HostReport:
    columns = WorkerColumns(
        u64([1]), u64([1]), u64([1]), u32([1]), u32([1]), u32([1]), u32([1]), u32([1]), u32([1]), u32([1]), u32([0]),
        u8([1]),
    )  # fmt: skip
    report = HostReport(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ("f",), [columns.pack()])
    for name, value in changes.items():
        setattr(report, name, value)
    return report


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (broken(workers=2), "57 bytes for each worker"),
        (broken(bodies=[b"short"]), "57 bytes for each worker"),
        (broken(bodies=[]), "one frame"),
        (broken(workers=2**32 - 1), "more than 100,000 workers"),
        (broken(names=()), "without a name"),
        (broken(names=("f", "g")), "no worker runs"),
        (broken(names=("f" * (MAX_NAME + 1),)), "more than 200 characters"),
    ],
)
def test_columns_of_the_wrong_length_are_no_message(report: HostReport, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(encode(report))
    decode(encode(broken()))


def test_columns_of_several_agents_are_put_together() -> None:
    agents = []
    for first, count in ((0, 2), (2, 0), (2, 3)):
        numbers = range(first, first + count)
        agents.append(WorkerColumns(*[type_(numbers) for type_ in [u64] * 3 + [u32] * 8 + [u8]]))
    frame = b"".join(columns.pack() for columns in agents)
    together = unpack(frame, [2, 0, 3])
    assert [list(getattr(together, name)) for name in WorkerColumns.__dataclass_fields__] == [list(range(5))] * 12


def test_measuring_begins_with_a_look_and_ends_when_it_is_told() -> None:
    measuring, own = Measuring(), os.getpid()
    assert measuring.due is None
    measuring.every(1.0, {0: own}, 10.0)
    assert measuring.due == 10.0 + FIRST
    measured = measuring.measure({0: own, 1: 2**22 + 1}, {0: (3, 4)}, 10.2)
    assert measuring.due == 11.2
    assert measured.memory > 1 << 20
    assert measured.workers[0].begun == (3, 4)
    assert measured.workers[1] == MeasuredWorker(2**22 + 1, 0, 0)  # no such process
    measuring.every(0.0, {}, 10.3)
    assert measuring.due is None


def test_a_process_that_is_stopped_is_seen_and_so_is_that_it_goes_on() -> None:
    measuring, process = Measuring(), subprocess.Popen(["sleep", "60"])
    try:
        for signal_, said in ((signal.SIGSTOP, True), (signal.SIGCONT, False)):
            process.send_signal(signal_)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WCONTINUED)
            assert measuring.measure({0: process.pid}, {}, 10.0).workers[0].is_stopped is said
    finally:
        process.kill()
        process.wait()


def test_who_looks_more_often_does_not_wait_for_what_was_due_before() -> None:
    measuring = Measuring()
    measuring.every(3600.0, {}, 10.0)
    measuring.measure({}, {}, 10.2)
    measuring.every(1.0, {}, 20.0)
    assert measuring.due == 20.0 + FIRST
    measuring.every(5.0, {}, 20.1)  # who looks less often changes nothing of that
    assert measuring.due == 20.0 + FIRST


def test_the_share_of_a_processor_is_that_since_the_last_look() -> None:
    use = ProcessUse(os.getpid())
    assert use.look(0.0)[0] == 0
    began = time.process_time()
    while time.process_time() - began < 0.05:  # the system counts in ticks of 10 ms
        sum(range(10_000))
    assert use.look(1.0)[0] > 0


def test_who_looks_twice_at_once_is_told_the_same_share() -> None:
    use = ProcessUse(os.getpid())
    use.look(0.0)
    began = time.process_time()
    while time.process_time() - began < 0.05:
        sum(range(10_000))
    share = use.look(1.0)[0]
    assert use.look(1.01)[0] == share  # of which the system's ticks would say 0, or a whole processor
    assert use.look(2.0)[0] < share


def test_many_who_look_are_told_what_one_would_be(monkeypatch) -> None:
    """A process that takes 3 % of a processor, which the system counts in ticks of a hundredth of a second."""
    now = 0.0

    def stat_of(pid: int) -> list[bytes]:
        return [b"0"] * 11 + [b"%d" % int(3 * now)] + [b"0"] * 20

    monkeypatch.setattr(process_use, "stat_of", stat_of)
    monkeypatch.setattr(process_use, "_TICKS", 100)
    use, shares = ProcessUse(1), set()
    for look in range(400):
        now = look * 0.13  # eight monitors, each once in a second or so
        share, _ = use.look(now)
        if now > 3:
            shares.add(share)
    assert shares <= set(range(20, 41))


def test_the_first_who_looks_at_a_scheduler_is_told_what_it_has_used_since_it_began(monkeypatch) -> None:
    publisher = Publisher(1, "tcp://a:1", SimpleNamespace(sent={}, received={}), None, insecure=False)
    began = time.process_time()
    while time.process_time() - began < 0.05:  # the system counts in ticks of 10 ms
        sum(range(10_000))
    now = time.monotonic() + 1.0
    monkeypatch.setattr(publishing.time, "monotonic", lambda: now)
    view, workers = cluster_view(FakeScheduler().core.state)
    publisher.complete(Publish([1], 1, view, workers))
    assert view.scheduler.cpu > 0


def test_monitors_are_told_what_to_do_where_too_few_agents_are_heard() -> None:
    succession = Succession("tcp://a:1", 7, "tcp://b:1", stands_by=False)
    succession.trouble = "1 of the 3 agents that count are heard"
    publisher = Publisher(1, "tcp://a:1", SimpleNamespace(sent={}, received={}), succession, insecure=False)
    view, workers = cluster_view(FakeScheduler().core.state)
    publisher.complete(Publish([1], 1, view, workers))
    told = view.scheduler.trouble
    assert told == f"{succession.trouble} (if the other scheduler is gone: scaler promote tcp://a:1)"


@pytest.mark.parametrize("insecure", [False, True])
def test_monitors_are_told_whether_a_scheduler_has_keys(insecure) -> None:
    publisher = Publisher(1, "tcp://a:1", SimpleNamespace(sent={}, received={}), None, insecure=insecure)
    view, workers = cluster_view(FakeScheduler().core.state)
    publisher.complete(Publish([1], 1, view, workers))
    assert (view.scheduler.insecure, view.scheduler.address) == (insecure, "tcp://a:1")
