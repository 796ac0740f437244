"""The bytes of buffers: compared, copied and summed up without the interpreter's lock, which slices would keep."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

from scaler.common.interrupts import Uninterrupted
from scaler.common.processors import available_cores

#: copies of at least so many bytes are shared by threads, of which each has at least half as many to do
_SHARED_FROM = 8 << 20
#: threads that copy at once, at most: memory is not faster for more
_THREADS = 4

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_memcpy = ctypes.CDLL(None).memcpy
_memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_memcpy.restype = None

_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
#: since Linux 5.14; others refuse it
_MADV_POPULATE_WRITE = 23

#: from address, to address, bytes
Copy = tuple[int, int, int]


class _PyBuffer(ctypes.Structure):
    """`Py_buffer`, of which only the address matters here; `rest` has room for what comes behind."""

    _fields_ = (("buf", ctypes.c_void_p), ("rest", ctypes.c_void_p * 15))


def address_of(buffer: object) -> int:
    """Where the bytes of an object with a buffer are in memory, 0 if it has none."""
    view = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(buffer), ctypes.byref(view), 0)
    try:
        return view.buf or 0
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))


def populate(memory: mmap.mmap) -> None:
    """Have the kernel prepare all pages of a writable mapping now, where it can; they are as before. Never raises."""
    _madvise(address_of(memory), len(memory), _MADV_POPULATE_WRITE)


def equal(one: memoryview, other: memoryview) -> bool:
    """Whether two contiguous buffers have the same bytes."""
    return one.nbytes == other.nbytes and _memcmp(address_of(one), address_of(other), one.nbytes) == 0


def checksums(buffer: memoryview) -> tuple[int, ...]:
    """What tells the bytes of a contiguous buffer from others, but by intent: a CRC for each part of it.

    Several threads share much. 100 MB take 45 ms of a processor.
    """
    view = buffer if buffer.ndim == 1 and buffer.format == "B" else buffer.cast("B")
    parts = [view[begin : begin + _SHARED_FROM] for begin in range(0, view.nbytes, _SHARED_FROM)]
    if len(parts) < 2 or available_cores() < 2:
        return tuple(map(crc32, parts))
    with ThreadPoolExecutor(min(_THREADS, available_cores(), len(parts)), "scaler-sums") as pool:
        return tuple(pool.map(crc32, parts))


class _Share:
    """A part of what is to be copied. One thread does it, the first that comes; others wait for that."""

    def __init__(self, copies: list[Copy]) -> None:
        self._copies = copies
        #: held by who copies
        self._lock = threading.RLock()

    def copy(self) -> None:
        """Returns when it is copied."""
        with self._lock:
            copies, self._copies = self._copies, []
            _copy(copies)


def copy_all(target: int, parts: Sequence[bytes | memoryview]) -> None:
    """Copy contiguous parts one behind the other to an address, with several threads if that is much.

    The caller keeps the parts and the memory at `target`, and sees that it is large enough. Whatever is raised, no
    thread copies on; handlers of signals that come while several do are called at the end.
    """
    copies: list[Copy] = []
    for part in parts:
        size = memoryview(part).nbytes
        if size:
            copies.append((address_of(part), target, size))
            target += size
    total = sum(size for _, _, size in copies)
    shares = min(_THREADS, available_cores(), 2 * total // _SHARED_FROM)
    if total < _SHARED_FROM or shares < 2:
        _copy(copies)
        return
    first, *others = map(_Share, _shares(copies, -(-total // shares)))
    with Uninterrupted(), contextlib.ExitStack() as ends:
        for share in others:
            ends.callback(share.copy)
            with contextlib.suppress(RuntimeError):  # there may be no more threads: this one does it
                threading.Thread(target=share.copy, name="scaler-copies").start()
        first.copy()


def _copy(copies: list[Copy]) -> None:
    for source, target, size in copies:
        _memcpy(target, source, size)


def _shares(copies: list[Copy], each: int) -> Iterator[list[Copy]]:
    """Divide copies into lists of so many bytes; the last one may have fewer."""
    share: list[Copy] = []
    room = each
    for source, target, size in copies:
        while size:
            count = min(size, room)
            share.append((source, target, count))
            source, target, size, room = source + count, target + count, size - count, room - count
            if not room:
                yield share
                share, room = [], each
    if share:
        yield share
