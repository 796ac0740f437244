"""Workers that can't react, as a task keeps the interpreter to itself or has left something that stops them."""

import ctypes
import os
import signal
import threading
import time

import psutil
from support import until, within

#: seconds, longer than any wait in these tests
LONG = 10_000


def square(x):
    return x * x


def hold(begun):
    """Keep the interpreter: no thread of this worker runs any more."""
    begun.touch()
    ctypes.PyDLL(None).sleep(LONG)


def leave_holder(sign, begun):
    """Leave a thread that does so when there is a sign."""

    def wait():
        while not sign.exists():
            time.sleep(0.01)
        hold(begun)

    threading.Thread(target=wait, daemon=True).start()
    return os.getpid()


def note(path, x):
    """Say in a file that a row has run."""
    with path.open("a") as file:
        file.write(f"{x}\n")
    return x


def wait_for(path, begun):
    """Run until there is such a file; `begun` has the process id, once it is there."""
    begun.with_suffix(".new").write_text(str(os.getpid()))
    begun.with_suffix(".new").rename(begun)
    while not path.exists():
        time.sleep(0.01)
    return os.getpid()


def values(futures):
    return [future.result(60) for future in futures]


def test_rows_behind_one_that_keeps_the_interpreter_run_elsewhere(start_cluster, connect, tmp_path):
    cluster, begun = start_cluster(2), tmp_path / "begun"
    first, second = connect(cluster), connect(cluster)
    held = first.submit(hold, begun)
    until(begun.exists)
    with within(10.0):
        assert values([second.submit(square, x) for x in range(200)]) == [x * x for x in range(200)]
    assert not held.done()
    assert first.cancel([held], force=True)


def test_rows_are_not_left_with_an_idle_worker_whose_interpreter_a_thread_keeps(start_cluster, connect, tmp_path):
    cluster, sign, begun = start_cluster(2), tmp_path / "sign", tmp_path / "begun"
    first, second = connect(cluster), connect(cluster)
    pid = first.submit(leave_holder, sign, begun).result(20)
    sign.touch()
    until(begun.exists)
    with within(20.0):
        assert values([second.submit(square, x) for x in range(50)]) == [x * x for x in range(50)]
    until(lambda: not psutil.pid_exists(pid))


def test_rows_are_not_left_with_an_idle_worker_that_is_stopped(start_cluster, connect):
    cluster = start_cluster(2)
    client = connect(cluster)
    pid = client.submit(os.getpid).result(20)
    os.kill(pid, signal.SIGSTOP)
    with within(20.0):
        assert values([client.submit(square, x) for x in range(50)]) == [x * x for x in range(50)]
    until(lambda: not psutil.pid_exists(pid))


def test_a_worker_that_was_stopped_within_a_row_ends_it_and_runs_none_that_others_have(
    start_cluster, connect, tmp_path
):
    cluster, sign, begun, notes = start_cluster(2), tmp_path / "sign", tmp_path / "begun", tmp_path / "notes"
    first, second = connect(cluster), connect(cluster)
    waiting = first.submit(wait_for, sign, begun)
    until(begun.exists)
    pid = int(begun.read_text())
    os.kill(pid, signal.SIGSTOP)
    with within(10.0):
        assert values([second.submit(note, notes, x) for x in range(100)]) == list(range(100))
    sign.touch()
    os.kill(pid, signal.SIGCONT)
    assert waiting.result(20) == pid
    assert values([second.submit(note, notes, x) for x in range(100, 200)]) == list(range(100, 200))
    assert sorted(map(int, notes.read_text().split())) == list(range(200))
