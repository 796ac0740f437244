"""Files of h5py and netCDF4 are pickled as their names, and opened where they arrive."""

import numpy
import pytest

from scaler.errors import SerializationError
from scaler.serialize import outofband, payload

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")


@pytest.fixture
def hdf5(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/x"] = numpy.arange(5.0)
    return tmp_path / "a.h5"


@pytest.fixture
def netcdf(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for number, group in enumerate((file, file.createGroup("one"), file.createGroup("one/two"))):
            group.createDimension("t", 3)
            group.createVariable("x", "f8", ("t",))[:] = number
    return tmp_path / "a.nc"


def by_dumps(value):
    return payload.loads(payload.dumps([value]))[0]


def by_parts(value):
    return outofband.unpack(*outofband.pack([value]))[0]


@pytest.mark.parametrize("sent", [by_dumps, by_parts])
@pytest.mark.parametrize("path", ["/", "/group", "/group/x"])
def test_what_h5py_reads_is_opened_elsewhere(sent, path, hdf5):
    with h5py.File(hdf5, "r") as file:
        other = sent(file[path] if path != "/" else file)
    assert type(other) is {"/": h5py.File, "/group": h5py.Group, "/group/x": h5py.Dataset}[path]
    assert (other.file.filename, other.name, other.file.mode) == (str(hdf5), path, "r")


@pytest.mark.parametrize(("path", "number"), [("x", 0), ("one/x", 1), ("one/two/x", 2)])
def test_what_netcdf4_reads_is_opened_elsewhere(path, number, netcdf):
    with netCDF4.Dataset(netcdf) as file:
        variable, group, whole = by_dumps(file[path]), by_dumps(file[path].group()), by_dumps(file)
    assert list(variable[:]) == list(group["x"][:]) == list(whole[path][:]) == [number] * 3


def test_a_relative_name_means_the_same_file_in_another_directory(hdf5, monkeypatch):
    monkeypatch.chdir(hdf5.parent)
    with h5py.File(hdf5.name, "r") as file:
        pickled = payload.dumps(file["group/x"])
    monkeypatch.chdir("/")
    assert payload.loads(pickled)[4] == 4


def test_what_is_written_closed_or_in_memory_is_refused(hdf5):
    with h5py.File(hdf5, "r+") as written, h5py.File("none", "w", driver="core", backing_store=False) as in_memory:
        for value in (written, written["group/x"], in_memory):
            with pytest.raises(SerializationError, match="h5py objects cannot be pickled"):
                payload.dumps(value)
    with pytest.raises(SerializationError, match="h5py objects cannot be pickled"):
        payload.dumps(written)
