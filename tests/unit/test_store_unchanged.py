"""Watches over buffers: every way to write is seen, and nothing else is."""

import ctypes
import gc
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support import no_descriptor_stays

from scaler.store import unchanged
from scaler.store.unchanged import Watch

Bytes = NDArray[np.uint8]

PAGE = mmap.PAGESIZE
HUGE_PAGE = 2 << 20
SIZE = 24 * PAGE + 100  # some whole pages wherever it begins, and parts at both ends

libc = ctypes.CDLL(None, use_errno=True)
needs_kernel = pytest.mark.skipif(not unchanged.kernel_tells(), reason="this kernel cannot tell")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(autouse=True, scope="module")
def _misses_are_accepted() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unchanged, "MISSES_ACCEPTED", True)
        yield


@pytest.fixture
def data() -> Bytes:
    return anonymous(SIZE)


def anonymous(size: int, advice: int = mmap.MADV_NOHUGEPAGE, touched: bool = True, offset: int = 60) -> Bytes:
    """Private memory of which nothing else is in use, from `offset` of a huge page."""
    memory = np.frombuffer(mapped(offset + size + 2 * HUGE_PAGE, advice), np.uint8)
    start = -address(memory) % HUGE_PAGE + offset
    taken = memory[start : start + size]
    if touched:
        taken[:] = 7
    return taken


