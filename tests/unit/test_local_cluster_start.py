"""What is said of a local cluster whose process does not begin."""

import signal
import socket
import subprocess
import sys

import pytest

from scaler import SchedulerClusterCombo
from scaler.cluster import combo
from scaler.errors import ConnectionFailed, ConnectionTimeout


@pytest.fixture
def started(monkeypatch):
    """Have a cluster start a process of this program, to which it talks by its standard input; the processes."""
    processes = []

    def become(program):
        def spawn(*_, **__):
            ours, theirs = socket.socketpair()
            with theirs:
                processes.append(subprocess.Popen([sys.executable, "-S", "-c", program], stdin=theirs))
            return ours, processes[-1]

        monkeypatch.setattr(combo, "_begun_in_advance", lambda address: None)
        monkeypatch.setattr(combo, "spawn", spawn)
        return processes

    yield become
    for process in processes:
        process.kill()
        process.wait()


def test_a_process_that_does_not_answer_in_time_is_ended_and_that_is_said(started, monkeypatch):
    monkeypatch.setattr(combo, "START_TIMEOUT", 0.2)
    processes = started("import signal; signal.pause()")
    with pytest.raises(ConnectionTimeout, match=r"did not answer in 0\.2 s, and was ended: this machine may"):
        SchedulerClusterCombo(n_workers=1)
    assert processes[0].returncode == -signal.SIGKILL


def test_a_process_that_ends_has_its_own_exit_code_in_the_error(started):
    started("import os, sys; sys.stdin.readline(); os.close(0); sum(range(10**6)); os._exit(3)")
    with pytest.raises(ConnectionFailed, match=r"did not start \(exit code 3\); its errors are on standard error"):
        SchedulerClusterCombo(n_workers=1)
