"""Workers that are at their end, and the process that would tell of it, when that is not plain: every future ends."""

import ctypes
import os
import signal

import psutil
import pytest
from support import until, workers_of

from scaler import WorkerLost

#: so that scheduler and clients that end are noticed soon
QUICK = ("--heartbeat-interval", "0.2")
PTRACE_ATTACH = 16


def stop_parent():
    os.kill(os.getppid(), signal.SIGSTOP)
    return os.getppid()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def execute():
    os.execv("/bin/sleep", ["sleep", "300"])


def cover():
    """The worker's sockets are something else now, and it goes on."""
    null = os.open("/dev/null", os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        if os.path.exists(f"/proc/self/fd/{name}") and os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
            os.dup2(null, int(name))
    signal.pause()


def leave_alone():
    """The main thread ends, and no other one."""
    import ctypes

    ctypes.CDLL(None).syscall(93 if os.uname().machine == "aarch64" else 60, 0)


def test_a_stopped_process_that_workers_are_forked_from_is_made_to_go_on(daemons):
    daemons.start_scheduler(*QUICK)
    agent = daemons.start_agent(2)
    client = daemons.client()
    zygote = client.submit(stop_parent).result(20)
    until(lambda: psutil.Process(zygote).status() == psutil.STATUS_STOPPED)
    with pytest.raises(WorkerLost, match="was killed by SIGKILL; attempt 4 of 4"):
        client.submit(die).result(40)
    assert agent.text.count(f"forked from (pid {zygote}) was stopped: it is made to go on") == 1
    assert client.submit(os.getppid).result(20) == zygote


def test_one_that_does_not_go_on_is_replaced(daemons):
    """As under a debugger, here of this process."""
    daemons.start_scheduler(*QUICK)
    agent = daemons.start_agent(2)
    client = daemons.client()
    zygote = client.submit(os.getppid).result(20)
    ptrace = ctypes.CDLL(None).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    if ptrace(PTRACE_ATTACH, zygote, None, None) < 0:
        pytest.skip("processes may not be traced here")
    until(lambda: psutil.Process(zygote).status() == psutil.STATUS_TRACING_STOP)
    lost = client.submit(die)
    others = [client.submit(abs, -n) for n in range(100)]

    def is_killed():
        pid, status = os.waitpid(zygote, os.WNOHANG)
        return pid and os.WIFSIGNALED(status)

    until(is_killed)
    assert type(lost.exception(40)) is WorkerLost
    assert [future.result(20) for future in others] == list(range(100))
    assert client.submit(os.getppid).result(20) != zygote
    assert f"(pid {zygote}) reports nothing: it is killed" in agent.text


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (execute, r"closed its connection \(has it called exec\?\)"),
        (cover, r"closed its connection \(has it called exec\?\)"),
        (leave_alone, "ended its main thread"),
    ],
)
def test_a_worker_that_is_gone_though_its_process_is_not_costs_its_row_alone(daemons, way, words):
    daemons.start_scheduler(*QUICK)
    agent = daemons.start_agent(2)
    client = daemons.client()
    before = workers_of(agent.pid)
    lost = client.submit(way)
    others = [client.submit(abs, -n) for n in range(100)]
    with pytest.raises(WorkerLost, match=rf"its worker \(pid \d+\) was ended: it {words}; attempt 4 of 4, given up"):
        lost.result(40)
    assert [future.result(20) for future in others] == list(range(100))
    until(lambda: len(workers_of(agent.pid)) == 2)
    assert len(set(workers_of(agent.pid)) & set(before)) <= 1
    assert agent.text.count("is ended, and another one is started") == 4
