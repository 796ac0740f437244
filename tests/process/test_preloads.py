"""What workers call before they take rows (`--preload`): a host on which it fails takes none, and says why."""

import os
import re
import time

import pytest

from scaler import TaskFailed

BAD = "no_such_module:setup"
WHY = f"--preload {BAD} failed: ModuleNotFoundError: No module named 'no_such_module'"


def _parent(_):
    return os.getppid()


def _parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_each_worker_makes_the_call_it_is_told_to_before_its_first_task(start_cluster, connect):
    with connect(start_cluster(2, preload="os:putenv('PRELOADED', 'yes')")) as client:
        assert client.submit(os.system, 'test "$PRELOADED" = yes').result(20) == 0


def test_a_host_on_which_the_call_fails_ends_with_one_line_and_code_1(daemons):
    daemons.start_scheduler()
    bad = daemons.run("scaler_cluster", "cluster", "-n", "2", "--preload", BAD, daemons.address)
    assert bad.ends(20) == 1
    assert bad.text.count(WHY) == bad.text.count("no_such_module:setup") == 1
    assert re.search(rf"ERROR.*no worker of this host can start: {re.escape(WHY)}; start the host again when", bad.text)
    assert "Traceback" not in bad.text
    assert "connected to the scheduler" not in bad.text
    assert " 0 agents" in daemons.state()


def test_no_task_runs_on_a_host_on_which_the_call_fails_and_none_fails(daemons):
    daemons.start_scheduler()
    good = daemons.start_agent(1, "--preload", "os:getpid")
    with_task = daemons.client().submit(time.sleep, 3)
    bad = daemons.run("scaler_cluster", "cluster", "-n", "4", "--preload", BAD, daemons.address)
    zygotes = set(daemons.client().map(_parent, range(500), timeout=60))
    with_task.result(20)
    assert bad.ends(20) == 1
    assert [_parent_of(zygote) for zygote in zygotes] == [good.pid]


def test_a_host_joins_when_its_workers_have_made_the_call(daemons, tmp_path):
    go = tmp_path / "go"
    daemons.start_scheduler()
    call = f"subprocess:run('until test -e {go}; do sleep 0.02; done', shell=True)"
    slow = daemons.run("scaler_cluster", "cluster", "-n", "1", "--preload", call, daemons.address)
    slow.says(r"Worker\[0\] started")
    future = daemons.client().submit(abs, -1)
    assert " 0 agents" in daemons.state()
    go.touch()
    slow.says("connected to the scheduler")
    assert future.result(20) == 1


def test_a_host_whose_workers_can_not_start_any_more_drains_and_its_tasks_run_elsewhere(daemons, tmp_path):
    there = tmp_path / "there"
    there.touch()
    daemons.start_scheduler()
    call = f"os:stat('{there}')"
    fading = daemons.start_agent(2, "--max-tasks-per-worker", "1", "--preload", call, "--drain-grace", "20")
    client = daemons.client()
    assert client.submit(abs, -1).result(20) == 1
    there.unlink()
    futures = [client.submit(abs, -n) for n in range(20)]
    assert fading.ends(30) == 1
    assert fading.text.count("no worker of this host can start: --preload os:stat") == 1
    daemons.start_agent(1)
    assert [future.result(20) for future in futures] == list(range(20))


def test_a_local_cluster_where_the_call_fails_ends_tasks_with_an_error_that_names_it(start_cluster, connect, capfd):
    with connect(start_cluster(2, preload=BAD)) as client:
        futures = [client.submit(abs, 1), *(client.submit(divmod, n, 7) for n in range(5))]
        for future in futures:
            with pytest.raises(TaskFailed) as caught:
                future.result(20)
            assert str(caught.value).endswith(f"can't run on local, where no worker can start: {WHY}")
            assert "\n" not in str(caught.value)
        with pytest.raises(TaskFailed, match=re.escape(WHY)):
            client.map(abs, range(1000), timeout=20)
    assert capfd.readouterr().err.count(WHY) == 1


def test_tasks_of_a_local_cluster_where_the_call_fails_run_on_a_host_that_has_joined_it(
    start_cluster, connect, daemons
):
    cluster = start_cluster(2, preload=BAD)
    other = daemons.run("scaler_cluster", "cluster", "-n", "1", "--drain-grace", "0", cluster.address)
    other.says("connected to the scheduler")
    with connect(cluster) as client:
        zygotes = set(client.map(_parent, range(300), timeout=20))
        zygotes.update(client.submit(_parent, n).result(20) for n in range(20))
    assert [_parent_of(zygote) for zygote in zygotes] == [other.pid]


def test_a_call_that_ends_its_process_is_an_error_in_a_local_cluster_too(start_cluster, connect):
    with connect(start_cluster(1, preload="os:_exit(7)")) as client, pytest.raises(TaskFailed) as caught:
        client.submit(abs, 1).result(20)
    assert "--preload os:_exit(7) failed: its worker ended with exit code 7" in str(caught.value)


def test_a_local_cluster_runs_tasks_when_the_call_succeeds_again(start_cluster, connect, tmp_path):
    there = tmp_path / "there"
    with connect(start_cluster(1, preload=f"os:stat('{there}')")) as client:
        with pytest.raises(TaskFailed, match="FileNotFoundError"):
            client.submit(abs, -1).result(20)
        there.touch()
        deadline = time.monotonic() + 20
        while True:
            try:
                assert client.submit(abs, -1).result(20) == 1
                break
            except TaskFailed:
                assert time.monotonic() < deadline
