"""The hands of an agent's core, with worker processes and the store played by the test."""

import errno
import gc
import math
import os
import signal
import socket
import subprocess
import time
from typing import Any

import pytest

from scaler.agent.core.events import HungUp, KillWorker, StartWorker, ToWorker, WorkerExited
from scaler.agent.overdue import PATIENCE
from scaler.agent.process_state import state_of
from scaler.agent.shell import AgentShell
from scaler.agent.state.host import new_host
from scaler.agent.state.memory import AgentLimits
from scaler.agent.worker_processes import Exited, WorkerProcess
from scaler.agent.zygote_watch import has_hung_up
from scaler.common.loop import make_loop
from scaler.worker_protocol.encoding import read_by_worker
from scaler.worker_protocol.messages import Drop, Output
from scaler.worker_protocol.socketpair import BlockingSender, QueuingSender, Receiver

#: many enough for more bytes than sockets take
KEYS = [(1, number) for number in range(300_000)]


class Core:
    """A core that wants what the test says."""

    def __init__(self) -> None:
        self.state = new_host(1, AgentLimits())
        self.wants: list[Any] = []

    def handle(self, events: list[Any], now: float) -> list[Any]:
        wants, self.wants = self.wants, []
        return wants


class Zygote:
    """Workers that are no processes: their ends of the sockets are here."""

    ended = False
    pid = 0

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self.reports: list[Exited] = []
        self.theirs: list[socket.socket] = []

    def fileno(self) -> int:
        return self._reader

    def receive(self) -> list[Exited]:
        reports, self.reports = self.reports, []
        return reports

    def fork_worker(self, slot: int, largest: int) -> WorkerProcess:
        (task, its_task), (control, its_control) = socket.socketpair(), socket.socketpair()
        self.theirs = [its_task, its_control]
        return WorkerProcess(slot, task, control, self)  # type: ignore[arg-type]

    def claimed(self, slot: int) -> int:
        return -1

    def end(self, slot: int) -> None:
        """A worker has ended."""
        for sock in self.theirs:
            sock.close()
        self.reports.append(Exited(slot, 0, 9))

    def kill(self, worker: WorkerProcess) -> None: ...

    def progress(self, slot: int) -> tuple[int, int]:
        return 0, -1

    def close(self, idle: Any) -> None:
        for fd in (self._reader, self._writer):
            os.close(fd)


class Store:
    """A store with nothing in it."""

    wake = None
    tidy_at = 0.0

    def watch(self, loop: Any) -> None: ...

    def tidy(self, known: Any, now: float) -> None: ...

    def worker_ended(self, pid: int) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def shell() -> Any:
    loop = make_loop("builtin", lambda: None)
    made = AgentShell(Core(), Zygote(), Store(), loop, {}, lambda output: None)  # type: ignore[arg-type]
    made._usage.due = math.inf
    yield made
    made.close()
    loop._poller.close()  # type: ignore[attr-defined]


