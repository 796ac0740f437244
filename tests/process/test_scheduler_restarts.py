"""The scheduler is killed and another takes its place: work goes on where it was, and each row runs once."""

import os
import pickle
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support import alive, until

from scaler import Client, ConnectionFailed
from scaler.client.client import shared_client
from scaler.extension import submit_map

QUICK = ("--heartbeat-interval", "0.2")


class Executions:
    """Which calls ran: each leaves a line in a file of its worker's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir()

    def noting(self, seconds=0.002):
        """A function that notes its first argument, takes a while, and doubles it."""
        directory = str(self._directory)

        def noted(x, *_others):
            import os
            import time

            with open(f"{directory}/{os.getpid()}", "a") as file:
                file.write(f"{x}\n")
            time.sleep(seconds)
            return 2 * x

        return noted

    def counted(self):
        return Counter(line for path in self._directory.iterdir() for line in path.read_text().split())

    def check(self, expected):
        """Each of these ran once, and nothing else did."""
        counted = self.counted()
        assert not (set(map(str, expected)) ^ set(counted))
        assert [x for x, times in counted.items() if times > 1] == []


@pytest.fixture
def executions(tmp_path):
    return Executions(tmp_path / "executions")


def kill(daemons):
    daemons.scheduler.signal(signal.SIGKILL)
    daemons.scheduler.ends(5)


@pytest.fixture
def cluster(daemons):
    daemons.start_scheduler(*QUICK)
    for _ in range(2):
        daemons.start_agent(1)
    return daemons


def test_rows_that_were_submitted_run_once_whatever_becomes_of_schedulers(cluster, executions):
    client, noted = cluster.client(), executions.noting()
    futures = [client.submit(noted, n) for n in range(1500)]
    for kills in range(3):
        until(lambda n=kills: sum(future.done() for future in futures) > 300 * (n + 1))
        kill(cluster)
        cluster.start_scheduler(*QUICK)
    assert [future.result(60) for future in futures] == [2 * n for n in range(1500)]
    executions.check(range(1500))


def test_rows_of_a_map_run_once(cluster, executions):
    client = cluster.client()
    job = submit_map(client, executions.noting(), list(range(1000)), spread=True)
    until(lambda: len(executions.counted()) > 200)
    kill(cluster)
    cluster.start_scheduler(*QUICK)
    assert job.results(60) == [2 * n for n in range(1000)]
    executions.check(range(1000))


def test_rows_of_a_graph_run_once_though_only_others_need_their_values(cluster, executions):
    client, noted = cluster.client(), executions.noting(0.01)
    graph = {"0": (noted, 0)} | {str(n): (noted, n, str(n - 1), str(n // 2)) for n in range(1, 200)}
    (future,) = client.submit_graph(graph, ["199"])
    for kills in range(2):
        until(lambda n=kills: len(executions.counted()) > 60 * (n + 1))
        kill(cluster)
        cluster.start_scheduler(*QUICK)
    assert future.result(60) == 398
    executions.check(range(200))


def test_tasks_inside_of_tasks_run_once(cluster, executions):
    client, noted = cluster.client(), executions.noting(0.01)

    def outer(n):
        with Client(timeout=20) as inner:
            noted(1000 * n)
            return sum(inner.map(noted, [1000 * n + k for k in range(1, 40)]))

    futures = [client.submit(outer, n) for n in (1, 2)]
    until(lambda: len(executions.counted()) > 20)
    kill(cluster)
    cluster.start_scheduler(*QUICK)
    assert [future.result(60) for future in futures] == [2 * sum(range(1000 * n + 1, 1000 * n + 40)) for n in (1, 2)]
    executions.check([1000 * n + k for n in (1, 2) for k in range(40)])


def test_a_supervised_scheduler_is_followed_by_another_at_once(daemons, executions):
    daemons.start_scheduler(*QUICK)
    daemons.scheduler.stop()  # its port is free
    supervised = daemons.start_scheduler("--supervise", *QUICK)
    daemons.start_agent(2)
    client = daemons.client()
    futures = [client.submit(executions.noting(), n) for n in range(500)]
    until(lambda: futures[100].done())
    (child,) = (int(pid) for pid in Path(f"/proc/{supervised.pid}/task/{supervised.pid}/children").read_text().split())
    os.kill(child, signal.SIGKILL)
    assert [future.result(60) for future in futures] == [2 * n for n in range(500)]
    executions.check(range(500))
    assert re.search(r"process \d+ was killed by SIGKILL; another takes its place", supervised.text)
    supervised.signal(signal.SIGTERM)
    assert supervised.ends(10) == 0
    until(lambda: not alive(child))


def test_a_supervised_scheduler_needs_a_port(daemons):
    refused = daemons.run("scaler_scheduler", "scheduler", "--supervise", "tcp://127.0.0.1:0")
    assert refused.ends(20) == 2
    assert "give a port instead of 0" in refused.text


def test_a_supervisor_is_told_to_end_while_it_waits_to_start_another():
    program = """if True:
        import logging, os, signal, sys
        from scaler.config import SchedulerConfig
        from scaler.scheduler import server, supervisor
        logging.basicConfig(stream=sys.stdout)
        server.run = lambda config: os.kill(os.getpid(), signal.SIGKILL)
        supervisor.FIRST_PAUSE = supervisor.LONGEST_PAUSE = 300.0
        sys.exit(supervisor.Supervisor(SchedulerConfig("tcp://127.0.0.1:1", supervise=True)).run())
    """
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        for _ in range(2):  # there is no pause behind the first, which may have run for long
            assert b"another takes its place" in running.stdout.readline()
        running.send_signal(signal.SIGUSR1)  # of which nobody is left to hear
        running.send_signal(signal.SIGTERM)
        assert (running.wait(30), running.stdout.read()) == (0, b"")


@pytest.mark.parametrize("is_pickled", [False, True], ids=["made inside", "given to the task"])
def test_a_task_that_connects_while_there_is_no_scheduler_waits_for_the_next_one(cluster, tmp_path, is_pickled):
    client = cluster.client()
    given = pickle.dumps(client) if is_pickled else None

    def connecting(directory, given):
        import os
        import pickle
        import time

        import scaler

        open(f"{directory}/runs", "w").close()
        while not os.path.exists(f"{directory}/go"):
            time.sleep(0.005)
        open(f"{directory}/connects", "w").close()
        inner = pickle.loads(given) if given is not None else scaler.Client()
        return inner.submit(abs, -3).result()

    future = client.submit(connecting, str(tmp_path), given)
    until((tmp_path / "runs").exists, "the task to run")
    kill(cluster)
    (tmp_path / "go").touch()
    until((tmp_path / "connects").exists, "the task to connect")
    cluster.start_scheduler(*QUICK)
    assert future.result(30) == 3


def test_those_who_share_a_client_find_the_next_scheduler_however_late_it_comes(cluster):
    first = shared_client(cluster.address, reconnect=0.1)
    assert first.submit(abs, -3).result(30) == 3
    kill(cluster)
    with pytest.raises(ConnectionFailed):
        first.submit(abs, -3).result(30)
    with pytest.raises(ConnectionFailed):
        shared_client(cluster.address)
    cluster.start_scheduler(*QUICK)
    with shared_client(cluster.address) as second:
        assert second is not first
        assert second is shared_client(cluster.address)
        assert second.submit(abs, -3).result(30) == 3


def test_work_does_not_wait_long_for_an_agent_that_was_killed_with_the_scheduler(daemons, executions):
    daemons.start_scheduler(*QUICK)
    agents = [daemons.start_agent(1) for _ in range(2)]
    client, noted = daemons.client(), executions.noting(0.02)
    futures = [client.submit(noted, n) for n in range(400)]
    until(lambda: sum(future.done() for future in futures) > 40)
    kill(daemons)
    agents[0].signal(signal.SIGKILL)
    agents[0].ends(5)
    scheduler = daemons.start_scheduler(*QUICK)
    assert [future.result(60) for future in futures] == [2 * n for n in range(400)]
    assert "has ended: nothing listens at" in scheduler.text
    assert "goes on without" not in scheduler.text
