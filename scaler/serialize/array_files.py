"""Files, groups and variables of h5py and netCDF4, neither of which can be pickled: they travel as names.

`da.from_array(h5py.File(path)["x"])` works under dask's threads, and with distributed, which does the same: who is
given one opens the file for reading. Of h5py only what is open for reading travels; netCDF4 does not tell how a file
was opened. What has no name in a file system (is in memory, or made of a Python file) does not travel either.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

_LIBRARIES = ("h5py", "netCDF4")


def reduced(value: Any) -> Any:
    """How such an object is pickled, as `Pickler.reducer_override` returns it; NotImplemented for all others."""
    name = str(type(value).__module__).partition(".")[0]
    library = sys.modules.get(name) if name in _LIBRARIES else None
    if library is None:
        return NotImplemented
    place = _place_in_hdf5(value, library) if name == "h5py" else _place_in_netcdf(value, library)
    if place is None or not os.path.isfile(place[0]):
        return NotImplemented
    return _opened, (name, os.path.abspath(place[0]), place[1])


def _place_in_hdf5(value: Any, h5py: Any) -> tuple[str, str] | None:
    """The file's name, and the path of this in it."""
    if not isinstance(value, (h5py.Group, h5py.Dataset)) or not value or value.name is None or value.file.mode != "r":
        return None
    return value.file.filename, value.name


def _place_in_netcdf(value: Any, netcdf: Any) -> tuple[str, str] | None:
    """As `_place_in_hdf5`. Raises RuntimeError if the file was closed."""
    if not isinstance(value, (netcdf.Dataset, netcdf.Variable)):
        return None
    group = value.group() if isinstance(value, netcdf.Variable) else value
    path = group.path if group is value else f"{group.path.rstrip('/')}/{value.name}"
    return group.filepath(), path


def _opened(library: str, filename: str, path: str) -> Any:
    """The object at this path of the file. Raises OSError if the file can't be opened, KeyError or IndexError."""
    module = importlib.import_module(library)
    file = module.File(filename, "r") if library == "h5py" else module.Dataset(filename, "r")
    return file if path == "/" else file[path]