def test_what_follows_for_the_same_worker_is_sent_with_it(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    core, flushed = shell.core, []
    core.wants = [StartWorker(0)]
    shell.handle([], 0.0)
    flush = QueuingSender.flush
    monkeypatch.setattr(QueuingSender, "flush", lambda self: (flushed.append(len(self.waiting)), flush(self)))
    core.wants = [ToWorker(0, Drop(KEYS[:1])), ToWorker(0, Drop(KEYS[:2])), ToWorker(0, Drop(KEYS[:3]), control=True)]
    core.wants += [ToWorker(0, Drop(KEYS[:4]))]
    shell.handle([], 0.0)
    task, control = shell._workers.zygote.theirs
    assert flushed == [2, 1, 1]
    said = Receiver(task, read_by_worker).read()
    assert said[1:] == [Drop(KEYS[:1]), Drop(KEYS[:2]), Drop(KEYS[:4])]
    assert Receiver(control, read_by_worker).read() == [Drop(KEYS[:3])]


def test_nothing_is_watched_of_a_worker_that_has_ended_though_it_had_not_read_what_it_was_told(shell: Any) -> None:
    zygote, core = shell._workers.zygote, shell.core
    descriptors = []
    gc.collect()  # what other tests have left would give numbers back meanwhile
    for _ in range(2):  # the sockets of the second one have the numbers of those of the first
        core.wants = [StartWorker(0), ToWorker(0, Drop(KEYS), control=True)]
        shell.handle([], 0.0)
        worker = shell._workers.processes[0]
        descriptors.append(worker.want_write())
        assert descriptors[-1]
        zygote.end(0)
        shell._loop.ready[zygote] = None
        assert [event.slot for event in shell.gather()] == [0]
    assert descriptors[0] == descriptors[1]


def test_all_that_a_worker_has_said_is_heard_before_its_end_and_a_little_of_it_at_a_time(shell: Any) -> None:
    zygote, core = shell._workers.zygote, shell.core
    core.wants = [StartWorker(0)]
    shell.handle([], 0.0)
    lines = [Output(1, 2, 1, "f", f"{n} " + "x" * 90) for n in range(400)]
    task = zygote.theirs[0]
    task.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    said = BlockingSender(task)
    for line in lines:
        said.send(line)
    shell._loop.ready[shell._workers.processes[0]] = None
    first = [event.message for event in shell.gather()]
    assert 0 < len(first) < 200
    zygote.end(0)
    shell._loop.ready[zygote] = None
    *rest, ended = shell.gather()
    assert first + [event.message for event in rest] == lines
    assert type(ended) is WorkerExited


def test_a_worker_that_no_descriptors_are_left_for_ends_before_it_begins(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork_worker(slot: int, largest: int) -> WorkerProcess:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(shell._workers.zygote, "fork_worker", fork_worker)
    shell.core.wants = [StartWorker(0)]
    shell.handle([], 0.0)
    (ended,) = shell.gather()
    assert ended.slot == 0
    assert "(RLIMIT_NOFILE)" in ended.trouble


def hang_up(shell: Any, pid: int | None) -> list[Any]:
    """A worker, of this process, closes its connection; what the core is told."""
    shell._usage.due = math.inf
    shell.core.wants = [StartWorker(0), ToWorker(0, Drop(KEYS), control=True)]
    shell.handle([], 0.0)
    shell._workers.processes[0].pid = pid
    for sock in shell._workers.zygote.theirs:
        sock.close()
    shell._loop.ready[shell._workers.processes[0]] = None
    return [event for event in shell.gather() if type(event) is HungUp]


def test_a_worker_that_has_hung_up_is_not_listened_to_any_more(shell: Any) -> None:
    assert hang_up(shell, os.getpid()) == [HungUp(0)]
    assert shell._loop._poller.poll() == [], "the loop would turn and turn"
    shell.core.wants = [ToWorker(0, Drop(KEYS), control=True), KillWorker(0)]
    shell.handle([], 0.0)
    assert shell._loop._poller.poll() == []
    shell._workers.zygote.end(0)
    shell._loop.ready[shell._workers.zygote] = None
    assert [type(event).__name__ for event in shell.gather()] == ["WorkerExited"]


def test_a_worker_that_is_about_to_end_has_not_hung_up(shell: Any) -> None:
    assert hang_up(shell, None) == []
    child = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        worker = shell._workers.processes[0]
        worker.pid = child.pid
        assert not has_hung_up(worker)
    finally:
        child.wait()


@pytest.fixture
def sleeper() -> Any:
    """A process in place of the zygote."""
    child = subprocess.Popen(["sleep", "1000"])
    yield child
    child.kill()
    child.wait()


def test_a_stopped_zygote_goes_on_or_is_killed(shell: Any, sleeper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shell._workers.zygote.pid = sleeper.pid
    hang_up(shell, None)
    clock = time.monotonic()
    monkeypatch.setattr("scaler.agent.shell.time.monotonic", lambda: clock)
    for is_first in True, False:
        sleeper.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
        assert state_of(sleeper.pid).is_stopped
        clock += PATIENCE
        assert shell.wake <= clock
        shell.gather()
        assert shell.wake > clock
        if is_first:
            os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED)
            assert not state_of(sleeper.pid).is_stopped
    assert sleeper.wait(20) == -signal.SIGKILL
