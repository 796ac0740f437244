"""A cluster is asked what it does: `client.cluster` in programs and tasks, and the commands that print the same."""

import json
import subprocess
import sys
import threading

import pytest
from support.programs import environment
from support.waiting import until

import scaler
from scaler.cli.command import call
from scaler.cli.main import command
from scaler.errors import ClientClosed, UnknownTask
from scaler.monitor import Watcher


def hold(path):
    """Run until a file is there."""
    import time
    from pathlib import Path

    while not Path(path).exists():
        time.sleep(0.01)
    return path


def look_around(path):
    """What a task finds out of the cluster around it."""
    with scaler.Client() as client:
        future = client.submit(hold, path)
        told = client.cluster.explain(future), client.cluster.status()
        future.cancel(force=True)
    return told


@pytest.fixture
def held(start_cluster, connect, tmp_path):
    """A cluster of two workers with five tasks that run until `go` is there; its client, and their futures."""
    cluster = start_cluster(2)
    client = connect(cluster)
    futures = [client.submit(hold, str(tmp_path / "go")) for _ in range(5)]
    with Watcher(cluster.monitor_address, 0.1):  # agents report all the time, so that nobody waits for them
        until(lambda: len([each for each in client.cluster.workers() if each["function"]]) == 2, "tasks to run")
        yield cluster, client, futures
    client.cancel(futures, force=True)


def test_all_threads_and_views_of_a_client_are_told_what_its_cluster_does(held):
    cluster, client, futures = held
    whole = client.cluster.status()
    assert (whole["agents"], whole["workers"], whole["free"], whole["clients"]) == (1, 2, 0, 1)
    assert whole["scheduler"]["address"] == cluster.address
    assert whole["tasks"]["running"] == 2
    (agent,) = client.cluster.agents()
    (mine,) = client.cluster.clients(client=client.cluster.clients()[0]["client"])
    (function,) = client.cluster.functions(find="hold")
    assert agent["host"] == "local"
    assert mine["queued"] + mine["running"] == function["waiting"] + function["running"] == 5
    assert client.cluster.functions(function="nothing") == client.cluster.workers(host="nothing") == []
    assert {each["client"] for each in client.cluster.objects()} == {mine["client"]}
    names = [each["task"] for each in client.cluster.tasks(function=function["function"])]
    assert len(names) == 5
    assert {each["task"] for each in client.cluster.workers()} <= set(names)
    assert len(list(client.cluster.tasks(limit=3))) == 3
    about = [client.cluster.explain(future) for future in futures]
    assert [each["task"] for each in about] == names
    assert about == [client.cluster.explain(name) for name in names]
    assert {each["reason"] for each in about} == {"at agent", "agents are busy"}
    assert "came from client" in client.cluster.story(futures[-1])["lines"][0]

    found = []
    asking = [
        threading.Thread(
            target=lambda: found.append(client.with_options(priority=1).cluster.explain(futures[0])["reason"])
        )
        for _ in range(8)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(30)
    assert found == ["at agent"] * 8


def test_a_task_is_told_of_the_cluster_around_it_and_what_is_no_task_is_said_so(start_cluster, connect, tmp_path):
    client = connect(start_cluster(2))
    about, whole = client.submit(look_around, str(tmp_path / "never")).result(60)
    assert about["function"].endswith("hold")
    assert whole["workers"] == 2
    with pytest.raises(TypeError, match="is no future of a task"):
        client.cluster.explain(3)
    with pytest.raises(UnknownTask, match="names no task: write CLIENT:TASK"):
        client.cluster.story("work")
    done = client.submit(abs, -1)
    assert done.result(60) == 1
    with pytest.raises(UnknownTask, match="is not known: it has ended"):
        client.cluster.explain(done)
    cluster = client.cluster
    client.disconnect()
    with pytest.raises(ClientClosed):
        cluster.status()


def test_futures_of_executors_and_of_dasks_client_are_known(start_cluster, connect, tmp_path):
    import scaler_dask

    cluster, path = start_cluster(2), str(tmp_path / "go")
    questions = connect(cluster).cluster
    with scaler.Executor(address=cluster.address) as pool, scaler_dask.Client(cluster.address) as dask_client:
        futures = [pool.submit(hold, path), dask_client.submit(hold, path)]
        assert [questions.explain(future)["function"].endswith("hold") for future in futures] == [True, True]
        (sent,) = dask_client.scatter([1])
        with pytest.raises(ValueError, match="stands for no task"):
            questions.explain(sent)
        (tmp_path / "go").touch()
        assert [future.result() for future in futures] == [path] * 2


def test_a_program_that_asks_nothing_loads_nothing_of_the_monitor(traces):
    text = (
        "import sys, scaler\nwith scaler.SchedulerClusterCombo(n_workers=1) as c, scaler.Client(c) as client:\n"
        "    client.cluster; client.submit(abs, -1).result()\n"
        "print([name for name in sys.modules if name.startswith('scaler.monitor')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[]\n", "")


def test_commands_print_what_the_client_is_told_or_in_one_line_why_not(held, capsys, monkeypatch):
    cluster, client, _ = held
    monkeypatch.setenv("SCALER_ADDRESS", cluster.address)
    for kind in ("status", "agents", "workers", "clients", "functions", "objects"):
        assert call(command, "scaler", [kind, "--json"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        told = getattr(client.cluster, kind)()
        assert [line.keys() for line in lines] == [each.keys() for each in ([told] if kind == "status" else told)]
        assert call(command, "scaler", [kind, cluster.monitor_address]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert len(out.splitlines()) == (8 if kind == "status" else 1 + len(told))
    for arguments in ["--host", "local"], ["--function", "nothing"], ["--limit", "1"]:
        assert call(command, "scaler", ["workers", "--json", *arguments]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + 0 + 1

    address = cluster.address
    cases = [
        (["workers", "tcp://127.0.0.1:1"], 1, "nothing listens"),
        (["workers", "nowhere"], 2, "is no address"),
        (["workers", address, "--sort", "x"], 1, "workers have no column 'x' to sort by"),
        (["agents", address, "--function", "f"], 2, "No such option"),
    ]
    for arguments, code, words in cases:
        assert call(command, "scaler", arguments) == code
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1)
        assert words in err
