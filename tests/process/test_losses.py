"""Workers and agents that die or fall silent: every future ends, and with the right result."""

import contextlib
import os
import re
import signal
import socket
import time
from collections import Counter

import psutil
import pytest
from support import until, within, workers_of

from scaler import WorkerLost
from scaler.extension import submit_map

ROWS = 2_000
#: small, so that the tests need not wait
QUICK = ("--heartbeat-interval", "0.2", "--agent-timeout", "1", "--client-timeout", "2")


def work(x):
    """Half a millisecond of work."""
    end = time.perf_counter() + 0.0005
    while time.perf_counter() < end:
        pass
    return x * x


def assert_right(futures):
    assert [future.result(40) for future in futures] == [x * x for x in range(len(futures))]


def busy_worker(pids):
    """Of these processes, the one that has worked most."""
    return max(pids, key=lambda pid: sum(psutil.Process(pid).cpu_times()[:2]))


def test_a_killed_worker_costs_no_result(start_cluster, connect):
    cluster = start_cluster(2)
    client = connect(cluster)
    futures = [client.submit(work, x) for x in range(ROWS)]
    for so_many in (200, 600, 1000):
        until(futures[so_many].done)
        os.kill(until(lambda: workers_of(cluster.pid))[0], signal.SIGKILL)
    assert_right(futures)


def test_a_worker_killed_under_a_map_costs_no_result(start_cluster, connect):
    cluster = start_cluster(2)
    client = connect(cluster)
    warm = client.submit(work, 1)
    assert warm.result(20) == 1
    job = submit_map(client, work, list(range(ROWS)), spread=True)
    before = workers_of(cluster.pid)
    until(lambda: sum(psutil.Process(before[0]).cpu_times()[:2]) > 0.1)
    os.kill(before[0], signal.SIGKILL)
    assert job.results(40) == [x * x for x in range(ROWS)]


def test_a_killed_worker_is_replaced_at_once(start_cluster, connect):
    cluster = start_cluster(1)
    client = connect(cluster)
    pid = client.submit(os.getpid).result(20)
    with within(1.0):
        os.kill(pid, signal.SIGKILL)
        new = client.submit(os.getpid)
        assert new.result(20) != pid or client.submit(os.getpid).result(20) != pid


def test_a_task_that_kills_its_worker_every_time_is_given_up_and_harms_no_other(start_cluster, connect):
    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    client = connect(start_cluster(2))
    futures = [client.submit(work, x) for x in range(500)]
    poison = client.submit(die)
    more = [client.submit(work, x) for x in range(500)]
    with pytest.raises(WorkerLost, match=r"die.*SIGKILL.*attempt 4 of 4") as caught:
        poison.result(40)
    assert "task " in str(caught.value)
    assert_right(futures)
    assert_right(more)


def test_the_exit_code_of_a_worker_is_named_and_attempts_are_an_option(start_cluster, connect):
    client = connect(start_cluster(1, retries_on_loss=0))
    with pytest.raises(WorkerLost, match=r"^task .*_exit .*code 3.*attempt 1 of 1"):
        client.submit(os._exit, 3).result(30)
    assert client.submit(work, 3).result(30) == 9


def test_a_lost_row_tells_its_story_across_hosts_and_attempts(daemons, tmp_path):
    begun = tmp_path / "begun"

    def be_unlucky():
        with begun.open("a") as file:
            file.write("x")
        while begun.stat().st_size == 1:  # on the first host: until that dies
            time.sleep(0.01)
        os._exit(3)

    daemons.start_scheduler(*QUICK, "--retries-on-loss", "2")
    first = daemons.start_agent(1)
    client = daemons.client()
    until(lambda: client.n_workers == 1)
    lost = client.submit(be_unlucky)
    until(lambda: begun.exists() and begun.stat().st_size == 1)
    daemons.start_agent(1)
    until(lambda: client.n_workers == 2)
    until(lost.running, "it to be known to run: the loss of its host counts then")
    first.signal(signal.SIGKILL)
    with pytest.raises(WorkerLost, match="be_unlucky") as caught:
        lost.result(40)
    (note,) = caught.value.__notes__
    heading, *steps = note.splitlines()
    assert heading.startswith("What happened to task ")
    assert "be_unlucky" in heading
    told = [re.sub(r"^ *\+\d+\.\d{3} s  |\(pid \d+\) |(?<=agent )\d+ \(.*?\)", "", step) for step in steps]
    assert [step.partition(" of ")[0] for step in told] == [
        f"came from client {client_number(told[0])}: row 0",
        "waiting → agent : all that it needs is there",
        "agent  → queued: its agent was lost",
        "queued → agent : placed by how busy agents are",
        "agent  → queued: its worker ended with exit code 3",
        "queued → agent : placed by how busy agents are",
        "at agent : its worker ended with exit code 3",
    ]


