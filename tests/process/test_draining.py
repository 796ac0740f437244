"""Hosts that are drained: nothing is lost, nothing is computed twice, and they end."""

import signal
import subprocess

import numpy as np
import pytest
from support import until
from support.programs import environment, program
from support.stores import stores

from scaler.monitor.commands import CommandRefused, Commands
from scaler.monitor.questions import Questions

#: numbers in an array of 800 kB: large enough to be stored
NUMBERS = 100_000


def scaler(*arguments):
    """Run `scaler ...`; what it prints, and its exit code."""
    done = subprocess.run(
        program("scaler", "main") + list(arguments), capture_output=True, text=True, timeout=30, env=environment(),
        check=False,
    )  # fmt: skip
    return done.stdout + done.stderr, done.returncode


def counted(path):
    """How many lines a file has: one for each execution."""
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_host_is_drained_under_load_and_nothing_is_lost_or_computed_again(daemons, tmp_path):
    log = tmp_path / "executions"

    def make(number):
        with open(log, "a") as file:
            file.write("x\n")
        return np.full(NUMBERS, float(number))

    def total(array):
        import time

        with open(log, "a") as file:
            file.write("x\n")
        time.sleep(0.005)
        return float(array.sum())

    daemons.start_scheduler("--heartbeat-interval", "0.2")
    going = daemons.start_agent(2, "--job", "4711")
    daemons.start_agent(1)
    client = daemons.client()
    until(lambda: client.n_workers == 3)
    arrays = [client.submit(make, number) for number in range(20)]
    until(lambda: sum(array.done() for array in arrays) > 10)
    sums = [client.submit(total, array) for array in arrays for _ in range(4)]
    said, code = scaler("drain", daemons.address, "4711")
    assert (said, code) == ("draining: 1 hosts\n", 0)
    assert going.ends(30) == 0
    assert not stores(going.pid)
    assert "nothing left to do" in going.text
    assert [value.result(60) for value in sums] == [float(n * NUMBERS) for n in range(20) for _ in range(4)]
    assert [float(array.result(30)[0]) for array in arrays] == [float(number) for number in range(20)]
    assert counted(log) == 20 + 80
    said, code = scaler("drain", daemons.address, "4711")
    assert code == 1
    assert "is not there" in said


@pytest.mark.parametrize("how", ["SIGTERM", "SIGUSR2"])
def test_a_host_whose_end_is_announced_finishes_what_it_runs(daemons, tmp_path, how):
    log = tmp_path / "executions"

    def work(seconds):
        import time

        with open(log, "a") as file:
            file.write("x\n")
        time.sleep(seconds)
        return seconds

    daemons.start_scheduler("--heartbeat-interval", "0.2")
    going = daemons.start_agent(1, "--drain-grace", "20", "--preemption-signal", "SIGUSR2")
    client = daemons.client()
    running = client.submit(work, 1.0)
    until(lambda: counted(log) == 1)
    waiting = [client.submit(work, 0.01) for _ in range(20)]
    daemons.start_agent(1)
    going.signal(getattr(signal, how))
    assert going.ends(20) == 0
    assert running.result(20) == 1.0
    assert [each.result(20) for each in waiting] == [0.01] * 20
    assert counted(log) == 21


def test_a_host_leaves_before_its_walltime_is_over(daemons):
    daemons.start_scheduler()
    going = daemons.run("scaler_cluster", "cluster", "-n", "1", "--walltime", "3", daemons.address)
    assert going.ends(20) == 0
    assert "its walltime is nearly over" in going.text
    assert "nothing left to do" in going.text


def test_a_second_signal_ends_a_draining_host_at_once(daemons, tmp_path):
    begun = tmp_path / "begun"

    def work():
        import time

        begun.touch()
        time.sleep(1000)

    daemons.start_scheduler("--retries-on-loss", "1")
    going = daemons.start_agent(1, "--drain-grace", "60")
    client = daemons.client()
    future = client.submit(work)
    until(begun.exists, "the task, which would go back to the queue otherwise")
    going.signal(signal.SIGTERM)
    going.says("this host drains")
    going.signal(signal.SIGTERM)
    assert going.ends(5) == 0
    assert not future.done()


def test_a_draining_host_that_has_nothing_ends_when_its_scheduler_is_gone(daemons):
    daemons.start_scheduler()
    going = daemons.start_agent(1, "--drain-grace", "60")
    going.signal(signal.SIGSTOP)
    going.signal(signal.SIGTERM)
    daemons.scheduler.signal(signal.SIGTERM)
    assert daemons.scheduler.ends(10) == 0
    going.signal(signal.SIGCONT)
    assert going.ends(10) == 0
    assert "the time to drain is over" not in going.text


