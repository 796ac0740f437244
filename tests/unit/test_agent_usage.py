"""When the agent looks at its workers: soon after they get rows, often while they run some, seldom otherwise."""

import os
import subprocess
import sys

import pytest
from support import until

from scaler.agent import usage as usage_module
from scaler.agent.usage import BUSY, FIRST, QUIET, Usage
from scaler.store import StoreFull
from scaler.store.room import RoomRequest


@pytest.fixture
def usage(tmp_path):
    usage = Usage()
    usage.sample({}, {}, {}, 100.0, str(tmp_path))
    return usage


def test_a_row_that_comes_is_looked_at_soon(usage):
    assert usage.due == 100.0 + QUIET
    usage.note(True, 100.2)
    assert usage.due == 100.2 + FIRST


def test_while_rows_run_looks_follow_each_other(usage, tmp_path):
    usage.note(True, 100.2)
    usage.sample({}, {}, {}, 100.25, str(tmp_path))
    assert usage.due == 100.25 + BUSY
    usage.note(True, 100.3)
    assert usage.due == 100.25 + BUSY


def test_a_short_row_is_not_looked_at(usage):
    usage.note(True, 100.2)
    usage.note(False, 100.201)
    assert usage.due == 100.0 + QUIET


def test_a_writer_without_room_is_heard_until_it_has_some(usage, tmp_path, monkeypatch):
    monkeypatch.setattr(usage_module, "FREE", 0)  # whatever this machine's disk has

    def short():
        return usage.sample({}, {}, {}, 101.0, str(tmp_path)).short

    one, other = RoomRequest(str(tmp_path)), RoomRequest(str(tmp_path))
    assert short() == 0
    one.ask(StoreFull(str(tmp_path), 5 << 20, 1 << 20))
    assert (short(), short()) == (5 << 20, 0)
    one.ask(StoreFull(str(tmp_path), 5 << 20, 1 << 20))
    other.met()
    assert short() == 5 << 20
    one.ask(StoreFull(str(tmp_path), 5 << 20, 1 << 20))
    one.met()
    assert short() == 0
    one.ask(StoreFull(str(tmp_path), 5 << 20, 1 << 20, total=4 << 20))  # there will be none
    assert short() == 0
    RoomRequest(str(tmp_path / "removed")).ask(StoreFull("", 5 << 20, 0))


def test_who_waits_for_room_has_the_next_looks_taken_soon(usage, tmp_path):
    assert not usage.is_wanted
    RoomRequest(str(tmp_path)).ask(StoreFull(str(tmp_path), 5 << 20, 1 << 20))
    usage.sample({}, {}, {}, 101.0, str(tmp_path))
    assert usage.is_wanted
    assert usage.due == 101.0 + BUSY
    usage.sample({}, {}, {}, 101.0 + 2 * QUIET, str(tmp_path))
    assert not usage.is_wanted
    assert usage.due == 101.0 + 3 * QUIET


#: its main thread ends, and another one waits until nobody writes any more
LEAVES = """
import ctypes, os, threading
threading.Thread(target=os.read, args=(0, 1)).start()
ctypes.CDLL(None).syscall(93 if os.uname().machine == "aarch64" else 60, 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_process_without_its_main_thread_is_told_from_one_that_has_ended(usage, tmp_path):
    left, ended = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) for code in (LEAVES, "")]
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    pids = {0: os.getpid(), 1: left.pid, 2: ended.pid, 3: 0x7FFFFFFF}
    try:
        sampled = until(lambda: (seen := usage.sample(pids, {}, {}, 101.0, str(tmp_path))).halted and seen)
        assert list(sampled.halted) == [1]
        assert [slot for slot, memory in sampled.workers.items() if memory] == [0]
    finally:
        left.kill()
        for process in left, ended:
            process.communicate()