def client_number(line):
    return re.search(r"client (\d+)", line)[1]


def test_a_poisonous_row_of_a_map_spares_the_others(start_cluster, connect):
    def die_at_50(x):
        if x == 50:
            os.kill(os.getpid(), signal.SIGSEGV)
        return x

    client = connect(start_cluster(2))
    job = submit_map(client, die_at_50, list(range(100)), spread=True)
    with pytest.raises(WorkerLost, match="SIGSEGV"):
        job.results(40)
    assert client.map(die_at_50, range(50), timeout=30) == list(range(50))


def test_a_killed_agent_costs_no_result(daemons):
    daemons.start_scheduler(*QUICK)
    agents = [daemons.start_agent(1), daemons.start_agent(1)]
    client = daemons.client()
    until(lambda: client.n_workers == 2)
    futures = [client.submit(work, x) for x in range(ROWS)]
    until(futures[400].done)
    workers = workers_of(agents[0].pid)
    assert workers
    agents[0].signal(signal.SIGKILL)
    assert_right(futures)
    until(lambda: not any(psutil.pid_exists(pid) for pid in workers), "the workers to die with their agent")


def zygote_of(agent):
    (process,) = psutil.Process(agent.pid).children()
    return process.pid


def test_a_killed_zygote_costs_no_result_and_its_agent_starts_another(daemons):
    daemons.start_scheduler(*QUICK)
    agent = daemons.start_agent(2)
    client = daemons.client()
    futures = [client.submit(work, x) for x in range(ROWS)]
    killed = []
    for so_many in (200, 1000):  # the one that was forked, and the one that was executed
        until(futures[so_many].done)
        killed.append(zygote_of(agent))
        os.kill(killed[-1], signal.SIGKILL)
        until(lambda: not psutil.pid_exists(killed[-1]) and psutil.Process(agent.pid).children())
    assert_right(futures)
    assert client.submit(os.getppid).result(20) == zygote_of(agent)
    assert zygote_of(agent) not in killed
    lines = [line for line in agent.text.splitlines() if "forked from" in line]
    assert [re.search(r"pid (\d+)\) was killed by SIGKILL, and \d workers", line)[1] for line in lines] == [
        str(pid) for pid in killed
    ]
    assert "Traceback" not in agent.text


def test_a_local_cluster_whose_zygote_is_killed_goes_on(start_cluster, connect, capfd):
    cluster = start_cluster(2)
    client = connect(cluster)
    futures = [client.submit(work, x) for x in range(ROWS)]
    until(futures[200].done)
    os.kill(zygote_of(cluster), signal.SIGKILL)
    assert_right(futures)
    assert "Traceback" not in capfd.readouterr().err


def test_an_agent_that_is_stopped_past_its_timeout_costs_no_result_and_comes_back(daemons):
    daemons.start_scheduler(*QUICK)
    agents = [daemons.start_agent(1), daemons.start_agent(1)]
    client = daemons.client()
    until(lambda: client.n_workers == 2)
    futures = [client.submit(work, x) for x in range(ROWS)]
    until(futures[400].done)
    agents[0].signal(signal.SIGSTOP)
    assert_right(futures)
    daemons.scheduler.says("silent for 1 s")
    agents[0].signal(signal.SIGCONT)
    until(lambda: agents[0].text.count("connected to the scheduler") == 2, "the agent to come back")
    until(lambda: client.n_workers == 2)
    again = [client.submit(work, x) for x in range(ROWS)]
    assert_right(again)
    assert_right(futures)
    pids = [os.getpid()]

    def whereabouts(x):
        work(x)
        return os.getppid()

    assert len({*client.map(whereabouts, range(2000), timeout=40)} - {*pids}) == 2


