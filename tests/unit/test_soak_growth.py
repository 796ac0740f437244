"""What a soak says of growth: what leaks shows, and nothing else does."""

import json
import mmap
import os
import socket
import sys
from collections import Counter

import psutil
import pytest
from soak import accounts, load
from soak.growth import Growth, descriptors, memory

#: MB at hand in some moments, more than all else
AT_HAND = (0, 12, 4, 0.3, 24, 12, 0, 8)
EVERY = 5


def noted(growth, process, level, seconds):
    """Look at a process every five seconds; `level(age)` is what it takes beside values at hand."""
    for number, age in enumerate(range(0, seconds, EVERY)):
        growth.note("worker", process, age, {"megabytes": level(age) + AT_HAND[number % len(AT_HAND)]})
    return growth.found().get("worker", {}).get("megabytes")


def test_values_at_hand_are_no_growth():
    a, error, count, oldest = noted(Growth(60), 1, lambda age: 20, 1200)
    assert abs(a) < 1e-6
    assert error < 1e-6
    assert count == 1
    assert 19 <= oldest < 20


def test_what_leaks_shows_beside_values_at_hand():
    a, error, _, _ = noted(Growth(60), 1, lambda age: 20 + 30 * age / 3600, 1200)
    assert abs(a - 30) < 0.5
    assert error < 0.5


def test_what_fills_at_first_is_no_growth():
    a, _, _, _ = noted(Growth(120), 1, lambda age: 20 + min(age, 115), 1200)
    assert abs(a) < 1e-6


def test_each_process_has_a_level_of_its_own():
    growth = Growth(60)
    noted(growth, 1, lambda age: 20, 600)
    a, error, count, _ = noted(growth, 2, lambda age: 90, 1200)
    assert abs(a) < 1e-6
    assert error < 1e-6
    assert count == 2


def test_processes_that_were_killed_young_have_no_slope():
    growth = Growth(60)
    assert all(noted(growth, number, lambda age: age, 170) is None for number in range(50))


@pytest.mark.skipif(sys.platform != "linux", reason="a soak is of Linux")
class TestMemory:
    def test_it_is_what_is_no_files(self, tmp_path):
        before = memory(os.getpid())
        with mmap.mmap(-1, 30_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as private:
            private.write(bytes([1]) * len(private))
            after = memory(os.getpid())
        assert after["megabytes"] - before["megabytes"] > 25
        with mmap.mmap(-1, 30_000_000) as shared:
            shared.write(bytes([1]) * len(shared))
            after = memory(os.getpid())
        assert after["mapped megabytes"] - before["mapped megabytes"] > 25

    def test_the_end_of_a_process_that_shares_it_is_no_growth(self):
        # private ones alone are what `uss` has, which grows here
        held = bytes([1]) * 50_000_000
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        itself = psutil.Process()
        uss, before = itself.memory_full_info().uss, memory(itself.pid)["megabytes"]
        os.close(writing)
        os.waitpid(child, 0)
        os.close(reading)
        assert itself.memory_full_info().uss - uss > 40_000_000
        assert abs(memory(itself.pid)["megabytes"] - before) < 10
        assert len(held) == 50_000_000

    def test_one_that_has_ended_has_none(self):
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProcessLookupError):
            memory(child)
        os.waitpid(child, 0)


def test_descriptors_are_counted_by_what_they_are(tmp_path):
    before = descriptors(os.getpid())
    read, write = os.pipe()
    with (tmp_path / "a: file").open("w"), socket.socket(), socket.socket():
        made = Counter(descriptors(os.getpid()))
        made.subtract(before)
        assert +made == {"descriptors": 5, "sockets": 2, "pipes": 2, "files": 1}
    os.close(read)
    os.close(write)
    assert descriptors(os.getpid()) == before


def test_what_clients_have_in_use_is_read_from_the_end_of_what_they_say(tmp_path, monkeypatch):
    monkeypatch.setattr(accounts, "TAIL", 200)
    lines = [json.dumps({"pid": 7, "in use": float(number)}) for number in range(100)]
    (tmp_path / "told0").write_text("\n".join(lines) + '\n{"pid": 7, "in ')
    (tmp_path / "told1").write_text(json.dumps({"pid": 8, "in use": None}) + "\n")
    (tmp_path / "told2").write_text("")
    assert accounts.in_use(tmp_path) == {7: 99.0}


def test_what_a_client_has_in_use_is_what_it_was_given():
    before = load.in_use()
    if before is None:
        pytest.skip("malloc here doesn't say")
    kept = bytearray(50_000_000)
    assert 49 < load.in_use() - before < 51
    del kept
    assert abs(load.in_use() - before) < 1
