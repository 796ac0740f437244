"""`scaler_symphony_cluster` against a stand-in for Symphony's module, with the service of its page."""

import contextlib
import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest
from support import until
from support.programs import ROOT, environment

from scaler import Client, SerializationError, TaskError, WorkerLost

STAND_IN = ROOT / "tests" / "support" / "symphony"
PAGE = ROOT / "docs" / "symphony.md"


class Symphony:
    """A scheduler, and a cluster of this kind, of one test."""

    def __init__(self, daemons, directory):
        self.daemons = daemons
        self.directory = directory
        service = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        (directory / "ScalerService.py").write_text(service[1])
        path = f"{STAND_IN}{os.pathsep}{environment()['PYTHONPATH']}"
        self.environment = environment(PYTHONPATH=path, SOAMAPI_DIRECTORY=str(directory))
        daemons.start_scheduler("--retries-on-loss", "1")

    def start(self, service="ScalerService", concurrency=2, through=(), **more):
        arguments = (self.daemons.address, service, "--base-concurrency", str(concurrency))
        env = {**self.environment, **more}
        return self.daemons.run("scaler_symphony_cluster", "symphony", *arguments, env=env, through=through)


@pytest.fixture
def symphony(daemons, tmp_path):
    return Symphony(daemons, tmp_path)


def pid_of(_):
    return os.getpid()


def parent_of(_):
    return os.getppid()


def test_tasks_run_in_the_containers_of_the_service(symphony):
    running = symphony.start()
    client = symphony.daemons.client()
    assert client.submit(divmod, 17, 5).result(30) == (3, 2)
    assert running.text.count("logging to") == 1
    assert client.submit(sorted, [3, 1, 2], reverse=True).result(30) == [3, 2, 1]
    assert client.map(lambda x: x * x, range(50)) == [x * x for x in range(50)]
    assert client.get({"a": 2, "b": (lambda x: x + 1, "a")}, ["b"]) == {"b": 3}
    large = bytes(range(256)) * 4096
    assert client.submit(lambda data: data[::-1], large).result(30) == large[::-1]
    containers = set(client.map(pid_of, range(8)))
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in containers]
    assert all(b"ScalerService.py" in command for command in commands)


def test_a_directory_for_temporary_files_may_have_a_long_name(symphony, tmp_path):
    directory = tmp_path / ("x" * 120)
    directory.mkdir()
    symphony.start(TMPDIR=str(directory))
    assert symphony.daemons.client().submit(divmod, 17, 5).result(30) == (3, 2)


def test_what_a_task_raises_comes_back_as_anywhere(symphony):
    symphony.start()
    client = symphony.daemons.client()
    with pytest.raises(ZeroDivisionError) as raised:
        client.submit(lambda: 1 // 0).result(30)
    assert "1 // 0" in str(raised.value.__cause__)
    with pytest.raises(TaskError, match="Unpicklable: too odd"):
        client.submit(_raise_unpicklable).result(30)
    with pytest.raises(SerializationError, match="cannot be pickled: TypeError"):
        client.submit(lambda: (_ for _ in ())).result(30)


def test_what_symphony_loses_runs_again(symphony):
    program = symphony.start(concurrency=1)
    client = symphony.daemons.client()
    # a container that is killed loses its task; it runs again, as often as the scheduler's option says
    with pytest.raises(WorkerLost, match="kill_self"):
        client.submit(kill_self).result(60)
    mark = symphony.directory / "mark"
    assert client.submit(kill_self_once, str(mark)).result(30) == "survived"
    assert "the container was lost: service instance exited abnormally with -9" in program.text
    # the session is closed while a task runs: there is another one, and it runs again
    future = client.submit(wait_for, str(symphony.directory / "go"))
    until(lambda: list(symphony.directory.glob("go.*")))
    (symphony.directory / "close").touch()
    program.says("aborted by the administrator; 1 tasks run again in a new one")
    (symphony.directory / "go").touch()
    assert future.result(30) == "went"
    # a process with the session that is killed is followed by another one
    session = client.submit(parent_of, 0).result(30)
    os.kill(session, signal.SIGKILL)
    program.says("another is started")
    assert client.submit(divmod, 9, 4).result(30) == (2, 1)
    program.signal(signal.SIGTERM)
    assert program.ends(10) == 0


def _raise_unpicklable():
    raise type("Unpicklable", (Exception,), {"__rows__": (n for n in ())})("too odd")


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_self_once(mark):
    if os.path.exists(mark):
        return "survived"
    open(mark, "w").close()
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for(path):
    open(f"{path}.{os.getpid()}", "w").close()
    end = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)
    return "went"


def fibonacci(n):
    if n < 2:
        return n
    with Client() as client:
        futures = [client.submit(fibonacci, n - 1), client.submit(fibonacci, n - 2)]
        return sum(future.result() for future in futures)


def nested_graph(depth):
    if not depth:
        return 0
    with Client() as client:
        return client.get({"a": (nested_graph, depth - 1), "b": (lambda a: a + 1, "a")}, ["b"])["b"]


def begin(directory, number):
    marks = Path(directory)
    (marks / f"runs-{number}").touch()
    count = len(list(marks.glob("runs-*")))
    time.sleep(0.05)
    with contextlib.suppress(OSError):
        (marks / f"runs-{number}").unlink()
    return count


def test_base_concurrency_holds_and_tasks_that_wait_for_tasks_go_above_it(symphony):
    program = symphony.start(concurrency=1)
    client = symphony.daemons.client()
    futures = [client.submit(begin, str(symphony.directory), number) for number in range(6)]
    assert max(future.result(30) for future in futures) == 1
    assert client.submit(fibonacci, 4).result(60) == 3
    assert client.submit(nested_graph, 2).result(60) == 2
    program.signal(signal.SIGKILL)
    program.process.wait()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_tasks_that_wait_are_heard_by_ipv6(daemons, tmp_path):
    daemons.address = "tcp://[::1]:0"
    symphony = Symphony(daemons, tmp_path)
    symphony.start(concurrency=1)
    assert daemons.client().submit(nested_graph, 2).result(30) == 2


def test_what_is_missing_is_said_in_one_line(symphony):
    unknown = symphony.start("Unknown")
    assert unknown.ends(20) == 1
    assert unknown.text.splitlines()[-1] == (
        "scaler_symphony_cluster: there is no session of the Symphony service Unknown: "
        "application <Unknown> is not registered"
    )
    without = symphony.start(PYTHONPATH=environment()["PYTHONPATH"])
    assert without.ends(20) == 1
    (line,) = [line for line in without.text.splitlines() if "logging to" not in line]
    assert line.startswith("scaler_symphony_cluster: the module soamapi is not there: it comes with IBM")
    assert "pip" not in line


def _nap(x):
    time.sleep(0.3)
    return x


def test_more_workers_than_a_process_may_have_descriptors_are_let_in(symphony):
    """By default: the session process asks for more."""
    symphony.start(concurrency=20, through=("sh", "-c", 'ulimit -Sn 24; exec "$@"', "sh"))
    client = symphony.daemons.client()
    futures = [client.submit(_nap, x) for x in range(60)]
    assert [future.result(40) for future in futures] == list(range(60))
