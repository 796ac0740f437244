"""What a process of the engine keeps of memory that was freed."""

import os
import subprocess
import sys

import psutil
import pytest
from soak.growth import WINDOW, Growth, memory
from support import patience, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="glibc is that of Linux")

MB = 1_000_000

#: what malloc says of itself
_INFO = """
import ctypes

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks used free top"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

info = ctypes.CDLL(None).mallinfo2
info.restype = Info
"""

#: 8 threads, each of which in turn frees large blocks, and then 20 MB in smaller ones that lie together
_THREADS = f"""{_INFO}
import sys, threading
from scaler.common.long_lived import keep_little_memory

def work():
    with turn:
        for _ in range(2):
            bytearray(16 << 20)
        blocks = [bytearray(1 << 20) for _ in range(20)]
        del blocks
    done.wait()

if sys.argv[1:]:
    assert keep_little_memory()
turn, done = threading.Lock(), threading.Barrier(9)
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
done.wait()
print(info().free)
"""


def test_a_process_that_is_told_so_keeps_little_of_what_its_threads_have_freed():
    kept = []
    for arguments in ([], ["told"]):
        ran = subprocess.run([sys.executable, "-c", _THREADS, *arguments], capture_output=True, text=True, timeout=60)
        if "mallinfo2" in ran.stderr:
            pytest.skip("needs glibc 2.33")
        assert not ran.returncode, ran.stderr
        kept.append(int(ran.stdout))
    untold, told = kept
    assert untold > 100 * MB
    assert told < untold / 3


def made(value):
    return bytes([value]) * 10 * MB


def test_an_agent_that_has_moved_objects_to_disk_keeps_no_memory_for_the_next(daemons, tmp_path):
    daemons.start_scheduler()
    agent = daemons.start_agent(1, "--memory-limit", str(100 * MB), "--spill-directory", str(tmp_path))
    client = daemons.client()
    assert client.submit(made, 7).result(patience(20)) == made(7)
    process = psutil.Process(agent.pid)
    before = process.memory_full_info().uss
    futures = [client.submit(made, x) for x in range(30)]
    assert all(future.result(patience(20)) == made(x) for x, future in enumerate(futures))
    until(lambda: process.memory_full_info().uss - before < 6 * MB, "its memory to be given back")


def test_a_scheduler_whose_queued_rows_are_gone_keeps_no_memory_for_the_next(daemons):
    """Rows of a client lie between what lasts: with nothing given back 10 of 12 MB stay."""
    daemons.start_scheduler()
    process = psutil.Process(daemons.scheduler.pid)
    client = daemons.client()
    futures = [client.submit(made, x) for x in range(1_000)]  # loads what that takes
    assert client.cluster.status()["clients"] == 1  # and that
    before = process.memory_full_info().uss
    futures += [client.submit(made, x) for x in range(500_000)]
    until(lambda: client.cluster.status()["tasks"]["unassigned"] == len(futures), "all rows to be queued")
    queued = process.memory_full_info().uss
    assert queued - before > 4 * MB, "or this test shows nothing"
    client.disconnect()
    until(lambda: process.memory_full_info().uss - before < (queued - before) / 3, "its memory to be given back")


#: whether a block of so many MB has a mapping of its own after that
_LEARNED = f"""{_INFO}
import sys
from scaler.worker import heap

heap.learn(int(sys.argv[1]))
before = info().hblks
block = bytes(int(sys.argv[2]) << 20)
print(info().hblks - before)
"""


@pytest.mark.parametrize(
    ("tunables", "room", "block", "mapped"),
    [
        ("", 1_000 * MB, 31, "0"),
        ("", 200 * MB, 4, "0"),
        ("", 200 * MB, 31, "1"),
        ("", 20 * MB, 4, "1"),
        ("glibc.malloc.mmap_threshold=1000000", 200 * MB, 4, "1"),
    ],
)
def test_a_worker_begins_with_what_glibc_learns_unless_memory_is_short_or_the_user_has_told_it(
    tunables, room, block, mapped
):
    command = [sys.executable, "-c", _LEARNED, str(room), str(block)]
    environ = {**os.environ, "GLIBC_TUNABLES": tunables}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ)
    if "mallinfo2" in ran.stderr:
        pytest.skip("needs glibc 2.33")
    assert ran.stdout.strip() == mapped, ran.stderr


def in_turn(threads):
    """Threads that hold and free 30 MB one after the other; what this worker has while they live."""
    import threading

    turn, done = threading.Lock(), threading.Barrier(threads + 1)

    def work():
        with turn:
            blocks = [b"x" * MB for _ in range(30)]
            del blocks
        done.wait()
        done.wait()

    for _ in range(threads):
        threading.Thread(target=work).start()
    done.wait()
    taken = psutil.Process().memory_full_info().uss
    done.wait()
    return taken


def test_what_threads_of_a_task_have_freed_is_far_from_their_workers_limit(daemons):
    daemons.start_scheduler()
    daemons.start_agent(1, "--memory-limit", str(256 * MB))
    assert daemons.client().submit(in_turn, 12).result(patience(20)) < 128 * MB


def passing(value):
    return len(made(value)), os.getpid()


def leaking(value):
    import builtins

    kept = builtins.__dict__.setdefault("_kept_by_a_test", [])
    kept.append(bytes([value]) * MB)
    return passing(value)


@pytest.mark.parametrize(("function", "least", "most"), [(passing, -60, 60), (leaking, 500, 700)])
def test_a_soak_sees_a_worker_that_leaks_and_no_other(daemons, function, least, most):
    daemons.start_scheduler()
    daemons.start_agent(1)
    client = daemons.client()
    growth = Growth(WINDOW)
    for call in range(100):  # ten a minute, as it is told: 600 MB an hour
        _, pid = client.submit(function, call).result(patience(20))
        growth.note("worker", pid, call * WINDOW / 10, memory(pid))
    slope, _, count, _ = growth.found()["worker"]["megabytes"]
    assert count == 1
    assert least < slope < most
