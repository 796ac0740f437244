"""A script that has done nothing but import installed packages is forked into its local cluster, not begun anew."""

import os
import textwrap

import pytest
from support.programs import environment

#: a package that counts as installed: it says where it was loaded, and what it leaves behind at the end of a process
PACKAGE = """
import atexit, os
PID = os.getpid()
atexit.register(lambda: print("end of", "the script" if os.getpid() == PID else "a fork"))
"""

LOOKS = """
import dask
{between}
import scaler_dask

def look():
    return heavy.PID, os.getppid()

(loaded, parent), = dask.compute(dask.delayed(look)(), scheduler=scaler_dask.scaler_get)
print(loaded == os.getpid())
"""


@pytest.fixture
def run(scripts, tmp_path):
    """Run a script that uses an installed package, and another one that is the program's own."""
    directory = tmp_path / "site-packages"
    (directory / "heavy").mkdir(parents=True)
    (directory / "heavy" / "__init__.py").write_text(PACKAGE)
    (directory / "holds.py").write_text("import socket\nheld = socket.socket()\n")
    (tmp_path / "mine.py").write_text("value = 1")

    def run(program, **env):
        text = textwrap.dedent(program).strip()
        path = os.pathsep.join([str(directory), environment()["PYTHONPATH"]])
        return scripts.run(text, PYTHONPATH=path, **env).splitlines()

    return run


def test_workers_have_what_the_script_has_loaded(run):
    assert run('"""Text."""\nimport os\nimport heavy\n' + LOOKS.format(between="")) == ["True", "end of the script"]


@pytest.mark.parametrize(
    "between",
    [
        "value = 1",
        "import mine",
        "import holds",
        "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        "import sys; sys.setprofile(lambda *_: None)",
        "try:\n    import os\nexcept ImportError:\n    pass",
    ],
    ids=["a value", "its own module", "a package with a socket", "a thread", "a profiler", "a condition"],
)
def test_a_script_that_has_done_more_is_not_forked(run, between):
    assert run("import os\nimport heavy\n" + LOOKS.format(between=between))[0] == "False"


@pytest.mark.parametrize(
    ("address", "seed", "is_forked"),
    [(None, "", True), ("tcp://127.0.0.1:0", "", False), ("tcp://127.0.0.1:0", "1", True)],
)
def test_the_workers_of_a_cluster_that_others_may_join_have_no_seed_of_the_scripts_own(run, address, seed, is_forked):
    program = f"""
        import os
        import heavy
        import dask
        import scaler, scaler_dask

        def look():
            return heavy.PID

        cluster = scaler.SchedulerClusterCombo({address!r}, n_workers=1)
        with cluster, scaler.Client(cluster) as client:
            print(client.submit(look).result() == os.getpid())
        """
    assert run(program, PYTHONHASHSEED=seed)[0] == str(is_forked)


def test_the_import_may_stand_in_a_package(run, tmp_path):
    (tmp_path / "site-packages" / "adapter.py").write_text("import scaler_dask\nvalue = 1\n")
    program = """
        import os
        import heavy
        import adapter
        import dask
        import scaler_dask

        def look():
            import adapter
            return heavy.PID, adapter.value

        print(dask.delayed(look)().compute(scheduler=scaler_dask.scaler_get) == (os.getpid(), 1))
        """
    assert run(program) == ["True", "end of the script"]


def test_workers_import_anew_what_the_script_had_not_finished(run):
    """The fork happens within the import of `scaler_dask`, whose lock the thread holds that was forked."""
    program = """
        import os
        import threading
        import dask
        import scaler_dask

        def look():
            names = []
            def load():
                import scaler_dask.client
                names.append(scaler_dask.client.Client.__name__)
            thread = threading.Thread(target=load)
            thread.start()
            thread.join(20)
            return names

        print(dask.delayed(look)().compute(scheduler=scaler_dask.scaler_get))
        """
    assert run(program) == ["['Client']"]


def test_workers_have_nothing_else_of_the_script_but_its_arguments(run):
    program = """
        import os
        import signal
        import sys
        import dask
        import scaler_dask

        def look():
            has_file = hasattr(sys.modules["__main__"], "__file__")
            return sys.stdin.read(), has_file, signal.getsignal(signal.SIGINT) is signal.default_int_handler, sys.argv

        print(dask.delayed(look)().compute(scheduler=scaler_dask.scaler_get) == ("", False, True, sys.argv))
        """
    assert run(program) == ["True"]


def test_libraries_that_are_loaded_share_the_cores(run):
    pytest.importorskip("numpy")
    pytest.importorskip("threadpoolctl")
    program = """
        import os
        import numpy
        import threadpoolctl
        import dask
        import scaler_dask

        def look():
            return {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}, os.environ["OMP_NUM_THREADS"]

        with dask.config.set({"scaler.n-workers": os.cpu_count()}):
            print(dask.delayed(look)().compute(scheduler=scaler_dask.scaler_get))
        """
    assert run(program) == ["({1}, '1')"]


def test_a_script_whose_cluster_is_killed_in_advance_has_another(run):
    program = """
        import os
        import signal
        import dask
        import psutil
        import scaler_dask

        [begun] = psutil.Process().children()
        begun.kill()
        print(dask.delayed(os.getpid)().compute(scheduler=scaler_dask.scaler_get) not in (os.getpid(), begun.pid))
        """
    assert run(program) == ["True"]
