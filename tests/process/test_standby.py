"""A script that imports `scaler_dask` has its local cluster's process begun, which loads what it has loaded."""

import pytest

#: a package that counts as installed: it says where it was loaded
PACKAGE = """
import os
PID = os.getpid()
"""

SCRIPT = """
    import os, sys, time
    import psutil
    sys.path.insert(0, sys.argv[1])
    import heavy
    {before}
    import scaler_dask
    import dask

    def look():
        return heavy.PID == os.getppid()

    def processes():
        return {{process.pid for process in psutil.Process().children()}}

    {program}
"""


@pytest.fixture
def run(scripts, tmp_path):
    """Run a script that uses an installed package."""
    directory = tmp_path / "site-packages"
    (directory / "heavy").mkdir(parents=True)
    (directory / "heavy" / "__init__.py").write_text(PACKAGE)

    def run(program, before="pass"):
        text = SCRIPT.format(program=program.strip().replace("\n", "\n    "), before=before)
        return scripts.run(text, str(directory)).splitlines()

    return run


COMPUTE = """
begun = processes()
value = dask.delayed(look)().compute(scheduler=scaler_dask.scaler_get)
print(value, len(begun), begun == processes())
"""


def test_the_first_cluster_takes_it_over(run):
    assert run(COMPUTE) == ["True 1 True"]


@pytest.mark.parametrize(
    "change",
    ["os.environ['SOMETHING'] = 'else'", "os.chdir('/')", "sys.path.append('/elsewhere')"],
    ids=["environment", "directory", "path"],
)
def test_what_has_changed_since_is_seen_by_workers(run, change):
    seen = "seen = lambda: (os.environ.get('SOMETHING'), os.getcwd(), sys.path[-1])"
    look = "print(dask.delayed(seen)().compute(scheduler=scaler_dask.scaler_get) == seen())"
    assert run(f"{change}\n{seen}\n{look}") == ["True"]


def test_another_number_of_workers_is_right(run):
    program = (
        "import scaler\nwith scaler.SchedulerClusterCombo(3) as cluster, scaler.Client(cluster.address) as client:"
    )
    assert run(program + "\n    print(client.n_workers, client.submit(look).result())") == ["3 True"]


def test_a_cluster_elsewhere_has_it_end(run, cluster):
    program = f"print(len(processes()))\nwith scaler_dask.Client({cluster.address!r}):\n    print(processes())"
    assert run(program) == ["1", "set()"]
    assert run("print(len(processes()))", f"os.environ['SCALER_ADDRESS'] = {cluster.address!r}") == ["0"]


def test_any_client_has_it_end(run, cluster):
    program = (
        f"import scaler\nprint(len(processes()))\nwith scaler.Client({cluster.address!r}):\n    print(processes())"
    )
    assert run(program) == ["1", "set()"]


@pytest.mark.parametrize("here", [True, False])
def test_a_program_that_has_a_cluster_gets_none(run, cluster, here):
    begin = "scaler.SchedulerClusterCombo(1)" if here else f"scaler.Client({cluster.address!r})"
    assert run("print(len(processes()))", f"import scaler; there = {begin}") == [str(int(here))]


def test_a_program_that_needs_none_leaves_nothing(run, traces):
    assert run("print(len(processes()))") == ["1"]
    assert not traces.marked()


def test_one_that_was_killed_is_done_without(run):
    assert run("psutil.Process().children()[0].kill()" + COMPUTE)[0].startswith("True")


def test_children_begin_none(run):
    program = """
import multiprocessing
def count(queue):
    queue.put(len(processes()))
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=count, args=(queue,))
    child.start()
    print(queue.get())
    child.join()
"""
    assert run(program) == ["0"]
