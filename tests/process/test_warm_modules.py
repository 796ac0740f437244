"""Modules that are loaded once, in a process that workers are forked from."""

import contextlib
import importlib
import os
import signal
import sys
import textwrap
import time

import psutil
import pytest
from support import until

HEAVY = "import os\nPID = os.getpid()\n"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that this process and clusters can import, and imports it here."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written = []

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        written.append(name)
        return importlib.import_module(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)


def waits_for(gate):
    """Text of a module that is loaded elsewhere when a file is there."""
    return f"""
        import os, time
        PID = os.getpid()
        while PID != {os.getpid()} and not os.path.exists({str(gate)!r}):
            time.sleep(0.01)
        """


def the_zygote(cluster):
    (process,) = psutil.Process(cluster.pid).children()
    return process.pid


def test_workers_find_loaded_what_the_warm_process_has_loaded(start_cluster, connect, module):
    heavy = module("heavy_a", HEAVY)
    cluster = start_cluster(2, warm_modules=["heavy_a"])
    client = connect(cluster)
    seen = client.map(lambda i: (time.sleep(0.05), heavy.PID, os.getppid())[1:], range(8))
    assert {pid for pid, _ in seen} == {parent for _, parent in seen}
    (warm,) = {parent for _, parent in seen}
    assert psutil.Process(warm).ppid() == the_zygote(cluster)


def test_the_first_result_does_not_wait_for_it(start_cluster, connect, module, tmp_path):
    gate = tmp_path / "gate"
    slow = module("slow_b", waits_for(gate))
    cluster = start_cluster(2, warm_modules=["slow_b"])
    client = connect(cluster)
    assert client.submit(os.getppid).result(20) == the_zygote(cluster)
    gate.touch()
    assert client.submit(lambda: slow.PID).result(20) != os.getpid()


@pytest.mark.parametrize(
    ("name", "deed"),
    [
        ("threads_d", "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"),
        ("crashes_d", "os.kill(os.getpid(), signal.SIGSEGV)"),
        ("exits_d", "os._exit(3)"),
    ],
)
def test_a_package_that_does_not_bear_it_is_left_to_the_workers(start_cluster, connect, module, tmp_path, name, deed):
    once = tmp_path / "once"
    heavy = module("heavy_d", HEAVY)
    bad = module(
        name,
        f"""
        import os, signal, threading, time
        PID = os.getpid()
        if PID != {os.getpid()} and not os.path.exists({str(once)!r}):
            open({str(once)!r}, "w").close()
            {deed}
        """,
    )
    client = connect(start_cluster(1, warm_modules=["heavy_d", name]))
    parent, heavy_pid, bad_pid, worker = client.submit(lambda: (os.getppid(), heavy.PID, bad.PID, os.getpid())).result(
        20
    )
    assert (heavy_pid, bad_pid) == (parent, worker)


def test_what_cannot_be_imported_does_not_matter(start_cluster, connect, module):
    heavy = module("heavy_e", HEAVY)
    client = connect(start_cluster(1, warm_modules=["no_such_module", "heavy_e"]))
    assert client.submit(lambda: os.getppid() == heavy.PID).result(20)


def test_when_the_warm_process_dies_work_goes_on_without(start_cluster, connect, module):
    heavy = module("heavy_f", HEAVY)
    cluster = start_cluster(2, warm_modules=["heavy_f"])
    client = connect(cluster)
    warm = client.submit(lambda: heavy.PID).result(20)
    running = [client.submit(lambda i: (time.sleep(0.2), os.getppid())[1], i) for i in range(4)]
    os.kill(warm, signal.SIGKILL)
    assert {future.result(20) for future in running} <= {the_zygote(cluster), warm}
    assert client.submit(lambda: (heavy.PID, os.getpid())).result(20)[0] != warm


def test_when_its_cluster_is_killed_it_ends_with_its_workers_though_it_was_stopped(start_cluster, connect, module):
    heavy = module("heavy_k", HEAVY)
    cluster = start_cluster(1, warm_modules=["heavy_k"])
    worker, warm = connect(cluster).submit(lambda: (heavy.PID and os.getpid(), os.getppid())).result(20)
    pids = [the_zygote(cluster), warm, worker]
    os.kill(warm, signal.SIGSTOP)
    until(lambda: psutil.Process(warm).status() == psutil.STATUS_STOPPED)
    os.kill(cluster.pid, signal.SIGKILL)
    try:
        until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_worker_that_has_run_something_stays(start_cluster, connect, module, tmp_path):
    gate = tmp_path / "gate"
    heavy = module("heavy_g", waits_for(gate))
    client = connect(start_cluster(1, warm_modules=["heavy_g"]))
    worker = client.submit(os.getpid).result(20)
    gate.touch()
    assert client.submit(lambda: (os.getpid(), heavy.PID)).result(20) == (worker, worker)


def test_an_import_in_the_middle_of_a_task_is_no_reason_to_leave(start_cluster, connect, module, tmp_path):
    gate, log = tmp_path / "gate", tmp_path / "log"
    module("heavy_h", waits_for(gate))

    def task():
        with log.open("a") as file:
            file.write("begun ")
        gate.touch()
        import heavy_h  # type: ignore[import-not-found]

        return os.getpid() == heavy_h.PID

    assert connect(start_cluster(1, warm_modules=["heavy_h"])).submit(task).result(20)
    assert log.read_text() == "begun "


def test_a_killed_worker_of_the_warm_process_is_replaced(start_cluster, connect, module):
    heavy = module("heavy_i", HEAVY)
    client = connect(start_cluster(1, warm_modules=["heavy_i"]))
    worker, warm = client.submit(lambda: (os.getpid(), heavy.PID)).result(20)
    os.kill(worker, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(worker), "the worker's end")
    assert client.submit(lambda: (os.getpid() != worker, heavy.PID)).result(20) == (True, warm)


def test_workers_do_not_draw_the_same_random_numbers(start_cluster, connect):
    numpy = pytest.importorskip("numpy")
    client = connect(start_cluster(2, warm_modules=["numpy", "numpy.random"]))
    drawn = client.map(lambda i: (time.sleep(0.05), numpy.random.rand())[1], range(8))
    assert len(set(drawn)) == 8


def test_a_script_names_what_its_workers_need(scripts):
    pytest.importorskip("numpy")
    text = """
        import os, sys
        import numpy as np
        import scaler

        def look():
            np.ones(3)
            return os.getppid()

        with scaler.SchedulerClusterCombo(n_workers=1) as cluster, scaler.Client(cluster.address) as client:
            import psutil
            print(psutil.Process(client.submit(look).result()).ppid() == psutil.Process(cluster.pid).children()[0].pid)
    """
    assert scripts.run(text).strip() == "True"
