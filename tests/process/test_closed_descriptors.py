"""Programs that were started without descriptors 0, 1 or 2, as by a shell's `>&-`."""

import os
import shlex
import sys
import textwrap

import pytest
from support import Program
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
