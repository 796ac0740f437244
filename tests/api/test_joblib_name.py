"""What joblib calls "dask" is Scaler for programs that have a client of scaler_dask, and distributed for others."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

joblib = pytest.importorskip("joblib", reason="joblib is not installed")
from joblib import Parallel, delayed, parallel  # noqa: E402

from scaler.joblib import ScalerBackend  # noqa: E402
from scaler_dask import Client, joblib_name  # noqa: E402

#: prints where calls ran, by a program that imports one before the other
CALLS = """
import os, sys
if sys.argv[1] == "before":
    import joblib
from scaler_dask import Client
import joblib

if __name__ == "__main__":
    with Client(n_workers=1), joblib.parallel_config(backend="dask"):
        (pid,) = joblib.Parallel(n_jobs=2)([joblib.delayed(os.getpid)()])
    print(pid != os.getpid())
"""


@pytest.fixture
def client(cluster):
    with Client(cluster.address) as client:
        yield client


def test_calls_run_on_the_cluster_of_the_default_client(client):
    with joblib.parallel_backend("dask", scatter=[1]):
        values = Parallel(n_jobs=2)(delayed(lambda x: (x * x, os.getpid()))(x) for x in range(10))
    assert [value for value, _ in values] == [x * x for x in range(10)]
    assert os.getpid() not in {pid for _, pid in values}


@pytest.mark.parametrize("when", ["before", "after"])
def test_joblib_may_be_imported_before_or_after(when):
    done = subprocess.run([sys.executable, "-c", CALLS, when], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


def test_arguments_of_distributeds_submit_are_options_of_the_tasks(client):
    backend = parallel.BACKENDS["dask"](retries=3, priority=2, inner_max_num_threads=1)
    assert isinstance(backend, ScalerBackend)
    assert backend.inner_max_num_threads == 1
    options = backend._client()._options
    assert (options.retries, options.priority) == (3, 2)


def test_an_argument_that_means_nothing_here_is_named(client):
    with pytest.raises(TypeError, match="joblib's backend 'dask' has no argument 'pure' on Scaler"):
        parallel.BACKENDS["dask"](pure=True)


def test_without_a_client_it_is_distributed_and_a_client_comes_before_it_afterwards(cluster):
    theirs, asked = object(), []
    as_joblib = SimpleNamespace(BACKENDS={}, EXTERNAL_BACKENDS={})

    def register():
        as_joblib.BACKENDS["dask"] = lambda: asked.append(1) or theirs

    as_joblib.EXTERNAL_BACKENDS["dask"] = register
    joblib_name._have_ask_here(as_joblib)
    assert [as_joblib.BACKENDS["dask"]() for _ in range(2)] == [theirs, theirs]
    with Client(cluster.address):
        assert isinstance(as_joblib.BACKENDS["dask"](), ScalerBackend)
    assert len(asked) == 2
