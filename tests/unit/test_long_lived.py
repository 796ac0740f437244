"""Memory of processes that live for weeks."""

import math
import subprocess
import sys
import threading

import pytest

from scaler.common import long_lived

FREES_IN_THE_MIDDLE = """
import re
from scaler.common.long_lived import HeapTrim, keep_little_memory

def memory():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1000

assert keep_little_memory()
trim, pieces = HeapTrim(), [bytes(20_000) for _ in range(8_000)]
trim.look(True, 1.0)
kept = pieces[::100]
del pieces
before = memory()
trim.look(False, 9.0)
import threading
for thread in threading.enumerate():
    if thread.name == "scaler-heap":
        thread.join()
print(before, memory())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is given back by glibc's malloc_trim")
def test_what_is_free_in_the_middle_of_the_heap_is_given_back() -> None:
    said = subprocess.run([sys.executable, "-c", FREES_IN_THE_MIDDLE], capture_output=True, text=True, check=True)
    before, after = map(float, said.stdout.split())
    assert before > 100, "or there is nothing to do any more"
    assert after < 40


def test_that_is_done_once_in_a_pause_and_not_often(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float] = []

    class Thread:
        def __init__(self, **_: object) -> None: ...

        def start(self) -> None:
            begun.append(now)

    monkeypatch.setattr(threading, "Thread", Thread)
    trim = long_lived.HeapTrim()
    busy = {10.0, 11.0, 14.0, 50.0}
    for now in (1.0, *(float(second) for second in range(9, 90))):
        trim.look(now in busy, now)
    assert begun == [13.0, 43.0, 73.0]
    trim.look(True, 90.0)
    begun.clear()
    for now in map(float, range(90, 130)):
        trim.look(False, now)
    assert begun == [103.0]
    begun.clear()
    for now in map(float, range(130, 900)):  # never a pause
        trim.look(True, now)
    assert begun == [430.0, 731.0]
    begun.clear()
    for now in map(float, range(900, 2100)):  # hours of rest before it do not make a moment's work a long one
        trim.look(now == 2000.0, now)
    assert begun == [901.0, 2002.0]


def test_where_work_is_never_interrupted_only_a_pause_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float] = []
    monkeypatch.setattr(threading, "Thread", lambda **_: type("", (), {"start": lambda _: begun.append(now)})())
    trim = long_lived.HeapTrim(0.25, math.inf)
    for now in (second / 4 for second in range(4, 4_000)):
        trim.look(True, now)
    assert begun == []
    assert trim.due is None  # nobody has to look as long as that goes on
    for now in (999.9, 1_000.0, 1_000.25):
        trim.look(False, now)
    assert begun == [1_000.0]
    assert trim.due is None


def test_a_moment_of_work_is_enough_and_tells_when_to_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float] = []
    monkeypatch.setattr(threading, "Thread", lambda **_: type("", (), {"start": lambda _: begun.append(now)})())
    trim = long_lived.HeapTrim(0.25, math.inf)
    now = 50.0
    trim.look(True, now)
    trim.look(False, now + 0.01)
    assert trim.due == 50.25
    now = 50.26
    trim.look(False, now)
    assert begun == [50.26]