@pytest.mark.parametrize("is_first", [True, False])
def test_a_host_does_not_wait_long_for_others_to_take_what_it_has_if_all_are_told_to_end(daemons, is_first):
    daemons.start_scheduler()
    going = daemons.start_agent(1, "--drain-grace", "300")
    client = daemons.client()
    made = [client.submit(np.full, NUMBERS, number) for number in range(3)]
    until(lambda: all(value.done() for value in made))
    for each in (going, daemons.scheduler) if is_first else (daemons.scheduler, going):
        each.signal(signal.SIGTERM)
    assert going.ends(20) == 0
    assert "its scheduler has ended, too: this host ends, with 0 rows that run, 0 that wait, and 3 values" in going.text


def test_a_draining_host_finishes_what_it_runs_though_its_scheduler_is_gone_and_tells_the_next_one(daemons, tmp_path):
    begun, goes_on, log = tmp_path / "begun", tmp_path / "goes_on", tmp_path / "executions"

    def make():
        with open(log, "a") as file:
            file.write("x\n")
        return np.ones(NUMBERS)

    def work():
        begun.touch()
        while not goes_on.exists():
            pass
        goes_on.unlink()
        return "done once"

    daemons.start_scheduler("--heartbeat-interval", "0.2")
    going = daemons.start_agent(1, "--drain-grace", "60")
    client = daemons.client()
    array, kept = client.submit(make), client.submit(work)
    until(begun.exists)
    going.signal(signal.SIGTERM)
    going.says("this host drains")
    daemons.scheduler.signal(signal.SIGKILL)
    going.says("trying until it is there")
    goes_on.touch()
    until(lambda: not goes_on.exists(), "the task to end")
    daemons.start_scheduler("--heartbeat-interval", "0.2")
    daemons.start_agent(1)  # it takes the array over
    assert going.ends(20) == 0
    assert "nothing left to do" in going.text
    assert kept.result(20) == "done once"
    assert array.result(20).sum() == NUMBERS
    assert counted(log) == 1


def test_tasks_are_cancelled_by_name_function_and_client(daemons):
    daemons.start_scheduler()
    client = daemons.client()
    futures = [client.submit(divmod, number, 3) for number in range(10)]
    others = [client.submit(abs, number) for number in range(3)]
    until(lambda: "13 queued" in daemons.state(), "the tasks")
    with Questions(daemons.address) as questions:
        names = [task["task"] for task in questions.tasks(function="builtins.divmod")]
    said, code = scaler("cancel", names[0], daemons.address)
    assert (said, code) == ("cancelled: 1 tasks\n", 0)
    until(lambda: futures[0].cancelled())
    said, code = scaler("cancel", "builtins.divmod", daemons.address)
    assert (said, code) == ("cancelled: 9 tasks\n", 0)
    until(lambda: all(future.cancelled() for future in futures))
    assert not any(future.done() for future in others)
    said, code = scaler("cancel", "builtins.divmod", daemons.address)
    assert (said, code) == ("scaler: no tasks of builtins.divmod are there that have not ended\n", 1)
    with Commands(daemons.address) as commands:
        assert commands.cancel(client=int(names[0].partition(":")[0])).done == 3
        with pytest.raises(CommandRefused, match="is not there"):
            commands.drain(jobs=["4711"])
        with pytest.raises(ValueError, match="name"):
            commands.cancel()
        commands.report_fleet("slurm", desired=5, pending=4, running=1, waited=180, lines=["Priority"])
        waits = client.submit(abs, -1)
        until(lambda: "1 queued" in daemons.state(), "the task")
        assert "waits for hosts: 4 pending since 3 min (slurm), reason Priority" in str(explained(daemons.address))
    assert not waits.done()


def explained(address):
    """Why the one task that is queued has not run."""
    with Questions(address) as questions:
        (task,) = questions.tasks(state="queued")
        return questions.explain(task["task"])


def test_a_forced_cancellation_ends_what_runs(daemons):
    import time

    daemons.start_scheduler()
    daemons.start_agent(1)
    client = daemons.client()
    future = client.submit(time.sleep, 1000)
    until(lambda: future.running(), "the task to run")
    said, code = scaler("cancel", "time.sleep", daemons.address)
    assert code == 0
    assert "hosts were asked for 1 more: those that have begun go on" in said
    said, code = scaler("cancel", "time.sleep", daemons.address, "--force")
    assert code == 0
    until(lambda: future.cancelled(), "the task to be cancelled")
    assert client.submit(abs, -1).result(20) == 1
