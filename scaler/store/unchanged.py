"""Whether the bytes of a buffer can have changed since a moment, asked of the kernel instead of read again.

Theory of operation. The whole pages of the buffer are registered with a userfaultfd of their own in asynchronous
write-protect mode and protected: every page, present, swapped out or never touched, gets a mark in the page table. The
first write to a page, by the program or by the kernel on its behalf, faults; the kernel removes the mark and lets the
write go on, nobody is woken. PAGEMAP_SCAN then says in one call if every page still has its mark: 25,600 pages in
0.1 ms. The parts of a page at both ends are shared with other data, so they are copied and compared.

Only a positive answer counts: every page must be there, marked, under our registration. A page that was dropped
(MADV_DONTNEED), unmapped, remapped, or belongs to a child after fork has no mark and reads as changed. Kernels differ
in whether they call such holes written, so «no page is written» would not be enough.

A page table sees what goes through it. Missed is what a device or the kernel writes to a page that it had pinned before
the Watch began: registered buffers (io_uring, RDMA, GPU), and a single O_DIRECT read or process_vm_writev under way at
that instant. A process with pinned or locked memory, or with a device or an I/O ring mapped, is refused. That leaves
the transfer under way at the beginning: nothing tells of it; see `MISSES_ACCEPTED`.
"""

import ctypes
import fcntl
import functools
import mmap
import os
import platform
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from pickle import PickleBuffer

from scaler.common.buffers import address_of

#: Whether it is accepted that a transfer into pinned pages, under way when a Watch begins, is not seen: a program that
#: gives away an array while a device writes into it sends torn bytes in any case. Without it no Watch says «unchanged».
MISSES_ACCEPTED: bool = True

_SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282}
_USER_MODE_ONLY = 1  # all that vm.unprivileged_userfaultfd=0 allows; no fault is handed to anybody, so nothing is lost
_API, _FEATURE_WP_UNPOPULATED, _FEATURE_WP_ASYNC = 0xAA, 1 << 13, 1 << 15
_MODE_WP = 1 << 1  # of a registration
_PROTECT = 1 << 0  # of UFFDIO_WRITEPROTECT
_WPALLOWED, _WRITTEN, _PRESENT, _SWAPPED = 1 << 0, 1 << 1, 1 << 3, 1 << 4  # PAGE_IS_…
_CHECK_WPASYNC = 1 << 1  # PM_SCAN_…: fail where there is no asynchronous write-protection

# the layouts of linux/userfaultfd.h and linux/fs.h
_UFFDIO_API = struct.Struct("=QQQ")  # api, features, ioctls
_UFFDIO_RANGE = struct.Struct("=QQ")  # start, length
_UFFDIO_REGISTER = struct.Struct("=QQQQ")  # start, length, mode, ioctls
_UFFDIO_WRITEPROTECT = struct.Struct("=QQQ")  # start, length, mode
_PM_SCAN_ARG = struct.Struct("=12Q")
_PAGE_REGION = struct.Struct("=QQQ")  # start, end, categories


