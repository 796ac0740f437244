"""xarray writes datasets in chunks to netCDF files: each of many tasks opens the file, and one writes at a time."""

import functools
import subprocess
import sys
import threading

import dask
import dask.array as da
import numpy
import pytest

from scaler_dask import Client, scaler_get
from scaler_dask.program_lock import ProgramLock

xarray = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")
from xarray.backends import locks  # noqa: E402

#: prints what was written, by a program that imports one before the other
WRITES = """
import sys
if sys.argv[3] == "before":
    import xarray
import dask
from scaler_dask import scaler_get
import xarray

with dask.config.set({"scheduler": scaler_get, "scaler.address": sys.argv[1]}):
    data = xarray.Dataset({"a": ("x", range(1000))}).chunk(x=100)
    data.to_netcdf(sys.argv[2], engine="netcdf4")
print(int(xarray.open_dataset(sys.argv[2]).a.sum()))
"""


@pytest.fixture
def data():
    numbers = da.arange(40_000.0, chunks=5_000).reshape(100, 400)
    return xarray.Dataset({"a": (("x", "y"), numbers), "b": ("y", da.ones(400, chunks=100))})


@pytest.fixture(params=["scaler_get", "client", "partial"])
def scheduler(request, cluster, client):
    """Scaler is dask's scheduler, in each of the ways in which people say so."""
    if request.param == "client":
        with Client(cluster.address):
            yield
    elif request.param == "partial":
        with dask.config.set(scheduler=functools.partial(scaler_get, client=client)):
            yield
    else:
        with dask.config.set({"scheduler": scaler_get, "scaler.address": cluster.address}):
            yield


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_a_dataset_in_chunks_is_written(scheduler, data, tmp_path, engine):
    pytest.importorskip(engine.replace("netcdf4", "netCDF4"))
    data.to_netcdf(tmp_path / "file.nc", engine=engine)
    with xarray.open_dataset(tmp_path / "file.nc", engine=engine) as written:
        xarray.testing.assert_equal(written, data)
    data.to_netcdf(tmp_path / "file.nc", mode="a", group="again", engine=engine)
    with xarray.open_dataset(tmp_path / "file.nc", group="again", engine=engine) as written:
        xarray.testing.assert_equal(written, data)


def test_it_is_written_when_that_is_asked_for(scheduler, data, tmp_path):
    later = data.to_netcdf(tmp_path / "file.nc", engine="netcdf4", compute=False)
    later.compute()
    with xarray.open_dataset(tmp_path / "file.nc") as written:
        xarray.testing.assert_equal(written, data)


def test_many_files_are_written_at_once_and_read_again(scheduler, data, tmp_path):
    parts = [data.isel(x=slice(lo, lo + 25)) for lo in range(0, 100, 25)]
    paths = [tmp_path / f"{number}.nc" for number in range(len(parts))]
    xarray.save_mfdataset(parts, paths, engine="netcdf4")
    joined = {"combine": "nested", "concat_dim": "x", "data_vars": "minimal", "compat": "override", "coords": "minimal"}
    with xarray.open_mfdataset(paths, **joined) as written:
        xarray.testing.assert_equal(written.compute(), data.compute())
        assert float(written.a.sum()) == float(numpy.arange(40_000.0).sum())


@pytest.mark.parametrize("order", ["before", "after"])
def test_it_does_not_matter_which_is_imported_first(cluster, tmp_path, order):
    command = [sys.executable, "-W", "ignore", "-c", WRITES, cluster.address, str(tmp_path / "file.nc"), order]
    assert subprocess.run(command, capture_output=True, text=True, timeout=100).stdout == "499500\n"


def test_writers_of_one_file_have_one_lock(scheduler):
    one, same, other = (locks.get_write_lock(name) for name in ("a.nc", "a.nc", "b.nc"))
    assert type(one) is ProgramLock
    with one:
        assert same.locked()
        assert not other.locked()


@pytest.mark.parametrize(("scheduler", "named"), [("threads", "threaded"), ("processes", "multiprocessing")])
def test_of_other_schedulers_xarray_thinks_as_before(scheduler, named):
    with dask.config.set(scheduler=scheduler):
        assert locks.get_dask_scheduler() == named
        assert type(locks.get_write_lock("file")) is not ProgramLock
    assert locks.get_dask_scheduler() == "threaded"
    assert isinstance(locks.get_write_lock("file"), type(threading.Lock()))
