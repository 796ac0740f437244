"""A cluster is asked what it does: `client.cluster` in programs and tasks, and the commands that print the same."""

import io
import json
import subprocess
import sys
import threading
from unittest.mock import Mock

import pytest
from support.programs import environment
from support.waiting import until

import scaler
from scaler.cli import questions as cli_questions
from scaler.cli.command import call
from scaler.cli.main import command
from scaler.errors import ClientClosed, UnknownTask
from scaler.monitor import Watcher
from scaler.monitor.formats import width
from scaler.monitor.questions import Questions


def hold(path):
    """Run until a file is there."""
    import time
    from pathlib import Path

    while not Path(path).exists():
        time.sleep(0.01)
    return path


def named(name):
    """A function that is called so."""

    def function():
        return name

    function.__name__ = function.__qualname__ = name
    return function


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
    assert len(client.cluster.workers(host=None)) == 2
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
    about = until(lambda: (said := client.cluster.explain(done))["reason"] == "ended" and said, "its end to be told")
    assert about["function"] == "builtins.abs"
    assert "done" in client.cluster.story(done)["lines"][-1]
    with pytest.raises(UnknownTask, match="is not known: it has ended"):
        client.cluster.explain(str(1 << 40))
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
        (["workers", address, "--sort", "x"], 2, "workers have no column 'x' to sort by"),
        (["agents", address, "--function", "f"], 2, "No such option"),
        (["explain", "1" * 5000, address], 2, "names no task: write CLIENT:TASK"),
        (["cancel", "", address], 2, "Name a job, a task, a function or a client"),
        (["cancel", "1" * 5000, address], 1, "no client has the number 1"),
        (["cancel", "\udcff", address], 1, "no tasks of ? are there"),
        (["drain", address, "\udcff"], 1, "job ? is not there"),
        (["drain", address, "1" * 5000], 1, "is not there"),
    ]
    for arguments, code, words in cases:
        assert call(command, "scaler", arguments) == code
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1)
        assert words in err


def test_a_task_is_asked_for_by_the_name_that_any_line_has(held, capsys):
    cluster, client, futures = held
    name = client.cluster.explain(futures[0])["task"]
    row = name.partition(":")[2]
    for said in (name, row, f"{hold.__qualname__}[{row}]", f"task {hold.__qualname__} ({row})"):
        assert call(command, "scaler", ["story", said, cluster.address]) == 0
        assert f"({name})" in capsys.readouterr().out


def test_a_name_of_a_task_is_not_that_of_another_functions(held, capsys):
    """Rows are counted from low numbers by each client: a name of yesterday fits a row of somebody else's."""
    cluster, client, futures = held
    row = client.cluster.explain(futures[0])["task"].partition(":")[2]
    for command_ in ("explain", "story", "cancel"):
        for said in (f"other[{row}]", f"task tests.other ({row})"):
            assert call(command, "scaler", [command_, said, cluster.address]) == 1
            assert f"task {row} of " in capsys.readouterr().err
    assert client.cluster.explain(futures[0])["reason"] == "at agent"


def test_functions_that_are_called_like_tasks_are_cancelled(held, capsys):
    cluster, client, futures = held
    row = client.cluster.explain(futures[-1])["task"].partition(":")[2]

    def waits():
        return None

    waits.__qualname__ = waits.__name__ = f"hold({row})"
    future = client.with_options(priority=-1).submit(waits)
    name = until(lambda: client.cluster.explain(future), "it to be there")["function"]
    assert call(command, "scaler", ["cancel", name, cluster.address]) == 0
    assert "cancelled: 1 tasks" in capsys.readouterr().out
    until(future.cancelled, "that to be heard of")
    assert not futures[-1].done()


def test_what_can_not_be_asked_is_said_where_it_is_said(held):
    _, client, _ = held
    with pytest.raises(ValueError, match="no task can be 'lost': the states are waiting, queued, agent, done"):
        next(client.cluster.tasks(state="lost"))
    for number in (-1, 1 << 32):
        with pytest.raises(ValueError, match="is no number of a client"):
            next(client.cluster.tasks(client=number))
    with pytest.raises(ValueError, match="it can't be -1"):
        client.cluster.workers(limit=-1)
    assert list(client.cluster.tasks(function="\udcff")) == []


def test_answers_are_written_whatever_the_output_is(held, capsys, monkeypatch):
    cluster, client, futures = held
    task = client.cluster.explain(futures[0])["task"]
    address = cluster.monitor_address
    asked = [
        ["top", address, "--once"], ["top", address, "--once", "--json"], ["metrics", address],
        ["story", task, address], ["tasks", address], ["status", address],
    ]  # fmt: skip
    for arguments in asked:
        with open("/dev/full", "w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert call(command, "scaler", arguments) == 1
        assert capsys.readouterr().err == "scaler: the output can't be written: No space left on device\n"
        with monkeypatch.context() as patch:  # a shell has closed it
            patch.setattr(sys, "stdout", None)
            assert call(command, "scaler", arguments) == 0
        for errors in ("strict", "surrogateescape"):  # the second: that of the C locale
            with io.TextIOWrapper(io.BytesIO(), "ascii", errors) as old, monkeypatch.context() as patch:
                patch.setattr(sys, "stdout", old)
                assert call(command, "scaler", arguments) == 0
                if arguments[0] == "story":
                    assert rb"waiting \u2192 " in old.buffer.getvalue()
    assert capsys.readouterr() == ("", "")


def test_columns_of_tasks_stand_below_each_other_whatever_hosts_are_called(monkeypatch, capsys):
    lines = [
        json.dumps({"v": 1, "task": f"1:{n}", "state": "agent", "host": host, "function": "work"})
        for n, host in enumerate(("node", "工人", "nö\x1bde"))
    ]
    asked = Mock(spec=Questions)
    asked.__enter__ = Mock(return_value=asked)
    asked.__exit__ = Mock(return_value=None)
    asked.task_lines.return_value = iter(lines)
    monkeypatch.setattr(cli_questions, "session", lambda *_: asked)
    assert call(command, "scaler", ["tasks", "tcp://head:1"]) == 0
    assert {width(line.rstrip().rpartition(" ")[0]) for line in capsys.readouterr().out.splitlines()} == {51}


class Screen(io.StringIO):
    """An output that is a terminal."""

    def isatty(self):
        return True


def test_a_terminal_that_metrics_are_printed_to_obeys_no_names(held, monkeypatch):
    cluster, client, _ = held
    cancelled = client.with_options(capabilities=["nowhere"]).submit(named("\x1b[31mred\u202e"))
    until(lambda: client.cluster.explain(cancelled), "the task to be there")
    written = {}
    for out in (Screen(), io.StringIO()):
        monkeypatch.setattr(sys, "stdout", out)
        assert call(command, "scaler", ["metrics", cluster.monitor_address]) == 0
        written[out.isatty()] = out.getvalue()
    cancelled.cancel()
    assert "?[31mred?" in written[True]
    assert not set("\x1b\u202e") & set(written[True])
    assert "\x1b[31mred\u202e" in written[False]  # which is a name, to Prometheus
    assert written[True].count("\n") == written[False].count("\n")
