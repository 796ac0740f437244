"""NumPy arrays that are files mapped into memory (`numpy.memmap`, and plain views of one): their values, or their file.

By value is the rule: a task is given what the array was when it was submitted, and the file may change or go. Within
`by_reference` the file itself is passed, as joblib's processes pass it: nothing is read or copied, and what a task
writes is in the file. Which file, and which part of it, is asked of the kernel: the name that the array was opened by
may be another file's by now. The reader looks whether it has opened the very same one, and fails if it has not.

By value travels what no name leads to (the file was removed, or has none), and a private mapping (mode "c") that was
written to: what was written is nowhere else. Within `read_only` there is no way to the file: what would be written into
it can't be written.
"""

import ctypes
import importlib
import os
import re
import sys
from array import array
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, TypeVar

from scaler.common.host import boot_id
from scaler.errors import SerializationError

#: a line of /proc/self/maps that is a file: from, to, rights, place in the file, its name
_MAPPED = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ \d+ +(/.*)\n")

_Result = TypeVar("_Result")

_PAGE = os.sysconf("SC_PAGE_SIZE")

#: how such arrays are passed
_BY_VALUE, _BY_REFERENCE, _READ_ONLY = range(3)

#: by the calling thread
_chosen: ContextVar[int] = ContextVar("mapped_files", default=_BY_VALUE)


class MappedFile(NamedTuple):
    """A part of a file, as other processes of this host find it."""

    path: str
    #: device, inode, and `boot_id`
    identity: tuple[int, int, str]
    #: of `numpy.memmap`: "r", "r+" or "c"
    mode: str
    #: byte of the file that the part begins with
    start: int


def by_reference(function: Callable[[], _Result]) -> _Result:
    """Call this; what the thread pickles meanwhile has the files of such arrays, not their values."""
    return _called(function, _BY_REFERENCE)


def read_only(function: Callable[[], _Result]) -> _Result:
    """Call this; what the thread pickles meanwhile has their values, read-only if writing would change a file."""
    return _called(function, _READ_ONLY)


def _called(function: Callable[[], _Result], way: int) -> _Result:
    """A block `with` might be left with the way still chosen, for good, by a signal's handler that raises."""
    context = copy_context()
    context.run(_chosen.set, way)
    return context.run(function)


def reduced(value: Any) -> Any:
    """How an object of a class of NumPy's is pickled, as `Pickler.reducer_override` returns it."""
    numpy = sys.modules["numpy"]
    kind = type(value)
    if kind is not numpy.memmap and kind is not numpy.ndarray:
        return NotImplemented
    way = _chosen.get()
    if way != _BY_VALUE and value.size and _is_of_a_file(value, numpy):
        low, high = _bounds(value)
        file = _file_at(low, high, value.flags.writeable)
        if file is not None and way == _BY_REFERENCE:
            order = "C" if value.flags.c_contiguous else "F" if value.flags.f_contiguous else None
            layout = order or (value.__array_interface__["data"][0] - low, value.strides)
            return _opened, (tuple(file), high - low, value.dtype, value.shape, layout, kind is numpy.memmap)
        if file is not None and file.mode == "r+":
            values = value.view()
            values.flags.writeable = False
            return _frozen, (values,)
    return (_as_memmap, (_plain(value, numpy),)) if kind is numpy.memmap else NotImplemented


def _plain(memmap: Any, numpy: Any) -> Any:
    """A plain array over the same memory: of a subclass NumPy would copy the values into the pickle.

    It never says that it is read-only, so that whoever is given its values may change them, as those of a copy.
    """
    flags = memmap.flags
    if flags.writeable or not flags.forc or not memmap.size:
        return memmap.view(numpy.ndarray)
    memory = (ctypes.c_char * memmap.nbytes).from_address(memmap.__array_interface__["data"][0])
    memory.owner = memmap  # keeps it
    return numpy.ndarray(memmap.shape, memmap.dtype, memory, order="C" if flags.c_contiguous else "F")


def _is_of_a_file(array: Any, numpy: Any) -> bool:
    while array is not None:
        if isinstance(array, numpy.memmap):
            return array._mmap is not None
        array = getattr(array, "base", None)
    return False


def _bounds(array: Any) -> tuple[int, int]:
    """The addresses of the first byte of an array and behind its last."""
    begin = array.__array_interface__["data"][0]
    reach = [stride * (length - 1) for stride, length in zip(array.strides, array.shape, strict=True)]
    return begin + sum(r for r in reach if r < 0), begin + sum(r for r in reach if r > 0) + array.itemsize


def _file_at(low: int, high: int, is_writeable: bool) -> MappedFile | None:
    """The file that is mapped at these addresses; None if there is no way to it."""
    try:
        with open("/proc/self/maps", encoding=sys.getfilesystemencoding(), errors="surrogateescape") as maps:
            found = next((line for line in map(_MAPPED.match, maps) if line and low < int(line[2], 16)), None)
        if found is None or low < int(found[1], 16):
            return None
        is_private = found[3][3] == "p"
        if is_private and _is_written(low, high):
            return None
        path = found[5].replace("\\012", "\n")
        stat = os.stat(path)  # the name of one that was removed ends in " (deleted)"
    except OSError:
        return None
    mode = "r" if not is_writeable else "c" if is_private else "r+"
    return MappedFile(path, (stat.st_dev, stat.st_ino, boot_id()), mode, int(found[4], 16) + low - int(found[1], 16))


def _is_written(low: int, high: int) -> bool:
    """Whether a private mapping has pages of its own at these addresses. Raises OSError."""
    first, last = low // _PAGE, (high - 1) // _PAGE
    with open("/proc/self/pagemap", "rb") as pages:
        pages.seek(8 * first)
        entries = array("Q", pages.read(8 * (last - first + 1)))
    numpy = sys.modules["numpy"]
    flags = numpy.frombuffer(entries, numpy.uint64) >> numpy.uint64(61)
    return bool(((flags > 1) & (flags & numpy.uint64(1) == 0)).any())  # present or swapped, and not the file's


def _opened(file: tuple[Any, ...], size: int, dtype: Any, shape: tuple[int, ...], layout: Any, is_memmap: bool) -> Any:
    """The array again, over the same file; raises OSError, and SerializationError if that is another one here.

    `layout`: "C" or "F"; or the offset of the first element, and strides.
    """
    numpy: Any = importlib.import_module("numpy")
    path, identity, mode, start = MappedFile(*file)
    with open(path, "r+b" if mode == "r+" else "rb") as opened:
        stat = os.fstat(opened.fileno())
        if (stat.st_dev, stat.st_ino, boot_id()) != identity or stat.st_size < start + size:
            raise SerializationError(
                f"the memory-mapped file {path} is another one here, or was replaced or cut since: "
                "numpy.array(it) would pass its values"
            )
        if isinstance(layout, str):
            array = numpy.memmap(opened, dtype, mode, start, shape, layout)
            return array if is_memmap else numpy.asarray(array)
        whole = numpy.memmap(opened, numpy.uint8, mode, start, (size,))
    offset, strides = layout
    return numpy.ndarray(shape, dtype, whole, offset, strides)


def _as_memmap(array: Any) -> Any:
    """Values of a memmap; of its file this one has none."""
    return array.view(importlib.import_module("numpy").memmap)


def _frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array
