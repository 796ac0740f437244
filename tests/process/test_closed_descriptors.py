"""Programs that were started without descriptors 0, 1 or 2, as by a shell's `>&-`, and tasks that close them."""

import contextlib
import multiprocessing
import os
import shlex
import subprocess
import sys
import textwrap

import pytest
from support import Program, until
from support.programs import environment, program

CLOSED = ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"]

USES = """
    import os, subprocess, sys
    {first}
    import scaler

    def look():
        print("to stdout", flush=True)
        print("to stderr", file=sys.stderr, flush=True)
        plain = [os.write(number, b"x") for number in (1, 2)]
        return plain, os.read(0, 1), subprocess.run("echo x && echo x >&2", shell=True).returncode

    def what(number):
        try:
            return os.readlink(f"/proc/self/fd/{{number}}"), os.get_inheritable(number)
        except OSError:
            return None

    if __name__ == "__main__":
        before = [what(number) for number in range(3)]
        streams = sys.stdin, sys.stdout, sys.stderr
        with scaler.Executor(1, stream_output=True) as pool:
            assert pool.submit(look).result(40) == ([1, 1], b"", 0)
            held = [what(number) for number in range(3)]
            assert all(now == was or (was is None and now == ("/dev/null", False)) for was, now in zip(before, held))
            assert streams == (sys.stdin, sys.stdout, sys.stderr)
            for number in range(3):
                if before[number] is None:
                    os.write(number, b"into no connection")
            assert pool.submit(abs, -1).result(40) == 1
        {last}
        open(sys.argv[1], "w").write("done")
"""


@pytest.fixture
def run(traces, tmp_path):
    """Run a script under a shell that closes descriptors; its exit code is 0, and it got to its end."""
    programs = []

    def run(closed, first="", last=""):
        script, done = tmp_path / "script.py", tmp_path / "done"
        script.write_text(textwrap.dedent(USES).format(first=first, last=last))
        command = f"exec {shlex.join([sys.executable, str(script), str(done)])} {closed}"
        made = Program(["sh", "-c", command], tmp_path / "out", env=environment())
        programs.append(made)
        assert made.ends(60.0) == 0, made.text
        assert done.read_text() == "done"
        return made.text

    yield run
    for made in programs:
        made.stop()


@pytest.mark.parametrize("closed", CLOSED)
def test_an_executor_works_whatever_is_closed(run, closed):
    run(closed)


@pytest.mark.parametrize(("closed", "here", "nowhere"), [("2>&-", "stdout", "stderr"), (">&-", "stderr", "stdout")])
def test_what_tasks_print_goes_to_the_stream_that_is_open_alone(run, closed, here, nowhere):
    printed = run(closed)
    assert f"to {here}" in printed
    assert f"to {nowhere}" not in printed


@pytest.mark.parametrize("closed", CLOSED)
def test_a_cluster_that_is_begun_in_advance_works_whatever_is_closed(run, closed):
    look = "import dask; assert dask.delayed(look)().compute(scheduler=scaler_dask.scaler_get)[0] == [1, 1]"
    run(closed, "import scaler_dask", look)


def test_programs_work_without_them(daemons, tmp_path):
    def run(name, module, *arguments):
        command = shlex.join([*program(name, module), *arguments])
        return Program(["sh", "-c", f"exec {command} <&- 2>&-"], tmp_path / f"{module}.out")  # their log is on stdout

    scheduler = run("scaler_scheduler", "scheduler", "tcp://127.0.0.1:0")
    try:
        daemons.address = scheduler.says(r"listens at (tcp://\S+)")[1]
        agent = run("scaler_cluster", "cluster", "-n", "1", daemons.address)
        try:
            agent.says(r"Worker\[0\] started")
            assert daemons.client().submit(os.write, 2, b"x").result(40) == 1
        finally:
            agent.stop()
    finally:
        scheduler.stop()


def close(*numbers):
    for number in numbers:
        os.close(number)


def become_a_daemon():
    """As such code does it: /dev/null is what all three are then, and descriptor 0 is new."""
    os.closerange(0, 3)
    os.open(os.devnull, os.O_RDWR)
    os.dup(0)
    os.dup(0)


def close_and_open(path):
    """Leave a file open that has the number of one that was closed."""
    os.close(1)
    assert os.open(path, os.O_CREAT | os.O_WRONLY) == 1


def redirect(path):
    with open(path, "w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)


def standard():
    """What files the three are, and the process."""
    return [os.fstat(number)[:3] for number in range(3)], os.getpid()


def use(path):
    """What the three are for: printing, the standard streams of other programs; a file gets none of their numbers."""
    with path.open("w") as file:
        print("of the task", flush=True)
        print("of the task", file=sys.stderr, flush=True)
        subprocess.run(["sh", "-c", "echo of the task && echo of the task >&2 && cat"], check=True)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            file.write(str(pool.apply(abs, (-1,))))
    return path.read_text()


SPOILS = [(close, (1, 2)), (close, (0,)), (close, (2,)), (become_a_daemon, ()), (close_and_open, "f"), (redirect, "f")]


@pytest.mark.parametrize(("spoil", "arguments"), SPOILS)
def test_what_a_task_has_closed_or_redirected_is_put_back_for_the_next_ones(
    start_cluster, connect, tmp_path, spoil, arguments
):
    cluster = start_cluster(1)
    one, other = connect(cluster), connect(cluster)
    before = other.submit(standard).result(40)
    for _ in range(3):  # also behind one that was looked at just now
        one.submit(spoil, *(tmp_path / each if type(each) is str else each for each in arguments)).result(40)
        assert other.submit(standard).result(40) == before, "in the same process"
    assert other.submit(use, tmp_path / "written").result(40) == "1"


def same(number):
    """All that is open for the same file."""
    found, meant = [], os.fstat(number)
    for other in map(int, os.listdir("/dev/fd")):
        with contextlib.suppress(OSError):  # that of the listing itself
            if os.path.samestat(os.fstat(other), meant):
                found.append(other)
    return found


def close_all(number):
    """Close a descriptor and what it could be put back from; the process."""
    close(*same(number))
    return os.getpid()


def test_a_worker_in_which_that_cannot_be_done_is_replaced(start_cluster, connect, tmp_path, capfd):
    client = connect(start_cluster(1))
    spoilt = client.submit(close_all, 1).result(40)
    until(lambda: client.submit(os.getpid).result(40) != spoilt, "another worker")
    assert client.submit(use, tmp_path / "written").result(40) == "1"
    assert "has lost descriptor 1, which can't be put back, as tasks have left it" in capfd.readouterr().err


def held_by_a_fork():
    """Which descriptors a process has, forked by a task, that are open for the same files as the three."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, repr(sorted({*same(0), *same(1), *same(2)})).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return os.read(reading, 1000)


def test_a_process_that_a_task_has_forked_holds_nothing_open_by_them(start_cluster, connect):
    assert connect(start_cluster(1)).submit(held_by_a_fork).result(40) == b"[0, 1, 2]"