def mapped(size: int, advice: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(advice)
    return memory


@contextmanager
def child(work: Callable[[], object]) -> Iterator[None]:
    """A forked process that has done some work when the body begins, and lives until the body ends."""
    done, go_on = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        # whatever happens: no second pytest may come out of this
        try:
            work()
            os.write(done[1], b".")
            os.close(go_on[1])
            os.read(go_on[0], 1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        finally:
            os._exit(0)
    os.close(done[1])
    try:
        assert os.read(done[0], 1) == b".", "the child failed"
        yield
    finally:
        for end in (done[0], *go_on):
            os.close(end)
        os.waitpid(pid, 0)


def address(array: NDArray[np.generic]) -> int:
    return int(array.ctypes.data)


def begin(array: NDArray[np.generic]) -> Watch:
    return Watch(array.data)


# ---- the ways to write -----------------------------------------------------------------------------------------------


def by_assignment(data: Bytes, new: bytes) -> None:
    data[:] = np.frombuffer(new, np.uint8)


def by_memmove(data: Bytes, new: bytes) -> None:
    ctypes.memmove(address(data), new, len(new))


def by_another_thread(data: Bytes, new: bytes) -> None:
    thread = threading.Thread(target=by_memmove, args=(data, new))
    thread.start()
    thread.join()


def by_readinto(data: Bytes, new: bytes) -> None:
    with open(os.memfd_create("new"), "r+b", buffering=0) as file:
        file.write(new)
        file.seek(0)
        file.readinto(data.data)


def by_recv_into(data: Bytes, new: bytes) -> None:
    left, right = socket.socketpair()
    with left, right:
        for at in range(0, len(new), 4096):
            left.sendall(new[at : at + 4096])
            right.recv_into(data.data[at : at + 4096])


def by_proc_self_mem(data: Bytes, new: bytes) -> None:
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(address(data))
        memory.write(new)


def by_a_child(data: Bytes, new: bytes) -> None:
    """Into the parent's memory, as a debugger does."""
    source = ctypes.create_string_buffer(new, len(new))
    parent = os.getpid()
    with child(lambda: process_vm_writev(parent, ctypes.addressof(source), address(data), len(new))):
        pass


WRITERS: list[Callable[[Bytes, bytes], None]] = [
    by_assignment,
    by_memmove,
    by_another_thread,
    by_readinto,
    by_recv_into,
    by_proc_self_mem,
    by_a_child,
]


def process_vm_writev(pid: int, source: int, target: int, size: int) -> None:
    number = {"x86_64": 311, "aarch64": 271}[os.uname().machine]
    pieces = [(ctypes.c_size_t * 2)(start, size) for start in (source, target)]
    one, flags = ctypes.c_size_t(1), ctypes.c_size_t(0)
    written = libc.syscall(number, pid, pieces[0], one, pieces[1], one, flags)
    assert written == size, os.strerror(ctypes.get_errno())


# ---- what is seen, and what is not there to be seen ------------------------------------------------------------------


@needs_kernel
@pytest.mark.parametrize("size", [0, 1, 60, PAGE, 2 * PAGE, SIZE, 5 * HUGE_PAGE])
@pytest.mark.parametrize("offset", [0, 60, PAGE - 1, HUGE_PAGE - PAGE])
def test_a_buffer_that_is_only_read_is_unchanged(size: int, offset: int) -> None:
    data = anonymous(size, mmap.MADV_HUGEPAGE, offset=offset)
    watch = begin(data)
    assert watch.unchanged()
    data.sum()
    assert watch.unchanged()
    watch.close()


@needs_kernel
@pytest.mark.parametrize("kind", ["normal", "huge", "never touched"])
@pytest.mark.parametrize("write", WRITERS)
def test_a_written_byte_is_seen_wherever_it_is(write: Callable[[Bytes, bytes], None], kind: str) -> None:
    size = HUGE_PAGE + SIZE if kind == "huge" else SIZE
    data = anonymous(size, mmap.MADV_HUGEPAGE if kind == "huge" else mmap.MADV_NOHUGEPAGE, kind != "never touched")
    for at in (0, PAGE, size // 2, size - PAGE - 1, size - 1):
        watch = begin(data)
        assert watch.unchanged()
        write(data[at : at + 1], b"\x08")
        assert data[at] == 8
        assert not watch.unchanged()
        data[at] = 7


@needs_kernel
def test_what_the_neighbours_in_the_same_page_do_does_not_count() -> None:
    whole = anonymous(SIZE)
    watch = begin(whole[100:-100])
    whole[99] = whole[-100] = 1
    assert watch.unchanged()


@needs_kernel
def test_bytes_that_were_changed_and_changed_back_are_not_unchanged_again(data: Bytes) -> None:
    watch = begin(data)
    data[0] = 8
    assert not watch.unchanged()
    data[0] = 7
    assert not watch.unchanged()


@needs_kernel
@pytest.mark.parametrize("advice", [mmap.MADV_NOHUGEPAGE, mmap.MADV_HUGEPAGE])
@pytest.mark.parametrize("dropped", [PAGE, HUGE_PAGE, 2 * HUGE_PAGE])
def test_memory_that_was_dropped_is_seen(advice: int, dropped: int) -> None:
    """MADV_DONTNEED makes it zeros without a write; of a huge page not even a page table stays."""
    data = anonymous(3 * HUGE_PAGE, advice, offset=0)
    watch = begin(data)
    assert libc.madvise(ctypes.c_void_p(address(data)), ctypes.c_size_t(dropped), mmap.MADV_DONTNEED) == 0
    assert not watch.unchanged()
    assert data[0] == 0


@needs_kernel
def test_memory_that_became_read_only_for_a_while_is_unchanged(data: Bytes) -> None:
    watch = begin(data)
    pages = ctypes.c_void_p(-(-address(data) // PAGE) * PAGE), ctypes.c_size_t(SIZE // PAGE * PAGE)
    assert libc.mprotect(*pages, mmap.PROT_READ) == 0
    assert libc.mprotect(*pages, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    assert watch.unchanged()
    data[PAGE] = 8
    assert not watch.unchanged()


@needs_kernel
def test_other_memory_at_the_same_address_is_not_the_watched_one(data: Bytes) -> None:
    """What numpy's resize(refcheck=False) can bring about, even if the new memory is watched as well."""
    start, end = -(-address(data) // PAGE) * PAGE, (address(data) + SIZE) // PAGE * PAGE
    watch = begin(data)
    libc.mmap.restype = ctypes.c_void_p
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # MAP_FIXED
    assert libc.mmap(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 3, flags, -1, ctypes.c_long(0)) == start
    other = begin(data[start - address(data) : end - address(data)])
    assert not watch.unchanged()
    assert other.unchanged()


# ---- fork ------------------------------------------------------------------------------------------------------------


@needs_kernel
@pytest.mark.parametrize("advice", [mmap.MADV_NOHUGEPAGE, mmap.MADV_HUGEPAGE])
def test_what_a_child_writes_to_its_copy_does_not_count(advice: int) -> None:
    data = anonymous(2 * HUGE_PAGE, advice)
    watch = begin(data)
    with child(lambda: data.fill(8)):
        assert watch.unchanged()
    assert watch.unchanged()


@needs_kernel
@pytest.mark.parametrize("advice", [mmap.MADV_NOHUGEPAGE, mmap.MADV_HUGEPAGE])
def test_what_the_parent_writes_while_a_child_has_the_pages_too_is_seen(advice: int) -> None:
    data = anonymous(2 * HUGE_PAGE, advice)
    watch = begin(data)
    with child(lambda: None):
        data[HUGE_PAGE] = 8
        assert not watch.unchanged()


@needs_kernel
def test_pages_shared_with_a_child_can_be_watched(data: Bytes) -> None:
    with child(lambda: None):
        watch = begin(data)
        assert watch.unchanged()
        data[5 * PAGE] = 8
        assert not watch.unchanged()


@needs_kernel
def test_a_child_knows_nothing_and_disturbs_nothing(data: Bytes) -> None:
    watch = begin(data)

    def ask_and_close() -> None:
        assert not watch.unchanged()
        watch.close()
        assert begin(data).unchanged()  # its own memory it can watch

    with child(ask_and_close):
        assert watch.unchanged()
    data[5 * PAGE] = 8
    assert not watch.unchanged()


# ---- whose memory, and for how long ----------------------------------------------------------------------------------


@needs_kernel
def test_memory_is_kept_until_the_watch_closes() -> None:
    array = np.ones(1_000_000)
    gone = weakref.ref(array)
    watch = begin(array)
    del array
    gc.collect()
    assert gone() is not None
    assert watch.unchanged()
    watch.close()
    gc.collect()
    assert gone() is None
    assert not watch.unchanged()


@needs_kernel
def test_nothing_stays_behind() -> None:
    with no_descriptor_stays():
        closed, dropped = begin(np.ones(100_000)), begin(np.ones(100_000))
        assert "uw" in vm_flags()
        closed.close()
        closed.close()
        del dropped
    assert "uw" not in vm_flags()


@needs_kernel
def test_nothing_stays_behind_even_if_a_child_holds_the_descriptor_too(data: Bytes) -> None:
    watch = begin(data)
    with child(lambda: None):
        watch.close()
        assert "uw" not in vm_flags()


def vm_flags() -> set[str]:
    lines = Path("/proc/self/smaps").read_text().splitlines()
    return {flag for line in lines if line.startswith("VmFlags:") for flag in line.split()[1:]}


@needs_kernel
def test_of_two_watches_over_the_same_memory_the_first_counts(data: Bytes) -> None:
    first = begin(data)
    second = begin(data)
    assert not second.unchanged()
    assert first.unchanged()
    first.close()
    assert begin(data).unchanged()


@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE])
def test_the_pages_of_a_file_are_never_unchanged(tmp_path: Path, flags: int) -> None:
    (tmp_path / "file").write_bytes(bytes(SIZE))
    with open(tmp_path / "file", "r+b") as file:
        assert not Watch(memoryview(mmap.mmap(file.fileno(), 0, flags=flags))).unchanged()


def test_shared_memory_is_never_unchanged() -> None:
    assert not Watch(memoryview(mmap.mmap(-1, SIZE))).unchanged()


def test_what_is_read_only_or_has_gaps_is_never_unchanged() -> None:
    assert not Watch(memoryview(bytes(SIZE))).unchanged()
    assert not begin(np.ones(SIZE)[::2]).unchanged()


@needs_kernel
@pytest.mark.parametrize("dtype", ["f8", ">i4", "c16", "i4,f8"])
def test_arrays_of_any_type_and_order_can_be_watched(dtype: str) -> None:
    array = np.zeros((200, 300), dtype, order="F")
    watch = begin(array)
    assert watch.unchanged()
    array[100, 100] = 1
    assert not watch.unchanged()


# ---- pinned pages ----------------------------------------------------------------------------------------------------


@needs_kernel
def test_a_process_with_locked_memory_is_refused(data: Bytes) -> None:
    other = anonymous(PAGE, offset=0)
    page = ctypes.c_void_p(address(other)), ctypes.c_size_t(PAGE)
    if libc.mlock(*page) != 0:
        pytest.skip("no memory may be locked")
    assert not begin(data).unchanged()
    libc.munlock(*page)
    assert begin(data).unchanged()


@needs_kernel
def test_a_process_with_an_io_ring_is_refused(data: Bytes) -> None:
    ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))  # io_uring_setup
    if ring < 0:
        pytest.skip("no io_uring")
    with mmap.mmap(ring, PAGE, offset=0x10000000):  # its entries
        assert not begin(data).unchanged()
    assert begin(data).unchanged()
    # a buffer is registered: reads write to its pages past the page table
    buffer = (ctypes.c_uint64 * 2)(address(data), PAGE)
    assert libc.syscall(427, ring, 0, buffer, 1) == 0
    assert not begin(data).unchanged()
    assert libc.syscall(427, ring, 1, None, 0) == 0  # and is no longer
    os.close(ring)
    assert begin(data).unchanged()


@needs_kernel
@needs_root
def test_a_transfer_under_way_when_the_watch_begins_is_missed(data: Bytes) -> None:
    """Why MISSES_ACCEPTED exists. The transfer has pinned the page and waits for its source, which we withhold."""
    machine = os.uname().machine
    source = np.frombuffer(mapped(PAGE, mmap.MADV_NOHUGEPAGE), np.uint8)
    uffd = libc.syscall({"x86_64": 323, "aarch64": 282}[machine], os.O_CLOEXEC | os.O_NONBLOCK)
    ioctl(uffd, 0xC018AA3F, bytearray(struct.pack("=QQQ", 0xAA, 0, 0)))  # UFFDIO_API
    ioctl(uffd, 0xC020AA00, bytearray(struct.pack("=QQQQ", address(source), PAGE, 1, 0)))  # UFFDIO_REGISTER, missing
    target = address(data) + 4 * PAGE
    transfer = threading.Thread(target=process_vm_writev, args=(os.getpid(), address(source), target, PAGE))
    transfer.start()
    assert select.select([uffd], [], [], 10)[0]
    watch = begin(data)
    filling = np.full(PAGE, 8, np.uint8)
    copy = struct.pack("=QQQQq", address(source), address(filling), PAGE, 0, 0)
    ioctl(uffd, 0xC028AA03, bytearray(copy))  # UFFDIO_COPY
    transfer.join()
    os.close(uffd)
    assert data[4 * PAGE] == 8
    assert watch.unchanged()


# ---- where it works --------------------------------------------------------------------------------------------------


def test_it_is_not_available_until_the_misses_are_accepted(data: Bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "MISSES_ACCEPTED", False)
    assert not unchanged.available()
    assert not begin(data).unchanged()


TRY = """
import os, sys
import scaler.store.unchanged as unchanged
exec(open(0).read())
unchanged.MISSES_ACCEPTED = True
memory = bytearray(1_000_000)
watch = unchanged.Watch(memoryview(memory))
print(unchanged.available(), watch.unchanged(), end=" ")
ends = os.pipe()
os.write(ends[1], b"new")
os.readv(ends[0], [memoryview(memory)[500_000:500_003]])  # the kernel writes
print(watch.unchanged())
"""

BECOME_NOBODY = """
import ctypes
os.setgid(65534)
os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # /proc/self is its own again, as after exec
"""

DENY_USERFAULTFD = """
import ctypes, platform, struct
number = {"x86_64": 323, "aarch64": 282}[platform.machine()]
instructions = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in instructions))
program = struct.pack("HxxxxxxQ", len(instructions), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
assert libc.prctl(22, 2, program, 0, 0) == 0  # seccomp: that system call fails with EPERM
"""


def tried(before: str) -> list[str]:
    """What a process of its own prints: if it is available, and if a buffer is unchanged before and after a write."""
    run = subprocess.run([sys.executable, "-c", TRY], input=before, text=True, capture_output=True, timeout=50)
    assert not run.returncode, run.stderr
    return run.stdout.split()


@needs_kernel
@needs_root
def test_a_user_without_rights_can_watch_too() -> None:
    """With vm.unprivileged_userfaultfd = 0, and where it is the kernel that writes."""
    assert tried(BECOME_NOBODY) == ["True", "True", "False"]


@needs_kernel
def test_where_the_container_denies_it_nothing_is_unchanged() -> None:
    assert tried(DENY_USERFAULTFD) == ["False", "False", "False"]


def test_on_another_system_nothing_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not unchanged.kernel_tells.__wrapped__()


# ---- at random -------------------------------------------------------------------------------------------------------

LENGTHS = st.sampled_from([1, 100, PAGE, 3 * PAGE, HUGE_PAGE])
WRITES = st.tuples(st.sampled_from(WRITERS), st.integers(0, 1 << 32), LENGTHS)
NOTHING = st.sampled_from(["read", "fork", "collapse", "page out", "look"])


@needs_kernel
@given(
    size=st.sampled_from([5000, 9000, SIZE, HUGE_PAGE + SIZE, 2 * HUGE_PAGE]),
    offset=st.sampled_from([0, 60, PAGE, HUGE_PAGE - 1]),
    advice=st.sampled_from([mmap.MADV_NOHUGEPAGE, mmap.MADV_HUGEPAGE]),
    touched=st.booleans(),
    steps=st.lists(st.one_of(WRITES, NOTHING, NOTHING), max_size=6),
)
def test_it_is_unchanged_exactly_if_nothing_was_written(
    size: int,
    offset: int,
    advice: int,
    touched: bool,
    steps: list[tuple[Callable[[Bytes, bytes], None], int, int] | str],
) -> None:
    data = anonymous(size, advice, touched, offset)
    watch = begin(data)
    written = False
    for step in steps:
        if step == "look":
            assert watch.unchanged() == (not written)
        elif isinstance(step, str):
            do_nothing(step, data)
        else:
            write, at, length = step
            part = data[at % size :][:length]
            write(part, bytes(part + np.uint8(1)))
            written = True
    assert watch.unchanged() == (not written)
    watch.close()


def do_nothing(what: str, data: Bytes) -> None:
    """Something that leaves the bytes as they are."""
    if what == "read":
        data.sum()
    elif what == "fork":
        with child(lambda: data.fill(0)):
            pass
    else:
        advice = {"collapse": 25, "page out": 21}[what]
        pages = ctypes.c_void_p(address(data) // PAGE * PAGE), ctypes.c_size_t(len(data))
        libc.madvise(*pages, advice)
