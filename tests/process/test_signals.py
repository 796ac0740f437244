"""Signals that end programs: however often they come, and to whomever, what ends does so in order."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import until

#: as `nohup` and shells start what is to outlive its terminal
IGNORING_HANGUPS = "sh", "-c", 'trap "" HUP; exec "$@"', "sh"
ENDING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def door_of(daemons):
    """The file at which monitors of this machine find the scheduler."""
    return Path(f"/tmp/127.0.0.1_{daemons.address.rpartition(':')[2]}_monitor")


def tell_until_it_ends(program, number):
    """Send a signal again and again: it comes at every moment of the end, to the last one."""

    def told():
        program.signal(number)
        return program.process.poll() is not None

    until(told, "its end")
    return program.ends(1.0)


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("loop", ["builtin", "uvloop"])
def test_a_scheduler_that_is_told_to_end_many_times_ends_in_order(daemons, number, loop):
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    scheduler = daemons.start_scheduler("--event-loop", loop)
    door = door_of(daemons)
    assert door.exists()
    assert tell_until_it_ends(scheduler, number) == 0, scheduler.text
    assert "Scheduler: ended" in scheduler.text
    assert not door.exists()


@pytest.mark.parametrize("number", ENDING)
def test_a_scheduler_that_is_told_to_end_before_it_listens_leaves_no_file(scripts, tmp_path, number):
    door = tmp_path / "monitor"
    text = scripts.run(f"""
    import pathlib, signal
    from scaler.config import SchedulerConfig
    from scaler.scheduler import server

    class Told(server.Server):
        def __init__(self, *args):
            assert pathlib.Path({str(door)!r}).exists()
            signal.raise_signal({int(number)})
            super().__init__(*args)

    server.Server = Told
    config = SchedulerConfig("tcp://127.0.0.1:0", monitor_address="ipc://{door}")
    print(server.run(config))
    """)
    assert text.endswith("0\n")
    assert not door.exists()


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("loop", ["builtin", "uvloop"])
def test_a_host_that_is_told_to_end_many_times_ends_in_order(daemons, number, loop):
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    daemons.start_scheduler()
    agent = daemons.start_agent(1, "--event-loop", loop)
    assert tell_until_it_ends(agent, number) == 0, agent.text
    assert "ClusterProcess: ended" in agent.text


def supervised_scheduler(daemons, *through):
    """One whose processes are a group of their own, as those of a service or of a terminal's foreground are."""
    daemons.start_scheduler().stop()  # its port is free
    door = door_of(daemons)
    door.unlink(missing_ok=True)
    arguments = "scaler_scheduler", "scheduler", "--supervise", daemons.address
    supervised = daemons.run(*arguments, through=("setsid", *through))
    supervised.says("listens at")
    return supervised, door


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_to_supervisor_and_scheduler_ends_both_in_order(daemons, number):
    supervised, door = supervised_scheduler(daemons)

    def told():
        with contextlib.suppress(ProcessLookupError):  # both have ended
            os.killpg(supervised.pid, number)
        return supervised.process.poll() is not None

    until(told, "its end")
    assert supervised.ends(1.0) == 0, supervised.text
    assert "Scheduler: ended" in supervised.text
    assert not door.exists()


@pytest.mark.parametrize(
    ("limits", "told", "why"),
    [
        ("GRACE, supervisor.AGAIN = 0.1, 300.0", "TERM", "it did not end within 0.1 s"),
        ("GRACE, supervisor.AGAIN = 300.0, 0.0", "TERM INT", "it was told again"),
    ],
    ids=["for too long", "told again"],
)
def test_a_supervisor_kills_a_scheduler_that_does_not_end(limits, told, why):
    program = f"""if True:
        import logging, os, signal, sys
        from scaler.config import SchedulerConfig
        from scaler.scheduler import server, supervisor
        logging.basicConfig(stream=sys.stdout)
        def hang(config):
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            for name in "{told}".split():
                os.kill(os.getppid(), signal.Signals["SIG" + name])
            while True:
                signal.pause()
        server.run = hang
        supervisor.{limits}
        sys.exit(supervisor.Supervisor(SchedulerConfig("tcp://127.0.0.1:1", supervise=True)).run())
    """
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert ran.returncode == 128 + signal.SIGKILL, ran.stderr
    assert f"was killed by SIGKILL and could not end in order: {why}\n" in ran.stdout


def test_a_supervisor_tells_by_its_exit_code_that_its_scheduler_was_killed_at_the_end():
    program = """if True:
        import logging, os, signal, sys
        from scaler.config import SchedulerConfig
        from scaler.scheduler import server, supervisor
        logging.basicConfig(stream=sys.stdout)
        def be_killed(config):
            signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            os.kill(os.getppid(), signal.SIGTERM)
            signal.pause()
        server.run = be_killed
        sys.exit(supervisor.Supervisor(SchedulerConfig("tcp://127.0.0.1:1", supervise=True)).run())
    """
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert ran.returncode == 128 + signal.SIGKILL, ran.stderr
    assert "was killed by SIGKILL and could not end in order" in ran.stdout


def test_a_scheduler_and_a_host_outlive_a_terminal_if_they_were_started_so(daemons):
    daemons.scheduler = daemons.run("scaler_scheduler", "scheduler", daemons.address, through=IGNORING_HANGUPS)
    daemons.address = daemons.scheduler.says(r"listens at (tcp://\S+)")[1]
    host = "-n", "1", "--drain-grace", "0", daemons.address
    agent = daemons.run("scaler_cluster", "cluster", *host, through=IGNORING_HANGUPS)
    agent.says("connected to the scheduler")
    for each in (agent, daemons.scheduler):
        each.signal(signal.SIGHUP)
    assert daemons.client().submit(abs, -3).result(20) == 3
    for each in (agent, daemons.scheduler):
        each.signal(signal.SIGTERM)
        assert each.ends(5.0) == 0


def test_a_host_whose_terminal_is_closed_drains_however_often_it_is_told(daemons, tmp_path):
    begun, go = tmp_path / "begun", tmp_path / "go"

    def work():
        import time

        begun.touch()
        while not go.exists():
            time.sleep(0.005)
        return 7

    daemons.start_scheduler()
    agent = daemons.start_agent(1, "--drain-grace", "60")
    future = daemons.client().submit(work)
    until(begun.exists, "the task")
    agent.signal(signal.SIGHUP)
    agent.says("this host drains")
    agent.signal(signal.SIGHUP)  # the shell and the system both send it
    daemons.start_agent(1)  # takes over the value
    go.touch()
    assert future.result(20) == 7
    assert agent.ends(20.0) == 0
    assert "nothing left to do" in agent.text