def test_a_cluster_without_agents_holds_its_tasks_until_one_comes(daemons):
    daemons.start_scheduler(*QUICK)
    client = daemons.client()
    futures = [client.submit(work, x) for x in range(100)]
    first = daemons.start_agent(1)
    assert_right(futures)
    first.signal(signal.SIGKILL)
    futures = [client.submit(work, x) for x in range(100)]
    daemons.start_agent(1)
    assert_right(futures)


def test_a_task_that_writes_to_its_workers_sockets_costs_that_worker_alone(start_cluster, connect, capfd):
    def scribble():
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as found:
                found.send(b"\xff" * 100)
        time.sleep(60)

    def slow(x):
        time.sleep(0.5)
        return x

    cluster = start_cluster(2, retries_on_loss=0)
    client = connect(cluster)
    client.submit(abs, 1).result(20)
    innocent = client.submit(slow, 1)
    with pytest.raises(WorkerLost, match="it sent what is no message"):
        client.submit(scribble).result(40)
    assert innocent.result(20) == 1
    assert client.map(abs, range(100)) == list(range(100))
    cluster.shutdown()
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "is ended, and another one is started" in line]
    assert "which ran" in line
    assert "scribble" in line
    assert "it does not begin as one does: a task may have written to its descriptor" in line


def test_an_agent_that_looks_at_itself_after_each_step_goes_on_through_losses(daemons):
    def large(x):
        return b"x" * 200_000 * x

    daemons.start_scheduler("--validate")
    agent = daemons.start_agent(2, "--validate")
    client = daemons.client()
    futures = [client.submit(work, x) for x in range(200)]
    os.kill(workers_of(agent.pid)[0], signal.SIGKILL)
    assert_right(futures)
    assert [len(value) for value in client.map(large, range(8))] == [200_000 * x for x in range(8)]
    agent.signal(signal.SIGTERM)
    assert agent.ends(10) == 0
    assert "a defect" not in agent.text


def test_a_task_that_closes_what_is_its_workers_is_given_up_like_one_that_kills_it(start_cluster, connect, tmp_path):
    """As code does that becomes a daemon; what ran and what is behind it are not to blame."""

    def close(path):
        with open(path, "a") as file:
            file.write("x")
        os.closerange(3, 256)

    client = connect(start_cluster(1))
    before = [client.submit(abs, -n) for n in range(5)]
    lost = client.submit(close, str(tmp_path / "runs"))
    after = [client.submit(abs, -n) for n in range(5)]
    with pytest.raises(WorkerLost, match=r"attempt 4 of 4, given up"):
        lost.result(20)
    assert [future.result(20) for future in before + after] == [*range(5), *range(5)]
    assert len((tmp_path / "runs").read_text()) in (4, 5)  # one more if another row was blamed at first


def test_rows_that_close_what_is_their_workers_do_not_take_others_along(start_cluster, connect, tmp_path):
    """They are short, so others have run behind them when it is noticed."""
    bad = {*range(20, 300, 60)}

    def row(path, n, closes):
        with open(path, "a") as file:
            file.write(f"{n}\n")
        if closes:
            os.closerange(3, 256)
        return n

    client, runs = connect(start_cluster(2)), tmp_path / "runs"
    client.map(abs, range(1000))
    futures = [client.submit(row, str(runs), n, n in bad) for n in range(300)]
    for n, future in enumerate(futures):
        if n in bad:
            with pytest.raises(WorkerLost, match="attempt 4 of 4, given up"):
                future.result(60)
        else:
            assert future.result(60) == n
    times = Counter(map(int, runs.read_text().split()))
    assert max(times[n] for n in bad) <= 5
    assert max(times[n] for n in times if n not in bad) <= 3


def test_a_cluster_of_the_process_that_is_killed_is_followed_by_another(scripts):
    text = scripts.run(
        """
        import os
        import signal

        from scaler.extension import find_client

        for _ in range(2):
            client = find_client(n_workers=lambda: 1).client
            print(client.submit(abs, -3).result(20), flush=True)
            pid = client.cluster.status()["scheduler"]["pid"]
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        """
    )
    assert text.split() == ["3", "3"]