def _request(direction: int, group: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | group << 8 | number


_IOC_API = _request(3, 0xAA, 0x3F, _UFFDIO_API.size)
_IOC_REGISTER = _request(3, 0xAA, 0x00, _UFFDIO_REGISTER.size)
_IOC_UNREGISTER = _request(2, 0xAA, 0x01, _UFFDIO_RANGE.size)
_IOC_WRITEPROTECT = _request(3, 0xAA, 0x06, _UFFDIO_WRITEPROTECT.size)
_IOC_PAGEMAP_SCAN = _request(3, ord("f"), 16, _PM_SCAN_ARG.size)

#: the path of every shared mapping in /proc/self/maps
_SHARED = re.compile(rb"\n\S+ \S{3}s \S+ \S+ +\d+ *([^\n]*)")
#: … and those among them that are files and memory; the others are devices and rings, which come with pinned pages
_PLAIN = re.compile(rb"/(?!\[|dmabuf|drm |dev/(?!shm/|zero |hugepages/))")
#: a line of /proc/self/maps that is private anonymous memory: its end
_ANONYMOUS = re.compile(rb"[0-9a-f]+-([0-9a-f]+) \S\S\Sp \S+ 00:00 0 *(?:\[heap\]|\[stack\]|\[anon:.*)?$")


class Watch:
    """Says if the bytes of a buffer are certainly those of the moment when the Watch was made.

    Copy the bytes after the Watch has begun, not before. It keeps the buffer, and so its memory, until `close`. Neither
    blocks nor raises; a buffer that cannot be watched (read-only, not contiguous, a file's or shared memory, under
    another Watch) is never unchanged. The first write to each page afterwards takes a microsecond more. May be called
    from any thread, but `close` not during `unchanged`.

    >>> data = bytearray(100_000)
    >>> watch = Watch(memoryview(data))
    >>> data[5] = 1
    >>> watch.unchanged()
    False
    >>> watch.close()
    """

    def __init__(self, buffer: memoryview) -> None:
        #: what is watched; None once it is over
        self._view: memoryview | None = None
        #: its whole pages; None if it has none
        self._pages: _Pages | None = None
        #: the bytes before and after the whole pages
        self._head = self._tail = b""
        if buffer.readonly or not buffer.contiguous or not available():
            return
        view = PickleBuffer(buffer).raw()
        head, pages = _split(view)
        if pages:
            start = address_of(view) + head
            try:
                self._pages = _Pages(start, start + pages)
                alone = _is_alone(start, start + pages)
            except OSError:
                alone = False
            if not alone:
                self.close()
                return
        self._head, self._tail = bytes(view[:head]), bytes(view[head + pages :])
        self._view = view

    def unchanged(self) -> bool:
        """True if nothing was written to the buffer since the Watch began; False if something was, or may have been.

        What another thread writes during the call may count or not. After a False it is False for good.
        """
        view = self._view
        if view is None:
            return False
        # the pages first: if they are gone, reading the ends would be a fault
        if self._pages is None or self._pages.unwritten():
            head, tail = len(self._head), len(self._tail)
            if bytes(view[:head]) == self._head and bytes(view[view.nbytes - tail :]) == self._tail:
                return True
        self.close()
        return False

    def close(self) -> None:
        """Ends the Watch: later writes cost nothing, the buffer is let go. May be called again."""
        if self._pages is not None:
            self._pages.release()
        self._view = self._pages = None
        self._head = self._tail = b""

    def __del__(self) -> None:
        self.close()


def available() -> bool:
    """Whether a Watch can say «unchanged» here: the kernel can tell (Linux 6.7, tried once), and that is accepted."""
    return MISSES_ACCEPTED and kernel_tells()


@functools.cache
def kernel_tells() -> bool:
    """Whether the kernel lets this process watch pages, and tells of a write and of a drop. Tried at the first call."""
    if sys.platform != "linux" or struct.calcsize("P") != 8 or platform.machine() not in _SYS_USERFAULTFD:
        return False
    size = 4 * mmap.PAGESIZE
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[0] = 1  # a page that is there; the others are not
        start = address_of(memory)
        changes: list[Callable[[], object]] = [
            lambda: ctypes.memset(start, 2, 1),
            lambda: ctypes.memset(start + size - 1, 2, 1),
            lambda: memory.madvise(mmap.MADV_DONTNEED, 0, mmap.PAGESIZE),
        ]
        for change in changes:
            try:
                pages = _Pages(start, start + size)
                told = pages.unwritten()
                change()
                told = told and not pages.unwritten()
                pages.release()
            except OSError:
                return False
            if not told:
                return False
    return True


class _Pages:
    """Whole pages of this process, write-protected once. A userfaultfd each: no other can protect them again."""

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        #: the process whose memory it is: in a child the userfaultfd still speaks of its parent's
        self._pid = os.getpid()
        self._uffd = _userfaultfd()
        try:
            self._register()
            protect = _UFFDIO_WRITEPROTECT.pack(start, end - start, _PROTECT)
            fcntl.ioctl(self._uffd, _IOC_WRITEPROTECT, bytearray(protect))
        except OSError:
            self.release()
            raise

    def unwritten(self) -> bool:
        """Whether every page still has the mark that it was given at the beginning."""
        if os.getpid() != self._pid:
            return False
        try:
            self._register()  # of no effect, unless the range is another's by now: then an error, or pages without mark
            return self._marked()
        except OSError:
            return False

    def release(self) -> None:
        """Takes the protection away."""
        if os.getpid() == self._pid:
            # closing does it too, but not as long as a child holds the other end
            try:
                fcntl.ioctl(self._uffd, _IOC_UNREGISTER, _UFFDIO_RANGE.pack(self._start, self._end - self._start))
            except OSError:
                pass
        try:
            os.close(self._uffd)
        except OSError:
            pass

    def _register(self) -> None:
        register = _UFFDIO_REGISTER.pack(self._start, self._end - self._start, _MODE_WP, 0)
        fcntl.ioctl(self._uffd, _IOC_REGISTER, bytearray(register))

    def _marked(self) -> bool:
        """Asks for the pages that are not written, and present or swapped: one region, or it is no."""
        regions = (ctypes.c_char * (2 * _PAGE_REGION.size))()
        scan = bytearray(
            _PM_SCAN_ARG.pack(
                _PM_SCAN_ARG.size,
                _CHECK_WPASYNC,
                self._start,
                self._end,
                0,  # where the walk ended, filled in
                ctypes.addressof(regions),
                2,  # regions at most: at the second it is clear
                0,  # pages at most: any number
                _WRITTEN,  # inverted
                _WRITTEN | _WPALLOWED,  # all of these
                _PRESENT | _SWAPPED,  # one of these at least
                _WPALLOWED,  # told apart by this alone, so that a page that is swapped out does not begin a region
            )
        )
        pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = fcntl.ioctl(pagemap, _IOC_PAGEMAP_SCAN, scan)
        finally:
            os.close(pagemap)
        return found == 1 and _PAGE_REGION.unpack_from(regions) == (self._start, self._end, _WPALLOWED)


def _userfaultfd() -> int:
    """A new userfaultfd in asynchronous write-protect mode; raises OSError where there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    uffd: int = libc.syscall(_SYS_USERFAULTFD[platform.machine()], os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY)
    if uffd < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")
    try:
        features = _FEATURE_WP_ASYNC | _FEATURE_WP_UNPOPULATED
        fcntl.ioctl(uffd, _IOC_API, bytearray(_UFFDIO_API.pack(_API, features, 0)))
    except OSError:
        os.close(uffd)
        raise
    return uffd


def _is_alone(start: int, end: int) -> bool:
    """Whether only the page tables of this process lead to those pages, as far as it can be seen.

    They must be private and anonymous, and the process must hold nothing that comes with pinned pages. `start` is where
    a mapping begins and `end` where one ends, because the registration has made it so.
    """
    status = Path("/proc/self/status").read_bytes()
    if not re.search(rb"\nVmLck:\s+0 kB\nVmPin:\s+0 kB\n", status):
        return False
    maps = b"\n" + Path("/proc/self/maps").read_bytes()
    if not all(map(_PLAIN.match, _SHARED.findall(maps))):
        return False
    while start < end:
        at = maps.find(b"\n%08x-" % start) + 1
        line = _ANONYMOUS.match(maps[at : maps.find(b"\n", at)])
        if not at or line is None:
            return False
        start = int(line[1], 16)
    return start == end


def _split(view: memoryview) -> tuple[int, int]:
    """How many bytes lie before the first whole page of a buffer, and how many in whole pages."""
    if not view.nbytes:
        return 0, 0
    head = min(-address_of(view) % mmap.PAGESIZE, view.nbytes)
    return head, (view.nbytes - head) // mmap.PAGESIZE * mmap.PAGESIZE
