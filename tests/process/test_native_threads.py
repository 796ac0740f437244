"""Libraries in workers use as many threads as they are given."""

import os
import signal
import time

import pytest

from scaler import Client


def threads_after_numpy(size):
    """The threads of this worker before and after it multiplies matrices."""
    before = len(os.listdir("/proc/self/task"))
    import numpy

    matrix = numpy.ones((size, size))
    assert (matrix @ matrix)[0, 0] == size
    return before, len(os.listdir("/proc/self/task"))


def arrow_threads():
    import pyarrow

    return pyarrow.cpu_count()


def test_a_worker_with_one_thread_starts_no_others(start_cluster, connect):
    client = connect(start_cluster(1, worker_threads=1))
    before, after = client.submit(threads_after_numpy, 300).result(20)
    assert after == before


def test_workers_of_a_local_cluster_share_its_cores(start_cluster, connect):
    client = connect(start_cluster(64))
    assert client.submit(os.getenv, "OMP_NUM_THREADS").result(20) == "1"


def test_libraries_read_the_option(start_cluster, connect):
    pytest.importorskip("pyarrow")
    assert connect(start_cluster(1, worker_threads=5)).submit(arrow_threads).result(20) == 5


def test_a_program_decides_before_it_starts_its_cluster(start_cluster, connect, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert connect(start_cluster(1)).submit(arrow_threads).result(20) == 3


def test_workers_of_a_host_get_the_option_too(daemons):
    daemons.start_scheduler()
    daemons.start_agent(1, "--worker-threads", "5")
    assert daemons.client().submit(os.getenv, "OPENBLAS_NUM_THREADS").result(20) == "5"


# ---- tasks that take several slots -----------------------------------------------------------------------------------
def noted(path, what, seconds):
    """Run for a while, and note from when to when."""
    begun = time.monotonic()
    time.sleep(seconds)
    with open(path, "a") as file:
        file.write(f"{what} {begun} {time.monotonic()} {os.getpid()}\n")
    return what


def notes(path):
    """(what, begun, ended) in the order of their ends."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return sorted(((what, float(begun), float(ended)) for what, begun, ended, _ in lines), key=lambda note: note[2])


def met(directory, name, others):
    """Wait until all of these are there at the same time."""
    (directory / name).touch()
    deadline = time.monotonic() + 20
    while not all((directory / other).exists() for other in others):
        assert time.monotonic() < deadline, f"{name} is alone"
        time.sleep(0.002)
    return name


def blas_threads(seconds=0.0):
    """What NumPy's BLAS may use, what libraries read when they are loaded, and in which worker."""
    import numpy
    import threadpoolctl

    assert numpy.ones(3).sum() == 3
    time.sleep(seconds)
    (blas,) = [found for found in threadpoolctl.threadpool_info() if found["user_api"] == "blas"]
    return blas["num_threads"], os.environ["OMP_NUM_THREADS"], os.getpid()


def parent(threads):
    """Wait for tasks that take so many slots."""
    client = Client().with_options(threads=threads)
    return client.submit(abs, -1).result(), client.map(abs, [-2, -3]), client.get({"a": (abs, -4)}, ["a"])["a"]


def killed_once(marker):
    """Die at the first try."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "again"


def test_a_task_with_all_threads_runs_alone_and_neither_it_nor_the_others_starve(start_cluster, connect, tmp_path):
    client = connect(start_cluster(4))
    path = tmp_path / "notes"
    wide = client.with_options(threads=4)
    futures = [client.submit(noted, path, "narrow", 0.004) for _ in range(300)]
    futures += [wide.submit(noted, path, "wide", 0.02) for _ in range(6)]
    futures += [client.submit(noted, path, "narrow", 0.004) for _ in range(300)]
    for future in futures:
        future.result(40)
    found = notes(path)
    alone = [(begun, ended) for what, begun, ended in found if what == "wide"]
    assert len(found) == 606
    for what, begun, ended in found:
        others = [span for span in alone if span != (begun, ended)]
        assert all(ended <= first or last <= begun for first, last in others), (what, begun, ended)
    order = [what for what, _, _ in found]
    assert order.index("wide") < 500  # not behind all that came before or after
    assert order[-1] == "narrow" or order.count("narrow") == 600


def test_a_narrow_task_has_its_turn_among_many_wide_ones(start_cluster, connect, tmp_path):
    client = connect(start_cluster(2))
    path = tmp_path / "notes"
    wide = [client.with_options(threads=2).submit(noted, path, "wide", 0.03) for _ in range(60)]
    wide[0].result(20)
    narrow = client.submit(noted, path, "narrow", 0.001)
    for future in [narrow, *wide]:
        future.result(40)
    assert [what for what, _, _ in notes(path)].index("narrow") < 40


def test_two_tasks_with_half_the_threads_run_at_once(start_cluster, connect, tmp_path):
    client = connect(start_cluster(4)).with_options(threads=2)
    futures = [client.submit(met, tmp_path, name, ["one", "other"]) for name in ("one", "other")]
    assert [future.result(30) for future in futures] == ["one", "other"]


def test_libraries_may_use_the_threads_of_all_slots_and_only_while_the_task_runs(start_cluster, connect):
    client = connect(start_cluster(2, worker_threads=1))
    wide = client.with_options(threads=2)
    assert wide.submit(blas_threads).result(30)[:2] == (2, "2")  # it was loaded by the task
    futures = [client.submit(blas_threads, 0.1) for _ in range(8)]
    found = [future.result(30) for future in futures]
    assert {(threads, variable) for threads, variable, _ in found} == {(1, "1")}
    assert len({pid for _, _, pid in found}) == 2
    assert wide.submit(blas_threads).result(30)[:2] == (2, "2")  # it was there
    assert client.submit(blas_threads).result(30)[:2] == (1, "1")


def test_a_task_may_wait_for_one_that_takes_all_slots(start_cluster, connect):
    client = connect(start_cluster(2))
    assert client.submit(parent, 2).result(30) == (1, [2, 3], 4)
    assert client.with_options(threads=2).submit(parent, 2).result(30) == (1, [2, 3], 4)


def test_a_task_that_dies_in_several_slots_runs_again_and_leaves_them(start_cluster, connect, tmp_path):
    client = connect(start_cluster(3))
    assert client.with_options(threads=3).submit(killed_once, tmp_path / "died").result(30) == "again"
    names = ["a", "b", "c"]
    futures = [client.submit(met, tmp_path, name, names) for name in names]
    assert [future.result(30) for future in futures] == names


def test_a_task_with_more_threads_than_any_host_has_workers_waits_and_is_named(daemons):
    daemons.start_scheduler()
    daemons.start_agent(4)
    client = daemons.client()
    future = client.with_options(threads=8).submit(os.getppid)
    daemons.scheduler.says(r"getppid needs 8 workers of one host \(threads=8\), which no agent has yet: its rows wait")
    assert client.submit(abs, -1).result(20) == 1
    assert not future.done()
    daemons.start_agent(8)
    assert future.result(20)


def test_maps_and_graphs_take_slots_too(start_cluster, connect):
    client = connect(start_cluster(2, worker_threads=1)).with_options(threads=2)
    assert client.map(os.getenv, ["OMP_NUM_THREADS"] * 3) == ["2"] * 3
    assert client.get({"a": (os.getenv, "OMP_NUM_THREADS"), "b": (str, "a")}, ["b"]) == {"b": "2"}
