"""Loops run a step when its time has come, and not before: who is woken too early plans nothing anew. And signals."""

import os
import signal
import time
from functools import partial
from itertools import count

import pytest

from scaler.common import loop as loops
from scaler.common.loop import Ending, Loop, ignore_ending_signals, make_loop

#: 0.4 ms beyond whole ones, to which timers are rounded
SOON = 0.0014


@pytest.mark.parametrize("name", ["builtin", "uvloop"])
def test_a_step_is_not_run_before_its_time(name: str) -> None:
    if name == "uvloop":
        pytest.importorskip("uvloop")
    early: list[float] = []
    wanted = [0.0]

    def step() -> None:
        now = time.monotonic()
        if wanted[0]:
            early.append(wanted[0] - now)
        if len(early) == 50:
            loop.stop()
        wanted[0] = now + SOON
        loop.wake_at(wanted[0])

    loop: Loop = make_loop(name, step)
    loop.soon()
    loop.run()
    assert max(early) <= 0.0, (
        f"{sum(each > 0 for each in early)} of 50 steps were early, one by {max(early) * 1e3:.2f} ms"
    )


@pytest.mark.parametrize("name", ["builtin", "uvloop"])
@pytest.mark.parametrize("seconds", [30 * 86400.0, 1e300])
def test_a_time_that_is_far_away_is_no_more_than_systems_can_wait_for(name: str, seconds: float) -> None:
    if name == "uvloop":
        pytest.importorskip("uvloop")
    loop: Loop = make_loop(name, lambda: loop.stop())
    loop.wake_at(time.monotonic() + seconds)
    reader, writer = os.pipe()
    try:
        loop.watch(reader, "something")
        os.write(writer, b"x")
        loop.run()
    finally:
        os.close(reader)
        os.close(writer)
    assert "something" in loop.ready


@pytest.mark.parametrize("name", ["builtin", "uvloop"])
def test_a_signal_while_a_process_closes_does_not_end_that(name: str) -> None:
    """Whoever is told twice to end would leave files behind otherwise."""
    if name == "uvloop":
        pytest.importorskip("uvloop")
    pid = os.fork()
    if not pid:
        try:
            loop = make_loop(name, lambda: os.kill(os.getpid(), signal.SIGTERM))
            loop.soon()
            loop.run(lambda: os.kill(os.getpid(), signal.SIGTERM))
        finally:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.parametrize("name", ["builtin", "uvloop"])
def test_a_program_that_was_told_to_end_before_its_loop_runs_ends(name: str) -> None:
    if name == "uvloop":
        pytest.importorskip("uvloop")
    pid = os.fork()
    if not pid:
        try:
            ending = Ending()
            ending.begin()
            os.kill(os.getpid(), signal.SIGTERM)
            loop = make_loop(name, lambda: None)
            loop.run(lambda: os.kill(os.getpid(), signal.SIGHUP), ending)
            os.kill(os.getpid(), signal.SIGINT)
            ignore_ending_signals()
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


class Poller:
    """Something is ready at once for who waits, and for who only looks at the third look."""

    def __init__(self) -> None:
        #: seconds that each `poll` was to wait
        self.asked: list[float] = []
        self._looks = 0

    def add(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        pass

    def poll(self, timeout: float = 0.0) -> list[tuple[int, int]]:
        self.asked.append(timeout)
        self._looks += 1
        if timeout == 0.0 and self._looks < 3:
            return []
        self._looks = 0
        return [(self.fd, 1)]


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_loop_that_is_idle_looks_before_it_sleeps(is_idle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    poller, steps = Poller(), []
    monkeypatch.setattr(loops, "Poller", lambda: poller)
    monkeypatch.setattr(loops, "available_cores", lambda: 2)
    ticks = count()  # whatever else this machine does: each look takes a microsecond
    monkeypatch.setattr(loops, "Spinner", partial(loops.Spinner, clock=lambda: next(ticks) * 1e-6))

    def step() -> None:
        steps.append(loop.ready.popitem())
        loop.is_idle = is_idle
        if len(steps) == 4:
            loop.stop()

    loop = make_loop("builtin", step)
    loop.on_signal(signal.SIGTERM, lambda: None)

    def watch(*_: object) -> None:
        loop.watch(7, "source")

    monkeypatch.setattr(loop, "watch_with", watch)  # of its signals, when it begins to run
    loop.run()
    slept = [timeout for timeout in poller.asked if timeout]
    if is_idle:
        assert len(slept) < len(poller.asked)
        assert len(slept) <= 2, "the first wait tells that answers are quick; after that it looks"
    else:
        assert slept == poller.asked
